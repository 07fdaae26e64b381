//! Decodes one message into the members of a JSON object, by its table of fields.

use std::{borrow::Cow, sync::OnceLock};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{
    special, table,
    wire::{FieldValue, MessageReader, ProtobufError},
};
use crate::{
    limits::PROTOBUF_DEPTH_MAX,
    object::{body::Object, weight::Weight},
};

/// A message type: its fields, sorted by number.
#[derive(Debug, Default)]
pub(crate) struct Message {
    /// Last segment of the name, used in errors.
    pub name: &'static str,
    pub fields: Vec<MessageField>,
    /// Fields by the names of their members, made by the first encoding.
    pub members: OnceLock<Box<[MemberField]>>,
}

/// The field of a JSON member.
#[derive(Debug)]
pub(crate) struct MemberField {
    name: &'static str,
    /// Numbers of the messages around the field whose members are inlined.
    path: Box<[u32]>,
    field: &'static MessageField,
}

/// A field of a message, and its JSON member.
#[derive(Debug)]
pub(crate) struct MessageField {
    pub number: u32,
    pub name: &'static str,
    pub ty: Type,
    pub label: Label,
    /// True if JSON includes the member when it is zero or empty.
    pub zero_stays: bool,
    /// The message of [`Type::Message`], looked up on first use.
    pub target: OnceLock<&'static Message>,
}

/// Type of a field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Type {
    Scalar(Scalar),
    /// A message, by its name in the table.
    Message(&'static str),
    /// A message whose JSON form is not an object of its fields.
    Special(&'static str),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Scalar {
    String,
    Bool,
    Int32,
    Int64,
    Double,
    Bytes,
}

/// Cardinality of a field, and its place in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Label {
    Once,
    Repeated,
    Map,
    /// A message whose members are inlined into the enclosing object.
    Embedded,
}

impl Message {
    pub(super) fn field(&self, number: u32) -> Option<&MessageField> {
        let found = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        self.fields.get(found)
    }

    /// Returns the field of a member, and the numbers of the inlined messages around it.
    pub(super) fn member(&'static self, name: &str) -> Option<(&'static [u32], &'static MessageField)> {
        let members = self.members.get_or_init(|| {
            let mut members = Vec::new();
            self.collect_members(&[], &mut members);
            // A stable sort: an outer member comes before an inlined one of its name, and is found.
            members.sort_by_key(|member| (member.name, member.path.len()));
            members.dedup_by_key(|member| member.name);
            members.into()
        });
        let found = members.binary_search_by_key(&name, |member| member.name).ok()?;
        members.get(found).map(|member| (&*member.path, member.field))
    }

    fn collect_members(&'static self, path: &[u32], members: &mut Vec<MemberField>) {
        for field in &self.fields {
            match (field.label, field.ty) {
                (Label::Embedded, Type::Message(inner)) => {
                    field.message(inner).collect_members(&[path, &[field.number]].concat(), members);
                }
                (Label::Once | Label::Repeated | Label::Map | Label::Embedded, _) => {
                    members.push(MemberField { name: field.name, path: path.into(), field });
                }
            }
        }
    }
}

/// Adds the fields of a message to `object`, which is at nesting depth `depth`.
///
/// # Errors
/// The first error in the bytes.
pub(crate) fn decode(
    message: &Message,
    bytes: &[u8],
    object: &mut Object,
    depth: usize,
    weight: &mut Weight,
) -> Result<(), ProtobufError> {
    if depth > PROTOBUF_DEPTH_MAX {
        return Err(ProtobufError::TooDeep(PROTOBUF_DEPTH_MAX));
    }
    let mut reader = MessageReader::new(message.name, bytes);
    while let Some((number, piece)) = reader.next()? {
        let Some(field) = message.field(number) else { continue };
        match field.label {
            Label::Once => once(field, piece, object, depth, weight)?,
            Label::Repeated => repeated(field, piece, object, depth, weight)?,
            Label::Map => entry(field, piece, object, depth, weight)?,
            Label::Embedded => {
                if let Type::Message(inner) = field.ty {
                    decode(field.message(inner), piece.bytes(inner)?, object, depth, weight)?;
                }
            }
        }
    }
    Ok(())
}

