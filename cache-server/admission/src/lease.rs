//! Rights of open watches: checked again while the watches are open, and withdrawn.
//!
//! INVARIANT: a watch ends within [`WITHDRAWAL_WAIT`] after this server knows that its caller lost the right to it, in each of
//! its phases: the body ends when it is polled, and a connection or stream whose client does not read is reset. A
//! [`schedule`] decides when the API server reviews the right again.
//! INVARIANT: only an answer that refuses withdraws a right. While no answer comes, the watch stays open. INVARIANT: a user
//! with many different rights delays the checks of its own watches only.
//!
//! [`WITHDRAWAL_WAIT`]: crate::limits::WITHDRAWAL_WAIT

mod schedule;

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    pin::pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use access_rules::{request_info::RequestInfo, user::User};
use futures::{StreamExt as _, future, stream, task::AtomicWaker};
use http::HeaderMap;
use informer_serving::status::Status;
use parking_lot::Mutex;
use slab::Slab;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout_at},
};

pub use self::schedule::ReviewedRight;
use self::schedule::{AskSchedule, RolesView};
use super::{
    authenticate::{Caller, CallerProof},
    authorize::FollowedRoles,
};
use crate::{
    limits::{RECHECK_EVERY, RECHECK_PAUSE, RECHECKS_MAX},
    term::Withdrawal,
    upstream::{
        key::QuestionKey,
        rights::{CredentialRight, HeldAllow},
    },
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
    /// Its key in the table, which its watches share: each request has a user and attributes of its own.
    key: Arc<RightKey>,
    pub caller: Arc<Caller>,
    pub info: Arc<RequestInfo>,
    /// The caller's own credentials, where another server decides by them.
    pub credentials: Option<HeaderMap>,
    /// True if another server answers the watch, and has allowed it to the caller.
    pub is_forwarded: bool,
    /// True if this server decides about a part of it.
    is_checked_here: bool,
    /// The last answer about the caller's own credentials.
    pub allow: Mutex<Option<HeldAllow>>,
    /// Time at which it was last checked, or opened.
    checked: Mutex<Instant>,
    /// The questions to another server; `None` if none decides.
    schedule: Option<Mutex<AskSchedule>>,
    withdrawal: Arc<Withdrawal>,
    bodies: Mutex<Slab<Arc<AtomicWaker>>>,
}

/// Deciders about the right of a watch.
#[derive(Default)]
pub struct LeaseTerms {
    /// The right of the caller's own credentials, where another server decides by them.
    pub own: Option<CredentialRight>,
    /// True if another server answers the watch.
    pub is_forwarded: bool,
    /// True if this server decides about a part of the right.
    pub is_checked_here: bool,
    /// The questions to another server; `None` if none decides.
    pub asking: Option<ReviewedRight>,
}

/// The rights of all open watches.
///
/// Memory: one entry for each different right, and some 100 bytes for each watch.
#[derive(Default)]
pub struct WatchLeases {
    rights: Mutex<HashMap<Arc<RightKey>, Arc<HeldRight>>>,
}

/// The part of one watch in its right. Dropped with the watch.
pub struct WatchLease {
    table: Arc<WatchLeases>,
    right: Arc<HeldRight>,
    waker: Arc<AtomicWaker>,
    place: usize,
}

impl WatchLeases {
    /// Opens a watch of `caller`.
    pub fn open(self: &Arc<Self>, caller: &Arc<Caller>, info: &Arc<RequestInfo>, terms: LeaseTerms) -> WatchLease {
        let LeaseTerms { own, is_forwarded, is_checked_here, asking } = terms;
        let (user, proof) = (caller.user.clone(), caller.proof());
        let credentials = own.as_ref().map(|own| own.caller);
        let key = RightKey { user, proof, info: Arc::clone(info), credentials, is_forwarded };
        let waker = Arc::new(AtomicWaker::new());
        let mut rights = self.rights.lock();
        let fresh = |key: &Arc<RightKey>| {
            let schedule = asking.map(|right| Mutex::new(AskSchedule::new(right, key.share())));
            let (credentials, allow) = own.map(|own| (own.credentials, own.allow)).unzip();
            Arc::new(HeldRight {
                key: Arc::clone(key),
                caller: Arc::clone(caller),
                info: Arc::clone(info),
                credentials,
                is_forwarded,
                is_checked_here,
                allow: Mutex::new(allow.flatten()),
                checked: Mutex::new(Instant::now()),
                schedule,
                withdrawal: Arc::default(),
                bodies: Mutex::default(),
            })
        };
        let right = Arc::clone(rights.entry(Arc::new(key)).or_insert_with_key(fresh));
        let place = right.bodies.lock().insert(Arc::clone(&waker));
        drop(rights);
        WatchLease { table: Arc::clone(self), right, waker, place }
    }

