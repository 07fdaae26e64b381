//! The tasks of one resource type: the cacher, which is the only writer, the waking task, and a supervisor that
//! restarts both with an empty cache if one of them panics.
//!
//! INVARIANT: a change is applied before the next one is requested; no change is buffered here.

use std::{future::poll_fn, mem, ops::ControlFlow, sync::Arc, time::Duration};

use futures::StreamExt;
use informer_core::{Objects, Time};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use watch_cache::{
    BucketWaker, Change, Draft, Entry, EntryError, Limits, OutOfOrder, Reader, Total, Writer, cache_within,
};

use super::{
    health::StreamHealth,
    saved::{SavedCache, SavedStates, Saver},
};
use crate::{
    registry::ResourceType,
    storage::{FollowFrom, Source, SourceChange, SourceError, SourceRecord, Update},
    supervised::{RestartBackoff, has_panicked},
};

/// The inputs of one type's tasks.
#[derive(Clone)]
pub(super) struct Tasks {
    pub(super) source: Arc<dyn Source>,
    pub(super) ty: Arc<ResourceType>,
    pub(super) limits: Limits,
    pub(super) total: Total,
    /// Start of the clock of all caches.
    pub(super) started: Instant,
    pub(super) stop: watch::Receiver<bool>,
    /// Health of the stream that fills the cache.
    pub(super) health: Arc<StreamHealth>,
    /// Saves the cache, so that the next process resumes.
    pub(super) saved: Option<Arc<SavedStates>>,
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
        let mut backoff = RestartBackoff::default();
        let (mut saver, mut complete) = (None, None);
        let mut stop = self.stop.clone();
        tokio::select! {
            biased;
            () = stopped(&mut stop) => return,
            loaded = self.load() => if let Some(loaded) = loaded {
                let saved;
                (saved, waking) = loaded;
                readers.send_replace(saved.writer.reader());
                complete = saved.loaded.map(|state| state.complete);
                (writer, saver) = (saved.writer, saved.saver);
            }
        }
        loop {
            let began = Instant::now();
            let mut cacher = tokio::spawn(Cacher::new(self.clone(), writer, saver, complete.take()).run());
            let mut waker = tokio::spawn(wake(waking));
            let ended = tokio::select! {
                ended = &mut cacher => ended,
                // The waking task returns on its own only after the cacher has closed the cache.
                ended = &mut waker => if ended.is_ok() { (&mut cacher).await } else { ended },
            };
            if !has_panicked(ended) {
                return;
            }
            tracing::error!(resource = self.ty.id(), "cache panicked");
            self.health.fails();
            let reader;
            (writer, waking, reader) = self.cache();
            readers.send_replace(reader.clone());
            // Closes the old cache if the panic did not. The old waking task ends after that, once it has woken all
            // watchers.
            cacher.abort();
            tokio::select! {
                biased;
                () = stopped(&mut self.stop) => return,
                () = sleep(backoff.pause_after(began.elapsed())) => {}
            }
            // The saved state stays unused: it may be the cause.
            saver = match &self.saved {
                Some(folder) => folder.save(&self.ty, self.started, reader).await,
                None => None,
            };
        }
    }

    /// Returns another cache with the saved state, if there is one; `None` if the type is not saved. Readers see it only
    /// once it is complete.
    async fn load(&self) -> Option<(SavedCache, BucketWaker)> {
        let folder = self.saved.as_ref()?;
        let (writer, waking, _) = self.cache();
        let loaded = folder.load(&self.ty, self.started, writer).await?;
        if let Some(state) = loaded.loaded {
            self.health.failed_for(state.age);
        }
        Some((loaded, waking))
    }
}

/// Follows the source: resumes where it was, and lists again only if its position is lost.
struct Cacher {
    tasks: Tasks,
    writer: Writer,
    saver: Option<Saver>,
    /// Positions of a loaded state: its newest, and the one below which it is complete.
    loaded: Option<(u64, u64)>,
    /// The state that is being listed.
    staged: Option<Objects<Entry>>,
    /// True if the next stream can continue at the cache's position; else it starts with the state.
    is_listed: bool,
    /// Copy of the health, so that not every update takes its lock.
    is_well: bool,
}

impl Cacher {
    fn new(tasks: Tasks, writer: Writer, saver: Option<Saver>, complete: Option<u64>) -> Self {
        let (applied, loaded) = (writer.applied(), complete.map(|complete| (writer.applied(), complete)));
        let is_listed = 0 < applied;
        Self { tasks, writer, saver, loaded, staged: None, is_listed, is_well: false }
    }

