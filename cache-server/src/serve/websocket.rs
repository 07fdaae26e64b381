//! Watches over WebSockets: each event is a text message, straight from shared bytes to the socket.
//!
//! INVARIANT: no output is queued. The body is polled only after the socket has accepted all earlier bytes, and only
//! the client's latest ping is answered. INVARIANT: the socket is always being read, so that a disconnect is noticed
//! at once. INVARIANT: a body that was cut ends in a reset, never in a close frame. INVARIANT: a watch ends at most
//! [`WATCH_END_WAIT`] after its deadline, even if the client reads nothing or a byte a minute.
//!
//! Works like `takeover`, except for the bytes around an event, and that no request follows on the connection.
//!
//! Source: RFC 6455; apiserver `endpoints/handlers/watch.go`, HandleWS.

mod frames;
mod incoming;

use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use http::Response;
use http_body::Body;
use tokio::{
    io::{AsyncWriteExt as _, ReadBuf},
    time::{Instant, Sleep, sleep, sleep_until},
};
use watch_cache::Slices;

use self::incoming::{ControlFrame, FrameParser};
use super::{connection::ConnectionPhase, moving::Socket, takeover::head};
use crate::{
    http::body::{self, BodyError},
    limits::{SLICES_MAX, WATCH_END_WAIT, WEBSOCKET_CLOSE_WAIT},
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

/// The end of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WebSocketEnd {
    /// Both sides closed, or the client's time to close has expired.
    Clean,
    /// The body failed, or is far past its deadline. The client must not take the stream for complete.
    Cut,
    /// The client disconnected.
    Gone,
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

/// Result of looking for bytes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameSupply {
    /// There are bytes to send, or the stream is closed.
    Some,
    /// The body is pending and will wake the task.
    Nothing,
    /// The body failed.
    Cut,
}

/// A connection on which a watch is sent.
struct WebSocket<S, B> {
    stream: S,
    body: B,
    /// Unsent head or frames. The capacity is freed once all are sent.
    out: Slices,
    /// True while the stream may hold unflushed bytes.
    unflushed: bool,
    stage: CloseStage,
    /// Answer to the latest ping.
    pong: Option<Bytes>,
    /// Parser of the client's frames. `None` once its input is ignored: after its close frame or a protocol error.
    incoming: Option<FrameParser>,
    /// True once the client sent its close frame.
    client_closed: bool,
    /// Time at which the body ends by itself, if it is polled then.
    deadline: Option<Instant>,
    /// Runs while the socket is blocked. Memory: one timer, and only then.
    overdue: Option<Pin<Box<Sleep>>>,
    /// Time limit for the client's close frame. Memory: one timer, and only then.
    wait: Option<Pin<Box<Sleep>>>,
}

/// Batches sent in one poll before other tasks get a turn.
const BATCHES_PER_TURN: usize = 4;

/// Bytes of one read from the client, on the stack.
const READ_BYTES: usize = 1 << 10;

/// Reads in one poll before other tasks get a turn.
const READS_PER_TURN: usize = 4;

/// Slices per write: a batch, plus one header for each event, which has at least two slices.
const VECTORS_MAX: usize = 2 * SLICES_MAX;

/// Sends a watch on `stream`, of which `read` was already read. The connection ends with it.
pub(super) fn watching<S: Socket>(stream: S, read: &[u8], response: Response<body::Body>) -> ConnectionPhase {
    let deadline = response.body().deadline();
    let mut socket = WebSocket::new(stream, read, response, deadline);
    ConnectionPhase::new(async move {
        match std::future::poll_fn(|cx| socket.poll_ended(cx)).await {
            WebSocketEnd::Clean => {
                let _ = socket.stream.shutdown().await;
            }
            WebSocketEnd::Cut => socket.stream.reset_on_close(),
            WebSocketEnd::Gone => {}
        }
        Ok(None)
    })
}

