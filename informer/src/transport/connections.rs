//! Connections to one server: one over HTTP/2 for all requests, or HTTP/1.1 if the server prefers it.
//!
//! INVARIANT: one connection is opened at a time. Requests that arrive meanwhile wait in a queue; each new connection
//! takes as many of them as its server allows, and a failure to open one fails them all.
//! INVARIANT: a connection is used only after the server's first SETTINGS, and never for more streams than these allow.
//! INVARIANT: a connection that has ended, or whose server sent GOAWAY, gets no new request. Its open streams continue.

use std::{
    collections::VecDeque,
    error::Error as StdError,
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, Uri, uri::Scheme};
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};
use hyper::client::conn::http2;
use hyper_util::{
    client::legacy::{self, connect::Connection as _},
    rt::{TokioExecutor, TokioTimer},
};
use parking_lot::Mutex;
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, Sleep, sleep, timeout},
};
use tower::{BoxError, ServiceExt as _};

use super::connector::{BoxedSocket, Connector};

/// Most requests and watches on one HTTP/2 connection; more open another connection. kube-apiserver allows no more since
/// 1.28. A server that allows fewer gets fewer.
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

/// Longest time for which a connection waits for SETTINGS that allow streams. Servers send the first ones at once.
const SETTINGS_TIME_MAX: Duration = Duration::from_secs(10);

/// First pause between two checks for SETTINGS that allow streams. Each pause is a quarter longer than the one before, so
/// that SETTINGS wait at most a quarter of their own time.
const SETTINGS_PAUSE: Duration = Duration::from_millis(2);

/// Longest such pause.
const SETTINGS_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Most connections that one request tries. A connection may end between its opening and the request.
const ATTEMPTS_MAX: usize = 8;

/// Error of requests whose connections did not last until they were sent.
const CLOSED_AT_ONCE: &str = "every new connection was closed at once";

/// Body of a request.
pub(crate) type PooledRequestBody = UnsyncBoxBody<Bytes, BoxError>;

/// Body of a response. Its stream counts for the connection until the body is dropped.
pub(crate) type PooledBody = UnsyncBoxBody<Bytes, hyper::Error>;

/// The connections. Clones share them; when the last clone is dropped, the connections end after their last stream.
#[derive(Clone)]
pub(crate) struct ConnectionPool(Arc<ConnectionPoolState>);

struct ConnectionPoolState {
    url: Uri,
    connector: Connector,
    http1: legacy::Client<Connector, PooledRequestBody>,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    /// In the order of their opening. A request takes the first one that is not full.
    http2: Vec<SharedConnection>,
    /// Requests that wait for a connection, first come, first served. A task opens connections until it is empty.
    waiting: VecDeque<oneshot::Sender<Result<RequestRoute, ConnectError>>>,
    /// True while that task runs.
    is_opening: bool,
    /// True once the server chose HTTP/1.1, or if its URL has no TLS to choose a protocol in.
    is_http1: bool,
}

struct SharedConnection {
    sender: http2::SendRequest<PooledRequestBody>,
    streams: StreamPermit,
    /// Streams that the server allows; zero before its first SETTINGS. Closed if it has allowed none for
    /// [`SETTINGS_TIME_MAX`], and at the end of the connection.
    streams_max: watch::Receiver<usize>,
}

/// Each clone but the connection's own is a stream. After the last one, nothing uses the connection.
type StreamPermit = Arc<oneshot::Sender<()>>;

/// Connection that one request takes.
enum RequestRoute {
    Http2(http2::SendRequest<PooledRequestBody>, StreamPermit),
    Http1,
}

/// Failure to open a connection, for all requests that waited for it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("no connection")]
pub(crate) struct ConnectError(#[source] Arc<dyn StdError + Send + Sync>);

/// Reason why a new connection takes no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum SettingsError {
    #[error("the connection ended before the server's SETTINGS")]
    Ended,
    #[error("the server allowed no streams within {SETTINGS_TIME_MAX:?}")]
    NoStreams,
}

