//! Rules of `metadata`: fields that the server sets, keeps or refuses.
//!
//! INVARIANT: uses no storage and no clock; the caller passes the time and the uid.
//!
//! Source: apiserver `registry/rest/{create,update,meta}.go`, apimachinery `api/validation/objectmeta.go`.

use std::collections::HashSet;

use informer_serving::{
    go::{json_type, quote},
    status::{CauseExt as _, Causes, Status, StatusCause, StatusExt as _},
};
use serde_json::{Value, json};

use super::{approval, body::Object, definition_rules, ephemeral, managed};
use crate::registry::{
    CreatedStatus, DefinitionChange, FixedMember, ResourceType, StatusMetadata, Subresource, refuse_namespace,
};

/// Members that hold a string.
const TEXTS: [&str; 7] =
    ["name", "generateName", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"];
/// Members that hold a map of strings.
const MAPS: [&str; 2] = ["labels", "annotations"];

/// Checks that the members of metadata have the right JSON types; null counts as absent.
///
/// # Errors
/// The message of Go's decoder.
pub fn check_shape(object: &Object) -> Result<(), String> {
    let metadata = match object.get("metadata") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(metadata)) => metadata,
        Some(other) => return Err(mistyped(other, "metadata", "ObjectMeta")),
    };
    for member in TEXTS {
        expect_text(metadata.get(member), member)?;
    }
    for member in MAPS {
        match metadata.get(member) {
            None | Some(Value::Null) => {}
            Some(Value::Object(map)) => {
                for value in map.values() {
                    expect_text(Some(value), member)?;
                }
            }
            Some(other) => return Err(mistyped(other, member, "map[string]string")),
        }
    }
    match metadata.get("finalizers") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Array(finalizers)) => {
            finalizers.iter().try_for_each(|finalizer| expect_text(Some(finalizer), "finalizers"))
        }
        Some(other) => Err(mistyped(other, "finalizers", "[]string")),
    }
}

fn expect_text(value: Option<&Value>, member: &str) -> Result<(), String> {
    match value {
        None | Some(Value::Null | Value::String(_)) => Ok(()),
        Some(other) => Err(mistyped(other, member, "string")),
    }
}

fn mistyped(value: &Value, member: &str, expected: &str) -> String {
    let field = if member == "metadata" { ".metadata".to_owned() } else { format!("ObjectMeta.metadata.{member}") };
    format!("json: cannot unmarshal {} into Go struct field {field} of type {expected}", json_type(value))
}

/// Returns a string member of metadata; empty if absent.
pub fn text<'a>(object: &'a Object, member: &str) -> &'a str {
    object.get("metadata").and_then(|metadata| metadata.get(member)).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the finalizers, in order.
pub fn finalizers(object: &Object) -> Vec<&str> {
    let listed = object.get("metadata").and_then(|metadata| metadata.get("finalizers")).and_then(Value::as_array);
    listed.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Removes these finalizers.
pub fn remove_finalizers(object: &mut Object, removed: &[&str]) {
    let metadata = metadata_mut(object);
    let Some(Value::Array(finalizers)) = metadata.get_mut("finalizers") else { return };
    finalizers.retain(|finalizer| !removed.iter().any(|removed| finalizer == removed));
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    }
}

/// Adds a finalizer behind all others.
pub fn add_finalizer(object: &mut Object, finalizer: &str) {
    let metadata = metadata_mut(object);
    match metadata.get_mut("finalizers") {
        Some(Value::Array(finalizers)) => finalizers.push(finalizer.into()),
        _ => drop(metadata.insert("finalizers".to_owned(), json!([finalizer]))),
    }
}

/// Returns true if the object is being deleted and waits for its finalizers.
pub fn is_terminating(object: &Object) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

/// Returns the metadata, inserting an empty map if it is absent or null. [`check_shape`] has refused other values
/// before.
pub fn metadata_mut(object: &mut Object) -> &mut Object {
    // Not the entry API: it allocates the name of the member.
    if !object.get("metadata").is_some_and(Value::is_object) {
        object.insert("metadata".to_owned(), json!({}));
    }
    object.get_mut("metadata").and_then(Value::as_object_mut).expect("made an object above")
}

/// Sets the member to `value`, or removes it if `value` is empty.
fn put(metadata: &mut Object, member: &str, value: &str) {
    if value.is_empty() {
        metadata.remove(member);
    } else if metadata.get(member).and_then(Value::as_str) != Some(value) {
        metadata.insert(member.to_owned(), Value::String(value.to_owned()));
    }
}

