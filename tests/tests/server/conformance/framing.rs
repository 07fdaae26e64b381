//! The bytes on the wire: heads, chunks, and reused connections.
//!
//! INVARIANT: these tests read the socket byte by byte, without an HTTP library, except for HTTP/2.

use tests::{
    http::{Client, LINE_WAIT, watch_list},
    objects::configmap,
};
use tokio::{io::AsyncReadExt as _, net::TcpStream, time::timeout};

use super::{
    server,
    wire::{Raw, Wire},
};

const CONFIGMAPS: &str = "/api/v1/configmaps";
/// Those of a namespace in which kube-apiserver keeps none of its own.
const DEFAULT_CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn the_head_of_a_watch_comes_before_its_first_event() {
    let server = server(&[]).await;
    server.client().create(&configmap("elsewhere").namespace("other")).await;
    let mut wire = Wire::to(&server).await;
    let at = server.client().get(CONFIGMAPS).await.resource_version();
    wire.get(&format!("/api/v1/namespaces/quiet/configmaps?watch=1&resourceVersion={at}")).await;
    let head = wire.head().await;
    let head = Raw { head, chunks: Vec::new() };
    assert!(head.head.starts_with("HTTP/1.1 200 OK\r\n"), "{}", head.head);
    for (name, value) in
        [("content-type", "application/json"), ("transfer-encoding", "chunked"), ("cache-control", "no-cache, private")]
    {
        assert_eq!(head.header(name), Some(value), "{}", head.head);
    }
    assert!(head.header("date").is_some() && head.header("audit-id").is_some_and(|id| id.len() == 36), "{}", head.head);
    assert!(head.header("content-length").is_none());
}

#[tokio::test]
async fn a_stream_is_chunks_of_lines_and_an_empty_chunk_at_the_end() {
    let server = server(&[]).await;
    let client = server.client();
    for index in 0..10 {
        client.create(&configmap(&format!("c{index}"))).await;
    }
    for index in 0..8 {
        client.create(&configmap(&format!("big{index}")).data(&"x".repeat(30_000))).await;
    }
    let mut wire = Wire::to(&server).await;
    wire.get(&format!("{DEFAULT_CONFIGMAPS}?watch=1&timeoutSeconds=6")).await;
    let raw = wire.answer().await;
    let body = raw.body();
    let lines: Vec<&[u8]> = body.split_inclusive(|&byte| byte == b'\n').collect();
    assert_eq!(lines.len(), 18);
    assert!(lines.iter().all(|line| line.starts_with(b"{\"type\":\"ADDED\",\"object\":{") && line.ends_with(b"}}\n")));
    assert!(raw.chunks.len() < lines.len() * 4, "{} chunks for {} lines", raw.chunks.len(), lines.len());
}

/// Goal: a connection survives a watch that ended, and requests sent meanwhile are answered. Method: one request before
/// the end of the stream, and one after it.
#[tokio::test]
async fn a_connection_is_used_again_after_its_watch() {
    let server = server(&[]).await;
    server.client().create(&configmap("a")).await;
    let mut wire = Wire::to(&server).await;
    wire.get(&format!("{DEFAULT_CONFIGMAPS}?watch=1&timeoutSeconds=6")).await;
    wire.get("/livez").await;
    let watched = wire.answer().await;
    assert_eq!(watched.body().iter().filter(|&&byte| byte == b'\n').count(), 1);
    assert_eq!(wire.answer().await.body(), b"ok");
    wire.get(DEFAULT_CONFIGMAPS).await;
    assert!(String::from_utf8(wire.answer().await.body()).unwrap().contains("\"name\":\"a\""));
}

#[tokio::test]
async fn requests_in_a_row_are_answered_in_their_order() {
    let server = server(&[]).await;
    server.client().create(&configmap("a")).await;
    let mut wire = Wire::to(&server).await;
    for path in ["/livez", CONFIGMAPS, "/api/v1/foos", "/version", "/nothing"] {
        wire.get(path).await;
    }
    let mut starts = Vec::new();
    for _ in 0..5 {
        let raw = wire.answer().await;
        starts.push((
            raw.head[9..12].to_owned(),
            String::from_utf8_lossy(&raw.body()).chars().take(12).collect::<String>(),
        ));
    }
    let expected = [
        ("200", "ok"),
        ("200", "{\"kind\":\"Con"),
        ("404", "{\"kind\":\"Sta"),
        ("200", "{\n  \"major\":"),
        ("404", "404 page not"),
    ];
    assert_eq!(starts, expected.map(|(code, start)| (code.to_owned(), start.to_owned())));
}

