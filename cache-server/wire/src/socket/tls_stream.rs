//! A TLS stream that encrypts no more than the socket takes, and several records for one write.
//!
//! INVARIANT: a write of more than a record is encrypted only once the socket has room for it, so that encrypted bytes
//! wait only if the socket takes a part of a write. They are sent before more is encrypted.
//!
//! A record of its own for each write costs a fast reader a system call and a segment for each 16 KiB, and many records
//! for each write cost a slow reader their unsent bytes in the kernel. Therefore a reader gets writes of many records
//! once it has read [`FAST_BYTES`] without keeping the server waiting for [`SLOW_AFTER`], and one that keeps it waiting
//! gets records of [`SLOW_RECORD_BYTES`].

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use crate::{limits::TLS_UNSENT_BYTES_MAX, socket::Socket};

/// Bytes that are encrypted for one write to a fast reader: a batch. Memory: at most this for each connection during the
/// write, and until the next one what the socket did not take of it: some KiB.
const GATHERED_BYTES: usize = 72 << 10;

/// Bytes that a client reads without being slow before its writes have [`GATHERED_BYTES`]: more than windows and buffers
/// hold for a client that reads slowly.
const FAST_BYTES: usize = 256 << 10;

/// Bytes of a record for a slow reader. The kernel holds one unsent record more than half of its limit, so smaller records
/// save memory; records of 8 KiB would cost a third more CPU.
const SLOW_RECORD_BYTES: usize = 12 << 10;

/// Time for which a socket may be full before its client is slow.
const SLOW_AFTER: Duration = Duration::from_millis(20);

/// A TLS stream. Boxed because its state is over 1 KiB: each future that holds the stream then holds a pointer only.
pub struct TlsStream<S> {
    stream: Box<tokio_rustls::server::TlsStream<S>>,
    /// Bytes that were written since the reader was slow; at most [`FAST_BYTES`].
    fast_bytes: usize,
    /// True from a slow read to the next [`FAST_BYTES`] that are read fast.
    is_slow: bool,
    /// Time since which a write waits for room.
    blocked_since: Option<Instant>,
}

impl<S> TlsStream<S> {
    pub fn new(stream: tokio_rustls::server::TlsStream<S>) -> Self {
        Self { stream: Box::new(stream), fast_bytes: 0, is_slow: false, blocked_since: None }
    }

    /// Returns the stream below.
    pub fn socket(&self) -> &S {
        self.stream.get_ref().0
    }

    /// Returns the stream below. Bytes read or written there break the session.
    pub fn socket_mut(&mut self) -> &mut S {
        self.stream.get_mut().0
    }
}

impl<S: Socket> TlsStream<S> {
    /// Prepares a write of so many bytes: sends earlier records, waits for room, and bounds the bytes that are encrypted.
    fn poll_prepare(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<io::Result<()>> {
        if self.poll_room(cx, bytes)?.is_pending() {
            self.blocked_since.get_or_insert_with(Instant::now);
            return Poll::Pending;
        }
        if self.blocked_since.take().is_some_and(|since| since.elapsed() >= SLOW_AFTER) {
            (self.fast_bytes, self.is_slow) = (0, true);
        }
        let limit = if self.fast_bytes >= FAST_BYTES { GATHERED_BYTES } else { self.record_bytes() };
        // rustls encrypts only as many bytes of a write as fit into its buffer.
        self.stream.get_mut().1.set_buffer_limit(Some(limit));
        Poll::Ready(Ok(()))
    }

    fn poll_room(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<io::Result<()>> {
        // Records of the last write, of which the socket took a part.
        if self.stream.get_ref().1.wants_write() {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        }
        // A short write is likely to fit, and is encrypted without the system call.
        if bytes <= self.record_bytes() { Poll::Ready(Ok(())) } else { self.socket_mut().poll_room(cx) }
    }

    /// Returns the bytes that are encrypted for one write to a reader that is not fast.
    const fn record_bytes(&self) -> usize {
        if self.is_slow { SLOW_RECORD_BYTES } else { TLS_UNSENT_BYTES_MAX }
    }

    fn note(&mut self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = written {
            self.fast_bytes = (self.fast_bytes + count).min(FAST_BYTES);
            self.is_slow &= self.fast_bytes < FAST_BYTES;
        }
    }
}

impl<S: Socket> AsyncRead for TlsStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: Socket> AsyncWrite for TlsStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_prepare(cx, bytes.len()))?;
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_prepare(cx, slices.iter().map(|slice| slice.len()).sum()))?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
