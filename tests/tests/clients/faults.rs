//! A proxy in front of a server that breaks connections at awkward points and records the requests that clients send.
//!
//! INVARIANT: the proxy forwards the server's bytes unchanged up to where it cuts a connection; it generates only the
//! 410s.
//! INVARIANT: it never breaks initial state. So every further read of it is the client's own choice, or follows a 410.
//! INVARIANT: a fault counts once it broke a connection. If the client closed the watch before, the next watch gets the
//! fault.
//! INVARIANT: a connection carries one request, so the end of a response is never ambiguous.

mod asked;
mod scan;

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use fastrand::Rng;
use tests::tls::Trust;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    net::{TcpListener, TcpStream, tcp::OwnedWriteHalf},
    sync::watch,
};

use asked::{ProxiedRequest, Read};
use scan::{Found, Scan};

/// A fault for the next watch that resumes from a position. Each fault takes effect once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// Closes the connection this many bytes after the first whole live event: inside a line, in a chunk, between
    /// chunks.
    Cut {
        /// Bytes.
        after: usize,
        /// True to close by a reset instead of a clean TCP end.
        reset: bool,
    },
    /// Lets the server end the watch after two seconds.
    End,
    /// Sends a 410 and ends the response. The request does not reach the server, except a WebSocket's handshake.
    Expire,
    /// Closes the connection before a response.
    Refuse,
}

impl Fault {
    /// A cut at a random offset.
    pub(crate) fn cut(random: &mut Rng) -> Self {
        Self::Cut { after: random.usize(0..6_000), reset: random.bool() }
    }
}

/// Settings of the proxy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// Last path segment of the collection that faults and counters apply to.
    pub(crate) collection: String,
    /// Faults for watches of the collection, in order. Further watches pass unchanged.
    pub(crate) faults: Vec<Fault>,
    /// True to replace requests for aggregated discovery by requests for the older form.
    pub(crate) legacy_discovery: bool,
    /// For a server that requires them; like `kubectl proxy`, for clients that have neither.
    pub(crate) credentials: Option<Credentials>,
}

/// TLS to the server, and the token of every request.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    pub(crate) trust: Trust,
    pub(crate) token: String,
}

/// A connection to the server.
trait ServerStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ServerStream for S {}

/// The proxy. It lives as long as the runtime.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    collection: String,
    legacy_discovery: bool,
    credentials: Option<Credentials>,
    log: Mutex<Log>,
    /// True once no further watch gets a fault.
    is_calm: AtomicBool,
    /// Number of faults that took effect.
    done: watch::Sender<usize>,
    /// Number of initial states forwarded whole.
    synced: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Log {
    faults: VecDeque<Fault>,
    requests: Vec<String>,
    initial_reads: Vec<String>,
    positions: Vec<u64>,
    /// Faults that took effect, in order.
    done: Vec<Fault>,
}

/// The outcome of a forwarded response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The server ended it.
    Whole,
    /// The proxy cut it.
    Cut,
    /// The client closed the connection.
    Left,
}

