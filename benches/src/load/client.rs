//! A client connection cheap enough to run 10,000 beside the server: the head is parsed once, the body is passed on in
//! pieces from one buffer per thread, and only requested parts are decoded.
//!
//! INVARIANT: a body that ends is complete. A truncated body is a [`Failure`], never an end.

mod framing;
mod http1;
mod http2;
mod io;
mod tls;

use std::{
    future::poll_fn,
    net::{SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Uri};
use informer_core::wire::status::Status;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{net::TcpSocket, time::timeout};
use tokio_rustls::TlsConnector;

pub use self::tls::Trust;
use self::{http1::Http1, http2::Http2, io::Io};
use super::failure::{Failure, Kind};

/// Timeout of connecting, TLS handshake included.
pub const CONNECT_WAIT: Duration = Duration::from_secs(30);

/// Maximum bytes of an error body that are read for its message.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Media type JSON, which is requested unless a flag names another one.
pub const JSON: &str = "application/json";

/// Media type of Kubernetes' protobuf.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// HTTP version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Http {
    /// HTTP/1.1.
    #[default]
    One,
    /// HTTP/2 with prior knowledge: by ALPN over TLS, by its preface in cleartext.
    Two,
}

/// Settings of HTTP/2 connections and sockets. Each costs client memory only if the client reads slowly.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Bytes in flight on one stream. Default 4 MiB, as in Go's client.
    pub stream_window: u32,
    /// Bytes in flight on all streams of a connection. Default 64 MiB.
    pub connection_window: u32,
    /// Largest accepted frame. Default 16 KiB, as in Go's client.
    pub frame_bytes: u32,
    /// SO_RCVBUF. Default: the kernel's autotuning.
    pub receive_bytes: Option<u32>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self { stream_window: 4 << 20, connection_window: 64 << 20, frame_bytes: 16 << 10, receive_bytes: None }
    }
}

/// A server and the settings of connections to it. Made once, shared by all connections.
#[derive(Clone)]
pub struct Target {
    url: String,
    authority: String,
    address: SocketAddr,
    http: Http,
    buffers: Buffers,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    token: Option<Arc<str>>,
}

/// Inputs of [`Target::new`].
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// `http://HOST[:PORT]` or `https://HOST[:PORT]`.
    pub server: String,
    /// HTTP version.
    pub http: Http,
    /// Trust in the server's certificate; required for HTTPS.
    pub trust: Option<Trust>,
    /// PEM files of the client's certificate chain and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// A bearer token.
    pub token: Option<String>,
    /// Windows and socket buffers.
    pub buffers: Buffers,
}

impl Target {
    /// Reads the files and resolves the host.
    ///
    /// # Errors
    /// One line that names the unusable setting.
    pub fn new(access: &Access) -> Result<Self, String> {
        let server = &access.server;
        let bad = || format!("{server} is no server; for example http://127.0.0.1:8001");
        let uri: Uri = server.parse().map_err(|_| bad())?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(bad()),
        };
        let host = uri.host().filter(|host| !host.is_empty() && uri.path() == "/" && uri.query().is_none());
        let host = host.ok_or_else(bad)?;
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let plain = host.trim_start_matches('[').trim_end_matches(']');
        let found = (plain, port).to_socket_addrs().map_err(|error| format!("cannot look up {host}: {error}"))?;
        // Prefer IPv4: servers on this machine listen there.
        let mut found: Vec<SocketAddr> = found.collect();
        found.sort_by_key(SocketAddr::is_ipv6);
        let address = *found.first().ok_or_else(|| format!("{host} has no address"))?;
        let tls = if tls {
            let name = ServerName::try_from(plain.to_owned()).map_err(|_| bad())?;
            Some((tls::connector(access)?, name))
        } else if access.trust.is_some() || access.certificate.is_some() {
            return Err("--ca, --insecure and --client-cert need an https:// server".to_owned());
        } else {
            None
        };
        let token = access.token.as_deref().map(Arc::from);
        let (http, buffers) = (access.http, access.buffers);
        Ok(Self { url: server.clone(), authority: format!("{host}:{port}"), address, http, buffers, tls, token })
    }

    /// The server's URL as given.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The resolved address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The HTTP version.
    #[must_use]
    pub const fn http(&self) -> Http {
        self.http
    }

    /// True if connections use TLS.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Settings of TLS and the server's name; `None` without TLS, and over HTTP/1.1.
    pub(crate) fn tls(&self) -> Option<(Arc<ClientConfig>, ServerName<'static>)> {
        let (connector, name) = self.tls.as_ref().filter(|_| self.http == Http::Two)?;
        Some((Arc::clone(connector.config()), name.clone()))
    }

    /// Host and port, as in the requests.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// The bearer token.
    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The server with another bearer token.
    pub(crate) fn with_token(self, token: Option<&str>) -> Self {
        Self { token: token.map(Arc::from), ..self }
    }

    /// Lets connections resume TLS sessions with the tickets that earlier ones got, each of which is used once.
    #[must_use]
    pub fn with_tickets(self) -> Self {
        Self { tls: self.tls.map(|(connector, name)| (tls::with_tickets(&connector), name)), ..self }
    }

    /// Makes a new connection, ready for a request, within [`CONNECT_WAIT`].
    ///
    /// # Errors
    /// [`Kind::Connect`] or [`Kind::Tls`].
    pub async fn connect(&self) -> Result<Connection, Failure> {
        let wire = timeout(CONNECT_WAIT, self.wire()).await;
        let wire = wire.map_err(|_| Failure::new(Kind::Connect, format!("none within {CONNECT_WAIT:?}")))??;
        Ok(Connection { wire, authority: self.authority.as_str().into(), token: self.token.clone() })
    }

    async fn wire(&self) -> Result<Wire, Failure> {
        let failed = |error: std::io::Error| Failure::new(Kind::Connect, error);
        let socket = if self.address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let socket = socket.map_err(failed)?;
        if let Some(bytes) = self.buffers.receive_bytes {
            // Set before connecting, because the SYN already announces the window scale.
            socket.set_recv_buffer_size(bytes).map_err(failed)?;
        }
        let stream = socket.connect(self.address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let io = match &self.tls {
            None => Io::Plain(stream),
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await;
                let stream = stream.map_err(|error| Failure::new(Kind::Tls, error))?;
                if self.http == Http::Two && stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                    return Err(Failure::new(Kind::Tls, "the server does not speak HTTP/2"));
                }
                Io::Tls(Box::new(stream))
            }
        };
        match self.http {
            Http::One => Ok(Wire::One(Box::new(Http1::new(io)))),
            Http::Two => Ok(Wire::Two(Http2::new(io, &self.buffers, self.is_tls()).await?)),
        }
    }
}

