//! Parses the frames that a client sends. A watch has no client data, so only control frames matter; data is skipped.
//!
//! INVARIANT: at most one control frame is buffered, 125 bytes, and no data.
//!
//! Source: RFC 6455, sections 5.2 to 5.5.

use super::{
    Code,
    frames::{CLOSE, LENGTH_IN_EIGHT, LENGTH_IN_TWO, PING, PONG, SHORT_BYTES_MAX},
};
use crate::limits::WEBSOCKET_IGNORED_BYTES_MAX;

/// Longest header: two bytes, eight of length, four of mask.
const HEADER_BYTES_MAX: usize = 14;

/// A control frame that the server has to act on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ControlFrame {
    /// Answer with a pong that carries this payload.
    Ping(Vec<u8>),
    /// Close, and send this code back; `None` if the client gave none.
    Close(Option<Code>),
}

/// Position of the parser in a frame.
#[derive(Debug)]
enum FramePosition {
    /// In its header.
    Header,
    /// In the payload of a control frame.
    Control { kind: u8, mask: [u8; 4], left: usize },
    /// In the payload of a data frame.
    Data { left: u64 },
}

/// A parser for the frames of one connection, fed with pieces of any size.
#[derive(Debug)]
pub(super) struct FrameParser {
    state: FramePosition,
    header: [u8; HEADER_BYTES_MAX],
    /// Bytes of `header` that were read.
    header_len: usize,
    /// Payload of a control frame, unmasked.
    payload: Vec<u8>,
    /// Bytes of data frames that may still be skipped.
    ignores: u64,
}

impl FrameParser {
    pub(super) const fn new() -> Self {
        Self {
            state: FramePosition::Header,
            header: [0; HEADER_BYTES_MAX],
            header_len: 0,
            payload: Vec::new(),
            ignores: WEBSOCKET_IGNORED_BYTES_MAX,
        }
    }

