//! Health of the stream that fills a cache.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

/// Health of the stream that fills one cache: working, or failing since a point in time.
#[derive(Debug, Default)]
pub(super) struct StreamHealth {
    failing: Mutex<Option<Instant>>,
    /// True while the source has another history than the cache.
    is_lost: AtomicBool,
    found: Notify,
}

impl StreamHealth {
    /// The stream delivered something.
    pub(super) fn works(&self) {
        *self.failing.lock() = None;
    }

    /// The stream failed, or reported trouble.
    pub(super) fn fails(&self) {
        self.failing.lock().get_or_insert_with(Instant::now);
    }

    /// The cache has a state that was up to date `age` ago.
    pub(super) fn failed_for(&self, age: Duration) {
        let now = Instant::now();
        *self.failing.lock() = Some(now.checked_sub(age).unwrap_or(now));
    }

    /// Returns for how long it has been failing; `None` if it works.
    pub(super) fn failing_for(&self) -> Option<Duration> {
        self.failing.lock().map(|since| since.elapsed())
    }

    /// The source has another history, and the cache's state is none of it.
    pub(super) fn loses_history(&self) {
        self.is_lost.store(true, Ordering::Release);
    }

    /// The cache has a whole state of the source's history.
    pub(super) fn has_history(&self) {
        self.is_lost.store(false, Ordering::Release);
        self.found.notify_waiters();
    }

    /// True if the state of the cache may not be read.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// Waits until the state of the cache may be read.
    pub(super) async fn history(&self) {
        loop {
            let found = self.found.notified();
            // A notice counts from the call above on, so that none is missed.
            if !self.is_lost() {
                return;
            }
            found.await;
        }
    }
}
