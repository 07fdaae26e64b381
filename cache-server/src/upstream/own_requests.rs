//! Small requests of this server itself: to the API server with its own identity, and to issuers of tokens without any.
//!
//! INVARIANT: an answer is read up to a bound, and within a time.

use std::{path::Path, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, StatusCode, Uri, header, uri::Scheme};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use tokio::time::timeout;

use super::connect::{UpstreamError, authorities, client, is_loopback, parse_url, without_user};

/// Reason why a request has no answer, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OwnRequestError {
    /// No answer came, or it broke off.
    #[error("the request failed: {0}")]
    Failed(String),
    /// No complete answer came in time.
    #[error("no answer came in time")]
    Late,
    /// The answer is longer than its bound.
    #[error("the answer is too long")]
    TooLong,
}

/// Sends requests of this server itself.
pub(crate) trait SendOwn: Send + Sync {
    /// Sends `body` as JSON to a path, with a query if it needs one, and returns the answer of at most `bytes_max`.
    ///
    /// # Errors
    /// [`OwnRequestError`] if there is no complete answer within `wait`.
    fn send<'a>(
        &'a self,
        method: Method,
        path: &'a str,
        body: Bytes,
        bounds: AnswerBounds,
    ) -> BoxFuture<'a, Result<(StatusCode, Bytes), OwnRequestError>>;
}

/// Bounds of one answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerBounds {
    /// Bytes of its body.
    pub(crate) bytes_max: usize,
    /// Time until it is complete, with the connection.
    pub(crate) wait: Duration,
}

/// Clients of the addresses of one server, in order of preference.
#[derive(Clone)]
pub(crate) struct OwnRequests {
    clients: Vec<kube::Client>,
}

impl OwnRequests {
    /// `clients` have this server's own identity at the API server.
    pub(crate) const fn new(clients: Vec<kube::Client>) -> Self {
        Self { clients }
    }

    /// Sends without any identity to the server of `url`, whose path is not used. `ca_file` has its authorities; `None`:
    /// those of the operating system.
    ///
    /// # Errors
    /// [`UpstreamError`] if the URL or the file cannot be used. Plain HTTP is used on loopback only: an attacker on the way
    /// could replace the keys.
    pub(crate) fn anonymous(url: &str, ca_file: Option<&Path>) -> Result<Self, UpstreamError> {
        let parsed = parse_url(url)?;
        if parsed.scheme() == Some(&Scheme::HTTP) && !is_loopback(&parsed) {
            let problem = "keys that verify tokens are fetched over https only";
            return Err(UpstreamError::Url { url: without_user(url), problem });
        }
        let mut root = parsed.into_parts();
        root.path_and_query = Some("/".parse().expect("a path"));
        let mut config = kube::Config::new(Uri::from_parts(root).expect("a URL with another path"));
        config.root_cert = ca_file.map(authorities).transpose()?;
        Ok(Self { clients: vec![client(config)?] })
    }

    /// Sends to the first address that answers.
    async fn sent(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        bytes_max: usize,
    ) -> Result<(StatusCode, Bytes), OwnRequestError> {
        let mut failure = OwnRequestError::Failed("there is no address".to_owned());
        for client in &self.clients {
            let request = Request::builder()
                .method(&method)
                .uri(path)
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::ACCEPT, "application/json")
                .body(Body::from(body.to_vec()))
                .map_err(|error| OwnRequestError::Failed(error.to_string()))?;
            match client.send(request).await {
                Ok(answer) => {
                    let (head, body) = answer.into_parts();
                    return match Limited::new(body, bytes_max).collect().await {
                        Ok(body) => Ok((head.status, body.to_bytes())),
                        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(OwnRequestError::TooLong),
                        Err(error) => Err(OwnRequestError::Failed(error.to_string())),
                    };
                }
                Err(error) => failure = OwnRequestError::Failed(super::connect::causes(&error)),
            }
        }
        Err(failure)
    }
}

impl SendOwn for OwnRequests {
    fn send<'a>(
        &'a self,
        method: Method,
        path: &'a str,
        body: Bytes,
        bounds: AnswerBounds,
    ) -> BoxFuture<'a, Result<(StatusCode, Bytes), OwnRequestError>> {
        Box::pin(async move {
            let sending = self.sent(method, path, body, bounds.bytes_max);
            timeout(bounds.wait, sending).await.map_err(|_| OwnRequestError::Late)?
        })
    }
}
