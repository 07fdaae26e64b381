//! The copy of one resource type, and the snapshots of it that readers hold.
//!
//! INVARIANT: objects change only through [`Event`], and before the first event through [`Store::restore`]. A relist
//! changes no object until its end, and then swaps the state in one step.

mod body;
mod derived;
mod entry;
mod index;
mod keeping;
mod linger;
mod postings;
pub mod ring;
mod staging;

use std::{ops::Range, sync::Arc};

use crate::{
    limits::KEY_KEEP_BYTES,
    object::Meta,
    objects::{Difference, Objects},
    resource_version::ResourceVersion,
    time::Time,
};

pub use body::{Body, PackedJson, Value};
pub use derived::{DerivedStore, EntryFilter};
pub use entry::Entry;
pub use keeping::{IndexFn, Json, Represent, StoreConfig, TransformFn, TransformedObject};

use entry::{Parts, Values};
use index::Indexes;
use linger::{LingerQueue, LingeringObjects};
use postings::DerivedPostings;
use ring::{Record, Ring};
use staging::Stage;

/// An input of the store: an action of the reflector with its object.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// Initial state begins.
    Init {
        /// True if equal uid and resourceVersion prove that an object is unchanged. False if the server may have
        /// another history: then the visible contents of both versions are compared.
        trusts_versions: bool,
    },
    /// An object of initial state: its JSON and the metadata read from it.
    InitApply(&'a [u8], &'a Meta<'a>),
    /// Initial state is complete at this position.
    InitDone(ResourceVersion),
    /// An object was added or changed.
    Apply(&'a [u8], &'a Meta<'a>),
    /// An object exists, and only its names are known: JSON of them, and the metadata. While initial state is staged, it
    /// belongs to that.
    Skip(&'a [u8], &'a Meta<'a>),
    /// An object was deleted; while initial state is staged, from the stage.
    Delete(&'a Meta<'a>),
    /// No event at or below this position follows.
    Bookmark(ResourceVersion),
    /// Initial state broke off: drop the stage.
    Abandon,
    /// The state passed to [`Store::restore`] is the server's state at its position.
    Restored,
}

/// An object that cannot be stored. The store continues without it, and drops the version it had of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It has no name.
    #[error("an object without a name")]
    Nameless,
    /// A part of it is longer than an entry's offsets can address.
    #[error("an object of {bytes} bytes is more than an entry can hold")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

/// The objects of one resource type, kept in step by [`Event`]s.
///
/// Memory: the bodies of the objects, their keys, uids and versions, and about 120 bytes each. A relist adds the
/// objects that differ, and shares the others with the previous state. Indexes: see [`StoreConfig::indexes`].
#[derive(Debug)]
pub struct Store {
    keeping: StoreConfig,
    now: Snapshot,
    stage: Option<Stage>,
    ring: Ring,
    ends: Option<LingerQueue>,
    // Buffers for the object in progress; kept for their allocations.
    values: Values,
    key: String,
}

/// The state of a store at one position. Holding it is free, apart from keeping its objects alive.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The objects, in byte order of their keys.
    pub objects: Objects<Entry>,
    /// The position of this state; `None` before the first sync.
    pub resource_version: Option<ResourceVersion>,
    /// True once initial state has been complete.
    pub synced: bool,
    /// Number of complete initial reads. If two states have the same number, every change between them was delivered
    /// live; otherwise some are known only from what a relist no longer contained.
    pub relists: u64,
    /// Number of the last change in this state, as counted by [`ring`]. Increases with every change.
    pub sequence: u64,
    /// Sum of [`Entry::stored_bytes`] of the objects, maintained incrementally.
    pub stored_bytes: u64,
    indexes: Indexes,
    /// Filled by derived stores only.
    postings: DerivedPostings,
    lingering: LingeringObjects,
}

/// The change of one object between two states.
#[derive(Clone, Debug)]
pub enum StoreChange {
    /// The object did not exist.
    Added(Arc<Entry>),
    /// The object existed with the same uid, and has another version now.
    Updated {
        /// The previous version.
        old: Arc<Entry>,
        /// The current version.
        new: Arc<Entry>,
    },
    /// The object no longer exists. A new object with the same key and another uid follows as [`StoreChange::Added`].
    Deleted {
        /// Its version in the older state.
        last_known: Arc<Entry>,
        /// True if a relist lies between the two states: the deletion may have been found by absence, so the object may
        /// have changed further before it. False guarantees that a DELETED event was received.
        missed: bool,
    },
}

/// Part of a received object that is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Availability {
    Whole,
    Names,
}

