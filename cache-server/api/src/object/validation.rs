//! Validates objects of built-in types against their schemas. Unknown fields are dropped, and reported or refused;
//! values of a wrong JSON type are refused. The result equals what kube-apiserver would return from its store, which
//! keeps neither nulls nor empty maps and lists, and has the strings of a Secret in base64.
//!
//! Not implemented, on purpose: rules about values (ranges, names in specs). Of custom resources only the metadata is
//! validated here; the crate `object-rules` enforces their schemas, where the server acts as a cluster.
//!
//! INVARIANT: one walk over an object, with one look-up per member; texts are built only for violations.
//!
//! Source: apimachinery `pkg/runtime/serializer/json` (strict decoding), `sigs.k8s.io/json`; Go's `encoding/json` for
//! type errors.

mod bytes;
mod document;

use std::fmt::Write as _;

use informer_serving::go::{json_type, quote};
use serde_json::{Value, json};

use super::{
    body::{Encoding, Object},
    options::FieldValidation,
    sparse,
};
use crate::{
    limits::{STRICT_ERRORS_MAX, WARNING_CHARS_MAX, WARNINGS_CHARS_MAX, WARNINGS_MAX},
    registry::{ResourceType, Texts},
    schemas::{self, JsonKind, ShapeMember, ValueShape},
};

pub use document::{BoundedValueSeed, ComplaintOrder};

/// Findings of a walk.
#[derive(Debug, Default, PartialEq)]
pub struct Findings {
    /// Paths of unknown fields, at most [`STRICT_ERRORS_MAX`]. The walk removed them.
    pub unknown: Vec<String>,
    /// Go's decoder message for the first value that cannot be read: a wrong type, or invalid base64.
    pub mistyped: Option<String>,
    /// True if the walk passes over sealed values.
    is_sparse: bool,
}

/// Validates `object` against the schema of its type. Removes unknown fields, and known ones that are null or empty.
/// Converts quantities to strings, nulls in maps and lists to Go's zero values, and `stringData` of Secrets to `data`.
/// Custom resources are unchanged except for their metadata.
pub fn check(ty: &ResourceType, object: &mut Object) -> Findings {
    check_as(ty, object, false)
}

/// Like [`check`]. A sparse object has sealed values, which were checked when they were stored.
pub(crate) fn check_as(ty: &ResourceType, object: &mut Object, is_sparse: bool) -> Findings {
    let mut found = Findings { is_sparse, ..Findings::default() };
    if ty.schema.builtin {
        if let Some(shape) = schemas::of(ty) {
            members(object, &shape, &ValuePath::Root, &mut found);
        }
        // Objects with type errors are refused, so leave them unchanged.
        if found.mistyped.is_none() {
            fold_texts(ty, object);
        }
    } else if let (Some(shape), Some(metadata)) = (schemas::object_meta(), object.get_mut("metadata")) {
        let owner = FieldOwner::Kind(&ty.kind);
        walk(metadata, &shape, &ValuePath::Field(&ValuePath::Root, "metadata", owner), &mut found);
    }
    found
}

/// Validates the metadata of an object in a custom one, like its own. `path` is that of the metadata.
pub fn check_embedded(metadata: &mut Value, path: &ValuePath<'_>, found: &mut Findings) {
    if let Some(shape) = schemas::object_meta() {
        walk(metadata, &shape, path, found);
    }
}

/// Moves write-only strings to their base64 values: `stringData` of Secrets to `data`, overriding it.
///
/// # Source
/// `pkg/apis/core/v1/conversion.go` of kubernetes/kubernetes (Convert_v1_Secret_To_core_Secret).
fn fold_texts(ty: &ResourceType, object: &mut Object) {
    let Some(Texts { from, to }) = ty.texts else { return };
    let Some(Value::Object(texts)) = object.remove(from).filter(|texts| *texts != json!({})) else { return };
    let encoded = texts.iter().filter_map(|(key, text)| Some((key.clone(), bytes::encode(text.as_str()?).into())));
    let values = object.entry(to).or_insert_with(|| json!({}));
    match values.as_object_mut() {
        Some(values) => values.extend(encoded),
        None => *values = encoded.collect::<Object>().into(),
    }
}

