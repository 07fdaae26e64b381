//! Refuses policies and bindings that kube-apiserver would refuse.

use std::collections::HashSet;

use api_rules::{
    object::{Object, metadata},
    registry::{NameRule, ResourceType},
};
use informer_serving::{
    go::quote,
    status::{CauseExt as _, Status, StatusCause, StatusExt as _},
};
use serde_json::Value;

use super::{BINDINGS, POLICIES, policy::variables};
use crate::{
    structural::cel::{ExpressionScope, NamedExpression, is_identifier},
    validation::texts::qualified,
    webhooks::check::{ConfigurationCheck, shown, text, texts},
};

/// Annotations that one policy may have, and bytes of their expressions, as in kube-apiserver.
const ANNOTATIONS_MAX: usize = 20;
const ANNOTATION_BYTES_MAX: usize = 5 << 10;

const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
const UNSPECIFIED: &str = "expression is not specified";

/// Checks a new or changed policy or binding; objects of other types are not looked at.
///
/// # Errors
/// 422. Expressions that the stored policy has too are not refused, nor is a spec that stays.
pub fn check(ty: &ResourceType, object: &Object, stored: Option<&Object>) -> Result<(), Status> {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let before = stored.map(|stored| stored.get("spec").unwrap_or(&Value::Null));
    if ![POLICIES, BINDINGS].contains(&ty.id()) || before == Some(spec) {
        return Ok(());
    }
    let name = metadata::text(object, "name");
    let mut check = ConfigurationCheck::knowing(before.map(expressions).unwrap_or_default());
    if ty.id() == POLICIES {
        policy(&mut check, name, spec)
    } else {
        binding(&mut check, spec)
    }
    if check.causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&ty.group, &ty.kind, name, check.causes))
}

fn list<'a>(value: &'a Value, member: &str) -> &'a [Value] {
    value.get(member).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns the texts of all expressions of a policy.
fn expressions(spec: &Value) -> HashSet<&str> {
    let all = ["matchConditions", "variables", "validations", "auditAnnotations"].into_iter();
    let members = ["expression", "messageExpression", "valueExpression"];
    all.flat_map(|member| list(spec, member)).flat_map(|one| members.map(|member| text(one, member))).collect()
}

fn policy(check: &mut ConfigurationCheck<'_>, name: &str, spec: &Value) {
    check.one_of(spec, "failurePolicy", &["Fail", "Ignore"], "spec");
    if let Some(kind) = spec.get("paramKind").filter(|kind| kind.is_object()) {
        parameter_kind(check, kind);
    }
    match spec.get("matchConstraints").filter(|constraints| constraints.is_object()) {
        None => check.causes.push(StatusCause::required("spec.matchConstraints", "")),
        Some(constraints) => {
            writes(check, constraints, "spec.matchConstraints");
            if list(constraints, "resourceRules").is_empty() {
                check.causes.push(StatusCause::required("spec.matchConstraints.resourceRules", ""));
            }
        }
    }
    let names = variables(spec);
    check.conditions(spec, "spec.matchConditions", ExpressionScope { variables: names, named: &[] });
    let named = &named(check, spec, names);
    let scope = ExpressionScope { variables: names, named };
    if list(spec, "validations").is_empty() && list(spec, "auditAnnotations").is_empty() {
        for field in ["spec.validations", "spec.auditAnnotations"] {
            let why = "validations or auditAnnotations must contain at least one item";
            check.causes.push(StatusCause::required(field, why));
        }
    }
    for (at, one) in list(spec, "validations").iter().enumerate() {
        validation(check, one, &format!("spec.validations[{at}]"), scope);
    }
    annotations(check, name, list(spec, "auditAnnotations"), scope);
}

