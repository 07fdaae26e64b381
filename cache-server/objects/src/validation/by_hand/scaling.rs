//! HorizontalPodAutoscalers and PodDisruptionBudgets.
//!
//! Source: `pkg/apis/autoscaling/validation/validation.go`, `pkg/apis/policy/validation/validation.go`.

use super::{FoundCauses, Place, RowArguments, ValidationTable, ValueCheck, resources, texts};

pub(super) fn find(name: &str) -> Option<ValueCheck> {
    Some(match name {
        "replica_bounds" => replica_bounds,
        "metric" => metric,
        "window" => window,
        "scaling_policy" => scaling_policy,
        "target_version" => target_version,
        "budget" => budget,
        _ => return None,
    })
}

fn replica_bounds(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let (least, most) = (spec.member("minReplicas"), spec.member("maxReplicas"));
    let number = most.int().unwrap_or_default();
    if least.int().is_some_and(|least| least < 1) {
        found.invalid(&least, "must be greater than or equal to 1");
    }
    if number == 0 {
        found.required(&most, "must be set and greater than 0");
    } else if number < 0 {
        found.invalid(&most, "must be greater than or equal to 1");
    }
    if least.int().is_some_and(|least| number < least) {
        found.invalid_number(&most, "must be greater than or equal to `minReplicas`");
    }
}

/// The sources of metrics by their types, in the order of their checks.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];
const TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];

fn metric(found: &mut FoundCauses, metric: &Place<'_>, _: &RowArguments) {
    let ty = metric.member("type");
    if ty.is_empty() {
        found.required(&ty, "must specify a metric source type");
    }
    let is_known = TYPES.contains(&ty.text());
    if !is_known {
        found.unsupported(&ty, &TYPES);
    }
    let present: Vec<&str> = SOURCES.iter().map(|(_, member)| *member).filter(|member| metric.has(member)).collect();
    if let Some(first) = present.first() {
        source(found, &metric.member(first), first);
    }
    let expected = SOURCES.iter().find(|(name, _)| *name == ty.text()).map(|(_, member)| *member);
    match expected {
        Some(member) if !metric.has(member) => {
            found.required(&metric.member(member), "must populate information for the given metric source");
        }
        Some(_) => {}
        None => found.unsupported(&ty, &TYPES),
    }
    if present.len() != 1 {
        for member in present.iter().filter(|member| Some(**member) != expected) {
            found.forbidden(&metric.member(member), "must populate the given metric source only");
        }
    }
}

fn source(found: &mut FoundCauses, source: &Place<'_>, kind: &str) {
    let target = source.member("target");
    let (value, average) = (target.member("value"), target.member("averageValue"));
    match kind {
        "object" => {
            let object = source.member("describedObject");
            ValidationTable::get().run_named("TargetReference", &object, found);
            version(found, &object, true);
        }
        "resource" | "containerResource" => resource(found, source, kind),
        _ => {}
    }
    if ["object", "external", "pods"].contains(&kind) {
        let metric = source.member("metric");
        let name = metric.member("name");
        if name.is_empty() {
            found.required(&name, "must specify a metric name");
        } else {
            found.refuse(&name, &texts::path_segment(name.text()));
        }
    }
    self::target(found, &target);
    match (kind, value.is_set(), average.is_set()) {
        ("object", false, false) => found.required(&average, "must set either a target value or averageValue"),
        ("external", false, false) => {
            found.required(&average, "must set either a target value for metric or a per-pod target");
        }
        ("external", true, true) => {
            found.forbidden(&value, "may not set both a target value for metric and a per-pod target");
        }
        ("pods", _, false) => found.required(&average, "must specify a positive target averageValue"),
        ("resource" | "containerResource", _, _) => utilization(found, &target),
        _ => {}
    }
}

fn resource(found: &mut FoundCauses, source: &Place<'_>, kind: &str) {
    let (name, container) = (source.member("name"), source.member("container"));
    if name.is_empty() {
        found.required(&name, "must specify a resource name");
    } else if kind == "containerResource" {
        resources::container_resource_name(found, &name, name.text());
    }
    if kind != "containerResource" {
        return;
    }
    if container.is_empty() {
        found.required(&container, "must specify a container");
    } else {
        found.refuse(&container, &texts::label(container.text()));
    }
}

/// The version of the target, unless it is the stored one.
fn target_version(found: &mut FoundCauses, target: &Place<'_>, _: &RowArguments) {
    let is_retained = ["apiVersion", "kind"].iter().all(|name| !target.member(name).is_changed());
    if !target.is_update() || !is_retained {
        version(found, target, target.str("kind") == "ReplicationController");
    }
}

fn version(found: &mut FoundCauses, reference: &Place<'_>, may_be_core: bool) {
    let version = reference.member("apiVersion");
    let text = version.text();
    if text.matches('/').count() > 1 {
        found.invalid(&version, &format!("unexpected GroupVersion string: {text}"));
    } else if !may_be_core && !text.contains('/') {
        found.invalid(&version, "apiVersion must specify API group");
    }
}

fn utilization(found: &mut FoundCauses, target: &Place<'_>) {
    let (utilization, average) = (target.member("averageUtilization"), target.member("averageValue"));
    if !utilization.is_set() && !average.is_set() {
        found.required(&utilization, "must set either a target raw value or a target utilization");
    }
    if utilization.is_set() && average.is_set() {
        found.forbidden(&average, "may not set both a target raw value and a target utilization");
    }
}

fn target(found: &mut FoundCauses, target: &Place<'_>) {
    let ty = target.member("type");
    if ty.is_empty() {
        found.required(&ty, "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&ty.text()) {
        found.invalid(&ty, "must be either Utilization, Value, or AverageValue");
    }
    for amount in ["value", "averageValue"].map(|member| target.member(member)) {
        if amount.is_set() && resources::quantity(amount.value).billionths <= 0 {
            found.invalid(&amount, "must be positive");
        }
    }
    let utilization = target.member("averageUtilization");
    if utilization.int().is_some_and(|percent| percent < 1) {
        found.invalid(&utilization, "must be greater than 0");
    }
}

fn window(found: &mut FoundCauses, seconds: &Place<'_>, _: &RowArguments) {
    match seconds.int() {
        Some(number) if number < 0 => found.invalid(seconds, "must be greater than or equal to zero"),
        Some(number) if number > 3600 => found.invalid(seconds, "must be less than or equal to 3600"),
        _ => {}
    }
}

fn scaling_policy(found: &mut FoundCauses, policy: &Place<'_>, _: &RowArguments) {
    let (ty, value, period) = (policy.member("type"), policy.member("value"), policy.member("periodSeconds"));
    if !["Percent", "Pods"].contains(&ty.text()) {
        found.unsupported(&ty, &["Percent", "Pods"]);
    }
    for number in [&value, &period] {
        if number.int().unwrap_or_default() <= 0 {
            found.invalid_number(number, "must be greater than zero");
        }
    }
    if period.int().is_some_and(|seconds| seconds > 1800) {
        found.invalid(&period, "must be less than or equal to 1800");
    }
}

fn budget(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    if spec.has("minAvailable") && spec.has("maxUnavailable") {
        found.invalid(spec, "minAvailable and maxUnavailable cannot be both set");
    }
}
