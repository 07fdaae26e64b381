//! Ends connections whose client sends frames that cost work and carry no request: SETTINGS, PING, PRIORITY,
//! RST_STREAM, WINDOW_UPDATE, GOAWAY and unknown ones. h2 bounds empty DATA, CONTINUATION and resets of streams that
//! are not accepted yet, but none of these.
//!
//! INVARIANT: a client whose frames stay within [`HTTP2_CONTROL_FRAMES_PER_SECOND`] is never ended for them. So is none
//! that sends one for every [`HTTP2_BYTES_PER_CONTROL_FRAME`] bytes it receives: a fast reader sends many
//! WINDOW_UPDATE. INVARIANT: the tap passes on each frame whole and unchanged or not at all, and ends the connection
//! between two frames. INVARIANT: it drops frames only of streams that begin after callers who proved nothing were
//! refused and no other request is left without an answer: h2 would hold memory for each until the connection ends.
//! Before that h2 needs them: a live request's trailers refer to their header fields, and its body shares a window with
//! theirs. Dropped frames are read all the same, because a close with unread bytes resets the connection, and the
//! client may lose the refusal. Each costs the allowance as much as one without a request. The last GOAWAY does not name
//! these streams, so clients may retry them.
//!
//! hyper has no call that ends a connection with an error of its choice. The tap therefore feeds it a header block that
//! never ends, which h2 answers with GOAWAY and `ENHANCE_YOUR_CALM`.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, ReadBuf},
    time::Instant,
};

use super::{preface::PREFACE_BYTES, streams::Streams};
use crate::{
    limits::{HTTP2_BYTES_PER_CONTROL_FRAME, HTTP2_CONTROL_FRAMES_BURST, HTTP2_CONTROL_FRAMES_PER_SECOND},
    tap::Tap,
};

/// Length of a frame head: three bytes of length, type, flags, and four bytes of stream.
const HEAD_BYTES: usize = 9;

/// Start of a request that is not complete, on the highest stream.
const UNFINISHED: [u8; HEAD_BYTES] = [0, 0, 0, 1, 0, 0x7f, 0xff, 0xff, 0xff];

/// An empty part of its header block.
const CONTINUED: [u8; HEAD_BYTES] = [0, 0, 0, 9, 0, 0x7f, 0xff, 0xff, 0xff];

/// Empty parts that are fed at most. h2 permits about five.
const CONTINUED_MAX: usize = 64;

/// Type of the frame that opens a stream.
const HEADERS: u8 = 1;

/// Longest payload that is dropped: SETTINGS_MAX_FRAME_SIZE of this server. h2 refuses longer ones.
const PAYLOAD_BYTES_MAX: usize = 1 << 14;

/// Bytes of a dropped payload that are read at once.
const DROPPED_BYTES: usize = 1 << 10;

/// Counts the client's frames, and ends the connection once there are too many. Reads as much as its streams allow.
pub struct FloodTap {
    streams: Streams,
    /// Bytes of the preface or of a payload until the next frame head.
    skip: usize,
    /// The part of a frame head that has arrived.
    head: [u8; HEAD_BYTES],
    arrived: usize,
    /// Highest stream that h2 has seen.
    highest: u32,
    allowance: FrameAllowance,
    stage: FloodStage,
}

/// Handling of the client's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FloodStage {
    /// Passes them on.
    Passing,
    /// Passes them on until the current frame ends.
    Exceeded,
    /// Passes on frames of streams that h2 has seen, and drops those of others. True within a dropped frame.
    Refusing(bool),
    /// Feeds this many frames in their place.
    Ending(usize),
}

impl FloodTap {
    pub fn new(streams: Streams) -> Self {
        Self {
            streams,
            skip: PREFACE_BYTES,
            head: [0; HEAD_BYTES],
            arrived: 0,
            highest: 0,
            allowance: FrameAllowance::new(),
            stage: FloodStage::Passing,
        }
    }

