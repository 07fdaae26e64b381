//! Shard selectors (`shardSelector`, KEP-5866): grammar, error texts, canonical text and matching of apimachinery's
//! `sharding` package.
//!
//! INVARIANT: a selector has at least one range, and all its ranges are of one field.
//!
//! The grammar is the part of CEL that kube-apiserver accepts: calls of `shardRange`, `||`, and parentheses around
//! them. A text that is no such expression is refused in words of our own; kube-apiserver reports its CEL parser's.
//!
//! Source: apimachinery `pkg/sharding`, apiserver `pkg/sharding/parser.go`.

use std::fmt;

/// The field of an object whose hash is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShardField {
    /// `object.metadata.uid`.
    Uid,
    /// `object.metadata.namespace`: the objects of one namespace are in one shard.
    Namespace,
}

/// A parsed shard selector: the hash of one field of an object must lie in one of its ranges.
///
/// # Source
/// KEP-5866, "Server-side sharded list and watch".
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    key: ShardField,
    /// In the order of the text.
    requested: Box<[HashRange]>,
    /// `requested`, sorted and without overlaps.
    merged: Box<[HashRange]>,
}

/// Hashes from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct HashRange {
    first: u64,
    last: u64,
}

/// Error of an invalid selector; the text is kube-apiserver's, except for syntax errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);

impl Selector {
    /// Parses a selector such as `shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')`. The
    /// first bound is included, the second is not.
    ///
    /// Cost: linear in the text, which the caller bounds.
    ///
    /// # Errors
    /// [`ParseError`].
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        if text.trim().is_empty() {
            return refuse("empty shard selector is not allowed; omit the parameter for unfiltered lists");
        }
        let mut parser = ShardParser { text, rest: text, calls: Vec::new() };
        parser.alternatives(0)?;
        if !parser.rest.is_empty() {
            return parser.unexpected();
        }
        let ranges = parser.calls.iter().map(Call::range).collect::<Result<Vec<_>, _>>()?;
        let Some(&(key, _)) = ranges.first() else { return parser.unexpected() };
        if let Some((other, _)) = ranges.iter().find(|(other, _)| *other != key) {
            return refuse(format!(
                "all shard ranges must use the same field, got {:?} and {:?}",
                key.path(),
                other.path()
            ));
        }
        Ok(Self::new(key, ranges.into_iter().map(|(_, range)| range).collect()))
    }

    /// Creates the selector of the part `index` of `count` equal parts of all hashes. Returns `None` if there is no such
    /// part.
    #[must_use]
    pub fn part(key: ShardField, index: u32, count: u32) -> Option<Self> {
        // The bounds are below 2^64, as `index` is below `count`.
        let start = |index: u32| (u128::from(index) << 64) / u128::from(count);
        let range = || HashRange::new(start(index), start(index + 1));
        (index < count).then(range).flatten().map(|range| Self::new(key, Box::new([range])))
    }

    fn new(key: ShardField, requested: Box<[HashRange]>) -> Self {
        let mut sorted = requested.to_vec();
        sorted.sort_unstable();
        let mut merged: Vec<HashRange> = Vec::with_capacity(sorted.len());
        for range in sorted {
            match merged.last_mut() {
                Some(before) if range.first <= before.last => before.last = before.last.max(range.last),
                _ => merged.push(range),
            }
        }
        Self { key, requested, merged: merged.into() }
    }

    /// Returns true if an object with this uid and namespace is in the shard. Cost: one pass over the field, and a
    /// binary search in the ranges.
    #[must_use]
    pub fn matches(&self, uid: &str, namespace: &str) -> bool {
        let hash = hash(match self.key {
            ShardField::Uid => uid,
            ShardField::Namespace => namespace,
        });
        let at = self.merged.partition_point(|range| range.last < hash);
        self.merged.get(at).is_some_and(|range| range.first <= hash)
    }
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

impl ShardField {
    const fn path(self) -> &'static str {
        match self {
            Self::Uid => "object.metadata.uid",
            Self::Namespace => "object.metadata.namespace",
        }
    }
}

