//! Builder of an informer. `start` returns the first mistake.

use std::{fmt, path::PathBuf, time::Duration};

use super::{Informer, keeping::Keep};
use crate::{
    cluster::Cluster,
    config::{Config, MANAGED_FIELDS},
    declaration::{Declaration, DeclaredType, declaration_setters},
    error::ConfigError,
};

/// Declaration of an informer: what it watches, and how. Sends no request before [`start`](Self::start).
#[must_use = "nothing happens before start"]
pub struct InformerBuilder<K> {
    pub(super) declared: Declaration,
    pub(super) keep: Keep<K>,
}

impl<K> InformerBuilder<K> {
    pub(crate) fn new(cluster: Cluster, of: DeclaredType) -> Self {
        Self { declared: Declaration::new(cluster, of, Config::default()), keep: Keep::default() }
    }

    declaration_setters! {
        drop_path: "Cuts a dotted path, such as `metadata.annotations`, out of every object before it is stored.",
        config: "Changes any setting: `.config(|config| config.idle_timeout = Duration::from_secs(60))`.",
    }

    /// Keeps `metadata.managedFields`, which are cut by default.
    pub fn keep_managed_fields(mut self) -> Self {
        self.declared.config.drop_paths.retain(|path| path != MANAGED_FIELDS);
        self
    }

    /// Sets the largest object accepted, in bytes; see [`Config::object_bytes_max`].
    pub const fn object_bytes_max(mut self, bytes: usize) -> Self {
        self.declared.config.object_bytes_max = bytes;
        self
    }

    /// Delays the first request by a random part of `most`; see [`Config::spread`].
    pub const fn spread(mut self, most: Duration) -> Self {
        self.declared.config.spread = most;
        self
    }

    /// Saves the state to a directory, so that restarts resume; see [`Config::checkpoint`].
    pub fn checkpoint(mut self, directory: impl Into<PathBuf>) -> Self {
        self.declared.config.checkpoint = Some(directory.into());
        self
    }

    /// Allows Secrets to be written to the [`checkpoint`](Self::checkpoint), in plain text.
    pub const fn checkpoint_secrets(mut self) -> Self {
        self.declared.config.checkpoint_secrets = true;
        self
    }

    /// Starts the informer on the current tokio runtime and returns at once.
    ///
    /// # Errors
    /// The first wrong setting. Failures at the server are not returned here but by [`Informer::ready`].
    pub fn start(self) -> Result<Informer<K>, ConfigError> {
        Ok(Informer::start(self.declared.into_setup()?, self.keep))
    }
}

impl<K> fmt::Debug for InformerBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InformerBuilder").field(&self.declared).finish()
    }
}
