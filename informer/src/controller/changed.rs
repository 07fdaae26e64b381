//! Predicates for updates: each compares one part of the metadata of two versions of an object, without decoding them.
//!
//! Pass one to [`Controller::when`](super::Controller::when), or combine several in a closure:
//! `|old, new| changed::generation(old, new) || changed::labels(old, new)`.
//!
//! Cost: a scan of the metadata of both versions, if the store holds JSON, and building the JSON otherwise.

use crate::{controller::metadata, object::Object};

/// True if `metadata.generation` differs: the desired state changed, and not only the status. Also true for objects
/// without a generation, such as ConfigMaps, whose every change counts.
///
/// Adding a finalizer or a label does not change the generation. A controller with finalizers needs
/// `changed::generation(old, new) || changed::finalizers(old, new)`.
#[must_use]
pub fn generation<K>(old: &Object<K>, new: &Object<K>) -> bool {
    let (old, new) = (old.field("metadata.generation"), new.field("metadata.generation"));
    old.is_none() || new.is_none() || old != new
}

/// True if the labels differ.
#[must_use]
pub fn labels<K>(old: &Object<K>, new: &Object<K>) -> bool {
    old.labels() != new.labels()
}

/// True if the annotations differ.
#[must_use]
pub fn annotations<K>(old: &Object<K>, new: &Object<K>) -> bool {
    differs(old, new, "annotations")
}

/// True if the finalizers differ.
#[must_use]
pub fn finalizers<K>(old: &Object<K>, new: &Object<K>) -> bool {
    differs(old, new, "finalizers")
}

/// True if the version differs: any change of the object.
#[must_use]
pub fn resource_version<K>(old: &Object<K>, new: &Object<K>) -> bool {
    old.resource_version() != new.resource_version()
}

/// True if the deletion of the object began, which leaves it in place until its finalizers are removed.
pub(super) fn deletion<K>(old: &Object<K>, new: &Object<K>) -> bool {
    let is_deleted = |object: &Object<K>| object.field("metadata.deletionTimestamp").is_some();
    is_deleted(new) && !is_deleted(old)
}

/// Compares the bytes as sent: a server writes equal values alike.
fn differs<K>(old: &Object<K>, new: &Object<K>, member: &str) -> bool {
    metadata::member(&old.json(), member) != metadata::member(&new.json(), member)
}
