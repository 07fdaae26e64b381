//! Deletes objects, or marks them while finalizers hold them.
//!
//! Source: apiserver `registry/generic/registry/store.go` (Delete), `registry/rest/delete.go`.

use std::sync::Arc;

use http::StatusCode;
use informer_core::wire::status::{Reason, Status};
use serde_json::Value;
use watch_cache::{Filter, Page};

use super::{
    Answer, Current, Place, definition, draft,
    metadata::{self, Part},
    now,
    options::DeleteOptions,
};
use crate::{
    app::App,
    registry::ResourceType,
    storage::{Expect, Txn, WriteError},
};

/// How often a delete is tried when other writes come first. Kubernetes has no bound; a client may ask again.
const ATTEMPTS_MAX: usize = 64;

/// Deletes one object and answers it, or a Status, as its type has it.
pub(super) async fn delete(app: &App, place: &Place<'_>, options: &DeleteOptions) -> Result<Answer, Status> {
    for _ in 0..ATTEMPTS_MAX {
        let mut current = place.read(app).await?;
        check_preconditions(place, &current, options)?;
        definition::hold(place.ty, &mut current.object, &now());
        let held = !metadata::finalizers(&current.object).is_empty();
        if held && metadata::is_terminating(&current.object) {
            return Ok(Answer::stored(StatusCode::OK, &current.entry));
        }
        if held {
            metadata::mark_terminating(&mut current.object, &now());
        }
        if options.dry_run {
            return Ok(answer(place, current, held, None));
        }
        let put = if held { Some(draft(place.ty, &current.object)?) } else { None };
        let expect = Expect::At(current.entry.resource_version());
        match app.storage.write(Txn { ty: place.ty.clone(), key: place.key(), expect, put }).await {
            Ok(written) if held => return Ok(Answer::stored(StatusCode::OK, &written.entry)),
            Ok(written) => return Ok(answer(place, current, held, Some(written.resource_version))),
            Err(WriteError::Conflict { .. } | WriteError::Exists) => {}
            Err(WriteError::NotFound) => return Err(place.not_found()),
            Err(error @ WriteError::Storage(_)) => return Err(error.into()),
        }
    }
    Err(place.modified())
}

/// Deletes what `filter` wants and answers the list as it was read.
pub(super) async fn delete_collection(
    app: &App,
    ty: &Arc<ResourceType>,
    filter: Arc<Filter>,
    limit: Option<usize>,
    options: &DeleteOptions,
) -> Result<Page, Status> {
    let snapshot = app.caches.fresh(ty).await?.snapshot();
    let wanted = snapshot.objects.iter().filter(|entry| filter.matches(entry)).take(limit.unwrap_or(usize::MAX));
    for entry in wanted {
        let place = Place { ty, namespace: entry.namespace(), name: entry.name(), part: Part::Main };
        // Another object of that name is not what was listed.
        let listed = DeleteOptions { uid: Some(entry.uid().to_owned()), ..options.clone() };
        match delete(app, &place, &listed).await {
            Ok(_) => {}
            Err(status) if matches!(status.reason, Reason::NotFound | Reason::Conflict) => {}
            Err(status) => return Err(status),
        }
    }
    Ok(Page::new(snapshot, filter, None, limit))
}

/// What an object that went at once answers, at the version of the deletion.
fn answer(place: &Place<'_>, current: Current, held: bool, resource_version: Option<u64>) -> Answer {
    let mut object = current.object;
    let version = resource_version.map(|version| version.to_string());
    if held || place.ty.returns_deleted {
        if let Some(version) = version {
            metadata::metadata_mut(&mut object).insert("resourceVersion".to_owned(), Value::String(version));
        }
        return Answer::unstored(StatusCode::OK, place.ty, object);
    }
    let uid = metadata::text(&object, "uid");
    let mut status = Status::deleted(&place.ty.group, &place.ty.plural, place.name, uid);
    status.metadata.resource_version = version.unwrap_or_default();
    Answer::status(&status)
}

/// The kind, not the plural, stands in these texts, and in their details.
fn check_preconditions(place: &Place<'_>, current: &Current, options: &DeleteOptions) -> Result<(), Status> {
    let uid = metadata::text(&current.object, "uid");
    let version = current.entry.resource_version().to_string();
    let refuse = |text: String| Err(Status::conflict(&place.ty.group, &place.ty.kind, place.name, &text));
    match (options.uid.as_deref(), options.resource_version.as_deref()) {
        (Some(wanted), _) if wanted != uid => refuse(format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have \
             been deleted and then recreated"
        )),
        (_, Some(wanted)) if wanted != version => refuse(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({version}). The object might have been modified"
        )),
        _ => Ok(()),
    }
}