/// Sets the namespace from the path, or removes it from an object of a cluster-scoped type.
///
/// # Errors
/// 400 if the object names another namespace.
pub fn match_namespace(ty: &ResourceType, namespace: &str, object: &mut Object) -> Result<(), Status> {
    let declared = text(object, "namespace");
    if ty.namespaced && !declared.is_empty() && declared != namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    put(metadata_mut(object), "namespace", if ty.namespaced { namespace } else { "" });
    Ok(())
}

/// Values that the server gives a new object.
#[derive(Debug, Clone, Copy)]
pub struct Birth<'a> {
    /// A random uid.
    pub uid: &'a str,
    /// Now, as RFC 3339 in whole seconds.
    pub now: &'a str,
    /// The name for an object that has only `generateName`.
    pub generated_name: &'a str,
}

/// Turns a sent object into a new one: clears and sets the members that only the server sets, and checks the names.
///
/// # Errors
/// 500 if a resourceVersion was sent, as in kube-apiserver; 422 for a bad name, namespace or generation.
pub fn prepare_create(ty: &ResourceType, object: &mut Object, birth: Birth<'_>) -> Result<(), Status> {
    if text(object, "name").is_empty() && !text(object, "generateName").is_empty() {
        put(metadata_mut(object), "name", birth.generated_name);
    }
    let causes = check_names(ty, object);
    if !causes.is_empty() {
        return Err(Status::invalid(&ty.group, &ty.kind, text(object, "name"), causes));
    }
    // kube-apiserver treats zero, and text that is no number, as absent.
    if text(object, "resourceVersion").parse::<u64>().is_ok_and(|version| version != 0) {
        return Err(Status::unmapped("resourceVersion should not be set on objects to be created"));
    }
    let metadata = metadata_mut(object);
    tidy(metadata);
    for wiped in ["resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        metadata.remove(wiped);
    }
    put(metadata, "uid", birth.uid);
    put(metadata, "creationTimestamp", birth.now);
    if ty.holds_objects {
        hold_for_objects(object);
    }
    // Types without generation tracking keep the value sent.
    let generation = if ty.tracks_generation { 1 } else { generation(object) };
    put_generation(object, generation);
    fill_fixed(ty, object);
    match ty.created_status {
        CreatedStatus::Retained => {}
        CreatedStatus::Dropped => {
            object.remove("status");
        }
        CreatedStatus::Phase(phase) => {
            object.insert("status".to_owned(), json!({ "phase": phase }));
        }
    }
    definition_rules::prepare(ty, object, DefinitionChange::Create)
}

/// Sets the fixed member of the type to its default if it is unset.
fn fill_fixed(ty: &ResourceType, object: &mut Object) {
    let Some(FixedMember { member, default }) = ty.fixed else { return };
    if object.get(member).is_none_or(is_unset) {
        object.insert(member.to_owned(), default.into());
    }
}

/// Adds the finalizer `kubernetes` to the spec, so that the namespace outlives its objects.
fn hold_for_objects(object: &mut Object) {
    const HOLDER: &str = "kubernetes";
    let spec = object.entry("spec").or_insert_with(|| json!({}));
    match spec.get_mut("finalizers") {
        Some(Value::Array(finalizers)) if finalizers.iter().any(|finalizer| finalizer == HOLDER) => {}
        Some(Value::Array(finalizers)) => finalizers.push(HOLDER.into()),
        _ => {
            if !spec.is_object() {
                *spec = json!({});
            }
            spec["finalizers"] = json!([HOLDER]);
        }
    }
}

fn check_names(ty: &ResourceType, object: &Object) -> Vec<StatusCause> {
    let (name, base, namespace) = (text(object, "name"), text(object, "generateName"), text(object, "namespace"));
    let mut causes = Vec::new();
    let mut refuse = |field: &str, value: &str, why: Vec<String>| {
        causes.extend(why.iter().map(|why| StatusCause::invalid(field, &quote(value), why)));
    };
    if !base.is_empty() {
        refuse("metadata.generateName", base, ty.name_rule.refuse_base(base));
    }
    if !name.is_empty() {
        refuse("metadata.name", name, ty.name_rule.refuse(name));
    }
    if ty.namespaced {
        refuse("metadata.namespace", namespace, refuse_namespace(namespace));
    }
    if name.is_empty() {
        causes.push(StatusCause::required("metadata.name", "name or generateName is required"));
    }
    let generation = object.get("metadata").and_then(|metadata| metadata.get("generation")).and_then(Value::as_i64);
    if let Some(generation) = generation.filter(|generation| *generation < 0 && !ty.tracks_generation) {
        let why = "must be greater than or equal to 0";
        causes.push(StatusCause::invalid("metadata.generation", &generation.to_string(), why));
    }
    causes
}

