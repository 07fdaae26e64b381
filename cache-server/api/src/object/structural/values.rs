//! Checks types, required members, enums and bounds.

use std::collections::HashMap;

use informer_serving::{
    go::quote,
    status::{CauseExt as _, CauseReason, Causes, Status, StatusCause, StatusExt as _},
};
use serde_json::Value;

use super::{
    super::{
        Object,
        metadata::{self, Part},
        validation::ValuePath,
    },
    DEPTH_MAX, EMBEDDED, INT_OR_STRING, OF_EVERY_OBJECT, SchemaObject, flag, items, member, parsed, strings,
};
use crate::registry::ResourceType;

/// Checks the part of a custom resource that a write may change. Violations by values that `stored` has too are no cause: a
/// definition may have become stricter since.
///
/// # Errors
/// 422 for values that the schema does not allow.
pub fn check(ty: &ResourceType, part: Part, object: &Object, stored: Option<&Object>) -> Result<(), Status> {
    let Some(parsed) = parsed(ty) else { return Ok(()) };
    let Some(schema) = parsed.0.as_object() else { return Ok(()) };
    let mut found = Violations::default();
    match part {
        Part::Main => found.members(object, stored, schema, &ValuePath::Root, 0),
        Part::Status => {
            if let (Some(status), Some(schema)) = (object.get("status"), member(schema, "status")) {
                let stored = stored.and_then(|stored| stored.get("status"));
                found.value(status, stored, schema, &ValuePath::Key(&ValuePath::Root, "status"), 1);
            }
        }
    }
    if found.causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&ty.group, &ty.kind, metadata::text(object, "name"), found.causes))
}

#[derive(Default)]
struct Violations {
    causes: Causes,
}

impl Violations {
    fn members(
        &mut self,
        object: &Object,
        stored: Option<&Object>,
        schema: &SchemaObject,
        path: &ValuePath<'_>,
        depth: usize,
    ) {
        let is_whole = matches!(path, ValuePath::Root) || flag(schema, EMBEDDED);
        for (name, value) in object {
            if is_whole && OF_EVERY_OBJECT.contains(&name.as_str()) {
                continue;
            }
            if let Some(inner) = member(schema, name) {
                let stored = stored.and_then(|stored| stored.get(name));
                self.value(value, stored, inner, &ValuePath::Key(path, name), depth + 1);
            }
        }
        for name in strings(schema, "required") {
            if !object.contains_key(name) && stored.is_none_or(|stored| stored.contains_key(name)) {
                self.causes.push_with(|| StatusCause::required(&ValuePath::Key(path, name).text(), ""));
            }
        }
        if let Some(crossed) = CrossedBound::of(object.len(), schema, ["minProperties", "maxProperties"])
            && stored != Some(object)
        {
            self.causes.push_with(|| crossed.cause(path, &object.len().to_string(), "properties"));
        }
    }

