//! The few frames of HTTP/2 that a client of watches needs. Does no I/O.
//!
//! Source: RFC 9113 sections 4 and 6; RFC 7541 sections 5 and 6, and appendices A and B.

/// The client's preface.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_BYTES: usize = 9;
/// Largest payload that a peer may send to a client that allows no more.
const FRAME_BYTES_MAX: usize = 16 << 10;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// The frame is the last of its stream; of SETTINGS and PING, an acknowledgement.
const END: u8 = 1;
const END_HEADERS: u8 = 4;

/// Settings of Go's client: no pushes, its window of a stream, and its limit of a head.
const GO_SETTINGS: [(u16, u32); 3] = [(2, 0), (4, 4 << 20), (6, 10 << 20)];
/// Window of a connection of Go's client.
const GO_WINDOW: u32 = 1 << 30;

/// Status codes of the static table, from index 8 on.
const STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];

/// A frame that concerns the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// Stream and bytes of a response, and true if they are its last.
    Data(u32, &'a [u8], bool),
    /// Begin of a response: its stream, its status if that is readable, and true if it has no body.
    Answer(u32, Option<u16>, bool),
    /// A stream was reset, with this code.
    Reset(u32, u32),
    /// Settings that must be acknowledged.
    Settings,
    /// A ping that must be acknowledged.
    Ping([u8; 8]),
    /// The connection ends with this code.
    GoAway(u32),
}

/// The bytes are not HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct MalformedFrame(&'static str);

/// Takes bytes apart into frames. Keeps no memory between whole frames.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    /// Begin of a frame that is not whole.
    partial: Vec<u8>,
}

