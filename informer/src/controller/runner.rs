//! The loop of a controller: triggers in, reconciles out.
//!
//! INVARIANT: at most `concurrency` reconciles run, at most one of an object, and each has a task of its own that ends
//! with the runner.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, future::try_join_all, stream};
use serde::de::DeserializeOwned;
use tokio::{
    select,
    task::{JoinSet, coop::consume_budget},
    time::{Instant, sleep_until, timeout},
};
use tracing::Instrument as _;

use super::{
    ControllerError, ReconcileError, ReconcileFailure, Requeue,
    queue::WorkQueue,
    trigger::{PendingTriggers, Trigger},
};
use crate::{informer::Informer, object::Object};

/// Everything that a running controller needs besides its sources.
pub(super) struct Runner<K, R, P, E> {
    pub(super) primary: Informer<K>,
    /// Reconciles one object.
    pub(super) reconcile: R,
    /// Decides when a failed reconcile is repeated.
    pub(super) error_policy: P,
    pub(super) concurrency: usize,
    pub(super) queue: WorkQueue,
    pub(super) running: JoinSet<ReconcileEnd<E>>,
}

/// End of one reconcile.
pub(super) struct ReconcileEnd<E> {
    key: Arc<str>,
    outcome: Result<Requeue, ReconcileError<E>>,
}

impl<K, R, P, E> Runner<K, R, P, E>
where
    K: DeserializeOwned + Send + Sync + 'static,
    R: Fn(Arc<K>) -> BoxFuture<'static, Result<Requeue, E>> + Clone + Send + 'static,
    P: FnMut(&ReconcileFailure<'_, E>) -> Requeue,
    E: Send + 'static,
{
    /// Runs until `shutdown` resolves or an informer ends, and then until the running reconciles have ended.
    pub(super) async fn run(
        mut self,
        sources: Vec<PendingTriggers>,
        mut shutdown: BoxFuture<'static, ()>,
        grace: Duration,
    ) -> Result<(), ControllerError> {
        let sources = select! {
            () = &mut shutdown => return Ok(()),
            sources = try_join_all(sources) => sources.map_err(ControllerError::NotReady)?,
        };
        let mut triggers = stream::select_all(sources);
        let ended = loop {
            // The triggers of a large initial state are all ready at once.
            consume_budget().await;
            self.start_ready();
            let (is_full, next_at) = (self.running.len() >= self.concurrency, self.queue.next_at());
            select! {
                () = &mut shutdown => break Ok(()),
                Some(end) = self.running.join_next() => self.on_end(end.ok()),
                () = until(next_at), if !is_full => {}
                Some(trigger) = triggers.next() => {
                    if let Err(ended) = self.on_trigger(trigger) {
                        break Err(ended);
                    }
                }
            }
        };
        let finished = self.finish(grace).await;
        ended.and(finished)
    }

    /// Starts reconciles of ready keys as long as there is room.
    fn start_ready(&mut self) {
        while self.running.len() < self.concurrency
            && let Some(key) = self.queue.take(Instant::now())
        {
            match self.primary.store().snapshot().get(&key) {
                Some(object) => self.start(key, object),
                // Deleted since.
                None => self.queue.done(&key, None),
            }
        }
    }

    fn start(&mut self, key: Arc<str>, object: Object<K>) {
        let reconcile = self.reconcile.clone();
        let span = tracing::debug_span!("reconcile", key = %key);
        let run = async move {
            let object = object.decode().map_err(ReconcileError::Undecodable)?;
            reconcile(object).await.map_err(ReconcileError::Failed)
        };
        let run = async move {
            // A panic is the failure of one object; the values it leaves behind are dropped with the future.
            let outcome = AssertUnwindSafe(run).catch_unwind().await.unwrap_or(Err(ReconcileError::Panicked));
            ReconcileEnd { key, outcome }
        };
        self.running.spawn(run.instrument(span));
    }

    /// Queues the objects that `trigger` concerns. Fails if no further triggers can be relied on.
    fn on_trigger(&mut self, trigger: Trigger) -> Result<(), ControllerError> {
        let snapshot = self.primary.store().snapshot();
        match trigger {
            Trigger::Object(key) if snapshot.get(&key).is_some() => self.queue.add(&key),
            // Once the object is added, that triggers it.
            Trigger::Object(_) => {}
            Trigger::Owner { namespace, name, uid } => {
                let keys = [format!("{namespace}/{name}"), name];
                // An owner of another uid had that name earlier: the object is about to be garbage collected.
                let is_owner = |key: &&String| snapshot.get(key).is_some_and(|object| object.uid() == uid);
                keys.iter().filter(is_owner).for_each(|key| self.queue.add(key));
            }
            Trigger::All => snapshot.iter().for_each(|object| self.queue.add(object.key())),
            Trigger::Deleted(key) => self.queue.forget(&key),
            Trigger::InformerEnded { request, reason } => {
                return Err(ControllerError::InformerEnded { request, reason });
            }
        }
        Ok(())
    }

    /// Ends a run, and decides when its object is reconciled again. `None` if the runtime cancelled the task.
    fn on_end(&mut self, end: Option<ReconcileEnd<E>>) {
        let Some(ReconcileEnd { key, outcome }) = end else { return };
        let requeue = match outcome {
            Ok(requeue) => {
                self.queue.reset_failures(&key);
                requeue
            }
            Err(error) => {
                let failures = self.queue.count_failure(&key);
                (self.error_policy)(&ReconcileFailure { key: &key, failures, error: &error })
            }
        };
        let exists = self.primary.store().snapshot().get(&key).is_some();
        let again_at = requeue.delay().filter(|_| exists).map(|delay| Instant::now() + delay.min(DELAY_MAX));
        self.queue.done(&key, again_at);
    }

    /// Waits for the running reconciles, and aborts those that run for longer than `grace`.
    async fn finish(mut self, grace: Duration) -> Result<(), ControllerError> {
        let all_end = async {
            while let Some(end) = self.running.join_next().await {
                self.on_end(end.ok());
            }
        };
        if timeout(grace, all_end).await.is_ok() {
            return Ok(());
        }
        let reconciles = self.running.len();
        self.running.shutdown().await;
        Err(ControllerError::Aborted { reconciles })
    }
}

/// Longest delay before a reconcile is repeated: a year, which no timer overflows.
const DELAY_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
