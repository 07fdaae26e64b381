//! An HTTP/1.1 connection: sends a request, parses the head, passes on the body in pieces.

use std::{
    fmt::Write as _,
    future::poll_fn,
    io,
    task::{Context, Poll, ready},
};

use tokio::io::AsyncWriteExt as _;

use super::{
    Ask, Failure, Head, Kind,
    framing::{self, Framing, Malformed},
    io::Io,
};

/// Bytes of a read until the head is complete; body bytes in it must be kept.
const HEAD_READ_BYTES: usize = 4 << 10;

/// A connection and its position in the current response.
pub(super) struct Http1 {
    io: Io,
    framing: Framing,
    /// Body bytes that arrived with the head. Freed once they are passed on.
    kept: Vec<u8>,
}

impl Http1 {
    pub(super) const fn new(io: Io) -> Self {
        Self { io, framing: Framing::NONE, kept: Vec::new() }
    }

    pub(super) async fn send(&mut self, ask: &Ask<'_>, authority: &str, token: Option<&str>) -> Result<Head, Failure> {
        if !self.framing.is_done() {
            return Err(Failure::new(Kind::Client, "a request before the last answer ended"));
        }
        let mut request = Vec::from(request(ask, authority, token));
        if let Some((_, body)) = &ask.body {
            request.extend_from_slice(body);
        }
        self.io.write_all(&request).await.map_err(|error| broken(&error))?;
        self.io.flush().await.map_err(|error| broken(&error))?;
        let mut bytes = Vec::new();
        loop {
            let read = poll_fn(|cx| self.io.poll_show(cx, HEAD_READ_BYTES, |piece| bytes.extend_from_slice(piece)));
            if read.await.map_err(|error| broken(&error))? == 0 {
                return Err(Failure::new(Kind::Reset, "closed without an answer"));
            }
            if let Some((head, framing, length)) = framing::head(&bytes).map_err(malformed)? {
                self.framing = framing;
                self.kept = bytes[length..].to_vec();
                return Ok(head);
            }
        }
    }

    pub(super) fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
        take: &mut impl FnMut(&[u8]),
    ) -> Poll<Result<bool, Failure>> {
        let Self { io, framing, kept } = self;
        if !kept.is_empty() {
            let kept = std::mem::take(kept);
            return Poll::Ready(framing.feed(&kept, take).map(|()| true).map_err(malformed));
        }
        if framing.is_done() {
            return Poll::Ready(Ok(false));
        }
        let mut fed = Ok(());
        let read = ready!(io.poll_show(cx, max, |bytes| fed = framing.feed(bytes, take)));
        fed.map_err(malformed)?;
        if read.map_err(|error| broken(&error))? > 0 {
            return Poll::Ready(Ok(true));
        }
        let whole = *framing == Framing::UntilClose;
        *framing = Framing::NONE;
        Poll::Ready(if whole { Ok(false) } else { Err(Failure::new(Kind::Short, "closed before the body's end")) })
    }
}

fn request(ask: &Ask<'_>, authority: &str, token: Option<&str>) -> String {
    let Ask { method, path, accept, gzip, body } = ask;
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: load\r\nAccept: {accept}\r\n");
    if *gzip {
        text.push_str("Accept-Encoding: gzip\r\n");
    }
    if let Some(token) = token {
        let _ = write!(text, "Authorization: Bearer {token}\r\n");
    }
    if let Some((content_type, body)) = body {
        let _ = write!(text, "Content-Type: {content_type}\r\nContent-Length: {}\r\n", body.len());
    }
    text.push_str("\r\n");
    text
}

fn broken(error: &io::Error) -> Failure {
    Failure::new(Kind::Reset, error)
}

fn malformed(error: Malformed) -> Failure {
    Failure::new(Kind::Protocol, error)
}
