//! HTTP/2 connections.
//!
//! INVARIANT: a stream that its client does not read holds at most two pages of unsent bytes and one batch of shared
//! ones, and blocks no other stream. INVARIANT: a client that floods the connection with frames is disconnected.
//! INVARIANT: a watch ends at the end of its term at the latest, even if its client reads nothing; other responses that
//! are not read end after [`HTTP2_STREAM_STUCK`](crate::limits::HTTP2_STREAM_STUCK).
//! INVARIANT: the unread responses of all connections together, and those of each user, are bounded: beyond that, connections
//! with one end. While unread streams are many, requests of a connection with
//! [`HTTP2_STREAMS_SHORT`](crate::limits::HTTP2_STREAMS_SHORT) get 429.
//! INVARIANT: a connection ends with the answer to a caller that is refused, unless a caller of it has proved who it is.
//! INVARIANT: a client is disconnected if it does not answer a ping within [`HTTP2_PONG_WAIT`], or does not send its preface
//! within [`HEAD_TIMEOUT`](crate::limits::HEAD_TIMEOUT).

pub mod flood;
pub mod gather;
pub mod overdue;
pub mod paged;
pub mod preface;
pub mod settings;
pub mod streams;

use std::{convert::Infallible, future::poll_fn, pin::Pin, sync::Arc, time::Duration};

use futures::FutureExt as _;
use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http2, service::Service};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use self::{
    flood::FloodTap,
    gather::{GatheredStream, Outbox},
    paged::{PagedBody, SHARED_PAGE_BYTES},
    preface::{PrefaceFlag, PrefaceTap},
    settings::SettingsTap,
    streams::Streams,
};
use crate::{
    budget::Room,
    handler::{ConnectionContext, Handler, OWED_CHECK_EVERY, OwedPlace},
    limits::{
        HTTP2_HEAD_BYTES_MAX, HTTP2_PING_EVERY, HTTP2_PONG_WAIT, HTTP2_RECEIVE_BYTES_MAX, HTTP2_STREAMS_MAX,
        UPSTREAM_HTTP2_WINDOW_BYTES,
    },
    phase::{ServerPhase, has_left},
    shares::{StreamOwner, UnreadStreams},
    socket::Socket,
    tap::TappedStream,
};

/// Serves a connection to its end. Once the server is leaving it accepts no more requests, and ends with the last open one.
pub async fn serve<S: Socket, H: Handler>(
    stream: S,
    context: ConnectionContext<H>,
    mut closed: watch::Receiver<ServerPhase>,
) -> hyper::Result<()> {
    let window =
        if context.shared.settings.forwards_bodies { UPSTREAM_HTTP2_WINDOW_BYTES } else { HTTP2_RECEIVE_BYTES_MAX };
    let refused = context.shared.handler.refused_owner();
    let unread = UnreadStreams::new(&refused);
    let streams = Streams::new(unread.clone());
    let mut builder = http2::Builder::new(streams.clone());
    builder
        .timer(TokioTimer::new())
        // The next page is polled once less than this is left of the last one.
        .max_send_buf_size(SHARED_PAGE_BYTES)
        .initial_stream_window_size(window)
        .initial_connection_window_size(HTTP2_RECEIVE_BYTES_MAX)
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .max_header_list_size(HTTP2_HEAD_BYTES_MAX)
        .keep_alive_interval(HTTP2_PING_EVERY)
        .keep_alive_timeout(HTTP2_PONG_WAIT);
    let (begun, crowd, unused) = (PrefaceFlag::default(), Arc::clone(&context.crowd), Arc::clone(&context.unused));
    let outbox = Outbox::default();
    let gathered = GatheredStream::new(stream, outbox.clone());
    let stream = TappedStream { stream: gathered.clone(), tap: PrefaceTap::new(begun.clone()) };
    let stream = TappedStream { stream, tap: FloodTap::new(streams.clone()) };
    let stream = TappedStream { stream, tap: SettingsTap::new(outbox.clone()) };
    let room = Room::of_connection();
    let pages = Pages { context, room, outbox, streams: streams.clone(), unread, refused };
    let mut connection = Box::pin(builder.serve_connection(TokioIo::new(stream), pages));
    let is_refused = tokio::select! {
        ended = poll_fn(|cx| streams.poll_turn(&gathered, connection.as_mut(), cx)) => return ended,
        () = begun.is_late() => return Ok(()),
        () = streams.cut() => return Ok(()),
        () = streams.refused() => true,
        () = crowd.outlasts_idle(|| streams.idle_since()) => {
            connection.as_mut().graceful_shutdown();
            // The connection is idle, so it ends as soon as its client has read that.
            let ended = poll_fn(|cx| streams.poll_turn(&gathered, connection.as_mut(), cx));
            return timeout(GOODBYE_WAIT, ended).await.unwrap_or(Ok(()));
        }
        () = leaving(&mut closed, &unused) => false,
    };
    // hyper's graceful shutdown waits for the preface, so drop a connection without one.
    if !begun.is_so() {
        return Ok(());
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        // A task that was delayed for longer than the waits below sends its last answer before it ends.
        biased;
        ended = poll_fn(|cx| streams.poll_turn(&gathered, connection.as_mut(), cx)) => ended,
        () = streams.cut() => Ok(()),
        // A client that does not confirm the end may still open streams. Others may read the end of a response.
        () = streams.idle_for(GOODBYE_WAIT), if is_refused => Ok(()),
        () = crowd.outlasts_idle(|| streams.idle_since()) => Ok(()),
    }
}

