//! Closes idle connections while few connection slots are free.
//!
//! INVARIANT: costs nearly nothing while slots are free: an idle connection waits for one timer, and then for a change
//! of one value.

use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, sleep, sleep_until},
};

use crate::limits::HEAD_TIMEOUT_CROWDED;

/// Signals idle connections when their slots are needed.
#[derive(Debug)]
pub(crate) struct Crowd(watch::Sender<bool>);

/// Idle connections stay while at least one in this many slots is free.
const FREE: usize = 8;

impl Crowd {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Updates the signal: `slots` of `max` are free.
    pub(crate) fn note(&self, slots: &Semaphore, max: usize) {
        let is_full = slots.available_permits().saturating_mul(FREE) < max;
        self.0.send_if_modified(|was| std::mem::replace(was, is_full) != is_full);
    }

    /// Resolves when a connection that is idle from now on has to close.
    pub(crate) async fn outlasts(&self) {
        sleep(HEAD_TIMEOUT_CROWDED).await;
        self.full().await;
    }

    /// Like [`outlasts`](Self::outlasts), for a connection that is busy now and then: `idle_since` returns the start
    /// of its idle time.
    pub(crate) async fn outlasts_idle(&self, idle_since: impl Fn() -> Option<Instant>) {
        loop {
            let due = idle_since().map(|since| since + HEAD_TIMEOUT_CROWDED);
            match due {
                Some(due) if due <= Instant::now() && *self.0.borrow() => return,
                Some(due) if due <= Instant::now() => self.full().await,
                Some(due) => sleep_until(due).await,
                None => sleep(HEAD_TIMEOUT_CROWDED).await,
            }
        }
    }

    async fn full(&self) {
        // An error is impossible: the sender lives as long as `self`.
        let _ = self.0.subscribe().wait_for(|is_full| *is_full).await;
    }
}
