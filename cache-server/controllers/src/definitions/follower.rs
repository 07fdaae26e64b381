//! The controller of CustomResourceDefinitions: derives the served types from the stored definitions.
//!
//! INVARIANT: work is forgotten only once it succeeded.
//! INVARIANT: a state is settled after a pass that wrote nothing and left nothing to do.
//! INVARIANT: a pass costs as much as the changed definitions, and the definitions of their groups that wait for names.

mod known;

use std::{sync::Arc, time::Duration};

use api_rules::object::metadata;
use cache_server_caches::{
    cacher::{Caches, FreshnessError},
    clock,
    passes::{Controller, PassOutcome},
    registry::{CLEANUP, Definition, Live, Object, Registry, ResourceType},
    settled::SettledPosition,
    storage::{SourceError, Store, WriteCause, WriteResult},
    stored::{self, CausedWriteError, ReplaceOutcome},
};
use informer_core::{KeyedObject as _, Objects};
use tokio::task::yield_now;
use watch_cache::{CacheSnapshot, Draft, Entry, Reader};

use self::known::{KnownDefinition, KnownDefinitions};

pub(super) struct Follower {
    /// `None`: only derives the types of established definitions.
    store: Option<Arc<dyn Store>>,
    registry: Arc<Live>,
    settled: Arc<SettledPosition>,
    /// The type of definitions.
    ty: Arc<ResourceType>,
    known: KnownDefinitions,
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
pub(super) enum FollowError {
    #[error(transparent)]
    Unfresh(#[from] FreshnessError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("a stored object cannot be read")]
    Unreadable,
    #[error("the definition has changed")]
    Changed,
}

impl From<CausedWriteError> for FollowError {
    fn from(error: CausedWriteError) -> Self {
        match error {
            CausedWriteError::CauseChanged => Self::Changed,
            CausedWriteError::Source(error) => Self::Source(error),
        }
    }
}

impl Controller for Follower {
    type Error = FollowError;

    const RETRY_PAUSE: Duration = Duration::from_millis(500);
    const HELD_PAUSE: Duration = Duration::ZERO;
    const READ_AT_ONCE: usize = 1;

    fn learn(&mut self, entry: &Arc<Entry>, position: u64) {
        if self.known.version(entry.key()) != Some(entry.resource_version()) {
            self.read(entry, position);
        }
    }

    fn forget(&mut self, entry: &Entry) {
        self.known.forget(entry.key());
    }

    async fn pass(&mut self, caches: &Caches, snapshot: &CacheSnapshot) -> Result<PassOutcome, FollowError> {
        let Some(store) = self.store.clone() else {
            self.known.take_unjudged();
            self.publish(caches);
            return Ok(PassOutcome::Settled(Vec::new()));
        };
        let store = &*store;
        let (mut wrote, mut stuck) = (None, None);
        for name in self.known.take_unjudged() {
            yield_now().await;
            match self.accept(store, snapshot, &name).await {
                Ok(written) => wrote = written.or(wrote),
                Err(error) => {
                    self.known.recheck(name);
                    stuck = stuck.or(Some(error));
                }
            }
        }
        // Before the cleanup: terminating types accept no creates, so that the cleanup comes to an end.
        self.publish(caches);
        let mut blocking = Vec::new();
        for name in self.known.awaiting_cleanup() {
            match self.clean_up(store, caches, snapshot, &name).await {
                Ok(CleanedUp { wrote: written, held }) => {
                    wrote = written.or(wrote);
                    blocking.extend(held);
                }
                // Its later version shows at a later position.
                Err(FollowError::Changed) => wrote = wrote.max(Some(snapshot.resource_version + 1)),
                Err(error) => stuck = stuck.or(Some(error)),
            }
        }
        match (stuck, wrote) {
            (Some(error), _) => Err(error),
            (None, Some(at)) => Ok(PassOutcome::Wrote(at)),
            (None, None) if self.known.has_unjudged() => Ok(PassOutcome::Wrote(snapshot.resource_version)),
            (None, None) => Ok(PassOutcome::Settled(blocking)),
        }
    }

    fn settle(&self, position: u64) {
        self.settled.reach(position);
    }

    fn failed(&self, error: &FollowError) {
        tracing::warn!(%error, delay = ?Self::RETRY_PAUSE, "CustomResourceDefinition sync failed");
    }
}

impl Follower {
    /// `in_effect`: definitions whose types are served already.
    pub(super) fn new(
        store: Option<Arc<dyn Store>>,
        registry: Arc<Live>,
        settled: Arc<SettledPosition>,
        ty: Arc<ResourceType>,
        in_effect: &Objects<Entry>,
    ) -> Self {
        // A predecessor that panicked may have published types.
        let types = registry.now();
        let mut known = KnownDefinitions::serving(&types);
        for entry in in_effect {
            if let Some(definition) = read(entry, &types) {
                known.take_over(definition, entry.resource_version(), &types);
            }
        }
        Self { store, registry, settled, ty, known }
    }

    /// Reads the current version of a definition.
    fn read(&mut self, entry: &Entry, position: u64) {
        let types = self.registry.now();
        match read(entry, &types) {
            Some(definition) => self.known.learn(definition, entry.resource_version(), position, &types),
            None => {
                tracing::warn!(key = entry.key(), "CustomResourceDefinition skipped");
                self.known.forget(entry.key());
            }
        }
    }

