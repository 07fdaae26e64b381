//! Server-side apply: merges a manager's configuration into an object, beside the fields of other managers.
//!
//! The merge follows the schema. Fields that the manager applied before and now leaves out are removed, unless another
//! entry of `managedFields` owns them. The manager's entry then lists the applied fields.
//!
//! `docs/adr/0013-patch-json-with-schemas.md` lists the simplifications. Other writes get entries where [`record`] is called,
//! so that applies conflict with them: where the server acts as a cluster.
//!
//! [`record`]: super::record::record
//!
//! INVARIANT: applying a configuration twice changes nothing the second time: no version, no event, no new entry.
//!
//! Source: apimachinery `pkg/util/managedfields/internal/structuredmerge.go`, structured-merge-diff `merge/update.go`;
//! apiserver `endpoints/handlers/patch.go` (applyPatcher).

mod merge;
pub(crate) mod typed;

use std::sync::LazyLock;

use informer_serving::{
    go,
    status::{Status, StatusExt as _},
};
use serde_json::{Value, json};

use super::{
    WriteTarget,
    body::{Encoding, Object},
    managed::{FieldSet, ManagerIdentity, Ownership},
    metadata::{self, Part},
    options::{FieldValidation, PatchOptions},
    sparse::{self, ManagedTouch, SealedPair},
    update, validation,
};
use crate::{
    registry::ResourceType,
    schemas::{self, ShapeMember, ValueShape},
};

/// Media type of an apply; the body may also be JSON.
pub const MEDIA_TYPE: &str = "application/apply-patch+yaml";

/// Metadata members without owners.
const UNOWNED: [&str; 9] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

/// A configuration to apply, and its manager.
#[derive(Debug)]
pub struct AppliedConfiguration {
    manager: String,
    force: bool,
    /// As sent, without nulls and without the part of the object that the request may not change.
    config: Object,
    /// Fields that the configuration sets.
    fields: FieldSet,
    /// The entry's `subresource`.
    subresource: &'static str,
    /// Fills in the defaults of an object, if writes do.
    complete: Option<Completion>,
}

/// Fills in the defaults of an object.
pub type Completion = fn(&ResourceType, &mut Object);

