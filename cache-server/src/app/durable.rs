//! A server whose objects are in a file.

use std::{path::PathBuf, sync::Arc};

use super::App;
use crate::{
    config::Config,
    storage::durable::{DataFolderError, DurableStorage},
};

impl App {
    /// Builds the parts of a server whose objects are in the file of a folder.
    ///
    /// # Errors
    /// [`DataFolderError`] if the folder cannot be used.
    pub(crate) async fn durable(config: Config, folder: PathBuf) -> Result<Self, DataFolderError> {
        let first = config.first_revision;
        let opened = tokio::task::spawn_blocking(move || DurableStorage::open(&folder, first)).await;
        let store = opened.expect("opening catches panics")?;
        let terminating = store.terminating().to_vec();
        Ok(Self::local_on(config, Arc::new(store), terminating))
    }
}
