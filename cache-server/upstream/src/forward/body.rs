//! Bodies that pass through: pulled piece by piece, never collected.
//!
//! INVARIANT: at most [`UPSTREAM_UNSENT_BYTES_MAX`] of a body are on their way to a socket. More is read after the socket
//! took a piece, so a reader that stops also stops the writer. A reader that keeps its pieces waits for ever.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures::task::AtomicWaker;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, upgrade::Upgraded};
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use crate::limits::{UPSTREAM_PIECE_BYTES, UPSTREAM_UNSENT_BYTES_MAX};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A request body of any kind.
type AnyBody = UnsyncBoxBody<Bytes, BoxError>;

/// A request body that may be sent on another connection for as long as no connection has read any of it.
pub(super) struct RequestBody {
    /// Taken by the first poll of a connection.
    unread: Arc<Mutex<Option<AnyBody>>>,
    /// True once the caller has broken the body off.
    is_aborted: Arc<AtomicBool>,
    is_empty: bool,
    length: SizeHint,
}

impl RequestBody {
    pub(super) fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (is_empty, length) = (body.is_end_stream(), body.size_hint());
        let body = body.map_err(Into::into).boxed_unsync();
        Self { unread: Arc::new(Mutex::new(Some(body))), is_aborted: Arc::default(), is_empty, length }
    }

    pub(super) fn full(bytes: Bytes) -> Self {
        Self::new(Full::new(bytes))
    }

    /// True if the request has no body.
    pub(super) const fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// True if the caller has broken the body off, so that no request with it can succeed.
    pub(super) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::Relaxed)
    }

    /// The exact length, if the caller announced it.
    pub(super) fn length(&self) -> Option<u64> {
        self.length.exact()
    }

    /// The body as a connection sends it. It fails if an earlier connection has read of it.
    pub(super) fn outgoing(&self) -> OutgoingBody {
        let (unread, is_aborted, length) = (Arc::clone(&self.unread), Arc::clone(&self.is_aborted), self.length);
        OutgoingBody { unread, is_aborted, body: None, pieces: PieceFlow::default(), is_empty: self.is_empty, length }
    }
}

/// A request body on its way to the upstream.
pub(super) struct OutgoingBody {
    unread: Arc<Mutex<Option<AnyBody>>>,
    is_aborted: Arc<AtomicBool>,
    /// The body, from the first poll on.
    body: Option<AnyBody>,
    pieces: PieceFlow,
    is_empty: bool,
    /// Length before the first poll.
    length: SizeHint,
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if this.body.is_none() {
            this.body = this.unread.lock().take();
        }
        let Some(body) = &mut this.body else {
            return Poll::Ready(Some(Err("the body was sent on another connection".into())));
        };
        let piece = ready!(this.pieces.poll_next(Pin::new(body), cx));
        if matches!(piece, Some(Err(_))) {
            this.is_aborted.store(true, Ordering::Relaxed);
        }
        Poll::Ready(piece)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().map_or(self.is_empty, |body| self.pieces.is_end_stream(body))
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| self.length, |body| self.pieces.size_hint(body))
    }
}

/// A response of the upstream on its way to the caller.
pub struct ForwardedBody {
    kind: ForwardedKind,
    /// Held until the caller has all of it.
    permit: OwnedSemaphorePermit,
}

enum ForwardedKind {
    /// The body of an ordinary response.
    Stream { body: Incoming, pieces: PieceFlow },
    /// A document that is kept, and shared by all its callers.
    Whole(Bytes),
    /// The upstream's side of a connection that changes its protocol.
    Upgraded(Upgraded),
}

/// The upstream broke its answer off.
#[derive(Debug, thiserror::Error)]
#[error("the upstream broke off its answer")]
pub struct BrokenAnswer;

/// The upstream's side of a connection that has changed its protocol.
pub struct UpstreamTunnel {
    pub stream: Upgraded,
    /// Held as long as the tunnel.
    pub permit: OwnedSemaphorePermit,
}

impl fmt::Debug for UpstreamTunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamTunnel").finish_non_exhaustive()
    }
}

impl ForwardedBody {
    pub(super) fn stream(body: Incoming, permit: OwnedSemaphorePermit) -> Self {
        Self { kind: ForwardedKind::Stream { body, pieces: PieceFlow::default() }, permit }
    }

    /// A body of which `begun` was already read.
    pub(super) fn continued(begun: Bytes, body: Incoming, permit: OwnedSemaphorePermit) -> Self {
        let pieces = PieceFlow { rest: begun, ..PieceFlow::default() };
        Self { kind: ForwardedKind::Stream { body, pieces }, permit }
    }

