//! Reads, replaces and removes one stored object, for requests and controllers. Knows no HTTP.

pub mod current;
pub mod namespaced;
pub mod removal;

use std::sync::Arc;

use api_rules::registry::ResourceType;
use informer_core::KeyedObject as _;
use watch_cache::{Draft, Entry};

use crate::storage::{Expect, SourceError, Store, Txn, WriteCause, WriteError, WriteResult};

/// Treatment of objects that exist already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingObjects {
    /// They are an error.
    Refuse,
    /// They stay as they are.
    Keep,
    /// They are replaced.
    Overwrite,
}

/// Outcome of a write at the version that was read.
pub enum ReplaceOutcome {
    /// Written. The entry is the new object, or the last state of a removed one.
    Done(WriteResult),
    /// Another write came first.
    Late,
    /// The object does not exist any more.
    Gone,
}

/// Reason why an object was not replaced for the sake of another one.
#[derive(Debug, thiserror::Error)]
pub enum CausedWriteError {
    /// The object that caused the write is at another version, or deleted.
    #[error("the object that caused the write has changed")]
    CauseChanged,
    /// The storage failed.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// Replaces an object at the version that was read, or removes it if `put` is `None`.
///
/// # Errors
/// [`SourceError`] if the storage failed.
pub async fn replace(
    storage: &dyn Store,
    ty: &Arc<ResourceType>,
    read: &Entry,
    put: Option<Draft>,
) -> Result<ReplaceOutcome, SourceError> {
    match replace_for(storage, ty, read, put, None).await {
        Ok(outcome) => Ok(outcome),
        Err(CausedWriteError::Source(error)) => Err(error),
        Err(CausedWriteError::CauseChanged) => unreachable!("a write without a cause"),
    }
}

/// Like [`replace`], if `cause` is still at its version.
///
/// # Errors
/// [`CausedWriteError`].
pub async fn replace_for(
    storage: &dyn Store,
    ty: &Arc<ResourceType>,
    read: &Entry,
    put: Option<Draft>,
    cause: Option<&WriteCause>,
) -> Result<ReplaceOutcome, CausedWriteError> {
    let (key, expect) = (read.key().to_owned(), Expect::At(read.resource_version()));
    match storage.write(Txn { ty: Arc::clone(ty), key, expect, put, cause: cause.cloned() }).await {
        Ok(written) => Ok(ReplaceOutcome::Done(written)),
        Err(WriteError::Conflict { .. } | WriteError::Exists) => Ok(ReplaceOutcome::Late),
        Err(WriteError::NotFound) => Ok(ReplaceOutcome::Gone),
        Err(WriteError::CauseChanged) => Err(CausedWriteError::CauseChanged),
        Err(WriteError::Source(error)) => Err(error.into()),
    }
}
