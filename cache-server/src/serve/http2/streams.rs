//! The streams of one connection: hyper's executor for them, and their messages to the connection.
//!
//! INVARIANT: in one turn of a connection at most [`HTTP2_STREAMS_STARTED`] of its requests begin, so that many requests on
//! many connections let others run between them. INVARIANT: once a connection whose callers have proved nothing was refused,
//! none of its requests begins any more.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

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
use crate::{access::shares::StreamOwner, limits::HTTP2_STREAMS_STARTED};

/// Executor for the streams of a connection, and their messages to it. Clones share them.
#[derive(Clone)]
pub(super) struct Streams(Arc<ConnectionStreams>);

struct ConnectionStreams {
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
    /// Streams that begin in the next turns. hyper bounds them, as all streams.
    waiting: VecDeque<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// True once a caller proved who it is.
    is_proved: bool,
    is_refused: bool,
}

impl Streams {
    pub(super) fn new() -> Self {
        let open = OpenStreams {
            count: 0,
            idle_since: Instant::now(),
            started: 0,
            waiting: VecDeque::new(),
            is_proved: false,
            is_refused: false,
        };
        Self(Arc::new(ConnectionStreams { open: Mutex::new(open), refused: Notify::new(), cut: Notify::new() }))
    }

    /// Polls `connection`, whose streams these are, and lets some of them begin.
    pub(super) fn poll_turn<S: AsyncWrite + Unpin, C: Future>(
        &self,
        stream: &GatheredStream<S>,
        connection: Pin<&mut C>,
        cx: &mut Context<'_>,
    ) -> Poll<C::Output> {
        self.start_waiting(cx);
        stream.poll_turn(connection, cx)
    }

    /// Begins a turn: starts streams that wait. Wakes the connection if more do.
    fn start_waiting(&self, cx: &Context<'_>) {
        let mut open = self.0.open.lock();
        open.started = 0;
        while open.started < HTTP2_STREAMS_STARTED
            && let Some(stream) = open.waiting.pop_front()
        {
            open.started += 1;
            tokio::spawn(stream);
        }
        if !open.waiting.is_empty() {
            cx.waker().wake_by_ref();
        }
    }

    /// Notes the owner of a response. A connection that was refused ends after its open streams.
    pub(super) fn note_owner(&self, owner: &StreamOwner) {
        if !owner.ends_connection() {
            self.0.open.lock().is_proved |= owner.is_proved();
            return;
        }
        let mut open = self.0.open.lock();
        open.is_refused = true;
        let dropped = if open.is_proved { VecDeque::new() } else { std::mem::take(&mut open.waiting) };
        drop(open);
        // Each of them takes the lock.
        drop(dropped);
        self.0.refused.notify_one();
    }

    /// Resolves once a caller was refused.
    pub(super) async fn refused(&self) {
        self.0.refused.notified().await;
    }

    /// Resolves once the connection has to end at once: a stream of it is unread, and its owner has no part left.
    pub(super) async fn cut(&self) {
        self.0.cut.notified().await;
    }

    /// Returns the start of the connection's idle time; `None` while a stream is open.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let open = self.0.open.lock();
        (open.count == 0).then_some(open.idle_since)
    }

    /// Resolves once no stream has been open for `time`.
    pub(super) async fn idle_for(&self, time: Duration) {
        loop {
            match self.idle_since().map(|since| since + time) {
                Some(due) if due <= Instant::now() => return,
                Some(due) => sleep_until(due).await,
                None => sleep(time).await,
            }
        }
    }
}

/// Counts a stream until dropped.
struct StreamCount(Streams);

impl StreamCount {
    fn new(streams: &Streams) -> Self {
        streams.0.open.lock().count += 1;
        Self(streams.clone())
    }
}

impl Drop for StreamCount {
    fn drop(&mut self) {
        let mut open = self.0.0.open.lock();
        open.count -= 1;
        if open.count == 0 {
            open.idle_since = Instant::now();
        }
    }
}

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let (count, connection) = (StreamCount::new(self), Arc::downgrade(&self.0));
        let stream = async move {
            let _count = count;
            let cut = overdue::run(stream).await;
            if let Some(cut) = cut {
                tracing::debug!(?cut, "unread response reset");
            }
            if cut == Some(StreamCut::Connection)
                && let Some(connection) = connection.upgrade()
            {
                connection.cut.notify_one();
            }
        };
        let mut open = self.0.open.lock();
        if open.is_refused && !open.is_proved {
            drop(open);
            drop(stream);
        } else if open.started < HTTP2_STREAMS_STARTED && open.waiting.is_empty() {
            open.started += 1;
            tokio::spawn(stream);
        } else {
            open.waiting.push_back(Box::pin(stream));
        }
    }
}
