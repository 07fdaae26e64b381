//! Gathers the frames of a connection into large vectored writes of shared slices.
//!
//! h2 writes and flushes each DATA frame by itself, and passes at most 16 slices of it on. Therefore the pages that h2
//! gets ([`DataPage`](super::paged::DataPage)) show it filler bytes. When h2 advances a page, the slices that the filler
//! stands for move into the [`Outbox`], and [`GatheredStream`] sends them in the place of the filler. h2 also writes each
//! page as one frame, which is split here ([`super::settings`]). It still decides about windows and the turns of streams.
//!
//! INVARIANT: h2 advances a page by exactly the bytes of it that it writes, in the order in which it writes them. A
//! frame without its slices ends the connection; filler is never sent. INVARIANT: frames wait here only while the
//! connection is being polled, or while the socket accepts no more bytes: at most [`GATHERED_BYTES`] and one page.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use watch_cache::Slices;

use super::{
    paged::FRAME_HEAD_BYTES,
    settings::{ACK, SETTINGS},
};
use crate::limits::SLICES_MAX;

/// Bytes of frames at which they are written. They are slices of shared bytes, as in [`crate::limits::BATCH_BYTES`].
const GATHERED_BYTES: usize = 64 << 10;

/// Bytes of the largest frame of a client that sends no limit.
const DEFAULT_FRAME_BYTES: usize = 16 << 10;

/// Slices of one write: those of a batch, and the heads of its frames.
const VECTORS_MAX: usize = SLICES_MAX + 16;

/// Parts of a page's frames as a rule: heads and payloads.
const PARTS_OF_PAGE: usize = 10;

/// Types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

/// Flags of the last DATA frame of a stream, and of the last frame of a head.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The pages of one connection on their way through h2. Clones share them.
#[derive(Clone, Debug)]
pub struct Outbox(Arc<OutboxState>);

#[derive(Debug)]
struct OutboxState {
    /// Bytes of the largest payload of a frame that the client accepts.
    frame_bytes: AtomicUsize,
    /// Bytes of pages that h2 has not written yet.
    unsent: AtomicUsize,
    payloads: Mutex<Payloads>,
}

/// Slices of the payloads that h2 has written, in this order, and [`GatheredStream`] has not sent.
#[derive(Debug, Default)]
struct Payloads {
    slices: VecDeque<Bytes>,
    bytes: usize,
}

impl Default for Outbox {
    fn default() -> Self {
        let (frame_bytes, unsent) = (AtomicUsize::new(DEFAULT_FRAME_BYTES), AtomicUsize::new(0));
        Self(Arc::new(OutboxState { frame_bytes, unsent, payloads: Mutex::default() }))
    }
}

impl Outbox {
    /// Returns the size of the largest frame that the client accepts.
    pub fn frame_bytes(&self) -> usize {
        self.0.frame_bytes.load(Ordering::Relaxed)
    }

