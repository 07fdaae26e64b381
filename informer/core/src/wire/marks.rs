//! Marks (resume tokens) in the middle of an initial state, from which a broken stream resumes: an extension of
//! watch-list that clients request by a header. The protocol is in `docs/resuming.md`.
//!
//! INVARIANT: a mark has no resourceVersion and never ends the initial state, so that no client can take it for a
//! position.

use std::borrow::Cow;

use serde_json::Value;

use crate::{
    limits::TOKEN_BYTES_MAX,
    object::{self, Meta},
    wire::watch_event::TAIL,
};

/// Header of requests and responses, in the lower case of HTTP/2.
pub const HEADER: &str = "resume-initial-events";

/// The annotation of a mark; its value is the token.
pub const ANNOTATION: &str = "resume-initial-events";

/// Header value of a request without a token: send marks.
pub const NEW: &str = "new";

/// Header value of a response: the part of the state that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The state from its beginning, with marks.
    Accepted,
    /// The rest of the state, behind the requested mark.
    Resumed,
    /// The state from its beginning, because the token is not valid here.
    Restarted,
}

impl Answered {
    /// Parses the header's value; `None` for an unknown one.
    #[must_use]
    pub const fn parse(text: &[u8]) -> Option<Self> {
        match text {
            b"accepted" => Some(Self::Accepted),
            b"resumed" => Some(Self::Resumed),
            b"restarted" => Some(Self::Restarted),
            _ => None,
        }
    }

    /// The header's value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Resumed => "resumed",
            Self::Restarted => "restarted",
        }
    }
}

/// Returns true if `text` can be a token: it must be a valid header value of its own.
#[must_use]
pub fn is_token(text: &str) -> bool {
    let fits = (1..=TOKEN_BYTES_MAX).contains(&text.len());
    fits && text != NEW && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}

/// Returns the whole BOOKMARK line of a mark.
#[must_use]
pub fn mark(kind: &str, api_version: &str, token: &str) -> Vec<u8> {
    let (kind, api_version, token) = (Value::from(kind), Value::from(api_version), Value::from(token));
    let metadata = format!(r#"{{"annotations":{{"{ANNOTATION}":{token}}}}}"#);
    let object = format!(r#"{{"kind":{kind},"apiVersion":{api_version},"metadata":{metadata}}}"#);
    [br#"{"type":"BOOKMARK","object":"#, object.as_bytes(), TAIL].concat()
}

/// Returns the token of a bookmark that is a mark. `meta` is the result of [`Meta::read`] on `object`.
#[must_use]
pub fn token<'a>(object: &'a [u8], meta: &Meta<'_>) -> Option<Cow<'a, str>> {
    if meta.initial_events_end || !meta.resource_version.is_empty() {
        return None;
    }
    object::label(&object[meta.annotations_at.clone()?], ANNOTATION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::watch_event;

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

    #[test]
    fn what_does_not_fit_into_a_header_is_no_token() {
        assert!(is_token("eyJ2Ijoi.0f") && is_token(&"t".repeat(TOKEN_BYTES_MAX)));
        for text in ["", "new", "a b", "a,b", "a\nb", "ä", &"t".repeat(TOKEN_BYTES_MAX + 1)] {
            assert!(!is_token(text), "{text:?}");
        }
    }

    #[test]
    fn every_answer_reads_back() {
        for answered in [Answered::Accepted, Answered::Resumed, Answered::Restarted] {
            assert_eq!(Answered::parse(answered.as_str().as_bytes()), Some(answered));
        }
        assert_eq!(Answered::parse(b"Resumed"), None);
    }
}
