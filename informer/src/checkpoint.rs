//! State saved on disk, so that a restart resumes.
//!
//! INVARIANT: whatever is on disk, and wherever a write was interrupted, opening returns one committed state, or none
//! and the reason.
//!
//! Each informer has one log in the directory, named after its type and its identity, so several informers may share a
//! directory. Each save appends the changes and a commit; records without a commit are ignored. A log larger than twice
//! its objects (plus [`SLACK_BYTES`](writer::SLACK_BYTES)) is compacted: rewritten to a new file and renamed. See
//! `docs/adr/0011-store-checkpoints-as-logs.md`.
//!
//! Cost: each save writes the objects that changed since the save before, and compaction adds at most as much again.
//! Disk usage: at most twice the objects, [`SLACK_BYTES`](writer::SLACK_BYTES) and the bytes of one save; plus the
//! objects once more during compaction.

mod identity;
mod place;
mod record;
mod replay;
mod writer;

use std::{fs::File, io, path::Path, time::SystemTime};

use informer_core::{ResourceVersion, store::Store};

pub(crate) use self::{
    identity::{Identity, ObjectChanges, digest},
    writer::CheckpointWriter,
};
use self::{place::CheckpointFiles, replay::Replay};

/// Result of opening a checkpoint.
pub(crate) struct OpenedCheckpoint {
    /// The last saved state; `None` if none is usable.
    pub(crate) saved: Option<SavedState>,
    /// Why the existing checkpoint is not used.
    pub(crate) ignored: Option<IgnoreReason>,
    /// Writer for further saves; `None` if the directory must not be written, for the reason in `ignored`.
    pub(crate) writer: Option<CheckpointWriter>,
}

/// A state on disk.
pub(crate) struct SavedState {
    /// Position of the state.
    pub(crate) position: ResourceVersion,
    /// Time at which the server last confirmed the state, by the clock of then: in the future if the clock was set back
    /// since.
    pub(crate) confirmed_at: SystemTime,
    /// Bytes after the last commit, which are ignored: an interrupted save, or damage.
    pub(crate) cut_bytes: u64,
    file: File,
    replay: Replay,
}

/// Why a checkpoint is not used. The informer then reads its initial state from the server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IgnoreReason {
    /// Another informer, possibly of another process, holds the lock. This one does not write until that informer ends.
    #[error("another informer uses it")]
    Locked,
    /// The file system refuses access.
    #[error("cannot {doing}")]
    Io {
        /// The failed operation.
        doing: &'static str,
        /// Its error.
        #[source]
        source: io::Error,
    },
    /// The file is not a checkpoint. The first save replaces it.
    #[error("the file is no checkpoint")]
    NotACheckpoint,
    /// Another version of this library wrote it. The first save replaces it.
    #[error("format {found} is not known")]
    Version {
        /// The format's number.
        found: u32,
    },
    /// It belongs to another informer: the file was renamed or copied. The first save replaces it.
    #[error("it is the state of another informer: {found:?}")]
    Foreign {
        /// The identity found.
        found: String,
    },
    /// It has no complete state. The first save replaces it.
    #[error("it is damaged")]
    Damaged,
}

impl IgnoreReason {
    fn because(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}

/// Opens the checkpoint of `identity` in `dir`. Creates a missing directory with mode 0700; leaves the mode of an
/// existing one unchanged.
///
/// Blocks. Cost: reads the file once. Memory: one key and one number per object.
pub(crate) fn open(dir: &Path, identity: &Identity) -> OpenedCheckpoint {
    let place = match CheckpointFiles::take(dir, &identity.file_stem()) {
        Ok(place) => place,
        Err(ignored) => return OpenedCheckpoint { saved: None, ignored: Some(ignored), writer: None },
    };
    let identity = identity.to_string();
    let found = find(&place, &identity);
    let mut writer = CheckpointWriter::new(place, identity);
    match found {
        Ok(None) => OpenedCheckpoint { saved: None, ignored: None, writer: Some(writer) },
        Ok(Some((saved, file))) => {
            writer.continues(file, &saved.replay);
            OpenedCheckpoint { saved: Some(saved), ignored: None, writer: Some(writer) }
        }
        Err(ignored) => OpenedCheckpoint { saved: None, ignored: Some(ignored), writer: Some(writer) },
    }
}

/// Reads the existing state. Also returns a second handle of the file, for the writer.
fn find(place: &CheckpointFiles, identity: &str) -> Result<Option<(SavedState, File)>, IgnoreReason> {
    let Some(file) = place.open().map_err(IgnoreReason::because("open the file"))? else { return Ok(None) };
    let replay = Replay::read(&file, identity)?;
    let bytes = file.metadata().map_err(IgnoreReason::because("read"))?.len();
    let again = file.try_clone().map_err(IgnoreReason::because("open the file"))?;
    let (position, confirmed_at) = (replay.position.clone(), replay.confirmed_at);
    Ok(Some((SavedState { position, confirmed_at, cut_bytes: bytes.saturating_sub(replay.end), file, replay }, again)))
}

impl SavedState {
    /// Loads the state into an empty store. Holds one object in memory at a time. Call
    /// [`CheckpointWriter::restored`] afterwards.
    ///
    /// Blocks. Cost: reads the file a second time, and stores each object.
    ///
    /// # Errors
    /// [`IgnoreReason`] if the file cannot be read again. The store then has some of the objects and no position; a
    /// relist can still report differences to those objects.
    pub(crate) fn restore(self, store: &mut Store) -> Result<(), IgnoreReason> {
        self.replay.each(&self.file, |object| {
            if object.is_skipped {
                return store.restore_skipped(&object.meta(), object.json);
            }
            let labels = Some(object.labels.as_bytes()).filter(|labels| !labels.is_empty());
            store.restore_object(&object.meta(), object.json, labels);
        })?;
        store.restore([], Some(self.position));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