impl Store {
    /// Creates an empty store.
    #[must_use]
    pub fn new(keeping: StoreConfig) -> Self {
        let now = Snapshot { indexes: Indexes::new(keeping.indexes.len()), ..Snapshot::default() };
        let ends = keeping.linger.map(LingerQueue::new);
        let (ring, values) = (Ring::default(), Values::default());
        Self { keeping, now, stage: None, ring, ends, values, key: String::new() }
    }

    /// Applies one event. Cost: O(log n), and the cost of storing the object if it is new or changed: three allocations
    /// for one stored as JSON without index values. An object already stored with the same uid and resourceVersion is
    /// not copied.
    ///
    /// # Errors
    /// [`StoreError`] for an object that cannot be stored.
    pub fn handle(&mut self, now: Time, event: Event<'_>) -> Result<(), StoreError> {
        match event {
            Event::Init { trusts_versions } => self.stage = Some(Stage::open(&self.now.objects, trusts_versions)),
            Event::InitApply(json, meta) => {
                return self.by_key(meta, |store, key| store.stage_object(key, json, meta, Availability::Whole));
            }
            Event::InitDone(position) => self.swap(now, position),
            Event::Apply(json, meta) => {
                return self.by_key(meta, |store, key| store.apply(now, key, json, meta, Availability::Whole));
            }
            Event::Skip(json, meta) => {
                return self.by_key(meta, |store, key| match &store.stage {
                    Some(_) => store.stage_object(key, json, meta, Availability::Names),
                    None => store.apply(now, key, json, meta, Availability::Names),
                });
            }
            Event::Delete(meta) => self.by_key(meta, |store, key| store.delete(now, key, meta)),
            Event::Bookmark(position) => self.now.resource_version = Some(position),
            Event::Abandon => self.stage = None,
            Event::Restored => self.restored(),
        }
        Ok(())
    }

