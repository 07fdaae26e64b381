//! A small HTTP client for tests: one connection per request, whole responses, every wait bounded.
//!
//! INVARIANT: it does not interpret what a test might check: status, headers and bytes are as sent.

mod connection;
mod http2;
mod watch;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited, combinators::BoxBody};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};

pub use connection::Connection;
pub use watch::{Event, LINE_WAIT, Step, Watch, briefs};

use crate::{
    objects::{Object, collection_of},
    tls::Trust,
};

/// Timeout of a response. Reads that wait for a position take three seconds.
pub const ANSWER_WAIT: Duration = Duration::from_secs(15);

/// Timeout of a response of a [patient](Client::patient) client.
const PATIENT_WAIT: Duration = Duration::from_secs(180);

/// Maximum body size, in bytes.
pub const BODY_BYTES_MAX: usize = 256 << 20;

/// Maximum number of headers of a response: kube-apiserver sends each warning as one.
pub(crate) const HEADERS_MAX: usize = 512;

/// Content type of a JSON merge patch.
pub const MERGE_PATCH: &str = "application/merge-patch+json";

/// A client of one server.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    address: SocketAddr,
    http2: bool,
    /// Trust anchors if it uses TLS.
    trust: Option<&'static Trust>,
    /// Header `authorization` of every request that has none.
    authorization: Option<&'static str>,
    /// Prefix of every path; empty for none.
    prefix: &'static str,
    /// Timeout of a response.
    answer_wait: Duration,
}

/// The body of a response, over either protocol. Its errors are texts with all details.
type AnswerBody = BoxBody<Bytes, String>;

/// A connection, plain or TLS.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A whole response.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub code: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body, as sent.
    pub body: Bytes,
    /// Time from before the connection to the last byte.
    pub took: Duration,
    /// Method and path of the request, for messages.
    pub asked: String,
}

impl Client {
    /// A client of the server at `address`.
    pub const fn new(address: SocketAddr) -> Self {
        Self { address, http2: false, trust: None, authorization: None, prefix: "", answer_wait: ANSWER_WAIT }
    }

    /// Sends its requests to paths below `prefix`, such as those of a fork. Leaks it, so that clients stay `Copy`.
    #[must_use]
    pub fn below(self, prefix: &str) -> Self {
        Self { prefix: prefix.to_owned().leak(), ..self }
    }

    /// Switches to HTTP/2.
    #[must_use]
    pub const fn over_http2(self) -> Self {
        Self { http2: true, ..self }
    }

    /// Switches to TLS. Leaks `trust`, so that clients stay `Copy`.
    #[must_use]
    pub fn over_tls(self, trust: Trust) -> Self {
        Self { trust: Some(Box::leak(Box::new(trust))), ..self }
    }

    /// Waits longer for its responses: large writes have a low priority, and yield to all other programs of a busy machine.
    #[must_use]
    pub const fn patient(self) -> Self {
        Self { answer_wait: PATIENT_WAIT, ..self }
    }

    /// Sends a bearer token with every request. Leaks it, so that clients stay `Copy`.
    #[must_use]
    pub fn with_token(self, token: &str) -> Self {
        Self { authorization: Some(format!("Bearer {token}").leak()), ..self }
    }

