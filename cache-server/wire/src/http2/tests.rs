//! HTTP/2 connections over in-memory streams, frame by frame.

use std::sync::Arc;

use http::{StatusCode, header};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    sync::Notify,
    time::{Duration, Instant, sleep, timeout},
};

use super::*;
use crate::{
    handler::{
        ConnectionShared,
        tests::{TestBody, TestHandler, answer, context, shared, slices},
    },
    limits::{
        HEAD_TIMEOUT, HEAD_TIMEOUT_CROWDED, HTTP2_CONTROL_FRAMES_BURST, HTTP2_STREAM_STUCK, HTTP2_STREAMS_SHORT,
        HTTP2_UNREAD_STREAMS_MANY, WATCH_END_WAIT,
    },
    shares::{ProofWatcher, StreamCaller},
    term::WatchTerm,
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const EMPTY_SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn healthy() -> Arc<ConnectionShared<TestHandler>> {
    Arc::new(shared(|_| answer(StatusCode::OK, TestBody::text("ok"))))
}

/// Returns the client's end of a connection, and the handle whose drop shuts the server down.
fn connect() -> (DuplexStream, watch::Sender<ServerPhase>) {
    connect_by(context(&healthy()))
}

fn connect_by(context: ConnectionContext<TestHandler>) -> (DuplexStream, watch::Sender<ServerPhase>) {
    let (ours, client) = duplex(64 << 10);
    let (closing, closed) = watch::channel(ServerPhase::default());
    tokio::spawn(serve(ours, context, closed));
    (client, closing)
}

/// Returns a field of HPACK's static table without an index, for names below 15.
fn literal(name: u8, value: &str) -> Vec<u8> {
    [&[name, u8::try_from(value.len()).unwrap()], value.as_bytes()].concat()
}

/// Returns the frame of a GET of `path` on `stream`.
fn get(stream: u8, path: &str) -> Vec<u8> {
    // GET and http of HPACK's static table, then :path and :authority.
    let head = [vec![0x82, 0x86], literal(4, path), literal(1, "localhost")].concat();
    raw_frame(HEADERS, END_STREAM | END_HEADERS, stream, &head)
}

fn raw_frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    [&[0, 0, u8::try_from(payload.len()).unwrap(), kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Reads type, flags and payload of the next frame; `None` at the end.
async fn frame(client: &mut DuplexStream) -> Option<(u8, u8, Vec<u8>)> {
    stream_frame(client).await.map(|(_, kind, flags, payload)| (kind, flags, payload))
}

/// Like [`frame`], after the number of its stream.
async fn stream_frame(client: &mut DuplexStream) -> Option<(u8, u8, u8, Vec<u8>)> {
    let mut head = [0; 9];
    client.read_exact(&mut head).await.ok()?;
    let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
    client.read_exact(&mut payload).await.ok()?;
    Some((head[8], head[3], head[4], payload))
}

/// Returns the payload of the next ping; `None` if the server closes the connection first.
async fn next_ping(client: &mut DuplexStream) -> Option<Vec<u8>> {
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
        let payload = timeout(HTTP2_PING_EVERY + Duration::from_secs(1), next_ping(&mut client)).await;
        let payload = payload.expect("it is time to ask").expect("who answers stays");
        client.write_all(&[b"\0\0\x08\x06\x01\0\0\0\0", &payload[..]].concat()).await.unwrap();
    }
    assert!(next_ping(&mut client).await.is_some());
    let pinged_at = Instant::now();
    assert_eq!(next_ping(&mut client).await, None, "a second ping");
    assert_eq!(pinged_at.elapsed().as_secs(), HTTP2_PONG_WAIT.as_secs());
}

/// Goal: a client that does not begin cannot hold a connection slot. Method: only a part of the preface; one
/// connection ends by timeout, another by the server's shutdown.
#[tokio::test(start_paused = true)]
async fn who_does_not_begin_is_gone() {
    for sent in [4, PREFACE.len() - 1] {
        let (mut client, closing) = connect();
        client.write_all(&PREFACE[..sent]).await.unwrap();
        let begun = Instant::now();
        let ended = timeout(HEAD_TIMEOUT * 2, next_ping(&mut client)).await;
        assert_eq!((ended, begun.elapsed().as_secs()), (Ok(None), HEAD_TIMEOUT.as_secs()), "after {sent} bytes");
        drop(closing);

        let (mut client, closing) = connect();
        client.write_all(&PREFACE[..sent]).await.unwrap();
        drop(closing);
        let ended = timeout(Duration::from_secs(1), next_ping(&mut client)).await;
        assert_eq!(ended, Ok(None), "after {sent} bytes");
    }
}

/// Goal: a watch ends at its timeout even if its stream's window never opened, and the rest of the connection
/// continues. Method: windows of zero and of ten bytes, with an initial state to be sent.
#[tokio::test(start_paused = true)]
async fn a_watch_whose_window_is_shut_ends_at_its_timeout() {
    for window in [0, 10] {
        let feeds = Arc::new(Mutex::new(Vec::new()));
        let fed = Arc::clone(&feeds);
        let shared = Arc::new(shared(move |request| match request.uri().path() {
            "/watch" => {
                let (feed, body) = TestBody::fed();
                feed.send(Ok(slices("a state that is longer than the window"))).expect("the body is there");
                fed.lock().push(feed);
                let deadline = Instant::now() + Duration::from_secs(5);
                answer(StatusCode::OK, body.watch().until(WatchTerm::new(deadline + WATCH_END_WAIT, None)))
            }
            _ => answer(StatusCode::OK, TestBody::text("ok")),
        }));
        let (mut client, _closing) = connect_by(context(&shared));
        let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, window];
        client.write_all(&[PREFACE, &settings, &get(1, "/watch")].concat()).await.unwrap();
        while frame(&mut client).await.expect("the connection stays").0 != HEADERS {}
        let feed = feeds.lock().pop().expect("the watch has begun");
        sleep(Duration::from_millis(4_990)).await;
        assert!(!feed.is_closed(), "it is there while it is open");
        sleep(Duration::from_millis(20) + WATCH_END_WAIT).await;
        assert!(feed.is_closed(), "its body is gone, {window} bytes");
        client.write_all(&get(3, "/livez")).await.unwrap();
        let mut kinds = Vec::new();
        while kinds.last() != Some(&HEADERS) {
            kinds.push(frame(&mut client).await.expect("the connection stays").0);
        }
        assert!(kinds.contains(&RST_STREAM), "{window}: {kinds:?}");
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
    client.write_all(&[PREFACE, &settings, &get(1, "/list")].concat()).await.unwrap();
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
    let context = context(&healthy());
    let crowd = Arc::clone(&context.crowd);
    let (mut client, _closing) = connect_by(context);
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
    let within = HEAD_TIMEOUT_CROWDED + Duration::from_secs(1);
    assert_eq!(timeout(within, ended).await, Ok(true));
    let ended = async { while frame(&mut client).await.is_some() {} };
    assert_eq!(timeout(2 * GOODBYE_WAIT, ended).await, Ok(()), "it ends although the client says nothing");
}

/// A step of a client whose request is refused.
#[derive(Clone, Copy, Debug)]
enum RefusedStep {
    /// Sends a part of the body; the last one if true.
    Data(bool),
    /// Lets time pass.
    Pause,
    /// Reads the whole answer.
    Answer,
    /// Reads up to the ping behind GOAWAY.
    Goodbye,
    /// Confirms the pings that arrived.
    Pong,
}

/// A connection whose third stream is a PATCH.
struct PatchConnection {
    client: DuplexStream,
    pings: Vec<Vec<u8>>,
    /// Frames of the PATCH.
    frames: Vec<(u8, u8, Vec<u8>)>,
    /// Payloads of GOAWAY.
    goodbyes: Vec<Vec<u8>>,
}

impl PatchConnection {
    /// Opens a connection and sends the head of the PATCH, after a request with a valid token if the caller `is_proved`.
    async fn open(is_proved: bool) -> (Self, watch::Sender<ServerPhase>) {
        let (mut client, closing) = connect_by(context(&with_tokens()));
        let request = |method: &[u8], path: &str, token: &str| {
            let authorization = format!("Bearer {token}");
            // Index 23 of the static table.
            let authorization =
                [&[0x0f, 8, u8::try_from(authorization.len()).unwrap()], authorization.as_bytes()].concat();
            [method, &[0x86], &literal(4, path), &literal(1, "localhost"), &authorization].concat()
        };
        client.write_all(&[PREFACE, EMPTY_SETTINGS].concat()).await.unwrap();
        if is_proved {
            let head = request(&[0x82], "/version", "t-alice");
            client.write_all(&raw_frame(HEADERS, END_STREAM | END_HEADERS, 1, &head)).await.unwrap();
            while stream_frame(&mut client).await.expect("is answered").1 != HEADERS {}
        }
        let head = request(&literal(2, "PATCH"), "/one", "wrong");
        client.write_all(&raw_frame(HEADERS, END_HEADERS, 3, &head)).await.unwrap();
        (Self { client, pings: Vec::new(), frames: Vec::new(), goodbyes: Vec::new() }, closing)
    }

    /// Reads the next frame. Returns false at the end.
    async fn read(&mut self) -> bool {
        let Some((stream, kind, flags, payload)) = stream_frame(&mut self.client).await else { return false };
        match kind {
            PING if flags & ACK == 0 => self.pings.push(payload),
            GOAWAY => self.goodbyes.push(payload),
            _ if stream == 3 => self.frames.push((kind, flags, payload)),
            _ => {}
        }
        true
    }

    async fn step(&mut self, step: RefusedStep) {
        match step {
            RefusedStep::Data(is_last) => {
                let data = raw_frame(DATA, if is_last { END_STREAM } else { 0 }, 3, b"{\"data\":{}}");
                // The server may have closed the connection.
                let _ = self.client.write_all(&data).await;
            }
            RefusedStep::Pause => sleep(Duration::from_millis(10)).await,
            RefusedStep::Answer => {
                while !self.frames.iter().any(|(kind, flags, _)| *kind == DATA && flags & END_STREAM != 0) {
                    assert!(self.read().await, "{:?}", self.frames);
                }
            }
            RefusedStep::Goodbye => {
                while self.goodbyes.is_empty() || self.pings.is_empty() {
                    assert!(self.read().await, "{:?}", self.frames);
                }
            }
            RefusedStep::Pong => {
                for ping in std::mem::take(&mut self.pings) {
                    let _ = self.client.write_all(&raw_frame(PING, ACK, 0, &ping)).await;
                }
            }
        }
    }
}

/// Goal: a request that is refused before its body has arrived gets its whole answer, and nothing that a client could take for
/// an error; only a connection of proved callers stays. Method: each order of the body, the answer, GOAWAY and the confirmation
/// of its ping.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_answered_whenever_the_body_arrives() {
    use RefusedStep::{Answer, Data, Goodbye, Pause, Pong};
    for script in [
        &[Data(true)][..],
        &[Pause, Data(true)],
        &[Data(false), Pause, Data(true)],
        &[Data(false), Answer, Data(true)],
        &[Answer, Data(true)],
        &[Answer, Pause, Data(true), Pause, Data(false)],
        &[Answer, Goodbye, Data(true), Pong],
        &[Answer, Goodbye, Pong, Data(true)],
        &[Answer, Goodbye, Pong, Pause, Data(true)],
        &[Answer],
    ] {
        for is_proved in [false, true] {
            let (mut connection, _closing) = PatchConnection::open(is_proved).await;
            for &step in script.iter().filter(|step| !is_proved || !matches!(step, Goodbye | Pong)) {
                connection.step(step).await;
            }
            connection.step(Answer).await;
            if is_proved {
                connection.client.write_all(&get(5, "/livez")).await.unwrap();
                while stream_frame(&mut connection.client).await.expect("it stays").0 != 5 {}
                assert_eq!(connection.goodbyes.len(), 0, "{script:?}");
            } else {
                connection.step(Pong).await;
                while connection.read().await {
                    connection.step(Pong).await;
                }
                let errors = connection.goodbyes.iter().map(|payload| (payload[3] >= 3, payload[7]));
                assert!(errors.clone().count() > 0 && errors.clone().all(|error| error == (true, 0)), "{script:?}");
            }
            let [(HEADERS, ..), (DATA, END_STREAM, body), resets @ ..] = &connection.frames[..] else {
                panic!("{script:?}, {is_proved}: {:?}", connection.frames);
            };
            assert!(String::from_utf8_lossy(body).contains("\"code\":401"), "{script:?}");
            assert!(
                resets.iter().all(|(kind, _, payload)| (*kind, payload[3]) == (RST_STREAM, 0)),
                "{script:?}: {resets:?}"
            );
        }
    }
}

/// A server that knows one token.
fn with_tokens() -> Arc<ConnectionShared<TestHandler>> {
    let shares = Arc::default();
    Arc::new(shared(move |request| {
        let is_proved = request.headers().get(header::AUTHORIZATION).is_some_and(|value| value == "Bearer t-alice");
        if is_proved && let Some(watcher) = request.extensions().get::<Arc<dyn ProofWatcher>>() {
            watcher.note_proved();
        }
        let (code, caller) = match is_proved {
            true => (StatusCode::OK, StreamCaller::Unlimited),
            false => (StatusCode::UNAUTHORIZED, StreamCaller::Refused),
        };
        let mut response = answer(code, TestBody::text(format!("{{\"code\":{}}}", code.as_u16())));
        response.extensions_mut().insert(StreamOwner::new(Arc::clone(&shares), caller));
        response
    }))
}

/// Goal: behind a refusal h2 sees no further stream, so the last GOAWAY names the refused one, and clients may retry the
/// others. Method: requests with bodies and unknown frames before the client confirms the first GOAWAY, written whole, byte by
/// byte, and begun before the refusal.
#[tokio::test(start_paused = true)]
async fn a_refused_connection_takes_no_further_stream() {
    let further: Vec<u8> = (1..100)
        .flat_map(|index| {
            let stream = 2 * index + 1;
            let head = [&literal(2, "PUT")[..], &[0x86], &literal(4, "/one"), &literal(1, "localhost")].concat();
            let head = raw_frame(HEADERS, END_HEADERS, stream, &head);
            [head, raw_frame(DATA, END_STREAM, stream, &[7; 200]), raw_frame(0xee, 0, stream, &[])].concat()
        })
        .collect();
    for (early, piece) in [(0, further.len()), (0, 1), (4, 7), (9, 1_000), (20, 1_000)] {
        let (mut client, _closing) = connect_by(context(&with_tokens()));
        client.write_all(&[PREFACE, EMPTY_SETTINGS, &get(1, "/one"), &further[..early]].concat()).await.unwrap();
        let (mut kinds, mut last) = (Vec::new(), 0);
        let mut further = Some(&further[early..]);
        while let Some((kind, flags, payload)) = frame(&mut client).await {
            kinds.push(kind);
            match kind {
                PING if flags & ACK == 0 => {
                    for piece in further.take().expect("one ping").chunks(piece) {
                        client.write_all(piece).await.unwrap();
                    }
                    client.write_all(&raw_frame(PING, ACK, 0, &payload)).await.unwrap();
                }
                GOAWAY => last = payload[3],
                _ => {}
            }
        }
        // A request whose head had begun to arrive has its end.
        let seen = if early == 0 { 1 } else { 3 };
        assert_eq!((last, further), (seen, None), "{early}, {piece}: {kinds:?}");
        assert!(kinds.contains(&HEADERS) && kinds.ends_with(&[GOAWAY]), "{early}, {piece}: {kinds:?}");
    }
}

/// Goal: a refusal does not harm a request of the same connection that is not answered yet. Method: an upload whose
/// caller is not known yet, a refused request, and one behind it, whose header field the upload's trailers refer to.
#[tokio::test(start_paused = true)]
async fn a_refusal_leaves_live_requests_whole() {
    let reviewed = Arc::new(Notify::new());
    let (held, shares) = (Arc::clone(&reviewed), Arc::default());
    let shared = Arc::new(shared(move |request| {
        let is_live = request.uri().path() == "/live";
        let (code, caller) = match is_live {
            true => (StatusCode::OK, StreamCaller::Unlimited),
            false => (StatusCode::UNAUTHORIZED, StreamCaller::Refused),
        };
        let mut response = answer(code, TestBody::text("ok"));
        response.extensions_mut().insert(StreamOwner::new(Arc::clone(&shares), caller));
        if is_live {
            response.extensions_mut().insert(Arc::clone(&held));
        }
        response
    }));
    let (mut client, _closing) = connect_by(context(&shared));
    let live = [&literal(2, "PUT")[..], &[0x86], &literal(4, "/live"), &literal(1, "localhost")].concat();
    let live = raw_frame(HEADERS, END_HEADERS, 1, &live);
    client.write_all(&[PREFACE, EMPTY_SETTINGS, &live, &get(3, "/one")].concat()).await.unwrap();
    let ping = next_ping(&mut client).await.expect("the connection stays for the upload");
    // A new field for the dynamic table, whose first index is 62.
    let indexed = [&[0x82, 0x86][..], &literal(4, "/one"), &literal(1, "localhost"), b"\x40\x03x-a\x01b"].concat();
    let further = raw_frame(HEADERS, END_STREAM | END_HEADERS, 5, &indexed);
    let trailers = raw_frame(HEADERS, END_STREAM | END_HEADERS, 1, &[0x80 | 62]);
    client.write_all(&[further, trailers, raw_frame(PING, ACK, 0, &ping)].concat()).await.unwrap();
    sleep(Duration::from_millis(1)).await;
    reviewed.notify_one();
    let (mut heads, mut errors) = (Vec::new(), Vec::new());
    while let Some((stream, kind, _, payload)) = stream_frame(&mut client).await {
        match kind {
            HEADERS => heads.push((stream, payload[0])),
            GOAWAY => errors.push(payload[7]),
            _ => {}
        }
    }
    assert!(errors.iter().all(|error| *error == 0), "{errors:?}");
    // `:status: 200` of HPACK's static table.
    assert!(heads.contains(&(1, 0x88)), "{heads:?}");
}

/// Goal: while the unread streams of all connections are many, a connection has few of them, and its further requests are
/// refused and counted. Method: connections with shut windows up to the bound, then one more with twelve requests.
#[tokio::test(start_paused = true)]
async fn a_connection_has_few_unread_streams_while_there_are_many() {
    const SHUT: &[u8] = &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
    let shared = healthy();
    let mut others = Vec::new();
    while others.len() * 100 < HTTP2_UNREAD_STREAMS_MANY + 1 {
        let count = (HTTP2_UNREAD_STREAMS_MANY + 1 - others.len() * 100).min(100);
        let (mut client, closing) = connect_by(context(&shared));
        let gets: Vec<u8> = (0..count).flat_map(|index| get(u8::try_from(2 * index + 1).unwrap(), "/livez")).collect();
        client.write_all(&[PREFACE, SHUT, &gets].concat()).await.unwrap();
        let codes = codes(&mut client, count).await;
        assert!(codes.iter().all(|code| *code == 200), "{codes:?}");
        others.push((client, closing));
    }
    let (mut client, _closing) = connect_by(context(&shared));
    let gets: Vec<u8> = (0..12).flat_map(|index| get(2 * index + 1, "/livez")).collect();
    client.write_all(&[PREFACE, SHUT, &gets].concat()).await.unwrap();
    let refused = 12 - HTTP2_STREAMS_SHORT;
    let mut expected = vec![200; HTTP2_STREAMS_SHORT];
    expected.resize(12, 429);
    assert_eq!(codes(&mut client, 12).await, expected);
    assert_eq!(shared.handler.crowded(), refused);
}

/// Returns the codes of the next `count` answers, in their order.
async fn codes(client: &mut DuplexStream, count: usize) -> Vec<u16> {
    let mut codes = Vec::new();
    while codes.len() < count {
        let (kind, _, block) = frame(client).await.expect("the connection stays");
        if kind == HEADERS {
            // 0x88 is `:status: 200` of HPACK's static table.
            codes.push(if block[0] == 0x88 { 200 } else { 429 });
        }
    }
    codes
}
