//! The store in memory with a history to resume from, which can be parted from its clients: it keeps the contract, unless
//! it has a fault.
//!
//! INVARIANT: a write and its record in the history happen in one poll, so on one thread no reader comes between.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use cache_server::{
    registry::ResourceType,
    storage::{
        Expect, FollowFrom, ListSnapshot, Source, SourceError, Store, Txn, Updates, WriteError, WriteResult,
        embedded::EmbeddedStorage,
    },
};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, future::BoxFuture, stream};
use tokio::{
    sync::{Semaphore, watch},
    task::yield_now,
    time::sleep,
};
use watch_cache::{Change, Draft, Entry, Reader};

use super::{
    Fault,
    streams::{self, StreamReads},
};
use crate::contract::{Features, Kind, Lasting, ObjectWrite, ObjectWriter, Storage, StoreWriter};

/// The storage under test.
pub(crate) struct Reference {
    fault: Option<Fault>,
    open: Mutex<Arc<ReferenceStore>>,
}

/// A list: its revision, and the objects.
type ListedEntries = (u64, Vec<Arc<Entry>>);

/// One process of it.
pub(crate) struct ReferenceStore {
    fault: Option<Fault>,
    pub(crate) is_parted: watch::Sender<bool>,
    inner: EmbeddedStorage,
    /// Of the second type, if it counts revisions by itself.
    other: EmbeddedStorage,
    first: u64,
    /// By type and revision.
    changes: Mutex<BTreeMap<(String, u64), Change>>,
    /// Revisions whose writers left.
    pub(crate) cancelled: Mutex<Vec<u64>>,
    /// By the number of the stream.
    pub(crate) reads: Mutex<BTreeMap<usize, StreamReads>>,
    pub(crate) streams: AtomicUsize,
    writes: AtomicUsize,
    last_current: AtomicU64,
    last_list: Mutex<BTreeMap<String, ListedEntries>>,
    permits: Semaphore,
}

impl Reference {
    pub(crate) fn new(fault: Option<Fault>) -> Self {
        Self { fault, open: Mutex::new(Arc::new(ReferenceStore::new(fault, FIRST))) }
    }

    fn now(&self) -> Arc<ReferenceStore> {
        Arc::clone(&self.open.lock().unwrap())
    }
}

impl Storage for Reference {
    fn features(&self) -> Features {
        let is_foreign = self.fault == Some(Fault::AcceptsForeignPositions);
        let lasts = if is_foreign { Lasting::Nothing } else { Lasting::Objects };
        Features { resumes: true, lasts, parts: true, ..Features::of_memory() }
    }

    fn source(&self) -> Arc<dyn Source> {
        Arc::new(ReferenceClient(self.now()))
    }

    fn store(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(ReferenceClient(self.now())))
    }

    /// The second one reaches the store while it is parted from the others.
    fn writers(&self) -> Vec<Arc<dyn ObjectWriter>> {
        let first = StoreWriter(Arc::new(ReferenceClient(self.now())));
        vec![Arc::new(first), Arc::new(Behind(self.now()))]
    }

    fn reopen(&self) -> BoxFuture<'_, ()> {
        async {
            let before = self.now();
            let after = match self.fault {
                Some(Fault::LosesObjects | Fault::AcceptsForeignPositions) => {
                    let revision = before.state(&Kind::Maps.ty()).await.0;
                    ReferenceStore::new(self.fault, revision + FIRST)
                }
                Some(Fault::LosesLastWrite) => before.without_last_write().await,
                _ => return,
            };
            *self.open.lock().unwrap() = Arc::new(after);
        }
        .boxed()
    }

    fn part(&self, is_parted: bool) {
        self.now().is_parted.send_replace(is_parted);
    }
}

/// A writer that is not parted from the store.
struct Behind(Arc<ReferenceStore>);

impl ObjectWriter for Behind {
    fn write(&self, write: ObjectWrite) -> BoxFuture<'_, Result<u64, WriteError>> {
        async move { Ok(self.0.commit(write.txn()).await?.resource_version) }.boxed()
    }
}

