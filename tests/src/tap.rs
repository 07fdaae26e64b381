//! A proxy in front of a server that records the requests through it.
//!
//! INVARIANT: bytes pass unchanged in both directions. Requests have no bodies, because the observed clients only read.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy},
    net::{TcpListener, TcpStream},
};

/// The proxy. It lives as long as the runtime.
#[derive(Clone, Debug)]
pub struct Tap {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Tap {
    /// A proxy of the server at `server`, on a port of its own.
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tap = Self { address: listener.local_addr().unwrap(), requests: Arc::default() };
        let requests = Arc::clone(&tap.requests);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, server, Arc::clone(&requests)));
            }
        });
        tap
    }

    /// Address that clients connect to.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns and clears the requests since the last call: method, path and query of each, in order.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

/// The requests among these that read the whole state of `collection`: lists, and streams that begin with it.
pub fn initial_reads<'a>(requests: &'a [String], collection: &str) -> Vec<&'a str> {
    let asks = format!("GET {collection}");
    let reads = requests.iter().map(String::as_str).filter(|request| {
        let query = request.strip_prefix(&asks).filter(|rest| rest.is_empty() || rest.starts_with('?'));
        query.is_some_and(|query| !query.contains("watch=true") || query.contains("sendInitialEvents=true"))
    });
    reads.collect()
}

/// Serves one connection until either side ends it.
async fn pass(client: TcpStream, server: SocketAddr, requests: Arc<Mutex<Vec<String>>>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let asking = async move {
        let (mut chunk, mut head) = (vec![0; 16 << 10], Vec::new());
        while let Ok(bytes @ 1..) = from_client.read(&mut chunk).await {
            head.extend_from_slice(&chunk[..bytes]);
            while let Some(end) = head.windows(4).position(|found| found == b"\r\n\r\n") {
                let line = String::from_utf8_lossy(&head[..end]).lines().next().unwrap_or_default().to_owned();
                requests.lock().unwrap().push(line.trim_end_matches(" HTTP/1.1").to_owned());
                head.drain(..end + 4);
            }
            if to_server.write_all(&chunk[..bytes]).await.is_err() {
                break;
            }
        }
    };
    let answering = async move { drop(copy(&mut from_server, &mut to_client).await) };
    tokio::select! {
        () = asking => {}
        () = answering => {}
    }
}
