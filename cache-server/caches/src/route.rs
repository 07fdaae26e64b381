//! Parses request paths into routes: resource, object, subresource or server document.
//!
//! INVARIANT: a route names only types of the registry; every other path is one of the two kinds of "not found".
//! INVARIANT: a route to a resource has the attributes by which the request is authorized
//! (`access_rules::request_info`; compared in `http/tests/paths.rs`).
//!
//! Source: apiserver `endpoints/request/requestinfo.go` and `endpoints/installer.go`.

use std::sync::Arc;

use informer_serving::{
    query::{segments, unescape},
    status::{Status, StatusExt as _},
};

use crate::registry::{Registry, ResourceType, Subresource};

/// Resource, namespace, name and subresource in a path.
#[derive(Clone, Debug)]
pub struct Target {
    /// The resource type.
    pub ty: Arc<ResourceType>,
    /// Namespace in the path; `None` means all namespaces, or a cluster-scoped type.
    pub namespace: Option<String>,
    /// Name of the object; `None` means the collection.
    pub name: Option<String>,
    /// Path segment behind the name, such as `status`.
    pub subresource: Option<String>,
    /// True if the path itself requests a watch: `…/watch/…`, deprecated.
    pub watched: bool,
}

impl Target {
    /// The subresource, if it has rules of its own.
    #[must_use]
    pub fn own_subresource(&self) -> Option<Subresource> {
        self.ty.subresource(self.subresource.as_deref()?)
    }
}

/// Path of a discovery document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiscoveryPath {
    /// `/`.
    Root,
    /// `/api`.
    Core,
    /// `/apis`.
    Groups,
    /// `/apis/{group}`.
    Group(String),
    /// `/api/{version}` with an empty group, or `/apis/{group}/{version}`.
    GroupVersion {
        /// Empty for the core group.
        group: String,
        /// Such as `v1`.
        version: String,
    },
}

/// A health endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// `/healthz`.
    Healthz,
    /// `/livez`.
    Livez,
    /// `/readyz`.
    Readyz,
}

impl Health {
    /// Name of the endpoint, the first part of its path.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Healthz => "healthz",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
        }
    }
}

/// A document about the state of this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DebugDocument {
    /// `/debug/watches`.
    Watches,
    /// `/debug/snapshots`.
    Snapshots,
    /// `/debug/summary`.
    Summary,
    /// `/ui/`: a page that shows the others.
    Page,
    /// `/ui`, which leads there.
    PageWithoutSlash,
    /// `/statusz`.
    Status,
}

/// First segment of the paths of forks.
pub const FORKS: &str = "snapshots";

/// A path of forks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForkPath {
    /// `/snapshots`.
    All,
    /// `/snapshots/{name}`.
    One(String),
    /// Any path of a fork itself, `/snapshots/{name}/…`.
    Below(String),
}

/// A path below `/openapi`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenApiPath {
    /// The index.
    Index,
    /// A document by its name in the index: `api/v1`, `apis/apps/v1`.
    Document(String),
    /// `/openapi/v2`, the document of all types.
    Whole,
}

impl OpenApiPath {
    /// Parses the path behind `/openapi/`.
    fn parse(segments: &[&str]) -> Option<Self> {
        match *segments {
            ["v2"] => Some(Self::Whole),
            ["v3"] => Some(Self::Index),
            ["v3", "api", _] | ["v3", "apis", _, _] => Some(Self::Document(segments[1..].join("/"))),
            _ => None,
        }
    }
}

