//! HTTP client of `populate` and `churn` for a running server.
//!
//! INVARIANT: the server sees a request at most once: it is resent on a fresh connection only if hyper returns it
//! unsent.

pub mod populate;

use std::{error::Error, fmt, str::FromStr, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, Uri, header, uri::Scheme};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use informer_serving::status::{Reason, Status};
use tokio::{net::TcpStream, time::timeout};

use crate::limits::{CLIENT_ANSWER_BYTES_MAX, CLIENT_ANSWER_WAIT, CLIENT_CONNECT_WAIT, CLIENT_MESSAGE_CHARS_MAX};

/// Content type of created objects.
pub const JSON: &str = "application/json";

/// Content type of a JSON merge patch.
pub const MERGE_PATCH: &str = "application/merge-patch+json";

/// Address of a server. Text form: `http://HOST:PORT`; the port defaults to 80.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    /// `HOST:PORT`, for sockets and the Host header.
    authority: String,
}

/// Reason why a URL cannot be used: one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Not a URL with a host.
    #[error("not a URL; for example http://127.0.0.1:8001")]
    NotAUrl,
    /// The scheme is missing or not `http`.
    #[error("only http:// URLs work; for example http://127.0.0.1:8001")]
    Scheme,
    /// The URL has a user, a path, a query or a fragment.
    #[error("only a host and a port may follow http://; for example http://127.0.0.1:8001")]
    TooMuch,
}

impl FromStr for ServerUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(UrlError::Scheme);
        }
        let uri: Uri = format!("http://{rest}").parse().map_err(|_| UrlError::NotAUrl)?;
        debug_assert_eq!(uri.scheme(), Some(&Scheme::HTTP));
        let authority = uri.authority().filter(|authority| !authority.host().is_empty()).ok_or(UrlError::NotAUrl)?;
        if authority.as_str().contains('@') || uri.path() != "/" || uri.query().is_some() || rest.contains('#') {
            return Err(UrlError::TooMuch);
        }
        let (host, port) = (authority.host(), authority.port_u16());
        // There is a port, but not a valid one, such as 99999.
        if port.is_none() && authority.as_str() != host {
            return Err(UrlError::NotAUrl);
        }
        Ok(Self { authority: format!("{host}:{}", port.unwrap_or(80)) })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

/// Reason for a failed request: one line.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection could not be made.
    #[error("cannot reach {server}: {reason}")]
    Unreachable {
        /// The server's address.
        server: ServerUrl,
        /// The system's error.
        reason: String,
    },
    /// The connection broke, or the response is not HTTP.
    #[error("the connection to {server} broke: {reason}")]
    Broken {
        /// The server's address.
        server: ServerUrl,
        /// The transport's error.
        reason: String,
    },
    /// No complete response in time.
    #[error("no answer within {} s", wait.as_secs())]
    Silent {
        /// The time waited.
        wait: Duration,
    },
    /// A response other than 2xx.
    #[error("{message}")]
    Refused {
        /// Status code.
        code: u16,
        /// The reason of the Status, if the body is one.
        reason: Option<Reason>,
        /// The message of the Status, or else a text with the status code.
        message: String,
    },
    /// A 2xx response whose body is not what the request asked for.
    #[error("the server answered something else than was asked for")]
    Unreadable,
}

impl ClientError {
    /// True if an object of that name exists already.
    pub fn already_exists(&self) -> bool {
        matches!(self, Self::Refused { reason: Some(Reason::AlreadyExists), .. })
    }

    /// True if the object does not exist.
    pub const fn not_found(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. })
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Its method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// The body's type; not sent with an empty body.
    pub content_type: &'static str,
    /// The body.
    pub body: Bytes,
}

impl Ask {
    /// A GET of `path`.
    pub const fn get(path: String) -> Self {
        Self { method: Method::GET, path, content_type: JSON, body: Bytes::new() }
    }

    /// A POST that creates `body` in the collection at `path`.
    pub fn post(path: String, body: impl Into<Bytes>) -> Self {
        Self { method: Method::POST, path, content_type: JSON, body: body.into() }
    }

    /// A PATCH that merges `body` into the object at `path`.
    pub fn merge(path: String, body: impl Into<Bytes>) -> Self {
        Self { method: Method::PATCH, path, content_type: MERGE_PATCH, body: body.into() }
    }

    /// A DELETE of the object at `path`.
    pub const fn delete(path: String) -> Self {
        Self { method: Method::DELETE, path, content_type: JSON, body: Bytes::new() }
    }
}

