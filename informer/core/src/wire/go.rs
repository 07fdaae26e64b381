//! Quotes texts as Go does, for the errors of selectors, which clients and servers report in equal words.

use std::fmt::Write as _;

/// Quotes a text as `%q` does.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        quote_char(letter, &mut out);
    }
    out.push('"');
    out
}

fn quote_char(letter: char, out: &mut String) {
    match letter {
        '\\' => out.push_str("\\\\"),
        '"' => out.push_str("\\\""),
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x0b' => out.push_str("\\v"),
        _ if is_printable(letter) => out.push(letter),
        _ => {
            let code = u32::from(letter);
            // Writing to a String cannot fail.
            let _ = match code {
                0..0x80 => write!(out, "\\x{code:02x}"),
                0x80..0x1_0000 => write!(out, "\\u{code:04x}"),
                _ => write!(out, "\\U{code:08x}"),
            };
        }
    }
}

/// Approximates Go's table of printable letters: letters that Rust's `Debug` writes as `\u{…}` are not printable,
/// except combining marks, which Go prints.
fn is_printable(letter: char) -> bool {
    letter.is_alphanumeric() || !letter.is_control() && !letter.escape_debug().to_string().starts_with("\\u{")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_is_gos() {
        for (text, expected) in [
            ("a b", r#""a b""#),
            ("", r#""""#),
            ("\"\\", r#""\"\\""#),
            ("\0\x07\t\x7f", r#""\x00\a\t\x7f""#),
            ("é\u{8a}'", r#""é\u008a'""#),
            ("\u{e0001}", r#""\U000e0001""#),
        ] {
            assert_eq!(quote(text), expected, "{text:?}");
        }
    }
}
