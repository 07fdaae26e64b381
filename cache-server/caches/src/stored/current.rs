//! The stored object that a write is about, as it was read.

use std::sync::Arc;

use api_rules::object::{
    Object, WriteTarget,
    metadata::Part,
    update::{RequestedChange, SealedChange},
};
use informer_core::wire::json;
use serde_json::Value;
use watch_cache::Entry;

use crate::cacher::{Caches, FreshnessError};

/// A stored object, decoded.
pub struct Current {
    /// The version that was read.
    pub entry: Arc<Entry>,
    /// Its content.
    pub object: Object,
    /// Extent of `object`.
    pub extent: DecodedExtent,
}

impl DecodedExtent {
    /// Returns true if all is decoded.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        matches!(self, Self::Whole | Self::Completed)
    }
}

/// Extent to which a stored object is decoded.
#[derive(Debug)]
pub enum DecodedExtent {
    /// All of it.
    Whole,
    /// All of it, changed since to fit the present schema of its type.
    Completed,
    /// The metadata that a replacement cannot change.
    Metadata,
    /// The parts that a change touches: see [`RequestedChange::sparse`].
    Touched(SealedChange),
}

/// Reason why an object was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadFailure {
    /// There is no such object.
    #[error("not found")]
    NotFound,
    /// The stored bytes are no JSON object.
    #[error("a stored object cannot be read")]
    Malformed,
    /// The cache is not ready.
    #[error(transparent)]
    Unfresh(#[from] FreshnessError),
}

impl Current {
    /// Reads the object as it is now, decoded.
    pub async fn read(caches: &Caches, target: &WriteTarget<'_>) -> Result<Self, ReadFailure> {
        Self::of(target, stored_entry(caches, target).await?)
    }

    /// Reads the object as it is now, or only the metadata that outlives its replacement where the replacement needs no
    /// more. `managed` is true if the replacement brings managedFields; if not, the stored ones stay.
    pub async fn read_for_replacing(
        caches: &Caches,
        target: &WriteTarget<'_>,
        managed: bool,
    ) -> Result<Self, ReadFailure> {
        let entry = stored_entry(caches, target).await?;
        let is_enough = target.part == Part::Main && target.ty.is_replaced_whole() && entry.is_normal();
        match is_enough.then(|| Self::metadata(&entry, managed)).flatten() {
            Some(object) => Ok(Self { entry, object, extent: DecodedExtent::Metadata }),
            None => Self::of(target, entry),
        }
    }

    /// Reads the object as it is now, decoded as far as `change` touches it, or whole if the change or the form of the
    /// object is unusual.
    pub async fn read_for_change(
        caches: &Caches,
        target: &WriteTarget<'_>,
        change: &RequestedChange<'_>,
    ) -> Result<Self, ReadFailure> {
        let entry = stored_entry(caches, target).await?;
        match change.sparse(target.ty, &entry) {
            Some((object, sealed)) => Ok(Self { entry, object, extent: DecodedExtent::Touched(sealed) }.at(target)),
            None => Self::of(target, entry),
        }
    }

    fn of(target: &WriteTarget<'_>, entry: Arc<Entry>) -> Result<Self, ReadFailure> {
        Ok(Self::decode(entry)?.at(target))
    }

    /// Gives the object the version of the request.
    fn at(mut self, target: &WriteTarget<'_>) -> Self {
        if let Some(conversion) = target.ty.conversion {
            (conversion.from_stored)(&mut self.object);
        }
        if target.ty.is_swapped() {
            // Without conversion, the object is the same at every version of its type.
            self.object.insert("apiVersion".to_owned(), target.ty.api_version().into());
        }
        self
    }

    fn decode(entry: Arc<Entry>) -> Result<Self, ReadFailure> {
        match serde_json::from_slice(&entry.object()) {
            Ok(Value::Object(object)) => Ok(Self { entry, object, extent: DecodedExtent::Whole }),
            Ok(_) | Err(_) => Err(ReadFailure::Malformed),
        }
    }

    /// Decodes the metadata that survives a replacement, except managedFields. `None` if there are managedFields that
    /// the replacement does not bring, as they survive too.
    fn metadata(entry: &Entry, managed: bool) -> Option<Object> {
        const KEPT: [&str; 9] = [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "finalizers",
        ];
        let text = entry.metadata();
        let mut metadata = Object::new();
        for member in json::members(&text) {
            let member = member.ok()?;
            let key = member.key.bytes();
            if !managed && *key == *b"managedFields" {
                return None;
            }
            if let Some(name) = KEPT.into_iter().find(|name| name.as_bytes() == &*key) {
                metadata.insert(name.to_owned(), decoded(member.value)?);
            }
        }
        (!metadata.is_empty()).then(|| Object::from_iter([("metadata".to_owned(), Value::Object(metadata))]))
    }
}

/// Decodes a value of a stored object. Cost: no parser for strings without escapes, which most values are.
fn decoded(value: &[u8]) -> Option<Value> {
    match value {
        [b'"', text @ .., b'"'] if !text.contains(&b'\\') => Some(Value::from(str::from_utf8(text).ok()?)),
        _ => serde_json::from_slice(value).ok(),
    }
}

/// Returns the cached entry of an object.
pub async fn stored_entry(caches: &Caches, target: &WriteTarget<'_>) -> Result<Arc<Entry>, ReadFailure> {
    let reader = caches.fresh(target.ty).await?;
    reader.get(&target.key()).ok_or(ReadFailure::NotFound)
}
