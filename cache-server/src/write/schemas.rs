//! Schemas of custom resources, which are enforced where this server acts as a cluster. Elsewhere their fields are kept as
//! they were sent.

use api_rules::{
    object::{Object, body, options::FieldValidation, structural, validation},
    registry::ResourceType,
};
use informer_serving::status::Status;

use crate::app::App;

/// True if objects of the type must fit its schema. They are decoded whole then.
pub(super) fn concern(app: &App, ty: &ResourceType) -> bool {
    app.config.acts_as_cluster && ty.custom.is_some()
}

/// Drops unknown fields and fills in defaults. Adds complaints about the fields to `warnings`.
///
/// # Errors
/// 422 for values that the schema does not allow; 400 for unknown fields, if they are to be refused.
pub(super) fn enforce(
    app: &App,
    ty: &ResourceType,
    object: &mut Object,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    if !concern(app, ty) {
        return Ok(());
    }
    let unknown = structural::enforce(ty, object)?;
    let complaints = unknown.iter().map(|path| validation::unknown_field(path)).collect();
    validation::report(validation, complaints, warnings)
        .map_err(|error| body::cannot_be_handled(ty, &ty.kind, &ty.version, &error))
}
