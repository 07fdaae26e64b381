//! The loop of a controller: triggers in, reconciles out.
//!
//! INVARIANT: at most `concurrency` reconciles run, at most one of an object, and each has a task of its own that ends
//! with the runner.

use std::{collections::HashSet, error::Error as StdError, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, join_all},
    stream,
};
use serde::de::DeserializeOwned;
use tokio::{
    select,
    task::{JoinSet, coop::consume_budget},
    time::{Instant, sleep, sleep_until, timeout},
};
use tracing::Instrument as _;

use super::{
    ControllerError, ReconcileError, ReconcileFailure, Requeue,
    meter::{Measurement, Meter, ReconcileResult},
    queue::{Lane, ReadyKey, WorkQueue},
    results::ReconcileOutcome,
    signal::Shutdown,
    trigger::{Deletions, PendingTriggers, Trigger},
};
use crate::{
    error::Chain,
    informer::Informer,
    object::Object,
    object_ref::ObjectRef,
    readiness::{Readiness, ready_all},
};

/// Number of objects that do not decode and are remembered, so that each is logged once.
const UNDECODABLE_LOGGED_MAX: usize = 1024;

/// Handler of deleted objects.
pub(super) type OnDeleted<K> = Arc<dyn Fn(Object<K>) -> BoxFuture<'static, ()> + Send + Sync>;

/// Everything that a running controller needs besides its sources.
pub(super) struct Runner<K, R, P, S, E> {
    /// Name for logs.
    pub(super) name: Arc<str>,
    pub(super) primary: Informer<K>,
    /// Reconciles one object.
    pub(super) reconcile: R,
    /// Decides when a failed reconcile is repeated.
    pub(super) error_policy: P,
    /// Receives each result.
    pub(super) sink: S,
    /// Handler of deleted objects, and those whose turn has not come.
    pub(super) on_deleted: Option<(OnDeleted<K>, Arc<Deletions<K>>)>,
    pub(super) concurrency: usize,
    pub(super) queue: WorkQueue,
    pub(super) meter: Meter,
    /// Keys of objects that were logged because they do not decode; at most `UNDECODABLE_LOGGED_MAX`.
    pub(super) logged: HashSet<Arc<str>>,
    pub(super) running: JoinSet<ReconcileEnd<E>>,
}

/// End of one reconcile.
pub(super) struct ReconcileEnd<E> {
    key: Arc<str>,
    kind: RunKind,
    result: Result<Requeue, ReconcileError<E>>,
    took: Duration,
}

/// Function of the program that a run calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunKind {
    Reconcile,
    /// The handler of deleted objects: its end proves nothing about writes.
    Deletion,
}

/// Sources, start deadline and shutdown of a controller.
pub(super) struct ControllerLife {
    pub(super) sources: Vec<PendingTriggers>,
    pub(super) informers: Vec<Readiness>,
    pub(super) sync_deadline: Duration,
    pub(super) shutdown: Shutdown,
    pub(super) grace: Duration,
}

