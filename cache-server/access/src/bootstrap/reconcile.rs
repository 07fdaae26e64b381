//! Restores an object of the table: adds missing parts, and keeps those that an administrator added.

use serde_json::{Map, Value, json};

use super::{AUTOUPDATE, BootstrapObject};
use crate::rbac::{RoleRule, missing_rules};

/// Change that an object needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Reconciliation {
    /// Nothing: it has all that it should have, or its administrator forbids changes.
    None,
    /// It is replaced by this object.
    Update(Map<String, Value>),
    /// It is deleted and created again: the role of a binding cannot be changed.
    Recreate,
}

/// Compares an object with the one in the table.
#[must_use]
pub fn reconcile(existing: &Map<String, Value>, expected: &BootstrapObject) -> Reconciliation {
    let annotation = existing.get("metadata").and_then(|metadata| metadata.get("annotations")?.get(AUTOUPDATE));
    if annotation.is_some_and(|value| value == "false") {
        return Reconciliation::None;
    }
    let manifest = &expected.manifest;
    if manifest.get("roleRef") != existing.get("roleRef") {
        return Reconciliation::Recreate;
    }
    let mut object = existing.clone();
    for member in ["labels", "annotations"] {
        add_members(&mut object, &manifest["metadata"], member);
    }
    add_items(&mut object, manifest, "subjects");
    add_rules(&mut object, manifest);
    match manifest.get("aggregationRule") {
        Some(rule) => {
            let owned = object.entry("aggregationRule").or_insert_with(|| json!({}));
            if let (Value::Object(owned), Value::Object(rule)) = (owned, rule) {
                add_items(owned, rule, "clusterRoleSelectors");
            }
        }
        None => drop(object.remove("aggregationRule")),
    }
    if object == *existing { Reconciliation::None } else { Reconciliation::Update(object) }
}

/// Adds labels or annotations that are missing. Values that differ stay.
fn add_members(object: &mut Map<String, Value>, expected: &Value, member: &str) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return };
    let owned = metadata.entry(member).or_insert(Value::Null);
    if owned.is_null() {
        *owned = json!({});
    }
    let (Value::Object(owned), Some(Value::Object(expected))) = (owned, expected.get(member)) else { return };
    for (key, value) in expected {
        owned.entry(key).or_insert_with(|| value.clone());
    }
}

/// Adds the items of a list that are missing.
fn add_items(object: &mut Map<String, Value>, expected: &Map<String, Value>, member: &str) {
    let Some(Value::Array(expected)) = expected.get(member) else { return };
    let owned = object.entry(member).or_insert(Value::Null);
    if owned.is_null() {
        *owned = json!([]);
    }
    let Value::Array(owned) = owned else { return };
    let missing: Vec<Value> = expected.iter().filter(|item| !owned.contains(item)).cloned().collect();
    owned.extend(missing);
}

/// Adds the parts of rules that the present ones do not cover.
fn add_rules(object: &mut Map<String, Value>, expected: &Map<String, Value>) {
    let rules = |of: &Map<String, Value>| -> Vec<RoleRule> {
        let rules = of.get("rules").cloned().unwrap_or_default();
        serde_json::from_value::<Option<_>>(rules).ok().flatten().unwrap_or_default()
    };
    let missing = missing_rules(&rules(object), &rules(expected));
    if missing.is_empty() {
        return;
    }
    let owned = object.entry("rules").or_insert(Value::Null);
    if owned.is_null() {
        *owned = json!([]);
    }
    if let Value::Array(owned) = owned {
        owned.extend(missing.iter().map(|rule| json!(rule)));
    }
}
