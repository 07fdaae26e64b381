//! Messages whose JSON form is not an object of their fields.

use jiff::{SignedDuration, civil::DateTime, fmt::temporal::Pieces};
use serde_json::{Number, Value};

use super::{
    message::decode,
    table,
    wire::{MessageReader, ProtobufError},
};
use crate::{
    limits::PROTOBUF_DEPTH_MAX,
    object::{body::Object, weight::Weight},
};

const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
const FIELDS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1";
const JSON: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON";
const EXTRA_VALUES: [&str; 3] = [
    "io.k8s.api.authentication.v1.ExtraValue",
    "io.k8s.api.authorization.v1.ExtraValue",
    "io.k8s.api.certificates.v1.ExtraValue",
];
const SCHEMA_OR_LIST: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray";
const SCHEMA_OR_BOOL: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool";
const SCHEMA_OR_TEXTS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray";

const ALL: [&str; 10] = [
    TIME,
    MICRO_TIME,
    QUANTITY,
    INT_OR_STRING,
    RAW_EXTENSION,
    FIELDS,
    JSON,
    SCHEMA_OR_LIST,
    SCHEMA_OR_BOOL,
    SCHEMA_OR_TEXTS,
];

/// Kind of such a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpecialMessage {
    Time {
        /// True with microseconds.
        micro: bool,
    },
    Quantity,
    IntOrString,
    /// JSON text as bytes.
    Raw,
    /// A list of texts.
    ExtraValue,
    SchemaOrList,
    SchemaOrBool,
    SchemaOrTexts,
}

impl SpecialMessage {
    /// Returns true if an object is a schema.
    pub(super) const fn is_schema(self) -> bool {
        matches!(self, Self::SchemaOrList | Self::SchemaOrBool | Self::SchemaOrTexts)
    }
}

/// Returns the kind of a message with a special JSON form.
pub(super) fn kind(name: &str) -> Option<SpecialMessage> {
    Some(match name {
        TIME => SpecialMessage::Time { micro: false },
        MICRO_TIME => SpecialMessage::Time { micro: true },
        QUANTITY => SpecialMessage::Quantity,
        INT_OR_STRING => SpecialMessage::IntOrString,
        RAW_EXTENSION | FIELDS | JSON => SpecialMessage::Raw,
        SCHEMA_OR_LIST => SpecialMessage::SchemaOrList,
        SCHEMA_OR_BOOL => SpecialMessage::SchemaOrBool,
        SCHEMA_OR_TEXTS => SpecialMessage::SchemaOrTexts,
        name if EXTRA_VALUES.contains(&name) => SpecialMessage::ExtraValue,
        _ => return None,
    })
}

/// Returns true if a message has a special JSON form.
pub(crate) fn is(name: &str) -> bool {
    ALL.contains(&name) || EXTRA_VALUES.contains(&name)
}

/// Returns the JSON of such a message at nesting depth `depth`; `None` if it is unset.
///
/// # Errors
/// The first error in the bytes.
pub(crate) fn value(
    name: &str,
    bytes: &[u8],
    depth: usize,
    weight: &mut Weight,
) -> Result<Option<Value>, ProtobufError> {
    match name {
        TIME | MICRO_TIME => return time(name, bytes),
        QUANTITY => return quantity(bytes, weight).map(Some),
        name if is_raw(name) => return raw(name, bytes, depth, weight),
        _ => {}
    }
    let mut fields = Object::new();
    if let Some(message) = table::find(name) {
        decode(message, bytes, &mut fields, depth, weight)?;
    }
    let mut take = |member: &str| fields.remove(member);
    Ok(match name {
        INT_OR_STRING => Some(match take("type") {
            Some(Value::Number(ty)) if ty == Number::from(1) => take("strVal").unwrap_or_else(|| Value::from("")),
            Some(_) => return Err(ProtobufError::Value("impossible IntOrString.Type")),
            None => take("intVal").unwrap_or_else(|| Value::from(0)),
        }),
        name if EXTRA_VALUES.contains(&name) => Some(take("items").unwrap_or_else(|| Value::Array(Vec::new()))),
        SCHEMA_OR_LIST => take("jSonSchemas").or_else(|| take("schema")),
        SCHEMA_OR_TEXTS => take("property").or_else(|| take("schema")),
        SCHEMA_OR_BOOL => Some(take("schema").or_else(|| take("allows")).unwrap_or(Value::Bool(false))),
        _ => None,
    })
}

