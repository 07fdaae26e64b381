//! The caches of all resource types. Each type has one task that is the cache's only writer and one that wakes its
//! watchers.
//!
//! INVARIANT: a type's tasks start with its first reader and end with [`Caches::shut_down`], or with the definition of
//! the type they were started for. INVARIANT: a cache relists, and its history ends, only if the storage's change
//! stream failed or one of its tasks panicked. INVARIANT: no cache starts for a type whose definition was deleted.

mod health;
mod saved;
mod task;

use std::{collections::BTreeMap, fs::File, future::pending, io, sync::Arc, time::Duration};

use futures::TryFutureExt as _;
use informer_core::Time;
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};
use watch_cache::{CacheStats, Limits, ParkedWatchers, Reader, Total};

use self::health::StreamHealth;
pub use self::saved::{HandedStates, SavedStates, StateOrigin, drop_states, memory_file};
use crate::{
    limits::FRESH_WAIT,
    registry::{Registry, ResourceType},
    storage::{Source, SourceError, StateRead, StoredState},
};

/// The type's cache was not listed in time, or no longer runs: 429; 503 if its history was lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cache of {resource} is not ready")]
pub struct CacheNotReady {
    /// The type's id.
    pub resource: String,
    /// Time for which it has not been ready.
    pub since: Duration,
    /// True if it will never be ready: the server shuts down.
    pub stopped: bool,
    /// True if its source has another history than before, whose state is being read: 503.
    pub lost: bool,
}

/// A cache that its source does not keep up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownCache {
    /// The type's id.
    pub resource: String,
    /// Time for which it has not been kept up to date.
    pub since: Duration,
    /// True if it holds a state, which may be old.
    pub is_filled: bool,
}

