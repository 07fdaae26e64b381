//! The namespace controller: deletes the objects of terminating namespaces, then the namespaces.
//!
//! INVARIANT: no task runs and no storage is read before the first namespace is deleted, and no cache is started for a
//! type without objects in terminating namespaces.
//! INVARIANT: nothing else in a namespace is deleted before its pods are gone, as since Kubernetes 1.33: they may need
//! what stands there until they end.
//! INVARIANT: an object is deleted in a write that fails unless its namespace is still at the version that terminates.
//! INVARIANT: a pass costs as much as the changed namespaces, and the objects in terminating namespaces that
//! it has not deleted or marked before.
//!
//! An object's create does not check that its namespace exists, so an object created while its namespace terminates may
//! outlive it. In Kubernetes it would keep the namespace.
//!
//! Source: `pkg/controller/namespace/deletion` of kubernetes/kubernetes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use cache_server_caches::{
    cacher::{Caches, FreshnessError},
    limits::FRESH_WAIT,
    passes::{self, Controller, PassOutcome},
    registry::{Live, ResourceType},
    settled::SettledPosition,
    storage::{SourceError, Store, WriteCause},
    stored::{
        self, ReplaceOutcome,
        removal::{DeleteContext, DeleteError, delete_listed},
    },
    supervised::SupervisedTasks,
};
use futures::{TryStreamExt as _, future::join_all};
use informer_core::{Objects, wire::json};
use parking_lot::RwLock;
use serde::{Deserialize, de::IgnoredAny};
use tokio::time::timeout;
use watch_cache::{CacheSnapshot, Entry, Reader};

/// [`ResourceType::id`] of the namespaces' type.
pub const NAMESPACES: &str = "namespaces";

/// [`ResourceType::id`] of the pods' type.
const PODS: &str = "pods";

/// Delay before a retry, and between passes while objects change in a namespace with held objects.
const PAUSE: Duration = Duration::from_millis(200);

/// Handle to the task that deletes terminating namespaces.
pub struct Namespaces {
    storage: Arc<dyn Store>,
    caches: Weak<Caches>,
    registry: Arc<Live>,
    tasks: Arc<SupervisedTasks>,
    is_idle: bool,
    started: OnceLock<()>,
    known: Arc<NamespaceStates>,
}

/// Results of the passes, shared with requests.
#[derive(Default)]
struct NamespaceStates {
    /// The terminating namespaces.
    ending: RwLock<BTreeSet<String>>,
    /// The position up to which only finalizers remain.
    settled: SettledPosition,
}

impl Namespaces {
    /// Does not start the task yet.
    pub fn new(
        storage: Arc<dyn Store>,
        caches: &Arc<Caches>,
        registry: Arc<Live>,
        tasks: Arc<SupervisedTasks>,
    ) -> Self {
        let (caches, started, known) = (Arc::downgrade(caches), OnceLock::new(), Arc::default());
        Self { storage, caches, registry, tasks, is_idle: false, started, known }
    }

    /// Another program deletes terminating namespaces: there is never a task.
    #[must_use]
    pub fn idle(self) -> Self {
        Self { is_idle: true, ..self }
    }

    /// True once a namespace was deleted.
    pub fn has_begun(&self) -> bool {
        self.started.get().is_some()
    }

    /// Goes on where another server is that deletes these namespaces, if some of them terminate. Needs a tokio runtime.
    pub fn take_over(&self, stored: &Objects<Entry>) {
        let marked = stored.iter().filter(|entry| DeletionMark::of(entry).is_some());
        let ending: BTreeSet<_> = marked.map(|entry| entry.name().to_owned()).collect();
        if let (false, Some(ty)) = (ending.is_empty(), namespaces(&self.registry)) {
            *self.known.ending.write() = ending;
            self.begin(&ty);
        }
    }

    /// True if the namespace is terminating, so that no object may be created in it. Cost: one lock, and a look into the
    /// cache of namespaces if it is: clients see there that a namespace is gone before a pass does.
    pub fn is_ending(&self, namespace: &str) -> bool {
        if !self.known.ending.read().contains(namespace) {
            return false;
        }
        let (Some(caches), Some(ty)) = (self.caches.upgrade(), namespaces(&self.registry)) else { return true };
        let Some(reader) = caches.current(&ty) else { return true };
        reader.get(&ty.key("", namespace)).is_some_and(|entry| DeletionMark::of(&entry).is_some())
    }

    /// Takes a namespace for a terminating one, as after a pass that saw it.
    #[cfg(feature = "testing")]
    pub fn assume_ending(&self, namespace: &str) {
        self.known.ending.write().insert(namespace.to_owned());
    }