/// Part of an object that a request may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Everything, except `.status` where the type has that subresource.
    Main,
    /// `.status`, and the metadata that the type's status subresource may write.
    Status,
    /// `.status.conditions`, and metadata.
    Approval,
    /// `.spec.ephemeralContainers`.
    EphemeralContainers,
    /// Everything but `.status`: the one part with the finalizers in a namespace's spec.
    Finalize,
}

/// Metadata members that clients own.
const OWNED: [&str; 4] = ["labels", "annotations", "finalizers", "ownerReferences"];

impl Part {
    /// Returns the part that a subresource writes; `None` if it writes none itself.
    pub const fn of(subresource: Subresource) -> Option<Self> {
        match subresource {
            Subresource::Approval => Some(Self::Approval),
            Subresource::EphemeralContainers => Some(Self::EphemeralContainers),
            Subresource::Finalize => Some(Self::Finalize),
            Subresource::Binding | Subresource::Eviction | Subresource::Token => None,
        }
    }

    /// The last segment of its path; empty for the main part.
    pub const fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Approval => Subresource::Approval.name(),
            Self::EphemeralContainers => Subresource::EphemeralContainers.name(),
            Self::Finalize => Subresource::Finalize.name(),
        }
    }

    /// Returns the metadata members that a request for this part cannot change, besides those that the server owns.
    pub fn retained_metadata(self, ty: &ResourceType) -> &'static [&'static str] {
        match self.metadata(ty) {
            StatusMetadata::Stays => &OWNED,
            StatusMetadata::WrittenBut(members) => members,
        }
    }

    fn metadata(self, ty: &ResourceType) -> StatusMetadata {
        match self {
            Self::Main | Self::Approval | Self::Finalize => StatusMetadata::WrittenBut(&[]),
            Self::Status => ty.status_metadata,
            Self::EphemeralContainers => StatusMetadata::Stays,
        }
    }
}

/// Turns `object`, as sent or patched, into the successor of `stored`: restores members that the request may not
/// change, sets the generation, and refuses changes of immutable members. The result has the stored resourceVersion.
///
/// # Errors
/// 422 for immutable metadata and for new finalizers of a terminating object.
pub fn prepare_update(ty: &ResourceType, stored: &Object, mut object: Object, part: Part) -> Result<Object, Status> {
    let mut next = match part {
        Part::Status | Part::Approval | Part::EphemeralContainers => with_part(ty, stored, &mut object, part),
        Part::Main | Part::Finalize => object,
    };
    if ty.has_status && matches!(part, Part::Main | Part::Finalize) {
        keep(stored, &mut next, "status");
    }
    // A namespace's spec holds its finalizers.
    if ty.holds_objects && part != Part::Finalize || ty.is_approved() {
        keep(stored, &mut next, "spec");
    }
    keep_unset(stored, &mut next);
    tidy(metadata_mut(&mut next));
    fill_fixed(ty, &mut next);
    let mut causes = Causes::from(check_immutable(ty, stored, &next));
    if ty.is_approved() {
        approval::check(part, stored, &next, &mut causes);
    }
    if part == Part::EphemeralContainers {
        ephemeral::check(stored, &next, &mut causes);
    }
    if !causes.is_empty() {
        return Err(Status::invalid(&ty.group, &ty.kind, text(stored, "name"), causes));
    }
    if part == Part::Main {
        definition_rules::prepare(ty, &mut next, DefinitionChange::Update(stored))?;
    }
    set_generation(ty, stored, &mut next, part);
    put(metadata_mut(&mut next), "resourceVersion", text(stored, "resourceVersion"));
    Ok(next)
}

