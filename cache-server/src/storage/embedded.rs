//! The embedded store: everything in memory, the cache's own entries, one revision for all types.
//!
//! INVARIANT: under the one commit lock a revision is assigned and put into its type's queues, so every queue is in
//! commit order. INVARIANT: nothing waits under that lock: room in the queues is reserved before it is taken.
//! INVARIANT: a write whose future is dropped either never happened or is in the queues. INVARIANT: all objects of a type
//! are entries of one schema, the one it was listed with last.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::{SystemTime, UNIX_EPOCH},
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use informer_core::Objects;
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, OwnedPermit, Receiver, Sender};
use watch_cache::{Draft, Entry, Schema};

use super::{Change, Changes, Expect, Listed, Storage, StorageError, Txn, WriteError, Written};
use crate::registry::ResourceType;

/// The embedded store.
#[derive(Debug)]
pub struct Embedded {
    store: Arc<Mutex<Store>>,
}

#[derive(Debug)]
struct Store {
    /// Of the newest write.
    revision: u64,
    types: HashMap<String, Kept>,
}

/// What is kept of one type.
#[derive(Debug, Default)]
struct Kept {
    objects: Objects<Entry>,
    /// That of `objects`; `None` before the first one.
    schema: Option<Arc<Schema>>,
    queues: Vec<Queue>,
    /// Changes whenever `queues` gains or loses one.
    version: u64,
    next: u64,
}

/// Changes on their way to one reader.
#[derive(Debug)]
struct Queue {
    number: u64,
    /// The revision that was listed. Everything after it is put in.
    from: u64,
    /// Everything at or below has been put in, or was listed.
    told: u64,
    sender: Sender<Change>,
    /// Until `watch` comes for it. A queue that nobody reads never makes a write wait: when full, it goes.
    unclaimed: Option<Receiver<Change>>,
}

/// Room in every queue that a write has to go to, as of one version of the list of queues.
struct Room {
    version: u64,
    permits: Vec<(u64, OwnedPermit<Change>)>,
}

