//! `…/pods/{name}/binding`, and `…/bindings` with the name in the body: binds a pod to a node.

use api_rules::{
    object::{
        Object, WriteRequest, WriteTarget, binding,
        metadata::{self, Part},
        options::Options,
    },
    registry::Subresource,
};
use informer_serving::status::{Status, StatusExt as _};

use super::{answer::WriteAnswer, commit, nodes, read_order};
use crate::{app::LocalApp, clock, limits::WRITE_ATTEMPTS_MAX};

/// `POST …/pods/{name}/binding`.
///
/// # Errors
/// The Status to answer with.
pub(super) async fn create(app: &LocalApp<'_>, request: &WriteRequest<'_>) -> Result<WriteAnswer, Status> {
    let place = request.owner()?;
    let ty = Subresource::Binding.sent().ok_or_else(Status::generic_not_found)?;
    let (sent, options, warnings) = read_order(app, request, ty, place.ty).await?;
    nodes::writer(app).map_or(Ok(()), |node| node.refuse_of_pod(place.name, Subresource::Binding.name()))?;
    bind(app, &place, &sent, options).await?;
    Ok(WriteAnswer::success(warnings))
}

/// `POST …/bindings`.
///
/// # Errors
/// The Status to answer with.
pub(super) async fn create_named(app: &LocalApp<'_>, request: &WriteRequest<'_>) -> Result<WriteAnswer, Status> {
    let pods = app.registry.now().find("", "v1", "pods").ok_or_else(Status::generic_not_found)?;
    let (sent, options, warnings) = read_order(app, request, request.ty, &pods).await?;
    let (namespace, name) = (metadata::text(&sent, "namespace"), metadata::text(&sent, "name"));
    let place = WriteTarget { ty: &pods, namespace, name, part: Part::Main };
    bind(app, &place, &sent, options).await?;
    Ok(WriteAnswer::success(warnings))
}

async fn bind(app: &LocalApp<'_>, place: &WriteTarget<'_>, sent: &Object, options: Options) -> Result<(), Status> {
    binding::check(place, sent)?;
    for _ in 0..WRITE_ATTEMPTS_MAX {
        let pod = commit::read(app, place).await?;
        let next = binding::bind(place, &pod.object, sent, &clock::now())?;
        if options.dry_run || commit::put(app, place, &pod, &next).await?.is_some() {
            return Ok(());
        }
    }
    Err(place.modified())
}