    /// Writes the status of a definition if it must change. Returns the position at which the write can be seen.
    async fn accept(
        &mut self,
        store: &dyn Store,
        snapshot: &CacheSnapshot,
        name: &str,
    ) -> Result<Option<u64>, FollowError> {
        // Deleted meanwhile. Below, `None` means that the status is up to date or the definition is terminating.
        let Some(entry) = snapshot.objects.get(name) else { return Ok(None) };
        let Some(accepted) = self.known.accept(name, &clock::now()) else { return Ok(None) };
        let mut object = decode(entry)?;
        accepted.write(&mut object);
        match replace(store, &self.ty, entry, Some(&object), None).await? {
            Some(written) => {
                self.read(&written.entry, written.resource_version);
                Ok(Some(written.resource_version))
            }
            // Another writer was first, or the cache does not have our own last write yet: both show at a later
            // position.
            None => {
                self.known.recheck(name.to_owned());
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
        store: &dyn Store,
        caches: &Caches,
        snapshot: &CacheSnapshot,
        name: &str,
    ) -> Result<CleanedUp, FollowError> {
        let none = CleanedUp { wrote: None, held: None };
        let Some(known) = self.known.get(name) else { return Ok(none) };
        let (key, revision) = (name.to_owned(), known.resource_version);
        let cause = WriteCause { ty: Arc::clone(&self.ty), key, revision };
        let held = clear(store, caches, known, &cause).await?;
        match (held, snapshot.objects.get(name)) {
            (Some(held), _) => Ok(CleanedUp { held: Some(held), ..none }),
            (None, Some(entry)) => Ok(CleanedUp { wrote: self.release(store, caches, entry).await?, ..none }),
            (None, None) => Ok(none),
        }
    }

    /// Removes the cleanup finalizer of a definition whose objects are deleted, and the definition itself unless it has
    /// other finalizers. Returns the position at which the write can be seen.
    async fn release(
        &mut self,
        store: &dyn Store,
        caches: &Caches,
        entry: &Arc<Entry>,
    ) -> Result<Option<u64>, FollowError> {
        let mut object = decode(entry)?;
        metadata::remove_finalizers(&mut object, &[CLEANUP]);
        let put = (!metadata::finalizers(&object).is_empty()).then_some(&object);
        if put.is_none() {
            // Before the write, so that no client that sees the definition deleted still finds its types.
            self.known.forget(entry.key());
            self.publish(caches);
        }
        let written = replace(store, &self.ty, entry, put, None).await;
        if put.is_none() && !matches!(written, Ok(Some(_))) {
            // The write failed or conflicted, so the definition is still stored: serve it again.
            self.read(entry, entry.resource_version());
        }
        // On a conflict, the other writer's version is above the one that was read.
        let at = written?.map_or_else(|| entry.resource_version() + 1, |written| written.resource_version);
        Ok(Some(at))
    }
}

/// Deletes the objects of a type for the sake of its terminating definition. If finalizers hold some of them, returns the
/// cache and the position of its snapshot.
async fn clear(
    store: &dyn Store,
    caches: &Caches,
    known: &KnownDefinition,
    cause: &WriteCause,
) -> Result<Option<(Reader, u64)>, FollowError> {
    let Some(ty) = known.definition.stored_type(&known.schema, known.defined_at) else { return Ok(None) };
    loop {
        let reader = caches.fresh(&ty).await?;
        let snapshot = reader.snapshot();
        let mut deleted = false;
        for entry in snapshot.objects.iter() {
            let mut object = decode(entry)?;
            if metadata::finalizers(&object).is_empty() {
                replace(store, &ty, entry, None, Some(cause)).await?;
                deleted = true;
            } else if !metadata::is_terminating(&object) {
                metadata::mark_terminating(&mut object, &clock::now(), 0);
                replace(store, &ty, entry, Some(&object), Some(cause)).await?;
                deleted = true;
            }
        }
        if !deleted {
            let left = !snapshot.objects.is_empty();
            return Ok(left.then_some((reader, snapshot.resource_version)));
        }
    }
}

/// Replaces `entry` with `put`, or deletes it. Returns `None` if another writer was first.
async fn replace(
    store: &dyn Store,
    ty: &Arc<ResourceType>,
    entry: &Arc<Entry>,
    put: Option<&Object>,
    cause: Option<&WriteCause>,
) -> Result<Option<WriteResult>, FollowError> {
    let put = put.map(|object| {
        let text = serde_json::to_vec(object).expect("a JSON object has a text");
        Draft::new(&ty.schema, &text).map_err(|_| FollowError::Unreadable)
    });
    match stored::replace_for(store, ty, entry, put.transpose()?, cause).await? {
        ReplaceOutcome::Done(written) => Ok(Some(written)),
        ReplaceOutcome::Late | ReplaceOutcome::Gone => Ok(None),
    }
}

/// Reads a definition; `None` if that is not possible.
fn read(entry: &Entry, types: &Registry) -> Option<Definition> {
    let definition = Definition::read(&decode(entry).ok()?)?;
    Some(if types.converts() { definition.converting() } else { definition })
}

fn decode(entry: &Entry) -> Result<Object, FollowError> {
    serde_json::from_slice(&entry.object()).map_err(|_| FollowError::Unreadable)
}
