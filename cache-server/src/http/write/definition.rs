//! What writes to CustomResourceDefinitions do beside what all writes do.
//!
//! Source: apiextensions-apiserver `pkg/registry/customresourcedefinition/{strategy,etcd}.go`.

use informer_core::wire::status::Status;

use super::{body::Object, metadata};
use crate::registry::{Change, Definition, Refused, ResourceType};

/// Fills in what a definition left out, and checks the rest. Does nothing to objects of other types.
///
/// # Errors
/// 400 for what is no definition, 422 for one that cannot be.
pub(super) fn prepare(ty: &ResourceType, object: &mut Object, change: Change<'_>) -> Result<(), Status> {
    if !ty.defines_types {
        return Ok(());
    }
    Definition::prepare(object, change).map_err(|refused| match refused {
        Refused::Malformed => Status::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {kind}: json: cannot unmarshal the object",
            ty.version,
            kind = ty.kind
        )),
        Refused::Invalid(causes) => Status::invalid(&ty.group, &ty.kind, metadata::text(object, "name"), causes),
    })
}

/// Makes a definition wait for its objects before it goes. Does nothing to objects of other types, nor twice.
pub(super) fn hold(ty: &ResourceType, object: &mut Object, now: &str) {
    if ty.defines_types && !metadata::is_terminating(object) {
        Definition::terminate(object, now);
    }
}