impl<S: Socket, B: Body<Data = Slices, Error = BodyError> + Unpin> WebSocket<S, B> {
    fn new(stream: S, read: &[u8], response: Response<B>, deadline: Option<Instant>) -> Self {
        let (parts, body) = response.into_parts();
        let mut out = Slices::new();
        out.push(head::switching(&parts).into());
        let mut socket = Self {
            stream,
            body,
            out,
            unflushed: false,
            stage: CloseStage::Open,
            pong: None,
            incoming: Some(FrameParser::new()),
            client_closed: false,
            deadline,
            overdue: None,
            wait: None,
        };
        socket.take(read);
        socket
    }

    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<WebSocketEnd> {
        // Always read first: a disconnect is noticed even if the body is pending and the socket blocked.
        if self.is_gone(cx) {
            return Poll::Ready(WebSocketEnd::Gone);
        }
        for _ in 0..BATCHES_PER_TURN {
            let found = self.find(cx);
            if found == FrameSupply::Cut {
                return Poll::Ready(WebSocketEnd::Cut);
            }
            match self.poll_send(cx) {
                Poll::Pending if self.is_overdue(cx) => return Poll::Ready(WebSocketEnd::Cut),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(WebSocketEnd::Gone),
                Poll::Ready(Ok(())) => self.overdue = None,
            }
            if matches!(self.stage, CloseStage::Closed) {
                return self.poll_closed(cx);
            }
            if found == FrameSupply::Nothing {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Returns true if a blocked client is past the deadline plus [`WATCH_END_WAIT`].
    fn is_overdue(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = self.deadline else { return false };
        let overdue = self.overdue.get_or_insert_with(|| Box::pin(sleep_until(deadline + WATCH_END_WAIT)));
        overdue.as_mut().poll(cx).is_ready()
    }

    /// Queues the next bytes, once all earlier ones were sent.
    fn find(&mut self, cx: &mut Context<'_>) -> FrameSupply {
        if !self.out.is_empty() || self.unflushed {
            return FrameSupply::Some;
        }
        match &mut self.stage {
            CloseStage::Closed => return FrameSupply::Some,
            CloseStage::Closing(last) => {
                self.out.push(std::mem::take(last));
                self.stage = CloseStage::Closed;
                return FrameSupply::Some;
            }
            CloseStage::Open => {}
        }
        // Before the body: a busy watch must not delay the answer to a ping.
        if let Some(pong) = self.pong.take() {
            self.out.push(pong);
            return FrameSupply::Some;
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending => return FrameSupply::Nothing,
            Poll::Ready(Some(Err(BodyError::Cut))) => return FrameSupply::Cut,
            Poll::Ready(Some(Ok(frame))) => {
                // A watch has no trailers.
                if let Ok(lines) = frame.into_data() {
                    frames::push_lines(lines, &mut self.out);
                }
                if self.body.is_end_stream() {
                    self.close(Some(Code::NORMAL));
                }
            }
            Poll::Ready(None) => self.close(Some(Code::NORMAL)),
        }
        FrameSupply::Some
    }

    /// Ends the watch after the bytes in `out`, unless it is closing already.
    fn close(&mut self, code: Option<Code>) {
        if matches!(self.stage, CloseStage::Open) {
            self.stage = CloseStage::Closing(frames::close(code));
        }
    }

    /// Writes and flushes the pending bytes.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            let mut vectors = [IoSlice::new(&[]); VECTORS_MAX];
            let filled = self.out.chunks_vectored(&mut vectors);
            let count = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, &vectors[..filled]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.out.advance(count);
            self.unflushed = true;
        }
        if self.unflushed {
            // Free the capacity: most watches are idle most of the time.
            self.out = Slices::new();
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Waits until the client has closed too. Closing a socket with unread input sends a reset, which can overtake the
    /// last events on their way to the application.
    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<WebSocketEnd> {
        if !self.client_closed {
            let wait = self.wait.get_or_insert_with(|| Box::pin(sleep(WEBSOCKET_CLOSE_WAIT)));
            ready!(wait.as_mut().poll(cx));
        }
        Poll::Ready(WebSocketEnd::Clean)
    }

    /// Reads from the client; returns true if it disconnected.
    fn is_gone(&mut self, cx: &mut Context<'_>) -> bool {
        for _ in 0..READS_PER_TURN {
            let mut space = [const { MaybeUninit::uninit() }; READ_BYTES];
            let mut into = ReadBuf::uninit(&mut space);
            match Pin::new(&mut self.stream).poll_read(cx, &mut into) {
                Poll::Pending => return false,
                Poll::Ready(Ok(())) if !into.filled().is_empty() => self.take(into.filled()),
                Poll::Ready(Ok(()) | Err(_)) => return true,
            }
        }
        cx.waker().wake_by_ref();
        false
    }

    /// Handles the bytes that the client sent.
    fn take(&mut self, mut bytes: &[u8]) {
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
}

#[cfg(test)]
mod tests;
