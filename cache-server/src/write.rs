//! Writes: creates, updates, patches, applies and deletes objects as kube-apiserver does.
//!
//! INVARIANT: an object is replaced or deleted only at the version that was read, so no write is lost. A write without
//! a resourceVersion is retried on a conflict. INVARIANT: a write that changes nothing creates neither a version nor an
//! event.
//!
//! A write passes each file once: `intake` reads its body, the file of its verb decodes it and decides, `commit` (for
//! objects that exist) or `create` stores the object, and `answer` builds the response. `grants` refuses roles whose rights
//! the caller lacks, `nodes` writes of nodes that concern others, `schemas` values that a definition does not allow,
//! `signing` signing requests that the caller may not decide, `plugins` what its namespace does not allow, `webhooks` what
//! others refuse; `review` answers objects that are questions, `binding` and `eviction` orders about pods, `token`
//! requests for tokens. These files read and store; `api_rules::object` decides what a write does, and lists the
//! differences from kube-apiserver.

mod answer;
mod apply;
mod binding;
mod collection;
mod commit;
mod create;
mod delete;
mod eviction;
mod grants;
mod intake;
mod nodes;
mod owners;
mod patch;
#[cfg(feature = "assets")]
mod plugins;
#[cfg(not(feature = "assets"))]
#[path = "write/plugins/absent.rs"]
mod plugins;
mod review;
mod scale;
#[cfg(feature = "assets")]
mod schemas;
#[cfg(not(feature = "assets"))]
#[path = "write/schemas/absent.rs"]
mod schemas;
mod signing;
mod token;
mod update;
#[cfg(feature = "assets")]
mod webhooks;
#[cfg(not(feature = "assets"))]
#[path = "write/webhooks/absent.rs"]
mod webhooks;

use std::{borrow::Cow, pin::pin, sync::Arc};

use api_rules::{
    object::{Object, WriteRequest, options::Options},
    registry::{ResourceType, Subresource},
};
use bytes::Bytes;
use http::{Method, header};
use informer_serving::{
    options::ListOptions,
    status::{Status, StatusExt as _},
};

use self::answer::WriteAnswer;
pub(crate) use self::{create::create_from_manifest, intake::BODY_WAIT};
use crate::{
    access::audit::SentBody,
    app::LocalApp,
    budget::{ReservedBudget, Rooms},
    read::{body::Response, negotiate::AnswerFormat},
    registry::Registry,
    request::RequestHead,
    route::Target,
};

/// Name of the scale subresource.
pub(crate) const SCALE: &str = "scale";

/// Answers a write.
///
/// # Errors
/// The Status to answer with.
pub(crate) async fn answer<B>(
    app: &LocalApp<'_>,
    head: &RequestHead<'_>,
    target: &Target,
    format: &AnswerFormat,
    body: B,
) -> Result<Response, Status>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let rooms = Rooms { server: &app.room, connection: head.room };
    let intake::Whole { bytes, taken } = intake::read(pin!(body), rooms).await?;
    let target = &renewed(target, &app.registry.now()).ok_or_else(Status::generic_not_found)?;
    if let Some(audit) = head.audit {
        audit.note_sent(sent_body(app, head, target, bytes.clone())).await;
    }
    let answer = carry_out(app, head, target, format, &bytes, taken).await;
    // Wait (at most 3 s) until the definition is in effect, so that the client's next request sees it.
    if target.ty.defines_types {
        app.definitions.settle().await;
    }
    if target.ty.holds_objects && *head.method == Method::DELETE && answer.is_ok() {
        app.namespaces.settle().await;
    }
    answer
}

/// `GET …/{plural}/{name}/scale`: answered here, as the object is read like for a write.
///
/// # Errors
/// The Status to answer with.
pub(crate) async fn read_scale(
    app: &LocalApp<'_>,
    head: &RequestHead<'_>,
    target: &Target,
    format: &AnswerFormat,
) -> Result<Response, Status> {
    carry_out(app, head, target, format, &[], ReservedBudget::default()).await
}

/// Looks the type up again: its definition may have been changed or deleted while the body arrived. Returns `None` if
/// the type was deleted or its scope changed.
fn renewed<'a>(target: &'a Target, registry: &Registry) -> Option<Cow<'a, Target>> {
    if target.ty.custom.is_none() {
        return Some(Cow::Borrowed(target));
    }
    let ty = registry.find(&target.ty.group, &target.ty.version, &target.ty.plural)?;
    (ty.namespaced == target.ty.namespaced).then(|| Cow::Owned(Target { ty, ..target.clone() }))
}

/// Returns the body as the audit log reads it.
fn sent_body(app: &LocalApp<'_>, head: &RequestHead<'_>, target: &Target, body: Bytes) -> SentBody {
    let content_type = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    SentBody {
        body,
        content_type: content_type.map(str::to_owned),
        ty: Arc::clone(target.own_subresource().and_then(Subresource::sent).unwrap_or(&target.ty)),
        registry: app.registry.now(),
        is_object: matches!(*head.method, Method::POST | Method::PUT),
    }
}

