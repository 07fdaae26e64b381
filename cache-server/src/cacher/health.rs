//! StreamHealth of the stream that fills a cache.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// StreamHealth of the stream that fills one cache: working, or failing since a point in time.
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

    /// Returns for how long it has been failing; `None` if it works.
    pub(super) fn failing_for(&self) -> Option<Duration> {
        self.failing.lock().map(|since| since.elapsed())
    }
}
