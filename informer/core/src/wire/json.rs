//! Scans complete JSON documents without decoding them: members in order, values as byte ranges, strings on demand.
//!
//! INVARIANT: never panics, and never goes deeper than [`DEPTH_MAX`], whatever the input.

use std::{borrow::Cow, ops::Range};

use memchr::{memchr, memchr2};

pub(crate) mod structure;

use crate::limits::DEPTH_MAX;
use structure::{Stop, Stops, Structure};

/// Error in bytes that are not a JSON document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// A byte that the grammar does not allow.
    #[error("malformed JSON at byte {at}")]
    Malformed {
        /// Position of that byte in the document.
        at: u64,
    },
    /// Nested deeper than [`DEPTH_MAX`].
    #[error("JSON is nested deeper than {limit} levels")]
    TooDeep {
        /// The limit, in levels.
        limit: usize,
    },
    /// The bytes end inside the document.
    #[error("JSON ends too early")]
    Ended,
}

/// A walk over an object: for each key in order, the caller takes its value, enters it, or skips it.
///
/// Shape: `key` returns the keys of the innermost object entered, then `None` once, and then is back in the outer one.
/// Cost: scans every byte once. Keys and values are checked only as far as the walk goes.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    // Objects entered and not left; 0 once the outermost has ended.
    level: usize,
    structure: Structure,
}

/// A key as written in the document, without its quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a>(pub(crate) &'a [u8]);

/// One member of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// Its key.
    pub key: Key<'a>,
    /// Its value without surrounding white space, undecoded.
    pub value: &'a [u8],
    /// Range of `value` in the slice passed to [`members`].
    pub at: Range<usize>,
}

impl<'a> Walk<'a> {
    /// Starts at the members of the object in `bytes`.
    ///
    /// # Errors
    /// If `bytes` does not begin with an object.
    pub fn new(bytes: &'a [u8]) -> Result<Self, JsonError> {
        let stops = Stops { values: 0, ..Stops::NONE };
        let mut structure = Structure::new();
        let (at, _) = structure.run(bytes, stops)?;
        match bytes.get(at) {
            Some(b'{') => Ok(Self { bytes, at, level: 1, structure }),
            Some(_) => Err(JsonError::Malformed { at: at as u64 }),
            None => Err(JsonError::Ended),
        }
    }

    /// Returns the next key of the innermost object, or `None` when that object has ended and is left. Skips values
    /// that were not taken.
    ///
    /// # Errors
    /// If the bytes up to there are not JSON.
    pub fn key(&mut self) -> Result<Option<Key<'a>>, JsonError> {
        if self.level == 0 {
            return Ok(None);
        }
        let stops = Stops { keys: self.level, ends: self.level - 1, ..Stops::NONE };
        match self.run(stops)? {
            Stop::Key => {
                let start = self.at.saturating_sub(self.structure.key_len());
                Ok(Some(Key(self.bytes.get(start + 1..self.at - 1).unwrap_or_default())))
            }
            Stop::End | Stop::Value | Stop::Depth => {
                self.level -= 1;
                Ok(None)
            }
        }
    }

    /// Takes the value of the last key. Returns its range, without surrounding white space.
    ///
    /// # Errors
    /// If the bytes up to its end are not JSON.
    pub fn value(&mut self) -> Result<Range<usize>, JsonError> {
        let start = match self.bytes.get(self.at..self.at + 2) {
            // The value directly follows the colon, as in all compact JSON: one run finds its end.
            Some([b':', first]) if *first > b' ' => self.at + 1,
            Some(_) | None => {
                self.run(Stops { values: self.level, ..Stops::NONE })?;
                self.at
            }
        };
        self.run(Stops { ends: self.level, ..Stops::NONE })?;
        Ok(start..self.at)
    }

    /// Enters the value of the last key. Returns false if it is not an object; it can still be taken.
    ///
    /// # Errors
    /// If the bytes up to its start are not JSON.
    pub fn enter(&mut self) -> Result<bool, JsonError> {
        self.run(Stops { values: self.level, ..Stops::NONE })?;
        let object = self.bytes.get(self.at) == Some(&b'{');
        self.level += usize::from(object);
        Ok(object)
    }

    /// Bytes scanned so far: the whole object once the outermost has ended.
    #[must_use]
    pub const fn taken(&self) -> usize {
        self.at
    }

    /// Number of objects entered; 0 once the outermost has ended.
    #[must_use]
    pub const fn level(&self) -> usize {
        self.level
    }

    fn run(&mut self, stops: Stops) -> Result<Stop, JsonError> {
        let (taken, stop) = self.structure.run(&self.bytes[self.at..], stops)?;
        self.at += taken;
        match stop {
            Some(Stop::Depth) => Err(JsonError::TooDeep { limit: DEPTH_MAX }),
            Some(stop @ (Stop::Key | Stop::Value | Stop::End)) => Ok(stop),
            None => Err(JsonError::Ended),
        }
    }
}

