//! Connections in memory, for tests: pipes on which TLS would have negotiated HTTP/2.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use tokio::io::DuplexStream;

use super::connector::BoxedSocket;

/// The client's end of a pipe.
pub(super) struct NegotiatedPipe(TokioIo<DuplexStream>);

impl NegotiatedPipe {
    pub(super) fn boxed(stream: DuplexStream) -> BoxedSocket {
        Box::new(Self(TokioIo::new(stream)))
    }
}

impl Connection for NegotiatedPipe {
    fn connected(&self) -> Connected {
        Connected::new().negotiated_h2()
    }
}

impl Read for NegotiatedPipe {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for NegotiatedPipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