/// Returns the stored object with the part of `sent` that a subresource writes, and with the metadata that it may change.
fn with_part(ty: &ResourceType, stored: &Object, sent: &mut Object, part: Part) -> Object {
    let mut next = stored.clone();
    match part {
        Part::Main | Part::Finalize | Part::Status => carry(sent, &mut next, "status"),
        Part::Approval => carry_inside(sent, &mut next, "status", "conditions"),
        Part::EphemeralContainers => carry_inside(sent, &mut next, "spec", "ephemeralContainers"),
    }
    match part.metadata(ty) {
        StatusMetadata::Stays => carry(metadata_mut(sent), metadata_mut(&mut next), "managedFields"),
        StatusMetadata::WrittenBut(retained) => {
            let before = metadata_mut(&mut next).clone();
            carry(sent, &mut next, "metadata");
            let metadata = metadata_mut(&mut next);
            retained.iter().for_each(|member| keep(&before, metadata, member));
        }
    }
    next
}

/// Removes empty members: nulls, empty maps and lists, and the managedFields value that resets all entries.
fn tidy(metadata: &mut Object) {
    metadata.retain(|name, value| match value {
        Value::Null => false,
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => !(items.is_empty() || name == "managedFields" && managed::is_reset(value)),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    });
}

/// Moves a member from one object to another, or removes it there if the source has none.
fn carry(from: &mut Object, to: &mut Object, member: &str) {
    match from.remove(member) {
        Some(value) => to.insert(member.to_owned(), value),
        None => to.remove(member),
    };
}

/// Like `carry`, for a member of the member `outer`.
fn carry_inside(from: &mut Object, to: &mut Object, outer: &str, member: &str) {
    fn inside<'a>(object: &'a mut Object, outer: &str) -> Option<&'a mut Object> {
        object.get_mut(outer).and_then(Value::as_object_mut)
    }
    match (inside(from, outer).and_then(|outer| outer.remove(member)), inside(to, outer)) {
        (Some(value), Some(outer)) => drop(outer.insert(member.to_owned(), value)),
        (Some(value), None) => drop(to.insert(outer.to_owned(), json!({ member: value }))),
        (None, Some(outer)) => drop(outer.remove(member)),
        (None, None) => {}
    }
}

/// Like `carry`, but copies the member.
fn keep(from: &Object, to: &mut Object, member: &str) {
    match from.get(member) {
        Some(value) => to.insert(member.to_owned(), value.clone()),
        None => to.remove(member),
    };
}

/// Restores members that the server set and the client left out, so that clients need not send them back.
fn keep_unset(stored: &Object, next: &mut Object) {
    let Some(before) = stored.get("metadata").and_then(Value::as_object) else { return };
    let metadata = metadata_mut(next);
    // Exported objects carry timestamps of another object, so the stored ones always win.
    for member in ["creationTimestamp", "deletionTimestamp"] {
        if let Some(value) = before.get(member).filter(|value| metadata.get(member) != Some(*value)) {
            metadata.insert(member.to_owned(), value.clone());
        }
    }
    for member in ["uid", "deletionGracePeriodSeconds", "managedFields"] {
        let unset = metadata.get(member).is_none_or(is_unset);
        if let (true, Some(value)) = (unset, before.get(member)) {
            metadata.insert(member.to_owned(), value.clone());
        }
    }
    metadata.remove("selfLink");
}

/// Returns true for null, an empty string and an empty list.
fn is_unset(value: &Value) -> bool {
    value.is_null() || value.as_str() == Some("") || value.as_array().is_some_and(Vec::is_empty)
}

fn check_immutable(ty: &ResourceType, stored: &Object, next: &Object) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    fn member<'a>(metadata: Option<&'a Value>, name: &str) -> Option<&'a Value> {
        metadata?.as_object()?.get(name)
    }
    let metadata = (stored.get("metadata"), next.get("metadata"));
    for name in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (before, now) = (member(metadata.0, name), member(metadata.1, name));
        if before != now {
            let shown = now.map_or_else(|| "null".to_owned(), ToString::to_string);
            causes.push(StatusCause::invalid(&format!("metadata.{name}"), &shown, "field is immutable"));
        }
    }
    if let Some(FixedMember { member, default }) = ty.fixed {
        let value = |object: &Object| object.get(member).cloned().unwrap_or_else(|| default.into());
        let now = value(next);
        if value(stored) != now {
            causes.push(StatusCause::invalid(member, &now.to_string(), "field is immutable"));
        }
    }
    if !is_terminating(stored) {
        return causes;
    }
    let before: HashSet<&str> = finalizers(stored).into_iter().collect();
    let added: Vec<&str> = finalizers(next).into_iter().filter(|finalizer| !before.contains(finalizer)).collect();
    if !added.is_empty() {
        let added = added.iter().map(|finalizer| quote(finalizer)).collect::<Vec<_>>().join(", ");
        causes.push(StatusCause::forbidden(
            "metadata.finalizers",
            &format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{added}}}"
            ),
        ));
    }
    causes
}

