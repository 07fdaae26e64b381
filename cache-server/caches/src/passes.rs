//! The loop of every controller: it reads which objects of one type changed, works on everything that is still to do,
//! and waits for the next change.
//!
//! INVARIANT: level-triggered. A pass depends only on the current objects and on work that is left of earlier passes,
//! never on events or their writers, so a failing storage delays work but loses none.
//! INVARIANT: no pass runs on a state that the storage has not confirmed as current in this epoch of the cache. A new
//! cache may replay earlier states, whose definitions are not established yet, and whose namespaces still terminate.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, select_all},
};
use informer_core::{KeyedObject as _, Objects, objects::Difference};
use parking_lot::Mutex;
use tokio::{
    task::yield_now,
    time::{sleep, timeout},
};
use watch_cache::{CacheSnapshot, ClosedCache, Entry, Reader};

use crate::{
    cacher::{CacheNotReady, Caches, FreshnessError},
    registry::ResourceType,
};

/// The work of one controller.
pub trait Controller: Send + 'static {
    /// Error of a pass.
    type Error: Send;

    /// Delay before a retry when the storage or a cache fails.
    const RETRY_PAUSE: Duration;

    /// Delay of a pass that follows changes of other types' objects, so that it covers several of them.
    const HELD_PAUSE: Duration;

    /// Changed objects that are read before the task yields.
    const READ_AT_ONCE: usize;

    /// Reads an object that is new or changed since the last pass, of a snapshot at `position`.
    fn learn(&mut self, entry: &Arc<Entry>, position: u64);

    /// Forgets an object that was deleted since the last pass. A controller whose predecessor panicked may not know it.
    fn forget(&mut self, entry: &Entry);

    /// Works on everything still to do. One object that fails must not stop the others: the pass returns the first
    /// error at its end, and the next pass retries.
    fn pass(
        &mut self,
        caches: &Caches,
        snapshot: &CacheSnapshot,
    ) -> impl Future<Output = Result<PassOutcome, Self::Error>> + Send;

    /// Records that nothing is left to do up to `position`.
    fn settle(&self, position: u64);

    /// Logs the error of a pass.
    fn failed(&self, error: &Self::Error);
}

/// Outcome of a pass.
pub enum PassOutcome {
    /// Nothing is left to do but to wait for finalizers. Each entry is a cache with objects that they hold, and the
    /// position of the snapshot in which those were found.
    Settled(Vec<(Reader, u64)>),
    /// This controller or another writer wrote something: run the next pass once the cache has this position.
    Wrote(u64),
}

/// Returns the task of a controller over the objects of `ty`, which lasts until the caches are dropped or stopped. Called
/// again after a panic, it begins with a new controller.
pub fn restartable<C: Controller>(
    make: impl Fn() -> C + Send + 'static,
    caches: Weak<Caches>,
    ty: Arc<ResourceType>,
) -> impl FnMut() -> BoxFuture<'static, ()> + Send + 'static {
    let learned = Arc::<LearnedObjects>::default();
    move || {
        let seen = SeenObjects { objects: None, learned: Arc::clone(&learned) };
        run(make(), seen, Weak::clone(&caches), Arc::clone(&ty)).boxed()
    }
}

/// The objects that a controller may have learned: one state, or two while it reads the second. They outlive a panic of its
/// task, so that the next controller forgets those that are deleted by then.
#[derive(Default)]
struct LearnedObjects(Mutex<Vec<Objects<Entry>>>);

/// The objects as of the last pass.
struct SeenObjects {
    /// `None` before the first pass of this controller.
    objects: Option<Objects<Entry>>,
    learned: Arc<LearnedObjects>,
}

/// Runs a controller. Holds the caches only while it works.
async fn run<C: Controller>(mut controller: C, mut seen: SeenObjects, caches: Weak<Caches>, ty: Arc<ResourceType>) {
    loop {
        let reader = match caches.upgrade() {
            None => return,
            Some(caches) => caches.reader(&ty).await,
        };
        match reader {
            Err(FreshnessError::NotReady(CacheNotReady { stopped: true, .. })) => return,
            Err(_) => {}
            Ok(reader) => {
                if follow(&mut controller, &caches, &ty, &mut seen, &reader).await.is_ok() {
                    return;
                }
                // The cache is closed: the next round opens a new one.
            }
        }
        sleep(C::RETRY_PAUSE).await;
    }
}

