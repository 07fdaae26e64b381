//! The data file in its folder, and the two files beside it: the lock, and the reserve for removals on a full disk.

use std::{
    fs::{self, File, Metadata},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use redb::{StorageBackend, backends::FileBackend};

use super::{
    disk::{DataDisk, DiskError, builder},
    journal,
};
use crate::{
    limits::{DISK_RESERVE_BYTES, DISK_RESERVE_BYTES_MIN, DISK_REWRITE_BYTES},
    storage::folder::{FolderLock, private, sync},
};

/// Name of the data file in its folder.
pub(super) const FILE: &str = "objects.redb";

/// Name of the file that only reserves room.
const RESERVE: &str = "reserve";

/// The data file in a folder that this process has locked.
#[derive(Debug)]
pub(super) struct DataFile {
    path: PathBuf,
    /// Its mark outlives the process: see [`DataDisk::is_unsynced`].
    lock: FolderLock,
    /// The file that was opened first.
    opened: OnceLock<FileIdentity>,
    is_unsynced: AtomicBool,
}

/// Device and inode of a file.
type FileIdentity = (u64, u64);

impl DataFile {
    pub(super) fn new(folder: &Path, lock: FolderLock) -> Self {
        let is_unsynced = AtomicBool::new(lock.is_marked());
        Self { path: folder.join(FILE), lock, opened: OnceLock::new(), is_unsynced }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    fn displaced(&self) -> DiskError {
        DiskError::Displaced(self.folder().to_owned())
    }

    /// Creates the file under another name first, so that a half-made one is never opened.
    fn create(&self) -> Result<File, DiskError> {
        let beside = self.path.with_extension("new");
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            Ok(()) | Err(_) => {}
        }
        let file = private().create_new(true).open(&beside)?;
        let backend = FileBackend::new(file).map_err(redb::Error::from)?;
        journal::begin(&builder().create_with_backend(backend).map_err(redb::Error::from)?)?;
        File::open(&beside)?.sync_all()?;
        fs::rename(&beside, &self.path)?;
        sync(self.folder())?;
        Ok(private().open(&self.path)?)
    }
}

impl DataDisk for DataFile {
    fn file(&self) -> Result<Box<dyn StorageBackend>, DiskError> {
        let file = match private().open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match self.opened.get() {
                Some(_) => return Err(self.displaced()),
                None => self.create()?,
            },
            file => file?,
        };
        let metadata = file.metadata()?;
        if metadata.len() == 0 {
            // redb would make a database of it.
            return Err(DiskError::Foreign);
        }
        if *self.opened.get_or_init(|| identity(&metadata)) != identity(&metadata) {
            return Err(self.displaced());
        }
        Ok(Box::new(FileBackend::new(file).map_err(redb::Error::from)?))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(fs::metadata(&self.path)?.len())
    }

    fn check_place(&self) -> Result<(), DiskError> {
        use io::ErrorKind::{NotADirectory, NotFound};
        match fs::metadata(&self.path) {
            Ok(found) if self.opened.get().is_none_or(|opened| *opened == identity(&found)) => Ok(()),
            Ok(_) => Err(self.displaced()),
            Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Err(self.displaced()),
            Err(error) => Err(error.into()),
        }
    }

    fn is_unsynced(&self) -> bool {
        self.is_unsynced.load(Ordering::Relaxed)
    }

    fn set_unsynced(&self, is_unsynced: bool) {
        self.is_unsynced.store(is_unsynced, Ordering::Relaxed);
        if let Err(error) = self.lock.mark(is_unsynced) {
            tracing::error!(%error, is_unsynced, "lock file not marked");
        }
    }

    fn take_reserve(&self, takes_all: bool) -> bool {
        let path = self.folder().join(RESERVE);
        if fs::metadata(&path).is_ok_and(|found| DISK_RESERVE_BYTES <= found.len()) {
            return true;
        }
        let reserved = private().create(true).truncate(true).open(&path).and_then(|file| fill(&file, takes_all));
        let is_reserved = reserved.is_ok_and(|bytes| DISK_RESERVE_BYTES_MIN <= bytes);
        if !is_reserved {
            let _ = fs::remove_file(&path);
        }
        is_reserved
    }

    fn give_reserve(&self) -> bool {
        fs::remove_file(self.folder().join(RESERVE)).is_ok()
    }
}

/// Fills a file up to the size of the reserve, or until the disk is full, and returns its size. Unless it takes all, it
/// keeps half of the room that it finds.
fn fill(mut file: &File, takes_all: bool) -> io::Result<u64> {
    let goal = if takes_all { DISK_RESERVE_BYTES } else { 2 * DISK_RESERVE_BYTES };
    // File systems that compress would reserve nothing for zeros.
    let piece: Vec<u8> = (0..DISK_REWRITE_BYTES).map(|_| fastrand::u8(..)).collect();
    let mut bytes = 0;
    while bytes < goal {
        match file.write(&piece) {
            Ok(written @ 1..) => bytes += written as u64,
            Ok(0) | Err(_) => break,
        }
    }
    let bytes = if takes_all { bytes } else { bytes / 2 }.min(DISK_RESERVE_BYTES);
    file.set_len(bytes)?;
    file.sync_all()?;
    Ok(bytes)
}

#[cfg(unix)]
fn identity(file: &Metadata) -> FileIdentity {
    use std::os::unix::fs::MetadataExt as _;
    (file.dev(), file.ino())
}

/// Elsewhere, all files are taken for one.
#[cfg(not(unix))]
fn identity(_: &Metadata) -> FileIdentity {
    (0, 0)
}
