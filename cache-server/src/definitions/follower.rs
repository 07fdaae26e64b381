//! The task behind definitions: from one state of them to the types that are served.
//!
//! INVARIANT: level-triggered. Each pass looks at all definitions as they are and does what is left to do; whatever came
//! between two passes is in the second. INVARIANT: a state is settled when a pass over it had nothing to write.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
    time::Duration,
};

use futures::{FutureExt as _, TryStreamExt as _, future::select_all};
use informer_core::Keyed as _;
use serde_json::Value;
use tokio::time::sleep;
use watch_cache::{Draft, Entry, Reader, Schema, Snapshot};

use crate::{
    cacher::{Caches, NotReady, Unfresh},
    registry::{CLEANUP, Definition, Live, Object, ResourceType},
    storage::{Expect, Storage, Txn, WriteError, Written},
};

/// Between two passes when the storage fails.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

pub(super) struct Follower {
    storage: Arc<dyn Storage>,
    /// Not kept alive by this task: it ends with them.
    caches: Weak<Caches>,
    registry: Arc<Live>,
    /// By name.
    known: BTreeMap<String, Known>,
}

/// A definition as of the last pass, and what it makes.
struct Known {
    resource_version: u64,
    definition: Definition,
    schema: Arc<Schema>,
    defined_at: u64,
    types: Vec<Arc<ResourceType>>,
}

/// What a pass came to.
enum Pass {
    /// Everything is as it must be, except that these caches hold objects, as of a position, that keep definitions from
    /// going.
    Settled(Vec<(Reader, u64)>),
    /// Something was written, by this task or by others: look again once it shows.
    Wrote(u64),
}

/// A pass cannot go on.
#[derive(Debug, thiserror::Error)]
enum Stuck {
    #[error(transparent)]
    Unfresh(#[from] Unfresh),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("a stored object cannot be read")]
    Unreadable,
}

impl From<NotReady> for Stuck {
    fn from(error: NotReady) -> Self {
        Self::Unfresh(error.into())
    }
}

impl Follower {
    pub(super) const fn new(storage: Arc<dyn Storage>, caches: Weak<Caches>, registry: Arc<Live>) -> Self {
        Self { storage, caches, registry, known: BTreeMap::new() }
    }

