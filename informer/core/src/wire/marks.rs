//! Marks (resume tokens) in the middle of an initial state, from which a broken stream resumes: an extension of
//! watch-list that clients request by a header. The protocol is in `docs/resuming.md`.
//!
//! INVARIANT: a mark has no resourceVersion and never ends the initial state, so that no client can take it for a
//! position.

use std::borrow::Cow;

use crate::{
    limits::TOKEN_BYTES_MAX,
    object::{self, Meta},
};

/// Header of requests and responses, in the lower case of HTTP/2.
pub const HEADER: &str = "resume-initial-events";

/// The annotation of a mark; its value is the token.
pub const ANNOTATION: &str = "resume-initial-events";

/// Header value of a request without a token: send marks.
pub const NEW: &str = "new";

/// Header value of a response: the part of the state that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarksReply {
    /// The state from its beginning, with marks.
    Accepted,
    /// The rest of the state, behind the requested mark.
    Resumed,
    /// The state from its beginning, because the token is not valid here.
    Restarted,
}

impl MarksReply {
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

    #[test]
    fn a_mark_has_a_token_and_no_position() {
        let read = |object: &[u8]| token(object, &Meta::read(object).unwrap()).map(Cow::into_owned);
        let mark = br#"{"kind":"Pod","apiVersion":"v1","metadata":{"annotations":{"resume-initial-events":"a.b"}}}"#;
        assert_eq!(read(mark), Some("a.b".to_owned()));
        assert_eq!(read(br#"{"metadata":{"resourceVersion":"7"}}"#), None);
        let both = br#"{"metadata":{"resourceVersion":"7","annotations":{"resume-initial-events":"t"}}}"#;
        assert_eq!(read(both), None, "a position is no mark");
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
        for answered in [MarksReply::Accepted, MarksReply::Resumed, MarksReply::Restarted] {
            assert_eq!(MarksReply::parse(answered.as_str().as_bytes()), Some(answered));
        }
        assert_eq!(MarksReply::parse(b"Resumed"), None);
    }
}
