//! The cache of one resource type: one writer, any number of readers, one state behind one lock.
//!
//! INVARIANT: the writer holds the state lock to apply one event and evict at most [`EVICTED_PER_LOCK`] events, to
//! append the events of one batch, which it prepared without the lock, or to swap in a relisted state. A reader holds
//! it to clone the map, to join or leave a bucket, or to take at most
//! [`EVENTS_PER_LOCK`](crate::limits::EVENTS_PER_LOCK) `Arc<Event>`s. Selectors, encoding, wake-ups and large drops
//! run without it.
//!
//! INVARIANT (lock order): a thread that takes a second lock of this crate does so in one of these orders. Debug builds
//! check it (`sync.rs`).
//!
//! 1. An index of `Backlog` or `NodeIndexes`, then `CacheCore::state` for reading (`View::with`).
//! 2. `CacheCore::state` for reading or writing, then `Epoch::needs` (pin, hold and evict positions).
//! 3. `CacheCore::state` for reading, then the places of one `Waiters` (`look_or_wait`).
//!
//! No code holds three locks. `CacheCore::state` is never locked recursively, not even for reading, because a waiting
//! writer would turn that into a deadlock. All other locks are leaves that are taken while no lock is held:
//! `CacheCore::exact`, `CacheCore::retired`, the table of `Filters`, the readers of `AppliedPosition`, the rounds of
//! `Interest`, and the objects of a `PinnedState`. No lock is taken under a leaf, under `Epoch::needs` or under the
//! places of a `Waiters`.
//!
//! INVARIANT: no waker is called or dropped, and no object map or exact state is freed, under any of these locks.
//! Functions return such values, or keep them in `_dropped_outside`, so that they are freed after the lock.

use std::{
    mem,
    sync::{Arc, Weak, atomic::AtomicU64},
};

use informer_core::{KeyedObject, Objects, Time};

use crate::{
    backlog::Backlog,
    buckets::{BUCKETS_PER_EVENT, Buckets, Scope},
    entry::{Entry, Schema},
    epoch::{CutCounts, CutReader, Epoch},
    event::{Change, ChangeKind, Event},
    filter::Filters,
    interest::{BucketWaker, Interest, Waiters},
    limits::{EVICTED_PER_LOCK, Limits, Total},
    nodes::NodeIndexes,
    reader::{Exact, Reader},
    sync::{Mutex, RwLock},
    waiting::AppliedPosition,
    window::{Log, Window},
};

/// The requested position is older than the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {requested} ({oldest})")]
pub struct ExpiredPosition {
    /// The requested position.
    pub requested: u64,
    /// The oldest position a watch can resume from.
    pub oldest: u64,
}

/// A change is older than the last applied one: the cache needs a relist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("change at {got} does not follow {applied}")]
pub struct OutOfOrder {
    /// Position of the change.
    pub got: u64,
    /// Newest applied position.
    pub applied: u64,
}

/// Creates an empty cache: its writer, the [`BucketWaker`] that wakes its watchers, and a reader. Reads are empty until the
/// first [`Writer::reset`].
#[must_use]
pub fn cache(schema: Arc<Schema>, limits: Limits) -> (Writer, BucketWaker, Reader) {
    cache_within(schema, limits, Total::default())
}

/// Like [`cache`], for one of several caches that share the byte bound of `total`.
#[must_use]
pub fn cache_within(schema: Arc<Schema>, limits: Limits, total: Total) -> (Writer, BucketWaker, Reader) {
    let state = CacheState {
        objects: Objects::new(),
        object_bytes: 0,
        window: Window::new(0, 0, total.clone()),
        buckets: Buckets::default(),
        applied: 0,
        epoch: Epoch::new(0),
        events: 0,
    };
    let shared = Arc::new(CacheCore {
        schema,
        limits,
        state: RwLock::new(state),
        interest: Arc::default(),
        waiting: Arc::default(),
        backlog: Backlog::default(),
        nodes: NodeIndexes::default(),
        exact: Mutex::default(),
        counters: Counters::default(),
        filters: Filters::default(),
        retired: Mutex::default(),
    });
    let waking = BucketWaker::new(Arc::clone(&shared.interest));
    let writer = Writer { shared: Arc::clone(&shared), total, touched: Vec::new(), gone: ReleasedState::default() };
    (writer, waking, Reader::new(shared))
}

