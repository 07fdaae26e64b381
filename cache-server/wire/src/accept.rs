//! The loop of connections: accepts them while the server runs, and ends them when it shuts down.

use std::{pin::pin, sync::Arc};

use tokio::{
    sync::{Semaphore, watch},
    task::{JoinError, JoinSet},
    time::{Duration, Instant, sleep, timeout_at},
};

use crate::{
    addresses::AddressShares,
    budget::Crowd,
    connection::AcceptedConnection,
    handler::{ConnectionShared, Handler, UnusedCount},
    listeners::Listeners,
};

/// The connections that are open after the listeners were closed. Dropping it closes them.
pub struct OpenConnections {
    tasks: JoinSet<()>,
    closing: Option<watch::Sender<()>>,
    unused: UnusedCount,
}

/// Serves the connections of `listeners` until `shutdown` resolves. Then nothing listens any more.
pub async fn serve<H: Handler>(
    listeners: Listeners,
    shared: ConnectionShared<H>,
    shutdown: impl Future<Output = ()>,
) -> OpenConnections {
    let shared = Arc::new(shared);
    let (closing, closed) = watch::channel(());
    let (mut tasks, unused) = (JoinSet::new(), UnusedCount::default());
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
                let (slot, unused) = ((slot, place), unused.enter());
                tasks.spawn(AcceptedConnection { shared, end, closed, slot, unused }.run(stream));
            }
        }
    }
    OpenConnections { tasks, closing: Some(closing), unused }
}

impl OpenConnections {
    /// Number of open connections.
    pub fn count(&self) -> usize {
        self.tasks.len()
    }

    /// Waits until each connection has brought a request, at most for `wait`: its client might take the end of one that has
    /// not for a refusal.
    pub async fn used(&self, wait: Duration) {
        let deadline = Instant::now() + wait;
        while 0 < self.unused.get() && Instant::now() < deadline {
            sleep(UNUSED_CHECK_EVERY).await;
        }
    }

    /// Lets each client end its connection: over HTTP/2, within [`GOODBYES_SPREAD`](crate::http2::GOODBYES_SPREAD), after the open requests, over HTTP/1.1 with the next answer, which
    /// says so. A client that sends a request meanwhile gets its answer.
    pub fn leave(&self) {
        // An error means that no connection is open.
        let _ = self.closing.as_ref().map(|closing| closing.send(()));
    }

    /// Waits until all connections have ended. Returns false if some are still open at `deadline`.
    pub async fn ended(&mut self, deadline: Instant) -> bool {
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        timeout_at(deadline, ended).await.is_ok()
    }

    /// Ends each connection after its open requests. Returns false if some are still open at `deadline`.
    pub async fn drained(&mut self, deadline: Instant) -> bool {
        // Connections take the end of the channel for the end of the server.
        self.closing = None;
        self.ended(deadline).await
    }
}

/// Pause between two checks of unused connections.
const UNUSED_CHECK_EVERY: Duration = Duration::from_millis(2);

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "connection task failed");
    }
}

#[cfg(test)]
pub mod tests;