impl<K, R, P, S, E> Runner<K, R, P, S, E>
where
    K: DeserializeOwned + Send + Sync + 'static,
    R: Fn(Arc<K>) -> BoxFuture<'static, Result<Requeue, E>> + Clone + Send + 'static,
    P: FnMut(&ReconcileFailure<'_, E>) -> Requeue,
    S: FnMut(ReconcileOutcome<K, E>),
    E: StdError + Send + 'static,
{
    /// Runs until the shutdown begins or an informer ends, and then until the running reconciles have ended.
    pub(super) async fn run(mut self, life: ControllerLife) -> Result<(), ControllerError> {
        let ControllerLife { sources, informers, sync_deadline, mut shutdown, grace } = life;
        let start = async {
            ready_all(informers, sync_deadline).await?;
            Ok(join_all(sources).await)
        };
        let sources = select! {
            _ = &mut shutdown => return Ok(()),
            sources = start => sources.map_err(ControllerError::NotReady)?,
        };
        let mut triggers = stream::select_all(sources);
        let (ended, abort) = loop {
            // The triggers of a large initial state are all ready at once.
            consume_budget().await;
            self.start_ready();
            let (is_full, next_at) = (self.running.len() >= self.concurrency, self.queue.next_at());
            select! {
                abort = &mut shutdown => break (Ok(()), abort),
                Some(end) = self.running.join_next() => self.on_end(end.ok()),
                () = until(next_at), if !is_full => {}
                Some(trigger) = triggers.next() => {
                    if let Err(ended) = self.on_trigger(trigger) {
                        break (Err(ended), shutdown.flatten().boxed());
                    }
                }
            }
        };
        let finished = self.finish(grace, abort).await;
        ended.and(finished)
    }

    /// Starts reconciles of ready keys as long as there is room.
    fn start_ready(&mut self) {
        let now = Instant::now();
        while self.running.len() < self.concurrency
            && let Some(ReadyKey { key, waited }) = self.queue.take(now)
        {
            let object = self.primary.store().snapshot().get(&key);
            let deleted = self.on_deleted.as_ref().and_then(|(handler, deletions)| {
                let last_known = deletions.take(&key)?;
                Some((Arc::clone(handler), last_known))
            });
            let may_reconcile = |object: &Object<K>| match &self.on_deleted {
                Some((_, deletions)) => deletions.may_reconcile(object),
                None => true,
            };
            match (deleted, object) {
                (Some((handler, last_known)), object) => {
                    self.queue.return_token(&key);
                    if object.is_some() {
                        // Created again: its turn comes after this run.
                        self.queue.add(&key, Lane::Changed, now);
                    }
                    self.spawn(key, waited, RunKind::Deletion, async move {
                        handler(last_known).await;
                        Ok(Requeue::await_change())
                    });
                }
                (None, Some(object)) if may_reconcile(&object) => {
                    let reconcile = self.reconcile.clone();
                    self.spawn(key, waited, RunKind::Reconcile, async move {
                        let object = object.decode().map_err(ReconcileError::Undecodable)?;
                        reconcile(object).await.map_err(ReconcileError::Failed)
                    });
                }
                // Deleted since, or created again: its event triggers it.
                (None, _) => {
                    self.queue.return_token(&key);
                    self.queue.done(&key, None, now);
                }
            }
        }
        self.meter.record(Measurement::Added(self.queue.take_added()));
        self.meter.record(Measurement::Busy { waiting: self.queue.len(), running: self.running.len() });
    }

    /// Spawns the task of one run.
    fn spawn(
        &mut self,
        key: Arc<str>,
        waited: Duration,
        kind: RunKind,
        run: impl Future<Output = Result<Requeue, ReconcileError<E>>> + Send + 'static,
    ) {
        self.meter.record(Measurement::Started { waited });
        let span = tracing::info_span!("reconcile", controller = &*self.name, key = &*key);
        let run = async move {
            let started = Instant::now();
            // A panic is the failure of one object; the values it leaves behind are dropped with the future.
            let result = AssertUnwindSafe(run).catch_unwind().await.unwrap_or(Err(ReconcileError::Panicked));
            ReconcileEnd { key, kind, result, took: started.elapsed() }
        };
        self.running.spawn(run.instrument(span));
    }

    /// Queues the objects that `trigger` concerns. Fails if no further triggers can be relied on.
    fn on_trigger(&mut self, trigger: Trigger) -> Result<(), ControllerError> {
        let (snapshot, now) = (self.primary.store().snapshot(), Instant::now());
        match trigger {
            Trigger::Object(key) if snapshot.get(&key).is_some() => self.queue.add(&key, Lane::Changed, now),
            Trigger::Present(key) if snapshot.get(&key).is_some() => self.queue.add(&key, Lane::Present, now),
            // Once the object is added, that triggers it.
            Trigger::Object(_) | Trigger::Present(_) => {}
            Trigger::Owner { namespace, name, uid } => {
                let keys = [format!("{namespace}/{name}"), name];
                // An owner of another uid had that name earlier: the object is about to be garbage collected.
                let is_owner = |key: &&String| snapshot.get(key).is_some_and(|object| object.uid() == uid);
                keys.iter().filter(is_owner).for_each(|key| self.queue.add(key, Lane::Changed, now));
            }
            Trigger::All => snapshot.iter().for_each(|object| self.queue.add(object.key(), Lane::Present, now)),
            Trigger::Deleted(key) => {
                self.logged.remove(&*key);
                self.queue.forget(&key);
                if self.on_deleted.is_some() {
                    self.queue.add(&key, Lane::Changed, now);
                }
            }
            Trigger::InformerEnded { request, reason } => {
                return Err(ControllerError::InformerEnded { request, reason });
            }
        }
        Ok(())
    }

    /// Ends a run, and decides when its object is reconciled again. `None` if the runtime cancelled the task.
    fn on_end(&mut self, end: Option<ReconcileEnd<E>>) {
        let Some(ReconcileEnd { key, kind, result, took }) = end else { return };
        let now = Instant::now();
        let exists = self.primary.store().snapshot().get(&key).is_some();
        let has_run = kind == RunKind::Reconcile && !matches!(result, Err(ReconcileError::Undecodable(_)));
        let (requeue, label) = match &result {
            Ok(requeue) => {
                self.queue.reset_failures(&key, has_run);
                self.logged.remove(&key);
                let label =
                    if requeue.delay().is_some() { ReconcileResult::RequeueAfter } else { ReconcileResult::Success };
                (*requeue, label)
            }
            Err(error) => {
                let failures = self.queue.count_failure(&key, has_run, now);
                let requeue = (self.error_policy)(&ReconcileFailure { key: &key, failures, error });
                let requeue = if exists { requeue } else { Requeue::await_change() };
                self.log_failure(&key, failures, error, requeue);
                (requeue, result_of(error))
            }
        };
        self.meter.record(Measurement::Ended { result: label, took });
        let again_at = requeue.delay().filter(|_| exists).map(|delay| now + delay.min(DELAY_MAX));
        if result.is_err() && again_at.is_some() {
            self.meter.record(Measurement::Retried);
        }
        self.queue.done(&key, again_at, now);
        (self.sink)(ReconcileOutcome { object: ObjectRef::from_key(&key), result, requeue });
    }

    /// Logs a failure; of an object that does not decode, only the first in a row.
    fn log_failure(&mut self, key: &Arc<str>, failures: u32, error: &ReconcileError<E>, requeue: Requeue) {
        let controller = &*self.name;
        if matches!(error, ReconcileError::Undecodable(_)) {
            if self.logged.len() >= UNDECODABLE_LOGGED_MAX || !self.logged.insert(Arc::clone(key)) {
                return;
            }
            if self.logged.len() == UNDECODABLE_LOGGED_MAX {
                tracing::warn!(controller, objects = UNDECODABLE_LOGGED_MAX, "log of undecodable objects suppressed");
            }
        } else {
            self.logged.remove(key);
        }
        let (error, delay) = (Chain(error), requeue.delay());
        tracing::warn!(controller, key = &**key, attempt = failures, %error, ?delay, "reconcile failed");
    }

    /// Waits for the running reconciles, and aborts those that run for longer than `grace`, or when `abort` resolves.
    async fn finish(mut self, grace: Duration, abort: BoxFuture<'static, ()>) -> Result<(), ControllerError> {
        let all_end = async {
            while let Some(end) = self.running.join_next().await {
                self.on_end(end.ok());
            }
        };
        select! {
            biased;
            () = all_end => return Ok(()),
            () = sleep(grace) => {}
            () = abort => {}
        }
        let reconciles = self.running.len();
        self.running.abort_all();
        let all_end = async { while self.running.join_next().await.is_some() {} };
        // A reconcile that blocks its thread cannot be aborted.
        _ = timeout(ABORT_TIME, all_end).await;
        Err(ControllerError::Aborted { reconciles })
    }
}

/// Time in which aborted reconciles are dropped, unless they block.
const ABORT_TIME: Duration = Duration::from_secs(1);

/// Longest delay before a reconcile is repeated: a year, which no timer overflows.
pub(super) const DELAY_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

const fn result_of<E>(error: &ReconcileError<E>) -> ReconcileResult {
    match error {
        ReconcileError::Failed(_) | ReconcileError::Undecodable(_) => ReconcileResult::Error,
        ReconcileError::Panicked => ReconcileResult::Panic,
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
