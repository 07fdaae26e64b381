//! The types of watch events, and the mark of the bookmark that ends the initial state.

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

/// The annotation whose value `"true"` marks the bookmark that ends the initial state.
pub const INITIAL_EVENTS_ANNOTATION: &str = "k8s.io/initial-events-end";

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
}
