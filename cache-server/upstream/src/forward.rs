//! Passes the requests of callers to the upstream API server unchanged, with their own credentials, or with this server's
//! own, which then name the caller as the user to act as.
//!
//! INVARIANT: no body is collected, except for documents that are kept: see `body` and `mirror`.
//! INVARIANT: a request that may have reached the upstream is sent again only if it is safe (RFC 9110, section 9.2.1), has
//! no body, and its connection had been used before.
//! INVARIANT: an answer that breaks off never looks complete.

mod body;
mod headers;
mod mirror;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use bytes::Bytes;
use http::{
    Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts, uri,
};
use http_body::Body;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, Error as ClientError},
    rt::{TokioExecutor, TokioTimer},
};
use informer_serving::status::{Details, Reason, Status, StatusExt as _};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

pub use self::body::{BrokenAnswer, ForwardedBody, UpstreamTunnel};
pub use self::headers::{credentials, user_headers};
use self::{
    body::{OutgoingBody, RequestBody},
    mirror::Mirror,
};
use super::{
    connect::{CallerAddress, ConnectionUse, Dial},
    identity::UpstreamIdentity,
    last_answer::LastAnswer,
};
use crate::limits::{
    UPSTREAM_ANSWER_BYTES_MAX, UPSTREAM_ASK_WAIT, UPSTREAM_HEAD_BYTES_MAX, UPSTREAM_HEADERS_MAX, UPSTREAM_IDLE_MAX,
    UPSTREAM_IDLE_WAIT, UPSTREAM_REQUESTS_MAX, UPSTREAM_RETRY_AFTER_SECONDS,
};

/// Passes requests of callers to the upstream. Shared as `Arc`.
pub struct Forwarder {
    /// At least one.
    endpoints: Vec<ForwardEndpoint>,
    /// Index of the endpoint that answered last. It is tried first.
    preferred: AtomicUsize,
    /// Permits for requests of callers.
    requests: Arc<Semaphore>,
    /// Documents that the upstream need not send again.
    mirror: Arc<Mirror>,
    /// True if the last request reached no endpoint.
    is_unreachable: AtomicBool,
    last_answer: Arc<LastAnswer>,
    /// Refuses addresses of other clusters; `None`: none is refused.
    identity: Option<Arc<UpstreamIdentity>>,
}

/// One address of the upstream with its connections.
struct ForwardEndpoint {
    address: CallerAddress,
    /// Keeps connections for later requests.
    pooled: Client<Dial, OutgoingBody>,
    /// Opens a connection for each request: for upgrades, and after a kept connection turned out to be closed.
    single: Client<Dial, OutgoingBody>,
}

/// The request and its caller, as the upstream is to know them.
pub struct RequestIdentity<'a> {
    /// Header by which the request is found in the logs of both servers, and its value.
    pub id: (HeaderName, &'a HeaderValue),
    /// Headers with this server's own identity and the user to act as, in place of the caller's credentials; `None`: the
    /// caller's own pass.
    pub user: Option<&'a HeaderMap>,
}

/// The head of a request as the upstream gets it, apart from the address.
struct ForwardedHead {
    method: Method,
    path_and_query: uri::PathAndQuery,
    headers: HeaderMap,
    /// The protocol to which the caller wants to change.
    upgrade: Option<HeaderValue>,
}

/// Reason why the upstream did not answer.
enum SendFailure {
    /// No endpoint accepted a connection. The upstream has seen nothing of the request.
    Unreachable,
    /// The connection ended before the answer. The upstream may have carried out the request.
    Broken,
}

impl Forwarder {
    /// `addresses` are tried in this order until one has answered. `last_answer` is shared with the caches' streams.
    ///
    /// # Panics
    /// If there is no address.
    pub fn new(addresses: Vec<CallerAddress>, last_answer: Arc<LastAnswer>) -> Self {
        let requests = Arc::new(Semaphore::new(UPSTREAM_REQUESTS_MAX));
        Self::sharing(addresses, requests, Arc::new(Mirror::new()), last_answer)
    }