    /// Header `authorization` that it sends.
    pub const fn authorization(&self) -> Option<&'static str> {
        self.authorization
    }

    /// Gets `path`, which may carry a query.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(Self::request(Method::GET, path, &[], Bytes::new())).await
    }

    /// Gets `path` with more headers.
    pub async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(Self::request(Method::GET, path, headers, Bytes::new())).await
    }

    /// Posts JSON to a collection.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Self::request(Method::POST, path, &[("content-type", "application/json")], text(body))).await
    }

    /// Replaces an object.
    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Self::request(Method::PUT, path, &[("content-type", "application/json")], text(body))).await
    }

    /// Patches an object with a patch of `content_type`.
    pub async fn patch(&self, path: &str, content_type: &str, body: &Value) -> Answer {
        self.send(Self::request(Method::PATCH, path, &[("content-type", content_type)], text(body))).await
    }

    /// Deletes an object or a collection.
    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Self::request(Method::DELETE, path, &[], Bytes::new())).await
    }

    /// Creates an object. Returns its resourceVersion.
    pub async fn create(&self, object: &Object) -> u64 {
        self.post(&object.collection(), object.body()).await.with_code(201).resource_version()
    }

    /// Creates the object of a manifest, unless it exists. The type's plural follows from its kind.
    pub async fn create_manifest(&self, manifest: &Value) -> Answer {
        let answer = self.post(&collection_of(manifest), manifest).await;
        if answer.code == StatusCode::CONFLICT { answer } else { answer.with_code(201) }
    }

    /// Replaces an object unconditionally. Returns its new resourceVersion.
    pub async fn update(&self, object: &Object) -> u64 {
        self.put(&object.path(), object.body()).await.with_code(200).resource_version()
    }

    /// Deletes an object. Returns the position afterwards from a consistent list of its type, because not every
    /// response carries it.
    pub async fn remove(&self, object: &Object) -> u64 {
        self.delete(&object.path()).await.with_code(200);
        self.get(&object.everywhere()).await.with_code(200).resource_version()
    }

    /// Opens a watch and waits for its headers; `path` includes the query with `watch=`.
    pub async fn watch(&self, path: &str) -> Watch {
        self.watch_with(path, &[]).await
    }

    /// Like [`watch`](Self::watch), with more headers.
    pub async fn watch_with(&self, path: &str, headers: &[(&str, &str)]) -> Watch {
        self.watch_by(Self::request(Method::GET, path, headers, Bytes::new())).await
    }

    /// Like [`watch`](Self::watch), by any request, such as a POST that is answered with lines.
    pub async fn watch_by(&self, request: Request<Full<Bytes>>) -> Watch {
        let asked = format!("{} {}", request.method(), request.uri());
        let begun = Instant::now();
        Watch::new(self.exchange(request, &asked).await, begun, asked)
    }

    /// Like [`watch`](Self::watch), for connections that may fail.
    ///
    /// # Errors
    /// Returns the reason if there is no response.
    pub async fn try_watch(&self, path: &str) -> Result<Watch, String> {
        let begun = Instant::now();
        let request = Self::request(Method::GET, path, &[], Bytes::new());
        Ok(Watch::new(self.try_exchange(request).await?, begun, format!("GET {path}")))
    }

    /// Like [`get`](Self::get), for connections that may fail.
    ///
    /// # Errors
    /// Returns the reason if there is no whole response.
    pub async fn try_get(&self, path: &str) -> Result<Answer, String> {
        self.try_send(Self::request(Method::GET, path, &[], Bytes::new())).await
    }

    /// Like [`send`](Self::send), for connections that may fail.
    ///
    /// # Errors
    /// Returns the reason if there is no whole response. The server may have carried out the request all the same.
    pub async fn try_send(&self, request: Request<Full<Bytes>>) -> Result<Answer, String> {
        let begun = Instant::now();
        let asked = format!("{} {}", request.method(), request.uri());
        let (head, body) = self.try_exchange(request).await?.into_parts();
        let body = timeout(self.answer_wait, Limited::new(body, BODY_BYTES_MAX).collect()).await;
        let body = body.map_err(|_| "the answer does not end".to_owned())?.map_err(|error| error.to_string())?;
        Ok(Answer { code: head.status, headers: head.headers, body: body.to_bytes(), took: begun.elapsed(), asked })
    }

    /// Sends any request and reads the whole response.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        let begun = Instant::now();
        let asked = format!("{} {}", request.method(), request.uri());
        let (head, body) = self.exchange(request, &asked).await.into_parts();
        let Ok(body) = timeout(self.answer_wait, Limited::new(body, BODY_BYTES_MAX).collect()).await else {
            panic!("{asked}: the answer does not end; {head:?}");
        };
        let body = body.unwrap_or_else(|error| panic!("{asked}: the answer breaks off: {error}")).to_bytes();
        Answer { code: head.status, headers: head.headers, body, took: begun.elapsed(), asked }
    }

    /// Builds a request for [`send`](Self::send).
    pub fn request(method: Method, path: &str, headers: &[(&str, &str)], body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Full::new(body)).unwrap_or_else(|error| panic!("{path} is no request: {error}"))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>, asked: &str) -> Response<AnswerBody> {
        self.try_exchange(request).await.unwrap_or_else(|error| panic!("{asked}: {error}"))
    }

    async fn try_exchange(&self, mut request: Request<Full<Bytes>>) -> Result<Response<AnswerBody>, String> {
        if let Some(authorization) = self.authorization {
            let value = http::HeaderValue::from_static(authorization);
            request.headers_mut().entry(header::AUTHORIZATION).or_insert(value);
        }
        if !self.prefix.is_empty() {
            *request.uri_mut() = format!("{}{}", self.prefix, request.uri()).parse().expect("is a URI");
        }
        let exchange = async {
            let stream = self.connect().await.map_err(|error| error.to_string())?;
            if self.http2 {
                let sender = http2::open(stream).await?;
                return http2::send(sender, self.absolute(request)).await;
            }
            let io = TokioIo::new(stream);
            let handshake = hyper::client::conn::http1::Builder::new().max_headers(HEADERS_MAX).handshake(io);
            let (mut sender, connection) = handshake.await.map_err(|error| format!("{error:?}"))?;
            tokio::spawn(connection);
            let response = sender.send_request(self.named(request)).await.map_err(|error| format!("{error:?}"))?;
            Ok(response.map(|body| body.map_err(|error| format!("{error:?}")).boxed()))
        };
        let answer = timeout(self.answer_wait, exchange).await;
        answer.unwrap_or_else(|_| Err(format!("no answer within {:?}", self.answer_wait)))
    }

    async fn connect(&self) -> std::io::Result<Box<dyn Stream>> {
        let alpn = if self.http2 { "h2" } else { "http/1.1" };
        Ok(match self.trust {
            Some(trust) => Box::new(trust.connect(self.address, &[alpn]).await?),
            None => Box::new(TcpStream::connect(self.address).await?),
        })
    }

    /// Adds the `Host` header for HTTP/1.1.
    fn named(&self, mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
        let host = self.address.to_string().parse().expect("an address is a header value");
        request.headers_mut().entry(header::HOST).or_insert(host);
        request
    }

    /// Makes the URI absolute for HTTP/2.
    fn absolute(&self, mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
        let scheme = if self.trust.is_some() { "https" } else { "http" };
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let uri = format!("{scheme}://{}{path}", self.address).parse().expect("is a URI");
        *request.uri_mut() = uri;
        request
    }
}

