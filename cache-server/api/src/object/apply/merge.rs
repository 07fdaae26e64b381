//! Merges a configuration into an object, and removes fields that are no longer applied.
//!
//! INVARIANT: items of lists are found by a hash of their step, never by searching.
//!
//! Source: structured-merge-diff `typed/{merge,remove}.go`, `merge/update.go` (prune).

use std::collections::HashMap;

use serde_json::Value;

use super::{
    super::{body::Object, managed::FieldSet},
    typed::{is_associative, is_granular, member, step},
};
use crate::schemas::ValueShape;

/// Merges `config` into `object`. Members that `config` does not set are unchanged.
pub(crate) fn merge(mut object: Object, config: &Object, shape: &ValueShape) -> Object {
    merge_members(&mut object, config, Some(shape));
    object
}

fn merge_members(object: &mut Object, config: &Object, shape: Option<&ValueShape>) {
    for (name, applied) in config {
        let inner = member(shape, name);
        let merged = match object.remove(name) {
            Some(before) => merge_values(before, applied, inner.as_ref()),
            None => applied.clone(),
        };
        object.insert(name.clone(), merged);
    }
}

fn merge_values(before: Value, applied: &Value, shape: Option<&ValueShape>) -> Value {
    match (before, applied) {
        (Value::Object(mut before), Value::Object(applied)) if is_granular(shape) => {
            merge_members(&mut before, applied, shape);
            Value::Object(before)
        }
        (Value::Array(before), Value::Array(applied)) if is_associative(shape) => {
            Value::Array(merge_items(before, applied, shape))
        }
        (_, applied) => applied.clone(),
    }
}

/// Merges the wanted items into a list, in their order. Other items keep their order, and their place before the wanted
/// items that followed them.
fn merge_items(before: Vec<Value>, applied: &[Value], shape: Option<&ValueShape>) -> Vec<Value> {
    let Some(shape) = shape else { return applied.to_vec() };
    let inner = shape.item();
    let steps = |items: &[Value]| -> Vec<Option<String>> { items.iter().map(|item| step(shape, item).ok()).collect() };
    let (old_steps, new_steps) = (steps(&before), steps(applied));
    let new_places = places(&new_steps);
    let old_places = places(&old_steps);
    let is_applied = |at: usize| old_steps[at].as_deref().is_some_and(|step| new_places.contains_key(step));
    let mut before: Vec<Option<Value>> = before.into_iter().map(Some).collect();
    let mut merged = Vec::with_capacity(before.len() + applied.len());
    let mut left = 0;
    for (item, step) in applied.iter().zip(&new_steps) {
        // Stop at a wanted item that was not merged yet: it is placed in its turn.
        while left < before.len() && !(is_applied(left) && before[left].is_some()) {
            merged.extend(before[left].take());
            left += 1;
        }
        let old = step.as_deref().and_then(|step| old_places.get(step)).and_then(|&at| before[at].take());
        merged.push(match old {
            Some(old) => merge_values(old, item, inner.as_ref()),
            None => item.clone(),
        });
    }
    // Drop further items with the key of a wanted item.
    let rest = before.into_iter().enumerate().skip(left).filter(|(at, _)| !is_applied(*at));
    merged.extend(rest.filter_map(|(_, item)| item));
    merged
}

/// Maps each step to its first position.
fn places(steps: &[Option<String>]) -> HashMap<&str, usize> {
    let mut places = HashMap::new();
    for (at, step) in steps.iter().enumerate() {
        if let Some(step) = step {
            places.entry(step.as_str()).or_insert(at);
        }
    }
    places
}

/// Returns the part of `fields` that differs between two states of an object.
pub(crate) fn changed(before: &Object, after: &Object, shape: &ValueShape, fields: &FieldSet) -> FieldSet {
    changed_members(Some(before), Some(after), Some(shape), fields)
}

fn changed_members(
    before: Option<&Object>,
    after: Option<&Object>,
    shape: Option<&ValueShape>,
    fields: &FieldSet,
) -> FieldSet {
    let inside = fields.inside.iter().filter_map(|(step, below)| {
        let name = step.strip_prefix("f:")?;
        let inner = member(shape, name);
        let (before, after) = (before.and_then(|object| object.get(name)), after.and_then(|object| object.get(name)));
        let changed = changed_values(before, after, inner.as_ref(), below);
        (!changed.is_empty()).then(|| (step.clone(), changed))
    });
    FieldSet { own: false, inside: inside.collect() }
}

