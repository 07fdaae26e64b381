//! HTTP/1 connections: hyper answers requests, and hands over those that turn out to be watches, including WebSockets,
//! and those whose connection becomes a tunnel to the upstream.
//!
//! INVARIANT: no byte that was read is lost and no response is left unsent when a connection changes hands, in either
//! direction. INVARIANT: a response that was cut ends in a reset, never like a complete one.
//!
//! The service puts the response of a watch into a slot and stays pending, so hyper has no bytes to write for it. Once
//! all earlier responses have left hyper's buffer, the connection is taken apart and its buffers are freed.

use std::{
    convert::Infallible,
    future::{pending, poll_fn, ready},
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use futures::FutureExt as _;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, server::conn::http1, service::Service};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf},
    sync::watch,
    time::Instant,
};
use watch_cache::Slices;

use crate::{
    body::BodyError,
    handler::{ConnectionContext, Handler},
    limits,
    own_wakes::OwnWakes,
    phase::{ConnectionPhase, ServerPhase, has_left},
    socket::Socket,
    takeover::Takeover,
    tap::{Tap, TappedStream},
    term::WatchTerm,
    tunnel,
    watch_sink::WatchEnd,
    websocket,
};

/// Lets hyper serve `stream`, after the bytes `buffered` that were read before, until it ends or the first watch is
/// accepted. While the server is leaving, the next answer is its last; once it has left, it accepts no more requests.
pub fn requests<S: Socket, H: Handler>(
    stream: S,
    buffered: Bytes,
    context: ConnectionContext<H>,
    closed: watch::Receiver<ServerPhase>,
) -> ConnectionPhase {
    let (slot, crowd) = (Arc::new(HandoverState::new()), Arc::clone(&context.crowd));
    // hyper reads as much as it finds, up to the longest head.
    let piece = context.shared.settings.forwards_bodies.then_some(limits::UPSTREAM_READ_BYTES);
    let service = WatchHandover { context, slot: Arc::clone(&slot), closed: closed.clone() };
    let stream = TokioIo::new(TappedStream { stream, tap: HandoverTap { buffered, piece, slot: Arc::clone(&slot) } });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits::HEAD_TIMEOUT).max_buf_size(limits::HEAD_BYTES_MAX);
    // Stands still while the clock is behind a time that it had. The handler sets the header; the 400 and 431 of hyper itself
    // go without, as those of Go.
    builder.auto_date_header(false);
    let mut connection = builder.serve_connection(stream, service);
    let own_wakes = OwnWakes::new();
    ConnectionPhase::new(async move {
        let ended = tokio::select! {
            biased;
            ended = poll_fn(|cx| own_wakes.poll(cx, |cx| poll_serve(&mut connection, &slot, cx))) => Some(ended),
            () = left(closed.clone()) => None,
            () = crowd.outlasts_idle(|| slot.idle_since()) => return Ok(None),
            () = slot.overdue() => return Ok(None),
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                Pin::new(&mut connection).graceful_shutdown();
                poll_fn(|cx| own_wakes.poll(cx, |cx| poll_serve(&mut connection, &slot, cx))).await
            }
        };
        let parts = connection.into_parts();
        let TappedStream { mut stream, tap: HandoverTap { buffered, .. } } = parts.io.into_inner();
        let context = parts.service.context;
        match ended {
            Ok(Some(AcceptedWatch { response, last })) => {
                // The head tells the client, which else would send its next request to a server that is leaving.
                let last = last || is_closing(&closed);
                // hyper's buffer was filled from `buffered`, so its bytes come first.
                let read = joined(parts.read_buf, buffered);
                let term = H::term(response.body());
                if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                    return Ok(Some(if H::is_tunnel(response.body()) {
                        tunnel::copying::<_, H>(stream, read, response)
                    } else {
                        websocket::watching(stream, &read, response, term)
                    }));
                }
                stream.limit_unconfirmed(true);
                Ok(Some(watching(Takeover::new(stream, read, response, last, term), context, closed)))
            }
            Ok(None) => Ok(None),
            Err(error) => {
                // The body of a response failed: reset, so that the response does not look complete.
                if error.is_user() {
                    stream.reset_on_close();
                }
                Err(error)
            }
        }
    })
}

