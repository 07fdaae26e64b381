//! The loop of every controller: it reads which objects of one type changed, works on everything that is still to do,
//! and waits for the next change.
//!
//! INVARIANT: level-triggered. A pass depends only on the current objects and on work that is left of earlier passes,
//! never on events or their writers, so a failing storage delays work but loses none.

use std::{
    future::Future,
    mem,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::{FutureExt as _, future::select_all};
use informer_core::{Objects, objects::Difference};
use tokio::{task::yield_now, time::sleep};
use watch_cache::{CacheSnapshot, ClosedCache, Entry, Reader};

use crate::{
    cacher::{CacheNotReady, Caches},
    registry::ResourceType,
};

/// The work of one controller.
pub(crate) trait Controller: Send + 'static {
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

    /// Forgets an object that was deleted since the last pass.
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
pub(crate) enum PassOutcome {
    /// Nothing is left to do but to wait for finalizers. Each entry is a cache with objects that they hold, and the
    /// position of the snapshot in which those were found.
    Settled(Vec<(Reader, u64)>),
    /// This controller or another writer wrote something: run the next pass once the cache has this position.
    Wrote(u64),
}

/// Runs a controller over the objects of `ty`, until the caches are dropped or stopped. Holds them only while it works.
pub(crate) async fn run<C: Controller>(mut controller: C, caches: Weak<Caches>, ty: Arc<ResourceType>) {
    let mut seen = Objects::new();
    loop {
        let reader = match caches.upgrade() {
            None => return,
            Some(caches) => caches.reader(&ty).await,
        };
        match reader {
            Err(CacheNotReady { stopped: true, .. }) => return,
            Err(_) => {}
            Ok(reader) => {
                if follow(&mut controller, &caches, &mut seen, &reader).await.is_ok() {
                    return;
                }
                // The cache is closed: the next round opens a new one.
            }
        }
        sleep(C::RETRY_PAUSE).await;
    }
}

/// Runs passes over one cache until the caches are dropped, or that cache is closed. `seen` are the objects as of the
/// last pass.
async fn follow<C: Controller>(
    controller: &mut C,
    caches: &Weak<Caches>,
    seen: &mut Objects<Entry>,
    reader: &Reader,
) -> Result<(), ClosedCache> {
    loop {
        let Some(caches) = caches.upgrade() else { return Ok(()) };
        let snapshot = reader.snapshot();
        take_in(controller, seen, &snapshot).await;
        let outcome = controller.pass(&caches, &snapshot).await;
        // Do not keep the caches alive while this task waits.
        drop(caches);
        match outcome {
            Ok(PassOutcome::Wrote(at)) => reader.reached(at).await?,
            Ok(PassOutcome::Settled(held)) => {
                controller.settle(snapshot.resource_version);
                changed(reader, snapshot.resource_version, &held, C::HELD_PAUSE).await?;
            }
            Err(error) => {
                controller.failed(&error);
                sleep(C::RETRY_PAUSE).await;
            }
        }
    }
}

/// Reads the objects that changed since the last pass.
async fn take_in<C: Controller>(controller: &mut C, seen: &mut Objects<Entry>, snapshot: &CacheSnapshot) {
    let before = mem::replace(seen, snapshot.objects.clone());
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
}

/// Waits until the objects of `reader` change after `position`, or those of a cache in `held`.
async fn changed(reader: &Reader, position: u64, held: &[(Reader, u64)], pause: Duration) -> Result<(), ClosedCache> {
    let next = reader.reached(position + 1);
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
