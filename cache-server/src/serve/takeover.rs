//! HTTP/1.1 watches, written by ourselves: chunks of slices over shared bytes, straight to the socket.
//!
//! INVARIANT: nothing is queued. More is asked of the body only when all before it was taken. INVARIANT: the socket is
//! read all the time, so a client that leaves is noticed at once, also while nothing happens and while it takes nothing.
//! INVARIANT: a body that was cut never gets its last chunk. INVARIANT: a watch is over [`WATCH_END_WAIT`] behind its
//! deadline, also when its client takes nothing or a byte a minute.
//!
//! What a client sends behind the watch is kept, up to [`PIPELINED_BYTES_MAX`], for whoever serves the connection next.
//! Beyond it the socket is not read any more, and that such a client left is noticed at the next write.

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

use self::chunked::Chunked;
use super::moving::Socket;
use crate::{
    http::body::BodyError,
    limits::{PIPELINED_BYTES_MAX, WATCH_END_WAIT},
};

/// A connection on which a watch is sent.
pub(super) struct Takeover<S, B> {
    stream: S,
    body: B,
    out: Chunked,
    /// What the client sent behind its request.
    read: BytesMut,
    /// Whether the stream may hold something that it has not sent.
    unflushed: bool,
    /// Whether the client was told that the connection ends with the response.
    last: bool,
    /// When the body ends by itself, if it is polled then.
    deadline: Option<Instant>,
    /// Runs while the client does not take what is to be sent. Memory: one timer, and only then.
    overdue: Option<Pin<Box<Sleep>>>,
}

/// How a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// All was sent, and its client knows that it is over.
    Clean,
    /// Its body cannot go on, or is far behind its deadline. The client must not take what it has for the whole.
    Cut,
    /// There is no client any more.
    Gone,
}

/// What a look for more came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Something is there to be sent.
    Some,
    /// The body will wake us.
    Nothing,
    /// The body cannot go on.
    Cut,
}

/// Chunks sent in one turn, before others have theirs.
const CHUNKS_PER_TURN: usize = 4;

/// Bytes of one look at what the client sends. They are on the stack.
const READ_BYTES: usize = 1 << 10;

impl<S: Socket, B: Body<Data = Slices, Error = BodyError> + Unpin> Takeover<S, B> {
    /// Begins to answer on `stream`, of which `read` was read already. `last` tells the client that the connection ends
    /// with the response. The body ends by itself at `deadline`.
    pub(super) fn new(stream: S, read: Bytes, response: Response<B>, last: bool, deadline: Option<Instant>) -> Self {
        let (parts, body) = response.into_parts();
        let out = Chunked::new(head::encode(&parts, last));
        // Copies the leftover bytes, so that hyper's large read buffer can be freed.
        let read = BytesMut::from(&read[..]);
        Self { stream, body, out, read, unflushed: false, last, deadline, overdue: None }
    }

    /// Sends until there is nothing more to send, or nobody to send it to.
    pub(super) async fn ended(&mut self) -> End {
        std::future::poll_fn(|cx| self.poll_ended(cx)).await
    }

    /// Whether the client was told that the connection ends with the response.
    pub(super) const fn is_last(&self) -> bool {
        self.last
    }

    /// The connection.
    pub(super) const fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The connection, and what was read of it meanwhile.
    pub(super) fn into_parts(self) -> (S, Bytes) {
        (self.stream, self.read.freeze())
    }

    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        if self.is_gone(cx) {
            return Poll::Ready(End::Gone);
        }
        for _ in 0..CHUNKS_PER_TURN {
            let found = self.find(cx);
            if found == Found::Cut {
                return Poll::Ready(End::Cut);
            }
            match self.poll_send(cx) {
                Poll::Pending if self.is_overdue(cx) => return Poll::Ready(End::Cut),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(End::Gone),
                Poll::Ready(Ok(())) => self.overdue = None,
            }
            if self.out.is_over() {
                return Poll::Ready(End::Clean);
            }
            if found == Found::Nothing {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// True if the client had its time to take what is to be sent. The body is not polled meanwhile, and so cannot end.
    fn is_overdue(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = self.deadline else { return false };
        let overdue = self.overdue.get_or_insert_with(|| Box::pin(sleep_until(deadline + WATCH_END_WAIT)));
        overdue.as_mut().poll(cx).is_ready()
    }

    /// Asks the body for more, once everything before was sent.
    fn find(&mut self, cx: &mut Context<'_>) -> Found {
        if self.out.is_over() || self.out.has_chunk() || self.unflushed {
            return Found::Some;
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending => return Found::Nothing,
            Poll::Ready(Some(Err(BodyError::Cut))) => return Found::Cut,
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
        Found::Some
    }

    /// Sends what there is to send.
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

    /// Keeps what the client sends. Whether it left.
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