impl FrameReader {
    /// Passes the frames that these bytes complete.
    pub(super) fn feed(&mut self, bytes: &[u8], mut take: impl FnMut(Frame<'_>)) -> Result<(), MalformedFrame> {
        let mut joined = std::mem::take(&mut self.partial);
        let mut rest = bytes;
        if !joined.is_empty() {
            joined.extend_from_slice(bytes);
            rest = &joined;
        }
        while let Some((head, after)) = rest.split_first_chunk::<HEAD_BYTES>() {
            let [a, b, c, kind, flags, stream @ ..] = *head;
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            if length > FRAME_BYTES_MAX {
                return Err(MalformedFrame("a frame that is too long"));
            }
            let Some((payload, after)) = after.split_at_checked(length) else { break };
            if let Some(frame) = frame(kind, flags, u32::from_be_bytes(stream), payload)? {
                take(frame);
            }
            rest = after;
        }
        self.partial = rest.to_vec();
        Ok(())
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<Option<Frame<'_>>, MalformedFrame> {
    let code = |at: usize| {
        let code = payload.get(at..).and_then(<[u8]>::first_chunk);
        code.map(|code| u32::from_be_bytes(*code)).ok_or(MalformedFrame("a frame that is too short"))
    };
    let ends = flags & END != 0;
    Ok(match kind {
        DATA => Some(Frame::Data(stream, payload, ends)),
        HEADERS => Some(Frame::Answer(stream, status(payload), ends)),
        RESET => Some(Frame::Reset(stream, code(0)?)),
        SETTINGS => (!ends).then_some(Frame::Settings),
        PING if !ends => Some(Frame::Ping(*payload.first_chunk().ok_or(MalformedFrame("a ping that is too short"))?)),
        GOAWAY => Some(Frame::GoAway(code(4)?)),
        _ => None,
    })
}

/// The status at the begin of a block of headers; `None` in forms that servers do not begin a block with.
fn status(mut block: &[u8]) -> Option<u16> {
    // Changes of the table's size, which the client does not have.
    while let [first, rest @ ..] = block
        && first & 0xe0 == 0x20
    {
        block = rest;
    }
    match block {
        [indexed @ 0x88..=0x8e, ..] => STATUSES.get(usize::from(indexed - 0x88)).copied(),
        [0x48 | 0x08 | 0x18, 0x03, digits, ..] if digits.is_ascii_digit() => {
            std::str::from_utf8(block.get(2..5)?).ok()?.parse().ok()
        }
        [0x48 | 0x08 | 0x18, length, text @ ..] if length & 0x80 != 0 => {
            digits(text.get(..usize::from(length & 0x7f))?)
        }
        _ => None,
    }
}

/// Three digits in Huffman's code: those below three have five bits, the others six.
fn digits(text: &[u8]) -> Option<u16> {
    let bits =
        text.iter().take(3).fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (4 - text.len().min(3)));
    let (mut bits, mut number) = (bits, 0);
    for _ in 0..3 {
        let (digit, used) = match bits >> 27 {
            low @ 0..=2 => (low, 5),
            _ => ((bits >> 26).checked_sub(0x19).filter(|digit| *digit < 7)? + 3, 6),
        };
        number = number * 10 + u16::try_from(digit).ok()?;
        bits <<= used;
    }
    Some(number)
}

fn put_head(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

/// Appends the begin of a connection, as Go's client writes it.
pub(super) fn put_preface(out: &mut Vec<u8>) {
    out.extend_from_slice(PREFACE);
    put_head(out, GO_SETTINGS.len() * 6, SETTINGS, 0, 0);
    for (name, value) in GO_SETTINGS {
        out.extend_from_slice(&name.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
    put_head(out, 4, WINDOW_UPDATE, 0, 0);
    out.extend_from_slice(&GO_WINDOW.to_be_bytes());
}

/// Appends the answer to settings.
pub(super) fn put_settings_answer(out: &mut Vec<u8>) {
    put_head(out, 0, SETTINGS, END, 0);
}

/// Appends the answer to a ping.
pub(super) fn put_pong(out: &mut Vec<u8>, ping: [u8; 8]) {
    put_head(out, ping.len(), PING, END, 0);
    out.extend_from_slice(&ping);
}

/// The fields of a client's requests, apart from their paths.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    pub(super) authority: &'a str,
    pub(super) user_agent: &'a str,
    pub(super) accept: &'a str,
    /// Value of `authorization`, if there is one.
    pub(super) authorization: Option<&'a str>,
}

impl Fields<'_> {
    /// The fields with the indexes of their names in the static table.
    fn all(&self) -> Vec<(u8, &str)> {
        let Self { authority, user_agent, accept, authorization } = self;
        let mut all = vec![(1, *authority), (58, user_agent), (19, accept), (16, "gzip")];
        all.extend(authorization.map(|value| (23, value)));
        all
    }

    /// Appends a GET. The first one of a connection puts all fields but the path into the server's table, and further ones
    /// refer to them, as those of Go's client do.
    pub(super) fn put_get(&self, out: &mut Vec<u8>, stream: u32, path: &str, is_first: bool) {
        // GET and https of the static table; the path without an entry in the server's.
        let mut block = vec![0x82, 0x87, 0x04];
        put_string(&mut block, path);
        let all = self.all();
        for (place, (name, value)) in all.iter().enumerate() {
            if is_first {
                block.push(0x40 | name);
                put_string(&mut block, value);
            } else {
                // The newest entry has index 62.
                block.push(0x80 | u8::try_from(62 + all.len() - 1 - place).unwrap_or(u8::MAX));
            }
        }
        put_head(out, block.len(), HEADERS, END | END_HEADERS, stream);
        out.extend_from_slice(&block);
    }
}

/// Appends a string as it is, with its length as a number whose first byte has seven bits.
fn put_string(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.len();
    if rest < 0x7f {
        out.push(u8::try_from(rest).unwrap_or(u8::MAX));
    } else {
        out.push(0x7f);
        rest -= 0x7f;
        while rest >= 0x80 {
            out.push(u8::try_from(rest & 0x7f).unwrap_or_default() | 0x80);
            rest >>= 7;
        }
        out.push(u8::try_from(rest).unwrap_or_default());
    }
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: frames do not depend on how their bytes arrive. Method: feed the same frames in pieces of every size.
    #[test]
    fn frames_are_taken_apart_at_every_byte() {
        let mut wire = Vec::new();
        put_head(&mut wire, 0, SETTINGS, 0, 0);
        put_settings_answer(&mut wire);
        put_head(&mut wire, 1, HEADERS, END_HEADERS, 1);
        wire.push(0x88);
        put_head(&mut wire, 5, DATA, 0, 1);
        wire.extend_from_slice(b"event");
        put_head(&mut wire, 8, PING, 0, 0);
        wire.extend_from_slice(b"12345678");
        put_pong(&mut wire, *b"12345678");
        put_head(&mut wire, 4, RESET, 0, 1);
        wire.extend_from_slice(&[0, 0, 0, 8]);
        put_head(&mut wire, 8, GOAWAY, 0, 0);
        wire.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 11]);
        for size in 1..=wire.len() {
            let (mut reader, mut found) = (FrameReader::default(), Vec::new());
            for piece in wire.chunks(size) {
                reader.feed(piece, |frame| found.push(format!("{frame:?}"))).unwrap();
            }
            let expected = [
                Frame::Settings,
                Frame::Answer(1, Some(200), false),
                Frame::Data(1, b"event", false),
                Frame::Ping(*b"12345678"),
                Frame::Reset(1, 8),
                Frame::GoAway(11),
            ];
            assert_eq!(found, expected.map(|frame| format!("{frame:?}")), "by {size}");
            assert_eq!(reader.partial.capacity(), 0);
        }
        assert!(FrameReader::default().feed(&[0xff; 9], |_| {}).is_err());
    }

    /// Goal: refused watches are counted by their status. Method: forms that encoders of HPACK use for `:status`.
    #[test]
    fn the_status_is_read_in_each_form() {
        for (block, expected) in [
            (&[0x88][..], Some(200)),
            (&[0x20, 0x8c, 0x61], Some(400)),
            (b"\x48\x03429", Some(429)),
            // 429 and 503 in Huffman's code: 011010 00010 011111, and 011011 00000 011001 with padding.
            (&[0x48, 0x83, 0b0110_1000, 0b0100_1111, 0b1111_1111], Some(429)),
            (&[0x08, 0x83, 0b0110_1100, 0b0000_1100, 0b1111_1111], Some(503)),
            (&[0xbe], None),
            (&[], None),
        ] {
            assert_eq!(status(block), expected, "{block:x?}");
        }
    }
}