/// Sends a watch. Pipelined requests after it are served once it has ended cleanly.
fn watching<S: Socket, H: Handler>(
    mut takeover: Takeover<S, H::Body>,
    context: ConnectionContext<H>,
    closed: watch::Receiver<ServerPhase>,
) -> ConnectionPhase {
    ConnectionPhase::new(async move {
        match takeover.ended().await {
            WatchEnd::Clean if !takeover.is_last() && !is_closing(&closed) => {
                let (mut stream, read) = takeover.into_parts();
                stream.limit_unconfirmed(false);
                Ok(Some(requests(stream, read, context, closed)))
            }
            WatchEnd::Clean => {
                let _ = takeover.stream.shutdown().await;
                Ok(None)
            }
            WatchEnd::Cut => {
                takeover.stream.reset_on_close();
                Ok(None)
            }
            WatchEnd::Gone => Ok(None),
        }
    })
}

async fn left(mut phase: watch::Receiver<ServerPhase>) {
    has_left(&mut phase).await;
}

/// Returns true if the server shuts down, or another one replaces it.
fn is_closing(phase: &watch::Receiver<ServerPhase>) -> bool {
    *phase.borrow() != ServerPhase::Serving || phase.has_changed().is_err()
}

/// Concatenates bytes in the order in which they were received.
fn joined(first: Bytes, second: Bytes) -> Bytes {
    match (first.is_empty(), second.is_empty()) {
        (true, _) => second,
        (_, true) => first,
        (false, false) => [first, second].concat().into(),
    }
}

/// hyper's part of a connection.
type HyperConnection<S, H> =
    http1::Connection<TokioIo<TappedStream<S, HandoverTap<<H as Handler>::Body>>>, WatchHandover<H>>;

/// Serves requests until the connection is closed, or a watch is accepted and all earlier responses were sent.
fn poll_serve<S: Socket, H: Handler>(
    connection: &mut HyperConnection<S, H>,
    slot: &HandoverState<H::Body>,
    cx: &mut Context<'_>,
) -> Poll<hyper::Result<Option<AcceptedWatch<H::Body>>>> {
    // `poll_without_shutdown` would be ready before the last bytes of a response are written.
    if let Poll::Ready(ended) = Pin::new(&mut *connection).poll(cx) {
        return Poll::Ready(ended.map(|()| None));
    }
    if slot.watch.lock().is_none() {
        return Poll::Pending;
    }
    // hyper flushes the stream whenever it is polled and has no more bytes to write, so a flush proves that its buffer
    // is empty.
    slot.flushed.store(false, Ordering::Relaxed);
    // `poll_without_shutdown` would be ready before the last bytes of a response are written.
    if let Poll::Ready(ended) = Pin::new(&mut *connection).poll(cx) {
        return Poll::Ready(ended.map(|()| None));
    }
    if slot.flushed.load(Ordering::Relaxed) { Poll::Ready(Ok(slot.watch.lock().take())) } else { Poll::Pending }
}

/// State shared between this file and the parts of a connection that hyper owns.
struct HandoverState<B> {
    /// The accepted watch.
    watch: Mutex<Option<AcceptedWatch<B>>>,
    /// True if hyper has written and flushed all its bytes.
    flushed: AtomicBool,
    /// True while the socket accepts no more bytes of a response.
    is_stuck: AtomicBool,
    /// Term of the response that begins; `None` within, if it has none. Taken by the task of the connection.
    term: Mutex<Option<Option<WatchTerm>>>,
    /// Time at which the last response was complete, or the connection began; `None` while a request is being
    /// answered.
    idle_since: Mutex<Option<Instant>>,
}

impl<B> HandoverState<B> {
    fn new() -> Self {
        let (flushed, is_stuck) = (AtomicBool::new(false), AtomicBool::new(false));
        let idle_since = Mutex::new(Some(Instant::now()));
        Self { watch: Mutex::default(), flushed, is_stuck, term: Mutex::default(), idle_since }
    }

    /// Resolves at the end of the term of a watch that hyper sends. The service sets the term while this task is polled,
    /// before it polls this future.
    async fn overdue(&self) {
        let mut current = None;
        poll_fn(|cx| {
            if let Some(term) = self.term.lock().take() {
                current = term.map(|term| Box::pin(term.over()));
            }
            current.as_mut().map_or(Poll::Pending, |over| over.as_mut().poll(cx))
        })
        .await;
    }

