//! Watch events in and out: one compact JSON document and one newline each, `type` before `object`.
//!
//! INVARIANT: a line is head + object + [`TAIL`]; the heads are constants, so an object's bytes are never rewritten.

use crate::wire::status::Status;

/// What one line of a watch says.
///
/// # Source
/// Kubernetes API concepts, "Efficient detection of changes"; apimachinery `watch.EventType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// The object is new to the watcher: created, part of the initial state, or now matching the selector.
    Added,
    /// The object changed and matched before as well.
    Modified,
    /// The object is gone, or no longer matches. Content is the last matching one, resourceVersion that of the change.
    Deleted,
    /// Only a position; perhaps the end of the initial state.
    Bookmark,
    /// The object is a Status, and the stream ends after it.
    Error,
    /// A type this version does not know. Clients skip it.
    Other,
}

impl EventKind {
    /// Reads the text of `type`. Never fails: what is unknown is [`Self::Other`].
    #[must_use]
    pub const fn parse(text: &[u8]) -> Self {
        match text {
            b"ADDED" => Self::Added,
            b"MODIFIED" => Self::Modified,
            b"DELETED" => Self::Deleted,
            b"BOOKMARK" => Self::Bookmark,
            b"ERROR" => Self::Error,
            _ => Self::Other,
        }
    }

    /// The text on the wire; empty for [`Self::Other`], which is never sent.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
            Self::Other => "",
        }
    }
}

/// Before the object of an ADDED line.
pub const ADDED_HEAD: &[u8] = br#"{"type":"ADDED","object":"#;
/// Before the object of a MODIFIED line.
pub const MODIFIED_HEAD: &[u8] = br#"{"type":"MODIFIED","object":"#;
/// Before the object of a DELETED line.
pub const DELETED_HEAD: &[u8] = br#"{"type":"DELETED","object":"#;
/// Before the Status of an ERROR line.
pub const ERROR_HEAD: &[u8] = br#"{"type":"ERROR","object":"#;
/// After the object of any line.
pub const TAIL: &[u8] = b"}\n";
/// The annotation whose value `"true"` marks the bookmark that ends the initial state.
pub const INITIAL_EVENTS_ANNOTATION: &str = "k8s.io/initial-events-end";

/// A whole BOOKMARK line: an object of the watched type that carries only the position.
#[must_use]
pub fn bookmark(kind: &str, api_version: &str, resource_version: u64, initial_events_end: bool) -> Vec<u8> {
    todo!("{kind} {api_version} {resource_version} {initial_events_end}")
}

/// A whole ERROR line. The stream ends after it.
#[must_use]
pub fn error(status: &Status) -> Vec<u8> {
    todo!("{status}")
}
