//! Writes: creates, updates, patches, applies and deletes objects as kube-apiserver does.
//!
//! INVARIANT: an object is replaced or deleted only at the version that was read, so no write is lost. A write without
//! a resourceVersion is retried on a conflict. INVARIANT: a write that changes nothing creates neither a version nor an
//! event.
//!
//! Not implemented, on purpose: admission (an object may name a namespace that does not exist), defaulting, validation
//! beyond metadata and the JSON types of fields, managedFields for writes other than applies (entries that clients send
//! are kept), and the work of controllers: kubelets that end pods, and the garbage collector.

mod apply;
mod body;
mod create;
mod definition;
mod delete;
mod deletion;
mod managed;
mod metadata;
mod options;
mod patch;
mod protobuf;
mod scale;
mod strategic;
mod update;
mod validation;
mod weight;

pub(crate) use delete::delete_listed;

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::StatusCode;
use informer_core::wire::{
    json,
    status::{Reason, Status},
};
use jiff::Timestamp;
use serde_json::Value;
use watch_cache::{Draft, Entry, EntryError, Reader};

use super::work::Size;
use crate::{app::App, cacher::Caches, limits, registry::ResourceType};

use self::{
    body::Object,
    metadata::Part,
    options::{Options, PatchOptions},
    patch::{Patch, PatchType},
    update::{Change, Sent},
    weight::Weight,
};

/// Bound on attempts to update-or-create an object that other clients create and delete meanwhile.
const ATTEMPTS_MAX: usize = 64;

/// Name of the scale subresource.
pub(super) const SCALE: &str = "scale";

/// One write, as routed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request<'a> {
    /// The type of the path.
    pub(super) ty: &'a Arc<ResourceType>,
    /// The namespace of the path.
    pub(super) namespace: Option<&'a str>,
    /// The name of the path; `None` means the collection.
    pub(super) name: Option<&'a str>,
    /// The subresource of the path.
    pub(super) subresource: Option<&'a str>,
    /// The query, decoded.
    pub(super) query: &'a [(String, String)],
    /// The Content-Type header.
    pub(super) content_type: Option<&'a str>,
    /// The body, within the size limit.
    pub(super) body: &'a [u8],
}

/// Answer to a write.
#[derive(Debug)]
pub(super) struct Answer {
    /// 200 or 201.
    pub(super) code: StatusCode,
    /// JSON with a newline at the end.
    pub(super) json: Bytes,
    /// Warnings about the fields of the body.
    warnings: Vec<String>,
}

/// `POST …/{plural}`.
///
/// # Errors
/// The Status to answer with.
pub(super) async fn create(app: &App, request: &Request<'_>) -> Result<Answer, Status> {
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
        Request { ty, namespace, name: None, subresource: None, query: &[], content_type: None, body: object };
    create::create_from_manifest(app, &request).await
}

/// `PUT …/{plural}/{name}`, and of its subresources `status` and `scale`.
///
/// # Errors
/// The Status to answer with.
pub(super) async fn update(app: &App, request: &Request<'_>) -> Result<Answer, Status> {
    if request.subresource == Some(SCALE) {
        return scale::update(app, request).await;
    }
    let place = request.place()?;
    let options = Options::read("UpdateOptions", request.query)?;
    let (registry, mut warnings) = (app.registry.now(), Vec::new());
    let Request { ty, content_type, body, .. } = *request;
    let read = |warnings: &mut Vec<String>| {
        let mut object = body::read_valid(&registry, ty, content_type, body, options.validation, warnings)?;
        metadata::match_namespace(ty, place.namespace, &mut object)?;
        place.match_name(&object)?;
        Ok(object)
    };
    let again = || read(&mut Vec::new());
    let sent = Sent::new(read(&mut warnings)?, &again);
    let answer = replace(app, &place, sent, options, &mut warnings).await?;
    Ok(Answer { warnings, ..answer })
}

