//! Parses HTTP/1.1 response heads and strips the framing of bodies. Does no I/O.
//!
//! Source: RFC 9112, sections 2 to 7.

use super::Head;

/// Maximum bytes of a head.
pub(super) const HEAD_BYTES_MAX: usize = 16 << 10;

/// Maximum bytes of a trailer line, and of a chunk's extensions.
const LINE_BYTES_MAX: u32 = 8 << 10;

/// The bytes are not HTTP, or not a form of it that this client supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(&'static str);

/// The framing of a body and the current position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// Content-length, with the remaining bytes; zero at the end.
    Length(u64),
    /// Chunked, with the remaining bytes of the current chunk.
    Chunked(Part, u64),
    /// Body until the connection is closed.
    UntilClose,
}

/// The expected next part of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Size { digits: u32 },
    Extension(u32),
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailer { line: u32 },
    TrailerLf { line: u32 },
    End,
}

impl Framing {
    /// An empty body.
    pub(super) const NONE: Self = Self::Length(0);
    const CHUNKED: Self = Self::Chunked(Part::Size { digits: 0 }, 0);

    pub(super) const fn is_done(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Part::End, _))
    }

    /// Strips the framing and passes body bytes to `take`. Bytes after the body are an error, because requests are not
    /// pipelined.
    pub(super) fn feed(&mut self, mut bytes: &[u8], take: &mut impl FnMut(&[u8])) -> Result<(), Malformed> {
        while !bytes.is_empty() {
            let left = match self {
                Self::UntilClose => {
                    take(bytes);
                    return Ok(());
                }
                Self::Length(left) | Self::Chunked(Part::Data, left) if *left > 0 => left,
                Self::Length(_) | Self::Chunked(Part::End, _) => return Err(Malformed("bytes after the body")),
                Self::Chunked(part, left) => {
                    *part = part.step(bytes[0], left)?;
                    bytes = &bytes[1..];
                    continue;
                }
            };
            let (piece, rest) = bytes.split_at(usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len()));
            take(piece);
            bytes = rest;
            *left -= u64::try_from(piece.len()).unwrap_or(u64::MAX);
            if let Self::Chunked(part @ Part::Data, 0) = self {
                *part = Part::DataCr;
            }
        }
        Ok(())
    }
}

impl Part {
    /// Advances by one byte of framing; `left` accumulates the chunk size.
    fn step(self, byte: u8, left: &mut u64) -> Result<Self, Malformed> {
        match (self, byte) {
            (Self::Size { digits: 1.. }, b'\r') | (Self::Extension(_), b'\r') => Ok(Self::SizeLf),
            (Self::Size { digits: 1.. }, b';' | b' ' | b'\t') => Ok(Self::Extension(0)),
            (Self::Size { digits }, byte) => {
                let digit = char::from(byte).to_digit(16).ok_or(Malformed("a chunk without a size"))?;
                if digits == 15 {
                    return Err(Malformed("a chunk that is too large"));
                }
                *left = *left * 16 + u64::from(digit);
                Ok(Self::Size { digits: digits + 1 })
            }
            (Self::Extension(length), _) if length < LINE_BYTES_MAX => Ok(Self::Extension(length + 1)),
            (Self::SizeLf, b'\n') => Ok(if *left == 0 { Self::Trailer { line: 0 } } else { Self::Data }),
            (Self::DataCr, b'\r') => Ok(Self::DataLf),
            (Self::DataLf, b'\n') => Ok(Self::Size { digits: 0 }),
            (Self::Trailer { line }, b'\r') => Ok(Self::TrailerLf { line }),
            (Self::Trailer { line }, _) if line < LINE_BYTES_MAX => Ok(Self::Trailer { line: line + 1 }),
            (Self::TrailerLf { line: 0 }, b'\n') => Ok(Self::End),
            (Self::TrailerLf { .. }, b'\n') => Ok(Self::Trailer { line: 0 }),
            _ => Err(Malformed("a chunk that does not end where it should")),
        }
    }
}

