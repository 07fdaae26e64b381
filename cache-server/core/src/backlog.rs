//! An index of the window by namespace, object or node, built once for all watchers that reconnect together.
//!
//! A bucket created for a position below the head lacks the events in between. One watcher could scan the window for
//! them, but ten thousand reconnecting watchers would each scan all of it.
//!
//! INVARIANT: every event of the window in (`from`, `read`] is listed under each key that it touches. INVARIANT: only
//! reconnecting watchers wait here, each for turns of at most [`LOOKS_PER_TURN`] state locks, with at most
//! [`EVENTS_PER_LOCK`] events per state lock. [`Backlog::trim`] drops unused indexes, and from the others the events
//! that the window evicted.

use std::{
    collections::{HashMap, VecDeque},
    mem,
    sync::Arc,
};

use informer_core::KeyedObject;

use crate::{
    buckets::{Scope, nodes},
    cache::CacheState,
    epoch::Epoch,
    event::Event,
    limits::{EVENTS_PER_LOCK, LOOKS_PER_TURN},
    sync::{INDEX, Mutex, RwLock},
};

/// One index for each kind of scope that was used recently.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    namespaces: Mutex<Option<NumberIndex>, INDEX>,
    names: Mutex<Option<NumberIndex>, INDEX>,
    nodes: Mutex<Option<NumberIndex>, INDEX>,
}

/// Numbers of the events of every bucket of one kind. Memory: one word per event and key, and the keys; bounded by
/// the window plus the events evicted between two trims.
#[derive(Debug)]
struct NumberIndex {
    epoch: u64,
    from: u64,
    read: u64,
    /// Numbers in ascending order, by key.
    numbers: HashMap<Box<str>, VecDeque<u64>>,
    /// True if it was used since the last trim.
    used: bool,
}

/// Events of one scope between a watcher's position and its bucket.
#[derive(Debug)]
pub(crate) struct EventsBehind {
    /// Revision of the watcher, which is not ahead of the cache.
    pub(crate) position: u64,
    /// Number of the newest event that the watcher has read.
    pub(crate) number: u64,
    /// The window was scanned up to the event of this number.
    pub(crate) read: u64,
    /// Events of the scope numbered in (`number`, `read`], in order.
    pub(crate) events: Vec<Arc<Event>>,
}

impl EventsBehind {
    pub(crate) const fn new(position: u64, number: u64) -> Self {
        Self { position, number, read: number, events: Vec::new() }
    }
}

/// Access to the state for as long as its epoch and window match those at the start.
struct View<'a> {
    state: &'a RwLock<CacheState>,
    epoch: &'a Arc<Epoch>,
    scope: &'a Scope,
    node_field: Option<usize>,
    /// Number of an event after which the window must still have all events.
    number: u64,
}

impl Backlog {
    /// Reads the scope's events in the window into `past`, up to the head. Does not advance `past.read` if the window
    /// moved past `past.number` or the epoch changed. Cost: each event in reach once for all watchers that reconnect
    /// between two trims, then one binary search per event found.
    pub(crate) fn read(
        &self,
        state: &RwLock<CacheState>,
        epoch: &Arc<Epoch>,
        scope: &Scope,
        node_field: Option<usize>,
        past: &mut EventsBehind,
    ) {
        let view = View { state, epoch, scope, node_field, number: past.number };
        let slot = match scope {
            Scope::All => return,
            Scope::Namespace(_) => &self.namespaces,
            Scope::Name(_) => &self.names,
            Scope::Node(_) => &self.nodes,
        };
        let (numbers, read) = loop {
            let mut index = slot.lock();
            match view.numbers(&mut index, past.read) {
                Some(ScanProgress::All { numbers, read }) => break (numbers, read),
                // Fair, so that other reconnecting watchers get the index between turns and continue the scan.
                Some(ScanProgress::Some) => index.unlock_fair(),
                None => return,
            }
        };
        // A second, shorter lock per chunk: the index gives numbers, and events may be evicted in between.
        for few in numbers.chunks(EVENTS_PER_LOCK / 4) {
            let found =
                view.with(|state| past.events.extend(few.iter().filter_map(|&at| state.window.log.get(at)).cloned()));
            if found.is_none() {
                return;
            }
        }
        past.read = read;
    }

