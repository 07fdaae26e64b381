//! JSON patterns with wildcards for response bodies, and the positions they name.

use std::collections::BTreeMap;

use informer_serving::continue_token::{ContinueToken, Position};
use serde_json::Value;

/// The wildcard.
const ANYTHING: &str = "…";

/// Positions by name.
#[derive(Debug, Default)]
pub(super) struct Marks(BTreeMap<String, String>);

impl Marks {
    /// Replaces `{A}`, `{A+1}` and `{A-1}` by their positions. Other braces stay.
    pub(super) fn fill(&self, text: &str) -> String {
        let (mut out, mut rest) = (String::new(), text);
        while let Some(at) = rest.find('{') {
            let (before, tail) = rest.split_at(at);
            out.push_str(before);
            let named = tail[1..].split_once('}').and_then(|(inner, after)| Some((self.value(inner)?, after)));
            match named {
                Some((value, after)) => {
                    out.push_str(&value.to_string());
                    rest = after;
                }
                None => {
                    out.push('{');
                    rest = &tail[1..];
                }
            }
        }
        out + rest
    }

    fn value(&self, expression: &str) -> Option<u64> {
        let at = expression.find(['+', '-']).unwrap_or(expression.len());
        let (name, offset) = expression.split_at(at);
        let offset = if offset.is_empty() { 0 } else { offset.parse().ok()? };
        self.0.get(name)?.parse::<u64>().ok()?.checked_add_signed(offset)
    }

    /// A path with its query escaped and its tokens encoded.
    pub(super) fn path(&self, path: &str) -> String {
        let path = self.fill(path);
        let Some((place, query)) = path.split_once('?') else { return path };
        let pairs = query.split('&').map(|pair| match pair.split_once('=') {
            Some((name, value)) => tests::http::with_query("", &[(name, &made(value))])[1..].to_owned(),
            None => pair.to_owned(),
        });
        format!("{place}?{}", pairs.collect::<Vec<_>>().join("&"))
    }

    /// Appends the differences between `found` and `expected`, and records newly named positions.
    pub(super) fn compare(&mut self, expected: &str, found: &Value, wrong: &mut Vec<String>) {
        let expected = self.fill(expected);
        let pattern = serde_json::from_str(&expected).unwrap_or_else(|error| panic!("{error} in {expected}"));
        let before = wrong.len();
        self.value_is(&pattern, found, "", wrong);
        if wrong.len() > before {
            wrong.push(format!("  all of it: {found}"));
        }
    }

    fn value_is(&mut self, expected: &Value, found: &Value, at: &str, wrong: &mut Vec<String>) {
        match (expected, found) {
            (Value::String(text), _) if text == ANYTHING => {}
            (Value::String(text), Value::String(found)) => {
                if !self.text_is(text, found) {
                    wrong.push(format!("{at} is {found:?} and not {text:?}"));
                }
            }
            (Value::Object(expected), Value::Object(found)) => {
                let open = expected.contains_key(ANYTHING);
                for (name, value) in expected.iter().filter(|(name, _)| *name != ANYTHING) {
                    match found.get(name) {
                        Some(found) => self.value_is(value, found, &format!("{at}.{name}"), wrong),
                        None => wrong.push(format!("{at}.{name} is missing, expected {value}")),
                    }
                }
                let more = found.iter().filter(|(name, _)| !expected.contains_key(*name) && *name != "managedFields");
                wrong.extend(
                    more.filter(|_| !open).map(|(name, value)| format!("{at}.{name} is {value}, expected none")),
                );
            }
            (Value::Array(expected), Value::Array(found)) => {
                let open = expected.last().is_some_and(|last| last == ANYTHING);
                let count = expected.len() - usize::from(open);
                if found.len() < count || (found.len() > count && !open) {
                    wrong.push(format!("{at} has {} items and not {count}", found.len()));
                }
                for (index, (expected, found)) in expected.iter().take(count).zip(found).enumerate() {
                    self.value_is(expected, found, &format!("{at}[{index}]"), wrong);
                }
            }
            _ if expected == found => {}
            _ => wrong.push(format!("{at} is {found} and not {expected}")),
        }
    }

