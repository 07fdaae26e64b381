//! A stream that resets its connection once the client makes no progress.
//!
//! INVARIANT: a client that reads at least one byte within `Config::socket_stuck` is never disconnected. The kernel's
//! own `TCP_USER_TIMEOUT` does not guarantee that: it counts from the first full window and stops only once the window
//! opens for all waiting data, so it ends readers that are merely slow.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

use super::tls::TlsStream;

/// A stream whose writes fail once the client has read none of them for `patience`.
pub(super) struct StallGuard<S> {
    stream: S,
    /// Makes the close of the stream a reset: data that the kernel still holds must not look like an orderly end
    /// later.
    abort: fn(&S),
    /// Maximum time for which a write may make no progress.
    patience: Duration,
    /// Runs while a write is blocked. Memory: one timer, and only then.
    stuck: Option<Pin<Box<Sleep>>>,
}

/// A stream on which a connection is served.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Makes the close of the stream a reset: a response that was cut must not look like a complete one.
    fn reset_on_close(&self);
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Socket for StallGuard<S> {
    fn reset_on_close(&self) {
        (self.abort)(&self.stream);
    }
}

impl<S: Socket> Socket for TlsStream<S> {
    fn reset_on_close(&self) {
        self.get_ref().0.reset_on_close();
    }
}

impl StallGuard<TcpStream> {
    pub(super) const fn tcp(stream: TcpStream, patience: Duration) -> Self {
        Self { stream, abort: reset_on_close, patience, stuck: None }
    }
}

fn reset_on_close(stream: &TcpStream) {
    if let Err(error) = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)) {
        tracing::debug!(%error, "connection reset failed");
    }
}

impl<S> StallGuard<S> {
    /// Passes `written` on, unless writes have been blocked for too long.
    fn watch<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            // Any progress restarts the time.
            self.stuck = None;
            return written;
        }
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep(self.patience)));
        ready!(stuck.as_mut().poll(cx));
        (self.abort)(&self.stream);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.watch(cx, written)
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        time::Instant,
    };

    use super::*;

    static ABORTS: AtomicUsize = AtomicUsize::new(0);

    const PATIENCE: Duration = Duration::from_secs(60);

    fn moving(stream: DuplexStream) -> StallGuard<DuplexStream> {
        let abort = |_: &DuplexStream| {
            ABORTS.fetch_add(1, Ordering::Relaxed);
        };
        StallGuard { stream, abort, patience: PATIENCE, stuck: None }
    }

    /// Goal: a slow reader is served to the end, and one that stops is not. Method: a byte every 59 s for an hour,
    /// then none.
    #[tokio::test(start_paused = true)]
    async fn only_a_reader_that_takes_nothing_is_ended() {
        let (ours, mut theirs) = duplex(1);
        let mut ours = moving(ours);
        let reader = tokio::spawn(async move {
            for _ in 0..60 {
                sleep(PATIENCE - Duration::from_secs(1)).await;
                theirs.read_u8().await.expect("still open");
            }
            theirs
        });
        ours.write_all(&[7; 60]).await.expect("slow is not stuck");
        let theirs = reader.await.expect("no panic");
        ours.write_all(&[7]).await.expect("fits");
        assert_eq!(ABORTS.load(Ordering::Relaxed), 0);
        let stopped = Instant::now();
        let error = ours.write_all(&[7]).await.expect_err("nobody reads");
        assert_eq!((error.kind(), stopped.elapsed()), (io::ErrorKind::TimedOut, PATIENCE));
        assert_eq!(ABORTS.load(Ordering::Relaxed), 1);
        drop(theirs);
    }
}
