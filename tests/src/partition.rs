//! A proxy between a client and a server that can lose the network between them: bytes stop, and no connection ends.
//!
//! INVARIANT: bytes pass unchanged and in order, and none is lost: those of a partition arrive after it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
};

/// The proxy. Its connections end when it is dropped.
pub struct Partition {
    address: SocketAddr,
    server: Arc<Mutex<SocketAddr>>,
    is_apart: watch::Sender<bool>,
    _accepting: JoinSet<()>,
}

impl Partition {
    /// A proxy of the server at `server`, on a port of its own. Passes everything at first.
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (is_apart, told) = watch::channel(false);
        let server = Arc::new(Mutex::new(server));
        let target = Arc::clone(&server);
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                let server = *target.lock().unwrap();
                connections.spawn(pass(client, server, told.clone()));
            }
        });
        Self { address, server, is_apart, _accepting: accepting }
    }

    /// Address that clients connect to.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connects later clients to another server.
    pub fn lead_to(&self, server: SocketAddr) {
        *self.server.lock().unwrap() = server;
    }

    /// Stops all bytes. Later connections are accepted by the kernel, and nothing answers them.
    pub fn begin(&self) {
        self.is_apart.send_replace(true);
    }

    /// Lets all bytes pass again, those of the partition first.
    pub fn heal(&self) {
        self.is_apart.send_replace(false);
    }
}

/// Serves one connection until either side ends it.
async fn pass(client: TcpStream, server: SocketAddr, mut is_apart: watch::Receiver<bool>) {
    if together(&mut is_apart).await.is_none() {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = copy(from_client, to_server, is_apart.clone()) => {}
        () = copy(from_server, to_client, is_apart) => {}
    }
}

/// Copies one direction, and pauses during a partition, also before it reports an end.
async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut is_apart: watch::Receiver<bool>) {
    let mut chunk = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut chunk).await;
        if together(&mut is_apart).await.is_none() {
            return;
        }
        match read {
            Ok(bytes @ 1..) if to.write_all(&chunk[..bytes]).await.is_ok() => {}
            Ok(_) | Err(_) => return,
        }
    }
}

/// Waits for the end of a partition. `None` if the proxy was dropped.
async fn together(is_apart: &mut watch::Receiver<bool>) -> Option<()> {
    is_apart.wait_for(|is_apart| !is_apart).await.ok().map(drop)
}
