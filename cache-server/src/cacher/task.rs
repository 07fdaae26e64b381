//! The two tasks of one resource type: the cacher, which is the only writer, and the one that wakes.
//!
//! INVARIANT: a change is taken in before the next one is asked for; nothing here buffers.

use std::{future::poll_fn, ops::ControlFlow, sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt};
use informer_core::{Objects, Time};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use watch_cache::{Entry, Waking, Writer};

use crate::{
    registry::ResourceType,
    storage::{Changes, Storage, StorageError},
};

/// Lists, follows, and lists again when the storage lost the thread.
pub(super) struct Cacher {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) ty: Arc<ResourceType>,
    pub(super) writer: Writer,
    /// When the clock of all caches began.
    pub(super) started: Instant,
    pub(super) stop: watch::Receiver<bool>,
}

impl Cacher {
    pub(super) async fn run(mut self) {
        let mut pause = RELIST_PAUSE;
        loop {
            let error = match self.history().await {
                ControlFlow::Break(()) => break,
                ControlFlow::Continue(error) => error,
            };
            tracing::warn!(resource = self.ty.id(), cause = %error.cause, "listing again");
            // A history that was followed for a while is no reason to wait long.
            pause = if error.followed { RELIST_PAUSE } else { (pause * 2).min(RELIST_PAUSE_MAX) };
            tokio::select! {
                biased;
                () = stopped(&mut self.stop) => break,
                () = sleep(pause) => {}
            }
        }
        self.writer.close();
    }

    /// One epoch: from a listing to the first change that does not come.
    async fn history(&mut self) -> ControlFlow<(), Lost> {
        let mut stop = self.stop.clone();
        let opened = tokio::select! {
            biased;
            () = stopped(&mut stop) => return ControlFlow::Break(()),
            opened = self.open() => opened,
        };
        let mut changes = match opened {
            Ok(changes) => changes,
            Err(cause) => return ControlFlow::Continue(Lost { cause: cause.to_string(), followed: false }),
        };
        let mut trims = interval(TRIM_PAUSE);
        trims.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let lost = |cause: String| ControlFlow::Continue(Lost { cause, followed: true });
        loop {
            tokio::select! {
                biased;
                () = stopped(&mut stop) => return ControlFlow::Break(()),
                _ = trims.tick() => self.writer.trim(self.now()),
                change = changes.next() => {
                    let change = match change {
                        Some(Ok(change)) => change,
                        Some(Err(cause)) => return lost(cause.to_string()),
                        None => return lost("the storage ended the changes".to_owned()),
                    };
                    if let Err(cause) = self.writer.apply(change, self.now()) {
                        return lost(cause.to_string());
                    }
                }
            }
        }
    }

    /// Lists and starts the epoch; nothing is shown before the changes after it are on their way.
    async fn open(&mut self) -> Result<Changes, StorageError> {
        let listed = self.storage.list(&self.ty).await?;
        let entries: Vec<Arc<Entry>> = listed.entries.try_collect().await?;
        let objects: Objects<Entry> = entries.into_iter().collect();
        let changes = self.storage.watch(&self.ty, listed.resource_version).await?;
        tracing::info!(resource = self.ty.id(), objects = objects.len(), version = listed.resource_version, "listed");
        self.writer.reset(objects, listed.resource_version, self.now());
        Ok(changes)
    }

    fn now(&self) -> Time {
        Time(self.started.elapsed())
    }
}

/// Why a history ended.
struct Lost {
    cause: String,
    /// Whether it had begun.
    followed: bool,
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the caches are gone, which is the same.
    let _ = stop.wait_for(|&stop| stop).await;
}

/// Wakes the watchers of touched buckets, round by round. While many run, the next events gather.
pub(super) async fn wake(mut waking: Waking) {
    while poll_fn(|cx| waking.poll_touched(cx)).await.is_ok() {
        let woken = waking.wake();
        let pause = ROUND_PER_WATCHER.saturating_mul(u32::try_from(woken).unwrap_or(u32::MAX)).min(ROUND_PAUSE_MAX);
        // Below the timer's resolution a pause would last longer than it saves.
        if ROUND_PAUSE_MIN <= pause {
            sleep(pause).await;
        }
    }
}

/// What a woken watcher is expected to take for its events. The pause after a round is that times the watchers, so one
/// round is done before the next begins, and a lone watcher never waits.
const ROUND_PER_WATCHER: Duration = Duration::from_micros(20);
const ROUND_PAUSE_MIN: Duration = Duration::from_millis(1);
/// The most that coalescing may delay an event.
const ROUND_PAUSE_MAX: Duration = Duration::from_millis(20);

/// How often a quiet window looks at its events' age.
const TRIM_PAUSE: Duration = Duration::from_secs(5);

/// Between two listings of a storage that fails: doubled each time, up to the second.
const RELIST_PAUSE: Duration = Duration::from_millis(50);
const RELIST_PAUSE_MAX: Duration = Duration::from_secs(5);
