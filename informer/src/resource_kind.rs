//! Description of a resource type, as requests and bodies need it.

use informer_core::wire::framer::TypeMeta;

/// A resource type of the Kubernetes API, known at run time. kube's `ApiResource` converts into it.
///
/// ```
/// # use informer::{ResourceKind, ResourceScope};
/// let deployments = ResourceKind::new("apps/v1", "Deployment", "deployments").scope(ResourceScope::Namespaced);
/// let nodes = ResourceKind::new("v1", "Node", "nodes").scope(ResourceScope::Cluster);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceKind {
    pub(crate) group_version_path: String,
    pub(crate) plural: String,
    api_version: String,
    kind: String,
    pub(crate) is_cluster_scoped: bool,
}

/// Scope of a resource type. kube's `discovery::Scope` converts into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResourceScope {
    /// Objects of the cluster: nodes, namespaces.
    Cluster,
    /// Objects within namespaces: pods.
    Namespaced,
}

/// A Rust type that knows its resource type, to clusters of `V`.
///
/// `V` is a kube version such as [`Kube5`](crate::kube5::Kube5): every type with its `Resource` implements this trait.
/// Without kube, implement it for [`Plain`](crate::plain::Plain).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no resource type that clusters of `{V}` know",
    note = "the types of kube 3 need `informer::kube3::Cluster`, and so on",
    note = "`informer_for` takes any type that decodes"
)]
pub trait HasResourceKind<V> {
    /// Returns the resource type.
    fn resource_kind() -> ResourceKind;
}

impl ResourceKind {
    /// Describes the type of `api_version` (`v1`, `apps/v1`), `kind` (`Deployment`) and `plural`, as in the path
    /// (`deployments`). It counts as namespaced until [`scope`](Self::scope) is called.
    #[must_use]
    pub fn new(api_version: &str, kind: &str, plural: &str) -> Self {
        let root = if api_version.contains('/') { "/apis" } else { "/api" };
        Self {
            group_version_path: format!("{root}/{api_version}"),
            plural: plural.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            is_cluster_scoped: false,
        }
    }

    /// Sets the scope. A namespace for a cluster-scoped type is a [`ConfigError`](crate::ConfigError).
    #[must_use]
    pub fn scope(mut self, scope: ResourceScope) -> Self {
        self.is_cluster_scoped = scope == ResourceScope::Cluster;
        self
    }

    /// Type and namespace of the collection at `path`, as kube's `Api` writes it:
    /// `/apis/apps/v1/namespaces/prod/deployments`. `kind` may be empty; then list bodies must carry it.
    #[cfg(all(
        feature = "runtime",
        any(feature = "kube-1", feature = "kube-3", feature = "kube-4", feature = "kube-5")
    ))]
    pub(crate) fn at(path: &str, kind: String) -> (Self, Option<String>) {
        let (base, plural) = path.rsplit_once('/').unwrap_or(("", path));
        let is_version = |base: &str| base.starts_with("/api/") || base.matches('/').count() > 2;
        let (base, namespace) = match base.rsplit_once("/namespaces/") {
            Some((version, namespace)) if is_version(version) => (version, Some(namespace.to_owned())),
            // A group can have the name `namespaces`.
            Some(_) | None => (base, None),
        };
        let api_version = base.trim_start_matches("/apis/").trim_start_matches("/api/").to_owned();
        let (group_version_path, plural) = (base.to_owned(), plural.to_owned());
        (Self { group_version_path, plural, api_version, kind, is_cluster_scoped: false }, namespace)
    }

    pub(crate) fn type_meta(&self) -> TypeMeta {
        TypeMeta { api_version: self.api_version.clone(), kind: self.kind.clone() }
    }
}

impl From<&Self> for ResourceKind {
    fn from(of: &Self) -> Self {
        of.clone()
    }
}

#[cfg(test)]
#[cfg(all(feature = "runtime", feature = "kube-5"))]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_kube_has_a_type_and_a_namespace() {
        for (path, api_version, plural, namespace) in [
            ("/api/v1/pods", "v1", "pods", None),
            ("/api/v1/namespaces", "v1", "namespaces", None),
            ("/api/v1/namespaces/prod/pods", "v1", "pods", Some("prod")),
            ("/apis/apps/v1/namespaces/namespaces/deployments", "apps/v1", "deployments", Some("namespaces")),
            ("/apis/namespaces/v1/namespaces", "namespaces/v1", "namespaces", None),
            ("/apis/namespaces/v1/things", "namespaces/v1", "things", None),
        ] {
            let (of, found) = ResourceKind::at(path, String::new());
            assert_eq!((&*of.api_version, &*of.plural, found.as_deref()), (api_version, plural, namespace), "{path}");
        }
    }
}
