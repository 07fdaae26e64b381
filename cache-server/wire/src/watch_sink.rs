//! Sends a watch without hyper: pulls its body, lets a framing put the protocol's bytes around it, and writes slices of
//! shared bytes straight to the socket.
//!
//! INVARIANT: no output is queued. The body is polled only after the socket has accepted all earlier bytes. INVARIANT:
//! the socket is always being read, so that a disconnect is noticed at once, even on a quiet or blocked watch.
//! INVARIANT: a body that was cut is never ended by its framing. INVARIANT: a watch ends at the end of its term at the
//! latest, even if the client reads nothing or a byte a minute.

use std::{
    io,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::future::BoxFuture;
use http_body::Body;
use tokio::io::{AsyncWrite, ReadBuf};
use watch_cache::Slices;

use super::socket::Socket;
use crate::{body::BodyError, term::WatchTerm};

/// The bytes of a protocol around the batches of a watch, and its use for the client's bytes.
pub trait WatchFraming: Unpin {
    /// Number of bytes of the client that may be read now; zero leaves them in the socket.
    fn room(&self) -> usize;

    /// Handles bytes of the client.
    fn receive(&mut self, bytes: &[u8]);

    /// Returns true if the next bytes need nothing of the body, or no bytes follow. All earlier bytes were sent, except
    /// those that may share a write with a batch.
    fn has_next(&mut self) -> bool;

    /// Puts a batch of the body behind the pending bytes.
    fn batch(&mut self, batch: Slices);

    /// Puts the end of the watch behind the pending bytes.
    fn finish(&mut self);

    /// True if no byte is pending.
    fn is_empty(&self) -> bool;

    /// Writes as many pending bytes as fit; returns their number.
    fn poll_write<W: AsyncWrite>(&self, into: Pin<&mut W>, cx: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Advances past the next `count` pending bytes.
    fn advance(&mut self, count: usize);

    /// Called once all pending bytes were written.
    fn written(&mut self) {}

    /// Returns `None` before the end of the watch was sent, and after that whether the connection may end.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Option<Poll<()>>;
}

/// A connection on which a watch is sent.
pub struct WatchSink<S, B, F> {
    pub stream: S,
    pub body: B,
    pub framing: F,
    /// True if the stream may hold unflushed bytes.
    unflushed: bool,
    /// Time until which the watch may last; `None`: no limit.
    term: Option<WatchTerm>,
    /// Runs while the socket is blocked. Memory: one timer, and only then.
    overdue: Option<BoxFuture<'static, ()>>,
}

/// The end of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// The whole body was sent, including its end.
    Clean,
    /// The body failed, or is far past its deadline. The client must not take the response for complete.
    Cut,
    /// The client disconnected.
    Gone,
}

/// Result of a search for bytes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchSupply {
    /// There are bytes to send, or the end was sent.
    Some,
    /// The body is pending and will wake the task.
    Nothing,
    /// The body failed.
    Cut,
}

/// Batches sent in one poll before other tasks get a turn.
pub const BATCHES_PER_TURN: usize = 4;

/// Bytes of one read from the client, on the stack.
const READ_BYTES: usize = 1 << 10;

/// Reads in one poll before other tasks get a turn.
const READS_PER_TURN: usize = 4;

impl<S: Socket, B: Body<Data = Slices, Error = BodyError> + Unpin, F: WatchFraming> WatchSink<S, B, F> {
    /// Starts a watch whose head is in `framing`. If it is polled, the body ends before its `term` is over.
    pub const fn begin(stream: S, body: B, framing: F, term: Option<WatchTerm>) -> Self {
        Self { stream, body, framing, unflushed: false, term, overdue: None }
    }

    /// Sends until the watch has ended or the client disconnects.
    pub async fn ended(&mut self) -> WatchEnd {
        std::future::poll_fn(|cx| self.poll_ended(cx)).await
    }

    pub fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<WatchEnd> {
        // Always read first: a disconnect is noticed even if the body is pending and the socket blocked.
        if self.is_gone(cx) {
            return Poll::Ready(WatchEnd::Gone);
        }
        for _ in 0..BATCHES_PER_TURN {
            let found = self.find(cx);
            if found == BatchSupply::Cut {
                return Poll::Ready(WatchEnd::Cut);
            }
            match self.poll_send(cx) {
                Poll::Pending if self.is_overdue(cx) => return Poll::Ready(WatchEnd::Cut),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(WatchEnd::Gone),
                Poll::Ready(Ok(())) => self.overdue = None,
            }
            if let Some(over) = self.framing.poll_over(cx) {
                return over.map(|()| WatchEnd::Clean);
            }
            if found == BatchSupply::Nothing {
                return Poll::Pending;
            }
        }
        // Yield to other tasks, and be polled again.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Returns true if a blocked client is past the term of its watch. The body is not polled while the socket is
    /// blocked, so it cannot end by itself.
    fn is_overdue(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(term) = &self.term else { return false };
        let overdue = self.overdue.get_or_insert_with(|| Box::pin(term.clone().over()));
        overdue.as_mut().poll(cx).is_ready()
    }

    /// Polls the body for more, once all earlier bytes were sent.
    fn find(&mut self, cx: &mut Context<'_>) -> BatchSupply {
        // Bytes that were written and not flushed may wait in the TLS session.
        if self.unflushed || self.framing.has_next() {
            return BatchSupply::Some;
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending => return BatchSupply::Nothing,
            Poll::Ready(Some(Err(BodyError::Cut | BodyError::Upstream | BodyError::Withdrawn))) => {
                return BatchSupply::Cut;
            }
            Poll::Ready(Some(Ok(frame))) => {
                // A watch has no trailers.
                if let Ok(batch) = frame.into_data() {
                    self.framing.batch(batch);
                }
                if self.body.is_end_stream() {
                    self.framing.finish();
                }
            }
            Poll::Ready(None) => self.framing.finish(),
        }
        BatchSupply::Some
    }

    /// Writes and flushes the pending bytes.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.framing.is_empty() {
            let count = ready!(self.framing.poll_write(Pin::new(&mut self.stream), cx))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.framing.advance(count);
            self.unflushed = true;
        }
        if self.unflushed {
            self.framing.written();
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads from the client; returns true if it disconnected.
    fn is_gone(&mut self, cx: &mut Context<'_>) -> bool {
        for _ in 0..READS_PER_TURN {
            let room = self.framing.room().min(READ_BYTES);
            if room == 0 {
                return false;
            }
            let mut space = [const { MaybeUninit::uninit() }; READ_BYTES];
            let mut into = ReadBuf::uninit(&mut space[..room]);
            match Pin::new(&mut self.stream).poll_read(cx, &mut into) {
                Poll::Pending => return false,
                Poll::Ready(Ok(())) if !into.filled().is_empty() => self.framing.receive(into.filled()),
                Poll::Ready(Ok(()) | Err(_)) => return true,
            }
        }
        cx.waker().wake_by_ref();
        false
    }
}

#[cfg(test)]
pub mod tests;
