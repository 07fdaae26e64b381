//! The durable store: the embedded store, whose writes are in a file before watchers and their writers see them.
//!
//! INVARIANT: reads come from memory; only the writing thread uses the disk after the start. INVARIANT: an acknowledged
//! write survives a crash of the process and of the machine. INVARIANT: no position is used twice: each process begins
//! above every revision of earlier ones, and the positions between the two belong to no process. INVARIANT: a store that
//! has released its file confirms no state as the newest one.
//!
//! `docs/storage.md` describes its use, `journal.rs` the file, and
//! `docs/adr/0033-keep-objects-and-history-in-one-ordered-table.md` the reasons.

mod disk;
mod file;
mod journal;
mod ledger;
mod record;
mod recovery;
mod types;
pub mod upkeep;
mod writer;

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Seek as _, Write as _},
    panic,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use futures::{FutureExt as _, future::BoxFuture};
use parking_lot::{Mutex, RwLock};
use tokio::{
    sync::{mpsc::Sender, oneshot},
    task::spawn_blocking,
};
use watch_cache::{Change, Reader};

pub use self::disk::DataFolderError;
use self::{
    disk::{DataDisk, DiskError},
    file::DataFile,
    journal::{Journal, JournalClock, JournalContent, KnownHistory, PositionGap, RawChange},
    ledger::{HistoryBounds, HistoryLedger},
    record::JournalRecord,
    recovery::{RecordsByType, RecoveredType},
    types::{StoredTypes, TypeRecords},
    writer::{CommitThread, QueuedWrite, SharedRefusal, StorageOrder},
};
use super::{
    FollowFrom, ListSnapshot, Source, SourceError, Store, StoreFile, Txn, Updates, WriteError, WriteResult,
    embedded::{self, CheckedWrite, EmbeddedStorage},
    folder::{FolderError, FolderLock},
};
use crate::{cacher::memory_file, limits::UPGRADE_CHECK_EVERY, registry::ResourceType};

/// The durable store.
#[derive(Debug)]
pub struct DurableStorage {
    store: Arc<EmbeddedStorage>,
    types: Arc<Mutex<StoredTypes>>,
    /// See [`Source::history`].
    history: u64,
    gaps: RwLock<Vec<PositionGap>>,
    terminating: Mutex<Vec<String>>,
    /// See [`Self::unreadable`].
    unreadable: Arc<AtomicUsize>,
    file: RwLock<FileAccess>,
    refusal: SharedRefusal,
    /// Folder of the file, and the lowest first revision; `None` for a store that is only read.
    place: Option<(PathBuf, Option<u64>)>,
}

/// Relation of a store to its file.
#[derive(Debug)]
enum FileAccess {
    /// The store is only read.
    ReadOnly {
        /// Holds the lock of the folder.
        _disk: Arc<dyn DataDisk>,
    },
    /// The store has a copy of the file, which another process has; with its history.
    Copied(Option<HistoryLedger>),
    Open(WrittenFile),
    /// Another process may write.
    Released,
}

