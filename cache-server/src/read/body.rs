//! Response bodies: slices over shared bytes, pulled when the socket drains.
//!
//! INVARIANT: no data is queued for a client. A body makes its next batch when polled, and a batch is at most `BATCH`
//! plus one event, or one group of objects of a compressed response.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body::{Frame, SizeHint};
use tokio::time::Instant;
use watch_cache::Budget;

pub use cache_server_wire::body::BodyError;
pub use watch_cache::Slices;

use super::{list::ListBody, watch::Watch};
use crate::{
    access::{guard::ResponseGuard, lease::WatchLease},
    limits,
    metrics::RequestMeasure,
    term::WatchTerm,
    traces::RequestSpan,
    upstream::forward::{BrokenAnswer, ForwardedBody, UpstreamTunnel},
};

/// Limit of one batch handed to the socket. An event can add four slices, and chunked encoding two, so that a batch
/// still fits into one vectored write.
pub(crate) const BATCH: Budget = Budget { slices: limits::SLICES_MAX - 8, bytes: limits::BATCH_BYTES };

/// The response type of every handler.
pub(crate) type Response = http::Response<Body>;

/// A response body, and what is held until it ends.
pub struct Body {
    kind: BodyKind,
    /// `None` while nothing is held.
    guard: Option<Box<ResponseGuard>>,
}

type BodyFrame = Result<Frame<Slices>, BodyError>;

enum BodyKind {
    /// A complete body with a known length.
    Full(Slices),
    /// The last bytes of a stream, without a declared length.
    Last(Slices),
    /// A LIST, item by item.
    List(Box<MeasuredBody<ListBody>>),
    /// A watch.
    Watch(Box<Watch>),
    /// The answer of an upstream server.
    Forwarded(Box<MeasuredBody<ForwardedBody>>),
}

/// A body that is sent over some time, and the measurement of its request, which ends with it.
struct MeasuredBody<B> {
    body: B,
    measure: Option<RequestMeasure>,
}

impl<B> MeasuredBody<B> {
    fn boxed(body: B) -> Box<Self> {
        Box::new(Self { body, measure: None })
    }

    /// Counts the bytes of a frame.
    fn counted(&mut self, polled: Poll<Option<BodyFrame>>) -> Poll<Option<BodyFrame>> {
        if let (Poll::Ready(Some(Ok(frame))), Some(measure)) = (&polled, &mut self.measure) {
            measure.sent(frame.data_ref().map_or(0, Slices::bytes));
        }
        polled
    }
}

/// A connection that changes its protocol.
pub(crate) struct MeasuredTunnel {
    /// The upstream's side.
    pub(crate) tunnel: UpstreamTunnel,
    /// The measurement of its request, which lasts as long as the connection.
    pub(crate) measure: Option<RequestMeasure>,
    pub(crate) guard: Option<Box<ResponseGuard>>,
}

impl Body {
    const fn new(kind: BodyKind) -> Self {
        Self { kind, guard: None }
    }

    /// A body of known length.
    pub(crate) const fn full(slices: Slices) -> Self {
        Self::new(BodyKind::Full(slices))
    }

    /// A stream that ends after `slices`.
    pub(crate) const fn last(slices: Slices) -> Self {
        Self::new(BodyKind::Last(slices))
    }

    /// The answer of an upstream server, which keeps its own headers.
    pub(crate) fn forwarded(body: ForwardedBody) -> Self {
        Self::new(BodyKind::Forwarded(MeasuredBody::boxed(body)))
    }

    pub(super) fn list(listing: ListBody) -> Self {
        Self::new(BodyKind::List(MeasuredBody::boxed(listing)))
    }

    pub(super) fn watch(watch: Watch) -> Self {
        Self::new(BodyKind::Watch(Box::new(watch)))
    }

    /// Returns the term of a watch; `None` for other bodies, and for watches of an upstream server if rights are not
    /// checked. A sink that cannot poll the body because its client does not
    /// read must end the watch when the term is over.
    pub(crate) fn term(&self) -> Option<WatchTerm> {
        let lease = self.guard.as_ref().and_then(|guard| guard.lease());
        match &self.kind {
            BodyKind::Watch(watch) => Some(WatchTerm::new(watch.overdue(), lease.map(WatchLease::withdrawal))),
            BodyKind::Forwarded(_) => lease.map(|lease| WatchTerm::of_right(lease.withdrawal())),
            BodyKind::Full(_) | BodyKind::Last(_) | BodyKind::List(_) => None,
        }
    }

