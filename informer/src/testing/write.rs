//! POST, PUT, PATCH and DELETE over HTTP: enough for a controller that writes what it decided.
//!
//! INVARIANT: no admission and no defaults: what is written is what is stored, with uid, time of creation and
//! resourceVersion.

use http::Method;
use informer_core::wire::{query::Query, status::Status};
use serde_json::Value;

use super::{
    FakeApiServer,
    history::{Demand, Refused},
    types::Target,
};

/// The one kind of patch that is understood.
const MERGE_PATCH: &str = "application/merge-patch+json";

/// One write.
pub(super) struct Write<'a> {
    pub(super) method: &'a Method,
    pub(super) content_type: &'a str,
    pub(super) query: &'a Query,
    pub(super) body: &'a [u8],
}

impl Write<'_> {
    /// Carries it out; answers the code and the body.
    pub(super) fn apply(&self, server: &FakeApiServer, target: &Target) -> Result<(u16, Vec<u8>), Status> {
        if self.query.get("dryRun").is_some() {
            return Err(Status::bad_request("this server has no dry run"));
        }
        match (self.method, target.name.as_deref()) {
            (&Method::POST, None) => self.create(server, target),
            (&Method::PUT, Some(name)) => self.update(server, target, name, self.json()?),
            (&Method::PATCH, Some(name)) => {
                if !self.content_type.starts_with(MERGE_PATCH) {
                    return Err(Status::unsupported_media_type(&[MERGE_PATCH]));
                }
                let mut object = current(server, target, name)?;
                let mut patch = self.json()?;
                // A patch that names no resourceVersion replaces whatever is there.
                let demanded = patch.pointer_mut("/metadata/resourceVersion").map(Value::take).unwrap_or_default();
                merge(&mut object, patch);
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.insert("resourceVersion".to_owned(), demanded);
                }
                self.update(server, target, name, object)
            }
            (&Method::DELETE, Some(name)) => delete(server, target, name),
            _ => Err(Status::generic_method_not_allowed()),
        }
    }

    fn json(&self) -> Result<Value, Status> {
        let object: Option<Value> = serde_json::from_slice(self.body).ok().filter(Value::is_object);
        object.ok_or_else(|| Status::bad_request("the body of the request is no JSON object"))
    }

    fn create(&self, server: &FakeApiServer, target: &Target) -> Result<(u16, Vec<u8>), Status> {
        let mut object = self.json()?;
        has_metadata(&object)?;
        let metadata = &mut object["metadata"];
        if let (None, Some(base)) = (metadata["name"].as_str(), metadata["generateName"].as_str()) {
            metadata["name"] = format!("{base}{:05x}", fastrand::u32(..1 << 20)).into();
        }
        let Some(name) = metadata["name"].as_str().map(str::to_owned) else {
            return Err(Status::bad_request("metadata.name is required"));
        };
        if let Some(namespace) = &target.namespace {
            metadata["namespace"] = namespace.as_str().into();
        }
        put(server, target, &name, object, Demand::Absent).map(|body| (201, body))
    }

    fn update(
        &self,
        server: &FakeApiServer,
        target: &Target,
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
        object["metadata"]["name"] = name.into();
        if let Some(namespace) = &target.namespace {
            object["metadata"]["namespace"] = namespace.as_str().into();
        }
        put(server, target, name, object, Demand::Present).map(|body| (200, body))
    }
}

fn has_metadata(object: &Value) -> Result<(), Status> {
    let found = object.get("metadata").is_some_and(Value::is_object);
    if found { Ok(()) } else { Err(Status::bad_request("metadata is required")) }
}

fn current(server: &FakeApiServer, target: &Target, name: &str) -> Result<Value, Status> {
    let found = server.history().get(&target.ty, &target.key(name)).map(|stored| stored.value());
    found.ok_or_else(|| Status::not_found(&target.ty.group, &target.ty.plural, name))
}

fn put(server: &FakeApiServer, target: &Target, name: &str, object: Value, demand: Demand) -> Result<Vec<u8>, Status> {
    let (group, plural) = (&*target.ty.group, &*target.ty.plural);
    let written = server.write(|history| history.put(&target.ty, object, demand));
    match written {
        Ok(stored) => Ok([&stored.json, &b"\n"[..]].concat()),
        Err(Refused::Exists) => Err(Status::already_exists(group, plural, name)),
        Err(Refused::NotFound) => Err(Status::not_found(group, plural, name)),
        Err(Refused::Conflict) => Err(Status::modified(group, plural, name)),
    }
}

fn delete(server: &FakeApiServer, target: &Target, name: &str) -> Result<(u16, Vec<u8>), Status> {
    let (group, plural) = (&*target.ty.group, &*target.ty.plural);
    let gone = server.write(|history| history.delete(&target.ty, &target.key(name)));
    let gone = gone.ok_or_else(|| Status::not_found(group, plural, name))?;
    let uid = gone.field("metadata.uid").unwrap_or_default();
    Ok((200, Status::deleted(group, plural, name, &uid).to_json()))
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
