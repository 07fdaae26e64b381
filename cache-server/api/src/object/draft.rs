//! Objects as storage takes them, and as answers show them.

use std::borrow::Cow;

use informer_serving::status::{Status, StatusExt as _};
use serde_json::Value;
use watch_cache::{Draft, Entry, EntryError};

use super::{Object, WriteTarget, metadata, metadata::Part, sparse, weight::Weight};
use crate::{
    limits::{self, UNREAD_BYTES_MAX},
    registry::ResourceType,
};

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

/// Bytes of a change for which there is room beside the stored text at first.
const SPARE: usize = 1 << 10;

/// Bound on nested objects and lists: the decoder of bodies and stored objects reads no more. A managedFields entry
/// nests deeper than the fields that it lists.
pub const DEPTH_MAX: usize = 127;

/// Encodes an object for the storage.
///
/// # Errors
/// 400 and 413 for objects that could not be read again, and thus neither changed nor deleted.
pub fn draft(ty: &ResourceType, object: &Object) -> Result<Draft, Status> {
    stored_draft(ty, &stored(ty, object))
}

/// Returns an object with the members of the stored type.
fn stored<'a>(ty: &ResourceType, object: &'a Object) -> Cow<'a, Object> {
    let mut object = Cow::Borrowed(object);
    if let Some(conversion) = ty.conversion {
        (conversion.to_stored)(object.to_mut());
    }
    object
}

fn stored_draft(ty: &ResourceType, object: &Object) -> Result<Draft, Status> {
    check_depth(object)?;
    // Members are sorted, so equal objects have one text.
    Draft::of_object(&ty.schema, object).map(Draft::normal).map_err(unfit)
}

fn check_depth(object: &Object) -> Result<(), Status> {
    if 1 + object.values().map(depth).max().unwrap_or_default() > DEPTH_MAX {
        return Err(Status::bad_request(format!("the object is nested deeper than {DEPTH_MAX}")));
    }
    Ok(())
}

fn unfit(error: EntryError) -> Status {
    match error {
        EntryError::TooLarge { bytes } => Status::request_entity_too_large(&format!("the object has {bytes} bytes")),
        EntryError::NotAnObject | EntryError::NoName | EntryError::BadName | _ => {
            Status::bad_request(error.to_string())
        }
    }
}

/// Encodes a client's object for the storage.
///
/// # Errors
/// As [`draft`]; 413 for an object above the configured size, or one with too many values, by whatever write it was
/// made.
pub fn bounded_draft(ty: &ResourceType, object: &Object, max: usize) -> Result<Draft, Status> {
    bounded_stored(ty, &stored(ty, object), max)
}

fn bounded_stored(ty: &ResourceType, object: &Object, max: usize) -> Result<Draft, Status> {
    // The bytes that a deletion adds always fit; otherwise the last finalizer could not be removed.
    let mark = if metadata::is_terminating(object) { limits::DELETION_MARK_BYTES_MAX } else { 0 };
    // The next write decodes the object again, so bound its decoded size too.
    Weight::new(limits::DECODED_BYTES_MAX + mark).object(object)?;
    bounded(stored_draft(ty, object)?, max, mark)
}

/// Like [`bounded_draft`], for the successor of `stored`. The part that the write cannot change stays as it is stored,
/// whatever its conversion keeps.
///
/// # Errors
/// As [`bounded_draft`].
pub fn successor_draft(place: &WriteTarget<'_>, object: &Object, stored: &Entry, max: usize) -> Result<Draft, Status> {
    let is_split = place.ty.conversion.is_some() && place.ty.has_status;
    let before = is_split.then(|| serde_json::from_slice::<Object>(stored.object_text()).ok()).flatten();
    let Some(mut before) = before else { return bounded_draft(place.ty, object, max) };
    let mut next = self::stored(place.ty, object).into_owned();
    let unchanged = if place.part == Part::Status { "spec" } else { "status" };
    next.remove(unchanged);
    next.extend(before.remove(unchanged).map(|part| (unchanged.to_owned(), part)));
    bounded_stored(place.ty, &next, max)
}

/// Like [`bounded_draft`], for the successor of `stored` whose sealed values are in its text.
///
/// # Errors
/// As [`bounded_draft`].
pub fn sparse_draft(ty: &ResourceType, object: &Object, stored: &Entry, max: usize) -> Result<Draft, Status> {
    // Sealed values are where they were, so they are not too deep.
    check_depth(object)?;
    let stored = stored.object_text();
    let mut text = Vec::with_capacity(stored.len() + SPARE);
    let metadata = object.get("metadata").and_then(Value::as_object).ok_or_else(|| unfit(EntryError::NotAnObject))?;
    let mut write = |(name, value)| {
        let start = text.len();
        sparse::push(&mut text, value, stored);
        (name, start..text.len())
    };
    let members: Vec<_> = object.iter().filter(|(name, _)| *name != "metadata").map(&mut write).collect();
    let metadata: Vec<_> = metadata.iter().map(write).collect();
    let members = members.iter().map(|(name, place)| (name.as_str(), &text[place.clone()]));
    let metadata = metadata.iter().map(|(name, place)| (name.as_str(), &text[place.clone()]));
    let draft = Draft::of_members(&ty.schema, members, metadata).map(Draft::normal).map_err(unfit)?;
    if draft.len() > UNREAD_BYTES_MAX {
        // A text weighs as much as its value.
        Weight::new(limits::DECODED_BYTES_MAX).json(draft.json())?;
    }
    bounded(draft, max, 0)
}

fn bounded(draft: Draft, max: usize, mark: usize) -> Result<Draft, Status> {
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
