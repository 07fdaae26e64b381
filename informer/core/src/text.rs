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

/// Cuts what kube's errors show of an exec plugin that failed: its command with environment variables, and its output,
/// which may hold a token. They are the last part of their texts. Leaves the exit status.
#[must_use]
pub fn without_plugin_output(text: &str) -> Cow<'_, str> {
    if let Some((before, shown)) = text.split_once("auth exec command '") {
        let status = shown.split_once("' failed with status ").and_then(|(_, rest)| exit_status(rest));
        return Cow::Owned(format!("{before}auth exec command failed: {}", status.unwrap_or("no exit status")));
    }
    // The error of the parser quotes the output.
    let unparsed = "failed to parse auth exec output";
    Cow::Borrowed(text.find(unparsed).map_or(text, |at| &text[..at + unparsed.len()]))
}

/// Returns the start of a text that is an `ExitStatus` of Unix or Windows.
fn exit_status(text: &str) -> Option<&str> {
    ["exit status: ", "exit code: ", "signal: "].iter().find_map(|word| {
        let number = text.strip_prefix(word)?;
        let end = number.find(|letter: char| letter != 'x' && !letter.is_ascii_hexdigit()).unwrap_or(number.len());
        Some(&text[..word.len() + end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_exec_plugin_shows_its_exit_status_only() {
        let output = r#"Output { status: ExitStatus(unix_wait_status(256)), stdout: "{\"token\":\"t\"}", stderr: "" }"#;
        for (text, cut) in [
            (
                format!("auth error: auth exec command 'T=\"t\" \"aws\"' failed with status exit status: 1: {output}"),
                "auth error: auth exec command failed: exit status: 1",
            ),
            (
                format!("auth exec command 'aws' failed with status signal: 9 (SIGKILL): {output}"),
                "auth exec command failed: signal: 9",
            ),
            (
                format!("auth exec command 'aws' failed with status exit code: 0xc0000005: {output}"),
                "auth exec command failed: exit code: 0xc0000005",
            ),
            (
                format!("auth exec command 'aws' failed with status unknown: {output}"),
                "auth exec command failed: no exit status",
            ),
            ("auth exec command 'T=t".to_owned(), "auth exec command failed: no exit status"),
            (
                "auth error: failed to parse auth exec output: line 1: t\n 1 | t".to_owned(),
                "auth error: failed to parse auth exec output",
            ),
            ("unable to run auth exec: No such file".to_owned(), "unable to run auth exec: No such file"),
        ] {
            assert_eq!(without_plugin_output(&text), cut);
        }
    }

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