/// Runs passes over one cache until the caches are dropped, or that cache is closed.
async fn follow<C: Controller>(
    controller: &mut C,
    caches: &Weak<Caches>,
    ty: &Arc<ResourceType>,
    seen: &mut SeenObjects,
    reader: &Reader,
) -> Result<(), ClosedCache> {
    let mut confirmed = None;
    loop {
        let Some(caches) = caches.upgrade() else { return Ok(()) };
        let Some(snapshot) = confirmed_state(&caches, ty, reader, &mut confirmed).await? else {
            drop(caches);
            sleep(C::RETRY_PAUSE).await;
            continue;
        };
        seen.take_in(controller, &snapshot).await;
        let outcome = controller.pass(&caches, &snapshot).await;
        let (position, epoch) = (snapshot.resource_version, snapshot.history_id());
        // Keep neither the caches nor the events of a window alive while this task waits.
        drop((caches, snapshot));
        match outcome {
            Ok(PassOutcome::Wrote(at)) => reached(reader, at, epoch).await?,
            Ok(PassOutcome::Settled(held)) => {
                controller.settle(position);
                changed(reached(reader, position + 1, epoch), &held, C::HELD_PAUSE).await?;
            }
            Err(error) => {
                controller.failed(&error);
                sleep(C::RETRY_PAUSE).await;
            }
        }
    }
}

/// Returns the current state of `reader`; `None` if it is not confirmed yet. The first state of each epoch waits until the
/// cache has everything that was committed by then: all later ones are newer. `confirmed` is the epoch that was confirmed.
async fn confirmed_state(
    caches: &Caches,
    ty: &Arc<ResourceType>,
    reader: &Reader,
    confirmed: &mut Option<u64>,
) -> Result<Option<CacheSnapshot>, ClosedCache> {
    let snapshot = reader.snapshot();
    let epoch = snapshot.history_id();
    if *confirmed == Some(epoch) || caches.counts_while_away() {
        return Ok(Some(snapshot));
    }
    // A snapshot keeps events of the window alive.
    drop(snapshot);
    match caches.fresh(ty).await {
        Ok(fresh) => {
            let snapshot = fresh.snapshot();
            if snapshot.history_id() == epoch {
                *confirmed = Some(epoch);
                return Ok(Some(snapshot));
            }
        }
        Err(error) => tracing::warn!(resource = ty.id(), %error, "controller state not confirmed"),
    }
    if reader.is_closed() { Err(ClosedCache) } else { Ok(None) }
}

impl SeenObjects {
    /// Reads the objects that changed since the last pass.
    async fn take_in<C: Controller>(&mut self, controller: &mut C, snapshot: &CacheSnapshot) {
        let before = match self.objects.replace(snapshot.objects.clone()) {
            Some(before) => {
                *self.learned.0.lock() = vec![before.clone(), snapshot.objects.clone()];
                before
            }
            None => {
                let learned = self.learned.0.lock().clone();
                let is_gone = |entry: &&Arc<Entry>| snapshot.objects.get(entry.key()).is_none();
                learned.iter().flat_map(Objects::iter).filter(is_gone).for_each(|entry| controller.forget(entry));
                *self.learned.0.lock() = vec![snapshot.objects.clone()];
                Objects::new()
            }
        };
        for (number, difference) in before.diff(&snapshot.objects).enumerate() {
            // An object may have megabytes: let other tasks run in between.
            if number % C::READ_AT_ONCE == C::READ_AT_ONCE - 1 {
                yield_now().await;
            }
            match difference {
                Difference::Added(entry) | Difference::Updated { new: entry, .. } => {
                    controller.learn(entry, snapshot.resource_version);
                }
                Difference::Removed(entry) => controller.forget(entry),
            }
        }
        *self.learned.0.lock() = vec![snapshot.objects.clone()];
    }
}

/// Waits for `next`, or until the objects of a cache in `held` change.
async fn changed(
    next: impl Future<Output = Result<(), ClosedCache>>,
    held: &[(Reader, u64)],
    pause: Duration,
) -> Result<(), ClosedCache> {
    if held.is_empty() {
        return next.await;
    }
    // A cache that is closed also starts the next pass.
    let changes = held.iter().map(|(reader, position)| reader.reached(position + 1).map(drop).boxed());
    let changed = async {
        select_all(changes).await;
        sleep(pause).await;
    };
    tokio::select! {
        reached = next => reached,
        () = changed => Ok(()),
    }
}

/// Waits until `reader` has a position, or another epoch than `epoch`: after a restore, its positions may be lower.
async fn reached(reader: &Reader, position: u64, epoch: u64) -> Result<(), ClosedCache> {
    let mut reaching = pin!(reader.reached(position));
    loop {
        match timeout(EPOCH_CHECK, &mut reaching).await {
            Ok(reached) => return reached,
            Err(_) if reader.snapshot().history_id() != epoch => return Ok(()),
            Err(_) => {}
        }
    }
}

/// Pause between two checks for another epoch.
const EPOCH_CHECK: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
