//! The durable store: the embedded store, whose writes are in a file before watchers and their writers see them.
//!
//! INVARIANT: reads come from memory; only the writing thread uses the disk after the start. INVARIANT: an acknowledged
//! write survives a crash of the process and of the machine. INVARIANT: no position is used twice: each process begins
//! above every revision of earlier ones, and the positions between the two belong to no process.
//!
//! `docs/storage.md` describes its use, `journal.rs` the file, and
//! `docs/adr/0033-keep-objects-and-history-in-one-ordered-table.md` the reasons.

mod disk;
mod file;
mod journal;
mod ledger;
mod record;
mod recovery;
pub mod upkeep;
mod writer;

use std::{
    collections::HashMap,
    panic,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
};

use futures::{FutureExt as _, future::BoxFuture};
use informer_core::Objects;
use parking_lot::Mutex;
use tokio::{
    sync::{self, mpsc::Sender, oneshot},
    task::spawn_blocking,
};
use watch_cache::Reader;

pub use self::disk::DataFolderError;
use self::{
    disk::{DataDisk, DiskError},
    file::DataFile,
    journal::{Journal, JournalClock, JournalContent, PositionGap, RawChange},
    ledger::HistoryBounds,
    recovery::{RecordsByType, RecoveredType},
    writer::{CommitThread, QueuedWrite, SharedRefusal},
};
use super::{
    FollowFrom, ListSnapshot, Source, SourceError, Store, Txn, Updates, WriteError, WriteResult,
    embedded::{self, EmbeddedStorage, RecoveredHistory},
    folder::FolderLock,
};
use crate::registry::ResourceType;

/// The durable store.
#[derive(Debug)]
pub struct DurableStorage {
    store: Arc<EmbeddedStorage>,
    /// The records of each type that was asked for, or has objects.
    types: Arc<Mutex<HashMap<String, TypeRecords>>>,
    /// See [`Source::history`].
    history: u64,
    /// The oldest position of the history at the start.
    base: u64,
    gaps: Vec<PositionGap>,
    terminating: Vec<String>,
    /// See [`Self::unreadable`].
    unreadable: Arc<AtomicUsize>,
    /// `None` for a store that is only read, and while it is dropped.
    writes: Option<Sender<QueuedWrite>>,
    thread: Option<JoinHandle<()>>,
    refusal: SharedRefusal,
    /// Holds the lock of the folder.
    disk: Arc<dyn DataDisk>,
}

/// The records of one type. They become entries with its first use, because only then its schema is known.
#[derive(Debug)]
enum TypeRecords {
    /// `None` while they are becoming entries, which the lock covers.
    Raw(Arc<sync::Mutex<Option<Vec<RawChange>>>>),
    /// They are in the store.
    Loaded,
}

impl DurableStorage {
    /// Opens the store in `folder`, which is created with mode 0700 if it is missing. Revisions begin at `first_revision`
    /// at least; `None` derives that from the clock, as for a store in memory.
    ///
    /// Blocks. Cost: reads the file.
    ///
    /// # Errors
    /// [`DataFolderError`].
    pub fn open(folder: &Path, first_revision: Option<u64>) -> Result<Self, DataFolderError> {
        let file = Arc::new(DataFile::new(folder, FolderLock::take(folder)?));
        Self::on(Arc::<DataFile>::clone(&file), first_revision, HistoryBounds::default())
            .map_err(|error| error.at(file.path()))
    }

    /// Opens the store of a folder that exists, for reading only: writes are refused, and the file stays as it is.
    ///
    /// Blocks. Cost: reads the file.
    ///
    /// # Errors
    /// [`DataFolderError`].
    pub fn read(folder: &Path) -> Result<Self, DataFolderError> {
        let (file, disk) = upkeep::existing(folder)?;
        let content = opened(|| Journal::read(&disk)).map_err(|error| error.at(file.path()))?;
        Ok(Self::of(content, disk))
    }

    fn on(disk: Arc<dyn DataDisk>, first_revision: Option<u64>, bounds: HistoryBounds) -> Result<Self, DiskError> {
        Self::on_with_clock(disk, first_revision, bounds, Box::new(journal::unix_ms))
    }

    fn on_with_clock(
        disk: Arc<dyn DataDisk>,
        first_revision: Option<u64>,
        bounds: HistoryBounds,
        clock: JournalClock,
    ) -> Result<Self, DiskError> {
        let first = first_revision.unwrap_or_else(embedded::revision_now).max(1);
        let (journal, content) = opened(|| Journal::open(Arc::clone(&disk), first, bounds, clock))?;
        let mut store = Self::of(content, disk);
        let (writes, thread) = CommitThread::start(journal, Arc::clone(&store.store), Arc::clone(&store.refusal))?;
        (store.writes, store.thread) = (Some(writes), Some(thread));
        Ok(store)
    }

