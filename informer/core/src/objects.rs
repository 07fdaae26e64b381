//! The ordered map of the objects of one resource type, used by the client and the server.
//!
//! The order is the byte order of `namespace/name`, like Kubernetes' storage keys. A tuple of the two would sort
//! differently: `-` and `.` sort before `/`.

use std::{borrow::Borrow, cmp::Ordering, fmt, iter::FusedIterator, ops::Bound, sync::Arc};

use imbl::{
    OrdMap,
    ordmap::{self, DiffItem},
    shared_ptr::DefaultSharedPtr,
};

/// A value with a key: `namespace/name`, or `name` for cluster-scoped types.
pub trait KeyedObject {
    /// The key. Constant for the lifetime of the value.
    fn key(&self) -> &str;
}

/// Objects by key, with O(1) snapshots.
///
/// Shape: ordered by key, one entry per key; entries are shared and never copied. Cost: `clone` is one reference count;
/// `insert` and `remove` are O(log n) and copy the path if a snapshot holds it; `diff` is proportional to the changes.
pub struct Objects<E: KeyedObject> {
    // The stamp is the map's value because the diff of two sets cannot see a replaced entry with an equal key.
    map: OrdMap<EntrySlot<E>, Stamp>,
}

/// The change of one key between two states.
#[derive(Debug)]
pub enum Difference<'a, E> {
    /// Absent before.
    Added(&'a Arc<E>),
    /// Present before and now, as another entry.
    Updated {
        /// The old entry.
        old: &'a Arc<E>,
        /// The new entry.
        new: &'a Arc<E>,
    },
    /// Present before, absent now.
    Removed(&'a Arc<E>),
}

impl<E: KeyedObject> Objects<E> {
    /// Creates an empty map.
    #[must_use]
    pub fn new() -> Self {
        Self { map: OrdMap::new() }
    }

    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Returns true if there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Returns the entry of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Arc<E>> {
        self.map.get_key_value(key).map(|(slot, _)| &slot.0)
    }

    /// Inserts `entry` under its key and returns the previous entry.
    pub fn insert(&mut self, entry: Arc<E>) -> Option<Arc<E>> {
        let previous = self.get(entry.key()).cloned();
        self.put(entry);
        previous
    }

    /// Inserts `entry` under its key. One search less than [`insert`](Self::insert), for callers that do not need the
    /// previous entry.
    pub fn put(&mut self, entry: Arc<E>) {
        let stamp = Stamp::of(&entry);
        self.map.insert(EntrySlot(entry), stamp);
    }

    /// Removes `key` and returns its entry.
    pub fn remove(&mut self, key: &str) -> Option<Arc<E>> {
        self.map.remove_with_key(key).map(|(slot, _)| slot.0)
    }

    /// All entries in key order.
    #[must_use]
    pub fn iter(&self) -> ObjectsIter<'_, E> {
        ObjectsIter { slots: self.map.iter() }
    }

    /// Returns the entries with a key after `key`, in order; all of them for `None`. Cost: O(log n) to find the first.
    pub fn after<'a>(&'a self, key: Option<&str>) -> impl Iterator<Item = &'a Arc<E>> {
        let low = key.map_or(Bound::Unbounded, Bound::Excluded);
        self.map.range::<_, str>((low, Bound::Unbounded)).map(|(slot, _)| &slot.0)
    }

    /// Returns the entries with a key at or after `key`, in order. Cost: O(log n) to find the first.
    pub fn from<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a Arc<E>> {
        self.map.range::<_, str>((Bound::Included(key), Bound::Unbounded)).map(|(slot, _)| &slot.0)
    }

    /// Returns the entries of one namespace in order. Cost: O(log n + result).
    pub fn namespace<'a>(&'a self, namespace: &str) -> impl Iterator<Item = &'a Arc<E>> {
        let prefix = format!("{namespace}/");
        let low: Bound<&str> = Bound::Included(&prefix);
        self.map
            .range::<_, str>((low, Bound::Unbounded))
            .map(|(slot, _)| &slot.0)
            .take_while(move |entry| entry.key().starts_with(&prefix))
    }

    /// Returns the changes from `self` to `newer`, in key order. Cost: proportional to the parts the two do not share.
    pub fn diff<'a>(&'a self, newer: &'a Self) -> impl Iterator<Item = Difference<'a, E>> {
        self.map.diff(&newer.map).map(|item| match item {
            DiffItem::Add(slot, _) => Difference::Added(&slot.0),
            DiffItem::Update { old: (old, _), new: (new, _) } => Difference::Updated { old: &old.0, new: &new.0 },
            DiffItem::Remove(slot, _) => Difference::Removed(&slot.0),
        })
    }

    /// Returns true if both share one tree, without comparing entries. They may be equal even if this is false.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        self.map.ptr_eq(&other.map)
    }
}

