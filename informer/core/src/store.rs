//! The copy of one resource type, and states of it that readers hold.
//!
//! INVARIANT: objects change only through [`Event`], and before the first by [`Store::restore`]. A relist touches
//! nothing until its end and then swaps in one step.

mod body;
mod entry;
mod index;
mod keeping;
mod linger;
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

pub use body::{Body, Packed, Value};
pub use entry::Entry;
pub use keeping::{IndexFn, Json, Keeping, Represent, TransformFn, Transformed};

use entry::{Parts, Values};
use index::Indexes;
use linger::{Ends, Lingering};
use ring::{Record, Ring};
use staging::Stage;

/// What happens to the store: the reflector's orders with the object in hand.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// Initial state begins.
    Init {
        /// Whether an object of the same uid and resourceVersion as before is the same. Not so when the server may have
        /// another history: then what readers see of both is compared.
        trusts_versions: bool,
    },
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
    /// The state put in by [`Store::restore`] is the state of the server at its position.
    Restored,
}

/// An object that cannot be kept. The store goes on without it, and without the version it had of it.
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
/// Memory: the bodies of the objects, their keys, uids and versions, and about 120 bytes each. A relist adds what
/// differs, and shares the rest with the state it replaces. Indexes: see [`Keeping::indexes`].
#[derive(Debug)]
pub struct Store {
    keeping: Keeping,
    now: Snapshot,
    stage: Option<Stage>,
    ring: Ring,
    ends: Option<Ends>,
    // Of the object at hand; kept for their allocations.
    values: Values,
    key: String,
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
    /// How many times initial state was read to its end. Two states with the same number have every change between them
    /// delivered live; with different numbers, some were only seen by what a relist no longer held.
    pub relists: u64,
    /// The number of the last change in this state, as [`ring`] counts them. Grows with every change.
    pub sequence: u64,
    /// The sum of [`Entry::kept_bytes`] of the objects. Kept as they change, never counted.
    pub kept_bytes: u64,
    indexes: Indexes,
    lingering: Lingering,
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
    pub fn new(keeping: Keeping) -> Self {
        let now = Snapshot { indexes: Indexes::new(keeping.indexes.len()), ..Snapshot::default() };
        let ends = keeping.linger.map(Ends::new);
        let (ring, values) = (Ring::default(), Values::default());
        Self { keeping, now, stage: None, ring, ends, values, key: String::new() }
    }

    /// Takes one event. Cost: O(log n), and what it takes to keep the object if it is new or changed: three allocations
    /// for one that is kept as JSON and found by no index. Of one that is already there with the same uid and
    /// resourceVersion nothing is copied.
    ///
    /// # Errors
    /// [`StoreError`] for an object that cannot be kept.
    pub fn handle(&mut self, now: Time, event: Event<'_>) -> Result<(), StoreError> {
        match event {
            Event::Init { trusts_versions } => self.stage = Some(Stage::open(&self.now.objects, trusts_versions)),
            Event::InitApply(json, meta) => return self.by_key(meta, |store, key| store.stage_object(key, json, meta)),
            Event::InitDone(position) => self.swap(now, position),
            Event::Apply(json, meta) => return self.by_key(meta, |store, key| store.apply(now, key, json, meta)),
            Event::Delete(meta) => self.by_key(meta, |store, key| store.delete(now, key, meta)),
            Event::Bookmark(position) => self.now.resource_version = Some(position),
            Event::Abandon => self.stage = None,
            Event::Restored => self.restored(),
        }
        Ok(())
    }

    /// Puts in what an earlier process saved: objects as they were kept, each with the names, uid and version that it
    /// had. Readers see them; the state counts as complete only after [`Event::Restored`], or after a relist, for
    /// which they are the state it is compared with. Objects that cannot be kept are left out.
    ///
    /// Only for a store of which nobody has seen a state. May be called again with more; the last time says the
    /// position. Transforms are not applied again.
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

    /// One of the objects of [`restore`](Self::restore), before the call that says the position. `labels`, as
    /// [`Entry::labels`] has them, are for JSON that lacks them: that of a type which does not know them.
    pub fn restore_object(&mut self, meta: &Meta<'_>, json: &[u8], labels: Option<&[u8]>) {
        let parts = Parts { key: &meta.key(), meta, json, labels_at: labels_in(json), labels };
        let Ok(entry) = self.keep(&parts, None) else { return };
        let old = self.now.objects.insert(Arc::clone(&entry));
        self.now.indexes.replace(old.as_ref(), Some(&entry));
        weigh(&mut self.now.kept_bytes, old.as_ref(), Some(&entry));
        self.restore_again(false);
    }

