//! Conversions between types.

use informer_serving::go;

use super::{
    eval::{EvaluationFailure, EvaluationResult},
    times,
    value::CelValue,
};

/// Returns the whole part of a double; `None` beyond the range.
pub(super) fn to_int(number: f64) -> Option<i64> {
    // Two to the power of 63, which no i64 reaches.
    let bound = 9_223_372_036_854_775_808.0;
    #[expect(clippy::cast_possible_truncation, reason = "used within the range only")]
    let whole = number as i64;
    (-bound < number && number < bound).then_some(whole)
}

/// Writes the key of a map, or the index of a list, in an error.
pub(super) fn key_text(key: &CelValue<'_>) -> String {
    as_text(key).unwrap_or_else(|| key.type_name().to_owned())
}

/// Writes a value as `string()` does.
pub(super) fn as_text(value: &CelValue<'_>) -> Option<String> {
    Some(match value {
        CelValue::Text(text) => (**text).to_owned(),
        CelValue::Bool(value) => value.to_string(),
        CelValue::Int(number) => number.to_string(),
        CelValue::Uint(number) => number.to_string(),
        CelValue::Double(number) => go::float(*number),
        CelValue::Bytes(bytes) => String::from_utf8(bytes.to_vec()).ok()?,
        CelValue::Timestamp(time) => time.to_string(),
        CelValue::Duration(nanoseconds) => times::duration_text(*nanoseconds),
        CelValue::Ip(address) => address.to_string(),
        CelValue::Cidr(range) => range.to_string(),
        CelValue::Type(name) => (*name).to_owned(),
        _ => return None,
    })
}

/// Calls the function named like a type.
pub(super) fn convert<'a>(name: &str, value: &CelValue<'a>) -> EvaluationResult<'a> {
    match (name, value) {
        ("dyn", value) => Ok(value.clone()),
        ("type", value) => Ok(CelValue::Type(value.type_name())),
        ("string", CelValue::Text(_)) | ("bytes", CelValue::Bytes(_)) | ("bool", CelValue::Bool(_)) => {
            Ok(value.clone())
        }
        ("string", CelValue::Bytes(bytes)) if std::str::from_utf8(bytes).is_err() => {
            Err(EvaluationFailure::error("invalid UTF-8 in bytes, cannot convert to string"))
        }
        ("string", value) => as_text(value).map(CelValue::text).ok_or_else(EvaluationFailure::no_overload),
        ("bytes", CelValue::Text(text)) => Ok(CelValue::Bytes(text.as_bytes().into())),
        (name, CelValue::Text(text)) => parsed(name, text),
        ("int", value) => int(value),
        ("uint", value) => uint(value),
        ("double", value) => double(value),
        ("duration", CelValue::Duration(_)) | ("timestamp", CelValue::Timestamp(_)) => Ok(value.clone()),
        ("timestamp", CelValue::Int(seconds)) => {
            let time = jiff::Timestamp::from_second(*seconds);
            time.map(CelValue::Timestamp).map_err(|_| EvaluationFailure::error("timestamp overflow"))
        }
        (_, _) => Err(EvaluationFailure::no_overload()),
    }
}

/// Reads a value of another type from a text.
fn parsed<'a>(name: &str, text: &str) -> EvaluationResult<'a> {
    let value = match name {
        "int" => go::parse_int(text).ok().map(CelValue::Int),
        "uint" => go::parse_uint(text).ok().map(CelValue::Uint),
        "double" => text.parse().ok().map(CelValue::Double),
        "bool" => match text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(CelValue::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(CelValue::Bool(false)),
            _ => None,
        },
        "duration" => times::parse_duration(text).ok().map(CelValue::Duration),
        "timestamp" => times::parse_timestamp(text).ok().map(CelValue::Timestamp),
        _ => return Err(EvaluationFailure::no_overload()),
    };
    let ty = match name {
        "duration" => "google.protobuf.Duration",
        "timestamp" => "google.protobuf.Timestamp",
        name => name,
    };
    value.ok_or_else(|| EvaluationFailure::error(format!("type conversion error from 'string' to '{ty}'")))
}

fn int<'a>(value: &CelValue<'a>) -> EvaluationResult<'a> {
    let overflow = || EvaluationFailure::error("integer overflow");
    match value {
        CelValue::Int(_) => Ok(value.clone()),
        CelValue::Uint(number) => i64::try_from(*number).map(CelValue::Int).map_err(|_| overflow()),
        CelValue::Double(number) => to_int(*number).map(CelValue::Int).ok_or_else(overflow),
        CelValue::Timestamp(time) => Ok(CelValue::Int(time.as_second())),
        CelValue::Duration(nanoseconds) => Ok(CelValue::Int(*nanoseconds)),
        _ => Err(EvaluationFailure::no_overload()),
    }
}

fn uint<'a>(value: &CelValue<'a>) -> EvaluationResult<'a> {
    let overflow = || EvaluationFailure::error("unsigned integer overflow");
    match value {
        CelValue::Uint(_) => Ok(value.clone()),
        CelValue::Int(number) => u64::try_from(*number).map(CelValue::Uint).map_err(|_| overflow()),
        CelValue::Double(number) => {
            let whole = to_int(*number).and_then(|number| u64::try_from(number).ok());
            whole.map(CelValue::Uint).ok_or_else(overflow)
        }
        _ => Err(EvaluationFailure::no_overload()),
    }
}

fn double<'a>(value: &CelValue<'a>) -> EvaluationResult<'a> {
    match value {
        CelValue::Double(_) => Ok(value.clone()),
        CelValue::Int(number) => Ok(CelValue::Double(*number as f64)),
        CelValue::Uint(number) => Ok(CelValue::Double(*number as f64)),
        _ => Err(EvaluationFailure::no_overload()),
    }
}
