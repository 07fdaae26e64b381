//! Reads of a cache: states, single objects, exact positions, and new cursors.
//!
//! INVARIANT: a reader changes only the set of watchers, the kept positions and the cached exact states.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use informer_core::{Objects, Time};

use crate::{
    cache::{CacheCore, ExpiredPosition},
    cursor::{Cursor, CursorStart},
    entry::{Entry, Schema},
    epoch::{Epoch, FrozenState, Pin, WindowHolder, largest_owner},
    event::{ChangeKind, Event},
    filter::Filter,
    interest::Waiters,
    limits::{EVENTS_PER_LOCK, EXACT_STATES_KEPT},
    nodes::NodeState,
    stats::CacheStats,
    waiting::PositionWait,
};

/// One consistent state: of all objects, or of those that a filter can match. Holds no lock. While it lives, the window
/// keeps the events after it, within [`Limits::snapshot_bytes_max`](crate::Limits::snapshot_bytes_max).
#[derive(Clone, Debug)]
pub struct CacheSnapshot {
    /// The objects.
    pub objects: Objects<Entry>,
    /// The resourceVersion of a LIST of this state.
    pub resource_version: u64,
    /// Number of the epoch it belongs to.
    pub epoch: u64,
    pin: Arc<Pin>,
}

impl CacheSnapshot {
    /// `number` is the number of the newest event that `objects` contain.
    fn new(objects: Objects<Entry>, resource_version: u64, number: u64, epoch: &Arc<Epoch>, owner: u64) -> Self {
        Self { objects, resource_version, epoch: epoch.number, pin: epoch.pin(number, owner) }
    }

    /// Returns true if the snapshot became too expensive to keep: the server must abort its reader's response, never
    /// end it cleanly.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.pin.is_cut()
    }

    /// Returns the id of its epoch, unique in this process across all caches.
    #[must_use]
    pub fn history_id(&self) -> u64 {
        self.pin.epoch().id
    }

    /// Prepares it for incremental reads: by a stream if `is_stream`, else for a LIST.
    pub(crate) fn freeze(self, is_stream: bool) -> FrozenState {
        FrozenState::new(self.objects, self.resource_version, self.pin, is_stream)
    }

    /// Returns the number of the newest event that the objects contain.
    pub(crate) fn number(&self) -> u64 {
        self.pin.position()
    }

    pub(crate) fn history(&self) -> &Arc<Epoch> {
        self.pin.epoch()
    }
}

/// Reads the cache. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Reader {
    shared: Arc<CacheCore>,
    /// Owner of the positions that it holds and the exact states that it caches.
    owner: u64,
}

impl Reader {
    pub(crate) const fn new(shared: Arc<CacheCore>) -> Self {
        Self { shared, owner: 0 }
    }

    /// Lets the positions that the reader holds, and the exact states that it caches, belong to `owner`: when there are too
    /// many, the owner of most of them loses one.
    #[must_use]
    pub fn owned_by(self, owner: u64) -> Self {
        Self { owner, ..self }
    }

    /// Returns the schema of the cache.
    #[must_use]
    pub fn schema(&self) -> &Arc<Schema> {
        &self.shared.schema
    }

