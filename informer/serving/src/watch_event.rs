//! Encoding of watch events: one compact JSON document and one newline each, `type` before `object`.
//!
//! INVARIANT: a line is head + object + [`TAIL`]; the heads are constants, so an object's bytes are never rewritten.

use informer_core::wire::watch_event::INITIAL_EVENTS_ANNOTATION;
use serde_json::Value;

use crate::status::Status;

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
    use informer_core::wire::watch_event::EventKind;

    use super::*;
    use crate::status::StatusExt as _;

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
