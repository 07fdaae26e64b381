//! Follows the stored CustomResourceDefinitions, regardless of their writer, and serves their types. Where writes are
//! local, also writes their status and deletes the objects of deleted definitions.
//!
//! INVARIANT: a definition takes effect only by being stored: one task reads them from the cache of their type, so
//! definitions written at run time, before the start and by any storage take the same path.
//! INVARIANT: an object is deleted only because of its own definition, in a write that fails unless the definition is still
//! at the version that is terminating. Objects that are stored when a definition is established belong to it.
//! INVARIANT: only that task decides which names are accepted, one definition at a time.
//!
//! Source: apiextensions-apiserver `pkg/apiserver/customresource_handler.go`, `pkg/controller/{status,finalizer}`.

mod follower;

use std::sync::{Arc, OnceLock};

use cache_server_caches::{
    budget::OffWorkers,
    cacher::Caches,
    limits::FRESH_WAIT,
    passes,
    registry::{Live, ResourceType},
    settled::SettledPosition,
    storage::Store,
    supervised::SupervisedTasks,
};
use informer_core::Objects;
use watch_cache::Entry;

use self::follower::Follower;
use crate::namespaces::DeletionMark;

/// [`ResourceType::id`] of the definitions' type.
pub const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Handle to the task that follows definitions.
pub struct DefinitionsHandle {
    /// `None` if another program writes the definitions' status: then this task only derives types.
    store: Option<Arc<dyn Store>>,
    caches: Arc<Caches>,
    registry: Arc<Live>,
    tasks: Arc<SupervisedTasks>,
    started: OnceLock<()>,
    /// Definitions whose types were served before the task started.
    in_effect: Objects<Entry>,
    /// Position up to which every definition is in effect.
    settled: Arc<SettledPosition>,
}

impl DefinitionsHandle {
    /// Does not start the task yet.
    pub fn new(
        store: Option<Arc<dyn Store>>,
        caches: Arc<Caches>,
        registry: Arc<Live>,
        tasks: Arc<SupervisedTasks>,
    ) -> Self {
        let (started, in_effect, settled) = Default::default();
        Self { store, caches, registry, tasks, started, in_effect, settled }
    }

    /// Takes over the definitions that were stored with the present types, of which those up to the position `in_effect`
    /// had taken effect. Returns true if nothing is left to do for them: then the task starts with the next definition.
    pub fn take_over(&mut self, stored: &Objects<Entry>, in_effect: u64) -> bool {
        let is_left = |entry: &Entry| in_effect < entry.resource_version() || DeletionMark::of(entry).is_some();
        let is_settled = !stored.iter().any(|entry| is_left(entry));
        if is_settled {
            self.settled.reach(in_effect.max(1));
            self.in_effect = stored.clone();
        }
        is_settled
    }

    /// Position up to which every definition is in effect; zero before the task runs.
    pub fn settled_at(&self) -> u64 {
        self.settled.position()
    }

    /// Waits until all definitions stored now are in effect, at most 3 s ([`FRESH_WAIT`]); the deletion of many objects
    /// continues after that. Starts the task on first use, which needs a tokio runtime.
    pub async fn settle(&self) {
        let Some(ty) = definitions(&self.registry) else { return };
        self.started.get_or_init(|| {
            let (store, registry, settled, of) =
                (self.store.clone(), Arc::clone(&self.registry), Arc::clone(&self.settled), Arc::clone(&ty));
            let in_effect = self.in_effect.clone();
            let follower = move || {
                let (registry, settled) = (Arc::clone(&registry), Arc::clone(&settled));
                Follower::new(store.clone(), registry, settled, Arc::clone(&of), &in_effect)
            };
            let mut task = passes::restartable(follower, Arc::downgrade(&self.caches), Arc::clone(&ty));
            // A large definition is decoded several times in one poll.
            self.tasks.spawn("definitions", move || OffWorkers::new(task()));
        });
        if self.settled.wait(&self.caches, &ty).await.is_err() {
            tracing::warn!(timeout = ?FRESH_WAIT, "CustomResourceDefinition wait timed out");
        }
    }

    /// True if the task has processed all definitions that were stored at its start, or has not been started: no request
    /// waits for it then.
    pub fn are_known(&self) -> bool {
        self.started.get().is_none() || self.settled.is_known()
    }
}

fn definitions(registry: &Live) -> Option<Arc<ResourceType>> {
    registry.now().by_id(DEFINITIONS)
}