impl HashRange {
    /// Returns the range from `start` up to, not including, `end`; `None` if it is empty or out of bounds.
    fn new(start: u128, end: u128) -> Option<Self> {
        let first = u64::try_from(start).ok()?;
        let last = u64::try_from(end.checked_sub(1)?).ok()?;
        (first <= last).then_some(Self { first, last })
    }
}

/// A call in the text.
struct Call<'a> {
    function: &'a str,
    arguments: Vec<Argument<'a>>,
}

#[derive(Clone, Copy)]
enum Argument<'a> {
    /// Identifiers with dots between them.
    Path(&'a str),
    /// The content of a string literal.
    Text(&'a str),
    Number,
}

impl Call<'_> {
    fn range(&self) -> Result<(ShardField, HashRange), ParseError> {
        if self.function != "shardRange" {
            return refuse(format!("unsupported function {:?}; only shardRange() and || are allowed", self.function));
        }
        let &[field, start, end] = &*self.arguments else {
            return refuse(format!("shardRange() requires exactly 3 arguments, got {}", self.arguments.len()));
        };
        let key = field.key()?;
        let (start, end) = (start.bound("hexStart")?, end.bound("hexEnd")?);
        let range = HashRange::new(start, end).ok_or_else(|| {
            ParseError(format!("shard range start {} must be less than end {}", Bound(start), Bound(end)))
        })?;
        Ok((key, range))
    }
}

impl Argument<'_> {
    fn key(self) -> Result<ShardField, ParseError> {
        let Self::Path(path) = self else {
            let kind = self.kind();
            return refuse(format!(
                "shardRange() first argument: expected field path (e.g. object.metadata.uid), got expression kind {kind}"
            ));
        };
        [ShardField::Uid, ShardField::Namespace].into_iter().find(|key| key.path() == path).ok_or_else(|| {
            let supported = "object.metadata.uid, object.metadata.namespace";
            ParseError(format!("unsupported field path {path:?}; supported: {supported}"))
        })
    }

    fn bound(self, name: &str) -> Result<u128, ParseError> {
        let text = match self {
            Self::Text(text) => text,
            Self::Number => return refuse(format!("{name} must be a string literal, got int64")),
            Self::Path(_) => {
                let kind = self.kind();
                return refuse(format!("{name} must be a string literal (e.g. '0xff'), got expression kind {kind}"));
            }
        };
        let Some(digits) = text.strip_prefix("0x") else {
            return refuse(format!("{name} must have '0x' prefix, got {text:?}"));
        };
        if digits.is_empty() {
            return refuse(format!("{name}: hex value is required after '0x'"));
        }
        if digits.len() > 17 {
            let length = digits.len();
            return refuse(format!("{name}: hex value too long ({length} chars, max 17): {digits:?}"));
        }
        if let Some(other) = digits.chars().find(|digit| !matches!(digit, '0'..='9' | 'a'..='f')) {
            return refuse(format!("{name}: invalid hex character {:?} in {text:?}", other.to_string()));
        }
        let value = u128::from_str_radix(digits, 16).map_err(|error| ParseError(error.to_string()))?;
        match digits.len() {
            16 => Ok(value),
            17 if value == 1 << 64 => Ok(value),
            17 => refuse(format!("{name}: 17-digit hex value must be '0x10000000000000000' (2^64), got {text:?}")),
            _ => refuse(format!(
                "{name} must be a 0x-prefixed 16-digit hex value, got {text:?} (did you mean \"0x{digits:0>16}\"?)"
            )),
        }
    }

    /// Returns the number of such an expression in kube-apiserver's messages.
    fn kind(self) -> u8 {
        match self {
            Self::Path(path) if path.contains('.') => 7,
            Self::Path(_) => 3,
            Self::Text(_) | Self::Number => 5,
        }
    }
}

/// Splits a text into calls. `rest` begins with a token or is empty once a token was taken.
struct ShardParser<'a> {
    text: &'a str,
    rest: &'a str,
    calls: Vec<Call<'a>>,
}

/// Parentheses around parentheses at most; kube-apiserver's parser stops at 250 levels of all kinds.
const DEPTH_MAX: usize = 32;

