//! One object and its bytes on the wire, made once.
//!
//! INVARIANT: `line` is `{"type":"ADDED","object":{"kind":K,"apiVersion":V,<other members>}}\n` on one line, with
//! `metadata.resourceVersion` present exactly once.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use informer_core::Keyed;

use crate::slices::Slices;

/// What a cache needs to know of a resource type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The kind of one object, such as `Pod`.
    pub kind: String,
    /// Such as `v1` or `apps/v1`.
    pub api_version: String,
    /// Whether items of its lists leave kind and apiVersion out, as Kubernetes' own types do.
    pub builtin: bool,
    /// Selectable fields besides `metadata.name` and `metadata.namespace`.
    pub fields: Vec<Field>,
    /// The field of `fields` that names the object's node: watches of one node get a bucket of their own.
    pub node_field: Option<usize>,
}

/// A selectable field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name in selectors, such as `spec.host`.
    pub label: String,
    /// Where the value is, such as `spec.nodeName`.
    pub path: String,
    /// The value of objects that do not have the field: `""`, or what Kubernetes fills in, such as `false`.
    pub absent: String,
}

/// Why bytes are no object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Not one JSON object with a metadata object.
    #[error("not a JSON object with metadata")]
    NotAnObject,
    /// No `metadata.name`.
    #[error("the object has no name")]
    NoName,
    /// A name or namespace with `/` or control characters cannot be a key.
    #[error("the object's name or namespace cannot be a key")]
    BadName,
    /// Longer than [`informer_core::limits::OBJECT_BYTES_MAX`].
    #[error("the object has {bytes} bytes")]
    TooLarge {
        /// Its length.
        bytes: usize,
    },
}

/// An object on its way into storage: canonical text without the digits of its resourceVersion.
#[derive(Debug)]
pub struct Draft {}

impl Draft {
    /// Reads `object`, one JSON object with its members in any order; kind and apiVersion become those of `schema`, the
    /// resourceVersion is whatever [`Self::commit`] says. Cost: one pass and one copy; white space goes.
    ///
    /// # Errors
    /// [`EntryError`]; never with the object's content.
    pub fn new(schema: &Schema, object: &[u8]) -> Result<Self, EntryError> {
        todo!("{schema:?} {object:?}")
    }

    /// `namespace/name`, or `name` when there is no namespace.
    #[must_use]
    pub fn key(&self) -> &str {
        todo!()
    }

    /// Whether committing would change nothing but the resourceVersion: such an update is no event.
    #[must_use]
    pub fn same_content(&self, entry: &Entry) -> bool {
        todo!("{entry:?}")
    }

    /// The entry at `resource_version`. Cost: one allocation of the line's size and one for the entry.
    #[must_use]
    pub fn commit(self, resource_version: u64) -> Arc<Entry> {
        todo!("{resource_version}")
    }
}

/// One object at one resourceVersion. Never changes; shared by everything that knows the object.
#[derive(Debug)]
pub struct Entry {}

impl Entry {
    /// `""` for cluster-scoped objects.
    #[must_use]
    pub fn namespace(&self) -> &str {
        todo!()
    }

    /// The name without the namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        todo!()
    }

    /// `""` when there is none.
    #[must_use]
    pub fn uid(&self) -> &str {
        todo!()
    }

    /// The object's own position.
    #[must_use]
    pub fn resource_version(&self) -> u64 {
        todo!()
    }

    /// Its digits, shared.
    #[must_use]
    pub fn digits(&self) -> Bytes {
        todo!()
    }

    /// A label's value.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        todo!("{key}")
    }

    /// The value of a selectable field by its place in [`Schema::fields`]; `""` when the place does not exist.
    #[must_use]
    pub fn field(&self, place: usize) -> &str {
        todo!("{place}")
    }

    /// The object itself: `{"kind":…}`, no newline. Shared, not copied.
    #[must_use]
    pub fn object(&self) -> Bytes {
        todo!()
    }

    /// The whole ADDED line. Shared, not copied.
    #[must_use]
    pub fn added(&self) -> Bytes {
        todo!()
    }

    /// Pushes the MODIFIED line: a head and the rest.
    pub fn modified(&self, out: &mut Slices) {
        todo!("{out:?}")
    }

    /// Pushes the DELETED line: this content with `digits` as its resourceVersion.
    pub fn deleted(&self, digits: Bytes, out: &mut Slices) {
        todo!("{out:?} {digits:?}")
    }

    /// Pushes an item of a LIST, with a comma before it unless it is the first. Items of built-in types have no kind and
    /// apiVersion.
    pub fn item(&self, first: bool, out: &mut Slices) {
        todo!("{out:?} {first}")
    }

    /// Memory of the entry, in bytes, with its line.
    #[must_use]
    pub fn cost(&self) -> usize {
        todo!()
    }
}

impl Keyed for Entry {
    fn key(&self) -> &str {
        todo!()
    }
}
