//! The thread that writes: takes the waiting writes, gives them revisions, makes them durable in one commit, sends them to
//! the streams, and answers their writers.
//!
//! INVARIANT: this thread is the only writer of the objects, so a check holds until the write is applied. INVARIANT: a
//! write is durable before any stream or its writer learns of it. INVARIANT: a revision is assigned once, also if its
//! write fails. INVARIANT: after a failed sync the outcome of a batch is unknown to its writers, whatever the file shows.

use std::{
    collections::HashMap,
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Instant,
};

use informer_core::{KeyedObject as _, wire::json};
use parking_lot::Mutex;
use redb::ReadTransaction;
use tokio::sync::{
    mpsc::{self, Receiver, Sender, error::TryRecvError},
    oneshot,
};
use watch_cache::Entry;

use super::{
    disk::DiskError,
    journal::{Journal, NewChange},
    record::RecordContent,
};
use crate::{
    embedded::{CheckedWrite, EmbeddedStorage, QueuePermits},
    limits::{
        DISK_QUEUE_CHECK_EVERY, DISK_REOPEN_PAUSE, DURABLE_BATCH_BYTES_MAX, DURABLE_BATCH_MAX, DURABLE_QUEUE_MAX,
        DURABLE_REMOVALS_MAX,
    },
    storage::{SourceError, Txn, WriteError, WriteResult},
};

/// Sends the result of a write to its writer, who may have dropped the receiver.
type WriteReply = oneshot::Sender<Result<WriteResult, WriteError>>;

/// A write that waits for its batch.
pub(super) struct QueuedWrite {
    pub(super) txn: Txn,
    /// Room in the queues of the type's readers.
    pub(super) room: QueuePermits,
    /// `None` once the writer is answered.
    pub(super) reply: Option<WriteReply>,
}

/// An order to the thread.
#[expect(clippy::large_enum_variant, reason = "nearly all are writes")]
pub(super) enum StorageOrder {
    Write(QueuedWrite),
    /// Sends a view of the file as it is then.
    Read(oneshot::Sender<Result<ReadTransaction, DiskError>>),
}

impl QueuedWrite {
    fn answer(&mut self, result: Result<WriteResult, WriteError>) {
        if let Some(reply) = self.reply.take() {
            // The writer may have left.
            let _ = reply.send(result);
        }
    }

    /// True if the write deletes an object, or belongs to a deletion that waits for finalizers.
    fn removes(&self) -> bool {
        let Some(draft) = &self.txn.put else { return true };
        let find = |object, name: &[u8]| {
            let found = json::members(object).filter_map(Result::ok).find(|member| *member.key.bytes() == *name);
            found.map(|member| member.value)
        };
        find(draft.json(), b"metadata").is_some_and(|metadata| find(metadata, b"deletionTimestamp").is_some())
    }
}

/// The answer to writes while they are refused; shared with the store.
pub(super) type SharedRefusal = Arc<Mutex<Option<SourceError>>>;

/// A write of a batch, with its revision.
struct StagedWrite {
    write: CheckedWrite,
    /// Version that it replaces or deletes.
    before: Option<Arc<Entry>>,
    queued: QueuedWrite,
}

/// A batch.
#[derive(Default)]
struct StagedBatch {
    writes: Vec<StagedWrite>,
    /// Writes whose expectation does not hold, perhaps only because of others of the batch.
    refused: Vec<(QueuedWrite, WriteError)>,
}

/// The writing thread.
pub(super) struct CommitThread {
    journal: Journal,
    store: Arc<EmbeddedStorage>,
    queue: Receiver<StorageOrder>,
    /// The newest revision that was given out.
    revision: u64,
    /// Writes that the file may have.
    undecided: Vec<StagedWrite>,
    refusal: SharedRefusal,
    /// Time of the next attempt after a failure.
    refusing_until: Instant,
    /// The failure that was logged last, until a write succeeds.
    reported: Option<SourceError>,
}

impl CommitThread {
    /// Starts the thread. It ends once the sender is dropped and everything in the queue is written.
    pub(super) fn start(
        journal: Journal,
        store: Arc<EmbeddedStorage>,
        refusal: SharedRefusal,
    ) -> io::Result<(Sender<StorageOrder>, JoinHandle<()>)> {
        let (sender, queue) = mpsc::channel(DURABLE_QUEUE_MAX);
        let revision = store.revision();
        if journal.is_short() {
            *refusal.lock() = Some(DiskError::from(io::Error::from(io::ErrorKind::StorageFull)).refusal());
        }
        let (undecided, refusing_until) = (Vec::new(), Instant::now());
        let this = Self { journal, store, queue, revision, undecided, refusal, refusing_until, reported: None };
        Ok((sender, thread::Builder::new().name("storage".to_owned()).spawn(move || this.run())?))
    }