impl<'a> ShardParser<'a> {
    fn alternatives(&mut self, depth: usize) -> Result<(), ParseError> {
        loop {
            self.one(depth)?;
            if !self.takes("||") {
                return Ok(());
            }
        }
    }

    fn one(&mut self, depth: usize) -> Result<(), ParseError> {
        if depth < DEPTH_MAX && self.takes("(") {
            self.alternatives(depth + 1)?;
            return self.expect(")");
        }
        let Argument::Path(function) = self.argument()? else {
            return refuse("unexpected expression kind 5; expected shardRange() call or || operator");
        };
        if !self.takes("(") {
            let kind = Argument::Path(function).kind();
            return refuse(format!("unexpected expression kind {kind}; expected shardRange() call or || operator"));
        }
        let mut arguments = Vec::new();
        while !self.takes(")") {
            if !arguments.is_empty() {
                self.expect(",")?;
            }
            arguments.push(self.argument()?);
        }
        self.calls.push(Call { function, arguments });
        Ok(())
    }

    fn argument(&mut self) -> Result<Argument<'a>, ParseError> {
        self.skip_spaces();
        let first = self.rest.chars().next().unwrap_or_default();
        if matches!(first, '\'' | '"') {
            let content = &self.rest[1..];
            // Escapes and line breaks have no use in a bound.
            return match content.find([first, '\\', '\n', '\r']) {
                Some(end) if content[end..].starts_with(first) => {
                    self.rest = &content[end + 1..];
                    self.skip_spaces();
                    Ok(Argument::Text(&content[..end]))
                }
                _ => self.unexpected(),
            };
        }
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.');
        let (word, rest) = self.rest.split_at(self.rest.find(|letter| !is_part(letter)).unwrap_or(self.rest.len()));
        if word.is_empty() {
            return self.unexpected();
        }
        self.rest = rest;
        self.skip_spaces();
        Ok(if first.is_ascii_digit() { Argument::Number } else { Argument::Path(word) })
    }

    fn takes(&mut self, token: &str) -> bool {
        self.skip_spaces();
        let Some(rest) = self.rest.strip_prefix(token) else { return false };
        self.rest = rest;
        self.skip_spaces();
        true
    }

    fn expect(&mut self, token: &str) -> Result<(), ParseError> {
        if self.takes(token) { Ok(()) } else { self.unexpected() }
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r', '\x0c']);
    }

    fn unexpected<T>(&self) -> Result<T, ParseError> {
        let at = self.text.len() - self.rest.len();
        let found = self.rest.chars().next().map_or_else(|| "end of text".to_owned(), |letter| format!("{letter:?}"));
        refuse(format!("CEL parse error: Syntax error: unexpected {found} at byte {at}"))
    }
}

fn refuse<T>(text: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError(text.into()))
}

/// A bound as kube-apiserver prints it.
struct Bound(u128);

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:016x}", self.0)
    }
}