    /// A store with this content, without the thread that writes.
    fn of(mut content: JournalContent, disk: Arc<dyn DataDisk>) -> Self {
        let RecordsByType { types, terminating } = RecordsByType::of(&mut content);
        let raw = |records| TypeRecords::Raw(Arc::new(sync::Mutex::new(Some(records))));
        let types = types.into_iter().map(|(id, records)| (id, raw(records))).collect();
        Self {
            store: Arc::new(EmbeddedStorage::new(Some(content.revision))),
            types: Arc::new(Mutex::new(types)),
            history: content.history,
            base: content.base,
            gaps: content.gaps,
            terminating,
            unreadable: Arc::default(),
            writes: None,
            thread: None,
            refusal: Arc::default(),
            disk,
        }
    }

    /// Returns the number of stored versions that could not be read so far; they stay in the file.
    pub fn unreadable(&self) -> usize {
        self.unreadable.load(Ordering::Relaxed)
    }

    /// Returns the ids of the types that had objects at the start whose deletion was begun.
    pub fn terminating(&self) -> &[String] {
        &self.terminating
    }

    /// Waits until the objects of the type are in the store. Cost: a look-up, after the first time.
    async fn load(&self, ty: &Arc<ResourceType>) -> Result<(), SourceError> {
        let records = match self.types.lock().entry(ty.id().to_owned()).or_insert_with(|| {
            // Nothing of the type is in the file: its history is empty, but known.
            self.store.fill(ty, Objects::new(), nothing(ty, self.base));
            TypeRecords::Loaded
        }) {
            TypeRecords::Loaded => return Ok(()),
            TypeRecords::Raw(records) => Arc::clone(records),
        };
        let mut records = records.lock_owned().await;
        let (ty, base) = (Arc::clone(ty), self.base);
        let (store, types, unreadable) =
            (Arc::clone(&self.store), Arc::clone(&self.types), Arc::clone(&self.unreadable));
        // The task continues if the caller is dropped; the next caller waits for the lock.
        let loading = spawn_blocking(move || {
            let Some(raw) = records.take() else { return };
            let RecoveredType { objects, history, unreadable: skipped } = recovery::recover(&ty, base, raw);
            unreadable.fetch_add(skipped, Ordering::Relaxed);
            store.fill(&ty, objects, history);
            types.lock().insert(ty.id().to_owned(), TypeRecords::Loaded);
        });
        loading.await.map_err(|_| SourceError::Unavailable("stored objects could not be read".to_owned()))
    }
}

/// Opens a data file with `open`. redb may panic on a file that another program has changed.
fn opened<T>(open: impl FnOnce() -> Result<T, DiskError>) -> Result<T, DiskError> {
    let opened = panic::catch_unwind(panic::AssertUnwindSafe(open));
    opened.unwrap_or_else(|_| Err(DiskError::Damaged("it cannot be read".to_owned())))
}

fn nothing(ty: &ResourceType, from: u64) -> RecoveredHistory {
    RecoveredHistory { objects: Objects::new(), from, changes: Vec::new(), schema: Arc::clone(&ty.schema) }
}

impl Drop for DurableStorage {
    /// Waits until the queued writes are in the file, so that it can be opened again.
    fn drop(&mut self) {
        self.writes = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Source for DurableStorage {
    fn follow(
        &self,
        ty: &Arc<ResourceType>,
        from: FollowFrom,
        cache: Reader,
    ) -> BoxFuture<'_, Result<Updates, SourceError>> {
        let ty = Arc::clone(ty);
        async move {
            self.load(&ty).await?;
            self.store.follow(&ty, from, cache).await
        }
        .boxed()
    }

    fn current(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>> {
        self.store.current(ty)
    }

    fn is_known(&self, position: u64) -> bool {
        !self.gaps.iter().any(|gap| gap.contains(position))
    }

    fn newest(&self) -> Option<u64> {
        Some(self.store.revision())
    }

    fn history(&self) -> Option<u64> {
        Some(self.history)
    }
}

impl Store for DurableStorage {
    fn list(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<ListSnapshot, SourceError>> {
        let ty = Arc::clone(ty);
        async move {
            self.load(&ty).await?;
            self.store.list(&ty).await
        }
        .boxed()
    }

    fn write(&self, txn: Txn) -> BoxFuture<'_, Result<WriteResult, WriteError>> {
        async move {
            let stopped = || SourceError::Unavailable("the writing thread has ended".to_owned());
            self.load(&txn.ty).await?;
            if let Some(cause) = &txn.cause {
                self.load(&cause.ty).await?;
            }
            let room = self.store.reserve(txn.ty.id()).await;
            let (reply, written) = oneshot::channel();
            let writes = self.writes.as_ref().ok_or_else(stopped)?;
            writes.send(QueuedWrite { txn, room, reply: Some(reply) }).await.map_err(|_| stopped())?;
            // The thread has panicked, before or after its commit.
            let lost = |_| SourceError::Undecided("the writing thread has ended".to_owned());
            written.await.map_err(lost)?
        }
        .boxed()
    }

    fn refuses(&self) -> Option<SourceError> {
        self.writes.as_ref()?;
        self.disk.check_place().err().map(|error| error.refusal()).or_else(|| self.refusal.lock().clone())
    }
}

#[cfg(test)]
mod tests;
