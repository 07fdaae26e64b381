//! Stores the objects of the generator when a server starts.

use std::sync::Arc;

pub use cache_server_workload::populate::{GeneratedObject, GeneratedObjects, generate, objects};
use futures::{FutureExt as _, future::try_join_all};
use tokio::sync::mpsc;
use watch_cache::{Draft, EntryError};

pub use crate::config::{PopulateSpec, PopulateSpecError};
use crate::{
    app::App,
    limits::{POPULATE_BATCH, POPULATE_BATCHES},
    registry::ResourceType,
    storage::{Expect, Txn, WriteError},
};

/// An object of the generator that could not be stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PopulateError {
    /// The registry does not know a type that the generator makes.
    #[error("the registry has no {group}/{version} {plural}")]
    UnknownType {
        /// API group; empty for core.
        group: &'static str,
        /// API version.
        version: &'static str,
        /// Plural.
        plural: &'static str,
    },
    /// The object is not a valid entry of the store.
    #[error("cannot use a generated object: {0}")]
    Entry(#[from] EntryError),
    /// The storage cannot be read.
    #[error("cannot read what is stored: {0}")]
    Read(String),
    /// The server has no store of its own.
    #[error("this server stores nothing itself")]
    NoStore,
    /// The write failed.
    #[error("cannot store {key}: {source}")]
    Write {
        /// Namespace and name.
        key: String,
        /// The storage's error.
        source: WriteError,
    },
}

/// Returns true if an earlier start has created the objects of `spec`, or the storage is in use otherwise: objects that were
/// deleted since must not come back. The sign is the first object, which is stored last: the namespace `default`, which
/// clients cannot delete. False for objects in memory.
///
/// # Errors
/// [`PopulateError`] if the storage cannot be read.
pub(crate) async fn is_done(app: &App, spec: &PopulateSpec) -> Result<bool, PopulateError> {
    let Some(first) = objects(spec).next().filter(|_| app.config.objects_last()) else { return Ok(false) };
    let ty = TypeCache { app, known: Vec::new() }.find(&first)?;
    let key = Draft::new(&ty.schema, &first.json)?.key().to_owned();
    let reader = app.caches.fresh(&ty).await.map_err(|error| PopulateError::Read(error.to_string()))?;
    Ok(reader.get(&key).is_some())
}

/// Creates the objects of `spec` in the server's storage, in order except that the first one is last, and returns their
/// number. A thread generates them while this task stores them; at most [`POPULATE_BATCHES`] batches are queued in between.
///
/// # Errors
/// [`PopulateError`] at the first object that cannot be stored; those before it stay.
pub async fn into_storage(app: &App, spec: &PopulateSpec) -> Result<usize, PopulateError> {
    let store = app.local().ok_or(PopulateError::NoStore)?.store;
    let (made, mut to_store) = mpsc::channel(POPULATE_BATCHES);
    let mut objects = objects(spec);
    let making = tokio::task::spawn_blocking(move || {
        let Some(first) = objects.next() else { return };
        let mut objects = objects.peekable();
        while objects.peek().is_some() {
            let batch: Vec<GeneratedObject> = objects.by_ref().take(POPULATE_BATCH).collect();
            if made.blocking_send(batch).is_err() {
                return;
            }
        }
        // Alone, once all others are stored, so that a start that was interrupted is repeated.
        let _ = made.blocking_send(vec![first]);
    });
    let mut types = TypeCache { app, known: Vec::new() };
    let mut stored = 0;
    while let Some(batch) = to_store.recv().await {
        let mut writes = Vec::with_capacity(batch.len());
        for object in batch {
            let ty = types.find(&object)?;
            let draft = Draft::new(&ty.schema, &object.json)?;
            if draft.len() > app.config.object_bytes_max {
                return Err(EntryError::TooLarge { bytes: draft.len() }.into());
            }
            let key = draft.key().to_owned();
            let txn = Txn { ty, key: key.clone(), expect: Expect::Absent, put: Some(draft), cause: None };
            writes.push(store.write(txn).map(|written| match written {
                // Another process has stored it in the same folder.
                Err(WriteError::Exists) if app.config.objects_last() => Ok(0),
                written => written.map(|_| 1).map_err(|source| PopulateError::Write { key, source }),
            }));
        }
        // At once: a store on a disk makes them durable together.
        stored += try_join_all(writes).await?.iter().sum::<usize>();
    }
    making.await.expect("the generator does not panic");
    Ok(stored)
}

/// Cache of types by plural, so that each of the few generated types is looked up once.
struct TypeCache<'a> {
    app: &'a App,
    known: Vec<(&'static str, Arc<ResourceType>)>,
}

impl TypeCache<'_> {
    fn find(&mut self, object: &GeneratedObject) -> Result<Arc<ResourceType>, PopulateError> {
        let &GeneratedObject { group, version, plural, .. } = object;
        if let Some((_, ty)) = self.known.iter().find(|(known, _)| *known == plural) {
            return Ok(Arc::clone(ty));
        }
        let ty = self.app.registry.now().find(group, version, plural);
        let ty = ty.ok_or(PopulateError::UnknownType { group, version, plural })?;
        self.known.push((plural, Arc::clone(&ty)));
        Ok(ty)
    }
}