/// Period over which clients are told to leave: thousands at once would hold up requests.
pub const GOODBYES_SPREAD: Duration = Duration::from_millis(250);

/// Resolves once the connection takes no more requests: at the end of the server, or soon after it has begun to leave.
async fn leaving(phase: &mut watch::Receiver<ServerPhase>, unused: &OwedPlace) {
    // An error means that the server was dropped.
    if phase.wait_for(|phase| *phase != ServerPhase::Serving).await.is_err() {
        return;
    }
    // Boxed: connections without an end have no room for it.
    let pause = Box::pin(async {
        sleep(GOODBYES_SPREAD.mul_f64(fastrand::f64())).await;
        // A client might take the end of a connection that has brought no request for a refusal.
        while unused.is_counted() {
            sleep(OWED_CHECK_EVERY).await;
        }
    });
    tokio::select! {
        () = pause => {}
        () = has_left(phase) => {}
    }
}

/// Time for an idle client to confirm that its connection ends.
const GOODBYE_WAIT: Duration = Duration::from_secs(1);

/// Answers requests with paged bodies.
struct Pages<H: Handler> {
    context: ConnectionContext<H>,
    /// Memory budget for the request bodies of all streams together.
    room: Room,
    outbox: Outbox,
    streams: Streams,
    unread: UnreadStreams,
    /// Owner of responses that may wait for no client.
    refused: StreamOwner,
}

impl<H: Handler> Service<Request<Incoming>> for Pages<H> {
    type Response = Response<PagedBody<H::Body>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<PagedBody<H::Body>>, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let outbox = self.outbox.clone();
        if self.unread.is_crowded() {
            tracing::debug!(reason = "many unread responses", "request refused");
            let (response, owner) = (self.context.shared.handler.refuse_crowded(), self.refused.clone());
            return Box::pin(async move {
                overdue::set_owner(owner);
                Ok(response.map(|body| PagedBody::new(body, outbox)))
            });
        }
        request.extensions_mut().insert(self.room.clone());
        if let Some(watcher) = self.streams.awaits_proof() {
            request.extensions_mut().insert(watcher);
        }
        let (streams, stream, unanswered) = (self.streams.clone(), self.unread.add(), self.streams.unanswered());
        // An async block would have room for the answer twice: captured, and while it waits.
        Box::pin(self.context.answer(request).map(move |mut response| {
            // The clock of `overdue` belongs to the task of the stream, which polls this.
            overdue::set_stream(stream);
            if let Some(owner) = response.extensions_mut().remove::<StreamOwner>() {
                streams.note_owner(&owner);
                overdue::set_owner(owner);
            }
            // After a proof is noted: a refused connection without unanswered requests takes no more.
            drop(unanswered);
            if let Some(term) = H::term(response.body()) {
                overdue::set_term(term);
            }
            Ok(response.map(|body| PagedBody::new(body, outbox)))
        }))
    }
}

#[cfg(test)]
mod tests;
