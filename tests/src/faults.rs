//! A proxy in front of a server that breaks connections where it hurts, and writes down what that makes clients ask.
//!
//! INVARIANT: what passes is the server's own bytes up to where a connection is cut; only the 410s are made here.
//! INVARIANT: initial state is never broken. So every further read of it is the client's own choice, or follows a 410.
//! INVARIANT: a fault is done once it broke something. One whose watch the client left before waits for the next watch.
//! INVARIANT: a connection carries one request, which leaves nothing to guess about where an answer ends.

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
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

use asked::Asked;
pub use asked::Read;
use scan::{Found, Scan};

/// What happens to the next watch that goes on from a position. Each takes effect once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The connection goes this many bytes after the first whole event: inside a line, inside a chunk, between two.
    Cut {
        /// Bytes.
        after: usize,
        /// By a reset instead of an end.
        reset: bool,
    },
    /// The server itself ends it two seconds later.
    End,
    /// It is told 410, and ends. The server is not asked.
    Expire,
    /// The connection goes before an answer.
    Refuse,
}

impl Fault {
    /// A cut somewhere.
    pub fn cut(random: &mut Rng) -> Self {
        Self::Cut { after: random.usize(0..6_000), reset: random.bool() }
    }
}

/// How the proxy treats what passes.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The last segment of the collection that faults are for, and that is counted.
    pub collection: String,
    /// What happens to its watches, in order. After them all pass.
    pub faults: Vec<Fault>,
    /// Clients that ask for aggregated discovery are heard to ask for the older form.
    pub legacy_discovery: bool,
}

/// The proxy. Lives as long as the runtime.
#[derive(Clone, Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    collection: String,
    legacy_discovery: bool,
    log: Mutex<Log>,
    /// How many faults took effect.
    done: watch::Sender<usize>,
    /// Initial states that went out whole.
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

/// How an answer that was passed on came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The server ended it.
    Whole,
    /// Here.
    Cut,
    /// The client went away.
    Left,
}

impl Proxy {
    /// A proxy of the server at `server`, on a port of its own.
    pub async fn start(server: SocketAddr, plan: Plan) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            server,
            collection: plan.collection,
            legacy_discovery: plan.legacy_discovery,
            log: Mutex::new(Log { faults: plan.faults.into(), ..Log::default() }),
            done: watch::Sender::default(),
            synced: watch::Sender::default(),
        });
        let proxy = Self { address, shared: Arc::clone(&shared) };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                // Whatever breaks on the way ends this connection: that is what a client sees of it.
                tokio::spawn(async move { shared.pass(client).await.ok() });
            }
        });
        proxy
    }

    /// Where clients connect.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What was asked since this was asked last: method, path and query of each request, in order.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.log.lock().unwrap().requests)
    }

    /// Every request for the collection's state: lists, without their further pages, and watches that begin with it.
    pub fn initial_reads(&self) -> Vec<String> {
        self.shared.log.lock().unwrap().initial_reads.clone()
    }

    /// The positions of the states that were told, in order.
    pub fn positions(&self) -> Vec<u64> {
        self.shared.log.lock().unwrap().positions.clone()
    }

    /// The faults that took effect, in order.
    pub fn done(&self) -> Vec<Fault> {
        self.shared.log.lock().unwrap().done.clone()
    }

    /// How often a watch was told 410.
    pub fn expired(&self) -> usize {
        self.done().iter().filter(|fault| **fault == Fault::Expire).count()
    }

    /// Waits until so many faults took effect.
    pub async fn broke(&self, count: usize) {
        self.shared.done.subscribe().wait_for(|done| *done >= count).await.unwrap();
    }

    /// Waits until so many initial states went out.
    pub async fn synced(&self, count: usize) {
        self.shared.synced.subscribe().wait_for(|synced| *synced >= count).await.unwrap();
    }
}