impl<'a> Key<'a> {
    /// Returns true if the key equals `text`, escaped or not.
    #[must_use]
    pub fn is(self, text: &str) -> bool {
        *self.bytes() == *text.as_bytes()
    }

    /// Returns the key's bytes with escapes decoded; as sent if an escape is invalid. Cost: no copy without escapes.
    #[must_use]
    pub fn bytes(self) -> Cow<'a, [u8]> {
        if memchr(b'\\', self.0).is_none() {
            return Cow::Borrowed(self.0);
        }
        self.text().map_or(Cow::Borrowed(self.0), |text| Cow::Owned(text.into_owned().into_bytes()))
    }

    /// Returns the decoded key; `None` if it is not UTF-8 or an escape is invalid.
    #[must_use]
    pub fn text(self) -> Option<Cow<'a, str>> {
        unescape(self.0)
    }
}

/// Returns the members of one object in order. Ends after the first error. Ignores bytes behind the object.
pub fn members<'a>(object: &'a [u8]) -> impl Iterator<Item = Result<Member<'a>, JsonError>> {
    let mut walk = Walk::new(object).map(Some);
    std::iter::from_fn(move || {
        let step = match &mut walk {
            Ok(Some(walk)) => member(walk),
            Ok(None) => return None,
            Err(error) => Err(*error),
        };
        if !matches!(step, Ok(Some(_))) {
            walk = Ok(None);
        }
        step.transpose()
    })
}

fn member<'a>(walk: &mut Walk<'a>) -> Result<Option<Member<'a>>, JsonError> {
    let Some(key) = walk.key()? else { return Ok(None) };
    let at = walk.value()?;
    Ok(Some(Member { key, value: &walk.bytes[at.clone()], at }))
}

/// Returns the elements of one array in order, undecoded. Ends before the first that is not JSON; empty if `array` is
/// none.
pub fn elements(array: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = array.trim_ascii_start().strip_prefix(b"[").unwrap_or_default();
    std::iter::from_fn(move || {
        let (element, after) = rest.split_at(skip_value(rest).ok()?);
        rest = after.trim_ascii_start().strip_prefix(b",").unwrap_or_default();
        Some(element.trim_ascii())
    })
}

/// Returns the length of the value at the start of `bytes`, including leading white space.
///
/// # Errors
/// If it is not JSON, or incomplete.
pub fn skip_value(bytes: &[u8]) -> Result<usize, JsonError> {
    let mut structure = Structure::new();
    let (taken, stop) = structure.run(bytes, Stops { ends: 0, ..Stops::NONE })?;
    match stop {
        Some(Stop::Depth) => Err(JsonError::TooDeep { limit: DEPTH_MAX }),
        Some(Stop::Key | Stop::Value | Stop::End) => Ok(taken),
        // A bare number ends with the input.
        None if structure.in_bare_scalar() => Ok(taken),
        None => Err(JsonError::Ended),
    }
}

/// Returns the offset after the closing quote of a string whose contents begin at `at`, or the length of `bytes` if they
/// end inside it.
#[must_use]
#[inline]
pub fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found + 1;
        if bytes[at - 1] == b'"' {
            return at;
        }
        // Skip the escaped byte: it cannot end the string.
        at += 1;
    }
    bytes.len()
}

/// Returns the contents of a string value, without quotes and escapes; `None` if `value` is not a valid string.
#[must_use]
pub fn string(value: &[u8]) -> Option<Cow<'_, str>> {
    unescape(value.strip_prefix(b"\"")?.strip_suffix(b"\"")?)
}

