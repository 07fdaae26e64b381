//! Enforces the schema of a custom resource: [`complete`] drops what the schema does not know and fills in its defaults,
//! [`check`] refuses values that it does not allow.
//!
//! Not implemented, on purpose: `pattern`, `format` of strings, `multipleOf`, `allOf`, `anyOf`, `oneOf`, `not`, rules in CEL,
//! and the rules for names and labels in the metadata of embedded objects.
//!
//! INVARIANT: texts of paths are built only for violations.
//!
//! Source: apiextensions-apiserver `pkg/apiserver/schema/{pruning,defaulting,listtype}`, `pkg/apiserver/validation`.

mod complete;
mod lists;
mod numbers;
mod values;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::{Map, Value};

pub use self::{
    complete::{complete, complete_stored},
    values::check,
};
use super::validation::ValuePath;
use crate::registry::ResourceType;

/// Nesting of values that is enforced; deeper ones are kept as they were sent.
const DEPTH_MAX: usize = 64;

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const LIST_TYPE: &str = "x-kubernetes-list-type";
const LIST_KEYS: &str = "x-kubernetes-list-map-keys";

/// Names of the properties with defaults. [`parsed`] adds it to each schema, so that a small object does not cost a look-up
/// for each property of a large one.
const DEFAULTED: &str = "x-cache-server-defaulted";

type SchemaObject = Map<String, Value>;

/// The schema of a type, parsed once; null without one.
struct ParsedSchema(Value);

fn parsed(ty: &ResourceType) -> Option<Arc<ParsedSchema>> {
    let custom = ty.custom.as_ref()?;
    Some(ty.derived.get_or_make(|| {
        let mut schema = custom.read_schema();
        note_defaults(&mut schema);
        ParsedSchema(schema)
    }))
}

/// Adds [`DEFAULTED`] to a schema and to those in it.
fn note_defaults(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    let mut names = Vec::new();
    for (name, property) in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        if property.as_object().and_then(default).is_some() {
            names.push(Value::from(name.as_str()));
        }
        note_defaults(property);
    }
    for inner in ["items", "additionalProperties"] {
        schema.get_mut(inner).into_iter().for_each(note_defaults);
    }
    schema.insert(DEFAULTED.to_owned(), names.into());
}

/// A schema, and the place of the value that it is for.
struct SchemaNode<'a> {
    schema: &'a SchemaObject,
    path: ValuePath<'a>,
    depth: usize,
}

impl SchemaNode<'_> {
    /// Starts at the schema of whole objects.
    const fn root(schema: &SchemaObject) -> SchemaNode<'_> {
        SchemaNode { schema, path: ValuePath::Root, depth: 0 }
    }

    /// Returns the node of a member of an object; `None` if it has no schema.
    fn member<'b>(&'b self, name: &'b str) -> Option<SchemaNode<'b>> {
        let schema = member(self.schema, name)?;
        Some(SchemaNode { schema, path: ValuePath::Key(&self.path, name), depth: self.depth + 1 })
    }

    /// Returns the node of an item of a list; `None` if items have no schema.
    fn item(&self, at: usize) -> Option<SchemaNode<'_>> {
        let schema = self.schema.get("items").and_then(Value::as_object)?;
        Some(SchemaNode { schema, path: ValuePath::Item(&self.path, at), depth: self.depth + 1 })
    }
}

fn properties(schema: &SchemaObject) -> Option<&SchemaObject> {
    schema.get("properties").and_then(Value::as_object)
}

/// Returns the schema of a member of an object.
fn member<'a>(schema: &'a SchemaObject, name: &str) -> Option<&'a SchemaObject> {
    let known = properties(schema).and_then(|properties| properties.get(name)).and_then(Value::as_object);
    known.or_else(|| schema.get("additionalProperties").and_then(Value::as_object))
}

/// Returns the value of absent members.
fn default(schema: &SchemaObject) -> Option<&Value> {
    schema.get("default").filter(|default| !default.is_null())
}

/// Returns true if items of the list are identified by some of their members.
fn is_keyed(list: &SchemaObject) -> bool {
    list.get(LIST_TYPE).and_then(Value::as_str) == Some("map")
}

fn flag(schema: &SchemaObject, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or_default()
}

fn strings<'a>(schema: &'a SchemaObject, name: &str) -> impl Iterator<Item = &'a str> {
    schema.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}