    /// Sets the size of the largest frame that the client accepts.
    pub fn limit_frames(&self, bytes: usize) {
        self.0.frame_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes of pages that h2 has not written yet.
    pub fn unsent(&self) -> usize {
        self.0.unsent.load(Ordering::Relaxed)
    }

    /// Counts the bytes of a new page.
    pub fn add(&self, bytes: usize) {
        self.0.unsent.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Removes bytes of a page from the count.
    pub fn remove(&self, bytes: usize) {
        self.0.unsent.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Appends slices that h2 has written as filler.
    pub fn pass(&self, payload: Slices) {
        let mut payloads = self.0.payloads.lock();
        payloads.bytes += payload.bytes();
        payloads.slices.extend(payload);
    }

    /// Returns the number of slices that were passed.
    fn slices(&self) -> usize {
        self.0.payloads.lock().slices.len()
    }

    /// Moves the next `bytes` bytes that were passed into `wire`.
    ///
    /// # Errors
    /// There are fewer.
    fn take(&self, mut bytes: usize, wire: &mut Slices) -> io::Result<()> {
        let mut payloads = self.0.payloads.lock();
        payloads.bytes = payloads.bytes.checked_sub(bytes).ok_or_else(|| io::Error::other("a frame has no payload"))?;
        while bytes > 0
            && let Some(mut slice) = payloads.slices.pop_front()
        {
            if slice.len() > bytes {
                payloads.slices.push_front(slice.split_off(bytes));
            }
            bytes -= slice.len();
            wire.push(slice);
        }
        if payloads.bytes == 0 {
            // Frees the capacity.
            *payloads = Payloads::default();
        }
        Ok(())
    }
}

/// A stream to which h2 writes frames of filler. Clones share it: hyper owns one, the connection's task the other.
pub struct GatheredStream<S>(Arc<Mutex<FrameGatherer<S>>>);

impl<S> Clone for GatheredStream<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: AsyncWrite + Unpin> GatheredStream<S> {
    pub fn new(stream: S, outbox: Outbox) -> Self {
        let frames = FrameScan::default();
        let (wire, is_blocked, failed) = (Slices::new(), false, None);
        Self(Arc::new(Mutex::new(FrameGatherer { stream, outbox, frames, wire, is_blocked, failed })))
    }

    /// Polls `connection`, which writes to this stream, then sends the frames that it wrote. The next read returns
    /// an error of the stream; this function wakes the task for it.
    pub fn poll_turn<C: Future>(&self, connection: Pin<&mut C>, cx: &mut Context<'_>) -> Poll<C::Output> {
        // Locked after the poll only: h2 writes through a clone of this stream, which takes the lock.
        let polled = connection.poll(cx);
        let mut gatherer = self.0.lock();
        if let Poll::Ready(Err(error)) = gatherer.poll_send(cx) {
            gatherer.failed = Some(error);
            cx.waker().wake_by_ref();
        }
        polled
    }
}

struct FrameGatherer<S> {
    stream: S,
    outbox: Outbox,
    frames: FrameScan,
    /// Bytes to send.
    wire: Slices,
    /// True while the stream accepts no more bytes.
    is_blocked: bool,
    /// Error of the stream that h2 has not seen.
    failed: Option<io::Error>,
}

impl<S: AsyncWrite + Unpin> FrameGatherer<S> {
    /// Appends the frames that h2 wrote last to the bytes to send. Only after its write has returned does h2 advance
    /// their pages.
    fn settle(&mut self) -> io::Result<()> {
        if self.frames.parts.is_empty() {
            return Ok(());
        }
        if self.wire.is_empty() {
            self.wire.reserve(self.frames.parts.len() * 2 + self.outbox.slices());
        }
        for part in std::mem::take(&mut self.frames.parts) {
            match part {
                FramePart::Own(bytes) => self.wire.push(Bytes::from(bytes)),
                FramePart::Payload(count) => self.outbox.take(count, &mut self.wire)?,
            }
        }
        Ok(())
    }

    /// Sends all frames.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.settle()?;
        if self.wire.is_empty() && !self.is_blocked {
            return Poll::Ready(Ok(()));
        }
        // If the stream is not ready.
        self.is_blocked = true;
        while !self.wire.is_empty() {
            let mut vectors = [IoSlice::new(&[]); VECTORS_MAX];
            let count = self.wire.chunks_vectored(&mut vectors);
            let sent = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, &vectors[..count]))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.wire.advance(sent);
        }
        // Frees the capacity: most connections are idle most of the time.
        self.wire = Slices::new();
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.is_blocked = false;
        Poll::Ready(Ok(()))
    }

    /// Accepts all bytes, unless too many wait for the socket.
    fn poll_accept(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        // h2 advances the pages of one write before the next write, so their slices are in the outbox by now.
        self.settle()?;
        // A send that stays pending may have made room, too.
        if self.wire.bytes() >= GATHERED_BYTES
            && self.poll_send(cx)?.is_pending()
            && self.wire.bytes() >= GATHERED_BYTES
        {
            return Poll::Pending;
        }
        let frame_bytes = self.outbox.frame_bytes();
        for slice in slices {
            self.frames.accept(slice, frame_bytes);
        }
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }
}