/// A file that the store writes to.
#[derive(Debug)]
struct WrittenFile {
    writes: Sender<StorageOrder>,
    thread: JoinHandle<()>,
    /// Holds the lock of the folder.
    disk: Arc<dyn DataDisk>,
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
        let opened = Self::on(Arc::<DataFile>::clone(&file), first_revision, HistoryBounds::default());
        let mut store = opened.map_err(|error| error.at(file.path()))?;
        store.place = Some((folder.to_owned(), first_revision));
        Ok(store)
    }

    /// Opens a store over a copy of the file in `folder`, see [`StoreFile::copy`]. It refuses writes until it takes the file.
    ///
    /// Blocks. Cost: reads the copy.
    ///
    /// # Errors
    /// [`DataFolderError`]; the copy is not whole.
    pub fn open_copy(folder: &Path, first_revision: Option<u64>, mut copy: File) -> Result<Self, DataFolderError> {
        let read = copy.rewind().map_err(DiskError::from);
        let read = read.and_then(|()| JournalContent::read_copy(&mut BufReader::new(copy)));
        let (content, ledger) = read.map_err(|error| error.at(folder))?;
        let mut store = Self::of(content, FileAccess::Copied(Some(ledger)));
        store.place = Some((folder.to_owned(), first_revision));
        Ok(store)
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
        Ok(Self::of(content, FileAccess::ReadOnly { _disk: disk }))
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
        let (journal, content) = opened(|| Journal::open(Arc::clone(&disk), first, bounds, clock, None))?;
        let store = Self::of(content, FileAccess::Released);
        store.begin_writing(journal, disk)?;
        Ok(store)
    }

    /// Starts the thread that writes.
    fn begin_writing(&self, journal: Journal, disk: Arc<dyn DataDisk>) -> io::Result<()> {
        let (writes, thread) = CommitThread::start(journal, Arc::clone(&self.store), Arc::clone(&self.refusal))?;
        *self.file.write() = FileAccess::Open(WrittenFile { writes, thread, disk });
        Ok(())
    }

    /// A store with this content, without the thread that writes.
    fn of(mut content: JournalContent, file: FileAccess) -> Self {
        let RecordsByType { types, terminating } = RecordsByType::of(&mut content);
        Self {
            store: Arc::new(EmbeddedStorage::new(Some(content.revision))),
            types: Arc::new(Mutex::new(StoredTypes::new(types, content.base))),
            history: content.history,
            gaps: RwLock::new(content.gaps),
            terminating: Mutex::new(terminating),
            unreadable: Arc::default(),
            file: RwLock::new(file),
            refusal: Arc::default(),
            place: None,
        }
    }

    /// Returns the number of stored versions that could not be read so far; they stay in the file.
    pub fn unreadable(&self) -> usize {
        self.unreadable.load(Ordering::Relaxed)
    }

    /// Returns the queue of the thread that writes; `None` without one.
    fn writes(&self) -> Option<Sender<StorageOrder>> {
        if let FileAccess::Open(file) = &*self.file.read() { Some(file.writes.clone()) } else { None }
    }

    fn is_released(&self) -> bool {
        matches!(*self.file.read(), FileAccess::Released)
    }

    /// Waits until the objects of the type are in the store. Cost: a look-up, after the first time.
    async fn load(&self, ty: &Arc<ResourceType>) -> Result<(), SourceError> {
        let raw = {
            let types = &mut *self.types.lock();
            match types.get(ty.id()) {
                Some(TypeRecords::Loaded(_)) => return Ok(()),
                Some(TypeRecords::Raw(raw)) => raw.clone(),
                None => {
                    types.add(ty, &self.store);
                    return Ok(());
                }
            }
        };
        let mut records = raw.records.lock_owned().await;
        let (ty, from) = (Arc::clone(ty), raw.from);
        let (store, types, unreadable) =
            (Arc::clone(&self.store), Arc::clone(&self.types), Arc::clone(&self.unreadable));
        // The task continues if the caller is dropped; the next caller waits for the lock.
        let loading = spawn_blocking(move || {
            let Some(raw) = records.take() else { return };
            let RecoveredType { objects, history, unreadable: skipped } = recovery::recover(&ty, from, raw);
            unreadable.fetch_add(skipped, Ordering::Relaxed);
            store.fill(&ty, objects, history);
            types.lock().loaded(ty);
        });
        loading.await.map_err(|_| SourceError::Unavailable("stored objects could not be read".to_owned()))
    }

    /// Applies a change of another process.
    async fn adopt(&self, change: RawChange) {
        let Some(id) = JournalRecord::decode(&change.bytes).map(|record| record.ty.to_owned()) else { return };
        let (mut records, mut change) = (self.types.lock().stored(&id), change);
        if let TypeRecords::Raw(raw) = records {
            match raw.push(change).await {
                Ok(()) => return,
                Err(returned) => change = returned,
            }
            // They have become entries meanwhile.
            records = self.types.lock().stored(&id);
        }
        // If that failed, nothing of the type is served.
        let TypeRecords::Loaded(ty) = records else { return };
        let room = self.store.reserve(ty.id()).await;
        let read = recovery::read(&ty, |key| self.store.get(ty.id(), key).is_some(), change.revision, &change.bytes);
        let (entry, deletes) = match read {
            Some(Change::Put(entry)) => (Some(entry), false),
            Some(Change::Deleted { key, .. }) => (self.store.get(ty.id(), &key), true),
            Some(Change::Progress(_)) => (None, false),
            None => {
                self.unreadable.fetch_add(1, Ordering::Relaxed);
                (None, false)
            }
        };
        if let Some(entry) = entry {
            self.store.apply(CheckedWrite { resource_version: change.revision, entry, deletes }, &ty, room);
        }
    }
}

/// Opens the file of a folder, of which `known` was copied. Waits for at most `wait` until another process has left it.
fn open_released(
    folder: &Path,
    first: Option<u64>,
    known: Option<KnownHistory>,
    wait: Duration,
) -> Result<TakenFile, DataFolderError> {
    let deadline = Instant::now() + wait;
    let lock = loop {
        match FolderLock::take(folder) {
            Err(FolderError::InUse(_)) if Instant::now() < deadline => thread::sleep(UPGRADE_CHECK_EVERY),
            lock => break lock?,
        }
    };
    let file = Arc::new(DataFile::new(folder, lock));
    let (disk, first) = (Arc::<DataFile>::clone(&file), first.unwrap_or_else(embedded::revision_now).max(1));
    let (bounds, clock) = (HistoryBounds::default(), Box::new(journal::unix_ms));
    let opened = opened(move || Journal::open(disk, first, bounds, clock, known));
    let (journal, content) = opened.map_err(|error| error.at(file.path()))?;
    Ok(TakenFile { journal, content, disk: file })
}

