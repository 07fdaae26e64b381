//! Marks (resume tokens) in the middle of an initial state, as a server sends them. The protocol is in
//! `docs/resuming.md`.

pub use informer_core::wire::marks::{ANNOTATION, HEADER, MarksReply, NEW, is_token};
use serde_json::Value;

use crate::watch_event::TAIL;

/// Returns the whole BOOKMARK line of a mark.
#[must_use]
pub fn mark(kind: &str, api_version: &str, token: &str) -> Vec<u8> {
    let (kind, api_version, token) = (Value::from(kind), Value::from(api_version), Value::from(token));
    let metadata = format!(r#"{{"annotations":{{"{ANNOTATION}":{token}}}}}"#);
    let object = format!(r#"{{"kind":{kind},"apiVersion":{api_version},"metadata":{metadata}}}"#);
    [br#"{"type":"BOOKMARK","object":"#, object.as_bytes(), TAIL].concat()
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use informer_core::{Meta, wire::marks::token};

    use super::*;
    use crate::watch_event;

    fn read(line: &[u8]) -> Option<String> {
        let event: Value = serde_json::from_slice(line).unwrap();
        assert_eq!(event["type"], "BOOKMARK");
        let object = event["object"].to_string();
        let meta = Meta::read(object.as_bytes()).unwrap();
        token(object.as_bytes(), &meta).map(Cow::into_owned)
    }

    #[test]
    fn a_mark_says_its_token_and_nothing_else_does() {
        assert_eq!(read(&mark("Pod", "v1", "a.b")), Some("a.b".to_owned()));
        assert_eq!(read(&watch_event::bookmark("Pod", "v1", 7, false)), None);
        assert_eq!(read(&watch_event::bookmark("Pod", "v1", 7, true)), None);
        let with_version = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","annotations":{"resume-initial-events":"t"}}}}"#;
        assert_eq!(read(with_version), None, "a position is no mark");
    }

    #[test]
    fn marks_look_as_documented() {
        let line = r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"annotations":{"resume-initial-events":"t"}}}}"#;
        assert_eq!(String::from_utf8(mark("Pod", "v1", "t")).unwrap(), format!("{line}\n"));
    }
}
