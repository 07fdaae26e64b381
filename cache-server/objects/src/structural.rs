//! Enforces the schema of a custom resource: [`complete`] drops what the schema does not know and fills in its defaults,
//! [`check`] refuses values that it does not allow. [`check_patterns`] refuses a definition.
//!
//! Not implemented, on purpose: the rules for names and labels in the metadata of embedded objects.
//!
//! INVARIANT: texts of paths are built only for violations.
//!
//! Source: apiextensions-apiserver `pkg/apiserver/schema/{pruning,defaulting,listtype}`, `pkg/apiserver/validation`;
//! kube-openapi `pkg/validation`.

mod addresses;
mod branches;
pub(crate) mod cel;
mod complete;
mod embedded;
mod formats;
mod lists;
mod numbers;
mod patterns;
mod rules;
mod subject;
mod values;

#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use api_rules::{
    object::{Object, validation::ValuePath},
    registry::ResourceType,
};
use serde_json::{Map, Value};

pub(crate) use self::addresses::{is_cidr, is_ip};
pub use self::{
    complete::{complete, complete_stored, prune},
    patterns::check_patterns,
    rules::unenforced_rules,
    values::check,
};
use crate::{
    limits::PATTERN_STATES_MAX,
    pattern::{Pattern, PatternError},
};

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

/// Place of a schema's pattern among the compiled ones. [`parsed`] adds it.
const PATTERN: &str = "x-cache-server-pattern";

/// True in a schema with `allOf`, `anyOf`, `oneOf` or `not`. [`parsed`] adds it.
const BRANCHED: &str = "x-cache-server-branched";

type SchemaObject = Map<String, Value>;

/// The schema of a type, parsed once.
struct ParsedSchema {
    /// Null without one.
    schema: Value,
    patterns: Vec<Result<Pattern, PatternError>>,
}

fn parsed(ty: &ResourceType) -> Option<Arc<ParsedSchema>> {
    let custom = ty.custom.as_ref()?;
    Some(ty.derived.get_or_make(|| {
        let mut schema = custom.read_schema();
        let mut notes = SchemaNotes { patterns: Vec::new(), known: HashMap::new(), states_left: PATTERN_STATES_MAX };
        notes.add(&mut schema);
        ParsedSchema { schema, patterns: notes.patterns }
    }))
}

/// Prepares a schema, and compiles its patterns.
struct SchemaNotes {
    patterns: Vec<Result<Pattern, PatternError>>,
    /// Places of patterns by their texts: most occur many times.
    known: HashMap<String, usize>,
    states_left: usize,
}

impl SchemaNotes {
    /// Adds [`DEFAULTED`], [`PATTERN`] and [`BRANCHED`] to a schema and to those in it. Removes formats that are not validated.
    fn add(&mut self, schema: &mut Value) {
        let Some(schema) = schema.as_object_mut() else { return };
        let mut names = Vec::new();
        for (name, property) in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
            if property.as_object().and_then(default).is_some() {
                names.push(Value::from(name.as_str()));
            }
            self.add(property);
        }
        for inner in ["items", "additionalProperties", "not"] {
            schema.get_mut(inner).into_iter().for_each(|inner| self.add(inner));
        }
        for inner in ["allOf", "anyOf", "oneOf"] {
            schema.get_mut(inner).and_then(Value::as_array_mut).into_iter().flatten().for_each(|inner| self.add(inner));
        }
        if !formats::is_validated(schema) {
            schema.remove("format");
        }
        if ["allOf", "anyOf", "oneOf", "not"].iter().any(|inner| schema.contains_key(*inner)) {
            schema.insert(BRANCHED.to_owned(), true.into());
        }
        if let Some(text) = schema.get("pattern").and_then(Value::as_str).filter(|text| !text.is_empty()) {
            let at = self.pattern(text);
            schema.insert(PATTERN.to_owned(), at.into());
        }
        schema.insert(DEFAULTED.to_owned(), names.into());
    }

    fn pattern(&mut self, text: &str) -> usize {
        if let Some(at) = self.known.get(text) {
            return *at;
        }
        let at = self.patterns.len();
        self.patterns.push(Pattern::compile(text, &mut self.states_left));
        self.known.insert(text.to_owned(), at);
        at
    }
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

    /// Returns a node with another schema for the same value.
    fn with<'b>(&'b self, schema: &'b SchemaObject) -> SchemaNode<'b> {
        SchemaNode { schema, path: self.path, depth: self.depth }
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

/// Visits the values in an object that have schemas, outer ones first.
fn each_value(object: &Object, node: &SchemaNode<'_>, visit: &mut dyn FnMut(&Value, &SchemaNode<'_>)) {
    for (name, value) in object {
        let Some(inner) = node.member(name) else { continue };
        each_inner_value(value, &inner, visit);
    }
}

fn each_inner_value(value: &Value, node: &SchemaNode<'_>, visit: &mut dyn FnMut(&Value, &SchemaNode<'_>)) {
    if node.depth == DEPTH_MAX {
        return;
    }
    visit(value, node);
    match value {
        Value::Object(object) => each_value(object, node, visit),
        Value::Array(list) => {
            for (at, item) in list.iter().enumerate() {
                let Some(inner) = node.item(at) else { break };
                each_inner_value(item, &inner, visit);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
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
