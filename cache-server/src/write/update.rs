//! PUT: replaces an object, or creates it if its type allows creation by update.
//!
//! Source: apiserver `registry/generic/registry/store.go` (Update), `registry/rest/update.go`.

use std::sync::Arc;

use api_rules::object::{
    WriteRequest, WriteTarget,
    create::instead_of_update,
    options::Options,
    plain::{self, NormalEntry, PlainObject},
    update::{RequestedChange, SentObject, read_sent},
};
use informer_serving::status::{Reason, Status};

use super::{answer::WriteAnswer, commit, create, grants, nodes, owners, schemas};
use crate::{
    app::LocalApp,
    limits::WRITE_ATTEMPTS_MAX,
    stored::{self, ReplaceOutcome, current::stored_entry},
};

/// `PUT …/{plural}/{name}`, and of its subresource `status`.
///
/// # Errors
/// The Status to answer with.
pub(super) async fn update(app: &LocalApp<'_>, request: &WriteRequest<'_>) -> Result<WriteAnswer, Status> {
    let place = request.target()?;
    let options = Options::read("UpdateOptions", request.query)?;
    if let Some(answer) = replace_plainly(app, request, &place, options).await? {
        return Ok(answer);
    }
    let (registry, mut warnings) = (app.registry.now(), Vec::new());
    let read = |warnings: &mut Vec<String>| read_sent(&registry, request, &place, options, warnings);
    let again = || read(&mut Vec::new());
    let sent = SentObject::new(read(&mut warnings)?, &again);
    let answer = replace(app, &place, sent, options, &mut warnings).await?;
    Ok(WriteAnswer { warnings, ..answer })
}

/// Replaces an object without decoding it. Returns `None` if that is not possible, if it fails, or if another write came
/// first: the caller then decodes the body and decides.
///
/// # Errors
/// The Status of a storage that failed.
async fn replace_plainly(
    app: &LocalApp<'_>,
    request: &WriteRequest<'_>,
    place: &WriteTarget<'_>,
    options: Options,
) -> Result<Option<WriteAnswer>, Status> {
    let is_checked = grants::concern(place.ty) || schemas::concern(app, place.ty) || app.admission.is_some();
    let is_checked = is_checked || !nodes::may_replace(app, place);
    if options.dry_run || is_checked {
        return Ok(None);
    }
    let Some(text) = plain::text(request) else { return Ok(None) };
    // First, because a read may ask the storage, and the caller of an unusual body, or for an object in an unusual
    // form, reads again.
    let Some(sent) = PlainObject::read(place.ty, &text) else { return Ok(None) };
    let cached = app.caches.current(place.ty).and_then(|cache| cache.get(&place.key()));
    let Some(cached) = cached.and_then(|cached| NormalEntry::of(place.ty, cached)) else { return Ok(None) };
    let Ok(stored) = stored_entry(&app.caches, place).await else { return Ok(None) };
    let is_cached = Arc::ptr_eq(cached.entry(), &stored);
    let stored = if is_cached { Some(cached) } else { NormalEntry::of(place.ty, stored) };
    let Some(stored) = stored else { return Ok(None) };
    let draft = sent.succeed(place, &stored).filter(|draft| draft.len() <= app.config.object_bytes_max);
    let (Some(draft), stored) = (draft, stored.entry()) else { return Ok(None) };
    if draft.same_content(stored) {
        return Ok(Some(WriteAnswer::stored(Arc::clone(stored))));
    }
    Ok(match stored::replace(&**app.store, place.ty, stored, Some(draft)).await? {
        ReplaceOutcome::Done(written) => Some(WriteAnswer::stored(written.entry)),
        ReplaceOutcome::Late | ReplaceOutcome::Gone => None,
    })
}

/// Replaces an object, or creates it if its type allows creation by update.
async fn replace(
    app: &LocalApp<'_>,
    place: &WriteTarget<'_>,
    sent: SentObject<'_>,
    options: Options,
    warnings: &mut Vec<String>,
) -> Result<WriteAnswer, Status> {
    let change = RequestedChange::Replace(sent);
    // Other clients may create and delete the object meanwhile.
    for _ in 0..WRITE_ATTEMPTS_MAX {
        let refused = match commit::change(app, place, &change, options, warnings).await {
            Err(status) if place.ty.create_on_update && status.reason == Reason::NotFound => status,
            other => return other,
        };
        let RequestedChange::Replace(sent) = &change else { return Err(refused) };
        let mut object = instead_of_update(place, sent.take()?)?;
        owners::record_new(app, place.ty, &mut object, options, &mut Vec::new())?;
        if let Some(made) = create::create_named(app, place.ty, &object, options).await? {
            return Ok(made);
        }
    }
    Err(place.modified())
}
