//! A store derived from other stores of one resource type: the objects of all of them that pass a filter.
//!
//! INVARIANT: the objects are those of the last followed state of each source that pass the filter. The sources hold
//! disjoint keys.

use std::{cmp::Ordering, collections::HashMap, fmt, sync::Arc};

use super::{
    Entry, IndexFn, Snapshot, StoreChange, changes, diff,
    ring::{Listener, Record, Ring},
    weigh,
};
use crate::{limits::INDEX_VALUE_BYTES_MAX, resource_version::ResourceVersion};

/// Returns true for the entries that a derived store holds. Constant: equal entries get equal results.
pub type EntryFilter = Box<dyn Fn(&Entry) -> bool + Send>;

/// Changes of a source that its ring keeps while a reader of the derived store needs each change. Memory: 48 bytes
/// each, and the object version that the change replaced. A source that is further ahead resets those readers.
const FOLLOWED_CHANGES_MAX: usize = 4_096;

/// The objects of one or more stores that pass a filter, kept in step by their snapshots.
///
/// Memory: about 30 bytes for each object that passes, which is shared with its source, and the last state of each
/// source, which shares all unchanged objects with it. Each index value costs about 120 bytes more. Deleted objects are
/// not kept, and index values of the sources are not taken over.
pub struct DerivedStore {
    now: Snapshot,
    ring: Ring,
    filter: EntryFilter,
    sources: Vec<FollowedStore>,
    indexes: Vec<IndexFn>,
    /// Index values of each object that has some.
    values: HashMap<Box<str>, IndexValues>,
}

/// Values of one object, each with the position of its index.
type IndexValues = Vec<(u16, Arc<str>)>;

/// A source, as it was followed last.
struct FollowedStore {
    state: Snapshot,
    ring: Ring,
    /// Present while a reader of the derived store needs each change.
    listener: Option<Listener>,
}

impl DerivedStore {
    /// Creates an empty store. `sources` are the rings of the stores it will follow.
    #[must_use]
    pub fn new(sources: impl IntoIterator<Item = Ring>, filter: EntryFilter) -> Self {
        let followed = |ring| FollowedStore { state: Snapshot::default(), ring, listener: None };
        let sources = sources.into_iter().map(followed).collect();
        let (now, ring) = (Snapshot::default(), Ring::default());
        Self { now, ring, filter, sources, indexes: Vec::new(), values: HashMap::new() }
    }

    /// Adds indexes, before the first state is followed. [`Snapshot::by`] takes the position in this list.
    #[must_use]
    pub fn with_indexes(mut self, indexes: Vec<IndexFn>) -> Self {
        self.indexes = indexes;
        self
    }

