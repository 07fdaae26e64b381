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

use self::follower::Follower;
use super::{passes, settled::SettledPosition};
use crate::{
    budget::OffWorkers,
    cacher::Caches,
    limits::FRESH_WAIT,
    registry::{Live, ResourceType},
    storage::Store,
    supervised::SupervisedTasks,
};

/// [`ResourceType::id`] of the definitions' type.
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Handle to the task that follows definitions.
pub(crate) struct DefinitionsHandle {
    /// `None` if another program writes the definitions' status: then this task only derives types.
    store: Option<Arc<dyn Store>>,
    caches: Arc<Caches>,
    registry: Arc<Live>,
    tasks: Arc<SupervisedTasks>,
    started: OnceLock<()>,
    /// Position up to which every definition is in effect.
    settled: Arc<SettledPosition>,
}

impl DefinitionsHandle {
    /// Does not start the task yet.
    pub(crate) fn new(
        store: Option<Arc<dyn Store>>,
        caches: Arc<Caches>,
        registry: Arc<Live>,
        tasks: Arc<SupervisedTasks>,
    ) -> Self {
        Self { store, caches, registry, tasks, started: OnceLock::new(), settled: Arc::default() }
    }

    /// Waits until all definitions stored now are in effect, at most 3 s ([`FRESH_WAIT`]); the deletion of many objects
    /// continues after that. Starts the task on first use, which needs a tokio runtime.
    pub(crate) async fn settle(&self) {
        let Some(ty) = definitions(&self.registry) else { return };
        self.started.get_or_init(|| {
            let (store, registry, settled, of) =
                (self.store.clone(), Arc::clone(&self.registry), Arc::clone(&self.settled), Arc::clone(&ty));
            let follower =
                move || Follower::new(store.clone(), Arc::clone(&registry), Arc::clone(&settled), Arc::clone(&of));
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
    pub(crate) fn are_known(&self) -> bool {
        self.started.get().is_none() || self.settled.is_known()
    }
}

fn definitions(registry: &Live) -> Option<Arc<ResourceType>> {
    registry.now().by_id(DEFINITIONS)
}

#[cfg(test)]
mod tests;
