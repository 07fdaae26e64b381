//! Changes an object that exists: reads it, plans its successor, and stores that at the version that was read.

use std::sync::Arc;

use api_rules::object::{
    Object, WriteTarget, approval,
    draft::{bounded_draft, sparse_draft, successor_draft},
    metadata::Part,
    options::Options,
    update::{ChangedObject, RequestedChange, UpdatePlan, plan, requested},
};
use http::StatusCode;
use informer_serving::status::{Status, StatusExt as _};
use watch_cache::Entry;

use super::{
    answer::{AnswerDocument, WriteAnswer},
    grants, nodes, owners, plugins, schemas, signing, webhooks,
};
use crate::{
    access::audit::AuditRecord,
    app::{AllocationTurn, LocalApp},
    clock,
    limits::WRITE_ATTEMPTS_MAX,
    stored::{
        self, ReplaceOutcome,
        current::{Current, DecodedExtent, ReadFailure, stored_entry},
    },
};

/// Reads the object of a write as it is now, decoded and completed.
pub(super) async fn read(app: &LocalApp<'_>, target: &WriteTarget<'_>) -> Result<Current, Status> {
    let mut current = Current::read(&app.caches, target).await.map_err(|error| unread(target, error))?;
    schemas::complete_stored(app, target.ty, &mut current);
    Ok(current)
}

/// Reads the object of a write as it is now, decoded as far as the change and its checks need it.
pub(super) async fn read_for_change(
    app: &LocalApp<'_>,
    place: &WriteTarget<'_>,
    change: &RequestedChange<'_>,
    options: Options,
) -> Result<Current, Status> {
    let is_shown = options.dry_run || app.audit.is_some_and(AuditRecord::reads_objects);
    if is_shown
        || place.part == Part::EphemeralContainers
        || grants::concern(place.ty)
        || schemas::concern(app, place.ty)
        || app.admission.is_some()
    {
        return read(app, place).await;
    }
    Current::read_for_change(&app.caches, place, change).await.map_err(|error| unread(place, error))
}

/// Returns an error if the object does not exist.
pub(super) async fn check_stored(app: &LocalApp<'_>, target: &WriteTarget<'_>) -> Result<(), Status> {
    stored_entry(&app.caches, target).await.map(drop).map_err(|error| unread(target, error))
}

/// Returns the Status for an object that was not read.
fn unread(target: &WriteTarget<'_>, error: ReadFailure) -> Status {
    match error {
        ReadFailure::NotFound => target.not_found(),
        ReadFailure::Malformed => Status::internal("a stored object cannot be read"),
        ReadFailure::Unfresh(error) => error.into(),
    }
}

/// Makes the change and answers with the object. After a conflict the change is made again, to the new object; a change
/// with a resourceVersion then fails.
pub(super) async fn change(
    app: &LocalApp<'_>,
    place: &WriteTarget<'_>,
    change: &RequestedChange<'_>,
    options: Options,
    warnings: &mut Vec<String>,
) -> Result<WriteAnswer, Status> {
    for _ in 0..WRITE_ATTEMPTS_MAX {
        let current = match change {
            RequestedChange::Replace(sent) if !schemas::concern(app, place.ty) && app.admission.is_none() => {
                Current::read_for_replacing(&app.caches, place, sent.is_managed())
                    .await
                    .map_err(|error| unread(place, error))?
            }
            RequestedChange::Replace(_) | RequestedChange::Patch(_) | RequestedChange::Apply(_) => {
                read_for_change(app, place, change, options).await?
            }
        };
        let mut new_warnings = Vec::new();
        if let Some(answer) = attempt(app, place, &current, change, options, &mut new_warnings).await? {
            warnings.append(&mut new_warnings);
            return Ok(answer);
        }
    }
    Err(place.modified())
}

/// Makes the change to the object as read; `None` if another write came first.
pub(super) async fn attempt(
    app: &LocalApp<'_>,
    place: &WriteTarget<'_>,
    current: &Current,
    change: &RequestedChange<'_>,
    options: Options,
    warnings: &mut Vec<String>,
) -> Result<Option<WriteAnswer>, Status> {
    let answer = |document| WriteAnswer { code: StatusCode::OK, document, warnings: Vec::new() };
    let unchanged = || WriteAnswer::stored(Arc::clone(&current.entry));
    // Only the whole object shows if a part of it belongs to a Secret inside.
    let seen_by = app.audit.filter(|_| current.extent.is_whole());
    seen_by.inspect(|audit| audit.note_before(&current.object));
    let (mut plan, turn) = plan_checked(app, place, current, change, options, warnings).await?;
    if let Some(audit) = seen_by {
        audit.note_whole(match &plan {
            UpdatePlan::Put(next) | UpdatePlan::Delete(next) => next,
            UpdatePlan::Keep => &current.object,
        });
    }
    // Also of a write that changes nothing, or ends the object.
    let next = match &plan {
        UpdatePlan::Put(next) | UpdatePlan::Delete(next) => next,
        UpdatePlan::Keep => &current.object,
    };
    signing::check(app, place, &current.object, next).await?;
    plugins::check(app, place.ty, place.part, next, Some(&current.object)).await?;
    let _turn = admit(app, place, current, &mut plan, options, turn).await?;
    if let UpdatePlan::Put(next) = &plan {
        plugins::charge(app, place.ty, place.part, next, Some(&current.object), options).await?;
    }
    let put = match &plan {
        UpdatePlan::Keep => return Ok(Some(unchanged())),
        UpdatePlan::Put(next) if matches!(current.extent, DecodedExtent::Touched(_)) => {
            Some(sparse_draft(place.ty, next, &current.entry, app.config.object_bytes_max)?)
        }
        UpdatePlan::Put(next) => Some(successor_draft(place, next, &current.entry, app.config.object_bytes_max)?),
        UpdatePlan::Delete(_) => None,
    };
    // If only parts were decoded, `plan` could not compare all: detect a no-op by comparing bytes.
    let is_whole = current.extent.is_whole();
    if put.as_ref().is_some_and(|draft| !is_whole && draft.same_content(&current.entry)) {
        return Ok(Some(unchanged()));
    }
    if let UpdatePlan::Put(next) = &plan {
        grants::check(app, place.ty, place.name, Some(current), next).await?;
    }
    if let (UpdatePlan::Put(next) | UpdatePlan::Delete(next), true) = (&plan, options.dry_run) {
        return Ok(Some(answer(AnswerDocument::tried(place.ty, next, put.as_ref()))));
    }
    match stored::replace(&**app.store, place.ty, &current.entry, put).await? {
        ReplaceOutcome::Done(written) => Ok(Some(answer(match plan {
            UpdatePlan::Keep | UpdatePlan::Put(_) => AnswerDocument::Stored(written.entry),
            UpdatePlan::Delete(last) => AnswerDocument::Unstored(last),
        }))),
        ReplaceOutcome::Late => Ok(None),
        ReplaceOutcome::Gone => Err(place.not_found()),
    }
}

