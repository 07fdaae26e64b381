//! The loop of connections: accepts them while the server runs, and ends them when it shuts down.

use std::{pin::pin, sync::Arc};

use tokio::{
    sync::{Semaphore, watch},
    task::{JoinError, JoinSet},
    time::{Instant, timeout_at},
};

use crate::{
    addresses::AddressShares,
    budget::Crowd,
    connection::AcceptedConnection,
    handler::{ConnectionShared, Handler},
    listeners::Listeners,
};

/// The connections that are open after the listeners were closed. Dropping it closes them.
pub struct OpenConnections {
    tasks: JoinSet<()>,
    closing: Option<watch::Sender<()>>,
}

/// Serves the connections of `listeners` until `shutdown` resolves. Then nothing listens any more.
pub async fn serve<H: Handler>(
    listeners: Listeners,
    shared: ConnectionShared<H>,
    shutdown: impl Future<Output = ()>,
) -> OpenConnections {
    let shared = Arc::new(shared);
    let (closing, closed) = watch::channel(());
    let mut tasks = JoinSet::new();
    let connections_max = shared.settings.connections_max;
    let (slots, addresses) = (Arc::new(Semaphore::new(connections_max)), Arc::<AddressShares>::default());
    // Idle connections have to make room while few slots are free.
    let note_crowd = || addresses.note_crowded(Crowd::is_near(&slots, connections_max));
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            // Before further ones are accepted: their results stay in memory until they are taken.
            Some(ended) = tasks.join_next() => {
                report(ended);
                note_crowd();
            }
            (stream, end, slot) = listeners.accept(&slots) => {
                note_crowd();
                // With the slot of this connection.
                let free = slots.available_permits() + 1;
                // Without a place, the connection is closed at once.
                let Some(place) = addresses.enter(end.address(), free) else { continue };
                let (shared, closed) = (Arc::clone(&shared), closed.clone());
                tasks.spawn(AcceptedConnection { shared, end, closed, slot: (slot, place) }.run(stream));
            }
        }
    }
    OpenConnections { tasks, closing: Some(closing) }
}

impl OpenConnections {
    /// Number of open connections.
    pub fn count(&self) -> usize {
        self.tasks.len()
    }

    /// Ends each connection after its open requests. Returns false if some are still open at `deadline`.
    pub async fn drained(&mut self, deadline: Instant) -> bool {
        // Connections take the end of the channel for the end of the server.
        self.closing = None;
        let drained = async { while self.tasks.join_next().await.is_some() {} };
        timeout_at(deadline, drained).await.is_ok()
    }
}

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "connection task failed");
    }
}

#[cfg(test)]
pub mod tests;
