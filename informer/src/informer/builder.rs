//! Declaration of an informer. `start` and `start_shared` return the first mistake.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use super::{Informer, keeping::Keep};
use crate::{
    cluster::{ClusterOf, ClusterState, DeclarationDefaults},
    config::MANAGED_FIELDS,
    declaration::{Declaration, declaration_setters},
    error::ConfigError,
    resource_kind::{HasResourceKind, ResourceKind},
    selectors::IntoLabelSelector,
};

/// Declaration of an informer: what it watches, and how. Sends no request before [`start`](Self::start) or
/// [`start_shared`](Self::start_shared).
///
/// If one component of the program reads these objects, call `start`. If several may, and do not know of each other,
/// call `start_shared` in each: equal declarations then have one watch and one store.
#[must_use = "nothing happens before start"]
pub struct InformerBuilder<K> {
    pub(super) declared: Declaration,
    pub(super) keep: Keep<K>,
    pub(super) from_wider: bool,
}

impl<V> ClusterOf<V> {
    /// Declares an informer of a type known at compile time, such as those of k8s-openapi and those that derive
    /// `CustomResource`. Sends no request before [`start`](InformerBuilder::start) or
    /// [`start_shared`](InformerBuilder::start_shared).
    pub fn informer<K: HasResourceKind<V>>(&self) -> InformerBuilder<K> {
        InformerBuilder::new(Arc::clone(self.state()), K::resource_kind())
    }

    /// Declares an informer of a type known at run time, such as `DynamicObject` of a custom resource. `resource` may be
    /// a reference to kube's `ApiResource`, which lacks the type's scope; set it with [`scope`](InformerBuilder::scope)
    /// if you know it.
    pub fn informer_for<K>(&self, resource: impl Into<ResourceKind>) -> InformerBuilder<K> {
        InformerBuilder::new(Arc::clone(self.state()), resource.into())
    }
}

impl<K> InformerBuilder<K> {
    fn new(cluster: Arc<ClusterState>, of: ResourceKind) -> Self {
        let DeclarationDefaults { config, selection, transform } = cluster.defaults().clone();
        let mut declared = Declaration::new(cluster, of, config);
        declared.selection = selection;
        let mut keep = Keep::default();
        keep.transforms.extend(transform);
        declared.object_changes.transforms = keep.transforms.len();
        declared.object_changes.is_transform_of_cluster = !keep.transforms.is_empty();
        Self { declared, keep, from_wider: true }
    }

    declaration_setters! {
        drop_path: "Cuts a dotted path, such as `metadata.annotations`, out of every object before it is stored.",
        config: "Changes any setting: `.config(|config| config.idle_timeout = Duration::from_secs(60))`.",
    }

    /// Reads only the objects of these namespaces, as one informer: one store, ready once all of them are. Replaces
    /// namespaces set before.
    ///
    /// Requests: a watch for each namespace; reading all namespaces is one watch, and cheaper for the server than many.
    /// [`start_shared`](Self::start_shared) shares each of them. Each namespace has a checkpoint of its own, and
    /// [`shutdown`](Informer::shutdown) does not wait for their last save. [`linger`](Self::linger) and
    /// [`delays`](Self::delays) are an error at the start then.
    ///
    /// Memory: the objects once, and about 60 bytes for each in the maps of its namespace and of the whole.
    ///
    /// The version of a snapshot is the lowest of the namespaces' versions: it contains every change up to this
    /// version and, of some namespaces, later ones. A quiet namespace moves on with bookmarks only, about once a
    /// minute; [`Informer::wait_for`] takes as long.
    pub fn namespaces<N: Into<String>>(mut self, namespaces: impl IntoIterator<Item = N>) -> Self {
        self.declared.selection.namespaces(namespaces.into_iter().map(Into::into));
        self
    }

    /// Reads the objects of all namespaces, as by default, in place of the namespaces set before and the
    /// [cluster's](crate::ClusterBuilder::default_namespaces).
    pub fn all_namespaces(mut self) -> Self {
        self.declared.selection.all_namespaces();
        self
    }

    /// Reads the objects of one namespace by these labels, in place of [`labels`](Self::labels). The namespace must be
    /// one of [`namespaces`](Self::namespaces). Without these, all others are read too, by one watch whose field
    /// selector has `metadata.namespace!=` this one: servers must obey that field, as kube-apiserver does for all types.
    /// Empty text selects all objects of the namespace.
    ///
    /// The order of the calls does not matter; of two valid ones for one namespace, the last one counts. Transforms are
    /// those of the whole informer, and see the namespace of each object. Costs: see [`namespaces`](Self::namespaces).
    ///
    /// # Errors
    /// At the start, [`ConfigError::UnselectedNamespace`] for a namespace that is not read, and
    /// [`ConfigError::Labels`] if the selector of any call is not valid.
    pub fn namespace_labels(mut self, namespace: impl Into<String>, selector: impl IntoLabelSelector) -> Self {
        self.declared.selection.labels(Some(namespace.into()), selector);
        self
    }

    /// Reads the objects of one namespace by these fields, in place of [`fields`](Self::fields); see
    /// [`namespace_labels`](Self::namespace_labels).
    pub fn namespace_fields(mut self, namespace: impl Into<String>, selector: impl AsRef<str>) -> Self {
        self.declared.selection.fields(Some(namespace.into()), selector.as_ref());
        self
    }

    /// Keeps `metadata.managedFields`, which are cut by default.
    pub fn keep_managed_fields(mut self) -> Self {
        self.declared.config.drop_paths.retain(|path| path != MANAGED_FIELDS);
        self
    }

    /// Sets the largest object accepted, in bytes; see [`Config::object_bytes_max`](crate::Config::object_bytes_max).
    pub const fn object_bytes_max(mut self, bytes: usize) -> Self {
        self.declared.config.object_bytes_max = bytes;
        self
    }

    /// Delays the first request by a random part of `most`; see [`Config::spread`](crate::Config::spread).
    pub const fn spread(mut self, most: Duration) -> Self {
        self.declared.config.spread = most;
        self
    }

    /// Saves the state to a directory, so that restarts resume; see [`Config::checkpoint`](crate::Config::checkpoint).
    pub fn checkpoint(mut self, directory: impl Into<PathBuf>) -> Self {
        self.declared.config.checkpoint = Some(directory.into());
        self
    }

    /// Allows Secrets to be written to the [`checkpoint`](Self::checkpoint), in plain text.
    pub const fn checkpoint_secrets(mut self) -> Self {
        self.declared.config.checkpoint_secrets = true;
        self
    }

    /// Starts the informer with a watch and a store of its own, on the current tokio runtime. Returns at once.
    ///
    /// # Errors
    /// The first wrong setting. Failures at the server are not returned here but by [`Informer::ready`].
    pub fn start(mut self) -> Result<Informer<K>, ConfigError>
    where
        K: Send + Sync + 'static,
    {
        let selection = self.declared.check()?;
        if selection.has_parts() {
            return self.start_copy(false);
        }
        let delays = self.declared.delays.take();
        let setup = self.declared.setup(&selection, delays);
        let decoded = Arc::clone(&self.keep.decoded);
        let indexes = std::mem::take(&mut self.keep.indexes);
        Ok(Informer::start(setup, self.keep.config(&decoded, indexes), decoded))
    }
}

impl<K> fmt::Debug for InformerBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerBuilder")
            .field("declared", &self.declared)
            .field("form", &self.keep.form)
            .field("from_wider", &self.from_wider)
            .finish_non_exhaustive()
    }
}
