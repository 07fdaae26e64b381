//! A TCP relay in front of a server: a test loses the network between both sides, or resets connections.
//!
//! INVARIANT: bytes pass unchanged and in order until a connection ends, so TLS and HTTP/2 pass as well. Bytes of a
//! silence arrive after it.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
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
    server: Mutex<SocketAddr>,
    network: watch::Sender<Network>,
    /// Number of connections that were cut.
    broken: AtomicUsize,
    /// Number of connections that are open.
    open: AtomicUsize,
    /// Text of clients that begins a silence.
    silenced_by: Mutex<Option<&'static str>>,
}

/// State of the network between the clients and the server.
#[derive(Clone, Copy, Debug, Default)]
struct Network {
    is_silent: bool,
    is_refusing: bool,
    /// Number of cuts. A connection ends when it changes.
    cuts: usize,
}

impl Relay {
    /// A relay to the server at `server`, on a port of its own.
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(RelayState {
            server: Mutex::new(server),
            network: watch::Sender::default(),
            broken: 0.into(),
            open: 0.into(),
            silenced_by: Mutex::default(),
        });
        let relay = Self { address, shared: Arc::clone(&shared) };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // Subscribed before anything else happens, so that no cut misses it.
                let network = shared.network.subscribe();
                tokio::spawn(serve(Arc::clone(&shared), client, network));
            }
        });
        relay
    }

    /// Address that clients connect to.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connects later clients to another server.
    pub fn lead_to(&self, server: SocketAddr) {
        *self.shared.server.lock().unwrap() = server;
    }

    /// Resets every open connection.
    pub fn cut(&self) {
        self.shared.network.send_modify(|network| network.cuts += 1);
    }

    /// Resets every connection, open or new, until [`rejoin`](Self::rejoin).
    pub fn part(&self) {
        self.shared.network.send_modify(|network| {
            network.is_refusing = true;
            network.cuts += 1;
        });
    }

    /// Stops all bytes until [`rejoin`](Self::rejoin), and no connection ends. Later connections are accepted, and
    /// nothing answers them.
    pub fn silence(&self) {
        self.shared.network.send_modify(|network| network.is_silent = true);
    }

    /// Begins a [`silence`](Self::silence) when a client sends this text, which does not pass before the end of it.
    pub fn silence_at(&self, text: &'static str) {
        *self.shared.silenced_by.lock().unwrap() = Some(text);
    }

    /// Waits until there is a silence.
    pub async fn silenced(&self) {
        self.shared.network.subscribe().wait_for(|network| network.is_silent).await.unwrap();
    }

    /// Lets connections and bytes pass again, those of a silence first.
    pub fn rejoin(&self) {
        self.shared.network.send_modify(|network| (network.is_refusing, network.is_silent) = (false, false));
    }

    /// Number of connections that are open to the server now.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Number of open connections that were cut.
    pub fn broken(&self) -> usize {
        self.shared.broken.load(Ordering::SeqCst)
    }
}

impl RelayState {
    /// Begins the silence that a client's bytes ask for.
    fn notice(&self, sent: &[u8]) {
        let silenced_by = &mut *self.silenced_by.lock().unwrap();
        let is_it = |text: &&str| sent.windows(text.len()).any(|part| part == text.as_bytes());
        if silenced_by.as_ref().is_some_and(is_it) {
            *silenced_by = None;
            self.network.send_modify(|network| network.is_silent = true);
        }
    }
}

/// Serves one connection until both sides end it, or a cut.
async fn serve(shared: Arc<RelayState>, mut client: TcpStream, mut network: watch::Receiver<Network>) {
    let Network { is_refusing, cuts, .. } = *network.borrow();
    if is_refusing {
        // With zero linger, dropping the socket sends a RST instead of a FIN.
        let _ = client.set_zero_linger();
        return;
    }
    let is_passing = |network: &Network| !network.is_silent;
    let mut passing = network.clone();
    if passing.wait_for(is_passing).await.is_err() {
        return;
    }
    let server = *shared.server.lock().unwrap();
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    shared.open.fetch_add(1, Ordering::SeqCst);
    let is_cut = tokio::select! {
        _ = pass_watched(&mut client, &mut server, &passing, is_passing, |sent| shared.notice(sent)) => false,
        is_cut = async { network.wait_for(|network| network.cuts != cuts).await.is_ok() } => is_cut,
    };
    shared.open.fetch_sub(1, Ordering::SeqCst);
    if is_cut {
        shared.broken.fetch_add(1, Ordering::SeqCst);
        for stream in [&client, &server] {
            let _ = stream.set_zero_linger();
        }
    }
}

/// Passes bytes in both directions until both ended, or one failed. Bytes wait while `is_passing` is false.
pub(crate) async fn pass<N>(
    client: &mut TcpStream,
    server: &mut TcpStream,
    network: &watch::Receiver<N>,
    is_passing: impl Fn(&N) -> bool + Copy,
) -> io::Result<()> {
    pass_watched(client, server, network, is_passing, |_| {}).await
}

/// Like [`pass`], and shows the client's bytes to `notice` before they pass.
async fn pass_watched<N>(
    client: &mut TcpStream,
    server: &mut TcpStream,
    network: &watch::Receiver<N>,
    is_passing: impl Fn(&N) -> bool + Copy,
    notice: impl Fn(&[u8]),
) -> io::Result<()> {
    for stream in [&*client, &*server] {
        // Both ends write like this. With Nagle's algorithm, the end of an answer would wait 40 ms for an acknowledgement.
        let _ = stream.set_nodelay(true);
    }
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let up = copy(from_client, to_server, network.clone(), is_passing, notice);
    let down = copy(from_server, to_client, network.clone(), is_passing, |_| {});
    tokio::try_join!(up, down).map(drop)
}

/// Copies one direction. Waits during a silence, also before it reports an end.
async fn copy<N>(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut network: watch::Receiver<N>,
    is_passing: impl Fn(&N) -> bool + Copy,
    notice: impl Fn(&[u8]),
) -> io::Result<()> {
    let mut chunk = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut chunk).await;
        if let Ok(bytes) = read {
            notice(&chunk[..bytes]);
        }
        network.wait_for(is_passing).await.map_err(io::Error::other)?;
        match read? {
            0 => return to.shutdown().await,
            bytes => to.write_all(&chunk[..bytes]).await?,
        }
    }
}
