//! The phases of serving a connection.

use std::pin::Pin;

/// One phase of serving a connection; resolves to the next phase.
pub struct ConnectionPhase(pub Pin<Box<dyn Future<Output = hyper::Result<Option<Self>>> + Send>>);

impl ConnectionPhase {
    /// Boxes `doing` as a phase.
    pub fn new(doing: impl Future<Output = hyper::Result<Option<Self>>> + Send + 'static) -> Self {
        Self(Box::pin(doing))
    }
}
