//! A TCP relay in front of a server: a test cuts all of its connections at once, or parts both sides for a while.
//!
//! INVARIANT: bytes pass unchanged in both directions until a cut, so TLS and HTTP/2 pass as well.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// The relay. It lives as long as the runtime.
#[derive(Clone, Debug)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<RelayState>,
}

#[derive(Debug)]
struct RelayState {
    server: SocketAddr,
    is_parted: AtomicBool,
    /// Number of cuts. A connection ends when it changes.
    cuts: watch::Sender<usize>,
    /// Number of connections that were cut.
    broken: AtomicUsize,
}

impl Relay {
    /// A relay to the server at `server`, on a port of its own.
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state =
            RelayState { server, is_parted: AtomicBool::new(false), cuts: watch::Sender::default(), broken: 0.into() };
        let shared = Arc::new(state);
        let relay = Self { address, shared: Arc::clone(&shared) };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // Subscribed before anything else happens, so that no cut misses it.
                let cuts = shared.cuts.subscribe();
                tokio::spawn(pass(Arc::clone(&shared), client, cuts));
            }
        });
        relay
    }

    /// Address that clients connect to.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Resets every open connection.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Resets every connection, open or new, until [`rejoin`](Self::rejoin).
    pub fn part(&self) {
        self.shared.is_parted.store(true, Ordering::SeqCst);
        self.cut();
    }

    /// Lets new connections pass again.
    pub fn rejoin(&self) {
        self.shared.is_parted.store(false, Ordering::SeqCst);
    }

    /// Number of open connections that were cut.
    pub fn broken(&self) -> usize {
        self.shared.broken.load(Ordering::SeqCst)
    }
}

/// Serves one connection until either side ends it, or a cut.
async fn pass(shared: Arc<RelayState>, mut client: TcpStream, mut cuts: watch::Receiver<usize>) {
    if shared.is_parted.load(Ordering::SeqCst) {
        // With zero linger, dropping the socket sends a RST instead of a FIN.
        let _ = client.set_zero_linger();
        return;
    }
    let Ok(mut server) = TcpStream::connect(shared.server).await else { return };
    let is_cut = tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => false,
        _ = cuts.changed() => true,
    };
    if is_cut {
        shared.broken.fetch_add(1, Ordering::SeqCst);
        for stream in [&client, &server] {
            let _ = stream.set_zero_linger();
        }
    }
}
