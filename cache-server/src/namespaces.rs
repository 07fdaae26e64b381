//! Ends the namespaces that are deleted: everything in them goes first, and nothing new is created in them.
//!
//! INVARIANT: level-triggered. Each pass looks at the namespaces as they are and does what is left to do, whoever marked
//! them. INVARIANT: nothing is looked at, and no task runs, before the first namespace is deleted; and no cache is started
//! for types that have no objects. INVARIANT: a pass costs the namespaces that changed, and the objects that were not told
//! to go before in those that end.
//!
//! What is in a namespace needs no namespace here, so an object that was being created while its namespace ended may
//! outlive it. In Kubernetes it would keep the namespace.
//!
//! Source: `pkg/controller/namespace/deletion` of kubernetes/kubernetes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    mem,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use futures::{
    FutureExt as _, TryStreamExt as _,
    future::{join_all, select_all},
};
use informer_core::{
    Keyed as _, Objects,
    objects::Difference,
    wire::{json, status::Status},
};
use parking_lot::RwLock;
use serde::de::IgnoredAny;
use tokio::{
    sync::watch,
    task::yield_now,
    time::{sleep, timeout},
};
use watch_cache::{Closed, Entry, Reader, Snapshot};

use crate::{
    cacher::{Caches, NotReady, Unfresh},
    http::delete_listed,
    limits::FRESH_WAIT,
    registry::{Live, ResourceType},
    storage::{Expect, Storage, StorageError, Txn, WriteError},
};

/// Between two passes when something fails, or when objects change in a namespace that others hold.
const PAUSE: Duration = Duration::from_millis(200);

/// Changed namespaces that are read before others run.
const READ_AT_ONCE: usize = 16;

/// The task that ends namespaces, and who waits for it.
pub(crate) struct Namespaces {
    storage: Arc<dyn Storage>,
    caches: Weak<Caches>,
    registry: Arc<Live>,
    started: OnceLock<()>,
    known: Arc<Known>,
}

/// What a pass came to know.
#[derive(Default)]
struct Known {
    /// The namespaces that end.
    ending: RwLock<BTreeSet<String>>,
    /// The position up to which there is nothing left to do but to wait for who holds objects.
    settled: watch::Sender<u64>,
}

impl Namespaces {
    /// Starts nothing yet.
    pub(crate) fn new(storage: Arc<dyn Storage>, caches: &Arc<Caches>, registry: Arc<Live>) -> Self {
        let (caches, started, known) = (Arc::downgrade(caches), OnceLock::new(), Arc::default());
        Self { storage, caches, registry, started, known }
    }

    /// Whether a namespace ends: nothing is created in it. Cost: one lock.
    pub(crate) fn is_ending(&self, namespace: &str) -> bool {
        self.known.ending.read().contains(namespace)
    }

    /// Waits until the namespaces that are marked now are gone, or only wait for who holds objects in them; at most
    /// 3 s. Starts the task on first use, which needs a tokio runtime.
    pub(crate) async fn settle(&self) {
        let (Some(caches), Some(ty)) = (self.caches.upgrade(), namespaces(&self.registry)) else { return };
        self.started.get_or_init(|| {
            let ender = Ender {
                storage: Arc::clone(&self.storage),
                caches: Weak::clone(&self.caches),
                registry: Arc::clone(&self.registry),
                known: Arc::clone(&self.known),
                ty: Arc::clone(&ty),
                seen: Objects::new(),
                ending: BTreeMap::new(),
            };
            tokio::spawn(ender.run());
        });
        let settled = async {
            if let Ok(reader) = caches.fresh(&ty).await {
                let (mut settled, position) = (self.known.settled.subscribe(), reader.applied());
                // The sender is ours, so there is no error.
                let _ = settled.wait_for(|&settled| position <= settled).await;
            }
        };
        if timeout(FRESH_WAIT, settled).await.is_err() {
            tracing::debug!("a namespace is not empty yet");
        }
    }
}

fn namespaces(registry: &Live) -> Option<Arc<ResourceType>> {
    registry.now().iter().find(|ty| ty.holds_objects).cloned()
}

struct Ender {
    storage: Arc<dyn Storage>,
    /// Not kept alive by this task: it ends with them.
    caches: Weak<Caches>,
    registry: Arc<Live>,
    known: Arc<Known>,
    /// That of namespaces.
    ty: Arc<ResourceType>,
    /// The namespaces that were taken in last.
    seen: Objects<Entry>,
    /// Those that end, by name.
    ending: BTreeMap<String, Ending>,
}

/// A namespace that ends.
struct Ending {
    entry: Arc<Entry>,
    /// True if it has finalizers of its own.
    is_held: bool,
    /// By type: the position up to which every object in it was told to go. What is left of those is held.
    told: HashMap<String, u64>,
}

