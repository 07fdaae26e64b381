//! Enforces the schema of a custom resource: drops members that it does not know, fills in its defaults, and checks values.
//!
//! Not implemented, on purpose: `pattern`, `format`, `allOf`, `anyOf`, `oneOf`, `not`, and rules in CEL.
//!
//! Source: apiextensions-apiserver `pkg/apiserver/schema/{pruning,defaulting}`, `pkg/apiserver/validation`.

use informer_serving::{
    go::quote,
    status::{CauseExt as _, CauseReason, Causes, Status, StatusCause, StatusExt as _},
};
use serde_json::{Map, Value};

use super::{Object, metadata};
use crate::{limits::STRICT_ERRORS_MAX, registry::ResourceType};

/// Nesting of values that is enforced; deeper ones are kept as they were sent.
const DEPTH_MAX: usize = 64;

/// Members of every object, which have a schema of their own.
const OF_EVERY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// The schema of a type, parsed once.
struct ParsedSchema(Value);

/// Drops unknown members of a custom resource, then fills in defaults. Returns the paths of the unknown members, at most
/// [`STRICT_ERRORS_MAX`]. Leaves built-in types unchanged.
///
/// # Errors
/// 422 for values that the schema does not allow.
pub fn enforce(ty: &ResourceType, object: &mut Object) -> Result<Vec<String>, Status> {
    let Some(custom) = &ty.custom else { return Ok(Vec::new()) };
    let schema = ty.derived.get_or_make(|| ParsedSchema(custom.read_schema()));
    let Some(schema) = schema.0.as_object() else { return Ok(Vec::new()) };
    let mut walk = SchemaWalk { keeps_unknown: custom.preserve_unknown_fields, ..SchemaWalk::default() };
    walk.members(object, schema, "", 0);
    if !walk.causes.is_empty() {
        let name = metadata::text(object, "name");
        return Err(Status::invalid(&ty.group, &ty.kind, name, walk.causes));
    }
    Ok(walk.unknown)
}

type SchemaObject = Map<String, Value>;

#[derive(Default)]
struct SchemaWalk {
    keeps_unknown: bool,
    unknown: Vec<String>,
    causes: Causes,
}

impl SchemaWalk {
    fn members(&mut self, object: &mut Object, schema: &SchemaObject, path: &str, depth: usize) {
        self.prune(object, schema, path);
        let (properties, values) = (properties(schema), schema.get("additionalProperties").and_then(Value::as_object));
        for (name, inner) in properties.into_iter().flatten() {
            fill_in(object, name, inner);
        }
        let is_whole = path.is_empty() || flag(schema, EMBEDDED);
        for (name, value) in object.iter_mut() {
            if is_whole && OF_EVERY_OBJECT.contains(&name.as_str()) {
                continue;
            }
            let known = properties.and_then(|properties| properties.get(name)).and_then(Value::as_object);
            if let Some(inner) = known.or(values) {
                self.value(value, inner, &joined(path, name), depth + 1);
            }
        }
        for name in strings(schema, "required") {
            if !object.contains_key(name) {
                self.causes.push(StatusCause::required(&joined(path, name), ""));
            }
        }
        self.bounds(object.len(), schema, path, ["minProperties", "maxProperties"], "properties");
    }

    /// Removes the members that the schema does not know.
    fn prune(&mut self, object: &mut Object, schema: &SchemaObject, path: &str) {
        let takes_any = match schema.get("additionalProperties") {
            None | Some(Value::Bool(false)) => false,
            Some(_) => true,
        };
        if self.keeps_unknown || takes_any || flag(schema, PRESERVE) {
            return;
        }
        let (properties, is_whole) = (properties(schema), path.is_empty() || flag(schema, EMBEDDED));
        let unknown = &mut self.unknown;
        object.retain(|name, _| {
            let is_known = properties.is_some_and(|properties| properties.contains_key(name))
                || is_whole && OF_EVERY_OBJECT.contains(&name.as_str());
            if !is_known && unknown.len() < STRICT_ERRORS_MAX {
                unknown.push(joined(path, name));
            }
            is_known
        });
    }

    fn value(&mut self, value: &mut Value, schema: &SchemaObject, path: &str, depth: usize) {
        if depth == DEPTH_MAX || value.is_null() && flag(schema, "nullable") {
            return;
        }
        if !has_type(value, schema) {
            self.refuse(path, value, &format!("must be of type {}: {}", expected_type(schema), quote(type_of(value))));
            return;
        }
        match value {
            Value::Object(object) => self.members(object, schema, path, depth),
            Value::Array(items) => {
                if let Some(inner) = schema.get("items").and_then(Value::as_object) {
                    for (at, item) in items.iter_mut().enumerate() {
                        self.value(item, inner, &format!("{path}[{at}]"), depth + 1);
                    }
                }
                self.bounds(items.len(), schema, path, ["minItems", "maxItems"], "items");
            }
            Value::String(text) => {
                self.bounds(text.chars().count(), schema, path, ["minLength", "maxLength"], "chars long");
            }
            Value::Number(_) => self.range(value, schema, path),
            Value::Null | Value::Bool(_) => {}
        }
        self.choice(value, schema, path);
    }

