//! Declaring an informer. The first mistake is told by `start`.

use std::marker::PhantomData;

use informer_core::{InitialList, ListSemantic, store::Representation};

use super::Informer;
use crate::{
    cluster::Cluster,
    config::{Config, MANAGED_FIELDS},
    declaration::{Declaration, Type},
    error::ConfigError,
};

/// What an informer watches, and how. Nothing is sent before [`start`](Self::start).
#[must_use = "nothing happens before start"]
pub struct InformerBuilder<K> {
    declared: Declaration,
    object: PhantomData<fn() -> K>,
}

impl<K> InformerBuilder<K> {
    pub(crate) fn new(cluster: Cluster, of: Type) -> Self {
        Self { declared: Declaration::new(cluster, of, Config::default()), object: PhantomData }
    }

    /// Only the objects of one namespace. Default: all.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.declared.namespace(namespace.into());
        self
    }

    /// Only objects with these labels: `app in (web,api),!legacy`.
    pub fn labels(mut self, selector: &str) -> Self {
        self.declared.labels(selector);
        self
    }

    /// Only objects with these fields: `spec.nodeName=node-1`. The server decides which fields it knows.
    pub fn fields(mut self, selector: &str) -> Self {
        self.declared.fields(selector);
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

    /// What the store keeps of an object; see [`Config::representation`].
    pub const fn store(mut self, representation: Representation) -> Self {
        self.declared.config.representation = representation;
        self
    }

    /// The largest object accepted, in bytes; see [`Config::object_bytes_max`].
    pub const fn object_bytes_max(mut self, bytes: usize) -> Self {
        self.declared.config.object_bytes_max = bytes;
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
        Ok(Informer::start(self.declared.into_setup()?))
    }
}
