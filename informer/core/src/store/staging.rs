//! Initial state while it is gathered. Only what differs is kept twice, and nothing shows before the end.

use std::sync::Arc;

use super::Entry;
use crate::objects::Objects;

/// What a relist has found out so far.
///
/// INVARIANT: a key of the current state is in exactly one of three places: confirmed (in neither map), in `staged`
/// (it differs), or in `unseen` (not mentioned, or deleted since).
#[derive(Debug)]
pub(super) struct Stage {
    /// New and changed objects.
    staged: Objects<Entry>,
    /// Objects of the current state that have not been mentioned. Starts as all of them, sharing the current state's
    /// tree; what is left at the end has vanished. Shrinks from one side when objects come in key order, as servers
    /// send them, so only the leaf in work is ever a copy.
    unseen: Objects<Entry>,
}

impl Stage {
    /// Begins from `current`. Cost: one reference count.
    pub(super) fn open(current: &Objects<Entry>) -> Self {
        Self { staged: Objects::new(), unseen: current.clone() }
    }

    /// The object of `key` is as it is in the current state.
    pub(super) fn confirm(&mut self, key: &str) {
        self.unseen.remove(key);
        self.staged.remove(key);
    }

    /// The object is new, or differs from the current state.
    pub(super) fn put(&mut self, entry: Entry) {
        self.unseen.remove(entry.key());
        self.staged.insert(Arc::new(entry));
    }

    /// The object of `key` was deleted after it was mentioned; `known` is what the current state has there.
    pub(super) fn remove(&mut self, key: &str, known: Option<&Arc<Entry>>) {
        self.staged.remove(key);
        if let Some(known) = known {
            self.unseen.insert(Arc::clone(known));
        }
    }

    /// Turns `current` into what was gathered. Cost: what differs; the first sync moves its map and copies nothing.
    pub(super) fn commit(self, current: &mut Objects<Entry>) {
        if current.is_empty() {
            *current = self.staged;
            return;
        }
        for vanished in self.unseen.iter() {
            current.remove(vanished.key());
        }
        for entry in self.staged.iter() {
            current.insert(Arc::clone(entry));
        }
    }

    #[cfg(test)]
    pub(super) fn staged_len(&self) -> usize {
        self.staged.len()
    }

    #[cfg(test)]
    pub(super) fn unseen_len(&self) -> usize {
        self.unseen.len()
    }
}