    /// Reads the frame heads in `bytes`. Returns the number of bytes that may be passed on: all of them, unless the
    /// client has sent too many frames.
    fn scan(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        loop {
            let skipped = self.skip.min(rest.len());
            (self.skip, rest) = (self.skip - skipped, &rest[skipped..]);
            if self.skip == 0 && self.arrived == 0 && self.stage == FloodStage::Exceeded {
                self.stage = FloodStage::Ending(0);
                return bytes.len() - rest.len();
            }
            if rest.is_empty() {
                return bytes.len();
            }
            let (more, after) = rest.split_at(rest.len().min(HEAD_BYTES - self.arrived));
            self.head[self.arrived..][..more.len()].copy_from_slice(more);
            (self.arrived, rest) = (self.arrived + more.len(), after);
            if self.arrived == HEAD_BYTES {
                let (kind, flags, stream) = self.read_head();
                if kind == HEADERS {
                    self.highest = self.highest.max(stream);
                }
                if !self.allowance.take(weight(kind, flags)) {
                    self.stage = FloodStage::Exceeded;
                }
            }
        }
    }

    /// Begins the frame whose head has arrived. Returns its type, flags and stream.
    fn read_head(&mut self) -> (u8, u8, u32) {
        let [a, b, c, kind, flags, stream @ ..] = self.head;
        (self.arrived, self.skip) = (0, usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c));
        (kind, flags, u32::from_be_bytes(stream) & (u32::MAX >> 1))
    }

    /// Reads until there are bytes for h2.
    fn poll_refusing<S: AsyncRead>(
        &mut self,
        mut stream: Pin<&mut S>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.streams.readable(0) == 0 {
                return Poll::Pending;
            }
            if self.skip > 0 && self.stage == FloodStage::Refusing(false) {
                let before = into.filled().len();
                ready!(Pin::new(&mut stream.take(self.skip as u64)).poll_read(cx, into))?;
                self.skip -= into.filled().len() - before;
                return Poll::Ready(Ok(()));
            }
            let mut dropped = [0; DROPPED_BYTES];
            let mut piece = ReadBuf::new(match self.skip {
                0 => &mut self.head[self.arrived..],
                skip => &mut dropped[..skip.min(DROPPED_BYTES)],
            });
            ready!(stream.as_mut().poll_read(cx, &mut piece))?;
            let read = piece.filled().len();
            if read == 0 {
                return Poll::Ready(Ok(()));
            }
            // Each read counts as a head, so that other connections have their turns.
            self.streams.note_read(HEAD_BYTES);
            if self.skip > 0 {
                self.skip -= read;
                continue;
            }
            self.arrived += read;
            if self.arrived == HEAD_BYTES
                && let Some(fed) = self.feed_head(into)
            {
                return Poll::Ready(fed);
            }
        }
    }

    /// Feeds the head that has arrived, unless its frame is dropped.
    fn feed_head(&mut self, into: &mut ReadBuf<'_>) -> Option<io::Result<()>> {
        let (kind, flags, stream) = self.read_head();
        let is_dropped = stream > self.highest && self.skip <= PAYLOAD_BYTES_MAX;
        self.stage = FloodStage::Refusing(is_dropped);
        // h2 bounds no frame that it does not see.
        if !self.allowance.take(weight(kind, flags).max(u32::from(is_dropped))) {
            return Some(self.end(0, into));
        }
        if is_dropped {
            return None;
        }
        if into.remaining() < HEAD_BYTES {
            return Some(Err(io::Error::other("no room for the head of a frame")));
        }
        into.put_slice(&self.head);
        Some(Ok(()))
    }

    /// Feeds frames that h2 refuses, one per read.
    fn end(&mut self, fed: usize, into: &mut ReadBuf<'_>) -> io::Result<()> {
        if fed > CONTINUED_MAX || into.remaining() < HEAD_BYTES {
            return Err(io::Error::other("too many control frames"));
        }
        into.put_slice(if fed == 0 { &UNFINISHED } else { &CONTINUED });
        self.stage = FloodStage::Ending(fed + 1);
        Ok(())
    }
}

