//! Connections to one server: one over HTTP/2 for all requests, or HTTP/1.1 if the server prefers it.
//!
//! INVARIANT: one connection is opened at a time. Requests that arrive meanwhile wait for it, and share its failure.
//! INVARIANT: a connection that has ended, or whose server sent GOAWAY, gets no new request. Its open streams continue.

use std::{
    error::Error as StdError,
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use http::{Request, Response, Uri, uri::Scheme};
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};
use hyper::client::conn::http2;
use hyper_util::{
    client::legacy::{self, connect::Connection as _},
    rt::{TokioExecutor, TokioTimer},
};
use kube::client::Body;
use parking_lot::Mutex;
use tower::{BoxError, ServiceExt as _};

use super::connector::{BoxedSocket, Connector};

/// Most requests and watches on one HTTP/2 connection; more open another connection. Servers must expect as many
/// (RFC 9113, section 6.5.2), and kube-apiserver allows no more since 1.28. A server that allows fewer gets fewer.
const STREAMS_MAX: usize = 100;

/// Bytes that a server may send on one stream before the informer reads them. Bounds the memory of a slow reader, and
/// the speed of one response: 512 KiB in each round trip, 10 MB/s over a link of 50 ms.
const STREAM_WINDOW: u32 = 512 << 10;

/// Bytes that a server may send on one connection before informers read them. With room for each stream's window, slow
/// readers cannot stop the others. Cost: 50 MiB if every informer of the process stands still, else next to nothing.
const CONNECTION_WINDOW: u32 = 100 * STREAM_WINDOW;

/// Time without a frame after which the client sends a PING, as client-go does.
const PING_AFTER: Duration = Duration::from_secs(30);

/// Longest wait for the answer to a PING. A peer that vanished is noticed within 45 s.
const PONG_TIME_MAX: Duration = Duration::from_secs(15);

/// Most connections that one request tries. A connection may end, or fill up, between its opening and the request. At
/// most `ATTEMPTS_MAX * STREAMS_MAX` requests can start at once; more fail and are repeated by their informers.
const ATTEMPTS_MAX: usize = 8;

/// Body of a response. Its stream counts for the connection until the body is dropped.
pub(super) type ResponseBody = UnsyncBoxBody<Bytes, hyper::Error>;

/// The connections. Clones share them; when the last clone is dropped, the connections end after their last stream.
#[derive(Clone)]
pub(super) struct ConnectionPool(Arc<ConnectionPoolState>);

struct ConnectionPoolState {
    url: Uri,
    connector: Connector,
    http1: legacy::Client<Connector, Body>,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    /// In the order of their opening. A request takes the first one that is not full.
    http2: Vec<SharedConnection>,
    pending: Option<PendingConnection>,
    /// True once the server chose HTTP/1.1, or if its URL has no TLS to choose a protocol in.
    is_http1: bool,
}

struct SharedConnection {
    sender: http2::SendRequest<Body>,
    streams: StreamPermit,
    streams_max: Arc<AtomicUsize>,
}

/// Each clone but the connection's own is a stream.
type StreamPermit = Arc<()>;

/// A connection that is being opened, with its failure.
type PendingConnection = Shared<BoxFuture<'static, Result<(), ConnectError>>>;

/// Connection that one request takes.
enum RequestRoute {
    Http2(http2::SendRequest<Body>, StreamPermit),
    Http1,
    Pending(PendingConnection),
}