    fn value(
        &mut self,
        value: &Value,
        stored: Option<&Value>,
        schema: &SchemaObject,
        path: &ValuePath<'_>,
        depth: usize,
    ) {
        if depth == DEPTH_MAX || value.is_null() && flag(schema, "nullable") {
            return;
        }
        if !has_type(value, schema) {
            if stored != Some(value) {
                self.causes.push_with(|| mistyped(value, schema, path));
            }
            return;
        }
        match value {
            Value::Object(object) => {
                self.members(object, stored.and_then(Value::as_object), schema, path, depth);
            }
            Value::Array(list) => self.list(list, stored.and_then(Value::as_array), schema, path, depth),
            Value::String(text) => {
                if let Some(crossed) = CrossedBound::of(text.chars().count(), schema, ["minLength", "maxLength"])
                    && stored != Some(value)
                {
                    self.causes.push_with(|| crossed.cause(path, &quote(text), "chars long"));
                }
            }
            Value::Number(_) => {
                if stored != Some(value) {
                    self.range(value, schema, path);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
        let allowed = schema.get("enum").and_then(Value::as_array);
        if let Some(allowed) = allowed.filter(|allowed| !allowed.contains(value))
            && stored != Some(value)
        {
            self.causes.push_with(|| unsupported(value, allowed, path));
        }
    }

    /// Checks a list and its items. Those of a changed list are compared with stored ones only if keys tell which is which.
    fn list(
        &mut self,
        list: &[Value],
        stored: Option<&Vec<Value>>,
        schema: &SchemaObject,
        path: &ValuePath<'_>,
        depth: usize,
    ) {
        if stored.is_some_and(|stored| stored == list) {
            return;
        }
        if let Some(inner) = items(schema) {
            let before: HashMap<String, &Value> =
                stored.into_iter().flatten().filter_map(|item| Some((key(item, schema)?, item))).collect();
            for (at, item) in list.iter().enumerate() {
                let stored = if before.is_empty() { None } else { key(item, schema) };
                let stored = stored.and_then(|key| before.get(&key).copied());
                self.value(item, stored, inner, &ValuePath::Item(path, at), depth + 1);
            }
        }
        if let Some(crossed) = CrossedBound::of(list.len(), schema, ["minItems", "maxItems"]) {
            self.causes.push_with(|| crossed.cause(path, &list.len().to_string(), "items"));
        }
    }

    /// Checks a number against its bounds.
    fn range(&mut self, value: &Value, schema: &SchemaObject, path: &ValuePath<'_>) {
        let number = value.as_f64().unwrap_or_default();
        let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
        let mut refuse = |bound: f64, is_open: bool, than: &str| {
            self.causes.push_with(|| {
                let (path, or_equal) = (path.text(), if is_open { "" } else { " or equal to" });
                let why = format!("{path} in body should be {than} than{or_equal} {bound}");
                StatusCause::invalid(&path, &value.to_string(), &why)
            });
        };
        if let Some(least) = bound("minimum") {
            let is_open = flag(schema, "exclusiveMinimum");
            if number < least || is_open && number <= least {
                refuse(least, is_open, "greater");
            }
        }
        if let Some(most) = bound("maximum") {
            let is_open = flag(schema, "exclusiveMaximum");
            if number > most || is_open && number >= most {
                refuse(most, is_open, "less");
            }
        }
    }
}

/// A bound on a length that is not kept.
enum CrossedBound {
    Least(u64),
    /// The length, and its bound.
    Most(u64, u64),
}

impl CrossedBound {
    /// Compares a length with the lower and the upper bound of these names.
    fn of(length: usize, schema: &SchemaObject, names: [&str; 2]) -> Option<Self> {
        let (length, [least, most]) = (length as u64, names.map(|name| schema.get(name).and_then(Value::as_u64)));
        let least = least.filter(|least| length < *least).map(Self::Least);
        least.or_else(|| most.filter(|most| *most < length).map(|most| Self::Most(length, most)))
    }

    /// Builds the cause; `shown` is the value in it.
    fn cause(&self, path: &ValuePath<'_>, shown: &str, what: &str) -> StatusCause {
        let (path, is_text) = (path.text(), what == "chars long");
        match self {
            Self::Least(least) => {
                let has = if is_text { "be" } else { "have" };
                let why = format!("{path} in body should {has} at least {least} {what}");
                StatusCause::invalid(&path, shown, &why)
            }
            Self::Most(_, most) if is_text => {
                let text = format!("Too long: may not be more than {most} bytes");
                StatusCause::new(CauseReason::FieldValueTooLong, &path, &text)
            }
            Self::Most(length, most) => {
                let text = format!("Too many: {length}: must have at most {most} items");
                StatusCause::new(CauseReason::FieldValueTooMany, &path, &text)
            }
        }
    }
}

/// Returns a text of the members that identify an item of a list; `None` for lists without such members.
fn key(item: &Value, list: &SchemaObject) -> Option<String> {
    if list.get("x-kubernetes-list-type").and_then(Value::as_str) != Some("map") {
        return None;
    }
    let values: Option<Vec<&Value>> =
        strings(list, "x-kubernetes-list-map-keys").map(|name| item.as_object()?.get(name)).collect();
    serde_json::to_string(&values?).ok()
}

fn mistyped(value: &Value, schema: &SchemaObject, path: &ValuePath<'_>) -> StatusCause {
    let (path, expected, found) = (path.text(), expected_type(schema), quote(type_of(value)));
    let text = format!("Invalid value: {found}: {path} in body must be of type {expected}: {found}");
    StatusCause::new(CauseReason::FieldValueTypeInvalid, &path, &text)
}

fn unsupported(value: &Value, allowed: &[Value], path: &ValuePath<'_>) -> StatusCause {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let texts: Vec<String> = allowed.iter().map(plain).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    StatusCause::not_supported(&path.text(), &plain(value), &texts)
}

fn expected_type(schema: &SchemaObject) -> &str {
    if flag(schema, INT_OR_STRING) {
        return "integer,string";
    }
    schema.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn has_type(value: &Value, schema: &SchemaObject) -> bool {
    match (expected_type(schema), value) {
        ("object", Value::Object(_))
        | ("array", Value::Array(_))
        | ("string" | "integer,string", Value::String(_))
        | ("boolean", Value::Bool(_))
        | ("number", Value::Number(_))
        | ("", _) => true,
        ("integer" | "integer,string", Value::Number(number)) => {
            number.is_i64() || number.as_f64().is_some_and(|it| it.fract() == 0.0)
        }
        (_, _) => false,
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