/// Destination of a request path.
#[derive(Clone, Debug)]
pub enum Route {
    /// A collection or an object of a served type.
    Resource(Target),
    /// A discovery document.
    Discovery(DiscoveryPath),
    /// An OpenAPI document.
    OpenApi(OpenApiPath),
    /// A health endpoint, or one check of it.
    Health(Health, Option<String>),
    /// `/version`.
    Version,
    /// `/metrics`.
    Metrics,
    /// A document about the state of this server.
    Debug(DebugDocument),
    /// Forks of this server. Without forks, answered as [`Self::Unknown`].
    Forks(ForkPath),
    /// Unknown subresource of a custom resource: 404 with the object's details.
    Missing(Target),
    /// Connection to a process in a pod, or proxy to a node, pod or service: refused with a Status, as this server runs
    /// no pods. With the subresource.
    Connect(Arc<ResourceType>, &'static str),
    /// Unknown path inside a group of built-in types: 404 with a Status.
    NotFound,
    /// Unknown path anywhere else: 404 in plain text.
    Unknown,
}

/// Parses a path. One trailing slash is ignored.
pub fn parse(registry: &Registry, path: &str) -> Route {
    // Decoded before it is split, as in Go's servers: an encoded slash separates segments.
    let Some(path) = unescape(path, false) else { return Route::Unknown };
    let path = path.strip_prefix('/').unwrap_or(&path);
    let (path, has_slash) = path.strip_suffix('/').map_or((path, false), |path| (path, true));
    match *segments(path) {
        [""] => Route::Discovery(DiscoveryPath::Root),
        ["api"] => Route::Discovery(DiscoveryPath::Core),
        ["apis"] => Route::Discovery(DiscoveryPath::Groups),
        ["apis", group] => Route::Discovery(DiscoveryPath::Group(group.to_owned())),
        ["api", version, ref rest @ ..] => in_version(registry, "", version, rest),
        ["apis", group, version, ref rest @ ..] if !group.is_empty() => in_version(registry, group, version, rest),
        ["openapi", ref rest @ ..] => OpenApiPath::parse(rest).map_or(Route::Unknown, Route::OpenApi),
        ["version"] => Route::Version,
        ["metrics"] => Route::Metrics,
        ["statusz"] => Route::Debug(DebugDocument::Status),
        ["debug", "watches"] => Route::Debug(DebugDocument::Watches),
        ["debug", "snapshots"] => Route::Debug(DebugDocument::Snapshots),
        ["debug", "summary"] => Route::Debug(DebugDocument::Summary),
        ["ui"] if has_slash => Route::Debug(DebugDocument::Page),
        ["ui"] => Route::Debug(DebugDocument::PageWithoutSlash),
        [FORKS] => Route::Forks(ForkPath::All),
        [FORKS, name] => Route::Forks(ForkPath::One(name.to_owned())),
        [FORKS, name, ..] => Route::Forks(ForkPath::Below(name.to_owned())),
        [endpoint, ref check @ ..] => health(endpoint, check),
        [] => Route::Unknown,
    }
}

fn health(endpoint: &str, check: &[&str]) -> Route {
    let endpoint = match endpoint {
        "healthz" => Health::Healthz,
        "livez" => Health::Livez,
        "readyz" => Health::Readyz,
        _ => return Route::Unknown,
    };
    match *check {
        [] => Route::Health(endpoint, None),
        _ => Route::Health(endpoint, Some(check.join("/"))),
    }
}

fn in_version(registry: &Registry, group: &str, version: &str, rest: &[&str]) -> Route {
    let not_found = || if registry.serves(group) { Route::NotFound } else { Route::Unknown };
    if rest.is_empty() {
        if registry.group(group, version).is_none() {
            return not_found();
        }
        let (group, version) = (group.to_owned(), version.to_owned());
        return Route::Discovery(DiscoveryPath::GroupVersion { group, version });
    }
    let (watched, rest) = match rest {
        // Requests have the attributes of what follows these prefixes: no type of such a name is served here.
        ["watch" | "proxy"] | ["proxy", ..] => return not_found(),
        ["watch", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    if let Some((plural, subresource)) = connected(group, rest)
        && let Some(ty) = registry.find(group, version, plural)
    {
        return Route::Connect(ty, subresource);
    }
    let find = |plural: &str| registry.find(group, version, plural).or_else(|| registry.review(group, version, plural));
    let found = in_resources(find, rest);
    if let Route::Resource(target) = found {
        let is_watch_of_part = watched && (target.subresource.is_some() || target.ty.is_review());
        return if is_watch_of_part { not_found() } else { Route::Resource(Target { watched, ..target }) };
    }
    if matches!(found, Route::NotFound) { not_found() } else { found }
}

/// Subresources of pods that connect to a process.
const PROCESSES: [&str; 4] = ["exec", "attach", "portforward", "log"];

/// Returns resource and subresource of a path that connects to a process or proxies to it (`exec`, `log`, `proxy`, …).
fn connected<'a>(group: &str, rest: &[&'a str]) -> Option<(&'a str, &'static str)> {
    match (group, rest) {
        ("", ["namespaces", _, plural @ "pods", _, process]) if PROCESSES.contains(process) => {
            PROCESSES.into_iter().find(|name| name == process).map(|name| (*plural, name))
        }
        ("", ["namespaces", _, plural @ ("pods" | "services"), _, "proxy", ..])
        | ("", [plural @ "nodes", _, "proxy", ..]) => Some((plural, "proxy")),
        (_, _) => None,
    }
}

fn in_resources(find: impl Fn(&str) -> Option<Arc<ResourceType>>, rest: &[&str]) -> Route {
    match *rest {
        // `namespaces` is also the prefix of namespaced resources; these two subresources belong to the namespace
        // itself.
        ["namespaces", name, subresource @ ("status" | "finalize")] => {
            resource(find("namespaces"), None, Some(name), Some(subresource))
        }
        ["namespaces", _, "status" | "finalize", ..] => Route::NotFound,
        ["namespaces", namespace, plural, ref object @ ..] => {
            let (name, subresource) = match *object {
                [] => (None, None),
                [name] => (Some(name), None),
                [name, subresource] => (Some(name), Some(subresource)),
                _ => return Route::NotFound,
            };
            resource(find(plural), Some(namespace), name, subresource)
        }
        [plural] => resource(find(plural), None, None, None),
        [plural, name] => resource(find(plural), None, Some(name), None),
        [plural, name, subresource] => resource(find(plural), None, Some(name), Some(subresource)),
        _ => Route::NotFound,
    }
}

fn resource(
    ty: Option<Arc<ResourceType>>,
    namespace: Option<&str>,
    name: Option<&str>,
    subresource: Option<&str>,
) -> Route {
    let Some(ty) = ty else { return Route::NotFound };
    // Paths to namespaced objects name a namespace; all others do not.
    let scope_fits = if ty.namespaced { namespace.is_some() || name.is_none() } else { namespace.is_none() };
    let subresource_exists = match subresource {
        None => true,
        Some("status") => ty.has_status,
        Some("scale") => ty.scale.is_some(),
        Some(name) => ty.subresource(name).is_some(),
    };
    let named = [namespace, name, subresource].into_iter().flatten().all(|segment| !segment.is_empty());
    let is_object_of_review = ty.is_review() && name.is_some();
    if is_object_of_review || !(scope_fits && named && (subresource_exists || ty.custom.is_some())) {
        return Route::NotFound;
    }
    let owned = |text: Option<&str>| text.map(str::to_owned);
    let target =
        Target { ty, namespace: owned(namespace), name: owned(name), subresource: owned(subresource), watched: false };
    if subresource_exists { Route::Resource(target) } else { Route::Missing(target) }
}

/// Refuses names that no object can have because they are not a single path segment.
///
/// # Errors
/// 400 with the messages of apimachinery's `validation/path` and apiserver's `registry/generic/registry/store.go`.
pub fn check_name(name: &str) -> Result<(), Status> {
    let may_not = match name {
        "." | ".." => format!("may not be '{name}'"),
        _ if name.contains('%') => "may not contain '%'".to_owned(),
        _ => return Ok(()),
    };
    Err(Status::bad_request(format!("Name parameter invalid: {name:?}: {may_not}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Describes the route of `path` in one line.
    fn lead(path: &str) -> String {
        match parse(&Registry::builtin(), path) {
            Route::Resource(Target { ty, namespace, name, subresource, watched }) => {
                let text = |part: Option<String>| part.unwrap_or_else(|| "-".to_owned());
                let watched = if watched { " watched" } else { "" };
                format!("{} {} {} {}{watched}", ty.id(), text(namespace), text(name), text(subresource))
            }
            Route::Discovery(path) => format!("{path:?}"),
            Route::OpenApi(path) => format!("{path:?}"),
            Route::Health(endpoint, check) => format!("{endpoint:?} {check:?}"),
            Route::Version => "version".to_owned(),
            Route::Metrics => "metrics".to_owned(),
            Route::Debug(document) => format!("{document:?}"),
            Route::Forks(path) => format!("{path:?}"),
            Route::Missing(target) => format!("no {:?} of {}", target.subresource, target.ty.id()),
            Route::Connect(ty, subresource) => format!("{subresource} of {}", ty.id()),
            Route::NotFound => "Status".to_owned(),
            Route::Unknown => "text".to_owned(),
        }
    }

    #[test]
    fn paths_lead_to_resources() {
        for (path, expected) in [
            ("/api/v1/pods", "pods - - -"),
            ("/api/v1/pods/", "pods - - -"),
            ("/api/v1/namespaces/a/pods", "pods a - -"),
            ("/api/v1/namespaces/a/pods/b", "pods a b -"),
            ("/api/v1/namespaces/a/pods/b%2Dc", "pods a b-c -"),
            ("/api/v1/namespaces/a%2Fpods/b", "pods a b -"),
            ("/api/v1/namespaces/a/pods%2f", "pods a - -"),
            ("/api/v1/namespaces/a/pods/b/status", "pods a b status"),
            ("/api/v1/nodes", "nodes - - -"),
            ("/api/v1/nodes/n", "nodes - n -"),
            ("/api/v1/nodes/n/status", "nodes - n status"),
            ("/api/v1/namespaces", "namespaces - - -"),
            ("/api/v1/namespaces/a", "namespaces - a -"),
            ("/api/v1/namespaces/a/status", "namespaces - a status"),
            ("/api/v1/namespaces/a/finalize", "namespaces - a finalize"),
            ("/apis/apps/v1/deployments", "deployments.apps - - -"),
            ("/apis/apps/v1/namespaces/a/deployments/b", "deployments.apps a b -"),
            ("/api/v1/namespaces/a/pods/b/binding", "pods a b binding"),
            ("/api/v1/namespaces/a/pods/b/eviction", "pods a b eviction"),
            ("/api/v1/namespaces/a/bindings", "bindings a - -"),
            ("/api/v1/watch/pods", "pods - - - watched"),
            ("/api/v1/watch/namespaces/a/pods", "pods a - - watched"),
            ("/api/v1/watch/namespaces/a/pods/b", "pods a b - watched"),
            ("/api/v1/watch/namespaces", "namespaces - - - watched"),
            ("/api/v1/watch/namespaces/a", "namespaces - a - watched"),
            ("/api/v1/watch/nodes/n", "nodes - n - watched"),
            ("/apis/apps/v1/watch/deployments", "deployments.apps - - - watched"),
        ] {
            assert_eq!(lead(path), expected, "{path}");
        }
    }

    #[test]
    fn what_is_not_there_is_not_found_in_one_of_two_ways() {
        for (path, expected) in [
            ("/api/v1/foos", "Status"),
            ("/api/v1/pods/a", "Status"),
            ("/api/v1/namespaces/a/nodes", "Status"),
            ("/api/v1/namespaces/a/namespaces", "Status"),
            ("/api/v1/namespaces/a/finalize/b", "Status"),
            ("/api/v1/namespaces/a/pods/b/exec", "exec of pods"),
            ("/api/v1/namespaces/a/pods/b/log", "log of pods"),
            ("/api/v1/namespaces/a/services/b/proxy/c/d", "proxy of services"),
            ("/api/v1/nodes/a/proxy", "proxy of nodes"),
            ("/apis/apps/v1/namespaces/a/pods/b/exec", "Status"),
            ("/api/v1/namespaces/a/configmaps/b/exec", "Status"),
            ("/api/v1/namespaces/a/configmaps/b/status", "Status"),
            ("/api/v1/namespaces/a/configmaps/b/eviction", "Status"),
            ("/api/v1/namespaces/a/pods/b/resize", "Status"),
            ("/api/v1/namespaces/a/pods/b/status/c", "Status"),
            ("/api/v1/namespaces//pods", "Status"),
            ("/api/v1/watch", "Status"),
            ("/api/v1/watch/pods/a", "Status"),
            ("/api/v1/watch/namespaces/a/pods/b/status", "Status"),
            ("/api/v1/watch/watch/pods", "Status"),
            ("/api/v1/namespaces/a%2Fb/pods", "Status"),
            ("/api/v1/namespaces/a%2F..%2Fb/pods", "Status"),
            ("/api/v1/namespaces/a/pods/b%2Fc", "Status"),
            ("/api/v2", "Status"),
            ("/api/v2/pods", "Status"),
            ("/apis/apps/v9", "Status"),
            ("/apis/apps/v9/deployments", "Status"),
            ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/a", "Status"),
            ("/apis/authorization.k8s.io/v1/watch/selfsubjectaccessreviews", "Status"),
            ("/apis/none/v1", "text"),
            ("/apis/none/v1/foos", "text"),
            ("/apis//v1/pods", "text"),
            ("/pods", "text"),
            ("/api/v1/%zz", "text"),
        ] {
            assert_eq!(lead(path), expected, "{path}");
        }
    }

    #[test]
    fn documents_have_their_paths() {
        for (path, expected) in [
            ("/", "Root"),
            ("", "Root"),
            ("/api", "Core"),
            ("/apis/", "Groups"),
            ("/apis/apps", "Group(\"apps\")"),
            ("/api/v1", "GroupVersion { group: \"\", version: \"v1\" }"),
            ("/apis/apps/v1", "GroupVersion { group: \"apps\", version: \"v1\" }"),
            ("/openapi/v3", "Index"),
            ("/openapi/v3/apis/apps/v1", "Document(\"apis/apps/v1\")"),
            ("/openapi/v2", "Whole"),
            ("/version", "version"),
            ("/metrics", "metrics"),
            ("/statusz", "Status"),
            ("/debug/watches", "Watches"),
            ("/debug/snapshots/", "Snapshots"),
            ("/debug/summary", "Summary"),
            ("/ui", "PageWithoutSlash"),
            ("/ui/", "Page"),
            ("/ui/index.html", "text"),
            ("/debug", "text"),
            ("/debug/pprof", "text"),
            ("/healthz", "Healthz None"),
            ("/livez/", "Livez None"),
            ("/readyz/ping", "Readyz Some(\"ping\")"),
            ("/readyz/poststarthook/a", "Readyz Some(\"poststarthook/a\")"),
        ] {
            assert_eq!(lead(path), expected, "{path}");
        }
    }

    #[test]
    fn paths_name_the_index_and_documents() {
        let document = |name: &str| Some(OpenApiPath::Document(name.to_owned()));
        assert_eq!(OpenApiPath::parse(&["v3"]), Some(OpenApiPath::Index));
        assert_eq!(OpenApiPath::parse(&["v3", "api", "v1"]), document("api/v1"));
        assert_eq!(OpenApiPath::parse(&["v3", "apis", "apps", "v1"]), document("apis/apps/v1"));
        for path in [&["v2", "api", "v1"][..], &["v1"], &[], &["v3", "apis", "apps"], &["v3", "version"]] {
            assert_eq!(OpenApiPath::parse(path), None, "{path:?}");
        }
    }
}
