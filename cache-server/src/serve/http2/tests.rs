//! Connections over streams in memory, frame by frame.

use std::{net::Ipv4Addr, sync::Arc};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    time::{Duration, Instant, timeout},
};

use super::*;
use crate::{app::App, config::Config, limits::HEAD_TIMEOUT};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const EMPTY_SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
const PING: u8 = 6;
const ACK: u8 = 1;

/// The client's end of a connection, and what keeps the server from ending it.
fn connect() -> (DuplexStream, watch::Sender<()>) {
    let (ours, client) = duplex(64 << 10);
    let (closing, closed) = watch::channel(());
    let handler = Handler { app: Arc::new(App::new(Config::default())), bound: Ipv4Addr::LOCALHOST.into() };
    tokio::spawn(serve(ours, handler, closed));
    (client, closing)
}

/// Type, flags and payload of the next frame; `None` at the end.
async fn frame(client: &mut DuplexStream) -> Option<(u8, u8, Vec<u8>)> {
    let mut head = [0; 9];
    client.read_exact(&mut head).await.ok()?;
    let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
    client.read_exact(&mut payload).await.ok()?;
    Some((head[3], head[4], payload))
}

/// The payload of the next question whether the client lives; `None` when the server ends the connection first.
async fn asked(client: &mut DuplexStream) -> Option<Vec<u8>> {
    loop {
        let (kind, flags, payload) = frame(client).await?;
        if kind == PING && flags & ACK == 0 {
            return Some(payload);
        }
    }
}

/// Goal: a client that is silent but lives stays, and one that is gone goes. Method: answer for an hour, then never.
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

/// Goal: nobody holds a place among the connections without beginning. Method: nothing behind a part of the preface, over
/// one connection by time and over another by the end of the server.
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
