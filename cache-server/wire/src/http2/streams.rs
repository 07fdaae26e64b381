//! The streams of one connection: hyper's executor for them, and their messages to the connection.
//!
//! INVARIANT: in one turn of a connection at most [`HTTP2_STREAMS_STARTED`] of its requests begin, so that many requests on
//! many connections let others run between them. INVARIANT: before a caller has proved who it is, no more than that many of
//! a connection's requests are unanswered; further ones wait. INVARIANT: a connection is not read while requests of it wait
//! to begin. Before a caller has proved who it is, and while the unread streams of all connections are many, it reads at
//! most [`HTTP2_READ_SHORT`] bytes in a turn. INVARIANT: once a connection whose callers have proved nothing was refused,
//! none of its requests begins any more.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::{
    io::AsyncWrite,
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};

use super::{
    gather::GatheredStream,
    overdue::{self, StreamCut},
};
use crate::{
    limits::{HTTP2_READ_SHORT, HTTP2_STREAMS_MAX, HTTP2_STREAMS_STARTED},
    shares::{ProofWatcher, StreamOwner, UnreadStreams},
};

/// Executor for the streams of a connection, and their messages to it. Clones share them.
#[derive(Clone)]
pub struct Streams(Arc<ConnectionStreams>);

struct ConnectionStreams {
    unread: UnreadStreams,
    open: Mutex<OpenStreams>,
    /// A caller was refused before it proved who it is.
    refused: Notify,
    /// A stream was unread while its owner had no part left.
    cut: Notify,
}

struct OpenStreams {
    count: usize,
    /// Time at which the count last became zero, or the connection began.
    idle_since: Instant,
    /// Streams that began in this turn.
    started: usize,
    /// Bytes that were read in this turn, besides the rest of a frame.
    read: usize,
    /// True once the connection was not read in this turn.
    is_paused: bool,
    /// Streams that begin in the next turns, at most [`HTTP2_STREAMS_MAX`]: a client that resets streams before they begin
    /// may open others, and loses its connection.
    waiting: VecDeque<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Requests without an answer, those that wait to begin among them.
    unanswered: usize,
    /// True once a caller proved who it is.
    is_proved: bool,
    is_refused: bool,
    /// Wakes the connection while requests wait for answers to others, or for a proof.
    waker: Option<Waker>,
}

impl OpenStreams {
    /// Returns true if a request that waits, or the one that came last, may begin. `begun` are unanswered.
    const fn may_start(&self, begun: usize) -> bool {
        self.started < HTTP2_STREAMS_STARTED && (self.is_proved || begun < HTTP2_STREAMS_STARTED)
    }

