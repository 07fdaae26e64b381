//! The log on stderr: its filter, and its lines.
//!
//! INVARIANT: an event is one line of text without control characters, whatever its parts are: texts of clients, of
//! upstreams and of files are in errors, and a line break or a terminal's escape among them would forge lines.

use std::io::{self, Write};

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

/// Installs the log. Has no effect if one is installed already: a second server in one process uses the first one's.
pub(super) fn install(filter: &str) {
    let _ = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(format!("{QUIET},{filter}")))
        .with_writer(|| Lines(io::stderr()))
        .with_ansi(false)
        .try_init();
}

/// Writes events as lines. The subscriber writes each event with one call.
struct Lines<W>(W);

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = event.strip_suffix(b"\n").unwrap_or(event);
        let line = format!("{}\n", one_line(&String::from_utf8_lossy(text)));
        self.0.write_all(line.as_bytes()).map(|()| event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
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
            let mut written = Lines(Vec::new());
            written.write_all(event.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(written.0).unwrap(), line);
        }
    }
}
