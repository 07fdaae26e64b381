//! A server over a store of its own, by default one in memory.

use std::sync::Arc;

use super::{App, ControllerDuty, LocalWrites, Writes};
use crate::{
    cacher::Caches,
    config::Config,
    controllers::namespaces::Namespaces,
    storage::{Store, StoreFile, embedded::EmbeddedStorage},
    watched::FileWatcher,
    webhooks::converting,
};

impl App {
    /// Builds the parts: built-in types over the embedded store. Starts no task: each type's cache starts with its
    /// first reader, and the follower of definitions with [`Self::start`] or the first definition.
    ///
    /// # Panics
    /// Like [`Self::with_storage`].
    #[must_use]
    pub fn new(config: Config) -> Self {
        let storage = Arc::new(EmbeddedStorage::new(config.first_revision));
        Self::with_storage(config, storage)
    }

    /// Like [`Self::new`], over another storage.
    ///
    /// # Panics
    /// If any crate enables the `preserve_order` feature of `serde_json`: then members are not in the order in which
    /// objects are compared, and no-op updates would be written.
    #[must_use]
    pub fn with_storage(config: Config, store: Arc<dyn Store>) -> Self {
        Self::local_on(config, store, None)
    }

    pub(super) fn local_on(config: Config, store: Arc<dyn Store>, file: Option<Arc<dyn StoreFile>>) -> Self {
        let store = converting::over(&config, store);
        let caches = Caches::new(store.clone() as _, config.limits.clone());
        Self::local_with(config, store, caches, ControllerDuty::Alone { file })
    }

    pub(super) fn local_with(config: Config, store: Arc<dyn Store>, caches: Caches, duty: ControllerDuty) -> Self {
        Self::assemble(config, caches, FileWatcher::default(), |caches, registry, tasks| {
            let namespaces = Namespaces::new(Arc::clone(&store), caches, Arc::clone(registry), Arc::clone(tasks));
            let namespaces = match duty {
                ControllerDuty::None => namespaces.idle(),
                ControllerDuty::Alone { .. } | ControllerDuty::Shared => namespaces,
            };
            Writes::Local(LocalWrites { store, namespaces, duty })
        })
    }
}
