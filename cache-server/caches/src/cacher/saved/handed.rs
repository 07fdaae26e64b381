//! States that one process hands to the next, each in a file that only memory has.

use std::{collections::HashMap, fs::File, io};

use parking_lot::Mutex;

/// The states of caches, by type id: files of one process that another has opened.
#[derive(Debug, Default)]
pub struct HandedStates(Mutex<HashMap<String, File>>);

impl HandedStates {
    pub(super) fn take(&self, id: &str) -> Option<File> {
        self.0.lock().remove(id)
    }

    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}

impl FromIterator<(String, File)> for HandedStates {
    fn from_iter<T: IntoIterator<Item = (String, File)>>(states: T) -> Self {
        Self(Mutex::new(states.into_iter().collect()))
    }
}

/// Creates an empty file in memory, which goes with its last descriptor: no state is on a disk, not even of Secrets.
///
/// # Errors
/// The system has no such files, or no descriptor is free.
#[cfg(target_os = "linux")]
pub fn memory_file() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("cache-server-state", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

/// Fails: the system has no such files.
#[cfg(not(target_os = "linux"))]
pub fn memory_file() -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}
