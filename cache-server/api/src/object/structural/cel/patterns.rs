//! Regular expressions in the syntax of Go's RE2.

use regex::{Regex, RegexBuilder};

use crate::limits::EXPRESSION_PATTERN_BYTES_MAX;

/// Compiles a pattern. Its memory is bounded.
///
/// # Errors
/// The reason, on one line.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(&translated(pattern))
        .size_limit(EXPRESSION_PATTERN_BYTES_MAX)
        .dfa_size_limit(EXPRESSION_PATTERN_BYTES_MAX)
        .build();
    built.map_err(|error| {
        let text = error.to_string();
        format!("invalid pattern: {}", text.lines().last().unwrap_or_default().trim_start_matches("error: "))
    })
}

/// Writes a pattern of RE2 for the crate: there, `\d`, `\s`, `\w` and `\b` are about ASCII, and a class may contain brackets
/// and repeated operators as they are.
fn translated(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let (mut letters, mut in_class) = (pattern.chars().peekable(), false);
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('d') => out.push_str("[0-9]"),
                Some('D') => out.push_str("[^0-9]"),
                Some('s') => out.push_str(r"[\t\n\f\r ]"),
                Some('S') => out.push_str(r"[^\t\n\f\r ]"),
                Some('w') => out.push_str("[0-9A-Za-z_]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('b') => out.push_str(r"(?-u:\b)"),
                Some(escaped) => out.extend(['\\', escaped]),
                None => out.push('\\'),
            },
            '[' if !in_class => {
                in_class = true;
                out.push('[');
                if letters.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                // A bracket that closes at once is a member.
                if letters.next_if_eq(&']').is_some() {
                    out.push_str(r"\]");
                }
            }
            '[' if letters.peek() == Some(&':') => out.push('['),
            ':' if in_class && letters.peek() == Some(&']') && out.ends_with(char::is_alphabetic) => {
                out.push(':');
                out.extend(letters.next());
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '[' | '&' | '~' if in_class => out.extend(['\\', letter]),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_re2() {
        for (pattern, text, expected) in [
            (r"^\d+$", "12", true),
            (r"^\d$", "\u{663}", false),
            (r"^[\w.-]+$", "a_b.c-d", true),
            (r"^\w$", "\u{e4}", false),
            (r"^[[]$", "[", true),
            (r"^[]a]+$", "]a", true),
            (r"^[^]]$", "a", true),
            (r"^[[:alpha:]]+$", "abc", true),
            (r"^[[:alpha:]_-]+$", "a_-", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^[a-z:]+$", "a:", true),
            (r"^\bab\b$", "ab", true),
            (r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "a-b", true),
        ] {
            assert_eq!(compile(pattern).expect("a pattern").is_match(text), expected, "{pattern} {text}");
        }
        assert!(compile("(").is_err());
        assert!(compile(r"(\pL{1000}){1000}").is_err(), "a pattern that needs too much memory");
    }
}