    /// Ends a watch at `at` at the latest: its caller's credentials expire then.
    pub(crate) fn end_by(&mut self, at: Instant) {
        if let BodyKind::Watch(watch) = &mut self.kind {
            watch.expire_at(at);
        }
    }

    /// Measures the request that it answers: a stream until it ends, any other body now. Watches measure themselves.
    pub(crate) fn measure(&mut self, mut measure: RequestMeasure) {
        match &mut self.kind {
            BodyKind::Full(slices) | BodyKind::Last(slices) => measure.sent(slices.bytes()),
            BodyKind::List(list) => list.measure = Some(measure),
            BodyKind::Forwarded(forwarded) => forwarded.measure = Some(measure),
            BodyKind::Watch(_) => {}
        }
    }

    /// Ends `span` with a watch; at once, if it is another body.
    pub(crate) fn trace_watch(&mut self, span: RequestSpan) {
        if let BodyKind::Watch(watch) = &mut self.kind {
            watch.trace(span);
        }
    }

    /// The guard that is held until the body ends.
    pub(crate) fn guard(&mut self) -> &mut ResponseGuard {
        self.guard.get_or_insert_default()
    }

    /// Removes the bytes of a body that is not to be sent.
    pub(crate) fn without_bytes(mut self) -> Self {
        if let Some(guard) = &mut self.guard {
            guard.on_complete();
        }
        Self { kind: BodyKind::Full(Slices::new()), guard: self.guard.take() }
    }

    /// Returns a copy of a whole body of at most `bytes_max`; `None` for longer ones and for streams.
    pub(crate) fn short_text(&self, bytes_max: usize) -> Option<Vec<u8>> {
        match &self.kind {
            BodyKind::Full(slices) if slices.remaining() <= bytes_max => {
                let mut text = Vec::with_capacity(slices.remaining());
                slices.iter().for_each(|slice| text.extend_from_slice(slice));
                Some(text)
            }
            BodyKind::Full(_) | BodyKind::Last(_) | BodyKind::List(_) | BodyKind::Watch(_) | BodyKind::Forwarded(_) => {
                None
            }
        }
    }

    /// True if it is the answer of an upstream server.
    pub(crate) const fn is_forwarded(&self) -> bool {
        matches!(self.kind, BodyKind::Forwarded(_))
    }

    /// Returns a connection that changes its protocol; `None` for other bodies.
    pub(crate) fn into_tunnel(mut self) -> Option<MeasuredTunnel> {
        match std::mem::replace(&mut self.kind, BodyKind::Full(Slices::new())) {
            BodyKind::Forwarded(forwarded) => {
                let MeasuredBody { body, measure } = *forwarded;
                body.into_tunnel().map(|tunnel| MeasuredTunnel { tunnel, measure, guard: self.guard.take() })
            }
            BodyKind::Full(_) | BodyKind::Last(_) | BodyKind::List(_) | BodyKind::Watch(_) => None,
        }
    }

    /// True if it is an accepted watch.
    pub(crate) const fn is_watch(&self) -> bool {
        matches!(self.kind, BodyKind::Watch(_))
    }

    /// True if it is a watch whose initial state is not handed out yet.
    pub(crate) fn is_initial(&self) -> bool {
        matches!(&self.kind, BodyKind::Watch(watch) if watch.is_initial())
    }

    /// True if it answers a watch: with events, or with the one ERROR event.
    pub(crate) const fn has_events(&self) -> bool {
        matches!(self.kind, BodyKind::Watch(_) | BodyKind::Last(_))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::full(bytes.into())
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        // Reset without a further poll: its client does not read.
        if let (BodyKind::Watch(watch), Some(guard)) = (&mut self.kind, &self.guard)
            && guard.lease().is_some_and(|lease| lease.withdrawal().is_withdrawn())
        {
            watch.withdraw();
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.kind {
            BodyKind::Full(_) => "Body::Full",
            BodyKind::Last(_) => "Body::Last",
            BodyKind::List(_) => "Body::List",
            BodyKind::Watch(_) => "Body::Watch",
            BodyKind::Forwarded(_) => "Body::Forwarded",
        })
    }
}

impl http_body::Body for Body {
    type Data = Slices;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Self { kind, guard } = self.get_mut();
        if let Some(guard) = guard {
            return poll_guarded(kind, guard, cx);
        }
        kind.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.kind.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Full(slices) => SizeHint::with_exact(slices.remaining() as u64),
            BodyKind::Last(_) | BodyKind::List(_) | BodyKind::Watch(_) => SizeHint::default(),
            BodyKind::Forwarded(forwarded) => forwarded.body.size_hint(),
        }
    }
}

