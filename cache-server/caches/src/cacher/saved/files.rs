//! The files of one type in the state folder.
//!
//! Files: `<type>.state`, and `<type>.state.new` while a whole state is written. Both have mode 0600.

use std::{
    fs::{self, File},
    io::{self, BufReader, Write as _},
    path::{Path, PathBuf},
};

use super::{
    CLUSTER,
    record::{HEAD_BYTES, StateRecord, StateRecords, fill},
};
use crate::storage::folder::{private, sync};

/// The files of one type. Only one value per type may exist in the process that holds the folder's lock.
#[derive(Clone, Debug)]
pub(super) struct StateFiles {
    folder: PathBuf,
    log: PathBuf,
    beside: PathBuf,
    room: DiskRoom,
}

impl StateFiles {
    /// Names the files of the type `id`; `None` if its id cannot be a file's name.
    pub(super) fn new(folder: &Path, id: &str, room: DiskRoom) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        let is_name = !id.is_empty() && !id.starts_with('.') && id.len() <= ID_BYTES_MAX && id.bytes().all(is_plain);
        let file = |ending: &str| folder.join(format!("{id}.{ending}"));
        is_name.then(|| Self { folder: folder.to_owned(), log: file("state"), beside: file("state.new"), room })
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
        self.room.pay()?;
        remove(&self.beside)?;
        private().create_new(true).open(&self.beside)
    }

    /// Writes all of `bytes` at the file's cursor.
    pub(super) fn write(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        // A full disk takes the first part.
        let taken = self.room.take(bytes.len());
        file.write_all(&bytes[..taken])?;
        if taken == bytes.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    /// Replaces the log by the file beside it, atomically and durably.
    pub(super) fn replace(&self, beside: &File) -> io::Result<()> {
        self.room.pay()?;
        beside.sync_all()?;
        self.room.pay()?;
        fs::rename(&self.beside, &self.log)?;
        self.room.pay()?;
        sync(&self.folder)
    }

    /// Removes the file beside the log, to free its space on a full disk.
    pub(super) fn remove_beside(&self) {
        // A failure is harmless: the next `create_beside` removes it.
        let _ = remove(&self.beside);
    }

    /// Removes the log and the file beside it.
    pub(super) fn remove(&self) -> io::Result<()> {
        remove(&self.beside)?;
        remove(&self.log)
    }
}

/// Removes the states of a folder, of all types or of one. Returns their number.
pub(super) fn remove_states(folder: &Path, id: Option<&str>) -> io::Result<usize> {
    remove_if(folder, |path| id.is_none_or(|id| path.file_stem().is_some_and(|stem| stem == id)))
}

/// Removes the states of a folder whose owner names another cluster than `source`. Returns their number.
pub(super) fn remove_foreign(folder: &Path, source: &str) -> io::Result<usize> {
    remove_if(folder, |path| is_foreign(path, source))
}

/// Returns true if [`remove_foreign`] would remove states, or the folder cannot be read.
pub(super) fn has_foreign(folder: &Path, source: &str) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return true };
    entries.flatten().any(|entry| is_state(&entry.path()) && is_foreign(&entry.path(), source))
}

fn is_foreign(state: &Path, source: &str) -> bool {
    owner_source(state).is_some_and(|found| found.starts_with(CLUSTER) && found != source)
}

fn is_state(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "state")
}

fn remove_if(folder: &Path, condition: impl Fn(&Path) -> bool) -> io::Result<usize> {
    let mut removed = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if is_state(&path) && condition(&path) {
            remove(&path.with_extension("state.new"))?;
            remove(&path)?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Returns the source in the owner of a state: its fourth line. `None` if the file cannot be read so far.
fn owner_source(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    let end = file.metadata().ok()?.len();
    let mut from = BufReader::new(file);
    let mut head = [0; HEAD_BYTES];
    fill(&mut from, &mut head).ok().filter(|&is_whole| is_whole)?;
    match StateRecords::new(from, end).next() {
        Ok(Some(StateRecord::Owner(owner))) => owner.split('\n').nth(3).map(str::to_owned),
        Ok(_) | Err(_) => None,
    }
}

/// Bytes of a type's id in a file's name: less than the 255 of common file systems, with the endings.
const ID_BYTES_MAX: usize = 240;

pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Room on the disk. Tests limit it: a byte costs one unit, and so does each other operation.
#[derive(Clone, Debug, Default)]
pub(super) struct DiskRoom {
    #[cfg(test)]
    pub(super) left: Option<std::sync::Arc<std::sync::atomic::AtomicUsize>>,
}

impl DiskRoom {
    /// Takes `units`, or all that are left, and returns their number.
    fn take(&self, units: usize) -> usize {
        #[cfg(test)]
        if let Some(room) = &self.left {
            let before = room.load(std::sync::atomic::Ordering::SeqCst);
            room.store(before.saturating_sub(units), std::sync::atomic::Ordering::SeqCst);
            return units.min(before);
        }
        units
    }

    /// Takes one unit.
    fn pay(&self) -> io::Result<()> {
        if self.take(1) == 1 { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }
}
