//! Resets HTTP/2 streams whose client does not read: watches once they are past their term, other responses after
//! [`HTTP2_STREAM_STUCK`]. hyper polls a body only after the previous frame was accepted, so a body cannot end itself
//! while its stream's window is closed.
//!
//! hyper hands each stream to an executor as one future, which polls the service and later the body. [`Streams`] runs
//! that future beside a clock that service and body set from within. Dropping the future resets this stream only; bytes
//! that h2 already holds stay until the client takes them or leaves.

use std::{
    cell::{Cell, OnceCell},
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
};

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::{access::lease::WatchTerm, limits::HTTP2_STREAM_STUCK};

tokio::task_local! {
    static CLOCK: StreamClock;
}

/// Times of the stream on this task.
#[derive(Default)]
struct StreamClock {
    /// Term of a watch. Empty for other requests.
    term: OnceCell<WatchTerm>,
    /// Time since which the client has not accepted the next bytes; `None` while it waits for the server, and for watches
    /// whose term is limited.
    given: Cell<Option<Instant>>,
}

/// Sets the term of the watch on this task's stream. Has no effect outside of [`Streams`].
pub(super) fn set_term(term: WatchTerm) {
    let _ = CLOCK.try_with(|clock| clock.term.set(term));
}

/// Notes that hyper polls the body of this task's stream: the client has accepted all bytes before.
pub(super) fn note_polled() {
    let _ = CLOCK.try_with(|clock| clock.given.set(None));
}

/// Notes that bytes of the response on this task's stream wait for the client. Has no effect on a watch whose term is
/// limited.
pub(super) fn note_given() {
    let _ = CLOCK.try_with(|clock| {
        if !clock.term.get().is_some_and(WatchTerm::is_limited) {
            clock.given.set(Some(Instant::now()));
        }
    });
}

/// Executor for the streams of a connection. Clones share their count.
#[derive(Clone, Debug)]
pub(super) struct Streams(Arc<Mutex<OpenStreams>>);

#[derive(Debug)]
struct OpenStreams {
    count: usize,
    /// Time at which the count last became zero, or the connection began.
    idle_since: Instant,
}

impl Streams {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(OpenStreams { count: 0, idle_since: Instant::now() })))
    }

    /// Returns the start of the connection's idle time; `None` while a stream is open.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let open = self.0.lock();
        (open.count == 0).then_some(open.idle_since)
    }
}

/// Counts a stream until dropped.
struct StreamCount(Streams);

impl StreamCount {
    fn new(streams: &Streams) -> Self {
        streams.0.lock().count += 1;
        Self(streams.clone())
    }
}

impl Drop for StreamCount {
    fn drop(&mut self) {
        let mut open = self.0.0.lock();
        open.count -= 1;
        if open.count == 0 {
            open.idle_since = Instant::now();
        }
    }
}

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let count = StreamCount::new(self);
        tokio::spawn(CLOCK.scope(StreamClock::default(), async move {
            let _count = count;
            let stream = pin!(stream);
            tokio::select! {
                biased;
                _ = stream => {}
                () = over() => tracing::debug!("stalled watch reset"),
                () = unread() => tracing::debug!("unread response reset"),
            }
        }));
    }
}

/// Resolves at the end of this task's term, once one is set. No timer exists before that.
async fn over() {
    // The service sets the term while this task is polled, so checking at each poll needs no waker.
    let term =
        poll_fn(|_| CLOCK.with(|clock| clock.term.get().map_or(Poll::Pending, |term| Poll::Ready(term.clone()))));
    term.await.over().await;
}

/// Resolves once the client has left the next bytes unread for [`HTTP2_STREAM_STUCK`]. A timer exists only for clients
/// that do not read at once.
async fn unread() {
    let mut timer = None;
    poll_fn(|cx| poll_unread(&mut timer, cx)).await;
}

fn poll_unread(timer: &mut Option<Pin<Box<Sleep>>>, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        let due = CLOCK.with(|clock| clock.given.get()).map(|given| given + HTTP2_STREAM_STUCK);
        let Some(sleep) = timer else {
            let Some(due) = due else { return Poll::Pending };
            *timer = Some(Box::pin(sleep_until(due)));
            continue;
        };
        // Moved only when it fires, because the time moves with each frame.
        ready!(sleep.as_mut().poll(cx));
        match due {
            Some(due) if due <= Instant::now() => return Poll::Ready(()),
            Some(due) => sleep.as_mut().reset(due),
            None => *timer = None,
        }
    }
}
