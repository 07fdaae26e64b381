//! One accepted connection: its protocol, and the phases that serve it.
//!
//! INVARIANT: the state that lasts as long as a connection is small: its identity and its current phase. A phase is
//! boxed and returns the next one, so that the task does not have the size of the largest phase, and a phase's memory
//! is freed when it ends.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    net::TcpStream,
    sync::{OwnedSemaphorePermit, watch},
};

use crate::{
    addresses::AddressPlace,
    flood,
    handler::{ConnectionContext, ConnectionShared, Handler, OwedPlace},
    http1, http2, limits,
    listeners::{AcceptedStream, RemoteEnd},
    phase::{ConnectionPhase, ServerPhase, has_left},
    socket::{Socket, StallGuard},
    tls::{Acceptor, Protocol, TlsConnection},
};

/// One accepted connection.
pub struct AcceptedConnection<H: Handler> {
    pub shared: Arc<ConnectionShared<H>>,
    pub end: RemoteEnd,
    pub closed: watch::Receiver<ServerPhase>,
    /// Connection slot and the address' place, held while the connection lives.
    pub slot: (OwnedSemaphorePermit, AddressPlace),
    /// Counted until the first request.
    pub unused: OwedPlace,
}

impl<H: Handler> AcceptedConnection<H> {
    /// Serves the connection to its end. Not an `async fn`, whose future would keep space for all arguments.
    pub fn run(self, stream: AcceptedStream) -> impl Future<Output = ()> + Send {
        let Self { shared, end, closed, slot, unused } = self;
        let crowd = Arc::clone(slot.1.crowd());
        let held = (shared.handler.count_connection(), slot);
        let mut context = ConnectionContext { unused: Arc::new(unused), ..ConnectionContext::new(shared, crowd, end) };
        let mut phase = match stream {
            AcceptedStream::Tcp(stream) => {
                // Disable Nagle's algorithm: events are small and must be sent at once.
                let _ = stream.set_nodelay(true);
                context.bound = stream.local_addr().ok().map(|address| address.ip().to_canonical());
                match context.shared.tls.clone() {
                    Some(tls) => ConnectionPhase::new(over_tls(stream, tls, context, end, closed)),
                    None => ConnectionPhase::new(in_the_clear(stream, context, closed)),
                }
            }
            // Clients of Unix sockets speak HTTP/1.1; the socket cannot be peeked at for the preface of HTTP/2.
            AcceptedStream::Unix(stream) => {
                let stream = StallGuard::unix(stream, context.shared.settings.socket_stuck);
                speak(stream, Protocol::Http1, context, closed)
            }
        };
        async move {
            loop {
                match phase.0.await {
                    Ok(Some(next)) => phase = next,
                    Ok(None) => break,
                    Err(error) => {
                        if !flood::note(&error) {
                            tracing::debug!(%error, "connection aborted");
                        }
                        break;
                    }
                }
            }
            drop(held);
        }
    }
}

async fn in_the_clear<H: Handler>(
    stream: TcpStream,
    context: ConnectionContext<H>,
    mut closed: watch::Receiver<ServerPhase>,
) -> hyper::Result<Option<ConnectionPhase>> {
    let protocol = tokio::select! {
        protocol = detect(&stream, &mut closed) => protocol,
        () = context.crowd.outlasts() => None,
    };
    let patience = context.shared.settings.socket_stuck;
    Ok(protocol.map(|protocol| speak(StallGuard::tcp(stream, patience), protocol, context, closed)))
}

async fn over_tls<H: Handler>(
    stream: TcpStream,
    tls: Arc<Acceptor>,
    mut context: ConnectionContext<H>,
    end: RemoteEnd,
    mut closed: watch::Receiver<ServerPhase>,
) -> hyper::Result<Option<ConnectionPhase>> {
    let patience = context.shared.settings.socket_stuck;
    let accepted = tokio::select! {
        accepted = tls.accept(stream, |stream| StallGuard::tcp(stream, patience)) => accepted,
        () = has_left(&mut closed) => return Ok(None),
        () = context.crowd.outlasts() => return Ok(None),
    };
    match accepted {
        Ok(TlsConnection { stream, protocol, names, certificate }) => {
            context.certified = names;
            if certificate.is_some() {
                context.peer = Arc::new(context.shared.handler.peer(end, certificate));
            }
            Ok(Some(speak(stream, protocol, context, closed)))
        }
        Err(error) => {
            tracing::debug!(%error, "TLS handshake failed");
            Ok(None)
        }
    }
}

fn speak<S: Socket, H: Handler>(
    stream: S,
    protocol: Protocol,
    context: ConnectionContext<H>,
    closed: watch::Receiver<ServerPhase>,
) -> ConnectionPhase {
    match protocol {
        Protocol::Http1 => http1::requests(stream, Bytes::new(), context, closed),
        Protocol::Http2 => ConnectionPhase::new(async { http2::serve(stream, context, closed).await.map(|()| None) }),
    }
}

/// Start of the HTTP/2 preface; no HTTP/1 method starts like this.
const PREFACE: [u8; 4] = *b"PRI ";

/// Peeks at the first bytes. Returns `None` if the client disconnects or sends nothing in time, or if the server shuts
/// down.
async fn detect(stream: &TcpStream, closed: &mut watch::Receiver<ServerPhase>) -> Option<Protocol> {
    let looking = async {
        let mut pause = PEEK_PAUSE;
        let mut start = [0; PREFACE.len()];
        loop {
            let count = stream.peek(&mut start).await.ok()?;
            match &start[..count] {
                [] => return None,
                start if start == PREFACE => return Some(Protocol::Http2),
                start if !PREFACE.starts_with(start) => return Some(Protocol::Http1),
                // Too few bytes to decide. Another peek would return the same bytes at once, so sleep: a client that
                // sends no more must not keep the task busy.
                _ => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PEEK_PAUSE_MAX);
                }
            }
        }
    };
    tokio::select! {
        protocol = tokio::time::timeout(limits::HEAD_TIMEOUT, looking) => protocol.ok().flatten(),
        () = has_left(closed) => None,
    }
}

/// Pause before another peek at an incomplete preface: doubled each time, up to `PEEK_PAUSE_MAX`.
const PEEK_PAUSE: Duration = Duration::from_millis(5);
const PEEK_PAUSE_MAX: Duration = Duration::from_secs(1);
