//! Declaration of an informer or raw stream: resource type, selection and settings.

use std::{fmt, sync::Arc};

use informer_core::Resource;

use crate::{
    checkpoint::ObjectChanges,
    cluster::ClusterState,
    config::Config,
    delays::Delays,
    driver::Setup,
    error::ConfigError,
    resource_kind::{ResourceKind, ResourceScope},
    selection::{DeclaredSelection, Selection},
};

/// Everything a driver needs; not validated yet.
pub(crate) struct Declaration {
    pub(crate) cluster: Arc<ClusterState>,
    pub(crate) of: ResourceKind,
    pub(crate) config: Config,
    pub(crate) metadata_only: bool,
    pub(crate) object_changes: ObjectChanges,
    pub(crate) delays: Option<Box<dyn Delays>>,
    pub(crate) selection: DeclaredSelection,
}

impl Declaration {
    pub(crate) fn new(cluster: Arc<ClusterState>, of: ResourceKind, config: Config) -> Self {
        Self {
            cluster,
            of,
            config,
            metadata_only: false,
            object_changes: ObjectChanges::default(),
            delays: None,
            selection: DeclaredSelection::default(),
        }
    }

    pub(crate) fn scope(&mut self, scope: ResourceScope) {
        self.of.is_cluster_scoped = scope == ResourceScope::Cluster;
    }

    /// Validates the declaration, and returns the objects that it selects.
    ///
    /// # Errors
    /// The first wrong setting.
    pub(crate) fn check(&self) -> Result<Selection, ConfigError> {
        let selection = self.selection.resolve(&self.of)?;
        self.config.check()?;
        let is_secret = self.of.group_version_path == "/api/v1" && self.of.plural == "secrets";
        if is_secret && self.config.checkpoint.is_some() && !self.config.checkpoint_secrets {
            return Err(ConfigError::CheckpointSecrets);
        }
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(ConfigError::NoRuntime);
        }
        Ok(selection)
    }

    /// Returns the setup of the driver that reads the first part of a selection.
    pub(crate) fn setup(&self, selection: &Selection, delays: Option<Box<dyn Delays>>) -> Setup {
        let (namespace, by) = selection.parts().next().unzip();
        let by = by.cloned().unwrap_or_default();
        let resource = Resource {
            group_version_path: self.of.group_version_path.clone(),
            plural: self.of.plural.clone(),
            namespace: namespace.filter(|namespace| !namespace.is_empty()).map(ToOwned::to_owned),
            labels: by.labels.to_string(),
            fields: by.fields.to_string(),
            shard: by.shard,
        };
        Setup {
            cluster: Arc::clone(&self.cluster),
            resource,
            type_meta: self.of.type_meta(),
            metadata_only: self.metadata_only,
            object_changes: self.object_changes,
            delays,
            config: self.config.clone(),
        }
    }
}

/// Shows the declared settings; none of them is secret.
impl fmt::Debug for Declaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Declaration")
            .field("plural", &self.of.plural)
            .field("selection", &self.selection)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Defines the setters of both builders ([`InformerBuilder`](crate::InformerBuilder),
/// [`raw::Builder`](crate::raw::Builder)), in their `impl` blocks: methods of a trait would have to be imported. The
/// arguments are the docs of `drop_path` and `config`, which differ.
macro_rules! declaration_setters {
    (drop_path: $drop_path:literal, config: $config:literal $(,)?) => {
        /// Sets the scope of a type known at run time, as discovery reports it
        /// (kube's `ApiCapabilities::scope`): then a namespace for a cluster-scoped type is a
        /// [`ConfigError`](crate::ConfigError), and not a request that the server answers with 404. Types known at compile
        /// time have their scope.
        pub fn scope(mut self, scope: impl Into<$crate::ResourceScope>) -> Self {
            self.declared.scope(scope.into());
            self
        }

        /// Reads only objects with these labels: `app in (web,api),!legacy`, or kube's `Selector` or `Expression`.
        pub fn labels(mut self, selector: impl $crate::IntoLabelSelector) -> Self {
            self.declared.selection.labels(None, selector);
            self
        }

        /// Reads only objects with these fields: `spec.nodeName=node-1`. The server decides which fields it supports.
        pub fn fields(mut self, selector: impl AsRef<str>) -> Self {
            self.declared.selection.fields(None, selector.as_ref());
            self
        }

        /// Reads only the part `index` of `count` parts of the objects, by the hash of their uid or namespace: of `count`
        /// programs that declare one part each, one has an object. Asks the server for the part (`shardSelector`), and
        /// drops the other objects of one that does not know it: kube-apiserver without the feature gate
        /// `ShardedListAndWatch`.
        ///
        /// # Source
        /// KEP-5866, "Server-side sharded list and watch".
        pub fn shard(mut self, by: $crate::ShardField, index: u32, count: u32) -> Self {
            self.declared.selection.shard(by, index, count);
            self
        }

        /// Sets the freshness of the first read; see [`Config::list_semantic`](crate::Config::list_semantic).
        pub fn list_semantic(mut self, semantic: $crate::ListSemantic) -> Self {
            self.declared.config.list_semantic = semantic;
            self
        }

        /// Sets how initial state is read; see [`Config::initial_list`](crate::Config::initial_list).
        pub const fn initial_list(mut self, initial: $crate::InitialList) -> Self {
            self.declared.config.initial_list = initial;
            self
        }

        /// Sets the objects per page; see [`Config::page_size`](crate::Config::page_size).
        pub const fn page_size(mut self, objects: u32) -> Self {
            self.declared.config.page_size = objects;
            self
        }

        #[doc = $drop_path]
        pub fn drop_path(mut self, path: impl Into<String>) -> Self {
            self.declared.config.drop_paths.push(path.into());
            self
        }

        /// Sets whether a broken stream of initial state resumes where it broke; see
        /// [`Config::resume_initial`](crate::Config::resume_initial).
        pub const fn resume_initial(mut self, resumes: bool) -> Self {
            self.declared.config.resume_initial = resumes;
            self
        }

        #[doc = $config]
        pub fn config(mut self, change: impl FnOnce(&mut $crate::Config)) -> Self {
            change(&mut self.declared.config);
            self
        }

        /// Reads only the objects of one namespace. Default: all namespaces.
        pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
            self.declared.selection.namespaces([namespace.into()]);
            self
        }

        /// Sets the delays after failures; see [`delays`](crate::delays). For other bounds of the default delays, set
        /// [`Config::backoff`](crate::Config::backoff).
        pub fn delays(mut self, delays: impl $crate::delays::Delays + 'static) -> Self {
            self.declared.delays = Some(Box::new(delays));
            self
        }
    };
}

pub(crate) use declaration_setters;
