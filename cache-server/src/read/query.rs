//! Builds the object filter of a query, from selectors and the fields that the type supports.
//!
//! INVARIANT: [`ListOptions`] has already validated everything that does not depend on the type.

use std::sync::Arc;

use informer_core::selector::field;
use informer_serving::{
    options::ListOptions,
    status::{Status, StatusExt as _},
};
use watch_cache::{Filter, UnknownField};

use crate::route::Target;

/// Builds the filter for the objects of `target`.
///
/// # Errors
/// 400 for a field that objects of this type cannot be selected by, in the wording of the type; 500 for an invalid shard
/// selector.
pub(crate) fn filter(options: &ListOptions, target: &Target) -> Result<Arc<Filter>, Status> {
    let ty = &target.ty;
    let refuse = |label: &str| Status::bad_request(ty.refuse_field(label));
    // The schema covers all versions of a type; this version may have fewer fields.
    let is_known = |field: &str| match field {
        NAME => true,
        NAMESPACE => ty.selects_namespace(),
        field => ty.field_labels.iter().any(|label| label == field),
    };
    if let Some(term) = options.fields.terms().iter().find(|term| !is_known(&term.field)) {
        return Err(refuse(&term.field));
    }
    let filter = |fields: &field::Selector| {
        Filter::new(&ty.schema, ty.namespaced, target.namespace.as_deref(), options.labels.clone(), fields)
            .map_err(|UnknownField { label }| refuse(&label))
    };
    let stored = ty.conversion.map(|conversion| options.fields.renamed(|label| conversion.stored_label(label)));
    // kube-apiserver parses the shard selector after all others.
    let filtered = filter(stored.as_ref().unwrap_or(&options.fields))?;
    let shard = options.shard()?;
    // The path of a watch of one object is equivalent to a selector on its name.
    match &target.name {
        None => Ok(filtered.in_shard(shard)),
        Some(name) if options.fields.is_empty() => Ok(filter(&field::Selector::one(NAME, name))?.in_shard(shard)),
        Some(name) if options.fields.exact(NAME) == Some(name) => Ok(filtered.in_shard(shard)),
        Some(_) => Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name")),
    }
}

const NAME: &str = "metadata.name";

const NAMESPACE: &str = "metadata.namespace";

#[cfg(test)]
mod tests;
