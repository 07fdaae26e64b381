//! Discovery documents: `/api`, `/apis`, their group versions, `/version`, and the health endpoints (`health`).
//!
//! INVARIANT: every document is computed from the registry, so it announces exactly the types that are served. For one
//! Accept header `/api` and `/apis` are both aggregated or both legacy, as clients require.
//!
//! Source: apiserver `endpoints/discovery` and `endpoints/discovery/aggregated`.

mod answer;
mod debug;
mod documents;
mod health;
mod page;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use api_rules::{
    openapi::document::fingerprint,
    version::{MAJOR, MINOR, git_version},
};
use bytes::Bytes;
use serde::Serialize;

pub(crate) use self::answer::answer;
use self::documents::{
    ApiGroup, ApiGroupList, ApiResource, ApiResourceList, ApiVersions, GroupDiscovery, GroupDiscoveryList, ObjectName,
    ResourceDiscovery, ResponseKind, RootPaths, ServerAddress, SubresourceDiscovery, VersionDiscovery, VersionInfo,
    VersionName,
};
use crate::{
    registry::{GroupVersion, Registry, ResourceType, Subresource},
    route::DiscoveryPath,
};

/// Body of a document and the headers that depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Document {
    /// Content-Type.
    content_type: &'static str,
    /// Set for aggregated discovery: clients may revalidate with it, and any cache may store the answer.
    etag: Option<String>,
    /// JSON.
    body: Bytes,
}

/// A version of aggregated discovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AggregatedVersion {
    parameter: &'static str,
    api_version: &'static str,
    content_type: &'static str,
}

