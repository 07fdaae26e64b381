//! The embedded store: all objects in memory, as the entries that the caches share, with one revision for all types.
//!
//! INVARIANT: a write gets its revision and enters its type's queues under the one commit lock, so every queue is in
//! commit order. INVARIANT: no code waits under that lock: capacity in the queues is reserved before it is taken.
//! INVARIANT: a write whose future is dropped either did not happen or is in the queues. INVARIANT: whenever a reader
//! begins to follow a type, all its objects are entries of one schema, the newest one it was followed with. INVARIANT:
//! a type without objects and readers uses no memory.

mod recast;
mod type_store;

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures::{FutureExt, Stream, StreamExt, future::BoxFuture, stream};
use informer_core::Objects;
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, Receiver};
use watch_cache::{Change, Entry, Reader};

pub(super) use self::type_store::{CheckedWrite, QueuePermits, RecoveredHistory};
use self::{
    recast::SchemaVersion,
    type_store::{Queue, TypeStore},
};
use super::{
    FollowFrom, ListAndWatch, ListSnapshot, Source, SourceError, Store, StoreFork, Txn, Update, Updates, WriteError,
    WriteResult,
};
use crate::registry::ResourceType;

/// The embedded store.
#[derive(Debug)]
pub struct EmbeddedStorage {
    store: Arc<Mutex<StoreState>>,
    /// See [`Source::history`].
    history: u64,
}

#[derive(Debug)]
struct StoreState {
    /// Revision of the newest write.
    revision: u64,
    types: HashMap<String, TypeStore>,
    /// Last number given to a queue or used as [`TypeStore::version`]. Never reused, even if a type is removed and
    /// added again.
    numbers: u64,
}

/// Returns the first revision of a store that starts `since` the Unix epoch.
///
/// Milliseconds times 2^20, plus 19 random bits. Two stores that start in different milliseconds are at least 2^19
/// revisions apart, so the older one would have to write 500 objects per microsecond to reach the newer one. The
/// random bits separate stores that start at the same clock time after the clock was set back. Below 2^62 until the
/// year 2109.
fn first_revision(since: Duration) -> u64 {
    let milliseconds = u64::try_from(since.as_millis()).unwrap_or(u64::MAX).min(MILLISECONDS_MAX);
    milliseconds << REVISION_BITS | fastrand::u64(..1 << RANDOM_BITS)
}

