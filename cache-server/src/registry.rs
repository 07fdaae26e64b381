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
    /// Position up to which every definition is in effect; zero before the first pass over the definitions.
    settled: watch::Sender<u64>,
    /// Values that other modules derive from the types, such as documents that describe them.
    pub derived: DerivedValues,
}

impl Live {
    /// Starts with `registry`.
    #[must_use]
    pub fn new(registry: Registry) -> Self {
        Self {
            current: watch::Sender::new(Arc::new(registry)),
            settled: watch::Sender::new(0),
            derived: DerivedValues::default(),
        }
    }

    /// The current registry.
    #[must_use]
    pub fn now(&self) -> Arc<Registry> {
        Arc::clone(&self.current.borrow())
    }

    /// Replaces the current registry.
    pub(crate) fn replace(&self, registry: Registry) {
        self.current.send_replace(Arc::new(registry));
    }

    /// Records that every definition written up to `position` is in effect.
    pub(crate) fn settle(&self, position: u64) {
        self.settled.send_replace(position);
    }

    /// True after the first pass over the definitions.
    pub(crate) fn is_settled(&self) -> bool {
        *self.settled.borrow() > 0
    }

    /// Waits until every definition written up to `position` is in effect. Cancel safe.
    pub(crate) async fn settled(&self, position: u64) {
        let mut settled = self.settled.subscribe();
        // The sender is a field of `self`, so it is open.
        let _ = settled.wait_for(|&settled| position <= settled).await;
    }
}
