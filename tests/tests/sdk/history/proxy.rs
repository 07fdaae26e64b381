//! A proxy that breaks connections at any byte, responds in place of the server, and survives the server's restarts.
//!
//! INVARIANT: forwarded bytes are the server's own. The proxy generates only responses that refuse a request.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    time::sleep,
};

/// The target of a proxy, and whether it injects faults.
#[derive(Debug)]
pub(crate) struct Line {
    server: Mutex<SocketAddr>,
    pub(crate) calm: AtomicBool,
    /// Number of connections broken or refused.
    pub(crate) broken: AtomicUsize,
}

/// The fault of one connection.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    /// Forwards this many bytes from the server, then breaks the connection.
    Cut {
        after: usize,
        reset: bool,
    },
    /// Forwards this many bytes from the server, then nothing, and ends neither side: as a network does that loses a
    /// peer.
    HalfOpen {
        after: usize,
    },
    /// Forwards the server's bytes in pieces, slowly.
    Slow,
    /// Connects to the server after up to 1.2 s, when later connections are served already.
    Late,
    Close,
    /// Sends nothing for up to 4 s, then closes the connection.
    Silent,
    Answer(u16),
}

impl Fault {
    fn draw(rng: &mut Rng) -> Self {
        match rng.u8(0..100) {
            0..37 => Self::None,
            37..40 => Self::HalfOpen { after: rng.usize(0..20_000) },
            40..66 => {
                let most = rng.usize(1..60_000);
                Self::Cut { after: rng.usize(0..most), reset: rng.bool() }
            }
            66..70 => Self::Late,
            70..80 => Self::Slow,
            80..86 => Self::Close,
            86..90 => Self::Silent,
            90..93 => Self::Answer(429),
            93..96 => Self::Answer(503),
            96..98 => Self::Answer(500),
            _ => Self::Answer(410),
        }
    }
}

impl Line {
    pub(crate) fn new(server: SocketAddr) -> Arc<Self> {
        Arc::new(Self { server: Mutex::new(server), calm: AtomicBool::new(false), broken: AtomicUsize::new(0) })
    }

    pub(crate) fn lead_to(&self, server: SocketAddr) {
        *self.server.lock().unwrap() = server;
    }

    /// Starts a proxy. Returns its address.
    pub(crate) async fn listen(self: &Arc<Self>, seed: u64) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (line, mut rng) = (Arc::clone(self), Rng::with_seed(seed));
        tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else { continue };
                let calm = line.calm.load(Ordering::Relaxed);
                let fault = if calm { Fault::None } else { Fault::draw(&mut rng) };
                if !matches!(fault, Fault::None | Fault::Slow | Fault::Late) {
                    line.broken.fetch_add(1, Ordering::Relaxed);
                }
                let pause = Duration::from_millis(rng.u64(1..40));
                tokio::spawn(pass(Arc::clone(&line), client, fault, pause));
            }
        });
        address
    }
}

async fn pass(line: Arc<Line>, mut client: TcpStream, fault: Fault, pause: Duration) {
    match fault {
        Fault::Close => return,
        Fault::Silent => return sleep(100 * pause).await,
        Fault::Answer(code) => return answer(&mut client, code).await,
        Fault::Late => sleep(30 * pause).await,
        Fault::None | Fault::Cut { .. } | Fault::HalfOpen { .. } | Fault::Slow => {}
    }
    let server = *line.server.lock().unwrap();
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    match fault {
        Fault::Cut { after, reset } => {
            let (mut from_server, mut to_server) = server.split();
            let (mut from_client, mut to_client) = client.split();
            let asked = tokio::io::copy(&mut from_client, &mut to_server);
            let mut passed = (&mut from_server).take(after as u64);
            let answered = tokio::io::copy(&mut passed, &mut to_client);
            tokio::select! { _ = answered => {}, _ = asked => {} }
            if reset {
                for stream in [&client, &server] {
                    let _ = stream.set_zero_linger();
                }
            }
        }
        Fault::HalfOpen { after } => {
            let (mut from_server, mut to_server) = server.split();
            let (mut from_client, mut to_client) = client.split();
            let asked = tokio::io::copy(&mut from_client, &mut to_server);
            let mut passed = (&mut from_server).take(after as u64);
            let answered = tokio::io::copy(&mut passed, &mut to_client);
            tokio::select! { _ = answered => sleep(1_000 * pause).await, _ = asked => {} }
        }
        Fault::Slow => slowly(client, server, pause).await,
        Fault::None | Fault::Late | Fault::Close | Fault::Silent | Fault::Answer(_) => {
            let _ = copy_bidirectional(&mut client, &mut server).await;
        }
    }
}

/// Forwards at most 4 KiB per pause.
async fn slowly(mut client: TcpStream, mut server: TcpStream, pause: Duration) {
    let (mut from_server, mut to_server) = server.split();
    let (mut from_client, mut to_client) = client.split();
    let asked = tokio::io::copy(&mut from_client, &mut to_server);
    let answered = async {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
            if to_client.write_all(&buffer[..count]).await.is_err() {
                return;
            }
            sleep(pause).await;
        }
    };
    tokio::select! { () = answered => {}, _ = asked => {} }
}

async fn answer(client: &mut TcpStream, code: u16) {
    let reason = match code {
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    let body = format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"injected","reason":"{reason}","code":{code}}}"#
    );
    let mut head = [0; 16 << 10];
    let _ = client.read(&mut head).await;
    let text = format!(
        "HTTP/1.1 {code} {reason}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = client.write_all(text.as_bytes()).await;
}
