//! Base64 values, decoded and encoded as in Go.
//!
//! Source: Go `encoding/json` (`[]byte`), `encoding/base64` (StdEncoding, decodeQuantum).

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD as CANONICAL},
};

/// Go ignores the bits after the last byte.
const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Encodes a string.
pub(crate) fn encode(text: &str) -> String {
    CANONICAL.encode(text)
}

/// Validates a base64 value. Returns its canonical form, without line breaks, if that differs.
///
/// # Errors
/// Go's message, with the position of the first invalid byte and without the byte.
pub(crate) fn canonical(text: &str) -> Result<Option<String>, String> {
    if CANONICAL.decode(text).is_ok() {
        return Ok(None);
    }
    let plain: String = text.chars().filter(|letter| !is_break(*letter as u32)).collect();
    match (corrupt_at(text.as_bytes()), LENIENT.decode(plain)) {
        (None, Ok(bytes)) => Ok(Some(CANONICAL.encode(bytes))),
        (at, _) => Err(format!("illegal base64 data at input byte {}", at.unwrap_or_default())),
    }
}

fn is_break(letter: u32) -> bool {
    letter == u32::from(b'\n') || letter == u32::from(b'\r')
}

/// Returns the position that Go reports for the first invalid byte.
fn corrupt_at(text: &[u8]) -> Option<usize> {
    let is_break = |byte: &u8| is_break(u32::from(*byte));
    let skip = |mut at: usize| {
        while text.get(at).is_some_and(is_break) {
            at += 1;
        }
        at
    };
    // Number of characters in the current group of four.
    let (mut at, mut letters) = (0, 0);
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            byte if is_break(byte) => {}
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => letters = (letters + 1) % 4,
            b'=' if letters >= 2 => {
                if letters == 2 {
                    let second = skip(at);
                    match text.get(second) {
                        None => return Some(text.len()),
                        Some(b'=') => at = second + 1,
                        Some(_) => return Some(second - 1),
                    }
                }
                let end = skip(at);
                return (end < text.len()).then_some(end);
            }
            _ => return Some(at - 1),
        }
    }
    (letters > 0).then(|| at - letters)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: base64 is accepted as in Go. Method: a table of texts and their results in `encoding/json` of Go 1.26.
    #[test]
    fn base64_is_read_as_go_reads_it() {
        let table = [
            ("", Ok(None)),
            ("aHVudGVyMg==", Ok(None)),
            ("aHVu\ndGVy\r\nMg==\n", Ok(Some("aHVudGVyMg=="))),
            ("aHVudGVyMh==", Ok(Some("aHVudGVyMg=="))),
            ("%%%", Err(0)),
            ("aHV%", Err(3)),
            ("aHVudGVyMg", Err(8)),
            ("aHVudGVyMg=", Err(11)),
            ("aHVudGVyMg=a", Err(10)),
            ("aHVudGVyMg==a", Err(12)),
            ("a===", Err(1)),
            ("a", Err(0)),
            ("p\u{e4}ss", Err(1)),
        ];
        for (text, expected) in table {
            let expected = expected.map(|text| text.map(str::to_owned));
            assert_eq!(
                canonical(text),
                expected.map_err(|at| format!("illegal base64 data at input byte {at}")),
                "{text:?}"
            );
        }
    }
}
