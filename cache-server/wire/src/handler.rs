//! The server behind the connections, as they know it, and the requests that they bring to it.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use access_rules::authentication::certificate::ServerNames;
use futures::FutureExt as _;
use http::{Request, Response, Version, header};
use http_body::Body;
use hyper::body::Incoming;
use tokio::io::{AsyncRead, AsyncWrite};
use watch_cache::Slices;

use crate::{
    body::BodyError,
    budget::Crowd,
    host::{self, OwnNames},
    listeners::RemoteEnd,
    origin,
    shares::StreamOwner,
    term::WatchTerm,
    tls::{Acceptor, ClientCertificate},
};

/// The server that answers the requests of connections.
pub trait Handler: Send + Sync + Sized + 'static {
    /// The client of a connection.
    type Peer: Send + Sync + 'static;
    /// The body of a response.
    type Body: Body<Data = Slices, Error = BodyError> + Send + Unpin + 'static;

    /// Returns the client at the other end of a connection. Called again if it shows a certificate.
    fn peer(&self, end: RemoteEnd, certificate: Option<ClientCertificate>) -> Self::Peer;

    /// Counts a connection until the result is dropped.
    fn count_connection(&self) -> impl Send + 'static + use<Self>;

    /// Returns the response to one request, which has no bytes for HEAD. A request with a `refusal` must not have an effect.
    ///
    /// A request over HTTP/2 has two extensions: the [`Room`](crate::budget::Room) for its body, and until a caller of its
    /// connection is proved a [`ProofWatcher`](crate::shares::ProofWatcher). The response has the [`StreamOwner`] as its
    /// extension.
    fn answer(
        &self,
        request: Request<Incoming>,
        peer: &Arc<Self::Peer>,
        refusal: Option<Refusal>,
    ) -> impl Future<Output = Response<Self::Body>> + Send + 'static + use<Self>;

    /// Returns the response to a request that is refused until the client has read others of its connection. It has no
    /// body: a stream that has one may have to be reset, and h2 remembers 50 of these for each connection.
    fn refuse_crowded(&self) -> Response<Self::Body>;

    /// Returns the owner of a response to a caller that is refused before it is known.
    fn refused_owner(&self) -> StreamOwner;

    /// True for an accepted watch.
    fn is_watch(body: &Self::Body) -> bool;

    /// Returns the term of a watch; `None` for other bodies, and for watches without any limit.
    fn term(body: &Self::Body) -> Option<WatchTerm>;

    /// True if a response with status 101 begins a tunnel, and not a WebSocket.
    fn is_tunnel(body: &Self::Body) -> bool;

    /// Returns the other side of a tunnel, and a value to drop at its end; `None` for other bodies.
    fn into_tunnel(
        body: Self::Body,
    ) -> Option<(impl AsyncRead + AsyncWrite + Unpin + Send + 'static, impl Send + 'static)>;
}

/// Reason to refuse a request whatever resource it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No Host header, which HTTP/1.1 requires.
    NoHost,
    /// The Host header names another server: possibly DNS rebinding by a web page.
    ForeignHost,
    /// A page of another site may have sent the request.
    ForeignOrigin,
}

/// Settings of the connections of a server.
#[derive(Debug)]
pub struct ConnectionSettings {
    /// Number of connections that may be open at once; more wait in the listen queue.
    pub connections_max: usize,
    /// Time for which a client may read nothing before its connection is reset.
    pub socket_stuck: Duration,
    /// True if request bodies are passed to another server, and so read in small pieces.
    pub forwards_bodies: bool,
    /// Names by which clients may call the server, besides those of its certificate.
    pub listed: ServerNames,
}

/// The parts of a server that its connections share.
pub struct ConnectionShared<H> {
    pub handler: H,
    /// `None`: connections are not encrypted.
    pub tls: Option<Arc<Acceptor>>,
    pub settings: ConnectionSettings,
}

/// The parts of a connection that its requests share.
pub struct ConnectionContext<H: Handler> {
    pub shared: Arc<ConnectionShared<H>>,
    /// Signals that other connections need the slots of idle ones.
    pub crowd: Arc<Crowd>,
    /// The address at which the client has reached the server; `None` for a Unix socket.
    pub bound: Option<IpAddr>,
    /// Names of the server's certificate.
    pub certified: Arc<ServerNames>,
    pub peer: Arc<H::Peer>,
    /// Counted until the first request.
    pub unused: Arc<OwedPlace>,
}

/// Pause between two checks of an [`OwedCount`] or [`OwedPlace`].
pub const OWED_CHECK_EVERY: Duration = Duration::from_millis(2);

/// The number of clients that wait for an answer: of requests without one, and of connections that have brought no request.
#[derive(Clone, Debug, Default)]
pub struct OwedCount(Arc<AtomicUsize>);

impl OwedCount {
    /// Counts one more.
    pub fn enter(&self) -> OwedPlace {
        self.0.fetch_add(1, Ordering::Relaxed);
        OwedPlace { count: self.clone(), is_counted: AtomicBool::new(true) }
    }

    /// Returns the number.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// The place of a connection or request in an [`OwedCount`].
#[derive(Debug, Default)]
pub struct OwedPlace {
    count: OwedCount,
    is_counted: AtomicBool,
}

impl OwedPlace {
    pub fn is_counted(&self) -> bool {
        self.is_counted.load(Ordering::Relaxed)
    }

    /// Leaves the count. Cost: one load, after the first time.
    fn leave(&self) {
        if self.is_counted() && self.is_counted.swap(false, Ordering::Relaxed) {
            self.count.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for OwedPlace {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<H: Handler> ConnectionContext<H> {
    /// The context of a connection whose client has shown no certificate.
    pub fn new(shared: Arc<ConnectionShared<H>>, crowd: Arc<Crowd>, end: RemoteEnd) -> Self {
        let peer = Arc::new(shared.handler.peer(end, None));
        Self { shared, crowd, bound: None, certified: Arc::default(), peer, unused: Arc::default() }
    }

    /// Returns the response to one request.
    pub fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Response<H::Body>> + Send + use<H> {
        let owed = self.unused.count.enter();
        self.unused.leave();
        // The handler answers refused requests, too: it counts and records them.
        let refusal = self.refusal(&request);
        self.shared.handler.answer(request, &self.peer, refusal).inspect(move |_| drop(owed))
    }

    /// Returns the reason to refuse a request for its Host or Origin.
    fn refusal(&self, request: &Request<Incoming>) -> Option<Refusal> {
        if request.version() == Version::HTTP_11 && !request.headers().contains_key(header::HOST) {
            return Some(Refusal::NoHost);
        }
        let own = OwnNames { bound: self.bound, certified: &self.certified, listed: &self.shared.settings.listed };
        if !host::is_ours(request, own) {
            return Some(Refusal::ForeignHost);
        }
        origin::is_foreign(request).then_some(Refusal::ForeignOrigin)
    }
}

#[cfg(test)]
pub mod tests;
