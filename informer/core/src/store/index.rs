//! Indexes of objects by the values that index functions report on arrival.
//!
//! INVARIANT: an index holds each value of each object of the state exactly once, and no other value.

use std::{borrow::Borrow, cmp::Ordering, fmt, ops::Bound, sync::Arc};

use imbl::OrdSet;

use super::Entry;

/// The indexes of one state. Cloning costs one reference count.
///
/// Memory: about 24 bytes here for each value of each object; see [`Entry`] for the values themselves.
#[derive(Clone, Debug, Default)]
pub(super) struct Indexes {
    all: Arc<Vec<OrdSet<Posting>>>,
}

/// One value of one object. Ordered by value, then by key.
#[derive(Clone)]
struct Posting {
    entry: Arc<Entry>,
    tag: Tag,
}

/// Position of an index value in an entry's text, and the index it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) index: u16,
    pub(super) value_bytes: u16,
    pub(super) at: u32,
}

impl Indexes {
    pub(super) fn new(count: usize) -> Self {
        Self { all: Arc::new(vec![OrdSet::new(); count]) }
    }

    /// Replaces `old` by `new`; either may be absent. Cost: O(log n) for each of their values.
    pub(super) fn replace(&mut self, old: Option<&Arc<Entry>>, new: Option<&Arc<Entry>>) {
        let tags = |entry: Option<&Arc<Entry>>| entry.is_some_and(|entry| !entry.tags().is_empty());
        // Without this, `make_mut` would copy the list of indexes for nothing whenever a snapshot shares it.
        if !tags(old) && !tags(new) {
            return;
        }
        let all = Arc::make_mut(&mut self.all);
        let set = |tag: &Tag| usize::from(tag.index);
        for (entry, tag) in postings(old) {
            // `insert` below replaces a value that stays, in one step.
            let stays = new.is_some_and(|new| new.is_found_by(tag.index, entry.value(tag)));
            if !stays && let Some(index) = all.get_mut(set(tag)) {
                index.remove(&Posting::of(entry, tag));
            }
        }
        for (entry, tag) in postings(new) {
            if let Some(index) = all.get_mut(set(tag)) {
                index.insert(Posting::of(entry, tag));
            }
        }
    }

    /// Returns the objects with this value, in key order; empty if there is no such index. Cost: O(log n + result).
    pub(super) fn by<'a>(&'a self, index: usize, value: &'a str) -> impl Iterator<Item = &'a Arc<Entry>> {
        let low = (value, "");
        let low: Bound<&dyn PostingKey> = Bound::Included(&low);
        let found = self.all.get(index).map(|postings| postings.range::<_, dyn PostingKey>((low, Bound::Unbounded)));
        let found = found.into_iter().flatten().take_while(move |posting| posting.value() == value);
        found.map(|posting| &posting.entry)
    }
}

fn postings(entry: Option<&Arc<Entry>>) -> impl Iterator<Item = (&Arc<Entry>, &Tag)> {
    entry.into_iter().flat_map(|entry| entry.tags().iter().map(move |tag| (entry, tag)))
}

impl Posting {
    fn of(entry: &Arc<Entry>, tag: &Tag) -> Self {
        Self { entry: Arc::clone(entry), tag: *tag }
    }

    fn value(&self) -> &str {
        self.entry.value(&self.tag)
    }
}

impl fmt::Debug for Posting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {:?}", self.value(), self.entry)
    }
}

/// Sort key of postings, a value and a key; also lets a search run without a posting.
trait PostingKey {
    fn place(&self) -> (&str, &str);
}

impl PostingKey for Posting {
    fn place(&self) -> (&str, &str) {
        (self.value(), self.entry.key())
    }
}

impl PostingKey for (&str, &str) {
    fn place(&self) -> (&str, &str) {
        *self
    }
}

impl<'a> Borrow<dyn PostingKey + 'a> for Posting {
    fn borrow(&self) -> &(dyn PostingKey + 'a) {
        self
    }
}

impl PartialEq for dyn PostingKey + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for dyn PostingKey + '_ {}

impl PartialOrd for dyn PostingKey + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn PostingKey + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().cmp(&other.place())
    }
}

impl PartialEq for Posting {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for Posting {}

impl PartialOrd for Posting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Posting {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().cmp(&other.place())
    }
}