    /// Returns the start of the connection's idle time. Waiting for the rest of a request head counts as idle.
    fn idle_since(&self) -> Option<Instant> {
        self.idle_since.lock().filter(|_| !self.is_stuck.load(Ordering::Relaxed))
    }
}

/// Guard of a response in progress. Dropped with its body.
struct BusyGuard<B>(Arc<HandoverState<B>>);

impl<B> BusyGuard<B> {
    fn new(slot: &Arc<HandoverState<B>>) -> Self {
        *slot.idle_since.lock() = None;
        Self(Arc::clone(slot))
    }
}

impl<B> Drop for BusyGuard<B> {
    fn drop(&mut self) {
        *self.0.idle_since.lock() = Some(Instant::now());
    }
}

/// A body that marks its connection as busy.
struct BusyBody<B> {
    body: B,
    _working: BusyGuard<B>,
}

impl<B: Body<Data = Slices, Error = BodyError> + Unpin> Body for BusyBody<B> {
    type Data = Slices;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An accepted watch whose response has not begun.
struct AcceptedWatch<B> {
    response: Response<B>,
    /// True if the client asked to close the connection after it.
    last: bool,
}

/// Serves every request except watches, which are handed to `takeover`.
struct WatchHandover<H: Handler> {
    context: ConnectionContext<H>,
    slot: Arc<HandoverState<H::Body>>,
    closed: watch::Receiver<ServerPhase>,
}

impl<H: Handler> Service<Request<Incoming>> for WatchHandover<H> {
    type Response = Response<BusyBody<H::Body>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<BusyBody<H::Body>>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (plain, last) = (is_plain(&request), asks_to_close(request.headers()));
        let is_leaving = is_closing(&self.closed);
        let slot = Arc::clone(&self.slot);
        let working = BusyGuard::new(&slot);
        // An async block would have room for the answer twice: captured, and while it waits.
        Box::pin(self.context.answer(request).then(move |mut response| {
            let taken_over = match response.status() {
                // An accepted WebSocket watch, or an upgrade by the upstream. hyper would wait for an upgrade handler.
                StatusCode::SWITCHING_PROTOCOLS => true,
                _ => plain && H::is_watch(response.body()),
            };
            if taken_over {
                *slot.watch.lock() = Some(AcceptedWatch { response, last });
                // The connection is busy until it changes hands.
                return pending().map(move |never: Infallible| match (never, working) {}).left_future();
            }
            if is_leaving {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            *slot.term.lock() = Some(H::term(response.body()));
            ready(Ok(response.map(|body| BusyBody { body, _working: working }))).right_future()
        }))
    }
}

/// Returns true if we may write the response ourselves: an HTTP/1.1 GET without a body. A watch of HTTP/1.0 ends with
/// its connection; they are so rare that hyper serves them.
fn is_plain(request: &Request<Incoming>) -> bool {
    request.method() == Method::GET
        && request.version() == Version::HTTP_11
        && request.body().is_end_stream()
        && !request.headers().contains_key(header::UPGRADE)
}

/// Returns true if an HTTP/1.1 request is the last one of its connection.
fn asks_to_close(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.any(|value| value.split(',').any(|token| token.trim().eq_ignore_ascii_case("close")))
}

/// Returns bytes that were read from the stream before, and notes what hyper writes.
struct HandoverTap<B> {
    /// Bytes that were read before hyper got the stream.
    buffered: Bytes,
    /// Bytes of one read, if bodies are passed to an upstream.
    piece: Option<u64>,
    slot: Arc<HandoverState<B>>,
}

impl<S, B> Tap<S> for HandoverTap<B> {
    fn poll_read(&mut self, stream: Pin<&mut S>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>>
    where
        S: AsyncRead,
    {
        if self.buffered.is_empty() {
            return match self.piece {
                Some(piece) => Pin::new(&mut stream.take(piece)).poll_read(cx, into),
                None => stream.poll_read(cx, into),
            };
        }
        let count = self.buffered.len().min(into.remaining());
        into.put_slice(&self.buffered[..count]);
        self.buffered.advance(count);
        Poll::Ready(Ok(()))
    }

    fn written(&mut self, _: &S, _: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.slot.is_stuck.store(written.is_pending(), Ordering::Relaxed);
        written
    }

    fn flushed(&mut self) {
        self.slot.flushed.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