    /// Inserts objects saved by an earlier process: in stored form, each with the names, uid and version it had.
    /// Readers see them, but the state counts as complete only after [`Event::Restored`], or after a relist, which is
    /// compared with it. Objects that cannot be stored are skipped.
    ///
    /// Call it only before any reader has seen a state. It may be called repeatedly; the last call sets the position.
    /// Transforms are not applied again.
    pub fn restore<'a>(
        &mut self,
        objects: impl IntoIterator<Item = (Meta<'a>, &'a [u8])>,
        position: Option<ResourceVersion>,
    ) {
        for (meta, json) in objects {
            self.restore_object(&meta, json, None);
        }
        self.restore_again(position.is_some());
        self.now.resource_version = position;
        self.now.sequence = self.ring.skip();
    }

    /// Inserts one object, before the call of [`restore`](Self::restore) that sets the position. `labels`, in the form
    /// of [`Entry::labels`], are for JSON without labels, from a type that does not decode them. Returns false if the
    /// object cannot be stored.
    pub fn restore_object(&mut self, meta: &Meta<'_>, json: &[u8], labels: Option<&[u8]>) -> bool {
        let body = self.keeping.represent.keep(json, None);
        self.restore_body(&Parts { key: &meta.key(), meta, json, labels_at: labels_in(json), labels }, body)
    }

    /// Like [`restore_object`](Self::restore_object), for an object of which only the names are known.
    pub fn restore_skipped(&mut self, meta: &Meta<'_>, json: &[u8]) -> bool {
        let parts = Parts { key: &meta.key(), meta, json, labels_at: 0..0, labels: None };
        self.restore_body(&parts, Body::Skipped(json.into()))
    }

    fn restore_body(&mut self, parts: &Parts<'_>, body: Body) -> bool {
        let Ok(entry) = self.tagged(parts, body) else {
            // A version before it is not part of the state.
            self.restore_deleted(parts.key);
            return false;
        };
        let old = self.now.objects.insert(Arc::clone(&entry));
        self.now.indexes.replace(old.as_ref(), Some(&entry));
        weigh(&mut self.now.stored_bytes, old.as_ref(), Some(&entry));
        self.restore_again(false);
        true
    }

    /// Removes an object that [`restore_object`](Self::restore_object) inserted: it was deleted later, before the state
    /// was saved.
    pub fn restore_deleted(&mut self, key: &str) {
        let old = self.now.objects.remove(key);
        self.now.indexes.replace(old.as_ref(), None);
        weigh(&mut self.now.stored_bytes, old.as_ref(), None);
    }

    /// Converts restored JSON to the form that `represent` has learned meanwhile. No reader has seen it yet.
    fn restore_again(&mut self, complete: bool) {
        let StoreConfig { represent, indexes, .. } = &mut self.keeping;
        if !represent.learned(complete) {
            return;
        }
        let now = &mut self.now;
        staging::keep_again(&mut now.objects, &mut **represent);
        (now.indexes, now.stored_bytes) = (Indexes::new(indexes.len()), 0);
        for entry in now.objects.iter() {
            now.indexes.replace(None, Some(entry));
            weigh(&mut now.stored_bytes, None, Some(entry));
        }
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.ends.as_ref().and_then(LingerQueue::next)
    }

    /// Releases deleted objects whose time is over. Returns true if readers would see a difference.
    pub fn handle_timeout(&mut self, now: Time) -> bool {
        self.ends.as_mut().is_some_and(|ends| ends.expire(now, &mut self.now.lingering))
    }

    /// Returns the current state. Cost: three reference counts.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.now.clone()
    }

    /// Recent changes, for readers that need each of them.
    #[must_use]
    pub const fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Returns true while initial state is staged.
    #[must_use]
    pub const fn is_staging(&self) -> bool {
        self.stage.is_some()
    }

    /// Passes the object's key to `take`, formatted in a buffer that all objects share.
    fn by_key<T>(&mut self, meta: &Meta<'_>, take: impl FnOnce(&mut Self, &str) -> T) -> T {
        // Taken out of the store, which `take` borrows.
        let mut key = std::mem::take(&mut self.key);
        meta.write_key(&mut key);
        let taken = take(self, &key);
        key.shrink_to(KEY_KEEP_BYTES);
        self.key = key;
        taken
    }

    fn stage_object(&mut self, key: &str, json: &[u8], meta: &Meta<'_>, has: Availability) -> Result<(), StoreError> {
        let is_same_version =
            |known: &&Arc<Entry>| known.uid() == meta.uid && known.resource_version() == meta.resource_version;
        let known = self.now.objects.get(key).filter(is_same_version).cloned();
        // Two objects without a version are equal only if their contents are.
        let has_version = !meta.resource_version.is_empty();
        let trusts_versions = has_version && self.stage.as_ref().is_none_or(|stage| stage.trusts_versions);
        let made = match &known {
            Some(_) if trusts_versions => None,
            Some(_) | None => Some(self.make(key, json, meta, has)),
        };
        let stage = self.stage.get_or_insert_with(|| Stage::open(&self.now.objects, true));
        match made {
            // An earlier version of it, staged or current, is not part of the new state.
            Some(Err(error)) => {
                stage.remove(key, self.now.objects.get(key));
                return Err(error);
            }
            Some(Ok(entry)) if !known.is_some_and(|known| known.shows_the_same(&entry)) => stage.put(entry),
            Some(Ok(_)) | None => stage.confirm(key),
        }
        if self.keeping.represent.learned(false) {
            stage.keep_again(&mut *self.keeping.represent);
        }
        Ok(())
    }

    fn swap(&mut self, now: Time, position: ResourceVersion) {
        // Holding the old state makes every change copy tree nodes, so do it only for listeners.
        let before = (self.now.synced && self.ring.has_listeners()).then(|| self.now.objects.clone());
        if let Some(mut stage) = self.stage.take() {
            if self.keeping.represent.learned(true) {
                stage.keep_again(&mut *self.keeping.represent);
            }
            // A restored state of another history never existed here, so none of its objects was deleted.
            let was_here = self.now.synced || stage.trusts_versions;
            let Snapshot { objects, indexes, lingering, stored_bytes, .. } = &mut self.now;
            stage.commit(objects, |old, new| {
                indexes.replace(old, new);
                weigh(stored_bytes, old, new);
                if was_here {
                    linger(&mut self.ends, now, old, new, lingering);
                }
            });
        }
        self.now.resource_version = Some(position.clone());
        self.now.relists += 1;
        self.now.sequence = match before {
            Some(before) => {
                for change in differences(&before, &self.now.objects, true) {
                    self.ring.record(Record::Change(change));
                }
                self.ring.record(Record::Synced(Box::new(position)))
            }
            None if self.now.synced => self.ring.skip(),
            None => self.ring.begin(Some(position)),
        };
        self.now.synced = true;
    }

    /// Makes the restored state the first complete one.
    fn restored(&mut self) {
        if !self.now.synced {
            self.now.synced = true;
            // `relists` stays: every change since the state was saved arrives live.
            self.now.sequence = self.ring.begin(self.now.resource_version.clone());
        }
    }

    fn apply(
        &mut self,
        now: Time,
        key: &str,
        json: &[u8],
        meta: &Meta<'_>,
        has: Availability,
    ) -> Result<(), StoreError> {
        let old = self.now.objects.get(key).cloned();
        // A repeated change is dropped: subscribers would see an update from an object to itself.
        let is_known = old.as_ref().is_some_and(|known| known.is(&meta.uid, &meta.resource_version));
        let result = if is_known {
            Ok(())
        } else {
            let made = self.make(key, json, meta, has);
            match &made {
                Ok(new) => self.now.objects.put(Arc::clone(new)),
                // The old version does not belong to the position that the store moves to.
                Err(_) => drop(self.now.objects.remove(key)),
            }
            self.changed(now, old, made.as_ref().ok().cloned());
            made.map(drop)
        };
        // Also for repeated and unstorable objects: the position is valid.
        self.moved(&meta.resource_version);
        result
    }

    fn delete(&mut self, now: Time, key: &str, meta: &Meta<'_>) {
        match &mut self.stage {
            Some(stage) => stage.remove(key, self.now.objects.get(key)),
            None => {
                let old = self.now.objects.remove(key);
                self.changed(now, old, None);
                self.moved(&meta.resource_version);
            }
        }
    }

    /// Creates the entry of a received object: applies the transforms and the representation, unless only the names are
    /// known.
    fn make(&mut self, key: &str, json: &[u8], meta: &Meta<'_>, has: Availability) -> Result<Arc<Entry>, StoreError> {
        if has == Availability::Names {
            let parts = Parts { key, meta, json, labels_at: 0..0, labels: None };
            return self.tagged(&parts, Body::Skipped(json.into()));
        }
        let mut changed: Option<Vec<u8>> = None;
        let mut value = None;
        for transform in &mut self.keeping.transforms {
            if let Some(done) = transform(changed.as_deref().unwrap_or(json)) {
                changed = Some(done.json);
                value = done.value;
            }
        }
        match &changed {
            // The transform may have changed or moved the labels.
            Some(json) => self.keep(&Parts { key, meta, json, labels_at: labels_in(json), labels: None }, value),
            None => {
                let labels_at = meta.labels_at.clone().unwrap_or_default();
                self.keep(&Parts { key, meta, json, labels_at, labels: None }, value)
            }
        }
    }

    fn keep(&mut self, parts: &Parts<'_>, value: Option<Arc<dyn Value>>) -> Result<Arc<Entry>, StoreError> {
        let body = self.keeping.represent.keep(parts.json, value);
        self.tagged(parts, body)
    }

    /// Creates an entry with its index values.
    fn tagged(&mut self, parts: &Parts<'_>, body: Body) -> Result<Arc<Entry>, StoreError> {
        if self.keeping.indexes.is_empty() {
            return Entry::new(parts, body).map(Arc::new);
        }
        // Index functions always see JSON, so the representation does not change the values they return.
        let (draft, body) = match body {
            body @ Body::Json(_) => (body, None),
            // Restored labels that the JSON lacks: the draft must read them from the entry's text.
            body @ (Body::Packed(_) | Body::Value { .. }) if parts.labels.is_some() => (body, None),
            body @ (Body::Packed(_) | Body::Value { .. } | Body::Skipped(_)) => {
                (Body::Json(parts.json.into()), Some(body))
            }
        };
        let draft = Arc::new(Entry::new(parts, draft)?);
        self.values.clear();
        for (index, values_of) in (0..).zip(&mut self.keeping.indexes) {
            values_of(&draft, &mut |value| self.values.push(index, value));
        }
        let entry = match (body, Arc::into_inner(draft)) {
            (None, Some(entry)) => entry,
            // An index function kept a reference to the draft, so it cannot be reused.
            (None, None) => Entry::new(parts, self.keeping.represent.keep(parts.json, None))?,
            (Some(body), _) => Entry::new(parts, body)?,
        };
        Ok(Arc::new(entry.tagged(&self.values)))
    }

    /// Records the effect of one live event on one key.
    fn changed(&mut self, now: Time, old: Option<Arc<Entry>>, new: Option<Arc<Entry>>) {
        self.now.indexes.replace(old.as_ref(), new.as_ref());
        weigh(&mut self.now.stored_bytes, old.as_ref(), new.as_ref());
        linger(&mut self.ends, now, old.as_ref(), new.as_ref(), &mut self.now.lingering);
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
        Self::new(StoreConfig::default())
    }
}

