//! A folder that one server at a time may use, and files that only its user may read.

use std::{
    io,
    path::{Path, PathBuf},
};

use informer_log::{FileLock, create_folder};
pub use informer_log::{private, sync};

/// Reason why a folder cannot be used, in one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// Another process, or another server of this one, uses the folder.
    #[error("{}: another server uses it", .0.display())]
    InUse(PathBuf),
    /// The file system refuses an operation.
    #[error("{}: {source}{}", path.display(), advice(source.kind()))]
    Io {
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl FolderError {
    /// Returns the function that makes an error of `path`.
    pub fn of(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// Returns the advice to add to an error of the operating system.
pub const fn advice(error: io::ErrorKind) -> &'static str {
    let is_read_only = matches!(error, io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied);
    if is_read_only { ": choose a folder that this user can write to" } else { "" }
}

/// The lock of a folder. Dropping it unlocks.
#[derive(Debug)]
pub struct FolderLock(FileLock);

impl FolderLock {
    /// Creates the folder with mode 0700 if it is missing, and locks it. An existing folder keeps its mode.
    ///
    /// Blocks, shortly.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn take(folder: &Path) -> Result<Self, FolderError> {
        create_folder(folder).map_err(FolderError::of(folder))?;
        let at = folder.join("lock");
        let lock = FileLock::take(&at).map_err(FolderError::of(&at))?;
        lock.map(Self).ok_or_else(|| FolderError::InUse(folder.to_owned()))
    }

    /// Leaves a mark for later processes, or removes it. It is the length of the lock file, because a full disk has room
    /// for that.
    pub fn mark(&self, is_marked: bool) -> io::Result<()> {
        self.0.file().set_len(is_marked.into())
    }

    /// Returns true if an earlier process left its mark.
    pub fn is_marked(&self) -> bool {
        self.0.file().metadata().is_ok_and(|file| file.len() != 0)
    }
}
