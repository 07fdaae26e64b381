//! Appends changes to the log, and rewrites it when it has grown too large.
//!
//! INVARIANT: the writer's state of the last commit is the state of the last commit on disk.

use std::{io, time::SystemTime};

use informer_core::{
    ResourceVersion,
    objects::{Difference, Objects},
    store::{Entry, Snapshot},
};
use informer_log::{DiskLog, FileLock, FoundLog, LogBatch, UnusableLog};

use super::record::{DELETE, commit, put, read_commit, unix_ms};

/// Saves the states of one informer. Holds the checkpoint's lock as long as it lives.
#[derive(Debug)]
pub(crate) struct CheckpointWriter {
    log: DiskLog,
    identity: String,
    /// State of the last commit; `None` if no log on disk can be continued: the next save writes everything.
    saved: Option<CommittedState>,
    _lock: FileLock,
}

/// Result of [`CheckpointWriter::save`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SaveStats {
    /// Bytes written.
    pub(crate) bytes: u64,
    /// True if the log was rewritten.
    pub(crate) rewritten: bool,
}

impl CheckpointWriter {
    /// Creates a writer without a log to continue.
    pub(super) const fn new(log: DiskLog, identity: String, lock: FileLock) -> Self {
        Self { log, identity, saved: None, _lock: lock }
    }

    /// Reads the existing log.
    pub(super) fn find(&self) -> Result<Option<FoundLog>, UnusableLog> {
        self.log.find(&self.identity)
    }

    /// Continues the log that [`SavedState::restore`](super::SavedState::restore) loaded `snapshot` from. Without this
    /// call the first save writes everything.
    pub(crate) fn restored(&mut self, found: FoundLog, snapshot: &Snapshot) {
        let position = snapshot.resource_version.clone();
        let state = read_commit(found.commit()).filter(|(saved, _)| position.as_ref() == Some(saved));
        self.saved = state.map(|(position, confirmed_at)| {
            self.log.resume(found);
            CommittedState { objects: snapshot.objects.clone(), position, confirmed_unix_ms: unix_ms(confirmed_at) }
        });
    }

    /// Saves a state that the server confirmed at `confirmed_at`. Ignores a state before the first sync.
    ///
    /// Blocks. Cost: writes the changes since the last save; sometimes, the whole state.
    ///
    /// # Errors
    /// An error of the file system. The last save stays usable, and the next call retries.
    pub(crate) fn save(&mut self, snapshot: &Snapshot, confirmed_at: SystemTime) -> io::Result<SaveStats> {
        let Some(position) = snapshot.resource_version.clone().filter(|_| snapshot.synced) else {
            return Ok(SaveStats::default());
        };
        let confirmed_unix_ms = unix_ms(confirmed_at);
        let state = CommittedState { objects: snapshot.objects.clone(), position, confirmed_unix_ms };
        let mut bytes = 0;
        if let Some(saved) = &self.saved {
            if saved.says(&state) {
                return Ok(SaveStats::default());
            }
            bytes = self.log.append(|batch| state.push(&saved.objects, batch))?;
            self.saved = Some(state.clone());
            if !self.log.is_wasteful(VERSIONS_MAX * state.objects.len() as u64 + VERSIONS_SLACK) {
                return Ok(SaveStats { bytes, rewritten: false });
            }
        }
        let replaced = self.log.replace(&self.identity, |batch| state.push(&Objects::new(), batch));
        // After a failure, too, an open log has this state: it was appended before, or only the last sync failed.
        self.saved = self.log.is_open().then_some(state);
        Ok(SaveStats { bytes: bytes + replaced?, rewritten: true })
    }
}

/// State of a commit.
#[derive(Clone, Debug)]
struct CommittedState {
    /// Shares its unchanged entries with the store.
    objects: Objects<Entry>,
    position: ResourceVersion,
    confirmed_unix_ms: u64,
}

impl CommittedState {
    fn says(&self, newer: &Self) -> bool {
        let is_confirmed = newer.confirmed_unix_ms.abs_diff(self.confirmed_unix_ms) < CONFIRMED_AGAIN_MS;
        is_confirmed && self.position == newer.position && self.objects.same(&newer.objects)
    }

    /// Writes the difference to the objects `before`, and commits.
    fn push(&self, before: &Objects<Entry>, batch: &mut LogBatch<'_>) -> io::Result<()> {
        for difference in before.diff(&self.objects) {
            match difference {
                Difference::Added(new) | Difference::Updated { new, .. } => put(batch, new)?,
                Difference::Removed(old) => batch.push(DELETE, &[old.key().as_bytes()])?,
            }
        }
        commit(batch, &self.position, self.confirmed_unix_ms)
    }
}

/// Records of a log for each object that is left, beyond which it is rewritten: a start reads and stores all of them.
const VERSIONS_MAX: u64 = 4;

/// Records beyond those, which few objects may have.
const VERSIONS_SLACK: u64 = 4_096;

/// An unchanged state is saved again once its confirmation is this much newer.
const CONFIRMED_AGAIN_MS: u64 = 10_000;
