//! A folder that one server at a time may use, and files that only its user may read.

use std::{
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
};

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
pub struct FolderLock {
    file: File,
}

impl FolderLock {
    /// Creates the folder with mode 0700 if it is missing, and locks it. An existing folder keeps its mode.
    ///
    /// Blocks, shortly.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn take(folder: &Path) -> Result<Self, FolderError> {
        create(folder).map_err(FolderError::of(folder))?;
        let at = folder.join("lock");
        let file = private().create(true).truncate(false).open(&at).map_err(FolderError::of(&at))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file }),
            Err(TryLockError::WouldBlock) => Err(FolderError::InUse(folder.to_owned())),
            Err(TryLockError::Error(error)) => Err(FolderError::of(&at)(error)),
        }
    }

    /// Leaves a mark for later processes, or removes it. It is the length of the lock file, because a full disk has room
    /// for that.
    pub fn mark(&self, is_marked: bool) -> io::Result<()> {
        self.file.set_len(is_marked.into())
    }

    /// Returns true if an earlier process left its mark.
    pub fn is_marked(&self) -> bool {
        self.file.metadata().is_ok_and(|file| file.len() != 0)
    }
}

impl Drop for FolderLock {
    /// Closing would not be enough: a process that is being spawned has a copy of the descriptor until its exec.
    fn drop(&mut self) {
        // A failure is harmless: closing unlocks too, or soon.
        let _ = self.file.unlock();
    }
}

/// Options for reading and writing; created files have mode 0600.
pub fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Makes the names in `folder` durable.
pub fn sync(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Creates `folder` and its parents with mode 0700, and makes their names durable.
fn create(folder: &Path) -> io::Result<()> {
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    let created: Vec<_> = folder.ancestors().take_while(is_missing).collect();
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    for parent in created.into_iter().filter_map(Path::parent) {
        sync(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?;
    }
    Ok(())
}

#[cfg(test)]
#[test]
fn a_copy_of_the_descriptor_does_not_keep_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let lock = FolderLock::take(folder.path()).unwrap();
    let spawned = lock.file.try_clone().unwrap();
    drop(lock);
    FolderLock::take(folder.path()).unwrap();
    drop(spawned);
}