/// Parses a final response head. Returns the head, the framing of its body, and the length of the head; `None` if it is
/// incomplete.
pub(super) fn head(bytes: &[u8]) -> Result<Option<(Head, Framing, usize)>, Malformed> {
    let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else {
        return if bytes.len() < HEAD_BYTES_MAX { Ok(None) } else { Err(Malformed("the head is too long")) };
    };
    let text = std::str::from_utf8(&bytes[..end]).map_err(|_| Malformed("the head is no text"))?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok());
    let status: u16 = status.ok_or(Malformed("it is not HTTP/1.1"))?;
    if status < 200 {
        return Err(Malformed("an interim answer nobody asked for"));
    }
    let (mut framing, mut gzip) = (Framing::UntilClose, false);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
            framing = Framing::CHUNKED;
        } else if name.eq_ignore_ascii_case("content-length") && framing != Framing::CHUNKED {
            framing = Framing::Length(value.parse().map_err(|_| Malformed("a content-length that is no number"))?);
        } else if name.eq_ignore_ascii_case("content-encoding") {
            gzip = value.eq_ignore_ascii_case("gzip");
        }
    }
    if matches!(status, 204 | 304) {
        framing = Framing::NONE;
    }
    Ok(Some((Head { status, gzip }, framing, end + 4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the result does not depend on how the bytes arrive. Method: feed the same body in pieces of every size.
    #[test]
    fn chunks_are_taken_apart_at_every_byte() {
        let wire = b"5\r\nhello\r\n00b;name=\"x\"\r\n, big world\r\n0\r\nTrailer: a\r\n\r\n";
        for size in 1..=wire.len() {
            let (mut framing, mut body) = (Framing::CHUNKED, Vec::new());
            for piece in wire.chunks(size) {
                assert!(!framing.is_done());
                framing.feed(piece, &mut |bytes| body.extend_from_slice(bytes)).unwrap();
            }
            assert!(framing.is_done(), "by {size}");
            assert_eq!(String::from_utf8_lossy(&body), "hello, big world", "by {size}");
        }
    }

    #[test]
    fn bodies_that_are_cut_are_not_done() {
        let wire = b"5\r\nhello\r\n0\r\n\r\n";
        for length in 0..wire.len() {
            let mut framing = Framing::CHUNKED;
            framing.feed(&wire[..length], &mut |_| {}).unwrap();
            assert!(!framing.is_done(), "after {length}");
        }
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for wire in ["\r\n", "x\r\n", "1\r\nab", "1\n", "1\r\na\n", "0\r\n\r\nmore", "1234567890123456\r\n"] {
            let mut framing = Framing::CHUNKED;
            let fed = framing.feed(wire.as_bytes(), &mut |_| {});
            assert!(fed.is_err(), "{wire:?}");
        }
        let mut framing = Framing::Length(2);
        framing.feed(b"ab", &mut |_| {}).unwrap();
        assert!(framing.is_done());
        assert!(framing.feed(b"c", &mut |_| {}).is_err());
    }

    #[test]
    fn heads_say_how_bodies_are_framed() {
        for (text, expected) in [
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5", (200, false, Framing::CHUNKED)),
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\nContent-Encoding: gzip\r\n\r\n", (200, true, Framing::Length(5))),
            ("HTTP/1.0 404 Not Found\r\na: b\r\n\r\n", (404, false, Framing::UntilClose)),
            ("HTTP/1.1 204 No Content\r\n\r\n", (204, false, Framing::NONE)),
        ] {
            let (head, framing, length) = head(text.as_bytes()).unwrap().unwrap();
            assert_eq!((head.status, head.gzip, framing), expected, "{text:?}");
            assert!(text[..length].ends_with("\r\n\r\n"));
        }
        assert_eq!(head(b"HTTP/1.1 200 OK\r\n"), Ok(None));
        for text in ["SSH-2.0\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"]
        {
            assert!(head(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(head(&vec![b'a'; HEAD_BYTES_MAX]).is_err());
    }
}
