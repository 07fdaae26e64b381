//! A whole server in front of an API server: forwarded requests and tunnels over its own sockets.

use std::{future, io, net::SocketAddr, time::Duration};

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, tcp::OwnedReadHalf},
};

use crate::{
    Server,
    config::{Config, UpstreamConfig},
    upstream::tests::{Api, Seen, closed_port, echo, full, raw, read_head},
};

const WAIT: Duration = Duration::from_secs(30);

fn config() -> Config {
    Config { listen: ([127, 0, 0, 1], 0).into(), grace: Duration::from_secs(5), ..Config::default() }
}

/// Starts a server that passes every request to the API server at `upstream`.
async fn front(config: Config, upstream: SocketAddr) -> SocketAddr {
    let upstream = UpstreamConfig { url: Some(format!("http://{upstream}")), ..UpstreamConfig::default() };
    let server = Server::bind(Config { upstream: Some(upstream), ..config }).await.unwrap();
    let address = server.local_addr();
    tokio::spawn(server.serve(future::pending()));
    address
}

/// An API server that echoes what it gets on an upgraded connection until its client ends, and then says `bye`.
async fn echoing() -> Api {
    Api::start(|mut request| {
        Box::pin(async move {
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let (mut from, mut to) = tokio::io::split(TokioIo::new(upgrade.await.unwrap()));
                tokio::io::copy(&mut from, &mut to).await.unwrap();
                to.write_all(b"bye").await.unwrap();
                to.shutdown().await.unwrap();
            });
            let builder = Response::builder().status(101).header("connection", "Upgrade").header("upgrade", "SPDY/3.1");
            builder.header("x-stream-protocol-version", "v4").body(full("")).unwrap()
        })
    })
    .await
}

const EXEC: &str = "POST /api/v1/namespaces/a/pods/b/exec?command=sh HTTP/1.1\r\nHost: localhost\r\n\
                    Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n";

async fn head_of(from: &mut OwnedReadHalf) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(from.read_u8().await.expect("the rest of a head"));
    }
    String::from_utf8(head).unwrap()
}

/// Goal: an upgrade carries bytes both ways at once, and the end of one direction does not end the other. Method: 3 MB,
/// the first of them in one packet with the request, then a half-close.
#[tokio::test]
async fn an_upgrade_carries_bytes_both_ways_until_both_sides_end() {
    let api = echoing().await;
    let address = front(config(), api.address).await;
    let (mut from, mut to) = TcpStream::connect(address).await.unwrap().into_split();
    let sent: Vec<u8> = (0..3_000_000_u32).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let copy = sent.clone();
    let writing = tokio::spawn(async move {
        to.write_all(&[EXEC.as_bytes(), &copy[..10_000]].concat()).await.unwrap();
        to.write_all(&copy[10_000..]).await.unwrap();
        to.shutdown().await.unwrap();
    });
    let head = head_of(&mut from).await;
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    for line in ["connection: Upgrade\r\n", "upgrade: SPDY/3.1\r\n", "x-stream-protocol-version: v4\r\n"] {
        assert!(head.contains(line), "{head}");
    }
    let mut received = Vec::new();
    tokio::time::timeout(WAIT, from.read_to_end(&mut received)).await.unwrap().unwrap();
    writing.await.unwrap();
    assert!(received[..sent.len()] == sent, "other bytes");
    assert_eq!(&received[sent.len()..], b"bye", "the answer after the client's end");
}

#[tokio::test]
async fn an_upgrade_that_the_upstream_refuses_is_an_ordinary_answer() {
    let api = Api::start(|_| {
        Box::pin(async { Response::builder().status(403).header("audit-id", "theirs").body(full("no")).unwrap() })
    })
    .await;
    let address = front(config(), api.address).await;
    let (mut from, mut to) = TcpStream::connect(address).await.unwrap().into_split();
    for _ in 0..2 {
        to.write_all(EXEC.as_bytes()).await.unwrap();
        let head = head_of(&mut from).await;
        assert!(head.starts_with("HTTP/1.1 403 Forbidden\r\n") && head.contains("audit-id: theirs\r\n"), "{head}");
        let mut body = [0; 2];
        from.read_exact(&mut body).await.unwrap();
        assert_eq!(&body, b"no");
    }
}

