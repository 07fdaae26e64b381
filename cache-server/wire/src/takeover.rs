//! HTTP/1.1 watches written without hyper: one chunk for each batch.
//!
//! INVARIANT: a body that was cut never gets its last chunk.
//!
//! Bytes that a client sends after the watch request are kept, up to [`PIPELINED_BYTES_MAX`], for the next server of
//! the connection. Beyond that the socket is not read any more, and a disconnect of such a client is noticed at the
//! next write.

mod chunked;
pub mod head;

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::Response;
use http_body::Body;
use tokio::io::AsyncWrite;
use watch_cache::Slices;

use self::chunked::ChunkedWriter;
use super::{
    socket::Socket,
    watch_sink::{WatchFraming, WatchSink},
};
use crate::{body::BodyError, limits::PIPELINED_BYTES_MAX, term::WatchTerm};

/// A connection on which a watch is sent in chunks.
pub type Takeover<S, B> = WatchSink<S, B, ChunkFraming>;

/// Sends batches as chunks, and keeps what the client sends.
pub struct ChunkFraming {
    out: ChunkedWriter,
    /// Bytes that the client sent after its request.
    read: BytesMut,
    /// True if the response told the client that the connection ends with it.
    last: bool,
}

impl<S: Socket, B: Body<Data = Slices, Error = BodyError> + Unpin> Takeover<S, B> {
    /// Starts a response on `stream`, of which `read` was already read. `last` tells the client that the connection
    /// ends with the response. The watch may last until its `term` is over.
    pub fn new(stream: S, read: Bytes, response: Response<B>, last: bool, term: Option<WatchTerm>) -> Self {
        let (parts, body) = response.into_parts();
        let out = ChunkedWriter::new(head::encode(&parts, last));
        // Copy the leftover bytes so that hyper's large read buffer can be freed.
        let read = BytesMut::from(&read[..]);
        Self::begin(stream, body, ChunkFraming { out, read, last }, term)
    }

    /// Returns true if the response told the client that the connection ends with it.
    pub const fn is_last(&self) -> bool {
        self.framing.last
    }

    /// Returns the stream and the bytes read from it meanwhile.
    pub fn into_parts(self) -> (S, Bytes) {
        (self.stream, self.framing.read.freeze())
    }
}

impl WatchFraming for ChunkFraming {
    fn room(&self) -> usize {
        PIPELINED_BYTES_MAX.saturating_sub(self.read.len())
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.read.put_slice(bytes);
    }

    fn has_next(&mut self) -> bool {
        self.out.is_over() || self.out.has_chunk()
    }

    fn batch(&mut self, batch: Slices) {
        self.out.chunk(batch);
    }

    fn finish(&mut self) {
        self.out.finish();
    }

    fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    fn poll_write<W: AsyncWrite>(&self, into: Pin<&mut W>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.out.poll_write(into, cx)
    }

    fn advance(&mut self, count: usize) {
        self.out.advance(count);
    }

    fn poll_over(&mut self, _: &mut Context<'_>) -> Option<Poll<()>> {
        self.out.is_over().then_some(Poll::Ready(()))
    }
}

#[cfg(test)]
mod tests;
