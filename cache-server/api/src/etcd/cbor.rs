//! Decodes CBOR to JSON. kube-apiserver stores custom resources in CBOR with the feature gate `CBORServingAndStorage`.
//!
//! INVARIANT: any bytes lead to JSON or an error. [`DEPTH_MAX`] bounds the recursion. The JSON is at most eight times as
//! long as the value: a float of 3 bytes becomes up to 22 characters and a comma.
//!
//! As in kube-apiserver, byte strings are texts, tag 22 is base64, the tags of [`CONVERTED`] are refused, and others are
//! ignored. Numbers are those that JSON has too. Of equal keys the last one counts; kube-apiserver refuses them.
//!
//! Source: RFC 8949; `pkg/runtime/serializer/cbor/internal/modes` in apimachinery.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Self-described CBOR (RFC 8949, 3.4.6), with which each value begins.
pub(super) const PREFIX: &[u8] = &[0xd9, 0xd9, 0xf7];

/// Maximum nesting of arrays, maps and tags: the limit of stored objects.
const DEPTH_MAX: usize = 127;

const TRUNCATED: &str = "the CBOR value is truncated";
const NOT_READ: &str = "the CBOR value has an item that JSON does not have";
const BROKEN: &str = "the CBOR value is malformed";

/// Tag of bytes that are shown as base64.
const BASE64: u64 = 22;
/// Tags of content that would have to be converted: seconds, big numbers, bytes shown as base64url and base16.
const CONVERTED: [u64; 5] = [1, 2, 3, 21, 23];

/// Major types, the upper three bits of an item.
const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;

/// Returns a value, without its prefix, as JSON.
///
/// # Errors
/// The reason, without text of the value.
pub(super) fn json(value: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut transcoder = Transcoder { rest: value, out: Vec::with_capacity(value.len() * 2) };
    transcoder.item(0, false)?;
    if transcoder.rest.is_empty() { Ok(transcoder.out) } else { Err(BROKEN) }
}

struct Transcoder<'a> {
    rest: &'a [u8],
    out: Vec<u8>,
}

/// The first bytes of an item: major type, additional information, and its argument; `None` for an unknown length.
struct ItemHead {
    major: u8,
    info: u8,
    argument: Option<u64>,
}

