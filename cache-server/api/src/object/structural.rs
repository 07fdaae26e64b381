//! Enforces the schema of a custom resource: [`complete`] drops what the schema does not know and fills in its defaults,
//! [`check`] refuses values that it does not allow.
//!
//! Not implemented, on purpose: `pattern`, `format`, `allOf`, `anyOf`, `oneOf`, `not`, and rules in CEL.
//!
//! INVARIANT: texts of paths are built only for violations.
//!
//! Source: apiextensions-apiserver `pkg/apiserver/schema/{pruning,defaulting}`, `pkg/apiserver/validation`.

mod complete;
mod values;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::{Map, Value};

pub use self::{complete::complete, values::check};
use crate::registry::ResourceType;

/// Nesting of values that is enforced; deeper ones are kept as they were sent.
const DEPTH_MAX: usize = 64;

/// Members of every object, which have a schema of their own.
const OF_EVERY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

type SchemaObject = Map<String, Value>;

/// The schema of a type, parsed once; null without one.
struct ParsedSchema(Value);

fn parsed(ty: &ResourceType) -> Option<Arc<ParsedSchema>> {
    let custom = ty.custom.as_ref()?;
    Some(ty.derived.get_or_make(|| ParsedSchema(custom.read_schema())))
}

fn properties(schema: &SchemaObject) -> Option<&SchemaObject> {
    schema.get("properties").and_then(Value::as_object)
}

/// Returns the schema of a member of an object.
fn member<'a>(schema: &'a SchemaObject, name: &str) -> Option<&'a SchemaObject> {
    let known = properties(schema).and_then(|properties| properties.get(name)).and_then(Value::as_object);
    known.or_else(|| schema.get("additionalProperties").and_then(Value::as_object))
}

/// Returns the schema of the items of a list.
fn items(schema: &SchemaObject) -> Option<&SchemaObject> {
    schema.get("items").and_then(Value::as_object)
}

fn flag(schema: &SchemaObject, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or_default()
}

fn strings<'a>(schema: &'a SchemaObject, name: &str) -> impl Iterator<Item = &'a str> {
    schema.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}
