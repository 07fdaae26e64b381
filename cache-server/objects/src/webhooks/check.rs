//! Refuses configurations of webhooks that kube-apiserver would refuse.

use std::collections::HashSet;

use api_rules::{
    object::{Object, label_selector::LabelSelector, metadata},
    registry::{NameRule, ResourceType},
};
use informer_serving::{
    go::quote,
    status::{CauseExt as _, Causes, Status, StatusCause, StatusExt as _},
};
use serde_json::Value;

use super::{WebhookKind, configuration::SCOPE, urls};
use crate::{
    structural::cel::{Allowance, CompiledExpression, ExpressionScope, compile_over},
    validation::texts::qualified,
};

/// Conditions that one webhook may have.
const CONDITIONS_MAX: usize = 64;

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
pub(super) const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];

/// Checks a new or changed configuration; objects of other types are not looked at.
///
/// # Errors
/// 422. Conditions that the stored configuration has too are not refused.
pub fn check(ty: &ResourceType, object: &Object, stored: Option<&Object>) -> Result<(), Status> {
    let Some(kind) = WebhookKind::of(ty) else { return Ok(()) };
    let mut check = ConfigurationCheck::default();
    let webhooks = |object: &Object| object.get("webhooks").and_then(Value::as_array).cloned().unwrap_or_default();
    let (all, before) = (webhooks(object), stored.map(webhooks).unwrap_or_default());
    let mut names = HashSet::new();
    for (at, webhook) in all.iter().enumerate() {
        let field = format!("webhooks[{at}]");
        let is_known =
            before.get(at).is_some_and(|before| before.get("matchConditions") == webhook.get("matchConditions"));
        check.webhook(kind, webhook, &field, is_known);
        let name = text(webhook, "name");
        if !name.is_empty() && !names.insert(name) {
            check.causes.push(StatusCause::duplicate(&format!("{field}.name"), &quote(name)));
        }
    }
    if check.causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&ty.group, &ty.kind, metadata::text(object, "name"), check.causes))
}

pub(crate) fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value.get(member).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn texts<'a>(value: &'a Value, member: &str) -> Vec<&'a str> {
    let texts = value.get(member).and_then(Value::as_array).into_iter().flatten();
    texts.map(|text| text.as_str().unwrap_or_default()).collect()
}

pub(crate) fn shown(texts: &[&str]) -> String {
    Value::from(texts.to_vec()).to_string()
}

/// The check of a configuration of webhooks, of a policy or of a binding.
#[derive(Default)]
pub(crate) struct ConfigurationCheck<'a> {
    pub(crate) causes: Causes,
    /// Expressions that are stored already.
    known: HashSet<&'a str>,
    allowance: Allowance,
}

impl<'a> ConfigurationCheck<'a> {
    /// A check that does not refuse the expressions that are `known`.
    pub(crate) fn knowing(known: HashSet<&'a str>) -> Self {
        Self { known, ..Self::default() }
    }

    fn webhook(&mut self, kind: WebhookKind, webhook: &Value, field: &str, has_known_conditions: bool) {
        self.name(text(webhook, "name"), &format!("{field}.name"));
        for (at, rule) in webhook.get("rules").and_then(Value::as_array).into_iter().flatten().enumerate() {
            self.rule(rule, &format!("{field}.rules[{at}]"));
        }
        self.one_of(webhook, "failurePolicy", &["Fail", "Ignore"], field);
        self.one_of(webhook, "matchPolicy", &["Equivalent", "Exact"], field);
        if text(webhook, "sideEffects").is_empty() {
            let why = format!("must specify one of {}", SIDE_EFFECTS.join(", "));
            self.causes.push(StatusCause::required(&format!("{field}.sideEffects"), &why));
        }
        self.one_of(webhook, "sideEffects", &SIDE_EFFECTS, field);
        let seconds = webhook.get("timeoutSeconds").and_then(Value::as_i64).unwrap_or(10);
        if !(1..=30).contains(&seconds) {
            let why = "the timeout value must be between 1 and 30 seconds";
            self.causes.push(StatusCause::invalid(&format!("{field}.timeoutSeconds"), &seconds.to_string(), why));
        }
        for member in ["namespaceSelector", "objectSelector"] {
            if let Some(selector) = webhook.get(member).filter(|selector| selector.is_object()) {
                self.selector(selector, &format!("{field}.{member}"));
            }
        }
        if kind == WebhookKind::Mutating {
            self.one_of(webhook, "reinvocationPolicy", &["IfNeeded", "Never"], field);
        }
        let client = webhook.get("clientConfig").unwrap_or(&Value::Null);
        urls::check(client, &format!("{field}.clientConfig"), &mut self.causes);
        if !has_known_conditions {
            self.conditions(webhook, &format!("{field}.matchConditions"), SCOPE);
        }
        let versions = texts(webhook, "admissionReviewVersions");
        let required = format!("must specify one of {}", REVIEW_VERSIONS.join(", "));
        review_versions(&versions, &required, &format!("{field}.admissionReviewVersions"), &mut self.causes);
    }