impl<'a> Transcoder<'a> {
    fn item(&mut self, depth: usize, is_base64: bool) -> Result<(), &'static str> {
        if depth > DEPTH_MAX {
            return Err("the CBOR value is nested too deeply");
        }
        let ItemHead { major, info, argument } = self.head()?;
        match (major, argument) {
            (UNSIGNED, Some(number)) => self.number(i64::try_from(number).map_err(|_| NOT_READ)?),
            // -1 - n is the complement of n.
            (NEGATIVE, Some(number)) => self.number(!i64::try_from(number).map_err(|_| NOT_READ)?),
            (BYTES | TEXT, length) => {
                let bytes = self.string(major, length)?;
                self.text(major, &bytes, is_base64)
            }
            (ARRAY, length) => self.array(length, depth),
            (MAP, length) => self.map(length, depth),
            (TAG, Some(tag)) if CONVERTED.contains(&tag) => Err(NOT_READ),
            (TAG, Some(tag)) => self.item(depth + 1, tag == BASE64),
            (_, Some(value)) => self.simple(info, value),
            (_, None) => Err(BROKEN),
        }
    }

    fn head(&mut self) -> Result<ItemHead, &'static str> {
        let [first] = self.take()?;
        let (major, info) = (first >> 5, first & 0x1f);
        let argument = match info {
            0..=23 => Some(u64::from(info)),
            24 => Some(u64::from(u8::from_be_bytes(self.take()?))),
            25 => Some(u64::from(u16::from_be_bytes(self.take()?))),
            26 => Some(u64::from(u32::from_be_bytes(self.take()?))),
            27 => Some(u64::from_be_bytes(self.take()?)),
            31 => None,
            _ => return Err(BROKEN),
        };
        Ok(ItemHead { major, info, argument })
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn slice(&mut self, length: u64) -> Result<&'a [u8], &'static str> {
        let length = usize::try_from(length).map_err(|_| TRUNCATED)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Returns true at the end of an item of unknown length, and takes that end.
    fn ends(&mut self) -> bool {
        let rest = self.rest.strip_prefix(&[0xff]);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Takes the content of a string, in one piece or in pieces of its own type.
    fn string(&mut self, major: u8, length: Option<u64>) -> Result<Cow<'a, [u8]>, &'static str> {
        if let Some(length) = length {
            return self.slice(length).map(Cow::Borrowed);
        }
        let mut whole = Vec::new();
        while !self.ends() {
            match self.head()? {
                ItemHead { major: piece, argument: Some(length), .. } if piece == major => {
                    whole.extend_from_slice(self.slice(length)?);
                }
                _ => return Err(BROKEN),
            }
        }
        Ok(Cow::Owned(whole))
    }

    fn text(&mut self, major: u8, bytes: &[u8], is_base64: bool) -> Result<(), &'static str> {
        let text = match major {
            BYTES if is_base64 => Cow::Owned(STANDARD.encode(bytes)),
            // Go replaces what is no Unicode when it writes JSON.
            BYTES => String::from_utf8_lossy(bytes),
            _ => Cow::Borrowed(str::from_utf8(bytes).map_err(|_| BROKEN)?),
        };
        serde_json::to_writer(&mut self.out, &*text).map_err(|_| NOT_READ)
    }

    fn number(&mut self, number: i64) -> Result<(), &'static str> {
        serde_json::to_writer(&mut self.out, &number).map_err(|_| NOT_READ)
    }

    fn array(&mut self, length: Option<u64>, depth: usize) -> Result<(), &'static str> {
        self.out.push(b'[');
        let mut count = 0;
        while !self.is_done(length, count) {
            self.separate(count);
            self.item(depth + 1, false)?;
            count += 1;
        }
        self.out.push(b']');
        Ok(())
    }

    fn map(&mut self, length: Option<u64>, depth: usize) -> Result<(), &'static str> {
        self.out.push(b'{');
        let mut count = 0;
        while !self.is_done(length, count) {
            self.separate(count);
            let ItemHead { major, argument, .. } = self.head()?;
            if !matches!(major, BYTES | TEXT) {
                return Err(NOT_READ);
            }
            let key = self.string(major, argument)?;
            self.text(major, &key, false)?;
            self.out.push(b':');
            self.item(depth + 1, false)?;
            count += 1;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn is_done(&mut self, length: Option<u64>, count: u64) -> bool {
        match length {
            Some(length) => count == length,
            None => self.ends(),
        }
    }

    fn separate(&mut self, count: u64) {
        if count > 0 {
            self.out.push(b',');
        }
    }

    /// Writes a float or one of the three words of JSON.
    fn simple(&mut self, info: u8, value: u64) -> Result<(), &'static str> {
        let number = match (info, value) {
            (20, _) => return self.word("false"),
            (21, _) => return self.word("true"),
            (22, _) => return self.word("null"),
            (25, bits) => half(bits),
            (26, bits) => f64::from(f32::from_bits(u32::try_from(bits).map_err(|_| BROKEN)?)),
            (27, bits) => f64::from_bits(bits),
            _ => return Err(NOT_READ),
        };
        if !number.is_finite() {
            return Err(NOT_READ);
        }
        // Go writes 1, not 1.0.
        let text = number.to_string();
        if text.len() <= FLOAT_TEXT_MAX {
            return self.word(&text);
        }
        serde_json::to_writer(&mut self.out, &number).map_err(|_| NOT_READ)
    }

    fn word(&mut self, word: &str) -> Result<(), &'static str> {
        self.out.extend_from_slice(word.as_bytes());
        Ok(())
    }
}

/// Length of a float's digits above which it is written with an exponent.
const FLOAT_TEXT_MAX: usize = 21;

