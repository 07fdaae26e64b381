//! Scopes: the objects that a quota counts.

use api_rules::object::{Object, at};
use serde_json::{Value, json};

use super::usage::UsageKind;
use crate::strategies::QosClass;

/// True if the object is in all scopes of a quota.
pub(super) fn are_met(kind: UsageKind, quota: &Object, object: &Object) -> bool {
    let all = |path: &str| at(quota, path).and_then(Value::as_array).into_iter().flatten();
    let scopes = all("spec.scopes").map(|scope| json!({"scopeName": scope, "operator": "Exists"}));
    scopes.chain(all("spec.scopeSelector.matchExpressions").cloned()).all(|scope| is_met(kind, &scope, object))
}

fn is_met(kind: UsageKind, scope: &Value, object: &Object) -> bool {
    let texts = |paths: &[&str]| -> Vec<String> {
        let texts = paths.iter().filter_map(|path| at(object, path)?.as_str());
        texts.filter(|text| !text.is_empty()).map(str::to_owned).collect()
    };
    match (kind, scope["scopeName"].as_str().unwrap_or_default()) {
        (UsageKind::Pods, "Terminating") => is_terminating(object),
        (UsageKind::Pods, "NotTerminating") => !is_terminating(object),
        (UsageKind::Pods, "BestEffort") => is_best_effort(object),
        (UsageKind::Pods, "NotBestEffort") => !is_best_effort(object),
        (UsageKind::Pods, "PriorityClass") => selects(scope, &texts(&["spec.priorityClassName"])),
        (UsageKind::Pods, "CrossNamespacePodAffinity") => crosses_namespaces(object),
        (UsageKind::Claims, "VolumeAttributesClass") => {
            let names = [
                "spec.volumeAttributesClassName",
                "status.currentVolumeAttributesClassName",
                "status.modifyVolumeStatus.targetVolumeAttributesClassName",
            ];
            selects(scope, &texts(&names))
        }
        _ => false,
    }
}

/// True if an expression selects one of the names, or none of them.
fn selects(expression: &Value, names: &[String]) -> bool {
    let values = expression["values"].as_array();
    let is_listed = |name: &String| values.is_some_and(|values| values.iter().any(|value| value == name));
    match expression["operator"].as_str().unwrap_or_default() {
        "Exists" => !names.is_empty(),
        "DoesNotExist" => names.is_empty(),
        "In" => names.iter().any(is_listed),
        "NotIn" => names.is_empty() || !names.iter().all(is_listed),
        _ => false,
    }
}

/// True if a pod ends by its deadline.
pub(super) fn is_terminating(pod: &Object) -> bool {
    at(pod, "spec.activeDeadlineSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds >= 0)
}

fn is_best_effort(pod: &Object) -> bool {
    pod.get("spec").is_some_and(|spec| QosClass::of(spec) == QosClass::BestEffort)
}

/// True if a pod's place depends on pods of other namespaces.
fn crosses_namespaces(pod: &Object) -> bool {
    let terms = |affinity: &str, member: &str| {
        let path = format!("spec.affinity.{affinity}.{member}DuringSchedulingIgnoredDuringExecution");
        at(pod, &path).and_then(Value::as_array).into_iter().flatten()
    };
    let crosses = |term: &Value| {
        term["namespaces"].as_array().is_some_and(|names| !names.is_empty()) || !term["namespaceSelector"].is_null()
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|affinity| {
        terms(affinity, "required").any(crosses)
            || terms(affinity, "preferred").any(|weighted| crosses(&weighted["podAffinityTerm"]))
    })
}