impl MessageField {
    /// Returns the message that its type names; a test checks that the table has every message that a field names.
    pub(super) fn message(&self, name: &'static str) -> &'static Message {
        self.target.get_or_init(|| table::find(name).expect("the table is whole"))
    }
}

/// Decodes a singular field. The last of several values wins, but messages are merged.
fn once(
    field: &MessageField,
    piece: FieldValue<'_>,
    object: &mut Object,
    depth: usize,
    weight: &mut Weight,
) -> Result<(), ProtobufError> {
    let value = match field.ty {
        Type::Scalar(ty) => {
            Some(scalar(ty, piece, field.name, weight)?).filter(|value| field.zero_stays || !is_zero(value))
        }
        Type::Special(name) => special::value(name, piece.bytes(field.name)?, depth + 1, weight)?,
        Type::Message(name) => {
            weigh(object, field.name, weight)?;
            let inner = object.entry(field.name).or_insert_with(|| Value::Object(Object::new()));
            let Value::Object(inner) = inner else { return Ok(()) };
            return decode(field.message(name), piece.bytes(field.name)?, inner, depth + 1, weight);
        }
    };
    match value {
        Some(value) => {
            weigh(object, field.name, weight)?;
            object.insert(field.name.to_owned(), value)
        }
        None => object.remove(field.name),
    };
    Ok(())
}

/// Counts the weight of a member, unless `object` has it already.
fn weigh(object: &Object, name: &str, weight: &mut Weight) -> Result<(), ProtobufError> {
    if !object.contains_key(name) {
        weight.member(object.len())?;
        weight.text(name.len())?;
    }
    Ok(())
}

fn repeated(
    field: &MessageField,
    piece: FieldValue<'_>,
    object: &mut Object,
    depth: usize,
    weight: &mut Weight,
) -> Result<(), ProtobufError> {
    weigh(object, field.name, weight)?;
    let list = object.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
    let Value::Array(list) = list else { return Ok(()) };
    match (field.ty, piece) {
        (Type::Scalar(ty @ (Scalar::Int32 | Scalar::Int64 | Scalar::Bool)), FieldValue::Bytes(packed)) => {
            let mut packed = MessageReader::new("", packed);
            while let Some(number) = packed.number()? {
                weight.item(list.len())?;
                list.push(scalar(ty, FieldValue::Varint(number), field.name, weight)?);
            }
        }
        (_, piece) => {
            weight.item(list.len())?;
            list.push(value(field, piece, depth + 2, weight)?);
        }
    }
    Ok(())
}

/// Decodes one entry of a map.
fn entry(
    field: &MessageField,
    piece: FieldValue<'_>,
    object: &mut Object,
    depth: usize,
    weight: &mut Weight,
) -> Result<(), ProtobufError> {
    let (key, held) = key_and_value(field, piece)?;
    weigh(object, field.name, weight)?;
    let map = object.entry(field.name).or_insert_with(|| Value::Object(Object::new()));
    let Value::Object(map) = map else { return Ok(()) };
    weigh(map, &key, weight)?;
    map.insert(key.into_owned(), value(field, held, depth + 2, weight)?);
    Ok(())
}

/// Splits an entry of a map: a message of key and value, each empty if unset.
pub(super) fn key_and_value<'a>(
    field: &MessageField,
    piece: FieldValue<'a>,
) -> Result<(Cow<'a, str>, FieldValue<'a>), ProtobufError> {
    let mut reader = MessageReader::new(field.name, piece.bytes(field.name)?);
    let (mut key, mut held) = (Cow::Borrowed(""), FieldValue::Bytes(&[]));
    while let Some((number, piece)) = reader.next()? {
        match number {
            1 => key = String::from_utf8_lossy(piece.bytes(field.name)?),
            2 => held = piece,
            _ => {}
        }
    }
    Ok((key, held))
}

/// Decodes a value in a list or a map, where zero values are kept.
fn value(
    field: &MessageField,
    piece: FieldValue<'_>,
    depth: usize,
    weight: &mut Weight,
) -> Result<Value, ProtobufError> {
    match field.ty {
        Type::Scalar(ty) => scalar(ty, piece, field.name, weight),
        Type::Special(name) => {
            Ok(special::value(name, piece.bytes(field.name)?, depth, weight)?.unwrap_or(Value::Null))
        }
        Type::Message(name) => {
            let mut object = Object::new();
            decode(field.message(name), piece.bytes(field.name)?, &mut object, depth, weight)?;
            Ok(Value::Object(object))
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "numbers are cut as Go cuts them")]
pub(super) fn scalar(
    ty: Scalar,
    piece: FieldValue<'_>,
    field: &str,
    weight: &mut Weight,
) -> Result<Value, ProtobufError> {
    if let FieldValue::Bytes(bytes) = piece {
        weight.text(bytes.len())?;
    }
    Ok(match ty {
        Scalar::String => Value::String(piece.text(field)?),
        Scalar::Bool => Value::Bool(piece.varint(field)? != 0),
        Scalar::Int32 => Value::from(piece.varint(field)? as i32),
        Scalar::Int64 => Value::from(piece.varint(field)? as i64),
        Scalar::Double => double(piece.double(field)?)?,
        Scalar::Bytes => Value::String(STANDARD.encode(piece.bytes(field)?)),
    })
}

/// Converts a number to Go's JSON form: integers without a decimal point.
fn double(number: f64) -> Result<Value, ProtobufError> {
    /// 2^53: every integer up to here is exactly representable.
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    if !number.is_finite() {
        return Err(ProtobufError::Value("json: unsupported value"));
    }
    #[expect(clippy::cast_possible_truncation, reason = "is whole and small")]
    let value =
        if number.fract() == 0.0 && number.abs() <= WHOLE_MAX { Value::from(number as i64) } else { number.into() };
    Ok(value)
}

pub(super) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(_) | Value::Object(_) => false,
    }
}
