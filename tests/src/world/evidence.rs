//! What the objects of a copy tell about a history that was restored and has passed the copy's position.
//!
//! Where no object tells it from the copy's own, no client could, and the world does not let it come to that.

use informer_core::proof::{self, WITNESSES_CHANGED, WITNESSES_MAX};

use crate::model::{Model, Object, State};

/// A copy, and where it is.
pub(super) struct HeldCopy {
    /// Its position in its history.
    pub(super) at: u64,
    pub(super) objects: State,
    /// True while a server owes it deletions that will not come.
    pub(super) is_suspect: bool,
}

/// A write that is to be done next.
pub(super) struct Write<'a> {
    pub(super) key: &'a str,
    /// `false` deletes.
    pub(super) is_put: bool,
}

impl HeldCopy {
    /// Returns true if a proof, and the watch after it, tell the copy from `server` after `write`.
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
                    // Changed or deleted behind the position.
                    changed |= write.is_put;
                }
                (Some(found), None) if found.uid == witness.uid && found.version == witness.version => return owed,
                (Some(found), None) if found.uid == witness.uid && found.version > self.at => changed = true,
                (Some(found), None) if found.version <= self.at => return true,
                // Gone: its deletion comes behind the position, or never.
                (Some(_) | None, _) => {
                    let mut later = server.changes(self.at, u64::MAX).iter();
                    owed |= !later.any(|change| change.object.uid == witness.uid);
                }
            }
        }
        // Without any answer everything is read anew.
        owed || (!changed && !self.objects.is_empty())
    }
}