/// Returns complaints about the fields of a body in the order of the body: the `unknown` ones that [`check`] found, and
/// duplicates if `duplicates` is set.
pub fn complaints(encoding: Encoding, body: &[u8], unknown: &[String], duplicates: bool) -> Vec<String> {
    if !duplicates && unknown.len() < 2 {
        return unknown.iter().map(|path| unknown_field(path)).collect();
    }
    let order = ComplaintOrder::of(unknown);
    // A body that was parsed once parses again; if not, fall back to the order of the walk.
    match encoding.walk(body, &order) {
        Ok(()) => order.texts(),
        Err(_) => unknown.iter().map(|path| unknown_field(path)).collect(),
    }
}

/// `unknown field "a.b"`.
pub fn unknown_field(path: &str) -> String {
    format!("unknown field {}", quote(path))
}

/// Handles complaints as requested: ignores them, adds warnings, or refuses the write.
///
/// # Errors
/// `strict decoding error: …`.
pub fn report(validation: FieldValidation, complaints: Vec<String>, warnings: &mut Vec<String>) -> Result<(), String> {
    match validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => warnings.extend(complaints),
        FieldValidation::Strict if complaints.is_empty() => {}
        FieldValidation::Strict => return Err(format!("strict decoding error: {}", complaints.join(", "))),
    }
    Ok(())
}

/// Builds the values of `Warning` headers: distinct warnings, as many as an answer may have.
pub fn headers(warnings: &[String]) -> Vec<String> {
    let mut reported: Vec<&String> = Vec::new();
    let mut headers = Vec::new();
    let mut left = WARNINGS_CHARS_MAX;
    for warning in warnings {
        let text: String = warning.chars().filter(|letter| !letter.is_control()).take(WARNING_CHARS_MAX).collect();
        let chars = text.chars().count();
        if reported.contains(&warning) {
            continue;
        }
        if chars > left || headers.len() == WARNINGS_MAX {
            break;
        }
        left -= chars;
        reported.push(warning);
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        headers.push(format!("299 - \"{text}\""));
    }
    headers
}

/// The type that has a field. Its name is looked up for violations only.
#[derive(Clone, Copy)]
pub enum FieldOwner<'a> {
    /// The type of this shape.
    Shape(&'a ValueShape),
    /// The type of objects of this kind.
    Kind(&'a str),
}

impl<'a> FieldOwner<'a> {
    /// Returns the name of the type in Go.
    fn name(self) -> &'a str {
        match self {
            Self::Shape(shape) => shape.type_name(),
            Self::Kind(kind) => kind,
        }
    }
}

/// Path from the object to a value, on the stack.
#[derive(Clone, Copy)]
pub enum ValuePath<'a> {
    /// The object itself.
    Root,
    /// Field name, and the type that has the field.
    Field(&'a Self, &'a str, FieldOwner<'a>),
    /// A key of a map.
    Key(&'a Self, &'a str),
    /// The place of an item in a list.
    Item(&'a Self, usize),
}

impl ValuePath<'_> {
    /// Formats the path: `spec.containers[0].name`.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Field(parent, name, _) | Self::Key(parent, name) => {
                let mut text = parent.text();
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
                text
            }
            Self::Item(parent, at) => {
                let mut text = parent.text();
                // Writing to a String cannot fail.
                let _ = write!(text, "[{at}]");
                text
            }
        }
    }

    /// Formats the path as Go does: `Container.spec.containers.name`, the type with the innermost field and all field
    /// names.
    fn field(&self) -> String {
        let (mut at, mut fields, mut owner) = (self, Vec::new(), None);
        loop {
            at = match at {
                ValuePath::Root => break,
                ValuePath::Field(parent, name, ty) => {
                    owner.get_or_insert(*ty);
                    fields.push(*name);
                    parent
                }
                ValuePath::Key(parent, _) | ValuePath::Item(parent, _) => parent,
            };
        }
        fields.reverse();
        format!("{}.{}", owner.map_or("", FieldOwner::name), fields.join("."))
    }
}

