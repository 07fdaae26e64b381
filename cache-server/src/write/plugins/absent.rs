//! In place of the admission plugins, in a build without the feature `assets`: there are none.

use std::sync::Arc;

use api_rules::{
    object::{Object, metadata::Part, options::Options},
    registry::ResourceType,
};
use informer_serving::status::Status;

use crate::app::LocalApp;

pub(super) async fn complete_new(_: &LocalApp<'_>, _: &Arc<ResourceType>, _: &mut Object) -> Result<(), Status> {
    Ok(())
}

pub(super) async fn check(
    _: &LocalApp<'_>,
    _: &ResourceType,
    _: Part,
    _: &Object,
    _: Option<&Object>,
) -> Result<(), Status> {
    Ok(())
}

pub(super) async fn charge(
    _: &LocalApp<'_>,
    _: &ResourceType,
    _: Part,
    _: &Object,
    _: Option<&Object>,
    _: Options,
) -> Result<(), Status> {
    Ok(())
}
