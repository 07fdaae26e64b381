//! Audit policies: the first rule that matches a request chooses its level and stages.
//!
//! INVARIANT: a policy is used as a whole or refused: a member that is unknown or has no meaning is an error that names its
//! rule, because a rule that is read differently than it was meant leaves holes in the log.
//!
//! Differences from kube-apiserver, on purpose: only `audit.k8s.io/v1` is read, and unknown members are errors.
//!
//! Source: apiserver `audit/policy/checker.go`, `audit/policy/reader.go`, `apis/audit/validation/validation.go`.

use informer_serving::go::quote;
use serde::Deserialize;
use serde_json::Value;

use super::level::{AuditLevel, AuditStage, AuditStages};
use crate::{request_info::RequestInfo, user::User};

/// The only version of policies that is read.
const API_VERSION: &str = "audit.k8s.io/v1";

/// Longest name of an API group.
const GROUP_BYTES_MAX: usize = 253;

/// Rules that choose what is recorded of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditPolicy {
    rules: Vec<AuditRule>,
}

/// Outcome of a policy for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditDecision {
    /// Level of detail.
    pub level: AuditLevel,
    /// Stages without a record.
    pub omitted: AuditStages,
    /// True if objects are recorded without their `managedFields`.
    pub omits_managed_fields: bool,
}

/// Reason why a policy cannot be used: one line that names each wrong member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AuditPolicyError(String);

/// One rule. A list without elements matches everything.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AuditRule {
    matches: RuleMatch,
    decision: AuditDecision,
}

/// The members of a rule that requests are compared with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RuleMatch {
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
}

/// Resources of one API group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

/// A policy as its file has it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PolicyFile {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(rename = "metadata", default)]
    _metadata: Value,
    #[serde(default)]
    rules: Vec<Value>,
    #[serde(default)]
    omit_stages: Vec<String>,
    #[serde(default)]
    omit_managed_fields: bool,
}

/// A rule as the file has it. `deny_unknown_fields` excludes `flatten`, so the members of [`RuleMatch`] are repeated.
#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[derive(Default)]
struct RuleFile {
    level: String,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

impl AuditPolicy {
    /// Returns the policy that records every request without bodies, at all stages.
    #[must_use]
    pub fn metadata() -> Self {
        let decision = AuditDecision { level: AuditLevel::Metadata, ..AuditDecision::NONE };
        Self { rules: vec![AuditRule { matches: RuleMatch::default(), decision }] }
    }

    /// Reads a policy in YAML or JSON.
    ///
    /// # Errors
    /// [`AuditPolicyError`] with all wrong members, by rule.
    pub fn parse(text: &str) -> Result<Self, AuditPolicyError> {
        let file: Value = serde_saphyr::from_str(text).map_err(|error| AuditPolicyError(one_line(&error)))?;
        let file: PolicyFile = serde_json::from_value(file).map_err(|error| AuditPolicyError(one_line(&error)))?;
        if (&*file.api_version, &*file.kind) != (API_VERSION, "Policy") {
            let (version, kind) = (quote(&file.api_version), quote(&file.kind));
            let error = format!("apiVersion {version}, kind {kind}: must be {API_VERSION}, Policy");
            return Err(AuditPolicyError(error));
        }
        let mut errors = Vec::new();
        if file.rules.is_empty() {
            errors.push("rules: Required value: a policy without rules records nothing".to_owned());
        }
        let omitted = stages("omitStages", &file.omit_stages, &mut errors);
        let mut rules = Vec::new();
        for (at, rule) in file.rules.into_iter().enumerate() {
            let path = format!("rules[{at}]");
            match serde_json::from_value::<RuleFile>(rule) {
                Ok(rule) => rules.extend(rule.check(&path, omitted, file.omit_managed_fields, &mut errors)),
                Err(error) => errors.push(format!("{path}: {}", one_line(&error))),
            }
        }
        if errors.is_empty() { Ok(Self { rules }) } else { Err(AuditPolicyError(errors.join("; "))) }
    }

