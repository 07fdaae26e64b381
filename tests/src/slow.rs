//! A response that is read as slowly as a test likes, over a socket that holds little.
//!
//! INVARIANT: nothing is read ahead: what was not asked for stays with the server or the kernel.

use std::{net::SocketAddr, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

/// How long bytes may take that are due.
const DUE: Duration = Duration::from_secs(30);

/// What the kernel may hold for a reader; it doubles it.
const RECEIVE_BYTES: u32 = 64 << 10;

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end of a chunked body came.
    Clean,
    /// It did not.
    Cut,
}

/// A response that is read as slowly as a test likes.
pub struct Slow {
    stream: TcpStream,
    /// As they came.
    raw: Vec<u8>,
    /// Of the chunk that has begun.
    left: usize,
    /// The body, without its chunks.
    body: Vec<u8>,
    /// Bytes of the body so far, those included that were taken out.
    taken: usize,
    end: Option<End>,
}

impl Slow {
    /// Asks for `path` with more headers, and reads the head of an answer in chunks.
    pub async fn get(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(RECEIVE_BYTES).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{more}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("transfer-encoding: chunked"), "{head}");
        Self { stream, raw: Vec::new(), left: 0, body: Vec::new(), taken: 0, end: None }
    }

    /// How it ended, if it has.
    pub const fn end(&self) -> Option<End> {
        self.end
    }

    /// Bytes of the body so far.
    pub const fn taken(&self) -> usize {
        self.taken
    }

    /// Lets go of what was read so far.
    pub fn forget(&mut self) {
        self.body = Vec::new();
    }

    /// Takes `bytes` more of the body, or what there is up to its end.
    pub async fn take(&mut self, bytes: usize) {
        let until = self.taken + bytes;
        let mut space = [0; 4 << 10];
        while self.taken < until && self.end.is_none() {
            match timeout(DUE, self.stream.read(&mut space)).await.expect("more is due") {
                Ok(0) | Err(_) => self.end = Some(End::Cut),
                Ok(count) => {
                    self.raw.extend_from_slice(&space[..count]);
                    self.unchunk();
                }
            }
        }
    }

    /// Takes the rest.
    pub async fn to_the_end(&mut self) -> End {
        self.take(usize::MAX / 2).await;
        self.end.unwrap()
    }

    fn unchunk(&mut self) {
        loop {
            if self.left > 0 {
                let count = self.left.min(self.raw.len());
                self.body.extend(self.raw.drain(..count));
                self.taken += count;
                self.left -= count;
                if self.left > 0 {
                    return;
                }
            }
            // The end of the chunk before, and the length of the next one.
            let text = self.raw.strip_prefix(b"\r\n").unwrap_or(&self.raw);
            let Some(end) = text.windows(2).position(|two| two == b"\r\n") else { return };
            let line = std::str::from_utf8(&text[..end]).unwrap();
            let size = usize::from_str_radix(line, 16).unwrap_or_else(|_| panic!("no length: {line}"));
            let behind = self.raw.len() - text.len() + end + 2;
            self.raw.drain(..behind);
            self.left = size;
            if size == 0 {
                self.end = Some(End::Clean);
                return;
            }
        }
    }

    /// The next whole line of a watch, if it is here.
    pub fn line(&mut self) -> Option<Value> {
        let end = self.body.iter().position(|&byte| byte == b'\n')?;
        let line: Vec<u8> = self.body.drain(..=end).collect();
        Some(serde_json::from_slice(&line).unwrap())
    }

    /// The next line of a watch.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(line) = self.line() {
                return Some(line);
            }
            if self.end.is_some() {
                return None;
            }
            self.take(1).await;
        }
    }
}
