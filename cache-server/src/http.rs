//! Entrance of requests: routes a request, runs its handler, and turns every outcome into a response.
//!
//! INVARIANT: status codes and response bytes are decided here, in the handlers (`read`, `write`, `discovery`,
//! `openapi`) and in `status`, and nowhere else.
//!
//! Not implemented, on purpose: CBOR responses, and gzip of tables and single objects.

mod admission;
mod forks;
mod log;
mod websocket;

pub use crate::read::body;

use std::{pin::Pin, sync::Arc, time::Duration};

use access_rules::{request_info::RequestInfo, user::User};
use bytes::Bytes;
use cache_server_wire::handler::Refusal;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version, header, request::Parts};
use http_body_util::BodyExt as _;
use informer_serving::{
    go,
    options::ListOptions,
    query::Query,
    status::{Status, StatusExt as _},
};
use tokio::time::Instant;

use self::{
    body::{Body, Response, page_not_found},
    websocket::Handshake,
};
use crate::{
    access::{AUDIT_ID, RequestContext, flow::FlowHeaders},
    app::{App, LocalApp},
    clock, discovery,
    metrics::RequestClass,
    openapi,
    read::{
        encode::{self, RequestedEncoding},
        get, list,
        negotiate::{AnswerFormat, AnswerSubject},
        watch,
    },
    registry::Subresource,
    request::RequestHead,
    route::{self, Route, Target},
    status,
    upstream::{
        forward::{Forwarder, RequestIdentity},
        gateway::{self, Answerer, ReadHead, Upstream},
        source::ProvedCache,
    },
    write,
};

/// Answers one request. Never fails: every error becomes a response.
///
/// Cost: a request body that is not passed to an upstream is read into memory, up to [`limits::REQUEST_BODY_BYTES_MAX`] within
/// [`limits::BODIES_BYTES_MAX`]; response bodies are streams.
///
/// [`limits::REQUEST_BODY_BYTES_MAX`]: crate::limits::REQUEST_BODY_BYTES_MAX
/// [`limits::BODIES_BYTES_MAX`]: crate::limits::BODIES_BYTES_MAX
pub async fn handle<B>(app: Arc<App>, request: Request<B>) -> http::Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (mut parts, body) = request.into_parts();
    let app = forks::destination(app, &mut parts);
    let span = app.traces.begin(&mut parts);
    let mut head = RequestHead::new(&parts);
    let mut context = RequestContext::new(&parts, &head.query);
    head.arrived = Some(context.arrived);
    let route = route::parse(&app.registry.now(), parts.uri.path());
    let kind = request_kind(&head, &route);
    let verb = kind.verb;
    let mut answering = log::RequestGuard::new(&app, &parts, kind).traced(span, &context);
    app.access.begin_audit(&parts, &mut context).await;
    let info = Arc::clone(&context.info);
    let passage = match unreached(&app, &route) {
        Some(status) => Err(Err(status)),
        None => match admission::admit(&app, &head, &mut context, &route).await {
            Err(answer) => Err(answer),
            Ok(()) => answerer(&app, &head, &context, &info, &route).await,
        },
    };
    let passage = match passage {
        Ok(Respondent::Here(proved)) => {
            head.proved = proved;
            None
        }
        Ok(Respondent::Upstream(passage)) => Some(passage),
        Err(answer) => {
            let closes = !body.is_end_stream() && parts.version == Version::HTTP_11;
            return finished(answer, head.errors, &mut context, &mut answering, closes);
        }
    };
    if let Some(passage) = passage {
        let has_body = !body.is_end_stream();
        let answer = passed_on(&app, passage, &parts, body, &mut context).await;
        // The connection cannot carry another request if the upstream did not take the body.
        let closes = has_body && answer.is_err() && parts.version == Version::HTTP_11;
        return finished(answer, head.errors, &mut context, &mut answering, closes);
    }
    let share = context.share.clone();
    if let Some(share) = &share {
        (head.room, head.owner) = (Some(&share.room), share.owner);
    }
    let mut body = std::pin::pin!(body);
    (head.caller, head.audit) = (context.user(), context.audit.as_deref());
    let answer = match Handshake::read(&parts, matches!(verb, "WATCH" | "CONNECT"), !body.is_end_stream()) {
        Err(status) => Err(status),
        Ok(handshake) => {
            let answer = answer_in_time(&app, &head, &route, verb, body.as_mut()).await;
            answer.map(|answer| match handshake {
                Some(handshake) => handshake.accept(answer),
                None => answer,
            })
        }
    };
    // An HTTP/1.1 connection with an unread body cannot carry another request. HTTP/2 resets the stream instead.
    let closes = !body.is_end_stream() && !passes_by(&parts, body).await && parts.version == Version::HTTP_11;
    let mut response = finished(answer, head.errors, &mut context, &mut answering, closes);
    admission::hold_right(&app, &context, &parts.headers, &mut response);
    admission::hold_seats(&mut context, &mut response);
    if let Some(age) = age(&app, &route) {
        // A read with an older confirmation has set the age of that.
        response.headers_mut().entry(header::AGE).or_insert(age);
    }
    response
}