    fn run(mut self) {
        while let Some(first) = self.next() {
            let mut batch = vec![first];
            let size = |queued: &QueuedWrite| queued.txn.put.as_ref().map_or(0, watch_cache::Draft::len);
            let mut bytes = size(&batch[0]);
            while batch.len() < DURABLE_BATCH_MAX
                && bytes < DURABLE_BATCH_BYTES_MAX
                && let Ok(order) = self.queue.try_recv()
            {
                if let Some(next) = self.take(order) {
                    bytes += size(&next);
                    batch.push(next);
                }
            }
            self.commit(batch);
        }
    }

    /// Waits for a write; `None` at the end of the queue. Meanwhile it tries a failed disk again: a server that is not
    /// ready may get no write that would do it.
    fn next(&mut self) -> Option<QueuedWrite> {
        while self.refusal.lock().as_ref().is_some_and(|error| !matches!(error, SourceError::Full(_))) {
            match self.queue.try_recv() {
                Ok(order) => {
                    if let Some(queued) = self.take(order) {
                        return Some(queued);
                    }
                }
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => thread::sleep(DISK_QUEUE_CHECK_EVERY),
            }
            self.refuses();
        }
        loop {
            let order = self.queue.blocking_recv()?;
            if let Some(queued) = self.take(order) {
                return Some(queued);
            }
        }
    }

    /// Returns the write of an order, and answers another one.
    fn take(&self, order: StorageOrder) -> Option<QueuedWrite> {
        match order {
            StorageOrder::Write(queued) => Some(queued),
            StorageOrder::Read(reply) => {
                // The reader may have left.
                let _ = reply.send(self.journal.begin_read());
                None
            }
        }
    }

    /// Writes a batch, or the part of it that the disk allows, and answers its writers.
    fn commit(&mut self, mut batch: Vec<QueuedWrite>) {
        let Some(error) = self.refuses() else { return self.write(batch, false) };
        let is_full = matches!(error, SourceError::Full(_));
        batch.retain_mut(|queued| {
            let is_allowed = is_full && queued.removes();
            if !is_allowed {
                queued.answer(Err(error.clone().into()));
            }
            is_allowed
        });
        // Large batches might need more room than there is.
        let rest = batch.split_off(batch.len().min(DURABLE_REMOVALS_MAX));
        if !batch.is_empty() {
            self.write(batch, true);
        }
        if !rest.is_empty() {
            self.commit(rest);
        }
    }

    /// Makes a batch durable, applies it and answers its writers.
    fn write(&mut self, mut batch: Vec<QueuedWrite>, frees_room: bool) {
        // Its checks need the outcome of the batch before it.
        if let Err(error) = self.decide() {
            let refusal = self.refuse(&error);
            return batch.iter_mut().for_each(|queued| queued.answer(Err(refusal.clone().into())));
        }
        let StagedBatch { writes, refused } = self.stage(batch);
        let changes: Vec<_> = writes.iter().map(StagedWrite::change).collect();
        let appended = self.journal.append(&changes, frees_room);
        drop(changes);
        if let Err(error) = appended {
            return self.fail(StagedBatch { writes, refused }, &error, frees_room);
        }
        if !frees_room && self.reported.take().is_some() {
            tracing::info!("data file written to again");
        }
        writes.into_iter().for_each(|staged| self.apply(staged));
        refused.into_iter().for_each(|(mut queued, error)| queued.answer(Err(error)));
    }

    fn apply(&self, staged: StagedWrite) {
        let StagedWrite { write, queued: QueuedWrite { txn, room, reply }, .. } = staged;
        let written = self.store.apply(write, &txn.ty, room);
        if let Some(reply) = reply {
            // The writer may have left.
            let _ = reply.send(Ok(written));
        }
    }

    /// Returns the answer to all writes while the disk does not work. After a failure it is tried once per
    /// [`DISK_REOPEN_PAUSE`].
    fn refuses(&mut self) -> Option<SourceError> {
        let error = self.refusal.lock().clone()?;
        if Instant::now() < self.refusing_until {
            return Some(error);
        }
        match self.try_again(matches!(error, SourceError::Full(_))) {
            Ok(true) => {
                *self.refusal.lock() = None;
                None
            }
            Ok(false) => {
                self.refusing_until = Instant::now() + DISK_REOPEN_PAUSE;
                Some(error)
            }
            Err(error) => Some(self.refuse(&error)),
        }
    }

