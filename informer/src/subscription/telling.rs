//! Delivered state of one subscriber, and the events that lead from it to another state, in parts.
//!
//! INVARIANT: `delivered` is exactly the sum of the events delivered so far and those in the queue.

use std::{collections::VecDeque, sync::Arc};

use informer_core::{
    ResourceVersion,
    objects::{Difference, Objects},
    store::{self, Entry, StoreChange, ring},
};

use super::{EVENTS_AT_ONCE, Event};
use crate::{decode::DecodedObjects, object::Object};

/// A state to deliver.
#[derive(Debug)]
pub(super) struct DeliveryTarget {
    pub(super) objects: Objects<Entry>,
    pub(super) version: Option<ResourceVersion>,
    pub(super) is_synced: bool,
    pub(super) relists: u64,
}

impl From<&store::Snapshot> for DeliveryTarget {
    fn from(state: &store::Snapshot) -> Self {
        Self {
            objects: state.objects.clone(),
            version: state.resource_version.clone(),
            is_synced: state.synced,
            relists: state.relists,
        }
    }
}

impl From<ring::ListenerStart> for DeliveryTarget {
    fn from(start: ring::ListenerStart) -> Self {
        Self { objects: start.objects, version: start.position, is_synced: true, relists: start.relists }
    }
}

pub(super) struct Teller<K> {
    decoded: Arc<DecodedObjects<K>>,
    delivered: Objects<Entry>,
    /// Of the last state delivered in full: a change of either field makes a `Synced` due.
    is_synced: bool,
    relists: u64,
    /// The walk over all keys in progress, when a difference exceeded `EVENTS_AT_ONCE`.
    walk: Option<DiffWalk>,
    queue: VecDeque<Event<K>>,
}

/// A long difference delivered in parts, key by key, while the state moves on.
struct DiffWalk {
    /// The last key delivered.
    after: Box<str>,
    /// The state at its start. The end of the walk has delivered at least that state, however often it was replaced
    /// since.
    began: DeliveredState,
}

/// Sync status of a state delivered in full.
#[derive(Clone)]
struct DeliveredState {
    is_synced: bool,
    relists: u64,
    version: Option<ResourceVersion>,
}

/// Old and new version of one key; at least one is present.
type Pair = (Option<Arc<Entry>>, Option<Arc<Entry>>);

impl<K> Teller<K> {
    pub(super) fn new(decoded: Arc<DecodedObjects<K>>) -> Self {
        let (delivered, queue) = (Objects::new(), VecDeque::new());
        Self { decoded, delivered, is_synced: false, relists: 0, walk: None, queue }
    }

    /// Takes the next queued event.
    pub(super) fn pop(&mut self) -> Option<Event<K>> {
        self.queue.pop_front()
    }

    pub(super) fn delivered_len(&self) -> usize {
        self.delivered.len()
    }

    pub(super) fn queued_len(&self) -> usize {
        self.queue.len()
    }

    /// True if an object of this uid was delivered or is queued, and no deletion of an earlier one of its key is queued.
    #[cfg(feature = "controller")]
    pub(super) fn has_delivered(&self, object: &Object<K>) -> bool {
        let key = object.key();
        let is_deletion =
            |event: &Event<K>| matches!(event, Event::Deleted { last_known, .. } if last_known.key() == key);
        self.delivered.get(key).is_some_and(|entry| entry.uid() == object.uid()) && !self.queue.iter().any(is_deletion)
    }

    /// Queues the next differences to `now`. Returns true if there may be more.
    pub(super) fn look(&mut self, now: &DeliveryTarget) -> bool {
        let missed = self.relists != now.relists;
        let walk = self.walk.take();
        let found = match &walk {
            None => differences(self.delivered.diff(&now.objects).take(EVENTS_AT_ONCE)),
            Some(walk) => after(&self.delivered, &now.objects, &walk.after),
        };
        let is_last = found.len() < EVENTS_AT_ONCE;
        let is_all = is_last && walk.is_none();
        if is_all {
            self.delivered = now.objects.clone();
        } else {
            self.take_over(&found);
        }
        let reached = walk.map_or_else(|| DeliveredState::of(now), |walk| walk.began);
        if let Some((old, new)) = found.last().filter(|_| !is_last) {
            self.walk = Some(DiffWalk { after: key_of(old, new), began: reached.clone() });
        }
        for (old, new) in found {
            for change in store::changes(old, new, missed) {
                self.queue_change(change);
            }
        }
        if is_last {
            self.reach(reached);
        }
        !is_all
    }

