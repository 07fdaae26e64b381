//! Health of the stream that fills a cache.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Health of the stream that fills one cache: working, or failing since a point in time.
#[derive(Debug, Default)]
pub(super) struct StreamHealth {
    failing: Mutex<Option<Instant>>,
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
}
