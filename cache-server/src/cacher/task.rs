//! The tasks of one resource type: the cacher, which is the only writer, the waking task, and a supervisor that
//! restarts both with an empty cache if one of them panics.
//!
//! INVARIANT: a change is applied before the next one is requested; no change is buffered here.

use std::{
    future::poll_fn,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, TryStreamExt};
use informer_core::{Objects, Time};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use watch_cache::{BucketWaker, Entry, Limits, Reader, Total, Writer, cache_within};

use crate::{
    registry::ResourceType,
    storage::{Changes, ListAndWatch, Storage, StorageError},
};

/// The inputs of one type's tasks.
#[derive(Clone)]
pub(super) struct Tasks {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) ty: Arc<ResourceType>,
    pub(super) limits: Limits,
    pub(super) total: Total,
    /// Start of the clock of all caches.
    pub(super) started: Instant,
    pub(super) stop: watch::Receiver<bool>,
    /// False while the cache follows no history, after it had one or failed to get one.
    pub(super) well: Arc<AtomicBool>,
}

/// Starts the tasks. The reader is replaced when they restart, and its channel is closed when they end.
pub(super) fn start(tasks: Tasks) -> watch::Receiver<Reader> {
    let (writer, waking, reader) = tasks.cache();
    let (readers, reader) = watch::channel(reader);
    tokio::spawn(tasks.supervise(writer, waking, readers));
    reader
}

impl Tasks {
    fn cache(&self) -> (Writer, BucketWaker, Reader) {
        cache_within(Arc::clone(&self.ty.schema), self.limits.clone(), self.total.clone())
    }

    /// Runs the tasks until they are stopped. If one of them panics, both are restarted with a new cache, so that a
    /// half-applied event stays in none.
    async fn supervise(mut self, mut writer: Writer, mut waking: BucketWaker, readers: watch::Sender<Reader>) {
        let mut pause = RELIST_PAUSE;
        loop {
            let began = Instant::now();
            let mut cacher = tokio::spawn(Cacher { tasks: self.clone(), writer }.run());
            let mut waker = tokio::spawn(wake(waking));
            let ended = tokio::select! {
                ended = &mut cacher => ended,
                // The waking task returns on its own only after the cacher has closed the cache.
                ended = &mut waker => if ended.is_ok() { (&mut cacher).await } else { ended },
            };
            if !ended.is_err_and(|error| error.is_panic()) {
                return;
            }
            tracing::error!(resource = self.ty.id(), "cache panicked");
            self.well.store(false, Ordering::Relaxed);
            let reader;
            (writer, waking, reader) = self.cache();
            readers.send_replace(reader);
            // Closes the old cache if the panic did not. The old waking task ends after that, once it has woken all
            // watchers.
            cacher.abort();
            pause = if RELIST_PAUSE_MAX < began.elapsed() { RELIST_PAUSE } else { (pause * 2).min(RELIST_PAUSE_MAX) };
            tokio::select! {
                biased;
                () = stopped(&mut self.stop) => return,
                () = sleep(pause) => {}
            }
        }
    }
}

/// Lists, follows the changes, and relists if the change stream fails.
struct Cacher {
    tasks: Tasks,
    writer: Writer,
}

impl Cacher {
    async fn run(mut self) {
        let mut pause = RELIST_PAUSE;
        loop {
            let error = match self.history().await {
                ControlFlow::Break(()) => break,
                ControlFlow::Continue(error) => error,
            };
            self.tasks.well.store(false, Ordering::Relaxed);
            // A history that was followed resets the backoff, however short it was.
            pause = if error.followed { RELIST_PAUSE } else { (pause * 2).min(RELIST_PAUSE_MAX) };
            tracing::warn!(resource = self.tasks.ty.id(), error = %error.cause, delay = ?pause, "relist scheduled");
            tokio::select! {
                biased;
                () = stopped(&mut self.tasks.stop) => break,
                () = sleep(pause) => {}
            }
        }
        self.writer.close();
    }

    /// Runs one epoch: from a listing until the change stream ends or fails.
    async fn history(&mut self) -> ControlFlow<(), HistoryEnd> {
        let mut stop = self.tasks.stop.clone();
        let opened = tokio::select! {
            biased;
            () = stopped(&mut stop) => return ControlFlow::Break(()),
            opened = self.open() => opened,
        };
        let mut changes = match opened {
            Ok(changes) => changes,
            Err(cause) => return ControlFlow::Continue(HistoryEnd { cause: cause.to_string(), followed: false }),
        };
        let mut trims = interval(TRIM_PAUSE);
        trims.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let lost = |cause: String| ControlFlow::Continue(HistoryEnd { cause, followed: true });
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

    /// Lists and starts the epoch. The changes after the listing are subscribed before it is shown.
    async fn open(&mut self) -> Result<Changes, StorageError> {
        let ListAndWatch { listed, changes } = self.tasks.storage.follow(&self.tasks.ty).await?;
        let entries: Vec<Arc<Entry>> = listed.entries.try_collect().await?;
        let objects: Objects<Entry> = entries.into_iter().collect();
        let (resource, version) = (self.tasks.ty.id(), listed.resource_version);
        tracing::info!(resource, objects = objects.len(), resource_version = version, "relist completed");
        self.writer.reset(objects, version, self.now());
        self.tasks.well.store(true, Ordering::Relaxed);
        Ok(changes)
    }

    fn now(&self) -> Time {
        Time(self.tasks.started.elapsed())
    }
}

/// Reason for the end of a history.
struct HistoryEnd {
    cause: String,
    /// True if the listing succeeded.
    followed: bool,
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the caches were dropped, which stops the tasks too.
    let _ = stop.wait_for(|&stop| stop).await;
}

/// Wakes the watchers of touched buckets, round by round. Events that arrive during a round and its pause are
/// coalesced.
async fn wake(mut waking: BucketWaker) {
    while poll_fn(|cx| waking.poll_touched(cx)).await.is_ok() {
        let woken = waking.wake();
        let pause = ROUND_PER_WATCHER.saturating_mul(u32::try_from(woken).unwrap_or(u32::MAX)).min(ROUND_PAUSE_MAX);
        // A pause below the timer's resolution would last longer than it saves.
        if ROUND_PAUSE_MIN <= pause {
            sleep(pause).await;
        }
    }
}

/// Expected time for a woken watcher to process its events. The pause after a round is this times the number of
/// watchers, so that a round finishes before the next begins and a lone watcher never waits.
const ROUND_PER_WATCHER: Duration = Duration::from_micros(20);
const ROUND_PAUSE_MIN: Duration = Duration::from_millis(1);
/// Maximum delay that coalescing adds to an event.
const ROUND_PAUSE_MAX: Duration = Duration::from_millis(20);

/// Interval at which a quiet window checks the age of its events.
const TRIM_PAUSE: Duration = Duration::from_secs(5);

/// Pause before a relist of a failing storage: doubled for each failure, up to `RELIST_PAUSE_MAX`.
const RELIST_PAUSE: Duration = Duration::from_millis(50);
const RELIST_PAUSE_MAX: Duration = Duration::from_secs(5);
