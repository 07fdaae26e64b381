//! Checks that the items of a set, and the keys of a map in a list, are unique.

use std::collections::HashMap;

use api_rules::object::{Object, validation::ValuePath};
use informer_serving::{
    go::quote,
    status::{CauseExt as _, Causes, StatusCause},
};
use serde_json::Value;

use super::{LIST_KEYS, LIST_TYPE, SchemaNode, SchemaObject, each_value, is_keyed, strings};
use crate::limits::LIST_KEYS_MAX;

/// Adds causes for equal items, unless the stored object has some: a definition may have become stricter since.
pub(super) fn check(object: &Object, stored: Option<&Object>, root: &SchemaNode<'_>, causes: &mut Causes) {
    let find = |object: &Object| {
        let mut found = Causes::default();
        each_value(object, root, &mut |value: &Value, node: &SchemaNode<'_>| {
            if let Value::Array(list) = value {
                unique(list, node, &mut found);
            }
        });
        found
    };
    let found = find(object);
    if !found.is_empty() && stored.is_none_or(|stored| find(stored).is_empty()) {
        causes.append(found);
    }
}

/// Adds a cause for the second of equal items.
fn unique(list: &[Value], node: &SchemaNode<'_>, causes: &mut Causes) {
    let is_set = node.schema.get(LIST_TYPE).and_then(Value::as_str) == Some("set");
    if !is_set && !is_keyed(node.schema) {
        return;
    }
    let at = |at| ValuePath::Item(&node.path, at).text();
    let is_item = |item: &Value| item.is_object() || item.is_null();
    if let Some(other) = list.iter().position(|item| !is_set && !is_item(item)) {
        let why = "must be an object for an array of list-type map";
        let shown = list[other].as_str().map_or_else(|| list[other].to_string(), quote);
        causes.push_with(|| StatusCause::invalid(&at(other), &shown, why));
        return;
    }
    // True once a cause was added.
    let mut seen: HashMap<String, bool> = HashMap::new();
    for (place, item) in list.iter().enumerate() {
        let identity = if is_set { item.to_string() } else { Value::Object(keys(item, node.schema)).to_string() };
        match seen.get_mut(&identity) {
            Some(true) => {}
            Some(is_reported) => {
                *is_reported = true;
                causes.push_with(|| StatusCause::duplicate(&at(place), &identity));
            }
            None => drop(seen.insert(identity, false)),
        }
    }
}

/// Returns the members of an item that identify it in its list.
pub(super) fn keys(item: &Value, list: &SchemaObject) -> Object {
    key_names(list).filter_map(|name| Some((name.to_owned(), item.get(name)?.clone()))).collect()
}

/// Returns the names of the members that identify items. Names beyond [`LIST_KEYS_MAX`] identify nothing.
pub(super) fn key_names(list: &SchemaObject) -> impl Iterator<Item = &str> {
    strings(list, LIST_KEYS).take(LIST_KEYS_MAX)
}
