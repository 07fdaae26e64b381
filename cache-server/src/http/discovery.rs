//! Says what is served: `/api`, `/apis`, their group versions, `/version` and, in `health`, whether all is well.
//!
//! INVARIANT: everything is computed from the registry, so what is announced is what is served. `/api` and `/apis` are
//! both aggregated or both legacy for one Accept header, as clients demand.
//!
//! Source: apiserver `endpoints/discovery` and `endpoints/discovery/aggregated`.

mod documents;
mod health;

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::Serialize;

use crate::registry::{GroupVersion, Registry, ResourceType, VERBS};

use self::documents::{
    ApiGroup, ApiGroupList, ApiResource, ApiResourceList, ApiVersions, GroupDiscovery, GroupDiscoveryList, Named,
    ResourceDiscovery, ResponseKind, ServerAddress, SubresourceDiscovery, VersionDiscovery, VersionInfo, VersionName,
};
pub(super) use self::health::{Check, Health, health};

/// A path of discovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DiscoveryPath {
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

/// A body and the headers that depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Document {
    /// Content-Type.
    pub(super) content_type: &'static str,
    /// Set for aggregated discovery: clients may ask again with it, and any cache may keep the answer.
    pub(super) etag: Option<String>,
    /// JSON.
    pub(super) body: Bytes,
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The document at `path`, in the form that `accept` asks for; `None` when nothing is served there. `address` is where
/// the client found the server.
pub(super) fn document(
    registry: &Registry,
    path: &DiscoveryPath,
    accept: Option<&str>,
    address: &str,
) -> Option<Document> {
    match path {
        DiscoveryPath::Core if wants_aggregated(accept) => Some(aggregated(registry, true)),
        DiscoveryPath::Groups if wants_aggregated(accept) => Some(aggregated(registry, false)),
        DiscoveryPath::Core => {
            let here = ServerAddress { client_cidr: "0.0.0.0/0", server_address: address };
            Some(json(&ApiVersions { kind: "APIVersions", versions: ["v1"], server_address_by_client_cidrs: [here] }))
        }
        DiscoveryPath::Groups => {
            let groups = group_names(registry).into_iter().filter_map(|name| api_group(registry, name)).collect();
            Some(json(&ApiGroupList { kind: "APIGroupList", api_version: "v1", groups }))
        }
        DiscoveryPath::Group(name) => api_group(registry, name)
            .map(|group| json(&ApiGroup { kind: Some("APIGroup"), api_version: Some("v1"), ..group })),
        DiscoveryPath::GroupVersion { group, version } => {
            registry.groups().iter().find(|served| served.group == *group && served.version == *version).map(resources)
        }
    }
}

/// Whether the first clause of Accept that is understood asks for the aggregated form.
fn wants_aggregated(accept: Option<&str>) -> bool {
    for clause in accept.unwrap_or_default().split(',') {
        let mut parts = clause.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        if !matches!(media_type, "application/json" | "application/*" | "*/*") {
            continue;
        }
        let parameters: BTreeSet<&str> = parts.filter(|parameter| !parameter.starts_with("q=")).collect();
        if parameters.is_empty() {
            return false;
        }
        if ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"].iter().all(|part| parameters.contains(part)) {
            return true;
        }
    }
    false
}

fn json(document: &impl Serialize) -> Document {
    let mut body = serde_json::to_vec(document).expect("a document of texts has a JSON form");
    body.push(b'\n');
    Document { content_type: "application/json", etag: None, body: body.into() }
}

/// The named groups once each, in the order of discovery.
fn group_names(registry: &Registry) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for group in registry.groups() {
        if !group.group.is_empty() && !names.contains(&&*group.group) {
            names.push(&group.group);
        }
    }
    names
}

fn api_version(group: &GroupVersion) -> String {
    if group.group.is_empty() { group.version.clone() } else { format!("{}/{}", group.group, group.version) }
}

fn api_group<'a>(registry: &'a Registry, name: &'a str) -> Option<ApiGroup<'a>> {
    let versions: Vec<VersionName<'_>> = registry
        .groups()
        .iter()
        .filter(|group| group.group == name && !name.is_empty())
        .map(|group| VersionName { group_version: api_version(group), version: &group.version })
        .collect();
    let preferred_version = versions.first()?.clone();
    Some(ApiGroup { kind: None, api_version: None, name, versions, preferred_version })
}

fn resources(group: &GroupVersion) -> Document {
    let mut resources = Vec::new();
    for ty in &group.types {
        resources.push(ApiResource {
            name: ty.plural.clone(),
            singular_name: &ty.singular,
            namespaced: ty.namespaced,
            kind: &ty.kind,
            verbs: &VERBS,
            short_names: &ty.short_names,
            categories: &ty.categories,
        });
        if ty.has_status {
            resources.push(ApiResource {
                name: format!("{}/status", ty.plural),
                singular_name: "",
                namespaced: ty.namespaced,
                kind: &ty.kind,
                verbs: &STATUS_VERBS,
                short_names: &[],
                categories: &[],
            });
        }
    }
    // kube-apiserver leaves the version out for the core group alone.
    let version = (!group.group.is_empty()).then_some("v1");
    json(&ApiResourceList {
        kind: "APIResourceList",
        api_version: version,
        group_version: api_version(group),
        resources,
    })
}

