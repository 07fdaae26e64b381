//! The items of one LIST answer: where a page starts and ends in a snapshot, and its items one by one.

use std::sync::Arc;

use crate::{
    cache::Snapshot,
    filter::Filter,
    slices::{Budget, Slices},
};

/// The items of one LIST answer. Holds a snapshot and a key, no list of items.
#[derive(Debug)]
pub struct Page {}

impl Page {
    /// The objects of `snapshot` that `filter` wants, from `start` (as in a continue token: relative to the namespace of
    /// the path, inclusive), at most `limit` of them. Cost: without a limit nothing; with one, the page is walked once to
    /// find its end.
    #[must_use]
    pub fn new(snapshot: Snapshot, filter: Arc<Filter>, start: Option<&str>, limit: Option<usize>) -> Self {
        todo!("{snapshot:?} {filter:?} {start:?} {limit:?}")
    }

    /// What the list's metadata says.
    #[must_use]
    pub fn resource_version(&self) -> u64 {
        todo!()
    }

    /// `start` of the next page, when at least one more stored object follows in the range, wanted or not.
    #[must_use]
    pub fn next(&self) -> Option<&str> {
        todo!()
    }

    /// Objects after this page; only with [`Self::next`] and without selectors.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        todo!()
    }

    /// Pushes items with the commas between them, within `budget`. `false` once the last is pushed; `true` may push
    /// nothing when nothing matched so far.
    pub fn step(&mut self, budget: Budget, out: &mut Slices) -> bool {
        todo!("{budget:?} {out:?}")
    }

    /// Whether the snapshot became too expensive to keep: reset the connection, never end it cleanly.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        todo!()
    }
}
