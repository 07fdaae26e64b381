//! A server whose objects are in a file.

use std::{
    fs::File,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::App;
use crate::{
    config::Config,
    limits::UPGRADE_CHECK_EVERY,
    storage::{
        durable::{DataFolderError, DurableStorage},
        folder::FolderError,
    },
};

impl App {
    /// Builds the parts of a server whose objects are in the file of a folder: over a copy, or once another process has left
    /// it, at most after `wait`.
    ///
    /// # Errors
    /// [`DataFolderError`] if the folder cannot be used.
    pub(crate) async fn durable(
        config: Config,
        folder: PathBuf,
        copy: Option<File>,
        wait: Duration,
    ) -> Result<Self, DataFolderError> {
        let first = config.first_revision;
        let deadline = Instant::now() + wait;
        let opened = tokio::task::spawn_blocking(move || {
            if let Some(copy) = copy {
                return DurableStorage::open_copy(&folder, first, copy);
            }
            loop {
                match DurableStorage::open(&folder, first) {
                    Err(DataFolderError::Folder(FolderError::InUse(_))) if Instant::now() < deadline => {
                        thread::sleep(UPGRADE_CHECK_EVERY);
                    }
                    opened => return opened,
                }
            }
        });
        let store = Arc::new(opened.await.expect("opening catches panics")?);
        Ok(Self::local_on(config, Arc::clone(&store) as _, Some(store)))
    }
}