#[tokio::test]
async fn a_tunnel_that_breaks_is_reset() {
    let upstream = raw(async |_, mut stream| {
        read_head(&mut stream).await;
        let head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello";
        stream.write_all(head).await.unwrap();
        let _ = stream.read_u8().await;
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    })
    .await;
    let address = front(config(), upstream).await;
    let (mut from, mut to) = TcpStream::connect(address).await.unwrap().into_split();
    to.write_all(EXEC.as_bytes()).await.unwrap();
    head_of(&mut from).await;
    let mut greeting = [0; 5];
    from.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"hello");
    to.write_all(b"x").await.unwrap();
    let error = from.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn answers_keep_the_headers_of_the_upstream_and_errors_have_ours() {
    let api = Api::start(|_| {
        Box::pin(async {
            Response::builder().header("audit-id", "theirs").header("x-a", "b").body(full("{}")).unwrap()
        })
    })
    .await;
    let (there, away) = (front(config(), api.address).await, front(config(), closed_port().await).await);
    let get = async |address, method| {
        let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let request =
            Request::builder().method(method).uri("/api/v1/namespaces/a/pods/b/log").header("host", "localhost");
        let (parts, body) =
            sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap().into_parts();
        (parts, body.collect().await.unwrap().to_bytes())
    };
    for method in [Method::GET, Method::HEAD] {
        let (head, body) = get(there, method.clone()).await;
        assert_eq!(body.len(), if method == Method::HEAD { 0 } else { 2 });
        let mut names: Vec<_> = head.headers.keys().map(http::HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["audit-id", "content-length", "date", "x-a"]);
        assert_eq!(
            (&head.headers["audit-id"], &head.headers["content-length"]),
            (&"theirs".parse().unwrap(), &"2".parse().unwrap())
        );
    }
    let (head, body) = get(away, Method::GET).await;
    assert_eq!((head.status.as_u16(), &head.headers["retry-after"]), (503, &"5".parse().unwrap()));
    assert!(head.headers.contains_key("audit-id") && head.headers["cache-control"] == "no-cache, private");
    let status: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&status["kind"], &status["reason"]), (&"Status".into(), &"ServiceUnavailable".into()));
}

/// Goal: bodies beyond every limit of ours pass through, over both versions of HTTP. Method: 20 MB to an echo.
#[tokio::test]
async fn large_bodies_pass_both_ways() {
    const PIECES: usize = 200;
    let piece = Bytes::from(vec![7; 100_000]);
    let api = Api::start(echo).await;
    let address = front(config(), api.address).await;
    let body = || {
        let piece = piece.clone();
        let pieces = futures::stream::repeat_with(move || Ok::<_, io::Error>(Frame::data(piece.clone()))).take(PIECES);
        Request::post(format!("http://{address}/")).header("host", "localhost").body(StreamBody::new(pieces)).unwrap()
    };
    let count = async |mut body: hyper::body::Incoming| {
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame.expect("a whole body").into_data().unwrap().len();
        }
        bytes
    };
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = http1::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let answer = sender.send_request(body()).await.unwrap();
    assert_eq!(tokio::time::timeout(WAIT, count(answer.into_body())).await.unwrap(), PIECES * piece.len());

    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let answer = sender.send_request(body()).await.unwrap();
    assert_eq!(tokio::time::timeout(WAIT, count(answer.into_body())).await.unwrap(), PIECES * piece.len());
    assert_eq!(api.header("host"), api.address.to_string());
}

/// An answer to the question for the cluster's identity.
const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const BROKEN_OFF: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";

/// Goal: a broken answer is broken for the caller too: a reset of the connection, or of the stream.
#[tokio::test]
async fn an_answer_that_breaks_off_resets_the_caller() {
    let upstream = raw(async |_, mut stream| {
        let head = read_head(&mut stream).await;
        let is_identity = head.contains("kube-system");
        let answer = if is_identity { NOT_FOUND } else { BROKEN_OFF };
        stream.write_all(answer.as_bytes()).await.unwrap();
    })
    .await;
    let address = front(config(), upstream).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let ended = stream.read_to_end(&mut answer).await;
    assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert!(!answer.ends_with(b"0\r\n\r\n"));

    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(format!("http://{address}/")).body(Full::<Bytes>::default()).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    let error = answer.into_body().collect().await.unwrap_err();
    assert!(!error.is_closed(), "the connection lives on: {error}");
    let request = Request::get(format!("http://{address}/")).body(Full::<Bytes>::default()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
}

/// A client that waits for `100 Continue` gets it from us, and its body reaches the upstream.
#[tokio::test]
async fn a_body_that_waits_for_a_continue_is_asked_for() {
    let api = Api::start(echo).await;
    let address = front(config(), api.address).await;
    let (mut from, mut to) = TcpStream::connect(address).await.unwrap().into_split();
    to.write_all(b"PUT / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(head_of(&mut from).await, "HTTP/1.1 100 Continue\r\n\r\n");
    to.write_all(b"body").await.unwrap();
    assert!(head_of(&mut from).await.starts_with("HTTP/1.1 200 OK\r\n"));
    let mut body = [0; 4];
    from.read_exact(&mut body).await.unwrap();
    assert_eq!((&body, api.header("content-length").as_str()), (b"body", "4"));
}

/// The checks before routing hold for forwarded requests too.
#[tokio::test]
async fn strangers_are_refused_before_the_upstream_hears_of_them() {
    let api = Api::start(echo).await;
    let address = front(config(), api.address).await;
    for head in [
        "GET / HTTP/1.1\r\nHost: evil.example",
        "POST / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nContent-Length: 0",
        "GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nConnection: Upgrade\r\nUpgrade: websocket",
    ] {
        let (mut from, mut to) = TcpStream::connect(address).await.unwrap().into_split();
        to.write_all(format!("{head}\r\n\r\n").as_bytes()).await.unwrap();
        assert!(head_of(&mut from).await.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{head}");
    }
    let own = ["customresourcedefinitions", "kube-system"];
    let is_callers = |seen: &Seen| !own.iter().any(|own| seen.head.uri.path().contains(own));
    assert!(!api.seen.lock().iter().any(is_callers), "only the server's own reads arrive");
}
