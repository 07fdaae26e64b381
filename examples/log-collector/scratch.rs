//! A directory of one's own, removed at the end: for the demo and for tests.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process,
};

/// The directory. Dropped, it is gone.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes it below the system's temporary directory, named after `purpose` and this process.
    ///
    /// # Errors
    /// It cannot be made, or is there already.
    pub(crate) fn try_new(purpose: &str) -> io::Result<Self> {
        let path = env::temp_dir().join(format!("log-collector-{purpose}-{}", process::id()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// As [`try_new`](Self::try_new), for tests.
    #[cfg(test)]
    pub(crate) fn new(purpose: &str) -> Self {
        Self::try_new(purpose).unwrap()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing better can be done with what cannot be removed.
        let _ = fs::remove_dir_all(&self.0);
    }
}