/// Returns the float of 16 bits (RFC 8949, appendix D).
fn half(bits: u64) -> f64 {
    let (exponent, fraction) = (bits >> 10 & 0x1f, f64::from(u32::try_from(bits & 0x3ff).unwrap_or_default()));
    let size = match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 => f64::INFINITY,
        _ => (fraction + 1024.0) * 2_f64.powi(i32::try_from(exponent).unwrap_or_default() - 25),
    };
    if bits >> 15 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &[u8]) -> Result<String, &'static str> {
        json(value).map(|json| String::from_utf8(json).expect("JSON is UTF-8"))
    }

    /// Goal: each kind of item becomes its JSON. Method: examples of RFC 8949, appendix A, and the forms of
    /// kube-apiserver.
    #[test]
    fn items_become_their_json() {
        let long = [&[0x78, 24][..], &[b'x'; 24]].concat();
        let table: [(&[u8], &str); 23] = [
            (b"\x00", "0"),
            (b"\x18\x18", "24"),
            (b"\x1a\x00\x0f\x42\x40", "1000000"),
            (b"\x1b\x7f\xff\xff\xff\xff\xff\xff\xff", "9223372036854775807"),
            (b"\x3b\x7f\xff\xff\xff\xff\xff\xff\xff", "-9223372036854775808"),
            (b"\x38\x63", "-100"),
            (b"\xf9\x3c\x00", "1"),
            (b"\xf9\x00\x01", "5.960464477539063e-8"),
            (b"\xf9\xc4\x00", "-4"),
            (b"\xfa\x47\xc3\x50\x00", "100000"),
            (b"\xfb\x3f\xf1\x99\x99\x99\x99\x99\x9a", "1.1"),
            (b"\xfb\x7e\x37\xe4\x3c\x88\x00\x75\x9c", "1e+300"),
            (b"\xf4", "false"),
            (b"\xf5", "true"),
            (b"\xf6", "null"),
            (b"\x62\x22\x5c", r#""\"\\""#),
            (b"\x44name", r#""name""#),
            (b"\x42\xffa", "\"\u{fffd}a\""),
            (b"\xd6\x43abc", r#""YWJj""#),
            (b"\x82\x01\x80", "[1,[]]"),
            (b"\xa2\x41a\x01\x61b\xa0", r#"{"a":1,"b":{}}"#),
            (b"\xbf\x41a\x9f\x01\x02\xff\xff", r#"{"a":[1,2]}"#),
            (b"\x7f\x61a\x61b\xff", r#""ab""#),
        ];
        for (value, expected) in table {
            assert_eq!(text(value).as_deref(), Ok(expected), "{value:x?}");
        }
        assert_eq!(text(&long), Ok(format!("\"{}\"", "x".repeat(24))));
        assert_eq!(text(b"\xc0\x6a2026-11-24"), Ok(r#""2026-11-24""#.to_owned()), "a tag without meaning");
    }

    #[test]
    fn other_bytes_are_refused() {
        let deep = [&[0x81; DEPTH_MAX + 1][..], &[0x00]].concat();
        let tagged = [&[0xc0; DEPTH_MAX + 1][..], &[0x00]].concat();
        let table: [(&[u8], &str); 17] = [
            (b"", TRUNCATED),
            (b"\x18", TRUNCATED),
            (b"\x62a", TRUNCATED),
            (b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff", TRUNCATED),
            (b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff", TRUNCATED),
            (b"\xbf\x41a", TRUNCATED),
            (b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff", NOT_READ),
            (b"\xf9\x7c\x00", NOT_READ),
            (b"\xf7", NOT_READ),
            (b"\xc2\x41\x01", NOT_READ),
            (b"\xa1\x01\x01", NOT_READ),
            (b"\x00\x00", BROKEN),
            (b"\x1c", BROKEN),
            (b"\x61\xff", BROKEN),
            (b"\x7f\x41a\xff", BROKEN),
            (&deep, "the CBOR value is nested too deeply"),
            (&tagged, "the CBOR value is nested too deeply"),
        ];
        for (value, expected) in table {
            assert_eq!(text(value), Err(expected), "{value:x?}");
        }
    }

    /// Goal: each decoded value is JSON, with a bound on its length.
    #[test]
    fn random_bytes_lead_to_json_or_an_error() {
        let mut random = fastrand::Rng::with_seed(23);
        let mut decoded = 0;
        for _ in 0..20_000 {
            let value: Vec<u8> = (0..random.usize(1..12)).map(|_| random.u8(..)).collect();
            if let Ok(json) = json(&value) {
                serde_json::from_slice::<serde_json::Value>(&json).expect("JSON");
                assert!(json.len() <= 8 * value.len() + 2, "{value:x?}");
                decoded += 1;
            }
        }
        assert!(decoded > 500, "{decoded}");
    }
}
