//! Connections to one webhook.
//!
//! INVARIANT: an answer is read up to the caller's bound and within the time that the webhook has, and beyond
//! [`WEBHOOK_SHORT_ANSWER_BYTES_MAX`] only with a permit; redirects are not followed. INVARIANT: a caller that leaves
//! ends its call.

use std::{error::Error, io, sync::OnceLock, time::Duration};

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use informer_core::text::Chain;
use informer_serving::go::quote;
use object_rules::{
    limits::WEBHOOK_IDLE_CONNECTIONS_MAX,
    webhooks::{
        AdmissionWebhook, WebhookAddress,
        answer::{CallFailure, CallFailureCause},
    },
};
use rustls::crypto::ring;
use tokio::{sync::OwnedSemaphorePermit, time::timeout};

use super::trust;
use crate::{budget::Work, limits::WEBHOOK_SHORT_ANSWER_BYTES_MAX};

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

    /// Sends a question and returns the answer, of at most `bytes_max`. With `work`, a long one needs a permit.
    ///
    /// # Errors
    /// The reason, in the words of kube-apiserver's client.
    pub(crate) async fn post(
        &self,
        question: Vec<u8>,
        bytes_max: usize,
        work: Option<&Work>,
    ) -> Result<WebhookAnswer, CallFailure> {
        let transport = |(cause, reason): (CallFailureCause, String)| {
            let reason = format!("Post {}: {reason}", quote(&self.url));
            CallFailure { cause, reason }
        };
        // There is no cluster whose addresses a Service has.
        if let Some(service) = &self.service {
            let unknown = format!("service {} not found", quote(service));
            return Err(transport((CallFailureCause::Connection, unknown)));
        }
        let exchange = async {
            let (code, answer) = self.exchange(question, bytes_max, work).await.map_err(transport)?;
            if code.is_success() { Ok(answer) } else { Err(CallFailure::of_code(code.as_u16(), &answer.bytes)) }
        };
        let late = |_| Err(transport((CallFailureCause::Timeout, "context deadline exceeded".to_owned())));
        timeout(self.time, exchange).await.unwrap_or_else(late)
    }

    async fn exchange(
        &self,
        question: Vec<u8>,
        bytes_max: usize,
        work: Option<&Work>,
    ) -> Result<(StatusCode, WebhookAnswer), (CallFailureCause, String)> {
        let failed = |reason: String| (CallFailureCause::Connection, reason);
        let client = self.client.get_or_init(|| client(&self.authorities));
        let client = client.as_ref().map_err(|reason| failed(reason.clone()))?;
        let uri: Uri = self.url.parse().map_err(|error| failed(format!("{error}")))?;
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        let request = Request::post(uri)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(Full::from(question));
        let request = request.map_err(|error| failed(error.to_string()))?;
        let answer = client.request(request).await.map_err(|error| shown(&error, &authority))?;
        let (head, mut body) = answer.into_parts();
        let mut answer = WebhookAnswer { bytes: Vec::new(), room: None };
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| failed(Chain(&error).to_string()))?;
            let Ok(data) = frame.into_data() else { continue };
            let len = answer.bytes.len() + data.len();
            if bytes_max < len {
                return Err((CallFailureCause::Unreadable, format!("the answer is longer than {bytes_max} bytes")));
            }
            if let (Some(work), true, None) = (work, WEBHOOK_SHORT_ANSWER_BYTES_MAX < len, &answer.room) {
                answer.room = Some(work.long_answer().await);
                answer.bytes.reserve_exact(bytes_max - answer.bytes.len());
            }
            answer.bytes.extend_from_slice(&data);
        }
        Ok((head.status, answer))
    }
}

/// The answer of a webhook.
pub(crate) struct WebhookAnswer {
    pub(crate) bytes: Vec<u8>,
    /// The permit of a long one.
    room: Option<OwnedSemaphorePermit>,
}

/// The message of Go's client for an error, where it has one.
fn shown(error: &hyper_util::client::legacy::Error, authority: &str) -> (CallFailureCause, String) {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return (CallFailureCause::Connection, format!("tls: failed to verify certificate: x509: {error}"));
        }
        let io = error.downcast_ref::<io::Error>();
        if io.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            return (CallFailureCause::Refused, format!("dial tcp {authority}: connect: connection refused"));
        }
        // Its source is that of the error in it.
        next = match io.and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    (CallFailureCause::Connection, Chain(error).to_string())
}

fn client(authorities: &[u8]) -> Result<HttpsClient, String> {
    let builder = HttpsConnectorBuilder::new();
    let https = if authorities.is_empty() {
        builder.with_provider_and_native_roots(ring::default_provider()).map_err(|error| error.to_string())?
    } else {
        builder.with_tls_config(trust::by_bundle(authorities)?)
    };
    let client = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(WEBHOOK_IDLE_CONNECTIONS_MAX)
        .build(https.https_only().enable_http1().build());
    Ok(client)
}