/// Updates a sum of bytes for a key whose entry changed from `old` to `new`.
fn weigh(stored_bytes: &mut u64, old: Option<&Arc<Entry>>, new: Option<&Arc<Entry>>) {
    let bytes = |entry: Option<&Arc<Entry>>| entry.map_or(0, |entry| entry.stored_bytes() as u64);
    *stored_bytes = *stored_bytes + bytes(new) - bytes(old);
}

/// Returns the range of an object's labels; an empty range if the object is unreadable or has none.
fn labels_in(json: &[u8]) -> Range<usize> {
    Meta::read(json).ok().and_then(|meta| meta.labels_at).unwrap_or_default()
}

/// Keeps `old` readable for a while if its object was deleted: it has no successor, or one with another uid.
fn linger(
    ends: &mut Option<LingerQueue>,
    now: Time,
    old: Option<&Arc<Entry>>,
    new: Option<&Arc<Entry>>,
    lingering: &mut LingeringObjects,
) {
    if let (Some(ends), Some(old)) = (ends, old)
        && new.is_none_or(|new| new.uid() != old.uid())
    {
        ends.add(now, old, lingering);
    }
}

/// Returns the changes from `old` to `new`, in key order.
///
/// Cost: proportional to the parts that the two states do not share.
pub fn diff<'a>(old: &'a Snapshot, new: &'a Snapshot) -> impl Iterator<Item = StoreChange> + 'a {
    differences(&old.objects, &new.objects, old.relists != new.relists)
}

