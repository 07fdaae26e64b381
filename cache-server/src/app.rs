//! The shared parts of a running server. Used as `Arc<App>`; after the start the parts change only behind their own
//! locks.

use std::sync::Arc;

use crate::{
    budget::{Crowd, Room, Work},
    cacher::Caches,
    config::Config,
    controllers::{definitions::DefinitionsHandle, namespaces::Namespaces},
    metrics::Metrics,
    registry::{Live, Registry},
    storage::{Storage, embedded::EmbeddedStorage},
    upstream::forward::Forwarder,
};

/// The parts of a running server.
pub struct App {
    /// Its settings.
    pub config: Config,
    /// The current resource types.
    pub registry: Arc<Live>,
    /// Follows the CustomResourceDefinitions and updates the registry.
    pub(crate) definitions: DefinitionsHandle,
    /// Finishes the deletion of namespaces.
    pub(crate) namespaces: Namespaces,
    /// The objects.
    pub storage: Arc<dyn Storage>,
    /// The watch caches in front of the storage.
    pub caches: Arc<Caches>,
    /// Memory budget of request bodies.
    pub(crate) room: Room,
    /// Concurrency limits of writes.
    pub(crate) work: Work,
    /// Passes requests to an upstream API server; `None` if this server keeps the objects itself.
    pub(crate) forwarder: Option<Arc<Forwarder>>,
    /// Metrics of the server.
    pub metrics: Metrics,
    /// Closes idle connections while connection slots are short.
    pub(crate) crowd: Crowd,
}

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
    pub fn with_storage(config: Config, storage: Arc<dyn Storage>) -> Self {
        assert!(members_are_sorted(), "serde_json is built with its feature preserve_order");
        let caches = Arc::new(Caches::new(Arc::clone(&storage), config.limits.clone()));
        let registry = Arc::new(Live::new(Registry::builtin()));
        let definitions = DefinitionsHandle::new(Arc::clone(&storage), Arc::clone(&caches), Arc::clone(&registry));
        let namespaces = Namespaces::new(Arc::clone(&storage), &caches, Arc::clone(&registry));
        let metrics = Metrics::new(Arc::clone(&registry));
        let (room, work, crowd) = (Room::of_server(), Work::default(), Crowd::new());
        let forwarder = None;
        Self { config, registry, definitions, namespaces, storage, caches, room, work, forwarder, metrics, crowd }
    }

    /// Reads the stored definitions and follows them from now on. Call before serving requests.
    pub async fn start(&self) {
        self.definitions.settle().await;
    }
}

/// Returns true unless `serde_json` keeps members in insertion order.
fn members_are_sorted() -> bool {
    let read = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(r#"{"b":0,"a":0}"#);
    read.is_ok_and(|members| members.keys().next().is_some_and(|first| first == "a"))
}