/// The two versions that clients request. They differ only in their names.
const AGGREGATED: [AggregatedVersion; 2] = [
    AggregatedVersion {
        parameter: "v=v2",
        api_version: "apidiscovery.k8s.io/v2",
        content_type: "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    },
    AggregatedVersion {
        parameter: "v=v2beta1",
        api_version: "apidiscovery.k8s.io/v2beta1",
        content_type: "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    },
];

/// Returns the document at `path` in the form that `accept` requests; `None` if `path` is not served. `address` is the
/// server's address as the client sees it.
fn document(registry: &Registry, path: &DiscoveryPath, accept: Option<&str>, address: &str) -> Option<Document> {
    match (path, aggregated(accept)) {
        (DiscoveryPath::Root, _) => Some(root(registry)),
        (DiscoveryPath::Core, Some(form)) => Some(everything(registry, true, form)),
        (DiscoveryPath::Groups, Some(form)) => Some(everything(registry, false, form)),
        (DiscoveryPath::Core, None) => {
            let here = ServerAddress { client_cidr: "0.0.0.0/0", server_address: address };
            Some(json(&ApiVersions { kind: "APIVersions", versions: ["v1"], server_address_by_client_cidrs: [here] }))
        }
        (DiscoveryPath::Groups, None) => {
            let groups =
                named_groups(registry).into_iter().filter_map(|(name, served)| api_group(name, &served)).collect();
            Some(json(&ApiGroupList { kind: "APIGroupList", api_version: "v1", groups }))
        }
        (DiscoveryPath::Group(name), _) => {
            let served: Vec<_> = registry.groups().filter(|group| group.group == *name && !name.is_empty()).collect();
            let group = api_group(name, &served)?;
            Some(json(&ApiGroup { kind: Some("APIGroup"), api_version: Some("v1"), ..group }))
        }
        (DiscoveryPath::GroupVersion { group, version }, _) => registry.group(group, version).map(resources),
    }
}

/// Returns the aggregated form of the first clause of Accept that is understood; `None` for the legacy form.
fn aggregated(accept: Option<&str>) -> Option<AggregatedVersion> {
    for clause in accept.unwrap_or_default().split(',') {
        let mut parts = clause.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        if !matches!(media_type, "application/json" | "application/*" | "*/*") {
            continue;
        }
        let parameters: BTreeSet<&str> = parts.filter(|parameter| !parameter.starts_with("q=")).collect();
        if parameters.is_empty() {
            return None;
        }
        let is_requested =
            ["g=apidiscovery.k8s.io", "as=APIGroupDiscoveryList"].iter().all(|part| parameters.contains(part));
        let form = AGGREGATED.into_iter().find(|form| is_requested && parameters.contains(form.parameter));
        if form.is_some() {
            return form;
        }
    }
    None
}

/// Paths that are served whatever types are registered.
const PATHS: [&str; 15] = [
    "/api",
    "/apis",
    "/apis/",
    "/debug/snapshots",
    "/debug/summary",
    "/debug/watches",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/readyz",
    "/statusz",
    "/ui/",
    "/version",
];

/// Returns all served paths in order, always indented.
fn root(registry: &Registry) -> Document {
    let groups = registry.groups().flat_map(|group| match &*group.group {
        "" => vec![format!("/api/{}", group.version)],
        name => vec![format!("/apis/{name}"), format!("/apis/{name}/{}", group.version)],
    });
    let paths: BTreeSet<String> = groups.chain(PATHS.map(str::to_owned)).collect();
    let body = serde_json::to_vec_pretty(&RootPaths { paths }).expect("a document of texts has a JSON form");
    Document { content_type: "application/json", etag: None, body: body.into() }
}

fn json(document: &impl Serialize) -> Document {
    let mut body = serde_json::to_vec(document).expect("a document of texts has a JSON form");
    body.push(b'\n');
    Document { content_type: "application/json", etag: None, body: body.into() }
}

/// Returns each named group with its versions, both in the order of discovery. Versions of one group need not be
/// adjacent in the registry.
fn named_groups(registry: &Registry) -> Vec<(&str, Vec<&GroupVersion>)> {
    let mut groups: Vec<(&str, Vec<&GroupVersion>)> = Vec::new();
    let mut places = HashMap::new();
    for group in registry.groups().filter(|group| !group.group.is_empty()) {
        let place = *places.entry(&*group.group).or_insert(groups.len());
        if place == groups.len() {
            groups.push((&group.group, Vec::new()));
        }
        groups[place].1.push(group);
    }
    groups
}

fn api_version(group: &GroupVersion) -> String {
    if group.group.is_empty() { group.version.clone() } else { format!("{}/{}", group.group, group.version) }
}

fn api_group<'a>(name: &'a str, served: &[&'a GroupVersion]) -> Option<ApiGroup<'a>> {
    let versions: Vec<VersionName<'_>> =
        served.iter().map(|group| VersionName { group_version: api_version(group), version: &group.version }).collect();
    let preferred_version = versions.first()?.clone();
    Some(ApiGroup { kind: None, api_version: None, name, versions, preferred_version })
}

/// Returns the types and reviews of a group version, by plural: the only review of a group with types is `bindings`.
fn served_types(group: &GroupVersion) -> impl Iterator<Item = &Arc<ResourceType>> {
    group.reviews.iter().chain(&group.types)
}

fn resources(group: &GroupVersion) -> Document {
    let mut resources = Vec::new();
    for ty in served_types(group) {
        resources.push(ApiResource {
            name: ty.plural.clone(),
            singular_name: &ty.singular,
            namespaced: ty.namespaced,
            group: "",
            version: "",
            kind: &ty.kind,
            verbs: ty.verbs,
            short_names: &ty.short_names,
            categories: &ty.categories,
        });
        resources.extend(subresources(ty).into_iter().map(|subresource| ApiResource {
            name: format!("{}/{}", ty.plural, subresource.name),
            singular_name: "",
            namespaced: ty.namespaced,
            group: subresource.group,
            version: subresource.version,
            kind: subresource.kind,
            verbs: subresource.verbs,
            short_names: &[],
            categories: &[],
        }));
    }
    // kube-apiserver omits the apiVersion for the core group only.
    let version = (!group.group.is_empty()).then_some("v1");
    json(&ApiResourceList {
        kind: "APIResourceList",
        api_version: version,
        group_version: api_version(group),
        resources,
    })
}

const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

/// Subresource of a type as announced. Group and version are empty if they equal the type's.
struct AnnouncedPart<'a> {
    name: &'static str,
    group: &'a str,
    version: &'a str,
    kind: &'a str,
    verbs: &'static [&'static str],
}

impl<'a> AnnouncedPart<'a> {
    fn of(ty: &'a ResourceType, own: Subresource) -> Self {
        let (name, verbs) = (own.name(), own.verbs());
        let sent = own.sent().map_or(ty, |sent| sent);
        let (group, version) = if sent.group == ty.group { ("", "") } else { (&*sent.group, &*sent.version) };
        Self { name, group, version, kind: &sent.kind, verbs }
    }
}

fn subresources(ty: &ResourceType) -> Vec<AnnouncedPart<'_>> {
    let verbs = &SUBRESOURCE_VERBS;
    let status = AnnouncedPart { name: "status", group: "", version: "", kind: &ty.kind, verbs };
    let scale = AnnouncedPart { name: "scale", group: "autoscaling", version: "v1", kind: "Scale", verbs };
    let (status, scale) = (ty.has_status.then_some(status), ty.scale.as_ref().map(|_| scale));
    // Built-in types announce subresources by name; CRDs in the order of apiextensions-apiserver.
    let ordered = if ty.custom.is_some() { [status, scale] } else { [scale, status] };
    let own = ty.subresources.iter().map(|own| AnnouncedPart::of(ty, *own));
    own.chain(ordered.into_iter().flatten()).collect()
}