    /// Makes a forwarder to other addresses of the same upstream, which shares the bounds and the documents.
    pub fn to(&self, addresses: Vec<CallerAddress>) -> Self {
        let (requests, mirror) = (Arc::clone(&self.requests), Arc::clone(&self.mirror));
        let forwarder = Self::sharing(addresses, requests, mirror, Arc::clone(&self.last_answer));
        Self { identity: self.identity.clone(), ..forwarder }
    }

    /// Sends nothing to addresses of other clusters.
    pub fn in_cluster(self, identity: Arc<UpstreamIdentity>) -> Self {
        Self { identity: Some(identity), ..self }
    }

    fn sharing(
        addresses: Vec<CallerAddress>,
        requests: Arc<Semaphore>,
        mirror: Arc<Mirror>,
        last_answer: Arc<LastAnswer>,
    ) -> Self {
        assert!(!addresses.is_empty(), "an upstream has an address");
        Self {
            endpoints: addresses.into_iter().map(ForwardEndpoint::new).collect(),
            preferred: AtomicUsize::new(0),
            requests,
            mirror,
            is_unreachable: AtomicBool::new(false),
            last_answer,
            identity: None,
        }
    }

    /// Passes a request through and returns the head of the answer, whose body follows as the caller reads it. Dropping
    /// the future or the body drops the request at the upstream.
    ///
    /// Method, path, query, headers and body stay as they are, except for: headers of one hop, Host, the headers of
    /// front proxies, trailers, If-None-Match of a request for a document that is kept, and what `identity` replaces. An
    /// upgrade (101) returns the upstream's side of the connection as its body.
    ///
    /// # Errors
    /// 503 with a delay if the upstream cannot be reached; 504 if it broke off without an answer and may have carried
    /// out the request; 429 beyond [`UPSTREAM_REQUESTS_MAX`]; 400 and 405 for requests that cannot be passed on.
    pub async fn forward<B>(
        &self,
        parts: &Parts,
        identity: RequestIdentity<'_>,
        body: B,
    ) -> Result<Response<ForwardedBody>, Status>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let body = RequestBody::new(body);
        let mut head = ForwardedHead::new(parts, identity, &body)?;
        let document = if body.is_empty() { self.mirror.request(parts, &mut head.headers) } else { None };
        let permit = Arc::clone(&self.requests).try_acquire_owned();
        let permit = permit.map_err(|_| Status::too_many_requests("too many requests wait for the upstream", 1))?;
        let response = self.send(&head, &body).await.map_err(|failure| failure.status(&head))?;
        match document {
            Some(request) => self.mirror.answer(request, response, permit).await,
            None => answer(response, head, permit).await,
        }
    }

    /// True if no request of a caller is on its way.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_idle(&self) -> bool {
        self.requests.available_permits() == UPSTREAM_REQUESTS_MAX
    }

    /// Asks the upstream a small question with the credentials of a caller. `path` may have a query.
    ///
    /// # Errors
    /// 503 with a delay if there is no answer within [`UPSTREAM_ASK_WAIT`], or a longer one than
    /// [`UPSTREAM_ANSWER_BYTES_MAX`].
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        credentials: &HeaderMap,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Status> {
        let path_and_query = path.parse().map_err(|_| Status::internal("a path of our own is invalid"))?;
        let mut headers = credentials.clone();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::ACCEPT, json.clone());
        headers.insert(header::CONTENT_TYPE, json);
        headers.insert(header::USER_AGENT, HeaderValue::from_static("cache-server"));
        let head = ForwardedHead { method, path_and_query, headers, upgrade: None };
        let asking = async {
            // A question changes nothing, so it may be asked again on a new connection.
            let answer = match self.question(&head, &body).await {
                Err(SendFailure::Broken) => self.question(&head, &body).await,
                other => other,
            };
            answer.map_err(|_| SendFailure::Unreachable.status(&head))
        };
        timeout(UPSTREAM_ASK_WAIT, asking).await.unwrap_or_else(|_| Err(unavailable("the upstream does not answer")))
    }

    async fn question(&self, head: &ForwardedHead, body: &Bytes) -> Result<(StatusCode, Bytes), SendFailure> {
        let response = self.send(head, &RequestBody::full(body.clone())).await?;
        let (parts, body) = response.into_parts();
        let answer = Limited::new(body, UPSTREAM_ANSWER_BYTES_MAX).collect().await;
        Ok((parts.status, answer.map_err(|_| SendFailure::Broken)?.to_bytes()))
    }

    /// Sends a request to the first endpoint that accepts a connection.
    async fn send(&self, head: &ForwardedHead, body: &RequestBody) -> Result<Response<Incoming>, SendFailure> {
        let (count, first) = (self.endpoints.len(), self.preferred.load(Ordering::Relaxed));
        for index in (first..first + count).map(|index| index % count) {
            let endpoint = &self.endpoints[index];
            if let Some(identity) = &self.identity
                && let Err(error) = identity.admit(index).await
            {
                tracing::debug!(%error, server = ?endpoint.address, "upstream address skipped");
                continue;
            }
            match endpoint.exchange(head, body).await {
                Ok(response) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    if self.is_unreachable.swap(false, Ordering::Relaxed) {
                        tracing::info!(server = ?endpoint.address, "upstream reached");
                    }
                    if is_sign(response.status()) {
                        self.last_answer.note();
                    }
                    return Ok(response);
                }
                Err(error) if error.is_connect() => {
                    self.last_answer.break_off();
                    tracing::debug!(error = &error as &dyn std::error::Error, server = ?endpoint.address, "upstream connection failed");
                }
                Err(error) => {
                    // A body that its caller breaks off says nothing of the API server.
                    if !body.is_aborted() {
                        self.last_answer.break_off();
                    }
                    tracing::debug!(error = &error as &dyn std::error::Error, server = ?endpoint.address, "upstream request broken");
                    return Err(SendFailure::Broken);
                }
            }
        }
        // Once for each outage: the requests of an outage are many.
        if !self.is_unreachable.swap(true, Ordering::Relaxed) {
            tracing::warn!(servers = ?self.endpoints.iter().map(|it| &it.address).collect::<Vec<_>>(), "upstream lost");
        }
        Err(SendFailure::Unreachable)
    }
}

