//! Resources of whole pods, which default to those of their containers.
//!
//! Source: `defaultHugePagePodLimits` and `defaultPodRequests` in `pkg/apis/core/v1/defaults.go`; component-helpers
//! `resource/helpers.go`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::{DefaultsWalk, Object, WalkResult, filled_map};
use crate::{limits::SUMMED_RESOURCES_MAX, quantity::Quantity};

type Amounts = BTreeMap<String, Quantity>;

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
    let is_supported = |name: &str| ["cpu", "memory"].contains(&name) || is_huge(name);
    let limits: Object = limits.clone().into_iter().filter(|(name, _)| is_supported(name)).collect();
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
    amounts.into_iter().try_for_each(|(name, amount)| walk.put(found, &name, amount.to_string()))
}

/// Returns the sum over all containers that run side by side, or more if an init container needs more.
/// `AggregateContainerRequests` and `AggregateContainerLimits`.
fn of_containers(spec: &Object, list: &str, is_counted: impl Fn(&str) -> bool) -> Amounts {
    let containers = |member: &str| spec.get(member).and_then(Value::as_array).into_iter().flatten();
    let amounts = |container: &Value| {
        let found = container.get("resources").and_then(|resources| resources.get(list)?.as_object());
        let counted = found.into_iter().flatten().filter(|(name, _)| is_counted(name));
        counted.filter_map(|(name, amount)| Some((name.clone(), Quantity::parse(amount.as_str()?).ok()?))).collect()
    };
    let mut all = Amounts::new();
    containers("containers").for_each(|container| add_all(&mut all, &amounts(container)));
    let (mut beside, mut first) = (Amounts::new(), Amounts::new());
    for container in containers("initContainers") {
        let mut needed: Amounts = amounts(container);
        if container.get("restartPolicy").and_then(Value::as_str) == Some("Always") {
            add_all(&mut all, &needed);
            add_all(&mut beside, &needed);
            needed.clone_from(&beside);
        } else {
            add_all(&mut needed, &beside);
        }
        raise(&mut first, &needed);
    }
    raise(&mut all, &first);
    all
}

fn add_all(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        match sum.get_mut(name) {
            Some(sum) => *sum = sum.plus(*amount),
            None => insert(sum, name, *amount),
        }
    }
}

fn raise(greatest: &mut Amounts, others: &Amounts) {
    for (name, amount) in others {
        match greatest.get_mut(name) {
            Some(found) if amount.billionths <= found.billionths => {}
            Some(found) => *found = *amount,
            None => insert(greatest, name, *amount),
        }
    }
}

fn insert(amounts: &mut Amounts, name: &str, amount: Quantity) {
    if amounts.len() < SUMMED_RESOURCES_MAX {
        amounts.insert(name.to_owned(), amount);
    }
}
