//! Times out clients that never send the HTTP/2 preface; hyper has no timeout and no keep-alive before it.
//!
//! INVARIANT: bytes pass through unchanged, unbuffered and without delay.

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

/// Length of the client's preface.
const PREFACE_BYTES: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();

/// A flag that is set once the client has sent its preface.
#[derive(Clone, Debug, Default)]
pub(super) struct PrefaceFlag(Arc<AtomicBool>);

impl PrefaceFlag {
    pub(super) fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Resolves if the client has not sent its preface within [`HEAD_TIMEOUT`].
    pub(super) async fn is_late(&self) {
        sleep(HEAD_TIMEOUT).await;
        if self.is_so() {
            std::future::pending().await
        }
    }
}

/// A stream that sets the flag once the preface was read from it.
pub(super) struct PrefaceStream<S> {
    stream: S,
    /// Bytes of the preface that are still to be read.
    left: usize,
    begun: PrefaceFlag,
}

impl<S> PrefaceStream<S> {
    pub(super) const fn new(stream: S, begun: PrefaceFlag) -> Self {
        Self { stream, left: PREFACE_BYTES, begun }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PrefaceStream<S> {
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

impl<S: AsyncWrite + Unpin> AsyncWrite for PrefaceStream<S> {
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