impl ForwardEndpoint {
    fn new(address: CallerAddress) -> Self {
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).timer(TokioTimer::new());
        builder.http1_max_buf_size(UPSTREAM_HEAD_BYTES_MAX).http1_max_headers(UPSTREAM_HEADERS_MAX);
        let single = builder.pool_max_idle_per_host(0).build(address.dial.clone());
        let pooled = builder
            .pool_max_idle_per_host(UPSTREAM_IDLE_MAX)
            .pool_idle_timeout(UPSTREAM_IDLE_WAIT)
            .build(address.dial.clone().with_stall_limit());
        Self { address, pooled, single }
    }

    /// Sends a request, once more if it is safe and met a kept connection that was already closed.
    async fn exchange(&self, head: &ForwardedHead, body: &RequestBody) -> Result<Response<Incoming>, ClientError> {
        let client = if head.upgrade.is_some() { &self.single } else { &self.pooled };
        let response = match client.request(head.request(&self.address, body)).await {
            Err(error) if head.method.is_safe() && body.is_empty() && was_reused(&error) => {
                self.single.request(head.request(&self.address, body)).await?
            }
            other => other?,
        };
        if let Some(usage) = response.extensions().get::<ConnectionUse>() {
            usage.note();
        }
        Ok(response)
    }
}

/// Returns true for an answer that shows that the API server is back: a load balancer sends 5xx in its place, and one that
/// sends 429 must not get the requests of all streams at once.
fn is_sign(status: StatusCode) -> bool {
    !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS
}

