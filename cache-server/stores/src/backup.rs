//! Export and import of all objects of a store.
//!
//! INVARIANT: memory does not grow with the number of exported objects; an import has one batch of objects and the keys of
//! the objects that exist. INVARIANT: an import writes nothing before all of its files were read and checked.
//!
//! `docs/storage.md` describes the format of snapshots.

mod export;
mod import;
mod snapshot;
mod stored_types;

use std::{
    fs::File,
    io::{self, BufReader},
    path::{Path, PathBuf},
};

use self::snapshot::{SnapshotError, SnapshotReader};
pub use self::{
    export::{ExportError, ExportFormat, write_all},
    import::{ImportError, into_store, verify},
};

/// Reason why a snapshot file cannot be used, in one line.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotFileError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Its content is wrong.
    #[error("{}: {text}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Reason why it cannot be used.
        text: String,
    },
}

impl SnapshotFileError {
    /// Returns the function that makes an error of `path`.
    fn of(path: &Path) -> impl Fn(SnapshotError) -> Self {
        let path = path.to_owned();
        move |error| match error {
            SnapshotError::Io(source) => Self::Io { path: path.clone(), source },
            error @ (SnapshotError::Foreign | SnapshotError::Newer(_) | SnapshotError::Damaged { .. }) => {
                Self::Content { path: path.clone(), text: error.to_string() }
            }
        }
    }
}

/// Returns true if the file begins like a snapshot, of any version.
///
/// # Errors
/// [`SnapshotFileError`] if it cannot be read, or not more than once.
pub fn is_snapshot(path: &Path) -> Result<bool, SnapshotFileError> {
    let fail = |source| SnapshotFileError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(fail)?;
    if !file.metadata().map_err(fail)?.is_file() {
        let text = "not a regular file: an import reads its files several times".to_owned();
        return Err(SnapshotFileError::Content { path: path.to_owned(), text });
    }
    snapshot::is_begun(BufReader::new(file)).map_err(fail)
}

/// Opens a snapshot, and reads its first line.
fn open(path: &Path) -> Result<SnapshotReader<BufReader<File>>, SnapshotFileError> {
    let fail = |source| SnapshotFileError::Io { path: path.to_owned(), source };
    SnapshotReader::open(BufReader::new(File::open(path).map_err(fail)?)).map_err(SnapshotFileError::of(path))
}

#[cfg(test)]
mod tests;
