//! HTTP/1.1 over TLS, one request at a time on each connection, as the informers of the incident spoke it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use measured::Failure;
use rustls::{ClientConfig, pki_types::ServerName};
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

use crate::identities::Identity;

/// Timeout of connecting, TLS included. A server under load accepts late.
const CONNECT_WAIT: Duration = Duration::from_secs(30);
/// hyper's read buffer of one connection.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// The server to connect to.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    tls: TlsConnector,
}

/// A connection of one user.
pub(crate) struct Wire {
    sender: SendRequest<Full<Bytes>>,
    user: Identity,
}

impl Target {
    pub(crate) fn new(address: SocketAddr, config: Arc<ClientConfig>) -> Self {
        Self { address, tls: TlsConnector::from(config) }
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self, user: Identity) -> Result<Wire, Failure> {
        timeout(CONNECT_WAIT, async {
            let stream = TcpStream::connect(self.address).await?;
            stream.set_nodelay(true)?;
            let stream = self.tls.connect(ServerName::IpAddress(self.address.ip().into()), stream).await?;
            let mut builder = http1::Builder::new();
            builder.max_buf_size(BUFFER_BYTES_MAX);
            let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            Ok(Wire { sender, user })
        })
        .await?
    }

    /// Sends one request on a new connection and returns the decoded body of a 2xx response.
    pub(crate) async fn call(
        &self,
        user: Identity,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Value, Failure> {
        let mut wire = self.connect(user).await?;
        let answer = wire.send(method, path, body).await?;
        let (code, body) = (answer.status(), answer.into_body().collect().await?.to_bytes());
        if !code.is_success() {
            return Err(format!("{path}: HTTP {code}: {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(serde_json::from_slice(&body)?)
    }
}

impl Wire {
    /// Sends a request. The previous response must have been read.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Response<Incoming>, Failure> {
        self.sender.ready().await?;
        let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::AUTHORIZATION, format!("Bearer {}", self.user.token))
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, content)
            .body(Full::new(body))?;
        Ok(self.sender.send_request(request).await?)
    }

    /// Sends a GET.
    pub(crate) async fn get(&mut self, path: &str) -> Result<Response<Incoming>, Failure> {
        self.send(Method::GET, path, &Value::Null).await
    }

    /// True unless the connection was closed.
    pub(crate) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }
}

/// Time after which a refused request may be repeated: `Retry-After`, which counts seconds.
pub(crate) fn retry_after(code: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    if code != StatusCode::TOO_MANY_REQUESTS && code != StatusCode::SERVICE_UNAVAILABLE {
        return None;
    }
    let seconds = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Some(Duration::from_secs(seconds.unwrap_or(1)))
}

/// Reads a body to its end and drops it, so that the connection can be used again.
pub(crate) async fn drain(mut body: Incoming) -> Result<(), Failure> {
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_repeated_after_the_servers_time() {
        let mut headers = HeaderMap::new();
        assert_eq!(retry_after(StatusCode::OK, &headers), None);
        assert_eq!(retry_after(StatusCode::TOO_MANY_REQUESTS, &headers), Some(Duration::from_secs(1)));
        headers.insert(header::RETRY_AFTER, http::HeaderValue::from_static("4"));
        assert_eq!(retry_after(StatusCode::TOO_MANY_REQUESTS, &headers), Some(Duration::from_secs(4)));
        assert_eq!(retry_after(StatusCode::NOT_FOUND, &headers), None);
    }
}