/// Returns true if the connection of a failed request had carried an answer before.
fn was_reused(error: &ClientError) -> bool {
    let Some(connection) = error.connect_info() else { return false };
    let mut extras = Extensions::new();
    connection.get_extras(&mut extras);
    extras.get::<ConnectionUse>().is_some_and(ConnectionUse::is_reused)
}

impl ForwardedHead {
    fn new(parts: &Parts, identity: RequestIdentity<'_>, body: &RequestBody) -> Result<Self, Status> {
        if parts.method == Method::CONNECT {
            let message = "CONNECT is not passed to the upstream: use HTTP/1.1 with an Upgrade header".to_owned();
            return Err(Status { message, ..Status::generic_method_not_allowed() });
        }
        let path_and_query = parts.uri.path_and_query().filter(|path| path.as_str().starts_with('/'));
        let path_and_query = path_and_query.ok_or_else(|| Status::bad_request("the path must begin with a slash"))?;
        let upgrade = headers::upgrade(parts);
        if upgrade.is_some() && !body.is_empty() {
            return Err(Status::bad_request("a request with an Upgrade header has no body"));
        }
        let mut headers = headers::of_request(parts);
        let (name, id) = identity.id;
        headers.insert(name, id.clone());
        if let Some(user) = identity.user {
            headers::act_as(&mut headers, user);
        }
        if body.length().is_none() && !body.is_empty() {
            // The body has no announced length, whatever the header says.
            headers.remove(header::CONTENT_LENGTH);
        }
        if let Some(upgrade) = &upgrade {
            headers::insert_upgrade(&mut headers, upgrade.clone());
        }
        Ok(Self { method: parts.method.clone(), path_and_query: path_and_query.clone(), headers, upgrade })
    }

    /// The request to one address.
    fn request(&self, address: &CallerAddress, body: &RequestBody) -> Request<OutgoingBody> {
        let mut request = Request::new(body.outgoing());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = address.uri(&self.path_and_query);
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(header::HOST, address.host.clone());
        request
    }
}

impl SendFailure {
    fn status(&self, head: &ForwardedHead) -> Status {
        match self {
            Self::Unreachable => unavailable("the upstream API server cannot be reached"),
            Self::Broken if head.method.is_safe() => unavailable("the upstream API server broke off without an answer"),
            // No delay: clients would repeat the request by themselves.
            Self::Broken => Status {
                status: "Failure".into(),
                message: "the upstream API server broke off without an answer: the request may have been carried out"
                    .into(),
                reason: Reason::Timeout,
                code: StatusCode::GATEWAY_TIMEOUT.as_u16(),
                ..Status::default()
            },
        }
    }
}

/// 503 that asks to wait.
fn unavailable(text: &str) -> Status {
    let details = Details { retry_after_seconds: UPSTREAM_RETRY_AFTER_SECONDS, ..Details::default() };
    Status { details: Some(details), ..Status::unavailable(text) }
}

/// Turns the upstream's answer into the caller's.
async fn answer(
    mut response: Response<Incoming>,
    head: ForwardedHead,
    permit: OwnedSemaphorePermit,
) -> Result<Response<ForwardedBody>, Status> {
    let mut headers = headers::of_response(response.headers());
    let status = response.status();
    let body = if status == StatusCode::SWITCHING_PROTOCOLS {
        let Some(requested) = head.upgrade else {
            return Err(unavailable("the upstream API server changed the protocol without a request"));
        };
        let upgrade = response.headers().get(header::UPGRADE).cloned().unwrap_or(requested);
        headers::insert_upgrade(&mut headers, upgrade);
        let upgraded = hyper::upgrade::on(&mut response).await;
        ForwardedBody::upgraded(upgraded.map_err(|_| unavailable("the upstream broke off an upgrade"))?, permit)
    } else {
        ForwardedBody::stream(response.into_body(), permit)
    };
    let mut forwarded = Response::new(body);
    (*forwarded.status_mut(), *forwarded.headers_mut()) = (status, headers);
    Ok(forwarded)
}

#[cfg(test)]
mod tests;