fn everything(registry: &Registry, core: bool, form: AggregatedVersion) -> Document {
    let groups = if core {
        vec![("", registry.groups().filter(|group| group.group.is_empty()).collect())]
    } else {
        named_groups(registry)
    };
    let items = groups
        .into_iter()
        .map(|(name, served)| GroupDiscovery {
            metadata: ObjectName { name },
            versions: served.into_iter().map(version_discovery).collect(),
        })
        .collect();
    let list = GroupDiscoveryList {
        kind: "APIGroupDiscoveryList",
        api_version: form.api_version,
        metadata: ObjectName { name: "" },
        items,
    };
    let document = json(&list);
    let etag = Some(format!("\"{}\"", fingerprint(&document.body)));
    Document { content_type: form.content_type, etag, ..document }
}

fn version_discovery(group: &GroupVersion) -> VersionDiscovery<'_> {
    VersionDiscovery {
        version: &group.version,
        resources: served_types(group).map(|ty| resource_discovery(ty)).collect(),
        freshness: "Current",
    }
}

fn resource_discovery(ty: &ResourceType) -> ResourceDiscovery<'_> {
    // Custom types repeat the group and version around them.
    let (group, version) = if ty.custom.is_some() { (&*ty.group, &*ty.version) } else { ("", "") };
    let own = ResponseKind { group, version, kind: &ty.kind };
    let subresource = |AnnouncedPart { name, group, version, kind, verbs }| SubresourceDiscovery {
        subresource: name,
        response_kind: if group.is_empty() {
            ResponseKind { kind, ..own }
        } else {
            ResponseKind { group, version, kind }
        },
        verbs,
    };
    ResourceDiscovery {
        resource: &ty.plural,
        response_kind: own,
        scope: if ty.namespaced { "Namespaced" } else { "Cluster" },
        singular_resource: &ty.singular,
        verbs: ty.verbs,
        short_names: &ty.short_names,
        categories: &ty.categories,
        subresources: subresources(ty).into_iter().map(subresource).collect(),
    }
}

