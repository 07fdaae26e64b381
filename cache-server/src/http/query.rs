//! Which objects a query selects, by the fields that a type has.
//!
//! INVARIANT: what does not depend on the type was read and refused before, by [`ListOptions`].

use std::sync::Arc;

use informer_core::wire::{go, options::ListOptions, status::Status};
use watch_cache::{Filter, UnknownField};

use super::route::Target;

/// Which objects of `target` are wanted.
///
/// # Errors
/// 400 for a field that objects of this type cannot be selected by, in the dialect of the type.
pub(crate) fn filter(options: &ListOptions, target: &Target) -> Result<Arc<Filter>, Status> {
    let ty = &target.ty;
    let refuse = |label: &str| {
        Status::bad_request(if ty.other_fields {
            format!("field label not supported: {label}")
        } else {
            let quoted = go::quote(label);
            format!("{quoted} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        })
    };
    // Cluster-scoped types with a field list of their own do not list the namespace; the others take it from all.
    let has_namespace = ty.namespaced || !ty.other_fields;
    if let Some(term) = options.fields.terms().iter().find(|term| !has_namespace && term.field == NAMESPACE) {
        return Err(refuse(&term.field));
    }
    Filter::new(&ty.schema, ty.namespaced, target.namespace.as_deref(), options.labels.clone(), &options.fields)
        .map_err(|UnknownField { label }| refuse(&label))
}

const NAMESPACE: &str = "metadata.namespace";

#[cfg(test)]
mod tests;
