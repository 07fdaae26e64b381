//! Roles and bindings: the members that decide.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// A kind of object that decides about access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RbacKind {
    /// Rules in one namespace.
    Role,
    /// Rules in every namespace, and for cluster-scoped types and paths.
    ClusterRole,
    /// Subjects of a Role or ClusterRole in one namespace.
    RoleBinding,
    /// Subjects of a ClusterRole everywhere.
    ClusterRoleBinding,
}

impl RbacKind {
    /// All kinds; roles come before bindings, so that a first fill resolves most references.
    pub const ALL: [Self; 4] = [Self::ClusterRole, Self::Role, Self::ClusterRoleBinding, Self::RoleBinding];

    /// Plural name of the resource.
    #[must_use]
    pub const fn resource(self) -> &'static str {
        match self {
            Self::Role => "roles",
            Self::ClusterRole => "clusterroles",
            Self::RoleBinding => "rolebindings",
            Self::ClusterRoleBinding => "clusterrolebindings",
        }
    }

    /// Name of the kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Role => "Role",
            Self::ClusterRole => "ClusterRole",
            Self::RoleBinding => "RoleBinding",
            Self::ClusterRoleBinding => "ClusterRoleBinding",
        }
    }

    /// Returns the kind of a resource of the group [`GROUP`](super::GROUP).
    #[must_use]
    pub fn of_resource(resource: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.resource() == resource)
    }

    /// Returns the kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// True for the two kinds that bind a role to subjects.
    #[must_use]
    pub const fn is_binding(self) -> bool {
        matches!(self, Self::RoleBinding | Self::ClusterRoleBinding)
    }
}

/// One rule of a role: allows its verbs on its resources, or on its paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleRule {
    /// Verbs; `*` is every verb.
    #[serde(deserialize_with = "nullable")]
    pub verbs: Vec<String>,
    /// API groups; `*` is every group.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// Resources, `resource/subresource`, `*/subresource`, or `*` for all of them with their subresources.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Names of objects; empty for all.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths outside of resources; a trailing `*` matches every end.
    #[serde(rename = "nonResourceURLs", deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

/// The role of a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleReference {
    /// API group of the role.
    #[serde(deserialize_with = "nullable")]
    pub api_group: String,
    /// `Role` or `ClusterRole`.
    #[serde(deserialize_with = "nullable")]
    pub kind: String,
    /// Name of the role.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
}

/// A subject of a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleSubject {
    /// `User`, `Group` or `ServiceAccount`.
    #[serde(deserialize_with = "nullable")]
    pub kind: String,
    /// API group of the kind; empty for service accounts.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// Name of the user, group or service account.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Namespace of the service account; empty for the namespace of the binding.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// A Role, ClusterRole, RoleBinding or ClusterRoleBinding. Members of other kinds are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RbacObject {
    #[serde(deserialize_with = "nullable")]
    pub(super) metadata: RbacMetadata,
    #[serde(deserialize_with = "nullable")]
    pub(super) rules: Vec<RoleRule>,
    pub(super) aggregation_rule: Option<AggregationRule>,
    #[serde(deserialize_with = "nullable")]
    pub(super) subjects: Vec<RoleSubject>,
    #[serde(deserialize_with = "nullable")]
    pub(super) role_ref: RoleReference,
}

/// Name and labels of a role or binding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RbacMetadata {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub namespace: String,
    #[serde(deserialize_with = "nullable")]
    pub labels: BTreeMap<String, String>,
}

/// Selectors of the ClusterRoles whose rules a ClusterRole collects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AggregationRule {
    #[serde(deserialize_with = "nullable")]
    pub cluster_role_selectors: Vec<RoleSelector>,
}

/// A label selector of Kubernetes' API. All its conditions must hold; without any, it selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RoleSelector {
    #[serde(deserialize_with = "nullable")]
    pub match_labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub match_expressions: Vec<LabelCondition>,
}

/// A condition on one label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct LabelCondition {
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    #[serde(deserialize_with = "nullable")]
    pub operator: String,
    #[serde(deserialize_with = "nullable")]
    pub values: Vec<String>,
}

impl RbacObject {
    /// Namespace of the object; empty for cluster-scoped kinds.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    /// Name of the object.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Rules of a role, as they are stored.
    #[must_use]
    pub fn rules(&self) -> &[RoleRule] {
        &self.rules
    }

    /// True for a ClusterRole that collects the rules of others.
    #[must_use]
    pub const fn is_aggregated(&self) -> bool {
        self.aggregation_rule.is_some()
    }

    /// Role of a binding.
    #[must_use]
    pub const fn role_ref(&self) -> &RoleReference {
        &self.role_ref
    }

    /// Subjects of a binding.
    #[must_use]
    pub fn subjects(&self) -> &[RoleSubject] {
        &self.subjects
    }
}

/// Reads a member that may be null.
pub(crate) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
