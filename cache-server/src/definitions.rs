//! Follows the CustomResourceDefinitions that are stored, whoever wrote them: gives them their status, serves the types
//! they make, and clears up after those that are deleted.
//!
//! INVARIANT: a definition takes effect by being stored, and in no other way: one task reads them from the cache of their
//! type, so what works at run time works at the start and for every storage. INVARIANT: that task alone decides which
//! names are accepted, one definition after the other.
//!
//! Source: apiextensions-apiserver `pkg/apiserver/customresource_handler.go`, `pkg/controller/{status,finalizer}`.

mod follower;

use std::sync::{Arc, OnceLock};

use tokio::time::timeout;

use self::follower::Follower;
use crate::{
    cacher::Caches,
    limits::FRESH_WAIT,
    registry::{Live, ResourceType},
    storage::Storage,
};

/// The type of definitions, by its [`ResourceType::id`].
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// The task that follows definitions, and who waits for it.
pub(crate) struct Definitions {
    storage: Arc<dyn Storage>,
    caches: Arc<Caches>,
    registry: Arc<Live>,
    started: OnceLock<()>,
}

impl Definitions {
    /// Starts nothing yet.
    pub(crate) const fn new(storage: Arc<dyn Storage>, caches: Arc<Caches>, registry: Arc<Live>) -> Self {
        Self { storage, caches, registry, started: OnceLock::new() }
    }

    /// Waits until all definitions that are stored now are in effect, at most 3 s: a deletion of many objects goes on
    /// after that. Starts the task on first use, which needs a tokio runtime.
    pub(crate) async fn settle(&self) {
        let Some(ty) = definitions(&self.registry) else { return };
        self.started.get_or_init(|| {
            let follower =
                Follower::new(Arc::clone(&self.storage), Arc::downgrade(&self.caches), Arc::clone(&self.registry));
            tokio::spawn(follower.run());
        });
        let settled = async {
            if let Ok(reader) = self.caches.fresh(&ty).await {
                self.registry.settled(reader.applied()).await;
            }
        };
        if timeout(FRESH_WAIT, settled).await.is_err() {
            tracing::warn!("definitions are not in effect yet");
        }
    }

    /// Whether what is stored was looked at. Before the task was started there is nothing that anybody waits for.
    pub(crate) fn are_known(&self) -> bool {
        self.started.get().is_none() || self.registry.is_settled()
    }
}

fn definitions(registry: &Live) -> Option<Arc<ResourceType>> {
    registry.now().by_id(DEFINITIONS)
}

#[cfg(test)]
mod tests;
