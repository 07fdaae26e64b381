//! Initial state while it is gathered. Only what differs is kept twice, and nothing shows before the end.

use std::sync::Arc;

use super::{Body, Entry, Represent};
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
    /// Whether equal versions prove that an object is unchanged.
    pub(super) trusts_versions: bool,
}

impl Stage {
    /// Begins from `current`. Cost: one reference count.
    pub(super) fn open(current: &Objects<Entry>, trusts_versions: bool) -> Self {
        Self { staged: Objects::new(), unseen: current.clone(), trusts_versions }
    }

    /// The object of `key` is as it is in the current state.
    pub(super) fn confirm(&mut self, key: &str) {
        self.unseen.remove(key);
        self.staged.remove(key);
    }

    /// The object is new, or differs from the current state.
    pub(super) fn put(&mut self, entry: Arc<Entry>) {
        self.unseen.remove(entry.key());
        self.staged.put(entry);
    }

    /// Keeps what is staged as JSON in the form that `represent` has for it now. Nobody has seen it yet.
    pub(super) fn keep_again(&mut self, represent: &mut dyn Represent) {
        keep_again(&mut self.staged, represent);
    }

    /// The object of `key` was deleted after it was mentioned; `known` is what the current state has there.
    pub(super) fn remove(&mut self, key: &str, known: Option<&Arc<Entry>>) {
        self.staged.remove(key);
        if let Some(known) = known {
            self.unseen.put(Arc::clone(known));
        }
    }

    /// Turns `current` into what was gathered, and tells each key that changes. Cost: what differs; the first sync
    /// moves its map and copies nothing.
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
        self.staged.iter().map(|entry| entry.kept_bytes() + size_of::<Entry>()).sum()
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

/// Keeps what is kept as JSON in the form that `represent` has for it now. Not for objects that somebody has seen: they
/// would become others.
pub(super) fn keep_again(objects: &mut Objects<Entry>, represent: &mut dyn Represent) {
    let again = objects.iter().map(|entry| {
        let again = match entry.body() {
            Body::Json(json) => match represent.keep(json, None) {
                Body::Json(_) => None,
                body @ (Body::Packed(_) | Body::Value { .. }) => entry.again(body),
            },
            Body::Packed(_) | Body::Value { .. } => None,
        };
        again.map_or_else(|| Arc::clone(entry), Arc::new)
    });
    *objects = again.collect();
}
