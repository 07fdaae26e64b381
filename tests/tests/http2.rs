//! Many requests on one connection.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::{
    body::Incoming,
    client::conn::http2::{SendRequest, handshake},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tests::{
    http::{ANSWER_WAIT, LINE_WAIT},
    objects::configmap,
    process::Server,
};
use tokio::{net::TcpStream, time::timeout};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

/// One connection.
async fn connect(server: &Server) -> SendRequest<Empty<Bytes>> {
    let stream = TcpStream::connect(server.address()).await.expect("it listens");
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("it speaks HTTP/2");
    tokio::spawn(connection);
    sender
}

async fn get(sender: &SendRequest<Empty<Bytes>>, path: &str) -> Incoming {
    let request = Request::get(format!("http://localhost{path}")).body(Empty::new()).expect("a request");
    let mut sender = sender.clone();
    let answer = async {
        sender.ready().await?;
        sender.send_request(request).await
    };
    let answer = timeout(ANSWER_WAIT, answer).await.unwrap_or_else(|_| panic!("{path}: no answer"));
    let (head, body) = answer.unwrap_or_else(|error| panic!("{path}: {error}")).into_parts();
    assert_eq!(head.status, StatusCode::OK, "{path}");
    body
}

/// What comes next, which is due.
async fn next(body: &mut Incoming) -> Bytes {
    let frame = timeout(LINE_WAIT, body.frame()).await.expect("something is due");
    frame.expect("it goes on").expect("it is not cut").into_data().expect("data")
}

#[tokio::test]
async fn a_thousand_watches_share_a_connection() {
    const WATCHES: usize = 1_000;
    let server = Server::start(BINARY, &[]).await;
    let sender = connect(&server).await;
    let listed = server.client().get("/api/v1/configmaps").await.with_code(200).resource_version();
    let mut watches = Vec::with_capacity(WATCHES);
    for _ in 0..WATCHES {
        watches.push(get(&sender, &format!("/api/v1/configmaps?watch=1&resourceVersion={listed}")).await);
    }
    server.client().create(&configmap("a")).await;
    let first = next(&mut watches[0]).await;
    assert!(first.starts_with(br#"{"type":"ADDED""#), "{first:?}");
    for watch in &mut watches[1..] {
        assert_eq!(next(watch).await, first);
    }
    // Those that end make room for others.
    drop(watches);
    let mut last = get(&sender, "/livez").await;
    assert_eq!(next(&mut last).await, "ok");
}

#[tokio::test]
async fn a_stream_that_is_not_read_keeps_no_other_waiting() {
    let server = Server::start(BINARY, &[]).await;
    let client = server.client();
    for index in 0..40 {
        let object = configmap(&format!("a{index:02}")).with("data", json!({"k": "x".repeat(200_000)}));
        client.create(&object).await;
    }
    let sender = connect(&server).await;
    let unread = get(&sender, "/api/v1/configmaps").await;
    for _ in 0..20 {
        let one = get(&sender, "/api/v1/namespaces/default/configmaps/a00").await;
        let one = timeout(LINE_WAIT, one.collect()).await.expect("it is there").expect("it is whole").to_bytes();
        assert!(one.len() > 200_000);
    }
    let list = timeout(Duration::from_secs(30), unread.collect()).await.expect("it ends").expect("it is whole");
    assert!(list.to_bytes().len() > 40 * 200_000);
}