    /// Returns the newest applied position; zero before the first listing. Cost: one load.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.shared.waiting.applied()
    }

    /// Returns true once the cache applies no more changes: its writer closed it or was dropped. Cost: one load.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.waiting.is_closed()
    }

    /// Returns the watchers of now, to be woken part by part. One that parks meanwhile may be missed. Cost: a pointer for
    /// each namespace, name and node that is watched.
    #[must_use]
    pub fn watchers(&self) -> ParkedWatchers {
        ParkedWatchers { shared: Arc::clone(&self.shared), buckets: self.shared.state.read().buckets.everybody() }
    }

    /// Returns the oldest position that a watch of all objects can resume from.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        self.shared.state.read().window.log.lost()
    }

    /// Returns the current state. Cost: a clone of the map under the lock, and one pin.
    #[must_use]
    pub fn snapshot(&self) -> CacheSnapshot {
        let state = self.shared.state.read();
        CacheSnapshot::new(state.objects.clone(), state.applied, state.events, &state.epoch, self.owner)
    }

    /// Returns the current state of the objects that `filter` can match: those of the node that it names, if nodes are read
    /// often, else all. Cost: as [`Self::snapshot`], and for a node some 0.6 µs for each change since the last such read,
    /// but at most a millisecond. The first such reads index the objects, a millisecond each; the index goes when there was
    /// none between two trims.
    #[must_use]
    pub fn selected(&self, filter: &Filter) -> CacheSnapshot {
        filter.node().and_then(|node| self.of_node(node)).unwrap_or_else(|| self.snapshot())
    }

    fn of_node(&self, node: &str) -> Option<CacheSnapshot> {
        let place = self.shared.schema.node_field?;
        let NodeState { objects, resource_version, number, epoch } =
            self.shared.nodes.read(&self.shared.state, place, node)?;
        // Pinned only while the window still has all events after it.
        let state = self.shared.state.read();
        let is_current = state.epoch.id == epoch && state.window.log.evicted() <= number;
        is_current.then(|| CacheSnapshot::new(objects, resource_version, number, &state.epoch, self.owner))
    }

    /// Returns the number of objects. Cost: one lock.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shared.state.read().objects.len()
    }

    /// Returns one object of the current state.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<Entry>> {
        self.shared.state.read().objects.get(key).cloned()
    }

    /// Returns the state at `resource_version`, with all changes of that revision, or at the greatest position below
    /// it. For a position ahead of [`Self::applied`] it returns the current state; the caller waits first. Cost: undoing the events since, about
    /// 0.3 µs each; the last `EXACT_STATES_KEPT` results are cached.
    ///
    /// # Errors
    /// [`ExpiredPosition`] for a position older than the window or the epoch.
    pub fn at(&self, resource_version: u64) -> Result<CacheSnapshot, ExpiredPosition> {
        let now = self.snapshot();
        if now.resource_version <= resource_version {
            return Ok(now);
        }
        let known = self.shared.exact.lock().get(now.epoch, resource_version);
        let objects = known.map_or_else(|| self.undo(&now, resource_version), Ok)?;
        // Pinned under the lock and only while the window still reaches the position: a cached state may be older.
        let state = self.shared.state.read();
        let oldest = state.window.log.lost();
        if state.epoch.number != now.epoch || resource_version < oldest {
            return Err(ExpiredPosition { requested: resource_version, oldest });
        }
        let number = state.window.log.number_at(resource_version);
        Ok(CacheSnapshot::new(objects, resource_version, number, &state.epoch, self.owner))
    }

    /// Returns the number of events after `resource_version`, which [`Self::at`] has to undo unless the result is
    /// cached. Cost: two binary searches.
    #[must_use]
    pub fn events_after(&self, resource_version: u64) -> usize {
        let log = &self.shared.state.read().window.log;
        log.after(log.number_at(resource_version)).len()
    }

    /// Returns all events after `base` up to the time of the call at least, oldest first. Cost: one reference count for
    /// each, at most [`EVENTS_PER_LOCK`] under one lock.
    ///
    /// # Errors
    /// [`ExpiredPosition`] if some of them were evicted, or the epoch of `base` has ended.
    pub fn events(&self, base: &CacheSnapshot) -> Result<Vec<Arc<Event>>, ExpiredPosition> {
        let newest = self.snapshot().number();
        let mut number = base.number();
        let mut events = Vec::new();
        while number < newest {
            let state = self.shared.state.read();
            let log = &state.window.log;
            if state.epoch.number != base.epoch || number < log.evicted() {
                return Err(ExpiredPosition { requested: base.resource_version, oldest: log.lost() });
            }
            events.extend(log.after(number).take(EVENTS_PER_LOCK).cloned());
            number = events.last().map_or(newest, |last: &Arc<Event>| last.number);
        }
        Ok(events)
    }

    /// Undoes the events after `resource_version`, newest first, and caches the result.
    fn undo(&self, now: &CacheSnapshot, resource_version: u64) -> Result<Objects<Entry>, ExpiredPosition> {
        let mut objects = now.objects.clone();
        let mut number = now.number();
        loop {
            let batch: Vec<Arc<Event>> = {
                let state = self.shared.state.read();
                let oldest = state.window.log.lost();
                // The epoch may have changed, or the position been evicted, since the last batch.
                if state.epoch.number != now.epoch || resource_version < oldest {
                    return Err(ExpiredPosition { requested: resource_version, oldest });
                }
                let log = &state.window.log;
                log.back_from(number, log.number_at(resource_version)).take(EVENTS_PER_LOCK).cloned().collect()
            };
            let Some(last) = batch.last() else { break };
            number = last.number - 1;
            for event in &batch {
                match (event.kind, &event.previous) {
                    (ChangeKind::Updated | ChangeKind::Deleted, Some(previous)) => {
                        objects.insert(Arc::clone(previous));
                    }
                    (ChangeKind::Created | ChangeKind::Updated | ChangeKind::Deleted, _) => {
                        objects.remove(informer_core::KeyedObject::key(&*event.object));
                    }
                }
            }
        }
        self.keep(now, resource_version, &objects);
        Ok(objects)
    }

    /// Returns a state in an ended epoch of its own: it keeps no events in the window, and the cache's evictions never
    /// cut its readers. For responses about objects that are being deleted. Memory: the objects that only this state
    /// still has, for at most [`Limits::read_time_max`](crate::Limits::read_time_max) and one more trim.
    #[must_use]
    pub fn detached(&self, objects: Objects<Entry>, resource_version: u64) -> CacheSnapshot {
        let (epoch, events) = {
            let state = self.shared.state.read();
            (Epoch::new(state.epoch.number), state.events)
        };
        epoch.end();
        self.shared.retired.lock().push(Arc::downgrade(&epoch));
        CacheSnapshot::new(objects, resource_version, events, &epoch, self.owner)
    }

    /// Caches an exact state, unless its epoch has ended.
    pub(crate) fn keep(&self, now: &CacheSnapshot, resource_version: u64, objects: &Objects<Entry>) {
        let _dropped_outside = {
            let exact = &mut *self.shared.exact.lock();
            // Checked under this lock: the writer ends an epoch before it takes the lock to clear its exact states.
            let is_over = now.history().ended();
            if is_over { None } else { exact.put(now.epoch, resource_version, objects.clone(), self.owner) }
        };
    }

    /// Keeps `resource_version` readable by [`Self::at`] until `until`, within
    /// [`Limits::snapshot_bytes_max`](crate::Limits::snapshot_bytes_max): for the next page of a listing.
    pub fn hold(&self, resource_version: u64, until: Time) {
        let state = self.shared.state.read();
        // Holding an evicted position would only lengthen the window.
        if state.window.log.lost() <= resource_version {
            state.epoch.hold(state.window.log.number_at(resource_version), until, self.owner);
        }
    }

    /// Returns at most `limit` of the positions whose later events are kept in the window, the oldest first, each with the
    /// number of these events; and the number of all such positions. `now` is on the clock of [`Self::hold`]. Cost: visits
    /// each returned position, under the lock.
    #[must_use]
    pub fn holders(&self, now: Time, limit: usize) -> (Vec<(WindowHolder, u64)>, usize) {
        let state = self.shared.state.read();
        let (holders, count) = state.epoch.holders(now, limit);
        let with_events = |holder: WindowHolder| (holder, state.events.saturating_sub(holder.number));
        (holders.into_iter().map(with_events).collect(), count)
    }

    /// Opens a cursor.
    ///
    /// # Errors
    /// [`ExpiredPosition`] if the changes after the start were evicted.
    pub fn cursor(&self, start: CursorStart, filter: Arc<Filter>) -> Result<Cursor, ExpiredPosition> {
        Cursor::open(Arc::clone(&self.shared), start, filter)
    }

    /// Resolves once the cache is listed and has applied `resource_version`. Cancel safe.
    #[must_use]
    pub fn reached(&self, resource_version: u64) -> PositionWait {
        PositionWait::new(Arc::clone(&self.shared.waiting), resource_version)
    }

    /// Returns how far back the window reaches, as of the last change or trim; `None` before the first eviction. The
    /// server sends bookmarks at least every third of it.
    #[must_use]
    pub fn covers(&self) -> Option<Duration> {
        self.shared.state.read().window.covers()
    }

    /// Returns counters and gauges.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let counters = &self.shared.counters;
        let state = self.shared.state.read();
        CacheStats {
            objects: state.objects.len(),
            object_bytes: state.object_bytes,
            applied: state.applied,
            epochs: state.epoch.number,
            events: state.events,
            window_events: state.window.log.len(),
            window_bytes: state.window.bytes(),
            window_covers: state.window.covers(),
            buckets: state.buckets.len(),
            watchers_initial: counters.initial.load(Ordering::Relaxed),
            watchers_catching_up: counters.catching_up.load(Ordering::Relaxed),
            watchers_parked: counters.parked.load(Ordering::Relaxed),
            watchers_live: counters.live.load(Ordering::Relaxed),
            watchers_expired: counters.expired.load(Ordering::Relaxed),
            lists_cut_for_bytes: counters.cuts.lists_for_bytes.load(Ordering::Relaxed),
            lists_cut_for_time: counters.cuts.lists_for_time.load(Ordering::Relaxed),
            streams_cut_for_bytes: counters.cuts.streams_for_bytes.load(Ordering::Relaxed),
            streams_cut_for_time: counters.cuts.streams_for_time.load(Ordering::Relaxed),
            selector_evaluations: self.shared.filters.evaluations(),
        }
    }
}