#[tokio::test]
async fn whoever_wants_the_connection_closed_gets_that() {
    let server = server(&[]).await;
    server.client().create(&configmap("a")).await;
    for path in [CONFIGMAPS.to_owned(), format!("{CONFIGMAPS}?watch=1&timeoutSeconds=1")] {
        let mut wire = Wire::to(&server).await;
        wire.send(&format!("GET {path} HTTP/1.1\r\n{}Connection: close\r\n\r\n", wire.needed)).await;
        let raw = wire.answer().await;
        assert!(raw.head.starts_with("HTTP/1.1 200 OK"), "{path}");
        let read = timeout(LINE_WAIT, wire.socket.read_buf(&mut wire.bytes)).await.expect("an end").unwrap();
        assert_eq!(read, 0, "{path}");
    }
}

/// Goal: request bodies may be chunked, or wait for `100 Continue`.
#[tokio::test]
async fn bodies_may_come_in_chunks_or_after_a_word() {
    let server = server(&[]).await;
    let mut wire = Wire::to(&server).await;
    let post = format!("POST {DEFAULT_CONFIGMAPS} HTTP/1.1\r\n{}Content-Type: application/json\r\n", wire.needed);
    wire.send(&format!("{post}Transfer-Encoding: chunked\r\n\r\n")).await;
    for part in ["{\"metadata\":", "{\"name\":\"in-", "chunks\"}}"] {
        wire.send(&format!("{:x}\r\n{part}\r\n", part.len())).await;
    }
    wire.send("0\r\n\r\n").await;
    assert!(wire.answer().await.head.starts_with("HTTP/1.1 201 Created"));
    let body = "{\"metadata\":{\"name\":\"after-a-word\"}}";
    wire.send(&format!("{post}Expect: 100-continue\r\nContent-Length: {}\r\n\r\n", body.len())).await;
    let word = wire.head().await;
    assert!(word.starts_with("HTTP/1.1 100 Continue"), "{word}");
    wire.send(body).await;
    assert!(wire.answer().await.head.starts_with("HTTP/1.1 201 Created"));
    assert_eq!(server.client().get(DEFAULT_CONFIGMAPS).await.keys(), ["default/after-a-word", "default/in-chunks"]);
}

#[tokio::test]
async fn what_is_no_request_is_refused_and_harms_nobody() {
    let server = server(&[]).await;
    for garbage in ["\0\0\0\0\r\n\r\n", "GET\r\n\r\n", "HELLO / WORLD\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"] {
        let mut wire = Wire::to(&server).await;
        wire.send(garbage).await;
        let mut all = Vec::new();
        let _ = timeout(LINE_WAIT, wire.socket.read_to_end(&mut all)).await.expect("an end");
        let text = String::from_utf8_lossy(&all);
        assert!(
            text.is_empty() || text.starts_with("HTTP/1.1 4") || text.starts_with("HTTP/1.1 505"),
            "{garbage:?}: {text}"
        );
    }
    server.client().get("/livez").await.with_code(200);
}

/// Goal: events are sent immediately, not when a buffer is full. Method: one small event at a time.
#[tokio::test]
async fn every_event_is_sent_at_once() {
    let server = server(&[]).await;
    let client = server.client();
    let at = client.create(&configmap("a").data("0")).await;
    let mut wire = Wire::to(&server).await;
    wire.get(&format!("{CONFIGMAPS}?watch=1&resourceVersion={at}")).await;
    wire.head().await;
    for round in 1..=10 {
        client.update(&configmap("a").data(&round.to_string())).await;
        let chunk = wire.chunk().await;
        assert!(chunk.ends_with(b"}}\n"), "a whole line");
        let line: serde_json::Value = serde_json::from_slice(&chunk).expect("one document");
        assert_eq!(line["object"]["data"]["k"], round.to_string());
    }
}

