//! Tunnels between real sockets.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use http::{HeaderValue, StatusCode, header};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::*;
use crate::{
    accept::tests::TestServer,
    handler::tests::{TestBody, TestHandler, answer, shared},
    limits::WITHDRAWAL_WAIT,
    term::{WatchTerm, Withdrawal},
};

const WAIT: Duration = Duration::from_secs(30);

const EXEC: &[u8] = b"GET /exec HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";

/// Returns the client's end of a tunnel and that of the upstream. `early` is sent along with the request.
async fn tunnel(early: &[u8]) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let connecting = TcpStream::connect(listener.local_addr().unwrap());
    let (ours, upstream) = tokio::join!(connecting, listener.accept());
    let ours = Mutex::new(Some(ours.unwrap()));
    let server = TestServer::start(shared(move |_| {
        let body = TestBody::tunnel(ours.lock().take().expect("one request"));
        let mut response = answer(StatusCode::SWITCHING_PROTOCOLS, body);
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("SPDY/3.1"));
        response
    }));
    let mut client = server.connect().await;
    client.write_all(&[EXEC, early].concat()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.expect("the rest of a head"));
    }
    assert!(head.starts_with(b"HTTP/1.1 101 Switching Protocols\r\n"), "{}", String::from_utf8_lossy(&head));
    (client, upstream.unwrap().0)
}

/// Goal: a tunnel carries bytes both ways at once, and the end of one direction does not end the other. Method: 3 MB to an
/// echo, the first of them in one packet with the request, then a half-close.
#[tokio::test]
async fn a_tunnel_carries_bytes_both_ways_until_both_sides_end() {
    let sent: Vec<u8> = (0..3_000_000_u32).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let (client, upstream) = tunnel(&sent[..10_000]).await;
    tokio::spawn(async move {
        let (mut from, mut to) = upstream.into_split();
        tokio::io::copy(&mut from, &mut to).await.unwrap();
        to.write_all(b"bye").await.unwrap();
    });
    let (mut from, mut to) = client.into_split();
    let rest = sent[10_000..].to_vec();
    let writing = tokio::spawn(async move {
        to.write_all(&rest).await.unwrap();
        to.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    timeout(WAIT, from.read_to_end(&mut received)).await.unwrap().unwrap();
    writing.await.unwrap();
    assert!(received[..sent.len()] == sent, "other bytes");
    assert_eq!(&received[sent.len()..], b"bye", "the answer after the client's end");
}

#[tokio::test]
async fn a_tunnel_whose_other_side_breaks_is_reset() {
    let (mut client, mut upstream) = tunnel(b"").await;
    upstream.write_all(b"hello").await.unwrap();
    let mut received = [0; 5];
    client.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"hello");
    socket2::SockRef::from(&upstream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(upstream);
    let error = timeout(WAIT, client.read_u8()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

/// Goal: a silent session stays open, and ends soon after the right to it. Method: an hour without a byte, then a withdrawal.
#[tokio::test(start_paused = true)]
async fn a_tunnel_ends_after_its_right_only() {
    let ((ours, _client), (theirs, mut upstream)) = (duplex(1 << 10), duplex(1 << 10));
    let right = Arc::new(Withdrawal::default());
    let body = TestBody::tunnel(theirs).until(WatchTerm::of_right(Arc::clone(&right)));
    let response = answer(StatusCode::SWITCHING_PROTOCOLS, body);
    let mut copying = tokio::spawn(copying::<_, TestHandler>(ours, Bytes::from_static(b"early"), response).0);
    let mut early = [0; 5];
    upstream.read_exact(&mut early).await.unwrap();
    assert_eq!(&early, b"early");
    assert!(timeout(Duration::from_secs(3_600), &mut copying).await.is_err(), "a silent session stays");
    right.withdraw();
    assert!(timeout(WITHDRAWAL_WAIT, copying).await.is_ok());
}