    fn text_is(&mut self, expected: &str, found: &str) -> bool {
        let digits = !found.is_empty() && found.bytes().all(|byte| byte.is_ascii_digit());
        match expected.strip_prefix('$') {
            Some("uid") => found.len() == 36 && found.split('-').map(str::len).eq([8, 4, 4, 4, 12]),
            Some("time") => found.len() == 20 && found.ends_with('Z') && found.as_bytes()[10] == b'T',
            Some("rv") => digits,
            Some(name) if name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()) => {
                let known = self.0.entry(name.to_owned()).or_insert_with(|| found.to_owned());
                digits && known == found
            }
            Some(_) | None if expected.starts_with("token(") => token_is(expected, found),
            Some(_) | None => is_like(expected, found),
        }
    }
}

/// Returns true if `found` matches `expected`, where `…` is a wildcard.
pub(super) fn is_like(expected: &str, found: &str) -> bool {
    let parts: Vec<&str> = expected.split(ANYTHING).collect();
    let [first, middle @ .., last] = &parts[..] else { return expected == found };
    let Some(mut rest) = found.strip_prefix(first) else { return false };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Encodes `token(1005/ns/name$)` as a continue token; returns any other text unchanged.
fn made(text: &str) -> String {
    read(text).map_or_else(|| text.to_owned(), |token| token.encode())
}

fn read(text: &str) -> Option<ContinueToken> {
    let inner = text.strip_prefix("token(")?.strip_suffix(')')?;
    let (position, start) = inner.split_once('/').unwrap_or_else(|| panic!("{text:?} is no token"));
    let resource_version = position.parse().map_or(Position::Latest, Position::At);
    Some(ContinueToken { resource_version, start: start.replace('$', "\0") })
}

/// The key in a token may begin with a slash or not.
fn token_is(expected: &str, found: &str) -> bool {
    let Ok(found) = ContinueToken::decode(found) else { return false };
    read(expected).is_some_and(|expected| {
        expected.resource_version == found.resource_version && expected.start == found.start.trim_start_matches('/')
    })
}

#[test]
fn gaps_match_anything_and_nothing_else() {
    for (expected, found, is) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("…", "", true),
        ("a…", "ab", true),
        ("…b", "ab", true),
        ("…b", "abb", true),
        ("…b", "ba", false),
        ("ab…b", "ab", false),
        ("a…c", "abc", true),
        ("a…c", "ab", false),
        ("a…b…d", "abcd", true),
    ] {
        assert_eq!(is_like(expected, found), is, "{expected} {found}");
    }
}

#[test]
fn a_pattern_says_what_is_missing_and_what_is_too_much() {
    let mut marks = Marks::default();
    let check = |marks: &mut Marks, expected: &str, found: &str| {
        let mut wrong = Vec::new();
        marks.compare(expected, &serde_json::from_str(found).expect("JSON"), &mut wrong);
        wrong.len().saturating_sub(1)
    };
    assert_eq!(check(&mut marks, r#"{"a":"$A","b":1}"#, r#"{"a":"7","b":1,"managedFields":[]}"#), 0);
    assert_eq!(check(&mut marks, r#"{"a":"$A","b":"{A+1}"}"#, r#"{"a":"7","b":"8"}"#), 0);
    assert_eq!(check(&mut marks, r#"{"a":"$A","b":1}"#, r#"{"a":"8","c":1}"#), 3);
    assert_eq!(check(&mut marks, r#"{"a":"…","…":0}"#, r#"{"a":[],"c":1}"#), 0);
    assert_eq!(check(&mut marks, r#"[1,"…"]"#, "[1,2,3]"), 0);
    assert_eq!(check(&mut marks, "[1,2]", "[1]"), 1);
    assert_eq!(marks.path("/x?continue=token({A}/a$)&watch"), format!("/x?continue={}&watch", made("token(7/a$)")));
}
