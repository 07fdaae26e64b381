//! Streams on which connections are served, and the guard that resets a connection once its client makes no progress.
//!
//! INVARIANT: a connection that always has bytes to read lets others run after [`READ_TURN_BYTES`] of them.
//! INVARIANT: a client that reads at least one byte within `Config::socket_stuck` is never disconnected, and the client of
//! a tunnel never for that. The kernel's own `TCP_USER_TIMEOUT` does not guarantee that: it counts from the first full
//! window and stops only once the window opens for all waiting data, so it ends readers that are merely slow. It is set
//! for watches while no write is blocked, to notice clients whose host vanished.

mod tls_stream;

use std::{
    io,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::{TcpStream, UnixStream},
    task::yield_now,
    time::{Sleep, sleep},
};

pub use self::tls_stream::TlsStream;
use super::tap::{Tap, TappedStream};
use crate::limits::{READ_TURN_BYTES, UNCONFIRMED_MAX};

/// Makes writes fail once the client has read none of them for `patience`.
pub struct StallGuard<S> {
    /// Makes the close of the stream a reset: data that the kernel still holds must not look like an orderly end
    /// later.
    abort: fn(&S),
    /// Maximum time for which a write may make no progress.
    patience: Duration,
    /// Sets the kernel's limit for unconfirmed bytes.
    limit_unconfirmed: fn(&S, Option<Duration>),
    /// Waits for room in the socket.
    poll_room: fn(&S, &mut Context<'_>) -> Poll<io::Result<()>>,
    /// True if that limit is set while no write is blocked.
    limits_unconfirmed: bool,
    /// Runs while a write is blocked. Memory: one timer, and only then.
    stuck: Option<Pin<Box<Sleep>>>,
    /// Bytes read since others could run.
    read: usize,
}

/// A stream on which a connection is served.
pub trait Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Makes the close of the stream a reset: a response that was cut must not look like a complete one.
    fn reset_on_close(&self);

    /// Lets a client stop reading for as long as it wants.
    fn lift_stall_limit(&mut self);

    /// Ends the connection once the client's host has confirmed none of the sent bytes for [`UNCONFIRMED_MAX`], or lifts
    /// that limit.
    fn limit_unconfirmed(&mut self, is_limited: bool);

    /// Ready once a write would find less than half of `Config::unsent_bytes` unsent. A write itself fails only where the
    /// kernel begins a new segment, and fills the last one up to 64 KiB before. Cost: one system call.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Socket for TappedStream<S, StallGuard<S>> {
    fn reset_on_close(&self) {
        (self.tap.abort)(&self.stream);
    }

    fn lift_stall_limit(&mut self) {
        (self.tap.patience, self.tap.stuck) = (Duration::MAX, None);
    }

    fn limit_unconfirmed(&mut self, is_limited: bool) {
        self.tap.limits_unconfirmed = is_limited;
        (self.tap.limit_unconfirmed)(&self.stream, is_limited.then_some(UNCONFIRMED_MAX));
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let room = (self.tap.poll_room)(&self.stream, cx);
        self.tap.written(&self.stream, cx, room.map_ok(|()| 0)).map_ok(drop)
    }
}

impl<S: Socket> Socket for TlsStream<S> {
    fn reset_on_close(&self) {
        self.socket().reset_on_close();
    }

    fn lift_stall_limit(&mut self) {
        self.socket_mut().lift_stall_limit();
    }

    fn limit_unconfirmed(&mut self, is_limited: bool) {
        self.socket_mut().limit_unconfirmed(is_limited);
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket_mut().poll_room(cx)
    }
}

impl<S> StallGuard<S> {
    const fn new(
        abort: fn(&S),
        limit_unconfirmed: fn(&S, Option<Duration>),
        poll_room: fn(&S, &mut Context<'_>) -> Poll<io::Result<()>>,
        patience: Duration,
    ) -> Self {
        Self { abort, patience, limit_unconfirmed, poll_room, limits_unconfirmed: false, stuck: None, read: 0 }
    }
}

impl StallGuard<TcpStream> {
    pub const fn tcp(stream: TcpStream, patience: Duration) -> TappedStream<TcpStream, Self> {
        TappedStream { stream, tap: Self::new(reset_on_close, limit_unconfirmed, poll_room, patience) }
    }
}

impl StallGuard<UnixStream> {
    /// The guard of a Unix socket, which knows no reset: the framing of a response shows that it was cut.
    pub const fn unix(stream: UnixStream, patience: Duration) -> TappedStream<UnixStream, Self> {
        TappedStream { stream, tap: Self::new(|_| {}, |_, _| {}, |_, _| Poll::Ready(Ok(())), patience) }
    }
}

fn reset_on_close(stream: &TcpStream) {
    if let Err(error) = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)) {
        tracing::debug!(%error, "connection reset failed");
    }
}

fn poll_room(stream: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    // The runtime remembers that a socket was ready until a call fails.
    while stream.try_io(Interest::WRITABLE, || has_room(stream)).is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock) {
        ready!(stream.poll_write_ready(cx))?;
    }
    Poll::Ready(Ok(()))
}

