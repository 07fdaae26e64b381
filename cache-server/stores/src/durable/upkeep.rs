//! Commands for a data folder that no server uses.

use std::{collections::HashSet, fs, path::Path, sync::Arc};

use serde::de::IgnoredAny;

use super::{
    disk::{self, DataDisk, DataFolderError, DiskError},
    file::{DataFile, FILE},
    journal, opened,
    record::{JournalRecord, RecordContent},
};
use crate::storage::folder::{FolderError, FolderLock};

/// The content of a data folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolderReport {
    /// Objects as they are now.
    pub objects: usize,
    /// Changes of the history.
    pub changes: usize,
    /// The oldest position that a watch can resume from.
    pub base: u64,
    /// The newest position.
    pub revision: u64,
    /// Size of the file.
    pub bytes: u64,
}

/// Sizes of a data file around its compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactedBytes {
    /// Bytes before it.
    pub before: u64,
    /// Bytes after it.
    pub after: u64,
}

/// Checks every page and every record of the file.
///
/// # Errors
/// [`DataFolderError`]; a server uses the folder, or the file is missing or damaged.
pub fn check(folder: &Path) -> Result<FolderReport, DataFolderError> {
    let (file, disk) = existing(folder)?;
    let read = || {
        let database = disk::open(&disk)?;
        let meta = journal::read_meta(&database)?;
        let (changes, _) = journal::read_changes(&database, meta.base)?;
        let revisions: HashSet<u64> = changes.iter().map(|change| change.revision).collect();
        let mut report = FolderReport { objects: 0, changes: 0, base: meta.base, revision: meta.revision, bytes: 0 };
        for change in &changes {
            let unreadable = || DiskError::Damaged(format!("change {} cannot be read", change.revision));
            let record = JournalRecord::decode(&change.bytes).ok_or_else(unreadable)?;
            if let RecordContent::Put { json, .. } = record.content {
                serde_json::from_slice::<IgnoredAny>(json).map_err(|_| unreadable())?;
                report.objects += 1;
            }
            let is_replaced = revisions.contains(&record.superseded);
            report.objects = report.objects.saturating_sub(usize::from(is_replaced));
            report.changes += usize::from(meta.base < change.revision);
        }
        Ok(report)
    };
    let report = opened(read).map_err(|error: DiskError| error.at(file.path()))?;
    Ok(FolderReport { bytes: size(file.path())?, ..report })
}

/// Gives the free pages of the file back to the file system.
///
/// # Errors
/// As [`check`].
pub fn compact(folder: &Path) -> Result<CompactedBytes, DataFolderError> {
    let (file, disk) = existing(folder)?;
    let before = size(file.path())?;
    let run = || {
        let mut database = disk::open(&disk)?;
        journal::read_meta(&database)?;
        while database.compact().map_err(redb::Error::from)? {}
        Ok(database.close().map_err(redb::Error::from)?)
    };
    opened(run).map_err(|error: DiskError| error.at(file.path()))?;
    Ok(CompactedBytes { before, after: size(file.path())? })
}

/// Locks a folder that exists. Returns its file, and once more as the disk of a database.
pub(super) fn existing(folder: &Path) -> Result<(Arc<DataFile>, Arc<dyn DataDisk>), DataFolderError> {
    size(&folder.join(FILE))?;
    let file = Arc::new(DataFile::new(folder, FolderLock::take(folder)?));
    Ok((Arc::clone(&file), file))
}

fn size(file: &Path) -> Result<u64, DataFolderError> {
    Ok(fs::metadata(file).map_err(FolderError::of(file))?.len())
}