/// Writes the canonical text, as Kubernetes prints it; parsing it gives an equal selector.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, &HashRange { first, last }) in self.requested.iter().enumerate() {
            let separator = if at == 0 { "" } else { " || " };
            let (start, end) = (Bound(first.into()), Bound(u128::from(last) + 1));
            write!(f, "{separator}shardRange({}, '{start}', '{end}')", self.key.path())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HALVES: [&str; 2] = [
        "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')",
        "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')",
    ];

    #[test]
    fn hashes_are_those_of_the_api_server() {
        // Reference values of FNV-1a with 64 bits.
        for (text, expected) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            assert_eq!(hash(text), expected, "{text}");
        }
    }

    #[test]
    fn canonical_text_is_what_kubernetes_prints() {
        let both = HALVES.join(" || ");
        for (text, expected) in [
            (HALVES[0], HALVES[0]),
            (&*both, &*both),
            (&*format!(" ({}\n) ", HALVES[1]), HALVES[1]),
            (&*HALVES[0].replace('\'', "\"").replace(' ', ""), HALVES[0]),
            (&*format!("{}||({})", HALVES[1], HALVES[0]), &*[HALVES[1], HALVES[0]].join(" || ")),
        ] {
            assert_eq!(Selector::parse(text).unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn errors_have_the_api_servers_words() {
        let bounds = |start: &str, end: &str| format!("shardRange(object.metadata.uid, '{start}', '{end}')");
        let (low, high) = ("0x0000000000000000", "0x8000000000000000");
        for (text, expected) in [
            ("  ".to_owned(), "empty shard selector is not allowed; omit the parameter for unfiltered lists"),
            ("shardRange()".to_owned(), "shardRange() requires exactly 3 arguments, got 0"),
            ("hash(a)".to_owned(), r#"unsupported function "hash"; only shardRange() and || are allowed"#),
            ("object".to_owned(), "unexpected expression kind 3; expected shardRange() call or || operator"),
            (
                HALVES[0].replace("uid", "name"),
                r#"unsupported field path "object.metadata.name"; supported: object.metadata.uid, object.metadata.namespace"#,
            ),
            (
                HALVES[0].replace("object.metadata.uid", "'uid'"),
                "shardRange() first argument: expected field path (e.g. object.metadata.uid), got expression kind 5",
            ),
            (HALVES[0].replace("'0x0000000000000000'", "0"), "hexStart must be a string literal, got int64"),
            (bounds("0", high), r#"hexStart must have '0x' prefix, got "0""#),
            (bounds("0x", high), "hexStart: hex value is required after '0x'"),
            (
                bounds("0x0", high),
                r#"hexStart must be a 0x-prefixed 16-digit hex value, got "0x0" (did you mean "0x0000000000000000"?)"#,
            ),
            (bounds(low, "0x80000000000000FF"), r#"hexEnd: invalid hex character "F" in "0x80000000000000FF""#),
            (
                bounds(low, "0x20000000000000000"),
                r#"hexEnd: 17-digit hex value must be '0x10000000000000000' (2^64), got "0x20000000000000000""#,
            ),
            (bounds(high, low), "shard range start 0x8000000000000000 must be less than end 0x0000000000000000"),
            (
                format!("{} || {}", HALVES[0], HALVES[1].replace("uid", "namespace")),
                r#"all shard ranges must use the same field, got "object.metadata.uid" and "object.metadata.namespace""#,
            ),
            (format!("{} {}", HALVES[0], HALVES[1]), "CEL parse error: Syntax error: unexpected 's' at byte 76"),
            (format!("({}", HALVES[0]), "CEL parse error: Syntax error: unexpected end of text at byte 76"),
        ] {
            assert_eq!(Selector::parse(&text), Err(ParseError(expected.into())), "{text}");
        }
        assert!(Selector::parse(&"(".repeat(100_000)).is_err());
    }

    proptest! {
        /// Each object is in exactly one part.
        #[test]
        fn parts_divide_all_objects(uid: String, namespace in "[a-c]{0,2}", count in 1_u32..40) {
            for key in [ShardField::Uid, ShardField::Namespace] {
                let parts = (0..count).map(|index| Selector::part(key, index, count).unwrap());
                prop_assert_eq!(parts.filter(|part| part.matches(&uid, &namespace)).count(), 1);
            }
            prop_assert_eq!(Selector::part(ShardField::Uid, count, count), None);
        }

        #[test]
        fn alternatives_match_what_one_of_them_matches(bounds in prop::collection::vec((0_u64..9, 0_u64..9), 1..5), uid: String) {
            let bounds = bounds.into_iter().map(|(start, end)| (u128::from(start) << 61, (u128::from(end) << 61).min(1 << 64)));
            let ranges: Vec<_> = bounds.filter_map(|(start, end)| HashRange::new(start, end)).collect();
            prop_assume!(!ranges.is_empty());
            let whole = Selector::new(ShardField::Uid, ranges.clone().into());
            let one = |range| Selector::new(ShardField::Uid, Box::new([range])).matches(&uid, "");
            prop_assert_eq!(whole.matches(&uid, ""), ranges.into_iter().any(one));
            prop_assert_eq!(Selector::parse(&whole.to_string()).unwrap(), whole);
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = Selector::parse(&text);
        }
    }
}