/// The server that answers an admitted request.
enum Respondent<'a> {
    /// This server; from this cache, if there is one.
    Here(Option<ProvedCache>),
    Upstream(Passage<'a>),
}

/// The way of a request to the API server behind this server.
struct Passage<'a> {
    forwarder: &'a Forwarder,
    /// This server's own credentials and the user to act as; `None`: the caller's own credentials pass.
    acting: Option<HeaderMap>,
}

/// Refuses everything but probes until the API server behind this server was reached: nothing that this server has is known
/// to be of its cluster.
fn unreached(app: &App, route: &Route) -> Option<Status> {
    let upstream = app.upstream()?;
    (!upstream.is_reached() && !matches!(route, Route::Health(..))).then(gateway::unreached)
}

/// Decides who answers an admitted request. Fails with the answer if that is decided already.
async fn answerer<'a>(
    app: &'a App,
    head: &'a RequestHead<'_>,
    context: &RequestContext,
    info: &'a RequestInfo,
    route: &'a Route,
) -> Result<Respondent<'a>, Result<Response, Status>> {
    let Some(upstream) = app.upstream() else { return Ok(Respondent::Here(None)) };
    let checks_rights = app.access.authorizer.decides_by_credentials();
    let named = if let Route::Resource(target) = route { target.name.as_ref().map(|_| target) } else { None };
    let is_acceptable = named
        .is_some_and(|target| AnswerFormat::read(head.headers, &head.query, &target.ty, AnswerSubject::Object).is_ok());
    let read = ReadHead {
        method: head.method,
        headers: head.headers,
        query: &head.query,
        info,
        checks_rights,
        is_acceptable,
        local: context.caller.as_deref().filter(|caller| caller.is_local()).map(|caller| &caller.user),
    };
    let forwarder = match upstream_answerer(app, upstream, read, route).await.map_err(Err)? {
        Answerer::Here => return Ok(Respondent::Here(None)),
        Answerer::Proved(proved) => return Ok(Respondent::Here(Some(proved))),
        Answerer::Identity(identity) => return Err(Ok(body::json(StatusCode::OK, identity.into()))),
        Answerer::Upstream(forwarder) => forwarder,
    };
    match &context.caller {
        // A static token must not leave this server, and a certificate cannot.
        Some(caller) if caller.is_local() => {
            acting_passage(upstream, &caller.user, info).await.map(Respondent::Upstream).map_err(Err)
        }
        Some(_) | None => Ok(Respondent::Upstream(Passage { forwarder, acting: None })),
    }
}

/// The way of a request of a user that the API server does not know. Boxed, as [`upstream_answerer`] is.
fn acting_passage<'a: 'b, 'b>(
    upstream: &'a Upstream,
    user: &'b User,
    info: &'b RequestInfo,
) -> BoxFuture<'b, Result<Passage<'a>, Status>> {
    Box::pin(async move {
        if let Some(impersonator) = &upstream.impersonator
            && let Some(acting) = impersonator.act_as(user).await?
        {
            return Ok(Passage { forwarder: &impersonator.forwarder, acting: Some(acting) });
        }
        let reason = "only the API server behind this one answers this, and it does not know these credentials";
        Err(info.forbidden(Some(&user.name), reason))
    })
}

