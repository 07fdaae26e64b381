//! Workloads and what scales them.
//!
//! Source: `pkg/apis/{apps,batch}/v1/defaults.go`, `pkg/apis/autoscaling/v2/defaults.go`, `SetDefaults_ReplicationController`
//! in `pkg/apis/core/v1/defaults.go`.

use serde_json::{Value, json};

use super::super::{DefaultsWalk, Object, WalkResult, filled_map, is_unset, text};

const ROLLING: &str = "RollingUpdate";

/// `SetDefaults_Deployment`.
pub(super) fn deployment_strategy(walk: &mut DefaultsWalk<'_>, strategy: &mut Object) -> WalkResult {
    rolling(walk, strategy, "25%".into(), "25%".into())
}

/// `SetDefaults_DaemonSet`.
pub(super) fn daemon_set_strategy(walk: &mut DefaultsWalk<'_>, strategy: &mut Object) -> WalkResult {
    rolling(walk, strategy, 1.into(), 0.into())
}

fn rolling(walk: &mut DefaultsWalk<'_>, strategy: &mut Object, unavailable: Value, surge: Value) -> WalkResult {
    if text(strategy, "type") != ROLLING {
        return Ok(());
    }
    walk.default(strategy, "rollingUpdate", Object::new())?;
    let Some(rolling) = strategy.get_mut("rollingUpdate").and_then(Value::as_object_mut) else { return Ok(()) };
    walk.default(rolling, "maxUnavailable", unavailable)?;
    walk.default(rolling, "maxSurge", surge)
}

/// `SetDefaults_StatefulSet`, without the gate `MaxUnavailableStatefulSet`, which is off by default.
pub(super) fn stateful_set_strategy(walk: &mut DefaultsWalk<'_>, strategy: &mut Object) -> WalkResult {
    if text(strategy, "type").is_empty() {
        walk.put(strategy, "type", ROLLING)?;
        walk.default(strategy, "rollingUpdate", Object::new())?;
    }
    if text(strategy, "type") != ROLLING {
        return Ok(());
    }
    let Some(rolling) = strategy.get_mut("rollingUpdate").and_then(Value::as_object_mut) else { return Ok(()) };
    walk.default(rolling, "partition", 0)
}

/// `SetDefaults_ReplicationController`: without labels and selector of its own, it has those of its template.
pub(super) fn replication_controller(walk: &mut DefaultsWalk<'_>, controller: &mut Object) -> WalkResult {
    let Some(labels) = template_labels(controller) else { return Ok(()) };
    if let Some(spec) = controller.get_mut("spec").and_then(Value::as_object_mut)
        && filled_map(spec, "selector").is_none()
    {
        walk.put(spec, "selector", labels.clone())?;
    }
    label(walk, controller, labels)
}

/// `SetDefaults_Job`.
pub(super) fn job(walk: &mut DefaultsWalk<'_>, job: &mut Object) -> WalkResult {
    if let Some(labels) = template_labels(job) {
        label(walk, job, labels)?;
    }
    walk.default(job, "spec", Object::new())?;
    let Some(spec) = job.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    if is_unset(spec, "completions") && is_unset(spec, "parallelism") {
        walk.put(spec, "completions", 1)?;
    }
    let is_limited_by_index = !is_unset(spec, "backoffLimitPerIndex");
    let replacement = if is_unset(spec, "podFailurePolicy") { "TerminatingOrFailed" } else { "Failed" };
    walk.default(spec, "parallelism", 1)?;
    walk.default(spec, "backoffLimit", if is_limited_by_index { i32::MAX } else { 6 })?;
    walk.default(spec, "completionMode", "NonIndexed")?;
    walk.default(spec, "suspend", false)?;
    walk.default(spec, "podReplacementPolicy", replacement)?;
    walk.default(spec, "manualSelector", false)
}

/// Returns the labels of the object's template, if it has some.
fn template_labels(object: &Object) -> Option<Object> {
    let template = object.get("spec")?.get("template")?.get("metadata")?.as_object()?;
    filled_map(template, "labels").cloned()
}

/// Gives these labels to an object without labels.
fn label(walk: &mut DefaultsWalk<'_>, object: &mut Object, labels: Object) -> WalkResult {
    walk.default(object, "metadata", Object::new())?;
    match object.get_mut("metadata").and_then(Value::as_object_mut) {
        Some(metadata) if filled_map(metadata, "labels").is_none() => walk.put(metadata, "labels", labels),
        _ => Ok(()),
    }
}

/// `SetDefaults_HorizontalPodAutoscalerBehavior`.
pub(super) fn autoscaler_behavior(walk: &mut DefaultsWalk<'_>, behavior: &mut Object) -> WalkResult {
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    for (direction, policies) in [("scaleUp", json!([pods, percent])), ("scaleDown", json!([percent]))] {
        walk.default(behavior, direction, Object::new())?;
        let Some(rules) = behavior.get_mut(direction).and_then(Value::as_object_mut) else { continue };
        if direction == "scaleUp" {
            walk.default(rules, "stabilizationWindowSeconds", 0)?;
        }
        walk.default(rules, "selectPolicy", "Max")?;
        walk.default(rules, "policies", policies)?;
    }
    Ok(())
}