/// Replaces an object, or creates it if its type allows creation by update.
async fn replace(
    app: &App,
    place: &Place<'_>,
    sent: Sent<'_>,
    options: Options,
    warnings: &mut Vec<String>,
) -> Result<Answer, Status> {
    let makes = place.ty.create_on_update;
    let change = Change::Replace(sent);
    for _ in 0..ATTEMPTS_MAX {
        let refused = match update::update(app, place, &change, options, warnings).await {
            Err(status) if makes && status.reason == Reason::NotFound => status,
            other => return other,
        };
        let Change::Replace(sent) = &change else { return Err(refused) };
        let mut object = sent.take()?;
        update::check_uid(place, &Object::new(), &object)?;
        if place.part == Part::Status {
            return Err(refused);
        }
        update::version(&object)?;
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
pub(super) async fn patch(app: &App, request: &Request<'_>) -> Result<Answer, Status> {
    if request.subresource == Some(SCALE) {
        return scale::patch(app, request).await;
    }
    let place = request.place()?;
    let patch_type = PatchType::of(request.ty, request.content_type)?;
    let asked = PatchOptions::read(request.query, patch_type == PatchType::Apply)?;
    let mut warnings = Vec::new();
    if patch_type == PatchType::Apply {
        let answer = apply::apply(app, &place, request.body, asked, &mut warnings).await?;
        return Ok(Answer { warnings, ..answer });
    }
    let patch = match Patch::read(patch_type, request.body, asked.options.validation) {
        Ok(patch) => patch,
        Err(status) => {
            // As in kube-apiserver, 404 takes precedence over errors in the patch.
            place.entry(&app.caches).await?;
            return Err(status);
        }
    };
    let answer = update::update(app, &place, &Change::Patch(patch), asked.options, &mut warnings).await?;
    Ok(Answer { warnings, ..answer })
}

/// `GET …/{plural}/{name}/scale`.
///
/// # Errors
/// The Status to answer with.
pub(super) async fn read_scale(app: &App, request: &Request<'_>) -> Result<Answer, Status> {
    scale::get(app, request).await
}

/// `DELETE …/{plural}/{name}`.
///
/// # Errors
/// The Status to answer with.
pub(super) async fn delete(app: &App, request: &Request<'_>) -> Result<Answer, Status> {
    if request.subresource.is_some() {
        return Err(Status::generic_method_not_allowed());
    }
    let place = request.place()?;
    let options = options::DeleteOptions::read(request)?;
    delete::delete(&app.caches, &app.storage, &place, &options).await
}

/// Options of `DELETE …/{plural}`, without the query that selects the objects.
#[derive(Debug)]
pub(super) struct Collection(options::DeleteOptions);

impl Collection {
    /// Reads the delete options of a request.
    ///
    /// # Errors
    /// The Status to answer with.
    pub(super) async fn read(app: &App, request: &Request<'_>) -> Result<Self, Status> {
        if request.ty.namespaced && request.namespace.is_none() {
            return Err(Status::generic_method_not_allowed());
        }
        app.work.run(request.size(None)?, async { options::DeleteOptions::read(request) }).await?.map(Self)
    }

    /// Deletes the listed objects one by one. Objects that were deleted meanwhile are no error.
    ///
    /// # Errors
    /// The Status of the first object that could not be deleted.
    pub(super) async fn delete(&self, app: &App, ty: &Arc<ResourceType>, listed: &[Arc<Entry>]) -> Result<(), Status> {
        delete::delete_collection(&app.caches, &app.storage, ty, listed, &self.0).await
    }
}

/// Location of an object, whether it exists or not.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    ty: &'a Arc<ResourceType>,
    /// Empty for cluster-scoped types.
    namespace: &'a str,
    name: &'a str,
    part: Part,
}

impl<'a> Request<'a> {
    /// Estimates the work of the write. `reader` reads the type's cache.
    ///
    /// # Errors
    /// 413 for a body with too many values.
    pub(super) fn size(&self, reader: Option<&Reader>) -> Result<Size, Status> {
        let key = || Some(self.ty.key(self.namespace.unwrap_or_default(), self.name?));
        let stored = reader.and_then(|reader| reader.get(&key()?));
        weight::size(self.content_type, self.body, stored.as_deref())
    }

    /// Returns the location of the object that the request names.
    fn place(&self) -> Result<Place<'a>, Status> {
        let part = match self.subresource {
            None => Part::Main,
            Some("status") if self.ty.has_status => Part::Status,
            Some(_) => return Err(Status::generic_not_found()),
        };
        let Some(name) = self.name else { return Err(Status::generic_method_not_allowed()) };
        Ok(Place { ty: self.ty, namespace: self.namespace.unwrap_or_default(), name, part })
    }
}

