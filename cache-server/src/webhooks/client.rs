//! Connections to one webhook.
//!
//! INVARIANT: an answer is read up to [`WEBHOOK_ANSWER_BYTES_MAX`] and within the time that the webhook has; redirects are not
//! followed. INVARIANT: a caller that leaves ends its call.

use std::{error::Error, io, sync::OnceLock, time::Duration};

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use informer_core::text::Chain;
use informer_serving::go::quote;
use object_rules::{
    limits::{WEBHOOK_ANSWER_BYTES_MAX, WEBHOOK_IDLE_CONNECTIONS_MAX},
    webhooks::{AdmissionWebhook, WebhookAddress},
};
use tokio::time::timeout;

use super::trust;

type HttpsClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A client of one webhook. Connects with its first call.
pub(crate) struct WebhookClient {
    url: String,
    /// The Service that stands for the URL.
    service: Option<String>,
    time: Duration,
    /// Certificates of the authorities that it trusts, in PEM; empty for those of the system.
    authorities: Vec<u8>,
    client: OnceLock<Result<HttpsClient, String>>,
}

impl WebhookClient {
    pub(super) fn new(webhook: &AdmissionWebhook) -> Self {
        let time = Duration::from_secs(webhook.timeout_seconds);
        let mut client = Self::at(&webhook.address, &webhook.authorities, time);
        client.url.push_str(&format!("?timeout={}s", webhook.timeout_seconds));
        client
    }

    /// A client of the webhook at an address, whose answers may take `time`.
    pub(crate) fn at(address: &WebhookAddress, authorities: &[u8], time: Duration) -> Self {
        let (url, service) = match address {
            WebhookAddress::Url(url) => (url.clone(), None),
            WebhookAddress::Service(name, url) => (url.clone(), Some(name.clone())),
        };
        Self { url, service, time, authorities: authorities.to_vec(), client: OnceLock::new() }
    }

    /// Sends a question and returns the answer.
    ///
    /// # Errors
    /// The reason, in the words of kube-apiserver's client.
    pub(crate) async fn post(&self, question: Vec<u8>) -> Result<Bytes, String> {
        let failed = |reason: &str| format!("Post {}: {reason}", quote(&self.url));
        // There is no cluster whose addresses a Service has.
        if let Some(service) = &self.service {
            return Err(failed(&format!("service {} not found", quote(service))));
        }
        let exchange = async {
            self.exchange(question).await.map_err(|error| match error {
                ExchangeError::Transport(reason) => failed(&reason),
                ExchangeError::Answer(reason) => reason,
            })
        };
        timeout(self.time, exchange).await.unwrap_or_else(|_| Err(failed("context deadline exceeded")))
    }

    async fn exchange(&self, question: Vec<u8>) -> Result<Bytes, ExchangeError> {
        let transport = |reason: String| ExchangeError::Transport(reason);
        let client = self
            .client
            .get_or_init(|| client(&self.authorities))
            .as_ref()
            .map_err(|reason| transport(reason.clone()))?;
        let uri: Uri = self.url.parse().map_err(|error| transport(format!("{error}")))?;
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        let request = Request::post(uri)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(Full::from(question));
        let request = request.map_err(|error| transport(error.to_string()))?;
        let answer = client.request(request).await.map_err(|error| transport(shown(&error, &authority)))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, WEBHOOK_ANSWER_BYTES_MAX).collect().await.map_err(|error| {
            let is_long = error.is::<LengthLimitError>();
            let long = || format!("the answer is longer than {WEBHOOK_ANSWER_BYTES_MAX} bytes");
            transport(if is_long { long() } else { Chain(&*error).to_string() })
        })?;
        let body = body.to_bytes();
        if head.status.is_success() { Ok(body) } else { Err(ExchangeError::Answer(refused(head.status, &body))) }
    }
}

/// Why there is no answer.
enum ExchangeError {
    /// The connection, or an end of the answer that did not come.
    Transport(String),
    /// The code of the answer.
    Answer(String),
}

/// Bytes of an answer that a message repeats.
const SHOWN_BYTES_MAX: usize = 2_048;

/// The message of kube-apiserver's client for a code.
fn refused(code: StatusCode, body: &[u8]) -> String {
    match code.as_u16() {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        415 => "the body of the request was in an unknown format - accepted media types include: ".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned()
        }
        500.. => {
            let text = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES_MAX)]);
            format!("an error on the server ({}) has prevented the request from succeeding", quote(text.trim()))
        }
        code => format!("the server responded with the status code {code} but did not return more details"),
    }
}

/// The message of Go's client for an error, where it has one.
fn shown(error: &hyper_util::client::legacy::Error, authority: &str) -> String {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return format!("tls: failed to verify certificate: x509: {error}");
        }
        let io = error.downcast_ref::<io::Error>();
        if io.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            return format!("dial tcp {authority}: connect: connection refused");
        }
        // Its source is that of the error in it.
        next = match io.and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    Chain(error).to_string()
}

fn client(authorities: &[u8]) -> Result<HttpsClient, String> {
    let builder = HttpsConnectorBuilder::new();
    let https = if authorities.is_empty() {
        builder.with_native_roots().map_err(|error| error.to_string())?
    } else {
        builder.with_tls_config(trust::by_bundle(authorities)?)
    };
    let client = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(WEBHOOK_IDLE_CONNECTIONS_MAX)
        .build(https.https_only().enable_http1().build());
    Ok(client)
}