fn differences<'a>(
    old: &'a Objects<Entry>,
    new: &'a Objects<Entry>,
    missed: bool,
) -> impl Iterator<Item = StoreChange> + 'a {
    old.diff(new).flat_map(move |difference| {
        let (old, new) = match difference {
            Difference::Added(new) => (None, Some(new)),
            Difference::Updated { old, new } => (Some(old), Some(new)),
            Difference::Removed(old) => (Some(old), None),
        };
        changes(old.cloned(), new.cloned(), missed)
    })
}

/// Returns the changes of one key whose entry changed from `old` to `new`. An update never crosses uids: an object
/// replaced under its key is a [`StoreChange::Deleted`] and a [`StoreChange::Added`].
///
/// `missed` is true if a relist lies between the two; see [`StoreChange::Deleted`].
pub fn changes(old: Option<Arc<Entry>>, new: Option<Arc<Entry>>, missed: bool) -> impl Iterator<Item = StoreChange> {
    let (first, second) = match (old, new) {
        (Some(old), Some(new)) if old.uid() == new.uid() => (Some(StoreChange::Updated { old, new }), None),
        (Some(last_known), new) => (Some(StoreChange::Deleted { last_known, missed }), new.map(StoreChange::Added)),
        (None, new) => (new.map(StoreChange::Added), None),
    };
    [first, second].into_iter().flatten()
}

impl Snapshot {
    /// Returns the object with this key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Arc<Entry>> {
        self.objects.get(key)
    }

    /// Returns the objects with `value` in the index at this position of [`StoreConfig::indexes`], in key order; empty if
    /// there is no such index. Cost: O(log n + result).
    pub fn by<'a>(&'a self, index: usize, value: &'a str) -> impl Iterator<Item = &'a Arc<Entry>> {
        self.indexes.by(index, value).chain(self.postings.by(index, value))
    }

    /// Returns all deleted objects that are still readable, in their last versions, the last deleted first.
    pub fn lingering_objects(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.lingering.iter()
    }

    /// Returns the deleted objects with this key or uid that are still readable, in their last versions, the last
    /// deleted first. A new object with the key is not among them. Cost: O(log n + result).
    pub fn lingering<'a>(&'a self, key_or_uid: &str) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        self.lingering.of(key_or_uid)
    }

    /// Returns the deleted objects that are still readable and had `value` in the index at this position, in their last
    /// versions, the last deleted first. Cost: O(log n + result).
    pub fn lingering_by<'a>(&'a self, index: usize, value: &str) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        self.lingering.by(index, value)
    }
}

#[cfg(test)]
mod tests;
