//! The token that continues a paged LIST: a position in history and the next key.
//!
//! INVARIANT: `start` is a clean relative path, so a token cannot reach outside the list it is used on.

use base64::{
    Engine as _,
    alphabet::URL_SAFE,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::URL_SAFE_NO_PAD},
};
use serde_json::Value;

use crate::go;

/// The only encoding of tokens in use.
const VERSION: &str = "meta.k8s.io/v1";

/// Like Go, ignores leftover bits in the last letter.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// The state that the next page reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// The list's own resourceVersion; never zero.
    At(u64),
    /// The latest state: in the token that an expired list offers.
    Latest,
}

/// A position and the key to start from.
///
/// # Source
/// apiserver `pkg/storage/continue.go`. Opaque to clients, bound to no selector, not authenticated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContinueToken {
    /// The state that the next page reads.
    pub resource_version: Position,
    /// First key to return, relative to the list's prefix, without leading slash: the last key returned and a NUL byte.
    pub start: String,
}

/// Members of a token that only this project's servers write; other servers ignore them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenExtras {
    /// Number of objects from the start key on, so that the next page need not count them again.
    pub following: Option<u64>,
    /// Id of the history that the position belongs to.
    pub history: Option<u64>,
}

/// Error of an invalid token; the text is kube-apiserver's, sent after `invalid continue token: `.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("continue key is not valid: {0}")]
pub struct ContinueError(pub String);

impl ContinueToken {
    /// Creates the token that continues after `last_key` (relative, as listed) at `resource_version`.
    #[must_use]
    pub fn after(last_key: &str, resource_version: Position) -> Self {
        Self { resource_version, start: format!("{last_key}\0") }
    }

    /// Encodes the token: base64 in the URL alphabet, unpadded.
    ///
    /// Keys start with a slash, as in tokens of kube-apiserver's cache, except at [`Position::Latest`], where
    /// kube-apiserver sends none either.
    #[must_use]
    pub fn encode(&self) -> String {
        self.encode_with(TokenExtras::default())
    }

