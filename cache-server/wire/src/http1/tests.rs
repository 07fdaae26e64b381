//! HTTP/1 connections that change hands, over real sockets and byte by byte.

use std::{sync::Arc, time::Duration};

use http::HeaderValue;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
    net::TcpStream,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::timeout,
};

use super::*;
use crate::{
    accept::tests::TestServer,
    handler::{
        ConnectionShared,
        tests::{Feed, TestBody, TestHandler, answer, context, shared, slices},
    },
};

/// A watch that ends as soon as it has sent one event.
const SHORT: &str = "/watch?short";

/// A watch that sends one event and stays open.
const LONG: &str = "/watch";

/// A list that is larger than the sockets' buffers.
const LIST: &str = "/list";
const LIST_BATCHES: usize = 60;
const BATCH_BYTES: usize = 100_000;

/// A list whose batches the test sends.
const FED: &str = "/fed";

const LIVEZ: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/plain";

const WAIT: Duration = Duration::from_secs(20);

/// Returns a server, and the feeds of its watches and lists in the order of their requests.
fn scripted() -> (ConnectionShared<TestHandler>, UnboundedReceiver<Feed>) {
    let (feeds, fed) = unbounded_channel();
    let begin = move |first: Option<&str>| {
        let (feed, body) = TestBody::fed();
        first.into_iter().for_each(|event| feed.send(Ok(slices(event))).expect("the body is there"));
        // Tests that do not need the feed have dropped the receiver.
        let _ = feeds.send(feed);
        body
    };
    let answers = shared(move |request| {
        let path = request.uri().path_and_query().map(http::uri::PathAndQuery::as_str).unwrap_or_default();
        let (kind, body) = match path {
            "/livez" => ("text/plain", TestBody::text("ok")),
            SHORT => ("application/json", TestBody::of_batches(["a\n".to_owned()]).watch()),
            LONG => ("application/json", begin(Some("a\n")).watch()),
            LIST => ("application/json", TestBody::of_batches((0..LIST_BATCHES).map(|_| "x".repeat(BATCH_BYTES)))),
            _ => ("application/json", begin(None)),
        };
        let mut response = answer(StatusCode::OK, body);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        response.headers_mut().insert(header::DATE, HeaderValue::from_static("Tue, 24 Nov 2026 12:00:00 GMT"));
        response
    });
    (answers, fed)
}

/// Returns the client of a server that runs until the test ends, and the feeds.
async fn start() -> (UnboundedReceiver<Feed>, RawClient) {
    let (shared, feeds) = scripted();
    let server = TestServer::start(shared);
    (feeds, RawClient { stream: server.connect().await })
}

fn request(path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n")
}

/// A client that exposes every byte.
struct RawClient {
    stream: TcpStream,
}

impl RawClient {
    async fn another(&self) -> Self {
        Self { stream: TcpStream::connect(self.stream.peer_addr().unwrap()).await.unwrap() }
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
        let ended = timeout(WAIT, reading).await;
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

/// Goal: clients cannot tell which writer sent a watch. Method: compare with a watch with a body, which hyper serves.
#[tokio::test]
async fn the_head_of_a_watch_is_that_of_hyper() {
    let (_feeds, client) = start().await;
    for more in [
        "",
        "Connection: close\r\n",
        "Connection: keep-alive, Close\r\n",
        "Connection: close\r\nConnection: keep-alive\r\n",
    ] {
        let (mut ours, mut hypers) = (client.another().await, client.another().await);
        ours.send(&request(LONG, more)).await;
        hypers.send(&request(LONG, &format!("{more}Content-Length: 2\r\n"))).await;
        hypers.send("{}").await;
        assert_eq!(ours.head().await, hypers.head().await, "{more}");
    }
}

#[tokio::test]
async fn requests_before_and_behind_watches_are_answered_in_order() {
    let (mut feeds, mut client) = start().await;
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
            assert_eq!((client.chunk().await.as_str(), client.chunk().await.as_str()), ("a\n", ""));
        }
    }
    assert_eq!(client.chunk().await, "a\n");
    feeds.recv().await.unwrap().send(Ok(slices("b\n"))).unwrap();
    assert_eq!(client.chunk().await, "b\n", "the last watch goes on");
}

/// Goal: a response is not lost when the next request takes the connection over. Method: a list larger than the
/// sockets' buffers, followed directly by a watch, and a client that reads late.
#[tokio::test]
async fn the_answer_before_a_watch_arrives_whole() {
    let (_feeds, mut client) = start().await;
    client.send(&[request(LIST, ""), request(LONG, "")].concat()).await;
    // Serving another connection takes long enough for the first one's sockets to fill up.
    let mut other = client.another().await;
    other.send(&request(LIST, "Connection: close\r\n")).await;
    assert!(other.rest().await.1.is_ok());
    assert!(client.head().await.starts_with("HTTP/1.1 200 OK\r\n"));
    let mut bytes = 0;
    loop {
        match client.chunk().await.len() {
            0 => break,
            more => bytes += more,
        }
    }
    assert_eq!(bytes, LIST_BATCHES * BATCH_BYTES);
    assert!(client.head().await.contains("transfer-encoding: chunked"));
    assert_eq!(client.chunk().await, "a\n");
}