/// Carries out a write whose body arrived.
async fn carry_out(
    app: &LocalApp<'_>,
    head: &RequestHead<'_>,
    target: &Target,
    format: &AnswerFormat,
    body: &[u8],
    mut taken: ReservedBudget,
) -> Result<Response, Status> {
    let content_type = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    // Browsers send a body without Content-Type to other origins without a CORS preflight, so JSON must not be the
    // default for requests with an Origin.
    let untyped = content_type.is_none_or(|text| text.trim().is_empty());
    if untyped && !body.is_empty() && head.headers.contains_key(header::ORIGIN) {
        return Err(Status::generic_unsupported_media_type());
    }
    let request = WriteRequest {
        ty: &target.ty,
        namespace: target.namespace.as_deref(),
        name: target.name.as_deref(),
        subresource: target.subresource.as_deref(),
        query: head.query.pairs(),
        content_type,
        body,
    };
    let admission = webhooks::begin(app, head.method, &request, &mut taken).await?;
    let app = &app.admitted_by(admission.as_ref()).managed_by(owners::manager(app, request.query, head.headers));
    // Pinned here: the future of every request would have room for each move of this one.
    let work = pin!(admitted(app, head, target, &request, format));
    match webhooks::turn(app) {
        Some(turn) => Box::pin(turn.run(&app.work, work)).await,
        None => work.await,
    }
}

/// Carries out a write, or the read of a Scale, within the budget of concurrent writes.
async fn admitted(
    app: &LocalApp<'_>,
    head: &RequestHead<'_>,
    target: &Target,
    request: &WriteRequest<'_>,
    format: &AnswerFormat,
) -> Result<Response, Status> {
    if target.ty.is_review() {
        let answer = Box::pin(review::answer(app, request)).await?;
        return with_warnings(app, answer).respond(request, format);
    }
    if *head.method == Method::DELETE && target.name.is_none() {
        return collection::delete(app, target, request, &ListOptions::read(&head.query)?, format).await;
    }
    // A type's cache starts with its first reader. Starting it before the first write lets a client watch from the
    // version of that write. A cache that is not ready does not fail the write.
    let reader = match app.caches.reader(&target.ty).await {
        Ok(reader) => Some(reader),
        // Not with permits.
        Err(error) if target.ty.converter.is_some() => return Err(error.into()),
        Err(_) => None,
    };
    let size = request.size(reader.as_ref())?;
    let work = pin!(one(app, head.method, request, format));
    match webhooks::turn(app) {
        Some(turn) => {
            app.work.enter(turn, size).await?;
            work.await
        }
        None => app.work.run(size, work).await?,
    }
}

/// Adds the warnings of webhooks to an answer.
fn with_warnings(app: &LocalApp<'_>, mut answer: WriteAnswer) -> WriteAnswer {
    answer.warnings.extend(webhooks::warnings(app));
    answer
}

/// Reads the body of a POST to a subresource or to `bindings`. `ty` is the type of the body, and `about` the type of the
/// object that it concerns. Returns the body as webhooks changed it, its options, and warnings about its fields.
async fn read_order(
    app: &LocalApp<'_>,
    request: &WriteRequest<'_>,
    ty: &Arc<ResourceType>,
    about: &ResourceType,
) -> Result<(Object, Options, Vec<String>), Status> {
    let mut warnings = Vec::new();
    let order = WriteRequest { ty, name: None, subresource: None, ..*request };
    let (mut sent, options) = api_rules::object::create::read(&app.registry.now(), &order, &mut warnings)?;
    create::refuse_ending(app, about, &sent)?;
    webhooks::admit_order(app, request, ty, &mut sent, options).await?;
    Ok((sent, options, warnings))
}

/// Carries out the write of one object, or the read of a Scale.
async fn one(
    app: &LocalApp<'_>,
    method: &Method,
    request: &WriteRequest<'_>,
    format: &AnswerFormat,
) -> Result<Response, Status> {
    let is_scale = request.subresource == Some(SCALE);
    // Boxed, so that the futures of all other writes have no room for them.
    let ordered = match request.own_subresource() {
        Some(Subresource::Binding) => Some(Box::pin(binding::create(app, request)).await?),
        Some(Subresource::Eviction) => Some(Box::pin(eviction::create(app, request)).await?),
        Some(Subresource::Token) => Some(Box::pin(token::create(app, request)).await?),
        Some(Subresource::Approval | Subresource::EphemeralContainers | Subresource::Finalize) | None => None,
    };
    let answer = match *method {
        _ if let Some(answer) = ordered => answer,
        Method::GET => scale::get(app, request).await?,
        Method::POST => create::create(app, request).await?,
        Method::PUT if is_scale => scale::update(app, request).await?,
        Method::PUT => update::update(app, request).await?,
        Method::PATCH if is_scale => scale::patch(app, request).await?,
        Method::PATCH => patch::patch(app, request).await?,
        Method::DELETE => delete::delete(app, request).await?,
        _ => return Err(Status::generic_method_not_allowed()),
    };
    with_warnings(app, answer).respond(request, format)
}