fn parameter_kind(check: &mut ConfigurationCheck<'_>, value: &Value) {
    let (api_version, kind) = (text(value, "apiVersion"), text(value, "kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let field = "spec.paramKind.apiVersion";
    if api_version.is_empty() {
        check.causes.push(StatusCause::required(field, ""));
    } else if version.contains('/') {
        check.invalid(field, &quote(api_version), &format!("unexpected GroupVersion string: {api_version}"));
    } else {
        for (part, rule) in [(group, NameRule::Subdomain), (version, NameRule::ServiceLabel)] {
            let is_core = part.is_empty() && rule == NameRule::Subdomain;
            let refused = if is_core { Vec::new() } else { rule.refuse(part) };
            if !refused.is_empty() {
                check.invalid(field, &quote(part), &refused.join(","));
            }
        }
    }
    let refused = NameRule::ServiceLabel.refuse(&kind.to_lowercase());
    if kind.is_empty() {
        check.causes.push(StatusCause::required("spec.paramKind.kind", ""));
    } else if !refused.is_empty() {
        let why = format!("may have mixed case, but should otherwise match: {}", refused.join(","));
        check.invalid("spec.paramKind.kind", &quote(kind), &why);
    }
}

/// Checks rules and selectors.
fn writes(check: &mut ConfigurationCheck<'_>, value: &Value, field: &str) {
    check.one_of(value, "matchPolicy", &["Equivalent", "Exact"], field);
    for member in ["namespaceSelector", "objectSelector"] {
        if let Some(selector) = value.get(member).filter(|selector| selector.is_object()) {
            check.selector(selector, &format!("{field}.{member}"));
        }
    }
    for member in ["resourceRules", "excludeResourceRules"] {
        for (at, rule) in list(value, member).iter().enumerate() {
            let field = format!("{field}.{member}[{at}]");
            let mut names = HashSet::new();
            for (at, name) in texts(rule, "resourceNames").into_iter().enumerate() {
                let field = format!("{field}.resourceNames[{at}]");
                for refused in NameRule::PathSegment.refuse(name) {
                    check.invalid(&field, &quote(name), &refused);
                }
                if !names.insert(name) {
                    check.causes.push(StatusCause::duplicate(&field, &quote(name)));
                }
            }
            check.rule(rule, &field);
        }
    }
}

/// Checks and compiles the variables of a policy.
fn named(check: &mut ConfigurationCheck<'_>, spec: &Value, variables: &[&str]) -> Vec<NamedExpression> {
    let mut named: Vec<NamedExpression> = Vec::new();
    for (at, variable) in list(spec, "variables").iter().enumerate() {
        let (name, field) = (text(variable, "name"), format!("spec.variables[{at}].name"));
        if name.trim().is_empty() {
            check.causes.push(StatusCause::required(&field, "name is not specified"));
        } else if !is_identifier(name) {
            check.invalid(&field, &quote(name), "name is not a valid CEL identifier");
        } else if named.iter().any(|known| known.name == name) {
            check.causes.push(StatusCause::duplicate(&field, &quote(name)));
        }
        let (scope, field) = (ExpressionScope { variables, named: &named }, format!("spec.variables[{at}].expression"));
        let program = check.expression(text(variable, "expression"), &field, UNSPECIFIED, scope);
        named.push(NamedExpression { name: name.to_owned(), program });
    }
    named
}

fn validation(check: &mut ConfigurationCheck<'_>, value: &Value, field: &str, scope: ExpressionScope<'_>) {
    // Causes say the reasons.
    let _ = check.expression(text(value, "expression"), &format!("{field}.expression"), UNSPECIFIED, scope);
    for member in ["messageExpression", "message"] {
        let (field, value) = (format!("{field}.{member}"), text(value, member));
        if value.is_empty() {
            continue;
        }
        if value.trim().is_empty() {
            check.invalid(&field, &quote(value), "must be non-empty if specified");
        } else if member == "messageExpression" {
            let _ = check.expression(value, &field, "", scope);
        } else if value.trim().contains(['\n', '\r']) {
            check.invalid(&field, &quote(value), "must not contain line breaks");
        }
    }
    check.one_of(value, "reason", &REASONS, field);
}

fn annotations(check: &mut ConfigurationCheck<'_>, policy: &str, all: &[Value], scope: ExpressionScope<'_>) {
    if all.len() > ANNOTATIONS_MAX {
        let why = format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations");
        return check.invalid("spec.auditAnnotations", &format!("{} items", all.len()), &why);
    }
    let mut keys = HashSet::new();
    for (at, annotation) in all.iter().enumerate() {
        let (key, expression) = (text(annotation, "key"), text(annotation, "valueExpression"));
        let field = format!("spec.auditAnnotations[{at}].key");
        let full = format!("{policy}/{key}");
        for refused in qualified(&full) {
            check.invalid(&field, &quote(&full), &refused);
        }
        if !keys.insert(key) {
            check.causes.push(StatusCause::duplicate(&field, &quote(key)));
        }
        let field = format!("spec.auditAnnotations[{at}].valueExpression");
        if expression.trim().len() > ANNOTATION_BYTES_MAX {
            let why = format!("must not exceed {ANNOTATION_BYTES_MAX} bytes in length");
            check.causes.push(StatusCause::required(&field, &why));
        } else {
            let _ = check.expression(expression, &field, "valueExpression is not specified", scope);
        }
    }
}

fn binding(check: &mut ConfigurationCheck<'_>, spec: &Value) {
    let policy = text(spec, "policyName");
    if policy.is_empty() {
        check.causes.push(StatusCause::required("spec.policyName", ""));
    } else {
        for refused in NameRule::Subdomain.refuse(policy) {
            check.invalid("spec.policyName", &quote(policy), &refused);
        }
    }
    if let Some(reference) = spec.get("paramRef").filter(|reference| reference.is_object()) {
        parameters(check, reference);
    }
    if let Some(resources) = spec.get("matchResources").filter(|resources| resources.is_object()) {
        writes(check, resources, "spec.matchResources");
    }
    let (actions, field) = (texts(spec, "validationActions"), "spec.validationActions");
    let mut seen = HashSet::new();
    for (at, action) in actions.iter().enumerate() {
        let field = format!("{field}[{at}]");
        if !ACTIONS.contains(action) {
            check.causes.push(StatusCause::not_supported(&field, action, &ACTIONS));
        }
        if !seen.insert(action) {
            check.causes.push(StatusCause::duplicate(&field, &quote(action)));
        }
    }
    if ["Deny", "Warn"].iter().all(|action| actions.contains(action)) {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                   response and headers serves no purpose)";
        check.invalid(field, &shown(&actions), why);
    }
    if actions.is_empty() {
        check.causes.push(StatusCause::required(field, "at least one validation action is required"));
    }
}

fn parameters(check: &mut ConfigurationCheck<'_>, reference: &Value) {
    let field = |member: &str| format!("spec.paramRef.{member}");
    let name = text(reference, "name");
    let selector = reference.get("selector").filter(|selector| selector.is_object());
    if !name.is_empty() {
        for refused in NameRule::PathSegment.refuse(name) {
            check.invalid(&field("name"), &quote(name), &refused);
        }
    }
    if let Some(selector) = selector {
        check.selector(selector, &field("selector"));
    }
    match (name.is_empty(), selector) {
        (false, Some(_)) => {
            for member in ["name", "selector"] {
                let why = "name and selector are mutually exclusive";
                check.causes.push(StatusCause::forbidden(&field(member), why));
            }
        }
        (true, None) => {
            check.causes.push(StatusCause::required("spec.paramRef", "one of name or selector must be specified"));
        }
        (true, Some(_)) | (false, None) => {}
    }
    if text(reference, "parameterNotFoundAction").is_empty() {
        check.causes.push(StatusCause::required(&field("parameterNotFoundAction"), ""));
    }
    check.one_of(reference, "parameterNotFoundAction", &["Deny", "Allow"], "spec.paramRef");
}