/// Splits what h2 writes into payloads of DATA frames, which are filler, and everything else, and both into frames as
/// large as the client allows.
#[derive(Debug, Default)]
struct FrameScan {
    /// The part of a frame head that was written.
    head: [u8; FRAME_HEAD_BYTES],
    written: usize,
    /// Type of the current frame.
    kind: u8,
    flags: u8,
    /// Bytes of the current frame's payload that are still to be written.
    left: usize,
    /// Bytes of them that belong to the frame that is sent.
    left_of_sent: usize,
    /// True once the confirmation of [`super::settings`]' own frame was left out.
    is_confirmed: bool,
    /// Parts since the last [`FrameGatherer::settle`].
    parts: Vec<FramePart>,
}

#[derive(Debug, PartialEq, Eq)]
enum FramePart {
    /// Bytes of h2.
    Own(Vec<u8>),
    /// So many bytes of pages.
    Payload(usize),
}

impl FrameScan {
    /// Accepts bytes of frames, which are sent in frames of at most `frame_bytes`.
    fn accept(&mut self, mut rest: &[u8], frame_bytes: usize) {
        while !rest.is_empty() {
            if self.left > 0 {
                if self.left_of_sent == 0 {
                    self.send_head(frame_bytes);
                }
                let (payload, after) = rest.split_at(rest.len().min(self.left_of_sent));
                self.left -= payload.len();
                (self.left_of_sent, rest) = (self.left_of_sent - payload.len(), after);
                match self.parts.last_mut() {
                    Some(FramePart::Payload(count)) if self.kind == DATA => *count += payload.len(),
                    _ if self.kind == DATA => self.parts.push(FramePart::Payload(payload.len())),
                    _ => self.own(payload),
                }
                continue;
            }
            let (more, after) = rest.split_at(rest.len().min(FRAME_HEAD_BYTES - self.written));
            self.head[self.written..][..more.len()].copy_from_slice(more);
            (self.written, rest) = (self.written + more.len(), after);
            if self.written == FRAME_HEAD_BYTES {
                self.read_head(frame_bytes);
            }
        }
    }

    fn read_head(&mut self, frame_bytes: usize) {
        let [a, b, c, kind, flags, ..] = self.head;
        self.left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        (self.written, self.kind, self.flags, self.left_of_sent) = (0, kind, flags, 0);
        // h2 read the frame of `settings` before the client's first, so it confirms that one first.
        if !self.is_confirmed && kind == SETTINGS && flags & ACK != 0 {
            self.is_confirmed = true;
        } else if self.left == 0 {
            self.send_head(frame_bytes);
        }
    }

    /// Sends the head of the next frame of the current one. The last frame has the flag of the end.
    fn send_head(&mut self, frame_bytes: usize) {
        let length = self.left.min(frame_bytes);
        let end = if self.kind == DATA { END_STREAM } else { END_HEADERS };
        let flags = if length == self.left { self.flags } else { self.flags & !end };
        let [_, a, b, c] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
        let [.., w, x, y, z] = self.head;
        self.own(&[a, b, c, self.kind, flags, w, x, y, z]);
        self.left_of_sent = length;
        // The end of the stream is a flag of HEADERS, which CONTINUATION does not have.
        if self.kind == HEADERS {
            (self.kind, self.flags) = (CONTINUATION, self.flags & END_HEADERS);
        }
    }

