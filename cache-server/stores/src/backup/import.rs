//! Writes the objects of snapshots into a store, exactly as they were: uid, times, status, managedFields and finalizers.
//! They get new resourceVersions.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::{TryStreamExt as _, future::join_all};
use informer_core::KeyedObject as _;
use serde_json::Value;
use watch_cache::Draft;

use super::{SnapshotFileError, open, snapshot::SnapshotObject, stored_types::StoredTypes};
use crate::{
    limits::{IMPORT_BATCH_BYTES_MAX, IMPORT_BATCH_MAX},
    registry::ResourceType,
    storage::{Expect, SourceError, Store, Txn, WriteError},
    stored::ExistingObjects,
};

/// Reason why snapshots cannot be imported: one line.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A file cannot be used; no object was written.
    #[error(transparent)]
    File(#[from] SnapshotFileError),
    /// Some objects are in the store already; no object was written.
    #[error("{count} of the objects exist, the first is {first}: import into another folder, or use --overwrite")]
    Exist {
        /// Number of objects that exist.
        count: u64,
        /// Type and key of an object.
        first: String,
    },
    /// The store cannot be read; no object was written.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A write failed.
    #[error("{written} of {all} objects were written, then {object} failed: {error}")]
    Write {
        /// Number of objects that were written.
        written: u64,
        /// Number of objects of the files.
        all: u64,
        /// Type and key of the object.
        object: String,
        /// The error of the store.
        error: WriteError,
    },
}

/// Reads the files to their ends, and checks all that can be checked without the store. Returns the number of objects.
///
/// Blocks. Cost: parses each object.
///
/// # Errors
/// [`SnapshotFileError`].
pub fn verify(files: &[PathBuf]) -> Result<u64, SnapshotFileError> {
    let mut objects = 0;
    for path in files {
        let mut snapshot = open(path)?;
        while let Some(object) = snapshot.next().map_err(SnapshotFileError::of(path))? {
            // The parser has a limit of nested objects, behind which the object could not be changed any more.
            if !serde_json::from_str::<Value>(object.object.get()).is_ok_and(|object| object.is_object()) {
                return Err(content(path, snapshot.number(), "it is no object"));
            }
            objects += 1;
        }
    }
    Ok(objects)
}

/// Writes the objects of snapshots in the order of the files. Returns their number.
///
/// # Errors
/// [`ImportError`]. Only after [`ImportError::Write`] some of the objects are in the store.
pub async fn into_store(store: &dyn Store, files: &[PathBuf], existing: ExistingObjects) -> Result<u64, ImportError> {
    let (types, _) = StoredTypes::of(store).await?;
    let mut import = SnapshotImport { store, types, existing, known: HashMap::new(), written: 0, all: 0 };
    import.plan(files).await?;
    for path in files {
        import.write_file(path).await?;
    }
    Ok(import.written)
}

/// A running import.
struct SnapshotImport<'a> {
    store: &'a dyn Store,
    types: StoredTypes,
    existing: ExistingObjects,
    /// Revisions of the objects that exist: by type id, then by key. Only types of the files.
    known: HashMap<String, HashMap<String, u64>>,
    written: u64,
    /// Objects of all files.
    all: u64,
}

/// A write of an import.
struct ImportWrite {
    /// Type and key.
    name: String,
    txn: Txn,
}

