//! Opens connections to one address: TCP, then TLS without a client certificate.
//!
//! INVARIANT: a body that no caller takes is read piece by piece, and fills no more than the named buffers of the kernel.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::Uri;
use hyper_util::{
    client::legacy::connect::{Connected, Connection, HttpConnector},
    rt::TokioIo,
};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tower::Service;

#[cfg(target_os = "linux")]
use crate::limits::SOCKET_UNSENT_BYTES;
use crate::limits::{
    SOCKET_SEND_BYTES, TLS_UNSENT_BYTES_MAX, UPSTREAM_CONNECT_WAIT, UPSTREAM_KEEPALIVE, UPSTREAM_KEEPALIVE_EVERY,
    UPSTREAM_KEEPALIVE_TRIES, UPSTREAM_READ_BYTES, UPSTREAM_RECEIVE_BYTES, UPSTREAM_STUCK,
};

/// Opens connections to one address.
#[derive(Clone)]
pub struct Dial {
    tcp: HttpConnector,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Dial {
    /// `tls` is the configuration and the name that the server's certificate must have; `None` is plain HTTP.
    pub(super) fn new(tls: Option<(Arc<ClientConfig>, ServerName<'static>)>) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // Shared by the addresses of a name, so that a dead one leaves time for the others.
        tcp.set_connect_timeout(Some(UPSTREAM_CONNECT_WAIT));
        tcp.set_keepalive(Some(UPSTREAM_KEEPALIVE));
        tcp.set_keepalive_interval(Some(UPSTREAM_KEEPALIVE_EVERY));
        tcp.set_keepalive_retries(Some(UPSTREAM_KEEPALIVE_TRIES));
        tcp.set_send_buffer_size(Some(SOCKET_SEND_BYTES as usize));
        tcp.set_recv_buffer_size(Some(UPSTREAM_RECEIVE_BYTES));
        Self { tcp, tls }
    }

    /// Connections fail if the upstream takes no byte for [`UPSTREAM_STUCK`]. Not for upgrades: a process may read its
    /// input as late as it wants.
    #[must_use]
    pub fn with_stall_limit(mut self) -> Self {
        #[cfg(target_os = "linux")]
        self.tcp.set_tcp_user_timeout(Some(UPSTREAM_STUCK));
        self
    }
}

impl Service<Uri> for Dial {
    type Response = TokioIo<DialedStream>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tcp.poll_ready(cx).map_err(io::Error::other)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, tls) = (self.tcp.call(uri), self.tls.clone());
        Box::pin(async move {
            let dialing = async {
                let stream = connecting.await.map_err(io::Error::other)?.into_inner();
                bound_unsent(&stream)?;
                let stream = match tls {
                    None => StreamKind::Plain(stream),
                    Some((config, name)) => {
                        let limited = |session: &mut rustls::ClientConnection| {
                            session.set_buffer_limit(Some(TLS_UNSENT_BYTES_MAX));
                        };
                        let stream = TlsConnector::from(config).connect_with(name, stream, limited).await?;
                        StreamKind::Tls(Box::new(stream))
                    }
                };
                Ok(TokioIo::new(DialedStream { stream, usage: ConnectionUse::default() }))
            };
            let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the connection takes too long");
            timeout(UPSTREAM_CONNECT_WAIT, dialing).await.map_err(late)?
        })
    }
}

/// Makes the socket count as full while the kernel holds many bytes that it has not sent.
fn bound_unsent(stream: &TcpStream) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(SOCKET_UNSENT_BYTES)?;
    #[cfg(not(target_os = "linux"))]
    let _ = stream;
    Ok(())
}

/// Remembers if a connection has carried a response. hyper copies it into every response and every error.
#[derive(Clone, Debug, Default)]
pub struct ConnectionUse(Arc<AtomicBool>);

impl ConnectionUse {
    pub fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True if the connection was reused, so that its end may have come before the request.
    pub fn is_reused(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A connection to the upstream.
pub struct DialedStream {
    stream: StreamKind,
    usage: ConnectionUse,
}

enum StreamKind {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection for DialedStream {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.usage.clone())
    }
}

/// Calls a method of whichever stream it is.
macro_rules! of_stream {
    ($this:expr, $stream:ident => $call:expr) => {
        match &mut $this.get_mut().stream {
            StreamKind::Plain(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            StreamKind::Tls(stream) => {
                let $stream = Pin::new(stream.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for DialedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        of_stream!(self, stream => Pin::new(&mut stream.take(UPSTREAM_READ_BYTES)).poll_read(cx, into))
    }
}

impl AsyncWrite for DialedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        of_stream!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        of_stream!(self, stream => stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            StreamKind::Plain(stream) => stream.is_write_vectored(),
            StreamKind::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_stream!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_stream!(self, stream => stream.poll_shutdown(cx))
    }
}
