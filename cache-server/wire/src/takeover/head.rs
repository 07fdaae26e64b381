//! Encodes the response heads that hyper does not write: of streams, byte for byte as hyper would, and of
//! WebSockets.

use http::{header, response::Parts};
use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter};

/// Capacity for the head of a watch: status, type, date, audit id.
const ROOM: usize = 256;

/// Returns the head of a response with a chunked body. `last` adds `connection: close`.
pub fn encode(parts: &Parts, last: bool) -> Vec<u8> {
    let mut out = begun(parts);
    if last && !parts.headers.contains_key(header::CONNECTION) {
        line(&mut out, &[b"connection: close"]);
    }
    line(&mut out, &[b"transfer-encoding: chunked"]);
    ended(parts, out)
}

/// Returns the head of a response that switches to the protocol named in `parts`.
pub fn switching(parts: &Parts) -> Vec<u8> {
    ended(parts, begun(parts))
}

fn begun(parts: &Parts) -> Vec<u8> {
    let mut out = Vec::with_capacity(ROOM);
    line(&mut out, &[b"HTTP/1.1 ", parts.status.as_str().as_bytes(), b" ", reason(parts).as_bytes()]);
    for (name, value) in &parts.headers {
        line(&mut out, &[name.as_str().as_bytes(), b": ", value.as_bytes()]);
    }
    out
}

fn ended(parts: &Parts, mut out: Vec<u8>) -> Vec<u8> {
    // RFC 9110 asks for a Date header; hyper adds it in the same place.
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{HeaderValue, Response};
    use http_body_util::{StreamBody, combinators::BoxBody};
    use hyper::{server::conn::http1, service::service_fn};
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const REQUEST: &str = "GET / HTTP/1.1\r\nHost: here\r\n";

    /// Returns the head that hyper writes for `response` with a body of unknown length.
    async fn of_hyper(response: Response<()>, request: String) -> Vec<u8> {
        let (ours, mut theirs) = duplex(1 << 16);
        let answer = service_fn(move |_| {
            let endless =
                StreamBody::new(futures::stream::pending::<Result<http_body::Frame<bytes::Bytes>, Infallible>>());
            let response = response.clone().map(|()| BoxBody::new(endless));
            async { Ok::<_, Infallible>(response) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(ours), answer));
        theirs.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(theirs.read_u8().await.unwrap());
        }
        head
    }

    /// Returns the head without its date, after checking the date's format.
    fn timeless(head: &[u8]) -> String {
        let head = String::from_utf8_lossy(head);
        let (before, date) = head.split_once("date: ").expect("a date");
        let (date, after) = date.split_at("Sun, 06 Nov 1994 08:49:37 GMT".len());
        let format = "%a, %d %b %Y %H:%M:%S GMT";
        assert!(jiff::civil::DateTime::strptime(format, date).is_ok(), "{date}");
        format!("{before}date: {after}")
    }

    #[tokio::test]
    async fn a_head_has_the_bytes_that_hyper_writes() {
        let watch = || Response::builder().header("content-type", "application/json;stream=watch");
        for response in [
            watch().body(()).unwrap(),
            watch().header("cache-control", "no-cache, private").header("audit-id", "1-2-3").body(()).unwrap(),
            watch().header("warning", "299 - a").header("warning", "299 - b").header("x", "").body(()).unwrap(),
            watch().header("x", HeaderValue::from_bytes(b"caf\xe9").unwrap()).status(203).body(()).unwrap(),
            watch().header("connection", "close").body(()).unwrap(),
            Response::new(()),
        ] {
            let parts = response.clone().into_parts().0;
            for (more, last) in [("", false), ("Connection: close\r\n", true)] {
                let hypers = of_hyper(response.clone(), format!("{REQUEST}{more}\r\n")).await;
                assert_eq!(timeless(&encode(&parts, last)), timeless(&hypers));
            }
        }
    }
}