impl Proxy {
    /// A proxy of the server at `server`, on a port of its own.
    pub(crate) async fn start(server: SocketAddr, plan: Plan) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            server,
            collection: plan.collection,
            legacy_discovery: plan.legacy_discovery,
            credentials: plan.credentials,
            log: Mutex::new(Log { faults: plan.faults.into(), ..Log::default() }),
            is_calm: AtomicBool::new(false),
            done: watch::Sender::default(),
            synced: watch::Sender::default(),
        });
        let proxy = Self { address, shared: Arc::clone(&shared) };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                // An I/O error ends this connection, as the client sees it.
                tokio::spawn(async move { shared.pass(client).await.ok() });
            }
        });
        proxy
    }

    /// Address that clients connect to.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns and clears the requests since the last call: method, path and query of each, in order.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.log.lock().unwrap().requests)
    }

    /// Every request for the collection's state: lists (without further pages) and watches that begin with initial
    /// state.
    pub(crate) fn initial_reads(&self) -> Vec<String> {
        self.shared.log.lock().unwrap().initial_reads.clone()
    }

    /// The positions of the initial states that were sent, in order.
    pub(crate) fn positions(&self) -> Vec<u64> {
        self.shared.log.lock().unwrap().positions.clone()
    }

    /// The faults that took effect, in order.
    pub(crate) fn done(&self) -> Vec<Fault> {
        self.shared.log.lock().unwrap().done.clone()
    }

    /// Number of 410s sent to watches.
    pub(crate) fn expired(&self) -> usize {
        self.done().iter().filter(|fault| **fault == Fault::Expire).count()
    }

    /// Gives no faults to further watches. Open ones keep theirs.
    pub(crate) fn calm(&self) {
        self.shared.is_calm.store(true, Ordering::Relaxed);
    }

    /// Waits until `count` faults took effect.
    pub(crate) async fn broke(&self, count: usize) {
        self.shared.done.subscribe().wait_for(|done| *done >= count).await.unwrap();
    }

    /// Waits until `count` initial states were sent.
    pub(crate) async fn synced(&self, count: usize) {
        self.shared.synced.subscribe().wait_for(|synced| *synced >= count).await.unwrap();
    }
}

impl Shared {
    /// Serves one connection until either side ends it.
    async fn pass(&self, mut client: TcpStream) -> std::io::Result<()> {
        let Some((head, rest)) = read_head(&mut client).await? else { return Ok(()) };
        let asked = ProxiedRequest::parse(&head, &self.collection);
        let fault = self.note(&asked);
        let passed = match fault {
            Some(Fault::Refuse) => Ok(Ending::Cut),
            Some(Fault::Expire) => self.expire(client, &asked).await.map(|()| Ending::Cut),
            Some(Fault::End | Fault::Cut { .. }) | None => self.forward(client, &asked, &rest, fault).await,
        };
        if let Some(fault) = fault {
            self.settle(fault, passed.as_ref().ok().copied());
        }
        passed.map(drop)
    }

    async fn connect(&self) -> std::io::Result<Box<dyn ServerStream>> {
        Ok(match &self.credentials {
            Some(credentials) => Box::new(credentials.trust.connect(self.server, &["http/1.1"]).await?),
            None => Box::new(TcpStream::connect(self.server).await?),
        })
    }

    /// The head to send to the server.
    fn head(&self, asked: &ProxiedRequest, ends_soon: bool) -> String {
        let token = self.credentials.as_ref().map(|credentials| &*credentials.token);
        asked.forwarded(self.legacy_discovery, ends_soon, token)
    }

    /// Counts a fault that took effect, or keeps it for the next watch.
    fn settle(&self, fault: Fault, ending: Option<Ending>) {
        let due = if fault == Fault::End { Ending::Whole } else { Ending::Cut };
        let mut log = self.log.lock().unwrap();
        if ending == Some(due) {
            log.done.push(fault);
            self.done.send_replace(log.done.len());
        } else {
            log.faults.push_front(fault);
        }
    }

    /// Answers a watch from a compacted position as kube-apiserver does: with one event, then the end.
    async fn expire(&self, mut client: TcpStream, asked: &ProxiedRequest) -> std::io::Result<()> {
        if !asked.upgrades {
            let (head, length) = ("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n", EXPIRED.len());
            let head = format!("{head}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n");
            return client.write_all(format!("{head}{EXPIRED}\r\n0\r\n\r\n").as_bytes()).await;
        }
        // `Sec-WebSocket-Accept` depends on the client's key, so the handshake response comes from the server.
        let mut server = self.connect().await?;
        server.write_all(self.head(asked, false).as_bytes()).await?;
        server.flush().await?;
        let Some((head, _)) = read_head(&mut server).await? else { return Ok(()) };
        let length = u16::try_from(EXPIRED.len()).expect("a short text").to_be_bytes();
        let frames = [head.as_bytes(), &[0x81, 126], &length, EXPIRED.as_bytes(), &[0x88, 2], &1000_u16.to_be_bytes()];
        client.write_all(&frames.concat()).await
    }

