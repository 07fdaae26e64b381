//! Writes all objects of a store as a snapshot or as manifests.

use std::io::{self, Write};

use futures::TryStreamExt as _;
use serde_json::{Map, Value};
use watch_cache::Entry;

use super::{snapshot::SnapshotWriter, stored_types::StoredTypes};
use crate::storage::{SourceError, Store};

/// The form of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ExportFormat {
    /// One JSON document for each object, for `serve --load` and `kubectl apply`.
    Manifests,
    /// The objects exactly as they are stored, for `storage import`.
    Snapshot,
}

/// Reason why objects cannot be exported: one line.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The output cannot be written.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

/// Members of metadata that only the server with the object can write.
const DROPPED: [&str; 4] = ["resourceVersion", "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// Writes all objects: definitions, namespaces, then the other types by id. Returns their number. The state is that of one
/// revision if no other program writes to the store.
///
/// # Errors
/// [`ExportError`]; the output is incomplete.
pub async fn write_all(
    store: &dyn Store,
    format: ExportFormat,
    out: &mut (dyn Write + Send),
) -> Result<u64, ExportError> {
    let (types, revision) = StoredTypes::of(store).await?;
    let mut sink = match format {
        ExportFormat::Snapshot => ExportSink::Snapshot(SnapshotWriter::begin(out, store.history(), revision)?),
        ExportFormat::Manifests => ExportSink::Manifests(out),
    };
    let mut objects = 0;
    for ty in types.in_order() {
        let mut entries = store.list(ty).await?.entries;
        while let Some(entry) = entries.try_next().await? {
            objects += 1;
            match &mut sink {
                ExportSink::Snapshot(snapshot) => {
                    snapshot.object(ty.id(), entry.is_normal(), entry.object_text())?;
                }
                ExportSink::Manifests(out) => manifest(&entry, out)?,
            }
        }
    }
    match sink {
        ExportSink::Snapshot(snapshot) => snapshot.finish()?,
        ExportSink::Manifests(out) => out.flush()?,
    }
    Ok(objects)
}

/// The output in one of the formats.
enum ExportSink<'a> {
    Snapshot(SnapshotWriter<&'a mut (dyn Write + Send)>),
    Manifests(&'a mut (dyn Write + Send)),
}

fn manifest(entry: &Entry, out: &mut (dyn Write + Send)) -> io::Result<()> {
    let mut object: Map<String, Value> = serde_json::from_slice(entry.object_text())?;
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for member in DROPPED {
            metadata.remove(member);
        }
    }
    serde_json::to_writer(&mut *out, &object)?;
    out.write_all(b"\n")
}
