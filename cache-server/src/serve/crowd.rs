//! Connections that must leave when few more can be accepted: those that ask for nothing.
//!
//! INVARIANT: costs nothing while there is room: whoever is idle waits for one change of one value.

use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, sleep, sleep_until},
};

use crate::limits::HEAD_TIMEOUT_CROWDED;

/// Tells idle connections when others need their slots.
#[derive(Debug)]
pub(crate) struct Crowd(watch::Sender<bool>);

/// Part of the slots that must be free for idle connections to stay.
const FREE: usize = 8;

impl Crowd {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Notes how many of `max` slots are free.
    pub(super) fn note(&self, slots: &Semaphore, max: usize) {
        let is_full = slots.available_permits().saturating_mul(FREE) < max;
        self.0.send_if_modified(|was| std::mem::replace(was, is_full) != is_full);
    }

    /// Resolves when a connection that asks for nothing from now on has to leave.
    pub(super) async fn outlasts(&self) {
        sleep(HEAD_TIMEOUT_CROWDED).await;
        self.full().await;
    }

    /// Like [`outlasts`](Self::outlasts) for a connection that is at work now and then: `idle_since` is when it began to
    /// ask for nothing.
    pub(super) async fn outlasts_idle(&self, idle_since: impl Fn() -> Option<Instant>) {
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
        // The sender lives as long as this.
        let _ = self.0.subscribe().wait_for(|is_full| *is_full).await;
    }
}
