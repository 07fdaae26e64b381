//! Objects that a proof found deleted or replaced. In the history of the position each was deleted after it, so the
//! watch from there sends the deletion before its first bookmark. A watch that does not is of another history.
//!
//! INVARIANT: an object stays here, over sessions and proofs, until its deletion came, it was seen alive, or initial
//! state is complete.

use std::time::Duration;

use super::{Change, Observed};
use crate::{proof::WITNESSES_MAX, resource_version::ResourceVersion, time::Time};

/// Objects whose deletion is due.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Missing {
    /// Found missing by the proof in progress. Counts once the position is resumed from.
    found: Vec<Witness>,
    /// Their deletions are due. At most [`WITNESSES_MAX`].
    due: Vec<Witness>,
    /// Position that they were found missing at.
    at: Option<ResourceVersion>,
    /// Time at which the server first accepted a watch that owes them.
    since: Option<Time>,
}

#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Clone))]
struct Witness {
    key: Box<str>,
    uid: Box<str>,
}

impl Missing {
    /// A proof begins, or has failed: what it found before does not count.
    pub(super) fn begin(&mut self) {
        self.found.clear();
    }

    /// The server does not have this object any more.
    pub(super) fn add(&mut self, key: &str, uid: &str) {
        self.found.push(Witness { key: key.into(), uid: uid.into() });
    }

    /// A watch from `position` is ordered.
    pub(super) fn resume(&mut self, position: &ResourceVersion) {
        if self.due.is_empty() && !self.found.is_empty() {
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

    /// The server accepted the watch.
    pub(super) fn accepted(&mut self, now: Time) {
        if !self.due.is_empty() {
            self.since.get_or_insert(now);
        }
    }

    /// Takes a live event. Returns false if it contradicts one history: the name is taken by another object, and the
    /// deletion of the missing one never came.
    pub(super) fn take(&mut self, event: &Observed<'_>) -> bool {
        let Some(at) = self.due.iter().position(|witness| *witness.key == *event.key) else { return true };
        let is_it = self.due[at].uid.is_empty() || event.uid.is_empty() || *self.due[at].uid == *event.uid;
        match event.change {
            // A deletion, or the object after all: the server that missed it was behind.
            Change::Deleted | Change::Added | Change::Modified if is_it => {
                self.due.swap_remove(at);
                if self.due.is_empty() {
                    (self.at, self.since) = (None, None);
                }
                true
            }
            Change::Added | Change::Modified => false,
            Change::Deleted | Change::Item => true,
        }
    }

    /// Returns true if deletions should have come before a bookmark at `position`. One that tells the position they were
    /// missing at says nothing: the server may be behind the one that was asked.
    pub(super) fn is_owed_at(&self, position: &ResourceVersion) -> bool {
        !self.due.is_empty() && self.at.as_ref() != Some(position)
    }

    /// When a server without bookmarks has had its time.
    pub(super) fn overdue_at(&self, patience: Duration) -> Option<Time> {
        self.since.map(|since| since + patience)
    }
}