impl Embedded {
    /// An empty store at `first_revision`; its first write gets the one after. `None` is unix seconds times 2^20, so
    /// that revisions of an earlier store are never used again while it takes less than a million writes a second.
    #[must_use]
    pub fn new(first_revision: Option<u64>) -> Self {
        let revision = first_revision.unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            since.as_secs() << REVISION_BITS
        });
        // Revision zero is a request mode, not a position.
        Self { store: Arc::new(Mutex::new(Store { revision: revision.max(1), types: HashMap::new() })) }
    }

    /// Waits until every claimed queue of `ty` has room for one change. Cancel safe: dropping it gives the room back.
    async fn reserve(&self, ty: &str) -> Room {
        let (version, senders) = {
            let store = &mut *self.store.lock();
            let Some(kept) = store.types.get_mut(ty) else { return Room { version: 0, permits: Vec::new() } };
            (kept.version, kept.claimed())
        };
        let mut permits = Vec::with_capacity(senders.len());
        for (number, sender) in senders {
            // A reader that went away leaves its queue behind; nobody else notices.
            if let Ok(permit) = sender.reserve_owned().await {
                permits.push((number, permit));
            } else {
                self.store.lock().types.entry(ty.to_owned()).or_default().forget(number);
            }
        }
        Room { version, permits }
    }

    fn commit(&self, txn: &mut Txn, room: Room) -> Result<Result<Written, WriteError>, Retry> {
        let store = &mut *self.store.lock();
        let kept = store.types.entry(txn.ty.id().to_owned()).or_default();
        if kept.version != room.version {
            return Err(Retry);
        }
        if let Err(error) = kept.check(&txn.key, txn.expect) {
            return Ok(Err(error));
        }
        store.revision += 1;
        let resource_version = store.revision;
        let (change, written) = match txn.put.take() {
            Some(draft) => {
                let entry = match txn.expect {
                    Expect::Absent => draft.commit(resource_version),
                    Expect::At(_) => draft.commit_update(resource_version),
                };
                let entry = kept.cast(entry, &txn.ty.schema);
                kept.objects.insert(Arc::clone(&entry));
                (Change::Put(Arc::clone(&entry)), Some(entry))
            }
            None => (Change::Deleted { key: txn.key.clone(), resource_version }, kept.objects.remove(&txn.key)),
        };
        let Some(entry) = written else { return Ok(Err(WriteError::NotFound)) };
        kept.tell(&change, resource_version, room.permits);
        Ok(Ok(Written { resource_version, entry }))
    }

    /// Opens a queue with the state, so that what is written before `watch` comes for it is not missed.
    fn open(&self, ty: &ResourceType) -> (u64, Objects<Entry>) {
        let store = &mut *self.store.lock();
        let kept = store.types.entry(ty.id().to_owned()).or_default();
        kept.adopt(&ty.schema);
        if UNCLAIMED_MAX <= kept.queues.iter().filter(|queue| queue.unclaimed.is_some()).count() {
            kept.forget_unclaimed();
        }
        let (sender, receiver) = mpsc::channel(CHANGES_QUEUED);
        let from = store.revision;
        kept.next += 1;
        kept.version += 1;
        kept.queues.push(Queue { number: kept.next, from, told: from, sender, unclaimed: Some(receiver) });
        (from, kept.objects.clone())
    }

    /// Hands out the queue that was opened by the listing at `after`.
    fn claim(&self, ty: &str, after: u64) -> Result<Claimed, StorageError> {
        let store = &mut *self.store.lock();
        let kept = store.types.entry(ty.to_owned()).or_default();
        kept.version += 1;
        let mut opened = kept.queues.iter_mut().filter(|queue| queue.from == after);
        let found = opened.find_map(|queue| Some((queue.number, queue.unclaimed.take()?)));
        let (number, receiver) = found.ok_or(StorageError::Compacted { after })?;
        Ok(Claimed { receiver, number, ty: ty.to_owned(), store: Arc::downgrade(&self.store) })
    }

    /// The revision now, when every reader of the type was told of it.
    fn told(&self, ty: &str) -> Result<u64, u64> {
        let store = &*self.store.lock();
        // One that nobody claimed yet counts as well: its reader is about to, and would otherwise wait for ever.
        let behind = |queue: &Queue| queue.told < store.revision;
        let all = store.types.get(ty).is_none_or(|kept| !kept.queues.iter().any(behind));
        if all { Ok(store.revision) } else { Err(store.revision) }
    }

    fn tell_progress(&self, ty: &str, room: Room) -> Result<u64, Retry> {
        let store = &mut *self.store.lock();
        let kept = store.types.entry(ty.to_owned()).or_default();
        if kept.version != room.version {
            return Err(Retry);
        }
        kept.tell(&Change::Progress(store.revision), store.revision, room.permits);
        Ok(store.revision)
    }
}

/// The queues changed while room was reserved.
struct Retry;

/// A queue and its reader. When the reader goes, so does the queue.
struct Claimed {
    receiver: Receiver<Change>,
    number: u64,
    ty: String,
    store: Weak<Mutex<Store>>,
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let Some(store) = self.store.upgrade() else { return };
        if let Some(kept) = store.lock().types.get_mut(&self.ty) {
            kept.forget(self.number);
        }
    }
}

impl Kept {
    fn check(&self, key: &str, expect: Expect) -> Result<(), WriteError> {
        match (expect, self.objects.get(key)) {
            (Expect::Absent, None) => Ok(()),
            (Expect::Absent, Some(_)) => Err(WriteError::Exists),
            (Expect::At(_), None) => Err(WriteError::NotFound),
            (Expect::At(wanted), Some(entry)) if entry.resource_version() == wanted => Ok(()),
            (Expect::At(_), Some(entry)) => Err(WriteError::Conflict { current: entry.resource_version() }),
        }
    }

    /// Makes all objects entries of `schema`. Cost: nothing unless the definition of the type changed; then every
    /// object is read again.
    fn adopt(&mut self, schema: &Arc<Schema>) {
        if self.schema.as_ref().is_some_and(|known| is_same(known, schema)) {
            return;
        }
        if self.schema.replace(Arc::clone(schema)).is_some() {
            self.objects = self.objects.iter().map(|entry| recast(entry, schema)).collect();
        }
    }

    /// `entry`, which was made with `schema`, as all the others are.
    fn cast(&mut self, entry: Arc<Entry>, schema: &Arc<Schema>) -> Arc<Entry> {
        let known = self.schema.get_or_insert_with(|| Arc::clone(schema));
        if is_same(known, schema) { entry } else { recast(&entry, known) }
    }

