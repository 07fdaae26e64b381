//! The fake API server behind a real listener, and a proxy that can lose its connections.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use hyper_util::rt::TokioIo;
use informer::testing::FakeApiServer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use crate::fixture::cluster_at;

/// Serves `server` on its own port until the end of the test. Returns the address.
pub(crate) async fn serve(server: &FakeApiServer) -> SocketAddr {
    let Listening { address, accepting: _ } = Listening::at(server, 0).await;
    address
}

/// A server behind a listener.
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Listening {
    /// Listens on this port; zero picks a free one.
    pub(crate) async fn at(server: &FakeApiServer, port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = server.clone();
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let server = server.clone();
                let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    let server = server.clone();
                    async move { server.respond(request).await }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                connections.spawn(connection.serve_connection(TokioIo::new(socket), service));
            }
        });
        Self { address, accepting }
    }

    /// Closes the listener and all connections at once, like a killed process.
    pub(crate) async fn kill(self) {
        self.accepting.abort();
        assert!(self.accepting.await.is_err_and(|error| error.is_cancelled()));
    }
}

/// A client of that address with kube's defaults.
pub(crate) fn client_at(address: SocketAddr) -> kube::Client {
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    kube::Client::try_from(config).unwrap()
}

/// Forwards connections to another address, and loses them on request.
#[derive(Clone)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    /// Incremented by `lose`: older connections stay open and forward no data in either direction.
    generation: Arc<watch::Sender<u64>>,
    pub(crate) connections: Arc<AtomicU64>,
}

impl Proxy {
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            generation: Arc::new(watch::channel(0).0),
            connections: Arc::default(),
        };
        let accepting = proxy.clone();
        tokio::spawn(async move {
            loop {
                let (near, _) = listener.accept().await.unwrap();
                accepting.connections.fetch_add(1, Ordering::Relaxed);
                let lost = accepting.generation.subscribe();
                tokio::spawn(async move {
                    let far = TcpStream::connect(target).await.unwrap();
                    forward(near, far, lost).await;
                });
            }
        });
        proxy
    }

    /// Loses the current connections: they stay half-open at both ends. New connections work.
    pub(crate) fn lose(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }
}

async fn forward(near: TcpStream, far: TcpStream, mut lost: watch::Receiver<u64>) {
    let (mut near_read, mut near_write) = near.into_split();
    let (mut far_read, mut far_write) = far.into_split();
    let out = async {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count @ 1..) = near_read.read(&mut buffer).await {
            far_write.write_all(&buffer[..count]).await?;
        }
        Ok::<_, std::io::Error>(())
    };
    let back = async {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count @ 1..) = far_read.read(&mut buffer).await {
            near_write.write_all(&buffer[..count]).await?;
        }
        Ok::<_, std::io::Error>(())
    };
    tokio::select! { biased;
        _ = lost.changed() => {}
        _ = out => return,
        _ = back => return,
    }
    // Keep both sockets open, so that neither end notices.
    std::future::pending::<()>().await;
}

/// A cluster behind a proxy, over sockets.
pub(crate) async fn behind_a_proxy(server: &FakeApiServer) -> (informer::Cluster, Proxy) {
    let proxy = Proxy::to(serve(server).await).await;
    (cluster_at(&format!("http://{}", proxy.address)), proxy)
}