impl<E: KeyedObject> Default for Objects<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: KeyedObject> Clone for Objects<E> {
    fn clone(&self) -> Self {
        Self { map: self.map.clone() }
    }
}

impl<E: KeyedObject> fmt::Debug for Objects<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|entry| entry.key())).finish()
    }
}

impl<'a, E: KeyedObject> IntoIterator for &'a Objects<E> {
    type Item = &'a Arc<E>;
    type IntoIter = ObjectsIter<'a, E>;

    fn into_iter(self) -> ObjectsIter<'a, E> {
        self.iter()
    }
}

/// All entries of an [`Objects`] in key order.
pub struct ObjectsIter<'a, E> {
    slots: ordmap::Iter<'a, EntrySlot<E>, Stamp, DefaultSharedPtr>,
}

impl<'a, E> Iterator for ObjectsIter<'a, E> {
    type Item = &'a Arc<E>;

    fn next(&mut self) -> Option<&'a Arc<E>> {
        self.slots.next().map(|(slot, _)| &slot.0)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.slots.size_hint()
    }
}

impl<E> DoubleEndedIterator for ObjectsIter<'_, E> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.slots.next_back().map(|(slot, _)| &slot.0)
    }
}

impl<E> ExactSizeIterator for ObjectsIter<'_, E> {}

impl<E> FusedIterator for ObjectsIter<'_, E> {}

impl<E> Clone for ObjectsIter<'_, E> {
    fn clone(&self) -> Self {
        Self { slots: self.slots.clone() }
    }
}

impl<E> fmt::Debug for ObjectsIter<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectsIter").field("left", &self.len()).finish_non_exhaustive()
    }
}

impl<E: KeyedObject> FromIterator<Arc<E>> for Objects<E> {
    fn from_iter<I: IntoIterator<Item = Arc<E>>>(entries: I) -> Self {
        let mut objects = Self::new();
        for entry in entries {
            objects.put(entry);
        }
        objects
    }
}

/// An entry in the map, compared only by key.
struct EntrySlot<E>(Arc<E>);

/// Identity of an entry: its address, unique while any state holds it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp(usize);

impl Stamp {
    fn of<E>(entry: &Arc<E>) -> Self {
        Self(Arc::as_ptr(entry).addr())
    }
}

impl<E> Clone for EntrySlot<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E: KeyedObject> Borrow<str> for EntrySlot<E> {
    fn borrow(&self) -> &str {
        self.0.key()
    }
}

impl<E: KeyedObject> PartialEq for EntrySlot<E> {
    fn eq(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
}

impl<E: KeyedObject> Eq for EntrySlot<E> {}

impl<E: KeyedObject> PartialOrd for EntrySlot<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E: KeyedObject> Ord for EntrySlot<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key().cmp(other.0.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Named(&'static str, u32);

    impl KeyedObject for Named {
        fn key(&self) -> &str {
            self.0
        }
    }

    fn objects(keys: &[&'static str]) -> Objects<Named> {
        keys.iter().map(|key| Arc::new(Named(key, 0))).collect()
    }

    fn keys<'a>(entries: impl Iterator<Item = &'a Arc<Named>>) -> Vec<&'a str> {
        entries.map(|entry| entry.0).collect()
    }

    /// Goal: storage key order. Method: names that a tuple of (namespace, name) would sort differently.
    #[test]
    fn order_is_that_of_storage_keys() {
        let state = objects(&["foo/a", "foo-bar/a", "foobar/a", "foo.x/a", "foo/b"]);
        assert_eq!(keys(state.iter()), ["foo-bar/a", "foo.x/a", "foo/a", "foo/b", "foobar/a"]);
        let mut rest = state.iter();
        assert_eq!((rest.next_back().map(|last| last.0), rest.len()), (Some("foobar/a"), 4));
        assert_eq!(keys(state.namespace("foo")), ["foo/a", "foo/b"]);
        assert_eq!(keys(state.after(Some("foo/a"))), ["foo/b", "foobar/a"]);
        assert_eq!(keys(state.from("foo/a")), ["foo/a", "foo/b", "foobar/a"]);
    }

    #[test]
    fn a_snapshot_stays_as_it_was_and_the_difference_tells_the_rest() {
        let mut state = objects(&["a", "b", "c"]);
        let before = state.clone();
        assert!(before.same(&state));
        state.insert(Arc::new(Named("b", 1)));
        state.remove("c");
        state.insert(Arc::new(Named("d", 0)));
        assert_eq!(keys(before.iter()), ["a", "b", "c"]);
        let differences: Vec<String> = before
            .diff(&state)
            .map(|difference| match difference {
                Difference::Added(entry) => format!("+{}", entry.0),
                Difference::Updated { old, new } => format!("{}{}>{}", old.0, old.1, new.1),
                Difference::Removed(entry) => format!("-{}", entry.0),
            })
            .collect();
        assert_eq!(differences, ["b0>1", "-c", "+d"]);
    }
}