/// Asks who answers. Boxed, as [`passed_on`] is, so that other requests do not move its state: the future of every request
/// has room for what it awaits.
fn upstream_answerer<'a: 'b, 'b>(
    app: &'a App,
    upstream: &'a Upstream,
    read: ReadHead<'b>,
    route: &'b Route,
) -> BoxFuture<'b, Result<Answerer<'a>, Status>> {
    Box::pin(async move { upstream.answerer(&app.caches, &app.registry.now(), read, route).await })
}

/// Passes a request to the API server behind this server.
fn passed_on<'a, B>(
    app: &'a App,
    passage: Passage<'a>,
    parts: &'a Parts,
    body: B,
    context: &'a mut RequestContext,
) -> BoxFuture<'a, Result<Response, Status>>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    Box::pin(async move {
        if let Some(audit) = &context.audit {
            audit.note_forwarded();
        }
        app.access.share_upstream(context)?;
        let identity = RequestIdentity { id: (AUDIT_ID, &context.id), user: passage.acting.as_ref() };
        let response = passage.forwarder.forward(parts, identity, body).await?;
        let mut response = response.map(Body::forwarded);
        admission::hold_right(app, context, &parts.headers, &mut response);
        admission::hold_seats(context, &mut response);
        if let Some(place) = context.place.take() {
            response.body_mut().guard().occupy(place);
        }
        Ok(response)
    })
}

/// Returns the Age header of a read from a cache that the API server behind it does not keep up to date at present.
fn age(app: &App, route: &Route) -> Option<HeaderValue> {
    let (Some(upstream), Route::Resource(target)) = (app.upstream(), route) else { return None };
    // A stream may stay open while the API server answers nothing.
    let age = app.caches.down_for(&target.ty).max(upstream.last_answer.silent_for());
    Some(age?.as_secs().into())
}