/// A keep-alive HTTP/1.1 connection for one request at a time. Connects on first use and reconnects after the server
/// closed it.
pub struct Connection {
    server: ServerUrl,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Connection {
    /// Does not connect yet.
    pub const fn new(server: ServerUrl) -> Self {
        Self { server, sender: None }
    }

    /// Sends `ask` and returns the body of a 2xx response.
    ///
    /// # Errors
    /// [`ClientError`]. The connection can be used again.
    pub async fn send(&mut self, ask: &Ask) -> Result<Bytes, ClientError> {
        let wait = CLIENT_ANSWER_WAIT;
        match timeout(wait, self.exchange(ask)).await {
            Ok(answer) => answer,
            Err(_) => {
                // Drop the connection: a late response must not be taken for the next response.
                self.sender = None;
                Err(ClientError::Silent { wait })
            }
        }
    }

    async fn exchange(&mut self, ask: &Ask) -> Result<Bytes, ClientError> {
        let answer = self.answer(ask).await?;
        let code = answer.status();
        let body = Limited::new(answer.into_body(), CLIENT_ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| self.broken(&*error))?.to_bytes();
        if code.is_success() {
            return Ok(body);
        }
        let status = Status::read(&body);
        let message = match &status {
            Some(status) if !status.message.is_empty() => one_line(&status.message),
            _ => format!("the server answered {code}"),
        };
        Err(ClientError::Refused { code: code.as_u16(), reason: status.map(|status| status.reason), message })
    }

    /// Returns the head of the response. Uses a fresh connection if the server closed the last one meanwhile.
    async fn answer(&mut self, ask: &Ask) -> Result<Response<Incoming>, ClientError> {
        let mut request = self.request(ask)?;
        if let Some(mut sender) = self.sender.take()
            && sender.ready().await.is_ok()
        {
            match sender.try_send_request(request).await {
                Ok(answer) => {
                    self.sender = Some(sender);
                    return Ok(answer);
                }
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(self.broken(failed.error())),
                },
            }
        }
        let mut sender = self.connect().await?;
        let answer = sender.send_request(request).await.map_err(|error| self.broken(&error))?;
        self.sender = Some(sender);
        Ok(answer)
    }

    fn request(&self, ask: &Ask) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::builder().method(&ask.method).uri(&ask.path);
        request = request.header(header::HOST, &self.server.authority).header(header::ACCEPT, JSON);
        if !ask.body.is_empty() {
            request = request.header(header::CONTENT_TYPE, ask.content_type);
        }
        request.body(Full::new(ask.body.clone())).map_err(|error| self.broken(&error))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, ClientError> {
        let unreachable = |reason: String| ClientError::Unreachable { server: self.server.clone(), reason };
        let stream = match timeout(CLIENT_CONNECT_WAIT, TcpStream::connect(&self.server.authority)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(unreachable(cause(&error))),
            Err(_) => return Err(unreachable(format!("no answer within {} s", CLIENT_CONNECT_WAIT.as_secs()))),
        };
        // Small requests must not wait for Nagle's algorithm.
        let _ = stream.set_nodelay(true);
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(cause(&error)))?;
        // Ends when the sender is dropped; the sender reports its errors too.
        tokio::spawn(connection);
        Ok(sender)
    }

    fn broken(&self, error: &(dyn Error + 'static)) -> ClientError {
        ClientError::Broken { server: self.server.clone(), reason: cause(error) }
    }
}

/// The path of a collection, in one namespace or, with an empty `namespace`, of a cluster-scoped type.
pub fn collection(group: &str, version: &str, plural: &str, namespace: &str) -> String {
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    if namespace.is_empty() { format!("{root}/{plural}") } else { format!("{root}/namespaces/{namespace}/{plural}") }
}

/// The innermost error's text, without the OS error number.
fn cause(error: &(dyn Error + 'static)) -> String {
    let mut bottom = error;
    while let Some(next) = bottom.source() {
        bottom = next;
    }
    let text = bottom.to_string();
    let words = text.split_once(" (os error").map_or(text.as_str(), |(words, _)| words);
    one_line(words)
}

fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(CLIENT_MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_host_and_perhaps_a_port() {
        for (text, expected) in [
            ("http://127.0.0.1:8001", "http://127.0.0.1:8001"),
            ("http://127.0.0.1:8001/", "http://127.0.0.1:8001"),
            ("HTTP://localhost", "http://localhost:80"),
            ("http://[::1]:8001", "http://[::1]:8001"),
        ] {
            assert_eq!(text.parse::<ServerUrl>().map(|url| url.to_string()), Ok(expected.to_owned()), "{text}");
        }
        for (text, expected) in [
            ("", UrlError::Scheme),
            ("127.0.0.1:8001", UrlError::Scheme),
            ("https://127.0.0.1:8001", UrlError::Scheme),
            ("http://", UrlError::NotAUrl),
            ("http://:8001", UrlError::NotAUrl),
            ("http://a b", UrlError::NotAUrl),
            ("http://127.0.0.1:99999", UrlError::NotAUrl),
            ("http://127.0.0.1:port", UrlError::NotAUrl),
            ("http://127.0.0.1:8001/api", UrlError::TooMuch),
            ("http://127.0.0.1:8001?a=b", UrlError::TooMuch),
            ("http://127.0.0.1:8001/#a", UrlError::TooMuch),
            ("http://me:secret@127.0.0.1:8001", UrlError::TooMuch),
        ] {
            assert_eq!(text.parse::<ServerUrl>(), Err(expected), "{text}");
        }
    }

    #[test]
    fn collections_have_their_paths() {
        assert_eq!(collection("", "v1", "nodes", ""), "/api/v1/nodes");
        assert_eq!(collection("", "v1", "pods", "a"), "/api/v1/namespaces/a/pods");
        assert_eq!(collection("apps", "v1", "deployments", "a"), "/apis/apps/v1/namespaces/a/deployments");
    }
}