impl ReferenceStore {
    fn new(fault: Option<Fault>, first: u64) -> Self {
        Self {
            fault,
            is_parted: watch::Sender::new(false),
            inner: EmbeddedStorage::new(Some(first)),
            other: EmbeddedStorage::new(Some(first)),
            first,
            changes: Mutex::default(),
            cancelled: Mutex::default(),
            reads: Mutex::default(),
            streams: AtomicUsize::new(0),
            writes: AtomicUsize::new(0),
            last_current: AtomicU64::new(0),
            last_list: Mutex::default(),
            permits: Semaphore::new(PERMITS),
        }
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn inner(&self, ty: &ResourceType) -> &EmbeddedStorage {
        let is_other = self.has(Fault::RevisionPerType) && ty.id() == Kind::Secrets.ty().id();
        if is_other { &self.other } else { &self.inner }
    }

    /// Returns the objects of a type, and the revision.
    async fn state(&self, ty: &Arc<ResourceType>) -> (u64, Vec<Arc<Entry>>) {
        let listed = self.inner(ty).list(ty).await.expect("a store in memory lists");
        (listed.resource_version, listed.entries.try_collect().await.expect("a store in memory lists"))
    }

    async fn find(&self, txn: &Txn) -> Option<Arc<Entry>> {
        let (_, entries) = self.state(&txn.ty).await;
        entries.into_iter().find(|entry| informer_core::KeyedObject::key(&**entry) == txn.key)
    }

    /// Number of changes of a type.
    pub(crate) fn changed(&self, ty: &str) -> usize {
        self.changes.lock().unwrap().keys().filter(|(of, _)| of == ty).count()
    }

    /// Changes of a type after a position, up to a later one.
    fn changes(&self, ty: &str, after: u64, until: u64) -> Vec<Change> {
        let changes = self.changes.lock().unwrap();
        let until = until.max(after + 1);
        changes.range((ty.to_owned(), after + 1)..=(ty.to_owned(), until)).map(|(_, change)| change.clone()).collect()
    }

    /// The next process, which lost the last write and repeats all others.
    async fn without_last_write(&self) -> Self {
        let after = Self::new(self.fault, self.first);
        let changes = self.changes.lock().unwrap().clone();
        let mut all: Vec<_> = changes.into_iter().map(|((ty, revision), change)| (revision, ty, change)).collect();
        all.sort_by_key(|(revision, ..)| *revision);
        all.pop();
        let mut versions = BTreeMap::new();
        for (revision, id, change) in all {
            let ty = Kind::ALL.into_iter().map(Kind::ty).find(|ty| ty.id() == id).expect("a type of the rows");
            let (key, put) = match change {
                Change::Put(entry) => {
                    let draft = Draft::new(&ty.schema, &entry.object()).expect("an object");
                    (draft.key().to_owned(), Some(draft))
                }
                Change::Deleted { key, .. } => (key, None),
                Change::Progress(_) => continue,
            };
            let expect = versions.insert((id, key.clone()), revision).map_or(Expect::Absent, Expect::At);
            if put.is_none() {
                versions.retain(|(_, known), _| *known != key);
            }
            after.commit(Txn { ty, key, expect, put, cause: None }).await.expect("as before");
        }
        after
    }

    /// Writes, and records the change.
    async fn commit(&self, mut txn: Txn) -> Result<WriteResult, WriteError> {
        if self.has(Fault::IgnoresCauses) {
            txn.cause = None;
        }
        if self.has(Fault::IgnoresExpectations) {
            let found = self.find(&txn).await;
            txn.expect = found.map_or(Expect::Absent, |entry| Expect::At(entry.resource_version()));
        }
        let (ty, key, deletes) = (Arc::clone(&txn.ty), txn.key.clone(), txn.put.is_none());
        let written = self.inner(&ty).write(txn).await.map_err(|error| self.refusal(error))?;
        let resource_version = written.resource_version;
        let change = match deletes {
            true => Change::Deleted { key, resource_version },
            false if self.has(Fault::KeepsReplacedVersions) => Change::Put(Arc::clone(&written.entry)),
            false => {
                // A copy, so that the history keeps no entry of a reader alive.
                let copy = Draft::new(&ty.schema, &written.entry.object()).expect("an object");
                Change::Put(copy.commit(resource_version))
            }
        };
        self.changes.lock().unwrap().insert((ty.id().to_owned(), resource_version), change);
        if deletes && self.has(Fault::DeletionReturnsOther) {
            let draft = Draft::new(&ty.schema, &written.entry.object()).expect("an object");
            return Ok(WriteResult { entry: draft.commit(resource_version), ..written });
        }
        Ok(written)
    }

    fn refusal(&self, error: WriteError) -> WriteError {
        match error {
            WriteError::Conflict { current } if self.has(Fault::WrongConflict) => {
                WriteError::Conflict { current: current + 1 }
            }
            WriteError::Exists if self.has(Fault::WrongRefusal) => WriteError::NotFound,
            WriteError::NotFound if self.has(Fault::WrongRefusal) => WriteError::Exists,
            other @ (WriteError::Exists
            | WriteError::NotFound
            | WriteError::Conflict { .. }
            | WriteError::CauseChanged
            | WriteError::Source(_)) => other,
        }
    }

    /// A write while the store is parted from its clients.
    async fn write_parted(&self, txn: Txn) -> Result<WriteResult, WriteError> {
        let unavailable = WriteError::Source(SourceError::Unavailable("parted".to_owned()));
        let undecided = WriteError::Source(SourceError::Undecided("parted".to_owned()));
        if self.has(Fault::DeniesWritten) {
            self.commit(txn).await?;
            return Err(unavailable);
        }
        match self.writes.fetch_add(1, Ordering::Relaxed) % 3 {
            0 => Err(unavailable),
            1 => Err(undecided),
            _ => {
                self.commit(txn).await?;
                Err(undecided)
            }
        }
    }

    /// Acknowledges a write that does not happen.
    async fn pretend(&self, txn: Txn) -> Result<WriteResult, WriteError> {
        let (resource_version, found) = (self.state(&txn.ty).await.0 + 1, self.find(&txn).await);
        let entry = match txn.put {
            Some(draft) => draft.commit(resource_version),
            None => found.ok_or(WriteError::NotFound)?,
        };
        Ok(WriteResult { resource_version, entry })
    }

    /// True if a stream has many unread changes.
    fn is_stalled(&self) -> bool {
        let reads = self.reads.lock().unwrap();
        reads.values().any(|reads| reads.begun + reads.read + STALLED_AT < self.changed(&reads.ty))
    }

    /// Writes with the faults that depend on the caller.
    async fn write_for_caller(self: &Arc<Self>, txn: Txn) -> Result<WriteResult, WriteError> {
        while self.has(Fault::StalledReaderBlocksAll) && self.is_stalled() {
            sleep(STALLED_CHECK).await;
        }
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        if self.has(Fault::AcknowledgesUnwritten) && number % 6 == 5 {
            return self.pretend(txn).await;
        }
        if self.has(Fault::StuckAfterCancel) {
            self.permits.acquire().await.expect("never closed").forget();
            yield_now().await;
            let written = self.commit(txn).await;
            self.permits.add_permits(1);
            return written;
        }
        let (ty, deletes) = (Arc::clone(&txn.ty), txn.put.is_none());
        let written = self.commit(txn).await?;
        if self.has(Fault::CancelledIsHidden) || self.has(Fault::CancelledIsRepeated) {
            let entry = (!deletes).then(|| Arc::clone(&written.entry));
            let mut left = CallerLeft { store: Arc::clone(self), ty, entry, revision: written.resource_version };
            yield_now().await;
            left.revision = 0;
        }
        Ok(written)
    }

    fn question(&self, known: u64) -> u64 {
        let last = self.last_current.swap(known, Ordering::Relaxed);
        if last == 0 { known } else { last }
    }
}

/// Notices that the caller of a write left before its answer. Revision zero: it did not.
struct CallerLeft {
    store: Arc<ReferenceStore>,
    ty: Arc<ResourceType>,
    /// `None` for a deletion.
    entry: Option<Arc<Entry>>,
    revision: u64,
}

impl Drop for CallerLeft {
    fn drop(&mut self) {
        if self.revision == 0 {
            return;
        }
        if self.store.has(Fault::CancelledIsHidden) {
            self.store.cancelled.lock().unwrap().push(self.revision);
        }
        if let (true, Some(entry)) = (self.store.has(Fault::CancelledIsRepeated), self.entry.take()) {
            let draft = Draft::new(&self.ty.schema, &entry.object()).expect("an object");
            let (store, ty, expect) = (Arc::clone(&self.store), Arc::clone(&self.ty), Expect::At(self.revision));
            let txn = Txn { ty, key: draft.key().to_owned(), expect, put: Some(draft), cause: None };
            let _ = store.commit(txn).now_or_never();
        }
    }
}

/// A client of a store.
struct ReferenceClient(Arc<ReferenceStore>);

impl ReferenceClient {
    fn check_parted(&self) -> Result<(), SourceError> {
        let is_parted = *self.0.is_parted.borrow();
        if is_parted { Err(SourceError::Unavailable("parted".to_owned())) } else { Ok(()) }
    }

