//! A response read at the test's pace, over a socket with a small receive buffer.
//!
//! INVARIANT: it reads no more than requested (and one 4 KiB buffer); the rest stays with the server or the kernel.

use std::{net::SocketAddr, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

/// Timeout for bytes that are due.
const DUE: Duration = Duration::from_secs(30);

/// Receive buffer of the socket, in bytes; the kernel doubles it.
const RECEIVE_BYTES: u32 = 64 << 10;

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end of the chunked body arrived.
    Clean,
    /// The connection ended before it.
    Cut,
}

/// A response read at the test's pace.
pub struct Slow {
    stream: TcpStream,
    /// Bytes received and not yet unchunked.
    raw: Vec<u8>,
    /// Bytes left of the current chunk.
    left: usize,
    /// The decoded body that no caller has taken.
    body: Vec<u8>,
    /// Bytes of the decoded body so far, including those already taken.
    taken: usize,
    end: Option<End>,
}

impl Slow {
    /// Requests `path` with more headers, and reads the head of a chunked response.
    pub async fn get(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(RECEIVE_BYTES).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{more}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            // Byte by byte, so that the body stays unread.
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("transfer-encoding: chunked"), "{head}");
        Self { stream, raw: Vec::new(), left: 0, body: Vec::new(), taken: 0, end: None }
    }

    /// The end of the response, if it has ended.
    pub const fn end(&self) -> Option<End> {
        self.end
    }

    /// Bytes of the decoded body so far.
    pub const fn taken(&self) -> usize {
        self.taken
    }

    /// Drops the body read so far.
    pub fn forget(&mut self) {
        self.body = Vec::new();
    }

    /// Reads at least `bytes` more of the body, or up to its end.
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

    /// Reads the rest.
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
            // The end of the previous chunk, and the size of the next one.
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

    /// The next whole line of a watch, if it has arrived.
    pub fn line(&mut self) -> Option<Value> {
        let end = self.body.iter().position(|&byte| byte == b'\n')?;
        let line: Vec<u8> = self.body.drain(..=end).collect();
        Some(serde_json::from_slice(&line).unwrap())
    }

    /// The next line of a watch; `None` once the response has ended.
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
