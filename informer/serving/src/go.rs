//! Reproduces texts of Go's standard library, which kube-apiserver's error messages contain.
//!
//! INVARIANT: the formatting functions decide nothing: they describe a refusal in the words that clients already match.

pub use informer_core::wire::go::quote;
use serde_json::Value;

/// Nesting depth at which Go's decoder fails. Memory: one byte per level.
const DEPTH_MAX: usize = 10_000;

/// Go's `strconv.ParseUint` in base ten.
///
/// # Errors
/// Go's text: `strconv.ParseUint: parsing "abc": invalid syntax`, or `… value out of range`.
pub fn parse_uint(text: &str) -> Result<u64, String> {
    // Checked first, because Rust accepts a leading `+` and Go does not.
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let why = if digits { "value out of range" } else { "invalid syntax" };
    let parsed = if digits { text.parse().ok() } else { None };
    parsed.ok_or_else(|| format!("strconv.ParseUint: parsing {}: {why}", quote(text)))
}

/// Go's `strconv.ParseInt` in base ten.
///
/// # Errors
/// Go's text: `strconv.ParseInt: parsing "x": invalid syntax`, or `… value out of range`.
pub fn parse_int(text: &str) -> Result<i64, String> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = !unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit());
    let why = if digits { "value out of range" } else { "invalid syntax" };
    let parsed = if digits { text.parse().ok() } else { None };
    parsed.ok_or_else(|| format!("strconv.ParseInt: parsing {}: {why}", quote(text)))
}

/// Go's `%v` of a `float64`: the fewest digits, and an exponent of two digits from 1e+06 on and below 1e-04.
#[must_use]
pub fn float(number: f64) -> String {
    let text = format!("{number:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) && number != 0.0 => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => number.to_string(),
    }
}

/// Go's `time.ParseDuration`, such as `1h15m30.5s`, in nanoseconds.
///
/// # Errors
/// Go's text: `time: invalid duration "abc"`, `time: missing unit in duration "10"`,
/// `time: unknown unit "x" in duration "1x"`.
pub fn parse_duration(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {}", quote(text));
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    // The only duration without a unit.
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut sum = 0.0_f64;
    while !rest.is_empty() {
        let number_len = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, behind) = rest.split_at(number_len);
        let number: f64 = number.parse().map_err(|_| invalid())?;
        let unit_len = behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit_len);
        let nanoseconds = match unit {
            "" => return Err(format!("time: missing unit in duration {}", quote(text))),
            "ns" => 1.0,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3_600e9,
            _ => return Err(format!("time: unknown unit {} in duration {}", quote(unit), quote(text))),
        };
        sum += number * nanoseconds;
        rest = behind;
    }
    // The largest `i64`, about 292 years.
    if sum > 9.223_372_036_854_775_e18 {
        return Err(invalid());
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "below the largest i64, and fractions of nanoseconds do not count"
    )]
    let nanoseconds = sum as i64;
    Ok(if text.starts_with('-') { -nanoseconds } else { nanoseconds })
}

/// Returns the error of Go's `encoding/json` for bytes that are not a JSON document; `None` for a valid one.
///
/// Cost: one pass. The error contains only the first offending byte.
#[must_use]
pub fn json_error(bytes: &[u8]) -> Option<String> {
    Scanner { bytes, at: 0, open: Vec::new() }.document().err()
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// `{` and `[` that are still open.
    open: Vec<u8>,
}

