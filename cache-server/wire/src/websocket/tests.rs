//! WebSockets over in-memory streams, with scripted bodies.

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt as _, DuplexStream, duplex},
    sync::mpsc::{UnboundedSender, unbounded_channel},
    task::JoinHandle,
    time::Instant,
};

use super::*;
use crate::{limits::WATCH_END_WAIT, watch_sink::tests::Script};

const PING: &[u8] = b"\x89\x82\0\0\0\0hi";
const PONG: &[u8] = b"\x8a\x02hi";
const CLOSE: &[u8] = b"\x88\x82\0\0\0\0\x03\xe9";
const NORMAL: &[u8] = b"\x88\x02\x03\xe8";

fn lines(text: &str) -> Result<Slices, BodyError> {
    let mut slices = Slices::new();
    for word in text.split_inclusive([' ', '\n']) {
        slices.push(Bytes::copy_from_slice(word.as_bytes()));
    }
    Ok(slices)
}

fn frame(line: &str) -> Vec<u8> {
    [&[0x81, u8::try_from(line.len()).unwrap()], line.as_bytes()].concat()
}

/// The test's handles on a watch.
struct Watched {
    body: UnboundedSender<Result<Slices, BodyError>>,
    client: DuplexStream,
    ended: JoinHandle<WatchEnd>,
}

/// Starts a watch whose connection holds `room` bytes in each direction, and reads its head.
async fn watch(room: usize, read: &'static [u8]) -> Watched {
    let (ours, mut client) = duplex(room);
    let (body, batches) = unbounded_channel();
    let mut socket = WebSocket::new(ours, read, Response::builder().status(101).body(Script(batches)).unwrap(), None);
    let ended = tokio::spawn(async move { socket.ended().await });
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101 Switching Protocols\r\n"));
    Watched { body, client, ended }
}

async fn expect(client: &mut DuplexStream, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    client.read_exact(&mut read).await.unwrap();
    assert_eq!(read, bytes);
}

#[tokio::test]
async fn each_line_is_sent_at_once_as_a_message_and_the_end_is_a_close_frame() {
    let Watched { body, mut client, ended } = watch(1 << 10, b"").await;
    for batch in ["one\n", "two and\nthree\n"] {
        body.send(lines(batch)).unwrap();
        for line in batch.split_inclusive('\n') {
            expect(&mut client, &frame(line)).await;
        }
    }
    drop(body);
    expect(&mut client, NORMAL).await;
    client.write_all(CLOSE).await.unwrap();
    assert_eq!(ended.await.unwrap(), WatchEnd::Clean);
}

/// Goal: pieces of any size arrive as whole messages. Method: a connection that holds few bytes, and pings in between.
#[tokio::test]
async fn a_slow_reader_gets_every_byte_and_its_pongs_between_messages() {
    for room in [1, 2, 3, 7, 64] {
        let Watched { body, mut client, ended } = watch(room, b"").await;
        let mut whole = Vec::new();
        for index in 0..50 {
            let line = format!("{index} {}\n", "word ".repeat(index % 9));
            whole.extend(frame(&line));
            body.send(lines(&line)).unwrap();
        }
        drop(body);
        expect(&mut client, &whole[..100]).await;
        let (mut reader, mut writer) = tokio::io::split(client);
        let sending = tokio::spawn(async move {
            writer.write_all(PING).await.unwrap();
            writer.write_all(CLOSE).await.unwrap();
        });
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).await.unwrap();
        sending.await.unwrap();
        // The client closed before all was sent: the server completes its current message and then sends its answers.
        let rest = rest.strip_suffix(b"\x88\x02\x03\xe9").or_else(|| rest.strip_suffix(NORMAL)).expect("a close frame");
        let rest = match rest.windows(PONG.len()).position(|part| part == PONG) {
            Some(at) => [&rest[..at], &rest[at + PONG.len()..]].concat(),
            None => rest.to_vec(),
        };
        assert!(whole[100..].starts_with(&rest), "room for {room}");
        assert_eq!(ended.await.unwrap(), WatchEnd::Clean, "room for {room}");
    }
}

#[tokio::test]
async fn pings_are_answered_while_nothing_happens() {
    let Watched { body, mut client, ended } = watch(1 << 10, PING).await;
    expect(&mut client, PONG).await;
    client.write_all(&PING[..5]).await.unwrap();
    tokio::task::yield_now().await;
    client.write_all(&PING[5..]).await.unwrap();
    expect(&mut client, PONG).await;
    client.write_all(CLOSE).await.unwrap();
    expect(&mut client, b"\x88\x02\x03\xe9").await;
    assert_eq!(ended.await.unwrap(), WatchEnd::Clean);
    assert!(body.is_closed());
}

