//! An append-only log on disk: framing, recovery, compaction, and its files.
//!
//! INVARIANT: whatever is on disk, and wherever a write was interrupted, [`DiskLog::find`] returns what was written up to
//! one commit, or the reason why the file is not used. No input causes a panic or an allocation larger than the file.
//!
//! A log begins with the identity of its owner. Its first batch of records is a whole state, and each later batch has
//! the changes since. A commit ends a batch; records after the last commit do not count. A log that has grown is
//! replaced by a new file with a whole state. Kinds and fields of records belong to the users: the checkpoints of
//! `informer`, and the saved states of `cache-server`.
//!
//! Appended batches are not synced: a killed process loses none, and after a crash of the machine an earlier commit is
//! the last one. A new file is synced before it replaces the log. See
//! `docs/adr/0053-keep-checkpoints-and-saved-states-in-one-log.md`.

mod files;
mod log;
mod record;

use std::io;

pub use self::{
    files::{FileLock, LogFiles, create_folder, private, sync},
    log::{DiskLog, FoundLog, LogBatch, identity_of, write_log},
    record::{COMMIT, LogRecord, LogRecords},
};

/// Reason why a log is not used. A new whole state replaces it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnusableLog {
    /// The file system refuses access.
    #[error("it cannot be read: {0}")]
    Io(io::Error),
    /// The file is not a log.
    #[error("the file is no log")]
    NotALog,
    /// Another version wrote it.
    #[error("its format {0} is not known")]
    Format(u32),
    /// It has another owner.
    #[error("it belongs to another: {found:?}")]
    Foreign {
        /// The owner's identity.
        found: String,
    },
    /// It has no complete state.
    #[error("it is damaged")]
    Damaged,
}

#[cfg(test)]
mod tests;