/// Returns `text` as a JSON string, with quotes.
#[must_use]
pub fn quote(text: &str) -> String {
    serde_json::to_string(text).expect("text is always a JSON string")
}

/// Decodes the contents of a string between its quotes. A lone surrogate becomes U+FFFD, as in Go.
///
/// Returns `None` if it is not UTF-8 or an escape is invalid. Cost: no copy without escapes.
#[must_use]
pub fn unescape(raw: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(raw).ok()?;
    let Some(first) = memchr(b'\\', raw) else { return Some(Cow::Borrowed(text)) };
    let mut decoded = String::with_capacity(text.len());
    let (mut run, mut rest) = text.split_at(first);
    loop {
        decoded.push_str(run);
        if rest.is_empty() {
            return Some(Cow::Owned(decoded));
        }
        let after = escape(&rest[1..], &mut decoded)?;
        (run, rest) = after.split_at(memchr(b'\\', after.as_bytes()).unwrap_or(after.len()));
    }
}

/// Decodes one escape, without its backslash. Returns the rest of the text.
fn escape<'a>(text: &'a str, decoded: &mut String) -> Option<&'a str> {
    let plain = match *text.as_bytes().first()? {
        byte @ (b'"' | b'\\' | b'/') => char::from(byte),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unicode(&text[1..], decoded),
        _ => return None,
    };
    decoded.push(plain);
    Some(&text[1..])
}

/// Decodes the four digits behind `\u`, and the other half of a surrogate pair.
fn unicode<'a>(text: &'a str, decoded: &mut String) -> Option<&'a str> {
    let (unit, rest) = hex(text)?;
    let low = || rest.strip_prefix("\\u").and_then(hex).filter(|(low, _)| (0xDC00..0xE000).contains(low));
    // A high surrogate counts only together with a low one.
    if (0xD800..0xDC00).contains(&unit)
        && let Some((low, after)) = low()
    {
        let code = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
        decoded.push(char::from_u32(code)?);
        return Some(after);
    }
    decoded.push(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER));
    Some(rest)
}

