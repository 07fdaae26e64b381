//! The data file: where it is, how it is opened, and why it cannot be.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use redb::{Builder, Database, backends::FileBackend};

use super::journal;
use crate::{
    limits::DISK_CACHE_BYTES,
    storage::folder::{self, FolderError, private, sync},
};

/// Name of the data file in its folder.
pub(super) const FILE: &str = "objects.redb";

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

/// Opens the database, again after each failure.
pub(super) trait DataDisk: Send + 'static {
    /// Opens the database, or creates an empty one, and verifies the checksums of all pages.
    fn open(&self) -> Result<Database, DiskError>;
}

/// The data file in a folder whose lock the caller holds.
#[derive(Debug)]
pub(super) struct DataFile {
    path: PathBuf,
}

impl DataFile {
    pub(super) fn new(folder: &Path) -> Self {
        Self { path: folder.join(FILE) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the file under another name first, so that a half-made one is never opened.
    fn create(&self) -> Result<(), DiskError> {
        let beside = self.path.with_extension("new");
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            Ok(()) | Err(_) => {}
        }
        let file = private().create_new(true).open(&beside)?;
        journal::begin(&opened(file)?)?;
        File::open(&beside)?.sync_all()?;
        fs::rename(&beside, &self.path)?;
        self.path.parent().map_or(Ok(()), sync)?;
        Ok(())
    }
}

impl DataDisk for DataFile {
    fn open(&self) -> Result<Database, DiskError> {
        let file = match private().open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.create()?;
                private().open(&self.path)?
            }
            file => file?,
        };
        if file.metadata()?.len() == 0 {
            // redb would make a database of it.
            return Err(DiskError::Foreign);
        }
        opened(file)
    }
}

/// Opens the database in `file`.
fn opened(file: File) -> Result<Database, DiskError> {
    let backend = FileBackend::new(file).map_err(redb::Error::from)?;
    Ok(builder().create_with_backend(backend).map_err(redb::Error::from)?)
}

/// The settings of every database. Every page is checked when it is opened: all of it is read then anyway.
pub(super) fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(DISK_CACHE_BYTES).set_check_integrity_on_open(true);
    builder
}