fn members(object: &mut Object, shape: &ValueShape, path: &ValuePath<'_>, found: &mut Findings) {
    let mut gone: Vec<String> = Vec::new();
    for (name, value) in object.iter_mut() {
        match shape.member(name) {
            ShapeMember::Known(_) if value.is_null() => gone.push(name.clone()),
            ShapeMember::Known(inner) => {
                walk(value, &inner, &ValuePath::Field(path, name, FieldOwner::Shape(shape)), found);
                if is_nothing(value, &inner) {
                    gone.push(name.clone());
                }
            }
            ShapeMember::Free(Some(inner)) => {
                read_null(value, &inner);
                walk(value, &inner, &ValuePath::Key(path, name), found);
            }
            ShapeMember::Free(None) => {}
            ShapeMember::Unknown => {
                if found.unknown.len() < STRICT_ERRORS_MAX {
                    found.unknown.push(ValuePath::Key(path, name).text());
                }
                gone.push(name.clone());
            }
        }
    }
    for name in gone {
        object.remove(&name);
    }
}

/// Returns true for an empty list or map; kube-apiserver's store does not distinguish these from absent ones.
fn is_nothing(value: &Value, shape: &ValueShape) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty() && shape.is_map(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Replaces null in a map or list by the zero value of its Go type.
fn read_null(value: &mut Value, shape: &ValueShape) {
    if !value.is_null() {
        return;
    }
    *value = match (shape.kind(), shape.format()) {
        // Go encodes a zero time as null.
        (JsonKind::String, "date-time") | (JsonKind::Any | JsonKind::Array, _) => return,
        (JsonKind::String, _) => "".into(),
        (JsonKind::Quantity, _) => "0".into(),
        (JsonKind::Integer | JsonKind::Number | JsonKind::IntOrString, _) => 0.into(),
        (JsonKind::Boolean, _) => false.into(),
        (JsonKind::Object, _) => json!({}),
    };
}

fn walk(value: &mut Value, shape: &ValueShape, path: &ValuePath<'_>, found: &mut Findings) {
    match (shape.kind(), value) {
        (_, value) if found.is_sparse && sparse::is_sealed(value) => {}
        // Go's decoder ignores null for a field.
        (_, Value::Null) | (JsonKind::Any, _) => {}
        (JsonKind::Object, Value::Object(object)) => members(object, shape, path, found),
        (JsonKind::Array, Value::Array(items)) => {
            let Some(inner) = shape.item() else { return };
            for (at, item) in items.iter_mut().enumerate() {
                read_null(item, &inner);
                walk(item, &inner, &ValuePath::Item(path, at), found);
            }
        }
        // Clients may send a number, but readers expect a string.
        (JsonKind::Quantity, number @ Value::Number(_)) => *number = Value::String(number.to_string()),
        (JsonKind::String, Value::String(text)) if shape.format() == "byte" => match bytes::canonical(text) {
            Ok(None) => {}
            Ok(Some(canonical)) => *text = canonical,
            Err(error) => {
                found.mistyped.get_or_insert(error);
            }
        },
        (_, value) if shape.fits(value) => {}
        (_, value) => {
            found.mistyped.get_or_insert_with(|| {
                let (found, field, expected) = (json_type(value), path.field(), go_type(shape));
                format!("json: cannot unmarshal {found} into Go struct field {field} of type {expected}")
            });
        }
    }
}

/// Returns Go's name of a value's type, as far as the schema tells.
fn go_type(shape: &ValueShape) -> String {
    match (shape.kind(), shape.format()) {
        (JsonKind::String, "byte") => "[]uint8".to_owned(),
        (JsonKind::String, "date-time") => "v1.Time".to_owned(),
        (JsonKind::String, _) => "string".to_owned(),
        (JsonKind::Integer, "int32") => "int32".to_owned(),
        (JsonKind::Integer, _) => "int64".to_owned(),
        (JsonKind::Number, _) => "float64".to_owned(),
        (JsonKind::Boolean, _) => "bool".to_owned(),
        (JsonKind::IntOrString, _) => "intstr.IntOrString".to_owned(),
        (JsonKind::Quantity, _) => "resource.Quantity".to_owned(),
        (JsonKind::Any, _) => "interface {}".to_owned(),
        (JsonKind::Array, _) => format!("[]{}", shape.item().map_or_else(String::new, |item| go_type(&item))),
        (JsonKind::Object, _) if !shape.type_name().is_empty() => format!("v1.{}", shape.type_name()),
        (JsonKind::Object, _) => {
            let values = match shape.member("") {
                ShapeMember::Known(values) | ShapeMember::Free(Some(values)) => go_type(&values),
                ShapeMember::Free(None) | ShapeMember::Unknown => "interface {}".to_owned(),
            };
            format!("map[string]{values}")
        }
    }
}

#[cfg(test)]
mod tests;
