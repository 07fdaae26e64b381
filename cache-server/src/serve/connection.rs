//! One accepted connection: what is spoken on it, and by whom it is served.
//!
//! INVARIANT: what lasts as long as a connection is small: who it is, and the phase that it is in. A phase is boxed and
//! makes the next one, so that none pays for the size of another, and what a phase needs is given back when it is over.

use std::{net::IpAddr, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    net::TcpStream,
    sync::{OwnedSemaphorePermit, watch},
};

use super::{
    flood,
    handler::Handler,
    http1, http2,
    moving::{Moving, Socket},
};
use crate::{
    access::{Protocol, tls::Acceptor},
    app::App,
    limits,
};

/// One accepted connection.
pub(super) struct Connection {
    pub(super) app: Arc<App>,
    pub(super) tls: Option<Arc<Acceptor>>,
    /// The address that it came to.
    pub(super) bound: IpAddr,
    /// Changes when the server ends.
    pub(super) closed: watch::Receiver<()>,
    /// Held while the connection lives.
    pub(super) slot: OwnedSemaphorePermit,
}

/// What a connection does for a while; it ends with what comes next.
pub(super) struct Phase(pub(super) Pin<Box<dyn Future<Output = hyper::Result<Option<Self>>> + Send>>);

impl Phase {
    /// A phase that is over with `doing`.
    pub(super) fn new(doing: impl Future<Output = hyper::Result<Option<Self>>> + Send + 'static) -> Self {
        Self(Box::pin(doing))
    }
}

impl Connection {
    /// Serves it to its end. No `async fn`, which would keep room for what is given to it.
    pub(super) fn run(self, stream: TcpStream) -> impl Future<Output = ()> + Send {
        let Self { app, tls, bound, closed, slot } = self;
        let held = (app.metrics.connection(), slot);
        // Events are small and wanted at once.
        let _ = stream.set_nodelay(true);
        let handler = Handler { app, bound };
        let mut phase = match tls {
            Some(tls) => Phase::new(over_tls(stream, tls, handler, closed)),
            None => Phase::new(in_the_clear(stream, handler, closed)),
        };
        async move {
            loop {
                match phase.0.await {
                    Ok(Some(next)) => phase = next,
                    Ok(None) => break,
                    Err(error) => {
                        if !flood::note(&error) {
                            tracing::debug!(%error, "a connection ended early");
                        }
                        break;
                    }
                }
            }
            drop(held);
        }
    }
}

async fn in_the_clear(
    stream: TcpStream,
    handler: Handler,
    mut closed: watch::Receiver<()>,
) -> hyper::Result<Option<Phase>> {
    let protocol = tokio::select! {
        protocol = detect(&stream, &mut closed) => protocol,
        () = handler.app.crowd.outlasts() => None,
    };
    let patience = handler.app.config.socket_stuck;
    Ok(protocol.map(|protocol| speak(Moving::tcp(stream, patience), protocol, handler, closed)))
}

async fn over_tls(
    stream: TcpStream,
    tls: Arc<Acceptor>,
    handler: Handler,
    mut closed: watch::Receiver<()>,
) -> hyper::Result<Option<Phase>> {
    let patience = handler.app.config.socket_stuck;
    let accepted = tokio::select! {
        accepted = tls.accept(stream, |stream| Moving::tcp(stream, patience)) => accepted,
        _ = closed.changed() => return Ok(None),
        () = handler.app.crowd.outlasts() => return Ok(None),
    };
    match accepted {
        Ok((stream, protocol)) => Ok(Some(speak(stream, protocol, handler, closed))),
        Err(error) => {
            tracing::debug!(%error, "a handshake failed");
            Ok(None)
        }
    }
}

fn speak<S: Socket>(stream: S, protocol: Protocol, handler: Handler, closed: watch::Receiver<()>) -> Phase {
    match protocol {
        Protocol::Http1 => http1::requests(stream, Bytes::new(), handler, closed),
        Protocol::Http2 => Phase::new(async { http2::serve(stream, handler, closed).await.map(|()| None) }),
    }
}

/// What an HTTP/2 client says first; no HTTP/1 method starts like this.
const PREFACE: [u8; 4] = *b"PRI ";

/// Looks at the first bytes without taking them. `None` when the client leaves, says nothing in time, or we close.
async fn detect(stream: &TcpStream, closed: &mut watch::Receiver<()>) -> Option<Protocol> {
    let looking = async {
        let mut pause = PEEK_PAUSE;
        let mut start = [0; PREFACE.len()];
        loop {
            let count = stream.peek(&mut start).await.ok()?;
            match &start[..count] {
                [] => return None,
                start if start == PREFACE => return Some(Protocol::Http2),
                start if !PREFACE.starts_with(start) => return Some(Protocol::Http1),
                // Fewer bytes than it takes to tell: they come in pieces. Peeking again would not wait for more, and who
                // sends no more must not keep us busy.
                _ => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PEEK_PAUSE_MAX);
                }
            }
        }
    };
    tokio::select! {
        protocol = tokio::time::timeout(limits::HEAD_TIMEOUT, looking) => protocol.ok().flatten(),
        _ = closed.changed() => None,
    }
}

/// Pause before another look at a preface that came in pieces: doubled each time, up to the second.
const PEEK_PAUSE: Duration = Duration::from_millis(5);
const PEEK_PAUSE_MAX: Duration = Duration::from_secs(1);
