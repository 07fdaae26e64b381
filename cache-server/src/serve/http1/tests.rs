//! HTTP/1 connections that change hands, over real sockets and byte by byte.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
    net::TcpStream,
    sync::oneshot,
};

use super::*;
use crate::{Server, app::App, config::Config};

/// A watch that ends as soon as it has sent its initial data.
const SHORT: &str = "/api/v1/configmaps?watch=1&resourceVersion=0&timeoutSeconds=-1";

/// A watch that stays open.
const LONG: &str = "/api/v1/configmaps?watch=1&resourceVersion=0";

/// A watch that begins with the initial state.
const INITIAL: &str = "/api/v1/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                       &allowWatchBookmarks=true";

const LIVEZ: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8";

async fn start(limits: watch_cache::Limits) -> (Arc<App>, Raw) {
    let config = Config { listen: (Ipv4Addr::LOCALHOST, 0).into(), limits, ..Config::default() };
    let server = Server::bind(config).await.unwrap();
    let (app, address) = (Arc::clone(server.app()), server.local_addr());
    tokio::spawn(server.serve(pending()));
    (app, Raw::connect(address).await)
}

async fn create(app: &Arc<App>, name: &str, filler: usize) {
    let ty = app.registry.now().by_id("configmaps").expect("a built-in type");
    let object = format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"k":"{}"}}}}"#, "x".repeat(filler));
    crate::write::create_from_manifest(
        &app.local().expect("writes are local"),
        &ty,
        Some("ns"),
        object.as_bytes(),
        false,
    )
    .await
    .expect("is created");
}

fn request(path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n")
}

/// A client that exposes every byte.
struct Raw {
    stream: TcpStream,
}

impl Raw {
    async fn connect(address: std::net::SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap() }
    }

    async fn another(&self) -> Self {
        Self::connect(self.stream.peer_addr().unwrap()).await
    }

    async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads up to and including `end`.
    async fn until(&mut self, end: &str) -> String {
        let mut read = Vec::new();
        let reading = async {
            while !read.ends_with(end.as_bytes()) {
                read.push(self.stream.read_u8().await.expect("the answer goes on"));
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(20), reading).await;
        let read = String::from_utf8(read).unwrap();
        assert!(ended.is_ok(), "no {end:?} behind {read:?}");
        read
    }

    async fn head(&mut self) -> String {
        self.until("\r\n\r\n").await
    }

    /// Reads the next chunk; the last one is empty.
    async fn chunk(&mut self) -> String {
        let size = self.until("\r\n").await;
        let mut chunk = vec![0; usize::from_str_radix(size.trim(), 16).expect("a length") + 2];
        self.stream.read_exact(&mut chunk).await.unwrap();
        String::from_utf8(chunk).unwrap().strip_suffix("\r\n").expect("the end of a chunk").to_owned()
    }

    /// Reads to the end; the result tells an orderly close from a reset.
    async fn rest(&mut self) -> (Vec<u8>, io::Result<usize>) {
        let mut read = Vec::new();
        let ended = self.stream.read_to_end(&mut read).await;
        (read, ended)
    }
}

/// Returns a head without the headers that differ between responses.
fn constant(head: &str) -> String {
    let differs = |line: &&str| !line.starts_with("date: ") && !line.starts_with("audit-id: ");
    assert_eq!(head.split("\r\n").filter(|line| !differs(line)).count(), 2, "{head}");
    head.split("\r\n").filter(differs).collect::<Vec<_>>().join("\n")
}