    async fn run(mut self) {
        let mut pause = RELIST_PAUSE;
        loop {
            let end = match self.follow().await {
                ControlFlow::Break(()) => break,
                ControlFlow::Continue(end) => end,
            };
            self.staged = None;
            self.is_listed &= !end.loses_position;
            if end.loses_position && end.is_known {
                // The position is lost, the source is well: list at once.
                continue;
            }
            self.fails();
            // A stream that was followed resets the backoff, however short it was.
            pause = if end.followed { RELIST_PAUSE } else { (pause * 2).min(RELIST_PAUSE_MAX) };
            tracing::warn!(resource = self.tasks.ty.id(), error = %end.cause, delay = ?pause, "source stream ended");
            tokio::select! {
                biased;
                () = stopped(&mut self.tasks.stop) => break,
                () = sleep(pause) => {}
            }
        }
        self.writer.close();
    }

    /// Follows one stream until it ends.
    async fn follow(&mut self) -> ControlFlow<(), StreamEnd> {
        let mut stop = self.tasks.stop.clone();
        let from = if self.is_listed { FollowFrom::After(self.position()) } else { FollowFrom::Start };
        let opened = tokio::select! {
            biased;
            () = stopped(&mut stop) => return ControlFlow::Break(()),
            opened = self.tasks.source.follow(&self.tasks.ty, from, self.writer.reader()) => opened,
        };
        let mut updates = match opened {
            Ok(updates) => updates,
            Err(error) => return ControlFlow::Continue(StreamEnd::refused(&error)),
        };
        let mut trims = interval(TRIM_PAUSE);
        trims.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = "the source ended the stream".to_owned();
        let mut followed = false;
        loop {
            tokio::select! {
                biased;
                () = stopped(&mut stop) => return ControlFlow::Break(()),
                _ = trims.tick() => self.writer.trim(self.now()),
                update = updates.next() => match update {
                    Some(Ok(update)) => {
                        if let Err(error) = self.take(update) {
                            return ControlFlow::Continue(StreamEnd::out_of_order(error));
                        }
                        followed |= self.is_well;
                    }
                    // The stream says itself whether it goes on.
                    Some(Err(error)) => {
                        self.fails();
                        // Values that cannot be read are there at the next attempt as well.
                        followed &= !matches!(error, SourceError::Forbidden(_));
                        last = error.to_string();
                    }
                    None => return ControlFlow::Continue(StreamEnd::ended(last, followed)),
                }
            }
        }
    }

    /// Returns the position from which the source continues. A loaded state may have only some changes of its newest
    /// revision: the source sends that one again, and those that it has are no change.
    fn position(&self) -> u64 {
        let applied = self.writer.applied();
        self.loaded.filter(|(newest, _)| *newest == applied).map_or(applied, |(_, complete)| complete)
    }

    /// Applies one update.
    fn take(&mut self, update: Update) -> Result<(), OutOfOrder> {
        let change = match update {
            Update::State { objects, revision } => {
                self.staged = Some(objects);
                self.complete(revision);
                return Ok(());
            }
            Update::StateBegins => {
                self.staged = Some(Objects::new());
                return Ok(());
            }
            Update::Object(record) => {
                if let (Some(entry), Some(staged)) = (self.listed(record), &mut self.staged) {
                    staged.insert(entry);
                }
                return Ok(());
            }
            Update::Removed(key) => {
                self.staged.as_mut().map(|staged| staged.remove(&key));
                return Ok(());
            }
            Update::StateAbandoned => {
                self.staged = None;
                return Ok(());
            }
            Update::HistoryLost => {
                self.staged = None;
                self.fails();
                self.tasks.health.loses_history();
                return Ok(());
            }
            Update::StateComplete(revision) => {
                self.complete(revision);
                return Ok(());
            }
            Update::Put(record) => match self.changed(record) {
                Some(entry) => Change::Put(entry),
                None => return Ok(()),
            },
            Update::Batch(changes) => {
                self.apply_batch(changes)?;
                self.works();
                return Ok(());
            }
            Update::Deleted { key, revision } => Change::Deleted { key, resource_version: revision },
            Update::Progress(revision) => Change::Progress(revision),
        };
        self.apply(change)?;
        self.works();
        Ok(())
    }

    /// Applies a change, and saves it.
    fn apply(&mut self, change: Change) -> Result<(), OutOfOrder> {
        let saved = self.saver.is_some().then(|| change.clone());
        self.writer.apply(change, self.now())?;
        if let (Some(saver), Some(change)) = (&self.saver, saved) {
            saver.push(change);
        }
        Ok(())
    }

    /// Applies the changes of one revision together, so that no reader resumes between them.
    fn apply_batch(&mut self, changes: Vec<SourceChange>) -> Result<(), OutOfOrder> {
        let changes: Vec<_> = changes
            .into_iter()
            .filter_map(|change| match change {
                SourceChange::Put(record) => self.changed(record).map(Change::Put),
                SourceChange::Deleted { key, revision } => Some(Change::Deleted { key, resource_version: revision }),
            })
            .collect();
        let saved = self.saver.is_some().then(|| changes.clone());
        self.writer.apply_batch(changes, self.now())?;
        if let (Some(saver), Some(changes)) = (&self.saver, saved) {
            changes.into_iter().for_each(|change| saver.push(change));
        }
        Ok(())
    }