    pub(super) const fn whole(body: Bytes, permit: OwnedSemaphorePermit) -> Self {
        Self { kind: ForwardedKind::Whole(body), permit }
    }

    pub(super) const fn upgraded(upgraded: Upgraded, permit: OwnedSemaphorePermit) -> Self {
        Self { kind: ForwardedKind::Upgraded(upgraded), permit }
    }

    /// Returns the upstream's side of a connection that changes its protocol; `None` for an ordinary response.
    pub fn into_tunnel(self) -> Option<UpstreamTunnel> {
        match self.kind {
            ForwardedKind::Stream { .. } | ForwardedKind::Whole(_) => None,
            ForwardedKind::Upgraded(stream) => Some(UpstreamTunnel { stream, permit: self.permit }),
        }
    }
}

impl Body for ForwardedBody {
    type Data = Bytes;
    type Error = BrokenAnswer;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenAnswer>>> {
        match &mut self.kind {
            ForwardedKind::Stream { body, pieces } => pieces.poll_next(Pin::new(body), cx).map_err(|error| {
                tracing::debug!(%error, "upstream answer broken");
                BrokenAnswer
            }),
            ForwardedKind::Whole(body) => {
                let body = std::mem::take(body);
                Poll::Ready((!body.is_empty()).then(|| Ok(Frame::data(body))))
            }
            ForwardedKind::Upgraded(_) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            ForwardedKind::Stream { body, pieces } => pieces.is_end_stream(body),
            ForwardedKind::Whole(body) => body.is_empty(),
            ForwardedKind::Upgraded(_) => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            ForwardedKind::Stream { body, pieces } => pieces.size_hint(body),
            ForwardedKind::Whole(body) => SizeHint::with_exact(body.len() as u64),
            ForwardedKind::Upgraded(_) => SizeHint::with_exact(0),
        }
    }
}

/// Cuts a body into pieces, and bounds those that were given to a socket and are not sent yet.
///
/// Pieces are copies: a piece of hyper's read buffer would keep the whole buffer in memory.
#[derive(Default)]
struct PieceFlow {
    /// Bytes of the body that are in no piece yet.
    rest: Bytes,
    unsent: Arc<UnsentBytes>,
}

#[derive(Default)]
struct UnsentBytes {
    count: AtomicUsize,
    /// Wakes the task that waits for room.
    waker: AtomicWaker,
}

impl PieceFlow {
    /// Reads the next piece of `body` once there is room. Drops trailers.
    fn poll_next<B>(
        &mut self,
        mut body: Pin<&mut B>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>>
    where
        B: Body<Data = Bytes>,
    {
        if !self.has_room() {
            self.unsent.waker.register(cx.waker());
            // A piece may have been sent before the waker was registered.
            if !self.has_room() {
                return Poll::Pending;
            }
        }
        while self.rest.is_empty() {
            match ready!(body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => self.rest = frame.into_data().unwrap_or_default(),
                other => return Poll::Ready(other),
            }
        }
        let bytes = self.rest.split_to(self.rest.len().min(UPSTREAM_PIECE_BYTES));
        self.unsent.count.fetch_add(bytes.len(), Ordering::AcqRel);
        let piece = UnsentPiece { bytes: bytes.as_ref().into(), unsent: Arc::clone(&self.unsent) };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(piece)))))
    }

    fn has_room(&self) -> bool {
        self.unsent.count.load(Ordering::Acquire) + UPSTREAM_PIECE_BYTES <= UPSTREAM_UNSENT_BYTES_MAX
    }

    fn is_end_stream(&self, body: &impl Body) -> bool {
        self.rest.is_empty() && body.is_end_stream()
    }

    fn size_hint(&self, body: &impl Body) -> SizeHint {
        let length = body.size_hint().exact();
        length.map_or_else(SizeHint::default, |length| SizeHint::with_exact(length + self.rest.len() as u64))
    }
}

/// A piece that counts as unsent until its last owner drops it.
struct UnsentPiece {
    bytes: Box<[u8]>,
    unsent: Arc<UnsentBytes>,
}

impl AsRef<[u8]> for UnsentPiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for UnsentPiece {
    fn drop(&mut self) {
        self.unsent.count.fetch_sub(self.bytes.len(), Ordering::AcqRel);
        self.unsent.waker.wake();
    }
}
