//! A stream that observes or changes a part of what passes through it: the I/O traits, once for all of them.
//!
//! INVARIANT: calls that a tap does not override pass through unchanged, unbuffered and without delay.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The part of a stream's calls that is observed or changed.
pub trait Tap<S>: Unpin {
    /// Reads from the stream.
    fn poll_read(&mut self, stream: Pin<&mut S>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>>
    where
        S: AsyncRead,
    {
        stream.poll_read(cx, into)
    }

    /// Receives the result of each write, and returns the result that the writer gets.
    fn written(
        &mut self,
        _stream: &S,
        _cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        written
    }

    /// Called after each completed flush.
    fn flushed(&mut self) {}
}

/// A stream with a tap.
pub struct TappedStream<S, T> {
    pub stream: S,
    pub tap: T,
}

impl<S: AsyncRead + Unpin, T: Tap<S>> AsyncRead for TappedStream<S, T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.tap.poll_read(Pin::new(&mut this.stream), cx, into)
    }
}

impl<S: AsyncWrite + Unpin, T: Tap<S>> AsyncWrite for TappedStream<S, T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.tap.written(&this.stream, cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.tap.written(&this.stream, cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(cx))?;
        this.tap.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
