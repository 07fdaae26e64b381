//! Pods, their containers and volumes.
//!
//! Source: `pkg/apis/core/v1/defaults.go`.

use serde_json::Value;

use super::{
    super::{DefaultsWalk, Object, WalkResult, filled_map, image, is_unset, is_zero, items_mut, text},
    pod_resources,
};

/// The lists of containers that [`pod`] completes.
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

/// `SetDefaults_Container`.
pub(super) fn pull_policy(walk: &mut DefaultsWalk<'_>, container: &mut Object) -> WalkResult {
    pull_by_tag(walk, container, "imagePullPolicy", "image")
}

/// The part of `SetDefaults_Volume` about images.
pub(super) fn image_volume(walk: &mut DefaultsWalk<'_>, source: &mut Object) -> WalkResult {
    pull_by_tag(walk, source, "pullPolicy", "reference")
}

fn pull_by_tag(walk: &mut DefaultsWalk<'_>, object: &mut Object, member: &str, image: &str) -> WalkResult {
    if !text(object, member).is_empty() {
        return Ok(());
    }
    let policy = if image::is_latest(text(object, image)) { "Always" } else { "IfNotPresent" };
    walk.put(object, member, policy)
}

/// `SetDefaults_Volume`: a volume without a source is an empty folder.
pub(super) fn volume(walk: &mut DefaultsWalk<'_>, volume: &mut Object) -> WalkResult {
    let has_source = volume.iter().any(|(name, value)| name != "name" && !value.is_null());
    if has_source { Ok(()) } else { walk.put(volume, "emptyDir", Object::new()) }
}

/// `SetDefaults_Pod`.
pub(super) fn pod(walk: &mut DefaultsWalk<'_>, pod: &mut Object) -> WalkResult {
    walk.default(pod, "spec", Object::new())?;
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    walk.default(spec, "enableServiceLinks", true)?;
    let is_on_host = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in CONTAINERS {
        for container in items_mut(spec, list) {
            if let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) {
                request_limits(walk, resources)?;
            }
            if is_on_host {
                items_mut(container, "ports").try_for_each(|port| publish(walk, port))?;
            }
        }
    }
    pod_resources::complete(walk, spec)
}

/// Requests what is limited, unless another amount is requested.
fn request_limits(walk: &mut DefaultsWalk<'_>, resources: &mut Object) -> WalkResult {
    let Some(limits) = filled_map(resources, "limits").cloned() else { return Ok(()) };
    if is_unset(resources, "requests") {
        return walk.put(resources, "requests", limits);
    }
    match resources.get_mut("requests").and_then(Value::as_object_mut) {
        Some(requests) => walk.copy_missing(&limits, requests),
        None => Ok(()),
    }
}

/// `defaultHostNetworkPorts`.
fn publish(walk: &mut DefaultsWalk<'_>, port: &mut Object) -> WalkResult {
    let number = port.get("containerPort").filter(|number| !is_zero(number)).cloned();
    match number {
        Some(number) if port.get("hostPort").is_none_or(is_zero) => walk.put(port, "hostPort", number),
        _ => Ok(()),
    }
}
