//! HTTP/2 connections over in-memory streams, frame by frame.

use std::sync::Arc;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    time::{Duration, Instant, sleep, timeout},
};

use super::*;
use crate::{
    app::App,
    config::Config,
    limits::{HEAD_TIMEOUT, WATCH_END_WAIT},
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const EMPTY_SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PING: u8 = 6;
const ACK: u8 = 1;

/// Returns the client's end of a connection, and the handle whose drop shuts the server down.
fn connect() -> (DuplexStream, watch::Sender<()>) {
    connect_to(Arc::new(App::new(Config::default())))
}

fn connect_to(app: Arc<App>) -> (DuplexStream, watch::Sender<()>) {
    let (ours, client) = duplex(64 << 10);
    let (closing, closed) = watch::channel(());
    tokio::spawn(serve(ours, Handler::of_tests(app), closed));
    (client, closing)
}

/// Returns the frame of a GET of `path` on `stream`.
fn get(stream: u8, path: &str) -> Vec<u8> {
    let literal = |name: u8, value: &str| [&[name, u8::try_from(value.len()).unwrap()], value.as_bytes()].concat();
    // GET and http of HPACK's static table, then :path and :authority without an index.
    let head = [vec![0x82, 0x86], literal(4, path), literal(1, "localhost")].concat();
    [&[0, 0, u8::try_from(head.len()).unwrap(), 1, 5, 0, 0, 0, stream], &head[..]].concat()
}

/// Reads type, flags and payload of the next frame; `None` at the end.
async fn frame(client: &mut DuplexStream) -> Option<(u8, u8, Vec<u8>)> {
    let mut head = [0; 9];
    client.read_exact(&mut head).await.ok()?;
    let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
    client.read_exact(&mut payload).await.ok()?;
    Some((head[3], head[4], payload))
}

/// Returns the payload of the next ping; `None` if the server closes the connection first.
async fn asked(client: &mut DuplexStream) -> Option<Vec<u8>> {
    loop {
        let (kind, flags, payload) = frame(client).await?;
        if kind == PING && flags & ACK == 0 {
            return Some(payload);
        }
    }
}

/// Goal: a silent client that answers pings stays connected, and a dead one does not. Method: answer for an hour, then
/// never.
#[tokio::test(start_paused = true)]
async fn who_does_not_answer_is_gone() {
    let (mut client, _closing) = connect();
    client.write_all(&[PREFACE, EMPTY_SETTINGS].concat()).await.unwrap();
    for _ in 0..60 {
        let payload = timeout(HTTP2_PING_EVERY + Duration::from_secs(1), asked(&mut client)).await;
        let payload = payload.expect("it is time to ask").expect("who answers stays");
        client.write_all(&[b"\0\0\x08\x06\x01\0\0\0\0", &payload[..]].concat()).await.unwrap();
    }
    assert!(asked(&mut client).await.is_some());
    let asked_at = Instant::now();
    assert_eq!(asked(&mut client).await, None, "asked twice");
    assert_eq!(asked_at.elapsed().as_secs(), HTTP2_PONG_WAIT.as_secs());
}

/// Goal: a client that does not begin cannot hold a connection slot. Method: only a part of the preface; one
/// connection ends by timeout, another by the server's shutdown.
#[tokio::test(start_paused = true)]
async fn who_does_not_begin_is_gone() {
    for said in [4, PREFACE.len() - 1] {
        let (mut client, closing) = connect();
        client.write_all(&PREFACE[..said]).await.unwrap();
        let begun = Instant::now();
        let ended = timeout(HEAD_TIMEOUT * 2, asked(&mut client)).await;
        assert_eq!((ended, begun.elapsed().as_secs()), (Ok(None), HEAD_TIMEOUT.as_secs()), "after {said} bytes");
        drop(closing);

        let (mut client, closing) = connect();
        client.write_all(&PREFACE[..said]).await.unwrap();
        drop(closing);
        let ended = timeout(Duration::from_secs(1), asked(&mut client)).await;
        assert_eq!(ended, Ok(None), "after {said} bytes");
    }
}

/// Goal: a watch ends at its timeout even if its stream's window never opened, and the rest of the connection
/// continues. Method: windows of zero and of ten bytes, with an initial state to be sent.
#[tokio::test(start_paused = true)]
async fn a_watch_whose_window_is_shut_ends_at_its_timeout() {
    for window in [0, 10] {
        let app = Arc::new(App::new(Config::default()));
        let request = Request::post("/api/v1/namespaces/ns/configmaps").header("content-type", "application/json");
        let object = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}"#;
        let created = crate::http::handle(Arc::clone(&app), request.body(object.to_owned()).unwrap()).await;
        assert_eq!(created.status(), 201);
        let open = || {
            let text = app.metrics.text(&app.caches);
            text.contains("apiserver_longrunning_requests{verb=\"WATCH\",resource=\"configmaps\"} 1")
        };
        let (mut client, _closing) = connect_to(Arc::clone(&app));
        let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, window];
        let watch = get(1, "/api/v1/configmaps?watch=1&timeoutSeconds=5");
        client.write_all(&[PREFACE, &settings, &watch].concat()).await.unwrap();
        while frame(&mut client).await.expect("the connection stays").0 != HEADERS {}
        sleep(Duration::from_millis(4_990)).await;
        assert!(open(), "it is counted while it is open");
        sleep(Duration::from_millis(20) + WATCH_END_WAIT).await;
        assert!(!open(), "its cursor is gone, {window} bytes");
        client.write_all(&get(3, "/livez")).await.unwrap();
        let mut kinds = Vec::new();
        while kinds.last() != Some(&HEADERS) {
            kinds.push(frame(&mut client).await.expect("the connection stays").0);
        }
        assert!(window > 0 || kinds.contains(&RST_STREAM), "{kinds:?}");
    }
}
