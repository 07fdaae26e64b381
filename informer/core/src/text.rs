//! Texts of others, made safe to print.

use std::{borrow::Cow, error::Error, fmt};

/// Prints an error and its sources in one line, for logs. Skips a source whose text its parent already ends with, as
/// many foreign errors do. Escapes what would end or change the line: texts of a server must not forge lines. Cuts users
/// and passwords out of URLs, as of a proxy, and the command and output of an exec plugin.
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl Chain<'_> {
    /// Returns true if the texts of the error or its sources have secrets, which [`Display`](fmt::Display) cuts.
    #[must_use]
    pub fn has_secrets(&self) -> bool {
        let mut next = Some(self.0);
        while let Some(error) = next {
            let text = error.to_string();
            if *without_plugin_output(&text) != *text || without_credentials(&text) != text {
                return true;
            }
            next = error.source();
        }
        false
    }
}

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each text alone, because what it has of a plugin ends with it. The sources of a text that was cut are such output.
        let mut whole = self.0.to_string();
        let mut line = without_plugin_output(&whole).into_owned();
        let mut is_cut = line != whole;
        let mut next = self.0.source();
        while let Some(error) = next.filter(|_| !is_cut) {
            let text = error.to_string();
            let shown = without_plugin_output(&text);
            if !whole.ends_with(&text) {
                line.push_str(": ");
                line.push_str(&shown);
            }
            is_cut = *shown != *text;
            whole = text;
            next = error.source();
        }
        f.write_str(&one_line(&without_credentials(&line)))
    }
}

/// Replaces what is before the `@` of a URL's host. Passwords may contain quotes and brackets as they are.
fn without_credentials(mut rest: &str) -> String {
    let mut cleaned = String::with_capacity(rest.len());
    while let Some((before, url)) = rest.split_once("://") {
        let is_end = |letter: char| letter.is_whitespace() || matches!(letter, '/' | '?' | '#' | '"');
        let host = url[..url.find(is_end).unwrap_or(url.len())].rfind('@');
        cleaned.extend([before, "://", host.map_or("", |_| "…")]);
        rest = &url[host.unwrap_or(0)..];
    }
    cleaned + rest
}

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
fn without_plugin_output(text: &str) -> Cow<'_, str> {
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
    use std::io;

    use super::*;

    #[test]
    fn a_chain_is_one_line() {
        let error = io::Error::other("é\nERROR forged\x1b[0m\u{202e}");
        assert_eq!(Chain(&error).to_string(), "é\\nERROR forged\\u{1b}[0m\\u{202e}");
    }

    #[test]
    fn a_chain_shows_no_credentials_of_urls() {
        let error = io::Error::other("proxy http://me:pa@s)s's@proxy:3128/x failed, not https://b:6443/api?a=b@c");
        let text = "proxy http://…@proxy:3128/x failed, not https://b:6443/api?a=b@c";
        assert_eq!((Chain(&error).to_string(), Chain(&error).has_secrets()), (text.to_owned(), true));
        assert!(!Chain(&io::Error::other("https://b:6443/api?a=b@c")).has_secrets());
    }

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
