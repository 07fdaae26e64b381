//! Creates objects: as a POST sends them, and where an update or apply finds none.
//!
//! Source: apiserver `registry/rest/create.go`.

use informer_serving::status::{Status, StatusExt as _};

use super::{
    WriteRequest, WriteTarget,
    body::{Encoding, Object, read_valid},
    metadata::{self, Birth, Part},
    options::Options,
    patch::undecodable,
    update::{check_uid, version},
    validation,
};
use crate::registry::{Registry, ResourceType};

/// Reads the object that a POST sends, and its options.
///
/// # Errors
/// 405 without a namespace for a type that has them, and for the path of an object; 415, 400 and 422 for its options
/// and body.
pub fn read(
    registry: &Registry,
    request: &WriteRequest<'_>,
    warnings: &mut Vec<String>,
) -> Result<(Object, Options), Status> {
    let WriteRequest { ty, namespace, content_type, body, .. } = *request;
    if request.name.is_some() || (ty.namespaced && namespace.is_none()) {
        return Err(Status::generic_method_not_allowed());
    }
    // 415 takes precedence over errors in the options, as in kube-apiserver.
    Encoding::of(ty, content_type)?;
    let options = Options::read("CreateOptions", request.query)?;
    let mut sent = read_valid(registry, ty, content_type, body, options.validation, warnings)?;
    metadata::match_namespace(ty, namespace.unwrap_or_default(), &mut sent)?;
    Ok((sent, options))
}

/// Turns the object of an update that found none into the one to create.
///
/// # Errors
/// 404 if updates of the type or part do not create, 409 if the update names another object by its uid.
pub fn instead_of_update(place: &WriteTarget<'_>, mut sent: Object) -> Result<Object, Status> {
    if !place.ty.create_on_update {
        return Err(place.not_found());
    }
    check_uid(place, &Object::new(), &sent)?;
    if place.part != Part::Main {
        return Err(place.not_found());
    }
    version(&sent)?;
    // The version names the object that was deleted.
    metadata::metadata_mut(&mut sent).remove("resourceVersion");
    Ok(sent)
}

/// Turns the object that an update or apply creates into a new one.
///
/// # Errors
/// 400 for values of a wrong JSON type, and as [`metadata::prepare_create`].
pub fn prepare_named(ty: &ResourceType, object: &mut Object, birth: Birth<'_>) -> Result<(), Status> {
    if let Some(error) = validation::check(ty, object).mistyped {
        return Err(undecodable(&error));
    }
    metadata::prepare_create(ty, object, birth)
}

/// Builds the error for a name that is taken. `generates` is true if the object has `generateName`: kube-apiserver adds
/// its text for chosen names too. `existing` is the object that has the name, if it was read.
pub fn taken(ty: &ResourceType, name: &str, generates: bool, existing: Option<&Object>) -> Status {
    let mut status = Status::already_exists(&ty.group, &ty.plural, name);
    if generates {
        status.message.push_str(", the server was not able to generate a unique name for the object");
        status.details.get_or_insert_default().retry_after_seconds = 1;
    }
    if existing.is_some_and(metadata::is_terminating) {
        status.message.insert_str(0, "object is being deleted: ");
    }
    status
}