    fn claimed(&self) -> Vec<(u64, Sender<Change>)> {
        let claimed = self.queues.iter().filter(|queue| queue.unclaimed.is_none());
        claimed.map(|queue| (queue.number, queue.sender.clone())).collect()
    }

    /// Puts `change` into every queue. Nothing here waits.
    fn tell(&mut self, change: &Change, revision: u64, mut permits: Vec<(u64, OwnedPermit<Change>)>) {
        let mut overrun = false;
        for queue in &mut self.queues {
            queue.told = revision;
            if queue.unclaimed.is_some() {
                overrun |= queue.sender.try_send(change.clone()).is_err();
            } else if let Some(at) = permits.iter().position(|(number, _)| *number == queue.number) {
                permits.swap_remove(at).1.send(change.clone());
            }
        }
        if overrun {
            self.forget_unclaimed();
        }
    }

    fn forget(&mut self, number: u64) {
        self.queues.retain(|queue| queue.number != number);
        self.version += 1;
    }

    fn forget_unclaimed(&mut self) {
        let before = self.queues.len();
        self.queues.retain(|queue| queue.unclaimed.is_none());
        self.version += u64::from(self.queues.len() != before);
    }
}

fn is_same(one: &Arc<Schema>, other: &Arc<Schema>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

fn recast(entry: &Arc<Entry>, schema: &Schema) -> Arc<Entry> {
    let draft = Draft::new(schema, &entry.object());
    draft.map_or_else(|_| Arc::clone(entry), |draft| draft.commit(entry.resource_version()))
}

impl Storage for Embedded {
    fn list(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<Listed, StorageError>> {
        let (resource_version, objects) = self.open(ty);
        // Walks the frozen state in parts, so that no iterator has to borrow from it.
        let parts = stream::unfold((objects, None::<Arc<Entry>>), |(objects, last)| async move {
            let after = last.as_ref().map(|entry| informer_core::Keyed::key(&**entry));
            let part: Vec<_> = objects.after(after).take(LISTED_AT_ONCE).map(|entry| Ok(Arc::clone(entry))).collect();
            let last = part.last().and_then(|entry: &Result<_, StorageError>| entry.as_ref().ok().cloned())?;
            Some((stream::iter(part), (objects, Some(last))))
        });
        std::future::ready(Ok(Listed { resource_version, entries: parts.flatten().boxed() })).boxed()
    }

    fn watch(&self, ty: &Arc<ResourceType>, after: u64) -> BoxFuture<'_, Result<Changes, StorageError>> {
        let claimed = self.claim(ty.id(), after).map(|claimed| {
            let changes = stream::unfold(claimed, |mut claimed| async {
                let change = claimed.receiver.recv().await?;
                Some((Ok(change), claimed))
            });
            changes.boxed()
        });
        std::future::ready(claimed).boxed()
    }

    fn write(&self, mut txn: Txn) -> BoxFuture<'_, Result<Written, WriteError>> {
        async move {
            loop {
                let room = self.reserve(txn.ty.id()).await;
                // From here to the return there is no await: committed is told and answered in one go.
                if let Ok(outcome) = self.commit(&mut txn, room) {
                    return outcome;
                }
            }
        }
        .boxed()
    }

    fn progress(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, StorageError>> {
        let id = ty.id().to_owned();
        async move {
            loop {
                if let Ok(revision) = self.told(&id) {
                    return Ok(revision);
                }
                let room = self.reserve(&id).await;
                if let Ok(revision) = self.tell_progress(&id, room) {
                    return Ok(revision);
                }
            }
        }
        .boxed()
    }
}

/// Seconds are shifted by this many bits: room for a million writes each.
const REVISION_BITS: u32 = 20;

/// Changes on their way to one cacher. Memory: one reference each. When full, writes to the type wait.
const CHANGES_QUEUED: usize = 1_024;

/// Listings of one type that may still turn into a watch. Memory: one queue each.
const UNCLAIMED_MAX: usize = 4;

/// Entries handed out at once while listing.
const LISTED_AT_ONCE: usize = 512;

#[cfg(test)]
mod tests;
