//! Runs the streams of a connection. Each begins as a task of its own. Up to [`OWN_WATCHES_MAX`] watches continue in the
//! task of the connection, where a page costs no wake of another task.
//!
//! INVARIANT: handlers, other responses and further watches run on all cores. INVARIANT: a stream is polled by one task at
//! a time. INVARIANT: watches in the connection's task end with the connection.

use std::{
    cell::Cell,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::overdue;

/// Watches in the task of their connection: those of a usual client, which are quiet most of the time. More of them could
/// keep a core busy while others are idle.
const OWN_WATCHES_MAX: usize = 16;

tokio::task_local! {
    /// True once a watch began on the stream of this task.
    static IS_WATCH: Cell<bool>;
}

/// Notes that the stream of this task became a watch.
pub(super) fn note_watch() {
    let _ = IS_WATCH.try_with(|is_watch| is_watch.set(true));
}

/// A stream until its end.
type RunningStream = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Executor for the streams of a connection. Clones share its state.
#[derive(Clone, Debug)]
pub(super) struct Streams(Arc<Mutex<OpenStreams>>);

struct OpenStreams {
    count: usize,
    /// Time at which the count last became zero, or the connection began.
    idle_since: Instant,
    /// Watches that may still move to the connection's task; zero once the connection has ended.
    room: usize,
    /// Watches on their way to the connection's task.
    moving: Vec<RunningStream>,
    /// Wakes the connection's task.
    connection: Option<Waker>,
}

impl std::fmt::Debug for OpenStreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenStreams").field("count", &self.count).field("room", &self.room).finish_non_exhaustive()
    }
}

impl Streams {
    pub(super) fn new() -> Self {
        let (idle_since, room) = (Instant::now(), OWN_WATCHES_MAX);
        Self(Arc::new(Mutex::new(OpenStreams { count: 0, idle_since, room, moving: Vec::new(), connection: None })))
    }

    /// Returns the start of the connection's idle time; `None` while a stream is open.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let open = self.0.lock();
        (open.count == 0).then_some(open.idle_since)
    }

    /// Gives a watch to the connection's task. Returns the watch if there is no room.
    fn hand_over(&self, watch: RunningStream) -> Result<(), RunningStream> {
        let mut open = self.0.lock();
        let Some(room) = open.room.checked_sub(1) else { return Err(watch) };
        open.room = room;
        open.moving.push(watch);
        let connection = open.connection.take();
        drop(open);
        if let Some(connection) = connection {
            connection.wake();
        }
        Ok(())
    }
}

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let (count, streams) = (StreamCount::new(self), self.clone());
        let mut running: RunningStream = Box::pin(overdue::until_over(async move {
            let _count = count;
            stream.await
        }));
        tokio::spawn(IS_WATCH.scope(Cell::new(false), async move {
            let is_watch = poll_fn(|cx| match running.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(false),
                Poll::Pending if IS_WATCH.with(|is_watch| is_watch.replace(false)) => Poll::Ready(true),
                Poll::Pending => Poll::Pending,
            });
            if is_watch.await
                && let Err(running) = streams.hand_over(running)
            {
                running.await;
            }
        }));
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

/// The watches in the task of their connection.
pub(super) struct OwnWatches {
    streams: Streams,
    running: FuturesUnordered<RunningStream>,
}

impl OwnWatches {
    pub(super) fn new(streams: Streams) -> Self {
        Self { streams, running: FuturesUnordered::new() }
    }

    /// Polls the watches that were woken, each once as a rule.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        let moved = {
            let mut open = self.streams.0.lock();
            // Also without room: a watch may end below, and the next one come before the next poll.
            if !open.connection.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                open.connection = Some(cx.waker().clone());
            }
            std::mem::take(&mut open.moving)
        };
        self.running.extend(moved);
        while let Poll::Ready(Some(())) = self.running.poll_next_unpin(cx) {
            self.streams.0.lock().room += 1;
        }
    }
}

impl Drop for OwnWatches {
    fn drop(&mut self) {
        let moving = {
            let mut open = self.streams.0.lock();
            open.room = 0;
            std::mem::take(&mut open.moving)
        };
        // Takes the lock for its count.
        drop(moving);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::{channel::oneshot, task::ArcWake};

    use super::*;

    #[derive(Default)]
    struct WokenFlag(AtomicBool);

    impl ArcWake for WokenFlag {
        fn wake_by_ref(this: &Arc<Self>) {
            this.0.store(true, Ordering::SeqCst);
        }
    }

    /// Goal: a watch that comes after another one ended is polled, although there was no room before. Method: the
    /// connection's task has as many watches as it may have, one of them ends, and a further one is handed over.
    #[test]
    fn a_watch_wakes_the_connection_once_there_is_room_again() {
        let streams = Streams::new();
        let mut watches = OwnWatches::new(streams.clone());
        let woken = Arc::new(WokenFlag::default());
        let waker = futures::task::waker(Arc::clone(&woken));
        let mut poll = || watches.poll(&mut Context::from_waker(&waker));
        poll();
        let watch = |ended: oneshot::Receiver<()>| -> RunningStream { Box::pin(async { ended.await.unwrap_or(()) }) };
        let (mut ends, open): (Vec<_>, Vec<_>) = (0..=OWN_WATCHES_MAX).map(|_| oneshot::channel()).unzip();
        let mut open = open.into_iter().map(watch);
        for first in open.by_ref().take(OWN_WATCHES_MAX) {
            assert!(streams.hand_over(first).is_ok());
        }
        poll();
        let last = streams.hand_over(open.next().expect("one more")).expect_err("there is no room");
        drop(ends.remove(0));
        poll();
        woken.0.store(false, Ordering::SeqCst);
        assert!(streams.hand_over(last).is_ok());
        assert!(woken.0.load(Ordering::SeqCst), "the connection's task is not woken");
        drop(ends);
        poll();
        assert_eq!(streams.0.lock().room, OWN_WATCHES_MAX);
    }
}
