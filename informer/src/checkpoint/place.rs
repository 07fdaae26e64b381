//! Path and lock of a checkpoint.
//!
//! INVARIANT: the lock is a file of its own, because the log is replaced by renaming, and a lock on the log would stay
//! with the old file. The lock is held as long as the `CheckpointFiles` exists, and files are written only under it.
//!
//! Files: `<type>-<digest>.checkpoint`, `.lock`, and `.new` during compaction. All have mode 0600.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
};

use super::IgnoreReason;

/// The files of one informer in a directory.
#[derive(Debug)]
pub(super) struct CheckpointFiles {
    dir: PathBuf,
    log: PathBuf,
    beside: PathBuf,
    lock: File,
}

impl CheckpointFiles {
    /// Locks the files for this process, and removes the remains of an interrupted compaction.
    pub(super) fn take(dir: &Path, stem: &str) -> Result<Self, IgnoreReason> {
        create_dir(dir).map_err(IgnoreReason::because("create the directory"))?;
        let file = |ending: &str| dir.join(format!("{stem}.{ending}"));
        let lock = private().create(true).truncate(false).open(file("lock"));
        let lock = lock.map_err(IgnoreReason::because("open the lock"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => IgnoreReason::Locked,
            TryLockError::Error(error) => IgnoreReason::because("lock")(error),
        })?;
        let place = Self { dir: dir.to_owned(), log: file("checkpoint"), beside: file("new"), lock };
        remove(&place.beside).map_err(IgnoreReason::because("remove an unfinished file"))?;
        Ok(place)
    }

    /// Opens the existing log for reading and writing.
    pub(super) fn open(&self) -> io::Result<Option<File>> {
        match private().open(&self.log) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates an empty file beside the log. Never follows a symbolic link.
    pub(super) fn create_beside(&self) -> io::Result<File> {
        remove(&self.beside)?;
        private().create_new(true).open(&self.beside)
    }

    /// Removes the file beside the log, to free its space on a full disk.
    pub(super) fn remove_beside(&self) {
        // A failure is harmless: the next `take` or `create_beside` removes it.
        let _ = remove(&self.beside);
    }

    /// Replaces the log by the file beside it, atomically: a reader sees either all of one or all of the other.
    pub(super) fn replace(&self, beside: &File) -> io::Result<()> {
        beside.sync_all()?;
        fs::rename(&self.beside, &self.log)
    }

    /// Makes the rename durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        if cfg!(unix) { File::open(&self.dir)?.sync_all() } else { Ok(()) }
    }
}

impl Drop for CheckpointFiles {
    /// Unlocks. Closing would not be enough: a process that is being spawned has a copy of the descriptor until its exec.
    fn drop(&mut self) {
        // A failure is harmless: closing unlocks too, or soon.
        let _ = self.lock.unlock();
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Creates `dir` and its parents with mode 0700. An existing directory keeps its mode.
fn create_dir(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// Options for reading and writing; created files have mode 0600.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

#[cfg(test)]
#[test]
fn a_copy_of_the_descriptor_does_not_keep_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let files = CheckpointFiles::take(dir.path(), "pods").unwrap();
    let spawned = files.lock.try_clone().unwrap();
    drop(files);
    CheckpointFiles::take(dir.path(), "pods").unwrap();
    drop(spawned);
}
