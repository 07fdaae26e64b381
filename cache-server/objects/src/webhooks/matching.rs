//! The writes that a webhook, a policy or a binding is about, as its rules and selectors say.
//!
//! Source: apiserver `pkg/admission/plugin/webhook/predicates`, `pkg/admission/plugin/policy/matching`.

use std::sync::Arc;

use api_rules::{
    object::{Object, label_selector::LabelSelector},
    registry::ResourceType,
};
use serde_json::Value;

use super::request::AdmissionRequest;

/// Rules and selectors.
pub struct MatchedWrites {
    /// `None` for all writes.
    rules: Option<Vec<WriteRule>>,
    excluded: Vec<WriteRule>,
    matches_equivalent: bool,
    /// `None` if this server cannot read it.
    namespaces: Option<LabelSelector>,
    objects: Option<LabelSelector>,
}

/// One rule.
struct WriteRule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
    /// Names of objects; empty for all.
    names: Vec<String>,
}

fn texts(value: &Value, member: &str) -> Vec<String> {
    let texts = value.get(member).and_then(Value::as_array).into_iter().flatten();
    texts.filter_map(Value::as_str).map(str::to_owned).collect()
}

impl MatchedWrites {
    /// Reads a webhook: its `rules`.
    pub(super) fn of_webhook(webhook: &Value) -> Self {
        Self::read(webhook, "rules")
    }

    /// Reads the `matchConstraints` of a policy. Without rules it is about no write.
    pub(crate) fn of_policy(constraints: &Value) -> Self {
        Self::read(constraints, "resourceRules")
    }

    /// Reads the `matchResources` of a binding. Without rules it is about all writes.
    pub(crate) fn of_binding(resources: &Value) -> Self {
        let read = Self::read(resources, "resourceRules");
        Self { rules: read.rules.filter(|rules| !rules.is_empty()), ..read }
    }

    fn read(value: &Value, rules_member: &str) -> Self {
        let selector = |member: &str| LabelSelector::read(value.get(member).unwrap_or(&Value::Null));
        let rules = |member: &str| {
            let rules = value.get(member).and_then(Value::as_array).into_iter().flatten();
            rules.map(WriteRule::read).collect::<Vec<_>>()
        };
        Self {
            rules: Some(rules(rules_member)),
            excluded: rules("excludeResourceRules"),
            matches_equivalent: value.get("matchPolicy").and_then(Value::as_str) != Some("Exact"),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }

    /// True if a rule names the type, or one of its subresources, at any version. Types that share their objects
    /// count as one.
    #[must_use]
    pub fn concern(&self, ty: &ResourceType) -> bool {
        let names = |rule: &WriteRule| {
            let is_type = |name: &String| name.split('/').next().is_some_and(|name| name == "*" || name == ty.plural);
            (self.matches_equivalent || has(&rule.groups, &ty.group)) && rule.resources.iter().any(is_type)
        };
        self.rules.as_ref().is_none_or(|rules| rules.iter().any(names))
    }

    /// Returns the type at which expressions and webhooks get the objects of a write, if a rule matches: the one in the
    /// request if possible, else another one of `served`, the types that share its objects.
    #[must_use]
    pub fn target<'a>(
        &self,
        request: &AdmissionRequest<'a>,
        served: &'a [Arc<ResourceType>],
    ) -> Option<&'a ResourceType> {
        if self.find(&self.excluded, request, served).is_some() {
            return None;
        }
        self.rules.as_ref().map_or(Some(request.ty), |rules| self.find(rules, request, served))
    }

    fn find<'a>(
        &self,
        rules: &[WriteRule],
        request: &AdmissionRequest<'a>,
        served: &'a [Arc<ResourceType>],
    ) -> Option<&'a ResourceType> {
        if rules.iter().any(|rule| rule.matches(request, request.ty)) {
            return Some(request.ty);
        }
        let others = || served.iter().filter(|_| self.matches_equivalent);
        rules.iter().find_map(|rule| others().find(|ty| rule.matches(request, ty)).map(|ty| &**ty))
    }

    /// True if it depends on the labels of the namespace whether a write is selected.
    #[must_use]
    pub fn reads_namespace(&self, request: &AdmissionRequest<'_>) -> bool {
        let is_about_one = !request.namespace.is_empty() || request.ty.holds_objects;
        is_about_one && self.namespaces.as_ref().is_none_or(|selector| !selector.is_empty())
    }

    /// True if the selectors select a write that a rule matches. `namespace` is what
    /// [`reads_namespace`](Self::reads_namespace) asks for. Returns `None` if a selector cannot be read.
    #[must_use]
    pub fn select(&self, request: &AdmissionRequest<'_>, namespace: Option<&Object>) -> Option<bool> {
        if let Some(namespace) = namespace
            && !self.namespaces.as_ref()?.selects(namespace)
        {
            return Some(false);
        }
        let objects = self.objects.as_ref()?;
        let is_selected = |object: Option<&Object>| object.is_some_and(|object| objects.selects(object));
        Some(objects.is_empty() || is_selected(request.object) || is_selected(request.old))
    }
}

/// True if a list of a rule has a value, or the wildcard.
fn has(listed: &[String], value: &str) -> bool {
    listed.iter().any(|listed| listed == "*" || listed == value)
}

impl WriteRule {
    fn read(rule: &Value) -> Self {
        Self {
            operations: texts(rule, "operations"),
            groups: texts(rule, "apiGroups"),
            versions: texts(rule, "apiVersions"),
            resources: texts(rule, "resources"),
            scope: rule.get("scope").and_then(Value::as_str).unwrap_or_default().to_owned(),
            names: texts(rule, "resourceNames"),
        }
    }

    fn matches(&self, request: &AdmissionRequest<'_>, ty: &ResourceType) -> bool {
        let is_cluster_wide = request.ty.holds_objects || request.namespace.is_empty();
        let is_in_scope = match &*self.scope {
            "Namespaced" => !is_cluster_wide,
            "Cluster" => is_cluster_wide,
            _ => true,
        };
        let is_named = |resource: &String| {
            let (name, part) = resource.split_once('/').unwrap_or((resource, ""));
            (name == "*" || name == ty.plural) && (part == "*" || part == request.subresource)
        };
        is_in_scope
            && has(&self.operations, request.operation.name())
            && has(&self.groups, &ty.group)
            && has(&self.versions, &ty.version)
            && self.resources.iter().any(is_named)
            && (self.names.is_empty() || self.names.iter().any(|name| name == request.name))
    }
}