    /// Encodes the token with further members.
    #[must_use]
    pub fn encode_with(&self, extras: TokenExtras) -> String {
        let member = |name, value: Option<u64>| value.map(|value| format!(r#","{name}":{value}"#)).unwrap_or_default();
        let members = member("following", extras.following) + &member("history", extras.history);
        let (position, slash) = match self.resource_version {
            Position::At(position) => (position.to_string(), "/"),
            Position::Latest => ("-1".to_owned(), ""),
        };
        let start = Value::String(format!("{slash}{}", self.start));
        URL_SAFE_NO_PAD.encode(format!(r#"{{"v":"{VERSION}","rv":{position},"start":{start}{members}}}"#))
    }

    /// Decodes a token.
    ///
    /// # Errors
    /// [`ContinueError`] with kube-apiserver's text.
    pub fn decode(text: &str) -> Result<Self, ContinueError> {
        let bytes = decode_base64(text)?;
        let fields = TokenFields::read(&bytes)?;
        if fields.version != VERSION {
            return refuse(format!("server does not recognize this encoded version {}", fields.version));
        }
        let resource_version = match fields.position {
            0 => return refuse(format!("incorrect encoded start resourceVersion (version {VERSION})")),
            position => u64::try_from(position).map_or(Position::Latest, Position::At),
        };
        if fields.start.is_empty() {
            return refuse(format!("encoded start key empty (version {VERSION})"));
        }
        let relative = fields.start.strip_prefix('/').unwrap_or(&fields.start);
        if !is_clean(relative) {
            return refuse(fields.start);
        }
        Ok(Self { resource_version, start: relative.to_owned() })
    }
}

impl TokenExtras {
    /// Reads the members of a token's text that [`ContinueToken::encode_with`] wrote. A client may have sent any number.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let document = decode_base64(text).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        let member = |name| document.as_ref()?.get(name)?.as_u64();
        Self { following: member("following"), history: member("history") }
    }
}

fn refuse<T>(why: impl Into<String>) -> Result<T, ContinueError> {
    Err(ContinueError(why.into()))
}

/// Returns true if Go's `path.Clean` would not change the path.
fn is_clean(relative: &str) -> bool {
    relative.is_empty() || relative.split('/').all(|segment| !matches!(segment, "" | "." | ".."))
}

fn decode_base64(text: &str) -> Result<Vec<u8>, ContinueError> {
    let corrupt = |at: usize| ContinueError(format!("illegal base64 data at input byte {at}"));
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    // Go ignores line ends anywhere in the text.
    let is_line_end = |byte: u8| matches!(byte, b'\r' | b'\n');
    if let Some(at) = text.bytes().position(|byte| !is_letter(byte) && !is_line_end(byte)) {
        return Err(corrupt(at));
    }
    let letters: Vec<u8> = text.bytes().filter(|&byte| !is_line_end(byte)).collect();
    if letters.len() % 4 == 1 {
        return Err(corrupt(text.len() - 1));
    }
    LENIENT.decode(letters).map_err(|error| ContinueError(error.to_string()))
}

#[derive(Default)]
struct TokenFields {
    version: String,
    position: i64,
    start: String,
}

impl TokenFields {
    fn read(bytes: &[u8]) -> Result<Self, ContinueError> {
        if let Some(error) = go::json_error(bytes) {
            return refuse(error);
        }
        // Like Go, replace invalid UTF-8 by replacement letters.
        let document: Value =
            serde_json::from_str(&String::from_utf8_lossy(bytes)).or_else(|e| refuse(e.to_string()))?;
        let mut fields = Self::default();
        let members = match document {
            Value::Object(members) => members,
            Value::Null => return Ok(fields),
            other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                return refuse(format!(
                    "json: cannot unmarshal {} into Go value of type storage.continueToken",
                    go::json_type(&other)
                ));
            }
        };
        for (key, value) in members {
            // Go matches keys without regard to case.
            match key.to_ascii_lowercase().as_str() {
                "v" => text(&mut fields.version, "v", value)?,
                "start" => text(&mut fields.start, "start", value)?,
                "rv" => match value {
                    Value::Null => {}
                    Value::Number(number) => match number.as_i64() {
                        Some(position) => fields.position = position,
                        None => return mismatch(&format!("number {number}"), "rv", "int64"),
                    },
                    other @ (Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_)) => {
                        return mismatch(go::json_type(&other), "rv", "int64");
                    }
                },
                _ => {}
            }
        }
        Ok(fields)
    }
}

fn text(field: &mut String, key: &str, value: Value) -> Result<(), ContinueError> {
    match value {
        Value::String(text) => *field = text,
        Value::Null => {}
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            return mismatch(go::json_type(&other), key, "string");
        }
    }
    Ok(())
}

