//! Which objects a client wants: scope, name, labels and fields, resolved once against the schema.

use std::sync::Arc;

use informer_core::selector::{field, label};

use crate::entry::{Entry, Schema};

/// A selector asks for a field that objects of this type cannot be selected by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field label not supported: {label}")]
pub struct UnknownField {
    /// As the client wrote it.
    pub label: String,
}

/// Which objects a client wants.
#[derive(Clone, Debug)]
pub struct Filter {}

impl Filter {
    /// A filter over objects of `schema`. `namespace` is that of the request's path; `None` reads all, and is the only
    /// choice for cluster-scoped types. `metadata.name` and `metadata.namespace` in `fields` narrow the range that is
    /// read; contradictions match nothing.
    ///
    /// # Errors
    /// [`UnknownField`] for a term that names neither those nor one of [`Schema::fields`].
    pub fn new(
        schema: &Schema,
        namespaced: bool,
        namespace: Option<&str>,
        labels: label::Selector,
        fields: &field::Selector,
    ) -> Result<Arc<Self>, UnknownField> {
        todo!("{schema:?} {namespaced} {namespace:?} {labels:?} {fields:?}")
    }

    /// Everything.
    #[must_use]
    pub fn all() -> Arc<Self> {
        todo!()
    }

    /// Whether `entry` is wanted. Cost: string comparisons; the body is not scanned.
    #[must_use]
    pub fn matches(&self, entry: &Entry) -> bool {
        todo!("{entry:?}")
    }

    /// Whether neither label nor field selector was given.
    #[must_use]
    pub fn selects_all(&self) -> bool {
        todo!()
    }
}
