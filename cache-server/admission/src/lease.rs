//! Rights of open watches: checked again while the watches are open, and withdrawn.
//!
//! INVARIANT: a watch ends within [`WITHDRAWAL_WAIT`] after its caller lost the right to it, in each of its phases: the
//! body ends when it is polled, and a connection or stream whose client does not read is reset.
//! INVARIANT: only an answer that refuses withdraws a right. While no answer comes, the watch stays open. INVARIANT: a user
//! with many different rights delays the checks of its own watches only.
//!
//! [`WITHDRAWAL_WAIT`]: crate::limits::WITHDRAWAL_WAIT

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use access_rules::{request_info::RequestInfo, user::User};
use futures::{StreamExt as _, stream, task::AtomicWaker};
use http::HeaderMap;
use informer_serving::status::Status;
use parking_lot::Mutex;
use slab::Slab;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout_at},
};

use super::authenticate::{Caller, CallerProof};
use crate::{
    limits::{RECHECK_EVERY, RECHECK_PAUSE, RECHECKS_MAX},
    term::Withdrawal,
    upstream::key::QuestionKey,
};

/// Identity of a right: watches with equal keys share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RightKey {
    pub user: User,
    /// The credentials that prove the identity.
    pub proof: CallerProof,
    pub info: Arc<RequestInfo>,
    /// Hash of the caller's own credentials, where another server decides by them.
    pub credentials: Option<QuestionKey>,
    /// True if another server answers the watch.
    pub is_forwarded: bool,
}

/// A right that at least one open watch needs.
pub struct HeldRight {
    pub caller: Arc<Caller>,
    pub info: Arc<RequestInfo>,
    /// The caller's own credentials, where another server decides by them.
    pub credentials: Option<HeaderMap>,
    /// True if another server answers the watch, and has allowed it to the caller.
    pub is_forwarded: bool,
    /// Time at which it was last checked, or opened.
    checked: Mutex<Instant>,
    withdrawal: Arc<Withdrawal>,
    bodies: Mutex<Slab<Arc<AtomicWaker>>>,
}

/// The rights of all open watches.
///
/// Memory: one entry for each different right, and some 100 bytes for each watch.
#[derive(Default)]
pub struct WatchLeases {
    rights: Mutex<HashMap<RightKey, Arc<HeldRight>>>,
}

/// The part of one watch in its right. Dropped with the watch.
pub struct WatchLease {
    table: Arc<WatchLeases>,
    key: RightKey,
    right: Arc<HeldRight>,
    waker: Arc<AtomicWaker>,
    place: usize,
}

impl WatchLeases {
    /// Opens a watch of `caller`. `credentials` are its own, with their hash, where another server decides by them.
    /// `is_forwarded`: another server answers it.
    pub fn open(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        info: &Arc<RequestInfo>,
        credentials: Option<(QuestionKey, HeaderMap)>,
        is_forwarded: bool,
    ) -> WatchLease {
        let (credentials, headers) = credentials.unzip();
        let (user, proof) = (caller.user.clone(), caller.proof());
        let key = RightKey { user, proof, info: Arc::clone(info), credentials, is_forwarded };
        let waker = Arc::new(AtomicWaker::new());
        let mut rights = self.rights.lock();
        let fresh = || {
            let (caller, info) = (Arc::clone(caller), Arc::clone(info));
            Arc::new(HeldRight::new(caller, info, headers, is_forwarded))
        };
        let right = Arc::clone(rights.entry(key.clone()).or_insert_with(fresh));
        let place = right.bodies.lock().insert(Arc::clone(&waker));
        drop(rights);
        WatchLease { table: Arc::clone(self), key, right, waker, place }
    }

