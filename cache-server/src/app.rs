//! What every request works with. Shared as `Arc<App>`; nothing in it changes after the start except behind its own
//! locks.

use std::sync::Arc;

use crate::{
    cacher::Caches,
    config::Config,
    definitions::Definitions,
    http::{Room, Work, openapi::Documents},
    metrics::Metrics,
    namespaces::Namespaces,
    registry::{Live, Registry},
    serve::crowd::Crowd,
    storage::{Storage, embedded::Embedded},
};

/// The parts of a running server.
pub struct App {
    /// What it was told.
    pub config: Config,
    /// Which resource types exist, which changes while it runs.
    pub registry: Arc<Live>,
    /// What keeps it so.
    pub(crate) definitions: Definitions,
    /// What ends the namespaces that are deleted.
    pub(crate) namespaces: Namespaces,
    /// Where the truth is.
    pub storage: Arc<dyn Storage>,
    /// The watch caches in front of it.
    pub caches: Arc<Caches>,
    /// What clients learn of types, as far as they asked.
    pub(crate) openapi: Documents,
    /// For the bodies of requests.
    pub(crate) room: Room,
    /// Turns of writes.
    pub(crate) work: Work,
    /// What operators see.
    pub metrics: Metrics,
    /// Tells idle connections when to leave.
    pub(crate) crowd: Crowd,
}

impl App {
    /// Builds the parts: built-in types over the embedded store. Starts nothing: each type's cache starts with its
    /// first reader, and what follows definitions with [`Self::start`] or the first definition.
    ///
    /// # Panics
    /// As [`Self::with_storage`].
    #[must_use]
    pub fn new(config: Config) -> Self {
        let storage = Arc::new(Embedded::new(config.first_revision));
        Self::with_storage(config, storage)
    }

    /// [`Self::new`] over another storage.
    ///
    /// # Panics
    /// When `serde_json` is built with `preserve_order`, by whatever crate: then members are not in the order in which objects
    /// are compared, and updates that change nothing would be written.
    #[must_use]
    pub fn with_storage(config: Config, storage: Arc<dyn Storage>) -> Self {
        assert!(members_are_sorted(), "serde_json is built with its feature preserve_order");
        let caches = Arc::new(Caches::new(Arc::clone(&storage), config.limits.clone()));
        let registry = Arc::new(Live::new(Registry::builtin()));
        let definitions = Definitions::new(Arc::clone(&storage), Arc::clone(&caches), Arc::clone(&registry));
        let namespaces = Namespaces::new(Arc::clone(&storage), &caches, Arc::clone(&registry));
        let (openapi, metrics) = (Documents::default(), Metrics::new(Arc::clone(&registry)));
        let (room, work, crowd) = (Room::of_server(), Work::default(), Crowd::new());
        Self { config, registry, definitions, namespaces, storage, caches, openapi, room, work, metrics, crowd }
    }

    /// Reads the definitions that are stored, and follows them from now on. To be called before anything is served.
    pub async fn start(&self) {
        self.definitions.settle().await;
    }
}

/// True unless `serde_json` keeps members in the order they came in.
fn members_are_sorted() -> bool {
    let read = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(r#"{"b":0,"a":0}"#);
    read.is_ok_and(|members| members.keys().next().is_some_and(|first| first == "a"))
}
