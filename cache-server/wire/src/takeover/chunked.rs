//! The pending bytes of a chunked response: its head, then one chunk at a time.
//!
//! INVARIANT: a chunk's bytes are slices of shared bytes; only its framing is written here. INVARIANT: after a partial
//! write the next one continues at the first unsent byte.

use std::{
    io::{self, IoSlice, Write as _},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Buf as _;
use tokio::io::AsyncWrite;
use watch_cache::Slices;

use crate::limits::SLICES_MAX;

/// The unsent part of a response.
pub(super) struct ChunkedWriter {
    /// Head of the response. Freed once it was sent.
    head: Vec<u8>,
    /// Bytes of `head` that were sent.
    head_sent: usize,
    /// Size line of the chunk.
    size: SizeLine,
    /// The bytes of the chunk. Freed once they were sent.
    slices: Slices,
    /// Unsent bytes after the chunk.
    tail: &'static [u8],
    /// True if no chunk follows.
    over: bool,
}

/// Longest size line: sixteen digits and the line end.
const SIZE_BYTES: usize = 18;

/// The size line of a chunk.
#[derive(Default)]
struct SizeLine {
    line: [u8; SIZE_BYTES],
    sent: u8,
    len: u8,
}

impl SizeLine {
    fn of(count: usize) -> Self {
        let mut line = [0; SIZE_BYTES];
        let mut left = &mut line[..];
        write!(left, "{count:X}\r\n").expect("a usize has sixteen digits at most");
        let len = SIZE_BYTES - left.len();
        Self { line, sent: 0, len: u8::try_from(len).expect("at most eighteen") }
    }

    fn left(&self) -> &[u8] {
        &self.line[usize::from(self.sent)..usize::from(self.len)]
    }
}

/// End of a chunk.
const CHUNK_END: &[u8] = b"\r\n";

/// End of a chunk and of the body.
const CHUNK_AND_BODY_END: &[u8] = b"\r\n0\r\n\r\n";

/// End of a body whose last chunk was sent before.
const BODY_END: &[u8] = b"0\r\n\r\n";

impl ChunkedWriter {
    /// Starts a response with `head`.
    pub(super) fn new(head: Vec<u8>) -> Self {
        Self { head, head_sent: 0, size: SizeLine::default(), slices: Slices::new(), tail: &[], over: false }
    }

    /// Returns true if there are no bytes to send now.
    pub(super) fn is_empty(&self) -> bool {
        self.tail.is_empty() && self.head.is_empty()
    }

    /// Returns true if a chunk is not completely sent.
    pub(super) fn has_chunk(&self) -> bool {
        !self.tail.is_empty()
    }

    /// Returns true once the end of the body was queued.
    pub(super) const fn is_over(&self) -> bool {
        self.over
    }

    /// Sets `slices` as the next chunk. The previous one must be sent. Ignores an empty one: an empty chunk would end
    /// the body.
    pub(super) fn chunk(&mut self, slices: Slices) {
        debug_assert!(!self.has_chunk() && !self.over, "a chunk is sent before the next one");
        if !slices.is_empty() {
            (self.size, self.slices, self.tail) = (SizeLine::of(slices.bytes()), slices, CHUNK_END);
        }
    }

    /// Queues the end of the body, after the current chunk if one is still completely unsent.
    pub(super) fn finish(&mut self) {
        self.tail = if self.has_chunk() { CHUNK_AND_BODY_END } else { BODY_END };
        self.over = true;
    }

    /// Writes as much as fits; returns the number of bytes.
    pub(super) fn poll_write<W: AsyncWrite>(&self, into: Pin<&mut W>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut vectors = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        for part in [&self.head[self.head_sent..], self.size.left()] {
            if !part.is_empty() {
                vectors[count] = IoSlice::new(part);
                count += 1;
            }
        }
        let filled = self.slices.chunks_vectored(&mut vectors[count..SLICES_MAX - 1]);
        count += filled;
        // The tail goes into this write only if all slices fit before it; one vector is reserved for it.
        if filled == self.slices.len() {
            vectors[count] = IoSlice::new(self.tail);
            count += 1;
        }
        into.poll_write_vectored(cx, &vectors[..count])
    }

    /// Advances past the next `count` bytes.
    pub(super) fn advance(&mut self, mut count: usize) {
        let mut take = |left: usize| {
            let taken = count.min(left);
            count -= taken;
            taken
        };
        self.head_sent += take(self.head.len() - self.head_sent);
        if self.head_sent == self.head.len() && !self.head.is_empty() {
            (self.head, self.head_sent) = (Vec::new(), 0);
        }
        let taken = take(self.size.left().len());
        self.size.sent += u8::try_from(taken).expect("no longer than the line");
        let taken = take(self.slices.bytes());
        if taken > 0 {
            self.slices.advance(taken);
            if self.slices.is_empty() {
                // Free the capacity too: most watches are idle most of the time.
                self.slices = Slices::new();
            }
        }
        self.tail = &self.tail[take(self.tail.len())..];
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use bytes::Bytes;

    use super::*;

    fn slices(parts: &[&'static str]) -> Slices {
        let mut slices = Slices::new();
        for part in parts {
            slices.push(Bytes::from_static(part.as_bytes()));
        }
        slices
    }

    /// Writes at most `room` bytes and returns them.
    fn write(out: &mut ChunkedWriter, room: usize) -> Vec<u8> {
        let mut space = vec![0; room];
        let mut into = Cursor::new(&mut space[..]);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let Poll::Ready(Ok(count)) = out.poll_write(Pin::new(&mut into), &mut cx) else { panic!("memory takes all") };
        out.advance(count);
        space.truncate(count);
        space
    }

    fn write_all(out: &mut ChunkedWriter) -> Vec<u8> {
        let mut all = Vec::new();
        while !out.is_empty() {
            all.extend(write(out, 1 << 20));
        }
        all
    }

    #[test]
    fn a_write_may_stop_anywhere() {
        let whole = b"HEAD\r\n\r\n21\r\nfirst, second, and a longer third\r\n0\r\n\r\n".as_slice();
        for first in 0..=whole.len() {
            for second in 0..=whole.len() - first {
                let mut out = ChunkedWriter::new(b"HEAD\r\n\r\n".to_vec());
                out.chunk(slices(&["first, ", "second", ", and a ", "longer third"]));
                out.finish();
                let mut sent = write(&mut out, first);
                sent.extend(write(&mut out, second));
                sent.extend(write_all(&mut out));
                assert_eq!(sent, whole, "stopped at {first}, then after {second}");
            }
        }
    }

    #[test]
    fn a_chunk_of_more_slices_than_a_write_takes_goes_out_in_several() {
        let mut out = ChunkedWriter::new(Vec::new());
        out.chunk(slices(&["ab"; 300]));
        assert_eq!(write_all(&mut out), ["258\r\n", &"ab".repeat(300), "\r\n"].concat().as_bytes());
        assert!(out.is_empty() && !out.has_chunk() && !out.is_over());
    }

    #[test]
    fn nothing_is_no_chunk() {
        let mut out = ChunkedWriter::new(Vec::new());
        out.chunk(Slices::new());
        assert!(out.is_empty(), "an empty chunk would end the body");
        out.finish();
        assert_eq!(write_all(&mut out), b"0\r\n\r\n");
        assert!(out.is_over());
    }

    #[test]
    fn every_length_fits_into_its_line() {
        for (count, line) in [(0, "0\r\n"), (15, "F\r\n"), (0x1234, "1234\r\n"), (usize::MAX, "FFFFFFFFFFFFFFFF\r\n")] {
            assert_eq!(SizeLine::of(count).left(), line.as_bytes());
        }
    }
}