impl ConnectionPool {
    /// Opens no connection.
    pub(crate) fn new(url: Uri, connector: Connector) -> Self {
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
    pub(crate) async fn send(self, mut request: Request<PooledRequestBody>) -> Result<Response<PooledBody>, BoxError> {
        let mut failure = None;
        for _ in 0..ATTEMPTS_MAX {
            let (mut sender, stream) = match self.route().await? {
                RequestRoute::Http2(sender, stream) => (sender, stream),
                RequestRoute::Http1 => {
                    return Ok(self.0.http1.request(request).await?.map(|body| body.boxed_unsync()));
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
        Err(failure.map_or_else(|| CLOSED_AT_ONCE.into(), BoxError::from))
    }

    /// Takes a connection with room, or waits for a new one.
    async fn route(&self) -> Result<RequestRoute, ConnectError> {
        let (sender, waiting) = oneshot::channel();
        let is_opening = {
            let mut connections = self.0.connections.lock();
            if let Some(route) = connections.take() {
                return Ok(route);
            }
            connections.waiting.push_back(sender);
            std::mem::replace(&mut connections.is_opening, true)
        };
        if !is_opening {
            // A task, so that requests that give up do not stop it.
            tokio::spawn(self.clone().open(OpeningGuard(self.clone())));
        }
        waiting.await.unwrap_or_else(|_| Err(ConnectError(Arc::from(BoxError::from("the runtime has ended")))))
    }

    /// Opens connections until no request waits. Fails those that wait after [`ATTEMPTS_MAX`] connections in a row that were
    /// closed before they took a request: a server that drains must not be dialled without end.
    async fn open(self, _guard: OpeningGuard) {
        let mut unused = 0;
        loop {
            let opened = self.connect().await;
            let mut connections = self.0.connections.lock();
            match opened {
                Ok(Some(connection)) => connections.http2.push(connection),
                Ok(None) => connections.is_http1 = true,
                Err(error) => connections.fail(error),
            }
            let waiting = connections.waiting.len();
            connections.serve();
            unused = if connections.waiting.len() < waiting { 0 } else { unused + 1 };
            if unused == ATTEMPTS_MAX {
                connections.fail(CLOSED_AT_ONCE.into());
            }
            if connections.waiting.is_empty() {
                connections.is_opening = false;
                return;
            }
        }
    }

    /// Opens a connection, and waits for the server's first SETTINGS. `None` if the server chose HTTP/1.1. Then the pool of
    /// HTTP/1.1 opens its own: the price is one TLS handshake in the life of a client.
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
            // Until the server has said how many it allows: h2 would otherwise assume 100, and hold back the rest of them
            // behind watches that do not end.
            .initial_max_send_streams(0)
            .handshake(socket)
            .await?;
        let (allows, mut streams_max) = watch::channel(0);
        let (streams, unused) = oneshot::channel();
        tokio::spawn(drive(connection, allows, unused));
        match timeout(SETTINGS_TIME_MAX, streams_max.wait_for(|allowed| *allowed > 0)).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => return Err(SettingsError::Ended.into()),
            Err(_) => return Err(SettingsError::NoStreams.into()),
        }
        Ok(Some(SharedConnection { sender, streams: Arc::new(streams), streams_max }))
    }
}

impl Connections {
    /// Returns a connection with room, if there is one.
    fn take(&mut self) -> Option<RequestRoute> {
        if self.is_http1 {
            return Some(RequestRoute::Http1);
        }
        self.http2.retain(SharedConnection::is_usable);
        let connection = self.http2.iter().find(|connection| connection.has_room())?;
        Some(RequestRoute::Http2(connection.sender.clone(), Arc::clone(&connection.streams)))
    }

    /// Fails the requests that wait.
    fn fail(&mut self, error: BoxError) {
        let error = ConnectError(Arc::from(error));
        for request in self.waiting.drain(..) {
            let _ = request.send(Err(error.clone()));
        }
    }

    /// Hands connections with room to the requests that wait.
    fn serve(&mut self) {
        self.waiting.retain(|request| !request.is_closed());
        while let Some(request) = self.waiting.pop_front() {
            let Some(route) = self.take() else { return self.waiting.push_front(request) };
            // An error returns the stream of a request that was dropped.
            let _ = request.send(Ok(route));
        }
    }
}

impl SharedConnection {
    /// False once no request may be sent any more. Without its sender the connection ends after its last stream.
    fn is_usable(&self) -> bool {
        !self.sender.is_closed() && self.streams_max.has_changed().is_ok()
    }

    fn has_room(&self) -> bool {
        Arc::strong_count(&self.streams) <= *self.streams_max.borrow()
    }
}

/// Frees the requests that wait if the task that opens connections is dropped with its runtime.
struct OpeningGuard(ConnectionPool);

impl Drop for OpeningGuard {
    fn drop(&mut self) {
        let mut connections = self.0.0.connections.lock();
        if std::mem::take(&mut connections.is_opening) {
            connections.waiting.clear();
        }
    }
}

/// Keeps the stream's permit with the body.
fn counted(body: hyper::body::Incoming, stream: StreamPermit) -> PooledBody {
    body.map_frame(move |frame| {
        let _permit = &stream;
        frame
    })
    .boxed_unsync()
}

/// Checks of a connection while its server allows no streams: before the first SETTINGS, or after later ones. hyper reads
/// SETTINGS in a task of its own, which wakes no other.
struct SettingsChecks {
    next: Pin<Box<Sleep>>,
    pause: Duration,
    /// Time of the first check; `None` while the server allows streams.
    refused_since: Option<Instant>,
}

impl SettingsChecks {
    fn new() -> Self {
        Self { next: Box::pin(sleep(Duration::ZERO)), pause: SETTINGS_PAUSE, refused_since: None }
    }

    /// Ready when the next check is due, with the time since the first one. Never ready while streams are allowed.
    fn poll_due(&mut self, cx: &mut Context<'_>, allowed: usize) -> Poll<Duration> {
        let now = Instant::now();
        match (allowed, self.refused_since) {
            (0, None) => {
                (self.pause, self.refused_since) = (SETTINGS_PAUSE, Some(now));
                self.next.as_mut().reset(now + SETTINGS_PAUSE);
            }
            (0, Some(_)) => {}
            _ => {
                self.refused_since = None;
                return Poll::Pending;
            }
        }
        std::task::ready!(self.next.as_mut().poll(cx));
        self.pause = (self.pause * 5 / 4).min(SETTINGS_PAUSE_MAX);
        self.next.as_mut().reset(now + self.pause);
        Poll::Ready(self.refused_since.map_or(Duration::ZERO, |since| now - since))
    }
}

/// Runs a connection to its end, and notes how many streams the server allows. A server that allows none for
/// [`SETTINGS_TIME_MAX`] gets no request over it any more, and is not checked again.
async fn drive(
    connection: http2::Connection<BoxedSocket, PooledRequestBody, TokioExecutor>,
    streams_max: watch::Sender<usize>,
    mut unused: oneshot::Receiver<()>,
) {
    let mut connection = pin!(connection);
    let (mut checks, mut streams_max) = (SettingsChecks::new(), Some(streams_max));
    let ended = poll_fn(|cx| {
        let polled = connection.as_mut().poll(cx);
        // hyper waits for ever for room for a request that was dropped before it had a stream.
        if polled.is_pending() && Pin::new(&mut unused).poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        while let Some(noted) = &streams_max {
            let allowed = connection.current_max_send_streams().min(STREAMS_MAX);
            noted.send_if_modified(|known| std::mem::replace(known, allowed) != allowed);
            match checks.poll_due(cx, allowed) {
                Poll::Ready(refused) if SETTINGS_TIME_MAX <= refused => {
                    tracing::debug!(reason = "the server allows no streams", "connection retired");
                    streams_max = None;
                }
                Poll::Ready(_) => {}
                Poll::Pending => break,
            }
        }
        polled
    });
    match ended.await {
        Ok(()) => tracing::debug!("connection closed"),
        Err(error) => tracing::debug!(error = %crate::error::Chain(&error), "connection failed"),
    }
}

#[cfg(all(test, feature = "kube-5"))]
mod tests;
