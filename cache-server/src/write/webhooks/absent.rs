//! In place of the admission webhooks, in a build without the feature `assets`: there are none.

use std::sync::Arc;

use api_rules::{
    object::{
        Object, WriteRequest, WriteTarget,
        options::{DeleteOptions, Options},
    },
    registry::ResourceType,
};
use http::Method;
use informer_serving::status::Status;

use crate::{
    app::{App, LocalApp},
    budget::{ReservedBudget, WorkTurn},
    webhooks::RequestAdmission,
};

/// A change of an object.
#[derive(Clone, Copy)]
pub(super) struct AdmittedChange<'a> {
    pub(super) place: &'a WriteTarget<'a>,
    pub(super) is_scale: bool,
    pub(super) options: Options,
}

pub(super) async fn begin(
    _: &LocalApp<'_>,
    _: &Method,
    _: &WriteRequest<'_>,
    _: &mut ReservedBudget,
) -> Result<Option<RequestAdmission>, Status> {
    Ok(None)
}

pub(super) const fn expect(_: &App, _: &Arc<ResourceType>) {}

pub(super) const fn turn<'a>(_: &LocalApp<'a>) -> Option<&'a Arc<WorkTurn>> {
    None
}

pub(super) const fn warnings(_: &App) -> Vec<String> {
    Vec::new()
}

pub(super) async fn mutate_new(
    _: &LocalApp<'_>,
    _: &Arc<ResourceType>,
    _: &mut Object,
    _: Options,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    Ok(())
}

pub(super) async fn check_new(_: &LocalApp<'_>, _: &Arc<ResourceType>, _: &Object, _: Options) -> Result<(), Status> {
    Ok(())
}

pub(super) async fn mutate_update(
    _: &LocalApp<'_>,
    _: AdmittedChange<'_>,
    _: &mut Object,
    _: &Object,
) -> Result<(), Status> {
    Ok(())
}

pub(super) async fn check_update(
    _: &LocalApp<'_>,
    _: AdmittedChange<'_>,
    _: &Object,
    _: &Object,
) -> Result<(), Status> {
    Ok(())
}

pub(super) async fn check_delete(
    _: &LocalApp<'_>,
    _: &WriteTarget<'_>,
    _: &DeleteOptions,
    _: &Object,
    _: bool,
) -> Result<(), Status> {
    Ok(())
}

pub(super) async fn admit_order(
    _: &LocalApp<'_>,
    _: &WriteRequest<'_>,
    _: &ResourceType,
    _: &mut Object,
    _: Options,
) -> Result<(), Status> {
    Ok(())
}