impl AppliedConfiguration {
    /// Parses the body of an apply.
    ///
    /// # Errors
    /// 400 if the body is no object of this type, or brings managedFields. 500, as in kube-apiserver, if it does not
    /// fit the schema.
    pub fn read(
        place: &WriteTarget<'_>,
        body: &[u8],
        requested: PatchOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Status> {
        let mut duplicates = false;
        let mut config = decode(body, &mut duplicates)?;
        check_type(place.ty, &config)?;
        let shape = shape(place.ty);
        let is_nameless = config.get("metadata").and_then(|metadata| metadata.get("name")).is_some_and(Value::is_null);
        if place.ty.schema.builtin {
            without_nulls(&mut config, Some(&shape));
        } else {
            let metadata = config.remove("metadata").filter(|metadata| !metadata.is_null());
            without_nulls(&mut config, None);
            // Only metadata has a schema.
            if let Some(mut metadata) = metadata {
                metadata.as_object_mut().into_iter().for_each(|it| without_nulls(it, schemas::object_meta().as_ref()));
                config.insert("metadata".to_owned(), metadata);
            }
        }
        if config.get("metadata").is_some_and(|metadata| metadata.get("managedFields").is_some()) {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        let mut fields = typed::fields(&config, &shape).map_err(|error| unfit(place, &config, &error))?;
        // Convert to the stored form. Other type errors were reported above, so only invalid base64 remains.
        if let Some(error) = validation::check(place.ty, &mut config).mistyped {
            return Err(unreadable(place, &config, &error));
        }
        // Without schemas, only metadata can be checked.
        metadata::check_shape(&config).map_err(Status::bad_request)?;
        if duplicates {
            let complaints = validation::complaints(encoding(body), body, &[], true);
            match requested.options.validation {
                FieldValidation::Ignore => {}
                FieldValidation::Warn => warnings.extend(complaints),
                FieldValidation::Strict => {
                    return Err(Status::bad_request(format!("error strict decoding YAML: {}", complaints.join(", "))));
                }
            }
        }
        if is_nameless {
            // An absent name defaults to the path's; null means the empty name, which is refused later.
            metadata::metadata_mut(&mut config).insert("name".to_owned(), "".into());
        }
        let subresource = restrict(place, &mut config, &mut fields);
        let PatchOptions { manager, force, .. } = requested;
        Ok(Self { manager, force, config, fields, subresource, complete: None })
    }

    /// Lets an object that has nothing but defaults beside the fields that the manager leaves out now go with them, as
    /// `complete` fills them in.
    #[must_use]
    pub fn completed_by(self, complete: Option<Completion>) -> Self {
        Self { complete, ..self }
    }

    fn owner<'a>(&'a self, ty: &'a ResourceType) -> ManagerIdentity<'a> {
        ManagerIdentity { manager: &self.manager, api_version: ty.api_version(), subresource: self.subresource }
    }

    /// Builds the object if it does not exist yet.
    pub fn first(&self, place: &WriteTarget<'_>, now: &str) -> Result<Object, Status> {
        let uid = metadata::text(&self.config, "uid");
        if !uid.is_empty() {
            let ResourceType { group, plural, .. } = &**place.ty;
            let text =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Status::conflict(group, plural, place.name, &text));
        }
        let mut object = self.config.clone();
        metadata::match_namespace(place.ty, place.namespace, &mut object)?;
        place.match_name(&object)?;
        // kube-apiserver only parses the version of an object that does not exist.
        update::version(&object)?;
        metadata::metadata_mut(&mut object).remove("resourceVersion");
        let entries = Ownership::of(&object, self.owner(place.ty)).with(&self.fields, now);
        put_entries(&mut object, entries);
        Ok(object)
    }

    /// Decodes of a stored object only where it differs from the configuration, and what an apply reads. Returns `None`
    /// for an apply that sets other fields than the manager's last one, or changes fields of other managers: it may
    /// remove fields, and take them from others.
    pub(crate) fn sparse<'t>(&self, ty: &ResourceType, text: &'t [u8]) -> Option<SealedPair<'t>> {
        if self.fields.is_empty() || !self.config.values().all(sparse::is_free_of_seals) {
            return None;
        }
        let (fields, shape) = (self.fields.text(), shape(ty));
        let managed = ManagedTouch::Applied(self.owner(ty), &fields);
        let pair = sparse::pair(text, managed, &self.config, &shape)?;
        if !pair.others.is_empty() {
            let merged = merge::merge(pair.object.clone(), &pair.config, &shape);
            let changed = merge::changed(&pair.object, &merged, &shape, &self.fields);
            // An apply by force removes entries without fields.
            if pair.others.iter().any(|others| **others == *b"{}" || changed.overlaps(others)) {
                return None;
            }
        }
        Some(pair)
    }

    /// Returns the object after the apply. The caller must check its metadata. `sealed` is the configuration that
    /// [`sparse`](Self::sparse) returned with a sparse object.
    ///
    /// # Errors
    /// 409 if other managers own fields with different values.
    pub(crate) fn onto(
        &self,
        ty: &ResourceType,
        stored: &Object,
        sealed: Option<&Object>,
        now: &str,
    ) -> Result<Object, Status> {
        let shape = shape(ty);
        let mut owned = Ownership::of(stored, self.owner(ty));
        let mut merged = merge::merge(stored.clone(), sealed.unwrap_or(&self.config), &shape);
        if sealed.is_some() {
            if merged != *stored {
                put_entries(&mut merged, owned.renewed(now));
            }
            return Ok(merged);
        }
        owned.take_over(&merge::changed(stored, &merged, &shape, &self.fields), self.force)?;
        let mut retained = owned.others();
        retained.add(&self.fields);
        let last = owned.last();
        let completed = self.complete.filter(|_| last != self.fields).map(|complete| {
            let mut own = merge::extract(stored, &shape, &last);
            complete(ty, &mut own);
            own
        });
        merge::remove(&mut merged, &shape, &last, &retained, completed.as_ref());
        let unchanged = last == self.fields && merged == *stored;
        if !unchanged {
            put_entries(&mut merged, owned.with(&self.fields, now));
        }
        Ok(merged)
    }
}

pub(crate) fn put_entries(object: &mut Object, entries: Vec<Value>) {
    // `prepare_update` ignores an empty list and keeps the stored entries; one empty entry removes them.
    let entries = if entries.is_empty() { json!([{}]) } else { Value::Array(entries) };
    metadata::metadata_mut(object).insert("managedFields".to_owned(), entries);
}

/// Returns the shape of a type. For types without a schema, maps merge and lists are replaced.
pub(crate) fn shape(ty: &ResourceType) -> ValueShape {
    static ANY: LazyLock<ValueShape> = LazyLock::new(|| {
        ValueShape::from_openapi(&json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}))
    });
    schemas::of(ty).unwrap_or_else(|| ANY.clone())
}

/// Most clients send JSON; its own decoder is faster and has better messages.
fn encoding(body: &[u8]) -> Encoding {
    let is_json = body.trim_ascii_start().first() == Some(&b'{') && go::json_error(body).is_none();
    if is_json { Encoding::Json } else { Encoding::Yaml }
}

