//! The disk below the database: its failures, and how the database is opened again after them.
//!
//! INVARIANT: redb opens only bytes that a successful sync has covered. After a failed sync the kernel takes the bytes for
//! written and still shows them, so they are written again first. INVARIANT: a sync that fails is remembered until then,
//! also by the next process.

use std::{
    fmt::Debug,
    io,
    ops::Bound,
    path::{Path, PathBuf},
    sync::Arc,
};

use redb::{BackendError, Builder, Database, StorageBackend};

use super::journal;
use crate::{
    limits::{DISK_CACHE_BYTES, DISK_REWRITE_BYTES},
    storage::{
        SourceError,
        folder::{self, FolderError},
    },
};

/// Reason why a data folder cannot be used, in one line that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataFolderError {
    /// The folder cannot be used, or another server uses it.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The file system refuses an operation.
    #[error("{}: {text}", path.display())]
    Io {
        /// The data file.
        path: PathBuf,
        /// The error of the operating system.
        text: String,
    },
    /// Not a data file of this program.
    #[error("{} is no data file of cache-server: choose another folder, or move the file away", .0.display())]
    Foreign(PathBuf),
    /// Written by a newer version.
    #[error(
        "{} has format {found}, and this version reads {}: use the newer cache-server", path.display(), journal::FORMAT
    )]
    Newer {
        /// The data file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// Changed since it was written, or its disk is broken.
    #[error("{} is damaged ({text}): restore a backup, or move the file away to start without objects", path.display())]
    Damaged {
        /// The data file.
        path: PathBuf,
        /// The damage.
        text: String,
    },
}

/// Error of a data file that is not at a path known here.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiskError {
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A later start would not find the open file.
    #[error("the data folder {} was deleted, moved or replaced", .0.display())]
    Displaced(PathBuf),
    #[error("it is no data file")]
    Foreign,
    #[error("its format is {0}")]
    Newer(u32),
    #[error("{0}")]
    Damaged(String),
}

impl DiskError {
    pub(super) fn at(self, path: &Path) -> DataFolderError {
        let path = path.to_owned();
        match self {
            Self::Io(error) => DataFolderError::Io { path, text: format!("{error}{}", folder::advice(error.kind())) },
            Self::Displaced(_) => DataFolderError::Io { path, text: self.to_string() },
            Self::Foreign => DataFolderError::Foreign(path),
            Self::Newer(found) => DataFolderError::Newer { path, found },
            Self::Damaged(text) => DataFolderError::Damaged { path, text },
        }
    }

    /// True if the disk or a quota has no room.
    pub(super) fn is_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self, Self::Io(error) if matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge))
    }

    /// The answer to writes while the disk has this error.
    pub(super) fn refusal(&self) -> SourceError {
        let text = self.to_string();
        match self {
            _ if self.is_full() => SourceError::Full(text),
            Self::Displaced(_) => SourceError::Displaced(text),
            Self::Io(_) | Self::Foreign | Self::Newer(_) | Self::Damaged(_) => SourceError::Unavailable(text),
        }
    }
}

impl From<redb::Error> for DiskError {
    #[expect(clippy::wildcard_enum_match_arm, reason = "all others are reported as they are")]
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => Self::Foreign,
            redb::Error::Io(error) => Self::Io(error),
            redb::Error::TableTypeMismatch { .. } | redb::Error::TableDoesNotExist(_) => Self::Foreign,
            redb::Error::Corrupted(text) => Self::Damaged(text),
            redb::Error::PreviousIo | redb::Error::DatabaseClosed => {
                Self::Io(io::Error::other("an earlier access failed"))
            }
            error => Self::Io(io::Error::other(error.to_string())),
        }
    }
}

/// The disk of one data file.
pub(super) trait DataDisk: Debug + Send + Sync + 'static {
    /// Opens the file, or creates it unless it was opened before.
    fn file(&self) -> Result<Box<dyn StorageBackend>, DiskError>;

    /// Length of the file.
    fn len(&self) -> io::Result<u64>;

    /// Fails if a later start would not find the open file. Cost: one system call.
    fn check_place(&self) -> Result<(), DiskError>;

    /// True from a failed sync until [`open`] has written all bytes again.
    fn is_unsynced(&self) -> bool;

    /// See [`Self::is_unsynced`]. Later processes learn it too, as long as the machine runs.
    fn set_unsynced(&self, is_unsynced: bool);

    /// Reserves room for removals on a full disk, or as much of it as there is, but at most half of the free room unless
    /// `takes_all`. Returns true if room is reserved now.
    fn take_reserve(&self, takes_all: bool) -> bool;

    /// Gives the reserved room back. Returns false if none was reserved.
    fn give_reserve(&self) -> bool;
}

/// Opens the database, or creates an empty one, and verifies the checksums of all pages.
///
/// Blocks. Cost: reads the file; after a failed sync, also writes it.
pub(super) fn open(disk: &Arc<dyn DataDisk>) -> Result<Database, DiskError> {
    open_by(&builder(), disk)
}

/// Like [`open`], of a file whose content was read before: redb reads it again only if it was not closed.
pub(super) fn open_again(disk: &Arc<dyn DataDisk>) -> Result<Database, DiskError> {
    open_by(builder().set_check_integrity_on_open(false), disk)
}

fn open_by(builder: &Builder, disk: &Arc<dyn DataDisk>) -> Result<Database, DiskError> {
    let file = SyncedFile { file: disk.file()?, disk: Arc::clone(disk) };
    let is_unsynced = disk.is_unsynced();
    if is_unsynced {
        rewrite(&*file.file)?;
    }
    // redb repairs a file by a commit that replaces the older of the last two. The newer one may be only in the kernel's
    // memory, after a kill, so it has to be on the disk before that.
    file.sync_data()?;
    if is_unsynced {
        disk.set_unsynced(false);
        tracing::warn!("data file written again after a failed sync");
    }
    Ok(builder.create_with_backend(file).map_err(redb::Error::from)?)
}

/// Writes each byte of the file over itself, so that the next sync covers all of them. A power cut meanwhile leaves a mix
/// of two commits, like one during a commit: the older of the two is complete in it.
fn rewrite(file: &dyn StorageBackend) -> io::Result<()> {
    let (len, mut piece) = (file.len()?, vec![0; DISK_REWRITE_BYTES]);
    let mut offset = 0;
    while offset < len {
        let left = usize::try_from(len - offset).unwrap_or(usize::MAX);
        let piece = &mut piece[..left.min(DISK_REWRITE_BYTES)];
        file.read(offset, piece)?;
        file.write(offset, piece)?;
        offset += piece.len() as u64;
    }
    Ok(())
}

/// The settings of every database. Every page is checked when it is opened: all of it is read then anyway.
pub(super) fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(DISK_CACHE_BYTES).set_check_integrity_on_open(true);
    builder
}

/// A file that reports its failed syncs to its disk.
#[derive(Debug)]
struct SyncedFile {
    file: Box<dyn StorageBackend>,
    disk: Arc<dyn DataDisk>,
}

impl StorageBackend for SyncedFile {
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data().inspect_err(|_| self.disk.set_unsynced(true))
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}
