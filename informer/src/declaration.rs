//! Declaration of an informer or raw stream: resource type, selectors and settings.
//!
//! Parses texts once, when they are set; keeps the first mistake and returns it from `start`.

use std::{collections::BTreeSet, fmt, sync::Arc};

use informer_core::{
    Resource,
    selector::{field, label},
};

use crate::{
    checkpoint::ObjectChanges,
    cluster::ClusterState,
    config::Config,
    delays::Delays,
    driver::Setup,
    error::ConfigError,
    resource_kind::{ResourceKind, ResourceScope},
    selectors::IntoLabelSelector,
};

/// Everything a driver needs; not validated yet.
pub(crate) struct Declaration {
    pub(crate) cluster: Arc<ClusterState>,
    pub(crate) of: ResourceKind,
    pub(crate) config: Config,
    pub(crate) metadata_only: bool,
    pub(crate) object_changes: ObjectChanges,
    pub(crate) delays: Option<Box<dyn Delays>>,
    pub(crate) labels: label::Selector,
    pub(crate) fields: field::Selector,
    /// Empty for all namespaces.
    pub(crate) namespaces: BTreeSet<String>,
    mistake: Option<ConfigError>,
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
            labels: label::Selector::default(),
            fields: field::Selector::default(),
            namespaces: BTreeSet::new(),
            mistake: None,
        }
    }

    /// Replaces the namespaces. None at all is a mistake, because it would mean all of them.
    pub(crate) fn namespaces(&mut self, namespaces: impl IntoIterator<Item = String>) {
        self.namespaces = namespaces.into_iter().collect();
        let wrong = self.namespaces.iter().find(|namespace| !is_label(namespace)).cloned();
        if let Some(wrong) = wrong.or_else(|| self.namespaces.is_empty().then(String::new)) {
            self.mistake(ConfigError::Namespace(wrong));
        }
    }

    pub(crate) fn scope(&mut self, scope: ResourceScope) {
        self.of.is_cluster_scoped = scope == ResourceScope::Cluster;
    }

    /// An equal declaration of one namespace, or of all. Without [`Delays`], which cannot be cloned.
    pub(crate) fn within(&self, namespace: Option<&String>) -> Self {
        Self {
            cluster: Arc::clone(&self.cluster),
            of: self.of.clone(),
            config: self.config.clone(),
            metadata_only: self.metadata_only,
            object_changes: self.object_changes,
            delays: None,
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            namespaces: namespace.cloned().into_iter().collect(),
            mistake: self.mistake.clone(),
        }
    }

    pub(crate) fn labels(&mut self, selector: impl IntoLabelSelector) {
        match selector.into_label_selector() {
            Ok(selector) => self.labels = selector,
            Err(error) => self.mistake(ConfigError::Labels(error)),
        }
    }

    pub(crate) fn fields(&mut self, selector: &str) {
        match field::Selector::parse(selector) {
            Ok(selector) => self.fields = selector,
            Err(error) => self.mistake(ConfigError::Fields(error)),
        }
    }

    /// Keeps the first mistake only: later ones often follow from it.
    pub(crate) fn mistake(&mut self, mistake: ConfigError) {
        self.mistake.get_or_insert(mistake);
    }

    /// Validates the declaration.
    ///
    /// # Errors
    /// The first wrong setting.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.of.is_cluster_scoped && !self.namespaces.is_empty() {
            return Err(ConfigError::ClusterScoped { plural: self.of.plural.clone() });
        }
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        self.config.check()?;
        let is_secret = self.of.group_version_path == "/api/v1" && self.of.plural == "secrets";
        if is_secret && self.config.checkpoint.is_some() && !self.config.checkpoint_secrets {
            return Err(ConfigError::CheckpointSecrets);
        }
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(ConfigError::NoRuntime);
        }
        Ok(())
    }

    /// Validates the declaration, of at most one namespace, and turns it into a driver's setup.
    ///
    /// # Errors
    /// The first wrong setting.
    pub(crate) fn into_setup(self) -> Result<Setup, ConfigError> {
        self.check()?;
        let type_meta = self.of.type_meta();
        let resource = Resource {
            group_version_path: self.of.group_version_path,
            plural: self.of.plural,
            namespace: self.namespaces.into_iter().next(),
            labels: self.labels.to_string(),
            fields: self.fields.to_string(),
        };
        let Self { cluster, config, metadata_only, object_changes, delays, .. } = self;
        Ok(Setup { cluster, resource, type_meta, metadata_only, object_changes, delays, config })
    }
}

/// Shows the declared settings; none of them is secret.
impl fmt::Debug for Declaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Declaration")
            .field("plural", &self.of.plural)
            .field("namespaces", &self.namespaces)
            .field("labels", &self.labels.to_string())
            .field("fields", &self.fields.to_string())
            .field("config", &self.config)
            .field("mistake", &self.mistake)
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
            self.declared.labels(selector);
            self
        }

        /// Reads only objects with these fields: `spec.nodeName=node-1`. The server decides which fields it supports.
        pub fn fields(mut self, selector: impl AsRef<str>) -> Self {
            self.declared.fields(selector.as_ref());
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
            self.declared.namespaces([namespace.into()]);
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

/// Returns true for an RFC 1123 label, as every namespace name is. Keeps other path segments out of the request.
fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}