fn decode(body: &[u8], duplicates: &mut bool) -> Result<Object, Status> {
    let refuse = |error: &str| Status::bad_request(format!("error decoding YAML: {error}"));
    // Tried first, because `encoding` takes a pass of its own.
    if body.trim_ascii_start().first() == Some(&b'{')
        && let Ok(Value::Object(object)) = Encoding::Json.decode_noting(body, duplicates)
    {
        return Ok(object);
    }
    *duplicates = false;
    match encoding(body).decode_noting(body, duplicates).map_err(|error| refuse(&error))? {
        Value::Object(object) => Ok(object),
        // Go reads null as an empty object.
        Value::Null => Ok(Object::new()),
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => Err(refuse(&format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type \
             map[string]interface {{}}",
            go::json_type(&other)
        ))),
    }
}

fn check_type(ty: &ResourceType, config: &Object) -> Result<(), Status> {
    let declared = |member: &str| config.get(member).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (declared("apiVersion"), declared("kind"));
    if api_version == ty.api_version() && kind == ty.kind {
        return Ok(());
    }
    // The core group has an empty name.
    let group = if api_version.contains('/') { "" } else { "/" };
    Err(Status::bad_request(format!("invalid object type: {group}{api_version}, Kind={kind}")))
}

/// Builds kube-apiserver's error for a configuration that does not fit the schema: a 500.
fn unfit(place: &WriteTarget<'_>, config: &Object, error: &str) -> Status {
    let (named, kind) = (named(config), qualified(place.ty));
    Status::unmapped(format!("failed to create typed patch object ({named}; {kind}): {error}"))
}

/// Builds kube-apiserver's error for a configuration that fits the schema but not the type: a 500.
fn unreadable(place: &WriteTarget<'_>, config: &Object, error: &str) -> Status {
    let (named, kind) = (named(config), qualified(place.ty));
    Status::unmapped(format!(
        "failed to convert new object ({named}; {kind}) to proper version: unable to convert unstructured object to \
         {kind}: error decoding from json: {error}"
    ))
}

fn named(config: &Object) -> String {
    format!("{}/{}", metadata::text(config, "namespace"), metadata::text(config, "name"))
}

/// `apps/v1, Kind=Deployment`.
fn qualified(ty: &ResourceType) -> String {
    format!("{}/{}, Kind={}", ty.group, ty.version, ty.kind)
}

/// Removes fields that are null, but keeps the keys of maps whatever their value.
fn without_nulls(object: &mut Object, shape: Option<&ValueShape>) {
    let is_key = |name: &str| matches!(shape.map(|shape| shape.member(name)), Some(ShapeMember::Free(Some(_))));
    object.retain(|name, value| !value.is_null() || is_key(name));
    for (name, value) in object {
        let inner = typed::member(shape, name);
        match value {
            Value::Object(members) => without_nulls(members, inner.as_ref()),
            Value::Array(items) => {
                let inner = inner.and_then(|list| list.item());
                items.iter_mut().filter_map(Value::as_object_mut).for_each(|item| without_nulls(item, inner.as_ref()));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// Reduces a configuration and its fields to the part that the request may change. Returns the subresource.
fn restrict(place: &WriteTarget<'_>, config: &mut Object, fields: &mut FieldSet) -> &'static str {
    restrict_fields(place, fields);
    match written_member(place.part) {
        None => {
            if place.ty.has_status {
                config.remove("status");
            }
        }
        Some(member) => {
            let retained = place.part.retained_metadata(place.ty);
            if let Some(Value::Object(metadata)) = config.get_mut("metadata") {
                metadata.retain(|name, _| !retained.contains(&name.as_str()));
            }
            config.retain(|name, _| ["apiVersion", "kind", "metadata", member].contains(&name.as_str()));
        }
    }
    place.part.subresource()
}

/// Reduces fields to those that have owners, in the part that the request may change.
pub(crate) fn restrict_fields(place: &WriteTarget<'_>, fields: &mut FieldSet) {
    let member = written_member(place.part);
    let retained = if member.is_some() { place.part.retained_metadata(place.ty) } else { &[] };
    if let Some(metadata) = fields.inside.get_mut("f:metadata") {
        let has_owners = |name: &str| !UNOWNED.contains(&name) && !retained.contains(&name);
        metadata.inside.retain(|step, _| step.strip_prefix("f:").is_none_or(has_owners));
        metadata.own = false;
    }
    let is_written = |name: &str| match member {
        None => !(["apiVersion", "kind"].contains(&name) || name == "status" && place.ty.has_status),
        Some(member) => name == "metadata" || name == member,
    };
    fields.inside.retain(|step, below| !below.is_empty() && step.strip_prefix("f:").is_some_and(is_written));
}

/// The member that a subresource writes beside metadata; `None` for the main resource, which writes all.
const fn written_member(part: Part) -> Option<&'static str> {
    match part {
        Part::Main | Part::Finalize => None,
        Part::EphemeralContainers => Some("spec"),
        Part::Status | Part::Approval => Some("status"),
    }
}

#[cfg(test)]
mod tests;