impl<S> Tap<S> for FloodTap {
    fn poll_read(&mut self, stream: Pin<&mut S>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>>
    where
        S: AsyncRead,
    {
        if let FloodStage::Ending(fed) = self.stage {
            return Poll::Ready(self.end(fed, into));
        }
        let (before, rest) = (into.filled().len(), self.skip);
        let is_refused = self.stage == FloodStage::Passing && self.streams.takes_no_more();
        if is_refused && rest == 0 && self.arrived == 0 {
            self.stage = FloodStage::Refusing(false);
        }
        if let FloodStage::Refusing(_) = self.stage {
            return self.poll_refusing(stream, cx, into);
        }
        let readable = match self.streams.readable(rest) {
            // h2 has the beginning of this head or payload.
            readable if is_refused => readable.min(if rest > 0 { rest } else { HEAD_BYTES - self.arrived }),
            readable => readable,
        };
        if readable == 0 {
            // The next turn wakes the task.
            return Poll::Pending;
        }
        ready!(Pin::new(&mut stream.take(readable as u64)).poll_read(cx, into))?;
        self.streams.note_read((into.filled().len() - before).saturating_sub(rest));
        let passed = self.scan(&into.filled()[before..]);
        into.set_filled(before + passed);
        match self.stage {
            // An empty read would be the end of the stream.
            FloodStage::Ending(fed) if passed == 0 => Poll::Ready(self.end(fed, into)),
            FloodStage::Passing | FloodStage::Exceeded | FloodStage::Refusing(_) | FloodStage::Ending(_) => {
                Poll::Ready(Ok(()))
            }
        }
    }

    fn written(&mut self, _: &S, _: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.allowance.sent = self.allowance.sent.saturating_add(*bytes);
        }
        written
    }
}

/// Cost of a frame in frames of the allowance.
const fn weight(kind: u8, flags: u8) -> u32 {
    const ACK: u8 = 1;
    match kind {
        // DATA, HEADERS, PUSH_PROMISE and CONTINUATION: part of a request, or bounded by h2.
        0 | 1 | 5 | 9 => 0,
        // RST_STREAM: the work of the request was in vain.
        3 => 4,
        // SETTINGS: each may change the window of every stream, and is acknowledged.
        4 if flags & ACK == 0 => 100,
        _ => 1,
    }
}

/// Frames that the client may still send.
struct FrameAllowance {
    left: u32,
    /// Time at which `left` last grew.
    since: Instant,
    /// Bytes that were sent to the client since then.
    sent: usize,
}

impl FrameAllowance {
    fn new() -> Self {
        Self { left: HTTP2_CONTROL_FRAMES_BURST, since: Instant::now(), sent: 0 }
    }