/// Failure to open a connection, for all requests that waited for it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("no connection")]
pub(super) struct ConnectError(#[source] Arc<dyn StdError + Send + Sync>);

impl ConnectionPool {
    /// Opens no connection.
    pub(super) fn new(url: Uri, connector: Connector) -> Self {
        let http1 =
            legacy::Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector.clone());
        let is_http1 = url.scheme() != Some(&Scheme::HTTPS);
        let connections = Mutex::new(Connections { is_http1, ..Connections::default() });
        Self(Arc::new(ConnectionPoolState { url, connector, http1, connections }))
    }

    /// Sends one request with an absolute URL and waits for the headers of its response. Dropping the future, or the
    /// response's body, cancels the request.
    ///
    /// # Errors
    /// No connection, or it ended before the headers. A request that reached no server is sent again, over another
    /// connection.
    pub(super) async fn send(self, mut request: Request<Body>) -> Result<Response<ResponseBody>, BoxError> {
        let mut failure = None;
        for _ in 0..ATTEMPTS_MAX {
            let (mut sender, stream) = match self.route() {
                RequestRoute::Http2(sender, stream) => (sender, stream),
                RequestRoute::Http1 => {
                    return Ok(self.0.http1.request(request).await?.map(|body| body.boxed_unsync()));
                }
                RequestRoute::Pending(pending) => {
                    self.wait(pending).await?;
                    continue;
                }
            };
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(response.map(|body| counted(body, stream))),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => {
                        request = unsent;
                        failure = Some(error.into_error());
                    }
                    None => return Err(error.into_error().into()),
                },
            }
        }
        Err(failure.map_or_else(|| "every new connection was closed or full at once".into(), BoxError::from))
    }

    fn route(&self) -> RequestRoute {
        let mut connections = self.0.connections.lock();
        if connections.is_http1 {
            return RequestRoute::Http1;
        }
        connections.http2.retain(|connection| !connection.sender.is_closed());
        if let Some(connection) = connections.http2.iter().find(|connection| connection.has_room()) {
            return RequestRoute::Http2(connection.sender.clone(), Arc::clone(&connection.streams));
        }
        RequestRoute::Pending(connections.pending.get_or_insert_with(|| self.open()).clone())
    }

    async fn wait(&self, pending: PendingConnection) -> Result<(), ConnectError> {
        let opened = pending.clone().await;
        if opened.is_err() {
            // The task removes it, unless its runtime ended before.
            self.0.connections.lock().pending.take_if(|current| current.ptr_eq(&pending));
        }
        opened
    }

    /// Opens a connection in a task, so that requests that give up do not stop it.
    fn open(&self) -> PendingConnection {
        let pool = self.clone();
        let task = tokio::spawn(async move {
            let opened = pool.connect().await;
            let mut connections = pool.0.connections.lock();
            connections.pending = None;
            match opened {
                Ok(Some(connection)) => connections.http2.push(connection),
                Ok(None) => connections.is_http1 = true,
                Err(error) => return Err(ConnectError(Arc::from(error))),
            }
            Ok(())
        });
        task.map(|task| task.unwrap_or_else(|error| Err(ConnectError(Arc::new(error))))).boxed().shared()
    }

    /// A new connection; `None` if the server chose HTTP/1.1. Then the pool of HTTP/1.1 opens its own: the price is one
    /// TLS handshake in the life of a client.
    async fn connect(&self) -> Result<Option<SharedConnection>, BoxError> {
        let socket = self.0.connector.clone().oneshot(self.0.url.clone()).await?;
        if !socket.connected().is_negotiated_h2() {
            return Ok(None);
        }
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PONG_TIME_MAX)
            .keep_alive_while_idle(true)
            .handshake(socket)
            .await?;
        let streams_max = Arc::new(AtomicUsize::new(STREAMS_MAX));
        tokio::spawn(drive(connection, Arc::clone(&streams_max)));
        Ok(Some(SharedConnection { sender, streams: StreamPermit::default(), streams_max }))
    }
}

impl SharedConnection {
    fn has_room(&self) -> bool {
        Arc::strong_count(&self.streams) <= self.streams_max.load(Ordering::Relaxed)
    }
}

/// Keeps the stream's permit with the body.
fn counted(body: hyper::body::Incoming, stream: StreamPermit) -> ResponseBody {
    body.map_frame(move |frame| {
        let _permit = &stream;
        frame
    })
    .boxed_unsync()
}

/// Runs a connection to its end, and notes how many streams the server allows.
async fn drive(connection: http2::Connection<BoxedSocket, Body, TokioExecutor>, streams_max: Arc<AtomicUsize>) {
    let mut connection = pin!(connection);
    let ended = poll_fn(|cx| {
        let polled = connection.as_mut().poll(cx);
        streams_max.store(connection.current_max_send_streams().clamp(1, STREAMS_MAX), Ordering::Relaxed);
        polled
    });
    match ended.await {
        Ok(()) => tracing::debug!("connection closed"),
        Err(error) => tracing::debug!(error = %crate::error::Chain(&error), "connection failed"),
    }
}

#[cfg(test)]
mod tests;
