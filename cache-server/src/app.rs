//! What every request works with. Shared as `Arc<App>`; nothing in it changes after the start except behind its own
//! locks.

use std::sync::Arc;

use crate::{
    cacher::Caches,
    config::Config,
    metrics::Metrics,
    registry::{Live, Registry},
    storage::{Storage, embedded::Embedded},
};

/// The parts of a running server.
pub struct App {
    /// What it was told.
    pub config: Config,
    /// Which resource types exist, which changes while it runs.
    pub registry: Live,
    /// Where the truth is.
    pub storage: Arc<dyn Storage>,
    /// The watch caches in front of it.
    pub caches: Caches,
    /// What operators see.
    pub metrics: Metrics,
}

impl App {
    /// Builds the parts: built-in types over the embedded store. Starts nothing: each type's cache starts with its
    /// first reader.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let storage: Arc<dyn Storage> = Arc::new(Embedded::new(config.first_revision));
        let caches = Caches::new(Arc::clone(&storage), config.limits.clone());
        Self { config, registry: Live::new(Registry::builtin()), storage, caches, metrics: Metrics::new() }
    }
}
