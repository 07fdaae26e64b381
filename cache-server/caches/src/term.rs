//! The term of an open watch, and the signal that its caller has lost the right to it.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::limits::WITHDRAWN_END_WAIT;

/// Signals once that a right is withdrawn.
#[derive(Debug, Default)]
pub struct Withdrawal {
    is_withdrawn: AtomicBool,
    notify: Notify,
}

impl Withdrawal {
    /// Gives the signal.
    pub fn withdraw(&self) {
        self.is_withdrawn.store(true, Ordering::Release);
        self.notify.notify_waiters();
    }

    /// True once the signal was given.
    pub fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.load(Ordering::Acquire)
    }

    /// Resolves once the signal was given.
    pub async fn withdrawn(&self) {
        // Made before the check: it receives every later notice, so none is lost between the two.
        let notice = self.notify.notified();
        if !self.is_withdrawn() {
            notice.await;
        }
    }
}

/// Time until which a watch may stay on its connection, whatever its client reads.
#[derive(Clone, Debug)]
pub struct WatchTerm {
    /// `None` for a watch that another server answers, and ends.
    overdue: Option<Instant>,
    right: Option<Arc<Withdrawal>>,
}

impl WatchTerm {
    /// A term until `overdue`, or until `right` is withdrawn and its watch should have ended.
    #[must_use]
    pub const fn new(overdue: Instant, right: Option<Arc<Withdrawal>>) -> Self {
        Self { overdue: Some(overdue), right }
    }

    /// A term until `right` is withdrawn and its watch should have ended.
    #[must_use]
    pub const fn of_right(right: Arc<Withdrawal>) -> Self {
        Self { overdue: None, right: Some(right) }
    }

    /// True if the term ends at some time, whatever happens to the right.
    #[must_use]
    pub const fn is_limited(&self) -> bool {
        self.overdue.is_some()
    }

    /// Resolves at the end of the term. The future of each open watch has one timer in it.
    pub async fn over(self) {
        let mut timer = pin!(sleep_until(self.overdue.unwrap_or_else(|| Instant::now() + NEVER)));
        if let Some(right) = self.right {
            tokio::select! {
                () = &mut timer => return,
                () = right.withdrawn() => {}
            }
            let at = timer.deadline().min(Instant::now() + WITHDRAWN_END_WAIT);
            timer.as_mut().reset(at);
        }
        timer.await;
    }
}

/// A time that no connection lasts for.
const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 3_600);
