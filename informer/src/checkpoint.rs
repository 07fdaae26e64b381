//! State saved on disk, so that a restart resumes.
//!
//! INVARIANT: whatever is on disk, and wherever a write was interrupted, opening returns one committed state, or none
//! and the reason.
//!
//! Each informer has one log in the directory, named after its type and its identity, so several informers may share a
//! directory. The log's first batch has all objects; each save appends a batch with the changes. `informer-log` owns
//! the format, recovery and files; see `docs/adr/0053-keep-checkpoints-and-saved-states-in-one-log.md`.
//!
//! Cost: each save writes the objects that changed since the save before, and rewriting adds at most twice as much.
//! Disk usage: at most twice the objects of the last rewrite, [`SLACK_BYTES`] and the bytes of one save; plus the
//! objects once more during a rewrite.

mod identity;
mod record;
mod writer;

use std::{io, path::Path, time::SystemTime};

use informer_core::{ResourceVersion, store::Store};
use informer_log::{COMMIT, DiskLog, FileLock, FoundLog, LogFiles, UnusableLog, create_folder};

#[cfg(any(feature = "kube-1", feature = "kube-3", feature = "kube-4", feature = "kube-5"))]
pub(crate) use self::identity::digest;
use self::record::{DELETE, PUT, PUT_SKIPPED, RecordedObject, read_commit};
pub(crate) use self::{
    identity::{Identity, ObjectChanges},
    writer::CheckpointWriter,
};

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
    log: FoundLog,
}

/// Why a checkpoint is not used. The informer then reads its initial state from the server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IgnoreReason {
    /// Another informer, possibly of another process, holds the lock. This one does not write until that informer ends.
    #[error("another informer uses it")]
    Locked,
    /// The file system refuses to create or to lock it.
    #[error("the directory cannot be used")]
    Directory(#[source] io::Error),
    /// The first save replaces it.
    #[error(transparent)]
    Unusable(#[from] UnusableLog),
}

/// Least bytes that a log grows by before it is rewritten. Commits without changes, one every two seconds, fill it in
/// about half a day.
const SLACK_BYTES: u64 = 1 << 20;

/// Opens the checkpoint of `identity` in `dir`. Creates a missing directory with mode 0700; leaves the mode of an
/// existing one unchanged.
///
/// Blocks. Cost: reads the file once.
pub(crate) fn open(dir: &Path, identity: &Identity) -> OpenedCheckpoint {
    let stem = identity.file_stem();
    let lock = create_folder(dir).and_then(|()| FileLock::take(&dir.join(format!("{stem}.lock"))));
    let lock = match lock.map_err(IgnoreReason::Directory).and_then(|lock| lock.ok_or(IgnoreReason::Locked)) {
        Ok(lock) => lock,
        Err(ignored) => return OpenedCheckpoint { saved: None, ignored: Some(ignored), writer: None },
    };
    let log = DiskLog::new(LogFiles::new(dir, format!("{stem}.checkpoint")), SLACK_BYTES);
    let writer = CheckpointWriter::new(log, identity.to_string(), lock);
    let (saved, ignored) = match writer.find().and_then(|found| found.map(SavedState::new).transpose()) {
        Ok(saved) => (saved, None),
        Err(ignored) => (None, Some(ignored.into())),
    };
    OpenedCheckpoint { saved, ignored, writer: Some(writer) }
}

impl SavedState {
    fn new(log: FoundLog) -> Result<Self, UnusableLog> {
        let (position, confirmed_at) = read_commit(log.commit()).ok_or(UnusableLog::Damaged)?;
        Ok(Self { position, confirmed_at, log })
    }

    /// Bytes after the last commit, which are ignored: an interrupted save, or damage.
    pub(crate) const fn cut_bytes(&self) -> u64 {
        self.log.cut_bytes()
    }

    /// Loads the state into an empty store. Holds one record in memory at a time. Returns the log for
    /// [`CheckpointWriter::restored`]; `None` if the store did not take all of it, so that the log must not be
    /// continued.
    ///
    /// Blocks. Cost: reads the file a second time, and stores each version in it.
    ///
    /// # Errors
    /// [`UnusableLog`] if the file cannot be read again. The store then has some of the objects and no position; a
    /// relist can still report differences to those objects.
    pub(crate) fn restore(self, store: &mut Store) -> Result<Option<FoundLog>, UnusableLog> {
        let mut is_whole = true;
        let mut records = self.log.records()?;
        while let Some(record) = records.next_record()? {
            let object = || RecordedObject::read(record.body).ok_or(UnusableLog::Damaged);
            match record.kind {
                PUT => {
                    let object = object()?;
                    let labels = Some(object.labels.as_bytes()).filter(|labels| !labels.is_empty());
                    is_whole &= store.restore_object(&object.meta(), object.json, labels);
                }
                PUT_SKIPPED => {
                    let object = object()?;
                    is_whole &= store.restore_skipped(&object.meta(), object.json);
                }
                DELETE => store.restore_deleted(str::from_utf8(record.body).map_err(|_| UnusableLog::Damaged)?),
                COMMIT => {}
                _ => return Err(UnusableLog::Damaged),
            }
        }
        drop(records);
        store.restore([], Some(self.position));
        Ok(is_whole.then_some(self.log))
    }
}

#[cfg(test)]
mod tests;