/// Watchers that wait for the next event of a cache. Those of one namespace, name or node are woken together.
#[derive(Debug)]
pub struct ParkedWatchers {
    shared: Arc<CacheCore>,
    buckets: Vec<Arc<Waiters>>,
}

impl ParkedWatchers {
    /// Wakes one of `parts` equal parts of those that are left: all, if it is 1. Cost: one waker each.
    pub fn wake_part(&mut self, parts: usize) {
        let left = self.buckets.len() - self.buckets.len().div_ceil(parts.max(1));
        self.shared.interest.touch(&mut self.buckets.split_off(left));
    }
}

/// Exact states by epoch and position, least recently used first.
#[derive(Debug, Default)]
pub(crate) struct Exact {
    states: VecDeque<ExactState>,
}

#[derive(Debug)]
struct ExactState {
    epoch: u64,
    position: u64,
    objects: Objects<Entry>,
    /// The first one to read it.
    owner: u64,
}

impl Exact {
    fn get(&mut self, epoch: u64, position: u64) -> Option<Objects<Entry>> {
        let at = self.states.iter().position(|state| (state.epoch, state.position) == (epoch, position))?;
        let state = self.states.remove(at)?;
        let objects = state.objects.clone();
        self.states.push_back(state);
        Some(objects)
    }

    /// Returns the state to drop without the lock: the least recently used one of the owner of most of them.
    fn put(&mut self, epoch: u64, position: u64, objects: Objects<Entry>, owner: u64) -> Option<Objects<Entry>> {
        if self.get(epoch, position).is_some() {
            // Another reader has computed this state concurrently.
            return Some(objects);
        }
        self.states.push_back(ExactState { epoch, position, objects, owner });
        if self.states.len() <= EXACT_STATES_KEPT {
            return None;
        }
        let largest = largest_owner(self.states.iter().map(|state| state.owner));
        let place = self.states.iter().position(|state| state.owner == largest)?;
        self.states.remove(place).map(|state| state.objects)
    }

    /// Returns the states to drop without the lock.
    pub(crate) fn remove_below(&mut self, lost: u64) -> Vec<Objects<Entry>> {
        let (gone, retained) = std::mem::take(&mut self.states).into_iter().partition(|state| state.position < lost);
        self.states = retained;
        let gone: VecDeque<_> = gone;
        gone.into_iter().map(|state: ExactState| state.objects).collect()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    /// Returns the states to drop without the lock.
    pub(crate) fn clear(&mut self) -> Vec<Objects<Entry>> {
        self.remove_below(u64::MAX)
    }
}
