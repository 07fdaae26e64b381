//! In place of the schemas, in a build without the feature `assets`: fields of custom resources are kept as they were sent.

use api_rules::{
    object::{Object, WriteTarget, apply::Completion, options::FieldValidation},
    registry::ResourceType,
};
use informer_serving::status::Status;

use crate::{app::App, stored::current::Current};

pub(super) const fn concern(_: &App, _: &ResourceType) -> bool {
    false
}

pub(super) fn complete(
    _: &App,
    _: &ResourceType,
    _: &mut Object,
    _: FieldValidation,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    Ok(())
}

pub(super) const fn completion(_: &App, _: &ResourceType) -> Option<Completion> {
    None
}

pub(super) const fn complete_stored(_: &App, _: &ResourceType, _: &mut Current) {}

pub(super) fn enforce(
    _: &App,
    _: &ResourceType,
    _: &mut Object,
    _: Option<FieldValidation>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    Ok(())
}

pub(super) fn check_successor(
    _: &App,
    _: &WriteTarget<'_>,
    _: &Object,
    _: &Object,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    Ok(())
}