/// What a pass came to.
enum Pass {
    /// Namespaces are as they must be. These caches, as of a position, have objects that keep some from going.
    Settled(Vec<(Reader, u64)>),
    /// A namespace went at this position: look again once it shows.
    Wrote(u64),
}

/// A pass cannot go on.
#[derive(Debug, thiserror::Error)]
enum Stuck {
    #[error(transparent)]
    Unfresh(#[from] Unfresh),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("{}", .0.message)]
    Refused(Box<Status>),
    #[error("nobody knows which {resource} there are: {error}")]
    Unknown { resource: String, error: Unfresh },
}

impl Ender {
    async fn run(mut self) {
        loop {
            let reader = match self.caches.upgrade() {
                None => return,
                Some(caches) => caches.reader(&self.ty).await,
            };
            match reader {
                Err(NotReady { stopped: true, .. }) => return,
                Err(_) => {}
                // A cache that was closed is started again.
                Ok(reader) => drop(self.follow(&reader).await),
            }
            sleep(PAUSE).await;
        }
    }

    /// Follows one cache until it is closed.
    async fn follow(&mut self, reader: &Reader) -> Result<(), Closed> {
        loop {
            let Some(caches) = self.caches.upgrade() else { return Ok(()) };
            let snapshot = reader.snapshot();
            let outcome = self.pass(&caches, &snapshot).await;
            drop(caches);
            match outcome {
                Ok(Pass::Wrote(at)) => reader.reached(at).await?,
                Ok(Pass::Settled(blocking)) => {
                    self.known.settled.send_replace(snapshot.resource_version);
                    let next = reader.reached(snapshot.resource_version + 1);
                    if blocking.is_empty() {
                        next.await?;
                        continue;
                    }
                    // One that is closed is looked at again, too.
                    let changes = blocking.iter().map(|(reader, at)| reader.reached(at + 1).map(drop).boxed());
                    let changed = async {
                        select_all(changes).await;
                        sleep(PAUSE).await;
                    };
                    tokio::select! {
                        reached = next => reached?,
                        () = changed => {}
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "namespaces that are deleted stay for now");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    async fn pass(&mut self, caches: &Caches, snapshot: &Snapshot) -> Result<Pass, Stuck> {
        self.take_in(snapshot).await;
        let (mut wrote, mut blocking, mut stuck) = (None, Vec::new(), None);
        let (readers, unknown) = self.readers(caches).await;
        for (name, ending) in &mut self.ending {
            let held = match ending.clear(caches, &*self.storage, name, &readers).await {
                Ok(held) => held,
                Err(error) => {
                    stuck = stuck.or(Some(error));
                    continue;
                }
            };
            if held.is_empty() && !ending.is_held && unknown.is_none() {
                match remove(&*self.storage, &self.ty, &ending.entry).await {
                    Ok(at) => wrote = Some(at),
                    Err(error) => stuck = stuck.or(Some(error)),
                }
            }
            blocking.extend(held);
        }
        match (stuck.or(unknown), wrote) {
            (Some(error), _) => Err(error),
            (None, Some(at)) => Ok(Pass::Wrote(at)),
            (None, None) => Ok(Pass::Settled(blocking)),
        }
    }

    /// Reads the namespaces that changed since the last pass.
    async fn take_in(&mut self, snapshot: &Snapshot) {
        let seen = mem::replace(&mut self.seen, snapshot.objects.clone());
        for (place, difference) in seen.diff(&snapshot.objects).enumerate() {
            match difference {
                Difference::Added(entry) | Difference::Updated { new: entry, .. } => self.learn(entry),
                Difference::Removed(entry) => self.forget(entry.name()),
            }
            if place % READ_AT_ONCE == READ_AT_ONCE - 1 {
                yield_now().await;
            }
        }
    }

    fn learn(&mut self, entry: &Arc<Entry>) {
        let Some(Mark { is_held }) = Mark::of(entry) else { return self.forget(entry.name()) };
        let told = self.ending.remove(entry.name()).map(|before| before.told).unwrap_or_default();
        self.ending.insert(entry.name().to_owned(), Ending { entry: Arc::clone(entry), is_held, told });
        self.known.ending.write().insert(entry.name().to_owned());
    }

    fn forget(&mut self, name: &str) {
        if self.ending.remove(name).is_some() {
            self.known.ending.write().remove(name);
        }
    }

    /// The caches of all types that may have objects in namespaces that end, and why others are not known. They are asked
    /// together: one that is late makes nobody wait for longer.
    async fn readers(&self, caches: &Caches) -> (Vec<(Arc<ResourceType>, Reader)>, Option<Stuck>) {
        if self.ending.is_empty() {
            return (Vec::new(), None);
        }
        let registry = self.registry.now();
        let mut seen = HashSet::new();
        // The versions of a type share their objects.
        let types: Vec<_> = registry.iter().filter(|ty| ty.namespaced && seen.insert(ty.id())).cloned().collect();
        let asked = join_all(types.iter().map(|ty| self.reader(caches, ty))).await;
        let (mut readers, mut unknown) = (Vec::new(), None);
        for (ty, reader) in types.into_iter().zip(asked) {
            match reader {
                Ok(Some(reader)) => readers.push((ty, reader)),
                Ok(None) => {}
                Err(error) => {
                    unknown.get_or_insert_with(|| Stuck::Unknown { resource: ty.id().to_owned(), error });
                }
            }
        }
        (readers, unknown)
    }

    /// The cache of a type; `None` when nothing of it is stored in a namespace that ends. Starts no cache for that: most
    /// types are never read.
    async fn reader(&self, caches: &Caches, ty: &Arc<ResourceType>) -> Result<Option<Reader>, Unfresh> {
        let error = if caches.is_started(ty) {
            match caches.fresh(ty).await {
                Ok(reader) => return Ok(Some(reader)),
                Err(error) => Some(error),
            }
        } else {
            None
        };
        let is_stored = timeout(FRESH_WAIT, self.is_stored(ty)).await;
        match (is_stored, error) {
            (Ok(Ok(false)), _) => Ok(None),
            (Ok(Ok(true)), None) => caches.fresh(ty).await.map(Some),
            (_, Some(error)) => Err(error),
            (Ok(Err(error)), None) => Err(error.into()),
            (Err(_), None) => Err(StorageError::Unavailable("a listing takes too long".to_owned()).into()),
        }
    }

    /// Whether the storage has objects of a type in a namespace that ends.
    async fn is_stored(&self, ty: &Arc<ResourceType>) -> Result<bool, StorageError> {
        let mut entries = self.storage.list(ty).await?.entries;
        while let Some(entry) = entries.try_next().await? {
            if self.ending.contains_key(entry.namespace()) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Ending {
    /// Deletes everything in the namespace that was not told to go before. Returns the caches that have objects in it
    /// which others hold.
    async fn clear(
        &mut self,
        caches: &Caches,
        storage: &dyn Storage,
        namespace: &str,
        readers: &[(Arc<ResourceType>, Reader)],
    ) -> Result<Vec<(Reader, u64)>, Stuck> {
        let mut blocking = Vec::new();
        for (ty, reader) in readers {
            let snapshot = reader.snapshot();
            let told = self.told.get(ty.id()).copied().unwrap_or_default();
            let mut is_held = false;
            for entry in snapshot.objects.namespace(namespace) {
                is_held |= entry.resource_version() <= told
                    || !delete_listed(caches, storage, ty, entry)
                        .await
                        .map_err(|status| Stuck::Refused(Box::new(status)))?;
            }
            if is_held {
                self.told.insert(ty.id().to_owned(), snapshot.resource_version);
                blocking.push((reader.clone(), snapshot.resource_version));
            } else {
                self.told.remove(ty.id());
            }
        }
        Ok(blocking)
    }
}

/// Removes a namespace that is empty. Returns where that shows.
async fn remove(storage: &dyn Storage, ty: &Arc<ResourceType>, entry: &Entry) -> Result<u64, Stuck> {
    let (key, expect) = (entry.key().to_owned(), Expect::At(entry.resource_version()));
    match storage.write(Txn { ty: Arc::clone(ty), key, expect, put: None }).await {
        Ok(written) => Ok(written.resource_version),
        // Somebody else's write, which shows above the version that was read.
        Err(WriteError::Conflict { .. } | WriteError::NotFound | WriteError::Exists) => {
            Ok(entry.resource_version() + 1)
        }
        Err(error @ WriteError::Storage(_)) => Err(error.into()),
    }
}

/// That a namespace was told to go.
struct Mark {
    /// True if finalizers of its own hold it.
    is_held: bool,
}

impl Mark {
    /// Reads the mark of a namespace; `None` if it has none. Cost: a scan of its metadata.
    fn of(entry: &Entry) -> Option<Self> {
        let metadata = entry.metadata();
        let (mut is_marked, mut is_held) = (false, false);
        for member in json::members(&metadata) {
            let member = member.ok()?;
            match &*member.key.bytes() {
                b"deletionTimestamp" => is_marked = member.value.starts_with(b"\""),
                b"finalizers" => {
                    let finalizers = serde_json::from_slice::<Vec<IgnoredAny>>(member.value);
                    is_held = finalizers.is_ok_and(|finalizers| !finalizers.is_empty());
                }
                _ => {}
            }
        }
        is_marked.then_some(Self { is_held })
    }
}

#[cfg(test)]
mod tests;