/// Goal: a client cannot make the server queue answers. Method: it sends a thousand pings and reads none.
#[tokio::test]
async fn only_the_latest_ping_is_answered_to_a_client_that_takes_nothing() {
    let Watched { body, mut client, ended } = watch(64, b"").await;
    body.send(lines(&format!("{}\n", "x".repeat(100)))).unwrap();
    tokio::task::yield_now().await;
    for index in 0..1_000_u16 {
        let [high, low] = index.to_be_bytes();
        client.write_all(&[0x89, 0x82, 0, 0, 0, 0, high, low]).await.unwrap();
    }
    tokio::task::yield_now().await;
    expect(&mut client, &frame(&format!("{}\n", "x".repeat(100)))).await;
    expect(&mut client, &[0x8a, 2, 0x03, 0xe7]).await;
    drop(client);
    assert_eq!(ended.await.unwrap(), WatchEnd::Gone);
}

#[tokio::test]
async fn a_client_that_breaks_the_protocol_is_told_and_left() {
    for (sent, code) in [(&b"\x81\x01x"[..], 1002_u16), (b"\x82\xff\x01\0\0\0\0\0\0\0\0\0\0\0", 1009)] {
        let Watched { body, mut client, ended } = watch(1 << 10, b"").await;
        client.write_all(sent).await.unwrap();
        // Later input is not parsed as frames.
        client.write_all(PING).await.unwrap();
        expect(&mut client, &[&[0x88, 2][..], &code.to_be_bytes()].concat()).await;
        assert!(body.send(lines("more\n")).is_ok(), "the body is let go with the connection");
        client.shutdown().await.unwrap();
        assert_eq!(ended.await.unwrap(), WatchEnd::Gone);
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "nothing follows a close frame");
    }
}

/// Goal: a client that does not answer a close frame is disconnected after a while.
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_close_is_left_after_a_while() {
    let Watched { body, mut client, ended } = watch(1 << 10, b"").await;
    drop(body);
    expect(&mut client, NORMAL).await;
    let closed = Instant::now();
    assert_eq!(ended.await.unwrap(), WatchEnd::Clean);
    assert_eq!(closed.elapsed().as_secs(), WEBSOCKET_CLOSE_WAIT.as_secs());
}

#[tokio::test]
async fn a_body_that_is_cut_ends_without_a_close_frame() {
    let Watched { body, mut client, ended } = watch(1 << 10, b"").await;
    body.send(lines("half\n")).unwrap();
    body.send(Err(BodyError::Cut)).unwrap();
    assert_eq!(ended.await.unwrap(), WatchEnd::Cut);
    drop(body);
    let mut sent = Vec::new();
    client.read_to_end(&mut sent).await.unwrap();
    assert_eq!(sent, frame("half\n"));
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed_while_it_takes_nothing() {
    let Watched { body, mut client, ended } = watch(8, b"").await;
    body.send(lines("a line that does not fit\n")).unwrap();
    tokio::task::yield_now().await;
    client.shutdown().await.unwrap();
    assert_eq!(ended.await.unwrap(), WatchEnd::Gone);
    assert!(body.is_closed(), "the body is let go");
}

#[tokio::test]
async fn for_a_reader_that_takes_nothing_no_more_than_a_batch_is_made() {
    let (ours, client) = duplex(8);
    let (body, batches) = unbounded_channel();
    for _ in 0..5 {
        body.send(lines("more\n")).unwrap();
    }
    let mut socket = WebSocket::new(ours, b"", Response::new(Script(batches)), None);
    // The head is blocked, so the body is not polled.
    for _ in 0..10 {
        assert!(socket.poll_ended(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
    }
    assert_eq!(socket.body.0.len(), 5);
    drop(client);
}

/// Goal: a client that reads nothing holds its watch hardly longer than one that reads.
#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_cut_soon_after_the_end_of_its_watch() {
    let (ours, client) = duplex(8);
    let (body, batches) = unbounded_channel();
    body.send(lines("more\n")).unwrap();
    let (began, deadline) = (Instant::now(), Instant::now() + std::time::Duration::from_secs(30));
    let mut socket = WebSocket::new(
        ours,
        b"",
        Response::new(Script(batches)),
        Some(WatchTerm::new(deadline + WATCH_END_WAIT, None)),
    );
    let end = socket.ended().await;
    assert_eq!((end, began.elapsed().as_secs()), (WatchEnd::Cut, 30 + WATCH_END_WAIT.as_secs()));
    drop(client);
}