/// Goal: the end of a response waits for its reader even if no request follows. Method: a list over an in-memory
/// connection that holds little at a time; then a request body that never arrives, and a server that shuts down.
#[tokio::test]
async fn the_last_answer_of_a_connection_arrives_whole() {
    let shared = Arc::new(scripted().0);
    for (more, ends) in [("Content-Length: 10\r\n", false), ("Connection: close\r\n", true)] {
        let (ours, mut client) = duplex(1 << 10);
        let (closing, closed) = watch::channel(ServerPhase::default());
        tokio::spawn(requests(ours, Bytes::new(), context(&shared), closed).0);
        client.write_all(request(LIST, more).as_bytes()).await.unwrap();
        let mut answer = vec![client.read_u8().await.unwrap()];
        let _closing = (!ends).then_some(closing);
        client.read_to_end(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
        assert!(answer.ends_with(b"\r\n0\r\n\r\n"), "{more}: not the whole, but {} bytes", answer.len());
    }
}

#[tokio::test]
async fn a_watch_may_be_the_last_answer_of_its_connection() {
    let (_feeds, mut client) = start().await;
    client.send(&[request(SHORT, "Connection: close\r\n"), request("/livez", "")].concat()).await;
    let (answer, ended) = client.rest().await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.contains("\r\nconnection: close\r\n") && answer.ends_with("\r\n0\r\n\r\n"), "{answer}");
    assert!(ended.is_ok(), "{ended:?}");
}

#[tokio::test]
async fn a_watch_of_http_1_0_ends_with_its_connection() {
    let (_feeds, mut client) = start().await;
    client.send(&format!("GET {SHORT} HTTP/1.0\r\n\r\n")).await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n") && !head.contains("transfer-encoding"), "{head}");
    let (lines, ended) = client.rest().await;
    assert_eq!(String::from_utf8(lines).unwrap(), "a\n");
    assert!(ended.is_ok());
}

/// Goal: a disconnect is noticed at once. Method: a watch without events.
#[tokio::test]
async fn a_watch_ends_with_its_client() {
    let (mut feeds, mut client) = start().await;
    client.send(&request(LONG, "")).await;
    client.head().await;
    let feed = feeds.recv().await.unwrap();
    assert!(!feed.is_closed());
    drop(client);
    timeout(WAIT, feed.closed()).await.expect("the watch is over");
}

#[tokio::test]
async fn a_server_that_ends_ends_watches_and_takes_no_request_behind_them() {
    let (shared, mut feeds) = scripted();
    let server = TestServer::start(shared);
    let mut client = RawClient { stream: server.connect().await };
    client.send(&[request(LONG, ""), request("/livez", "")].concat()).await;
    client.head().await;
    assert_eq!(client.chunk().await, "a\n");
    server.stop.send(()).unwrap();
    let mut open = server.serving.await.unwrap();
    drop(feeds.recv().await.unwrap());
    assert!(open.drained(Instant::now() + WAIT).await);
    let (rest, ended) = client.rest().await;
    assert_eq!((String::from_utf8(rest).unwrap().as_str(), ended.is_ok()), ("0\r\n\r\n", true));
}

/// Goal: no client of a server that leaves sends a request into the end of its connection. Method: an idle connection, whose
/// next answer says that it is the last.
#[tokio::test]
async fn a_server_that_leaves_answers_once_more() {
    let server = TestServer::start(scripted().0);
    let mut client = RawClient { stream: server.connect().await };
    client.send(&request("/livez", "")).await;
    assert!(!client.head().await.contains("connection: close"));
    client.until("ok").await;
    server.stop.send(()).unwrap();
    let mut open = server.serving.await.unwrap();
    open.leave();
    client.send(&request("/livez", "")).await;
    assert!(client.head().await.contains("\r\nconnection: close\r\n"));
    let (rest, ended) = client.rest().await;
    assert_eq!((rest.as_slice(), ended.is_ok()), (&b"ok"[..], true));
    assert!(open.ended(Instant::now() + WAIT).await);
}

/// Goal: a state that was cut never looks complete. Method: a watch and lists that fail after their first batch. A list of
/// HTTP/1.0 ends only with its connection.
#[tokio::test]
async fn a_body_that_fails_ends_in_a_reset() {
    let (mut feeds, client) = start().await;
    let old = format!("GET {FED} HTTP/1.0\r\n\r\n");
    for sent in [request(LONG, ""), request(FED, ""), old] {
        let mut reader = client.another().await;
        reader.send(&sent).await;
        let feed = feeds.recv().await.unwrap();
        feed.send(Ok(slices("b"))).unwrap();
        reader.head().await;
        reader.until("b").await;
        feed.send(Err(BodyError::Cut)).unwrap();
        let (rest, ended) = reader.rest().await;
        assert!(ended.is_err(), "{sent}: ends like a whole one: {rest:?}");
        assert!(!rest.ends_with(b"0\r\n\r\n"));
    }
}

/// Goal: requests that pages of other sites may have sent have no effect. Method: the kinds of them, on one connection.
#[tokio::test]
async fn requests_of_foreign_pages_are_refused() {
    let (_feeds, client) = start().await;
    for (head, refusal) in [
        ("GET /livez HTTP/1.1\r\n\r\n", "NoHost"),
        ("GET /livez HTTP/1.1\r\nHost: evil.example\r\n\r\n", "ForeignHost"),
        ("POST /livez HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n", "ForeignOrigin"),
        ("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", "ok"),
    ] {
        let mut client = client.another().await;
        client.send(head).await;
        client.head().await;
        client.until(refusal).await;
    }
}

/// Goal: no answer has the time of a clock that was set back. Method: requests that hyper refuses itself; it would add a header
/// that stands still then.
#[tokio::test]
async fn answers_to_broken_requests_have_no_date() {
    for (sent, code) in [("GET\r\n\r\n".to_owned(), "400"), (request("/livez", &"a: b\r\n".repeat(101)), "431")] {
        let (_feeds, mut client) = start().await;
        client.send(&sent).await;
        let head = client.head().await;
        assert!(head.starts_with(&format!("HTTP/1.1 {code} ")) && !head.contains("date:"), "{head}");
    }
}