/// Turns an answer into the response, and records it. `closes` tells the client that the connection ends with it.
fn finished(
    answer: Result<Response, Status>,
    errors: RequestedEncoding,
    context: &mut RequestContext,
    answering: &mut log::RequestGuard<'_>,
    closes: bool,
) -> Response {
    let mut response = match answer {
        Ok(mut response) => {
            answering.answered(context, &mut response, None);
            admission::audited(context, &mut response, None);
            response
        }
        Err(error) => {
            let mut response = encode::error(&error, errors);
            answering.answered(context, &mut response, Some(&error));
            admission::audited(context, &mut response, Some(&error));
            response
        }
    };
    if let Some(app) = answering.over_http2() {
        let owner = app.access.stream_owner(context, response.status());
        response.extensions_mut().insert(owner);
    }
    if !response.body().is_forwarded() {
        finish(response.headers_mut(), &context.id);
        set_flow(response.headers_mut(), &context.flow);
    }
    response.headers_mut().entry(header::DATE).or_insert_with(clock::http_date);
    if closes {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Answers a request that is refused before routing.
pub(crate) async fn refuse<B>(app: &App, request: Request<B>, refusal: Refusal) -> Response {
    let (parts, _) = request.into_parts();
    let mut context = RequestContext::new(&parts, &Query::parse(parts.uri.query()));
    app.access.begin_audit(&parts, &mut context).await;
    let status = match refusal {
        Refusal::NoHost => Status::bad_request("a request of HTTP/1.1 needs a Host header"),
        Refusal::ForeignHost => status::foreign_host(),
        Refusal::ForeignOrigin => status::foreign_origin(),
    };
    let mut response = encode::error(&status, RequestedEncoding::Indented);
    let mut answering = log::RequestGuard::new(app, &parts, RequestClass::without_type("OTHER"));
    answering.answered(&context, &mut response, Some(&status));
    if let Some(audit) = &mut context.audit {
        audit.authenticated(None);
    }
    admission::audited(&mut context, &mut response, Some(&status));
    response.extensions_mut().insert(app.access.refused_stream());
    finish(response.headers_mut(), &context.id);
    response.headers_mut().insert(header::DATE, clock::http_date());
    response
}

/// Sets the headers that every response of our own carries. Those of an upstream keep theirs, such as its Audit-Id.
fn finish(headers: &mut HeaderMap, id: &HeaderValue) {
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    // Browsers must not interpret stored text as a script or a page.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(AUDIT_ID, id.clone());
}

/// Names the FlowSchema and the priority level of the request by their uids, if they are stored.
fn set_flow(headers: &mut HeaderMap, flow: &FlowHeaders) {
    let set = [("x-kubernetes-pf-flowschema-uid", &flow.schema), ("x-kubernetes-pf-prioritylevel-uid", &flow.level)];
    for (name, uid) in set {
        if let Some(uid) = uid {
            headers.insert(header::HeaderName::from_static(name), uid.clone());
        }
    }
}

/// Returns the Kubernetes verb of a request and its resource, as metrics and logs name them.
fn request_kind(head: &RequestHead<'_>, route: &Route) -> RequestClass {
    match route {
        Route::Resource(target) => RequestClass::of(verb(head, target), target),
        Route::Discovery(_)
        | Route::OpenApi(_)
        | Route::Health(..)
        | Route::Version
        | Route::Metrics
        | Route::Debug(_)
            if *head.method == Method::GET =>
        {
            RequestClass::without_type("GET")
        }
        Route::Forks(_) => RequestClass::without_type(match *head.method {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::DELETE => "DELETE",
            _ => "OTHER",
        }),
        Route::Connect(ty, subresource) => RequestClass::connection(ty, subresource),
        Route::Discovery(_)
        | Route::OpenApi(_)
        | Route::Health(..)
        | Route::Version
        | Route::Metrics
        | Route::Debug(_) => RequestClass::without_type("OTHER"),
        Route::Missing(_) | Route::NotFound | Route::Unknown => RequestClass::without_type("OTHER"),
    }
}

/// Returns the Kubernetes verb of a request for objects.
fn verb(head: &RequestHead<'_>, target: &Target) -> &'static str {
    let named = target.name.is_some();
    match *head.method {
        Method::GET if target.watched => "WATCH",
        Method::GET if named => "GET",
        Method::GET if head.query.flag("watch") == Some(true) => "WATCH",
        Method::GET => "LIST",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE if named => "DELETE",
        Method::DELETE => "DELETECOLLECTION",
        _ => "OTHER",
    }
}

/// Returns the client's time limit for the answer, from `?timeout=`; `None` means no limit. Watches have their own
/// timeout.
fn time_limit(head: &RequestHead<'_>, verb: &str) -> Result<Option<Duration>, Status> {
    let Some(text) = head.query.get("timeout").filter(|text| !text.is_empty() && verb != "WATCH") else {
        return Ok(None);
    };
    let nanoseconds = go::parse_duration(text)
        .map_err(|error| Status::bad_request(format!("invalid timeout specified in the request URL - {error}")))?;
    // Zero and negative durations set no limit. Limits of `BODY_WAIT` or more are ignored.
    let time = u64::try_from(nanoseconds).ok().filter(|&time| time > 0).map(Duration::from_nanos);
    Ok(time.filter(|&time| time < write::BODY_WAIT))
}

/// Like [`answer`], within the client's time limit.
async fn answer_in_time<B>(
    app: &App,
    head: &RequestHead<'_>,
    route: &Route,
    verb: &str,
    body: B,
) -> Result<Response, Status>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let time = time_limit(head, verb)?;
    // Pinned once: the future of every request has room for it, and is moved.
    let mut answering = std::pin::pin!(answer(app, head, route, body));
    let Some(time) = time else { return answering.await };
    let began = Instant::now();
    match tokio::time::timeout(time, answering.as_mut()).await {
        Ok(answer) if began.elapsed() < time => answer,
        // `timeout` polls the handler first, so an immediate answer can come after a limit of 1 ns.
        Ok(_) | Err(_) => Ok(out_of_time()),
    }
}

/// Response once the request's own time limit passed. kube-apiserver writes it without content negotiation.
fn out_of_time() -> Response {
    const BODY: &str = r#"{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted timeout","reason":"Timeout","details":{},"code":504}"#;
    body::text(StatusCode::GATEWAY_TIMEOUT, Body::from(BODY.to_owned()))
}

async fn answer<B>(app: &App, head: &RequestHead<'_>, route: &Route, body: B) -> Result<Response, Status>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match route {
        Route::Resource(target) => answer_for_objects(app, head, target, body).await,
        Route::OpenApi(path) if *head.method == Method::GET => openapi::answer(app, head, path).await,
        // They are of the whole process, about which the roles of a fork do not decide.
        Route::Metrics | Route::Debug(_) if app.access.is_beside => Ok(page_not_found()),
        Route::Discovery(_)
        | Route::OpenApi(_)
        | Route::Health(..)
        | Route::Version
        | Route::Metrics
        | Route::Debug(_) => discovery::answer(app, head, route).await,
        Route::Forks(path) => forks::answer(app, head, path),
        Route::Missing(Target { ty, name, .. }) => {
            Err(Status::not_found(&ty.group, &ty.plural, name.as_deref().unwrap_or_default()))
        }
        Route::Connect(..) => Err(status::runs_no_pods()),
        // The path may be that of a type whose definition is not known yet: a 404 would say that it is deleted.
        Route::NotFound | Route::Unknown if !app.definitions.are_known() => Err(status::definitions_unknown()),
        Route::NotFound => Err(Status::generic_not_found()),
        Route::Unknown => Ok(page_not_found()),
    }
}

/// Answers a request for objects.
async fn answer_for_objects<B>(app: &App, head: &RequestHead<'_>, target: &Target, body: B) -> Result<Response, Status>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let everywhere = target.ty.namespaced && target.namespace.is_none();
    let name = target.name.as_deref();
    if let Some(name) = name {
        route::check_name(name)?;
    }
    match (head.method, name) {
        (method, _) if target.ty.is_review() && *method != Method::POST => {
            return Err(Status::generic_method_not_allowed());
        }
        (method, _) if target.own_subresource().is_some_and(|subresource| !takes(subresource, method)) => {
            return Err(Status::generic_method_not_allowed());
        }
        (&Method::GET, _) => {}
        _ if target.watched => return Err(Status::generic_method_not_allowed()),
        // POST without a namespace is refused: every object of a namespaced type belongs to one namespace.
        (&Method::POST, None) if !everywhere => {}
        (&Method::POST, Some(_)) if target.own_subresource().is_some() => {}
        (&Method::DELETE, None) if !everywhere && target.ty.verbs.contains(&"deletecollection") => {}
        (&Method::PUT | &Method::PATCH | &Method::DELETE, Some(_)) => {}
        _ if target.ty.custom.is_none() => return Err(Status::generic_method_not_allowed()),
        _ if everywhere => return Ok(page_not_found()),
        (&Method::PUT | &Method::PATCH, None) => return Err(Status::bad_request("name must be provided")),
        _ => return Err(status::method_not_supported(&target.ty, head.method)),
    }
    // A collection also has the media types of its watches.
    let is_collection = *head.method == Method::GET && (name.is_none() || target.watched);
    let of = if is_collection { AnswerSubject::List } else { AnswerSubject::Object };
    let format = AnswerFormat::read(head.headers, &head.query, &target.ty, of)?;
    if *head.method != Method::GET {
        return write::answer(&local(app)?.of(head.caller, head.audit), head, target, &format, body).await;
    }
    if target.subresource.as_deref() == Some(write::SCALE) {
        return write::read_scale(&local(app)?, head, target, &format).await;
    }
    if let Some(name) = name.filter(|_| !target.watched) {
        return get::get(app, target, name, &head.query, &format, head.proved.as_ref()).await;
    }
    let options = ListOptions::read(&head.query)?;
    if options.watch || target.watched {
        watch::watch(app, target, &options, &format, head.headers, head.watch_origin()).await
    } else {
        list::list(app, target, &options, &format, head.owner).await
    }
}

/// True if the subresource has this method.
fn takes(subresource: Subresource, method: &Method) -> bool {
    let verb = match *method {
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        _ => return false,
    };
    subresource.verbs().contains(&verb)
}

/// Returns the app for a write.
fn local(app: &App) -> Result<LocalApp<'_>, Status> {
    app.local().ok_or_else(Status::generic_method_not_allowed)
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
