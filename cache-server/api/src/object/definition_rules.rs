//! Additional rules for writes to CustomResourceDefinitions.
//!
//! Source: apiextensions-apiserver `pkg/registry/customresourcedefinition/{strategy,etcd}.go`.

use informer_serving::status::{Status, StatusExt as _};

use super::{body::Object, metadata};
use crate::registry::{Definition, DefinitionChange, DefinitionRefusal, ResourceType};

/// Fills in the defaults of a definition, and validates the rest. Does nothing for other types.
///
/// # Errors
/// 400 if the object is no definition, 422 if the definition is invalid.
pub(crate) fn prepare(ty: &ResourceType, object: &mut Object, change: DefinitionChange<'_>) -> Result<(), Status> {
    if !ty.defines_types {
        return Ok(());
    }
    Definition::prepare(object, change).map_err(|refused| match refused {
        DefinitionRefusal::Malformed => Status::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {kind}: json: cannot unmarshal the object",
            ty.version,
            kind = ty.kind
        )),
        DefinitionRefusal::Invalid(causes) => {
            Status::invalid(&ty.group, &ty.kind, metadata::text(object, "name"), causes)
        }
    })
}

/// Adds the condition `Terminating`, and the finalizer that keeps a definition until its objects are deleted. Does
/// nothing for other types, and for definitions that are terminating already.
pub(crate) fn hold(ty: &ResourceType, object: &mut Object, now: &str) {
    if ty.defines_types && !metadata::is_terminating(object) {
        Definition::terminate(object, now);
    }
}
