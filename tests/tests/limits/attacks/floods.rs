//! Floods of connections, bodies and tables, over each way to the server.
//!
//! Goal: a flood costs little memory, and other clients do not notice it. Method: the honest client's p99 during the
//! flood is compared with that before it, on the same server. With `ATTACKS=all`, or `floods`, in a release build the
//! floods have their full size and the bounds are checked.
//!
//! The attackers' threads have the lowest priority: they stand for other machines, whose CPU is not the server's.

use std::{
    convert::Infallible,
    pin::Pin,
    process::Command,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _, join_all};
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Frame};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tempfile::TempDir;
use tests::{
    http::Client,
    process::Server,
    tls::{Authority, Trust},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep, sleep_until, timeout},
};

use super::{
    BINARY, Size,
    honest::{Honest, Took},
    types,
};

const MIB: usize = 1 << 20;

/// Bound on the server's growth during a flood.
const GROWTH_MIB_MAX: u64 = 64;

/// Bound on the honest client's p99 during a flood, in parts of that before it.
const P99_RATIO_MAX: f64 = 2.0;

/// Tries of a flood that misses a bound: other programs on the machine delay the honest client, too.
const TRIES: usize = 3;

/// Pause between two requests of the honest client.
const HONEST_PAUSE: Duration = Duration::from_millis(4);

/// Time of the quiet measurement, and of each flood.
const FLOOD_TIME: Duration = Duration::from_secs(6);

/// The protocol of the attackers.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    http2: bool,
    tls: bool,
}

const WAYS: [Way; 4] = [
    Way { name: "HTTP/1.1", http2: false, tls: false },
    Way { name: "HTTP/2", http2: true, tls: false },
    Way { name: "HTTP/1.1, TLS", http2: false, tls: true },
    Way { name: "HTTP/2, TLS", http2: true, tls: true },
];

