//! The phases of serving a connection.

use std::pin::Pin;

use tokio::sync::watch;

/// Relation of a server to its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerPhase {
    #[default]
    Serving,
    /// Each connection ends soon, though not before it has brought a request: its client comes again by another one.
    Leaving,
    /// No connection brings further requests, and none is accepted.
    Left,
}

/// Resolves once no connection brings further requests.
pub async fn has_left(phase: &mut watch::Receiver<ServerPhase>) {
    // An error means that the server was dropped.
    let _ = phase.wait_for(|phase| *phase == ServerPhase::Left).await;
}

/// One phase of serving a connection; resolves to the next phase.
pub struct ConnectionPhase(pub Pin<Box<dyn Future<Output = hyper::Result<Option<Self>>> + Send>>);

impl ConnectionPhase {
    /// Boxes `doing` as a phase.
    pub fn new(doing: impl Future<Output = hyper::Result<Option<Self>>> + Send + 'static) -> Self {
        Self(Box::pin(doing))
    }
}