/// Goal: clients cannot tell which writer sent a watch. Method: compare with a watch with a body, which hyper serves.
#[tokio::test]
async fn the_head_of_a_watch_is_that_of_hyper() {
    let (_app, client) = start(watch_cache::Limits::default()).await;
    for more in [
        "",
        "Connection: close\r\n",
        "Connection: keep-alive, Close\r\n",
        "Connection: close\r\nConnection: keep-alive\r\n",
        "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n",
    ] {
        let (mut ours, mut hypers) = (client.another().await, client.another().await);
        ours.send(&request(LONG, more)).await;
        hypers.send(&request(LONG, &format!("{more}Content-Length: 2\r\n"))).await;
        hypers.send("{}").await;
        assert_eq!(constant(&ours.head().await), constant(&hypers.head().await), "{more}");
    }
}

#[tokio::test]
async fn requests_before_and_behind_watches_are_answered_in_order() {
    let (app, mut client) = start(watch_cache::Limits::default()).await;
    create(&app, "a", 0).await;
    let all = [request("/livez", ""), request(SHORT, ""), request(SHORT, ""), request("/livez", ""), request(LONG, "")];
    client.send(&all.concat()).await;
    for path in ["/livez", SHORT, SHORT, "/livez", LONG] {
        let head = client.head().await;
        if path == "/livez" {
            assert!(head.starts_with(LIVEZ), "{path}: {head}");
            client.until("ok").await;
        } else {
            assert!(head.contains("\r\ntransfer-encoding: chunked\r\n"), "{path}: {head}");
        }
        if path == SHORT {
            while !client.chunk().await.is_empty() {}
        }
    }
    assert!(client.chunk().await.starts_with(r#"{"type":"ADDED","#));
    create(&app, "b", 0).await;
    assert!(client.chunk().await.contains(r#""name":"b""#), "the last watch goes on");
}

/// Goal: a response is not lost when the next request takes the connection over. Method: a list larger than the
/// sockets' buffers, followed directly by a watch, and a client that reads late.
#[tokio::test]
async fn the_answer_before_a_watch_arrives_whole() {
    let (app, mut client) = start(watch_cache::Limits::default()).await;
    for index in 0..60 {
        create(&app, &format!("a{index}"), 100_000).await;
    }
    client.send(&[request("/api/v1/configmaps", ""), request(LONG, "")].concat()).await;
    // Serving another connection takes long enough for the first one's sockets to fill up.
    let mut other = client.another().await;
    other.send(&request("/api/v1/configmaps", "Connection: close\r\n")).await;
    assert!(other.rest().await.1.is_ok());
    assert!(client.head().await.starts_with("HTTP/1.1 200 OK\r\n"));
    let mut list = String::new();
    loop {
        let chunk = client.chunk().await;
        if chunk.is_empty() {
            break;
        }
        list.push_str(&chunk);
    }
    let list: serde_json::Value = serde_json::from_str(&list).expect("the whole list");
    assert_eq!(list["items"].as_array().map(Vec::len), Some(60));
    assert!(client.head().await.contains("transfer-encoding: chunked"));
    assert!(client.chunk().await.starts_with(r#"{"type":"ADDED","#));
}

/// Goal: the end of a response waits for its reader even if no request follows. Method: a list over an in-memory
/// connection that holds little at a time; then a request body that never arrives, and a server that shuts down.
#[tokio::test]
async fn the_last_answer_of_a_connection_arrives_whole() {
    let (app, _client) = start(watch_cache::Limits::default()).await;
    create(&app, "a", 100_000).await;
    for (more, ends) in [("Content-Length: 10\r\n", false), ("Connection: close\r\n", true)] {
        let (ours, mut client) = duplex(1 << 10);
        let (closing, closed) = watch::channel(());
        let handler = Handler::of_tests(Arc::clone(&app));
        tokio::spawn(requests(ours, Bytes::new(), handler, closed).0);
        client.write_all(request("/api/v1/configmaps", more).as_bytes()).await.unwrap();
        let mut answer = vec![client.read_u8().await.unwrap()];
        let _closing = (!ends).then_some(closing);
        client.read_to_end(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
        assert!(answer.ends_with(b"\r\n0\r\n\r\n"), "{more}: not the whole, but {} bytes", answer.len());
    }
}

#[tokio::test]
async fn a_watch_may_be_the_last_answer_of_its_connection() {
    let (_app, mut client) = start(watch_cache::Limits::default()).await;
    client.send(&[request(SHORT, "Connection: close\r\n"), request("/livez", "")].concat()).await;
    let (answer, ended) = client.rest().await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.contains("\r\nconnection: close\r\n") && answer.ends_with("\r\n\r\n0\r\n\r\n"), "{answer}");
    assert!(ended.is_ok(), "{ended:?}");
}

#[tokio::test]
async fn a_watch_of_http_1_0_ends_with_its_connection() {
    let (app, mut client) = start(watch_cache::Limits::default()).await;
    create(&app, "a", 0).await;
    client.send(&format!("GET {INITIAL}&timeoutSeconds=1 HTTP/1.0\r\n\r\n")).await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n") && !head.contains("transfer-encoding"), "{head}");
    let (lines, ended) = client.rest().await;
    let lines = String::from_utf8(lines).unwrap();
    assert!(lines.starts_with(r#"{"type":"ADDED","#) && lines.ends_with("}\n"), "{lines}");
    assert!(ended.is_ok());
}

/// Goal: a disconnect is noticed at once. Method: a watch of objects that never change.
#[tokio::test]
async fn a_watch_ends_with_its_client() {
    let (app, mut client) = start(watch_cache::Limits::default()).await;
    let open = |count: u64| {
        let line = format!(r#"apiserver_longrunning_requests{{verb="WATCH",resource="configmaps"}} {count}"#);
        app.metrics.text(&app.caches).lines().any(|have| have == line)
    };
    client.send(&request(LONG, "")).await;
    client.head().await;
    assert!(open(1));
    drop(client);
    let noticed = async {
        while !open(0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), noticed).await.expect("the watch is over");
}

#[tokio::test]
async fn a_server_that_ends_ends_watches_and_takes_no_request_behind_them() {
    let server = Server::bind(Config { listen: (Ipv4Addr::LOCALHOST, 0).into(), ..Config::default() }).await.unwrap();
    let mut client = Raw::connect(server.local_addr()).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve(async {
        let _ = stopped.await;
    }));
    client.send(&[request(LONG, ""), request("/livez", "")].concat()).await;
    client.head().await;
    stop.send(()).unwrap();
    let (rest, ended) = client.rest().await;
    assert_eq!((String::from_utf8(rest).unwrap().as_str(), ended.is_ok()), ("0\r\n\r\n", true));
    serving.await.unwrap();
}

/// Goal: a state that was cut never looks complete. Method: a state larger than the sockets' buffers, a tiny bound on
/// snapshots, a reader that stops, and writes until the bound is reached. A list of HTTP/1.0 ends only with its
/// connection.
#[tokio::test]
async fn what_is_cut_ends_in_a_reset() {
    let limits = watch_cache::Limits { window_bytes_max: 64 << 10, snapshot_bytes_max: 64 << 10, ..Default::default() };
    let (app, client) = start(limits).await;
    for index in 0..120 {
        create(&app, &format!("a{index}"), 100_000).await;
    }
    let old = "GET /api/v1/configmaps HTTP/1.0\r\n\r\n".to_owned();
    for (round, sent) in [request(INITIAL, ""), request("/api/v1/configmaps", ""), old].iter().enumerate() {
        let mut reader = client.another().await;
        reader.send(sent).await;
        reader.head().await;
        for index in 0..500 {
            create(&app, &format!("b{round}-{index}"), 0).await;
        }
        let ty = app.registry.now().by_id("configmaps").expect("a built-in type");
        app.caches.fresh(&ty).await.expect("taken in");
        let (answer, ended) = reader.rest().await;
        assert!(ended.is_err(), "{sent}: ends like a whole one after {} bytes", answer.len());
        assert!(answer.len() < 12_000_000, "{sent}: {} bytes are all of it", answer.len());
    }
}