fn hex(text: &str) -> Option<(u32, &str)> {
    let digits = text.get(..4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    Some((u32::from_str_radix(digits, 16).ok()?, &text[4..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(json: &str) -> Vec<String> {
        members(json.as_bytes())
            .map(|member| match member {
                Ok(member) => format!("{}={}", member.key.text().unwrap(), String::from_utf8_lossy(member.value)),
                Err(error) => error.to_string(),
            })
            .collect()
    }

    #[test]
    fn members_come_in_order_and_trimmed() {
        assert_eq!(keys(r#" { "b" : 1 , "a":{"x":[1,{}]},"\u0063":"}" } "#), ["b=1", r#"a={"x":[1,{}]}"#, r#"c="}""#]);
        assert_eq!(keys("{}"), Vec::<String>::new());
    }

    #[test]
    fn members_end_after_the_first_error() {
        let malformed = |at| format!("malformed JSON at byte {at}");
        for (json, expected) in [
            ("null", vec![malformed(0)]),
            ("", vec!["JSON ends too early".to_owned()]),
            (r#"{"a":1,}"#, vec!["a=1".to_owned(), malformed(7)]),
            (r#"{"a":1 "b":2}"#, vec!["a=1".to_owned(), malformed(7)]),
            (r#"{"a" 1}"#, vec![malformed(5)]),
            (r#"{"a":[1,]}"#, vec![malformed(8)]),
            (r#"{"a":[1}}"#, vec![malformed(7)]),
            (r#"{"a":{"b"}}"#, vec![malformed(9)]),
            (r#"{"a":"b"#, vec!["JSON ends too early".to_owned()]),
            (r#"{a:1}"#, vec![malformed(1)]),
            (r#"{,}"#, vec![malformed(1)]),
            (r#"{"a":]}"#, vec![malformed(5)]),
        ] {
            assert_eq!(keys(json), expected, "{json}");
        }
    }

    #[test]
    fn elements_are_read_in_order_up_to_the_first_error() {
        for (json, expected) in [
            (r#" [ 1 , "a,]" ,[2],{"b":[3]},null ] "#, vec!["1", "\"a,]\"", "[2]", "{\"b\":[3]}", "null"]),
            ("[]", vec![]),
            ("[ ]", vec![]),
            ("[1,,2]", vec!["1"]),
            ("[1 2]", vec!["1"]),
            (r#"["a"#, vec![]),
            (r#"{"a":1}"#, vec![]),
            ("7", vec![]),
            ("", vec![]),
        ] {
            let found: Vec<&str> = elements(json.as_bytes()).map(|element| str::from_utf8(element).unwrap()).collect();
            assert_eq!(found, expected, "{json}");
        }
    }

    #[test]
    fn nesting_has_a_limit() {
        let deep = |levels: usize| [vec![b'['; levels], vec![b']'; levels]].concat();
        assert_eq!(skip_value(&deep(512)), Ok(1024));
        assert_eq!(skip_value(&deep(513)), Err(JsonError::TooDeep { limit: 512 }));
        assert_eq!(skip_value(&b"{\"a\":".repeat(1 << 20)), Err(JsonError::TooDeep { limit: 512 }));
    }

    #[test]
    fn brackets_match_at_every_depth() {
        let opening: String = (0..300).map(|level| if level % 3 == 0 { "[" } else { "{\"a\":" }).collect();
        let closing: Vec<u8> = (0..300).rev().map(|level| if level % 3 == 0 { b']' } else { b'}' }).collect();
        let whole = [opening.as_bytes(), b"1", &closing].concat();
        assert_eq!(skip_value(&whole), Ok(whole.len()));
        for wrong in opening.len() + 1..whole.len() {
            let mut bytes = whole.clone();
            bytes[wrong] = if bytes[wrong] == b']' { b'}' } else { b']' };
            assert_eq!(skip_value(&bytes), Err(JsonError::Malformed { at: wrong as u64 }));
        }
    }

    #[test]
    fn a_value_ends_where_it_ends() {
        for (json, length) in [(" 12.5e+3 ,", 8), ("null", 4), ("\"a\\\"b\"x", 6), ("[1,[2]] ", 7), ("{} {}", 2)] {
            assert_eq!(skip_value(json.as_bytes()), Ok(length), "{json}");
        }
        for json in ["", " ", "\"a", "[1", "\"\\"] {
            assert_eq!(skip_value(json.as_bytes()), Err(JsonError::Ended), "{json}");
        }
    }

    #[test]
    fn a_string_ends_at_its_own_quote() {
        for (text, end) in [("a\"b", 2), ("\"", 1), (r#"a\"b\\""#, 7), ("", 0), ("a", 1), (r"a\", 2)] {
            assert_eq!(string_end(text.as_bytes(), 0), end, "{text}");
        }
    }

    #[test]
    fn escapes_decode_as_in_go() {
        for (raw, text) in [
            (r#"plain"#, Some("plain")),
            (r#"\"\\\/\b\f\n\r\t"#, Some("\"\\/\u{8}\u{c}\n\r\t")),
            (r#"i\u0074ems"#, Some("items")),
            (r#"\uD83D\uDE00!"#, Some("\u{1F600}!")),
            (r#"\uD83Dx\uDE00"#, Some("\u{FFFD}x\u{FFFD}")),
            (r#"\uD83D\u0041"#, Some("\u{FFFD}A")),
            (r#"\u00"#, None),
            (r#"\u+041"#, None),
            (r#"\x"#, None),
            (r#"a\"#, None),
        ] {
            assert_eq!(unescape(raw.as_bytes()).as_deref(), text, "{raw}");
        }
        assert_eq!(unescape(b"\xff"), None);
        assert!(matches!(unescape(b"same"), Some(Cow::Borrowed(_))));
    }

    proptest! {
        #[test]
        fn any_text_survives_quoting(text in any::<String>()) {
            let quoted = quote(&text);
            prop_assert_eq!(string(quoted.as_bytes()), Some(Cow::Borrowed(text.as_str())));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(
            prop_oneof![proptest::sample::select(b"{}[]:,\"\\ 1nu".to_vec()), any::<u8>()], 0..60)) {
            let _ = members(&bytes).count();
            let _ = skip_value(&bytes);
            let _ = elements(&bytes).count();
            let _ = unescape(&bytes);
        }
    }
}
