//! The loop of connections: accepts them while the server runs, and ends them when it shuts down.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::{JoinError, JoinSet},
    time::{Duration, Instant, sleep, timeout_at},
};

use crate::{
    addresses::AddressShares,
    budget::Crowd,
    connection::AcceptedConnection,
    handler::{ConnectionShared, Handler, OWED_CHECK_EVERY, OwedCount},
    listeners::{AcceptedStream, Listeners, RemoteEnd},
    phase::ServerPhase,
};

/// Lets a server take leave of its connections.
#[derive(Debug, Default)]
pub struct ConnectionGate {
    phase: watch::Sender<ServerPhase>,
    owed: OwedCount,
}

impl ConnectionGate {
    /// Lets each client end its connection: over HTTP/2, within [`GOODBYES_SPREAD`](crate::http2::GOODBYES_SPREAD), after
    /// the open requests, over HTTP/1.1 with the next answer, which says so. A client that sends a request meanwhile gets
    /// its answer, and further connections are accepted.
    pub fn leave(&self) {
        self.advance(ServerPhase::Leaving);
    }

    /// Ends each connection after its open requests. Further ones wait in the listen queue, if this is called by the task
    /// that accepts them.
    pub fn close(&self) {
        self.advance(ServerPhase::Left);
    }

    fn advance(&self, to: ServerPhase) {
        self.phase.send_if_modified(|phase| {
            let is_earlier = *phase < to;
            *phase = to.max(*phase);
            is_earlier
        });
    }

    /// Accepts connections again. Those that were about to end do.
    pub fn reopen(&self) {
        self.phase.send_replace(ServerPhase::Serving);
    }

    fn has_left(&self) -> bool {
        *self.phase.borrow() == ServerPhase::Left
    }

    /// Waits until each client has its answer, and each connection has brought a request; at most for `wait`.
    pub async fn answered(&self, wait: Duration) {
        let deadline = Instant::now() + wait;
        // Requests that were on their way arrive first.
        sleep(OWED_CHECK_EVERY).await;
        while 0 < self.owed.get() && Instant::now() < deadline {
            sleep(OWED_CHECK_EVERY).await;
        }
    }
}

/// The connections that are open after the listeners were closed. Dropping it closes them.
pub struct OpenConnections {
    tasks: JoinSet<()>,
    gate: Arc<ConnectionGate>,
}

/// Serves the connections of `listeners` until `shutdown` resolves. Then nothing listens any more.
pub async fn serve<H: Handler>(
    listeners: Listeners,
    shared: ConnectionShared<H>,
    gate: Arc<ConnectionGate>,
    shutdown: impl Future<Output = ()>,
) -> OpenConnections {
    let shared = Arc::new(shared);
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
            (stream, end, slot) = accept_unless_left(&listeners, &slots, &gate) => {
                note_crowd();
                // With the slot of this connection.
                let free = slots.available_permits() + 1;
                // Without a place, the connection is closed at once.
                let Some(place) = addresses.enter(end.address(), free) else { continue };
                let (shared, closed) = (Arc::clone(&shared), gate.phase.subscribe());
                let (slot, unused) = ((slot, place), gate.owed.enter());
                tasks.spawn(AcceptedConnection { shared, end, closed, slot, unused }.run(stream));
            }
        }
    }
    OpenConnections { tasks, gate }
}

impl OpenConnections {
    /// Number of open connections.
    pub fn count(&self) -> usize {
        self.tasks.len()
    }

    /// See [`ConnectionGate::leave`].
    pub fn leave(&self) {
        self.gate.leave();
    }

    /// Waits until all connections have ended. Returns false if some are still open at `deadline`.
    pub async fn ended(&mut self, deadline: Instant) -> bool {
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        timeout_at(deadline, ended).await.is_ok()
    }

    /// Ends each connection after its open requests. Returns false if some are still open at `deadline`.
    pub async fn drained(&mut self, deadline: Instant) -> bool {
        self.gate.close();
        self.ended(deadline).await
    }
}

/// Accepts the next connection. Stops, even while it is polled, once the server has left.
async fn accept_unless_left(
    listeners: &Listeners,
    slots: &Arc<Semaphore>,
    gate: &ConnectionGate,
) -> (AcceptedStream, RemoteEnd, OwnedSemaphorePermit) {
    let mut accept = pin!(listeners.accept(slots));
    poll_fn(|cx| if gate.has_left() { Poll::Pending } else { accept.as_mut().poll(cx) }).await
}

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "connection task failed");
    }
}

#[cfg(test)]
pub mod tests;