    /// Checks a length against a lower and an upper bound.
    fn bounds(&mut self, length: usize, schema: &SchemaObject, path: &str, names: [&str; 2], what: &str) {
        let [least, most] = names.map(|name| schema.get(name).and_then(Value::as_u64));
        let has = if what == "chars long" { "be" } else { "have" };
        if let Some(least) = least.filter(|least| (length as u64) < *least) {
            let why = format!("{path} in body should {has} at least {least} {what}");
            self.causes.push_with(|| StatusCause::invalid(path, &length.to_string(), &why));
        }
        if let Some(most) = most.filter(|most| *most < length as u64) {
            let text = match what {
                "chars long" => format!("Too long: may not be more than {most} bytes"),
                _ => format!("Too many: {length}: must have at most {most} items"),
            };
            let reason =
                if what == "chars long" { CauseReason::FieldValueTooLong } else { CauseReason::FieldValueTooMany };
            self.causes.push_with(|| StatusCause::new(reason, path, &text));
        }
    }

    /// Checks a number against its bounds.
    fn range(&mut self, value: &Value, schema: &SchemaObject, path: &str) {
        let number = value.as_f64().unwrap_or_default();
        let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
        if let Some(least) = bound("minimum") {
            let is_open = flag(schema, "exclusiveMinimum");
            if number < least || is_open && number <= least {
                let or_equal = if is_open { "" } else { " or equal to" };
                self.refuse(path, value, &format!("should be greater than{or_equal} {least}"));
            }
        }
        if let Some(most) = bound("maximum") {
            let is_open = flag(schema, "exclusiveMaximum");
            if number > most || is_open && number >= most {
                let or_equal = if is_open { "" } else { " or equal to" };
                self.refuse(path, value, &format!("should be less than{or_equal} {most}"));
            }
        }
    }

    /// Checks that a value is one of those that the schema lists.
    fn choice(&mut self, value: &Value, schema: &SchemaObject, path: &str) {
        let Some(allowed) = schema.get("enum").and_then(Value::as_array) else { return };
        if allowed.contains(value) {
            return;
        }
        let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let texts: Vec<String> = allowed.iter().map(plain).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        self.causes.push_with(|| StatusCause::not_supported(path, &plain(value), &texts));
    }

