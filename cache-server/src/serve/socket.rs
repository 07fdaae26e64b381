//! Streams on which connections are served, and the guard that resets a connection once its client makes no progress.
//!
//! INVARIANT: a client that reads at least one byte within `Config::socket_stuck` is never disconnected, and the client of
//! a tunnel never for that. The kernel's
//! own `TCP_USER_TIMEOUT` does not guarantee that: it counts from the first full window and stops only once the window
//! opens for all waiting data, so it ends readers that are merely slow.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::{Sleep, sleep},
};

use super::{
    tap::{Tap, TappedStream},
    tls::TlsStream,
};

/// Makes writes fail once the client has read none of them for `patience`.
pub(super) struct StallGuard<S> {
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

    /// Lets a client stop reading for as long as it wants.
    fn lift_stall_limit(&mut self);
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Socket for TappedStream<S, StallGuard<S>> {
    fn reset_on_close(&self) {
        (self.tap.abort)(&self.stream);
    }

    fn lift_stall_limit(&mut self) {
        (self.tap.patience, self.tap.stuck) = (Duration::MAX, None);
    }
}

impl<S: Socket> Socket for TlsStream<S> {
    fn reset_on_close(&self) {
        self.get_ref().0.reset_on_close();
    }

    fn lift_stall_limit(&mut self) {
        self.get_mut().0.lift_stall_limit();
    }
}

impl StallGuard<TcpStream> {
    pub(super) const fn tcp(stream: TcpStream, patience: Duration) -> TappedStream<TcpStream, Self> {
        TappedStream { stream, tap: Self { abort: reset_on_close, patience, stuck: None } }
    }
}

impl StallGuard<UnixStream> {
    /// The guard of a Unix socket, which knows no reset: the framing of a response shows that it was cut.
    pub(super) const fn unix(stream: UnixStream, patience: Duration) -> TappedStream<UnixStream, Self> {
        TappedStream { stream, tap: Self { abort: |_| {}, patience, stuck: None } }
    }
}

fn reset_on_close(stream: &TcpStream) {
    if let Err(error) = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)) {
        tracing::debug!(%error, "connection reset failed");
    }
}

impl<S> Tap<S> for StallGuard<S> {
    /// Passes `written` on, unless writes have been blocked for too long.
    fn written(
        &mut self,
        stream: &S,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            // Any progress restarts the time.
            self.stuck = None;
            return written;
        }
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep(self.patience)));
        ready!(stuck.as_mut().poll(cx));
        (self.abort)(stream);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
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

    fn guarded(stream: DuplexStream) -> TappedStream<DuplexStream, StallGuard<DuplexStream>> {
        let abort = |_: &DuplexStream| {
            ABORTS.fetch_add(1, Ordering::Relaxed);
        };
        TappedStream { stream, tap: StallGuard { abort, patience: PATIENCE, stuck: None } }
    }

    /// Goal: a slow reader is served to the end, and one that stops is not. Method: a byte every 59 s for an hour,
    /// then none.
    #[tokio::test(start_paused = true)]
    async fn only_a_reader_that_takes_nothing_is_ended() {
        let (ours, mut theirs) = duplex(1);
        let mut ours = guarded(ours);
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
