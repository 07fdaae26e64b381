//! Bytes of a forwarded body that the server holds while one side does not take them.
//!
//! Goal: at most 64 KiB of a body wait in the server, however long it is. Method: one side offers bytes without end, the
//! other takes none; whatever was offered and lies in no socket buffer of the kernel is in the server.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::{
    convert::Infallible,
    fs,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::stream;
use http::Request;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::{body::Frame, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tests::process::Server;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::sleep,
};

const SERVER: &str = env!("CARGO_BIN_EXE_tests-cache-server");
/// Most bytes of one body in the server.
const HELD_BYTES_MAX: u64 = 64 << 10;
/// Announced length of the bodies: more than all buffers.
const LENGTH: u64 = 1 << 40;
const PIECE: usize = 1 << 10;
const EXEC: &str = "/api/v1/namespaces/a/pods/b/exec";
/// Time without a change after which everything that moves has moved: longer than a delayed acknowledgement.
const CALM: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(60);

/// An API server that sends `/download` without end, takes nothing of `/upload`, and sends [`PIECE`] bytes in an exec. Counts
/// the bytes of endless bodies that its socket took.
async fn upstream(sent: Arc<AtomicU64>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let sent = Arc::clone(&sent);
            tokio::spawn(async move {
                let head = read_head(&mut stream).await;
                match head.split(' ').nth(1) {
                    Some("/download") => {
                        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n");
                        stream.write_all(head.as_bytes()).await.unwrap();
                        offer(&mut stream, &sent).await;
                    }
                    Some("/upload") => std::future::pending().await,
                    Some(EXEC) => {
                        let head =
                            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
                        stream.write_all(&[head.as_bytes(), &[7; PIECE]].concat()).await.unwrap();
                        drop(stream.read_u8().await);
                    }
                    _ => drop(stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await),
                }
            });
        }
    });
    address
}

/// Reads a head byte by byte, so that the body stays in the kernel.
async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { break };
        head.push(byte);
    }
    String::from_utf8(head).unwrap()
}

/// Writes without end.
async fn offer(stream: &mut TcpStream, sent: &AtomicU64) {
    while let Ok(count) = stream.write(&[7; PIECE]).await {
        sent.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// Bytes in the kernel's buffers of all connections from and to these ports.
fn in_kernel(ports: [u16; 2]) -> u64 {
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let mut bytes = 0;
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_ours = fields[1..3].iter().any(|address| {
            let (_, port) = address.split_once(':').unwrap();
            ports.iter().any(|&ours| hexadecimal(port) == u64::from(ours))
        });
        let is_established = fields[3] == "01";
        if is_ours && is_established {
            let (sending, received) = fields[4].split_once(':').unwrap();
            bytes += hexadecimal(sending) + hexadecimal(received);
        }
    }
    bytes
}

/// Waits until nothing moves any more; returns the bytes that were sent, and those of them in the kernel.
async fn settled(sent: &AtomicU64, ports: [u16; 2]) -> (u64, u64) {
    let begun = Instant::now();
    let now = || (sent.load(Ordering::Relaxed), in_kernel(ports));
    let mut last = now();
    let mut since = Instant::now();
    while last.0 == 0 || since.elapsed() < CALM {
        assert!(begun.elapsed() < PATIENCE, "bytes still move: {last:?}");
        sleep(CALM / 10).await;
        if now() != last {
            (last, since) = (now(), Instant::now());
        }
    }
    last
}

/// A server in front of an upstream, and the bytes that the fast side of a request sent.
struct Scene {
    server: Server,
    sent: Arc<AtomicU64>,
    ports: [u16; 2],
}

impl Scene {
    async fn new() -> Self {
        let sent = Arc::new(AtomicU64::new(0));
        let upstream = upstream(Arc::clone(&sent)).await;
        let url = format!("http://{upstream}");
        let server = Server::start(SERVER, &["--upstream", &url, "--resources", "pods"]).await;
        let ports = [server.address().port(), upstream.port()];
        Self { server, sent, ports }
    }

    /// Asserts the bound once nothing moves.
    async fn assert_bounded(&self, case: &str) {
        let (sent, in_kernel) = settled(&self.sent, self.ports).await;
        let held = sent.saturating_sub(in_kernel);
        eprintln!("{case}: {sent} bytes sent, {in_kernel} in the kernel, {held} held");
        assert!(held <= HELD_BYTES_MAX, "{case}: {held} of {sent} bytes are in the server");
    }
}

#[tokio::test]
async fn a_caller_that_does_not_read_leaves_64_kib_of_the_answer_here() {
    for version in ["HTTP/1.1", "HTTP/2"] {
        let scene = Scene::new().await;
        let mut stream = TcpStream::connect(scene.server.address()).await.unwrap();
        let request = match version {
            "HTTP/1.1" => b"GET /download HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
            _ => http2_get("/download"),
        };
        stream.write_all(&request).await.unwrap();
        // The head of the answer, and all of the body that fits, stay in the kernel.
        scene.assert_bounded(version).await;
    }
}

#[tokio::test]
async fn an_upstream_that_does_not_read_leaves_64_kib_of_the_request_here() {
    let scene = Scene::new().await;
    let mut stream = TcpStream::connect(scene.server.address()).await.unwrap();
    let head = format!("POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LENGTH}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let sent = Arc::clone(&scene.sent);
    tokio::spawn(async move { offer(&mut stream, &sent).await });
    scene.assert_bounded("HTTP/1.1").await;

    let scene = Scene::new().await;
    let stream = TcpStream::connect(scene.server.address()).await.unwrap();
    // The client's own buffer is as small as it can be.
    let mut client = http2::Builder::new(TokioExecutor::new());
    let (mut sender, connection) =
        client.max_send_buf_size(PIECE).handshake(TokioIo::new(stream)).await.expect("a connection");
    tokio::spawn(connection);
    let sent = Arc::clone(&scene.sent);
    let body = stream::repeat_with(move || {
        sent.fetch_add(PIECE as u64, Ordering::Relaxed);
        Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[7; PIECE])))
    });
    let request = Request::post(format!("http://{}/upload", scene.server.address()));
    let request = request.body(StreamBody::new(body).boxed()).unwrap();
    tokio::spawn(async move { drop(sender.send_request(request).await) });
    scene.assert_bounded("HTTP/2").await;
}

