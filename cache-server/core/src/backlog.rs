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
    namespaces: Mutex<Option<PositionIndex>, INDEX>,
    names: Mutex<Option<PositionIndex>, INDEX>,
    nodes: Mutex<Option<PositionIndex>, INDEX>,
}

/// Positions of the events of every bucket of one kind. Memory: one word per event and key, and the keys; bounded by
/// the window plus the events evicted between two trims.
#[derive(Debug)]
struct PositionIndex {
    epoch: u64,
    from: u64,
    read: u64,
    /// Positions in ascending order, by key.
    places: HashMap<Box<str>, VecDeque<u64>>,
    /// True if it was used since the last trim.
    used: bool,
}

/// Events of one scope between a watcher's position and its bucket.
#[derive(Debug)]
pub(crate) struct EventsBehind {
    /// Position of the watcher.
    pub(crate) position: u64,
    /// The window was scanned up to here.
    pub(crate) read: u64,
    /// Events of the scope in (`position`, `read`], in order.
    pub(crate) events: Vec<Arc<Event>>,
}

impl EventsBehind {
    pub(crate) const fn new(position: u64) -> Self {
        Self { position, read: position, events: Vec::new() }
    }
}

/// Access to the state for as long as its epoch and window match those at the start.
struct View<'a> {
    state: &'a RwLock<CacheState>,
    epoch: &'a Arc<Epoch>,
    scope: &'a Scope,
    node_field: Option<usize>,
    /// Oldest position that the window must still cover.
    position: u64,
}

impl Backlog {
    /// Reads the scope's events in the window into `past`, up to the head. Does not advance `past.read` if the window
    /// moved past its position or the epoch changed. Cost: each event in reach once for all watchers that reconnect
    /// between two trims, then one binary search per event found.
    pub(crate) fn read(
        &self,
        state: &RwLock<CacheState>,
        epoch: &Arc<Epoch>,
        scope: &Scope,
        node_field: Option<usize>,
        past: &mut EventsBehind,
    ) {
        let view = View { state, epoch, scope, node_field, position: past.position };
        let slot = match scope {
            Scope::All => return,
            Scope::Namespace(_) => &self.namespaces,
            Scope::Name(_) => &self.names,
            Scope::Node(_) => &self.nodes,
        };
        let (places, read) = loop {
            let mut index = slot.lock();
            match view.places(&mut index, past.read) {
                Some(ScanProgress::All { places, read }) => break (places, read),
                // Fair, so that other reconnecting watchers get the index between turns and continue the scan.
                Some(ScanProgress::Some) => index.unlock_fair(),
                None => return,
            }
        };
        // A second, shorter lock per chunk: the index gives positions, and events may be evicted in between.
        for few in places.chunks(EVENTS_PER_LOCK / 4) {
            let found =
                view.with(|state| past.events.extend(few.iter().filter_map(|&at| state.window.log.get(at)).cloned()));
            if found.is_none() {
                return;
            }
        }
        past.read = read;
    }

    /// Drops indexes that were not used since the last trim, and of the others the positions at or below `lost`, which
    /// the window evicted: in a large cluster some watcher always reconnects, so indexes rarely become unused. Cost:
    /// one visit per key.
    pub(crate) fn trim(&self, lost: u64) {
        for slot in [&self.namespaces, &self.names, &self.nodes] {
            let mut slot = slot.lock();
            let used = slot.as_mut().is_some_and(|index| mem::take(&mut index.used) && lost <= index.read);
            let _dropped_outside = if used { None } else { slot.take() };
            slot.iter_mut().for_each(|index| index.forget(lost));
            drop(slot);
        }
    }
}

impl View<'_> {
    /// Reads the state if the epoch is still current and the window still covers the position.
    fn with<T>(&self, look: impl FnOnce(&CacheState) -> T) -> Option<T> {
        let state = self.state.read();
        let same = Arc::ptr_eq(&state.epoch, self.epoch) && state.window.log.lost() <= self.position;
        same.then(|| look(&state))
    }

    /// Returns the positions of the scope's events after `after`. `None` if the window moved past them.
    fn places(&self, slot: &mut Option<PositionIndex>, after: u64) -> Option<ScanProgress> {
        let (applied, lost) = self.with(|state| (state.applied, state.window.log.lost()))?;
        let index = match slot {
            Some(index) if index.epoch == self.epoch.id && lost <= index.read => index,
            // An index of another epoch, or one with a gap below the window, is useless: start at the head.
            Some(_) | None => slot.insert(PositionIndex::new(self.epoch.id, applied)),
        };
        index.used = true;
        if !index.extend(self, after)? {
            return Some(ScanProgress::Some);
        }
        let places = index.places.get(self.scope.key());
        let places = places.into_iter().flatten().copied().skip_while(|&at| at <= after).collect();
        Some(ScanProgress::All { places, read: index.read })
    }
}

/// Result of one turn with an index.
enum ScanProgress {
    /// All positions up to `read`.
    All { places: Vec<u64>, read: u64 },
    /// The scan is not finished.
    Some,
}

impl PositionIndex {
    fn new(epoch: u64, at: u64) -> Self {
        Self { epoch, from: at, read: at, places: HashMap::new(), used: false }
    }

    /// Forgets positions at or below `lost`, which is not above `read`.
    fn forget(&mut self, lost: u64) {
        if lost <= self.from {
            return;
        }
        self.from = lost;
        self.places.retain(|_, places| {
            places.drain(..places.partition_point(|&at| at <= lost));
            places.shrink_to(places.len() * 2);
            !places.is_empty()
        });
        self.places.shrink_to(self.places.len() * 2);
    }

    /// Extends the index up to the head and back to `after`, for one turn. Returns true if that is complete; `None` if
    /// the window moved past the position.
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
                // Every position in (`after`, `from`] without an event is covered as well.
                self.from = after.min(self.from);
                return Some(true);
            }
            for event in &few {
                self.note(event, view);
            }
        }
        Some(false)
    }

    fn note(&mut self, event: &Event, view: &View<'_>) {
        let at = event.resource_version;
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
            if !self.places.contains_key(key) {
                self.places.insert(key.into(), VecDeque::new());
            }
            let Some(places) = self.places.get_mut(key) else { continue };
            if is_newer { places.push_back(at) } else { places.push_front(at) }
        }
        if is_newer { self.read = at } else { self.from = at - 1 }
    }
}
