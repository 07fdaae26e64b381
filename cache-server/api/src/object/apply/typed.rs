//! Computes the set of fields that a configuration sets, and validates the configuration against the schema.
//!
//! INVARIANT: messages contain field names and keys of lists, never other values.
//!
//! Source: structured-merge-diff `typed/{validate,tofieldset,helpers}.go`.

use std::collections::HashSet;

use informer_serving::go::json_type;
use serde_json::{Map, Value};

use super::super::{
    body::Object,
    managed::{self, FieldSet},
};
use crate::{
    limits::STRICT_ERRORS_MAX,
    schemas::{JsonKind, Merge, ShapeMember, ValueShape},
};

/// Default values of list keys that may be left out: the type of the items, or empty for any, the key and its value.
const KEY_DEFAULTS: [(&str, &str, &str); 2] = [("", "protocol", "TCP"), ("LocalObjectReference", "name", "")];

/// Returns the fields that `config` sets.
///
/// # Errors
/// All schema violations, in Kubernetes' words.
pub(crate) fn fields(config: &Object, shape: &ValueShape) -> Result<FieldSet, String> {
    let mut walk = ApplyWalk::default();
    let fields = walk.object(config, Some(shape));
    if walk.errors.is_empty() {
        return Ok(fields);
    }
    // Again, to know where the errors are.
    let mut walk = ApplyWalk { path: Some(String::new()), ..ApplyWalk::default() };
    let fields = walk.object(config, Some(shape));
    match walk.errors.as_slice() {
        [] => Ok(fields),
        [one] => Err(one.clone()),
        several => Err(format!("errors:\n  {}", several.join("\n  "))),
    }
}

/// Returns the shape of a member; `None` if the schema does not know it.
pub(crate) fn member(shape: Option<&ValueShape>, name: &str) -> Option<ValueShape> {
    match shape?.member(name) {
        ShapeMember::Known(inner) | ShapeMember::Free(Some(inner)) => Some(inner),
        ShapeMember::Free(None) | ShapeMember::Unknown => None,
    }
}

/// Returns true if members of the object have owners of their own, instead of the object as a whole.
pub(crate) fn is_granular(shape: Option<&ValueShape>) -> bool {
    shape.is_none_or(|shape| shape.apply() == Merge::Granular)
}

/// Returns true if items of the list have owners of their own.
pub(crate) fn is_associative(shape: Option<&ValueShape>) -> bool {
    shape.is_some_and(|shape| matches!(shape.apply(), Merge::Set | Merge::ByKey(_)))
}

/// Returns the step to an item of a list.
///
/// # Errors
/// The reason if the item has no key.
pub(crate) fn step(shape: &ValueShape, item: &Value) -> Result<String, String> {
    let Merge::ByKey(names) = shape.apply() else { return Ok(managed::step_of_value(item)) };
    let Value::Object(item) = item else {
        return Err("associative list with keys may not have non-map elements".to_owned());
    };
    if let [name] = names
        && let Some(value) = item.get(&**name)
    {
        return Ok(managed::step_of_key(name, value));
    }
    let mut keys = Map::new();
    for name in names {
        if let Some(value) = item.get(&**name).cloned().or_else(|| key_default(shape, name)) {
            keys.insert(name.to_string(), value);
        }
    }
    if keys.is_empty() {
        let names = names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" ");
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{names}] (and doesn't have default \
             values for any key fields)"
        ));
    }
    Ok(managed::step_of_keys(keys))
}

fn key_default(list: &ValueShape, key: &str) -> Option<Value> {
    let item = list.item();
    let ty = item.as_ref().map_or("", ValueShape::type_name);
    let is_its = |(of, name, _): &&(&str, &str, &str)| *name == key && (of.is_empty() || *of == ty);
    KEY_DEFAULTS.iter().find(is_its).map(|(_, _, value)| Value::from(*value))
}

/// Formats a step for messages. Keys are names; items of a set are values, which must not be repeated.
fn shown(step: &str) -> String {
    if step.starts_with("v:") { "[=...]".to_owned() } else { managed::shown(step) }
}

#[derive(Default)]
struct ApplyWalk {
    /// `None`: the walk only finds out whether there are errors.
    path: Option<String>,
    errors: Vec<String>,
}

impl ApplyWalk {
    fn refuse(&mut self, why: &str) {
        if self.errors.len() < STRICT_ERRORS_MAX {
            self.errors.push(format!("{}: {why}", self.path.as_deref().unwrap_or_default()));
        }
    }

    /// Runs `inside` one step further down.
    fn at<T>(&mut self, step: &str, inside: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.path.as_ref().map_or(0, String::len);
        if let Some(path) = &mut self.path {
            path.push_str(&shown(step));
        }
        let value = inside(self);
        if let Some(path) = &mut self.path {
            path.truncate(before);
        }
        value
    }

    fn object(&mut self, object: &Object, shape: Option<&ValueShape>) -> FieldSet {
        let mut fields = FieldSet::default();
        for (name, value) in object {
            let step = ["f:", name].concat();
            let below = self.at(&step, |walk| walk.member(name, value, shape));
            if !below.is_empty() {
                fields.inside.insert(step, below);
            }
        }
        fields
    }

    fn member(&mut self, name: &str, value: &Value, shape: Option<&ValueShape>) -> FieldSet {
        let (inner, is_named) = match shape.map(|shape| shape.member(name)) {
            Some(ShapeMember::Known(inner)) => (Some(inner), true),
            Some(ShapeMember::Free(inner)) => (inner, false),
            None => (None, false),
            Some(ShapeMember::Unknown) => {
                self.refuse("field not declared in schema");
                return FieldSet::default();
            }
        };
        let mut below = self.value(value, inner.as_ref());
        // A map key counts as a field by itself, and so does an empty object.
        below.own |= !is_named || value.as_object().is_some_and(Map::is_empty);
        below
    }

    fn value(&mut self, value: &Value, shape: Option<&ValueShape>) -> FieldSet {
        if let Some(shape) = shape.filter(|shape| !shape.fits(value) && !value.is_null()) {
            self.mistyped(value, shape);
            return FieldSet::default();
        }
        match value {
            Value::Object(object) if is_granular(shape) => self.object(object, shape),
            Value::Array(items) if is_associative(shape) => self.items(items, shape),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                FieldSet::leaf()
            }
        }
    }

    fn mistyped(&mut self, value: &Value, shape: &ValueShape) {
        let expected = match shape.kind() {
            JsonKind::Object => "map",
            JsonKind::Array => "list",
            JsonKind::String | JsonKind::IntOrString | JsonKind::Quantity | JsonKind::Any => "string",
            JsonKind::Integer | JsonKind::Number => "numeric (int or float)",
            JsonKind::Boolean => "boolean",
        };
        self.refuse(&format!("expected {expected}, got {}", json_type(value)));
    }

    fn items(&mut self, items: &[Value], shape: Option<&ValueShape>) -> FieldSet {
        let mut fields = FieldSet::default();
        let Some(shape) = shape else { return fields };
        let inner = shape.item();
        let mut seen = HashSet::new();
        for (at, item) in items.iter().enumerate() {
            let step = match step(shape, item) {
                Ok(step) => step,
                Err(why) => {
                    self.refuse(&format!("element {at}: {why}"));
                    continue;
                }
            };
            if !seen.insert(step.clone()) {
                self.refuse(&format!("duplicate entries for key {}", shown(&step)));
                continue;
            }
            let mut below = self.at(&step, |walk| walk.value(item, inner.as_ref()));
            below.own = true;
            fields.inside.insert(step, below);
        }
        fields
    }
}
