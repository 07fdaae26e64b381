//! Decompresses the body of a list while it is received.
//!
//! INVARIANT: at most one buffer of output is allocated at a time, whatever the input expands to. The rest of the input
//! waits for the next call.

use bytes::{Buf as _, Bytes};
use flate2::{Decompress, DecompressError, FlushDecompress, Status};

/// Most bytes of one piece of output.
const OUTPUT_BYTES: usize = 64 << 10;

/// Size of gzip's window as a power of two: 32 KiB, which every stream may use.
const WINDOW_BITS: u8 = 15;

/// The body of a list is no complete gzip stream, although its headers say so. Source of an [`Error`](crate::Error) that
/// is retryable. Feature `gzip`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GzipError {
    /// The bytes are no gzip stream, or its checksum does not match.
    #[error("the gzip stream is corrupt")]
    Corrupt(#[source] DecompressError),
    /// The body ended before the gzip stream did.
    #[error("the gzip stream ends too early")]
    Truncated,
}

/// A gzip stream and the input that is not decompressed yet. Memory: about 48 KiB, and one buffer of output.
pub(super) struct GzipReader {
    inflate: Decompress,
    input: Bytes,
    has_output: bool,
    is_ended: bool,
}

impl GzipReader {
    pub(super) fn new() -> Self {
        Self { inflate: decompress(), input: Bytes::new(), has_output: false, is_ended: false }
    }

    /// Adds input. Call it after [`next`](Self::next) has returned `None`.
    pub(super) fn push(&mut self, input: Bytes) {
        self.input = input;
    }

    /// The next piece of output; `None` if more input is needed.
    ///
    /// # Errors
    /// The input is no gzip stream.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, GzipError> {
        while self.has_output || !self.input.is_empty() {
            if self.is_ended {
                // A stream may have several members, one behind the other (RFC 1952, section 2.2).
                (self.inflate, self.is_ended) = (decompress(), false);
            }
            let mut output = Vec::with_capacity(OUTPUT_BYTES);
            let before = self.inflate.total_in();
            let status = self.inflate.decompress_vec(&self.input, &mut output, FlushDecompress::None);
            self.is_ended = status.map_err(GzipError::Corrupt)? == Status::StreamEnd;
            let read = usize::try_from(self.inflate.total_in() - before).unwrap_or(usize::MAX);
            self.input.advance(read.min(self.input.len()));
            // Behind a full buffer the decompressor may hold more, even without input.
            self.has_output = !self.is_ended && output.len() == output.capacity();
            if !output.is_empty() {
                return Ok(Some(output.into()));
            }
        }
        Ok(None)
    }

    /// Checks that the stream is complete. Call it at the end of the body.
    ///
    /// # Errors
    /// The body ended before the stream.
    pub(super) const fn finish(&self) -> Result<(), GzipError> {
        if self.is_ended { Ok(()) } else { Err(GzipError::Truncated) }
    }
}

fn decompress() -> Decompress {
    Decompress::new_gzip(WINDOW_BITS)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    /// Everything that comes out of input in pieces of `size`, and the largest piece of it.
    fn unpacked(input: &[u8], size: usize) -> Result<(Vec<u8>, usize), GzipError> {
        let (mut reader, mut all, mut largest) = (GzipReader::new(), Vec::new(), 0);
        for piece in input.chunks(size) {
            reader.push(Bytes::copy_from_slice(piece));
            while let Some(output) = reader.next()? {
                largest = largest.max(output.len());
                all.extend_from_slice(&output);
            }
            assert!(reader.input.is_empty(), "all input was read");
        }
        reader.finish()?;
        Ok((all, largest))
    }

    /// Goal: chunk boundaries do not matter, and a bomb costs one buffer. Method: text that shrinks to a fiftieth, in
    /// pieces of several sizes, with lengths around the buffer's.
    #[test]
    fn pieces_of_any_size_give_equal_bytes_in_bounded_buffers() {
        let text = "a list of objects ".repeat(100_000).into_bytes();
        for length in [0, 1, OUTPUT_BYTES - 1, OUTPUT_BYTES, OUTPUT_BYTES + 1, 2 * OUTPUT_BYTES, text.len()] {
            let input = packed(&text[..length]);
            for size in [1, 7, 1_000, input.len()] {
                let (all, largest) = unpacked(&input, size).expect("a stream");
                assert!(all == text[..length] && largest <= OUTPUT_BYTES, "{length} in pieces of {size}: {largest}");
            }
        }
    }

    #[test]
    fn members_behind_each_other_are_one_stream() {
        let input = [packed(b"a list "), packed(b"of objects")].concat();
        for size in [1, 5, input.len()] {
            assert_eq!(unpacked(&input, size).expect("a stream").0, b"a list of objects", "{size}");
        }
    }

    #[test]
    fn a_stream_that_breaks_off_or_is_no_gzip_is_an_error() {
        let input = packed(b"a list of objects");
        let mut altered = input.clone();
        altered[input.len() - 6] ^= 1;
        for size in [5, 1_000] {
            for length in [0, 1, 11, input.len() - 1] {
                let error = unpacked(&input[..length], size).expect_err("no end");
                assert!(matches!(error, GzipError::Truncated), "{length}: {error}");
            }
            for wrong in [&b"{\"kind\":\"PodList\"}"[..], &altered[..], &[&input[..], b"more"].concat()[..]] {
                let error = unpacked(wrong, size).expect_err("no gzip");
                assert!(matches!(error, GzipError::Corrupt(_)), "{error}");
            }
        }
    }
}
