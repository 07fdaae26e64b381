//! For tests: a store that fails or stalls by a rule, one that replays its history, and any source with one fault at its
//! n-th step.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, future::BoxFuture, stream};
use parking_lot::Mutex;
use tokio::{sync::Semaphore, time::sleep};

use super::{
    FollowFrom, ListSnapshot, Source, SourceError, SourceRecord, Store, Txn, Update, Updates, WriteError, WriteResult,
    embedded::EmbeddedStorage,
    hooked::{HookedStore, StoreHook},
};
use crate::registry::ResourceType;

/// A verb of [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// [`Store::list`].
    List,
    /// [`Source::follow`].
    Follow,
    /// [`Store::write`].
    Write,
    /// [`Source::current`].
    Current,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It succeeds.
    None,
    /// It fails without an effect.
    Fails,
    /// It never returns.
    Stalls,
}

type Rule = Box<dyn Fn(usize, Verb, &str) -> Fault + Send>;

/// The embedded store behind a rule.
pub type Faulty = HookedStore<FaultRule>;

/// Decides about each call.
pub struct FaultRule {
    calls: AtomicUsize,
    rule: Mutex<Rule>,
}

impl Faulty {
    /// Creates a store whose calls go through `rule`: their number from zero on, the verb, and the type's id.
    pub fn new(rule: impl Fn(usize, Verb, &str) -> Fault + Send + 'static) -> Arc<Self> {
        Arc::new(Self::by(FaultRule { calls: AtomicUsize::new(0), rule: Mutex::new(Box::new(rule)) }))
    }

    /// Disables all faults from now on.
    pub fn heal(&self) {
        *self.hook.rule.lock() = Box::new(|_, _, _| Fault::None);
    }

    /// Returns the number of calls so far.
    pub fn calls(&self) -> usize {
        self.hook.calls.load(Ordering::Relaxed)
    }
}

impl FaultRule {
    async fn meet(&self, verb: Verb, id: &str) -> Result<(), SourceError> {
        let fault = self.rule.lock()(self.calls.fetch_add(1, Ordering::Relaxed), verb, id);
        match fault {
            Fault::None => Ok(()),
            Fault::Fails => Err(SourceError::Unavailable("on purpose".to_owned())),
            Fault::Stalls => std::future::pending().await,
        }
    }
}

impl StoreHook for FaultRule {
    fn follow<'a>(
        &'a self,
        inner: &'a EmbeddedStorage,
        ty: &Arc<ResourceType>,
        from: FollowFrom,
        cache: watch_cache::Reader,
    ) -> BoxFuture<'a, Result<Updates, SourceError>> {
        let ty = Arc::clone(ty);
        async move {
            self.meet(Verb::Follow, ty.id()).await?;
            inner.follow(&ty, from, cache).await
        }
        .boxed()
    }

    fn current<'a>(
        &'a self,
        inner: &'a EmbeddedStorage,
        ty: &Arc<ResourceType>,
    ) -> BoxFuture<'a, Result<u64, SourceError>> {
        let ty = Arc::clone(ty);
        async move {
            self.meet(Verb::Current, ty.id()).await?;
            inner.current(&ty).await
        }
        .boxed()
    }

    fn list<'a>(
        &'a self,
        inner: &'a EmbeddedStorage,
        ty: &Arc<ResourceType>,
    ) -> BoxFuture<'a, Result<ListSnapshot, SourceError>> {
        let ty = Arc::clone(ty);
        async move {
            self.meet(Verb::List, ty.id()).await?;
            inner.list(&ty).await
        }
        .boxed()
    }

    fn write<'a>(&'a self, inner: &'a EmbeddedStorage, txn: Txn) -> BoxFuture<'a, Result<WriteResult, WriteError>> {
        async move {
            self.meet(Verb::Write, txn.ty.id()).await?;
            inner.write(txn).await
        }
        .boxed()
    }
}

/// The embedded store, whose streams begin with the empty state and replay every change since, as those of a new process
/// over etcd may. Changes of one type wait for the test.
pub type ReplayedStore = HookedStore<ReplayedChanges>;

/// The changes since the empty state.
pub struct ReplayedChanges {
    /// Id of the type whose changes wait.
    held: &'static str,
    /// Changes that may be sent.
    permits: Arc<Semaphore>,
    /// By type id.
    changes: Mutex<HashMap<String, Vec<Update>>>,
}

impl ReplayedStore {
    /// Creates a store that can hold up changes of the type with this id.
    pub fn new(held: &'static str) -> Arc<Self> {
        let store = Self::by(ReplayedChanges { held, permits: Arc::new(Semaphore::new(0)), changes: Mutex::default() });
        store.flow();
        Arc::new(store)
    }

    /// Lets all changes pass.
    pub fn flow(&self) {
        self.hook.permits.add_permits(CHANGES_MAX);
    }

    /// Holds up all later changes but the next ones.
    pub fn hold_after(&self, changes: usize) {
        self.hook.permits.forget_permits(Semaphore::MAX_PERMITS);
        self.hook.permits.add_permits(changes);
    }
}

impl ReplayedChanges {
    /// Returns an update once it may be sent.
    async fn released(permits: Option<Arc<Semaphore>>, update: Update) -> Update {
        if let (Some(permits), Update::Put(_) | Update::Deleted { .. }) = (permits, &update) {
            permits.acquire().await.expect("is never closed").forget();
        }
        update
    }
}

