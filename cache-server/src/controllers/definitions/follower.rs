//! The controller of CustomResourceDefinitions: derives the served types from the stored definitions.
//!
//! INVARIANT: level-triggered. Each pass reads the definitions that changed since the last one, and works on everything
//! still to do from this and earlier passes. Work is forgotten only once it succeeded, so a failing storage delays work
//! but loses none.
//! INVARIANT: a state is settled after a pass that wrote nothing and left nothing to do.
//! INVARIANT: a pass costs as much as the changed definitions, and the definitions of their groups that wait for names.

mod known;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures::{FutureExt as _, TryStreamExt as _, future::select_all};
use informer_core::{Keyed as _, Objects, objects::Difference};
use serde_json::Value;
use tokio::{task::yield_now, time::sleep};
use watch_cache::{Draft, Entry, Reader, Snapshot};

use self::known::{KnownDefinition, KnownDefinitions};
use crate::{
    cacher::{Caches, FreshnessError, NotReady},
    registry::{CLEANUP, Definition, Live, Object, ResourceType},
    storage::{Expect, Storage, Txn, WriteError, WriteResult},
};

/// Delay before a retry when the storage or a cache fails.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

pub(super) struct Follower {
    storage: Arc<dyn Storage>,
    /// Weak, so that the task ends when the caches are dropped.
    caches: Weak<Caches>,
    registry: Arc<Live>,
    /// The definitions as of the last pass.
    seen: Objects<Entry>,
    known: KnownDefinitions,
}

/// Outcome of a pass.
enum FollowPass {
    /// Nothing is left to do, except that terminating definitions wait for objects held by finalizers. Each entry is a
    /// cache with such objects, and the position of the snapshot they were found in.
    Settled(Vec<(Reader, u64)>),
    /// This task or another writer wrote something: run the next pass once the cache has this position.
    Wrote(u64),
}

/// Outcome of the cleanup of a terminating definition.
struct CleanedUp {
    /// Position of the write that removed the cleanup finalizer or the definition.
    wrote: Option<u64>,
    /// The cache of its objects and the position of its snapshot, if finalizers hold some of them.
    held: Option<(Reader, u64)>,
}

/// Error of a pass.
#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error(transparent)]
    Unfresh(#[from] FreshnessError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("a stored object cannot be read")]
    Unreadable,
}

impl From<NotReady> for FollowError {
    fn from(error: NotReady) -> Self {
        Self::Unfresh(error.into())
    }
}

