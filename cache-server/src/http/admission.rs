//! Admission of requests, and what their responses hold: seats, rights of open watches, records.
//!
//! INVARIANT: a request that is not admitted reaches no handler, and its body is not read.

use std::sync::Arc;

use access_rules::{flow::estimate::RequestCost, request_info::RequestInfo};
use api_rules::object::protobuf;
use http::{HeaderMap, StatusCode, header};
use informer_serving::{protobuf::MEDIA_TYPE, status::Status};

use super::time_limit;
use crate::{
    access::{
        RequestContext,
        flow::{FlowRefusal, SeatHold},
    },
    app::App,
    limits::{AUDIT_BODY_BYTES_MAX, SEAT_WAIT},
    read::body::{self, Body, Response},
    request::RequestHead,
    route::Route,
};

/// Lets a request pass: its caller may send it, and it is its turn. Fails with the answer to it otherwise.
pub(super) async fn admit(
    app: &App,
    head: &RequestHead<'_>,
    context: &mut RequestContext,
    route: &Route,
) -> Result<(), Result<Response, Status>> {
    app.access.admit(context, head.headers).await.map_err(Err)?;
    app.access.share(context).map_err(Err)?;
    let info = Arc::clone(&context.info);
    let limit = time_limit(head, if info.verb == "watch" { "WATCH" } else { "" }).unwrap_or_default();
    let limit = limit.map_or(SEAT_WAIT, |limit| limit / 4).min(SEAT_WAIT);
    let turn = app.access.await_turn(context, limit, || cost(app, head, &info, route)).await;
    turn.map_err(|refusal| Ok(too_many_requests(&refusal)))
}

/// Estimates the cost of a request.
fn cost(app: &App, head: &RequestHead<'_>, info: &RequestInfo, route: &Route) -> RequestCost {
    let (Route::Resource(target), Some(of)) = (route, &info.resource) else { return RequestCost::One };
    let option = |name: &str| head.query.get(name).unwrap_or_default();
    let is_collection = match &*info.verb {
        "list" => true,
        "watch" => matches!(option("resourceVersion"), "" | "0") || head.query.flag("sendInitialEvents") == Some(true),
        _ => false,
    };
    if !is_collection || !of.name.is_empty() {
        return RequestCost::One;
    }
    let limit = option("limit").parse().ok().filter(|&limit| limit > 0 && info.verb == "list");
    let selects = !option("labelSelector").is_empty() || !option("fieldSelector").is_empty();
    RequestCost::Collection { objects: app.caches.count(&target.ty), limit, selects }
}

/// Response to a request whose turn does not come. kube-apiserver writes it without content negotiation.
fn too_many_requests(refusal: &FlowRefusal) -> Response {
    let text = Body::from("Too many requests, please try again later.\n".to_owned());
    let mut response = body::text(StatusCode::TOO_MANY_REQUESTS, text);
    response.headers_mut().insert(header::RETRY_AFTER, refusal.retry_after.into());
    response
}

/// Lets an open watch last only as long as its caller's credentials and right, also if another server answers it.
pub(super) fn hold_right(app: &App, context: &RequestContext, headers: &HeaderMap, response: &mut Response) {
    let has_begun = response.status().is_success() || response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let body = response.body_mut();
    let is_forwarded =
        body.is_forwarded() && has_begun && context.info.verb == "watch" && context.info.resource.is_some();
    let Some(caller) = context.caller.as_ref().filter(|_| body.is_watch() || is_forwarded) else { return };
    if let Some(at) = caller.expires {
        body.end_by(at);
    }
    let decider = app.upstream().filter(|_| app.access.authorizer.decides_by_credentials());
    let right = decider.map(|upstream| upstream.read_right(headers, &context.info));
    if let Some(lease) = app.access.lease(context, headers, right, is_forwarded) {
        body.guard().lend(lease);
    }
}

/// Keeps the seats of a list until its body ends, and those of a watch until its initial state is sent. Other requests give
/// theirs back with their answer.
pub(super) fn hold_seats(context: &mut RequestContext, response: &mut Response) {
    let is_held = response.status().is_success()
        && (response.body().is_initial() || context.info.verb == "list" && !response.body().is_watch());
    if let Some(place) = context.place.take_if(|_| response.body().is_watch()) {
        response.body_mut().guard().occupy(place);
    }
    if let Some(seat) = context.seat.take_if(|seat| is_held && !seat.is_exempt()) {
        response.body_mut().guard().hold(SeatHold::new(seat));
    }
}

/// Notes the response for the audit log, whose last record is made when the body is dropped. `error` is its Status.
pub(super) fn audited(context: &mut RequestContext, response: &mut Response, error: Option<&Status>) {
    let Some(mut audit) = context.audit.take() else { return };
    let deletes = context.info.verb.starts_with("delete") && error.is_none();
    let done = if deletes { short_json(response, AUDIT_STATUS_BYTES_MAX) } else { None };
    let done = done.and_then(|text| Status::read(&text));
    if audit.wants_response() {
        let content_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        audit.note_response(content_type, short_json(response, AUDIT_BODY_BYTES_MAX).as_deref());
    }
    audit.answered(response.status(), error.or(done.as_ref()));
    if http_body::Body::is_end_stream(response.body()) {
        audit.note_complete();
    }
    response.body_mut().guard().record(audit);
}

/// Returns a body of at most `bytes_max`, with protobuf converted to JSON.
fn short_json(response: &Response, bytes_max: usize) -> Option<Vec<u8>> {
    let text = response.body().short_text(bytes_max)?;
    let is_protobuf = response.headers().get(header::CONTENT_TYPE).is_some_and(|value| value == MEDIA_TYPE);
    if is_protobuf { protobuf::decoded(&text).map(|object| object.to_string().into_bytes()) } else { Some(text) }
}

/// Bytes of a Status that answers a deletion, in which the audit log looks for its details.
const AUDIT_STATUS_BYTES_MAX: usize = 4 << 10;
