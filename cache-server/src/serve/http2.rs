//! HTTP/2 connections.
//!
//! INVARIANT: a stream that its client does not read holds at most two pages of unsent bytes and one batch of shared
//! ones, and blocks no other stream. INVARIANT: a client that floods the connection with frames is disconnected.
//! INVARIANT: a watch ends at the end of its term at the latest, even if its client reads nothing; other responses that
//! are not read end after [`HTTP2_STREAM_STUCK`](crate::limits::HTTP2_STREAM_STUCK). INVARIANT: a client is disconnected if it does not answer a
//! ping within [`HTTP2_PONG_WAIT`], or does not send its preface within [`HEAD_TIMEOUT`](crate::limits::HEAD_TIMEOUT).

mod flood;
mod gather;
mod overdue;
mod paged;
mod preface;
mod settings;

use std::{convert::Infallible, future::poll_fn, pin::Pin, sync::Arc, time::Duration};

use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http2, service::Service};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{sync::watch, time::timeout};

use self::{
    flood::FloodTap,
    gather::{GatheredStream, Outbox},
    overdue::Streams,
    paged::{PagedBody, SHARED_PAGE_BYTES},
    preface::{PrefaceFlag, PrefaceTap},
    settings::SettingsTap,
};
use super::{handler::Handler, socket::Socket, tap::TappedStream};
use crate::{
    budget::Room,
    limits::{
        HTTP2_HEAD_BYTES_MAX, HTTP2_PING_EVERY, HTTP2_PONG_WAIT, HTTP2_RECEIVE_BYTES_MAX, HTTP2_STREAMS_MAX,
        UPSTREAM_HTTP2_WINDOW_BYTES,
    },
};

/// Serves a connection to its end. Once `closed` changes it accepts no more requests, and ends with the last open one.
pub(super) async fn serve<S: Socket>(
    stream: S,
    handler: Handler,
    mut closed: watch::Receiver<()>,
) -> hyper::Result<()> {
    let window = match handler.app.upstream() {
        Some(_) => UPSTREAM_HTTP2_WINDOW_BYTES,
        None => HTTP2_RECEIVE_BYTES_MAX,
    };
    let streams = Streams::new();
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
    let (begun, app) = (PrefaceFlag::default(), Arc::clone(&handler.app));
    let outbox = Outbox::default();
    let gathered = GatheredStream::new(stream, outbox.clone());
    let stream = TappedStream { stream: gathered.clone(), tap: PrefaceTap::new(begun.clone()) };
    let stream = TappedStream { stream, tap: FloodTap::new() };
    let stream = TappedStream { stream, tap: SettingsTap::new(outbox.clone()) };
    let mut connection = Box::pin(builder.serve_connection(TokioIo::new(stream), Pages::new(handler, outbox)));
    tokio::select! {
        ended = poll_fn(|cx| gathered.poll_turn(connection.as_mut(), cx)) => return ended,
        () = begun.is_late() => return Ok(()),
        () = app.crowd.outlasts_idle(|| streams.idle_since()) => {
            connection.as_mut().graceful_shutdown();
            // The connection is idle, so it ends as soon as its client has read that.
            let ended = poll_fn(|cx| gathered.poll_turn(connection.as_mut(), cx));
            return timeout(GOODBYE_WAIT, ended).await.unwrap_or(Ok(()));
        }
        _ = closed.changed() => {}
    }
    // hyper's graceful shutdown waits for the preface, so drop a connection without one.
    if !begun.is_so() {
        return Ok(());
    }
    connection.as_mut().graceful_shutdown();
    poll_fn(|cx| gathered.poll_turn(connection.as_mut(), cx)).await
}

/// Time for an idle client to confirm that its connection ends, while other clients wait for its slot.
const GOODBYE_WAIT: Duration = Duration::from_secs(1);

/// Answers requests with paged bodies.
struct Pages {
    handler: Handler,
    /// Memory budget for the request bodies of all streams together.
    room: Room,
    outbox: Outbox,
}

impl Pages {
    fn new(handler: Handler, outbox: Outbox) -> Self {
        Self { handler, room: Room::of_connection(), outbox }
    }
}

impl Service<Request<Incoming>> for Pages {
    type Response = Response<PagedBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<PagedBody>, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.room.clone());
        let (answer, outbox) = (self.handler.answer(request), self.outbox.clone());
        Box::pin(async move {
            let response = answer.await;
            if let Some(term) = response.body().term() {
                overdue::set_term(term);
            }
            // hyper does not poll the body before the window opens.
            overdue::note_given();
            Ok(response.map(|body| PagedBody::new(body, outbox)))
        })
    }
}

#[cfg(test)]
mod tests;