fn mismatch<T>(found: &str, key: &str, expected: &str) -> Result<T, ContinueError> {
    refuse(format!("json: cannot unmarshal {found} into Go struct field continueToken.{key} of type {expected}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(position: u64, start: &str) -> ContinueToken {
        ContinueToken { resource_version: Position::At(position), start: start.into() }
    }

    #[test]
    fn tokens_look_like_those_of_the_api_server() {
        assert_eq!(
            ContinueToken::after("default/a", Position::At(82)).encode(),
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6ODIsInN0YXJ0IjoiL2RlZmF1bHQvYVx1MDAwMCJ9"
        );
        assert_eq!(
            ContinueToken::after("big0", Position::Latest).encode(),
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYmlnMFx1MDAwMCJ9"
        );
    }

    #[test]
    fn tokens_of_cache_and_etcd_mean_the_same() {
        for (json, expected) in [
            (r#"{"v":"meta.k8s.io/v1","rv":5,"start":"/ns/a\u0000"}"#, at(5, "ns/a\0")),
            (r#"{"v":"meta.k8s.io/v1","rv":5,"start":"ns/a\u0000"}"#, at(5, "ns/a\0")),
            (r#" {"start":"a","x":[1],"rv":5,"v":"meta.k8s.io/v1"}"#, at(5, "a")),
            (r#"{"V":"meta.k8s.io/v1","RV":9223372036854775807,"Start":"/"}"#, at(i64::MAX as u64, "")),
            (
                r#"{"v":"meta.k8s.io/v1","rv":-7,"start":"a"}"#,
                ContinueToken { resource_version: Position::Latest, start: "a".into() },
            ),
        ] {
            let text = URL_SAFE_NO_PAD.encode(json);
            assert_eq!(ContinueToken::decode(&text), Ok(expected), "{json}");
            let broken_up = format!("{}\r\n{}", &text[..5], &text[5..]);
            assert_eq!(ContinueToken::decode(&broken_up), ContinueToken::decode(&text));
        }
    }

    #[test]
    fn text_that_is_no_token_is_refused_in_the_api_servers_words() {
        for (text, expected) in [
            ("%%%", "illegal base64 data at input byte 0"),
            ("aGVsbG8=", "illegal base64 data at input byte 7"),
            ("aGVs+", "illegal base64 data at input byte 4"),
            ("x", "illegal base64 data at input byte 0"),
            ("aGVsb", "illegal base64 data at input byte 4"),
            ("", "unexpected end of JSON input"),
            ("aGVsbG8", "invalid character 'h' looking for beginning of value"),
            ("invalidContinueToken", "invalid character '\\u008a' looking for beginning of value"),
        ] {
            assert_eq!(ContinueToken::decode(text), Err(ContinueError(expected.into())), "{text}");
        }
    }

    #[test]
    fn json_that_is_no_token_is_refused_in_the_api_servers_words() {
        for (json, expected) in [
            ("{\"v\":", "unexpected end of JSON input"),
            ("{}", "server does not recognize this encoded version "),
            ("null", "server does not recognize this encoded version "),
            (r#"{"v":"v2","rv":1,"start":"a"}"#, "server does not recognize this encoded version v2"),
            (
                r#"{"v":"meta.k8s.io/v1","rv":0,"start":""}"#,
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (r#"{"v":"meta.k8s.io/v1","rv":5,"start":""}"#, "encoded start key empty (version meta.k8s.io/v1)"),
            (r#"{"v":"meta.k8s.io/v1","rv":5,"start":"../a"}"#, "../a"),
            (r#"{"v":"meta.k8s.io/v1","rv":5,"start":"a/"}"#, "a/"),
            (r#"{"v":"meta.k8s.io/v1","rv":5,"start":"a//b"}"#, "a//b"),
            (r#"{"v":"meta.k8s.io/v1","rv":5,"start":"//b"}"#, "//b"),
            (r#"{"v":"meta.k8s.io/v1","rv":5,"start":"/./b"}"#, "/./b"),
            ("[]", "json: cannot unmarshal array into Go value of type storage.continueToken"),
            (r#"{"v":1}"#, "json: cannot unmarshal number into Go struct field continueToken.v of type string"),
            (r#"{"rv":"1"}"#, "json: cannot unmarshal string into Go struct field continueToken.rv of type int64"),
            (r#"{"rv":1.5}"#, "json: cannot unmarshal number 1.5 into Go struct field continueToken.rv of type int64"),
        ] {
            assert_eq!(
                ContinueToken::decode(&URL_SAFE_NO_PAD.encode(json)),
                Err(ContinueError(expected.into())),
                "{json}"
            );
        }
        assert_eq!(
            ContinueError("../a".into()).to_string(),
            "continue key is not valid: ../a",
            "the text sent after `invalid continue token: `"
        );
    }

    proptest! {
        #[test]
        fn a_token_survives_the_wire(position in 1..=i64::MAX as u64, latest: bool, key in "[a-z0-9.-]{1,9}[a-z](/[a-z0-9.-]{0,9}[a-z])?") {
            let position = if latest { Position::Latest } else { Position::At(position) };
            let token = ContinueToken::after(&key, position);
            prop_assert_eq!(TokenExtras::read(&token.encode()), TokenExtras::default());
            for (following, history) in [(Some(7), None), (None, Some(u64::MAX)), (Some(0), Some(1))] {
                let extras = TokenExtras { following, history };
                let text = token.encode_with(extras);
                prop_assert_eq!(TokenExtras::read(&text), extras);
                prop_assert_eq!(ContinueToken::decode(&text), Ok(token.clone()));
            }
            prop_assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
        }

        #[test]
        fn no_text_panics(text: String, bytes: Vec<u8>) {
            let _ = (ContinueToken::decode(&text), TokenExtras::read(&text));
            let _ = ContinueToken::decode(&URL_SAFE_NO_PAD.encode(bytes));
        }
    }
}
