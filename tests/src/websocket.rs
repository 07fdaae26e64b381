//! A WebSocket for tests: it returns every frame and can send any bytes.
//!
//! INVARIANT: it sends only what the test sends: no pong, no close frame.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use crate::http::LINE_WAIT;

/// Headers of a handshake, with the example key of RFC 6455.
pub const HANDSHAKE: [(&str, &str); 4] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// Receive buffer of the socket, in bytes; the kernel doubles it.
const RECEIVE_BYTES: u32 = 64 << 10;

/// Mask of every sent frame.
const MASK: [u8; 4] = [0x5a, 0, 0xff, 0x17];

/// An open WebSocket.
pub struct WebSocket<S = TcpStream> {
    stream: S,
    head: String,
}

/// A frame of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A whole text message.
    Text(String),
    /// The response to a ping.
    Pong(Vec<u8>),
    /// A close frame, with its code.
    Close(Option<u16>),
}

impl Frame {
    /// The event in a text message.
    #[track_caller]
    pub fn event(&self) -> Value {
        let Self::Text(text) = self else { panic!("{self:?} is no text") };
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
    }
}

impl WebSocket {
    /// Opens a watch over a socket with a small receive buffer.
    pub async fn open(address: SocketAddr, path: &str) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(RECEIVE_BYTES).unwrap();
        Self::over(socket.connect(address).await.unwrap(), address, path, &[]).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocket<S> {
    /// Opens a watch over `stream`, with more headers.
    pub async fn over(mut stream: S, address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n");
        for (name, value) in HANDSHAKE.iter().chain(headers) {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            // Byte by byte, so that no frame is consumed with the head.
            head.push(timeout(LINE_WAIT, stream.read_u8()).await.expect("an answer").expect("the answer goes on"));
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 101 "), "{path}: {head}");
        Self { stream, head }
    }

    /// Head of the response.
    pub fn head(&self) -> &str {
        &self.head
    }

    /// Returns the next frame; panics if it does not arrive in time.
    pub async fn next(&mut self) -> Frame {
        timeout(LINE_WAIT, self.read()).await.expect("a frame is due").expect("the connection goes on")
    }

    /// The events of the next `count` frames.
    pub async fn events(&mut self, count: usize) -> Vec<Value> {
        let mut events = Vec::with_capacity(count);
        while events.len() < count {
            events.push(self.next().await.event());
        }
        events
    }

    /// Returns true if the server closes the connection without sending another byte.
    pub async fn ends(&mut self) -> bool {
        matches!(timeout(LINE_WAIT, self.stream.read(&mut [0])).await, Ok(Ok(0)))
    }

    /// Returns the next frame, without a timeout.
    pub async fn read(&mut self) -> std::io::Result<Frame> {
        let mut start = [0; 2];
        self.stream.read_exact(&mut start).await?;
        let length = match start[1] {
            126 => u64::from(self.stream.read_u16().await?),
            127 => self.stream.read_u64().await?,
            short => u64::from(short),
        };
        assert!(start[1] < 128, "a server masks nothing");
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut payload).await?;
        Ok(match start[0] {
            0x81 => Frame::Text(String::from_utf8(payload).expect("is text")),
            0x8a => Frame::Pong(payload),
            0x88 => Frame::Close(payload.first_chunk().map(|code| u16::from_be_bytes(*code))),
            first => panic!("a frame begins with {first:#x}"),
        })
    }

    /// Sends a masked frame whose first byte is `first`.
    pub async fn send(&mut self, first: u8, payload: &[u8]) {
        let length = match payload.len() {
            short @ 0..=125 => vec![0x80 | u8::try_from(short).unwrap()],
            longer => [&[0x80 | 126][..], &u16::try_from(longer).expect("a small frame").to_be_bytes()].concat(),
        };
        let masked = payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask);
        let frame: Vec<u8> = std::iter::once(first).chain(length).chain(MASK).chain(masked).collect();
        self.send_bytes(&frame).await;
    }

    /// Sends any bytes.
    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the server reads");
    }
}
