//! Saved state on disk, so that a restart resumes.
//!
//! INVARIANT: whatever is on disk, opening gives one state that was committed, or none and the reason.

#![allow(dead_code, reason = "the driver comes to call it")]

mod identity;

use std::{io, path::Path, time::SystemTime};

use informer_core::{ResourceVersion, store};

pub(crate) use self::identity::Identity;

/// What was found in a directory. All of it blocks: call it where blocking is allowed.
pub(crate) struct Opened {
    /// The last state saved; `None` when there is none that can be used.
    pub(crate) saved: Option<Saved>,
    /// Why what is there is not used.
    pub(crate) ignored: Option<Ignored>,
    /// What saves from now on; `None` when nothing may be written here, which `ignored` explains.
    pub(crate) writer: Option<Writer>,
}

/// A state read from disk.
pub(crate) struct Saved {
    /// Its position.
    pub(crate) position: ResourceVersion,
    /// When the server last confirmed it.
    pub(crate) confirmed_at: SystemTime,
    /// How many objects it has.
    pub(crate) objects: usize,
}

/// Why a checkpoint is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ignored {
    /// Another informer, perhaps of another process, uses the same file. Nothing is written.
    #[error("another informer uses it")]
    Locked,
}

/// The one that writes.
pub(crate) struct Writer {}

/// What a call of [`Writer::save`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wrote {
    /// Bytes written, a rewritten log included.
    pub(crate) bytes: u64,
    /// Whether the log was written anew.
    pub(crate) rewritten: bool,
}

/// Looks for the checkpoint of `identity` in `dir`, which is created when it is missing. Blocks.
pub(crate) fn open(_dir: &Path, _identity: &Identity) -> Opened {
    Opened { saved: None, ignored: None, writer: Some(Writer {}) }
}

impl Saved {
    /// Hands out the JSON of every object once, in no order. One object is in memory at a time.
    ///
    /// # Errors
    /// [`Ignored`] when the file cannot be read again: what was handed out is no state, drop it.
    pub(crate) fn each(self, _take: impl FnMut(&[u8])) -> Result<(), Ignored> {
        Ok(())
    }
}

impl Writer {
    /// Tells that `snapshot` is what was restored from the [`Saved`]: saving goes on from there.
    /// Without it, or when nothing was restored, the first save writes everything.
    pub(crate) fn restored(&mut self, _snapshot: &store::Snapshot) {}

    /// Saves a state that the server confirmed at this time. Cost: what changed since the save before; now and then,
    /// as much as there is. Blocks.
    ///
    /// # Errors
    /// What the file system says. What was saved before stays usable, and the next call tries again.
    pub(crate) fn save(&mut self, _snapshot: &store::Snapshot, _confirmed_at: SystemTime) -> io::Result<Wrote> {
        Ok(Wrote::default())
    }
}