const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];

fn aggregated(registry: &Registry, core: bool) -> Document {
    let names = if core { vec![""] } else { group_names(registry) };
    let items = names
        .into_iter()
        .map(|name| GroupDiscovery {
            metadata: Named { name },
            versions: registry.groups().iter().filter(|group| group.group == name).map(version_discovery).collect(),
        })
        .collect();
    let list = GroupDiscoveryList {
        kind: "APIGroupDiscoveryList",
        api_version: "apidiscovery.k8s.io/v2",
        metadata: Named { name: "" },
        items,
    };
    let document = json(&list);
    let etag = Some(format!("\"{:016X}\"", fingerprint(&document.body)));
    Document { content_type: AGGREGATED, etag, ..document }
}

fn version_discovery(group: &GroupVersion) -> VersionDiscovery<'_> {
    VersionDiscovery {
        version: &group.version,
        resources: group.types.iter().map(|ty| resource_discovery(ty)).collect(),
        freshness: "Current",
    }
}

fn resource_discovery(ty: &ResourceType) -> ResourceDiscovery<'_> {
    let response_kind = ResponseKind { group: "", version: "", kind: &ty.kind };
    let status = SubresourceDiscovery { subresource: "status", response_kind, verbs: &STATUS_VERBS };
    ResourceDiscovery {
        resource: &ty.plural,
        response_kind,
        scope: if ty.namespaced { "Namespaced" } else { "Cluster" },
        singular_resource: &ty.singular,
        verbs: &VERBS,
        short_names: &ty.short_names,
        categories: &ty.categories,
        subresources: if ty.has_status { vec![status] } else { Vec::new() },
    }
}

/// FNV-1a: enough to see that a document changed.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The Kubernetes version whose behaviour this server follows.
const MAJOR: &str = "1";
const MINOR: &str = "36";

/// The body of `/version`: two spaces of indentation, no newline at the end.
pub(super) fn version() -> Bytes {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let info = VersionInfo {
        major: MAJOR,
        minor: MINOR,
        git_version: format!("v{MAJOR}.{MINOR}.0"),
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
                "{\"kind\":\"APIGroupList\",\"apiVersion\":\"v1\",\"groups\":[{\"name\":\"apps\",\"versions\":["
            ),
            "{groups}"
        );
        let core = text(group_version("", "v1"), None);
        assert!(core.starts_with("{\"kind\":\"APIResourceList\",\"groupVersion\":\"v1\",\"resources\":["), "{core}");
        assert!(
            core.contains(
                "{\"name\":\"pods\",\"singularName\":\"pod\",\"namespaced\":true,\"kind\":\"Pod\",\"verbs\":[\
                 \"create\",\"delete\",\"deletecollection\",\"get\",\"list\",\"patch\",\"update\",\"watch\"],\
                 \"shortNames\":[\"po\"],\"categories\":[\"all\"]},{\"name\":\"pods/status\",\"singularName\":\"\",\
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
                 \"configmaps\",\"responseKind\":{\"group\":\"\",\"version\":\"\",\"kind\":\"ConfigMap\"},\"scope\":\
                 \"Namespaced\",\"singularResource\":\"configmap\",\"verbs\":["
            ),
            "{core}"
        );
        let groups: serde_json::Value =
            serde_json::from_str(&text(DiscoveryPath::Groups, Some(CLIENT_GO))).expect("is JSON");
        let count = |groups: &serde_json::Value| -> usize {
            let items = groups["items"].as_array().expect("items").iter();
            items.map(|group| group["versions"][0]["resources"].as_array().expect("resources").len()).sum()
        };
        let named = Registry::builtin().iter().filter(|ty| !ty.group.is_empty()).count();
        assert_eq!(count(&groups), named);
    }

    #[test]
    fn accept_decides_the_form_of_both_ends_alike() {
        let table = [
            (None, false),
            (Some("application/json"), false),
            (Some("*/*"), false),
            (Some(CLIENT_GO), true),
            (Some("application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io"), true),
            (Some("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"), false),
            (Some("application/json, application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"), false),
            (Some("text/html,application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"), true),
        ];
        let registry = Registry::builtin();
        for (accept, aggregated) in table {
            for path in [DiscoveryPath::Core, DiscoveryPath::Groups] {
                let document = document(&registry, &path, accept, "").expect("is served");
                assert_eq!(document.content_type == AGGREGATED, aggregated, "{accept:?}");
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
