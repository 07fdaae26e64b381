//! Texts of others, made safe to print.

use std::borrow::Cow;

/// Escapes what would end or change a line of a terminal: control characters, and those that reverse the direction of
/// text. Cost: one scan, and a copy only if there is such a character.
#[must_use]
pub fn one_line(text: &str) -> Cow<'_, str> {
    let is_special = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(is_special) {
        return Cow::Borrowed(text);
    }
    let escape = |letter: char| match letter {
        '\n' | '\r' | '\t' => letter.escape_default().to_string(),
        letter if is_special(letter) => letter.escape_unicode().to_string(),
        letter => letter.to_string(),
    };
    Cow::Owned(text.chars().map(escape).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_line_without_control_characters() {
        for (text, line) in [
            ("usual line uri=/api?a=b error=ä", "usual line uri=/api?a=b error=ä"),
            ("a\nforged\r\n\tline", "a\\nforged\\r\\n\\tline"),
            ("\u{1b}[31mred\u{7}\u{9b}\u{7f}", "\\u{1b}[31mred\\u{7}\\u{9b}\\u{7f}"),
            ("a\u{2028}b\u{202e}c\u{2069}", "a\\u{2028}b\\u{202e}c\\u{2069}"),
            ("", ""),
        ] {
            assert_eq!(one_line(text), line);
        }
    }
}