    /// Different rights that open watches need.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn count(&self) -> usize {
        self.rights.lock().len()
    }

    /// All rights that open watches need, in the order of their checks: first the one of each user that was checked longest
    /// ago, then the second one of each, and so on. Cost: sorts them.
    fn in_turn(&self) -> Vec<Arc<HeldRight>> {
        let mut held: Vec<_> =
            self.rights.lock().values().map(|right| (*right.checked.lock(), Arc::clone(right))).collect();
        held.sort_by_key(|(checked, _)| *checked);
        let mut counts: HashMap<&str, usize> = HashMap::new();
        let turns: Vec<usize> = held
            .iter()
            .map(|(_, right)| {
                let count = counts.entry(&right.caller.user.name).or_default();
                *count += 1;
                *count
            })
            .collect();
        let mut held: Vec<_> = turns.into_iter().zip(held.into_iter().map(|(_, right)| right)).collect();
        held.sort_by_key(|(turn, _)| *turn);
        held.into_iter().map(|(_, right)| right).collect()
    }
}

impl HeldRight {
    fn new(caller: Arc<Caller>, info: Arc<RequestInfo>, credentials: Option<HeaderMap>, is_forwarded: bool) -> Self {
        let (withdrawal, bodies) = Default::default();
        let checked = Mutex::new(Instant::now());
        Self { caller, info, credentials, is_forwarded, checked, withdrawal, bodies }
    }

    /// Ends all watches of this right.
    fn withdraw(&self) {
        self.withdrawal.withdraw();
        // Woken outside of the lock: a body that ends removes itself.
        let bodies: Vec<_> = self.bodies.lock().iter().map(|(_, waker)| Arc::clone(waker)).collect();
        bodies.iter().for_each(|waker| waker.wake());
    }
}

impl WatchLease {
    /// The signal that the right is withdrawn.
    pub fn withdrawal(&self) -> Arc<Withdrawal> {
        Arc::clone(&self.right.withdrawal)
    }

    /// Ready once the right is withdrawn. Registers the waker.
    pub fn poll_withdrawn(&self, cx: &Context<'_>) -> Poll<()> {
        if self.right.withdrawal.is_withdrawn() {
            return Poll::Ready(());
        }
        self.waker.register(cx.waker());
        // It may have been withdrawn before the waker was there.
        if self.right.withdrawal.is_withdrawn() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for WatchLease {
    fn drop(&mut self) {
        let mut rights = self.table.rights.lock();
        let mut bodies = self.right.bodies.lock();
        bodies.remove(self.place);
        if bodies.is_empty() {
            rights.remove(&self.key);
        }
    }
}

/// Checks the rights of all open watches every [`RECHECK_EVERY`], and after each change of the policies, until the server
/// is dropped. `check` decides about one of them. Rights that there is no time for are the first of their users' next time.
pub async fn keep_checking<F>(
    leases: Weak<WatchLeases>,
    mut changes: Option<watch::Receiver<u64>>,
    check: impl Fn(Arc<HeldRight>) -> F,
) where
    F: Future<Output = Result<(), Status>>,
{
    let mut next = Instant::now() + RECHECK_EVERY;
    loop {
        let _ = timeout_at(next, changed(&mut changes)).await;
        let Some(held) = leases.upgrade().map(|leases| leases.in_turn()) else { return };
        next = Instant::now() + RECHECK_EVERY;
        // No check begins after that; those that have begun are finished.
        let checks = stream::iter(held).take_until(sleep_until(next)).map(|right| {
            let checking = check(Arc::clone(&right));
            async move {
                let outcome = checking.await;
                *right.checked.lock() = Instant::now();
                if let Err(status) = outcome
                    && refuses(&status)
                {
                    tracing::info!(user = %right.caller.user.name, act = right.info.act(), "watch right withdrawn");
                    right.withdraw();
                }
            }
        });
        checks.for_each_concurrent(RECHECKS_MAX, |checking| checking).await;
        sleep(RECHECK_PAUSE).await;
    }
}

/// Resolves when the policies change; never without a notice of changes.
async fn changed(changes: &mut Option<watch::Receiver<u64>>) {
    let is_notified = match changes {
        Some(changes) => changes.changed().await.is_ok(),
        None => false,
    };
    if !is_notified {
        std::future::pending().await
    }
}

/// True for a Status that withdraws a right. Other errors are faults of the authorizer.
pub(super) const fn refuses(status: &Status) -> bool {
    matches!(status.code, 401 | 403)
}

#[cfg(test)]
mod tests;