/// Shared by the writer, the readers and the cursors.
pub(crate) struct CacheCore {
    pub(crate) schema: Arc<Schema>,
    pub(crate) limits: Limits,
    pub(crate) state: RwLock<CacheState>,
    pub(crate) interest: Arc<Interest>,
    pub(crate) waiting: Arc<AppliedPosition>,
    pub(crate) backlog: Backlog,
    /// The objects of `state` by node.
    pub(crate) nodes: NodeIndexes,
    pub(crate) exact: Mutex<Exact>,
    pub(crate) counters: Counters,
    /// Filters of the open watches.
    pub(crate) filters: Filters,
    /// Epochs that ended, for as long as a reader still holds one.
    pub(crate) retired: Mutex<Vec<Weak<Epoch>>>,
}

/// The state behind the `CacheCore::state` lock.
pub(crate) struct CacheState {
    pub(crate) objects: Objects<Entry>,
    /// Sum of [`Entry::cost`] over `objects`.
    pub(crate) object_bytes: usize,
    pub(crate) window: Window,
    pub(crate) buckets: Buckets,
    /// Newest applied position. Copied to [`AppliedPosition`] after the lock is released.
    pub(crate) applied: u64,
    pub(crate) epoch: Arc<Epoch>,
    /// Events applied since the cache was created: the number of the newest one.
    pub(crate) events: u64,
}

/// Watchers by state.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) initial: AtomicU64,
    pub(crate) catching_up: AtomicU64,
    pub(crate) parked: AtomicU64,
    pub(crate) live: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) cuts: CutCounts,
}

impl CacheState {
    /// Returns the events that a watcher of `scope` reads, or `None` if the scope has no bucket.
    pub(crate) fn log(&self, scope: &Scope) -> Option<&Log> {
        match scope {
            Scope::All => Some(&self.window.log),
            Scope::Namespace(_) | Scope::Name(_) | Scope::Node(_) => self.buckets.get(scope).map(|bucket| &bucket.log),
        }
    }

    /// Updates the objects and the position. Returns `None` if no object changed.
    fn update(&mut self, change: Change, now: Time) -> Result<Option<Arc<Event>>, OutOfOrder> {
        let got = change.resource_version();
        check_order(&change, self.applied)?;
        // Only a change at the applied revision can repeat one: the look-up is saved for all others.
        let may_repeat = got == self.applied;
        self.applied = self.applied.max(got);
        Ok(apply_to(&mut self.objects, change, self.events + 1, may_repeat, now))
    }

    /// Adds an event, whose object was taken in, to the window and the buckets; `touch` gets their waiters.
    fn append(&mut self, event: &Arc<Event>, node_field: Option<usize>, touch: impl FnMut(&Arc<Waiters>)) {
        self.events = event.number;
        let added = if event.kind == ChangeKind::Deleted { 0 } else { event.object.cost() };
        self.object_bytes = self.object_bytes + added - event.previous.as_ref().map_or(0, |previous| previous.cost());
        self.window.push(Arc::clone(event));
        self.buckets.push(event, node_field, touch);
    }

    /// Returns the number of the newest event that a reader has read: of all events at or below `position`, or, if it
    /// is given, exactly `number`.
    pub(crate) fn start(&self, position: u64, number: Option<u64>) -> Result<u64, ExpiredPosition> {
        let log = &self.window.log;
        match number {
            Some(number) if log.evicted() <= number => Ok(number),
            None if log.lost() <= position => Ok(log.number_at(position)),
            Some(_) | None => Err(self.expired(position)),
        }
    }

