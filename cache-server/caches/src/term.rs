//! The term of an open watch, and the signal that its caller has lost the right to it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
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

    /// Resolves at the end of the term.
    pub async fn over(self) {
        let overdue = async {
            match self.overdue {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let Some(right) = self.right else { return overdue.await };
        tokio::select! {
            () = overdue => {}
            () = async {
                right.withdrawn().await;
                sleep(WITHDRAWN_END_WAIT).await;
            } => {}
        }
    }
}