    /// Queues recorded changes in order. `leads_to` is the state after the last record, if known.
    pub(super) fn follow(&mut self, records: Vec<ring::Record>, leads_to: Option<&Objects<Entry>>) {
        for record in records {
            match record {
                ring::Record::Change(change) => {
                    if leads_to.is_none() {
                        self.take_over_change(&change);
                    }
                    self.queue_change(change);
                }
                ring::Record::Synced(version) => {
                    self.reach(DeliveredState { is_synced: true, relists: self.relists + 1, version: Some(*version) });
                }
            }
        }
        if let Some(state) = leads_to {
            // Equal to applying the changes one by one, but shares its nodes with the store.
            self.delivered = state.clone();
        }
    }

    /// Queues a `Reset`: changes were lost, and a difference follows.
    pub(super) fn reset(&mut self) {
        self.queue.push_back(Event::Reset);
    }

    /// Notes that a state was delivered in full; queues `Synced` if it is due.
    fn reach(&mut self, reached: DeliveredState) {
        if reached.is_synced && (!self.is_synced || self.relists != reached.relists) {
            self.queue.extend(reached.version.map(Event::Synced));
        }
        self.is_synced = reached.is_synced;
        self.relists = reached.relists;
    }

    /// Applies these differences to `delivered`.
    fn take_over(&mut self, found: &[Pair]) {
        for (old, new) in found {
            match (old, new) {
                (_, Some(new)) => drop(self.delivered.insert(Arc::clone(new))),
                (Some(old), None) => drop(self.delivered.remove(old.key())),
                (None, None) => {}
            }
        }
    }

    fn take_over_change(&mut self, change: &StoreChange) {
        match change {
            StoreChange::Added(new) | StoreChange::Updated { new, .. } => drop(self.delivered.insert(Arc::clone(new))),
            StoreChange::Deleted { last_known, .. } => drop(self.delivered.remove(last_known.key())),
        }
    }

    fn queue_change(&mut self, change: StoreChange) {
        let object = |entry| Object::new(entry, Arc::clone(&self.decoded));
        self.queue.push_back(match change {
            StoreChange::Added(new) => Event::Added(object(new)),
            StoreChange::Updated { old, new } => Event::Updated { old: object(old), new: object(new) },
            StoreChange::Deleted { last_known, missed } => Event::Deleted { last_known: object(last_known), missed },
        });
    }
}

impl DeliveredState {
    fn of(state: &DeliveryTarget) -> Self {
        Self { is_synced: state.is_synced, relists: state.relists, version: state.version.clone() }
    }
}

fn differences<'a>(found: impl Iterator<Item = Difference<'a, Entry>>) -> Vec<Pair> {
    let pair = |difference| match difference {
        Difference::Added(new) => (None, Some(Arc::clone(new))),
        Difference::Updated { old, new } => (Some(Arc::clone(old)), Some(Arc::clone(new))),
        Difference::Removed(old) => (Some(Arc::clone(old)), None),
    };
    found.map(pair).collect()
}

/// The first differences after `key`, by walking both states: their `diff` cannot start in the middle, and a long
/// difference touches most entries anyway.
fn after(delivered: &Objects<Entry>, now: &Objects<Entry>, key: &str) -> Vec<Pair> {
    let mut found = Vec::new();
    let mut olds = delivered.after(Some(key)).peekable();
    let mut news = now.after(Some(key)).peekable();
    while found.len() < EVENTS_AT_ONCE {
        let (takes_old, takes_new) = match (olds.peek(), news.peek()) {
            (None, None) => break,
            (Some(_), None) => (true, false),
            (None, Some(_)) => (false, true),
            // The common case of a long walk: one shared entry, skipped without comparing keys.
            (Some(old), Some(new)) if Arc::ptr_eq(old, new) => (true, true),
            (Some(old), Some(new)) => (old.key() <= new.key(), new.key() <= old.key()),
        };
        let old = if takes_old { olds.next() } else { None };
        let new = if takes_new { news.next() } else { None };
        if !matches!((old, new), (Some(old), Some(new)) if Arc::ptr_eq(old, new)) {
            found.push((old.cloned(), new.cloned()));
        }
    }
    found
}

fn key_of(old: &Option<Arc<Entry>>, new: &Option<Arc<Entry>>) -> Box<str> {
    new.as_ref().or(old.as_ref()).map_or_else(Box::default, |entry| entry.key().into())
}
