//! A temporary directory for the demo and for tests, removed on drop.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process,
};

/// A directory, removed on drop.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Creates a directory in the system's temporary directory, named after `purpose` and this process.
    ///
    /// # Errors
    /// The directory cannot be created or exists already.
    pub(crate) fn try_new(purpose: &str) -> io::Result<Self> {
        let path = env::temp_dir().join(format!("log-collector-{purpose}-{}", process::id()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// Like [`try_new`](Self::try_new), for tests.
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
        // A directory that cannot be removed stays behind.
        let _ = fs::remove_dir_all(&self.0);
    }
}
