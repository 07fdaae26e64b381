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
    /// The position up to which every definition is in effect; zero before the first look at them.
    settled: watch::Sender<u64>,
}

impl Live {
    /// Starts with `registry`.
    #[must_use]
    pub fn new(registry: Registry) -> Self {
        Self { current: watch::Sender::new(Arc::new(registry)), settled: watch::Sender::new(0) }
    }

    /// The types that are served now.
    #[must_use]
    pub fn now(&self) -> Arc<Registry> {
        Arc::clone(&self.current.borrow())
    }

    /// Serves these from now on.
    pub(crate) fn replace(&self, registry: Registry) {
        self.current.send_replace(Arc::new(registry));
    }

    /// Everything that was defined up to `position` is served.
    pub(crate) fn settle(&self, position: u64) {
        self.settled.send_replace(position);
    }

    /// Whether the definitions were looked at.
    pub(crate) fn is_settled(&self) -> bool {
        *self.settled.borrow() > 0
    }

    /// Waits until everything that was defined up to `position` is served. Cancel safe.
    pub(crate) async fn settled(&self, position: u64) {
        let mut settled = self.settled.subscribe();
        // The sender is ours, so there is no error.
        let _ = settled.wait_for(|&settled| position <= settled).await;
    }
}