/// Returns the first revision of a store that starts now.
pub(super) fn revision_now() -> u64 {
    first_revision(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

impl EmbeddedStorage {
    /// Creates an empty store at `first_revision`; its first write gets the next one. `None` derives it from the clock
    /// and random bits, so that positions of an earlier store are not valid in this one.
    #[must_use]
    pub fn new(first_revision: Option<u64>) -> Self {
        let revision = first_revision.unwrap_or_else(revision_now);
        // Revision zero is a request mode, not a position.
        let store = StoreState { revision: revision.max(1), types: HashMap::new(), numbers: 0 };
        Self { store: Arc::new(Mutex::new(store)), history: fastrand::u64(..) }
    }

    /// Waits until every queue of `ty` has capacity for one change. Cancel safe: dropping it releases the capacity.
    pub(super) async fn reserve(&self, ty: &str) -> QueuePermits {
        let (version, senders) = {
            let store = &*self.store.lock();
            let Some(type_store) = store.types.get(ty) else { return QueuePermits { version: 0, permits: Vec::new() } };
            let senders: Vec<_> = type_store.queues.iter().map(|queue| (queue.number, queue.sender.clone())).collect();
            (type_store.version, senders)
        };
        let mut permits = Vec::with_capacity(senders.len());
        for (number, sender) in senders {
            // The reader was dropped: remove its queue here, because no one else would.
            if let Ok(permit) = sender.reserve_owned().await {
                permits.push((number, permit));
            } else {
                self.store.lock().close(ty, number);
            }
        }
        QueuePermits { version, permits }
    }

    fn commit(&self, txn: &mut Txn, room: QueuePermits) -> Result<Result<WriteResult, WriteError>, Retry> {
        let StoreState { revision, types, .. } = &mut *self.store.lock();
        if let Some(cause) = &txn.cause {
            let found = types.get(cause.ty.id()).and_then(|type_store| type_store.objects.get(&cause.key));
            if let Err(error) = cause.check(found) {
                return Ok(Err(error));
            }
        }
        // Not the entry API alone: it needs an owned id.
        if !types.contains_key(txn.ty.id()) {
            types.insert(txn.ty.id().to_owned(), TypeStore::default());
        }
        let type_store = types.get_mut(txn.ty.id()).expect("inserted above");
        let outcome =
            // The list of queues is checked under the lock: a queue that was opened meanwhile has no reserved
            // capacity.
            if type_store.version == room.version { Ok(type_store.commit(revision, txn, room.permits)) } else { Err(Retry) };
        // A refused write or a deletion may leave the type empty.
        if type_store.is_unused() {
            types.remove(txn.ty.id());
        }
        outcome
    }

    /// Returns the current version of an object.
    pub(super) fn get(&self, ty: &str, key: &str) -> Option<Arc<Entry>> {
        self.store.lock().types.get(ty)?.objects.get(key).cloned()
    }

    /// Returns the revision of the newest write.
    pub(super) fn revision(&self) -> u64 {
        self.store.lock().revision
    }

    /// Advances the revision: no write was at a position in between.
    pub(super) fn advance(&self, revision: u64) {
        self.store.lock().revision = revision;
    }

    /// Makes a write that was checked against [`get`](Self::get), which no other write has changed since. Never waits: a
    /// queue that was opened after `room` was reserved and is full already is closed, and its reader begins anew.
    pub(super) fn apply(&self, write: CheckedWrite, ty: &ResourceType, room: QueuePermits) -> WriteResult {
        let StoreState { revision, types, .. } = &mut *self.store.lock();
        let type_store = types.entry(ty.id().to_owned()).or_default();
        *revision = write.resource_version;
        let written = type_store.apply(write, ty, room.permits);
        if type_store.is_unused() {
            types.remove(ty.id());
        }
        written
    }

    /// Gives a type that has no objects yet those of an earlier process, as entries of the schema of `ty`.
    pub(super) fn fill(&self, ty: &ResourceType, objects: Objects<Entry>, history: RecoveredHistory) {
        let type_store = TypeStore::recovered(ty, objects, history);
        self.store.lock().types.insert(ty.id().to_owned(), type_store);
    }

    /// Notes that a type without objects has had no changes since `from`, unless it has objects or readers by now.
    pub(super) fn fill_new(&self, ty: &ResourceType, from: u64) {
        let history =
            RecoveredHistory { objects: Objects::new(), from, changes: Vec::new(), schema: Arc::clone(&ty.schema) };
        let types = &mut self.store.lock().types;
        types.entry(ty.id().to_owned()).or_insert_with(|| TypeStore::recovered(ty, Objects::new(), history));
    }

    /// True if a type has objects or readers.
    pub(super) fn has(&self, ty: &str) -> bool {
        self.store.lock().types.contains_key(ty)
    }

    /// Lists all objects of one type as entries of its schema, and streams every change after them. The first listing
    /// after a start is that of the oldest position of the recovered history, if there is one.
    pub async fn list_and_watch(&self, ty: &ResourceType) -> Result<ListAndWatch, SourceError> {
        Ok(self.open(ty).await?.into_list_and_watch())
    }

    /// Like [`list_and_watch`](Self::list_and_watch), as updates. A state without a history is one update, whose map the
    /// store and the cache share.
    async fn updates(&self, ty: &ResourceType) -> Result<Updates, SourceError> {
        let opened = self.open(ty).await?;
        if opened.history.is_some() {
            return Ok(opened.into_list_and_watch().into_updates());
        }
        let OpenedType { revision, objects, subscribed, .. } = opened;
        let state = stream::iter([Ok(Update::State { objects, revision })]);
        Ok(state.chain(subscribed.changes().map(|change| Ok(change.into()))).boxed())
    }

    /// Opens a queue together with the state, so that no change after the state is missed.
    async fn open(&self, ty: &ResourceType) -> Result<OpenedType, SourceError> {
        loop {
            let objects = match self.try_open(ty) {
                Ok(opened) => return Ok(opened),
                Err(objects) => objects,
            };
            let (store, id, into) = (Arc::clone(&self.store), ty.id().to_owned(), SchemaVersion::of(ty));
            // Parsing 100,000 objects again takes a second: do it neither under the lock nor on a runtime worker.
            let read = tokio::task::spawn_blocking(move || recast::all(&store, &id, &objects, &into));
            let failed = |_| SourceError::Unavailable("objects could not be read with a new schema".to_owned());
            read.await.map_err(failed)?;
        }
    }

    /// Opens a queue if all objects are entries of the schema of `ty`; otherwise returns the objects.
    fn try_open(&self, ty: &ResourceType) -> Result<OpenedType, Objects<Entry>> {
        let store = &mut *self.store.lock();
        let type_store = store.types.entry(ty.id().to_owned()).or_default();
        type_store.adopt(ty)?;
        store.numbers += 1;
        let (number, revision) = (store.numbers, store.revision);
        let (sender, receiver) = mpsc::channel(CHANGES_QUEUED);
        type_store.version = number;
        type_store.queues.push(Queue { number, reported: revision, sender });
        // A weak reference: a dropped store must not be kept alive by its readers.
        let store = Arc::downgrade(&self.store);
        let subscribed = QueueReceiver { receiver, number, ty: ty.id().to_owned(), store };
        let history = type_store.take_history(ty);
        Ok(OpenedType { revision, objects: type_store.objects.clone(), history, subscribed })
    }

    /// Returns the revision: `Ok` if every reader of the type was sent it, otherwise `Err`.
    fn reported(&self, ty: &str) -> Result<u64, u64> {
        let store = &*self.store.lock();
        let behind = |queue: &Queue| queue.reported < store.revision;
        let all = store.types.get(ty).is_none_or(|type_store| !type_store.queues.iter().any(behind));
        if all { Ok(store.revision) } else { Err(store.revision) }
    }

    fn tell_progress(&self, ty: &str, room: QueuePermits) -> Result<u64, Retry> {
        let store = &mut *self.store.lock();
        if let Some(type_store) = store.types.get_mut(ty) {
            if type_store.version != room.version {
                return Err(Retry);
            }
            type_store.tell(&Change::Progress(store.revision), store.revision, room.permits);
        }
        Ok(store.revision)
    }
}

impl StoreState {
    /// Removes the queue of a dropped reader.
    fn close(&mut self, ty: &str, number: u64) {
        let Some(type_store) = self.types.get_mut(ty) else { return };
        type_store.queues.retain(|queue| queue.number != number);
        self.numbers += 1;
        type_store.version = self.numbers;
        if type_store.is_unused() {
            self.types.remove(ty);
        }
    }
}

/// A state, and the queue of the changes after it.
struct OpenedType {
    revision: u64,
    objects: Objects<Entry>,
    /// How the type got there, if that was recovered and no reader has taken it yet.
    history: Option<RecoveredHistory>,
    subscribed: QueueReceiver,
}

impl OpenedType {
    /// A listing and the changes after it.
    fn into_list_and_watch(self) -> ListAndWatch {
        let Self { revision, objects, history, subscribed } = self;
        let changes = subscribed.changes().map(Ok);
        let Some(history) = history else {
            return ListAndWatch { listed: listed(revision, objects), changes: changes.boxed() };
        };
        let before = history.changes.into_iter().chain([Change::Progress(revision)]);
        let changes = stream::iter(before.map(Ok)).chain(changes);
        ListAndWatch { listed: listed(history.from, history.objects), changes: changes.boxed() }
    }
}

/// The queues changed while capacity was being reserved.
struct Retry;

/// The receiving end of a queue. Dropping it removes the queue.
struct QueueReceiver {
    receiver: Receiver<Change>,
    number: u64,
    ty: String,
    store: Weak<Mutex<StoreState>>,
}

impl QueueReceiver {
    /// The changes, until the store closes the queue.
    fn changes(self) -> impl Stream<Item = Change> + Send + 'static {
        stream::unfold(self, |mut subscribed| async {
            let change = subscribed.receiver.recv().await?;
            Some((change, subscribed))
        })
    }
}

impl Drop for QueueReceiver {
    fn drop(&mut self) {
        if let Some(store) = self.store.upgrade() {
            store.lock().close(&self.ty, self.number);
        }
    }
}

/// Streams a state in parts, so that no iterator borrows from it.
fn listed(resource_version: u64, objects: Objects<Entry>) -> ListSnapshot {
    let parts = stream::unfold((objects, None::<Arc<Entry>>), |(objects, last)| async move {
        let after = last.as_ref().map(|entry| informer_core::KeyedObject::key(&**entry));
        let part: Vec<_> = objects.after(after).take(LISTED_AT_ONCE).map(|entry| Ok(Arc::clone(entry))).collect();
        let last = part.last().and_then(|entry: &Result<_, SourceError>| entry.as_ref().ok().cloned())?;
        Some((stream::iter(part), (objects, Some(last))))
    });
    ListSnapshot { resource_version, entries: parts.flatten().boxed() }
}

impl Source for EmbeddedStorage {
    /// Keeps no history: a position is never known again.
    fn follow(
        &self,
        ty: &Arc<ResourceType>,
        from: FollowFrom,
        _: Reader,
    ) -> BoxFuture<'_, Result<Updates, SourceError>> {
        if let FollowFrom::After(after) = from {
            return std::future::ready(Err(SourceError::Compacted { after })).boxed();
        }
        let ty = Arc::clone(ty);
        async move { self.updates(&ty).await }.boxed()
    }

    fn current(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>> {
        let ty = Arc::clone(ty);
        async move {
            loop {
                if let Ok(revision) = self.reported(ty.id()) {
                    return Ok(revision);
                }
                let room = self.reserve(ty.id()).await;
                if let Ok(revision) = self.tell_progress(ty.id(), room) {
                    return Ok(revision);
                }
            }
        }
        .boxed()
    }

    fn newest(&self) -> Option<u64> {
        Some(self.revision())
    }

    fn history(&self) -> Option<u64> {
        Some(self.history)
    }
}

impl Store for EmbeddedStorage {
    fn list(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<ListSnapshot, SourceError>> {
        let (revision, objects) = {
            let store = &*self.store.lock();
            (store.revision, store.types.get(ty.id()).map(|type_store| type_store.objects.clone()).unwrap_or_default())
        };
        std::future::ready(Ok(listed(revision, objects))).boxed()
    }

    fn write(&self, mut txn: Txn) -> BoxFuture<'_, Result<WriteResult, WriteError>> {
        async move {
            loop {
                let room = self.reserve(txn.ty.id()).await;
                // No await from here to the return: a committed write is queued and returned in one poll.
                if let Ok(outcome) = self.commit(&mut txn, room) {
                    return outcome;
                }
            }
        }
        .boxed()
    }

    fn fork(&self) -> Option<StoreFork> {
        let (state, revision, objects) = {
            let StoreState { revision, types, numbers } = &*self.store.lock();
            let objects = types.iter().map(|(id, type_store)| (id.clone(), type_store.objects.clone())).collect();
            let types = types.iter().map(|(id, type_store)| (id.clone(), type_store.fork()));
            (StoreState { revision: *revision, types: types.collect(), numbers: *numbers }, *revision, objects)
        };
        // Another history: positions of the two mean different states from now on.
        let store = Arc::new(Self { store: Arc::new(Mutex::new(state)), history: fastrand::u64(..) });
        Some(StoreFork { store, revision, objects })
    }
}

/// Shift of the milliseconds: the bits for revisions written within one millisecond.
const REVISION_BITS: u32 = 20;

/// Random bits of a first revision: half of the revisions of a millisecond.
const RANDOM_BITS: u32 = 19;

/// Latest start, in Unix milliseconds, whose revisions are positive as signed 64-bit numbers.
const MILLISECONDS_MAX: u64 = (1 << (63 - REVISION_BITS)) - 1;

/// Changes queued for one reader. Memory: one reference each. Writes to the type wait while a queue is full.
const CHANGES_QUEUED: usize = 1_024;

/// Entries per part of a listing.
const LISTED_AT_ONCE: usize = 512;

#[cfg(test)]
mod tests;