/// Succeeds if the kernel reports that the socket is writable, or broken. Fails with `WouldBlock` otherwise.
fn has_room(stream: &TcpStream) -> io::Result<()> {
    let mut polled = [PollFd::new(stream, PollFlags::OUT)];
    match poll(&mut polled, Some(&Timespec::default()))? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

#[cfg(target_os = "linux")]
fn limit_unconfirmed(stream: &TcpStream, limit: Option<Duration>) {
    if let Err(error) = socket2::SockRef::from(stream).set_tcp_user_timeout(limit) {
        tracing::debug!(%error, "limit of unconfirmed bytes not set");
    }
}

#[cfg(not(target_os = "linux"))]
const fn limit_unconfirmed(_: &TcpStream, _: Option<Duration>) {}

impl<S> Tap<S> for StallGuard<S> {
    /// Reads, but after [`READ_TURN_BYTES`] without a pause lets others run first.
    fn poll_read(&mut self, stream: Pin<&mut S>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>>
    where
        S: AsyncRead,
    {
        if self.read >= READ_TURN_BYTES {
            self.read = 0;
            // The runtime wakes the task after others. A wake now would lead to another poll at once (`own_wakes`).
            let _ = pin!(yield_now()).poll(cx);
            return Poll::Pending;
        }
        let before = into.filled().len();
        let polled = stream.poll_read(cx, into);
        self.read = if polled.is_ready() { self.read + into.filled().len() - before } else { 0 };
        polled
    }

    /// Passes `written` on, unless writes have been blocked for too long.
    fn written(
        &mut self,
        stream: &S,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            // Any progress restarts the time.
            if self.stuck.take().is_some() && self.limits_unconfirmed {
                (self.limit_unconfirmed)(stream, Some(UNCONFIRMED_MAX));
            }
            return written;
        }
        if self.stuck.is_none() && self.limits_unconfirmed {
            // The kernel would end clients that read slowly, too.
            (self.limit_unconfirmed)(stream, None);
        }
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep(self.patience)));
        ready!(stuck.as_mut().poll(cx));
        (self.abort)(stream);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
    }
}

#[cfg(test)]
impl Socket for tokio::io::DuplexStream {
    fn reset_on_close(&self) {}

    fn lift_stall_limit(&mut self) {}

    fn limit_unconfirmed(&mut self, _: bool) {}

    fn poll_room(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        time::Instant,
    };

    use super::*;
    use crate::own_wakes::OwnWakes;

    static ABORTS: AtomicUsize = AtomicUsize::new(0);

    const PATIENCE: Duration = Duration::from_secs(60);

    fn guarded(stream: DuplexStream) -> TappedStream<DuplexStream, StallGuard<DuplexStream>> {
        let abort = |_: &DuplexStream| {
            ABORTS.fetch_add(1, Ordering::Relaxed);
        };
        let limit_unconfirmed = |_: &DuplexStream, _: Option<Duration>| {};
        let tap = StallGuard {
            abort,
            patience: PATIENCE,
            limit_unconfirmed,
            poll_room: |_, _| Poll::Ready(Ok(())),
            limits_unconfirmed: false,
            stuck: None,
            read: 0,
        };
        TappedStream { stream, tap }
    }

    /// Goal: the kernel's limit never ends a reader that is merely slow. Method: a watch's socket that is filled until
    /// it is blocked, and then read.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_limit_of_unconfirmed_bytes_is_lifted_while_a_write_is_blocked() {
        let listener = tokio::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let connecting = TcpStream::connect(listener.local_addr().expect("is bound"));
        let (client, accepted) = tokio::join!(connecting, listener.accept());
        let (mut client, mut ours) =
            (client.expect("connects"), StallGuard::tcp(accepted.expect("accepts").0, PATIENCE));
        let limit = |ours: &TappedStream<TcpStream, StallGuard<TcpStream>>| {
            socket2::SockRef::from(&ours.stream).tcp_user_timeout().expect("is readable")
        };
        assert_eq!(limit(&ours), None);
        ours.limit_unconfirmed(true);
        assert_eq!(limit(&ours), Some(UNCONFIRMED_MAX));
        let chunk = vec![7; 1 << 20];
        let mut sent = 0;
        while let Some(count) = futures::FutureExt::now_or_never(ours.write(&chunk)) {
            sent += count.expect("is open");
        }
        assert_eq!(limit(&ours), None, "after {sent} bytes");
        let reading = tokio::spawn(async move { client.read_exact(&mut vec![0; sent + 1]).await.map(drop) });
        ours.write_all(&[7]).await.expect("is read");
        assert_eq!(limit(&ours), Some(UNCONFIRMED_MAX));
        reading.await.expect("no panic").expect("arrives");
    }

    /// Goal: a long body delays others by a part of it only. Method: count the times at which the reader lets others run,
    /// polled as a connection over HTTP/1.1 is.
    #[tokio::test]
    async fn a_reader_with_many_bytes_lets_others_run() {
        const TURNS: usize = 8;
        let (ours, mut theirs) = duplex(TURNS * READ_TURN_BYTES);
        theirs.write_all(&vec![7; TURNS * READ_TURN_BYTES]).await.expect("has room");
        drop(theirs);
        let mut ours = guarded(ours);
        let mut body = Vec::new();
        let mut reading = pin!(ours.read_to_end(&mut body));
        let (own_wakes, mut turns) = (OwnWakes::new(), 1);
        let read = poll_fn(|cx| {
            let polled = own_wakes.poll(cx, |cx| reading.as_mut().poll(cx));
            turns += usize::from(polled.is_pending());
            polled
        });
        read.await.expect("is open");
        assert_eq!(body.len(), TURNS * READ_TURN_BYTES);
        assert!(turns >= TURNS / 2, "{turns} turns");
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