    /// Consumes `bytes` up to the end of the next control frame. Returns `None` once they are used up.
    ///
    /// # Errors
    /// The code to close with, if the client violates the protocol or sends more data than is skipped. Must not be
    /// called after an error.
    pub(super) fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<ControlFrame>, Code> {
        loop {
            match self.state {
                FramePosition::Header => {
                    if !self.read_header(bytes)? {
                        return Ok(None);
                    }
                }
                FramePosition::Control { kind, mask, left } => {
                    let taken = take(bytes, left);
                    // The mask continues where the last piece of the payload ended.
                    let begun = self.payload.len();
                    self.payload.extend(taken.iter().zip(begun..).map(|(byte, at)| byte ^ mask[at % mask.len()]));
                    if taken.len() < left {
                        self.state = FramePosition::Control { kind, mask, left: left - taken.len() };
                        return Ok(None);
                    }
                    self.state = FramePosition::Header;
                    if let Some(message) = message(kind, std::mem::take(&mut self.payload))? {
                        return Ok(Some(message));
                    }
                }
                FramePosition::Data { left } => {
                    let taken = take(bytes, usize::try_from(left).unwrap_or(usize::MAX));
                    let left = left - taken.len() as u64;
                    self.state = if left == 0 { FramePosition::Header } else { FramePosition::Data { left } };
                    if left > 0 {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Continues to read a header; returns true once it is complete.
    fn read_header(&mut self, bytes: &mut &[u8]) -> Result<bool, Code> {
        loop {
            let due = self.header_due()?;
            if self.header_len == due {
                break;
            }
            let taken = take(bytes, due - self.header_len);
            if taken.is_empty() {
                return Ok(false);
            }
            self.header[self.header_len..][..taken.len()].copy_from_slice(taken);
            self.header_len += taken.len();
        }
        let header = &self.header[..std::mem::take(&mut self.header_len)];
        // Two bytes are before the length, and the four of the mask behind it.
        let (length, mask) = header[2..].split_at(header.len() - 6);
        let length = match *length {
            [] => u64::from(header[1] & 0x7f),
            _ => length.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
        };
        let kind = header[0] & 0x0f;
        self.state = if kind & 0x8 == 0 {
            // The header counts too: endless empty frames cost as much.
            let cost = length.saturating_add(header.len() as u64);
            self.ignores = self.ignores.checked_sub(cost).ok_or(Code::TOO_BIG)?;
            FramePosition::Data { left: length }
        } else {
            let mask = mask.try_into().expect("what is left of a header are four bytes");
            // `header_due` has refused longer ones.
            FramePosition::Control { kind, mask, left: usize::from(header[1] & 0x7f) }
        };
        Ok(true)
    }

    /// Returns the length of the header, as far as the bytes so far determine it.
    fn header_due(&self) -> Result<usize, Code> {
        let [first, second, ..] = self.header[..self.header_len] else { return Ok(2) };
        let (is_last, reserved, kind) = (first & 0x80 != 0, first & 0x70, first & 0x0f);
        let (is_masked, length) = (second & 0x80 != 0, second & 0x7f);
        let is_control = kind & 0x8 != 0;
        let is_known = matches!(kind, 0..=2 | CLOSE | PING | PONG);
        // Reserved bits belong to extensions, and none is negotiated.
        if !is_masked || !is_known || reserved != 0 {
            return Err(Code::PROTOCOL);
        }
        if is_control && (!is_last || usize::from(length) > SHORT_BYTES_MAX) {
            return Err(Code::PROTOCOL);
        }
        Ok(match length {
            LENGTH_IN_TWO => 8,
            LENGTH_IN_EIGHT => HEADER_BYTES_MAX,
            _ => 6,
        })
    }
}

/// Splits up to `count` bytes off the front.
fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count.min(bytes.len()));
    *bytes = rest;
    taken
}

/// Interprets a control frame; `None` for a pong, since the server sends no pings.
fn message(kind: u8, payload: Vec<u8>) -> Result<Option<ControlFrame>, Code> {
    match (kind, &payload[..]) {
        (PING, _) => Ok(Some(ControlFrame::Ping(payload))),
        (CLOSE, []) => Ok(Some(ControlFrame::Close(None))),
        (CLOSE, &[high, low, ..]) => match Code::sent(u16::from_be_bytes([high, low])) {
            Some(code) => Ok(Some(ControlFrame::Close(Some(code)))),
            None => Err(Code::PROTOCOL),
        },
        (CLOSE, [_]) => Err(Code::PROTOCOL),
        (_, _) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

    /// Returns a frame as a client sends it.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![first];
        match payload.len() {
            short @ 0..=125 => out.push(0x80 | u8::try_from(short).unwrap()),
            middle @ 126..=0xffff => {
                out.push(0x80 | 126);
                out.extend(u16::try_from(middle).unwrap().to_be_bytes());
            }
            long => {
                out.push(0x80 | 127);
                out.extend((long as u64).to_be_bytes());
            }
        }
        out.extend(MASK);
        out.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        out
    }

    fn read_all(incoming: &mut FrameParser, mut bytes: &[u8]) -> Result<Vec<ControlFrame>, Code> {
        let mut messages = Vec::new();
        while let Some(message) = incoming.read(&mut bytes)? {
            messages.push(message);
        }
        assert!(bytes.is_empty());
        Ok(messages)
    }

    /// Goal: frames are parsed alike however TCP splits them. Method: pieces of every width.
    #[test]
    fn control_frames_are_read_between_data_however_they_are_cut() {
        let sent = [
            frame(0x01, b"a message in"),
            frame(0x89, b"hello"),
            frame(0x80, &[b'x'; 300]),
            frame(0x8a, b"a pong that nobody asked for"),
            frame(0x82, b""),
            frame(0x89, b""),
            frame(0x88, b"\x03\xe9going away"),
        ]
        .concat();
        let expected = [
            ControlFrame::Ping(b"hello".to_vec()),
            ControlFrame::Ping(Vec::new()),
            ControlFrame::Close(Some(Code(1001))),
        ];
        for width in [1, 2, 3, 5, 7, 64, sent.len()] {
            let mut incoming = FrameParser::new();
            let pieces = sent.chunks(width).map(|piece| read_all(&mut incoming, piece).unwrap());
            assert_eq!(pieces.flatten().collect::<Vec<_>>(), expected, "pieces of {width}");
        }
    }

    #[test]
    fn whoever_breaks_the_protocol_is_told() {
        let unmasked = |frame: &[u8]| [&[frame[0], frame[1] & 0x7f], &frame[6..]].concat();
        for (name, sent) in [
            ("an unmasked ping", unmasked(&frame(0x89, b"x"))),
            ("unmasked text", unmasked(&frame(0x81, b"x"))),
            ("a reserved bit", frame(0xc1, b"x")),
            ("an unknown kind of data", frame(0x83, b"x")),
            ("an unknown kind of control", frame(0x8b, b"x")),
            ("a ping in parts", frame(0x09, b"x")),
            ("a close in parts", frame(0x08, b"\x03\xe8")),
            ("a ping of 126 bytes", frame(0x89, &[0; 126])),
            ("a code of one byte", frame(0x88, b"\x03")),
            ("a code that is never sent", frame(0x88, &1005_u16.to_be_bytes())),
            ("a code below all", frame(0x88, &999_u16.to_be_bytes())),
        ] {
            assert_eq!(read_all(&mut FrameParser::new(), &sent), Err(Code::PROTOCOL), "{name}");
        }
    }

    #[test]
    fn data_is_skipped_up_to_a_bound() {
        let large = vec![0; usize::try_from(WEBSOCKET_IGNORED_BYTES_MAX).unwrap() - 8];
        let mut incoming = FrameParser::new();
        assert_eq!(read_all(&mut incoming, &frame(0x82, &large)), Ok(Vec::new()));
        assert_eq!(read_all(&mut incoming, &frame(0x81, b"")), Err(Code::TOO_BIG));
        let mut incoming = FrameParser::new();
        let endless = [&[0x82, 0x80 | 127][..], &[0xff; 8], &MASK].concat();
        assert_eq!(read_all(&mut incoming, &endless), Err(Code::TOO_BIG));
        let (mut incoming, mut frames) = (FrameParser::new(), 0);
        while read_all(&mut incoming, &frame(0x81, b"")).is_ok() {
            frames += 1;
        }
        assert_eq!(frames, WEBSOCKET_IGNORED_BYTES_MAX / 6, "empty frames have an end");
    }
}