fn text(body: &Value) -> Bytes {
    body.to_string().into()
}

impl Answer {
    /// Returns the response if it has this status code; panics otherwise.
    #[track_caller]
    pub fn with_code(self, code: u16) -> Self {
        assert_eq!(self.code, code, "{}: {}", self.asked, String::from_utf8_lossy(&self.body));
        self
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{}: {error}: {}", self.asked, String::from_utf8_lossy(&self.body)))
    }

    /// The body as text.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_else(|error| panic!("{}: {error}", self.asked))
    }

    /// A header as text; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// `metadata.resourceVersion`.
    #[track_caller]
    pub fn resource_version(&self) -> u64 {
        resource_version(&self.json())
    }

    /// Keys of the items of a list: `namespace/name`, or `name`.
    #[track_caller]
    pub fn keys(&self) -> Vec<String> {
        let list = self.json();
        let items = list["items"].as_array().unwrap_or_else(|| panic!("{}: no items in {list}", self.asked));
        items.iter().map(key).collect()
    }

    /// The continue token, if there is one.
    #[track_caller]
    pub fn token(&self) -> Option<String> {
        self.json()["metadata"]["continue"].as_str().filter(|token| !token.is_empty()).map(str::to_owned)
    }

    /// `metadata.remainingItemCount`.
    #[track_caller]
    pub fn remaining(&self) -> Option<u64> {
        self.json()["metadata"]["remainingItemCount"].as_u64()
    }

    /// The message of a Status.
    #[track_caller]
    pub fn message(&self) -> String {
        self.json()["message"].as_str().unwrap_or_default().to_owned()
    }
}

/// `namespace/name`, or `name`.
#[track_caller]
pub fn key(object: &Value) -> String {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_else(|| panic!("no name in {object}"));
    metadata["namespace"].as_str().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// `metadata.resourceVersion` as this server's number.
#[track_caller]
pub fn resource_version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no resourceVersion in {object}"))
}

/// A path with a query, each value escaped.
pub fn with_query(path: &str, query: &[(&str, &str)]) -> String {
    let mut out = path.to_owned();
    for (at, (name, value)) in query.iter().enumerate() {
        out.push(if at == 0 && !path.contains('?') { '?' } else { '&' });
        out.push_str(name);
        out.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                out.push(char::from(byte));
            } else {
                out.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    out
}

/// The path and query of a watch that begins with the initial state.
#[must_use]
pub fn watch_list(path: &str) -> String {
    with_query(
        path,
        &[
            ("watch", "true"),
            ("sendInitialEvents", "true"),
            ("resourceVersionMatch", "NotOlderThan"),
            ("allowWatchBookmarks", "true"),
        ],
    )
}

/// True if each position is above the one before.
#[must_use]
pub fn strictly_increase(positions: &[u64]) -> bool {
    positions.windows(2).all(|pair| pair[0] < pair[1])
}
