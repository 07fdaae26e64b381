//! A connection read byte by byte: heads, chunks, and the rest of a cut response.
//!
//! INVARIANT: no HTTP library is between a test and the socket.

use tests::{http::LINE_WAIT, process::Server};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// A connection, and its unread bytes.
pub(crate) struct Wire {
    pub(crate) socket: TcpStream,
    pub(crate) bytes: Vec<u8>,
    /// Header lines that every request needs.
    pub(crate) needed: String,
}

/// One parsed response.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) head: String,
    /// Chunks as they were framed; one for a body with a length.
    pub(crate) chunks: Vec<Vec<u8>>,
}

impl Raw {
    pub(crate) fn body(&self) -> Vec<u8> {
        self.chunks.concat()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl Wire {
    pub(crate) async fn to(server: &Server) -> Self {
        Self::over(TcpStream::connect(server.address()).await.unwrap(), server)
    }

    /// Like [`to`](Self::to), with a socket of the case.
    pub(crate) fn over(socket: TcpStream, server: &Server) -> Self {
        let mut needed = "Host: 127.0.0.1\r\n".to_owned();
        if let Some(authorization) = server.client().authorization() {
            needed.push_str(&format!("Authorization: {authorization}\r\n"));
        }
        Self { socket, bytes: Vec::new(), needed }
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.socket.write_all(text.as_bytes()).await.unwrap();
    }

    pub(crate) async fn get(&mut self, path: &str) {
        self.send(&format!("GET {path} HTTP/1.1\r\n{}\r\n", self.needed)).await;
    }

    /// Reads up to `end`. Returns the bytes before it.
    pub(crate) async fn until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.bytes.windows(end.len()).position(|window| window == end) {
                let taken = self.bytes.drain(..at + end.len()).collect::<Vec<u8>>();
                return taken[..at].to_vec();
            }
            self.more().await;
        }
    }

    pub(crate) async fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.bytes.len() < count {
            self.more().await;
        }
        self.bytes.drain(..count).collect()
    }

    pub(crate) async fn more(&mut self) {
        let read = timeout(LINE_WAIT, self.socket.read_buf(&mut self.bytes)).await;
        let read = read.unwrap_or_else(|_| panic!("silent after {:?}", String::from_utf8_lossy(&self.bytes)));
        assert!(read.unwrap() > 0, "closed after {:?}", String::from_utf8_lossy(&self.bytes));
    }

    pub(crate) async fn head(&mut self) -> String {
        String::from_utf8(self.until(b"\r\n\r\n").await).unwrap()
    }

    pub(crate) async fn chunk(&mut self) -> Vec<u8> {
        let size = String::from_utf8(self.until(b"\r\n").await).unwrap();
        let size = usize::from_str_radix(&size, 16).unwrap_or_else(|_| panic!("{size:?} is no size"));
        let chunk = self.exactly(size).await;
        assert_eq!(self.exactly(2).await, b"\r\n");
        chunk
    }

    pub(crate) async fn answer(&mut self) -> Raw {
        let mut raw = Raw { head: self.head().await, chunks: Vec::new() };
        if let Some(length) = raw.header("content-length") {
            let length = length.parse().unwrap();
            raw.chunks.push(self.exactly(length).await);
            return raw;
        }
        assert_eq!(raw.header("transfer-encoding"), Some("chunked"), "{}", raw.head);
        loop {
            let chunk = self.chunk().await;
            if chunk.is_empty() {
                return raw;
            }
            raw.chunks.push(chunk);
        }
    }
}

/// The body of a response that was cut after these bytes.
pub(crate) fn body_so_far(bytes: &[u8]) -> Vec<u8> {
    let find = |bytes: &[u8], end: &[u8]| bytes.windows(end.len()).position(|window| window == end);
    let mut rest = find(bytes, b"\r\n\r\n").map_or(&[][..], |at| &bytes[at + 4..]);
    let mut body = Vec::new();
    while let Some(at) = find(rest, b"\r\n") {
        let size = std::str::from_utf8(&rest[..at]).expect("hexadecimal digits");
        let size = usize::from_str_radix(size, 16).unwrap_or_else(|_| panic!("{size:?} is no size"));
        let chunk = &rest[at + 2..];
        body.extend_from_slice(&chunk[..size.min(chunk.len())]);
        if size == 0 || chunk.len() < size + 2 {
            break;
        }
        rest = &chunk[size + 2..];
    }
    body
}