    async fn follow_from(
        &self,
        ty: &Arc<ResourceType>,
        from: FollowFrom,
        cache: Reader,
    ) -> Result<Updates, SourceError> {
        self.check_parted()?;
        let store = &self.0;
        let updates = store.inner(ty).follow(ty, FollowFrom::Start, cache).await?;
        let FollowFrom::After(after) = from else { return Ok(streams::checked(store, ty, updates)) };
        let newest = store.state(ty).await.0;
        let is_later = newest < after && !store.has(Fault::AcceptsUnknownPositions);
        let is_foreign = after < store.first && !store.has(Fault::AcceptsForeignPositions);
        if is_later || is_foreign {
            return Err(SourceError::Compacted { after });
        }
        let after = after - u64::from(store.has(Fault::ResumesWithRepeat));
        let skipped = usize::from(store.has(Fault::ResumesWithGap));
        let missed = store.changes(ty.id(), after, newest).into_iter().skip(skipped);
        let missed: Vec<_> = missed.map(|change| Ok(streams::update(change))).collect();
        let later = streams::after_state(updates);
        Ok(streams::checked(store, ty, stream::iter(missed).chain(later).boxed()))
    }
}

impl Source for ReferenceClient {
    fn follow(
        &self,
        ty: &Arc<ResourceType>,
        from: FollowFrom,
        cache: Reader,
    ) -> BoxFuture<'_, Result<Updates, SourceError>> {
        let ty = Arc::clone(ty);
        async move { self.follow_from(&ty, from, cache).await }.boxed()
    }

