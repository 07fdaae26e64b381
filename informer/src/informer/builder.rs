//! Declaring an informer. Texts are parsed once, here; the first mistake is told by `start`.

use std::{any::TypeId, marker::PhantomData};

use informer_core::{
    InitialList, ListSemantic, Resource,
    selector::{field, label},
    store::Representation,
    wire::framer::TypeMeta,
};
use kube::core::{ApiResource, ClusterResourceScope};

use super::Informer;
use crate::{
    cluster::Cluster,
    config::{Config, MANAGED_FIELDS},
    driver::Setup,
    error::ConfigError,
};

/// What an informer watches, and how. Nothing is sent before [`start`](Self::start).
#[must_use = "nothing happens before start"]
pub struct InformerBuilder<K> {
    cluster: Cluster,
    of: Type,
    namespace: Option<String>,
    labels: label::Selector,
    fields: field::Selector,
    config: Config,
    mistake: Option<ConfigError>,
    object: PhantomData<fn() -> K>,
}

/// One resource type.
#[derive(Clone, Debug)]
pub(crate) struct Type {
    group_version_path: String,
    plural: String,
    api_version: String,
    kind: String,
    is_cluster_scoped: bool,
}

impl Type {
    pub(crate) fn of<K>() -> Self
    where
        K: kube::Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        let is_cluster_scoped = TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>();
        Self { is_cluster_scoped, ..Self::from(&ApiResource::erase::<K>(&())) }
    }
}

impl From<&ApiResource> for Type {
    /// An `ApiResource` does not say whether its objects live in namespaces.
    fn from(resource: &ApiResource) -> Self {
        let root = if resource.group.is_empty() { "/api" } else { "/apis" };
        Self {
            group_version_path: format!("{root}/{}", resource.api_version),
            plural: resource.plural.clone(),
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
            is_cluster_scoped: false,
        }
    }
}

impl<K> InformerBuilder<K> {
    pub(crate) fn new(cluster: Cluster, of: Type) -> Self {
        Self {
            cluster,
            of,
            namespace: None,
            labels: label::Selector::default(),
            fields: field::Selector::default(),
            config: Config::default(),
            mistake: None,
            object: PhantomData,
        }
    }

    /// Only the objects of one namespace. Default: all.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        let namespace = namespace.into();
        if self.of.is_cluster_scoped {
            self.mistake(ConfigError::ClusterScoped { plural: self.of.plural.clone() });
        } else if !is_label(&namespace) {
            self.mistake(ConfigError::Namespace(namespace.clone()));
        }
        self.namespace = Some(namespace);
        self
    }

    /// Only objects with these labels: `app in (web,api),!legacy`.
    pub fn labels(mut self, selector: &str) -> Self {
        match label::Selector::parse(selector) {
            Ok(selector) => self.labels = selector,
            Err(error) => self.mistake(ConfigError::Labels(error)),
        }
        self
    }

    /// Only objects with these fields: `spec.nodeName=node-1`. The server decides which fields it knows.
    pub fn fields(mut self, selector: &str) -> Self {
        match field::Selector::parse(selector) {
            Ok(selector) => self.fields = selector,
            Err(error) => self.mistake(ConfigError::Fields(error)),
        }
        self
    }

    /// How fresh the first read has to be; see [`Config::list_semantic`].
    pub fn list_semantic(mut self, semantic: ListSemantic) -> Self {
        self.config.list_semantic = semantic;
        self
    }

    /// How initial state is fetched; see [`Config::initial_list`].
    pub const fn initial_list(mut self, initial: InitialList) -> Self {
        self.config.initial_list = initial;
        self
    }

    /// Objects a page; see [`Config::page_size`].
    pub const fn page_size(mut self, objects: u32) -> Self {
        self.config.page_size = objects;
        self
    }

    /// Cuts a dotted path, such as `metadata.annotations`, out of every object before it is stored.
    pub fn drop_path(mut self, path: impl Into<String>) -> Self {
        self.config.drop_paths.push(path.into());
        self
    }

    /// Keeps `metadata.managedFields`, which are cut by default.
    pub fn keep_managed_fields(mut self) -> Self {
        self.config.drop_paths.retain(|path| path != MANAGED_FIELDS);
        self
    }

    /// What the store keeps of an object; see [`Config::representation`].
    pub const fn store(mut self, representation: Representation) -> Self {
        self.config.representation = representation;
        self
    }

    /// The largest object accepted, in bytes; see [`Config::object_bytes_max`].
    pub const fn object_bytes_max(mut self, bytes: usize) -> Self {
        self.config.object_bytes_max = bytes;
        self
    }

    /// Changes any setting: `.config(|config| config.idle_timeout = Duration::from_secs(60))`.
    pub fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Starts the informer on the current tokio runtime and returns at once.
    ///
    /// # Errors
    /// Which setting is wrong. Nothing the server says is an error here; ask [`Informer::ready`].
    pub fn start(self) -> Result<Informer<K>, ConfigError> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        self.config.check()?;
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(ConfigError::NoRuntime);
        }
        let resource = Resource {
            group_version_path: self.of.group_version_path,
            plural: self.of.plural,
            namespace: self.namespace,
            labels: self.labels.to_string(),
            fields: self.fields.to_string(),
        };
        let type_meta = TypeMeta { api_version: self.of.api_version, kind: self.of.kind };
        Ok(Informer::start(Setup { cluster: self.cluster, resource, type_meta, config: self.config }))
    }

    /// Keeps the first mistake: later ones often follow from it.
    fn mistake(&mut self, mistake: ConfigError) {
        self.mistake.get_or_insert(mistake);
    }
}

/// RFC 1123 label, which every namespace's name is. Keeps other path segments out of the request.
fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}
