//! Connections that are accepted, delayed and drained, over real sockets.

use std::{net::Ipv4Addr, time::Duration};

use http::StatusCode;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
    time::timeout,
};

use super::*;
use crate::{
    handler::tests::{TestBody, TestHandler, answer, shared},
    limits::SOCKET_UNSENT_BYTES,
    listeners::bind_tcp,
};

/// A server on a port of its own.
pub struct TestServer {
    pub address: std::net::SocketAddr,
    pub stop: oneshot::Sender<()>,
    pub serving: JoinHandle<OpenConnections>,
}

impl TestServer {
    pub fn start(shared: ConnectionShared<TestHandler>) -> Self {
        let tcp = bind_tcp((Ipv4Addr::LOCALHOST, 0).into(), SOCKET_UNSENT_BYTES).expect("a free port");
        let tcp = tcp.listen(100).expect("it listens");
        let address = tcp.local_addr().expect("it is bound");
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(serve(Listeners { tcp, unix: None }, shared, Arc::default(), async {
            // A test that drops its end lets the server run.
            if stopped.await.is_err() {
                std::future::pending().await
            }
        }));
        Self { address, stop, serving }
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("it listens")
    }
}

fn healthy() -> ConnectionShared<TestHandler> {
    shared(|_| answer(StatusCode::OK, TestBody::text("ok")))
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn connections_above_the_limit_wait() {
    let mut shared = healthy();
    shared.settings.connections_max = 1;
    let server = TestServer::start(shared);
    let first = server.connect().await;
    let mut second = server.connect().await;
    second.write_all(GET).await.unwrap();
    let mut answer = [0; 12];
    let waited = timeout(Duration::from_millis(200), second.read_exact(&mut answer)).await;
    assert!(waited.is_err(), "answered beside the first");
    drop(first);
    second.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[tokio::test]
async fn http2_is_known_by_its_preface_even_in_pieces() {
    let mut stream = TestServer::start(healthy()).connect().await;
    stream.set_nodelay(true).unwrap();
    // The preface, then an empty SETTINGS frame.
    for piece in [&b"P"[..], b"RI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0\0\0\x04\0\0\0\0\0"] {
        stream.write_all(piece).await.unwrap();
        stream.flush().await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).await.unwrap();
    assert_eq!(frame[3], 4, "the server's SETTINGS");
}

/// Goal: a server that shuts down waits for open requests, and not for ever. Method: an idle connection and one whose
/// response has not ended, before and after it ends.
#[tokio::test]
async fn a_drain_waits_for_open_responses_until_its_deadline() {
    let (feed, body) = TestBody::fed();
    let body = parking_lot::Mutex::new(Some(body));
    let server = TestServer::start(shared(move |_| answer(StatusCode::OK, body.lock().take().unwrap_or_default())));
    let (mut idle, mut busy) = (server.connect().await, server.connect().await);
    busy.write_all(GET).await.unwrap();
    let mut answer = vec![0; 12];
    busy.read_exact(&mut answer).await.unwrap();
    server.stop.send(()).unwrap();
    let mut open = server.serving.await.unwrap();
    assert!(!open.drained(Instant::now() + Duration::from_millis(200)).await);
    assert_eq!((idle.read(&mut [0]).await.unwrap(), open.count()), (0, 1), "only the idle one has ended");
    assert!(TcpStream::connect(server.address).await.is_err(), "nothing listens any more");
    drop(feed);
    assert!(open.drained(Instant::now() + Duration::from_secs(20)).await);
    busy.read_to_end(&mut answer).await.unwrap();
    assert!(answer.ends_with(b"\r\n0\r\n\r\n"), "{}", String::from_utf8_lossy(&answer));
}
