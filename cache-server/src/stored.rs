//! Reads, replaces and removes one stored object, for requests and controllers. Knows no HTTP.

pub(crate) mod current;
pub(crate) mod removal;

use std::sync::Arc;

use api_rules::registry::ResourceType;
use informer_core::KeyedObject as _;
use watch_cache::{Draft, Entry};

use crate::storage::{Expect, SourceError, Store, Txn, WriteError, WriteResult};

/// Outcome of a write at the version that was read.
pub(crate) enum ReplaceOutcome {
    /// Written. The entry is the new object, or the last state of a removed one.
    Done(WriteResult),
    /// Another write came first.
    Late,
    /// The object does not exist any more.
    Gone,
}

/// Replaces an object at the version that was read, or removes it if `put` is `None`.
///
/// # Errors
/// [`SourceError`] if the storage failed.
pub(crate) async fn replace(
    storage: &dyn Store,
    ty: &Arc<ResourceType>,
    read: &Entry,
    put: Option<Draft>,
) -> Result<ReplaceOutcome, SourceError> {
    let (key, expect) = (read.key().to_owned(), Expect::At(read.resource_version()));
    match storage.write(Txn { ty: Arc::clone(ty), key, expect, put }).await {
        Ok(written) => Ok(ReplaceOutcome::Done(written)),
        Err(WriteError::Conflict { .. } | WriteError::Exists) => Ok(ReplaceOutcome::Late),
        Err(WriteError::NotFound) => Ok(ReplaceOutcome::Gone),
        Err(WriteError::Source(error)) => Err(error),
    }
}
