//! A plain HTTP address in front of a cluster that sends one user's token with every request, like `kubectl proxy`: for
//! programs that use neither TLS nor tokens.
//!
//! INVARIANT: bodies pass in both directions as they arrive, without limits of the door.

use std::net::SocketAddr;

use http::{HeaderValue, Request, Response, header};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinSet};

use crate::{http::HEADERS_MAX, tls::Trust};

/// An open door. Closed with its connections when dropped.
pub struct Door {
    address: SocketAddr,
    _accepting: JoinSet<()>,
}

impl Door {
    /// Opens a door to the server at `server`. Its tasks belong to the caller's runtime.
    pub(super) async fn open(server: SocketAddr, trust: Trust, token: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut authorization = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        authorization.set_sensitive(true);
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                let (trust, authorization) = (trust.clone(), authorization.clone());
                let service = service_fn(move |request| pass(request, server, trust.clone(), authorization.clone()));
                let connection =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                // Its error is the client's to notice.
                connections.spawn(async move { drop(connection.await) });
            }
        });
        Self { address, _accepting: accepting }
    }

    /// Address for plain HTTP/1.1.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// URL for programs.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Sends one request on a connection of its own.
async fn pass(
    mut request: Request<Incoming>,
    server: SocketAddr,
    trust: Trust,
    authorization: HeaderValue,
) -> Result<Response<Incoming>, Box<dyn std::error::Error + Send + Sync>> {
    let stream = trust.connect(server, &["http/1.1"]).await?;
    let client = hyper::client::conn::http1::Builder::new().max_headers(HEADERS_MAX).handshake(TokioIo::new(stream));
    let (mut sender, connection) = client.await?;
    tokio::spawn(connection);
    request.headers_mut().insert(header::HOST, HeaderValue::from_str(&server.to_string())?);
    request.headers_mut().entry(header::AUTHORIZATION).or_insert(authorization);
    Ok(sender.send_request(request).await?)
}
