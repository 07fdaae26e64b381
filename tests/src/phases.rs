//! Watches of one caller in each phase of a watch, over each protocol: idle, with unread initial state, and with unread
//! events. For tests of what ends a watch.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    http::{ANSWER_WAIT, Client, Step, Watch, watch_list, with_query},
    slow::{End, Slow},
    websocket::{Frame, WebSocket},
};

/// Bytes of initial state, and later of events, that no socket of a client that does not read can take.
pub const UNREAD_BYTES: usize = 16 << 20;

/// Open watches of one caller.
pub struct PhasedWatches {
    /// Idle, over HTTP/1.1 and HTTP/2.
    idle: [Watch; 2],
    idle_socket: WebSocket,
    /// HTTP/1.0, which hyper serves.
    idle_old: TcpStream,
    /// Their clients stop reading within the initial state, or at the first event.
    stalled: [Slow; 2],
    /// Dropped with the test: their clients stopped reading within the initial state.
    stalled_http2: Watch,
    stalled_socket: WebSocket,
}

impl PhasedWatches {
    /// Number of watches.
    pub const COUNT: usize = 8;

    /// Opens them at a server in the clear, as `client` does. `path` is a collection of at least [`UNREAD_BYTES`], of which
    /// as many bytes must change before the watches end.
    pub async fn open(address: SocketAddr, client: Client, path: &str) -> Self {
        let authorization = client.authorization();
        let headers: Vec<(&str, &str)> = authorization.iter().map(|value| ("authorization", *value)).collect();
        let live = with_query(path, &[("watch", "1"), ("allowWatchBookmarks", "true")]);
        let quiet = with_query(&live, &[("fieldSelector", "metadata.name=none")]);
        let initial = watch_list(path);
        let idle = [client.watch(&quiet).await, client.over_http2().watch(&quiet).await];
        let stream = TcpStream::connect(address).await.unwrap();
        let idle_socket = WebSocket::over(stream, address, &quiet, &headers).await;
        let idle_old = old(address, &quiet, &headers).await;
        let mut stalled = [Slow::get(address, &initial, &headers).await, Slow::get(address, &live, &headers).await];
        stalled[0].take(1).await;
        let mut stalled_http2 = client.over_http2().watch(&initial).await;
        stalled_http2.event().await;
        let stream = TcpStream::connect(address).await.unwrap();
        let mut stalled_socket = WebSocket::over(stream, address, &initial, &headers).await;
        stalled_socket.next().await;
        Self { idle, idle_socket, idle_old, stalled, stalled_http2, stalled_socket }
    }

    /// Checks that each watch has ended: those that have sent a part of their initial state, or have unread events, by a
    /// reset, and the others cleanly.
    pub async fn have_ended(self) {
        let Self { idle, mut idle_socket, mut idle_old, stalled, mut stalled_http2, mut stalled_socket } = self;
        for mut watch in idle {
            // Events that came before the end are read.
            watch.rest(ANSWER_WAIT).await;
        }
        while !matches!(idle_socket.next().await, Frame::Close(_)) {}
        let mut rest = Vec::new();
        let ended = timeout(ANSWER_WAIT, idle_old.read_to_end(&mut rest)).await;
        assert!(ended.expect("the connection ends").is_ok(), "without a reset");
        for mut watch in stalled {
            assert_eq!(watch.to_the_end().await, End::Cut, "a client that does not read is reset");
        }
        while let Ok(frame) = stalled_socket.read().await {
            assert!(matches!(frame, Frame::Text(_)), "no close frame after a part of the state");
        }
        let mut step = stalled_http2.step(ANSWER_WAIT).await;
        while let Step::Event(event) = &step {
            assert!(!event.ends_initial_state(), "the state is not complete");
            step = stalled_http2.step(ANSWER_WAIT).await;
        }
        assert!(matches!(step, Step::Cut(_)), "{step:?}");
    }
}

/// Opens a watch over HTTP/1.0 and reads its head.
async fn old(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n{more}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.0 200 "), "{}", String::from_utf8_lossy(&head));
    stream
}
