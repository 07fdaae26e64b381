//! Where a checkpoint lies, and that it is nobody else's.
//!
//! INVARIANT: the lock is a file of its own, because the log is replaced by renaming: a lock on it would stay behind
//! with the old one. It is held as long as the place is, and files are only written under it.
//!
//! Shape: `<type>-<digest>.checkpoint`, `.lock`, and `.new` while a log is written anew. All of them 0600.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
};

use super::Ignored;

/// The files of one informer in a directory.
#[derive(Debug)]
pub(super) struct Place {
    dir: PathBuf,
    log: PathBuf,
    beside: PathBuf,
    _lock: File,
}

impl Place {
    /// Takes the place for this process, and removes what an interrupted rewrite left there.
    pub(super) fn take(dir: &Path, stem: &str) -> Result<Self, Ignored> {
        create_dir(dir).map_err(Ignored::because("create the directory"))?;
        let file = |ending: &str| dir.join(format!("{stem}.{ending}"));
        let lock = private().create(true).truncate(false).open(file("lock"));
        let lock = lock.map_err(Ignored::because("open the lock"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Ignored::Locked,
            TryLockError::Error(error) => Ignored::because("lock")(error),
        })?;
        let place = Self { dir: dir.to_owned(), log: file("checkpoint"), beside: file("new"), _lock: lock };
        remove(&place.beside).map_err(Ignored::because("remove an unfinished file"))?;
        Ok(place)
    }

    /// The log that is there, for reading and writing.
    pub(super) fn open(&self) -> io::Result<Option<File>> {
        match private().open(&self.log) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// An empty file beside the log. Never follows a link that stands there.
    pub(super) fn create_beside(&self) -> io::Result<File> {
        remove(&self.beside)?;
        private().create_new(true).open(&self.beside)
    }

    /// Gives up the file beside the log: on a full disk its space is needed.
    pub(super) fn remove_beside(&self) {
        // It is in nobody's way: it goes with the next one.
        let _ = remove(&self.beside);
    }

    /// Puts the file beside in the place of the log. Whoever opens the log gets all of one or all of the other.
    pub(super) fn replace(&self, beside: &File) -> io::Result<()> {
        beside.sync_all()?;
        fs::rename(&self.beside, &self.log)
    }

    /// Makes the renaming last.
    pub(super) fn sync(&self) -> io::Result<()> {
        if cfg!(unix) { File::open(&self.dir)?.sync_all() } else { Ok(()) }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Creates `dir` and its parents for this user alone. One that is there stays as it is.
fn create_dir(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// Reading and writing, by this user alone where the file is created.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
