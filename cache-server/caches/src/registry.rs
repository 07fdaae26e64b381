//! The registry of a running server, replaced when CustomResourceDefinitions change.
//!
//! INVARIANT: a request uses one snapshot of all types throughout, and a change is visible all at once.

use std::sync::Arc;

use tokio::sync::watch;

pub use api_rules::registry::*;

/// The current registry. Cost of a read: one lock, held to increment a reference count.
#[derive(Debug)]
pub struct Live {
    current: watch::Sender<Arc<Registry>>,
    /// Values that other modules derive from the types, such as documents that describe them.
    pub derived: Arc<DerivedValues>,
}

impl Live {
    /// Starts with `registry`.
    #[must_use]
    pub fn new(registry: Registry) -> Self {
        Self { current: watch::Sender::new(Arc::new(registry)), derived: Arc::default() }
    }

    /// Starts with `types`, which this registry has or had. Both share the derived values.
    #[must_use]
    pub fn beside(&self, types: Arc<Registry>) -> Self {
        Self { current: watch::Sender::new(types), derived: Arc::clone(&self.derived) }
    }

    /// The current registry.
    #[must_use]
    pub fn now(&self) -> Arc<Registry> {
        Arc::clone(&self.current.borrow())
    }

    /// Replaces the current registry.
    pub fn replace(&self, registry: Registry) {
        self.current.send_replace(Arc::new(registry));
    }
}
