//! Objects as storage takes them, and as answers show them.

use informer_serving::status::{Status, StatusExt as _};
use serde_json::Value;
use watch_cache::{Draft, EntryError};

use super::{Object, metadata, weight::Weight};
use crate::{limits, registry::ResourceType};

/// Encodes an object with kind and apiVersion first, like stored ones, and a newline.
pub fn ordered(ty: &ResourceType, mut object: Object) -> Vec<u8> {
    object.remove("kind");
    object.remove("apiVersion");
    let mut json =
        format!("{{\"kind\":{},\"apiVersion\":{}", Value::from(&*ty.kind), Value::from(ty.api_version())).into_bytes();
    for (member, value) in object {
        json.extend_from_slice(format!(",{}:{value}", Value::String(member)).as_bytes());
    }
    json.extend_from_slice(b"}\n");
    json
}

/// Bound on nested objects and lists: the decoder of bodies and stored objects reads no more. A managedFields entry
/// nests deeper than the fields that it lists.
pub const DEPTH_MAX: usize = 127;

/// Encodes an object for the storage.
///
/// # Errors
/// 400 and 413 for objects that could not be read again, and thus neither changed nor deleted.
pub fn draft(ty: &ResourceType, object: &Object) -> Result<Draft, Status> {
    if 1 + object.values().map(depth).max().unwrap_or_default() > DEPTH_MAX {
        return Err(Status::bad_request(format!("the object is nested deeper than {DEPTH_MAX}")));
    }
    // Members are sorted, so equal objects have one text.
    Draft::of_object(&ty.schema, object).map(Draft::normal).map_err(|error| match error {
        EntryError::TooLarge { bytes } => Status::request_entity_too_large(&format!("the object has {bytes} bytes")),
        EntryError::NotAnObject | EntryError::NoName | EntryError::BadName | _ => {
            Status::bad_request(error.to_string())
        }
    })
}

/// Encodes a client's object for the storage.
///
/// # Errors
/// As [`draft`]; 413 for an object above the configured size, or one with too many values, by whatever write it was
/// made.
pub fn bounded_draft(ty: &ResourceType, object: &Object, max: usize) -> Result<Draft, Status> {
    // The bytes that a deletion adds always fit; otherwise the last finalizer could not be removed.
    let mark = if metadata::is_terminating(object) { limits::DELETION_MARK_BYTES_MAX } else { 0 };
    // The next write decodes the object again, so bound its decoded size too.
    Weight::new(limits::DECODED_BYTES_MAX + mark).object(object)?;
    let draft = draft(ty, object)?;
    let bytes = draft.len();
    if bytes > max.saturating_add(mark) {
        return Err(Status::request_entity_too_large(&format!("the object has {bytes} bytes, limit is {max}")));
    }
    Ok(draft)
}

/// Returns the nesting depth of objects and lists.
fn depth(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or_default(),
    }
}
