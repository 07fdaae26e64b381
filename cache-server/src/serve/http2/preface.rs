//! Whether an HTTP/2 client has begun: hyper waits for its preface for ever, and asks nobody before whether it lives.
//!
//! INVARIANT: what passes is not changed, kept or held up.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::sleep,
};

use crate::limits::HEAD_TIMEOUT;

/// Bytes that a client begins with.
const PREFACE_BYTES: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();

/// Whether the client has sent its preface.
#[derive(Clone, Debug, Default)]
pub(super) struct Begun(Arc<AtomicBool>);

impl Begun {
    pub(super) fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Resolves when the client has not begun within [`HEAD_TIMEOUT`].
    pub(super) async fn is_late(&self) {
        sleep(HEAD_TIMEOUT).await;
        if self.is_so() {
            std::future::pending().await
        }
    }
}

/// A stream that notes when the preface was read of it.
pub(super) struct Noting<S> {
    stream: S,
    /// Bytes of the preface that are still to be read.
    left: usize,
    begun: Begun,
}

impl<S> Noting<S> {
    pub(super) const fn new(stream: S, begun: Begun) -> Self {
        Self { stream, left: PREFACE_BYTES, begun }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Noting<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
        if 0 < self.left {
            self.left = self.left.saturating_sub(into.filled().len() - before);
            if self.left == 0 {
                self.begun.0.store(true, Ordering::Relaxed);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noting<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
