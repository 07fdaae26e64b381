//! Index values of a derived store, which cannot add them to the entries it shares with its sources.
//!
//! INVARIANT: each value of each object is in the map exactly once.

use std::sync::Arc;

use imbl::OrdMap;

use super::Entry;

/// The index values of one state. Cloning costs one reference count.
///
/// Memory: for each value about 80 bytes, its bytes, and the object's key.
#[derive(Clone, Debug, Default)]
pub(super) struct DerivedPostings {
    // By index, value and key.
    by_value: OrdMap<(u16, Arc<str>, Arc<str>), Arc<Entry>>,
}

impl DerivedPostings {
    pub(super) fn insert(&mut self, index: u16, value: &Arc<str>, entry: &Arc<Entry>) {
        self.by_value.insert((index, Arc::clone(value), entry.key().into()), Arc::clone(entry));
    }

    pub(super) fn remove(&mut self, index: u16, value: Arc<str>, key: &str) {
        self.by_value.remove(&(index, value, key.into()));
    }

    /// Returns the objects with `value` in this index, in key order. Cost: O(log n + result).
    pub(super) fn by<'a>(&'a self, index: usize, value: &str) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        // Stores that are not derived have none: no search, no allocation.
        let index = u16::try_from(index).ok().filter(|_| !self.by_value.is_empty());
        let found = index.map(|index| {
            let value: Arc<str> = value.into();
            let first = (index, Arc::clone(&value), Arc::from(""));
            self.by_value.range(first..).take_while(move |((of, found, _), _)| (*of, found) == (index, &value))
        });
        found.into_iter().flatten().map(|(_, entry)| entry)
    }
}
