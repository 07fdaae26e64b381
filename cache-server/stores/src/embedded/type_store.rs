//! The objects and readers of one type, behind the commit lock.

use std::sync::Arc;

use informer_core::{KeyedObject as _, Objects};
use tokio::sync::mpsc::{OwnedPermit, Sender, error::TrySendError};
use watch_cache::{Change, Entry, Schema};

use super::{
    super::{Expect, Txn, WriteError, WriteResult},
    recast::{self, SchemaVersion},
};
use crate::{limits::RECOVERED_CHANGES_MAX, registry::ResourceType};

/// The objects and readers of one type.
#[derive(Debug, Default)]
pub(super) struct TypeStore {
    pub(super) objects: Objects<Entry>,
    /// The schema of `objects`; `None` until the first write or reader.
    pub(super) defined: Option<SchemaVersion>,
    /// True while some of `objects` may be entries of an earlier schema.
    pub(super) is_mixed: bool,
    pub(super) queues: Vec<Queue>,
    /// Changes whenever `queues` gains or loses a queue. Zero before the first.
    pub(super) version: u64,
    /// For the first reader after a start.
    history: Option<Box<RecoveredHistory>>,
}

/// The sending end of one reader's change queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) number: u64,
    /// All changes at or below it were queued or listed.
    pub(super) reported: u64,
    pub(super) sender: Sender<Change>,
}

/// Reserved capacity in every queue of a type, for one version of its list of queues.
#[derive(Debug)]
pub(crate) struct QueuePermits {
    pub(super) version: u64,
    pub(super) permits: Vec<(u64, OwnedPermit<Change>)>,
}

/// How a type got to its objects, as an earlier process has stored it.
#[derive(Debug)]
pub(crate) struct RecoveredHistory {
    /// The state at `from`.
    pub(crate) objects: Objects<Entry>,
    pub(crate) from: u64,
    /// Every change after `from`.
    pub(crate) changes: Vec<Change>,
    /// The schema of all these entries.
    pub(crate) schema: Arc<Schema>,
}

/// A write whose expectation holds, with its revision.
#[derive(Debug)]
pub(crate) struct CheckedWrite {
    pub(crate) resource_version: u64,
    /// The new object, or the last one if the write deletes it.
    pub(crate) entry: Arc<Entry>,
    pub(crate) deletes: bool,
}

impl CheckedWrite {
    /// Checks a write against the `current` version of its object, and takes its draft.
    pub(crate) fn new(current: Option<&Arc<Entry>>, txn: &mut Txn, resource_version: u64) -> Result<Self, WriteError> {
        match (txn.expect, current) {
            (Expect::Absent, None) => {}
            (Expect::Absent, Some(_)) => return Err(WriteError::Exists),
            (Expect::At(_), None) => return Err(WriteError::NotFound),
            (Expect::At(expected), Some(entry)) if entry.resource_version() == expected => {}
            (Expect::At(_), Some(entry)) => return Err(WriteError::Conflict { current: entry.resource_version() }),
        }
        let (entry, deletes) = match (txn.put.take(), current) {
            (Some(draft), None) => (draft.commit(resource_version), false),
            (Some(draft), Some(_)) => (draft.commit_update(resource_version), false),
            (None, Some(last)) => (Arc::clone(last), true),
            (None, None) => return Err(WriteError::NotFound),
        };
        Ok(Self { resource_version, entry, deletes })
    }
}

impl TypeStore {
    /// A type with the objects of an earlier process, as entries of the schema of `ty`.
    pub(super) fn recovered(ty: &ResourceType, objects: Objects<Entry>, history: RecoveredHistory) -> Self {
        Self { objects, defined: Some(SchemaVersion::of(ty)), history: Some(Box::new(history)), ..Self::default() }
    }

    /// A type with the same objects, and no readers yet.
    pub(super) fn fork(&self) -> Self {
        let Self { objects, defined, is_mixed, .. } = self;
        Self { objects: objects.clone(), defined: defined.clone(), is_mixed: *is_mixed, ..Self::default() }
    }