/// Decodes a quantity. An unset one is zero.
fn quantity(bytes: &[u8], weight: &mut Weight) -> Result<Value, ProtobufError> {
    let mut text: &[u8] = b"";
    let mut reader = MessageReader::new("Quantity", bytes);
    while let Some((number, piece)) = reader.next()? {
        if number == 1 {
            text = piece.bytes("string")?;
        }
    }
    weight.text(text.len())?;
    Ok(if text.is_empty() { Value::from("0") } else { Value::String(String::from_utf8_lossy(text).into_owned()) })
}

/// Seconds from the beginning of year 0 to the end of year 9999, the range of RFC 3339.
const SECONDS: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;
/// Go's zero time: the beginning of year 1.
const UNSET: i64 = -62_135_596_800;

/// Decodes a time, in whole seconds or with microseconds.
fn time(name: &str, bytes: &[u8]) -> Result<Option<Value>, ProtobufError> {
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = MessageReader::new("Timestamp", bytes);
    while let Some((number, piece)) = reader.next()? {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_possible_wrap,
            reason = "numbers are cut as Go cuts them"
        )]
        match number {
            1 => seconds = piece.varint("Seconds")? as i64,
            2 => nanos = piece.varint("Nanos")? as i32,
            _ => {}
        }
    }
    if bytes.is_empty() || seconds == UNSET {
        return Ok(None);
    }
    let refused = || ProtobufError::Value("Time.MarshalJSON: year outside of range [0,9999]");
    if !SECONDS.contains(&seconds) {
        return Err(refused());
    }
    let micro = name == MICRO_TIME;
    let nanos = if micro { nanos.rem_euclid(1_000_000_000) } else { 0 };
    let at = EPOCH.checked_add(SignedDuration::new(seconds, nanos)).map_err(|_| refused())?;
    Ok(Some(Value::String(if micro { format!("{at:.6}Z") } else { format!("{at}Z") })))
}

/// Civil times reach the end of year 9999 in any offset; jiff's timestamps end a day before.
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Returns the time since 1970 of a text of RFC 3339; `None` outside of [`SECONDS`] and for other text.
pub(super) fn since_1970(text: &str) -> Option<SignedDuration> {
    let pieces = Pieces::parse(text).ok()?;
    let offset = pieces.to_numeric_offset()?;
    let since = DateTime::from_parts(pieces.date(), pieces.time()?).duration_since(EPOCH);
    let since = since.checked_sub(SignedDuration::from_secs(i64::from(offset.seconds())))?;
    SECONDS.contains(&since.as_secs()).then_some(since)
}

/// Returns true if a message holds JSON text.
pub(super) fn is_raw(name: &str) -> bool {
    [RAW_EXTENSION, FIELDS, JSON].contains(&name)
}

/// Returns the JSON text that a message holds.
pub(super) fn raw_text(bytes: &[u8]) -> Result<&[u8], ProtobufError> {
    let mut held: &[u8] = &[];
    let mut reader = MessageReader::new("Raw", bytes);
    while let Some((number, piece)) = reader.next()? {
        if number == 1 {
            held = piece.bytes("Raw")?;
        }
    }
    Ok(held)
}

/// Returns the value of a message without JSON text.
pub(super) fn empty_raw(name: &str) -> Option<Value> {
    (name == JSON).then_some(Value::Null)
}

/// Decodes a message that holds JSON text.
fn raw(name: &str, bytes: &[u8], depth: usize, weight: &mut Weight) -> Result<Option<Value>, ProtobufError> {
    let held = raw_text(bytes)?;
    if held.is_empty() {
        return Ok(empty_raw(name));
    }
    weight.json(held)?;
    let value: Value =
        serde_json::from_slice(held).map_err(|_| ProtobufError::Value("json: error calling MarshalJSON"))?;
    if depth + nesting(&value) > PROTOBUF_DEPTH_MAX {
        return Err(ProtobufError::TooDeep(PROTOBUF_DEPTH_MAX));
    }
    Ok(Some(value))
}

/// Returns the nesting depth of a value. The JSON decoder has bounded it already.
fn nesting(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(nesting).max().unwrap_or_default(),
        Value::Object(members) => 1 + members.values().map(nesting).max().unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}
