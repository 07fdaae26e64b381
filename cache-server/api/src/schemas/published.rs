//! Definitions of the built-in types as published in OpenAPI documents, with descriptions.
//!
//! INVARIANT: made anew for each document and not kept in memory.
//!
//! Source: kube-openapi `pkg/generators`, `pkg/builder3`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    OBJECT_META,
    builtin::strategies,
    definition,
    shape::{MergeStrategy, Strategies},
};

/// Definitions that every document needs.
const COMMON: [&str; 4] = [
    OBJECT_META,
    "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
];

/// The definitions of these kinds (apiVersion and kind), and of all that they refer to. Includes the definitions that
/// every document needs: ObjectMeta, ListMeta, DeleteOptions and Status.
pub fn definitions<'a>(kinds: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, Value> {
    let strategies = strategies();
    let mut found = BTreeMap::new();
    let kinds = kinds.filter_map(|(api_version, kind)| definition::of_kind(api_version, kind));
    let mut open: Vec<&str> = kinds.chain(COMMON).collect();
    while let Some(name) = open.pop() {
        let Some(definition) = definition::find(name).filter(|_| !found.contains_key(name)) else { continue };
        open.extend(definition.references());
        let mut schema = definition.schema();
        if let Some(members) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            for (member, schema) in members.iter_mut() {
                publish(schema);
                extend(schema, strategies.get(&*format!("{name}.{member}")));
            }
        }
        publish(&mut schema);
        extend(&mut schema, strategies.get(name));
        found.insert(name.to_owned(), schema);
    }
    found
}

/// Converts JSON Schema to OpenAPI 3.0: references stand alone, and values of two types become `oneOf`. Only definitions
/// and members can need it: the table describes no inner schemas.
fn publish(schema: &mut Value) {
    let Value::Object(members) = schema else { return };
    if members.len() > 1
        && let Some(reference) = members.remove("$ref")
    {
        members.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
    }
    if members.remove("x-kubernetes-int-or-string").is_some() {
        let quantity =
            members.get("description").and_then(Value::as_str).is_some_and(|text| text.starts_with("Quantity"));
        let types = if quantity { ["string", "number"] } else { ["integer", "string"] };
        members.insert("oneOf".to_owned(), types.map(|ty| json!({ "type": ty })).into());
        if !quantity {
            members.insert("format".to_owned(), "int-or-string".into());
        }
    }
}

/// Adds the `x-kubernetes-*` extensions for merging.
fn extend(schema: &mut Value, strategies: Option<&Strategies>) {
    let (Value::Object(members), Some(strategies)) = (schema, strategies) else { return };
    let list = members.get("type").is_some_and(|ty| ty == "array");
    let mut say = |name: &str, value: Value| drop(members.insert(format!("x-kubernetes-{name}"), value));
    match &strategies.apply {
        MergeStrategy::ByKey(keys) => {
            say("list-type", "map".into());
            say("list-map-keys", texts(keys));
        }
        MergeStrategy::Set => say("list-type", "set".into()),
        MergeStrategy::Atomic => say(if list { "list-type" } else { "map-type" }, "atomic".into()),
        MergeStrategy::Granular => {}
    }
    let patch = match &strategies.patch {
        MergeStrategy::ByKey(keys) => {
            say("patch-merge-key", keys.first().map_or(Value::Null, |key| Value::from(&**key)));
            "merge"
        }
        MergeStrategy::Set => "merge",
        MergeStrategy::Atomic if !list => "replace",
        MergeStrategy::Atomic | MergeStrategy::Granular => "",
    };
    match (patch, strategies.retain_keys) {
        ("", false) => {}
        (patch, false) => say("patch-strategy", patch.into()),
        ("", true) => say("patch-strategy", "retainKeys".into()),
        (patch, true) => say("patch-strategy", format!("{patch},retainKeys").into()),
    }
}

fn texts(keys: &[Box<str>]) -> Value {
    Value::Array(keys.iter().map(|key| Value::from(&**key)).collect())
}
