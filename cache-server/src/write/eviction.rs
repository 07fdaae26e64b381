//! `…/pods/{name}/eviction`: deletes a pod if the PodDisruptionBudgets allow it.
//!
//! INVARIANT: a pod that a budget counts is deleted only after the budget was charged for it. INVARIANT: a pod that no
//! budget counts, because of its state, is deleted only in that state.

use api_rules::{
    object::{
        Object, WriteRequest, WriteTarget, deletion, eviction,
        metadata::{self, Part},
        options::DeleteOptions,
    },
    registry::Subresource,
};
use informer_serving::status::{Reason, Status, StatusExt as _};

use super::{answer::WriteAnswer, commit, delete, nodes, read_order};
use crate::{
    app::LocalApp,
    clock,
    limits::WRITE_ATTEMPTS_MAX,
    stored::{current::Current, removal::DeleteError},
};

/// `POST …/pods/{name}/eviction`.
///
/// # Errors
/// The Status to answer with.
pub(super) async fn create(app: &LocalApp<'_>, request: &WriteRequest<'_>) -> Result<WriteAnswer, Status> {
    let place = request.owner()?;
    let ty = Subresource::Eviction.sent().ok_or_else(Status::generic_not_found)?;
    let (sent, options, warnings) = read_order(app, request, ty, place.ty).await?;
    let deletion = delete::options(app, eviction::deletion(&place, &sent, options)?);
    if let Some(node) = nodes::writer(app) {
        node.check_eviction(place.name, &commit::read(app, &place).await?.object)?;
    }
    for _ in 0..WRITE_ATTEMPTS_MAX {
        let pod = commit::read(app, &place).await?;
        // Before a budget is charged.
        if let Some(text) = deletion::mismatch(&pod.object, &deletion) {
            return Err(delete::refusal(&place, DeleteError::Precondition(text)));
        }
        // Another pod of this name has a state and budgets of its own.
        let uid = deletion.uid.clone().or_else(|| Some(pod.entry.uid().to_owned()));
        let this = DeleteOptions { uid, ..deletion.clone() };
        if eviction::is_counted(&pod.object) {
            counted(app, &place, &pod, &this).await?;
            return Ok(WriteAnswer::success(warnings));
        }
        let bound = if eviction::may_be_counted(&pod.object) { at_version(&this, &pod) } else { this };
        match delete(app, &place, bound).await {
            // Another write came first; the pod, or a new one, may be counted now.
            Err(status) if status.reason == Reason::Conflict && deletion.resource_version.is_none() => {}
            deleted => return deleted.map(|()| WriteAnswer::success(warnings)),
        }
    }
    Err(place.modified())
}

/// Evicts a pod that budgets count.
async fn counted(
    app: &LocalApp<'_>,
    place: &WriteTarget<'_>,
    pod: &Current,
    deletion: &DeleteOptions,
) -> Result<(), Status> {
    let budgets = budgets(app, place, &pod.object).await?;
    let [budget] = &*budgets else {
        if !budgets.is_empty() {
            return Err(eviction::several());
        }
        return delete(app, place, deletion.clone()).await;
    };
    let name = metadata::text(budget, "name");
    if !eviction::goes_uncounted(budget, &pod.object) {
        charge(app, place, name, deletion.dry_run).await?;
        return delete(app, place, deletion.clone()).await;
    }
    match delete(app, place, at_version(deletion, pod)).await {
        // It may be ready now.
        Err(status) if status.reason == Reason::Conflict && deletion.resource_version.is_none() => {
            Err(eviction::still_processed(name))
        }
        deleted => deleted,
    }
}

/// Returns the budgets that guard the pod, at most two: no more are needed to refuse. Cost: decodes the budgets of its
/// namespace, one at a time.
async fn budgets(app: &LocalApp<'_>, place: &WriteTarget<'_>, pod: &Object) -> Result<Vec<Object>, Status> {
    let Some(ty) = app.registry.now().find("policy", "v1", "poddisruptionbudgets") else { return Ok(Vec::new()) };
    let state = app.caches.fresh(&ty).await?.snapshot();
    let mut budgets = Vec::new();
    for entry in state.objects.namespace(place.namespace) {
        if budgets.len() == 2 {
            break;
        }
        let budget = serde_json::from_slice(entry.object_text());
        let budget: Object = budget.map_err(|_| Status::internal("a stored object cannot be read"))?;
        if eviction::guards(&budget, pod) {
            budgets.push(budget);
        }
    }
    Ok(budgets)
}

/// Takes one of the disruptions that the budget allows.
async fn charge(app: &LocalApp<'_>, place: &WriteTarget<'_>, name: &str, is_dry: bool) -> Result<(), Status> {
    let ty = app.registry.now().find("policy", "v1", "poddisruptionbudgets").ok_or_else(Status::generic_not_found)?;
    let budget = WriteTarget { ty: &ty, namespace: place.namespace, name, part: Part::Main };
    for _ in 0..WRITE_ATTEMPTS_MAX {
        let current = commit::read(app, &budget).await?;
        let next = eviction::take(&current.object, place.name, &clock::now())?;
        if is_dry || commit::put(app, &budget, &current, &next).await?.is_some() {
            return Ok(());
        }
    }
    Err(eviction::contended(name))
}

/// Binds the deletion to the version of the pod that was read, unless it names one itself.
fn at_version(deletion: &DeleteOptions, pod: &Current) -> DeleteOptions {
    let version = || pod.entry.resource_version().to_string();
    let resource_version = deletion.resource_version.clone().or_else(|| Some(version()));
    DeleteOptions { resource_version, ..deletion.clone() }
}

/// Marks the pod as evicted, and deletes it.
async fn delete(app: &LocalApp<'_>, place: &WriteTarget<'_>, mut deletion: DeleteOptions) -> Result<(), Status> {
    let refuse = |error| delete::refusal(place, error);
    if !deletion.dry_run {
        let marked = mark(app, place, &deletion).await?;
        deletion.resource_version = deletion.resource_version.map(|_| marked.to_string());
    }
    delete::remove(&app.caches, app.store, place, &deletion, None).await.map(drop).map_err(refuse)
}

/// Writes the condition that the pod is evicted, and returns its version then.
async fn mark(app: &LocalApp<'_>, place: &WriteTarget<'_>, deletion: &DeleteOptions) -> Result<u64, Status> {
    for _ in 0..WRITE_ATTEMPTS_MAX {
        let pod = commit::read(app, place).await?;
        if let Some(text) = deletion::mismatch(&pod.object, deletion) {
            return Err(delete::refusal(place, DeleteError::Precondition(text)));
        }
        let next = eviction::mark(&pod.object, &clock::now());
        if next == pod.object {
            return Ok(pod.entry.resource_version());
        }
        if let Some(entry) = commit::put(app, place, &pod, &next).await? {
            return Ok(entry.resource_version());
        }
    }
    Err(place.modified())
}