    /// Returns the error of a reader at `position` whose next event was evicted.
    pub(crate) fn expired(&self, position: u64) -> ExpiredPosition {
        let oldest = self.window.log.lost();
        // A reader may have read the first changes of the revision that was evicted last, and no resume begins there.
        ExpiredPosition { requested: position.min(oldest.saturating_sub(1)), oldest }
    }

    /// Ends a turn of the writer under the lock: evicts events.
    fn close_turn(&mut self, core: &CacheCore, now: Time, gone: &mut ReleasedState) -> AppendOutcome {
        let more = self.evict(&core.limits, core.schema.node_field, now, gone);
        AppendOutcome { applied: self.applied, lost: self.window.log.lost(), more }
    }

    /// Evicts events until every bound holds, at most `EVICTED_PER_LOCK` of them. Events that open snapshots need are
    /// evicted only when the snapshot bounds demand it. Returns true if more events may be due.
    fn evict(&mut self, limits: &Limits, node_field: Option<usize>, now: Time, gone: &mut ReleasedState) -> bool {
        self.epoch.look(now, limits);
        for _ in 0..EVICTED_PER_LOCK {
            let oldest = self.window.log.oldest().filter(|_| !self.window.fits(limits, now));
            let may_go = oldest.map(|event| event.number).is_some_and(|oldest| {
                // Above the snapshot bounds the slowest readers are cut; below, their events stay.
                self.epoch.let_go(oldest, !self.window.fits_snapshots(limits), now, &mut gone.readers)
            });
            let Some(event) = may_go.then(|| self.window.evict()).flatten() else {
                self.window.measure(now);
                return false;
            };
            self.buckets.evict(&event, node_field);
            gone.events.push(event);
        }
        true
    }
}

/// Refuses a change below the applied position. Progress is never late.
fn check_order(change: &Change, applied: u64) -> Result<(), OutOfOrder> {
    let got = change.resource_version();
    if got < applied && !matches!(change, Change::Progress(_)) { Err(OutOfOrder { got, applied }) } else { Ok(()) }
}

/// Applies `change` to `objects`. Returns its event with this number, or `None` if no object changed.
fn apply_to(
    objects: &mut Objects<Entry>,
    change: Change,
    number: u64,
    may_repeat: bool,
    now: Time,
) -> Option<Arc<Event>> {
    match change {
        Change::Put(entry) => {
            let version = entry.resource_version();
            if may_repeat && objects.get(entry.key()).is_some_and(|known| known.resource_version() == version) {
                return None;
            }
            let previous = objects.insert(Arc::clone(&entry));
            Some(Arc::new(Event::put(number, entry, previous, now)))
        }
        Change::Deleted { key, resource_version } => {
            let last = objects.remove(&key)?;
            Some(Arc::new(Event::deleted(number, last, resource_version, now)))
        }
        Change::Progress(_) => None,
    }
}

/// The only writer. Dropping it closes the cache, and open watches end cleanly.
pub struct Writer {
    shared: Arc<CacheCore>,
    total: Total,
    /// Buffer reused between events; empty between calls.
    touched: Vec<Arc<Waiters>>,
    gone: ReleasedState,
}

/// Evicted events and cut readers, to be freed without the state lock.
#[derive(Default)]
struct ReleasedState {
    events: Vec<Arc<Event>>,
    readers: Vec<CutReader>,
}

/// Result of appending events to the state.
struct AppendOutcome {
    applied: u64,
    lost: u64,
    /// True if more events may have to be evicted.
    more: bool,
}