/// Polls a body whose end, withdrawal and progress something waits for.
fn poll_guarded(kind: &mut BodyKind, guard: &mut ResponseGuard, cx: &mut Context<'_>) -> Poll<Option<BodyFrame>> {
    if guard.poll_withdrawn(cx).is_ready() {
        match kind {
            BodyKind::Watch(watch) => watch.withdraw(),
            BodyKind::Forwarded(_) => return Poll::Ready(Some(Err(BodyError::Withdrawn))),
            BodyKind::Full(_) | BodyKind::Last(_) | BodyKind::List(_) => {}
        }
    } else if kind.needs_seats() {
        let seated = guard.poll_seats(cx);
        if let BodyKind::Watch(watch) = kind {
            match &seated {
                Poll::Pending => watch.waits_for_seats(),
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => watch.loses_seats(),
            }
        }
        if ready!(seated).is_err() {
            return Poll::Ready(Some(Err(BodyError::Cut)));
        }
    }
    let polled = kind.poll_frame(cx);
    // A watch without a frame may wait for something else than its own work.
    if polled.is_ready() || matches!(kind, BodyKind::Watch(_)) {
        guard.on_progress();
    }
    if matches!(polled, Poll::Ready(None)) || polled.is_ready() && kind.is_over() {
        guard.on_complete();
    }
    // Also without a frame: an initial state without objects has none.
    if let BodyKind::Watch(watch) = kind
        && !watch.is_initial()
    {
        guard.on_initial_done();
    }
    polled
}

impl BodyKind {
    /// True if the next part costs work: a list, or a watch that sends its initial state.
    fn needs_seats(&self) -> bool {
        match self {
            Self::Full(_) | Self::Last(_) | Self::Forwarded(_) => false,
            Self::List(list) => !list.body.is_over(),
            Self::Watch(watch) => watch.is_initial(),
        }
    }

    fn is_over(&self) -> bool {
        match self {
            Self::Full(slices) | Self::Last(slices) => slices.is_empty(),
            Self::List(list) => list.body.is_over(),
            Self::Watch(watch) => watch.is_over(),
            Self::Forwarded(forwarded) => http_body::Body::is_end_stream(&forwarded.body),
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyFrame>> {
        match self {
            Self::Full(slices) | Self::Last(slices) => {
                let slices = std::mem::take(slices);
                Poll::Ready((!slices.is_empty()).then(|| Ok(Frame::data(slices))))
            }
            Self::List(list) => {
                let polled = list.body.poll_frame(cx).map(|batch| batch.map(|batch| batch.map(Frame::data)));
                list.counted(polled)
            }
            Self::Watch(watch) => watch.poll_frame(cx).map(|batch| batch.map(|batch| batch.map(Frame::data))),
            Self::Forwarded(forwarded) => {
                let polled = http_body::Body::poll_frame(Pin::new(&mut forwarded.body), cx).map(|frame| {
                    frame.map(|frame| {
                        frame.map(|frame| frame.map_data(Slices::from)).map_err(|BrokenAnswer| BodyError::Upstream)
                    })
                });
                forwarded.counted(polled)
            }
        }
    }
}

/// A response with a JSON body.
pub(crate) fn json(code: StatusCode, body: Body) -> Response {
    typed(code, HeaderValue::from_static("application/json"), body)
}

/// A response with a plain text body.
pub(crate) fn text(code: StatusCode, body: Body) -> Response {
    typed(code, HeaderValue::from_static("text/plain; charset=utf-8"), body)
}

/// Returns true if a client has the document of this tag.
pub(crate) fn is_known(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    headers.get(header::IF_NONE_MATCH) == Some(etag)
}

/// Returns status and text for a client: 304 without a text if it has the document of this tag.
pub(crate) fn unless_known(headers: &HeaderMap, etag: &HeaderValue, text: Bytes) -> (StatusCode, Bytes) {
    if is_known(headers, etag) { (StatusCode::NOT_MODIFIED, Bytes::new()) } else { (StatusCode::OK, text) }
}

/// A response with a body of `content_type`.
pub(crate) fn typed(code: StatusCode, content_type: HeaderValue, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// Reports that the body is compressed.
pub(super) fn set_gzip(response: &mut Response) {
    response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// Reports the age of a state that was not confirmed for this response (RFC 9111, section 5.1).
pub(super) fn set_age(response: &mut Response, age: Option<Duration>) {
    if let Some(age) = age {
        response.headers_mut().insert(header::AGE, age.as_secs().into());
    }
}

/// Response for a path that is not served, as of Go's router.
pub(crate) fn page_not_found() -> Response {
    text(StatusCode::NOT_FOUND, Body::from("404 page not found\n".to_owned()))
}