    /// Time of the next question to another server about any right.
    fn next_question(&self, view: RolesView<'_>) -> Option<Instant> {
        self.all().iter().filter_map(|right| right.next_question(view)).min()
    }

    /// The rights that open watches need. They are visited without the lock: each watch takes it as it opens and ends.
    fn all(&self) -> Vec<Arc<HeldRight>> {
        self.rights.lock().values().cloned().collect()
    }

    /// Different rights that open watches need.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn count(&self) -> usize {
        self.rights.lock().len()
    }

    /// The rights that open watches need, and that are to be checked, in the order of their checks: first the one of each user
    /// that was checked longest ago, then the second one of each, and so on. Cost: visits all rights, and sorts these.
    fn in_turn(&self, is_checked: impl Fn(&HeldRight) -> bool) -> Vec<Arc<HeldRight>> {
        let with_time = |right: Arc<HeldRight>| {
            let checked = *right.checked.lock();
            (checked, right)
        };
        let mut held: Vec<_> = self.all().into_iter().filter(|right| is_checked(right)).map(with_time).collect();
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

impl RightKey {
    /// Number by which callers differ. All rights of a caller have the same one.
    fn share(&self) -> u8 {
        let mut hash = DefaultHasher::new();
        (&self.user.name, &self.proof, &self.credentials).hash(&mut hash);
        hash.finish().to_le_bytes()[0]
    }
}

impl HeldRight {
    /// Time of the next question to another server.
    fn next_question(&self, view: RolesView<'_>) -> Option<Instant> {
        let schedule = self.schedule.as_ref().filter(|_| !self.withdrawal.is_withdrawn())?;
        Some(schedule.lock().next(&self.info, view))
    }

    /// True if it is time to ask another server.
    fn is_due(&self, view: RolesView<'_>) -> bool {
        self.next_question(view).is_some_and(|at| at <= Instant::now())
    }

    /// Takes over the outcome of a check, which asked another server if `has_reviewed`.
    fn take_over(&self, outcome: Result<Option<Arc<str>>, Status>, has_reviewed: bool) {
        *self.checked.lock() = Instant::now();
        match outcome {
            Err(status) if refuses(&status) => {
                tracing::info!(user = %self.caller.user.name, act = self.info.act(), "watch right withdrawn");
                self.withdraw();
            }
            outcome => {
                if let Some(schedule) = self.schedule.as_ref().filter(|_| has_reviewed) {
                    match outcome {
                        Ok(reason) => schedule.lock().answer(reason.as_deref().unwrap_or_default()),
                        Err(status) => schedule.lock().fail(&status),
                    }
                }
            }
        }
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
            rights.remove(&self.right.key);
        }
    }
}

/// Checks the rights of all open watches every [`RECHECK_EVERY`], after each change of the policies, and when a review
/// by the API server is due, until the server is dropped. `check` decides about one right, requests a review if its
/// second argument is true, and returns the reason of the allow. Rights that there is no time for are the first of
/// their users' next time.
pub async fn keep_checking<F>(
    leases: Weak<WatchLeases>,
    mut changes: Option<watch::Receiver<u64>>,
    roles: Arc<dyn FollowedRoles>,
    check: impl Fn(Arc<HeldRight>, bool) -> F,
) where
    F: Future<Output = Result<Option<Arc<str>>, Status>>,
{
    let mut known = Instant::now();
    let mut next = known + RECHECK_EVERY;
    loop {
        let _ = timeout_at(next, changed(&mut changes)).await;
        let Some(table) = leases.upgrade() else { return };
        let version = roles.version();
        if version.is_some() {
            known = Instant::now();
        }
        let view = RolesView { roles: &*roles, version, known };
        let is_checked = |right: &HeldRight| right.is_checked_here || right.is_due(view);
        let held = table.in_turn(|right| !right.withdrawal.is_withdrawn() && is_checked(right));
        drop(table);
        next = Instant::now() + RECHECK_EVERY;
        // No check begins after that, or after another change; those that have begun are finished.
        let mut news = changes.clone();
        // The next round takes up changes until now. If they ended this one, a stream of them would prevent all checks.
        if let Some(news) = &mut news {
            news.borrow_and_update();
        }
        let (ends, changes_again) = (pin!(sleep_until(next)), pin!(changed(&mut news)));
        let over = future::select(ends, changes_again);
        let checks = stream::iter(held).take_until(over).map(|right| {
            let may_ask = right.is_due(view);
            let checking = check(Arc::clone(&right), may_ask);
            async move { right.take_over(checking.await, may_ask) }
        });
        checks.for_each_concurrent(RECHECKS_MAX, |checking| checking).await;
        sleep(RECHECK_PAUSE).await;
        let question = leases.upgrade().and_then(|leases| leases.next_question(view));
        next = question.map_or(next, |question| question.min(next));
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
