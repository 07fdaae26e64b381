//! The head of a streamed HTTP/1.1 response, byte by byte as hyper writes it.

use http::{header, response::Parts};
use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter};

/// Room for the head of a watch: status, type, date, audit id.
const ROOM: usize = 256;

/// The head of a response with a chunked body. `last` says that the connection ends with it.
pub(super) fn encode(parts: &Parts, last: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(ROOM);
    line(&mut out, &[b"HTTP/1.1 ", parts.status.as_str().as_bytes(), b" ", reason(parts).as_bytes()]);
    for (name, value) in &parts.headers {
        line(&mut out, &[name.as_str().as_bytes(), b": ", value.as_bytes()]);
    }
    if last && !parts.headers.contains_key(header::CONNECTION) {
        line(&mut out, &[b"connection: close"]);
    }
    line(&mut out, &[b"transfer-encoding: chunked"]);
    if !parts.headers.contains_key(header::DATE)
        && let Ok(now) = DateTimePrinter::new().timestamp_to_rfc9110_string(&Timestamp::now())
    {
        line(&mut out, &[b"date: ", now.as_bytes()]);
    }
    line(&mut out, &[]);
    out
}

fn reason(parts: &Parts) -> &'static str {
    parts.status.canonical_reason().unwrap_or("<none>")
}

fn line(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(b"\r\n");
}
