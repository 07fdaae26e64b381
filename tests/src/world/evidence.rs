//! Decides whether a client can distinguish a restored history from its copy's own once it passed the copy's position.
//!
//! If no object of the copy shows the difference, no client could detect it, and the world avoids that case.

use informer_core::proof::{self, WITNESSES_CHANGED, WITNESSES_MAX};

use crate::model::{Model, Object, State};

/// A copy and its position.
pub(super) struct HeldCopy {
    /// Its position in its history.
    pub(super) at: u64,
    pub(super) objects: State,
    /// True while the client awaits deletions that would confirm the server's history.
    pub(super) is_suspect: bool,
}

/// The next write to a server.
pub(super) struct Write<'a> {
    pub(super) key: &'a str,
    /// True for a put, false for a deletion.
    pub(super) is_put: bool,
}

impl HeldCopy {
    /// Returns true if a proof and the watch after it distinguish the copy's history from the one of `server` after
    /// `write`.
    pub(super) fn tells(&self, server: &Model, write: Option<&Write<'_>>) -> bool {
        if self.is_suspect {
            return true;
        }
        let mut newest: Vec<&Object> = self.objects.values().collect();
        newest.sort_by_key(|object| std::cmp::Reverse(object.version));
        let (mut changed, mut owed) = (false, false);
        for asked in 0..WITNESSES_MAX {
            let Some(witness) = newest.get(proof::rank(asked, newest.len())) else { break };
            if changed && asked >= WITNESSES_CHANGED {
                break;
            }
            let found = server.state().get(&witness.key);
            match (found, write.filter(|write| write.key == witness.key)) {
                (Some(found), Some(write)) if found.uid == witness.uid => {
                    // Changed or deleted after the copy's position.
                    changed |= write.is_put;
                }
                (Some(found), None) if found.uid == witness.uid && found.version == witness.version => return owed,
                (Some(found), None) if found.uid == witness.uid && found.version > self.at => changed = true,
                (Some(found), None) if found.version <= self.at => return true,
                // Deleted: its DELETED comes after the copy's position, or never.
                (Some(_) | None, _) => {
                    let mut later = server.changes(self.at, u64::MAX).iter();
                    owed |= !later.any(|change| change.object.uid == witness.uid);
                }
            }
        }
        // Without a conclusive witness the client relists.
        owed || (!changed && !self.objects.is_empty())
    }
}
