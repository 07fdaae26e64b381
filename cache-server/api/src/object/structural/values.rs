//! Checks types, required members, enums and bounds, and what embedded objects need.

use std::collections::HashMap;

use informer_serving::{
    go::{self, quote},
    limits::CAUSES_MAX,
    status::{CauseExt as _, CauseReason, Causes, Status, StatusCause, StatusExt as _},
};
use serde_json::Value;

use super::{
    super::{
        Object,
        metadata::{self, Part},
        validation::ValuePath,
    },
    DEPTH_MAX, EMBEDDED, INT_OR_STRING, SchemaNode, SchemaObject, flag, is_keyed, lists, numbers, parsed, strings,
};
use crate::{
    limits::{ALLOWED_BYTES_MAX, ALLOWED_VALUES_MAX},
    registry::{ResourceType, refuse_service_label},
};

/// Checks the part of a custom resource that a write may change. Violations by values that `stored` has too are no cause: a
/// definition may have become stricter since.
///
/// # Errors
/// 422 for values that the schema does not allow.
pub fn check(ty: &ResourceType, part: Part, object: &Object, stored: Option<&Object>) -> Result<(), Status> {
    let Some(parsed) = parsed(ty) else { return Ok(()) };
    let Some(schema) = parsed.0.as_object() else { return Ok(()) };
    let (mut found, root) = (Violations::default(), SchemaNode::root(schema));
    match part {
        Part::Main => found.members(object, stored, &root),
        Part::Status => {
            found.passes_embedded = true;
            if let (Some(status), Some(node)) = (object.get("status"), root.member("status")) {
                found.value(status, stored.and_then(|stored| stored.get("status")), &node);
            }
        }
    }
    lists::check(object, stored, &root, &mut found.causes);
    if found.causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&ty.group, &ty.kind, metadata::text(object, "name"), found.causes))
}

#[derive(Default)]
struct Violations {
    causes: Causes,
    /// True for a status, whose embedded objects kube-apiserver does not check.
    passes_embedded: bool,
}

impl Violations {
    fn members(&mut self, object: &Object, stored: Option<&Object>, node: &SchemaNode<'_>) {
        let SchemaNode { schema, path, .. } = node;
        if flag(schema, EMBEDDED) && !self.passes_embedded {
            self.embedded(object, path);
        }
        // kube-apiserver checks nothing else of an object with too few or too many members.
        if let Some(crossed) = CrossedBound::of(object.len(), schema, ["minProperties", "maxProperties"]) {
            if stored != Some(object) {
                self.causes.push_with(|| crossed.cause(path, &object.len().to_string(), "properties"));
            }
            return;
        }
        for (name, value) in object {
            if let Some(inner) = node.member(name) {
                self.value(value, stored.and_then(|stored| stored.get(name)), &inner);
            }
        }
        // More are not counted: each of many small objects may lack all of many members.
        let missing = strings(schema, "required").filter(|name| !object.contains_key(*name)).take(CAUSES_MAX + 1);
        let mut missing = missing.peekable();
        if missing.peek().is_some() && stored != Some(object) {
            for name in missing {
                self.causes.push_with(|| StatusCause::required(&ValuePath::Key(path, name).text(), ""));
            }
        }
    }

    /// Checks what kube-apiserver needs to know of an object in another one.
    fn embedded(&mut self, object: &Object, path: &ValuePath<'_>) {
        for name in ["apiVersion", "kind"] {
            let at = ValuePath::Key(path, name);
            let refuse = |shown: &str, why: &str| StatusCause::invalid(&at.text(), shown, why);
            match object.get(name) {
                None => self.causes.push_with(|| StatusCause::required(&at.text(), "")),
                Some(Value::String(text)) if text.is_empty() => {
                    self.causes.push_with(|| refuse("\"\"", "must not be empty"));
                }
                Some(Value::String(text)) if name == "kind" => {
                    let why = refuse_service_label(&text.to_ascii_lowercase());
                    if !why.is_empty() {
                        let why = format!("may have mixed case, but should otherwise match: {why}");
                        self.causes.push_with(|| refuse(&quote(text), &why));
                    }
                }
                Some(Value::String(text)) if text.matches('/').count() > 1 => {
                    let why = format!("unexpected GroupVersion string: {text}");
                    self.causes.push_with(|| refuse(&quote(text), &why));
                }
                Some(Value::String(_)) => {}
                Some(other) => self.causes.push_with(|| refuse(&other.to_string(), "must be a string")),
            }
        }
    }