    /// Drops indexes that were not used since the last trim, and of the others the numbers up to `evicted`, which the
    /// window evicted: in a large cluster some watcher always reconnects, so indexes rarely become unused. Cost: one
    /// visit per key.
    pub(crate) fn trim(&self, evicted: u64) {
        for slot in [&self.namespaces, &self.names, &self.nodes] {
            let mut slot = slot.lock();
            let used = slot.as_mut().is_some_and(|index| mem::take(&mut index.used) && evicted <= index.read);
            let _dropped_outside = if used { None } else { slot.take() };
            slot.iter_mut().for_each(|index| index.forget(evicted));
            drop(slot);
        }
    }
}

impl View<'_> {
    /// Reads the state if the epoch is still current and the window still has all events after `number`.
    fn with<T>(&self, look: impl FnOnce(&CacheState) -> T) -> Option<T> {
        let state = self.state.read();
        let same = Arc::ptr_eq(&state.epoch, self.epoch) && state.window.log.evicted() <= self.number;
        same.then(|| look(&state))
    }

    /// Returns the numbers of the scope's events after `after`. `None` if the window moved past them.
    fn numbers(&self, slot: &mut Option<NumberIndex>, after: u64) -> Option<ScanProgress> {
        let (newest, evicted) = self.with(|state| (state.events, state.window.log.evicted()))?;
        let index = match slot {
            Some(index) if index.epoch == self.epoch.id && evicted <= index.read => index,
            // An index of another epoch, or one with a gap below the window, is useless: start at the head.
            Some(_) | None => slot.insert(NumberIndex::new(self.epoch.id, newest)),
        };
        index.used = true;
        if !index.extend(self, after)? {
            return Some(ScanProgress::Some);
        }
        let numbers = index.numbers.get(self.scope.key());
        let numbers = numbers.into_iter().flatten().copied().skip_while(|&at| at <= after).collect();
        Some(ScanProgress::All { numbers, read: index.read })
    }
}

/// Result of one turn with an index.
enum ScanProgress {
    /// All numbers up to `read`.
    All { numbers: Vec<u64>, read: u64 },
    /// The scan is not finished.
    Some,
}

impl NumberIndex {
    fn new(epoch: u64, at: u64) -> Self {
        Self { epoch, from: at, read: at, numbers: HashMap::new(), used: false }
    }

    /// Forgets the numbers up to `evicted`, which is not above `read`.
    fn forget(&mut self, evicted: u64) {
        if evicted <= self.from {
            return;
        }
        self.from = evicted;
        self.numbers.retain(|_, numbers| {
            numbers.drain(..numbers.partition_point(|&at| at <= evicted));
            numbers.shrink_to(numbers.len() * 2);
            !numbers.is_empty()
        });
        self.numbers.shrink_to(self.numbers.len() * 2);
    }

    /// Extends the index up to the head and back to `after`, for one turn. Returns true if that is complete; `None` if
    /// the window moved past `after`.
    fn extend(&mut self, view: &View<'_>, after: u64) -> Option<bool> {
        for _ in 0..LOOKS_PER_TURN {
            let (from, read) = (self.from, self.read);
            let few: Vec<_> = view.with(|state| {
                let log = &state.window.log;
                // Newer events first, so that `read` reaches the head before the scan goes back to `after`.
                let newer = log.after(read).take(EVENTS_PER_LOCK);
                newer.chain(log.back_from(from, after)).take(EVENTS_PER_LOCK).cloned().collect()
            })?;
            if few.is_empty() {
                return Some(true);
            }
            for event in &few {
                self.note(event, view);
            }
        }
        Some(false)
    }

    fn note(&mut self, event: &Event, view: &View<'_>) {
        let at = event.number;
        let is_newer = self.read < at;
        let (key, other) = match (view.scope, view.node_field) {
            (Scope::Namespace(_), _) => (Some(event.object.namespace()), None),
            (Scope::Name(_), _) => (Some(event.object.key()), None),
            (Scope::Node(_), Some(place)) => {
                let (node, before) = nodes(event, place);
                (Some(node), before)
            }
            (Scope::Node(_) | Scope::All, _) => (None, None),
        };
        for key in [key, other].into_iter().flatten() {
            // Avoids allocating a key that exists already.
            if !self.numbers.contains_key(key) {
                self.numbers.insert(key.into(), VecDeque::new());
            }
            let Some(numbers) = self.numbers.get_mut(key) else { continue };
            if is_newer { numbers.push_back(at) } else { numbers.push_front(at) }
        }
        if is_newer { self.read = at } else { self.from = at - 1 }
    }
}