/// Goal: a list has a Content-Length or is chunked, with equal bytes on every connection. Method: short and long lists.
#[tokio::test]
async fn short_answers_say_their_length_and_long_ones_come_in_chunks() {
    let server = server(&[]).await;
    let client = server.client();
    for path in ["/api/v1/nodes", "/api/v1/foos", "/apis"] {
        let mut wire = Wire::to(&server).await;
        wire.get(path).await;
        let raw = wire.answer().await;
        assert_eq!(raw.header("content-length"), Some(&*raw.body().len().to_string()), "{path}");
        assert_eq!(raw.body(), client.get(path).await.body, "{path}");
    }
    for index in 0..100 {
        client.create(&configmap(&format!("c{index}")).data(&"x".repeat(3_000))).await;
    }
    let mut wire = Wire::to(&server).await;
    wire.get(CONFIGMAPS).await;
    let raw = wire.answer().await;
    assert_eq!(raw.header("content-length"), None);
    assert!(raw.chunks.len() > 1, "{} chunks of {} bytes", raw.chunks.len(), raw.body().len());
    assert_eq!(raw.body(), client.get(CONFIGMAPS).await.body);
}

/// The request with the client's header `authorization`, if it has one.
fn authorized(request: http::request::Builder, client: &Client) -> http::request::Builder {
    match client.authorization() {
        Some(authorization) => request.header("authorization", authorization),
        None => request,
    }
}

/// Goal: HTTP/2 without TLS gives equal responses. Method: hyper's client with prior knowledge; a list and two streams
/// on one connection.
#[tokio::test]
async fn http_2_carries_lists_and_streams_beside_each_other() {
    use http_body_util::{BodyExt as _, Empty};
    use hyper_util::rt::{TokioExecutor, TokioIo};

    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("a")).await;
    let socket = TcpStream::connect(server.address()).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    let ask = async |path: String| {
        let uri = format!("http://{}{path}", server.address());
        let request = authorized(http::Request::get(uri), &client).body(Empty::<bytes::Bytes>::new()).unwrap();
        sender.clone().send_request(request).await.unwrap()
    };
    let mut streams = [ask(watch_list(CONFIGMAPS)).await, ask(format!("{CONFIGMAPS}?watch=1")).await];
    let list = ask(CONFIGMAPS.to_owned()).await;
    assert_eq!(list.headers()["content-type"], "application/json");
    assert_eq!(list.into_body().collect().await.unwrap().to_bytes(), client.get(CONFIGMAPS).await.body);
    for stream in &mut streams {
        assert!(stream.headers().get("transfer-encoding").is_none(), "HTTP/2 has frames");
        let frame = timeout(LINE_WAIT, stream.body_mut().frame()).await.expect("a frame").unwrap().unwrap();
        assert!(frame.into_data().unwrap().starts_with(b"{\"type\":\"ADDED\""));
    }
}

/// Goal: the response to HEAD has no body and keeps the connection usable. Method: HTTP/1 and HTTP/2, with a request
/// after it.
#[tokio::test]
async fn an_answer_to_head_has_no_body() {
    use http::Method;
    use http_body_util::{BodyExt as _, Empty};
    use hyper_util::rt::{TokioExecutor, TokioIo};

    let server = server(&[]).await;
    let options = Client::request(Method::OPTIONS, CONFIGMAPS, &[], bytes::Bytes::new());
    let expected = server.client().send(options).await.body.len().to_string();
    let mut wire = Wire::to(&server).await;
    wire.send(&format!("HEAD {CONFIGMAPS} HTTP/1.1\r\n{}\r\n", wire.needed)).await;
    let head = Raw { head: wire.head().await, chunks: Vec::new() };
    assert_eq!(head.header("content-length"), Some(&*expected), "{}", head.head);
    wire.get(CONFIGMAPS).await;
    assert!(wire.head().await.starts_with("HTTP/1.1 200 OK\r\n"));

    let socket = TcpStream::connect(server.address()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    for (method, code) in [(Method::HEAD, 405), (Method::GET, 200)] {
        let uri = format!("http://{}{CONFIGMAPS}", server.address());
        let request = authorized(http::Request::builder().method(&method).uri(uri), &server.client());
        let request = request.body(Empty::<bytes::Bytes>::new()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), code, "{method}");
        if method == Method::HEAD {
            assert_eq!(answer.headers()["content-length"], *expected);
        }
        let body = answer.into_body().collect().await.expect("a whole body").to_bytes();
        assert_eq!(body.is_empty(), method == Method::HEAD, "{method}");
    }
}