fn changed_values(
    before: Option<&Value>,
    after: Option<&Value>,
    shape: Option<&ValueShape>,
    fields: &FieldSet,
) -> FieldSet {
    if before == after {
        return FieldSet::default();
    }
    if fields.inside.is_empty() {
        return FieldSet::leaf();
    }
    let mut changed = match (after, shape) {
        (Some(Value::Array(items)), Some(shape)) => {
            let old = before.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            changed_items(old, items, shape, fields)
        }
        _ => changed_members(before.and_then(Value::as_object), after.and_then(Value::as_object), shape, fields),
    };
    changed.own = fields.own && before.is_none();
    changed
}

fn changed_items(before: &[Value], after: &[Value], shape: &ValueShape, fields: &FieldSet) -> FieldSet {
    let by_step = |items| -> HashMap<String, &Value> {
        let items: &[Value] = items;
        items.iter().filter_map(|item| Some((step(shape, item).ok()?, item))).collect()
    };
    let (before, after, inner) = (by_step(before), by_step(after), shape.item());
    let inside = fields.inside.iter().filter_map(|(step, below)| {
        let (before, after) = (before.get(step).copied(), after.get(step).copied());
        let changed = changed_values(before, after, inner.as_ref(), below);
        (!changed.is_empty()).then(|| (step.clone(), changed))
    });
    FieldSet { own: false, inside: inside.collect() }
}

/// Returns the part of an object that `fields` names.
pub(crate) fn extract(object: &Object, shape: &ValueShape, fields: &FieldSet) -> Object {
    extract_members(object, Some(shape), fields)
}

fn extract_members(object: &Object, shape: Option<&ValueShape>, fields: &FieldSet) -> Object {
    let inside = fields.inside.iter().filter_map(|(step, below)| {
        let name = step.strip_prefix("f:")?;
        let value = object.get(name)?;
        Some((name.to_owned(), extract_value(value, member(shape, name).as_ref(), below)))
    });
    inside.collect()
}

fn extract_value(value: &Value, shape: Option<&ValueShape>, fields: &FieldSet) -> Value {
    match (value, shape) {
        _ if fields.inside.is_empty() => value.clone(),
        (Value::Object(members), _) => Value::Object(extract_members(members, shape, fields)),
        (Value::Array(items), Some(shape)) => {
            let inner = shape.item();
            let of = |item| Some(extract_value(item, inner.as_ref(), fields.inside.get(&step(shape, item).ok()?)?));
            items.iter().filter_map(of).collect()
        }
        (other, _) => other.clone(),
    }
}

/// Removes from the object the fields in `last` that are not in `retained`. An object or list that becomes empty is removed
/// too unless `retained` has fields in it, and so is an object that is equal in `completed`: the fields in `last` and the
/// defaults beside them.
pub(crate) fn remove(
    object: &mut Object,
    shape: &ValueShape,
    last: &FieldSet,
    retained: &FieldSet,
    completed: Option<&Object>,
) {
    remove_members(object, Some(shape), last, Some(retained), completed);
}

fn remove_members(
    object: &mut Object,
    shape: Option<&ValueShape>,
    last: &FieldSet,
    retained: Option<&FieldSet>,
    completed: Option<&Object>,
) {
    for (step, below) in &last.inside {
        let Some(name) = step.strip_prefix("f:") else { continue };
        let retained = retained.and_then(|retained| retained.inside.get(step));
        if below.own && retained.is_none() {
            object.remove(name);
            continue;
        }
        let Some(value) = object.get_mut(name) else { continue };
        let completed = completed.and_then(|completed| completed.get(name));
        if retained.is_none() && value.is_object() && completed == Some(&*value) {
            object.remove(name);
            continue;
        }
        let inner = member(shape, name);
        match value {
            Value::Object(members) => {
                remove_members(members, inner.as_ref(), below, retained, completed.and_then(Value::as_object));
            }
            Value::Array(items) => {
                let completed = completed.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                remove_items(items, inner.as_ref(), below, retained, completed);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        let is_hollow = match value {
            Value::Object(members) => members.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        };
        if retained.is_none() && is_hollow {
            object.remove(name);
        }
    }
}

fn remove_items(
    items: &mut Vec<Value>,
    shape: Option<&ValueShape>,
    last: &FieldSet,
    retained: Option<&FieldSet>,
    completed: &[Value],
) {
    let Some(shape) = shape.filter(|shape| is_associative(Some(shape))) else { return };
    let inner = shape.item();
    let completed: HashMap<String, &Object> =
        completed.iter().filter_map(|item| Some((step(shape, item).ok()?, item.as_object()?))).collect();
    items.retain_mut(|item| {
        let Some((step, below)) = step(shape, item).ok().and_then(|step| last.inside.get_key_value(&step)) else {
            return true;
        };
        let retained = retained.and_then(|retained| retained.inside.get(step));
        if below.own && retained.is_none() {
            return false;
        }
        if let Value::Object(members) = item {
            remove_members(members, inner.as_ref(), below, retained, completed.get(step).copied());
        }
        true
    });
}
