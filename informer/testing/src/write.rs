//! POST, PUT, PATCH and DELETE over HTTP: enough for a controller that writes its results.
//!
//! INVARIANT: no admission and no defaulting: the object is stored as written, plus uid, creation time and
//! resourceVersion.

use http::Method;
use informer_serving::{
    query::Query,
    status::{Status, StatusExt as _},
};
use serde_json::Value;

use super::{
    FakeApiServer,
    history::{Demand, WriteRefusal},
    types::PathTarget,
};

/// The only supported kind of patch.
const MERGE_PATCH: &str = "application/merge-patch+json";

/// One write.
pub(super) struct FakeWrite<'a> {
    pub(super) method: &'a Method,
    pub(super) content_type: &'a str,
    pub(super) query: &'a Query,
    pub(super) body: &'a [u8],
}

impl FakeWrite<'_> {
    /// Carries out the write. Returns the status code and the body.
    pub(super) fn apply(&self, server: &FakeApiServer, target: &PathTarget) -> Result<(u16, Vec<u8>), Status> {
        if self.query.get("dryRun").is_some() {
            return Err(Status::bad_request("this server has no dry run"));
        }
        match (self.method, target.name.as_deref()) {
            (&Method::POST, None) if target.namespace.is_some() || target.ty.namespaced != Some(true) => {
                self.create(server, target)
            }
            (&Method::PUT, Some(name)) => self.update(server, target, name, self.json()?),
            (&Method::PATCH, Some(name)) => {
                if !self.content_type.starts_with(MERGE_PATCH) {
                    return Err(Status::unsupported_media_type(&[MERGE_PATCH]));
                }
                let mut object = current(server, target, name)?;
                let mut patch = self.json()?;
                // Without a resourceVersion a patch applies to any current version.
                let demanded = patch.pointer_mut("/metadata/resourceVersion").map(Value::take).unwrap_or_default();
                merge(&mut object, patch);
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.insert("resourceVersion".to_owned(), demanded);
                }
                self.update(server, target, name, object)
            }
            (&Method::DELETE, Some(name)) => self.delete(server, target, name),
            _ => Err(Status::generic_method_not_allowed()),
        }
    }

    fn json(&self) -> Result<Value, Status> {
        let object: Option<Value> = serde_json::from_slice(self.body).ok().filter(Value::is_object);
        object.ok_or_else(|| Status::bad_request("the body of the request is no JSON object"))
    }

    fn create(&self, server: &FakeApiServer, target: &PathTarget) -> Result<(u16, Vec<u8>), Status> {
        let mut object = self.json()?;
        has_metadata(&object)?;
        let metadata = &mut object["metadata"];
        let mut name = text(metadata, "name").to_owned();
        if name.is_empty() {
            let base = text(metadata, "generateName");
            if base.is_empty() {
                return Err(Status::bad_request("metadata.name is required"));
            }
            name = format!("{base}{:05x}", fastrand::u32(..1 << 20));
            metadata["name"] = name.as_str().into();
        }
        into_namespace(&mut object, target)?;
        put(server, target, &name, object, Demand::Absent).map(|body| (201, body))
    }

    fn update(
        &self,
        server: &FakeApiServer,
        target: &PathTarget,
        name: &str,
        mut object: Value,
    ) -> Result<(u16, Vec<u8>), Status> {
        has_metadata(&object)?;
        if target.subresource.is_some() {
            let (status, version) = (object["status"].take(), object["metadata"]["resourceVersion"].take());
            object = current(server, target, name)?;
            object["status"] = status;
            object["metadata"]["resourceVersion"] = version;
        }
        let declared = text(&object["metadata"], "name");
        if declared != name {
            return Err(Status::bad_request(format!(
                "the name of the object ({declared}) does not match the name on the URL ({name})"
            )));
        }
        into_namespace(&mut object, target)?;
        put(server, target, name, object, Demand::Present).map(|body| (200, body))
    }

    fn delete(&self, server: &FakeApiServer, target: &PathTarget, name: &str) -> Result<(u16, Vec<u8>), Status> {
        let (group, plural) = (&*target.ty.group, &*target.ty.plural);
        let options = if self.body.is_empty() { Value::Null } else { self.json()? };
        let demanded = |member: &str| options["preconditions"][member].as_str();
        let key = target.key(name);
        let gone = server.write(|history| {
            let stored = history.get(&target.ty, &key).ok_or_else(|| Status::not_found(group, plural, name))?;
            let metadata = stored.value()["metadata"].take();
            for member in ["uid", "resourceVersion"] {
                if demanded(member).is_some_and(|demanded| demanded != text(&metadata, member)) {
                    let why = format!("the {member} in the precondition does not match that of the object");
                    return Err(Status::conflict(group, &target.ty.kind, name, &why));
                }
            }
            history.delete(&target.ty, &key).ok_or_else(|| Status::not_found(group, plural, name))
        })?;
        let uid = gone.field("metadata.uid").unwrap_or_default();
        Ok((200, Status::deleted(group, plural, name, &uid).to_json()))
    }
}

/// A text member of metadata; empty if absent.
fn text<'a>(metadata: &'a Value, member: &str) -> &'a str {
    metadata[member].as_str().unwrap_or_default()
}

/// Sets the namespace from the path; refuses an object that names another one.
fn into_namespace(object: &mut Value, target: &PathTarget) -> Result<(), Status> {
    let Some(namespace) = target.namespace.as_deref() else { return Ok(()) };
    let declared = text(&object["metadata"], "namespace");
    if !declared.is_empty() && declared != namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    object["metadata"]["namespace"] = namespace.into();
    Ok(())
}

fn has_metadata(object: &Value) -> Result<(), Status> {
    let found = object.get("metadata").is_some_and(Value::is_object);
    if found { Ok(()) } else { Err(Status::bad_request("metadata is required")) }
}

fn current(server: &FakeApiServer, target: &PathTarget, name: &str) -> Result<Value, Status> {
    let found = server.history().get(&target.ty, &target.key(name)).map(|stored| stored.value());
    found.ok_or_else(|| Status::not_found(&target.ty.group, &target.ty.plural, name))
}

fn put(
    server: &FakeApiServer,
    target: &PathTarget,
    name: &str,
    object: Value,
    demand: Demand,
) -> Result<Vec<u8>, Status> {
    let (group, plural) = (&*target.ty.group, &*target.ty.plural);
    let written = server.write(|history| history.put(&target.ty, object, demand));
    match written {
        Ok(stored) => Ok([&stored.json, &b"\n"[..]].concat()),
        Err(WriteRefusal::Exists) => Err(Status::already_exists(group, plural, name)),
        Err(WriteRefusal::NotFound) => Err(Status::not_found(group, plural, name)),
        Err(WriteRefusal::Conflict) => Err(Status::modified(group, plural, name)),
    }
}

/// RFC 7396.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let members = target.as_object_mut().expect("made one above");
    for (member, value) in patch {
        if value.is_null() {
            members.remove(&member);
        } else {
            merge(members.entry(member).or_insert(Value::Null), value);
        }
    }
}
