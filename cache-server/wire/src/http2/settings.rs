//! Keeps the client's limit of frames from h2, which then passes a page in one frame; [`super::gather`] splits it.
//!
//! INVARIANT: h2 reads one SETTINGS frame more than the client sends, with the largest limit, and none of the client's
//! limits. Its confirmation is not sent. INVARIANT: no frame is larger than the client allows.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};

use super::{gather::Outbox, paged::FRAME_HEAD_BYTES, preface::PREFACE_BYTES};
use crate::tap::Tap;

/// Type of a SETTINGS frame.
pub const SETTINGS: u8 = 4;

/// Flag of a SETTINGS frame that confirms one of the other side.
pub const ACK: u8 = 1;

/// SETTINGS_MAX_FRAME_SIZE of 2^24 - 1 bytes.
const NO_LIMIT: &[u8] = b"\0\0\x06\x04\0\0\0\0\0\0\x05\0\xff\xff\xff";

/// Identifier of SETTINGS_MAX_FRAME_SIZE, and its second byte in h2's eyes: no setting, so that h2 ignores it.
const MAX_FRAME_SIZE: (u8, u8) = (0, 5);
const NO_SETTING: u8 = 0x7f;

/// Limits that the protocol allows.
const LIMITS: std::ops::RangeInclusive<usize> = 1 << 14..=(1 << 24) - 1;

/// Bytes of one setting: an identifier and a value.
const SETTING_BYTES: usize = 6;

/// Changes the client's settings on their way to h2.
pub struct SettingsTap {
    /// Bytes of the preface that are still to be read.
    preface: usize,
    /// True once h2 has read [`NO_LIMIT`].
    lifted: bool,
    /// The part of a frame head, or of a setting, that was read.
    part: [u8; FRAME_HEAD_BYTES],
    read: usize,
    /// Bytes of the current frame's payload that are still to be read.
    left: usize,
    is_settings: bool,
    outbox: Outbox,
}

impl SettingsTap {
    pub const fn new(outbox: Outbox) -> Self {
        let part = [0; FRAME_HEAD_BYTES];
        Self { preface: PREFACE_BYTES, lifted: false, part, read: 0, left: 0, is_settings: false, outbox }
    }

    /// Reads the client's limit in `bytes`, and hides it.
    ///
    /// # Errors
    /// A limit that the protocol does not allow.
    fn scan(&mut self, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.left > 0 && !self.is_settings {
                let skipped = self.left.min(bytes.len());
                (self.left, bytes) = (self.left - skipped, &mut bytes[skipped..]);
                continue;
            }
            let (byte, rest) = bytes.split_at_mut(1);
            self.part[self.read] = byte[0];
            self.read += 1;
            bytes = rest;
            if self.left == 0 {
                self.read_head();
            } else {
                self.left -= 1;
                let [high, low, value @ ..] = self.part;
                // h2 may have the first byte of the identifier already, from the read before.
                if self.read == 2 && (high, low) == MAX_FRAME_SIZE {
                    byte[0] = NO_SETTING;
                }
                // h2 refuses a payload that ends within a setting.
                if self.read == SETTING_BYTES || self.left == 0 {
                    if self.read == SETTING_BYTES && (high, low) == MAX_FRAME_SIZE {
                        self.limit(value)?;
                    }
                    self.read = 0;
                }
            }
        }
        Ok(())
    }

    fn read_head(&mut self) {
        if self.read == FRAME_HEAD_BYTES {
            let [a, b, c, kind, ..] = self.part;
            self.left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            (self.read, self.is_settings) = (0, kind == SETTINGS);
        }
    }

    fn limit(&self, value: [u8; FRAME_HEAD_BYTES - 2]) -> io::Result<()> {
        let [a, b, c, d, ..] = value;
        let limit = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if !LIMITS.contains(&limit) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a limit of frames that HTTP/2 does not allow"));
        }
        self.outbox.limit_frames(limit);
        Ok(())
    }
}

impl<S> Tap<S> for SettingsTap {
    fn poll_read(&mut self, stream: Pin<&mut S>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>>
    where
        S: AsyncRead,
    {
        // h2 reads the preface by itself, then asks for more bytes than this.
        if self.preface == 0 && !self.lifted && NO_LIMIT.len() <= into.remaining() {
            self.lifted = true;
            into.put_slice(NO_LIMIT);
            return Poll::Ready(Ok(()));
        }
        let before = into.filled().len();
        if self.preface > 0 {
            // No byte after the preface, so that the first frame is ours.
            ready!(Pin::new(&mut stream.take(self.preface as u64)).poll_read(cx, into))?;
            self.preface -= into.filled().len() - before;
            return Poll::Ready(Ok(()));
        }
        ready!(stream.poll_read(cx, into))?;
        self.scan(&mut into.filled_mut()[before..])?;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::tap::TappedStream;

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    /// Returns what h2 reads of `bytes` in pieces, up to the end or an error, and the client's limit.
    fn through(bytes: &[u8], piece: usize) -> (Result<Vec<u8>, io::ErrorKind>, usize) {
        let outbox = Outbox::default();
        let mut tapped = TappedStream { stream: bytes, tap: SettingsTap::new(outbox.clone()) };
        let (mut read, mut chunk) = (Vec::new(), vec![0; piece]);
        let read = loop {
            match tapped.read(&mut chunk).now_or_never().expect("is never pending") {
                Ok(0) => break Ok(read),
                Ok(count) => read.extend_from_slice(&chunk[..count]),
                Err(error) => break Err(error.kind()),
            }
        };
        (read, outbox.frame_bytes())
    }

    /// Goal: h2 sees no limit and every other byte, and the limit counts. Method: settings among other frames, in reads
    /// that split them anywhere.
    #[test]
    fn only_the_clients_limit_is_hidden() {
        let window = b"\0\x04\0\x05\0\x05";
        let (limit, hidden) = (b"\0\x05\0\x01\0\0", b"\0\x7f\0\x01\0\0");
        let ping = b"\0\0\x08\x06\0\0\0\0\0\0\x05\0\x05\0\x05\0\x05";
        let head = b"\0\0\x0c\x04\0\0\0\0\0";
        let sent = [PREFACE, head, window, limit, ping, b"\0\0\0\x04\x01\0\0\0\0", ping].concat();
        let expected = [PREFACE, NO_LIMIT, head, window, hidden, ping, b"\0\0\0\x04\x01\0\0\0\0", ping].concat();
        for piece in [15, 16, 17, 23, 31, 100, 1_000] {
            assert_eq!(through(&sent, piece), (Ok(expected.clone()), 1 << 16), "reads of {piece}");
        }
    }

    #[test]
    fn limits_beyond_the_protocols_end_the_connection() {
        for (limit, is_allowed) in
            [(0, false), ((1_u32 << 14) - 1, false), (1 << 14, true), ((1 << 24) - 1, true), (1 << 24, false)]
        {
            let sent = [PREFACE, b"\0\0\x06\x04\0\0\0\0\0\0\x05", &limit.to_be_bytes()].concat();
            assert_eq!(through(&sent, 1_000).0.is_ok(), is_allowed, "{limit}");
        }
    }
}
