//! A query string parsed like Go does: pairs in order, escapes decoded.
//!
//! INVARIANT: pairs that cannot be decoded are dropped; of a repeated name the first value counts.

use std::borrow::Cow;

/// Decoded names and values in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query string; like Go, drops pairs that cannot be decoded. Cost: linear, copies each text.
    #[must_use]
    pub fn parse(text: Option<&str>) -> Self {
        // Go drops pairs with a semicolon.
        let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
        Self(
            pairs
                .filter_map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    Some((unescape(name, true)?.into_owned(), unescape(value, true)?.into_owned()))
                })
                .collect(),
        )
    }

    /// All pairs.
    #[must_use]
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// Returns the first value of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// Returns a boolean option: `0` and `false` are false; any other value is true, even an empty one.
    #[must_use]
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }
}

/// Splits a path at its slashes. Cost: one allocation for usual paths.
#[must_use]
pub fn segments(path: &str) -> Vec<&str> {
    /// Number of segments in the path of a subresource, the longest usual path.
    const USUAL: usize = 8;
    let (mut segments, mut rest) = (Vec::with_capacity(USUAL), path);
    // Segments are short: comparing each byte is faster than a search for the next slash.
    while let Some(at) = rest.bytes().position(|byte| byte == b'/') {
        segments.push(&rest[..at]);
        rest = &rest[at + 1..];
    }
    segments.push(rest);
    segments
}

/// Decodes percent escapes; `None` for an invalid one. If `plus`, `+` becomes a space. Cost: linear; copies only a text
/// that changes.
#[must_use]
pub fn unescape(text: &str, plus: bool) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|byte| byte == b'%' || plus && byte == b'+') {
        return Some(Cow::Borrowed(text));
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || Some(u8::try_from(char::from(bytes.next()?).to_digit(16)?).unwrap_or(0));
                digit()? << 4 | digit()?
            }
            b'+' if plus => b' ',
            other => other,
        });
    }
    let text = String::from_utf8(out).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Some(Cow::Owned(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_counts_and_broken_pairs_do_not() {
        let query = Query::parse(Some("a=1&a=2&b=%zz&c=x+y%2Bz&d&=e&f=%ff&g;h=1&%61b=c&i=%4"));
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!(query.get("b"), None);
        assert_eq!(query.get("c"), Some("x y+z"));
        assert_eq!(query.get("d"), Some(""));
        assert_eq!(query.get("f"), Some("\u{fffd}"));
        assert_eq!((query.get("g;h"), query.get("h"), query.get("i")), (None, None, None));
        assert_eq!(query.get("ab"), Some("c"));
        assert_eq!(Query::parse(None), Query::default());
    }

    /// Goal: a path has the segments between its slashes, also empty ones. Method: a table.
    #[test]
    fn paths_are_split_at_each_slash() {
        for (path, expected) in [("", vec![""]), ("a", vec!["a"]), ("a/b\u{e4}//", vec!["a", "b\u{e4}", "", ""])] {
            assert_eq!(segments(path), expected);
        }
    }

    #[test]
    fn a_flag_is_true_unless_it_says_otherwise() {
        for (query, expected) in [
            ("", None),
            ("watch=0", Some(false)),
            ("watch=FALSE", Some(false)),
            ("watch", Some(true)),
            ("watch=", Some(true)),
            ("watch=no", Some(true)),
            ("watch=2", Some(true)),
            ("watch=false&watch=true", Some(false)),
        ] {
            assert_eq!(Query::parse(Some(query)).flag("watch"), expected, "{query}");
        }
    }
}