    /// Decides what is recorded of a request: the first rule that matches counts, and without one nothing is recorded.
    /// `user` is `None` for a request whose credentials were refused. Cost: linear in the policy.
    #[must_use]
    pub fn decide(&self, user: Option<&User>, info: &RequestInfo) -> AuditDecision {
        let rule = self.rules.iter().find(|rule| rule.matches.includes(user, info));
        rule.map_or(AuditDecision::NONE, |rule| rule.decision)
    }
}

impl AuditDecision {
    /// Nothing is recorded.
    const NONE: Self = Self { level: AuditLevel::None, omitted: AuditStages::NONE, omits_managed_fields: false };
}

impl RuleFile {
    /// Returns the rule; `None` after adding to `errors`.
    fn check(
        self,
        path: &str,
        omitted: AuditStages,
        omits_managed_fields: bool,
        errors: &mut Vec<String>,
    ) -> Option<AuditRule> {
        let before = errors.len();
        let level = level(path, &self.level, errors);
        let own = stages(&format!("{path}.omitStages"), &self.omit_stages, errors);
        let matches = RuleMatch {
            users: self.users,
            user_groups: self.user_groups,
            verbs: self.verbs,
            resources: self.resources,
            namespaces: self.namespaces,
            non_resource_urls: self.non_resource_urls,
        };
        matches.check(path, errors);
        let decision = AuditDecision {
            level: level.unwrap_or(AuditLevel::None),
            omitted: omitted.union(own),
            omits_managed_fields: self.omit_managed_fields.unwrap_or(omits_managed_fields),
        };
        (errors.len() == before).then_some(AuditRule { matches, decision })
    }
}

fn level(path: &str, name: &str, errors: &mut Vec<String>) -> Option<AuditLevel> {
    let level = AuditLevel::ALL.into_iter().find(|level| level.as_str() == name);
    if name.is_empty() {
        errors.push(format!("{path}.level: Required value"));
    } else if level.is_none() {
        let supported = AuditLevel::ALL.map(|level| quote(level.as_str())).join(", ");
        errors.push(format!("{path}.level: Unsupported value: {}: supported values: {supported}", quote(name)));
    }
    level
}

fn stages(path: &str, names: &[String], errors: &mut Vec<String>) -> AuditStages {
    let mut stages = AuditStages::default();
    for (at, name) in names.iter().enumerate() {
        match AuditStage::ALL.into_iter().find(|stage| stage.as_str() == name) {
            Some(stage) => stages = stages.with(stage),
            None => {
                let allowed = AuditStage::ALL.map(AuditStage::as_str).join(",");
                errors.push(format!("{path}[{at}]: Invalid value: {}: allowed stages are {allowed}", quote(name)));
            }
        }
    }
    stages
}

/// Errors of parsers can have several lines, with an excerpt of the text.
fn one_line(error: &impl ToString) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

impl RuleMatch {
    fn check(&self, path: &str, errors: &mut Vec<String>) {
        for (at, url) in self.non_resource_urls.iter().enumerate() {
            let mut refuse = |why: &str| {
                errors.push(format!("{path}.nonResourceURLs[{at}]: Invalid value: {}: {why}", quote(url)));
            };
            if url != "*" && !url.starts_with('/') {
                refuse("non-resource URL rules must begin with a '/' character");
            }
            if url.strip_suffix('*').unwrap_or(url).contains('*') {
                refuse("non-resource URL wildcards '*' must be the final character of the rule");
            }
        }
        for (at, of) in self.resources.iter().enumerate() {
            let path = format!("{path}.resources[{at}]");
            if !of.group.is_empty() && !is_subdomain(&of.group) {
                let group = quote(&of.group);
                errors.push(format!("{path}.group: Invalid value: {group}: must be an API group without its version"));
            }
            if of.resources.is_empty() && !of.resource_names.is_empty() {
                errors.push(format!("{path}.resourceNames: Invalid value: needs at least one resource"));
            }
        }
        let has_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if has_resources && !self.non_resource_urls.is_empty() {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(format!("{path}.nonResourceURLs: Invalid value: {why}"));
        }
    }

    fn includes(&self, user: Option<&User>, info: &RequestInfo) -> bool {
        let has_user = user.is_some_and(|user| self.users.contains(&user.name));
        let has_group = user.is_some_and(|user| user.groups.iter().any(|group| self.user_groups.contains(group)));
        if !(self.users.is_empty() || has_user) || !(self.user_groups.is_empty() || has_group) {
            return false;
        }
        if !self.verbs.is_empty() && !self.verbs.iter().any(|verb| *verb == info.verb) {
            return false;
        }
        if !(self.namespaces.is_empty() && self.resources.is_empty()) {
            return self.includes_resource(info);
        }
        let is_path = |pattern: &String| includes_path(pattern, &info.path);
        self.non_resource_urls.is_empty() || (info.resource.is_none() && self.non_resource_urls.iter().any(is_path))
    }

    fn includes_resource(&self, info: &RequestInfo) -> bool {
        let Some(of) = &info.resource else { return false };
        // Cluster-scoped objects are in the namespace "".
        if !self.namespaces.is_empty() && !self.namespaces.contains(&of.namespace) {
            return false;
        }
        let is_named = |rule: &GroupResources| rule.resource_names.is_empty() || rule.resource_names.contains(&of.name);
        let is_included = |pattern: &String| includes_type(pattern, &of.resource, &of.subresource);
        self.resources.is_empty()
            || self.resources.iter().any(|rule| {
                let has_type = rule.resources.is_empty() || (is_named(rule) && rule.resources.iter().any(is_included));
                rule.group == of.group && has_type
            })
    }
}

/// Returns true if `pattern` is `*`, the path, or its beginning and a `*`.
fn includes_path(pattern: &str, path: &str) -> bool {
    pattern == path || pattern.strip_suffix('*').is_some_and(|start| path.starts_with(start))
}

/// Returns true if `pattern` is `*`, `type`, `type/subresource`, `type/*` or `*/subresource` of the resource. `type/*`
/// includes the type itself, as in kube-apiserver.
fn includes_type(pattern: &str, resource: &str, subresource: &str) -> bool {
    match pattern.split_once('/') {
        None => pattern == "*" || (subresource.is_empty() && pattern == resource),
        Some(("*", of)) if of != "*" => !subresource.is_empty() && of == subresource,
        Some((ty, "*")) => ty == resource,
        Some((ty, of)) => !subresource.is_empty() && (ty, of) == (resource, subresource),
    }
}

fn is_subdomain(group: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let ends = label.bytes().next().into_iter().chain(label.bytes().last()).all(is_inner);
        !label.is_empty() && ends && label.bytes().all(|byte| is_inner(byte) || byte == b'-')
    };
    group.len() <= GROUP_BYTES_MAX && group.split('.').all(is_label)
}

#[cfg(test)]
mod tests;
