//! DELETECOLLECTION: deletes the objects that a LIST with the same query returns, one by one, and answers with that
//! LIST.
//!
//! Source: apiserver `endpoints/handlers/delete.go` (DeleteCollection).

use std::sync::Arc;

use api_rules::{
    object::{WriteRequest, WriteTarget, deletion, metadata::Part, options::DeleteOptions},
    registry::ResourceType,
};
use informer_serving::{
    options::ListOptions,
    status::{Status, StatusExt as _},
};
use watch_cache::Entry;

use super::{answer, delete, webhooks};
use crate::{
    app::LocalApp,
    read::{
        body::Response,
        list::SelectedObjects,
        negotiate::{AnswerFormat, AnswerSubject},
    },
    route::Target,
    stored::removal::DeleteError,
};

/// `DELETE …/{plural}`.
///
/// # Errors
/// The Status to answer with. Requests are refused before anything is deleted; after that, the Status of the first
/// object that could not be deleted.
pub(super) async fn delete(
    app: &LocalApp<'_>,
    target: &Target,
    request: &WriteRequest<'_>,
    options: &ListOptions,
    format: &AnswerFormat,
) -> Result<Response, Status> {
    if request.ty.namespaced && request.namespace.is_none() {
        return Err(Status::generic_method_not_allowed());
    }
    let deletion = app.work.run(request.size(None)?, async { DeleteOptions::read(request) }).await??;
    let deletion = delete::options(app, deletion);
    format.form(&target.ty, AnswerSubject::List)?;
    let (selected, state) = SelectedObjects::read(app, target, options, 0).await?;
    // Detach the snapshot from the window: the events of this deletion could evict its position and cut the answer.
    let objects = state.objects.clone();
    drop(state);
    let mut page = selected.page(selected.detached(&objects)).await;
    selected.hold_next(app, &page);
    let mut entries = Vec::new();
    while page.visit(|entry, _| {
        entries.push(Arc::clone(entry));
        true
    }) {
        if page.is_cut() {
            return Err(Status::server_timeout(&target.ty.group, &target.ty.plural, "deletecollection"));
        }
        tokio::task::yield_now().await;
    }
    delete_each(app, &target.ty, &entries, &deletion).await?;
    // Begin a new page: the deletion may have taken longer than a page's state is kept.
    let page = selected.page(selected.detached(&objects)).await;
    let mut response = selected.respond(app, &target.ty, page, format).await?;
    let warnings: Vec<_> =
        deletion::warning(&target.ty, &deletion).into_iter().chain(webhooks::warnings(app)).collect();
    answer::warn(&mut response, &warnings);
    Ok(response)
}

/// Deletes the listed objects one by one. Objects that were deleted meanwhile are no error.
async fn delete_each(
    app: &LocalApp<'_>,
    ty: &Arc<ResourceType>,
    listed: &[Arc<Entry>],
    options: &DeleteOptions,
) -> Result<(), Status> {
    let asks = options.uid.is_some() || options.resource_version.is_some();
    for entry in listed {
        let place = WriteTarget { ty, namespace: entry.namespace(), name: entry.name(), part: Part::Main };
        // The uid precondition protects a new object with a listed object's name.
        let uid = options.uid.clone().or_else(|| Some(entry.uid().to_owned()));
        let one = DeleteOptions { uid, ..options.clone() };
        match delete::remove_admitted(app, &place, &one, true).await {
            Ok(_) | Err(DeleteError::NotFound) => {}
            // The listed object is deleted: another one has its name.
            Err(DeleteError::Precondition(_)) if !asks => {}
            Err(error) => return Err(delete::refusal(&place, error)),
        }
    }
    Ok(())
}
