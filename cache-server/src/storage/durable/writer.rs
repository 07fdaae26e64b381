//! The thread that writes: takes the waiting writes, gives them revisions, makes them durable in one commit, sends them to
//! the streams, and answers their writers.
//!
//! INVARIANT: this thread is the only writer of the objects, so a check holds until the write is applied. INVARIANT: a
//! write is durable before any stream or its writer learns of it. INVARIANT: a revision is assigned once, also if its
//! write fails.

use std::{
    collections::HashMap,
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Instant,
};

use informer_core::KeyedObject as _;
use tokio::sync::{
    mpsc::{self, Receiver, Sender},
    oneshot,
};
use watch_cache::Entry;

use super::{
    disk::{DataDisk, DiskError},
    journal::{Journal, NewChange},
    record::RecordContent,
};
use crate::{
    limits::{DISK_REOPEN_PAUSE, DURABLE_BATCH_BYTES_MAX, DURABLE_BATCH_MAX, DURABLE_QUEUE_MAX},
    storage::{
        SourceError, Txn, WriteError, WriteResult,
        embedded::{CheckedWrite, EmbeddedStorage, QueuePermits},
    },
};

/// Sends the result of a write to its writer, who may have dropped the receiver.
type WriteReply = oneshot::Sender<Result<WriteResult, WriteError>>;

/// A write that waits for its batch.
pub(super) struct QueuedWrite {
    pub(super) txn: Txn,
    /// Room in the queues of the type's readers.
    pub(super) room: QueuePermits,
    pub(super) reply: WriteReply,
}

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
    refused: Vec<(WriteReply, WriteError)>,
}

/// The writing thread.
pub(super) struct CommitThread<D> {
    journal: Journal<D>,
    store: Arc<EmbeddedStorage>,
    queue: Receiver<QueuedWrite>,
    /// The newest revision that was given out.
    revision: u64,
    /// Writes that the file may have. Their writers were answered so.
    undecided: Vec<StagedWrite>,
    /// After a failure: the answer to writes, and the time of the next attempt.
    refusing: Option<(SourceError, Instant)>,
}

impl<D: DataDisk> CommitThread<D> {
    /// Starts the thread. It ends once the sender is dropped and everything in the queue is written.
    pub(super) fn start(
        journal: Journal<D>,
        store: Arc<EmbeddedStorage>,
    ) -> io::Result<(Sender<QueuedWrite>, JoinHandle<()>)> {
        let (sender, queue) = mpsc::channel(DURABLE_QUEUE_MAX);
        let revision = store.revision();
        let this = Self { journal, store, queue, revision, undecided: Vec::new(), refusing: None };
        Ok((sender, thread::Builder::new().name("storage".to_owned()).spawn(move || this.run())?))
    }

    fn run(mut self) {
        while let Some(first) = self.queue.blocking_recv() {
            let mut batch = vec![first];
            let size = |queued: &QueuedWrite| queued.txn.put.as_ref().map_or(0, watch_cache::Draft::len);
            let mut bytes = size(&batch[0]);
            while batch.len() < DURABLE_BATCH_MAX
                && bytes < DURABLE_BATCH_BYTES_MAX
                && let Ok(next) = self.queue.try_recv()
            {
                bytes += size(&next);
                batch.push(next);
            }
            self.commit(batch);
        }
    }

    /// Makes a batch durable, applies it and answers its writers.
    fn commit(&mut self, batch: Vec<QueuedWrite>) {
        if let Some(error) = self.refusal() {
            batch.into_iter().for_each(|queued| answer(queued.reply, Err(error.clone().into())));
            return;
        }
        let StagedBatch { writes, refused } = self.stage(batch);
        let changes: Vec<_> = writes.iter().map(StagedWrite::change).collect();
        let appended = self.journal.append(&changes);
        drop(changes);
        if let Err(error) = appended {
            return self.fail(StagedBatch { writes, refused }, &error);
        }
        for StagedWrite { write, queued: QueuedWrite { txn, room, reply }, .. } in writes {
            answer(reply, Ok(self.store.apply(write, &txn.ty, room)));
        }
        refused.into_iter().for_each(|(reply, error)| answer(reply, Err(error)));
    }