    fn value(&mut self, value: &Value, stored: Option<&Value>, node: &SchemaNode<'_>) {
        let SchemaNode { schema, path, depth } = node;
        if *depth == DEPTH_MAX {
            return;
        }
        if !has_type(value, schema) && stored != Some(value) {
            self.causes.push_with(|| mistyped(value, schema, path));
        }
        match value {
            Value::Object(object) => self.members(object, stored.and_then(Value::as_object), node),
            Value::Array(list) => self.list(list, stored.and_then(Value::as_array), node),
            Value::String(text) => {
                if let Some(crossed) = CrossedBound::of(text.chars().count(), schema, ["minLength", "maxLength"])
                    && stored != Some(value)
                {
                    self.causes.push_with(|| crossed.cause(path, &quote(text), "chars long"));
                }
            }
            Value::Number(_) => {
                if stored != Some(value) {
                    numbers::check(value, schema, path, &mut self.causes);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
        // kube-apiserver finds null in no enum.
        let allowed = schema.get("enum").and_then(Value::as_array);
        if let Some(allowed) = allowed.filter(|allowed| {
            !allowed.is_empty() && (value.is_null() || !allowed.iter().any(|allowed| is_same(allowed, value)))
        }) && stored != Some(value)
        {
            self.causes.push_with(|| unsupported(value, allowed, path));
        }
    }

    /// Checks a list and its items. Those of a changed list are compared with stored ones only if keys tell which is which.
    fn list(&mut self, list: &[Value], stored: Option<&Vec<Value>>, node: &SchemaNode<'_>) {
        let SchemaNode { schema, path, .. } = node;
        if stored.is_some_and(|stored| stored == list) {
            return;
        }
        let before: HashMap<String, &Value> =
            stored.into_iter().flatten().filter_map(|item| Some((key(item, schema)?, item))).collect();
        for (at, item) in list.iter().enumerate() {
            let Some(inner) = node.item(at) else { break };
            let stored = if before.is_empty() { None } else { key(item, schema) };
            let stored = stored.and_then(|key| before.get(&key).copied());
            self.value(item, stored, &inner);
        }
        if let Some(crossed) = CrossedBound::of(list.len(), schema, ["minItems", "maxItems"]) {
            self.causes.push_with(|| crossed.cause(path, &list.len().to_string(), "items"));
        }
    }
}

/// A bound on a length that is not kept.
enum CrossedBound {
    Least(usize),
    /// The length, and its bound.
    Most(usize, usize),
}

impl CrossedBound {
    /// Compares a length with the lower and the upper bound of these names.
    fn of(length: usize, schema: &SchemaObject, names: [&str; 2]) -> Option<Self> {
        let bound = |name| schema.get(name).and_then(Value::as_u64).map(|bound| bound.try_into().unwrap_or(usize::MAX));
        let [least, most] = names.map(bound);
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
                let text = format!("Too long: may not be more than {most} byte{}", if *most == 1 { "" } else { "s" });
                StatusCause::new(CauseReason::FieldValueTooLong, &path, &text)
            }
            Self::Most(length, most) => StatusCause::too_many(&path, *length, *most),
        }
    }
}

/// Returns a text of the members that identify an item of a list; `None` for lists without such members.
fn key(item: &Value, list: &SchemaObject) -> Option<String> {
    let keys = if is_keyed(list) { lists::keys(item, list) } else { return None };
    (keys.len() == lists::key_names(list).count()).then(|| Value::Object(keys).to_string())
}

/// Returns true if a value equals one of an enum. `1` and `1.0` are equal.
fn is_same(allowed: &Value, value: &Value) -> bool {
    allowed == value || allowed.as_f64().is_some_and(|number| value.is_f64() && value.as_f64() == Some(number))
}

/// Shows a value in a cause as kube-apiserver does.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(number) if number.is_f64() => number.as_f64().map(go::float).unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

fn mistyped(value: &Value, schema: &SchemaObject, path: &ValuePath<'_>) -> StatusCause {
    let (expected, found) = match (numbers::format(schema), value) {
        (Some(format), Value::Number(_)) => (format, "float64"),
        (Some(format), Value::Bool(_) | Value::Object(_)) => (format, ""),
        (_, value) => (expected_type(schema), type_of(value)),
    };
    let (path, found) = (path.text(), quote(found));
    let text = format!("Invalid value: {found}: {path} in body must be of type {expected}: {found}");
    StatusCause::new(CauseReason::FieldValueTypeInvalid, &path, &text)
}

fn unsupported(value: &Value, allowed: &[Value], path: &ValuePath<'_>) -> StatusCause {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let (mut texts, mut bytes) = (Vec::new(), 0);
    for text in allowed.iter().map(plain).take(ALLOWED_VALUES_MAX) {
        bytes += text.len();
        if bytes > ALLOWED_BYTES_MAX {
            break;
        }
        texts.push(quote(&text));
    }
    let more = allowed.len() - texts.len();
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    let text = format!("Unsupported value: {}: supported values: {}", shown(value), texts.join(", "));
    StatusCause::new(CauseReason::FieldValueNotSupported, &path.text(), &text)
}

pub(super) fn expected_type(schema: &SchemaObject) -> &str {
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
        (_, Value::Null) => flag(schema, "nullable"),
        ("integer" | "integer,string", Value::Number(number)) => numbers::is_integer(number),
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