/// Body of `/version`: indented by two spaces, without a newline at the end.
fn version() -> Bytes {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let info = VersionInfo {
        major: MAJOR,
        minor: MINOR,
        git_version: git_version(),
        git_commit: "",
        git_tree_state: "clean",
        build_date: "1970-01-01T00:00:00Z",
        go_version: "",
        compiler: "rustc",
        platform: format!("{}/{architecture}", std::env::consts::OS),
    };
    serde_json::to_vec_pretty(&info).expect("a document of texts has a JSON form").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT_GO: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
        application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

    fn text(path: DiscoveryPath, accept: Option<&str>) -> String {
        let document = document(&Registry::builtin(), &path, accept, "127.0.0.1:8001").expect("is served");
        String::from_utf8(document.body.to_vec()).expect("is text")
    }

    fn group_version(group: &str, version: &str) -> DiscoveryPath {
        DiscoveryPath::GroupVersion { group: group.to_owned(), version: version.to_owned() }
    }

    #[test]
    fn legacy_documents_have_the_shape_of_kube_apiserver() {
        assert_eq!(
            text(DiscoveryPath::Core, None),
            "{\"kind\":\"APIVersions\",\"versions\":[\"v1\"],\"serverAddressByClientCIDRs\":[{\"clientCIDR\":\
             \"0.0.0.0/0\",\"serverAddress\":\"127.0.0.1:8001\"}]}\n"
        );
        assert_eq!(
            text(DiscoveryPath::Group("apps".to_owned()), None),
            "{\"kind\":\"APIGroup\",\"apiVersion\":\"v1\",\"name\":\"apps\",\"versions\":[{\"groupVersion\":\
             \"apps/v1\",\"version\":\"v1\"}],\"preferredVersion\":{\"groupVersion\":\"apps/v1\",\"version\":\"v1\"}}\n"
        );
        let groups = text(DiscoveryPath::Groups, None);
        assert!(
            groups.starts_with(
                "{\"kind\":\"APIGroupList\",\"apiVersion\":\"v1\",\"groups\":[{\"name\":\"apiregistration.k8s.io\",\"versions\":["
            ),
            "{groups}"
        );
        let core = text(group_version("", "v1"), None);
        assert!(core.starts_with("{\"kind\":\"APIResourceList\",\"groupVersion\":\"v1\",\"resources\":["), "{core}");
        assert!(
            core.contains(
                "{\"name\":\"pods\",\"singularName\":\"pod\",\"namespaced\":true,\"kind\":\"Pod\",\"verbs\":[\
                 \"create\",\"delete\",\"deletecollection\",\"get\",\"list\",\"patch\",\"update\",\"watch\"],\
                 \"shortNames\":[\"po\"],\"categories\":[\"all\"]},{\"name\":\"pods/binding\",\"singularName\":\"\",\
                 \"namespaced\":true,\"kind\":\"Binding\",\"verbs\":[\"create\"]},{\"name\":\
                 \"pods/ephemeralcontainers\",\"singularName\":\"\",\"namespaced\":true,\"kind\":\"Pod\",\
                 \"verbs\":[\"get\",\"patch\",\"update\"]},{\"name\":\"pods/eviction\",\
                 \"singularName\":\"\",\"namespaced\":true,\"group\":\"policy\",\"version\":\"v1\",\
                 \"kind\":\"Eviction\",\"verbs\":[\"create\"]},{\"name\":\"pods/status\",\"singularName\":\"\",\
                 \"namespaced\":true,\"kind\":\"Pod\",\"verbs\":[\"get\",\"patch\",\"update\"]}"
            ),
            "{core}"
        );
        let apps = text(group_version("apps", "v1"), None);
        assert!(
            apps.starts_with("{\"kind\":\"APIResourceList\",\"apiVersion\":\"v1\",\"groupVersion\":\"apps/v1\","),
            "{apps}"
        );
    }

    #[test]
    fn aggregated_documents_hold_everything_at_once() {
        let core = text(DiscoveryPath::Core, Some(CLIENT_GO));
        assert!(
            core.starts_with(
                "{\"kind\":\"APIGroupDiscoveryList\",\"apiVersion\":\"apidiscovery.k8s.io/v2\",\"metadata\":{},\
                 \"items\":[{\"metadata\":{},\"versions\":[{\"version\":\"v1\",\"resources\":[{\"resource\":\
                 \"bindings\",\"responseKind\":{\"group\":\"\",\"version\":\"\",\"kind\":\"Binding\"},\"scope\":\
                 \"Namespaced\",\"singularResource\":\"binding\",\"verbs\":[\"create\"]},{\"resource\":\"configmaps\","
            ),
            "{core}"
        );
        let groups: serde_json::Value =
            serde_json::from_str(&text(DiscoveryPath::Groups, Some(CLIENT_GO))).expect("is JSON");
        let count = |groups: &serde_json::Value| -> usize {
            let items = groups["items"].as_array().expect("items").iter();
            items.map(|group| group["versions"][0]["resources"].as_array().expect("resources").len()).sum()
        };
        let registry = Registry::builtin();
        let others = registry.groups().filter(|group| !group.group.is_empty());
        let reviews: usize = others.map(|group| group.reviews.len()).sum();
        let named = registry.iter().filter(|ty| !ty.group.is_empty()).count();
        assert_eq!(count(&groups), named + reviews);
    }

    #[test]
    fn accept_decides_the_form_of_both_ends_alike() {
        let table = [
            (None, None),
            (Some("application/json"), None),
            (Some("*/*"), None),
            (Some(CLIENT_GO), Some("v2")),
            (Some("application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io"), Some("v2")),
            (
                Some("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"),
                Some("v2beta1"),
            ),
            (Some("application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json"), None),
            (Some("application/json, application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"), None),
            (Some("text/html,application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"), Some("v2")),
        ];
        let registry = Registry::builtin();
        for (accept, version) in table {
            let aggregated = version.is_some();
            for path in [DiscoveryPath::Core, DiscoveryPath::Groups] {
                let document = document(&registry, &path, accept, "").expect("is served");
                let expected = match version {
                    Some(version) => {
                        format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList")
                    }
                    None => "application/json".to_owned(),
                };
                assert_eq!(document.content_type, expected, "{accept:?}");
                let body = String::from_utf8_lossy(&document.body);
                let named = version.is_none_or(|version| body.contains(&format!("\"apidiscovery.k8s.io/{version}\"")));
                assert!(named, "{accept:?}");
                assert_eq!(document.etag.is_some(), aggregated, "{accept:?}");
            }
        }
    }

    #[test]
    fn what_is_not_served_has_no_document() {
        let registry = Registry::builtin();
        let unknown = [
            DiscoveryPath::Group("none".to_owned()),
            DiscoveryPath::Group(String::new()),
            group_version("apps", "v9"),
            group_version("", "v2"),
        ];
        for path in unknown {
            assert_eq!(document(&registry, &path, None, ""), None, "{path:?}");
        }
    }
}