    pub(crate) fn invalid(&mut self, field: &str, value: &str, why: &str) {
        self.causes.push(StatusCause::invalid(field, value, why));
    }

    /// Checks the value of a member, which may be absent.
    pub(crate) fn one_of(&mut self, object: &Value, member: &str, allowed: &[&str], field: &str) {
        let value = text(object, member);
        if !value.is_empty() && !allowed.contains(&value) {
            self.causes.push(StatusCause::not_supported(&format!("{field}.{member}"), value, allowed));
        }
    }

    fn name(&mut self, name: &str, field: &str) {
        if name.is_empty() {
            return self.causes.push(StatusCause::required(field, ""));
        }
        let refused = NameRule::Subdomain.refuse(name);
        if refused.is_empty() && name.split('.').count() < 3 {
            self.invalid(field, &quote(name), "should be a domain with at least three segments separated by dots");
        }
        for refused in refused {
            self.invalid(field, &quote(name), &refused);
        }
    }

    pub(crate) fn rule(&mut self, rule: &Value, field: &str) {
        let operations = texts(rule, "operations");
        self.listed(&operations, &format!("{field}.operations"), "operations");
        for (at, operation) in operations.iter().enumerate() {
            if !OPERATIONS.contains(operation) {
                let field = format!("{field}.operations[{at}]");
                self.causes.push(StatusCause::not_supported(&field, operation, &OPERATIONS));
            }
        }
        self.listed(&texts(rule, "apiGroups"), &format!("{field}.apiGroups"), "API groups");
        let versions = texts(rule, "apiVersions");
        self.listed(&versions, &format!("{field}.apiVersions"), "API versions");
        for at in versions.iter().enumerate().filter(|(_, version)| version.is_empty()).map(|(at, _)| at) {
            self.causes.push(StatusCause::required(&format!("{field}.apiVersions[{at}]"), ""));
        }
        self.resources(&texts(rule, "resources"), &format!("{field}.resources"));
        self.one_of(rule, "scope", &["*", "Cluster", "Namespaced"], field);
    }

    /// Checks a list that has to have values, and no others beside the wildcard.
    fn listed(&mut self, values: &[&str], field: &str, what: &str) {
        if values.is_empty() {
            self.causes.push(StatusCause::required(field, ""));
        }
        if values.len() > 1 && values.contains(&"*") {
            self.invalid(field, &shown(values), &format!("if '*' is present, must not specify other {what}"));
        }
    }

    fn resources(&mut self, resources: &[&str], field: &str) {
        if resources.is_empty() {
            self.causes.push(StatusCause::required(field, ""));
        }
        let (mut types, mut parts) = (HashSet::new(), HashSet::new());
        for (at, resource) in resources.iter().enumerate() {
            let field = format!("{field}[{at}]");
            if resource.is_empty() {
                self.causes.push(StatusCause::required(&field, ""));
            }
            let Some((ty, part)) = resource.split_once('/') else { continue };
            if types.contains(ty) {
                let why = format!("if '{ty}/*' is present, must not specify {resource}");
                self.invalid(&field, &quote(resource), &why);
            }
            if parts.contains(part) {
                let why = format!("if '*/{part}' is present, must not specify {resource}");
                self.invalid(&field, &quote(resource), &why);
            }
            types.extend((part == "*").then_some(ty));
            parts.extend((ty == "*").then_some(part));
        }
        if resources.len() > 1 && resources.contains(&"*/*") {
            let why = "if '*/*' is present, must not specify other resources";
            self.invalid(field, &shown(resources), why);
        }
        let is_plain = |resource: &&str| !resource.contains('/') && *resource != "*";
        if resources.contains(&"*") && resources.iter().any(is_plain) {
            let why = "if '*' is present, must not specify other resources without subresources";
            self.invalid(field, &shown(resources), why);
        }
    }

