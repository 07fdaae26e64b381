//! Removes objects: writes their deletion mark where they have to wait, and deletes them from the storage.
//!
//! INVARIANT: a removed object is one whose deletion mark was written, or one that needed none.
//!
//! `api_rules::object::deletion` plans a delete, this file carries it out, and `write/delete` answers it. The
//! controller of namespaces deletes with it too.
//!
//! Source: apiserver `registry/generic/registry/store.go` (Delete), `registry/rest/delete.go`.

use std::sync::Arc;

use api_rules::{
    object::{
        Object, WriteTarget,
        deletion::{self, DeletePlan},
        draft::draft,
        metadata::Part,
        options::{DeleteOptions, PropagationPolicy},
    },
    registry::ResourceType,
};
use informer_serving::status::Status;
use watch_cache::Entry;

use super::{
    CausedWriteError, ReplaceOutcome,
    current::{Current, ReadFailure},
    replace_for,
};
use crate::{
    cacher::{Caches, FreshnessError},
    clock,
    limits::WRITE_ATTEMPTS_MAX,
    storage::{SourceError, Store, WriteCause},
};

/// Caches and storage, for callers without an `App`.
#[derive(Clone, Copy)]
pub struct DeleteContext<'a> {
    /// The caches of the server.
    pub caches: &'a Caches,
    /// The store that objects are removed from.
    pub storage: &'a dyn Store,
    /// The object for whose sake others are deleted; `None` for the deletions of clients.
    pub cause: Option<&'a WriteCause>,
}

/// Outcome of a delete.
#[derive(Debug)]
pub struct DeleteOutcome {
    /// The object that the client sees.
    pub last: LastState,
    /// True if the object needed no time to end: its client sees it as deleted.
    pub at_once: bool,
    /// True if the object is removed. Otherwise it is removed with its last finalizer.
    pub is_gone: bool,
}

/// The last state of an object that a delete knows.
#[derive(Debug)]
pub enum LastState {
    /// As it is stored, or was when it was removed.
    Stored(Arc<Entry>),
    /// As a dry run would store it.
    Planned(Object),
    /// Of an object that went at once, with the version of the deletion; a dry run has none.
    Gone(Object, Option<u64>),
}

/// Reason why an object was not deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// There is no such object.
    #[error("not found")]
    NotFound,
    /// Other writes came first, again and again.
    #[error("the object has been modified")]
    Modified,
    /// The uid or the version is not the one that the delete names. The text is kube-apiserver's.
    #[error("{0}")]
    Precondition(String),
    /// The namespace belongs to the server.
    #[error("this namespace may not be deleted")]
    Protected,
    /// The stored bytes are no JSON object.
    #[error("a stored object cannot be read")]
    Malformed,
    /// The task that deletes the object ended early.
    #[error("the deletion was not finished")]
    Unfinished,
    /// Its writer may not delete the object, or the object with its mark cannot be stored.
    #[error("{}", .0.message)]
    Refused(Box<Status>),
    /// The object for whose sake it was to be deleted is at another version now, or deleted.
    #[error("the cause of the deletion has changed")]
    CauseChanged,
    /// The cache is not ready.
    #[error(transparent)]
    Unfresh(#[from] FreshnessError),
    /// The storage failed.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl From<CausedWriteError> for DeleteError {
    fn from(error: CausedWriteError) -> Self {
        match error {
            CausedWriteError::CauseChanged => Self::CauseChanged,
            CausedWriteError::Source(error) => Self::Source(error),
        }
    }
}

impl From<ReadFailure> for DeleteError {
    fn from(error: ReadFailure) -> Self {
        match error {
            ReadFailure::NotFound => Self::NotFound,
            ReadFailure::Malformed => Self::Malformed,
            ReadFailure::Unfresh(error) => Self::Unfresh(error),
        }
    }
}

