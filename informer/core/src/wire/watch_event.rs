//! Encoding of watch events: one compact JSON document and one newline each, `type` before `object`.
//!
//! INVARIANT: a line is head + object + [`TAIL`]; the heads are constants, so an object's bytes are never rewritten.

use serde_json::Value;

use crate::wire::status::Status;

/// Type of a watch event.
///
/// # Source
/// Kubernetes API concepts, "Efficient detection of changes"; apimachinery `watch.EventType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// The object is new to the watcher: created, part of the initial state, or now matching the selector.
    Added,
    /// The object changed, and matched before as well.
    Modified,
    /// The object was deleted, or no longer matches. Contains its last matching state with the resourceVersion of the
    /// change.
    Deleted,
    /// A position without an object; may end the initial state.
    Bookmark,
    /// The object is a Status, and the stream ends after it.
    Error,
    /// A type unknown to this version. Clients skip it.
    Other,
}

impl EventKind {
    /// Parses the text of `type`. Never fails: unknown types are [`Self::Other`].
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

/// Head of an ADDED line, before the object.
pub const ADDED_HEAD: &[u8] = br#"{"type":"ADDED","object":"#;
/// Head of a MODIFIED line, before the object.
pub const MODIFIED_HEAD: &[u8] = br#"{"type":"MODIFIED","object":"#;
/// Head of a DELETED line, before the object.
pub const DELETED_HEAD: &[u8] = br#"{"type":"DELETED","object":"#;
/// Head of an ERROR line, before the Status.
pub const ERROR_HEAD: &[u8] = br#"{"type":"ERROR","object":"#;
/// Tail of every line, after the object.
pub const TAIL: &[u8] = b"}\n";
/// The annotation whose value `"true"` marks the bookmark that ends the initial state.
pub const INITIAL_EVENTS_ANNOTATION: &str = "k8s.io/initial-events-end";

/// Returns a whole BOOKMARK line: an object of the watched type with only the position.
///
/// kube-apiserver adds meaningless zero values of some types' members (`"spec":{"containers":null}` for pods).
#[must_use]
pub fn bookmark(kind: &str, api_version: &str, resource_version: u64, initial_events_end: bool) -> Vec<u8> {
    let object = bookmark_object(kind, api_version, resource_version, initial_events_end);
    [br#"{"type":"BOOKMARK","object":"#, &*object, TAIL].concat()
}

/// Returns only the object of a bookmark.
#[must_use]
pub fn bookmark_object(kind: &str, api_version: &str, resource_version: u64, initial_events_end: bool) -> Vec<u8> {
    let (kind, api_version) = (Value::from(kind), Value::from(api_version));
    let annotations = if initial_events_end {
        format!(r#","annotations":{{"{INITIAL_EVENTS_ANNOTATION}":"true"}}"#)
    } else {
        String::new()
    };
    let metadata = format!(r#"{{"resourceVersion":"{resource_version}"{annotations}}}"#);
    format!(r#"{{"kind":{kind},"apiVersion":{api_version},"metadata":{metadata}}}"#).into_bytes()
}

/// Returns a whole ERROR line. The stream ends after it.
#[must_use]
pub fn error(status: &Status) -> Vec<u8> {
    let object = status.to_json();
    [ERROR_HEAD, object.trim_ascii_end(), TAIL].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_reads_back_what_it_writes() {
        for kind in [
            EventKind::Added,
            EventKind::Modified,
            EventKind::Deleted,
            EventKind::Bookmark,
            EventKind::Error,
            EventKind::Other,
        ] {
            assert_eq!(EventKind::parse(kind.as_str().as_bytes()), kind);
        }
        assert_eq!(EventKind::parse(b"RESTARTED"), EventKind::Other);
        assert_eq!(EventKind::parse(b"added"), EventKind::Other);
    }

    #[test]
    fn heads_carry_their_kind() {
        for (head, kind) in [
            (ADDED_HEAD, EventKind::Added),
            (MODIFIED_HEAD, EventKind::Modified),
            (DELETED_HEAD, EventKind::Deleted),
            (ERROR_HEAD, EventKind::Error),
        ] {
            let line: Value = serde_json::from_slice(&[head, b"{}", TAIL].concat()).unwrap();
            assert_eq!(line["type"], kind.as_str());
            assert_eq!(line["object"], serde_json::json!({}));
        }
    }

    #[test]
    fn bookmarks_look_like_those_of_the_api_server() {
        for (end, expected) in [
            (
                false,
                r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"102"}}}"#,
            ),
            (
                true,
                r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"102","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
            ),
        ] {
            assert_eq!(String::from_utf8(bookmark("ConfigMap", "v1", 102, end)).unwrap(), format!("{expected}\n"));
        }
    }

    #[test]
    fn an_error_is_one_line_with_a_status() {
        assert_eq!(
            String::from_utf8(error(&Status::expired_watch(5, 1200))).unwrap(),
            concat!(
                r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
                r#""message":"too old resource version: 5 (1200)","reason":"Expired","code":410}}"#,
                "\n"
            )
        );
    }
}
