//! Many requests on one HTTP/2 connection.

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
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

/// Opens one connection.
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

/// Returns the next data frame; panics if it does not arrive in time.
async fn next(body: &mut Incoming) -> Bytes {
    let frame = timeout(LINE_WAIT, body.frame()).await.expect("something is due");
    frame.expect("it goes on").expect("it is not cut").into_data().expect("data")
}

/// Goal: a connection has as many watches as SETTINGS allow, and closed ones make room for others.
#[tokio::test]
async fn a_hundred_watches_share_a_connection() {
    const WATCHES: usize = 100;
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
    // Closed streams make room for others.
    drop(watches);
    let mut last = get(&sender, "/livez").await;
    assert_eq!(next(&mut last).await, "ok");
}

/// Goal: a connection has at most as many open streams as SETTINGS announce. Method: frame by frame, one watch more than that
/// in a client that ignores it.
#[tokio::test]
async fn the_stream_after_a_hundred_is_refused() {
    const SETTINGS: u8 = 4;
    const RST_STREAM: u8 = 3;
    let server = Server::start(BINARY, &[]).await;
    let mut stream = TcpStream::connect(server.address()).await.expect("it listens");
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    let path = b"/api/v1/pods?watch=1";
    // GET, http, :path and :authority of HPACK's static table, without an index.
    let head = [b"\x82\x86\x04", &[20][..], path, b"\x01\x09localhost"].concat();
    for number in (1..=201_u32).step_by(2) {
        sent.extend([0, 0, u8::try_from(head.len()).expect("a short head"), 1, 5]);
        sent.extend(number.to_be_bytes());
        sent.extend(&head);
    }
    stream.write_all(&sent).await.expect("is sent");
    let refused = async {
        let mut announced = None;
        loop {
            let mut frame = [0; 9];
            stream.read_exact(&mut frame).await.expect("the connection stays");
            let mut payload = vec![0; usize::from(frame[1]) << 8 | usize::from(frame[2])];
            stream.read_exact(&mut payload).await.expect("the connection stays");
            match frame[3] {
                SETTINGS => {
                    let setting = payload.chunks(6).find(|setting| setting[..2] == [0, 3]);
                    announced = announced.or_else(|| setting.map(|setting| setting[2..].to_vec()));
                }
                RST_STREAM => return (announced, frame[5..].to_vec(), payload),
                _ => {}
            }
        }
    };
    let (announced, number, code) = timeout(ANSWER_WAIT, refused).await.expect("a refusal");
    assert_eq!((number, code), (201_u32.to_be_bytes().to_vec(), 7_u32.to_be_bytes().to_vec()), "REFUSED_STREAM");
    assert_eq!(announced, Some(100_u32.to_be_bytes().to_vec()));
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

/// Goal: clients that reset their streams do not flood the log. Method: three of them, frame by frame.
#[tokio::test]
async fn clients_that_reset_their_streams_too_fast_are_told_of_in_one_line() {
    let server = Server::start(BINARY, &[]).await;
    for _ in 0..3 {
        let mut stream = TcpStream::connect(server.address()).await.expect("it listens");
        let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
        for number in (1..4_000_u32).step_by(2) {
            // HEADERS for `GET http /` as HPACK indices, with END_STREAM; then RST_STREAM with CANCEL.
            sent.extend(b"\0\0\x03\x01\x05");
            sent.extend(number.to_be_bytes());
            sent.extend(b"\x82\x86\x84\0\0\x04\x03\0");
            sent.extend(number.to_be_bytes());
            sent.extend(8_u32.to_be_bytes());
        }
        let (mut reader, mut writer) = stream.split();
        let mut answer = Vec::new();
        // The server may close the connection before it has received everything.
        let (_, read) = tokio::join!(writer.write_all(&sent), timeout(ANSWER_WAIT, reader.read_to_end(&mut answer)));
        let _ = read.expect("it is cut off");
    }
    server.client().get("/livez").await.with_code(200);
    server.terminate();
    let log = server.ended().await.stderr;
    assert_eq!(log.lines().filter(|line| line.contains("WARN")).count(), 1, "{log}");
    assert!(log.contains("HTTP/2 flood detected") && log.contains("connections=1"), "{log}");
}