    fn own(&mut self, bytes: &[u8]) {
        match self.parts.last_mut() {
            Some(FramePart::Own(own)) => own.extend_from_slice(bytes),
            _ => {
                if self.parts.is_empty() {
                    self.parts.reserve_exact(PARTS_OF_PAGE);
                }
                self.parts.push(FramePart::Own(bytes.to_vec()));
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GatheredStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut gatherer = self.0.lock();
        match gatherer.failed.take() {
            Some(error) => Poll::Ready(Err(error)),
            None => Pin::new(&mut gatherer.stream).poll_read(cx, into),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GatheredStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().poll_accept(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().poll_accept(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Leaves frames to the end of the turn, unless there are many or the socket is full. h2 flushes after each frame.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut gatherer = self.0.lock();
        gatherer.settle()?;
        if gatherer.wire.bytes() < GATHERED_BYTES && !gatherer.is_blocked {
            return Poll::Ready(Ok(()));
        }
        gatherer.poll_send(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut gatherer = self.0.lock();
        ready!(gatherer.poll_send(cx))?;
        Pin::new(&mut gatherer.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::poll_fn};

    use bytes::BytesMut;
    use http::{Request, Response};
    use http_body_util::{BodyExt as _, Empty};
    use hyper::{client, server, service::service_fn};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::io::duplex;

    use super::*;
    use crate::{
        body::BodyError,
        http2::{
            paged::{PagedBody, SHARED_PAGE_BYTES},
            settings::SettingsTap,
        },
        tap::TappedStream,
    };

    /// A stream of one batch, without a declared length.
    struct OneBatch(Slices);

    impl http_body::Body for OneBatch {
        type Data = Slices;
        type Error = BodyError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<Slices>, BodyError>>> {
            let batch = std::mem::take(&mut self.0);
            Poll::Ready((!batch.is_empty()).then(|| Ok(http_body::Frame::data(batch))))
        }

        fn is_end_stream(&self) -> bool {
            self.0.is_empty()
        }
    }

    /// Returns a body of many slices for each path, of lengths around those of frames and pages.
    fn slices(path: &str) -> Slices {
        let seed = path.len();
        let mut slices = Slices::new();
        for length in
            [1, 9, 255, 256, 300, SHARED_PAGE_BYTES - 1, SHARED_PAGE_BYTES + 1, GATHERED_BYTES + 7, 3, 100_000]
        {
            let bytes = (0..length).map(|at| (at * 31 + seed * 7 + length).to_le_bytes()[0]);
            slices.push(bytes.collect::<Vec<u8>>().into());
        }
        slices
    }

    /// Serves `slices` of each path on a stream that holds `room` bytes.
    async fn connect(room: usize, window: u32, frame: u32) -> client::conn::http2::SendRequest<Empty<Bytes>> {
        let (ours, theirs) = duplex(room);
        tokio::spawn(async move {
            let outbox = Outbox::default();
            let (gathered, in_tap) = (GatheredStream::new(ours, outbox.clone()), outbox.clone());
            let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                let body = PagedBody::new(OneBatch(slices(request.uri().path())), outbox.clone());
                async move { Ok::<_, Infallible>(Response::new(body)) }
            });
            let mut builder = server::conn::http2::Builder::new(TokioExecutor::new());
            builder.max_send_buf_size(SHARED_PAGE_BYTES);
            let stream = TappedStream { stream: gathered.clone(), tap: SettingsTap::new(in_tap) };
            let mut connection = Box::pin(builder.serve_connection(TokioIo::new(stream), service));
            let _ = poll_fn(|cx| gathered.poll_turn(connection.as_mut(), cx)).await;
        });
        let mut builder = client::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .max_frame_size(frame)
            .initial_stream_window_size(window)
            .initial_connection_window_size((window * 3).max(65_535));
        let (sender, connection) = builder.handshake(TokioIo::new(theirs)).await.expect("shakes hands");
        tokio::spawn(connection);
        sender
    }

    /// Goal: clients read the bytes of the pages, never filler, in whatever pieces frames and writes split them.
    /// Method: eight streams at once, through sockets and windows of several sizes, against an HTTP/2 client.
    #[tokio::test]
    async fn frames_have_the_bytes_of_their_pages() {
        for (room, window, frame) in [
            (64 << 10, 4 << 20, 1 << 14),
            (1 << 20, 65_535, 1 << 15),
            (500, 1_000, 1 << 20),
            (20_000, 300, 1 << 14),
            (50, 100_000, 20_000),
        ] {
            let sender = connect(room, window, frame).await;
            let reading = (0..8).map(|number| {
                let (mut sender, path) = (sender.clone(), format!("/{}", "x".repeat(number)));
                tokio::spawn(async move {
                    let request = Request::get(format!("http://localhost{path}")).body(Empty::new());
                    let answer = sender.send_request(request.expect("is valid")).await.expect("is answered");
                    let read = answer.into_body().collect().await.expect("is complete").to_bytes();
                    let mut expected = slices(&path);
                    assert!(read == expected.copy_to_bytes(expected.remaining()), "{path} room {room} window {window}");
                })
            });
            for reading in reading.collect::<Vec<_>>() {
                reading.await.expect("reads all");
            }
        }
    }

    /// Goal: the scan finds each frame wherever writes split it. Method: every split of three frames in two writes.
    #[test]
    fn heads_and_payloads_may_be_split_anywhere() {
        let frames = [b"\0\0\x02\x04\0\0\0\0\0ab".as_slice(), b"\0\0\x03\0\0\0\0\0\x01...", b"\0\0\0\0\x01\0\0\0\x01"];
        let whole = frames.concat();
        for at in 0..=whole.len() {
            let mut scan = FrameScan::default();
            scan.accept(&whole[..at], DEFAULT_FRAME_BYTES);
            scan.accept(&whole[at..], DEFAULT_FRAME_BYTES);
            let mut seen = BytesMut::new();
            for part in &scan.parts {
                match part {
                    FramePart::Own(bytes) => seen.extend_from_slice(bytes),
                    FramePart::Payload(count) => seen.extend_from_slice(&vec![b'.'; *count]),
                }
            }
            assert_eq!(seen, whole, "split at {at}");
            assert_eq!(scan.parts.iter().filter(|part| matches!(part, FramePart::Payload(3))).count(), 1);
        }
    }

    /// Goal: frames that h2 wrote for no limit keep their meaning in small ones. Method: a head and data of a stream, whose
    /// last frames have the flags.
    #[test]
    fn large_frames_are_split() {
        let frame =
            |kind, flags, length: u8| [&[0, 0, length, kind, flags, 0, 0, 0, 1], &vec![7; length.into()][..]].concat();
        for (whole, expected) in [
            (frame(DATA, END_STREAM, 9), vec![(DATA, 0, 4), (DATA, 0, 4), (DATA, END_STREAM, 1)]),
            (frame(DATA, 0, 8), vec![(DATA, 0, 4), (DATA, 0, 4)]),
            (frame(DATA, END_STREAM, 0), vec![(DATA, END_STREAM, 0)]),
            (frame(HEADERS, 5, 4), vec![(HEADERS, 5, 4)]),
            (frame(HEADERS, 5, 9), vec![(HEADERS, 1, 4), (CONTINUATION, 0, 4), (CONTINUATION, 4, 1)]),
            (frame(HEADERS, 1, 5), vec![(HEADERS, 1, 4), (CONTINUATION, 0, 1)]),
        ] {
            let mut scan = FrameScan::default();
            scan.accept(&whole, 4);
            let mut seen = Vec::new();
            for part in scan.parts {
                match part {
                    FramePart::Own(own) => seen.extend(own),
                    FramePart::Payload(count) => seen.extend(vec![7; count]),
                }
            }
            let expected: Vec<u8> =
                expected.into_iter().flat_map(|(kind, flags, length)| frame(kind, flags, length)).collect();
            assert_eq!(seen, expected);
        }
    }

    /// Goal: a frame whose slices are missing ends the connection instead of sending filler.
    #[tokio::test]
    async fn filler_is_never_sent() {
        let (ours, _theirs) = duplex(1_000);
        let gathered = GatheredStream::new(ours, Outbox::default());
        let mut writer = gathered.clone();
        let frame = [b"\0\0\x01\0\0\0\0\0\x01".as_slice(), &[0]].concat();
        tokio::io::AsyncWriteExt::write_all(&mut writer, &frame).await.expect("is accepted");
        let mut idle = std::pin::pin!(std::future::pending::<()>());
        poll_fn(|cx| {
            assert!(gathered.poll_turn(idle.as_mut(), cx).is_pending());
            Poll::Ready(())
        })
        .await;
        tokio::io::AsyncReadExt::read_u8(&mut writer).await.expect_err("the connection has failed");
    }
}