    fn current(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>> {
        let (ty, store) = (Arc::clone(ty), &self.0);
        async move {
            if store.has(Fault::CurrentWhileAway) && *store.is_parted.borrow() {
                return Ok(store.first);
            }
            self.check_parted()?;
            if store.has(Fault::CurrentOfTypeOnly) {
                return Ok(store.changes(ty.id(), 0, u64::MAX).last().map_or(store.first, Change::resource_version));
            }
            let known = store.inner(&ty).current(&ty).await?;
            Ok(if store.has(Fault::CurrentIsOld) { store.question(known) } else { known })
        }
        .boxed()
    }

    fn confirmed(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>> {
        let known = self.current(ty);
        async move {
            known.await.map(|known| if self.0.has(Fault::ConfirmedIsOld) { self.0.question(known) } else { known })
        }
        .boxed()
    }
}

impl Store for ReferenceClient {
    fn list(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<ListSnapshot, SourceError>> {
        let (ty, store) = (Arc::clone(ty), &self.0);
        async move {
            self.check_parted()?;
            let (mut resource_version, mut entries) = store.state(&ty).await;
            if store.has(Fault::ListMixesRevisions) {
                for _ in 0..YIELDS {
                    yield_now().await;
                }
                entries = store.state(&ty).await.1;
            }
            if store.has(Fault::ListIsOld) {
                let now = (resource_version, entries.clone());
                let last = store.last_list.lock().unwrap().insert(ty.id().to_owned(), now.clone());
                (resource_version, entries) = last.unwrap_or(now);
            }
            Ok(ListSnapshot { resource_version, entries: stream::iter(entries.into_iter().map(Ok)).boxed() })
        }
        .boxed()
    }

    fn write(&self, txn: Txn) -> BoxFuture<'_, Result<WriteResult, WriteError>> {
        let store = Arc::clone(&self.0);
        async move {
            if self.check_parted().is_err() { store.write_parted(txn).await } else { store.write_for_caller(txn).await }
        }
        .boxed()
    }
}

/// First revision.
const FIRST: u64 = 1_000;

/// Writes at the same time, if those are counted.
const PERMITS: usize = 8;

/// Unread changes of a stalled reader, and the pause between two looks at them.
const STALLED_AT: usize = 200;
const STALLED_CHECK: Duration = Duration::from_millis(10);

/// Turns of other tasks between the two halves of a list.
const YIELDS: usize = 20;
