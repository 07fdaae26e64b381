//! Watches over WebSockets: each event is a text message.
//!
//! INVARIANT: a body that was cut ends in a reset, never in a close frame. INVARIANT: only the client's latest ping is
//! answered. No request follows on the connection.
//!
//! Source: RFC 6455; apiserver `endpoints/handlers/watch.go`, HandleWS.

mod frames;
mod incoming;

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use http::Response;
use http_body::Body;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    time::{Sleep, sleep},
};
use watch_cache::Slices;

use self::incoming::{ControlFrame, FrameParser};
use super::{
    phase::ConnectionPhase,
    socket::Socket,
    takeover::head,
    watch_sink::{WatchEnd, WatchFraming, WatchSink},
};
use crate::{
    body::BodyError,
    limits::{SLICES_MAX, WEBSOCKET_CLOSE_WAIT},
    term::WatchTerm,
};

/// Close code of a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Code(u16);

impl Code {
    /// All was sent.
    const NORMAL: Self = Self(1000);
    /// The peer violated the protocol.
    const PROTOCOL: Self = Self(1002);
    /// The peer sent too much data.
    const TOO_BIG: Self = Self(1009);

    /// Returns a code that may occur in a close frame; `None` for reserved ones.
    const fn sent(code: u16) -> Option<Self> {
        match code {
            1000..=1003 | 1007..=1014 | 3000..=4999 => Some(Self(code)),
            _ => None,
        }
    }
}

/// The server's side of the close handshake.
#[derive(Debug)]
enum CloseStage {
    /// Sending events.
    Open,
    /// Sends this close frame next, and nothing after it.
    Closing(Bytes),
    /// The close frame was sent, or is in `out`.
    Closed,
}

/// A connection on which a watch is sent in messages.
type WebSocket<S, B> = WatchSink<S, B, MessageFraming>;

/// Sends lines as messages, and answers the client's control frames.
struct MessageFraming {
    /// Unsent head or frames. The capacity is freed once all are sent.
    out: Slices,
    stage: CloseStage,
    /// Answer to the latest ping.
    pong: Option<Bytes>,
    /// Parser of the client's frames. `None` once its input is ignored: after its close frame or a protocol error.
    incoming: Option<FrameParser>,
    /// True once the client sent its close frame.
    client_closed: bool,
    /// Time limit for the client's close frame. Memory: one timer, and only then.
    wait: Option<Pin<Box<Sleep>>>,
}

/// Slices per write: a batch, plus one header for each event, which has at least two slices.
const VECTORS_MAX: usize = 2 * SLICES_MAX;

/// Sends a watch on `stream`, of which `read` was already read. The connection ends with it.
pub fn watching<S: Socket, B>(
    mut stream: S,
    read: &[u8],
    response: Response<B>,
    term: Option<WatchTerm>,
) -> ConnectionPhase
where
    B: Body<Data = Slices, Error = BodyError> + Unpin + Send + 'static,
{
    stream.limit_unconfirmed(true);
    let mut socket = WebSocket::new(stream, read, response, term);
    ConnectionPhase::new(async move {
        match socket.ended().await {
            WatchEnd::Clean => {
                let _ = socket.stream.shutdown().await;
            }
            WatchEnd::Cut => socket.stream.reset_on_close(),
            WatchEnd::Gone => {}
        }
        Ok(None)
    })
}

impl<S: Socket, B: Body<Data = Slices, Error = BodyError> + Unpin> WebSocket<S, B> {
    fn new(stream: S, read: &[u8], response: Response<B>, term: Option<WatchTerm>) -> Self {
        let (parts, body) = response.into_parts();
        let mut out = Slices::new();
        out.push(head::switching(&parts).into());
        let mut framing = MessageFraming {
            out,
            stage: CloseStage::Open,
            pong: None,
            incoming: Some(FrameParser::new()),
            client_closed: false,
            wait: None,
        };
        framing.receive(read);
        Self::begin(stream, body, framing, term)
    }
}

impl MessageFraming {
    /// Ends the watch after the bytes in `out`, unless it is closing already.
    fn close(&mut self, code: Option<Code>) {
        if matches!(self.stage, CloseStage::Open) {
            self.stage = CloseStage::Closing(frames::close(code));
        }
    }

    /// Waits until the client has closed too. Closing a socket with unread input sends a reset, which can overtake the
    /// last events on their way to the application.
    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.client_closed {
            let wait = self.wait.get_or_insert_with(|| Box::pin(sleep(WEBSOCKET_CLOSE_WAIT)));
            ready!(wait.as_mut().poll(cx));
        }
        Poll::Ready(())
    }
}

impl WatchFraming for MessageFraming {
    fn room(&self) -> usize {
        // Frames are parsed or skipped at once, so there is always room.
        usize::MAX
    }

    fn receive(&mut self, mut bytes: &[u8]) {
        while let Some(incoming) = &mut self.incoming {
            match incoming.read(&mut bytes) {
                Ok(None) => return,
                Ok(Some(ControlFrame::Ping(payload))) => self.pong = Some(frames::pong(&payload)),
                Ok(Some(ControlFrame::Close(code))) => {
                    (self.incoming, self.client_closed) = (None, true);
                    self.close(code);
                }
                Err(code) => {
                    self.incoming = None;
                    self.close(Some(code));
                }
            }
        }
    }

    fn has_next(&mut self) -> bool {
        if !self.out.is_empty() {
            return true;
        }
        match &mut self.stage {
            CloseStage::Closed => return true,
            CloseStage::Closing(last) => {
                self.out.push(std::mem::take(last));
                self.stage = CloseStage::Closed;
                return true;
            }
            CloseStage::Open => {}
        }
        // Before the body: a busy watch must not delay the answer to a ping.
        let pong = self.pong.take();
        let has_pong = pong.is_some();
        pong.into_iter().for_each(|pong| self.out.push(pong));
        has_pong
    }

    fn batch(&mut self, lines: Slices) {
        frames::push_lines(lines, &mut self.out);
    }

    fn finish(&mut self) {
        self.close(Some(Code::NORMAL));
    }

    fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    fn poll_write<W: AsyncWrite>(&self, into: Pin<&mut W>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut vectors = [IoSlice::new(&[]); VECTORS_MAX];
        let filled = self.out.chunks_vectored(&mut vectors);
        into.poll_write_vectored(cx, &vectors[..filled])
    }

    fn advance(&mut self, count: usize) {
        self.out.advance(count);
    }

    fn written(&mut self) {
        // Free the capacity: most watches are idle most of the time.
        self.out = Slices::new();
    }

    fn poll_over(&mut self, cx: &mut Context<'_>) -> Option<Poll<()>> {
        matches!(self.stage, CloseStage::Closed).then(|| self.poll_closed(cx))
    }
}

#[cfg(test)]
mod tests;