impl SnapshotImport<'_> {
    /// Learns the types of the files and the objects that exist, and checks each object against its type.
    async fn plan(&mut self, files: &[PathBuf]) -> Result<(), ImportError> {
        let (mut count, mut first) = (0, None);
        for path in files {
            let mut snapshot = open(path)?;
            while let Some(object) = snapshot.next().map_err(SnapshotFileError::of(path))? {
                let (id, text) = (object.ty.clone().into_owned(), object.object.get().as_bytes());
                let drafted = self.draft(&object);
                if drafted.as_ref().is_ok_and(|(ty, _)| ty.defines_types) {
                    self.types.define(text, 0);
                }
                let (ty, draft) = drafted.map_err(|text| content(path, snapshot.number(), text))?;
                self.all += 1;
                if self.list(&ty).await?.contains_key(draft.key()) {
                    count += 1;
                    first.get_or_insert_with(|| format!("{id} {}", draft.key()));
                }
            }
        }
        match first {
            Some(first) if self.existing == ExistingObjects::Refuse => Err(ImportError::Exist { count, first }),
            Some(_) | None => Ok(()),
        }
    }

    fn draft(&self, object: &SnapshotObject<'_>) -> Result<(Arc<ResourceType>, Draft), &'static str> {
        let ty = self.types.get(&object.ty).ok_or("no definition has its type")?;
        let draft = Draft::new(&ty.schema, object.object.get().as_bytes()).map_err(|_| "it is no stored object")?;
        if ty.namespaced != draft.key().contains('/') {
            return Err("its namespace does not fit its type");
        }
        Ok((Arc::clone(ty), if object.normal { draft.normal() } else { draft }))
    }

    /// Returns the objects of a type that exist.
    async fn list(&mut self, ty: &Arc<ResourceType>) -> Result<&mut HashMap<String, u64>, SourceError> {
        if !self.known.contains_key(ty.id()) {
            let entries = self.store.list(ty).await?.entries;
            let keys = entries.map_ok(|entry| (entry.key().to_owned(), entry.resource_version()));
            let keys = keys.try_collect().await?;
            self.known.insert(ty.id().to_owned(), keys);
        }
        Ok(self.known.entry(ty.id().to_owned()).or_default())
    }

    async fn write_file(&mut self, path: &Path) -> Result<(), ImportError> {
        let mut snapshot = open(path)?;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(object) = snapshot.next().map_err(SnapshotFileError::of(path))? {
            let drafted = self.draft(&object);
            let (ty, draft) = drafted.map_err(|text| content(path, snapshot.number(), text))?;
            // Later objects of one type do not depend on each other, but all do on their definition and namespace.
            let is_other = batch.last().is_some_and(|last: &ImportWrite| last.txn.ty.id() != ty.id());
            if is_other || batch.len() == IMPORT_BATCH_MAX || IMPORT_BATCH_BYTES_MAX <= bytes {
                bytes = 0;
                self.write(std::mem::take(&mut batch)).await?;
            }
            bytes += draft.len();
            let key = draft.key().to_owned();
            let known = self.list(&ty).await?.get(&key).copied();
            if known.is_some() && self.existing == ExistingObjects::Keep {
                continue;
            }
            let expect = known.map_or(Expect::Absent, Expect::At);
            let name = format!("{} {key}", ty.id());
            batch.push(ImportWrite { name, txn: Txn { ty, key, expect, put: Some(draft), cause: None } });
        }
        self.write(batch).await
    }

    /// Writes a batch at once, and waits for all of it.
    async fn write(&mut self, batch: Vec<ImportWrite>) -> Result<(), ImportError> {
        let (names, txns): (Vec<_>, Vec<_>) = batch.into_iter().map(|write| (write.name, write.txn)).unzip();
        let places: Vec<_> = txns.iter().map(|txn| (txn.ty.id().to_owned(), txn.key.clone())).collect();
        let results = join_all(txns.into_iter().map(|txn| self.store.write(txn))).await;
        let mut failed = None;
        for ((result, object), (ty, key)) in results.into_iter().zip(names).zip(places) {
            match result {
                Ok(written) => {
                    self.written += 1;
                    if let Some(known) = self.known.get_mut(&ty) {
                        known.insert(key, written.resource_version);
                    }
                }
                Err(error) => failed = failed.or(Some((object, error))),
            }
        }
        let (written, all) = (self.written, self.all);
        failed.map_or(Ok(()), |(object, error)| Err(ImportError::Write { written, all, object, error }))
    }
}

fn content(path: &Path, line: u64, text: &str) -> SnapshotFileError {
    SnapshotFileError::Content { path: path.to_owned(), text: format!("line {line}: {text}") }
}
