//! Writes: creates, updates, patches, applies and deletes objects as kube-apiserver does.
//!
//! INVARIANT: an object is replaced or deleted only at the version that was read, so no write is lost. A write without
//! a resourceVersion is retried on a conflict. INVARIANT: a write that changes nothing creates neither a version nor an
//! event.
//!
//! This folder reads the current object and commits its successor; `api_rules::object` decides both, and lists the
//! differences from kube-apiserver.

mod apply;
mod create;
mod delete;
pub(crate) mod intake;
mod scale;
mod update;

use std::sync::Arc;

pub(crate) use api_rules::object::WriteRequest;
use api_rules::{
    object::{
        Object, WriteTarget, body,
        draft::ordered,
        metadata::{self, Part},
        options::{DeleteOptions, Options, PatchOptions},
        patch::{Patch, PatchType},
        update::{RequestedChange, SentObject, check_uid, version},
        validation,
    },
    registry::ResourceType,
};
use bytes::{BufMut, Bytes, BytesMut};
use http::StatusCode;
use informer_serving::status::{Reason, Status, StatusExt as _};
use watch_cache::Entry;

use crate::{
    app::App,
    stored::{
        current::{Current, ReadFailure, stored_entry},
        removal::whole_seconds,
    },
};

/// Bound on attempts to update-or-create an object that other clients create and delete meanwhile.
const ATTEMPTS_MAX: usize = 64;

/// Name of the scale subresource.
pub(crate) const SCALE: &str = "scale";

/// Answer to a write.
#[derive(Debug)]
pub(crate) struct WriteAnswer {
    /// 200 or 201.
    pub(crate) code: StatusCode,
    /// JSON with a newline at the end.
    pub(crate) json: Bytes,
    /// Warnings about the fields of the body.
    warnings: Vec<String>,
}

/// `POST …/{plural}`.
///
/// # Errors
/// The Status to answer with.
pub(crate) async fn create(app: &App, request: &WriteRequest<'_>) -> Result<WriteAnswer, Status> {
    create::create(app, request).await
}

/// Creates an object from a manifest. Everything in a dump of a running cluster is kept, except the resourceVersion.
///
/// # Errors
/// The Status that a client would get.
pub(crate) async fn create_from_manifest(
    app: &App,
    ty: &Arc<ResourceType>,
    namespace: Option<&str>,
    object: &[u8],
) -> Result<(), Status> {
    let request =
        WriteRequest { ty, namespace, name: None, subresource: None, query: &[], content_type: None, body: object };
    create::create_from_manifest(app, &request).await
}

/// `PUT …/{plural}/{name}`, and of its subresources `status` and `scale`.
///
/// # Errors
/// The Status to answer with.
pub(crate) async fn update(app: &App, request: &WriteRequest<'_>) -> Result<WriteAnswer, Status> {
    if request.subresource == Some(SCALE) {
        return scale::update(app, request).await;
    }
    let place = request.target()?;
    let options = Options::read("UpdateOptions", request.query)?;
    let (registry, mut warnings) = (app.registry.now(), Vec::new());
    let WriteRequest { ty, content_type, body, .. } = *request;
    let read = |warnings: &mut Vec<String>| {
        let mut object = body::read_valid(&registry, ty, content_type, body, options.validation, warnings)?;
        metadata::match_namespace(ty, place.namespace, &mut object)?;
        place.match_name(&object)?;
        Ok(object)
    };
    let again = || read(&mut Vec::new());
    let sent = SentObject::new(read(&mut warnings)?, &again);
    let answer = replace(app, &place, sent, options, &mut warnings).await?;
    Ok(WriteAnswer { warnings, ..answer })
}

/// Replaces an object, or creates it if its type allows creation by update.
async fn replace(
    app: &App,
    place: &WriteTarget<'_>,
    sent: SentObject<'_>,
    options: Options,
    warnings: &mut Vec<String>,
) -> Result<WriteAnswer, Status> {
    let makes = place.ty.create_on_update;
    let change = RequestedChange::Replace(sent);
    for _ in 0..ATTEMPTS_MAX {
        let refused = match update::update(app, place, &change, options, warnings).await {
            Err(status) if makes && status.reason == Reason::NotFound => status,
            other => return other,
        };
        let RequestedChange::Replace(sent) = &change else { return Err(refused) };
        let mut object = sent.take()?;
        check_uid(place, &Object::new(), &object)?;
        if place.part == Part::Status {
            return Err(refused);
        }
        version(&object)?;
        // The version names the object that was deleted.
        metadata::metadata_mut(&mut object).remove("resourceVersion");
        if let Some(made) = create::create_named(app, place.ty, &object, options).await? {
            return Ok(made);
        }
    }
    Err(place.modified())
}

