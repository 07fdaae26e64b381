//! The copy of one resource type, and states of it that readers hold.
//!
//! INVARIANT: changes only through [`Event`]. A relist touches nothing until its end and then swaps in one step.

mod entry;
mod representation;
pub mod ring;
mod staging;

use std::sync::Arc;

use crate::{
    object::Meta,
    objects::{Difference, Objects},
    resource_version::ResourceVersion,
};

pub use entry::Entry;
pub use representation::Representation;
use ring::{Record, Ring};
use staging::Stage;

/// What happens to the store: the reflector's orders with the object in hand.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// Initial state begins.
    Init,
    /// An object of it: its JSON and what was read from it.
    InitApply(&'a [u8], &'a Meta<'a>),
    /// Initial state is complete at this position.
    InitDone(ResourceVersion),
    /// An object was added or changed.
    Apply(&'a [u8], &'a Meta<'a>),
    /// An object is gone; while initial state is gathered, from that.
    Delete(&'a Meta<'a>),
    /// Nothing at or below this position follows.
    Bookmark(ResourceVersion),
    /// Initial state broke off: forget what was gathered.
    Abandon,
}

/// An object that cannot be kept. The store is as it was, without it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It has no name.
    #[error("an object without a name")]
    Nameless,
    /// A part of it is longer than an entry can point into.
    #[error("an object of {bytes} bytes is more than an entry can hold")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

/// The objects of one resource type, kept in step by [`Event`]s.
///
/// Memory: the bytes of the objects, their keys, uids and versions, and about 80 bytes each. A relist adds what
/// differs, and shares the rest with the state it replaces.
#[derive(Debug)]
pub struct Store {
    representation: Representation,
    now: Snapshot,
    stage: Option<Stage>,
    ring: Ring,
}

/// One state of a store, at one position. Holding it costs nothing; it keeps alive what it shows.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The objects, in byte order of their keys.
    pub objects: Objects<Entry>,
    /// The position of this state; `None` before the first sync.
    pub resource_version: Option<ResourceVersion>,
    /// Whether initial state was complete once.
    pub synced: bool,
    /// How many times initial state was complete. Two states with the same number have every change between them
    /// delivered live; with different numbers, some were only seen by what a relist no longer held.
    pub relists: u64,
    /// The number of the last change in this state, as [`ring`] counts them. Grows with every change.
    pub sequence: u64,
}

/// What became of one object between two states.
#[derive(Clone, Debug)]
pub enum Change {
    /// It was not there.
    Added(Arc<Entry>),
    /// It was there, with the same uid, and is another version now.
    Updated {
        /// As it was.
        old: Arc<Entry>,
        /// As it is.
        new: Arc<Entry>,
    },
    /// It is no longer there. An object of the same key and another uid follows as [`Change::Added`].
    Deleted {
        /// As it was in the older state.
        last_known: Arc<Entry>,
        /// Whether a relist lies between the two states: the deletion may have been noticed by absence alone, so the
        /// object may have changed further before it went. `false` promises that a DELETED event was received.
        missed: bool,
    },
}

impl Store {
    /// An empty store.
    #[must_use]
    pub fn new(representation: Representation) -> Self {
        Self { representation, now: Snapshot::default(), stage: None, ring: Ring::default() }
    }

    /// Takes one event. Cost: O(log n), and a copy of the object's bytes if it is new or changed. An object that is
    /// already there with the same uid and resourceVersion is dropped without allocating.
    ///
    /// # Errors
    /// [`StoreError`] for an object that cannot be kept.
    pub fn handle(&mut self, event: Event<'_>) -> Result<(), StoreError> {
        match event {
            Event::Init => self.stage = Some(Stage::open(&self.now.objects)),
            Event::InitApply(json, meta) => return self.stage_object(json, meta),
            Event::InitDone(position) => self.swap(position),
            Event::Apply(json, meta) => return self.apply(json, meta),
            Event::Delete(meta) => self.delete(meta),
            Event::Bookmark(position) => self.now.resource_version = Some(position),
            Event::Abandon => self.stage = None,
        }
        Ok(())
    }

