//! HTTP layer: routes a request, runs its handler, and turns every outcome into a response.
//!
//! INVARIANT: no module outside this one and its submodules decides status codes or response bytes.
//!
//! In reading order: paths (`route`), Accept (`negotiate`) and query parameters (`query`), the handlers for reads
//! (`list`, `watch`), writes (`write`) and server documents (`discovery`), streamed response bodies ([`body`]), and
//! errors (`status`).
//!
//! Not implemented, on purpose: protobuf and CBOR responses, and gzip of anything but lists of whole objects.

mod log;
mod websocket;

pub use crate::read::body;

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version, header, request::Parts};
use http_body_util::BodyExt as _;
use informer_serving::{
    go,
    options::ListOptions,
    query::Query,
    status::{Status, StatusExt as _},
};
use tokio::time::Instant;

use self::{body::Body, websocket::Handshake};
use crate::{
    app::App,
    budget::Room,
    discovery::{self, Check, DiscoveryPath, Health},
    metrics, openapi,
    read::{
        encode::{self, RequestedEncoding},
        list,
        negotiate::{self, AnswerFormat, AnswerSubject},
        pretty, watch,
    },
    route::{self, Route, Target},
    status,
    write::{
        self,
        intake::{self, BODY_WAIT, Rooms},
    },
};

/// The response type of every handler.
pub(crate) type Response = http::Response<Body>;

const AUDIT_ID: header::HeaderName = header::HeaderName::from_static("audit-id");

/// Answers one request. Never fails: every error becomes a response.
///
/// Cost: a request body is read into memory, up to [`limits::REQUEST_BODY_BYTES_MAX`] within
/// [`limits::BODIES_BYTES_MAX`]; response bodies are streams.
///
/// [`limits::REQUEST_BODY_BYTES_MAX`]: crate::limits::REQUEST_BODY_BYTES_MAX
/// [`limits::BODIES_BYTES_MAX`]: crate::limits::BODIES_BYTES_MAX
pub async fn handle<B>(app: Arc<App>, request: Request<B>) -> http::Response<Body>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = request.into_parts();
    let mut body = std::pin::pin!(body);
    let call = Call::new(&parts);
    let route = route::parse(&app.registry.now(), parts.uri.path());
    let (verb, resource) = match &route {
        Route::Resource(target) => (call.verb(target), target.ty.id().to_owned()),
        Route::Discovery(_) | Route::OpenApi(_) | Route::Health(..) | Route::Version | Route::Metrics
            if call.method == Method::GET =>
        {
            ("GET", String::new())
        }
        Route::Discovery(_) | Route::OpenApi(_) | Route::Health(..) | Route::Version | Route::Metrics => {
            ("OTHER", String::new())
        }
        Route::Connect(ty) => ("CONNECT", ty.id().to_owned()),
        Route::Missing(_) | Route::NotFound | Route::Unknown => ("OTHER", String::new()),
    };
    let mut answering = log::RequestGuard::new(&app, &parts, verb, &resource);
    let answer = match Handshake::read(&parts, matches!(verb, "WATCH" | "CONNECT"), !body.is_end_stream()) {
        Err(status) => Err(status),
        Ok(None) => call.answer_in_time(&app, &route, verb, body.as_mut()).await,
        Ok(Some(handshake)) => call.answer(&app, &route, body.as_mut()).await.map(|answer| handshake.accept(answer)),
    };
    let mut response = match answer {
        Ok(response) => {
            answering.answered(response.status(), None);
            response
        }
        Err(error) => {
            let response = status::respond(&error, call.errors);
            answering.answered(response.status(), Some(&error.message));
            response
        }
    };
    finish(response.headers_mut());
    // An HTTP/1.1 connection with an unread body cannot carry another request. HTTP/2 resets the stream instead.
    if !body.is_end_stream() && !passes_by(&parts, body).await && parts.version == Version::HTTP_11 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Reason to refuse a request before routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No Host header, which HTTP/1.1 requires.
    NoHost,
    /// The Host header names another server: possibly DNS rebinding by a web page.
    ForeignHost,
    /// A write or WebSocket that a page of another site may have sent.
    ForeignOrigin,
}