/// Sets the generation: it grows if the desired state changes, that is any member except metadata and status, and the
/// status too for custom resources without that subresource. Some types also count changes of some metadata.
fn set_generation(ty: &ResourceType, stored: &Object, next: &mut Object, part: Part) {
    let before = generation(stored);
    let is_desired = |member: &&String| match member.as_str() {
        "metadata" => false,
        "status" => ty.custom.is_some() && !ty.has_status,
        _ => true,
    };
    let desired = |object| Object::iter(object).filter(|(member, _)| is_desired(member));
    let member = |object: &Object, name: &str| object.get("metadata").and_then(|metadata| metadata.get(name)).cloned();
    let is_other = |name: &&str| member(stored, name) != member(next, name);
    let is_tracked = part == Part::Main && ty.tracked_metadata.iter().any(is_other);
    let changed = ty.tracks_generation && (is_tracked || desired(stored).ne(desired(next)));
    put_generation(next, before + u64::from(changed));
}

fn generation(object: &Object) -> u64 {
    object.get("metadata").and_then(|metadata| metadata.get("generation")).and_then(Value::as_u64).unwrap_or_default()
}

fn put_generation(object: &mut Object, generation: u64) {
    let metadata = metadata_mut(object);
    if generation == 0 {
        metadata.remove("generation");
    } else {
        metadata.insert("generation".to_owned(), Value::from(generation));
    }
}