    /// Adds a cause about a value.
    fn refuse(&mut self, path: &str, value: &Value, why: &str) {
        let shown = match value {
            Value::String(text) => quote(text),
            Value::Object(_) | Value::Array(_) => quote(type_of(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        };
        self.causes.push_with(|| StatusCause::invalid(path, &shown, &format!("{path} in body {why}")));
    }
}

/// Gives an absent member its default. A null that the schema does not allow counts as absent if there is a default.
fn fill_in(object: &mut Object, name: &str, schema: &Value) {
    let Some(default) = schema.get("default").filter(|default| !default.is_null()) else { return };
    let is_nullable = schema.get("nullable").and_then(Value::as_bool).unwrap_or_default();
    if object.get(name).is_none_or(|value| value.is_null() && !is_nullable) {
        object.insert(name.to_owned(), default.clone());
    }
}

fn properties(schema: &SchemaObject) -> Option<&SchemaObject> {
    schema.get("properties").and_then(Value::as_object)
}

fn flag(schema: &SchemaObject, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or_default()
}

fn strings<'a>(schema: &'a SchemaObject, name: &str) -> impl Iterator<Item = &'a str> {
    schema.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn expected_type(schema: &SchemaObject) -> &str {
    schema.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn has_type(value: &Value, schema: &SchemaObject) -> bool {
    if flag(schema, INT_OR_STRING) {
        return value.is_i64() || value.is_string();
    }
    match (expected_type(schema), value) {
        ("object", Value::Object(_))
        | ("array", Value::Array(_))
        | ("string", Value::String(_))
        | ("boolean", Value::Bool(_))
        | ("number", Value::Number(_))
        | ("", _) => true,
        ("integer", Value::Number(number)) => number.is_i64() || number.as_f64().is_some_and(|it| it.fract() == 0.0),
        (_, _) => false,
    }
}

const fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::registry::{Custom, Registry};

    /// A type `widgets.example.com` with this schema of `spec`.
    fn widgets(spec: &Value) -> ResourceType {
        let builtin = Registry::builtin().find("", "v1", "configmaps").expect("a built-in type");
        let mut ty = Arc::into_inner(builtin).unwrap_or_else(|| unreachable!("the registry is gone"));
        let schema = json!({"type": "object", "properties": {"spec": spec}}).to_string();
        let custom = Custom { schema: schema.into(), printer_columns: Value::Null, preserve_unknown_fields: false };
        (ty.custom, ty.kind) = (Some(Arc::new(custom)), "Widget".to_owned());
        ty
    }

    fn enforced(schema: &Value, spec: &Value) -> Result<(Value, Vec<String>), String> {
        let object = json!({"kind": "Widget", "apiVersion": "v1", "metadata": {"name": "a", "x": 1}, "spec": spec});
        let Value::Object(mut object) = object else { unreachable!("an object") };
        let unknown = enforce(&widgets(schema), &mut object).map_err(|status| status.message.to_string())?;
        assert_eq!(object["metadata"]["x"], 1, "metadata is checked elsewhere");
        Ok((object.remove("spec").unwrap_or_default(), unknown))
    }

    #[test]
    fn unknown_members_are_dropped_and_reported() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "string"},
            "free": {"type": "object", PRESERVE: true},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"b": {"type": "integer"}}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"c": {"type": "boolean"}}}},
        }});
        let sent =
            json!({"a": "x", "z": 1, "free": {"y": 1}, "map": {"k": {"b": 1, "y": 2}}, "list": [{"c": true, "d": 1}]});
        let (rest, unknown) = enforced(&schema, &sent).expect("is valid");
        assert_eq!(rest, json!({"a": "x", "free": {"y": 1}, "map": {"k": {"b": 1}}, "list": [{"c": true}]}));
        assert_eq!(unknown, ["spec.z", "spec.list[0].d", "spec.map.k.y"]);
    }

    #[test]
    fn defaults_fill_absent_members_inside_of_those_that_are_there() {
        let schema = json!({"type": "object", "properties": {
            "size": {"type": "integer", "default": 3},
            "note": {"type": "string", "default": "x", "nullable": true},
            "parts": {"type": "array", "items": {"type": "object", "properties": {"on": {"type": "boolean", "default": true}}}},
            "outer": {"type": "object", "default": {}, "properties": {"inner": {"type": "string", "default": "y"}}},
            "absent": {"type": "object", "properties": {"inner": {"type": "string", "default": "y"}}},
        }});
        let (filled, _) =
            enforced(&schema, &json!({"size": null, "note": null, "parts": [{}, {"on": false}]})).expect("is valid");
        assert_eq!(
            filled,
            json!({"size": 3, "note": null, "parts": [{"on": true}, {"on": false}], "outer": {"inner": "y"}})
        );
    }

    #[test]
    fn values_that_the_schema_does_not_allow_are_refused() {
        let schema = json!({"type": "object", "required": ["needed"], "properties": {
            "needed": {"type": "boolean"},
            "count": {"type": "integer", "minimum": 1, "maximum": 5},
            "name": {"type": "string", "minLength": 2, "maxLength": 3},
            "mode": {"type": "string", "enum": ["on", "off"]},
            "items": {"type": "array", "maxItems": 1, "items": {"type": "string"}},
            "port": {INT_OR_STRING: true},
        }});
        for (spec, why) in [
            (json!({}), "spec.needed: Required value"),
            (json!({"needed": "x"}), "spec.needed in body must be of type boolean: \"string\""),
            (json!({"needed": true, "count": 0}), "spec.count in body should be greater than or equal to 1"),
            (json!({"needed": true, "count": 6}), "spec.count in body should be less than or equal to 5"),
            (json!({"needed": true, "count": 1.5}), "must be of type integer"),
            (json!({"needed": true, "name": "a"}), "spec.name in body should be at least 2 chars long"),
            (json!({"needed": true, "name": "abcd"}), "spec.name: Too long: may not be more than 3 bytes"),
            (
                json!({"needed": true, "mode": "x"}),
                "spec.mode: Unsupported value: \"x\": supported values: \"on\", \"off\"",
            ),
            (json!({"needed": true, "items": ["a", "b"]}), "spec.items: Too many: 2: must have at most 1 items"),
            (json!({"needed": true, "port": true}), "spec.port"),
        ] {
            let refused = enforced(&schema, &spec).expect_err("is refused");
            assert!(refused.starts_with("Widget \"a\" is invalid: ") && refused.contains(why), "{refused}");
        }
        let valid = json!({"needed": true, "count": 5, "name": "ab", "mode": "on", "items": ["a"], "port": "http"});
        assert_eq!(enforced(&schema, &valid).expect("is valid").0, valid);
    }
}
