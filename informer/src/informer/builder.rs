//! Declaring an informer. The first mistake is told by `start`.

use std::{fmt, path::PathBuf, time::Duration};

use informer_core::{InitialList, ListSemantic};

use super::{Informer, keeping::Keep};
use crate::{
    cluster::Cluster,
    config::{Config, MANAGED_FIELDS},
    declaration::{Declaration, Type},
    delays::Delays,
    error::ConfigError,
};

/// What an informer watches, and how. Nothing is sent before [`start`](Self::start).
#[must_use = "nothing happens before start"]
pub struct InformerBuilder<K> {
    pub(super) declared: Declaration,
    pub(super) keep: Keep<K>,
}

impl<K> InformerBuilder<K> {
    pub(crate) fn new(cluster: Cluster, of: Type) -> Self {
        Self { declared: Declaration::new(cluster, of, Config::default()), keep: Keep::default() }
    }

    /// Only the objects of one namespace. Default: all.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.declared.namespace(namespace.into());
        self
    }

    /// Only objects with these labels: `app in (web,api),!legacy`.
    pub fn labels(mut self, selector: impl AsRef<str>) -> Self {
        self.declared.labels(selector.as_ref());
        self
    }

    /// Only objects with these fields: `spec.nodeName=node-1`. The server decides which fields it knows.
    pub fn fields(mut self, selector: impl AsRef<str>) -> Self {
        self.declared.fields(selector.as_ref());
        self
    }

    /// How fresh the first read has to be; see [`Config::list_semantic`].
    pub fn list_semantic(mut self, semantic: ListSemantic) -> Self {
        self.declared.config.list_semantic = semantic;
        self
    }

    /// How initial state is fetched; see [`Config::initial_list`].
    pub const fn initial_list(mut self, initial: InitialList) -> Self {
        self.declared.config.initial_list = initial;
        self
    }

    /// Objects a page; see [`Config::page_size`].
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

    /// The largest object accepted, in bytes; see [`Config::object_bytes_max`].
    pub const fn object_bytes_max(mut self, bytes: usize) -> Self {
        self.declared.config.object_bytes_max = bytes;
        self
    }

    /// Goes on where a stream of initial state broke; see [`Config::resume_initial`].
    pub const fn resume_initial(mut self, resumes: bool) -> Self {
        self.declared.config.resume_initial = resumes;
        self
    }

    /// The first request waits a random part of this; see [`Config::spread`].
    pub const fn spread(mut self, most: Duration) -> Self {
        self.declared.config.spread = most;
        self
    }

    /// Keeps the state in a directory over restarts; see [`Config::checkpoint`].
    pub fn checkpoint(mut self, directory: impl Into<PathBuf>) -> Self {
        self.declared.config.checkpoint = Some(directory.into());
        self
    }

    /// Lets Secrets be written to the [`checkpoint`](Self::checkpoint), in plain text.
    pub const fn checkpoint_secrets(mut self) -> Self {
        self.declared.config.checkpoint_secrets = true;
        self
    }

    /// Waits after failures as `delays` says; see [`delays`](crate::delays).
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
    /// Which setting is wrong. Nothing the server says is an error here; ask [`Informer::ready`].
    pub fn start(self) -> Result<Informer<K>, ConfigError> {
        Ok(Informer::start(self.declared.into_setup()?, self.keep))
    }
}

impl<K> fmt::Debug for InformerBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InformerBuilder").field(&self.declared).finish()
    }
}
