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
    limits::{HEAD_TIMEOUT, HTTP2_CONTROL_FRAMES_BURST, HTTP2_STREAM_STUCK, WATCH_END_WAIT},
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const EMPTY_SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;

/// Returns the client's end of a connection, and the handle whose drop shuts the server down.
fn connect() -> (DuplexStream, watch::Sender<()>) {
    connect_to(Arc::new(App::new(Config::default())))
}

fn connect_to(app: Arc<App>) -> (DuplexStream, watch::Sender<()>) {
    connect_by(Handler::of_tests(app))
}

fn connect_by(handler: Handler) -> (DuplexStream, watch::Sender<()>) {
    let (ours, client) = duplex(64 << 10);
    let (closing, closed) = watch::channel(());
    tokio::spawn(serve(ours, handler, closed));
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

/// Goal: each kind of frame without a request ends its connection with ENHANCE_YOUR_CALM once there are too many, and not
/// before. Method: a client that reads all answers, in paused time, so that only the burst is allowed.
#[tokio::test(start_paused = true)]
async fn a_client_that_floods_the_connection_is_told_to_calm_down() {
    let burst = HTTP2_CONTROL_FRAMES_BURST as usize;
    let ping = b"\0\0\x08\x06\0\0\0\0\0abcdefgh".to_vec();
    let priority = b"\0\0\x05\x02\0\0\0\0\x01\0\0\0\0\x01".to_vec();
    let window = b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01".to_vec();
    let unknown = b"\0\0\x02\xee\0\0\0\0\0ab".to_vec();
    for (name, frames, allowed) in [
        ("ping", ping, burst),
        ("settings", EMPTY_SETTINGS.to_vec(), burst / 100),
        ("priority", priority, burst),
        ("window", window, burst),
        ("unknown", unknown, burst),
    ] {
        let (client, _closing) = connect();
        let (reader, mut writer) = tokio::io::split(client);
        let reading = tokio::spawn(async move {
            let mut reader = tokio::io::BufReader::new(reader);
            loop {
                let mut head = [0; 9];
                if reader.read_exact(&mut head).await.is_err() {
                    return None;
                }
                let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
                reader.read_exact(&mut payload).await.unwrap();
                if head[3] == GOAWAY {
                    return Some(payload[7]);
                }
            }
        });
        // The settings of the preface and the answers to the server's own count, too.
        let few = frames.repeat(allowed / 2);
        writer.write_all(&[PREFACE, EMPTY_SETTINGS, &few].concat()).await.unwrap();
        sleep(Duration::from_millis(1)).await;
        assert!(!reading.is_finished(), "{name}: half of the burst is allowed");
        let _ = writer.write_all(&frames.repeat(allowed)).await;
        assert_eq!(reading.await.unwrap(), Some(11), "{name}: GOAWAY with ENHANCE_YOUR_CALM");
    }
}

/// Goal: a list whose client does not open its window does not stay for ever. Method: a window of zero.
#[tokio::test(start_paused = true)]
async fn a_list_that_is_not_read_is_reset() {
    let (mut client, _closing) = connect();
    let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
    client.write_all(&[PREFACE, &settings, &get(1, "/openapi/v2")].concat()).await.unwrap();
    let begun = Instant::now();
    loop {
        let (kind, flags, payload) = frame(&mut client).await.expect("the connection stays");
        match kind {
            RST_STREAM => break,
            PING if flags & ACK == 0 => {
                client.write_all(&[b"\0\0\x08\x06\x01\0\0\0\0", &payload[..]].concat()).await.unwrap();
            }
            _ => {}
        }
    }
    assert_eq!(begun.elapsed().as_secs(), HTTP2_STREAM_STUCK.as_secs());
    client.write_all(&get(3, "/livez")).await.unwrap();
    while frame(&mut client).await.expect("the connection stays").0 != HEADERS {}
}

/// Goal: idle connections give their slots to others. Method: a client that has had an answer and answers pings, on a
/// server that becomes full.
#[tokio::test(start_paused = true)]
async fn an_idle_connection_ends_while_few_slots_are_free() {
    let app = Arc::new(App::new(Config::default()));
    let handler = Handler::of_tests(app);
    let crowd = Arc::clone(&handler.crowd);
    let (mut client, _closing) = connect_by(handler);
    client.write_all(&[PREFACE, EMPTY_SETTINGS, &get(1, "/livez")].concat()).await.unwrap();
    while frame(&mut client).await.expect("is answered").0 != HEADERS {}
    crowd.set(true);
    let ended = async {
        while let Some((kind, ..)) = frame(&mut client).await {
            if kind == GOAWAY {
                return true;
            }
        }
        false
    };
    let within = crate::limits::HEAD_TIMEOUT_CROWDED + Duration::from_secs(1);
    assert_eq!(timeout(within, ended).await, Ok(true));
    let ended = async { while frame(&mut client).await.is_some() {} };
    assert_eq!(timeout(2 * GOODBYE_WAIT, ended).await, Ok(()), "it ends although the client says nothing");
}
