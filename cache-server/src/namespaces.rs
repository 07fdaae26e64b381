//! Ends the namespaces that are deleted: everything in them goes first, and nothing new is created in them.
//!
//! INVARIANT: level-triggered. Each pass looks at the namespaces as they are and does what is left to do, whoever marked
//! them. INVARIANT: nothing is looked at, and no task runs, before the first namespace is deleted.
//!
//! What is in a namespace needs no namespace here, so an object that was being created while its namespace ended may
//! outlive it. In Kubernetes it would keep the namespace.
//!
//! Source: `pkg/controller/namespace/deletion` of kubernetes/kubernetes.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use futures::{FutureExt as _, future::select_all};
use informer_core::{Keyed as _, wire::status::Status};
use parking_lot::RwLock;
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use watch_cache::{Closed, Entry, Reader, Snapshot};

use crate::{
    cacher::{Caches, NotReady, Unfresh},
    http::delete_listed,
    limits::FRESH_WAIT,
    registry::{Live, ResourceType},
    storage::{Expect, Storage, Txn, WriteError},
};

/// Between two passes when something fails, or when objects change in a namespace that others hold.
const PAUSE: Duration = Duration::from_millis(200);

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
}

impl Ender {
    async fn run(self) {
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
    async fn follow(&self, reader: &Reader) -> Result<(), Closed> {
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

    async fn pass(&self, caches: &Caches, snapshot: &Snapshot) -> Result<Pass, Stuck> {
        let ending: Vec<(&Arc<Entry>, Value)> =
            snapshot.objects.iter().filter_map(|entry| Some((entry, marked(entry)?))).collect();
        *self.known.ending.write() = ending.iter().map(|(entry, _)| entry.name().to_owned()).collect();
        let (mut wrote, mut blocking) = (None, Vec::new());
        for (entry, object) in ending {
            let held = self.clear(caches, entry.name()).await?;
            let is_held = object["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty());
            if held.is_empty() && !is_held {
                wrote = Some(self.remove(entry).await?);
            }
            blocking.extend(held);
        }
        Ok(wrote.map_or(Pass::Settled(blocking), Pass::Wrote))
    }

    /// Deletes everything in a namespace. Returns the caches that have objects in it which others hold.
    async fn clear(&self, caches: &Caches, namespace: &str) -> Result<Vec<(Reader, u64)>, Stuck> {
        let registry = self.registry.now();
        let mut seen = HashSet::new();
        let mut blocking = Vec::new();
        // The versions of a type share their objects.
        for ty in registry.iter().filter(|ty| ty.namespaced && seen.insert(ty.id())) {
            let reader = caches.fresh(ty).await?;
            let snapshot = reader.snapshot();
            let mut is_held = false;
            for entry in snapshot.objects.namespace(namespace) {
                let deleted = delete_listed(caches, &*self.storage, ty, entry).await;
                is_held |= !deleted.map_err(|status| Stuck::Refused(Box::new(status)))?;
            }
            if is_held {
                blocking.push((reader, snapshot.resource_version));
            }
        }
        Ok(blocking)
    }

    /// Removes a namespace that is empty. Returns where that shows.
    async fn remove(&self, entry: &Entry) -> Result<u64, Stuck> {
        let (key, expect) = (entry.key().to_owned(), Expect::At(entry.resource_version()));
        match self.storage.write(Txn { ty: Arc::clone(&self.ty), key, expect, put: None }).await {
            Ok(written) => Ok(written.resource_version),
            // Somebody else's write, which shows above the version that was read.
            Err(WriteError::Conflict { .. } | WriteError::NotFound | WriteError::Exists) => {
                Ok(entry.resource_version() + 1)
            }
            Err(error @ WriteError::Storage(_)) => Err(error.into()),
        }
    }
}

/// A namespace that was told to go, decoded. Cost: a search through the others.
fn marked(entry: &Entry) -> Option<Value> {
    let object = entry.object();
    let text = std::str::from_utf8(&object).ok().filter(|text| text.contains("\"deletionTimestamp\""))?;
    let object: Value = serde_json::from_str(text).ok()?;
    object["metadata"]["deletionTimestamp"].is_string().then_some(object)
}