    /// Tries the disk after a failure. Returns false if only removals may be written.
    fn try_again(&mut self, is_full: bool) -> Result<bool, DiskError> {
        self.journal.check_place()?;
        self.decide()?;
        if is_full { self.journal.make_room() } else { Ok(true) }
    }

    /// Lets writes fail for a while. Returns their error.
    fn refuse(&mut self, error: &DiskError) -> SourceError {
        let refusal = error.refusal();
        if self.reported.replace(refusal.clone()).as_ref() != Some(&refusal) {
            tracing::error!(%error, "writes refused");
        }
        *self.refusal.lock() = Some(refusal.clone());
        self.refusing_until = Instant::now() + DISK_REOPEN_PAUSE;
        refusal
    }

    /// Checks a batch against the objects and against itself.
    fn stage(&mut self, batch: Vec<QueuedWrite>) -> StagedBatch {
        let mut staged = StagedBatch::default();
        // By type and key: the version after the batch so far.
        let mut changed: HashMap<(String, String), Option<Arc<Entry>>> = HashMap::new();
        for mut queued in batch {
            let current = |place: &(String, String)| match changed.get(place) {
                Some(current) => current.clone(),
                None => self.store.get(&place.0, &place.1),
            };
            let place = (queued.txn.ty.id().to_owned(), queued.txn.key.clone());
            let before = current(&place);
            let caused =
                queued.txn.cause.as_ref().map_or(Ok(()), |cause| {
                    cause.check(current(&(cause.ty.id().to_owned(), cause.key.clone())).as_ref())
                });
            let checked = caused.and_then(|()| CheckedWrite::new(before.as_ref(), &mut queued.txn, self.revision + 1));
            match checked {
                Ok(write) => {
                    self.revision = write.resource_version;
                    changed.insert(place, (!write.deletes).then(|| Arc::clone(&write.entry)));
                    staged.writes.push(StagedWrite { write, before, queued });
                }
                Err(error) => staged.refused.push((queued, error)),
            }
        }
        staged
    }

    /// Answers the writers of a failed batch: with its outcome, or that the outcome is unknown.
    fn fail(&mut self, batch: StagedBatch, error: &DiskError, freed_room: bool) {
        let refusal = self.refuse(error);
        batch.refused.into_iter().for_each(|(mut queued, _)| queued.answer(Err(refusal.clone().into())));
        self.undecided = batch.writes;
        let unknown = |error: &DiskError| WriteError::from(SourceError::Undecided(error.to_string()));
        if self.journal.is_unsynced() {
            // The file shows the batch, and the disk may not have it.
            self.undecided.iter_mut().for_each(|staged| staged.queued.answer(Err(unknown(error))));
        }
        match self.decide() {
            Ok(unwritten) => {
                // A deletion needs only the room that is reserved for it.
                let is_tried_again = |staged: &StagedWrite| {
                    error.is_full() && !freed_room && staged.write.deletes && staged.queued.reply.is_some()
                };
                let (removals, others): (Vec<_>, Vec<_>) = unwritten.into_iter().partition(is_tried_again);
                others.into_iter().for_each(|mut staged| staged.queued.answer(Err(refusal.clone().into())));
                self.commit(removals.into_iter().map(|staged| staged.queued).collect());
            }
            Err(error) => {
                self.undecided.iter_mut().for_each(|staged| staged.queued.answer(Err(unknown(&error))));
            }
        }
    }

    /// Opens the file again if a write has failed. Applies the undecided batch if the file has it, and returns it if not.
    fn decide(&mut self) -> Result<Vec<StagedWrite>, DiskError> {
        self.journal.is_appended()?;
        let undecided = std::mem::take(&mut self.undecided);
        // The append that failed last may be one that only shortened the history: the revision tells whose batch it was.
        let is_appended = undecided.last().is_some_and(|last| last.write.resource_version <= self.journal.newest());
        if !is_appended {
            return Ok(undecided);
        }
        tracing::warn!(writes = undecided.len(), "writes found in the data file");
        undecided.into_iter().for_each(|staged| self.apply(staged));
        Ok(Vec::new())
    }
}

impl StagedWrite {
    fn change(&self) -> NewChange<'_> {
        let Self { write: CheckedWrite { resource_version, entry, deletes }, before, queued } = self;
        let content = if *deletes {
            RecordContent::Deleted { key: entry.key() }
        } else {
            RecordContent::Put { json: entry.object_text(), is_normal: entry.is_normal() }
        };
        let (superseded, freed) =
            before.as_ref().map_or((0, 0), |before| (before.resource_version(), before.object_text().len()));
        NewChange { revision: *resource_version, superseded, freed, ty: queued.txn.ty.id(), content }
    }
}