/// `PATCH …/{plural}/{name}`, and of its subresources `status` and `scale`.
///
/// # Errors
/// The Status to answer with.
pub(crate) async fn patch(app: &App, request: &WriteRequest<'_>) -> Result<WriteAnswer, Status> {
    if request.subresource == Some(SCALE) {
        return scale::patch(app, request).await;
    }
    let place = request.target()?;
    let patch_type = PatchType::of(request.ty, request.content_type)?;
    let asked = PatchOptions::read(request.query, patch_type == PatchType::Apply)?;
    let mut warnings = Vec::new();
    if patch_type == PatchType::Apply {
        let answer = apply::apply(app, &place, request.body, asked, &mut warnings).await?;
        return Ok(WriteAnswer { warnings, ..answer });
    }
    let patch = match Patch::read(patch_type, request.body, asked.options.validation) {
        Ok(patch) => patch,
        Err(status) => {
            // As in kube-apiserver, 404 takes precedence over errors in the patch.
            stored_entry(&app.caches, &place).await.map_err(|error| unread(&place, error))?;
            return Err(status);
        }
    };
    let answer = update::update(app, &place, &RequestedChange::Patch(patch), asked.options, &mut warnings).await?;
    Ok(WriteAnswer { warnings, ..answer })
}

/// `GET …/{plural}/{name}/scale`.
///
/// # Errors
/// The Status to answer with.
pub(crate) async fn read_scale(app: &App, request: &WriteRequest<'_>) -> Result<WriteAnswer, Status> {
    scale::get(app, request).await
}

/// `DELETE …/{plural}/{name}`.
///
/// # Errors
/// The Status to answer with.
pub(crate) async fn delete(app: &App, request: &WriteRequest<'_>) -> Result<WriteAnswer, Status> {
    if request.subresource.is_some() {
        return Err(Status::generic_method_not_allowed());
    }
    let place = request.target()?;
    let options = DeleteOptions::read(request)?;
    delete::delete(&app.caches, &app.storage, &place, &options).await
}

/// Options of `DELETE …/{plural}`, without the query that selects the objects.
#[derive(Debug)]
pub(crate) struct Collection(DeleteOptions);

impl Collection {
    /// Reads the delete options of a request.
    ///
    /// # Errors
    /// The Status to answer with.
    pub(crate) async fn read(app: &App, request: &WriteRequest<'_>) -> Result<Self, Status> {
        if request.ty.namespaced && request.namespace.is_none() {
            return Err(Status::generic_method_not_allowed());
        }
        app.work.run(request.size(None)?, async { DeleteOptions::read(request) }).await?.map(Self)
    }

    /// Deletes the listed objects one by one. Objects that were deleted meanwhile are no error.
    ///
    /// # Errors
    /// The Status of the first object that could not be deleted.
    pub(crate) async fn delete(&self, app: &App, ty: &Arc<ResourceType>, listed: &[Arc<Entry>]) -> Result<(), Status> {
        delete::delete_collection(&app.caches, &app.storage, ty, listed, &self.0).await
    }
}

/// Reads the object of a write as it is now, decoded.
async fn read(app: &App, target: &WriteTarget<'_>) -> Result<Current, Status> {
    Current::read(&app.caches, target).await.map_err(|error| unread(target, error))
}

/// Returns the Status for an object that was not read.
fn unread(target: &WriteTarget<'_>, error: ReadFailure) -> Status {
    match error {
        ReadFailure::NotFound => target.not_found(),
        ReadFailure::Malformed => Status::internal("a stored object cannot be read"),
        ReadFailure::Unfresh(error) => error.into(),
    }
}

impl WriteAnswer {
    /// Returns the values of `Warning` headers.
    pub(crate) fn warnings(&self) -> Vec<String> {
        validation::headers(&self.warnings)
    }

    /// Answers with a stored object.
    fn stored(code: StatusCode, entry: &Entry) -> Self {
        let object = entry.object();
        let mut json = BytesMut::with_capacity(object.len() + 1);
        json.put(object);
        json.put_u8(b'\n');
        Self { code, json: json.freeze(), warnings: Vec::new() }
    }

    /// Answers with an object that is not stored in this form: of a dry run, or the last state of a deleted object.
    fn unstored(code: StatusCode, ty: &ResourceType, object: Object) -> Self {
        Self { code, json: ordered(ty, object).into(), warnings: Vec::new() }
    }

    fn status(status: &Status) -> Self {
        Self { code: StatusCode::OK, json: status.to_json().into(), warnings: Vec::new() }
    }
}

/// Returns the current time in UTC and whole seconds, in the format of API objects.
fn now() -> String {
    whole_seconds().to_string()
}