/// A read could not be made as fresh as requested.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FreshnessError {
    /// The position was not reached in time: 504.
    #[error("too large resource version: {requested}, current: {current}")]
    TooLarge {
        /// The requested position.
        requested: u64,
        /// The cache's position.
        current: u64,
    },
    /// The cache is not listed yet: 429.
    #[error(transparent)]
    NotReady(#[from] CacheNotReady),
    /// The storage did not report its revision.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// The caches of all types.
pub struct Caches {
    source: Arc<dyn Source>,
    limits: Limits,
    /// Maximum age of a confirmation that [`Self::recent`] accepts.
    max_staleness: Duration,
    total: Total,
    started: Instant,
    /// Saves their states; `None`: they are lost with the process.
    saved: Option<Arc<SavedStates>>,
    all: Mutex<All>,
}

#[derive(Default)]
struct All {
    /// By [`ResourceType::cache_id`].
    running: BTreeMap<String, RunningCache>,
    /// Custom resource types at the last call of [`Caches::retain`]: their `defined_at`, by [`ResourceType::cache_id`].
    defined: BTreeMap<String, u64>,
    /// Types whose definition was deleted or changed recently: requests that were routed before may still ask for
    /// their cache.
    retired: Vec<RetiredType>,
    /// True once no cache may be started any more.
    stopped: bool,
}

/// A type whose definition was deleted or replaced.
struct RetiredType {
    id: String,
    defined_at: u64,
    since: Instant,
}

/// One type's cache.
#[derive(Clone)]
struct RunningCache {
    /// Replaced when the tasks restart.
    reader: watch::Receiver<Reader>,
    /// Health of the stream that fills it; failing from a panic of a task, until the next listing.
    health: Arc<StreamHealth>,
    since: Instant,
    /// Time of the last read that asked for it.
    used: Arc<Mutex<Instant>>,
    /// [`ResourceType::defined_at`] of the type it was started for.
    defined_at: u64,
    /// Set to true once, to stop its tasks.
    stop: watch::Sender<bool>,
}

impl Caches {
    /// Creates the caches without starting any: [`Self::reader`] and later calls need a tokio runtime.
    #[must_use]
    pub fn new(source: Arc<dyn Source>, limits: Limits) -> Self {
        let (total, started, all) = (Total::default(), Instant::now(), Mutex::default());
        Self { source, limits, max_staleness: Duration::ZERO, total, started, saved: None, all }
    }

    /// Creates caches of another source, which share the limits of these.
    #[must_use]
    pub fn beside(&self, source: Arc<dyn Source>) -> Self {
        let mut caches = Self::new(source, self.limits.clone());
        caches.total = self.total.clone();
        caches
    }

    /// Loads the caches from `states`, and saves them there. Call before the first one is started.
    #[must_use]
    pub fn saved_in(mut self, states: SavedStates) -> Self {
        let states = Arc::new(states);
        if states.waits_for_folder() {
            tokio::spawn(SavedStates::follow_folder(Arc::downgrade(&states)));
        }
        self.saved = Some(states);
        self
    }

    /// Writes the state of each cache into a file in memory, for the process that takes over. With `whole_revisions`, the
    /// source sends the changes of one revision together. Fails if the system has no memory for it.
    ///
    /// Each step blocks. Cost: copies the JSON of all objects, and of the events in the window.
    pub fn hand_over(
        &self,
        registry: &Registry,
        whole_revisions: bool,
    ) -> impl Iterator<Item = io::Result<(Arc<ResourceType>, File)>> {
        self.filled(registry).into_iter().filter_map(move |(ty, reader)| {
            let state = self.saved.as_ref()?.hand_over(&ty, &reader, self.now(), whole_revisions).transpose()?;
            Some(state.map(|state| (ty, state)))
        })
    }

    /// Frees the states that were handed over and that no cache has taken.
    pub fn drop_handed(&self) {
        self.saved.iter().for_each(|saved| saved.drop_handed());
    }

    /// Returns the watchers of all caches, to be woken part by part, so that each sees what is not in its cache.
    pub fn watchers(&self) -> Vec<ParkedWatchers> {
        let readers: Vec<_> = self.all.lock().running.values().map(RunningCache::reader).collect();
        readers.iter().map(Reader::watchers).collect()
    }

    /// Sets the cluster that the source follows, by its uid; `None` if it cannot be known. Saved states are loaded only after
    /// that.
    pub fn settle_cluster(&self, cluster: Option<&str>) {
        if let Some(folder) = &self.saved {
            folder.settle(cluster);
        }
    }

    /// True if some saved states are of clusters other than this one.
    pub fn has_states_of_others(&self, cluster: Option<&str>) -> bool {
        self.saved.as_ref().zip(cluster).is_some_and(|(folder, cluster)| folder.has_others(cluster))
    }

    /// Sets the cluster of the states that are saved from now on. The states of others are removed in the background: a slow
    /// disk delays nothing.
    pub fn replace_cluster(&self, cluster: Option<&str>) {
        if let Some(folder) = self.saved.clone() {
            folder.name_cluster(cluster);
            tokio::task::spawn_blocking(move || folder.drop_foreign());
        }
    }

    /// Lets [`Self::recent`] accept a confirmation up to `max_staleness` old. Call before the first read.
    #[must_use]
    pub const fn at_most_stale(mut self, max_staleness: Duration) -> Self {
        self.max_staleness = max_staleness;
        self
    }

    /// Returns the type's reader, listed. Starts its tasks at first use; waits at most 3 s.
    ///
    /// # Errors
    /// [`FreshnessError::NotReady`]; the reason why a webhook does not convert the objects.
    pub async fn reader(&self, ty: &Arc<ResourceType>) -> Result<Reader, FreshnessError> {
        self.listed(ty, Instant::now() + FRESH_WAIT).await
    }

    /// Returns the type's reader once it has applied everything that was committed at the time of the call. Waits at
    /// most [`Source::confirmed_within`].
    ///
    /// # Errors
    /// [`FreshnessError`].
    pub async fn fresh(&self, ty: &Arc<ResourceType>) -> Result<Reader, FreshnessError> {
        let deadline = Instant::now() + self.source.confirmed_within();
        let reader = self.listed(ty, deadline).await?;
        self.caught_up(ty, &reader, deadline, self.source.confirmed(ty)).await?;
        Ok(reader)
    }

    /// Returns the type's reader for a client's read of the most recent state: like [`Self::fresh`], but the state may
    /// lack the commits of the last `max_staleness`. Also returns the age of the source's confirmation; `None` if the
    /// confirmation was requested for this read.
    ///
    /// # Errors
    /// [`FreshnessError`].
    pub async fn recent(&self, ty: &Arc<ResourceType>) -> Result<(Reader, Option<Duration>), FreshnessError> {
        if self.max_staleness.is_zero() {
            return Ok((self.fresh(ty).await?, None));
        }
        // Boxed, because the futures of all other reads would be as large as this one.
        Box::pin(async {
            let arrived = Instant::now();
            let deadline = arrived + self.source.confirmed_within();
            let reader = self.listed(ty, deadline).await?;
            let mut sent = arrived;
            let confirmed = self.source.recently_confirmed(ty, self.max_staleness);
            let revision = confirmed.map_ok(|confirmed| {
                sent = confirmed.sent;
                confirmed.revision
            });
            self.caught_up(ty, &reader, deadline, revision).await?;
            Ok((reader, (sent < arrived).then(|| sent.elapsed())))
        })
        .await
    }

    /// Waits until `reader` has applied the revision that the source returns.
    async fn caught_up(
        &self,
        ty: &Arc<ResourceType>,
        reader: &Reader,
        deadline: Instant,
        revision: impl Future<Output = Result<u64, SourceError>>,
    ) -> Result<(), FreshnessError> {
        let late = |requested| FreshnessError::TooLarge { requested, current: reader.applied() };
        let Ok(committed) = timeout_at(deadline, revision).await else {
            // The storage is slow or its queue is full: its revision is unknown, but above ours.
            return Err(late(reader.applied() + 1));
        };
        let committed = committed?;
        // The common case, without a timer.
        if committed.max(1) <= reader.applied() {
            return Ok(());
        }
        match timeout_at(deadline, reader.reached(committed)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(watch_cache::ClosedCache)) => Err(self.stopped(ty).into()),
            Err(_) => Err(late(committed)),
        }
    }

    /// Returns the type's reader once it has applied `resource_version`. Waits at most 3 s.
    ///
    /// # Errors
    /// [`FreshnessError::TooLarge`] and [`FreshnessError::NotReady`].
    pub async fn at_least(&self, ty: &Arc<ResourceType>, resource_version: u64) -> Result<Reader, FreshnessError> {
        let deadline = Instant::now() + FRESH_WAIT;
        let reader = self.listed(ty, deadline).await?;
        let mut reached = std::pin::pin!(reader.reached(resource_version));
        loop {
            if reader.applied() < resource_version {
                // Writes of other types advance the position too, but a quiet cache learns of them only through
                // [`Source::current`]. An error is ignored: a storage that is slow or unavailable leaves the position
                // unreached, which is reported below.
                let _ = timeout_at(deadline, self.source.current(ty)).await;
            }
            let again = deadline.min(Instant::now() + PROGRESS_PAUSE);
            match timeout_at(again, &mut reached).await {
                Ok(Ok(())) => return Ok(reader),
                Ok(Err(watch_cache::ClosedCache)) => return Err(self.stopped(ty).into()),
                Err(_) if again < deadline => {}
                Err(_) => {
                    return Err(FreshnessError::TooLarge { requested: resource_version, current: reader.applied() });
                }
            }
        }
    }

    /// See [`Source::counts_while_away`].
    pub fn counts_while_away(&self) -> bool {
        self.source.counts_while_away()
    }

    /// Returns false if a position is known to belong to another history. See [`Source::is_known`].
    pub fn knows(&self, position: u64) -> bool {
        self.source.is_known(position)
    }

    /// Returns the newest position if no position above it belongs to this history. See [`Source::newest`].
    pub fn newest(&self) -> Option<u64> {
        self.source.newest()
    }

    /// Reads objects of a state that the cache does not know any more from the source.
    ///
    /// # Errors
    /// [`SourceError::Compacted`] if the source does not know the position either.
    pub async fn stored_at(&self, ty: &Arc<ResourceType>, read: StateRead) -> Result<StoredState, SourceError> {
        self.source.read_at(ResourceType::stored_as(ty), read).await
    }

    /// Returns the id of the source's history, see [`Source::history`].
    pub fn history(&self) -> Option<u64> {
        self.source.history()
    }

    /// Returns the newest revision that the storage has committed; `None` if it does not respond in time.
    pub async fn committed(&self, ty: &Arc<ResourceType>) -> Option<u64> {
        let deadline = Instant::now() + FRESH_WAIT;
        match timeout_at(deadline, self.source.current(ty)).await.ok()? {
            Ok(newest) | Err(SourceError::Restored { newest }) => Some(newest),
            Err(_) => None,
        }
    }

    /// Returns the current time on the clock of all caches, for [`Reader::hold`].
    #[must_use]
    pub fn now(&self) -> Time {
        Time(self.started.elapsed())
    }

    /// Returns true if the type's cache was started. No request has written objects of a type without one.
    pub fn is_started(&self, ty: &ResourceType) -> bool {
        self.all.lock().running.contains_key(ty.cache_id())
    }

    /// Returns the counters of every started cache, by type id.
    #[must_use]
    pub fn stats(&self) -> Vec<(String, CacheStats)> {
        let running = self.all.lock().running.clone();
        running.into_iter().map(|(id, running)| (id, running.reader().stats())).collect()
    }

    /// Returns the caches that their source does not keep up to date: its stream failed, or a task panicked.
    #[must_use]
    pub fn down(&self) -> Vec<DownCache> {
        let all = &*self.all.lock();
        let down = all.running.iter().filter_map(|(id, running)| {
            let since = running.health.failing_for()?;
            Some(DownCache { resource: id.clone(), since, is_filled: 0 < running.reader().applied() })
        });
        down.collect()
    }

    /// Starts the type's cache without waiting for its state.
    pub fn start(&self, ty: &Arc<ResourceType>) {
        let _ = self.started(ty);
    }

    /// Returns the caches that have a state, with their types.
    pub fn filled(&self, registry: &Registry) -> Vec<(Arc<ResourceType>, Reader)> {
        let all = &*self.all.lock();
        let running = all.running.iter().map(|(id, running)| (registry.by_id(id), running.readable()));
        running.filter_map(|(ty, reader)| Some((ty?, reader?))).collect()
    }

    /// Returns the type's cache as far as it is; `None` if it has no state.
    pub fn current(&self, ty: &ResourceType) -> Option<Reader> {
        self.all.lock().running.get(ty.cache_id())?.readable()
    }

    /// True if the type's cache has a state.
    pub fn is_filled(&self, ty: &ResourceType) -> bool {
        self.current(ty).is_some()
    }

    /// Returns the number of objects in the type's cache; zero without one.
    pub fn count(&self, ty: &ResourceType) -> usize {
        self.all.lock().running.get(ty.cache_id()).map_or(0, |running| running.reader().count())
    }

    /// Returns for how long the type's cache has not been kept up to date; `None` if it is.
    pub fn down_for(&self, ty: &ResourceType) -> Option<Duration> {
        self.all.lock().running.get(ty.cache_id())?.health.failing_for()
    }

    /// True if the type's cache has a state, and its stream works and has delivered something within `silence`. Counts as use of
    /// the cache.
    pub fn is_followed(&self, ty: &Arc<ResourceType>, silence: Duration) -> bool {
        let now = self.now();
        self.started(ty).is_some_and(|running| running.readable().is_some() && running.health.is_heard(now, silence))
    }

    /// Ends the caches that no watch has used, and no read for `idle`. Those of types that define types stay.
    pub fn expire(&self, registry: &Registry, idle: Duration) {
        let defines = |id: &String| registry.by_id(id).is_some_and(|ty| ty.defines_types);
        let ended: Vec<_> = {
            let all = &mut *self.all.lock();
            let is_idle = |running: &RunningCache| {
                idle <= running.used.lock().elapsed() && running.reader().stats().watchers() == 0
            };
            all.running.extract_if(.., |id, running| !defines(id) && is_idle(running)).collect()
        };
        for (id, running) in &ended {
            tracing::info!(resource = id.as_str(), "idle cache ended");
            running.stop();
        }
    }

    /// Returns the bytes that were evicted with events of all types since the start.
    #[must_use]
    pub fn bytes_gone(&self) -> u64 {
        self.total.bytes_gone()
    }

    /// Returns true once [`Self::shut_down`] was called.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.all.lock().stopped
    }

    /// Ends all watches cleanly and all tasks. Reads of the last states still work.
    pub fn shut_down(&self) {
        let all = &mut *self.all.lock();
        all.stopped = true;
        all.running.values().for_each(RunningCache::stop);
    }

    /// Waits until everything is saved that the caches applied before [`Self::shut_down`].
    pub async fn saved(&self) {
        if let Some(folder) = &self.saved {
            folder.idle().await;
        }
    }

    /// Ends the caches of types that `registry` does not have any more, or has redefined: their watches end cleanly,
    /// and their memory is freed with their last reader.
    pub fn retain(&self, registry: &Registry) {
        let now = Instant::now();
        let defined_at = |id: &String| registry.by_id(id).map(|ty| ty.defined_at);
        // Collected first, so that tasks are stopped and readers dropped outside the lock.
        let ended: Vec<_> = {
            let All { running, defined, retired, .. } = &mut *self.all.lock();
            let custom = registry.iter().filter(|ty| ty.custom.is_some());
            let before =
                std::mem::replace(defined, custom.map(|ty| (ty.cache_id().to_owned(), ty.defined_at)).collect());
            retired.retain(|retired| now < retired.since + RETIRED_KEPT);
            let gone = before.into_iter().filter(|(id, at)| defined.get(id) != Some(at));
            retired.extend(gone.map(|(id, defined_at)| RetiredType { id, defined_at, since: now }));
            running.extract_if(.., |id, running| defined_at(id) != Some(running.defined_at)).collect()
        };
        ended.iter().for_each(|(_, running)| running.stop());
    }

    async fn listed(&self, ty: &Arc<ResourceType>, deadline: Instant) -> Result<Reader, FreshnessError> {
        let Some(running) = self.started(ty) else { return Err(self.stopped(ty).into()) };
        let reader = running.reader();
        if 0 < reader.applied() && (!reader.is_closed() || running.is_stopped()) && !running.health.is_lost() {
            return Ok(reader);
        }
        let listed = async {
            tokio::select! {
                biased;
                listed = running.listed() => Ok(listed),
                failure = self.not_converted(ty) => Err(failure),
            }
        };
        match timeout_at(deadline, listed).await {
            Ok(Ok(Some(reader))) => Ok(reader),
            Ok(Ok(None)) => Err(self.stopped(ty).into()),
            Ok(Err(failure)) => Err(failure.into()),
            Err(_) => {
                let (resource, since) = (ty.id().to_owned(), running.since.elapsed());
                Err(CacheNotReady { resource, since, stopped: false, lost: running.health.is_lost() }.into())
            }
        }
    }

    /// Waits until a webhook that fills the cache fails.
    async fn not_converted(&self, ty: &Arc<ResourceType>) -> SourceError {
        if ty.converter.is_some()
            && let Err(failure @ SourceError::Conversion(_)) = self.source.confirmed(ty).await
        {
            return failure;
        }
        pending().await
    }

    /// Returns the type's cache, started if necessary; `None` if it cannot be started any more.
    fn started(&self, ty: &Arc<ResourceType>) -> Option<RunningCache> {
        let all = &mut *self.all.lock();
        if let Some(running) = all.running.get(ty.cache_id()).filter(|running| running.defined_at >= ty.defined_at) {
            // A request with an earlier definition would misread entries cached for a later one.
            *running.used.lock() = Instant::now();
            return (running.defined_at == ty.defined_at).then(|| running.clone());
        }
        let is_retired =
            |retired: &RetiredType| (retired.id.as_str(), retired.defined_at) == (ty.cache_id(), ty.defined_at);
        if all.stopped || all.retired.iter().any(is_retired) {
            return None;
        }
        let used = Arc::new(Mutex::new(Instant::now()));
        let (stop, health) = (watch::Sender::new(false), Arc::<StreamHealth>::default());
        let reader = task::start(task::Tasks {
            source: Arc::clone(&self.source),
            // Those of a converter have positions of the stored type's history, and members of their own.
            ty: Arc::clone(if ty.converter.is_some() { ty } else { ResourceType::stored_as(ty) }),
            limits: self.limits.clone(),
            total: self.total.clone(),
            started: self.started,
            stop: stop.subscribe(),
            health: Arc::clone(&health),
            saved: self.saved.clone(),
        });
        let running = RunningCache { reader, health, since: Instant::now(), used, defined_at: ty.defined_at, stop };
        let outdated = all.running.insert(ty.cache_id().to_owned(), running.clone());
        outdated.iter().for_each(RunningCache::stop);
        Some(running)
    }

    fn stopped(&self, ty: &Arc<ResourceType>) -> CacheNotReady {
        let (resource, since) = (ty.id().to_owned(), Duration::ZERO);
        CacheNotReady { resource, since, stopped: self.is_stopped(), lost: false }
    }
}

impl RunningCache {
    fn reader(&self) -> Reader {
        self.reader.borrow().clone()
    }

    /// Returns the reader if it has a state that may be read.
    fn readable(&self) -> Option<Reader> {
        Some(self.reader()).filter(|reader| 0 < reader.applied() && !self.health.is_lost())
    }

    /// Returns the reader once it is listed and open; `None` once the tasks have ended.
    async fn listed(&self) -> Option<Reader> {
        let mut readers = self.reader.clone();
        loop {
            self.health.history().await;
            let reader = readers.borrow_and_update().clone();
            if reader.reached(0).await.is_ok() && !reader.is_closed() {
                return Some(reader);
            }
            // Closed: the tasks either end, or restart with another reader.
            readers.changed().await.ok()?;
        }
    }

    fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    fn stop(&self) {
        self.stop.send_replace(true);
    }
}

impl Drop for Caches {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Time for which a type with a deleted definition is remembered: longer than any request is in flight. Memory: some
/// 100 bytes each.
const RETIRED_KEPT: Duration = Duration::from_secs(120);

/// Pause between two progress requests while a read waits for a position, as in kube-apiserver.
const PROGRESS_PAUSE: Duration = Duration::from_millis(100);