    /// Keeps restored JSON in the form that there is for it by now. Nobody has seen it yet.
    fn restore_again(&mut self, complete: bool) {
        let Keeping { represent, indexes, .. } = &mut self.keeping;
        if !represent.learned(complete) {
            return;
        }
        let now = &mut self.now;
        staging::keep_again(&mut now.objects, &mut **represent);
        (now.indexes, now.kept_bytes) = (Indexes::new(indexes.len()), 0);
        for entry in now.objects.iter() {
            now.indexes.replace(None, Some(entry));
            weigh(&mut now.kept_bytes, None, Some(entry));
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.ends.as_ref().and_then(Ends::next)
    }

    /// Lets go of deleted objects that have stayed long enough. Returns whether readers would see a difference.
    pub fn handle_timeout(&mut self, now: Time) -> bool {
        self.ends.as_mut().is_some_and(|ends| ends.expire(now, &mut self.now.lingering))
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

    /// Lends the text of the object's key, which is made in the same buffer for all of them.
    fn by_key<T>(&mut self, meta: &Meta<'_>, take: impl FnOnce(&mut Self, &str) -> T) -> T {
        let mut key = std::mem::take(&mut self.key);
        meta.write_key(&mut key);
        let taken = take(self, &key);
        key.shrink_to(KEY_KEEP_BYTES);
        self.key = key;
        taken
    }

    fn stage_object(&mut self, key: &str, json: &[u8], meta: &Meta<'_>) -> Result<(), StoreError> {
        let is_same_version =
            |known: &&Arc<Entry>| known.uid() == meta.uid && known.resource_version() == meta.resource_version;
        let known = self.now.objects.get(key).filter(is_same_version).cloned();
        // Two objects without a version are only the same if they show the same.
        let has_version = !meta.resource_version.is_empty();
        let trusts_versions = has_version && self.stage.as_ref().is_none_or(|stage| stage.trusts_versions);
        let made = match &known {
            Some(_) if trusts_versions => None,
            Some(_) | None => Some(self.make(key, json, meta)),
        };
        let stage = self.stage.get_or_insert_with(|| Stage::open(&self.now.objects, true));
        match made {
            // An earlier version of it, in the stage or in the current state, is not part of this state.
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
        // The old state is held, and its tree copied where it changes, only for somebody who wants to know.
        let before = (self.now.synced && self.ring.is_wanted()).then(|| self.now.objects.clone());
        if let Some(mut stage) = self.stage.take() {
            if self.keeping.represent.learned(true) {
                stage.keep_again(&mut *self.keeping.represent);
            }
            // A restored state of another history was never here, so nothing of it was deleted.
            let was_here = self.now.synced || stage.trusts_versions;
            let Snapshot { objects, indexes, lingering, kept_bytes, .. } = &mut self.now;
            stage.commit(objects, |old, new| {
                indexes.replace(old, new);
                weigh(kept_bytes, old, new);
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

    /// The restored state counts as the first that was complete.
    fn restored(&mut self) {
        if !self.now.synced {
            self.now.synced = true;
            // Not by reading it again: every change since it was saved comes live.
            self.now.sequence = self.ring.begin(self.now.resource_version.clone());
        }
    }

    fn apply(&mut self, now: Time, key: &str, json: &[u8], meta: &Meta<'_>) -> Result<(), StoreError> {
        let old = self.now.objects.get(key).cloned();
        // A change sent twice is no change: subscribers would see an update from an object to itself.
        let is_known = old.as_ref().is_some_and(|known| known.is(&meta.uid, &meta.resource_version));
        let kept = if is_known {
            Ok(())
        } else {
            let made = self.make(key, json, meta);
            match &made {
                Ok(new) => self.now.objects.put(Arc::clone(new)),
                // The old version is not the state at the position that the store moves to.
                Err(_) => drop(self.now.objects.remove(key)),
            }
            self.changed(now, old, made.as_ref().ok().cloned());
            made.map(drop)
        };
        self.moved(&meta.resource_version);
        kept
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

    /// An object as it was received becomes one as it is kept.
    fn make(&mut self, key: &str, json: &[u8], meta: &Meta<'_>) -> Result<Arc<Entry>, StoreError> {
        let mut changed: Option<Vec<u8>> = None;
        let mut value = None;
        for transform in &mut self.keeping.transforms {
            if let Some(done) = transform(changed.as_deref().unwrap_or(json)) {
                changed = Some(done.json);
                value = done.value;
            }
        }
        match &changed {
            Some(json) => self.keep(&Parts { key, meta, json, labels_at: labels_in(json), labels: None }, value),
            None => {
                let labels_at = meta.labels_at.clone().unwrap_or_default();
                self.keep(&Parts { key, meta, json, labels_at, labels: None }, value)
            }
        }
    }

    fn keep(&mut self, parts: &Parts<'_>, value: Option<Arc<dyn Value>>) -> Result<Arc<Entry>, StoreError> {
        let body = self.keeping.represent.keep(parts.json, value);
        if self.keeping.indexes.is_empty() {
            return Entry::new(parts, body).map(Arc::new);
        }
        // Values are told of the JSON form, so that each form has the same.
        let (draft, body) = match body {
            body @ Body::Json(_) => (body, None),
            // There is no JSON that has all there is of it.
            body @ (Body::Packed(_) | Body::Value { .. }) if parts.labels.is_some() => (body, None),
            body @ (Body::Packed(_) | Body::Value { .. }) => (Body::Json(parts.json.into()), Some(body)),
        };
        let draft = Arc::new(Entry::new(parts, draft)?);
        self.values.clear();
        for (index, values_of) in (0..).zip(&mut self.keeping.indexes) {
            values_of(&draft, &mut |value| self.values.push(index, value));
        }
        let entry = match (body, Arc::into_inner(draft)) {
            (None, Some(entry)) => entry,
            // An index function kept the object it was shown.
            (None, None) => Entry::new(parts, self.keeping.represent.keep(parts.json, None))?,
            (Some(body), _) => Entry::new(parts, body)?,
        };
        Ok(Arc::new(entry.tagged(&self.values)))
    }

    /// Notes what one live event did to one key.
    fn changed(&mut self, now: Time, old: Option<Arc<Entry>>, new: Option<Arc<Entry>>) {
        self.now.indexes.replace(old.as_ref(), new.as_ref());
        weigh(&mut self.now.kept_bytes, old.as_ref(), new.as_ref());
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
        Self::new(Keeping::default())
    }
}

/// Keeps a sum of bytes in step with one key that held `old` and holds `new`.
fn weigh(kept_bytes: &mut u64, old: Option<&Arc<Entry>>, new: Option<&Arc<Entry>>) {
    let bytes = |entry: Option<&Arc<Entry>>| entry.map_or(0, |entry| entry.kept_bytes() as u64);
    *kept_bytes = *kept_bytes + bytes(new) - bytes(old);
}

/// Where the labels are in an object; nowhere when nothing of it can be read.
fn labels_in(json: &[u8]) -> Range<usize> {
    Meta::read(json).ok().and_then(|meta| meta.labels_at).unwrap_or_default()
}

/// Keeps `old` for a while if its object is gone: it has no successor, or one of another uid.
fn linger(
    ends: &mut Option<Ends>,
    now: Time,
    old: Option<&Arc<Entry>>,
    new: Option<&Arc<Entry>>,
    lingering: &mut Lingering,
) {
    if let (Some(ends), Some(old)) = (ends, old)
        && new.is_none_or(|new| new.uid() != old.uid())
    {
        ends.add(now, old, lingering);
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

    /// The objects that the index at this position of [`Keeping::indexes`] finds by `value`, in key order; none for an
    /// index there is not. Cost: O(log n + result).
    pub fn by<'a>(&'a self, index: usize, value: &'a str) -> impl Iterator<Item = &'a Arc<Entry>> {
        self.indexes.by(index, value)
    }

    /// Deleted objects of this key, or of this uid, that are still readable, as they were last; the last deleted
    /// first. An object that has taken the key since is not among them. Cost: O(log n + result).
    pub fn lingering<'a>(&'a self, key_or_uid: &str) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        self.lingering.of(key_or_uid)
    }

    /// Deleted objects that are still readable and that the index at this position found by `value`, as they were last;
    /// the last deleted first. Cost: O(log n + result).
    pub fn lingering_by<'a>(&'a self, index: usize, value: &str) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        self.lingering.by(index, value)
    }
}

#[cfg(test)]
mod tests;