    /// The state as it is. Cost: three reference counts.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.now.clone()
    }

    /// Recent changes, for readers that want each of them.
    #[must_use]
    pub const fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Whether initial state is being gathered.
    #[must_use]
    pub const fn is_staging(&self) -> bool {
        self.stage.is_some()
    }

    fn stage_object(&mut self, json: &[u8], meta: &Meta<'_>) -> Result<(), StoreError> {
        let stage = self.stage.get_or_insert_with(|| Stage::open(&self.now.objects));
        let key = meta.key();
        if self.now.objects.get(&key).is_some_and(|known| known.is(&meta.uid, &meta.resource_version)) {
            stage.confirm(&key);
            return Ok(());
        }
        stage.put(Entry::new(key, json, meta, self.representation)?);
        Ok(())
    }

    fn swap(&mut self, position: ResourceVersion) {
        // The old state is held, and its tree copied where it changes, only for somebody who wants to know.
        let before = (self.now.synced && self.ring.is_wanted()).then(|| self.now.objects.clone());
        if let Some(stage) = self.stage.take() {
            stage.commit(&mut self.now.objects);
        }
        self.now.resource_version = Some(position.clone());
        self.now.relists += 1;
        self.now.sequence = match before {
            Some(before) => {
                for change in differences(&before, &self.now.objects, true) {
                    self.ring.record(Record::Change(change));
                }
                self.ring.record(Record::Synced(position))
            }
            None if self.now.synced => self.ring.skip(),
            None => self.ring.begin(Some(position)),
        };
        self.now.synced = true;
    }

    fn apply(&mut self, json: &[u8], meta: &Meta<'_>) -> Result<(), StoreError> {
        let key = meta.key();
        // A change sent twice is no change: subscribers would see an update from an object to itself.
        if !self.now.objects.get(&key).is_some_and(|known| known.is(&meta.uid, &meta.resource_version)) {
            let new = Arc::new(Entry::new(key, json, meta, self.representation)?);
            let old = self.now.objects.insert(Arc::clone(&new));
            self.changed(old, Some(new));
        }
        self.moved(&meta.resource_version);
        Ok(())
    }

    fn delete(&mut self, meta: &Meta<'_>) {
        let key = meta.key();
        match &mut self.stage {
            Some(stage) => stage.remove(&key, self.now.objects.get(&key)),
            None => {
                let old = self.now.objects.remove(&key);
                self.changed(old, None);
                self.moved(&meta.resource_version);
            }
        }
    }

    /// Notes what one live event did to one key.
    fn changed(&mut self, old: Option<Arc<Entry>>, new: Option<Arc<Entry>>) {
        for change in changes(old, new, false) {
            self.now.sequence = self.ring.record(Record::Change(change));
        }
    }

    fn moved(&mut self, to: &str) {
        if let Ok(position) = ResourceVersion::parse(to) {
            self.now.resource_version = Some(position);
        }
    }
}

impl Default for Store {
    fn default() -> Self {
        Self::new(Representation::default())
    }
}

/// What changed from `old` to `new`, in key order.
///
/// Cost: the parts the two states do not share.
pub fn diff<'a>(old: &'a Snapshot, new: &'a Snapshot) -> impl Iterator<Item = Change> + 'a {
    differences(&old.objects, &new.objects, old.relists != new.relists)
}

fn differences<'a>(
    old: &'a Objects<Entry>,
    new: &'a Objects<Entry>,
    missed: bool,
) -> impl Iterator<Item = Change> + 'a {
    old.diff(new).flat_map(move |difference| {
        let (old, new) = match difference {
            Difference::Added(new) => (None, Some(new)),
            Difference::Updated { old, new } => (Some(old), Some(new)),
            Difference::Removed(old) => (Some(old), None),
        };
        changes(old.cloned(), new.cloned(), missed)
    })
}

/// What became of one key that held `old` and holds `new`. Never across uids: an object replaced under its key is a
/// [`Change::Deleted`] and a [`Change::Added`].
///
/// `missed` says whether a relist lies between the two; see [`Change::Deleted`].
pub fn changes(old: Option<Arc<Entry>>, new: Option<Arc<Entry>>, missed: bool) -> impl Iterator<Item = Change> {
    let (first, second) = match (old, new) {
        (Some(old), Some(new)) if old.uid() == new.uid() => (Some(Change::Updated { old, new }), None),
        (Some(last_known), new) => (Some(Change::Deleted { last_known, missed }), new.map(Change::Added)),
        (None, new) => (new.map(Change::Added), None),
    };
    [first, second].into_iter().flatten()
}

impl Snapshot {
    /// The object of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Arc<Entry>> {
        self.objects.get(key)
    }
}

#[cfg(test)]
mod tests;