/// Address and protocol of a server under attack.
#[derive(Clone, Debug)]
struct Victim {
    address: std::net::SocketAddr,
    way: Way,
    trust: Option<Trust>,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

type Flood = fn(Victim, Size) -> BoxFuture<'static, ()>;

const FLOODS: [(&str, Flood); 4] = [
    ("1,000 slowloris connections", |victim, size| slowloris(victim, size).boxed()),
    ("64 bodies of 1 GB", |victim, size| endless_bodies(victim, size).boxed()),
    ("32 bodies of 3 MiB", |victim, size| large_bodies(victim, size).boxed()),
    ("100 hostile tables", |victim, size| tables(victim, size).boxed()),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_cost_little_and_others_do_not_notice_them() {
    let wanted = std::env::var("ATTACKS").unwrap_or_default();
    let size = if matches!(&*wanted, "all" | "floods") { Size::Full } else { Size::Small };
    if size == Size::Small && !wanted.is_empty() {
        return;
    }
    println!("| flood | way | CPU s | RSS MiB more | p99 quiet ms | p99 ms | ratio | max ms |");
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    let mut missed = Vec::new();
    for (name, flood) in FLOODS {
        for way in WAYS {
            let mut still = suffer(name, flood, way, size).await;
            for _ in 1..if size == Size::Full { TRIES } else { 1 } {
                if !still.is_empty() {
                    still = suffer(name, flood, way, size).await;
                }
            }
            missed.extend(still);
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// A server with its wide objects, and a client of it.
struct World {
    server: Server,
    client: Client,
    trust: Option<Trust>,
    _files: TempDir,
}

impl World {
    async fn new(way: Way, size: Size) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let files = authority.issue(folder.path());
        let flags = if way.tls { files.flags().to_vec() } else { Vec::new() };
        let populate = ["--populate", "pods=500,nodes=10,namespaces=5,seed=1"];
        let server = Server::start(BINARY, &[&flags[..], &populate].concat()).await;
        let trust = way.tls.then(|| authority.trust());
        let client = trust.clone().map_or_else(|| server.client(), |trust| server.client().over_tls(trust));
        types::create_wide(client, size).await;
        Self { server, client, trust, _files: folder }
    }

    fn victim(&self, way: Way) -> Victim {
        Victim { address: self.server.address(), way, trust: self.trust.clone() }
    }

    /// Runs a flood against `victim` while an honest client calls this server. Returns the client's times, this server's
    /// growth in bytes, and true if each attacker got an answer that was due.
    async fn during(&self, flood: BoxFuture<'static, ()>, time: Duration) -> (Took, u64, bool) {
        let before = self.server.private_bytes();
        let honest = Honest::start_every(self.client, HONEST_PAUSE).await;
        let attackers = attackers();
        let flooding = attackers.spawn(flood);
        let (end, mut most) = (Instant::now() + time, before);
        while Instant::now() < end || !flooding.is_finished() {
            most = most.max(self.server.private_bytes());
            sleep(Duration::from_millis(10)).await;
        }
        let took = honest.stop().await;
        let answered = flooding.await.is_ok();
        attackers.shutdown_background();
        (took, most - before, answered)
    }
}

/// Runs one flood against a fresh server. Returns the violated bounds. If the honest client is too slow, it is measured
/// again while the flood goes to another server of this machine: the delay that the machine alone causes.
async fn suffer(name: &str, flood: Flood, way: Way, size: Size) -> Vec<String> {
    let world = World::new(way, size).await;
    let time = if size == Size::Full { FLOOD_TIME } else { Duration::from_millis(300) };
    let quiet = Honest::start_every(world.client, HONEST_PAUSE).await;
    sleep(time).await;
    let quiet = quiet.stop().await;
    let cpu = world.server.cpu_time();
    let (flooded, growth, answered) = world.during(flood(world.victim(way), size), time).await;
    let growth = growth >> 20;
    let ratio = report(name, way, world.server.cpu_time() - cpu, growth, [quiet, flooded]);
    let mut missed = Vec::new();
    let mut hold = |holds: bool, what: String| {
        if !holds {
            missed.push(format!("{name}, {}: {what}", way.name));
        }
    };
    hold(answered, "not the answers that were due".to_owned());
    hold(growth <= GROWTH_MIB_MAX, format!("{growth} MiB more"));
    if size == Size::Full && !cfg!(debug_assertions) && ratio > P99_RATIO_MAX {
        let other = World::new(way, size).await;
        let (machine, ..) = world.during(flood(other.victim(way), size), time).await;
        let machine = machine.p99.as_secs_f64() / quiet.p99.as_secs_f64();
        println!("| (the same against another server) | {} | | | | | {machine:.2} | |", way.name);
        hold(false, format!("honest p99 is {ratio:.1} times the quiet one, {machine:.1} if another server is flooded"));
    }
    missed
}

fn report(name: &str, way: Way, cpu: Duration, growth: u64, [quiet, flooded]: [Took; 2]) -> f64 {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let ratio = ms(flooded.p99) / ms(quiet.p99);
    let (way, cpu, before, during, most) =
        (way.name, cpu.as_secs_f64(), ms(quiet.p99), ms(flooded.p99), ms(flooded.most));
    println!("| {name} | {way} | {cpu:.1} | {growth} | {before:.2} | {during:.2} | {ratio:.2} | {most:.1} |");
    ratio
}

/// A runtime for attackers, with the lowest priority.
fn attackers() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().on_thread_start(|| {
        let thread = std::fs::read_link("/proc/thread-self").unwrap();
        let id = thread.file_name().unwrap().to_owned();
        let reniced = Command::new("renice").args(["-n", "19", "-p"]).arg(id).output().unwrap();
        assert!(reniced.status.success(), "{reniced:?}");
    });
    builder.build().unwrap()
}

impl Victim {
    async fn connect(&self) -> Option<Box<dyn Stream>> {
        let alpn = if self.way.http2 { "h2" } else { "http/1.1" };
        Some(match &self.trust {
            Some(trust) => Box::new(trust.connect(self.address, &[alpn]).await.ok()?),
            None => Box::new(TcpStream::connect(self.address).await.ok()?),
        })
    }

    /// Sends one request on a new connection. Returns the code of the answer; `None` if the server closes first.
    async fn ask<B>(&self, method: Method, path: &str, headers: &[(&str, &str)], body: B) -> Option<u16>
    where
        B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
    {
        let io = TokioIo::new(self.connect().await?);
        let mut request = Request::builder().method(method);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = if self.way.http2 {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.ok()?;
            tokio::spawn(connection);
            let scheme = if self.way.tls { "https" } else { "http" };
            let uri = format!("{scheme}://{}{path}", self.address);
            sender.send_request(request.uri(uri).body(body).unwrap()).await
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.ok()?;
            tokio::spawn(connection);
            let request = request.uri(path).header(header::HOST, self.address.to_string());
            sender.send_request(request.body(body).unwrap()).await
        };
        let (head, mut body) = answer.ok()?.into_parts();
        while let Some(Ok(_)) = body.frame().await {}
        Some(head.status.as_u16())
    }
}

/// Opens connections that begin a request and go on by one byte a second. They come evenly within the first half.
async fn slowloris(victim: Victim, size: Size) {
    let count = size.of(1_000, 40);
    let begun = tokio::time::Instant::now();
    let time = if size == Size::Full { FLOOD_TIME } else { Duration::from_millis(100) };
    let opening = (0..count).map(|index| {
        let victim = &victim;
        async move {
            sleep_until(begun + (time / 2).mul_f64(index as f64 / count as f64)).await;
            let mut stream = victim.connect().await?;
            // A head of HTTP/2 with 200 bytes, of which few come.
            let head: &[u8] = if victim.way.http2 {
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\xc8\x01\x05\0\0\0\x01"
            } else {
                b"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\nX-"
            };
            stream.write_all(head).await.ok()?;
            for _ in 0..time.as_secs() / 2 {
                sleep(Duration::from_secs(1)).await;
                stream.write_all(b"a").await.ok()?;
            }
            Some(())
        }
    });
    let held = join_all(opening).await;
    assert!(held.iter().flatten().count() > count / 2, "too few connections were possible");
}

/// A body of `left` bytes, made as it is sent.
struct Spaces {
    left: usize,
}

impl Body for Spaces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        static PIECE: [u8; 64 << 10] = [b' '; 64 << 10];
        let bytes = self.left.min(PIECE.len());
        self.left -= bytes;
        Poll::Ready((bytes > 0).then(|| Ok(Frame::data(Bytes::from_static(&PIECE[..bytes])))))
    }
}

/// Sends bodies of 1 GB as fast as the server reads them, half of them with a declared length. They come evenly within
/// the first half.
async fn endless_bodies(victim: Victim, size: Size) {
    let count = size.of(64, 4);
    let time = if size == Size::Full { FLOOD_TIME } else { Duration::from_millis(100) };
    let begun = tokio::time::Instant::now();
    let sending = (0..count).map(|index| {
        let victim = &victim;
        async move {
            sleep_until(begun + (time / 2).mul_f64(index as f64 / count as f64)).await;
            let mut headers = vec![("content-type", "application/json")];
            if index % 2 == 0 {
                headers.push(("content-length", "1000000000"));
            }
            let body = Spaces { left: 1_000_000_000 };
            let sent = victim.ask(Method::POST, "/api/v1/namespaces/default/configmaps", &headers, body);
            timeout(Duration::from_secs(30), sent).await.expect("refused in time")
        }
    });
    for code in join_all(sending).await {
        assert!(matches!(code, None | Some(413 | 429)), "{code:?}");
    }
}

/// Posts objects of 3 MiB, all at once: half of them long texts, half of them many small values, which are refused.
async fn large_bodies(victim: Victim, size: Size) {
    let text = format!("{:?}", "x".repeat(1_000));
    let body = |item: &str| {
        let items = vec![item; size.of(3 * MIB - 200, 400_000) / (item.len() + 1)].join(",");
        let head = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"large-"},"x":["#;
        Bytes::from(format!("{head}{items}]}}"))
    };
    let bodies = [body(&text), body(r#"{"a":"b","c":[1,2,3]}"#)];
    let posting = (0..size.of(32, 4)).map(|index| {
        let headers = [("content-type", "application/json")];
        let (victim, body) = (&victim, Full::new(bodies[index % 2].clone()));
        async move { victim.ask(Method::POST, "/api/v1/namespaces/default/configmaps", &headers, body).await }
    });
    for code in join_all(posting).await {
        assert!(matches!(code, None | Some(201 | 413 | 429)), "{code:?}");
    }
}

/// Requests tables whose cells each search a whole object, all at once.
async fn tables(victim: Victim, size: Size) {
    let asking = (0..size.of(100, 4)).map(|_| {
        let headers = [("accept", types::AS_TABLE)];
        let victim = &victim;
        async move { victim.ask(Method::GET, "/apis/example.com/v1/wides", &headers, Full::new(Bytes::new())).await }
    });
    for code in join_all(asking).await {
        assert!(matches!(code, Some(200 | 429 | 503)), "{code:?}");
    }
}
