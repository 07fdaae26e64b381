//! The network of one endpoint: connections that break, fall silent, or lead to another server.
//!
//! INVARIANT: bytes pass unchanged and in order until a connection ends or falls silent.

use std::{
    future::pending,
    io,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{
    io::{DuplexStream, copy_bidirectional, duplex},
    sync::watch,
    time::sleep,
};

use crate::{ServerConnection, testing::FakeApiServer, transport::piped_connection};

/// Bytes that a pipe holds.
const PIPE_BYTES: usize = 64 << 10;

/// Time that a connection takes to open, in which other requests come.
const OPENING: Duration = Duration::from_millis(10);

/// A name that leads to one of several servers. Clones share the network.
#[derive(Clone)]
pub(super) struct PipeEndpoint {
    servers: Arc<[FakeApiServer]>,
    state: Arc<Mutex<PipeNetwork>>,
    orders: watch::Sender<PipeOrder>,
}

#[derive(Default)]
struct PipeNetwork {
    /// Index of the server that new connections lead to.
    leads_to: usize,
    is_refusing: bool,
    opened: usize,
}

/// Orders to all connections. Each is a count: connections obey its changes.
#[derive(Clone, Copy, Default)]
struct PipeOrder {
    cuts: usize,
    silences: usize,
}

impl PipeEndpoint {
    pub(super) fn new(servers: Vec<FakeApiServer>) -> Self {
        Self { servers: servers.into(), state: Arc::default(), orders: watch::Sender::default() }
    }

    pub(super) fn connection(&self) -> ServerConnection {
        let endpoint = self.clone();
        piped_connection(move || endpoint.clone().open())
    }

    /// Every server that the name led to or may lead to.
    pub(super) fn servers(&self) -> &[FakeApiServer] {
        &self.servers
    }

    /// The server that new connections lead to.
    pub(super) fn server(&self) -> &FakeApiServer {
        &self.servers[self.state().leads_to]
    }

    /// Connections opened so far.
    pub(super) fn opened(&self) -> usize {
        self.state().opened
    }

    /// Breaks every open connection.
    pub(super) fn cut(&self) {
        self.orders.send_modify(|orders| orders.cuts += 1);
    }

    /// Stops all bytes of the open connections for ever. Neither side learns of it.
    pub(super) fn silence(&self) {
        self.orders.send_modify(|orders| orders.silences += 1);
    }

    /// Refuses new connections, or accepts them again.
    pub(super) fn refuse(&self, refuses: bool) {
        self.state().is_refusing = refuses;
    }

    /// Lets the name lead to the next server. Open connections stay.
    pub(super) fn lead_on(&self) {
        let mut state = self.state();
        state.leads_to = (state.leads_to + 1) % self.servers.len();
    }

    fn state(&self) -> MutexGuard<'_, PipeNetwork> {
        self.state.lock().expect("no panic under the lock")
    }

    async fn open(self) -> io::Result<DuplexStream> {
        sleep(OPENING).await;
        let server = {
            let mut state = self.state();
            if state.is_refusing {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            state.opened += 1;
            self.servers[state.leads_to].clone()
        };
        let (near, near_end) = duplex(PIPE_BYTES);
        let (far_end, far) = duplex(PIPE_BYTES);
        tokio::spawn(carry(near_end, far_end, self.orders.subscribe()));
        // It ends with the connection, and a broken one is no surprise.
        tokio::spawn(async move { server.serve_connection(far).await });
        Ok(near)
    }
}

/// Passes bytes between both sides until one ends, a cut, or a silence, after which only a cut ends it.
async fn carry(mut near: DuplexStream, mut far: DuplexStream, orders: watch::Receiver<PipeOrder>) {
    let PipeOrder { cuts, silences } = *orders.borrow();
    let passing = async {
        tokio::select! { biased;
            () = until(orders.clone(), |orders| orders.silences != silences) => pending().await,
            _ = copy_bidirectional(&mut near, &mut far) => {}
        }
    };
    tokio::select! { biased;
        () = until(orders.clone(), |orders| orders.cuts != cuts) => {}
        () = passing => {}
    }
}

/// Waits for an order.
async fn until(mut orders: watch::Receiver<PipeOrder>, is_given: impl FnMut(&PipeOrder) -> bool) {
    if orders.wait_for(is_given).await.is_err() {
        pending::<()>().await;
    }
}
