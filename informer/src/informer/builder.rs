//! Builder of an informer. `start` returns the first mistake.

use std::{fmt, path::PathBuf, time::Duration};

use informer_core::{InitialList, ListSemantic};

use super::{Informer, keeping::Keep};
use crate::{
    cluster::Cluster,
    config::{Config, MANAGED_FIELDS},
    declaration::{Declaration, DeclaredType},
    delays::Delays,
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

    /// Reads only the objects of one namespace. Default: all namespaces.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.declared.namespace(namespace.into());
        self
    }

    /// Reads only objects with these labels: `app in (web,api),!legacy`.
    pub fn labels(mut self, selector: impl AsRef<str>) -> Self {
        self.declared.labels(selector.as_ref());
        self
    }

    /// Reads only objects with these fields: `spec.nodeName=node-1`. The server decides which fields it supports.
    pub fn fields(mut self, selector: impl AsRef<str>) -> Self {
        self.declared.fields(selector.as_ref());
        self
    }

    /// Sets the freshness of the first read; see [`Config::list_semantic`].
    pub fn list_semantic(mut self, semantic: ListSemantic) -> Self {
        self.declared.config.list_semantic = semantic;
        self
    }

    /// Sets how initial state is read; see [`Config::initial_list`].
    pub const fn initial_list(mut self, initial: InitialList) -> Self {
        self.declared.config.initial_list = initial;
        self
    }

    /// Sets the objects per page; see [`Config::page_size`].
    pub const fn page_size(mut self, objects: u32) -> Self {
        self.declared.config.page_size = objects;
        self
    }

    /// Cuts a dotted path, such as `metadata.annotations`, out of every object before it is stored.
    pub fn drop_path(mut self, path: impl Into<String>) -> Self {
        self.declared.config.drop_paths.push(path.into());
        self
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

    /// Sets whether a broken stream of initial state resumes where it broke; see [`Config::resume_initial`].
    pub const fn resume_initial(mut self, resumes: bool) -> Self {
        self.declared.config.resume_initial = resumes;
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

    /// Sets the delays after failures; see [`delays`](crate::delays).
    pub fn delays(mut self, delays: impl Delays + 'static) -> Self {
        self.declared.delays = Some(Box::new(delays));
        self
    }

    /// Changes any setting: `.config(|config| config.idle_timeout = Duration::from_secs(60))`.
    pub fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.declared.config);
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
