//! Answers GET of one object from the watch cache.

use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use http::StatusCode;
use informer_core::KeyedObject as _;
use informer_serving::{
    options::resource_version,
    query::Query,
    status::{Status, StatusExt as _},
};
use watch_cache::{Entry, Form, Reader, Slices};

use super::{
    aside,
    body::{self, Body, Response},
    encode::{self, RequestedEncoding},
    negotiate::{AnswerFormat, AnswerSubject},
};
use crate::{app::App, clock, route::Target, upstream::source::ProvedCache};

/// `GET …/{plural}/{name}`, from `proved` if the request was given a cache.
///
/// # Errors
/// The Status to answer with.
pub(crate) async fn get(
    app: &App,
    target: &Target,
    name: &str,
    query: &Query,
    answer: &AnswerFormat,
    proved: Option<&ProvedCache>,
) -> Result<Response, Status> {
    if let Some(ProvedCache { reader, age }) = proved {
        let mut response = respond_from(reader, target, name, answer).await?;
        body::set_age(&mut response, *age);
        return Ok(response);
    }
    let reader = match query.get("resourceVersion").unwrap_or_default() {
        "" => app.caches.fresh(&target.ty).await?,
        given => match resource_version(given).map_err(Status::unmapped)? {
            0 => app.caches.reader(&target.ty).await?,
            at => app.caches.at_least(&target.ty, at).await?,
        },
    };
    respond_from(&reader, target, name, answer).await
}

async fn respond_from(reader: &Reader, target: &Target, name: &str, answer: &AnswerFormat) -> Result<Response, Status> {
    let key = target.ty.key(target.namespace.as_deref().unwrap_or_default(), name);
    let entry = reader.get(&key).ok_or_else(|| Status::not_found(&target.ty.group, &target.ty.plural, name))?;
    let mut response = respond_in(&entry, target, answer).await?;
    if response.is_none() {
        tracing::warn!(resource = target.ty.id(), object = entry.key(), "object not encoded");
        if let Some(json) = answer.in_json() {
            response = respond_in(&entry, target, json).await?;
        }
    }
    response.ok_or_else(|| Status::internal("the object could not be shown"))
}

/// Responds in one format; `None` for an object that cannot be encoded in it.
async fn respond_in(entry: &Arc<Entry>, target: &Target, answer: &AnswerFormat) -> Result<Option<Response>, Status> {
    let (form, encoding) = (answer.form(&target.ty, AnswerSubject::Object)?, RequestedEncoding::of(answer));
    // Rows, and other encodings of long objects, may take milliseconds: do not hold a worker for them.
    let is_slow = form.is_slow(entry) || (encoding.is_slow() && entry.is_long());
    let entry = Arc::clone(entry);
    let respond = move || respond(&entry, &form, encoding);
    Ok(if is_slow { aside::run(respond).await.flatten() } else { respond() })
}

/// Builds the response of a GET; `None` for an object that has no form like this. Cost: parses the object unless it is
/// sent as stored.
fn respond(entry: &Entry, form: &Form, encoding: RequestedEncoding) -> Option<Response> {
    let mut slices = Slices::new();
    entry.object_as(form, clock::unix_seconds(), &mut slices);
    if form.is_protobuf() {
        let is_encoded = !slices.is_empty();
        return is_encoded.then(|| body::typed(StatusCode::OK, encoding.content_type(), Body::full(slices)));
    }
    slices.push_static(b"\n");
    Some(match encoding {
        RequestedEncoding::Json => body::json(StatusCode::OK, Body::full(slices)),
        RequestedEncoding::Indented | RequestedEncoding::Yaml | RequestedEncoding::Protobuf => {
            encode::whole(StatusCode::OK, joined(&mut slices), encoding)
        }
    })
}

/// Takes all slices out as one buffer.
fn joined(slices: &mut Slices) -> Bytes {
    slices.copy_to_bytes(slices.remaining())
}