impl Place<'_> {
    fn key(&self) -> String {
        self.ty.key(self.namespace, self.name)
    }

    fn not_found(&self) -> Status {
        Status::not_found(&self.ty.group, &self.ty.plural, self.name)
    }

    fn modified(&self) -> Status {
        Status::modified(&self.ty.group, &self.ty.plural, self.name)
    }

    /// Reads and decodes the current object.
    async fn read(&self, app: &App) -> Result<Current, Status> {
        self.read_from(&app.caches).await
    }

    /// Reads the current object for a replacement; only the metadata that a replacement cannot change if the type needs
    /// no more. `managed` is true if the replacement brings managedFields; if not, the stored ones stay.
    async fn read_for_replacing(&self, app: &App, managed: bool) -> Result<Current, Status> {
        let entry = self.entry(&app.caches).await?;
        let is_enough = self.part == Part::Main && self.ty.is_replaced_whole() && entry.is_normal();
        match is_enough.then(|| Current::metadata(&entry, managed)).flatten() {
            Some(object) => Ok(Current { entry, object, is_whole: false }),
            None => self.decode(entry),
        }
    }

    /// Like `read`, without an `App`.
    async fn read_from(&self, caches: &Caches) -> Result<Current, Status> {
        self.decode(self.entry(caches).await?)
    }

    async fn entry(&self, caches: &Caches) -> Result<Arc<Entry>, Status> {
        let reader = caches.fresh(self.ty).await?;
        reader.get(&self.key()).ok_or_else(|| self.not_found())
    }

    fn decode(&self, entry: Arc<Entry>) -> Result<Current, Status> {
        let mut current = Current::decode(entry)?;
        if self.ty.is_swapped() {
            // No conversion: all versions of a custom type share one stored form.
            current.object.insert("apiVersion".to_owned(), self.ty.api_version().into());
        }
        Ok(current)
    }

    /// Checks that the object's name equals the name in the path.
    fn match_name(&self, object: &Object) -> Result<(), Status> {
        let said = metadata::text(object, "name");
        if said.is_empty() {
            return Err(Status::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                self.name
            )));
        }
        if said != self.name {
            return Err(Status::bad_request(format!(
                "the name of the object ({said}) does not match the name on the URL ({})",
                self.name
            )));
        }
        Ok(())
    }
}

/// A stored object, decoded.
struct Current {
    entry: Arc<Entry>,
    object: Object,
    /// False if `object` holds only the metadata that a replacement cannot change.
    is_whole: bool,
}

impl Current {
    fn decode(entry: Arc<Entry>) -> Result<Self, Status> {
        match serde_json::from_slice(&entry.object()) {
            Ok(Value::Object(object)) => Ok(Self { entry, object, is_whole: true }),
            Ok(_) | Err(_) => Err(Status::internal("a stored object cannot be read")),
        }
    }
}