/// Deletes one listed object of a terminating namespace. Returns true if it is removed.
///
/// # Errors
/// [`DeleteError`], but for an object that is removed already or has another uid now.
pub async fn delete_listed(
    stored: DeleteContext<'_>,
    ty: &Arc<ResourceType>,
    entry: &Entry,
) -> Result<bool, DeleteError> {
    let target = WriteTarget { ty, namespace: entry.namespace(), name: entry.name(), part: Part::Main };
    let policy = Some(PropagationPolicy::Background);
    let options = DeleteOptions { uid: Some(entry.uid().to_owned()), policy, ..DeleteOptions::default() };
    match delete(stored, &target, &options, &|_| Ok(())).await {
        Ok(deleted) => Ok(deleted.is_gone),
        // The precondition is the uid alone, so the listed object is gone.
        Err(DeleteError::NotFound | DeleteError::Precondition(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Refuses the deletion of an object that its writer may not delete.
pub type AdmitDeletion<'a> = dyn Fn(&Object) -> Result<(), Status> + Sync + 'a;

/// Deletes one object, if `admit` allows it. Not cancel safe between the mark and the removal: an object that is marked
/// and never removed stays.
///
/// # Errors
/// [`DeleteError`].
pub async fn delete(
    stored: DeleteContext<'_>,
    place: &WriteTarget<'_>,
    options: &DeleteOptions,
    admit: &AdmitDeletion<'_>,
) -> Result<DeleteOutcome, DeleteError> {
    if deletion::is_protected(place.ty, place.name) {
        return Err(DeleteError::Protected);
    }
    for _ in 0..WRITE_ATTEMPTS_MAX {
        let current = Current::read(stored.caches, place).await?;
        if let Some(text) = deletion::mismatch(&current.object, options) {
            return Err(DeleteError::Precondition(text));
        }
        admit(&current.object).map_err(|status| DeleteError::Refused(Box::new(status)))?;
        let plan = deletion::plan(place.ty, &current.object, options, clock::whole_seconds());
        let is_gone = plan.goes && !options.dry_run;
        let at_once = plan.at_once;
        if let Some(last) = carry_out(stored, place, current, plan, options).await? {
            return Ok(DeleteOutcome { last, at_once, is_gone });
        }
    }
    Err(DeleteError::Modified)
}

/// Carries out the plan on the object as read; `None` if another write came first.
async fn carry_out(
    stored: DeleteContext<'_>,
    place: &WriteTarget<'_>,
    current: Current,
    plan: DeletePlan,
    options: &DeleteOptions,
) -> Result<Option<LastState>, DeleteError> {
    let DeletePlan { mark, goes, at_once } = plan;
    let is_marked = mark.is_some();
    if options.dry_run {
        return Ok(Some(match mark {
            None if goes => LastState::Gone(current.object, None),
            None => LastState::Stored(current.entry),
            Some(mark) => LastState::Planned(mark),
        }));
    }
    let marked = match &mark {
        None => Arc::clone(&current.entry),
        Some(mark) => match put(stored, place, &current.entry, Some(mark)).await? {
            ReplaceOutcome::Done(written) => written.entry,
            ReplaceOutcome::Late => return Ok(None),
            ReplaceOutcome::Gone => return Err(DeleteError::NotFound),
        },
    };
    if !goes {
        return Ok(Some(LastState::Stored(marked)));
    }
    let removed = match (put(stored, place, &marked, None).await?, is_marked) {
        (ReplaceOutcome::Done(written), _) => written.resource_version,
        (ReplaceOutcome::Gone, false) => return Err(DeleteError::NotFound),
        (ReplaceOutcome::Late, false) => return Ok(None),
        // Our deletion mark is visible already, so a concurrent write or removal does not fail the delete.
        (ReplaceOutcome::Gone, true) => marked.resource_version(),
        (ReplaceOutcome::Late, true) => finish(stored, place, &marked).await?,
    };
    let last = if at_once {
        LastState::Gone(mark.unwrap_or(current.object), Some(removed))
    } else {
        LastState::Stored(marked)
    };
    Ok(Some(last))
}

/// Removes an object that was changed after it was marked. Returns the version of its removal, or the last version
/// seen.
async fn finish(stored: DeleteContext<'_>, place: &WriteTarget<'_>, marked: &Entry) -> Result<u64, DeleteError> {
    let mut last = marked.resource_version();
    for _ in 0..WRITE_ATTEMPTS_MAX {
        let current = match Current::read(stored.caches, place).await {
            Ok(current) if current.entry.uid() == marked.uid() => current,
            Ok(_) => return Ok(last),
            Err(ReadFailure::NotFound) => return Ok(last),
            Err(error) => return Err(error.into()),
        };
        last = current.entry.resource_version();
        match put(stored, place, &current.entry, None).await? {
            ReplaceOutcome::Done(written) => return Ok(written.resource_version),
            ReplaceOutcome::Gone => return Ok(last),
            ReplaceOutcome::Late => {}
        }
    }
    Err(DeleteError::Modified)
}

/// Replaces the object as read, or removes it if `object` is `None`.
async fn put(
    stored: DeleteContext<'_>,
    place: &WriteTarget<'_>,
    read: &Entry,
    object: Option<&Object>,
) -> Result<ReplaceOutcome, DeleteError> {
    let put = object.map(|object| draft(place.ty, object)).transpose();
    let put = put.map_err(|status| DeleteError::Refused(Box::new(status)))?;
    Ok(replace_for(stored.storage, place.ty, read, put, stored.cause).await?)
}
