//! HTTP/1.1 watches written without hyper: chunks of slices over shared bytes, straight to the socket.
//!
//! INVARIANT: no output is queued. The body is polled only after the socket has accepted all earlier bytes. INVARIANT:
//! the socket is always being read, so that a disconnect is noticed at once, even on a quiet or blocked watch.
//! INVARIANT: a body that was cut never gets its last chunk. INVARIANT: a watch ends at most [`WATCH_END_WAIT`] after
//! its deadline, even if the client reads nothing or a byte a minute.
//!
//! Bytes that a client sends after the watch request are kept, up to [`PIPELINED_BYTES_MAX`], for the next server of
//! the connection. Beyond that the socket is not read any more, and a disconnect of such a client is noticed at the
//! next write.

mod chunked;
pub(super) mod head;

use std::{
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::Response;
use http_body::Body;
use tokio::{
    io::ReadBuf,
    time::{Instant, Sleep, sleep_until},
};
use watch_cache::Slices;

use self::chunked::ChunkedWriter;
use super::moving::Socket;
use crate::{
    http::body::BodyError,
    limits::{PIPELINED_BYTES_MAX, WATCH_END_WAIT},
};

/// A connection on which a watch is sent.
pub(super) struct Takeover<S, B> {
    stream: S,
    body: B,
    out: ChunkedWriter,
    /// Bytes that the client sent after its request.
    read: BytesMut,
    /// True if the stream may hold unflushed bytes.
    unflushed: bool,
    /// True if the response told the client that the connection ends with it.
    last: bool,
    /// Time at which the body ends by itself, if it is polled then.
    deadline: Option<Instant>,
    /// Runs while the socket is blocked. Memory: one timer, and only then.
    overdue: Option<Pin<Box<Sleep>>>,
}

/// The end of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakeoverEnd {
    /// The whole body was sent, including its end.
    Clean,
    /// The body failed, or is far past its deadline. The client must not take the response for complete.
    Cut,
    /// The client disconnected.
    Gone,
}

/// Result of looking for bytes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkSupply {
    /// There are bytes to send.
    Some,
    /// The body is pending and will wake the task.
    Nothing,
    /// The body failed.
    Cut,
}

/// Chunks sent in one poll before other tasks get a turn.
const CHUNKS_PER_TURN: usize = 4;

/// Bytes of one read from the client, on the stack.
const READ_BYTES: usize = 1 << 10;

impl<S: Socket, B: Body<Data = Slices, Error = BodyError> + Unpin> Takeover<S, B> {
    /// Starts a response on `stream`, of which `read` was already read. `last` tells the client that the connection
    /// ends with the response. The body ends by itself at `deadline`.
    pub(super) fn new(stream: S, read: Bytes, response: Response<B>, last: bool, deadline: Option<Instant>) -> Self {
        let (parts, body) = response.into_parts();
        let out = ChunkedWriter::new(head::encode(&parts, last));
        // Copy the leftover bytes so that hyper's large read buffer can be freed.
        let read = BytesMut::from(&read[..]);
        Self { stream, body, out, read, unflushed: false, last, deadline, overdue: None }
    }

    /// Sends until the body ends or the client disconnects.
    pub(super) async fn ended(&mut self) -> TakeoverEnd {
        std::future::poll_fn(|cx| self.poll_ended(cx)).await
    }

    /// Returns true if the response told the client that the connection ends with it.
    pub(super) const fn is_last(&self) -> bool {
        self.last
    }

    /// Returns the stream.
    pub(super) const fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Returns the stream and the bytes read from it meanwhile.
    pub(super) fn into_parts(self) -> (S, Bytes) {
        (self.stream, self.read.freeze())
    }

    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<TakeoverEnd> {
        // Always read first: a disconnect is noticed even if the body is pending and the socket blocked.
        if self.is_gone(cx) {
            return Poll::Ready(TakeoverEnd::Gone);
        }
        for _ in 0..CHUNKS_PER_TURN {
            let found = self.find(cx);
            if found == ChunkSupply::Cut {
                return Poll::Ready(TakeoverEnd::Cut);
            }
            match self.poll_send(cx) {
                Poll::Pending if self.is_overdue(cx) => return Poll::Ready(TakeoverEnd::Cut),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(TakeoverEnd::Gone),
                Poll::Ready(Ok(())) => self.overdue = None,
            }
            if self.out.is_over() {
                return Poll::Ready(TakeoverEnd::Clean);
            }
            if found == ChunkSupply::Nothing {
                return Poll::Pending;
            }
        }
        // Yield to other tasks, and be polled again.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Returns true if a blocked client is past the deadline plus [`WATCH_END_WAIT`]. The body is not polled while the
    /// socket is blocked, so it cannot end by itself.
    fn is_overdue(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = self.deadline else { return false };
        let overdue = self.overdue.get_or_insert_with(|| Box::pin(sleep_until(deadline + WATCH_END_WAIT)));
        overdue.as_mut().poll(cx).is_ready()
    }

    /// Polls the body for more, once all earlier bytes were sent.
    fn find(&mut self, cx: &mut Context<'_>) -> ChunkSupply {
        if self.out.is_over() || self.out.has_chunk() || self.unflushed {
            return ChunkSupply::Some;
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending => return ChunkSupply::Nothing,
            Poll::Ready(Some(Err(BodyError::Cut))) => return ChunkSupply::Cut,
            Poll::Ready(Some(Ok(frame))) => {
                // A watch has no trailers.
                if let Ok(slices) = frame.into_data() {
                    self.out.chunk(slices);
                }
                if self.body.is_end_stream() {
                    self.out.finish();
                }
            }
            Poll::Ready(None) => self.out.finish(),
        }
        ChunkSupply::Some
    }

    /// Writes and flushes the pending bytes.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while !self.out.is_empty() {
            let count = ready!(self.out.poll_write(Pin::new(&mut self.stream), cx))?;
            if count == 0 {
                return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
            }
            self.out.advance(count);
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Keeps the bytes that the client sends. Returns true if it disconnected.
    fn is_gone(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            let room = PIPELINED_BYTES_MAX.saturating_sub(self.read.len()).min(READ_BYTES);
            if room == 0 {
                return false;
            }
            let mut space = [const { MaybeUninit::uninit() }; READ_BYTES];
            let mut into = ReadBuf::uninit(&mut space[..room]);
            match Pin::new(&mut self.stream).poll_read(cx, &mut into) {
                Poll::Pending => return false,
                Poll::Ready(Ok(())) if !into.filled().is_empty() => self.read.put_slice(into.filled()),
                Poll::Ready(Ok(()) | Err(_)) => return true,
            }
        }
    }
}

#[cfg(test)]
mod tests;