/// A file that this process has taken, with the changes that its store may lack.
struct TakenFile {
    journal: Journal,
    content: JournalContent,
    disk: Arc<dyn DataDisk>,
}

impl StoreFile for DurableStorage {
    fn copy(&self) -> io::Result<File> {
        let (reply, view) = oneshot::channel();
        let writes = self.writes().ok_or(io::ErrorKind::BrokenPipe)?;
        writes.blocking_send(StorageOrder::Read(reply)).map_err(io::Error::other)?;
        // The thread ends with the last sender.
        drop(writes);
        let view = view.blocking_recv().map_err(io::Error::other)?.map_err(io::Error::other)?;
        let mut copy = BufWriter::new(memory_file()?);
        journal::copy(&view, &mut copy).map_err(io::Error::other)?;
        copy.flush()?;
        copy.into_inner().map_err(io::IntoInnerError::into_error)
    }

    fn release(&self) {
        // Before the file is closed: this store confirms nothing that another process may have changed.
        let before = std::mem::replace(&mut *self.file.write(), FileAccess::Released);
        if let FileAccess::Open(WrittenFile { writes, thread, disk }) = before {
            drop(writes);
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
            drop(disk);
        }
    }

    fn take(&self, wait: Duration) -> BoxFuture<'_, Result<(), String>> {
        async move {
            let (folder, first) = self.place.clone().ok_or("it is only read")?;
            let (revision, history) = (self.store.revision(), self.history);
            let ledger = match &mut *self.file.write() {
                FileAccess::Copied(ledger) => ledger.take(),
                FileAccess::Open(_) => return Ok(()),
                FileAccess::ReadOnly { .. } | FileAccess::Released => None,
            };
            let known = ledger.map(|ledger| KnownHistory { history, revision, ledger });
            let opened = spawn_blocking(move || open_released(&folder, first, known, wait)).await;
            let opened = opened.expect("opening catches panics").map_err(|error| error.to_string())?;
            let TakenFile { journal, content, disk } = opened;
            let begins_deletion = recovery::deletion_finder();
            for change in content.changes.into_iter().filter(|change| revision < change.revision) {
                if let Some(record) = JournalRecord::decode(&change.bytes).filter(|_| begins_deletion(&change)) {
                    self.terminating.lock().push(record.ty.to_owned());
                }
                self.adopt(change).await;
            }
            self.store.advance(content.revision);
            *self.gaps.write() = content.gaps;
            self.begin_writing(journal, disk).map_err(|error| error.to_string())
        }
        .boxed()
    }

    fn terminating(&self) -> Vec<String> {
        self.terminating.lock().clone()
    }
}

/// Opens a data file with `open`. redb may panic on a file that another program has changed.
fn opened<T>(open: impl FnOnce() -> Result<T, DiskError>) -> Result<T, DiskError> {
    let opened = panic::catch_unwind(panic::AssertUnwindSafe(open));
    opened.unwrap_or_else(|_| Err(DiskError::Damaged("it cannot be read".to_owned())))
}

/// The answer while another process may have the file.
fn replaced() -> SourceError {
    SourceError::Unavailable("another process takes over".to_owned())
}

impl Drop for DurableStorage {
    /// Waits until the queued writes are in the file, so that it can be opened again.
    fn drop(&mut self) {
        self.release();
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
        if self.is_released() {
            return std::future::ready(Err(replaced())).boxed();
        }
        self.store.current(ty)
    }

    fn is_known(&self, position: u64) -> bool {
        !self.gaps.read().iter().any(|gap| gap.contains(position))
    }

    fn newest(&self) -> Option<u64> {
        // The next process may be ahead.
        (!self.is_released()).then(|| self.store.revision())
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
            if self.is_released() { Err(replaced()) } else { self.store.list(&ty).await }
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
            let writes = self.writes().ok_or_else(replaced)?;
            let order = StorageOrder::Write(QueuedWrite { txn, room, reply: Some(reply) });
            writes.send(order).await.map_err(|_| stopped())?;
            drop(writes);
            // The thread has panicked, before or after its commit.
            let lost = |_| SourceError::Undecided("the writing thread has ended".to_owned());
            written.await.map_err(lost)?
        }
        .boxed()
    }

    fn refuses(&self) -> Option<SourceError> {
        let FileAccess::Open(WrittenFile { disk, .. }) = &*self.file.read() else { return None };
        disk.check_place().err().map(|error| error.refusal()).or_else(|| self.refusal.lock().clone())
    }
}

#[cfg(test)]
mod tests;
