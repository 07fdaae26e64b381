//! Resources of whole pods, which default to those of their containers.
//!
//! Source: `defaultHugePagePodLimits` and `defaultPodRequests` in `pkg/apis/core/v1/defaults.go`.

use serde_json::Value;

use super::super::{DefaultsWalk, Object, WalkResult, filled_map};
use crate::amounts::{Amounts, is_pod_level, of_containers};

/// Completes the resources of a pod's spec, after those of its containers.
pub(super) fn complete(walk: &mut DefaultsWalk<'_>, spec: &mut Object) -> WalkResult {
    let Some(resources) = spec.get("resources").and_then(Value::as_object) else { return Ok(()) };
    let is_huge = |name: &str| name.starts_with("hugepages-");
    let is_requested = |name: &str| filled_map(resources, "requests").is_some_and(|found| found.contains_key(name));
    let (mut limits, mut requests) = (Amounts::new(), Amounts::new());
    if filled_map(resources, "limits").is_some() || filled_map(resources, "requests").is_some() {
        limits = of_containers(spec, "limits", |name| is_huge(name) && !is_requested(name));
    }
    if filled_map(resources, "limits").is_some() || !limits.is_empty() {
        requests = of_containers(spec, "requests", |name| ["cpu", "memory"].contains(&name));
    }
    let Some(resources) = spec.get_mut("resources").and_then(Value::as_object_mut) else { return Ok(()) };
    add(walk, resources, "limits", limits)?;
    add(walk, resources, "requests", requests)?;
    let Some(limits) = filled_map(resources, "limits") else { return Ok(()) };
    let limits: Object = limits.clone().into_iter().filter(|(name, _)| is_pod_level(name)).collect();
    if limits.is_empty() {
        return Ok(());
    }
    walk.default(resources, "requests", Object::new())?;
    match resources.get_mut("requests").and_then(Value::as_object_mut) {
        Some(requests) => walk.copy_missing(&limits, requests),
        None => Ok(()),
    }
}

/// Adds the amounts that a list of resources lacks.
fn add(walk: &mut DefaultsWalk<'_>, resources: &mut Object, list: &str, amounts: Amounts) -> WalkResult {
    if amounts.is_empty() {
        return Ok(());
    }
    walk.default(resources, list, Object::new())?;
    let Some(found) = resources.get_mut(list).and_then(Value::as_object_mut) else { return Ok(()) };
    let amounts = amounts.into_iter().filter(|(name, _)| !found.contains_key(name)).collect::<Vec<_>>();
    // Rounded before it is written, which may change its form.
    amounts
        .into_iter()
        .try_for_each(|(name, amount)| walk.put(found, &name, amount.rounded_up().unwrap_or(amount).to_string()))
}
