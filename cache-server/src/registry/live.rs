//! The registry of a running server, which changes when CustomResourceDefinitions do.
//!
//! INVARIANT: who asks gets one state of all types and keeps it for the whole request; a change never shows in parts.

use std::sync::Arc;

use tokio::sync::watch;

use super::Registry;

/// The types that are served now. Cost of a look: one lock for the time of a reference count.
#[derive(Debug)]
pub struct Live {
    current: watch::Sender<Arc<Registry>>,
}

impl Live {
    /// Starts with `registry`.
    #[must_use]
    pub fn new(registry: Registry) -> Self {
        Self { current: watch::Sender::new(Arc::new(registry)) }
    }

    /// The types that are served now.
    #[must_use]
    pub fn now(&self) -> Arc<Registry> {
        Arc::clone(&self.current.borrow())
    }
}
