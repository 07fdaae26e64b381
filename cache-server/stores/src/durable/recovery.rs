//! Turns the records of one type into its objects, and into the history that got them there.

use std::{collections::HashMap, sync::Arc};

use informer_core::Objects;
use watch_cache::{Change, Draft, Entry, Schema};

use super::{
    journal::{JournalContent, RawChange},
    record::{JournalRecord, RecordContent},
};
use crate::{embedded::RecoveredHistory, registry::ResourceType};

/// The records of a file, by type.
#[derive(Debug, Default)]
pub(super) struct RecordsByType {
    pub(super) types: HashMap<String, Vec<RawChange>>,
    /// Types that may have objects whose deletion was begun.
    pub(super) terminating: Vec<String>,
}

impl RecordsByType {
    /// Sorts the records of a file. Cost: a search in each object; the bytes are shared.
    pub(super) fn of(content: &mut JournalContent) -> Self {
        let mut sorted = Self::default();
        let mark = memchr::memmem::Finder::new("\"deletionTimestamp\"");
        for change in std::mem::take(&mut content.changes) {
            let Some(record) = JournalRecord::decode(&change.bytes) else { continue };
            if mark.find(&change.bytes).is_some() && !sorted.terminating.iter().any(|ty| ty == record.ty) {
                sorted.terminating.push(record.ty.to_owned());
            }
            match sorted.types.get_mut(record.ty) {
                Some(changes) => changes.push(change),
                None => drop(sorted.types.insert(record.ty.to_owned(), vec![change])),
            }
        }
        sorted
    }
}

/// A type as the records of a file have it.
#[derive(Debug)]
pub(super) struct RecoveredType {
    /// The newest state.
    pub(super) objects: Objects<Entry>,
    pub(super) history: RecoveredHistory,
    /// Number of records that are no objects of the type.
    pub(super) unreadable: usize,
}

/// Returns the newest state of a type, and its history from `base` on. Cost: some 15 µs for each version of 5 KB. Each
/// record is freed once it is read.
pub(super) fn recover(ty: &ResourceType, base: u64, records: Vec<RawChange>) -> RecoveredType {
    let (mut objects, mut unreadable) = (Objects::new(), 0);
    let mut history =
        RecoveredHistory { objects: Objects::new(), from: base, changes: Vec::new(), schema: Arc::clone(&ty.schema) };
    let mut is_base = true;
    for RawChange { revision, bytes } in records {
        let Some(change) = read(&ty.schema, &objects, revision, &bytes) else {
            // Its bytes stay in the file.
            unreadable += 1;
            tracing::error!(resource = ty.id(), resource_version = revision, "stored object skipped");
            continue;
        };
        if is_base && base < revision {
            is_base = false;
            history.objects = objects.clone();
        }
        match &change {
            Change::Put(entry) => objects.put(Arc::clone(entry)),
            Change::Deleted { key, .. } => drop(objects.remove(key)),
            Change::Progress(_) => {}
        }
        if !is_base {
            history.changes.push(change);
        }
    }
    if is_base {
        history.objects = objects.clone();
    }
    RecoveredType { objects, history, unreadable }
}

fn read(schema: &Schema, objects: &Objects<Entry>, revision: u64, bytes: &[u8]) -> Option<Change> {
    match JournalRecord::decode(bytes)?.content {
        RecordContent::Deleted { key } => Some(Change::Deleted { key: key.to_owned(), resource_version: revision }),
        RecordContent::Put { json, is_normal } => {
            let draft = Draft::new(schema, json).ok()?;
            let draft = if is_normal { draft.normal() } else { draft };
            let exists = objects.get(draft.key()).is_some();
            Some(Change::Put(if exists { draft.commit_update(revision) } else { draft.commit(revision) }))
        }
    }
}
