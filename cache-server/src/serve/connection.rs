//! One accepted connection: what is spoken on it, and by whom it is served.
//!
//! INVARIANT: what lasts as long as a connection is small. Each of its phases is boxed by itself, so that none pays for
//! the size of another one, and what a phase needs is given back before the next one begins.

use std::{net::IpAddr, sync::Arc, time::Duration};

use tokio::{
    net::TcpStream,
    sync::{OwnedSemaphorePermit, watch},
};

use super::{
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

impl Connection {
    /// Serves it to its end.
    pub(super) async fn run(self, stream: TcpStream) {
        let Self { app, tls, bound, closed, slot } = self;
        let _held = (app.metrics.connection(), slot);
        // Events are small and wanted at once.
        let _ = stream.set_nodelay(true);
        let handler = Handler { app, bound };
        match tls {
            Some(tls) => Box::pin(over_tls(stream, tls, handler, closed)).await,
            None => in_the_clear(stream, handler, closed).await,
        }
    }
}

async fn in_the_clear(stream: TcpStream, handler: Handler, mut closed: watch::Receiver<()>) {
    if let Some(protocol) = Box::pin(detect(&stream, &mut closed)).await {
        speak(Moving::tcp(stream), protocol, handler, closed).await;
    }
}

async fn over_tls(stream: TcpStream, tls: Arc<Acceptor>, handler: Handler, mut closed: watch::Receiver<()>) {
    let accepting = async {
        tokio::select! {
            accepted = tls.accept(stream, Moving::tcp) => Some(accepted),
            _ = closed.changed() => None,
        }
    };
    match Box::pin(accepting).await {
        Some(Ok((stream, protocol))) => speak(stream, protocol, handler, closed).await,
        Some(Err(error)) => tracing::debug!(%error, "a handshake failed"),
        None => {}
    }
}

async fn speak<S: Socket>(stream: S, protocol: Protocol, handler: Handler, closed: watch::Receiver<()>) {
    let ended = match protocol {
        Protocol::Http1 => Box::pin(http1::serve(stream, handler, closed)).await,
        Protocol::Http2 => Box::pin(http2::serve(stream, handler, closed)).await,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// What an HTTP/2 client says first; no HTTP/1 method starts like this.
const PREFACE: [u8; 4] = *b"PRI ";

/// Looks at the first bytes without taking them. `None` when the client leaves, says nothing in time, or we close.
async fn detect(stream: &TcpStream, closed: &mut watch::Receiver<()>) -> Option<Protocol> {
    let looking = async {
        let mut start = [0; PREFACE.len()];
        loop {
            let count = stream.peek(&mut start).await.ok()?;
            match &start[..count] {
                [] => return None,
                start if start == PREFACE => return Some(Protocol::Http2),
                start if !PREFACE.starts_with(start) => return Some(Protocol::Http1),
                // Fewer bytes than it takes to tell: they come in pieces. Peeking again would not wait for more.
                _ => tokio::time::sleep(PEEK_PAUSE).await,
            }
        }
    };
    tokio::select! {
        protocol = tokio::time::timeout(limits::HEAD_TIMEOUT, looking) => protocol.ok().flatten(),
        _ = closed.changed() => None,
    }
}

/// Pause before another look at a preface that came in pieces.
const PEEK_PAUSE: Duration = Duration::from_millis(5);
