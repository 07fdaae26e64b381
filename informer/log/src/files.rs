//! The files of a log, and locks.
//!
//! INVARIANT: a lock is a file of its own, because a log is replaced by renaming, and a lock on the log would stay with
//! the old file. Files have mode 0600, new folders 0700.

#[cfg(any(test, feature = "testing"))]
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// An exclusive lock, held by a process. Dropping it unlocks.
#[derive(Debug)]
pub struct FileLock {
    file: File,
}

impl FileLock {
    /// Locks the file at `path`, which is created if it is missing. Returns `None` while another holds the lock.
    ///
    /// # Errors
    /// The file system refuses it.
    pub fn take(path: &Path) -> io::Result<Option<Self>> {
        let file = private().create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// The locked file.
    pub const fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for FileLock {
    /// Closing would not be enough: a process that is being spawned has a copy of the descriptor until its exec.
    fn drop(&mut self) {
        // A failure is harmless: closing unlocks too, or soon.
        let _ = self.file.unlock();
    }
}

/// The files of one log: `NAME`, and `NAME.new` while a whole state is written. Only the holder of a lock for them may
/// use them.
#[derive(Clone, Debug)]
pub struct LogFiles {
    folder: PathBuf,
    log: PathBuf,
    beside: PathBuf,
    /// Room on the disk: a byte costs one unit, and so does each other operation.
    #[cfg(any(test, feature = "testing"))]
    room: Option<Arc<AtomicUsize>>,
}

impl LogFiles {
    /// Names the files of the log `name` in `folder`.
    pub fn new(folder: &Path, name: impl AsRef<Path>) -> Self {
        let log = folder.join(name);
        Self {
            folder: folder.to_owned(),
            beside: beside(&log),
            log,
            #[cfg(any(test, feature = "testing"))]
            room: None,
        }
    }

    /// Limits the room on the disk: a byte costs one unit, and so does each other operation.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn with_room(self, units: Arc<AtomicUsize>) -> Self {
        Self { room: Some(units), ..self }
    }

    /// Removes the log and the file beside it.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn remove(&self) -> io::Result<()> {
        remove(&self.beside)?;
        remove(&self.log)
    }

    /// Opens the existing log for reading and writing.
    pub(crate) fn open(&self) -> io::Result<Option<File>> {
        match private().open(&self.log) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates an empty file beside the log. Never follows a symbolic link.
    pub(crate) fn create_beside(&self) -> io::Result<File> {
        self.pay()?;
        remove(&self.beside)?;
        private().create_new(true).open(&self.beside)
    }

    /// Removes the file beside the log, to free its space on a full disk.
    pub(crate) fn remove_beside(&self) {
        // A failure is harmless: `create_beside` removes it too.
        let _ = remove(&self.beside);
    }

    /// Replaces the log by the file beside it, atomically: a reader sees either all of one or all of the other.
    pub(crate) fn replace(&self, beside: &File) -> io::Result<()> {
        self.pay()?;
        beside.sync_all()?;
        self.pay()?;
        fs::rename(&self.beside, &self.log)
    }

    /// Makes a replacement durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.pay()?;
        sync(&self.folder)
    }

    /// Writes all of `bytes` at the file's cursor.
    pub(crate) fn write(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        // A full disk takes the first part.
        let taken = self.take(bytes.len());
        file.write_all(&bytes[..taken])?;
        if taken == bytes.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    fn pay(&self) -> io::Result<()> {
        if self.take(1) == 1 { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    /// Takes `units` of the room, or all that are left, and returns their number.
    fn take(&self, units: usize) -> usize {
        #[cfg(any(test, feature = "testing"))]
        if let Some(room) = &self.room {
            let before = room.load(Ordering::SeqCst);
            room.store(before.saturating_sub(units), Ordering::SeqCst);
            return units.min(before);
        }
        units
    }
}

fn beside(log: &Path) -> PathBuf {
    let mut name = OsString::from(log);
    name.push(".new");
    name.into()
}

/// Removes a file; a missing one is no error.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
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
///
/// # Errors
/// An error of the file system.
pub fn sync(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Creates `folder` and its parents with mode 0700, and makes their names durable. An existing folder keeps its mode.
///
/// # Errors
/// An error of the file system.
pub fn create_folder(folder: &Path) -> io::Result<()> {
    create_synced(folder, sync)
}

/// Like [`create_folder`]; `sync` makes the names in a folder durable.
pub(crate) fn create_synced(folder: &Path, mut sync: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
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