impl Writer {
    /// Starts a new epoch with the state listed at `resource_version`: drops the window and the exact states, ends
    /// open watches cleanly, and makes resumes below it fail with [`ExpiredPosition`]. Cost: one wake-up per watcher.
    pub fn reset(&mut self, objects: Objects<Entry>, resource_version: u64, now: Time) {
        let (number, events) = {
            let state = self.shared.state.read();
            (state.epoch.number + 1, state.events)
        };
        let mut window = Window::new(resource_version, events, self.total.clone());
        window.measure(now);
        let buckets = Buckets::default();
        let object_bytes = objects.iter().map(|entry| entry.cost()).sum();
        let epoch = Epoch::new(number);
        let old = self.shared.interest.publish(&self.shared.state, &mut self.touched, |state, touched| {
            state.epoch.end();
            // Collected from the old buckets: their watchers must learn of the end.
            touched.extend(state.buckets.everybody());
            let applied = resource_version;
            mem::replace(state, CacheState { objects, object_bytes, window, buckets, applied, epoch, events })
        });
        // Initial streams of the old epoch end now; LISTs keep its objects until `read_time_max`.
        old.epoch.release_streams();
        self.shared.retired.lock().push(Arc::downgrade(&old.epoch));
        drop(old);
        let _dropped_outside = self.shared.exact.lock().clear();
        self.shared.nodes.clear();
        // After the state was replaced and its lock released: a read that wakes up here must see the new state.
        self.shared.waiting.reach(resource_version);
    }

    /// Applies one change, in commit order. Returns the event, or `None` if no object changed: for progress, for the
    /// deletion of a missing object, and for a put of the version that the object has already. Cost: O(log n) and four
    /// look-ups, independent of the number of watchers.
    ///
    /// Changes of one revision may come one by one; open watches get each of them once. But positions are revisions,
    /// and the first of the changes already moves the cache to theirs: a bookmark or a list between two of them, and a
    /// resume from there, does not have the later ones. Where the whole revision is known, [`Self::apply_batch`] has
    /// no such gap.
    ///
    /// # Errors
    /// [`OutOfOrder`] if the change is older than the last one; the state is then unchanged.
    pub fn apply(&mut self, change: Change, now: Time) -> Result<Option<Arc<Event>>, OutOfOrder> {
        let Self { shared, touched, gone, .. } = self;
        let node_field = shared.schema.node_field;
        let (event, appended) = shared.interest.publish(&shared.state, touched, |state, touched| {
            let event = state.update(change, now)?;
            if let Some(event) = &event {
                state.append(event, node_field, |waiters| touched.push(Arc::clone(waiters)));
            }
            Ok((event, state.close_turn(shared, now, gone)))
        })?;
        self.finish(appended, now);
        Ok(event)
    }

    /// Applies the changes of one revision at once: no reader sees, or is given a position, between two of them, and
    /// watchers are woken once. Returns the number of events; changes like those for which [`Self::apply`] returns
    /// `None` have none. Cost: as for single changes, but only the look-ups happen under the lock that readers need:
    /// about 0.2 µs for each change. A batch of one costs the same as [`Self::apply`].
    ///
    /// # Errors
    /// [`OutOfOrder`] if the revision is older than the last one; the state is then unchanged.
    ///
    /// # Panics
    /// If the changes have different revisions.
    pub fn apply_batch<B>(&mut self, changes: B, now: Time) -> Result<usize, OutOfOrder>
    where
        B: AsRef<[Change]> + IntoIterator<Item = Change>,
    {
        let all = changes.as_ref();
        let Some(revision) = all.first().map(Change::resource_version) else { return Ok(0) };
        if all.len() == 1 {
            let events = changes.into_iter().map(|only| self.apply(only, now));
            return events.map(|event| event.map(|event| usize::from(event.is_some()))).sum();
        }
        assert!(all.iter().all(|change| change.resource_version() == revision), "a batch has one revision");
        let mut events = Vec::with_capacity(all.len());
        let Self { shared, touched, gone, .. } = self;
        // Only this writer changes the state, so it is the same when the events are appended.
        let (mut objects, applied, mut number) = {
            let state = shared.state.read();
            (state.objects.clone(), state.applied, state.events)
        };
        all.iter().try_for_each(|change| check_order(change, applied))?;
        for change in changes {
            let event = apply_to(&mut objects, change, number + 1, true, now);
            number += u64::from(event.is_some());
            events.extend(event);
        }
        let node_field = shared.schema.node_field;
        let (appended, _dropped_outside) = shared.interest.publish(&shared.state, touched, |state, touched| {
            let old = mem::replace(&mut state.objects, objects);
            state.applied = applied.max(revision);
            for event in &events {
                state.append(event, node_field, |waiters| {
                    // Most events of a batch touch the same few buckets.
                    if !touched.iter().rev().take(BUCKETS_PER_EVENT).any(|known| Arc::ptr_eq(known, waiters)) {
                        touched.push(Arc::clone(waiters));
                    }
                });
            }
            (state.close_turn(shared, now, gone), old)
        });
        self.finish(appended, now);
        Ok(events.len())
    }

