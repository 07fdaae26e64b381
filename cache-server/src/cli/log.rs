//! The log on stderr: its filter, and its lines.
//!
//! INVARIANT: an event is one line of text without control characters, whatever its parts are: texts of clients, of
//! upstreams and of files are in errors, and a line break or a terminal's escape among them would forge lines. In JSON,
//! the event is one object.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use clap::ValueEnum;
use informer_core::text::one_line;
use tracing_subscriber::EnvFilter;

/// Silences the HTTP/2 library's warning about each client that resets too many streams: `cache_server_wire::flood` counts
/// them. Silences kube's error for each failed request, too: it has no reason, and the sender reports one.
const QUIET: &str = "h2=error,kube_client::client::builder=off";

/// RUST_LOG if it is a valid filter, else `warn`: the variable may be set for another program in a syntax unknown here.
pub(super) fn filter_default() -> String {
    let usual = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty() && filter(text).is_ok());
    usual.unwrap_or_else(|| "warn".to_owned())
}

/// Checks a filter.
pub(super) fn filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Form of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// Time, level, origin, message and fields as text.
    #[default]
    Text,
    /// A JSON object with `timestamp`, `level`, `target`, `message` and the fields.
    Json,
}

/// Installs the log. Has no effect if one is installed already: a second server in one process uses the first one's.
pub(super) fn install(filter: &str, format: LogFormat) {
    let log = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(format!("{QUIET},{filter}")));
    let log = log.with_writer(move || Lines(io::stderr(), format)).with_ansi(false);
    let _ = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
    };
}

/// Writes events as lines. The subscriber writes each event with one call.
struct Lines<W>(W, LogFormat);

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event.strip_suffix(b"\n").unwrap_or(event));
        let text = match self.1 {
            LogFormat::Text => one_line(&text),
            LogFormat::Json => one_json_line(&text),
        };
        self.0.write_all(format!("{text}\n").as_bytes()).map(|()| event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Like [`one_line`], for a JSON object: escapes as JSON does.
fn one_json_line(text: &str) -> Cow<'_, str> {
    let is_special = |letter: char| one_line(letter.encode_utf8(&mut [0; 4])).len() != letter.len_utf8();
    if !text.contains(is_special) {
        return Cow::Borrowed(text);
    }
    // The special characters are all below U+10000.
    let escape = |letter: char| match is_special(letter) {
        true => format!("\\u{:04x}", u32::from(letter)),
        false => letter.to_string(),
    };
    Cow::Owned(text.chars().map(escape).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_without_control_characters() {
        for (event, line) in [
            ("usual line uri=/api?a=b error=ä\n", "usual line uri=/api?a=b error=ä\n"),
            ("error=a\nforged\r\n\tline\n", "error=a\\nforged\\r\\n\\tline\n"),
            ("error=\u{1b}[31mred\u{7}\u{9b}\u{7f}\n", "error=\\u{1b}[31mred\\u{7}\\u{9b}\\u{7f}\n"),
            ("error=a\u{2028}b\u{202e}c", "error=a\\u{2028}b\\u{202e}c\n"),
            ("\n", "\n"),
        ] {
            let mut written = Lines(Vec::new(), LogFormat::Text);
            written.write_all(event.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(written.0).unwrap(), line);
        }
    }

    #[test]
    fn an_event_in_json_stays_json() {
        for text in ["usual ä", "\u{1b}[31mred\u{7}\u{9b}\u{7f}\n", "a\u{2028}b\u{202e}c"] {
            let event = serde_json::json!({ "error": text });
            let mut written = Lines(Vec::new(), LogFormat::Json);
            written.write_all(format!("{event}\n").as_bytes()).unwrap();
            let line = String::from_utf8(written.0).unwrap();
            let line = line.strip_suffix('\n').unwrap();
            assert_eq!(one_line(line), line);
            assert_eq!(serde_json::from_str::<serde_json::Value>(line).unwrap(), event);
        }
    }
}