/// Stores the successor of an object as read, and returns its entry; `None` if another write came first.
///
/// # Errors
/// 404 if the object was deleted, 413 if it became too large.
pub(super) async fn put(
    app: &LocalApp<'_>,
    place: &WriteTarget<'_>,
    current: &Current,
    next: &Object,
) -> Result<Option<Arc<Entry>>, Status> {
    let put = bounded_draft(place.ty, next, app.config.object_bytes_max)?;
    match stored::replace(&**app.store, place.ty, &current.entry, Some(put)).await? {
        ReplaceOutcome::Done(written) => Ok(Some(written.entry)),
        ReplaceOutcome::Late => Ok(None),
        ReplaceOutcome::Gone => Err(place.not_found()),
    }
}

/// Plans the change, with the checks that kube-apiserver makes before it stores or deletes the object.
async fn plan_checked<'a>(
    app: &'a LocalApp<'_>,
    place: &WriteTarget<'_>,
    current: &Current,
    change: &RequestedChange<'_>,
    options: Options,
    warnings: &mut Vec<String>,
) -> Result<(UpdatePlan, Option<AllocationTurn<'a>>), Status> {
    // Only an apply records when it was made.
    let now = if matches!(change, RequestedChange::Apply(_)) { clock::now() } else { String::new() };
    let sealed = if let DecodedExtent::Touched(sealed) = &current.extent { Some(sealed) } else { None };
    let stored = ChangedObject { object: &current.object, sealed };
    let mut sent = requested(place, stored, change, options, &now, warnings)?;
    nodes::check_update(app, place, &current.object, &sent)?;
    approval::complete(place, &current.object, &mut sent, clock::now);
    schemas::complete(app, place.ty, &mut sent, options.validation, warnings)?;
    owners::record_change(app, place, &current.object, change, &mut sent);
    let admitted = webhooks::AdmittedChange { place, is_scale: false, options };
    webhooks::mutate_update(app, admitted, &mut sent, &current.object).await?;
    let turn = turn(app, place, options).await?;
    turn.as_ref().map_or(Ok(()), |turn| turn.update(place.ty, &current.object, &mut sent))?;
    let plan = plan(place, stored, change, sent)?;
    // After the plan restored what the write does not change.
    if let UpdatePlan::Put(next) | UpdatePlan::Delete(next) = &plan {
        schemas::check_successor(app, place, &current.object, next, warnings)?;
    }
    let plan = match (plan, &current.extent) {
        // The storage has another object than the one compared.
        (UpdatePlan::Keep, DecodedExtent::Completed) => UpdatePlan::Put(current.object.clone()),
        (plan, _) => plan,
    };
    Ok((plan, turn))
}

/// Waits for the turn to change a Service.
async fn turn<'a>(
    app: &'a LocalApp<'_>,
    place: &WriteTarget<'_>,
    options: Options,
) -> Result<Option<AllocationTurn<'a>>, Status> {
    match place.part {
        Part::Main => app.network.turn(&app.caches, place.ty, options.dry_run).await,
        Part::Status | Part::Approval | Part::EphemeralContainers | Part::Finalize => Ok(None),
    }
}

/// Asks webhooks about a plan. Meanwhile other Services have their turns; the next one gives what this one reserved.
async fn admit<'a>(
    app: &'a LocalApp<'_>,
    place: &WriteTarget<'_>,
    current: &Current,
    plan: &mut UpdatePlan,
    options: Options,
    given: Option<AllocationTurn<'a>>,
) -> Result<Option<AllocationTurn<'a>>, Status> {
    if app.admission.is_none() {
        return Ok(given);
    }
    let next = match &*plan {
        UpdatePlan::Put(next) | UpdatePlan::Delete(next) => next,
        UpdatePlan::Keep => &current.object,
    };
    let reserved = given.map(|turn| turn.reserve(next));
    let admitted = webhooks::AdmittedChange { place, is_scale: false, options };
    webhooks::check_update(app, admitted, next, &current.object).await?;
    let mut turn = turn(app, place, options).await?;
    if let (Some(turn), Some(reserved)) = (&mut turn, reserved) {
        turn.take_back(reserved);
    }
    if let (Some(turn), UpdatePlan::Put(next), false) = (&turn, plan, options.dry_run) {
        turn.update(place.ty, &current.object, next)?;
    }
    Ok(turn)
}
