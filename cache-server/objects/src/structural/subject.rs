//! A value to validate, and the stored value that it replaces: violations by an unchanged value are no cause, because a
//! definition may have become stricter since.
//!
//! Source: apiserver `pkg/cel/common/equality.go`.

use std::collections::HashMap;

use api_rules::object::{Object, validation::ValuePath};
use serde_json::Value;

use super::{SchemaNode, SchemaObject, is_keyed, lists, member};

/// A whole object, or a value in one.
#[derive(Clone, Copy)]
pub(super) enum ValueView<'a> {
    Whole(&'a Object),
    Part(&'a Value),
}

impl<'a> ValueView<'a> {
    fn object(self) -> Option<&'a Object> {
        match self {
            Self::Whole(object) => Some(object),
            Self::Part(value) => value.as_object(),
        }
    }

    fn list(self) -> &'a [Value] {
        match self {
            Self::Part(Value::Array(list)) => list,
            Self::Part(_) | Self::Whole(_) => &[],
        }
    }
}

/// A value to validate.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) view: ValueView<'a>,
    /// The value that this one replaces, if it is known.
    pub(super) stored: Option<ValueView<'a>>,
}

impl<'a> Subject<'a> {
    /// Returns true if the stored value is equal.
    pub(super) fn is_unchanged(&self, schema: &SchemaObject) -> bool {
        self.stored.is_some_and(|stored| is_equal(self.view, stored, schema))
    }

    /// Returns a member of the object.
    pub(super) fn member(&self, name: &str, value: &'a Value, node: &SchemaNode<'_>) -> Self {
        // kube-apiserver compares objects of one version, so it does not compare these.
        let is_converted = matches!(node.path, ValuePath::Root) && ["apiVersion", "kind"].contains(&name);
        let stored = self.stored.and_then(ValueView::object).filter(|_| !is_converted);
        Self { view: ValueView::Part(value), stored: stored.and_then(|stored| stored.get(name)).map(ValueView::Part) }
    }

    /// Returns the stored items that replace others, by their keys.
    pub(super) fn stored_items(&self, list: &SchemaObject) -> KeyedItems<'a> {
        if is_keyed(list) {
            KeyedItems::new(self.stored.map_or(&[], ValueView::list), list)
        } else {
            KeyedItems::default()
        }
    }
}

/// Items of a list by the members that identify them.
#[derive(Default)]
pub(super) struct KeyedItems<'a>(HashMap<String, &'a Value>);

impl<'a> KeyedItems<'a> {
    fn new(list: &'a [Value], schema: &SchemaObject) -> Self {
        Self(list.iter().filter_map(|item| Some((key(item, schema)?, item))).collect())
    }

    /// Returns the item with the keys of another one.
    pub(super) fn like(&self, item: &Value, schema: &SchemaObject) -> Option<&'a Value> {
        if self.0.is_empty() { None } else { self.0.get(&key(item, schema)?).copied() }
    }
}

/// Returns a text of the members that identify an item of a keyed list.
fn key(item: &Value, list: &SchemaObject) -> Option<String> {
    let keys = lists::keys(item, list);
    (keys.len() == lists::key_names(list).count()).then(|| Value::Object(keys).to_string())
}

/// Compares values. Members without a schema differ always, and items of keyed lists may be in another order.
fn is_equal(view: ValueView<'_>, stored: ValueView<'_>, schema: &SchemaObject) -> bool {
    if let (Some(object), Some(stored)) = (view.object(), stored.object()) {
        let is_member_equal = |(name, value): (&String, &Value)| {
            let (Some(stored), Some(schema)) = (stored.get(name), member(schema, name)) else { return false };
            is_equal(ValueView::Part(value), ValueView::Part(stored), schema)
        };
        return object.len() == stored.len() && object.iter().all(is_member_equal);
    }
    let (ValueView::Part(value), ValueView::Part(stored)) = (view, stored) else { return false };
    match (value, stored, schema.get("items").and_then(Value::as_object)) {
        (Value::Array(list), Value::Array(stored), Some(items)) if is_keyed(schema) && list.len() == stored.len() => {
            let stored_items = KeyedItems::new(stored, schema);
            list.iter().all(|item| {
                let stored = stored_items.like(item, schema);
                stored.is_some_and(|stored| is_equal(ValueView::Part(item), ValueView::Part(stored), items))
            })
        }
        (value, stored, _) => value == stored,
    }
}
