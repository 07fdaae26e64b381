//! Health of the stream that fills a cache.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use informer_core::Time;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

/// Health of the stream that fills one cache: working, or failing since a point in time.
#[derive(Debug, Default)]
pub(super) struct StreamHealth {
    failing: Mutex<Option<Instant>>,
    /// True while the source has another history than the cache.
    is_lost: AtomicBool,
    found: Notify,
    /// Milliseconds from the caches' start to the last event or bookmark.
    heard: AtomicU64,
}

impl StreamHealth {
    /// The stream delivered something.
    pub(super) fn works(&self) {
        *self.failing.lock() = None;
    }

    /// The stream delivered something at `now`, on the clock of all caches.
    pub(super) fn hears(&self, now: Time) {
        self.heard.store(u64::try_from(now.0.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// True if the stream works, and has delivered something within `silence`.
    pub(super) fn is_heard(&self, now: Time, silence: Duration) -> bool {
        let heard = Duration::from_millis(self.heard.load(Ordering::Relaxed));
        self.failing_for().is_none() && now.0.saturating_sub(heard) < silence
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