    pub(super) async fn run(mut self) {
        let Some(ty) = super::definitions(&self.registry) else { return };
        loop {
            let reader = match self.caches.upgrade() {
                None => return,
                Some(caches) => caches.reader(&ty).await,
            };
            let reader = match reader {
                Ok(reader) => reader,
                Err(NotReady { stopped: true, .. }) => return,
                Err(_) => {
                    sleep(RETRY_PAUSE).await;
                    continue;
                }
            };
            if self.follow(&ty, &reader).await.is_err() {
                sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// Follows one cache until it is closed.
    async fn follow(&mut self, ty: &Arc<ResourceType>, reader: &Reader) -> Result<(), watch_cache::Closed> {
        loop {
            let Some(caches) = self.caches.upgrade() else { return Ok(()) };
            let snapshot = reader.snapshot();
            let outcome = self.pass(&caches, ty, &snapshot).await;
            drop(caches);
            match outcome {
                Ok(Pass::Settled(blocking)) => {
                    self.registry.settle(snapshot.resource_version);
                    // A blocking cache that is closed is looked at again, too.
                    let mut waits: Vec<_> =
                        blocking.iter().map(|(reader, at)| reader.reached(at + 1).map(|_| Ok(())).boxed()).collect();
                    waits.push(reader.reached(snapshot.resource_version + 1).boxed());
                    select_all(waits).await.0?;
                }
                Ok(Pass::Wrote(at)) => reader.reached(at).await?,
                Err(error) => {
                    tracing::warn!(%error, "definitions cannot be followed");
                    sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    async fn pass(&mut self, caches: &Caches, ty: &Arc<ResourceType>, snapshot: &Snapshot) -> Result<Pass, Stuck> {
        let groups = self.take_in(snapshot);
        let mut wrote = self.accept(ty, snapshot, &groups).await?;
        if !groups.is_empty() {
            self.publish(caches);
        }
        let mut blocking = Vec::new();
        for (name, known) in self.known.iter().filter(|(_, known)| known.definition.awaits_cleanup()) {
            match (self.clear(caches, known).await?, snapshot.objects.get(name)) {
                (Some(left), _) => blocking.push(left),
                (None, Some(entry)) => wrote = self.release(ty, entry).await?.or(wrote),
                (None, None) => {}
            }
        }
        Ok(wrote.map_or(Pass::Settled(blocking), Pass::Wrote))
    }

    /// Reads what changed since the last pass. Returns the groups of what did.
    fn take_in(&mut self, snapshot: &Snapshot) -> BTreeSet<String> {
        let mut groups = BTreeSet::new();
        self.known.retain(|name, known| {
            let stays = snapshot.objects.get(name).is_some();
            if !stays {
                groups.insert(known.definition.group().to_owned());
            }
            stays
        });
        for entry in snapshot.objects.iter() {
            let known = self.known.get(entry.key());
            if known.is_none_or(|known| known.resource_version != entry.resource_version()) {
                groups.extend(self.learn(entry, snapshot.resource_version));
            }
        }
        groups
    }

    /// Reads one definition as it is now. Returns its group.
    fn learn(&mut self, entry: &Entry, position: u64) -> Option<String> {
        let name = entry.key().to_owned();
        let before = self.known.remove(&name);
        let definition = decode(entry).ok().and_then(|object| Definition::read(&object));
        let Some(definition) = definition else {
            tracing::warn!(name, "a definition cannot be read and is not served");
            return before.map(|before| before.definition.group().to_owned());
        };
        let group = definition.group().to_owned();
        self.known.insert(name, Known::new(definition, entry.resource_version(), before, position));
        Some(group)
    }

    /// Gives the definitions of these groups their status. Returns the position of the last write.
    async fn accept(
        &mut self,
        ty: &Arc<ResourceType>,
        snapshot: &Snapshot,
        groups: &BTreeSet<String>,
    ) -> Result<Option<u64>, Stuck> {
        let registry = self.registry.now();
        let concerned =
            |known: &&Known| groups.contains(known.definition.group()) && !known.definition.is_terminating();
        let names: Vec<String> =
            self.known.values().filter(concerned).map(|known| known.definition.name().to_owned()).collect();
        let mut wrote = None;
        for name in names {
            let (Some(known), Some(entry)) = (self.known.get(&name), snapshot.objects.get(&name)) else { continue };
            let others = self.known.values().map(|known| &known.definition);
            let builtin = registry.iter().filter(|ty| ty.custom.is_none()).map(|ty| &**ty);
            let Some(accepted) = known.definition.accept(others, builtin, &now()) else { continue };
            let mut object = decode(entry)?;
            accepted.write(&mut object);
            let was_served = known.definition.is_established();
            match self.put(ty, entry, Some(&object)).await? {
                Some(written) => {
                    self.learn(&written.entry, written.resource_version);
                    wrote = Some(written.resource_version);
                    if let Some(known) = self.known.get(&name).filter(|_| !was_served) {
                        self.sweep(known).await?;
                    }
                }
                // Somebody else wrote it, which is going to show.
                None => wrote = wrote.or(Some(snapshot.resource_version + 1)),
            }
        }
        Ok(wrote)
    }

    /// Serves what is known, and ends the caches of what is gone.
    fn publish(&self, caches: &Caches) {
        let types = self.known.values().flat_map(|known| &known.types);
        self.registry.replace(self.registry.now().with(types));
        caches.retain(&self.registry.now());
    }

    /// Deletes what an earlier definition of that name left behind: a write that was on its way when it went.
    async fn sweep(&self, known: &Known) -> Result<(), Stuck> {
        let Some(ty) = known.definition.stored_type(&known.schema, known.defined_at) else { return Ok(()) };
        let listed = self.storage.list(&ty).await.map_err(Unfresh::from)?;
        let left: Vec<_> = listed.entries.try_collect().await.map_err(Unfresh::from)?;
        for entry in &left {
            self.put(&ty, entry, None).await?;
        }
        Ok(())
    }

    /// Deletes the objects of a type. Returns its cache when some stay, held by finalizers, and where it was then.
    async fn clear(&self, caches: &Caches, known: &Known) -> Result<Option<(Reader, u64)>, Stuck> {
        let Some(ty) = known.definition.stored_type(&known.schema, known.defined_at) else { return Ok(None) };
        loop {
            let reader = caches.fresh(&ty).await?;
            let snapshot = reader.snapshot();
            let mut deleted = false;
            for entry in snapshot.objects.iter() {
                let mut object = decode(entry)?;
                if !is_held(&object) {
                    self.put(&ty, entry, None).await?;
                    deleted = true;
                } else if mark_terminating(&mut object) {
                    self.put(&ty, entry, Some(&object)).await?;
                    deleted = true;
                }
            }
            if !deleted {
                let left = !snapshot.objects.is_empty();
                return Ok(left.then_some((reader, snapshot.resource_version)));
            }
        }
    }

    /// Lets a definition go whose objects are gone, or whoever else holds it hold it. Returns the position of the write.
    async fn release(&self, ty: &Arc<ResourceType>, entry: &Arc<Entry>) -> Result<Option<u64>, Stuck> {
        let mut object = decode(entry)?;
        if let Some(finalizers) = object.get_mut("metadata").and_then(|metadata| metadata["finalizers"].as_array_mut())
        {
            finalizers.retain(|finalizer| finalizer != CLEANUP);
        }
        let put = is_held(&object).then_some(&object);
        let written = self.put(ty, entry, put).await?;
        // Somebody else's write shows above the version that was read.
        let at = match written {
            Some(written) => written.resource_version,
            None => entry.resource_version() + 1,
        };
        Ok(Some(at))
    }

    /// Writes `put` in place of `entry`, or deletes it. `None` when somebody else came first.
    async fn put(
        &self,
        ty: &Arc<ResourceType>,
        entry: &Arc<Entry>,
        put: Option<&Object>,
    ) -> Result<Option<Written>, Stuck> {
        let put = put.map(|object| {
            let text = serde_json::to_vec(object).expect("a JSON object has a text");
            Draft::new(&ty.schema, &text).map_err(|_| Stuck::Unreadable)
        });
        let expect = Expect::At(entry.resource_version());
        let txn = Txn { ty: Arc::clone(ty), key: entry.key().to_owned(), expect, put: put.transpose()? };
        match self.storage.write(txn).await {
            Ok(written) => Ok(Some(written)),
            Err(WriteError::Conflict { .. } | WriteError::NotFound | WriteError::Exists) => Ok(None),
            Err(error @ WriteError::Storage(_)) => Err(error.into()),
        }
    }
}

impl Known {
    fn new(definition: Definition, resource_version: u64, before: Option<Self>, position: u64) -> Self {
        let schema = definition.schema();
        let before = before.filter(|before| {
            // Nothing that is cached, and no watch, is wrong by the change.
            let served = definition.served();
            before.definition.uid() == definition.uid()
                && *before.schema == schema
                && before.definition.served().iter().all(|version| served.contains(version))
        });
        let (schema, defined_at) = match before {
            Some(before) => (before.schema, before.defined_at),
            None => (Arc::new(schema), position.max(resource_version)),
        };
        let types = if definition.is_established() { definition.types(&schema, defined_at) } else { Vec::new() };
        Self { resource_version, definition, schema, defined_at, types }
    }
}

fn decode(entry: &Entry) -> Result<Object, Stuck> {
    serde_json::from_slice(&entry.object()).map_err(|_| Stuck::Unreadable)
}

/// Whether finalizers keep the object from going.
fn is_held(object: &Object) -> bool {
    let finalizers = object.get("metadata").and_then(|metadata| metadata.get("finalizers"));
    finalizers.and_then(Value::as_array).is_some_and(|finalizers| !finalizers.is_empty())
}

/// Marks an object as being deleted; false when it was before.
fn mark_terminating(object: &mut Object) -> bool {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return false };
    if metadata.contains_key("deletionTimestamp") {
        return false;
    }
    metadata.insert("deletionTimestamp".to_owned(), now().into());
    metadata.insert("deletionGracePeriodSeconds".to_owned(), 0.into());
    if let Some(generation) = metadata.get("generation").and_then(Value::as_u64) {
        metadata.insert("generation".to_owned(), (generation + 1).into());
    }
    true
}

/// Now, in UTC and whole seconds, as objects carry it.
fn now() -> String {
    let now = jiff::Timestamp::now();
    jiff::Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}