impl Scanner<'_> {
    fn document(&mut self) -> Result<(), String> {
        loop {
            if self.value()? {
                continue;
            }
            if self.after_value()? {
                return self.at_end();
            }
        }
    }

    /// Reads one scalar, or the opening of an array or object. Returns true if a value must follow inside it.
    fn value(&mut self) -> Result<bool, String> {
        const WHERE: &str = "looking for beginning of value";
        match self.next_visible()? {
            b'{' => {
                self.enter(b'{')?;
                if self.peek_visible()? == b'}' {
                    return Ok(false);
                }
                self.key()?;
                Ok(true)
            }
            b'[' => {
                self.enter(b'[')?;
                Ok(self.peek_visible()? != b']')
            }
            b'"' => self.string().map(|()| false),
            b't' => self.literal("true").map(|()| false),
            b'f' => self.literal("false").map(|()| false),
            b'n' => self.literal("null").map(|()| false),
            first @ (b'-' | b'0'..=b'9') => self.number(first).map(|()| false),
            other => Err(unexpected(other, WHERE)),
        }
    }

    /// Closes containers that end here. Returns false if another value follows, true if the document is complete.
    fn after_value(&mut self) -> Result<bool, String> {
        while let Some(&open) = self.open.last() {
            let (close, context) =
                if open == b'{' { (b'}', "after object key:value pair") } else { (b']', "after array element") };
            match self.next_visible()? {
                b',' if open == b'{' => return self.key().map(|()| false),
                b',' => return Ok(false),
                byte if byte == close => {
                    self.open.pop();
                }
                other => return Err(unexpected(other, context)),
            }
        }
        Ok(true)
    }

    fn at_end(&mut self) -> Result<(), String> {
        self.next_visible().map_or(Ok(()), |byte| Err(unexpected(byte, "after top-level value")))
    }

    fn enter(&mut self, open: u8) -> Result<(), String> {
        self.open.push(open);
        if self.open.len() > DEPTH_MAX { Err("exceeded max depth".to_owned()) } else { Ok(()) }
    }

    fn key(&mut self) -> Result<(), String> {
        match self.next_visible()? {
            b'"' => self.string()?,
            other => return Err(unexpected(other, "looking for beginning of object key string")),
        }
        match self.next_visible()? {
            b':' => Ok(()),
            other => Err(unexpected(other, "after object key")),
        }
    }

    fn string(&mut self) -> Result<(), String> {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.next()? {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let byte = self.next()?;
                            if !byte.is_ascii_hexdigit() {
                                return Err(unexpected(byte, "in \\u hexadecimal character escape"));
                            }
                        }
                    }
                    other => return Err(unexpected(other, "in string escape code")),
                },
                byte if byte < 0x20 => return Err(unexpected(byte, "in string literal")),
                _ => {}
            }
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), String> {
        for expected in word.bytes().skip(1) {
            let byte = self.next()?;
            if byte != expected {
                return Err(unexpected(byte, &format!("in literal {word} (expecting '{}')", char::from(expected))));
            }
        }
        Ok(())
    }

    fn number(&mut self, first: u8) -> Result<(), String> {
        let first = if first == b'-' { self.digit("in numeric literal")? } else { first };
        // Digits after a leading zero are an error, reported as bytes after the value.
        if first != b'0' {
            self.digits();
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.bytes.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn digit(&mut self, context: &str) -> Result<u8, String> {
        let byte = self.next()?;
        if byte.is_ascii_digit() { Ok(byte) } else { Err(unexpected(byte, context)) }
    }

    fn digits(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    fn next(&mut self) -> Result<u8, String> {
        let byte = self.bytes.get(self.at).copied().ok_or_else(|| "unexpected end of JSON input".to_owned())?;
        self.at += 1;
        Ok(byte)
    }

    fn next_visible(&mut self) -> Result<u8, String> {
        loop {
            let byte = self.next()?;
            if !matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                return Ok(byte);
            }
        }
    }

    fn peek_visible(&mut self) -> Result<u8, String> {
        let byte = self.next_visible()?;
        self.at -= 1;
        Ok(byte)
    }
}

/// Formats the error for one byte. Like Go, it treats the byte as a letter: bytes above 0x7f become Latin-1.
fn unexpected(byte: u8, context: &str) -> String {
    let letter = match byte {
        b'\'' => "\\'".to_owned(),
        b'"' => "\"".to_owned(),
        _ => quote(char::from(byte).encode_utf8(&mut [0; 4])).trim_matches('"').to_owned(),
    };
    format!("invalid character '{letter}' {context}")
}

/// Go's name for the type of a value.
#[must_use]
pub const fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_gos() {
        for (number, expected) in [
            (0.0, "0"),
            (-1.5, "-1.5"),
            (65_535.0, "65535"),
            (1e6, "1e+06"),
            (2_147_483_647.0, "2.147483647e+09"),
            (1e21, "1e+21"),
            (1e300, "1e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
        ] {
            assert_eq!(float(number), expected);
        }
    }

    #[test]
    fn durations_are_gos() {
        for (text, expected) in [
            ("0", Ok(0)),
            ("-0", Ok(0)),
            ("10s", Ok(10_000_000_000)),
            ("1h15m30.5s", Ok(4_530_500_000_000)),
            ("-2ms", Ok(-2_000_000)),
            ("+.5m", Ok(30_000_000_000)),
            ("1us2\u{b5}s3\u{3bc}s4ns", Ok(6_004)),
            ("", Err("time: invalid duration \"\"")),
            ("-", Err("time: invalid duration \"-\"")),
            ("abc", Err("time: invalid duration \"abc\"")),
            (".s", Err("time: invalid duration \".s\"")),
            ("10", Err("time: missing unit in duration \"10\"")),
            ("10x", Err("time: unknown unit \"x\" in duration \"10x\"")),
            ("999999999h", Err("time: invalid duration \"999999999h\"")),
        ] {
            assert_eq!(parse_duration(text), expected.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn numbers_fail_in_gos_words() {
        let says = |function: &str, text: &str, why: &str| format!("strconv.{function}: parsing \"{text}\": {why}");
        for text in ["abc", "-1", "1.5", " 1", "+5", "", "1_0"] {
            assert_eq!(parse_uint(text), Err(says("ParseUint", text, "invalid syntax")));
        }
        let big = "99999999999999999999";
        assert_eq!(parse_uint(big), Err(says("ParseUint", big, "value out of range")));
        assert_eq!(parse_uint("05"), Ok(5));
        assert_eq!(parse_uint("18446744073709551615"), Ok(u64::MAX));
        for text in ["x", "", "+", "1e3"] {
            assert_eq!(parse_int(text), Err(says("ParseInt", text, "invalid syntax")));
        }
        let big = "9223372036854775808";
        assert_eq!(parse_int(big), Err(says("ParseInt", big, "value out of range")));
        assert_eq!((parse_int("+5"), parse_int("-07")), (Ok(5), Ok(-7)));
    }

    #[test]
    fn every_json_error_has_gos_words() {
        for (text, expected) in [
            ("", "unexpected end of JSON input"),
            (" {\"a\"", "unexpected end of JSON input"),
            ("[1,", "unexpected end of JSON input"),
            ("-", "unexpected end of JSON input"),
            ("hello", "invalid character 'h' looking for beginning of value"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{bad", "invalid character 'b' looking for beginning of object key string"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("{}x", "invalid character 'x' after top-level value"),
            ("01", "invalid character '1' after top-level value"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            ("\"\\u00g0\"", "invalid character 'g' in \\u hexadecimal character escape"),
            ("nul1", "invalid character '1' in literal null (expecting 'l')"),
            ("tree", "invalid character 'e' in literal true (expecting 'u')"),
            ("fals'", "invalid character '\\'' in literal false (expecting 'e')"),
            ("-a", "invalid character 'a' in numeric literal"),
            ("1.a", "invalid character 'a' after decimal point in numeric literal"),
            ("1e+a", "invalid character 'a' in exponent of numeric literal"),
        ] {
            assert_eq!(json_error(text.as_bytes()).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(json_error(b"\x8a{").as_deref(), Some("invalid character '\\u008a' looking for beginning of value"));
        assert_eq!(json_error(&vec![b'['; DEPTH_MAX + 1]).as_deref(), Some("exceeded max depth"));
    }

    #[test]
    fn documents_have_no_error() {
        for text in [
            "{}",
            " [ ] ",
            "null",
            "-0.5e-7",
            "\"\\u00e9\\n\"",
            "{\"a\":[1,{\"b\":[[],{}]},true],\"c\":\"d\"}\n",
            "[[1],[2]]",
        ] {
            assert_eq!(json_error(text.as_bytes()), None, "{text}");
        }
    }
}