impl Follower {
    pub(super) fn new(storage: Arc<dyn Storage>, caches: Weak<Caches>, registry: Arc<Live>) -> Self {
        Self { storage, caches, registry, seen: Objects::new(), known: KnownDefinitions::default() }
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

    /// Runs passes over one cache until that cache is closed.
    async fn follow(&mut self, ty: &Arc<ResourceType>, reader: &Reader) -> Result<(), watch_cache::Closed> {
        loop {
            let Some(caches) = self.caches.upgrade() else { return Ok(()) };
            let snapshot = reader.snapshot();
            let outcome = self.pass(&caches, ty, &snapshot).await;
            // Do not keep the caches alive while this task waits.
            drop(caches);
            match outcome {
                Ok(FollowPass::Settled(blocking)) => {
                    self.registry.settle(snapshot.resource_version);
                    // A blocking cache that is closed also starts the next pass.
                    let mut waits: Vec<_> =
                        blocking.iter().map(|(reader, at)| reader.reached(at + 1).map(|_| Ok(())).boxed()).collect();
                    waits.push(reader.reached(snapshot.resource_version + 1).boxed());
                    select_all(waits).await.0?;
                }
                Ok(FollowPass::Wrote(at)) => reader.reached(at).await?,
                Err(error) => {
                    tracing::warn!(%error, delay = ?RETRY_PAUSE, "CustomResourceDefinition sync failed");
                    sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// Works on everything still to do. A definition that fails does not stop the others: the first error is returned
    /// at the end, and the next pass retries.
    async fn pass(
        &mut self,
        caches: &Caches,
        ty: &Arc<ResourceType>,
        snapshot: &Snapshot,
    ) -> Result<FollowPass, FollowError> {
        self.take_in(snapshot).await;
        let (mut wrote, mut stuck) = (None, None);
        for name in self.known.take_unjudged() {
            yield_now().await;
            match self.accept(ty, snapshot, &name).await {
                Ok(written) => wrote = written.or(wrote),
                Err(error) => {
                    self.known.judge_again(name);
                    stuck = stuck.or(Some(error));
                }
            }
        }
        for name in self.known.unswept() {
            match self.sweep(&name).await {
                Ok(()) => self.known.swept(&name),
                Err(error) => stuck = stuck.or(Some(error)),
            }
        }
        // Before the cleanup: terminating types accept no creates, so that the cleanup comes to an end.
        self.publish(caches);
        let mut blocking = Vec::new();
        for name in self.known.awaiting_cleanup() {
            match self.clean_up(caches, ty, snapshot, &name).await {
                Ok(CleanedUp { wrote: written, held }) => {
                    wrote = written.or(wrote);
                    blocking.extend(held);
                }
                Err(error) => stuck = stuck.or(Some(error)),
            }
        }
        match (stuck, wrote) {
            (Some(error), _) => Err(error),
            (None, Some(at)) => Ok(FollowPass::Wrote(at)),
            (None, None) if self.known.has_unjudged() => Ok(FollowPass::Wrote(snapshot.resource_version)),
            (None, None) => Ok(FollowPass::Settled(blocking)),
        }
    }

    /// Reads the definitions that changed since the last pass.
    async fn take_in(&mut self, snapshot: &Snapshot) {
        let seen = std::mem::replace(&mut self.seen, snapshot.objects.clone());
        for difference in seen.diff(&snapshot.objects) {
            // A definition may have megabytes: let other tasks run in between.
            yield_now().await;
            match difference {
                Difference::Added(entry) | Difference::Updated { new: entry, .. } => {
                    if self.known.version(entry.key()) != Some(entry.resource_version()) {
                        self.learn(entry, snapshot.resource_version);
                    }
                }
                Difference::Removed(entry) => self.known.forget(entry.key()),
            }
        }
    }

    /// Reads the current version of a definition.
    fn learn(&mut self, entry: &Entry, position: u64) {
        let definition = decode(entry).ok().and_then(|object| Definition::read(&object));
        match definition {
            Some(definition) => {
                self.known.learn(definition, entry.resource_version(), position, &self.registry.now());
            }
            None => {
                tracing::warn!(key = entry.key(), "CustomResourceDefinition skipped");
                self.known.forget(entry.key());
            }
        }
    }

    /// Writes the status of a definition if it must change. Returns the position at which the write can be seen.
    async fn accept(
        &mut self,
        ty: &Arc<ResourceType>,
        snapshot: &Snapshot,
        name: &str,
    ) -> Result<Option<u64>, FollowError> {
        // Deleted meanwhile. Below, `None` means that the status is up to date or the definition is terminating.
        let Some(entry) = snapshot.objects.get(name) else { return Ok(None) };
        let Some(accepted) = self.known.accept(name, &now()) else { return Ok(None) };
        let was_established = self.known.get(name).is_some_and(|known| known.definition.is_established());
        let mut object = decode(entry)?;
        accepted.write(&mut object);
        match self.put(ty, entry, Some(&object)).await? {
            Some(written) => {
                self.learn(&written.entry, written.resource_version);
                if !was_established {
                    self.known.sweep(name.to_owned());
                }
                Ok(Some(written.resource_version))
            }
            // Another writer was first, or the cache does not have our own last write yet: both show at a later
            // position.
            None => {
                self.known.judge_again(name.to_owned());
                Ok(Some(snapshot.resource_version + 1))
            }
        }
    }

    /// Serves the types of the current definitions, and stops the caches of removed types.
    fn publish(&mut self, caches: &Caches) {
        let Some((gone, come)) = self.known.take_unpublished() else { return };
        self.registry.replace(self.registry.now().changed(&gone, &come));
        caches.retain(&self.registry.now());
    }

    /// Deletes the objects of a terminating definition, then releases the definition itself.
    async fn clean_up(
        &mut self,
        caches: &Caches,
        ty: &Arc<ResourceType>,
        snapshot: &Snapshot,
        name: &str,
    ) -> Result<CleanedUp, FollowError> {
        let none = CleanedUp { wrote: None, held: None };
        let Some(known) = self.known.get(name) else { return Ok(none) };
        let held = self.clear(caches, known).await?;
        match (held, snapshot.objects.get(name)) {
            (Some(held), _) => Ok(CleanedUp { held: Some(held), ..none }),
            (None, Some(entry)) => Ok(CleanedUp { wrote: self.release(caches, ty, entry).await?, ..none }),
            (None, None) => Ok(none),
        }
    }

    /// Deletes objects that an earlier definition of this name left behind: writes that were in flight when it was
    /// removed.
    async fn sweep(&self, name: &str) -> Result<(), FollowError> {
        let Some(known) = self.known.get(name) else { return Ok(()) };
        let Some(ty) = known.definition.stored_type(&known.schema, known.defined_at) else { return Ok(()) };
        let listed = self.storage.list(&ty).await.map_err(FreshnessError::from)?;
        let left: Vec<_> = listed.entries.try_collect().await.map_err(FreshnessError::from)?;
        for entry in &left {
            self.put(&ty, entry, None).await?;
        }
        Ok(())
    }

    /// Deletes the objects of a type. If finalizers hold some of them, returns the cache and the position of its
    /// snapshot.
    async fn clear(&self, caches: &Caches, known: &KnownDefinition) -> Result<Option<(Reader, u64)>, FollowError> {
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

    /// Removes the cleanup finalizer of a definition whose objects are deleted, and the definition itself unless it has
    /// other finalizers. Returns the position at which the write can be seen.
    async fn release(
        &mut self,
        caches: &Caches,
        ty: &Arc<ResourceType>,
        entry: &Arc<Entry>,
    ) -> Result<Option<u64>, FollowError> {
        let mut object = decode(entry)?;
        if let Some(finalizers) = object.get_mut("metadata").and_then(|metadata| metadata["finalizers"].as_array_mut())
        {
            finalizers.retain(|finalizer| finalizer != CLEANUP);
        }
        let put = is_held(&object).then_some(&object);
        if put.is_none() {
            // Before the write, so that no client that sees the definition deleted still finds its types.
            self.known.forget(entry.key());
            self.publish(caches);
        }
        let written = self.put(ty, entry, put).await;
        if put.is_none() && !matches!(written, Ok(Some(_))) {
            // The write failed or conflicted, so the definition is still stored: serve it again.
            self.learn(entry, entry.resource_version());
        }
        // On a conflict, the other writer's version is above the one that was read.
        let at = written?.map_or_else(|| entry.resource_version() + 1, |written| written.resource_version);
        Ok(Some(at))
    }

    /// Replaces `entry` with `put`, or deletes it. Returns `None` if another writer was first.
    async fn put(
        &self,
        ty: &Arc<ResourceType>,
        entry: &Arc<Entry>,
        put: Option<&Object>,
    ) -> Result<Option<WriteResult>, FollowError> {
        let put = put.map(|object| {
            let text = serde_json::to_vec(object).expect("a JSON object has a text");
            Draft::new(&ty.schema, &text).map_err(|_| FollowError::Unreadable)
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

fn decode(entry: &Entry) -> Result<Object, FollowError> {
    serde_json::from_slice(&entry.object()).map_err(|_| FollowError::Unreadable)
}

/// True if finalizers hold the object.
fn is_held(object: &Object) -> bool {
    let finalizers = object.get("metadata").and_then(|metadata| metadata.get("finalizers"));
    finalizers.and_then(Value::as_array).is_some_and(|finalizers| !finalizers.is_empty())
}

/// Marks an object as terminating. Returns false if it was marked before.
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

/// The current time in UTC and whole seconds, as objects carry it.
fn now() -> String {
    let now = jiff::Timestamp::now();
    jiff::Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}