/// A request.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// Its method.
    pub method: Method,
    /// Path and query, escaped.
    pub path: &'a str,
    /// The Accept header.
    pub accept: &'a str,
    /// True to accept a gzip response.
    pub gzip: bool,
    /// Media type and content of the body.
    pub body: Option<(&'a str, Bytes)>,
}

impl<'a> Ask<'a> {
    /// A GET of `path` as JSON.
    #[must_use]
    pub const fn get(path: &'a str) -> Self {
        Self { method: Method::GET, path, accept: JSON, gzip: false, body: None }
    }
}

/// The parsed response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// True if the body is compressed with gzip.
    pub gzip: bool,
}

/// A connection, or a handle to a shared one that uses one stream after the other. One response at a time.
pub struct Connection {
    wire: Wire,
    authority: Arc<str>,
    token: Option<Arc<str>>,
}

enum Wire {
    One(Box<Http1>),
    Two(Http2),
}

impl Connection {
    /// Another handle to the same HTTP/2 connection; `None` over HTTP/1.1.
    #[must_use]
    pub fn another(&self) -> Option<Self> {
        let Wire::Two(wire) = &self.wire else { return None };
        let wire = Wire::Two(wire.another());
        Some(Self { wire, authority: Arc::clone(&self.authority), token: self.token.clone() })
    }

    /// Sends a request and waits for the response head, whatever its status. Does not drain an earlier response: read
    /// each body to its end first, or drop the connection.
    ///
    /// # Errors
    /// [`Kind::Reset`] or [`Kind::Protocol`]; over HTTP/1.1 [`Kind::Client`] if the last response was not read to its
    /// end.
    pub async fn send(&mut self, ask: &Ask<'_>) -> Result<Head, Failure> {
        let Self { wire, authority, token } = self;
        match wire {
            Wire::One(wire) => wire.send(ask, authority, token.as_deref()).await,
            Wire::Two(wire) => wire.send(ask, authority, token.as_deref()).await,
        }
    }

    /// Like [`send`](Self::send), but fails for every status other than 2xx.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), and [`Kind::Status`].
    pub async fn send_well(&mut self, ask: &Ask<'_>) -> Result<Head, Failure> {
        let head = self.send(ask).await?;
        if (200..300).contains(&head.status) {
            return Ok(head);
        }
        let body = self.collect(REFUSAL_BYTES_MAX).await.unwrap_or_default();
        let message = Status::read(&body).map(|status| status.message).unwrap_or_default();
        Err(Failure::new(Kind::Status(head.status), message))
    }

    /// Passes the next bytes of the body to `take`, without framing, in one or several pieces; over HTTP/1.1 hardly
    /// more than `max`. Returns false once the body has ended and another request can be sent. `take` must not read
    /// from connections, because they share one buffer per thread.
    ///
    /// # Errors
    /// [`Kind::Reset`], [`Kind::Short`] or [`Kind::Protocol`].
    pub fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
        take: &mut impl FnMut(&[u8]),
    ) -> Poll<Result<bool, Failure>> {
        match &mut self.wire {
            Wire::One(wire) => wire.poll_bytes(cx, max, take),
            Wire::Two(wire) => wire.poll_bytes(cx, take),
        }
    }

    /// [`poll_bytes`](Self::poll_bytes) as a future. Cancel safe.
    ///
    /// # Errors
    /// Those of [`poll_bytes`](Self::poll_bytes).
    pub async fn bytes(&mut self, max: usize, mut take: impl FnMut(&[u8])) -> Result<bool, Failure> {
        poll_fn(|cx| self.poll_bytes(cx, max, &mut take)).await
    }

    /// Returns the whole body, of at most `max` bytes.
    ///
    /// # Errors
    /// Those of [`poll_bytes`](Self::poll_bytes), and [`Kind::Protocol`] if the body is larger.
    pub async fn collect(&mut self, max: usize) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        while self.bytes(usize::MAX, |piece| body.extend_from_slice(piece)).await? {
            if body.len() > max {
                return Err(Failure::new(Kind::Protocol, format!("a body of more than {max} bytes")));
            }
        }
        Ok(body)
    }
}