    /// Waits until all namespaces marked by now are deleted or only wait for finalizers, at most 3 s ([`FRESH_WAIT`]).
    /// Starts the task on first use, which needs a tokio runtime.
    pub async fn settle(&self) {
        if self.is_idle {
            return;
        }
        let (Some(caches), Some(ty)) = (self.caches.upgrade(), namespaces(&self.registry)) else { return };
        self.begin(&ty);
        if self.known.settled.wait(&caches, &ty).await.is_err() {
            tracing::debug!(timeout = ?FRESH_WAIT, "namespace deletion wait timed out");
        }
    }

    /// Starts the task, unless it was started before.
    fn begin(&self, ty: &Arc<ResourceType>) {
        self.started.get_or_init(|| {
            let (storage, registry, known, of) =
                (Arc::clone(&self.storage), Arc::clone(&self.registry), Arc::clone(&self.known), Arc::clone(ty));
            let ender = move || Ender {
                storage: Arc::clone(&storage),
                registry: Arc::clone(&registry),
                known: Arc::clone(&known),
                ty: Arc::clone(&of),
                ending: BTreeMap::new(),
            };
            self.tasks.spawn("namespaces", passes::restartable(ender, Weak::clone(&self.caches), Arc::clone(ty)));
        });
    }
}

fn namespaces(registry: &Live) -> Option<Arc<ResourceType>> {
    registry.now().iter().find(|ty| ty.holds_objects).cloned()
}

struct Ender {
    storage: Arc<dyn Store>,
    registry: Arc<Live>,
    known: Arc<NamespaceStates>,
    /// The type of namespaces.
    ty: Arc<ResourceType>,
    /// The terminating namespaces, by name.
    ending: BTreeMap<String, EndingNamespace>,
}

/// A terminating namespace.
struct EndingNamespace {
    entry: Arc<Entry>,
    /// True if the namespace itself has finalizers, in its metadata or its spec.
    is_held: bool,
    /// By type: the position up to which every object in the namespace was deleted or marked. Those that remain are
    /// held.
    handled: HashMap<String, u64>,
}

/// Error of a pass.
#[derive(Debug, thiserror::Error)]
enum NamespaceError {
    #[error(transparent)]
    Unfresh(#[from] FreshnessError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Undeleted(#[from] DeleteError),
    #[error("nobody knows which {resource} there are: {error}")]
    Unknown { resource: String, error: FreshnessError },
}

impl Controller for Ender {
    type Error = NamespaceError;

    const RETRY_PAUSE: Duration = PAUSE;
    const HELD_PAUSE: Duration = PAUSE;
    const READ_AT_ONCE: usize = 16;

    fn learn(&mut self, entry: &Arc<Entry>, _: u64) {
        let Some(DeletionMark { is_held }) = DeletionMark::of(entry) else { return self.forget(entry) };
        let is_held = is_held || has_holders(entry);
        let handled = self.ending.remove(entry.name()).map(|before| before.handled).unwrap_or_default();
        self.ending.insert(entry.name().to_owned(), EndingNamespace { entry: Arc::clone(entry), is_held, handled });
        self.known.ending.write().insert(entry.name().to_owned());
    }

    fn forget(&mut self, entry: &Entry) {
        self.ending.remove(entry.name());
        if self.known.ending.read().contains(entry.name()) {
            self.known.ending.write().remove(entry.name());
        }
    }

    async fn pass(&mut self, caches: &Caches, snapshot: &CacheSnapshot) -> Result<PassOutcome, NamespaceError> {
        let (mut wrote, mut blocking, mut stuck) = (None, Vec::new(), None);
        let (readers, unknown) = self.readers(caches).await;
        for (name, ending) in &mut self.ending {
            let cause = WriteCause::new(&self.ty, &ending.entry);
            let stored = DeleteContext { caches, storage: &*self.storage, cause: Some(&cause) };
            let held = match ending.clear(stored, name, &readers).await {
                Ok(held) => held,
                // The namespace is deleted or created again by now, which shows at a later position.
                Err(NamespaceError::Undeleted(DeleteError::CauseChanged)) => {
                    wrote = wrote.max(Some(snapshot.resource_version + 1));
                    continue;
                }
                Err(error) => {
                    stuck = stuck.or(Some(error));
                    continue;
                }
            };
            if held.is_empty() && !ending.is_held && unknown.is_none() {
                match remove(&*self.storage, &self.ty, &ending.entry).await {
                    Ok(at) => wrote = wrote.max(Some(at)),
                    Err(error) => stuck = stuck.or(Some(error)),
                }
            }
            blocking.extend(held);
        }
        match (stuck.or(unknown), wrote) {
            (Some(error), _) => Err(error),
            (None, Some(at)) => Ok(PassOutcome::Wrote(at)),
            (None, None) => Ok(PassOutcome::Settled(blocking)),
        }
    }

    fn settle(&self, position: u64) {
        self.known.settled.reach(position);
    }