    /// Takes frames off the allowance. Returns false if it does not suffice.
    fn take(&mut self, frames: u32) -> bool {
        if self.left < frames {
            // Grows only now: reading the clock for each frame would cost more than the frame.
            let now = Instant::now();
            let earned = (now - self.since).as_millis() * u128::from(HTTP2_CONTROL_FRAMES_PER_SECOND) / 1_000
                + (self.sent / HTTP2_BYTES_PER_CONTROL_FRAME) as u128;
            let earned = u32::try_from(earned).unwrap_or(u32::MAX);
            if earned == 0 {
                return false;
            }
            self.left = self.left.saturating_add(earned).min(HTTP2_CONTROL_FRAMES_BURST);
            (self.since, self.sent) = (now, self.sent % HTTP2_BYTES_PER_CONTROL_FRAME);
        }
        self.left = match self.left.checked_sub(frames) {
            Some(left) => left,
            None => return false,
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use futures::FutureExt as _;
    use tokio::time::advance;

    use super::*;
    use crate::{
        shares::{StreamCaller, StreamOwner, UnreadStreams},
        tap::TappedStream,
    };

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const PING: u8 = 6;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, 0, 0, 0, 0, 0], payload].concat()
    }

    /// A frame of stream 3.
    fn further(kind: u8, payload: &[u8]) -> Vec<u8> {
        let [.., a, b, c] = payload.len().to_be_bytes();
        [&[a, b, c, kind, 0, 0, 0, 0, 3], payload].concat()
    }

    /// Streams of a connection whose caller was refused.
    fn refused() -> Streams {
        let owner = StreamOwner::new(Arc::default(), StreamCaller::Refused);
        let streams = Streams::new(UnreadStreams::new(&owner));
        streams.note_owner(&owner);
        streams
    }

    /// Returns what arrives behind the tap, read in pieces of `piece` bytes, up to the first error or the end.
    fn through(bytes: &[u8], piece: usize) -> Vec<u8> {
        through_of(&Streams::of_tests(), bytes, piece)
    }

    fn through_of(streams: &Streams, bytes: &[u8], piece: usize) -> Vec<u8> {
        let mut tapped = TappedStream { stream: bytes, tap: FloodTap::new(streams.clone()) };
        let (mut read, mut chunk) = (Vec::new(), vec![0; piece]);
        loop {
            // The dropped frames of one poll may fill a turn, and the tap itself wakes no task.
            streams.start_waiting();
            match tapped.read(&mut chunk).now_or_never() {
                Some(Ok(count @ 1..)) => read.extend_from_slice(&chunk[..count]),
                Some(_) => return read,
                None => assert!(streams.readable(0) == 0, "is pending only until the next turn"),
            }
        }
    }

    /// Goal: bytes pass unchanged until the allowance is used up, and the end comes between two frames. Method: more
    /// pings than allowed, in reads of several sizes, which split heads and payloads.
    #[tokio::test(start_paused = true)]
    async fn a_flood_ends_between_two_frames() {
        let allowed = HTTP2_CONTROL_FRAMES_BURST as usize;
        let sent = [PREFACE, &frame(PING, &[7; 8]).repeat(allowed + 10)].concat();
        let passed = PREFACE_BYTES + (allowed + 1) * frame(PING, &[7; 8]).len();
        for piece in [HEAD_BYTES, 16, 17, 1_000, 1 << 20] {
            let read = through(&sent, piece);
            assert!(read[..passed] == sent[..passed], "reads of {piece}");
            assert_eq!(read[passed..][..HEAD_BYTES], UNFINISHED, "reads of {piece}");
            assert_eq!(read[passed + HEAD_BYTES..], CONTINUED.repeat(CONTINUED_MAX), "reads of {piece}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_and_their_bodies_cost_no_allowance() {
        let all = [frame(1, &[0; 40]), frame(0, &[0; 200]), frame(9, &[])].concat().repeat(20_000);
        let sent = [PREFACE, &all].concat();
        assert!(through(&sent, 1 << 16) == sent);
    }

    /// Goal: behind a refusal frames of further streams are dropped once no other request is without an answer, and not
    /// before. Method: a request that stays unanswered, or does not.
    #[tokio::test(start_paused = true)]
    async fn further_streams_pass_while_a_request_is_unanswered() {
        let (streams, ping) = (refused(), frame(PING, &[7; 8]));
        let sent = [PREFACE, &further(HEADERS, &[7; 40]), &further(0, &[7; 200]), &ping].concat();
        let unanswered = streams.unanswered();
        assert!(through_of(&streams, &sent, 1_000) == sent);
        drop(unanswered);
        assert!(through_of(&streams, &sent, 1_000) == [PREFACE, &ping].concat());
    }

    /// Goal: dropped frames are within the allowance too, and none is longer than the protocol allows. Method: more
    /// frames of a request than control frames are allowed; one too long, which h2 gets to refuse it.
    #[tokio::test(start_paused = true)]
    async fn dropped_frames_have_bounds() {
        let allowed = HTTP2_CONTROL_FRAMES_BURST as usize;
        for (count, is_ended) in [(allowed, false), (allowed + 1, true)] {
            let read = through_of(&refused(), &[PREFACE, &further(0, &[]).repeat(count)].concat(), 1_000);
            assert_eq!(read[PREFACE_BYTES..].starts_with(&UNFINISHED), is_ended, "{count}");
        }
        for (length, is_passed) in [(PAYLOAD_BYTES_MAX, false), (PAYLOAD_BYTES_MAX + 1, true)] {
            let sent = [PREFACE, &further(0, &vec![7; length])].concat();
            let read = through_of(&refused(), &sent, 1_000);
            assert!(read == sent[..if is_passed { sent.len() } else { PREFACE_BYTES }], "{length}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_allowance_grows_with_time_and_with_what_the_client_receives() {
        let mut allowance = FrameAllowance::new();
        assert!(allowance.take(HTTP2_CONTROL_FRAMES_BURST));
        assert!(!allowance.take(1));
        advance(Duration::from_millis(100)).await;
        assert!(allowance.take(HTTP2_CONTROL_FRAMES_PER_SECOND / 10));
        assert!(!allowance.take(1));
        allowance.sent += 3 * HTTP2_BYTES_PER_CONTROL_FRAME;
        assert!(allowance.take(2) && allowance.take(1) && !allowance.take(1));
        advance(Duration::from_secs(3_600)).await;
        assert!(allowance.take(HTTP2_CONTROL_FRAMES_BURST) && !allowance.take(1), "it grows up to the burst");
    }
}