/// Answers a request that is refused before routing.
pub(crate) fn refuse<B>(app: &App, request: Request<B>, refusal: Refusal) -> Response {
    let (parts, _) = request.into_parts();
    let status = match refusal {
        Refusal::NoHost => Status::bad_request("a request of HTTP/1.1 needs a Host header"),
        Refusal::ForeignHost => status::foreign_host(),
        Refusal::ForeignOrigin => status::foreign_origin(),
    };
    let mut response = status::respond(&status, RequestedEncoding::Indented);
    log::RequestGuard::new(app, &parts, "OTHER", "").answered(response.status(), Some(&status.message));
    finish(response.headers_mut());
    response
}

/// Sets the headers that every response carries.
fn finish(headers: &mut HeaderMap) {
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    // Browsers must not interpret stored text as a script or a page.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let id = uuid();
    headers.insert(AUDIT_ID, HeaderValue::from_str(&id).expect("hexadecimal digits and dashes are a header"));
}

/// A random UUID: version 4, variant 1 of RFC 9562.
pub(crate) fn uuid() -> String {
    let bits = fastrand::u128(..) & !(0xf << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let text = format!("{bits:032x}");
    [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
}

/// One request without its path and body.
struct Call<'a> {
    method: &'a Method,
    headers: &'a HeaderMap,
    /// Body budget of the connection; `None` if the connection carries one request at a time.
    room: Option<&'a Room>,
    accept: String,
    query: Query,
    /// True if documents with only one form are indented for people.
    indent: bool,
    /// Encoding of errors.
    errors: RequestedEncoding,
}

impl<'a> Call<'a> {
    fn new(parts: &'a Parts) -> Self {
        let query = Query::parse(parts.uri.query());
        let indent = negotiate::is_for_people(&parts.headers, &query);
        let errors = negotiate::of_error(&parts.headers, &query);
        let accept = negotiate::joined(&parts.headers, header::ACCEPT);
        let room = parts.extensions.get::<Room>();
        Self { method: &parts.method, headers: &parts.headers, room, accept, query, indent, errors }
    }

    /// Returns the client's time limit for the answer, from `?timeout=`; `None` means no limit. Watches have their own
    /// timeout.
    fn time(&self, verb: &str) -> Result<Option<Duration>, Status> {
        let Some(text) = self.query.get("timeout").filter(|text| !text.is_empty() && verb != "WATCH") else {
            return Ok(None);
        };
        let nanoseconds = go::parse_duration(text)
            .map_err(|error| Status::bad_request(format!("invalid timeout specified in the request URL - {error}")))?;
        // Zero and negative durations set no limit. Limits of `BODY_WAIT` or more are ignored.
        let time = u64::try_from(nanoseconds).ok().filter(|&time| time > 0).map(Duration::from_nanos);
        Ok(time.filter(|&time| time < BODY_WAIT))
    }

    /// Like [`answer`](Self::answer), within the client's time limit.
    async fn answer_in_time<B>(&self, app: &App, route: &Route, verb: &str, body: B) -> Result<Response, Status>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let Some(time) = self.time(verb)? else { return self.answer(app, route, body).await };
        let began = Instant::now();
        match tokio::time::timeout(time, self.answer(app, route, body)).await {
            Ok(answer) if began.elapsed() < time => answer,
            // `timeout` polls the handler first, so an immediate answer can come after a limit of 1 ns.
            Ok(_) | Err(_) => Ok(status::out_of_time()),
        }
    }

    async fn answer<B>(&self, app: &App, route: &Route, body: B) -> Result<Response, Status>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        match route {
            Route::Resource(target) => self.resource(app, target, body).await,
            Route::OpenApi(path) if self.method == Method::GET => {
                openapi::answer(app, path, self.headers, &self.accept, &self.query).await
            }
            Route::Discovery(_) | Route::OpenApi(_) | Route::Health(..) | Route::Version | Route::Metrics => {
                self.document(app, route)
            }
            Route::Missing(Target { ty, name, .. }) => {
                Err(Status::not_found(&ty.group, &ty.plural, name.as_deref().unwrap_or_default()))
            }
            Route::Connect(_) => Err(status::runs_no_pods()),
            Route::NotFound => Err(Status::generic_not_found()),
            Route::Unknown => Ok(status::page_not_found()),
        }
    }

    /// Returns the Kubernetes verb of the request.
    fn verb(&self, target: &Target) -> &'static str {
        let named = target.name.is_some();
        match *self.method {
            Method::GET if target.watched => "WATCH",
            Method::GET if named => "GET",
            Method::GET if self.query.flag("watch") == Some(true) => "WATCH",
            Method::GET => "LIST",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            Method::DELETE if named => "DELETE",
            Method::DELETE => "DELETECOLLECTION",
            _ => "OTHER",
        }
    }

    /// Answers a request for objects.
    async fn resource<B>(&self, app: &App, target: &Target, body: B) -> Result<Response, Status>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let everywhere = target.ty.namespaced && target.namespace.is_none();
        let name = target.name.as_deref();
        if let Some(name) = name {
            route::check_name(name)?;
        }
        match (self.method, name) {
            (&Method::GET, _) => {}
            _ if target.watched => return Err(Status::generic_method_not_allowed()),
            // POST without a namespace is refused: every object of a namespaced type belongs to one namespace.
            (&Method::POST, None) if !everywhere => {}
            (&Method::DELETE, None) if !everywhere && target.ty.verbs.contains(&"deletecollection") => {}
            (&Method::PUT | &Method::PATCH | &Method::DELETE, Some(_)) => {}
            _ if target.ty.custom.is_none() => return Err(Status::generic_method_not_allowed()),
            _ if everywhere => return Ok(status::page_not_found()),
            _ => return Err(status::method_not_supported(&target.ty, self.method)),
        }
        let answer = AnswerFormat::read(self.headers, &self.query)?;
        if self.method != Method::GET {
            let body = intake::read(std::pin::pin!(body), Rooms { server: &app.room, connection: self.room }).await?;
            // The type's definition may have been changed or deleted while the body arrived.
            let target = &target.renewed(&app.registry.now()).ok_or_else(Status::generic_not_found)?;
            if self.method == Method::POST && target.ty.terminating {
                return Err(status::terminating(&target.ty));
            }
            let answer = self.write(app, target, &body, &answer).await;
            // Wait (at most 3 s) until the definition is in effect, so that the client's next request sees it.
            if target.ty.defines_types {
                app.definitions.settle().await;
            }
            if target.ty.holds_objects && self.method == Method::DELETE && answer.is_ok() {
                app.namespaces.settle().await;
            }
            return answer;
        }
        if target.subresource.as_deref() == Some(write::SCALE) {
            return self.write(app, target, &[], &answer).await;
        }
        if let Some(name) = name.filter(|_| !target.watched) {
            return list::get(app, target, name, &self.query, &answer).await;
        }
        let options = ListOptions::read(&self.query)?;
        if options.watch || target.watched {
            watch::watch(app, target, &options, &answer, self.headers).await
        } else {
            list::list(app, target, &options, &answer).await
        }
    }

    async fn write(&self, app: &App, target: &Target, body: &[u8], wanted: &AnswerFormat) -> Result<Response, Status> {
        let content_type = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        // Browsers send a body without Content-Type to other origins without a CORS preflight, so JSON must not be the
        // default for requests with an Origin.
        let untyped = content_type.is_none_or(|text| text.trim().is_empty());
        if untyped && !body.is_empty() && self.headers.contains_key(header::ORIGIN) {
            return Err(Status::generic_unsupported_media_type());
        }
        let request = write::WriteRequest {
            ty: &target.ty,
            namespace: target.namespace.as_deref(),
            name: target.name.as_deref(),
            subresource: target.subresource.as_deref(),
            query: self.query.pairs(),
            content_type,
            body,
        };
        if *self.method == Method::DELETE && target.name.is_none() {
            return list::delete(app, target, &request, &ListOptions::read(&self.query)?, wanted).await;
        }
        // A type's cache starts with its first reader. Starting it before the first write lets a client watch from the
        // version of that write. A cache that is not ready does not fail the write.
        let reader = app.caches.reader(&target.ty).await.ok();
        let size = request.size(reader.as_ref())?;
        app.work.run(size, self.write_one(app, &request, wanted)).await?
    }

    /// Runs one write (or the read of a scale) and builds its response.
    async fn write_one(
        &self,
        app: &App,
        request: &write::WriteRequest<'_>,
        wanted: &AnswerFormat,
    ) -> Result<Response, Status> {
        let answer = match *self.method {
            Method::GET => write::read_scale(app, request).await?,
            Method::POST => write::create(app, request).await?,
            Method::PUT => write::update(app, request).await?,
            Method::PATCH => write::patch(app, request).await?,
            Method::DELETE => write::delete(app, request).await?,
            _ => return Err(Status::generic_method_not_allowed()),
        };
        let warnings = answer.warnings();
        let is_scale = request.subresource == Some(write::SCALE);
        let form = wanted.form(request.ty, if is_scale { AnswerSubject::Scale } else { AnswerSubject::Object })?;
        let json = form.text(&answer.json, list::unix_now()).map_or(answer.json, Bytes::from);
        let mut response = encode::whole(answer.code, json, RequestedEncoding::of(wanted));
        for warning in warnings {
            if let Ok(warning) = HeaderValue::from_bytes(warning.as_bytes()) {
                response.headers_mut().append(header::WARNING, warning);
            }
        }
        Ok(response)
    }

    /// Answers a request for a server document: discovery, health, version or metrics.
    fn document(&self, app: &App, route: &Route) -> Result<Response, Status> {
        // Some probes send HEAD; kube-apiserver answers health checks for any method.
        let probes = self.method == Method::HEAD && matches!(route, Route::Health(..));
        if self.method != Method::GET && !probes {
            return Err(Status::generic_method_not_allowed());
        }
        match route {
            Route::Discovery(path) => Ok(self.discovery(app, path)),
            Route::Health(endpoint, check) => Ok(self.health(app, *endpoint, check.as_deref())),
            Route::Version => Ok(body::json(StatusCode::OK, discovery::version().into())),
            Route::Metrics => {
                let content_type = HeaderValue::from_static(metrics::CONTENT_TYPE);
                Ok(body::typed(StatusCode::OK, content_type, app.metrics.text(&app.caches).into()))
            }
            Route::Resource(_) | Route::Missing(_) | Route::Connect(_) | Route::OpenApi(_) | Route::NotFound => {
                Err(Status::generic_not_found())
            }
            Route::Unknown => Ok(status::page_not_found()),
        }
    }

    fn discovery(&self, app: &App, path: &DiscoveryPath) -> Response {
        let listening = app.config.listen.to_string();
        let address = self.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or(&listening);
        let Some(document) = discovery::document(&app.registry.now(), path, Some(&self.accept), address) else {
            return status::page_not_found();
        };
        let content_type = HeaderValue::from_static(document.content_type);
        let Some(etag) = document.etag.and_then(|etag| HeaderValue::from_str(&etag).ok()) else {
            let indent = self.indent && *path != DiscoveryPath::Root;
            let body = if indent { pretty::indent(&document.body).into() } else { document.body.into() };
            return body::typed(StatusCode::OK, content_type, body);
        };
        let known = self.headers.get(header::IF_NONE_MATCH) == Some(&etag);
        let (code, body) =
            if known { (StatusCode::NOT_MODIFIED, Bytes::new()) } else { (StatusCode::OK, document.body) };
        let mut response = body::typed(code, content_type, body.into());
        response.headers_mut().insert(header::ETAG, etag);
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
        response
    }

    fn health(&self, app: &App, endpoint: Health, check: Option<&str>) -> Response {
        // Answering at all proves that the server listens; caches start with their first reader, so they are no check.
        let of = |name: &'static str, passes| Check { name: name.into(), passes };
        let mut checks = vec![of("ping", true), of("poststarthook/crd-informer-synced", app.definitions.are_known())];
        // A server that shuts down, or has a cache that is down, is alive but not ready for new clients.
        if endpoint == Health::Readyz {
            checks.push(of("shutdown", !app.caches.is_stopped()));
            let down = app.caches.down().into_iter();
            checks.extend(down.map(|ty| Check { name: format!("cache/{ty}").into(), passes: false }));
        }
        let Some((code, text)) = discovery::health(endpoint, check, self.query.pairs(), &checks) else {
            return status::page_not_found();
        };
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        body::text(code, text.into())
    }
}

/// Limits for draining an unread request body, so that the connection can serve another request; closing it could fail
/// the client's next one. Size as in Go's net/http.
const UNWANTED_BYTES_MAX: usize = 256 << 10;
const UNWANTED_WAIT: Duration = Duration::from_secs(1);

/// Drains the unread request body so that the connection can be reused. Returns false if the body is too long or too
/// slow, and for `Expect: 100-continue` clients, which may never send it.
async fn passes_by<B: http_body::Body>(parts: &Parts, mut body: Pin<&mut B>) -> bool {
    let passed = async {
        let mut left = UNWANTED_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            let bytes = frame.data_ref().map_or(0, bytes::Buf::remaining);
            let Some(rest) = left.checked_sub(bytes) else { return false };
            left = rest;
        }
        true
    };
    !parts.headers.contains_key(header::EXPECT) && tokio::time::timeout(UNWANTED_WAIT, passed).await.unwrap_or(false)
}

#[cfg(test)]
pub(crate) mod tests;
