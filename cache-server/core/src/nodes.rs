//! The objects of each node, for as long as agents read them: an agent reads some hundred pods of as many thousand.
//!
//! INVARIANT: an index has the state of one epoch at the event `read`. Each of its objects is in the map of the node that
//! its node field has, and in no other one; an object without a value is in the map of the empty name. While there are
//! `unread` objects, only the objects before them are indexed, and nothing is read from it. INVARIANT: only reads of a node
//! wait here, each for one turn. [`NodeIndexes::trim`] drops an index that the window has passed, or that is not used, so
//! that no object lives longer than the window, but for one trim.

use std::{collections::HashMap, mem, sync::Arc};

use informer_core::{KeyedObject as _, Objects};

use crate::{
    cache::CacheState,
    entry::Entry,
    event::{ChangeKind, Event},
    limits::{EVENTS_PER_LOCK, LOOKED_AT_PER_STEP, LOOKS_PER_TURN},
    sync::{INDEX, Mutex, RwLock},
};

/// The index of a cache, if nodes were read since the last trim.
#[derive(Debug, Default)]
pub(crate) struct NodeIndexes(Mutex<Option<NodeIndex>, INDEX>);

/// Objects by node. Memory: some 24 bytes an object.
#[derive(Debug)]
struct NodeIndex {
    /// Id of its epoch.
    epoch: u64,
    /// Number of the newest event that it contains.
    read: u64,
    unread: Option<UnreadObjects>,
    nodes: HashMap<Box<str>, Objects<Entry>>,
    /// True if it was used since the last trim.
    used: bool,
}

/// The objects after a key, which are not indexed yet.
#[derive(Debug)]
struct UnreadObjects {
    objects: Objects<Entry>,
    after: Option<Arc<Entry>>,
}

/// The objects of one node in the state after an event.
pub(crate) struct NodeState {
    pub(crate) objects: Objects<Entry>,
    pub(crate) resource_version: u64,
    /// Number of the newest event that the objects contain.
    pub(crate) number: u64,
    /// Id of their epoch.
    pub(crate) epoch: u64,
}

impl NodeIndexes {
    /// Returns the objects whose field `place` is `node`; `None` if they have to be searched. Cost: a look-up, and one
    /// turn of what has to be indexed before: [`LOOKED_AT_PER_STEP`] objects, or the events since the last read, some
    /// 0.6 µs each.
    pub(crate) fn read(&self, state: &RwLock<CacheState>, place: usize, node: &str) -> Option<NodeState> {
        let mut dropped_outside = (None, None);
        let mut slot = self.0.lock();
        let (epoch, evicted) = {
            let state = state.read();
            (state.epoch.id, state.window.log.evicted())
        };
        dropped_outside.0 = slot.take_if(|index| index.epoch != epoch || index.read < evicted);
        let index = slot.get_or_insert_with(|| NodeIndex::new(&state.read()));
        index.used = true;
        dropped_outside.1 = index.index_some(place);
        let found = if index.unread.is_none() { index.read(state, place, node) } else { None };
        drop(slot);
        found
    }

    /// Drops the index if nodes were not read since the last trim, or if the window has evicted events that it lacks.
    pub(crate) fn trim(&self, evicted: u64) {
        let _dropped_outside = self.0.lock().take_if(|index| !mem::take(&mut index.used) || index.read < evicted);
    }

    /// Drops the index: its epoch has ended.
    pub(crate) fn clear(&self) {
        let _dropped_outside = self.0.lock().take();
    }
}

impl NodeIndex {
    fn new(state: &CacheState) -> Self {
        let unread = Some(UnreadObjects { objects: state.objects.clone(), after: None });
        Self { epoch: state.epoch.id, read: state.events, unread, nodes: HashMap::new(), used: false }
    }

    /// Indexes the next objects. Returns them all, to be dropped, after the last ones.
    fn index_some(&mut self, place: usize) -> Option<UnreadObjects> {
        let mut unread = self.unread.take()?;
        let after = unread.after.as_ref().map(|last| last.key());
        let next: Vec<_> = unread.objects.after(after).take(LOOKED_AT_PER_STEP).cloned().collect();
        next.iter().for_each(|entry| self.put(entry, place));
        if next.len() < LOOKED_AT_PER_STEP {
            return Some(unread);
        }
        unread.after = next.last().cloned();
        self.unread = Some(unread);
        None
    }

    /// Adds the events since the last read, and returns the objects of `node`. `None` if there are too many for one turn,
    /// or if some of them were evicted.
    fn read(&mut self, state: &RwLock<CacheState>, place: usize, node: &str) -> Option<NodeState> {
        for _ in 0..LOOKS_PER_TURN {
            let (events, number, resource_version) = {
                let state = state.read();
                if state.epoch.id != self.epoch || self.read < state.window.log.evicted() {
                    return None;
                }
                let events: Vec<_> = state.window.log.after(self.read).take(EVENTS_PER_LOCK).cloned().collect();
                (events, state.events, state.applied)
            };
            events.iter().for_each(|event| self.add(event, place));
            if self.read == number {
                let objects = self.nodes.get(node).cloned().unwrap_or_default();
                return Some(NodeState { objects, resource_version, number, epoch: self.epoch });
            }
        }
        None
    }

    /// Adds the next event.
    fn add(&mut self, event: &Event, place: usize) {
        self.read = event.number;
        let object = Some(&event.object).filter(|_| event.kind != ChangeKind::Deleted);
        let node = object.map(|object| object.field(place));
        if let Some(previous) = event.previous.as_ref().filter(|previous| node != Some(previous.field(place))) {
            self.remove(previous, place);
        }
        if let Some(object) = object {
            self.put(object, place);
        }
    }

    fn put(&mut self, entry: &Arc<Entry>, place: usize) {
        let node = entry.field(place);
        match self.nodes.get_mut(node) {
            Some(objects) => objects.put(Arc::clone(entry)),
            None => {
                self.nodes.insert(node.into(), [Arc::clone(entry)].into_iter().collect());
            }
        }
    }

    fn remove(&mut self, entry: &Entry, place: usize) {
        let node = entry.field(place);
        let Some(objects) = self.nodes.get_mut(node) else { return };
        objects.remove(entry.key());
        if objects.is_empty() {
            self.nodes.remove(node);
        }
    }
}