    /// Requests that have begun and have no answer.
    fn begun(&self) -> usize {
        self.unanswered.saturating_sub(self.waiting.len())
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl ProofWatcher for ConnectionStreams {
    fn note_proved(&self) {
        let mut open = self.open.lock();
        open.is_proved = true;
        open.wake();
    }
}

/// A request without an answer, until dropped.
pub struct UnansweredRequest(Weak<ConnectionStreams>);

impl Drop for UnansweredRequest {
    fn drop(&mut self) {
        let Some(streams) = self.0.upgrade() else { return };
        let mut open = streams.open.lock();
        open.unanswered -= 1;
        open.wake();
    }
}

impl Streams {
    pub fn new(unread: UnreadStreams) -> Self {
        let open = OpenStreams {
            count: 0,
            idle_since: Instant::now(),
            started: 0,
            read: 0,
            is_paused: false,
            waiting: VecDeque::new(),
            unanswered: 0,
            is_proved: false,
            is_refused: false,
            waker: None,
        };
        Self(Arc::new(ConnectionStreams { unread, open: Mutex::new(open), refused: Notify::new(), cut: Notify::new() }))
    }

    /// Streams of a connection whose caller has proved who it is.
    #[cfg(test)]
    pub fn of_tests() -> Self {
        let owner = StreamOwner::new(Arc::default(), crate::shares::StreamCaller::Refused);
        let streams = Self::new(UnreadStreams::new(&owner));
        streams.0.open.lock().is_proved = true;
        streams
    }

    /// Polls `connection`, whose streams these are, and lets some of them begin.
    pub fn poll_turn<S: AsyncWrite + Unpin, C: Future>(
        &self,
        stream: &GatheredStream<S>,
        connection: Pin<&mut C>,
        cx: &mut Context<'_>,
    ) -> Poll<C::Output> {
        self.start_waiting();
        let polled = stream.poll_turn(connection, cx);
        let mut open = self.0.open.lock();
        if !open.waiting.is_empty() && !open.is_proved && open.begun() >= HTTP2_STREAMS_STARTED {
            open.waker = Some(cx.waker().clone());
        } else if open.is_paused || !open.waiting.is_empty() {
            // The next turn comes after those of other connections.
            cx.waker().wake_by_ref();
        }
        polled
    }

    /// Counts a request until it is answered.
    pub fn unanswered(&self) -> UnansweredRequest {
        self.0.open.lock().unanswered += 1;
        UnansweredRequest(Arc::downgrade(&self.0))
    }

    /// Returns what is notified once the caller of a request has proved who it is; `None` if one has.
    pub fn awaits_proof(&self) -> Option<Arc<dyn ProofWatcher>> {
        (!self.0.open.lock().is_proved).then(|| Arc::clone(&self.0) as Arc<dyn ProofWatcher>)
    }

    /// Returns the number of bytes that the connection may read now, after the `rest` of a frame that has begun; zero if none
    /// before the next turn.
    pub fn readable(&self, rest: usize) -> usize {
        let mut open = self.0.open.lock();
        if open.waiting.is_empty() && open.is_proved && !self.0.unread.are_many() {
            return usize::MAX;
        }
        open.is_paused = !open.waiting.is_empty() || open.read >= HTTP2_READ_SHORT;
        if open.is_paused { 0 } else { rest + HTTP2_READ_SHORT - open.read }
    }

    /// Notes that the connection has read so many bytes after the rest of a frame.
    pub fn note_read(&self, bytes: usize) {
        self.0.open.lock().read += bytes;
    }

    /// Begins a turn: starts streams that wait.
    pub fn start_waiting(&self) {
        let mut open = self.0.open.lock();
        (open.started, open.read, open.is_paused) = (0, 0, false);
        while open.may_start(open.begun())
            && let Some(stream) = open.waiting.pop_front()
        {
            open.started += 1;
            tokio::spawn(stream);
        }
    }

    /// Notes the owner of a response. A connection that is refused before a caller proved who it is ends after its open
    /// streams.
    pub fn note_owner(&self, owner: &StreamOwner) {
        let mut open = self.0.open.lock();
        if !owner.ends_connection() {
            open.is_proved |= owner.is_proved();
            return;
        }
        if open.is_proved {
            // It carries the requests of proved callers. Some clients lose the answers of all streams that are open when
            // GOAWAY arrives: hyper's reports an error for a request whose task has not run since it was sent.
            return;
        }
        open.is_refused = true;
        let dropped = std::mem::take(&mut open.waiting);
        drop(open);
        // Each of them takes the lock.
        drop(dropped);
        self.0.refused.notify_one();
    }

    /// Returns true once a caller was refused and no other request may still prove one: no new stream is answered.
    pub fn takes_no_more(&self) -> bool {
        let open = self.0.open.lock();
        open.is_refused && !open.is_proved && open.unanswered == 0
    }

    /// Resolves once a caller was refused.
    pub async fn refused(&self) {
        self.0.refused.notified().await;
    }

    /// Resolves once the connection has to end at once: a stream of it is unread, and its owner has no part left.
    pub async fn cut(&self) {
        self.0.cut.notified().await;
    }

    /// Returns the start of the connection's idle time; `None` while a stream is open.
    pub fn idle_since(&self) -> Option<Instant> {
        let open = self.0.open.lock();
        (open.count == 0).then_some(open.idle_since)
    }

    /// Resolves once no stream has been open for `time`.
    pub async fn idle_for(&self, time: Duration) {
        loop {
            match self.idle_since().map(|since| since + time) {
                Some(due) if due <= Instant::now() => return,
                Some(due) => sleep_until(due).await,
                None => sleep(time).await,
            }
        }
    }
}

/// A stream that counts until dropped. Streams that wait belong to those of the connection, so it must not own these.
struct StreamCount(Weak<ConnectionStreams>);

impl Drop for StreamCount {
    fn drop(&mut self) {
        // The connection may have ended.
        let Some(streams) = self.0.upgrade() else { return };
        let mut open = streams.open.lock();
        open.count -= 1;
        if open.count == 0 {
            open.idle_since = Instant::now();
        }
    }
}

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let mut open = self.0.open.lock();
        let is_over = open.waiting.len() >= HTTP2_STREAMS_MAX as usize;
        if is_over || open.is_refused && !open.is_proved {
            drop(open);
            if is_over {
                self.0.cut.notify_one();
            }
            return;
        }
        open.count += 1;
        let connection = Arc::downgrade(&self.0);
        let count = StreamCount(Weak::clone(&connection));
        // A closure, because an async block would have room for the stream once more.
        let stream = overdue::run(stream).map(move |cut| {
            let _count = count;
            if let Some(cut) = cut {
                tracing::debug!(?cut, "unread response reset");
            }
            if cut == Some(StreamCut::Connection)
                && let Some(connection) = connection.upgrade()
            {
                connection.cut.notify_one();
            }
        });
        // The request itself is unanswered, too.
        if open.waiting.is_empty() && open.may_start(open.begun().saturating_sub(1)) {
            open.started += 1;
            tokio::spawn(stream);
        } else {
            open.waiting.push_back(Box::pin(stream));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use hyper::rt::Executor as _;

    use super::*;

    /// Goal: a connection that ends while requests wait leaves nothing behind. Method: streams that never end, of which the
    /// first few begin.
    #[tokio::test]
    async fn streams_that_wait_end_with_their_connection() {
        let streams = Streams::of_tests();
        let held = Arc::new(());
        for _ in 0..HTTP2_STREAMS_MAX {
            let held = Arc::clone(&held);
            streams.execute(async move {
                pending::<()>().await;
                drop(held);
            });
        }
        assert_eq!(streams.0.open.lock().waiting.len(), HTTP2_STREAMS_MAX as usize - HTTP2_STREAMS_STARTED);
        let connection = Arc::downgrade(&streams.0);
        drop(streams);
        assert_eq!((connection.strong_count(), Arc::strong_count(&held)), (0, 1 + HTTP2_STREAMS_STARTED));
    }

    /// Goal: requests whose callers are unknown wait for each other, and for nothing else. Method: more than may be unanswered,
    /// before and after one is answered, and after a proof.
    #[tokio::test]
    async fn few_requests_begin_before_a_caller_is_known() {
        let streams = Streams::of_tests();
        streams.0.open.lock().is_proved = false;
        let mut begun: VecDeque<_> = (0..5 * HTTP2_STREAMS_STARTED).map(|_| streams.unanswered()).collect();
        for _ in 0..begun.len() {
            streams.execute(pending::<()>());
        }
        let waiting = || {
            streams.start_waiting();
            streams.0.open.lock().waiting.len()
        };
        assert_eq!((waiting(), waiting()), (4 * HTTP2_STREAMS_STARTED, 4 * HTTP2_STREAMS_STARTED));
        begun.pop_front();
        assert_eq!(waiting(), 4 * HTTP2_STREAMS_STARTED - 1, "one was answered");
        streams.0.note_proved();
        assert_eq!(
            (waiting(), waiting()),
            (3 * HTTP2_STREAMS_STARTED - 1, 2 * HTTP2_STREAMS_STARTED - 1),
            "one turn each"
        );
    }

    /// Goal: a stream costs its own size and little more, as an idle watch holds it until its end. Method: the future of a
    /// large stream.
    #[test]
    fn a_stream_has_room_for_its_future_once() {
        let stream = async {
            let held = [0_u8; 4 << 10];
            pending::<()>().await;
            std::hint::black_box(&held);
        };
        let (size, task) = (size_of_val(&stream), size_of_val(&overdue::run(stream)));
        assert!(task < size + 512, "{task} bytes for {size}");
    }

    /// Goal: a client that resets its streams before they begin cannot make more and more of them wait. Method: more streams
    /// than a connection may have, in one turn.
    #[tokio::test]
    async fn a_connection_with_too_many_waiting_streams_is_cut() {
        let streams = Streams::of_tests();
        for _ in 0..3 * HTTP2_STREAMS_MAX {
            streams.execute(pending::<()>());
        }
        assert_eq!(streams.0.open.lock().waiting.len(), HTTP2_STREAMS_MAX as usize);
        streams.cut().await;
    }
}