    /// Writes one object at the revision after `revision`, advances `revision` to it, and sends the change to every
    /// reader.
    pub(super) fn commit(
        &mut self,
        revision: &mut u64,
        txn: &mut Txn,
        permits: Vec<(u64, OwnedPermit<Change>)>,
    ) -> Result<WriteResult, WriteError> {
        let write = CheckedWrite::new(self.objects.get(&txn.key), txn, *revision + 1)?;
        *revision = write.resource_version;
        Ok(self.apply(write, &txn.ty, permits))
    }

    /// Makes a checked write, and sends the change to every reader.
    pub(super) fn apply(
        &mut self,
        write: CheckedWrite,
        ty: &ResourceType,
        permits: Vec<(u64, OwnedPermit<Change>)>,
    ) -> WriteResult {
        let CheckedWrite { resource_version, entry, deletes } = write;
        let (change, entry) = if deletes {
            let key = entry.key().to_owned();
            let last = self.objects.remove(&key).unwrap_or(entry);
            (Change::Deleted { key, resource_version }, last)
        } else {
            let entry = self.cast(entry, ty);
            self.objects.put(Arc::clone(&entry));
            (Change::Put(Arc::clone(&entry)), entry)
        };
        self.tell(&change, resource_version, permits);
        if self.history.is_some() {
            self.note(change);
        }
        WriteResult { resource_version, entry }
    }

    /// Adopts the definition of `ty`: later writes become entries of its schema. Returns the objects as an error if
    /// some of them are entries of an earlier schema. A definition older than the adopted one is ignored.
    pub(super) fn adopt(&mut self, ty: &ResourceType) -> Result<(), Objects<Entry>> {
        let known = self.defined.get_or_insert_with(|| SchemaVersion::of(ty));
        if ty.defined_at < known.at {
            return Ok(());
        }
        self.is_mixed |= !known.is_same(&ty.schema) && !self.objects.is_empty();
        *known = SchemaVersion::of(ty);
        if self.is_mixed { Err(self.objects.clone()) } else { Ok(()) }
    }

    /// Returns `entry`, which was made for `ty`, as an entry of the adopted schema.
    fn cast(&mut self, entry: Arc<Entry>, ty: &ResourceType) -> Arc<Entry> {
        let known = self.defined.get_or_insert_with(|| SchemaVersion::of(ty));
        if known.is_same(&ty.schema) { entry } else { recast::one(&entry, &known.schema) }
    }

    /// Sends `change` to every queue. Never waits. A queue without a permit that is full is removed, so that its reader
    /// notices.
    pub(super) fn tell(&mut self, change: &Change, revision: u64, mut permits: Vec<(u64, OwnedPermit<Change>)>) {
        self.queues.retain_mut(|queue| {
            queue.reported = revision;
            match permits.iter().position(|(number, _)| *number == queue.number) {
                Some(at) => {
                    permits.swap_remove(at).1.send(change.clone());
                    true
                }
                None => !matches!(queue.sender.try_send(change.clone()), Err(TrySendError::Full(_))),
            }
        });
    }

    /// Adds a change to the history that the first reader will get, unless it is too long by now.
    fn note(&mut self, change: Change) {
        match &mut self.history {
            Some(history) if history.changes.len() < RECOVERED_CHANGES_MAX => history.changes.push(change),
            history => *history = None,
        }
    }

    /// Returns the history for the first reader; `None` for further ones, and after a change of the schema.
    pub(super) fn take_history(&mut self, ty: &ResourceType) -> Option<RecoveredHistory> {
        let history = self.history.take()?;
        (history.schema == ty.schema).then_some(*history)
    }

    /// Returns true if removing it loses no state.
    pub(super) fn is_unused(&self) -> bool {
        self.objects.is_empty() && self.queues.is_empty() && self.history.is_none()
    }
}