/// Marks an object as being deleted, with a grace period of `seconds` that ends at `end`. Only the first mark counts as
/// a change of the desired state.
pub fn mark_terminating(object: &mut Object, end: &str, seconds: i64) {
    let generation = generation(object);
    if generation > 0 && !is_terminating(object) {
        put_generation(object, generation + 1);
    }
    let metadata = metadata_mut(object);
    put(metadata, "deletionTimestamp", end);
    metadata.insert("deletionGracePeriodSeconds".to_owned(), Value::from(seconds));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::registry::Registry;

    const BIRTH: Birth<'_> = Birth { uid: "u1", now: "2026-01-01T00:00:00Z", generated_name: "a-xyz" };

    fn ty(group: &str, plural: &str) -> Arc<ResourceType> {
        Registry::builtin().find(group, "v1", plural).expect("a built-in type")
    }

    fn create(ty: &ResourceType, namespace: &str, sent: Value) -> Result<Value, (u16, String)> {
        let mut object = sent.as_object().expect("an object").clone();
        match_namespace(ty, namespace, &mut object)
            .and_then(|()| prepare_create(ty, &mut object, BIRTH))
            .map(|()| Value::Object(object))
            .map_err(|status| (status.code, status.message))
    }

    #[test]
    fn a_new_object_gets_what_only_the_server_sets() {
        let sent = json!({"metadata": {"name": "a", "uid": "mine", "selfLink": "/x", "generation": 9, "labels": null,
            "deletionTimestamp": "2020-01-01T00:00:00Z", "creationTimestamp": null, "managedFields": [{"manager": "m"}]},
            "data": {"k": "v"}});
        assert_eq!(
            create(&ty("", "configmaps"), "ns", sent),
            Ok(json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u1", "generation": 9, "creationTimestamp":
                "2026-01-01T00:00:00Z", "managedFields": [{"manager": "m"}]}, "data": {"k": "v"}}))
        );
        let created =
            create(&ty("", "nodes"), "", json!({"metadata": {"name": "n", "namespace": "ns"}})).expect("a node");
        assert_eq!(created["metadata"].get("namespace"), None);
    }

    #[test]
    fn status_and_generation_start_as_the_type_has_it() {
        let created = |group: &str, plural: &str| {
            let sent = json!({"metadata": {"name": "a"}, "spec": {}, "status": {"sent": true}});
            let created = create(&ty(group, plural), "ns", sent).expect("is created");
            (created.get("status").cloned(), created["metadata"].get("generation").cloned())
        };
        assert_eq!(created("", "pods"), (Some(json!({"phase": "Pending"})), Some(json!(1))));
        assert_eq!(created("", "namespaces"), (Some(json!({"phase": "Active"})), None));
        assert_eq!(created("", "nodes"), (Some(json!({"sent": true})), None));
        assert_eq!(created("apps", "deployments"), (None, Some(json!(1))));
        assert_eq!(created("", "configmaps"), (Some(json!({"sent": true})), None));
    }

    /// Goal: refusals of a create. Method: a table of type, metadata, code and message.
    #[test]
    fn objects_that_cannot_be_created_are_refused() {
        let table = [
            (
                "configmaps",
                json!({"name": "a", "resourceVersion": "1"}),
                500,
                "resourceVersion should not be set on objects to be created",
            ),
            (
                "configmaps",
                json!({}),
                422,
                "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
            ),
            (
                "configmaps",
                json!({"name": "a", "namespace": "other"}),
                400,
                "the namespace of the provided object does not match the namespace sent on the request",
            ),
            (
                "configmaps",
                json!({"name": "A"}),
                422,
                "ConfigMap \"A\" is invalid: metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain must \
                 consist of lower case alphanumeric characters, '-' or '.', and must start and end with an \
                 alphanumeric character (e.g. 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ),
            (
                "services",
                json!({"name": "1.a"}),
                422,
                "Service \"1.a\" is invalid: metadata.name: Invalid value: \"1.a\": must not contain dots",
            ),
        ];
        for (plural, metadata, code, text) in table {
            let refused = create(&ty("", plural), "ns", json!({ "metadata": metadata }));
            assert_eq!(refused, Err((code, text.to_owned())));
        }
        let roles = ty("rbac.authorization.k8s.io", "clusterroles");
        assert!(create(&roles, "", json!({"metadata": {"name": "system:Node_x"}})).is_ok());
    }

    #[test]
    fn a_name_wins_over_the_start_of_one() {
        let name = |metadata: Value| {
            create(&ty("", "configmaps"), "ns", json!({ "metadata": metadata })).expect("is created")["metadata"]["name"]
                .clone()
        };
        assert_eq!(name(json!({"generateName": "a-"})), "a-xyz");
        assert_eq!(name(json!({"generateName": "a-", "name": "b"})), "b");
    }

    /// Goal: refusals of a decoder of typed objects. Method: a table of object and refusal.
    #[test]
    fn metadata_of_another_shape_is_refused() {
        let table = [
            (
                json!({"metadata": 7}),
                Some("json: cannot unmarshal number into Go struct field .metadata of type ObjectMeta"),
            ),
            (
                json!({"metadata": {"name": {}}}),
                Some("json: cannot unmarshal object into Go struct field ObjectMeta.metadata.name of type string"),
            ),
            (
                json!({"metadata": {"labels": {"a": true}}}),
                Some("json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string"),
            ),
            (
                json!({"metadata": {"finalizers": "x"}}),
                Some(
                    "json: cannot unmarshal string into Go struct field ObjectMeta.metadata.finalizers of type []string",
                ),
            ),
            (json!({"metadata": null}), None),
            (json!({}), None),
            (json!({"metadata": {"labels": null, "annotations": {"a": null}, "finalizers": [], "uid": null}}), None),
        ];
        for (object, refusal) in table {
            let object = object.as_object().expect("an object");
            assert_eq!(check_shape(object).err().as_deref(), refusal);
        }
    }

    /// Goal: long lists of finalizers do not make an update slow. Method: 100,000 finalizers, all of them different
    /// from the stored ones.
    #[test]
    fn many_finalizers_are_compared_in_one_go() {
        let ty = Registry::builtin().find("", "v1", "configmaps").expect("config maps");
        let held = |letter: &str| {
            let finalizers: Vec<String> = (0..100_000).map(|number| format!("a.b/{letter}{number}")).collect();
            let object = json!({"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers":
                finalizers}});
            object.as_object().expect("an object").clone()
        };
        let began = std::time::Instant::now();
        let same = prepare_update(&ty, &held("a"), held("a"), Part::Main);
        assert!(same.is_ok() && prepare_update(&ty, &held("a"), held("b"), Part::Main).is_err());
        assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
    }

    #[test]
    fn marking_an_object_for_deletion_counts_as_a_change() {
        let mut object = json!({"metadata": {"generation": 4}}).as_object().expect("an object").clone();
        for (end, seconds) in [("2026-01-01T00:00:00Z", 0), ("2026-01-01T00:00:30Z", 30)] {
            mark_terminating(&mut object, end, seconds);
            assert!(is_terminating(&object));
            assert_eq!(
                Value::Object(object.clone()),
                json!({"metadata": {"generation": 5, "deletionTimestamp": end, "deletionGracePeriodSeconds": seconds}})
            );
        }
    }
}