/// Goal: a connection to a pod is measured to its end. Method: an exec that sends some bytes; then its client leaves.
#[tokio::test]
async fn an_exec_is_measured_until_it_ends() {
    let scene = Scene::new().await;
    let value = async |name: &str| {
        let labels = r#"{verb="CONNECT",group="",version="v1",resource="pods",subresource="exec",scope="resource"} "#;
        let text = scene.server.client().get("/metrics").await.with_code(200).text().to_owned();
        let series = format!("{name}{labels}");
        text.lines()
            .find_map(|line| line.strip_prefix(&series)?.parse::<f64>().ok())
            .unwrap_or_else(|| panic!("{text}"))
    };
    let mut stream = TcpStream::connect(scene.server.address()).await.unwrap();
    let head = "Host: localhost\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(format!("POST {EXEC} HTTP/1.1\r\n{head}").as_bytes()).await.unwrap();
    let answer = read_head(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    stream.read_exact(&mut [0; PIECE]).await.unwrap();
    sleep(CALM).await;
    assert_eq!(value("apiserver_request_duration_seconds_count").await, 0.0, "it is open");
    assert_eq!(value("cache_sent_bytes_total").await, PIECE as f64);
    drop(stream);
    let begun = Instant::now();
    while value("apiserver_request_duration_seconds_count").await == 0.0 {
        assert!(begun.elapsed() < PATIENCE, "it has ended");
        sleep(CALM / 10).await;
    }
    assert!(value("apiserver_request_duration_seconds_sum").await >= CALM.as_secs_f64());
}

/// Goal: streams that do not move leave room for others of their connection. Method: uploads that the upstream does not
/// take, then a request that it answers.
#[tokio::test]
async fn stalled_uploads_do_not_block_their_connection() {
    let scene = Scene::new().await;
    let stream = TcpStream::connect(scene.server.address()).await.unwrap();
    let (mut sender, connection) =
        http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await.expect("a connection");
    tokio::spawn(connection);
    let endless = || {
        let pieces = stream::repeat_with(|| Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[7; PIECE]))));
        StreamBody::new(pieces).boxed()
    };
    for _ in 0..4 {
        let request = Request::post(format!("http://{}/upload", scene.server.address())).body(endless()).unwrap();
        tokio::spawn(sender.send_request(request));
    }
    settled(&AtomicU64::new(1), scene.ports).await;
    let short = StreamBody::new(stream::iter([Ok(Frame::data(Bytes::from_static(&[7; PIECE])))])).boxed();
    let request = Request::post(format!("http://{}/other", scene.server.address())).body(short).unwrap();
    let answer = tokio::time::timeout(PATIENCE, sender.send_request(request)).await.expect("in time");
    assert_eq!(answer.expect("an answer").status(), 404);
}

/// The bytes with which an HTTP/2 client without HPACK's dynamic table asks for a path.
fn http2_get(path: &str) -> Vec<u8> {
    let literal = |name: u8, value: &str| [&[name, u8::try_from(value.len()).unwrap()], value.as_bytes()].concat();
    let head = [vec![0x82, 0x86], literal(4, path), literal(1, "localhost")].concat();
    let headers = [&[0, 0, u8::try_from(head.len()).unwrap(), 1, 5, 0, 0, 0, 1], &head[..]].concat();
    // The stream's window and the connection's are open, so that only the socket bounds what is sent.
    let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff];
    let opened = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0, 0, 0];
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..], &opened, &headers].concat()
}
