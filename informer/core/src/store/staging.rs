//! The stage of initial state. Only objects that differ are stored twice, and no reader sees it before the end.

use std::sync::Arc;

use super::{Body, Entry, Represent};
use crate::objects::Objects;

/// Result of a relist in progress.
///
/// INVARIANT: a key of the current state is in exactly one of three places: confirmed (in neither map), in `staged` (it
/// differs), or in `unseen` (not received yet, or deleted since).
#[derive(Debug)]
pub(super) struct Stage {
    /// New and changed objects.
    staged: Objects<Entry>,
    /// Objects of the current state that the relist has not sent. Starts with all of them, sharing the current state's
    /// tree; those left at the end have vanished. Servers send objects in key order, so this shrinks from one side and
    /// only one leaf at a time is copied.
    unseen: Objects<Entry>,
    /// True if equal versions prove that an object is unchanged.
    pub(super) trusts_versions: bool,
}

impl Stage {
    /// Opens a stage over `current`. Cost: one reference count.
    pub(super) fn open(current: &Objects<Entry>, trusts_versions: bool) -> Self {
        Self { staged: Objects::new(), unseen: current.clone(), trusts_versions }
    }

    /// Notes that the object of `key` is unchanged.
    pub(super) fn confirm(&mut self, key: &str) {
        self.unseen.remove(key);
        self.staged.remove(key);
    }

    /// Stages an object that is new or differs from the current state.
    pub(super) fn put(&mut self, entry: Arc<Entry>) {
        self.unseen.remove(entry.key());
        self.staged.put(entry);
    }

    /// Converts staged JSON to the form that `represent` has learned. No reader has seen it yet.
    pub(super) fn keep_again(&mut self, represent: &mut dyn Represent) {
        keep_again(&mut self.staged, represent);
    }

    /// Notes that the object of `key` was deleted after it was received; `known` is its entry in the current state.
    pub(super) fn remove(&mut self, key: &str, known: Option<&Arc<Entry>>) {
        self.staged.remove(key);
        if let Some(known) = known {
            // `commit` must remove it from the current state.
            self.unseen.put(Arc::clone(known));
        }
    }

    /// Turns `current` into the staged state, and calls `changes` for each key that differs. Cost: proportional to the
    /// difference; the first sync moves the staged map without copying.
    pub(super) fn commit(
        self,
        current: &mut Objects<Entry>,
        mut changes: impl FnMut(Option<&Arc<Entry>>, Option<&Arc<Entry>>),
    ) {
        if current.is_empty() {
            self.staged.iter().for_each(|entry| changes(None, Some(entry)));
            *current = self.staged;
            return;
        }
        for vanished in self.unseen.iter() {
            current.remove(vanished.key());
            changes(Some(vanished), None);
        }
        for entry in self.staged.iter() {
            let old = current.insert(Arc::clone(entry));
            changes(old.as_ref(), Some(entry));
        }
    }

    #[cfg(test)]
    pub(super) fn staged_bytes(&self) -> usize {
        self.staged.iter().map(|entry| entry.stored_bytes() + size_of::<Entry>()).sum()
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

/// Converts entries stored as JSON to the form that `represent` has learned. Not for objects that readers have seen,
/// because it replaces the entries.
pub(super) fn keep_again(objects: &mut Objects<Entry>, represent: &mut dyn Represent) {
    let again = objects.iter().map(|entry| {
        let again = match entry.body() {
            Body::Json(json) => match represent.keep(json, None) {
                Body::Json(_) | Body::Skipped(_) => None,
                body @ (Body::Packed(_) | Body::Value { .. }) => entry.again(body),
            },
            Body::Packed(_) | Body::Value { .. } | Body::Skipped(_) => None,
        };
        again.map_or_else(|| Arc::clone(entry), Arc::new)
    });
    *objects = again.collect();
}
