//! Watches over in-memory streams, with scripted bodies.

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    sync::mpsc::{UnboundedSender, unbounded_channel},
    task::JoinHandle,
    time::Instant,
};

use super::*;
use crate::{
    limits::WATCH_END_WAIT,
    watch_sink::{BATCHES_PER_TURN, WatchEnd, tests::Script},
};

/// The term of a watch that ends by itself at `deadline`.
fn term(deadline: Instant) -> WatchTerm {
    WatchTerm::new(deadline + WATCH_END_WAIT, None)
}

fn text(text: &str) -> Result<Slices, BodyError> {
    let mut slices = Slices::new();
    for word in text.split_inclusive(' ') {
        slices.push(Bytes::copy_from_slice(word.as_bytes()));
    }
    Ok(slices)
}

/// The test's handles on a watch.
struct Watched {
    body: UnboundedSender<Result<Slices, BodyError>>,
    client: DuplexStream,
    /// Result, bytes read meanwhile, and the connection.
    ended: JoinHandle<(WatchEnd, Bytes, DuplexStream)>,
}

/// Starts a watch whose connection holds `room` bytes in each direction, and reads its head.
async fn watch(room: usize, read: &'static [u8]) -> Watched {
    let (ours, mut client) = duplex(room);
    let (body, chunks) = unbounded_channel();
    let mut takeover = Takeover::new(ours, Bytes::from_static(read), Response::new(Script(chunks)), false, None);
    let ended = tokio::spawn(async move {
        let end = takeover.ended().await;
        let (stream, read) = takeover.into_parts();
        (end, read, stream)
    });
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ndate: "));
    Watched { body, client, ended }
}

async fn expect(client: &mut DuplexStream, text: &str) {
    let mut read = vec![0; text.len()];
    client.read_exact(&mut read).await.unwrap();
    assert_eq!(String::from_utf8(read).unwrap(), text);
}

#[tokio::test]
async fn what_the_body_has_is_sent_at_once_and_the_end_is_said() {
    let Watched { body, mut client, ended } = watch(1 << 10, b"").await;
    for word in ["one", "two and three"] {
        body.send(text(word)).unwrap();
        expect(&mut client, &format!("{:X}\r\n{word}\r\n", word.len())).await;
    }
    drop(body);
    expect(&mut client, "0\r\n\r\n").await;
    let (end, read, _stream) = ended.await.unwrap();
    assert_eq!((end, &read[..]), (WatchEnd::Clean, &b""[..]));
}

#[tokio::test]
async fn the_last_chunk_brings_the_end_along() {
    let Watched { body, mut client, ended } = watch(1 << 10, b"").await;
    body.send(text("last")).unwrap();
    drop(body);
    expect(&mut client, "4\r\nlast\r\n0\r\n\r\n").await;
    assert_eq!(ended.await.unwrap().0, WatchEnd::Clean);
}

/// Goal: pieces of any size arrive as one body. Method: a connection that holds few bytes, so that writes stop
/// everywhere.
#[tokio::test]
async fn a_slow_reader_gets_every_byte() {
    for room in [1, 2, 3, 7, 64] {
        let Watched { body, mut client, ended } = watch(room, b"").await;
        let mut whole = String::new();
        for index in 0..50 {
            let words = format!("{index} {}", "word ".repeat(index % 9));
            whole.push_str(&format!("{:X}\r\n{words}\r\n", words.len()));
            body.send(text(&words)).unwrap();
        }
        drop(body);
        whole = format!("{whole}0\r\n\r\n");
        // The last chunk and the end may be one write or two; the bytes are equal.
        expect(&mut client, &whole).await;
        assert_eq!(ended.await.unwrap().0, WatchEnd::Clean, "room for {room}");
    }
}

/// Creates a watch to be polled by hand, with `count` chunks to send through a connection that holds `room` bytes.
fn waiting(room: usize, count: usize) -> (Takeover<DuplexStream, Script>, DuplexStream) {
    let (ours, client) = duplex(room);
    let (body, chunks) = unbounded_channel();
    for _ in 0..count {
        body.send(text("more")).unwrap();
    }
    // Keeps the body open for the rest of the test.
    std::mem::forget(body);
    (Takeover::new(ours, Bytes::new(), Response::new(Script(chunks)), false, None), client)
}

