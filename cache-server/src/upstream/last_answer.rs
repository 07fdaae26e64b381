//! Time of the API server's last answer to any request: a sign that it is back after an outage.

use parking_lot::Mutex;
use tokio::time::Instant;

/// Time of the last answer; `None` before the first one. Shared as `Arc` by all that send requests.
#[derive(Debug, Default)]
pub(crate) struct LastAnswer(Mutex<Option<Instant>>);

impl LastAnswer {
    /// Notes that the API server answers now.
    pub(crate) fn note(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    /// True if the API server has answered after `time`.
    pub(crate) fn is_after(&self, time: Instant) -> bool {
        self.0.lock().is_some_and(|last| time < last)
    }
}