    /// Returns the answer to all writes while the disk does not work. After a failure it is tried once per
    /// [`DISK_REOPEN_PAUSE`].
    fn refusal(&mut self) -> Option<SourceError> {
        let (error, until) = self.refusing.as_ref()?;
        if Instant::now() < *until {
            return Some(error.clone());
        }
        match self.decide() {
            Ok(_) => self.refusing = None,
            Err(error) => drop(self.refuse(&error)),
        }
        self.refusing.as_ref().map(|(error, _)| error.clone())
    }

    /// Lets writes fail for a while. Returns their error.
    fn refuse(&mut self, error: &DiskError) -> SourceError {
        let text = error.to_string();
        let refusal = if error.is_full() { SourceError::Full(text) } else { SourceError::Unavailable(text) };
        self.refusing = Some((refusal.clone(), Instant::now() + DISK_REOPEN_PAUSE));
        refusal
    }

    /// Checks a batch against the objects and against itself.
    fn stage(&mut self, batch: Vec<QueuedWrite>) -> StagedBatch {
        let mut staged = StagedBatch::default();
        // By type and key: the version after the batch so far.
        let mut changed: HashMap<(String, String), Option<Arc<Entry>>> = HashMap::new();
        for mut queued in batch {
            let place = (queued.txn.ty.id().to_owned(), queued.txn.key.clone());
            let before = match changed.get(&place) {
                Some(before) => before.clone(),
                None => self.store.get(&place.0, &place.1),
            };
            match CheckedWrite::new(before.as_ref(), &mut queued.txn, self.revision + 1) {
                Ok(write) => {
                    self.revision = write.resource_version;
                    changed.insert(place, (!write.deletes).then(|| Arc::clone(&write.entry)));
                    staged.writes.push(StagedWrite { write, before, queued });
                }
                Err(error) => staged.refused.push((queued.reply, error)),
            }
        }
        staged
    }

    /// Answers the writers of a failed batch: with its outcome, or that the outcome is unknown.
    fn fail(&mut self, batch: StagedBatch, error: &DiskError) {
        tracing::error!(%error, writes = batch.writes.len(), "data file write failed");
        let refusal = self.refuse(error);
        batch.refused.into_iter().for_each(|(reply, _)| answer(reply, Err(refusal.clone().into())));
        let (mut replies, mut writes) = (Vec::new(), Vec::new());
        for mut staged in batch.writes {
            let (unheard, _) = oneshot::channel();
            replies.push((std::mem::replace(&mut staged.queued.reply, unheard), staged.result()));
            writes.push(staged);
        }
        self.undecided = writes;
        let decided = self.decide();
        for (reply, written) in replies {
            answer(
                reply,
                match &decided {
                    Ok(true) => Ok(written),
                    Ok(false) => Err(refusal.clone().into()),
                    Err(error) => Err(SourceError::Undecided(error.to_string()).into()),
                },
            );
        }
    }

    /// Opens the file again if a write has failed, and applies the batch before if the file has it. Returns true if it
    /// has.
    fn decide(&mut self) -> Result<bool, DiskError> {
        let Some(is_appended) = self.journal.is_appended()? else { return Ok(false) };
        tracing::warn!(is_appended, "data file opened again");
        for StagedWrite { write, queued, .. } in std::mem::take(&mut self.undecided) {
            if is_appended {
                self.store.apply(write, &queued.txn.ty, queued.room);
            }
        }
        Ok(is_appended)
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

    fn result(&self) -> WriteResult {
        WriteResult { resource_version: self.write.resource_version, entry: Arc::clone(&self.write.entry) }
    }
}

fn answer(reply: WriteReply, result: Result<WriteResult, WriteError>) {
    // The writer may have left.
    let _ = reply.send(result);
}
