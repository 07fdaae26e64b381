//! Replaces and patches objects.
//!
//! Source: apiserver `registry/generic/registry/store.go` (Update), `registry/rest/update.go`.

use api_rules::object::{
    WriteTarget,
    draft::bounded_draft,
    options::Options,
    update::{RequestedChange, UpdatePlan, plan},
};
use http::StatusCode;
use informer_serving::status::Status;

use super::{WriteAnswer, now, read, unread};
use crate::{
    app::App,
    storage::{Expect, Txn, WriteError},
    stored::current::Current,
};

/// Bound on attempts of a write without a resourceVersion when other writes come first. kube-apiserver is bounded only
/// by the request's deadline.
const ATTEMPTS_MAX: usize = 64;

/// Makes the change and answers with the object. After a conflict the change is made again, to the new object; a change
/// with a resourceVersion then fails.
pub(super) async fn update(
    app: &App,
    place: &WriteTarget<'_>,
    change: &RequestedChange<'_>,
    options: Options,
    warnings: &mut Vec<String>,
) -> Result<WriteAnswer, Status> {
    for _ in 0..ATTEMPTS_MAX {
        let current = match change {
            RequestedChange::Replace(sent) => Current::read_for_replacing(&app.caches, place, sent.is_managed())
                .await
                .map_err(|error| unread(place, error))?,
            RequestedChange::Patch(_) | RequestedChange::Apply(_) => read(app, place).await?,
        };
        let mut said = Vec::new();
        if let Some(answer) = attempt(app, place, &current, change, options, &mut said).await? {
            warnings.append(&mut said);
            return Ok(answer);
        }
    }
    Err(place.modified())
}

/// Makes the change to the object as read; `None` if another write came first.
pub(super) async fn attempt(
    app: &App,
    place: &WriteTarget<'_>,
    current: &Current,
    change: &RequestedChange<'_>,
    options: Options,
    warnings: &mut Vec<String>,
) -> Result<Option<WriteAnswer>, Status> {
    let plan = plan(place, &current.object, change, options, &now(), warnings)?;
    let put = match &plan {
        UpdatePlan::Keep => return Ok(Some(WriteAnswer::stored(StatusCode::OK, &current.entry))),
        UpdatePlan::Put(next) => Some(bounded_draft(place.ty, next, app.config.object_bytes_max)?),
        UpdatePlan::Delete(_) => None,
    };
    // If only metadata was decoded, `plan` could not compare: detect a no-op by comparing bytes.
    if put.as_ref().is_some_and(|draft| !current.is_whole && draft.same_content(&current.entry)) {
        return Ok(Some(WriteAnswer::stored(StatusCode::OK, &current.entry)));
    }
    if let (UpdatePlan::Put(next) | UpdatePlan::Delete(next), true) = (&plan, options.dry_run) {
        return Ok(Some(WriteAnswer::unstored(StatusCode::OK, place.ty, next.clone())));
    }
    let expect = Expect::At(current.entry.resource_version());
    match app.storage.write(Txn { ty: place.ty.clone(), key: place.key(), expect, put }).await {
        Ok(written) => Ok(Some(match plan {
            UpdatePlan::Keep | UpdatePlan::Put(_) => WriteAnswer::stored(StatusCode::OK, &written.entry),
            UpdatePlan::Delete(last) => WriteAnswer::unstored(StatusCode::OK, place.ty, last),
        })),
        Err(WriteError::Conflict { .. } | WriteError::Exists) => Ok(None),
        Err(WriteError::NotFound) => Err(place.not_found()),
        Err(error @ WriteError::Storage(_)) => Err(error.into()),
    }
}