    /// Called without locks after events were appended.
    fn finish(&mut self, AppendOutcome { applied, lost, more }: AppendOutcome, now: Time) {
        self.shared.waiting.reach(applied);
        self.shared.forget(&mut self.gone, lost);
        if more {
            self.evict(now);
        }
    }

    /// Evicts events until every bound holds. Releases the lock between turns so that readers can run.
    fn evict(&mut self, now: Time) {
        let Self { shared, gone, .. } = self;
        loop {
            let (lost, more) = {
                let state = &mut *shared.state.write();
                let more = state.evict(&shared.limits, shared.schema.node_field, now, gone);
                (state.window.log.lost(), more)
            };
            shared.forget(gone, lost);
            if !more {
                return;
            }
        }
    }

    /// Returns the newest applied position.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.shared.waiting.applied()
    }

    /// Returns a reader of the cache.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.shared))
    }

    /// Returns the current version of an object by its key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<Entry>> {
        self.shared.state.read().objects.get(key).cloned()
    }

    /// Evicts events that are too old. Call every few seconds while no changes arrive.
    pub fn trim(&mut self, now: Time) {
        self.evict(now);
        // Taken out of the lock: `upgrade` may leave the last reference to an epoch, whose drop frees its objects.
        let mut retired = mem::take(&mut *self.shared.retired.lock());
        retired.retain(|epoch| {
            let epoch = epoch.upgrade();
            epoch.inspect(|epoch| epoch.cut_late(now, &self.shared.limits, &mut self.gone.readers)).is_some()
        });
        self.shared.retired.lock().append(&mut retired);
        self.gone.readers.drain(..).for_each(|reader| reader.release(&self.shared.counters.cuts));
        let evicted = self.shared.state.read().window.log.evicted();
        self.shared.backlog.trim(evicted);
        self.shared.nodes.trim(evicted);
    }

    /// Closes the cache: watches end cleanly and waits fail. Reads of the last state still work.
    pub fn close(&mut self) {
        // Closed first, so that a watch that finds its epoch ended can tell that the cache was closed.
        self.shared.waiting.close();
        self.shared.interest.publish(&self.shared.state, &mut self.touched, |state, touched| {
            state.epoch.end();
            touched.extend(state.buckets.everybody());
        });
        self.shared.interest.close();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

impl CacheCore {
    /// Frees cut readers, evicted events and unreachable exact states. Called without the lock.
    fn forget(&self, gone: &mut ReleasedState, lost: u64) {
        gone.readers.drain(..).for_each(|reader| reader.release(&self.counters.cuts));
        if !gone.events.is_empty() {
            gone.events.clear();
            let _dropped_outside = self.exact.lock().remove_below(lost);
        }
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Writer({})", self.shared.schema.kind)
    }
}

impl std::fmt::Debug for CacheCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cache({} at {})", self.schema.kind, self.waiting.applied())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{ChangeKind, Draft};

    fn world(limits: Limits) -> (Writer, BucketWaker, Reader, impl Fn(u64) -> Change) {
        let (kind, api_version) = ("ConfigMap".to_owned(), "v1".to_owned());
        let schema = Arc::new(Schema { kind, api_version, builtin: true, fields: Vec::new(), node_field: None });
        let (mut writer, waking, reader) = cache(Arc::clone(&schema), limits);
        writer.reset(Objects::new(), 1, Time(Duration::ZERO));
        let put = move |version: u64| {
            let object = format!(r#"{{"metadata":{{"name":"o{}"}}}}"#, version % 7);
            Change::Put(Draft::new(&schema, object.as_bytes()).expect("an object").commit(version))
        };
        (writer, waking, reader, put)
    }

    /// Goal: one lock round evicts at most `EVICTED_PER_LOCK` events, and all due events are evicted in the end.
    /// Method: drop a snapshot that kept a thousand events.
    #[test]
    fn what_a_snapshot_kept_goes_in_turns() {
        let limits = Limits { window_events_max: 10, ..Limits::default() };
        let (mut writer, _waking, reader, put) = world(limits.clone());
        let snapshot = reader.snapshot();
        for version in 2..=1_001 {
            let event = writer.apply(put(version), Time(Duration::ZERO)).expect("in order").expect("a change");
            assert!(matches!(event.kind, ChangeKind::Created | ChangeKind::Updated));
        }
        let retained = || reader.stats().window_events;
        assert_eq!(retained(), 1_000);
        drop(snapshot);
        let mut gone = ReleasedState::default();
        let more = writer.shared.state.write().evict(&limits, None, Time(Duration::ZERO), &mut gone);
        assert_eq!((more, gone.events.len(), retained()), (true, EVICTED_PER_LOCK, 1_000 - EVICTED_PER_LOCK));
        writer.apply(put(1_002), Time(Duration::ZERO)).expect("in order");
        assert_eq!(retained(), 10, "the bound holds when a write is done");
        assert_eq!(reader.oldest(), 992);
    }

    /// Goal: an exact state is kept once, and none is kept for an ended epoch. Method: a reader stores its state again
    /// while the epoch is current, and once more after it ended.
    #[test]
    fn an_exact_state_goes_with_its_history() {
        let (mut writer, _waking, reader, put) = world(Limits::default());
        for version in 2..=9 {
            writer.apply(put(version), Time(Duration::ZERO)).expect("in order");
        }
        let before = reader.snapshot();
        let state = reader.at(5).expect("in the window").objects;
        reader.keep(&before, 5, &state);
        assert_eq!(writer.shared.exact.lock().len(), 1, "once");
        writer.reset(Objects::new(), 20, Time(Duration::ZERO));
        reader.keep(&before, 5, &state);
        assert_eq!(writer.shared.exact.lock().len(), 0);
    }

    #[test]
    fn the_bytes_of_the_objects_are_their_sum() {
        let (mut writer, _waking, reader, put) = world(Limits::default());
        let check = |writer: &Writer| {
            let sum: usize = writer.shared.state.read().objects.iter().map(|entry| entry.cost()).sum();
            assert_eq!(reader.stats().object_bytes, sum);
            sum
        };
        for version in 2..=9 {
            writer.apply(put(version), Time(Duration::ZERO)).expect("in order");
            assert!(check(&writer) > 0);
        }
        writer.apply_batch(vec![put(10), put(10)], Time(Duration::ZERO)).expect("in order");
        check(&writer);
        let listed = writer.shared.state.read().objects.clone();
        for key in listed.iter().map(|entry| entry.key().to_owned()) {
            let deletion = Change::Deleted { key, resource_version: 11 };
            writer.apply(deletion, Time(Duration::ZERO)).expect("in order");
        }
        assert_eq!(check(&writer), 0);
        writer.reset(listed, 20, Time(Duration::ZERO));
        assert!(check(&writer) > 0);
    }

    #[test]
    fn a_position_that_is_lost_keeps_nothing() {
        let (mut writer, _waking, reader, put) = world(Limits { window_events_max: 10, ..Limits::default() });
        for version in 2..=101 {
            writer.apply(put(version), Time(Duration::ZERO)).expect("in order");
        }
        reader.hold(50, Time(Duration::from_secs(75)));
        for version in 102..=201 {
            writer.apply(put(version), Time(Duration::ZERO)).expect("in order");
        }
        assert_eq!(reader.stats().window_events, 10);
    }
}
