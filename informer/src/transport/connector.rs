//! Sockets of connections, and the layers that open them: TCP with keepalive below proxies and TLS.

use std::{io, time::Duration};

use http::Uri;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use tower::{BoxError, Service, ServiceExt as _, util::BoxCloneSyncService};

/// Opens a connection to the server's URL.
pub(crate) type Connector = BoxCloneSyncService<Uri, BoxedSocket, BoxError>;

/// A connection in the clear or over TLS, direct or through a proxy.
pub(crate) type BoxedSocket = Box<dyn ClientSocket>;

/// A byte stream that knows which protocol its peer chose.
pub(crate) trait ClientSocket: Read + Write + Connection + Send + Unpin {}

impl<S: Read + Write + Connection + Send + Unpin> ClientSocket for S {}

impl Connection for Box<dyn ClientSocket> {
    fn connected(&self) -> Connected {
        (**self).connected()
    }
}

/// A connector of any layer: TCP, a proxy's tunnel or TLS.
pub(crate) trait LayeredConnector:
    Service<Uri, Response: ClientSocket + 'static, Error: Into<BoxError>, Future: Send + 'static>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<C> LayeredConnector for C where
    C: Service<Uri, Response: ClientSocket + 'static, Error: Into<BoxError>, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// Time without bytes after which the kernel probes a connection. Cost: one packet.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);

/// Time between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Unanswered probes after which the kernel ends a connection: a host that vanished is noticed after
/// `KEEPALIVE_IDLE + KEEPALIVE_PROBES * KEEPALIVE_INTERVAL`, 45 s.
const KEEPALIVE_PROBES: u32 = 3;

/// Longest time that sent bytes may stay unacknowledged. Keepalive does not probe while some are.
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(45);

/// Opens TCP connections.
pub(crate) fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE_IDLE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX));
    tcp
}

/// Erases the type of a connector and bounds its time.
pub(crate) fn boxed(connector: impl LayeredConnector, time_max: Option<Duration>) -> Connector {
    BoxCloneSyncService::new(tower::service_fn(move |url: Uri| {
        let opening = connector.clone().oneshot(url);
        async move {
            let socket = match time_max {
                Some(time_max) => tokio::time::timeout(time_max, opening).await.map_err(|_| timed_out(time_max))?,
                None => opening.await,
            };
            Ok::<BoxedSocket, BoxError>(Box::new(socket.map_err(Into::<BoxError>::into)?))
        }
    }))
}

fn timed_out(time_max: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("not connected within {time_max:?}"))
}