#[tokio::test]
async fn for_a_reader_that_takes_nothing_no_more_than_a_chunk_is_made() {
    let (mut takeover, client) = waiting(8, 5);
    for _ in 0..10 {
        assert!(takeover.poll_ended(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
    }
    assert_eq!(takeover.body.0.len(), 4);
    drop(client);
}

#[tokio::test]
async fn a_busy_watch_leaves_others_their_turns() {
    let (mut takeover, mut client) = waiting(1 << 20, 1_000);
    assert!(takeover.poll_ended(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
    assert_eq!(takeover.body.0.len(), 1_000 - BATCHES_PER_TURN);
    let mut sent = vec![0; 1 << 20];
    let count = client.read(&mut sent).await.unwrap();
    assert!(sent[..count].ends_with(&b"4\r\nmore\r\n".repeat(BATCHES_PER_TURN)), "all that was made was sent");
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed_while_nothing_happens() {
    let Watched { body, mut client, ended } = watch(64, b"").await;
    client.shutdown().await.unwrap();
    assert_eq!(ended.await.unwrap().0, WatchEnd::Gone);
    assert!(body.is_closed(), "the body is let go");
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed_while_it_takes_nothing() {
    let Watched { body, mut client, ended } = watch(8, b"").await;
    body.send(text("a chunk that does not fit")).unwrap();
    tokio::task::yield_now().await;
    client.shutdown().await.unwrap();
    assert_eq!(ended.await.unwrap().0, WatchEnd::Gone);
    drop(client);
}

#[tokio::test]
async fn what_comes_behind_the_request_is_kept() {
    let Watched { body, mut client, ended } = watch(1 << 10, b"GET /one ").await;
    client.write_all(b"and ").await.unwrap();
    body.send(text("something")).unwrap();
    expect(&mut client, "9\r\nsomething\r\n").await;
    client.write_all(b"two").await.unwrap();
    tokio::task::yield_now().await;
    drop(body);
    expect(&mut client, "0\r\n\r\n").await;
    let (end, read, _stream) = ended.await.unwrap();
    assert_eq!((end, &read[..]), (WatchEnd::Clean, &b"GET /one and two"[..]));
}

/// Goal: bytes after the request are kept only up to a bound. Method: a client sends more; the rest stays in the
/// connection for its next server.
#[tokio::test]
async fn only_so_much_is_kept_of_what_comes_behind_the_request() {
    let Watched { body, mut client, ended } = watch(1 << 10, b"before").await;
    let sent = PIPELINED_BYTES_MAX - 6 + 100;
    client.write_all(&vec![b'x'; sent]).await.unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    drop(body);
    expect(&mut client, "0\r\n\r\n").await;
    let (end, read, mut stream) = ended.await.unwrap();
    assert_eq!((end, read.len()), (WatchEnd::Clean, PIPELINED_BYTES_MAX));
    let mut rest = [0; 100];
    stream.read_exact(&mut rest).await.unwrap();
}

#[tokio::test]
async fn a_body_that_is_cut_does_not_end_like_a_whole_one() {
    let Watched { body, mut client, ended } = watch(1 << 10, b"").await;
    body.send(text("half")).unwrap();
    body.send(Err(BodyError::Cut)).unwrap();
    let (end, _, stream) = ended.await.unwrap();
    assert_eq!(end, WatchEnd::Cut);
    drop((stream, body));
    let mut sent = String::new();
    client.read_to_string(&mut sent).await.unwrap();
    assert_eq!(sent, "4\r\nhalf\r\n");
}

/// Goal: a client that reads too slowly does not outlive its watch. Method: a byte every 50 s, and none, of a chunk
/// that would take hours; then a client that reads all of it just in time.
#[tokio::test(start_paused = true)]
async fn a_client_that_takes_a_byte_a_minute_is_ended_with_its_watch() {
    let lasts = std::time::Duration::from_secs(300);
    for pause in [50, 1_000_000] {
        let (ours, mut client) = duplex(8);
        let (body, chunks) = unbounded_channel();
        body.send(text(&"word ".repeat(100))).unwrap();
        let began = Instant::now();
        let response = Response::new(Script(chunks));
        let mut takeover = Takeover::new(ours, Bytes::new(), response, false, Some(term(began + lasts)));
        let reader = tokio::spawn(async move {
            while client.read_u8().await.is_ok() {
                tokio::time::sleep(std::time::Duration::from_secs(pause)).await;
            }
        });
        assert_eq!((takeover.ended().await, began.elapsed()), (WatchEnd::Cut, lasts + WATCH_END_WAIT));
        reader.abort();
    }
    let (ours, mut client) = duplex(8);
    let (body, chunks) = unbounded_channel();
    body.send(text("some words")).unwrap();
    let mut takeover =
        Takeover::new(ours, Bytes::new(), Response::new(Script(chunks)), false, Some(term(Instant::now() + lasts)));
    let reader = tokio::spawn(async move {
        tokio::time::sleep(lasts + WATCH_END_WAIT / 2).await;
        drop(body);
        let mut sent = String::new();
        client.read_to_string(&mut sent).await.unwrap();
        sent
    });
    assert_eq!(takeover.ended().await, WatchEnd::Clean);
    drop(takeover);
    assert!(reader.await.unwrap().ends_with("A\r\nsome words\r\n0\r\n\r\n"));
}