    /// Returns the current state. It counts as complete once every source is. Its position is the lowest of the
    /// sources' positions; `None` if they do not compare.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.now.clone()
    }

    /// Recent changes, for readers that need each of them.
    #[must_use]
    pub const fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Takes over the current state of one source. Returns true if readers would see a difference.
    ///
    /// Cost: proportional to the parts that this state does not share with the source's last one.
    ///
    /// # Panics
    /// If there is no such source.
    pub fn follow(&mut self, source: usize, state: &Snapshot) -> bool {
        let followed = &mut self.sources[source];
        let old = std::mem::replace(&mut followed.state, state.clone());
        let recorded = followed.listener.as_ref().map(|it| it.read(old.sequence, state.sequence, usize::MAX));
        let recorded = recorded.and_then(Result::ok);
        let listener = followed.listener.take().filter(|_| self.ring.has_listeners());
        followed.listener =
            listener.or_else(|| self.ring.has_listeners().then(|| followed.ring.listen(FOLLOWED_CHANGES_MAX, state)));

        let before = (self.now.synced, self.now.sequence, self.now.resource_version.clone());
        self.now.resource_version = self.lowest_version();
        match recorded.or_else(|| single(&old, state)).filter(|_| before.0) {
            Some(records) => records.into_iter().for_each(|record| self.record(record)),
            None => self.skip_to(&old, state),
        }
        self.now.relists += state.relists.saturating_sub(old.relists);
        self.now.synced = self.sources.iter().all(|followed| followed.state.synced);
        if self.now.synced && !before.0 {
            self.now.sequence = self.ring.begin(self.now.resource_version.clone());
        }
        before != (self.now.synced, self.now.sequence, self.now.resource_version.clone())
    }

    /// Takes over one change of a source.
    fn record(&mut self, record: Record) {
        match record {
            Record::Change(change) => {
                let (old, new, missed) = match change {
                    StoreChange::Added(new) => (None, Some(new), false),
                    StoreChange::Updated { old, new } => (Some(old), Some(new), false),
                    StoreChange::Deleted { last_known, missed } => (Some(last_known), None, missed),
                };
                let (old, new) = self.replace(old, new);
                for change in changes(old, new, missed) {
                    self.now.sequence = self.ring.record(Record::Change(change));
                }
            }
            Record::Synced(of_source) => {
                let version = self.now.resource_version.clone().map_or(of_source, Box::new);
                self.now.sequence = self.ring.record(Record::Synced(version));
            }
        }
    }

    /// Takes over a difference of unknown order: readers that need each change are reset.
    fn skip_to(&mut self, old: &Snapshot, new: &Snapshot) {
        let mut has_changed = old.relists != new.relists;
        for change in diff(old, new) {
            let (old, new) = match change {
                StoreChange::Added(new) => self.replace(None, Some(new)),
                StoreChange::Updated { old, new } => self.replace(Some(old), Some(new)),
                StoreChange::Deleted { last_known, .. } => self.replace(Some(last_known), None),
            };
            has_changed |= old.is_some() || new.is_some();
        }
        if has_changed {
            self.now.sequence = self.ring.skip();
        }
    }

    /// Replaces one object by its new version. Returns the two versions, each if it passes the filter.
    fn replace(
        &mut self,
        old: Option<Arc<Entry>>,
        new: Option<Arc<Entry>>,
    ) -> (Option<Arc<Entry>>, Option<Arc<Entry>>) {
        let (old, new) = (old.filter(|old| (self.filter)(old)), new.filter(|new| (self.filter)(new)));
        match (&old, &new) {
            (_, Some(new)) => self.now.objects.put(Arc::clone(new)),
            (Some(old), None) => drop(self.now.objects.remove(old.key())),
            (None, None) => {}
        }
        weigh(&mut self.now.stored_bytes, old.as_ref(), new.as_ref());
        if !self.indexes.is_empty() {
            self.index(old.as_deref(), new.as_ref());
        }
        (old, new)
    }

    fn index(&mut self, old: Option<&Entry>, new: Option<&Arc<Entry>>) {
        if let Some(old) = old {
            for (index, value) in self.values.remove(old.key()).unwrap_or_default() {
                self.now.postings.remove(index, value, old.key());
            }
        }
        let Some(new) = new else { return };
        let mut values = IndexValues::new();
        for (index, values_of) in (0..).zip(&mut self.indexes) {
            values_of(new, &mut |value| {
                let is_known = values.iter().any(|(of, known)| *of == index && **known == *value);
                if value.len() <= INDEX_VALUE_BYTES_MAX && !is_known {
                    values.push((index, value.into()));
                }
            });
        }
        for (index, value) in &values {
            self.now.postings.insert(*index, value, new);
        }
        if !values.is_empty() {
            self.values.insert(new.key().into(), values);
        }
    }

    fn lowest_version(&self) -> Option<ResourceVersion> {
        let mut versions = self.sources.iter().map(|followed| followed.state.resource_version.as_ref());
        let first = versions.next()??;
        let lowest = versions.try_fold(first, |lowest, version| {
            let version = version?;
            Some(if version.compare(lowest)? == Ordering::Less { version } else { lowest })
        });
        lowest.cloned()
    }
}

/// The change between two states, if at most one lies between them: then it needs no ring.
fn single(old: &Snapshot, new: &Snapshot) -> Option<Vec<Record>> {
    let is_single = old.relists == new.relists && new.sequence.saturating_sub(old.sequence) <= 1;
    is_single.then(|| diff(old, new).map(Record::Change).collect())
}

impl fmt::Debug for DerivedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DerivedStore")
            .field("objects", &self.now.objects.len())
            .field("sources", &self.sources.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
