//! Namespaces, nodes, volumes, limits, devices and subjects of rights.
//!
//! Source: `pkg/apis/{core,rbac,resource}/v1/defaults.go`.

use serde_json::Value;

use super::super::{DefaultsWalk, Object, WalkResult, filled_map, is_unset, is_zero, text};

/// `SetDefaults_Namespace`, and for generated names `namespaceStrategy.Canonicalize`.
pub(super) fn namespace(walk: &mut DefaultsWalk<'_>, namespace: &mut Object) -> WalkResult {
    const NAME: &str = "kubernetes.io/metadata.name";
    let Some(metadata) = namespace.get_mut("metadata").and_then(Value::as_object_mut) else { return Ok(()) };
    let name = text(metadata, "name").to_owned();
    if name.is_empty() {
        return Ok(());
    }
    walk.default(metadata, "labels", Object::new())?;
    match metadata.get_mut("labels").and_then(Value::as_object_mut) {
        Some(labels) if text(labels, NAME) != name => walk.put(labels, NAME, name),
        _ => Ok(()),
    }
}

/// `SetDefaults_NodeStatus`.
pub(super) fn node_status(walk: &mut DefaultsWalk<'_>, status: &mut Object) -> WalkResult {
    let Some(capacity) = filled_map(status, "capacity").filter(|_| is_unset(status, "allocatable")) else {
        return Ok(());
    };
    let capacity = capacity.clone();
    walk.put(status, "allocatable", capacity)
}

/// `SetDefaults_PersistentVolume`, which concerns no spec inside another object.
pub(super) fn persistent_volume(walk: &mut DefaultsWalk<'_>, volume: &mut Object) -> WalkResult {
    walk.default(volume, "spec", Object::new())?;
    let Some(spec) = volume.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    if text(spec, "persistentVolumeReclaimPolicy").is_empty() {
        walk.put(spec, "persistentVolumeReclaimPolicy", "Retain")?;
    }
    walk.default(spec, "volumeMode", "Filesystem")
}

/// `SetDefaults_LimitRangeItem`.
pub(super) fn limits(walk: &mut DefaultsWalk<'_>, item: &mut Object) -> WalkResult {
    if text(item, "type") == "Container" {
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            let Some(given) = filled_map(item, from).cloned() else { continue };
            walk.default(item, to, Object::new())?;
            if let Some(limits) = item.get_mut(to).and_then(Value::as_object_mut) {
                walk.copy_missing(&given, limits)?;
            }
        }
    }
    Ok(())
}

/// `SetDefaults_Subject`.
pub(super) fn subject(walk: &mut DefaultsWalk<'_>, subject: &mut Object) -> WalkResult {
    if text(subject, "apiGroup").is_empty() && ["User", "Group"].contains(&text(subject, "kind")) {
        return walk.put(subject, "apiGroup", "rbac.authorization.k8s.io");
    }
    Ok(())
}

/// `SetDefaults_ExactDeviceRequest` and `SetDefaults_DeviceSubRequest`, after the mode is set.
pub(super) fn device_request(walk: &mut DefaultsWalk<'_>, request: &mut Object) -> WalkResult {
    let is_counted = text(request, "allocationMode") == "ExactCount";
    if is_counted && request.get("count").is_none_or(is_zero) { walk.put(request, "count", 1) } else { Ok(()) }
}

/// `SetDefaults_DeviceTaint`.
pub(super) fn device_taint(walk: &mut DefaultsWalk<'_>, taint: &mut Object) -> WalkResult {
    if is_unset(taint, "timeAdded") {
        let now = (walk.now)();
        return walk.put(taint, "timeAdded", now);
    }
    Ok(())
}

/// `SetDefaults_Device`.
pub(super) fn resource_mapping(walk: &mut DefaultsWalk<'_>, mapping: &mut Object) -> WalkResult {
    walk.default(mapping, "allocationMultiplier", "1")
}