    pub(crate) fn selector(&mut self, selector: &Value, field: &str) {
        let before = self.causes.clone();
        let expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
        for (at, expression) in expressions.enumerate() {
            let field = format!("{field}.matchExpressions[{at}]");
            let has_values = !texts(expression, "values").is_empty();
            match text(expression, "operator") {
                "In" | "NotIn" if !has_values => {
                    let why = "must be specified when `operator` is 'In' or 'NotIn'";
                    self.causes.push(StatusCause::required(&format!("{field}.values"), why));
                }
                "Exists" | "DoesNotExist" if has_values => {
                    let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    self.causes.push(StatusCause::forbidden(&format!("{field}.values"), why));
                }
                "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
                other => self.invalid(&format!("{field}.operator"), &quote(other), "not a valid selector operator"),
            }
        }
        if before == self.causes && LabelSelector::read(selector).is_none() {
            self.invalid(field, &selector.to_string(), "not a valid label selector");
        }
    }

    pub(crate) fn conditions(&mut self, value: &Value, field: &str, scope: ExpressionScope<'_>) {
        let conditions = value.get("matchConditions").and_then(Value::as_array);
        let conditions = conditions.map(Vec::as_slice).unwrap_or_default();
        if conditions.len() > CONDITIONS_MAX {
            return self.causes.push(StatusCause::too_many(field, conditions.len(), CONDITIONS_MAX));
        }
        let mut names = HashSet::new();
        for (at, condition) in conditions.iter().enumerate() {
            let (name, expression) = (text(condition, "name"), text(condition, "expression"));
            let field = format!("{field}[{at}]");
            if name.is_empty() {
                self.causes.push(StatusCause::required(&format!("{field}.name"), ""));
            } else if !names.insert(name) {
                self.causes.push(StatusCause::duplicate(&format!("{field}.name"), &quote(name)));
            }
            for refused in Some(name).filter(|name| !name.is_empty()).into_iter().flat_map(qualified) {
                self.invalid(&format!("{field}.name"), &quote(name), &refused);
            }
            // The cause says the reason.
            let _ = self.expression(expression, &format!("{field}.expression"), "", scope);
        }
    }

    /// Compiles an expression. `required` is the text about none.
    ///
    /// # Errors
    /// The reason, for people. It is a cause too, unless the expression is stored already.
    pub(crate) fn expression(
        &mut self,
        text: &str,
        field: &str,
        required: &str,
        scope: ExpressionScope<'_>,
    ) -> Result<CompiledExpression, String> {
        let compiled = compile_over(text, scope, &mut self.allowance);
        if text.trim().is_empty() {
            self.causes.push(StatusCause::required(field, required));
        } else if let Err(reason) = &compiled
            && !self.known.contains(text)
        {
            // Also what this server does not know of the language.
            self.invalid(field, &quote(text), &format!("compilation failed: {reason}"));
        }
        compiled
    }
}

/// Adds what is wrong with the versions of reviews that a webhook understands; `required` is the text about none.
pub(super) fn review_versions(versions: &[&str], required: &str, field: &str, causes: &mut Causes) {
    if versions.is_empty() {
        return causes.push(StatusCause::required(field, required));
    }
    let mut seen = HashSet::new();
    for (at, version) in versions.iter().enumerate() {
        let field = format!("{field}[{at}]");
        let mut invalid = |why: &str| causes.push(StatusCause::invalid(&field, &quote(version), why));
        if !seen.insert(version) {
            invalid("duplicate version");
            continue;
        }
        for refused in NameRule::ServiceLabel.refuse(version) {
            invalid(&refused);
        }
    }
    if !versions.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        let why = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        causes.push(StatusCause::invalid(field, &shown(versions), &why));
    }
}