impl Current {
    /// Decodes the metadata that survives a replacement, except managedFields. `None` if there are managedFields that
    /// the replacement does not bring, as they survive too.
    fn metadata(entry: &Entry, managed: bool) -> Option<Object> {
        const KEPT: [&str; 9] = [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "finalizers",
        ];
        let text = entry.metadata();
        let mut metadata = Object::new();
        for member in json::members(&text) {
            let member = member.ok()?;
            let key = member.key.bytes();
            if !managed && *key == *b"managedFields" {
                return None;
            }
            if let Some(name) = KEPT.into_iter().find(|name| name.as_bytes() == &*key) {
                metadata.insert(name.to_owned(), serde_json::from_slice(member.value).ok()?);
            }
        }
        (!metadata.is_empty()).then(|| Object::from_iter([("metadata".to_owned(), Value::Object(metadata))]))
    }
}

impl Answer {
    /// Returns the values of `Warning` headers.
    pub(super) fn warnings(&self) -> Vec<String> {
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

/// Encodes an object with kind and apiVersion first, like stored ones, and a newline.
fn ordered(ty: &ResourceType, mut object: Object) -> Vec<u8> {
    object.remove("kind");
    object.remove("apiVersion");
    let mut json =
        format!("{{\"kind\":{},\"apiVersion\":{}", Value::from(&*ty.kind), Value::from(ty.api_version())).into_bytes();
    for (member, value) in object {
        json.extend_from_slice(format!(",{}:{value}", Value::String(member)).as_bytes());
    }
    json.extend_from_slice(b"}\n");
    json
}

/// Bound on nested objects and lists: the decoder of bodies and stored objects reads no more. A managedFields entry
/// nests deeper than the fields that it lists.
const DEPTH_MAX: usize = 127;

/// Encodes an object for the storage.
///
/// # Errors
/// 400 and 413 for objects that could not be read again, and thus neither changed nor deleted.
fn draft(ty: &ResourceType, object: &Object) -> Result<Draft, Status> {
    if 1 + object.values().map(depth).max().unwrap_or_default() > DEPTH_MAX {
        return Err(Status::bad_request(format!("the object is nested deeper than {DEPTH_MAX}")));
    }
    let text = serde_json::to_vec(object).expect("a JSON object has a text");
    // Members are sorted, so equal objects have one text once the resourceVersion is a member.
    let is_normal = !metadata::text(object, "resourceVersion").is_empty();
    let made = Draft::new(&ty.schema, &text).map(|draft| if is_normal { draft.normal() } else { draft });
    made.map_err(|error| match error {
        EntryError::TooLarge { bytes } => Status::request_entity_too_large(&format!("the object has {bytes} bytes")),
        EntryError::NotAnObject | EntryError::NoName | EntryError::BadName => Status::bad_request(error.to_string()),
    })
}

/// Encodes a client's object for the storage.
///
/// # Errors
/// As [`draft`]; 413 for an object above the configured size, or one with too many values, by whatever write it was
/// made.
fn bounded_draft(app: &App, ty: &ResourceType, object: &Object) -> Result<Draft, Status> {
    // The bytes that a deletion adds always fit; otherwise the last finalizer could not be removed.
    let mark = if metadata::is_terminating(object) { limits::DELETION_MARK_BYTES_MAX } else { 0 };
    // The next write decodes the object again, so bound its decoded size too.
    Weight::new(limits::DECODED_BYTES_MAX + mark).object(object)?;
    let draft = draft(ty, object)?;
    let (bytes, max) = (draft.len(), app.config.object_bytes_max);
    if bytes > max.saturating_add(mark) {
        return Err(Status::request_entity_too_large(&format!("the object has {bytes} bytes, limit is {max}")));
    }
    Ok(draft)
}

/// Returns the nesting depth of objects and lists.
fn depth(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or_default(),
    }
}

/// Returns the current time in whole seconds.
fn time() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// Returns the current time in UTC and whole seconds, in the format of API objects.
fn now() -> String {
    time().to_string()
}

/// Returns the value at a dotted path.
fn at<'a>(object: &'a Object, path: &str) -> Option<&'a Value> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let value = object.get(first)?;
    rest.map_or(Some(value), |rest| at(value.as_object()?, rest))
}
