//! Closes idle connections while few connection slots are free.
//!
//! INVARIANT: costs nearly nothing while slots are free: an idle connection waits for one timer, and then for a change
//! of one value.

use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, sleep, sleep_until},
};

use crate::limits::HEAD_TIMEOUT_CROWDED;

/// Signals the idle connections of an address when their slots are needed.
#[derive(Debug, Default)]
pub struct Crowd(watch::Sender<bool>);

/// Idle connections stay while at least one in this many slots is free.
const FREE: usize = 8;

impl Crowd {
    /// Returns true if few of `max` slots are free.
    pub fn is_near(slots: &Semaphore, max: usize) -> bool {
        slots.available_permits().saturating_mul(FREE) < max
    }

    /// Updates the signal.
    pub fn set(&self, is_full: bool) {
        self.0.send_if_modified(|was| std::mem::replace(was, is_full) != is_full);
    }

    /// True while slots are needed.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Resolves when a connection that is idle from now on has to close.
    pub async fn outlasts(&self) {
        sleep(HEAD_TIMEOUT_CROWDED).await;
        self.full().await;
    }

    /// Like [`outlasts`](Self::outlasts), for a connection that is busy now and then: `idle_since` returns the start
    /// of its idle time.
    pub async fn outlasts_idle(&self, idle_since: impl Fn() -> Option<Instant>) {
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