    async fn forward(
        &self,
        client: TcpStream,
        asked: &ProxiedRequest,
        rest: &[u8],
        fault: Option<Fault>,
    ) -> std::io::Result<Ending> {
        let mut server = self.connect().await?;
        server.write_all(self.head(asked, fault == Some(Fault::End)).as_bytes()).await?;
        server.write_all(rest).await?;
        server.flush().await?;
        let (from_server, mut to_server) = split(server);
        let (mut from_client, mut to_client) = client.into_split();
        let closed = AtomicBool::new(false);
        let ending = tokio::select! {
            ending = self.answer(from_server, &mut to_client, asked, fault, &closed) => ending?,
            // The client closed its side, so close the request. It may close first after the server's last chunk or close
            // frame.
            _ = tokio::io::copy(&mut from_client, &mut to_server) => {
                if closed.load(Ordering::Relaxed) { Ending::Whole } else { Ending::Left }
            }
        };
        if ending == Ending::Cut && matches!(fault, Some(Fault::Cut { reset: true, .. })) {
            // With zero linger, dropping the socket sends a RST instead of a FIN.
            to_client.as_ref().set_zero_linger()?;
        }
        Ok(ending)
    }

    /// Forwards a response.
    async fn answer(
        &self,
        mut server: impl AsyncRead + Unpin,
        client: &mut OwnedWriteHalf,
        asked: &ProxiedRequest,
        fault: Option<Fault>,
        closed: &AtomicBool,
    ) -> std::io::Result<Ending> {
        let cut_after = match fault {
            Some(Fault::Cut { after, .. }) => Some(after),
            Some(Fault::End | Fault::Expire | Fault::Refuse) | None => None,
        };
        let (mut scan, mut chunk) = (Scan::new(asked.read, cut_after), vec![0; 16 << 10]);
        loop {
            let bytes = server.read(&mut chunk).await?;
            if bytes == 0 {
                client.shutdown().await?;
                return Ok(Ending::Whole);
            }
            let Found { pass, position, cut } = scan.feed(&chunk[..bytes]);
            client.write_all(&chunk[..pass]).await?;
            closed.store(scan.is_closed(), Ordering::Relaxed);
            if let Some(position) = position {
                self.log.lock().unwrap().positions.push(position);
                self.synced.send_modify(|synced| *synced += 1);
            }
            if cut {
                return Ok(Ending::Cut);
            }
        }
    }

    /// Records a request and returns the fault for it.
    fn note(&self, asked: &ProxiedRequest) -> Option<Fault> {
        let mut log = self.log.lock().unwrap();
        log.requests.push(asked.line.clone());
        match asked.read {
            Read::List | Read::InitialWatch => log.initial_reads.push(asked.line.clone()),
            Read::Page | Read::Watch | Read::Other => {}
        }
        let fits = match asked.read {
            Read::Watch => true,
            // After its initial state this stream is a watch and may end as one. Other faults would break its initial
            // state.
            Read::InitialWatch => matches!(log.faults.front(), Some(Fault::Cut { .. } | Fault::End)),
            Read::List | Read::Page | Read::Other => false,
        };
        if fits && !self.is_calm.load(Ordering::Relaxed) { log.faults.pop_front() } else { None }
    }
}

/// Reads the head of a request and the bytes after it. `None` if the connection ends first or the head is too large.
async fn read_head(client: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let (mut head, mut chunk) = (Vec::new(), [0; 4 << 10]);
    loop {
        let bytes = client.read(&mut chunk).await?;
        if bytes == 0 || head.len() > HEAD_BYTES_MAX {
            return Ok(None);
        }
        head.extend_from_slice(&chunk[..bytes]);
        if let Some(end) = head.windows(4).position(|found| found == b"\r\n\r\n") {
            let rest = head.split_off(end + 4);
            return Ok(Some((String::from_utf8_lossy(&head).into_owned(), rest)));
        }
    }
}

/// Maximum size of a request head, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The in-stream error for an expired position.
const EXPIRED: &str = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\
\"status\":\"Failure\",\"message\":\"too old resource version: 5 (1200)\",\"reason\":\"Expired\",\"code\":410}}\n";
