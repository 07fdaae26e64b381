//! The ordered map of the objects of one resource type, used by both ends.
//!
//! Order is byte order of `namespace/name`, which is the order of Kubernetes' storage keys. Never by tuple: `-` and `.`
//! sort before `/`.

use std::{borrow::Borrow, cmp::Ordering, ops::Bound, sync::Arc};

use imbl::{OrdMap, ordmap::DiffItem};

/// Something with a key: `namespace/name`, or `name` for cluster-scoped types.
pub trait Keyed {
    /// The key. Constant for the life of the value.
    fn key(&self) -> &str;
}

/// Objects by key, with snapshots in O(1).
///
/// Shape: ordered by key, one entry a key, entries shared and never copied. Cost: `clone` is one reference count;
/// `insert` and `remove` O(log n), copying the touched path when a snapshot holds it; `diff` what changed.
pub struct Objects<E: Keyed> {
    // The stamp is the value because the difference of two sets cannot see a replaced entry of equal key.
    map: OrdMap<Slot<E>, Stamp>,
}

/// What became of one key between two states.
#[derive(Debug)]
pub enum Difference<'a, E> {
    /// Not there before.
    Added(&'a Arc<E>),
    /// There before and now, as another entry.
    Updated {
        /// The entry before.
        old: &'a Arc<E>,
        /// The entry now.
        new: &'a Arc<E>,
    },
    /// There before, gone now.
    Removed(&'a Arc<E>),
}

impl<E: Keyed> Objects<E> {
    /// An empty map.
    #[must_use]
    pub fn new() -> Self {
        Self { map: OrdMap::new() }
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The entry of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Arc<E>> {
        self.map.get_key_value(key).map(|(slot, _)| &slot.0)
    }

    /// Puts `entry` in the place of its key and returns what was there.
    pub fn insert(&mut self, entry: Arc<E>) -> Option<Arc<E>> {
        let previous = self.get(entry.key()).cloned();
        self.put(entry);
        previous
    }

    /// Puts `entry` in the place of its key. One search less than [`insert`](Self::insert), for whoever has what was
    /// there or does not care.
    pub fn put(&mut self, entry: Arc<E>) {
        let stamp = Stamp::of(&entry);
        self.map.insert(Slot(entry), stamp);
    }

    /// Takes `key` out and returns what was there.
    pub fn remove(&mut self, key: &str) -> Option<Arc<E>> {
        self.map.remove_with_key(key).map(|(slot, _)| slot.0)
    }

    /// All entries in key order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<E>> {
        self.map.iter().map(|(slot, _)| &slot.0)
    }

    /// Entries with a key after `key`, in order; all of them for `None`. Cost: O(log n) to find the first.
    pub fn after<'a>(&'a self, key: Option<&str>) -> impl Iterator<Item = &'a Arc<E>> {
        let low = key.map_or(Bound::Unbounded, Bound::Excluded);
        self.map.range::<_, str>((low, Bound::Unbounded)).map(|(slot, _)| &slot.0)
    }

    /// Entries with a key at or after `key`, in order. Cost: O(log n) to find the first.
    pub fn from<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a Arc<E>> {
        self.map.range::<_, str>((Bound::Included(key), Bound::Unbounded)).map(|(slot, _)| &slot.0)
    }

    /// Entries of one namespace in order. Cost: O(log n + result).
    pub fn namespace<'a>(&'a self, namespace: &str) -> impl Iterator<Item = &'a Arc<E>> {
        let prefix = format!("{namespace}/");
        let low: Bound<&str> = Bound::Included(&prefix);
        self.map
            .range::<_, str>((low, Bound::Unbounded))
            .map(|(slot, _)| &slot.0)
            .take_while(move |entry| entry.key().starts_with(&prefix))
    }

    /// What changed from `self` to `newer`, in key order. Cost: the parts the two states do not share.
    pub fn diff<'a>(&'a self, newer: &'a Self) -> impl Iterator<Item = Difference<'a, E>> {
        self.map.diff(&newer.map).map(|item| match item {
            DiffItem::Add(slot, _) => Difference::Added(&slot.0),
            DiffItem::Update { old: (old, _), new: (new, _) } => Difference::Updated { old: &old.0, new: &new.0 },
            DiffItem::Remove(slot, _) => Difference::Removed(&slot.0),
        })
    }

    /// Whether both are the same state, told without looking at entries. `false` may still be equal.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        self.map.ptr_eq(&other.map)
    }
}

impl<E: Keyed> Default for Objects<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Keyed> Clone for Objects<E> {
    fn clone(&self) -> Self {
        Self { map: self.map.clone() }
    }
}

impl<E: Keyed> std::fmt::Debug for Objects<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter().map(|entry| entry.key())).finish()
    }
}

impl<E: Keyed> FromIterator<Arc<E>> for Objects<E> {
    fn from_iter<I: IntoIterator<Item = Arc<E>>>(entries: I) -> Self {
        let mut objects = Self::new();
        for entry in entries {
            objects.put(entry);
        }
        objects
    }
}

/// An entry in its place: compared by key alone.
struct Slot<E>(Arc<E>);

/// Which entry it is: its address, unique while any state holds it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp(usize);

impl Stamp {
    fn of<E>(entry: &Arc<E>) -> Self {
        Self(Arc::as_ptr(entry).addr())
    }
}

impl<E> Clone for Slot<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E: Keyed> Borrow<str> for Slot<E> {
    fn borrow(&self) -> &str {
        self.0.key()
    }
}

impl<E: Keyed> PartialEq for Slot<E> {
    fn eq(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
}

impl<E: Keyed> Eq for Slot<E> {}

impl<E: Keyed> PartialOrd for Slot<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E: Keyed> Ord for Slot<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key().cmp(other.0.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Named(&'static str, u32);

    impl Keyed for Named {
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

    /// Goal: storage key order. Method: the names that a tuple of (namespace, name) sorts differently.
    #[test]
    fn order_is_that_of_storage_keys() {
        let state = objects(&["foo/a", "foo-bar/a", "foobar/a", "foo.x/a", "foo/b"]);
        assert_eq!(keys(state.iter()), ["foo-bar/a", "foo.x/a", "foo/a", "foo/b", "foobar/a"]);
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
        let told: Vec<String> = before
            .diff(&state)
            .map(|difference| match difference {
                Difference::Added(entry) => format!("+{}", entry.0),
                Difference::Updated { old, new } => format!("{}{}>{}", old.0, old.1, new.1),
                Difference::Removed(entry) => format!("-{}", entry.0),
            })
            .collect();
        assert_eq!(told, ["b0>1", "-c", "+d"]);
    }
}
