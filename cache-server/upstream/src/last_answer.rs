//! Time of the API server's last answer to any request: a sign that it is back after an outage, or that it answers no more.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

/// Time of the last answer; none before the first one. Shared as `Arc` by all that send requests.
#[derive(Debug, Default)]
pub struct LastAnswer {
    times: Mutex<AnswerTimes>,
    doubted: Notify,
    /// Number of connections and streams that broke.
    breaks: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default)]
struct AnswerTimes {
    last: Option<Instant>,
    /// Time of the oldest request of this server itself without an answer in time; none after an answer to a later one.
    silent_since: Option<Instant>,
}

impl LastAnswer {
    /// Notes that the API server answers now.
    pub fn note(&self) {
        *self.times.lock() = AnswerTimes { last: Some(Instant::now()), silent_since: None };
    }

    /// True if the API server has answered after `time`.
    pub fn is_after(&self, time: Instant) -> bool {
        self.times.lock().last.is_some_and(|last| time < last)
    }

    /// Asks for a check whether the API server answers at all: a request got no answer in time. That alone is no sign, as the
    /// request may be one that its caller made slow.
    pub fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// Notes that a connection to the API server broke: another cluster may have its address from now on.
    pub fn break_off(&self) {
        self.breaks.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of breaks so far.
    pub fn breaks(&self) -> u64 {
        self.breaks.load(Ordering::Relaxed)
    }

    /// Waits for a doubt.
    pub async fn doubted(&self) {
        self.doubted.notified().await;
    }

    /// Notes that a request of this server itself, sent at `sent`, got no answer in time.
    pub fn miss(&self, sent: Instant) {
        let times = &mut *self.times.lock();
        if times.last.is_none_or(|last| last < sent) {
            times.silent_since.get_or_insert_with(|| times.last.unwrap_or(sent));
        }
    }

    /// Returns for how long the API server has not answered; `None` if it does, as far as is known.
    pub fn silent_for(&self) -> Option<Duration> {
        self.times.lock().silent_since.map(|since| since.elapsed())
    }
}