    fn failed(&self, error: &NamespaceError) {
        tracing::warn!(%error, delay = ?PAUSE, "namespace deletion failed");
    }
}

impl Ender {
    /// The caches of all types that may have objects in terminating namespaces, and the error of a type for which this
    /// is unknown. The types are queried concurrently, so that a slow one does not delay the others. Pods come first, and
    /// nothing without them.
    async fn readers(&self, caches: &Caches) -> (Vec<(Arc<ResourceType>, Reader)>, Option<NamespaceError>) {
        if self.ending.is_empty() {
            return (Vec::new(), None);
        }
        let registry = self.registry.now();
        let mut seen = HashSet::new();
        // The versions of a type share their objects.
        let types = registry.iter().filter(|ty| ty.namespaced).map(ResourceType::stored_as);
        let mut types: Vec<_> = types.filter(|ty| seen.insert(ty.id())).cloned().collect();
        types.sort_by_key(|ty| ty.id() != PODS);
        let results = join_all(types.iter().map(|ty| self.reader(caches, ty))).await;
        let (mut readers, mut unknown) = (Vec::new(), None);
        for (ty, reader) in types.into_iter().zip(results) {
            match reader {
                Ok(Some(reader)) => readers.push((ty, reader)),
                Ok(None) => {}
                Err(error) => {
                    let is_of_pods = ty.id() == PODS;
                    unknown.get_or_insert_with(|| NamespaceError::Unknown { resource: ty.id().to_owned(), error });
                    if is_of_pods {
                        break;
                    }
                }
            }
        }
        (readers, unknown)
    }

    /// The cache of a type; `None` if the storage has no object of it in a terminating namespace. A cache is started
    /// only for types that have such objects: most types are never read.
    async fn reader(&self, caches: &Caches, ty: &Arc<ResourceType>) -> Result<Option<Reader>, FreshnessError> {
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
            (Err(_), None) => Err(SourceError::Unavailable("a listing takes too long".to_owned()).into()),
        }
    }

    /// True if the storage has an object of a type in a terminating namespace.
    async fn is_stored(&self, ty: &Arc<ResourceType>) -> Result<bool, SourceError> {
        let mut entries = self.storage.list(ty).await?.entries;
        while let Some(entry) = entries.try_next().await? {
            if self.ending.contains_key(entry.namespace()) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl EndingNamespace {
    /// Deletes all objects in the namespace that were not deleted or marked before. Returns the caches with objects
    /// that finalizers or grace periods still hold: only those of the pods while there are any.
    async fn clear(
        &mut self,
        stored: DeleteContext<'_>,
        namespace: &str,
        readers: &[(Arc<ResourceType>, Reader)],
    ) -> Result<Vec<(Reader, u64)>, NamespaceError> {
        let mut blocking = Vec::new();
        for (ty, reader) in readers {
            let snapshot = reader.snapshot();
            let handled = self.handled.get(ty.id()).copied().unwrap_or_default();
            let mut is_held = false;
            for entry in snapshot.objects.namespace(namespace) {
                is_held |= entry.resource_version() <= handled || !delete_listed(stored, ty, entry).await?;
            }
            if is_held {
                // All objects up to this position are handled: the next pass skips them.
                self.handled.insert(ty.id().to_owned(), snapshot.resource_version);
                blocking.push((reader.clone(), snapshot.resource_version));
                if ty.id() == PODS {
                    break;
                }
            } else {
                self.handled.remove(ty.id());
            }
        }
        Ok(blocking)
    }
}

/// Removes an empty namespace. Returns the position at which the removal can be seen.
async fn remove(storage: &dyn Store, ty: &Arc<ResourceType>, entry: &Entry) -> Result<u64, NamespaceError> {
    Ok(match stored::replace(storage, ty, entry, None).await? {
        ReplaceOutcome::Done(written) => written.resource_version,
        // Another writer was first; its write shows above the version that was read.
        ReplaceOutcome::Late | ReplaceOutcome::Gone => entry.resource_version() + 1,
    })
}

/// True if the spec of a namespace has other finalizers than the one that this controller removes. Cost: reads the object.
fn has_holders(namespace: &Entry) -> bool {
    #[derive(Deserialize)]
    struct HeldNamespace {
        #[serde(default)]
        spec: HeldSpec,
    }
    #[derive(Default, Deserialize)]
    struct HeldSpec {
        #[serde(default)]
        finalizers: Vec<String>,
    }
    let held = serde_json::from_slice::<HeldNamespace>(&namespace.object());
    held.is_ok_and(|held| held.spec.finalizers.iter().any(|finalizer| finalizer != "kubernetes"))
}

/// The deletion mark of an object.
pub(crate) struct DeletionMark {
    /// True if the object has finalizers in its metadata.
    pub(crate) is_held: bool,
}

impl DeletionMark {
    /// Reads the deletion mark of an object; `None` if it has none. Cost: a scan of its metadata.
    pub(crate) fn of(entry: &Entry) -> Option<Self> {
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
