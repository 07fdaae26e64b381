//! JSON types of the discovery documents, with members in kube-apiserver's order.
//!
//! Source: apimachinery `pkg/apis/meta/v1`, `k8s.io/api/apidiscovery/v2`, `pkg/version`.

use std::collections::BTreeSet;

use serde::Serialize;

#[derive(Serialize)]
pub(super) struct RootPaths {
    pub(super) paths: BTreeSet<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApiVersions<'a> {
    pub(super) kind: &'static str,
    pub(super) versions: [&'static str; 1],
    #[serde(rename = "serverAddressByClientCIDRs")]
    pub(super) server_address_by_client_cidrs: [ServerAddress<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServerAddress<'a> {
    #[serde(rename = "clientCIDR")]
    pub(super) client_cidr: &'static str,
    pub(super) server_address: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApiGroupList<'a> {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) groups: Vec<ApiGroup<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApiGroup<'a> {
    // Only a group document of its own has kind and apiVersion; items of a list have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) api_version: Option<&'static str>,
    pub(super) name: &'a str,
    pub(super) versions: Vec<VersionName<'a>>,
    pub(super) preferred_version: VersionName<'a>,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VersionName<'a> {
    pub(super) group_version: String,
    pub(super) version: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApiResourceList<'a> {
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) api_version: Option<&'static str>,
    pub(super) group_version: String,
    pub(super) resources: Vec<ApiResource<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApiResource<'a> {
    pub(super) name: String,
    pub(super) singular_name: &'a str,
    pub(super) namespaced: bool,
    // Present only if they differ from the list's.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) version: &'a str,
    pub(super) kind: &'a str,
    pub(super) verbs: &'a [&'static str],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) short_names: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) categories: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupDiscoveryList<'a> {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) metadata: ObjectName<'a>,
    pub(super) items: Vec<GroupDiscovery<'a>>,
}

#[derive(Serialize)]
pub(super) struct ObjectName<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) name: &'a str,
}

#[derive(Serialize)]
pub(super) struct GroupDiscovery<'a> {
    pub(super) metadata: ObjectName<'a>,
    pub(super) versions: Vec<VersionDiscovery<'a>>,
}

#[derive(Serialize)]
pub(super) struct VersionDiscovery<'a> {
    pub(super) version: &'a str,
    pub(super) resources: Vec<ResourceDiscovery<'a>>,
    pub(super) freshness: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceDiscovery<'a> {
    pub(super) resource: &'a str,
    pub(super) response_kind: ResponseKind<'a>,
    pub(super) scope: &'static str,
    pub(super) singular_resource: &'a str,
    pub(super) verbs: &'a [&'static str],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) short_names: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) categories: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) subresources: Vec<SubresourceDiscovery<'a>>,
}

/// Group and version are empty if they equal those around a built-in type.
#[derive(Clone, Copy, Serialize)]
pub(super) struct ResponseKind<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) kind: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SubresourceDiscovery<'a> {
    pub(super) subresource: &'static str,
    pub(super) response_kind: ResponseKind<'a>,
    pub(super) verbs: &'a [&'static str],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VersionInfo {
    pub(super) major: &'static str,
    pub(super) minor: &'static str,
    pub(super) git_version: String,
    pub(super) git_commit: &'static str,
    pub(super) git_tree_state: &'static str,
    pub(super) build_date: &'static str,
    pub(super) go_version: &'static str,
    pub(super) compiler: &'static str,
    pub(super) platform: String,
}
