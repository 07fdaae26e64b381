//! The two tasks of one resource type: the cacher, which is the only writer, and the one that wakes; and a third, which
//! starts both again with an empty cache when one of them panicked.
//!
//! INVARIANT: a change is taken in before the next one is asked for; nothing here buffers.

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
use watch_cache::{Entry, Limits, Reader, Total, Waking, Writer, cache_within};

use crate::{
    registry::ResourceType,
    storage::{Changes, Followed, Storage, StorageError},
};

/// What the tasks of one type work with.
#[derive(Clone)]
pub(super) struct Tasks {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) ty: Arc<ResourceType>,
    pub(super) limits: Limits,
    pub(super) total: Total,
    /// When the clock of all caches began.
    pub(super) started: Instant,
    pub(super) stop: watch::Receiver<bool>,
    /// False while the cache has no history that it follows, once it had one or failed to get one.
    pub(super) well: Arc<AtomicBool>,
}

/// Starts the tasks. The reader is replaced when they start again, and closed for good when its sender is gone.
pub(super) fn start(tasks: Tasks) -> watch::Receiver<Reader> {
    let (writer, waking, reader) = tasks.cache();
    let (readers, reader) = watch::channel(reader);
    tokio::spawn(tasks.supervise(writer, waking, readers));
    reader
}

impl Tasks {
    fn cache(&self) -> (Writer, Waking, Reader) {
        cache_within(Arc::clone(&self.ty.schema), self.limits.clone(), self.total.clone())
    }

    /// Runs the tasks until they are stopped. When one of them panics, the other ends with it, and both start again: an
    /// event that was half taken in is in no cache.
    async fn supervise(mut self, mut writer: Writer, mut waking: Waking, readers: watch::Sender<Reader>) {
        let mut pause = RELIST_PAUSE;
        loop {
            let began = Instant::now();
            let mut cacher = tokio::spawn(Cacher { tasks: self.clone(), writer }.run());
            let mut waker = tokio::spawn(wake(waking));
            let ended = tokio::select! {
                ended = &mut cacher => ended,
                // It ends by itself only behind the cacher.
                ended = &mut waker => if ended.is_ok() { (&mut cacher).await } else { ended },
            };
            if !ended.is_err_and(|error| error.is_panic()) {
                return;
            }
            tracing::error!(resource = self.ty.id(), "cache task panicked, cache started again");
            self.well.store(false, Ordering::Relaxed);
            let reader;
            (writer, waking, reader) = self.cache();
            readers.send_replace(reader);
            // Closes the old cache, if the panic did not. Its waking task ends behind that, once everybody was woken.
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

/// Lists, follows, and lists again when the storage lost the thread.
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
            tracing::warn!(resource = self.tasks.ty.id(), cause = %error.cause, "listing again");
            // A history that was followed for a while is no reason to wait long.
            pause = if error.followed { RELIST_PAUSE } else { (pause * 2).min(RELIST_PAUSE_MAX) };
            tokio::select! {
                biased;
                () = stopped(&mut self.tasks.stop) => break,
                () = sleep(pause) => {}
            }
        }
        self.writer.close();
    }

    /// One epoch: from a listing to the first change that does not come.
    async fn history(&mut self) -> ControlFlow<(), Lost> {
        let mut stop = self.tasks.stop.clone();
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
        let Followed { listed, changes } = self.tasks.storage.follow(&self.tasks.ty).await?;
        let entries: Vec<Arc<Entry>> = listed.entries.try_collect().await?;
        let objects: Objects<Entry> = entries.into_iter().collect();
        let (resource, version) = (self.tasks.ty.id(), listed.resource_version);
        tracing::info!(resource, objects = objects.len(), version, "listed");
        self.writer.reset(objects, version, self.now());
        self.tasks.well.store(true, Ordering::Relaxed);
        Ok(changes)
    }

    fn now(&self) -> Time {
        Time(self.tasks.started.elapsed())
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
async fn wake(mut waking: Waking) {
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