    /// Starts an epoch with the staged state, unless nothing has changed since the position was lost: then the watches go
    /// on. An equal state of another history is a new epoch: its watches must not show changes of the old one. Objects that were created and deleted in between are not shown; clients that relist do not see them either.
    fn complete(&mut self, revision: u64) {
        let objects = self.staged.take().unwrap_or_default();
        if !self.tasks.health.is_lost()
            && self.writer.applied() <= revision
            && self.is_state(&objects)
            && self.apply(Change::Progress(revision)).is_ok()
        {
            tracing::info!(resource = self.tasks.ty.id(), resource_version = revision, "relist found no change");
            self.is_listed = true;
            self.tasks.health.has_history();
            return self.works();
        }
        tracing::info!(
            resource = self.tasks.ty.id(),
            objects = objects.len(),
            resource_version = revision,
            "relist completed"
        );
        // Around the reset, so that no change of the old history follows a state of the new one.
        self.saver.as_ref().inspect(|saver| saver.end());
        self.writer.reset(objects, revision, self.now());
        self.saver.as_ref().inspect(|saver| saver.begin());
        self.is_listed = true;
        self.tasks.health.has_history();
        self.works();
    }

    /// True if these are the very entries of the cache.
    fn is_state(&self, objects: &Objects<Entry>) -> bool {
        let cached = self.writer.reader().snapshot().objects.clone();
        self.writer.applied() > 0
            && cached.len() == objects.len()
            && cached.iter().zip(objects.iter()).all(|(cached, listed)| Arc::ptr_eq(cached, listed))
    }

    fn works(&mut self) {
        self.tasks.health.hears(self.now());
        if !mem::replace(&mut self.is_well, true) {
            self.tasks.health.works();
        }
    }

    fn fails(&mut self) {
        self.is_well = false;
        self.tasks.health.fails();
    }

    /// Returns the entry of a listed object: the one that the cache has already if the object is unchanged.
    fn listed(&self, record: SourceRecord) -> Option<Arc<Entry>> {
        let (draft, revision) = match record {
            SourceRecord::Entry(entry) => return Some(entry),
            SourceRecord::Json { json, revision } => (self.decode(&json)?, revision),
        };
        let known = self.writer.get(draft.key());
        match known.filter(|known| known.resource_version() == revision && draft.same_content(known)) {
            Some(known) => Some(known),
            None => Some(draft.commit(revision)),
        }
    }

    /// Returns the entry of a changed object.
    fn changed(&self, record: SourceRecord) -> Option<Arc<Entry>> {
        Some(match record {
            SourceRecord::Entry(entry) => entry,
            SourceRecord::Json { json, revision } => {
                let draft = self.decode(&json)?;
                let exists = self.writer.get(draft.key()).is_some();
                if exists { draft.commit_update(revision) } else { draft.commit(revision) }
            }
        })
    }

    /// Decodes an object; `None`, a line in the log, and a notice to the source if it cannot be one.
    fn decode(&self, json: &[u8]) -> Option<Draft> {
        let draft = Draft::new(&self.tasks.ty.schema, json);
        let skip = |error: &EntryError| {
            tracing::error!(resource = self.tasks.ty.id(), %error, "object skipped");
            self.tasks.source.skipped(&self.tasks.ty);
        };
        draft.inspect_err(skip).ok()
    }

    fn now(&self) -> Time {
        Time(self.tasks.started.elapsed())
    }
}

/// Reason for the end of a stream.
struct StreamEnd {
    cause: String,
    /// True if the stream was opened and had a state.
    followed: bool,
    /// True if no stream can continue at the cache's position.
    loses_position: bool,
    /// True if the source itself refused the position: it is well.
    is_known: bool,
}

impl StreamEnd {
    fn refused(error: &SourceError) -> Self {
        let is_known = matches!(error, SourceError::Compacted { .. });
        Self { cause: error.to_string(), followed: false, loses_position: is_known, is_known }
    }

    fn out_of_order(error: OutOfOrder) -> Self {
        Self { cause: error.to_string(), followed: true, loses_position: true, is_known: false }
    }

    const fn ended(cause: String, followed: bool) -> Self {
        Self { cause, followed, loses_position: false, is_known: false }
    }
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

/// Pause before the next attempt at a failing source: doubled for each failure, up to `RELIST_PAUSE_MAX`.
const RELIST_PAUSE: Duration = Duration::from_millis(50);
const RELIST_PAUSE_MAX: Duration = Duration::from_secs(5);