impl StoreHook for ReplayedChanges {
    fn follow<'a>(
        &'a self,
        inner: &'a EmbeddedStorage,
        ty: &Arc<ResourceType>,
        from: FollowFrom,
        cache: watch_cache::Reader,
    ) -> BoxFuture<'a, Result<Updates, SourceError>> {
        let ty = Arc::clone(ty);
        async move {
            let live = inner.follow(&ty, from, cache).await?;
            let replayed = self.changes.lock().get(ty.id()).cloned().unwrap_or_default();
            let live = live.filter_map(async |update| match update {
                Ok(Update::State { revision, .. }) => Some(Ok(Update::Progress(revision))),
                other => Some(other),
            });
            let empty = [Update::StateBegins, Update::StateComplete(REPLAYED_FROM)];
            let all = stream::iter(empty.into_iter().chain(replayed).map(Ok)).chain(live);
            let permits = (ty.id() == self.held).then(|| Arc::clone(&self.permits));
            let released = all.and_then(move |update| Self::released(permits.clone(), update).map(Ok));
            Ok(released.boxed())
        }
        .boxed()
    }

    fn write<'a>(&'a self, inner: &'a EmbeddedStorage, txn: Txn) -> BoxFuture<'a, Result<WriteResult, WriteError>> {
        async move {
            let (id, key, deletes) = (txn.ty.id().to_owned(), txn.key.clone(), txn.put.is_none());
            let written = inner.write(txn).await?;
            let revision = written.resource_version;
            let update = if deletes {
                Update::Deleted { key, revision }
            } else {
                Update::Put(SourceRecord::Json { json: written.entry.object(), revision })
            };
            self.changes.lock().entry(id).or_default().push(update);
            Ok(written)
        }
        .boxed()
    }
}

/// Revision of the empty state with which a replay begins: that of a new [`HookedStore`].
const REPLAYED_FROM: u64 = 100;

/// More changes than a test makes.
const CHANGES_MAX: usize = 1 << 20;

/// A fault of a [`Source`].
#[derive(Clone, Debug)]
pub enum SourceFault {
    /// A call fails. A stream reports the error before its next update, and continues.
    Error(SourceError),
    /// A stream ends before its next update. A question gets no answer in time.
    Breaks,
}

/// Any source, with one fault.
pub struct FaultySource {
    inner: Arc<dyn Source>,
    plan: Arc<FaultPlan>,
}

/// The step at which the fault happens: a call of the source, or an update of a stream.
struct FaultPlan {
    steps: AtomicUsize,
    at: usize,
    fault: Mutex<Option<SourceFault>>,
}

impl FaultPlan {
    /// Counts a step, and returns its fault.
    fn step(&self) -> Option<SourceFault> {
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        (self.at <= step).then(|| self.fault.lock().take()).flatten()
    }
}

impl FaultySource {
    /// Puts `fault` at step `at` of `inner`, counted from zero on.
    pub fn new(inner: Arc<dyn Source>, at: usize, fault: Option<SourceFault>) -> Arc<Self> {
        let plan = FaultPlan { steps: AtomicUsize::new(0), at, fault: Mutex::new(fault) };
        Arc::new(Self { inner, plan: Arc::new(plan) })
    }

    /// Returns the number of steps so far.
    pub fn steps(&self) -> usize {
        self.plan.steps.load(Ordering::Relaxed)
    }

    /// Removes the fault, if it has not happened yet.
    pub fn heal(&self) {
        *self.plan.fault.lock() = None;
    }

    /// Sends a question of the inner source, unless it meets the fault.
    fn after_fault<'a>(
        &'a self,
        question: BoxFuture<'a, Result<u64, SourceError>>,
    ) -> BoxFuture<'a, Result<u64, SourceError>> {
        async move {
            match self.plan.step() {
                None => question.await,
                Some(SourceFault::Error(error)) => Err(error),
                Some(SourceFault::Breaks) => {
                    sleep(QUESTION_STALL).await;
                    Err(SourceError::Unavailable("no answer in time".to_owned()))
                }
            }
        }
        .boxed()
    }
}

impl Source for FaultySource {
    fn follow(
        &self,
        ty: &Arc<ResourceType>,
        from: FollowFrom,
        cache: watch_cache::Reader,
    ) -> BoxFuture<'_, Result<Updates, SourceError>> {
        let ty = Arc::clone(ty);
        async move {
            match self.plan.step() {
                None => {}
                Some(SourceFault::Error(error)) => return Err(error),
                Some(SourceFault::Breaks) => return Ok(stream::empty().boxed()),
            }
            let updates = self.inner.follow(&ty, from, cache).await?;
            Ok(stream::unfold((updates, None, Arc::clone(&self.plan)), next_update).boxed())
        }
        .boxed()
    }

    fn current(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>> {
        self.after_fault(self.inner.current(ty))
    }

    fn confirmed(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>> {
        self.after_fault(self.inner.confirmed(ty))
    }
}

/// A stream, its update that waits behind an error, and the plan of faults.
type FaultyUpdates = (Updates, Option<Result<Update, SourceError>>, Arc<FaultPlan>);

async fn next_update(
    (mut updates, waiting, plan): FaultyUpdates,
) -> Option<(Result<Update, SourceError>, FaultyUpdates)> {
    if let Some(update) = waiting {
        return Some((update, (updates, None, plan)));
    }
    let update = updates.next().await?;
    match plan.step() {
        None => Some((update, (updates, None, plan))),
        Some(SourceFault::Error(error)) => Some((Err(error), (updates, Some(update), plan))),
        Some(SourceFault::Breaks) => None,
    }
}

/// Time for which a question without an answer lasts: longer than any read waits.
const QUESTION_STALL: Duration = Duration::from_secs(10);
