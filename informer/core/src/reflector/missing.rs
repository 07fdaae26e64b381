//! Objects that a proof found deleted or replaced. In the position's history each was deleted after it, so a watch from
//! there sends the deletion before its first later bookmark. A watch that does not belongs to another history.
//!
//! INVARIANT: an object stays here, across sessions and proofs, until its deletion arrives, it is seen alive, or
//! initial state is complete.

use std::time::Duration;

use super::{ObservedKind, ObservedObject};
use crate::{proof::WITNESSES_MAX, resource_version::ResourceVersion, time::Time};

/// Objects whose deletions are outstanding.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct MissingObjects {
    /// Found missing by the proof in progress. They count once a watch resumes from the position.
    found: Vec<Witness>,
    /// Objects whose deletions are outstanding. At most [`WITNESSES_MAX`].
    due: Vec<Witness>,
    /// Position at which they were found missing.
    at: Option<ResourceVersion>,
    /// Time at which the server first accepted a watch that must send them.
    since: Option<Time>,
}

#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Clone))]
struct Witness {
    key: Box<str>,
    uid: Box<str>,
}

impl MissingObjects {
    /// Starts a proof, or ends a failed one: drops what it found.
    pub(super) fn begin(&mut self) {
        self.found.clear();
    }

    /// Adds an object that the server no longer has.
    pub(super) fn add(&mut self, key: &str, uid: &str) {
        self.found.push(Witness { key: key.into(), uid: uid.into() });
    }

    /// Notes that a watch from `position` is requested.
    pub(super) fn resume(&mut self, position: &ResourceVersion) {
        if self.due.is_empty() && !self.found.is_empty() {
            // Deletions that are already outstanding keep their earlier position.
            self.at = Some(position.clone());
        }
        for witness in self.found.drain(..) {
            if self.due.len() < WITNESSES_MAX && !self.due.contains(&witness) {
                self.due.push(witness);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Notes that the server accepted the watch.
    pub(super) fn accepted(&mut self, now: Time) {
        if !self.due.is_empty() {
            // Only the first acceptance counts, across sessions.
            self.since.get_or_insert(now);
        }
    }

    /// Takes a live event. Returns false if it contradicts a single history: another object has the name, and the
    /// deletion of the missing one never arrived.
    pub(super) fn take(&mut self, event: &ObservedObject<'_>) -> bool {
        let Some(at) = self.due.iter().position(|witness| *witness.key == *event.key) else { return true };
        // Without both uids, equal keys count as one object.
        let is_it = self.due[at].uid.is_empty() || event.uid.is_empty() || *self.due[at].uid == *event.uid;
        match event.change {
            // Its deletion, or the object itself: then the server that lacked it was behind.
            ObservedKind::Deleted | ObservedKind::Added | ObservedKind::Modified if is_it => {
                self.due.swap_remove(at);
                if self.due.is_empty() {
                    (self.at, self.since) = (None, None);
                }
                true
            }
            ObservedKind::Added | ObservedKind::Modified => false,
            ObservedKind::Deleted | ObservedKind::Item => true,
        }
    }

    /// Returns true if deletions should have arrived before a bookmark at `position`. A bookmark at the position where
    /// they were found missing proves nothing: this server may be behind the one that was read.
    pub(super) fn is_owed_at(&self, position: &ResourceVersion) -> bool {
        !self.due.is_empty() && self.at.as_ref() != Some(position)
    }

    /// Returns when the deletions are overdue on a server without bookmarks.
    pub(super) fn overdue_at(&self, patience: Duration) -> Option<Time> {
        self.since.map(|since| since + patience)
    }
}