impl Shared {
    /// One connection, until either side ends it.
    async fn pass(&self, mut client: TcpStream) -> std::io::Result<()> {
        let Some((head, rest)) = read_head(&mut client).await? else { return Ok(()) };
        let asked = Asked::parse(&head, &self.collection);
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

    /// Counts a fault that took effect, and keeps any other for the next watch.
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

    /// Answers a watch from a position that is gone as kube-apiserver does: one event, and the end.
    async fn expire(&self, mut client: TcpStream, asked: &Asked) -> std::io::Result<()> {
        if !asked.upgrades {
            let (head, length) = ("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n", EXPIRED.len());
            let head = format!("{head}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n");
            return client.write_all(format!("{head}{EXPIRED}\r\n0\r\n\r\n").as_bytes()).await;
        }
        // Only the server's own answer proves that the client's key was read.
        let mut server = TcpStream::connect(self.server).await?;
        server.write_all(asked.forwarded(self.legacy_discovery, false).as_bytes()).await?;
        let Some((head, _)) = read_head(&mut server).await? else { return Ok(()) };
        let length = u16::try_from(EXPIRED.len()).expect("a short text").to_be_bytes();
        let frames = [head.as_bytes(), &[0x81, 126], &length, EXPIRED.as_bytes(), &[0x88, 2], &1000_u16.to_be_bytes()];
        client.write_all(&frames.concat()).await
    }

    async fn forward(
        &self,
        client: TcpStream,
        asked: &Asked,
        rest: &[u8],
        fault: Option<Fault>,
    ) -> std::io::Result<Ending> {
        let mut server = TcpStream::connect(self.server).await?;
        let head = asked.forwarded(self.legacy_discovery, fault == Some(Fault::End));
        server.write_all(head.as_bytes()).await?;
        server.write_all(rest).await?;
        let (from_server, mut to_server) = server.into_split();
        let (mut from_client, mut to_client) = client.into_split();
        let closed = AtomicBool::new(false);
        let ending = tokio::select! {
            ending = self.answer(from_server, &mut to_client, asked, fault, &closed) => ending?,
            // The client went away: so does its request. It may be the first to leave a WebSocket that the server closed.
            _ = tokio::io::copy(&mut from_client, &mut to_server) => {
                if closed.load(Ordering::Relaxed) { Ending::Whole } else { Ending::Left }
            }
        };
        if ending == Ending::Cut && matches!(fault, Some(Fault::Cut { reset: true, .. })) {
            to_client.as_ref().set_zero_linger()?;
        }
        Ok(ending)
    }

    /// Passes an answer on.
    async fn answer(
        &self,
        mut server: OwnedReadHalf,
        client: &mut OwnedWriteHalf,
        asked: &Asked,
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

    /// Writes down what was asked, and what is to happen to it.
    fn note(&self, asked: &Asked) -> Option<Fault> {
        let mut log = self.log.lock().unwrap();
        log.requests.push(asked.line.clone());
        match asked.read {
            Read::List | Read::InitialWatch => log.initial_reads.push(asked.line.clone()),
            Read::Page | Read::Watch | Read::Other => {}
        }
        let fits = match asked.read {
            Read::Watch => true,
            // Such a stream goes on as a watch, and may end as one. Other faults would break what it begins with.
            Read::InitialWatch => matches!(log.faults.front(), Some(Fault::Cut { .. } | Fault::End)),
            Read::List | Read::Page | Read::Other => false,
        };
        if fits { log.faults.pop_front() } else { None }
    }
}

/// The head of a request, and what came with it. `None` when there is none.
async fn read_head(client: &mut TcpStream) -> std::io::Result<Option<(String, Vec<u8>)>> {
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

/// The largest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The event that says that a position is gone.
const EXPIRED: &str = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\
\"status\":\"Failure\",\"message\":\"too old resource version: 5 (1200)\",\"reason\":\"Expired\",\"code\":410}}\n";
