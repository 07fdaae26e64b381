//! History shared by a fake server and its replicas: the current objects and every change that led to them.
//!
//! INVARIANT: resourceVersions of changes strictly increase over all types; an object's uid lives from its creation to
//! its deletion. Only `restore` forgets changes.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use informer_core::object::{self, Meta};
use serde_json::{Map, Value};

use super::types::{self, DEFINITIONS, FakeType};

/// One object at one version.
#[derive(Clone, Debug)]
pub(super) struct StoredObject {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) version: u64,
    /// The object with kind and apiVersion first.
    pub(super) json: Bytes,
    /// Offset of the members after kind and apiVersion.
    rest_at: usize,
    version_at: Range<usize>,
    labels_at: Option<Range<usize>>,
}

/// One write.
#[derive(Clone, Debug)]
pub(super) struct FakeChange {
    pub(super) version: u64,
    pub(super) key: String,
    pub(super) before: Option<Arc<StoredObject>>,
    pub(super) after: Option<Arc<StoredObject>>,
}

/// Objects of one type, by key.
pub(super) type ObjectsByKey = BTreeMap<String, Arc<StoredObject>>;

#[derive(Clone, Debug)]
struct FakeCollection {
    ty: Arc<FakeType>,
    now: ObjectsByKey,
    changes: Vec<FakeChange>,
}

/// The whole history.
#[derive(Debug)]
pub(super) struct History {
    position: u64,
    /// By `apiVersion` and plural.
    collections: BTreeMap<(String, String), FakeCollection>,
    /// Increases when earlier promises become invalid: watches opened before end.
    pub(super) epoch: u64,
    /// Distinguishes the uids of this history from the uids of any other in the process.
    id: u64,
    uids: u64,
}

/// Creation time of objects written without one, and the time at which a server starts.
pub(super) const CREATED: &str = "2026-01-01T00:00:00Z";

static HISTORIES: AtomicU64 = AtomicU64::new(1);

impl History {
    pub(super) fn new() -> Self {
        let collections = types::builtin().map(|ty| {
            let id = (ty.api_version.clone(), ty.plural.clone());
            (id, FakeCollection { ty: Arc::new(ty), now: ObjectsByKey::new(), changes: Vec::new() })
        });
        let id = HISTORIES.fetch_add(1, Ordering::Relaxed);
        Self { position: 1, collections: collections.collect(), epoch: 0, id, uids: 0 }
    }

    /// The resourceVersion of the last write.
    pub(super) const fn position(&self) -> u64 {
        self.position
    }

    pub(super) fn move_to(&mut self, position: u64) {
        assert!(position >= self.position, "resourceVersion {position} lies in the past; restore goes back");
        self.position = position;
    }

    pub(super) fn find(&self, api_version: &str, plural: &str) -> Option<Arc<FakeType>> {
        let found = self.collections.get(&(api_version.to_owned(), plural.to_owned()));
        found.map(|collection| Arc::clone(&collection.ty))
    }

    /// Serves a type from now on.
    pub(super) fn serve(&mut self, ty: FakeType) -> Arc<FakeType> {
        let id = (ty.api_version.clone(), ty.plural.clone());
        let new = || FakeCollection { ty: Arc::new(ty), now: ObjectsByKey::new(), changes: Vec::new() };
        Arc::clone(&self.collections.entry(id).or_insert_with(new).ty)
    }

    /// Returns the type of an object by its apiVersion and kind; guesses its plural as kube does.
    ///
    /// # Panics
    /// If `object` has no apiVersion or kind, which every API server would refuse.
    pub(super) fn type_of(&mut self, object: &Value) -> Arc<FakeType> {
        let text = |member: &str| object[member].as_str().filter(|text| !text.is_empty());
        let (Some(api_version), Some(kind)) = (text("apiVersion"), text("kind")) else {
            panic!("an object without apiVersion and kind");
        };
        let served = self.collections.values().find(|it| it.ty.api_version == api_version && it.ty.kind == kind);
        if let Some(collection) = served {
            return Arc::clone(&collection.ty);
        }
        self.serve(FakeType::new(api_version, &plural_of(kind), kind, None))
    }

    pub(super) fn get(&self, ty: &FakeType, key: &str) -> Option<&Arc<StoredObject>> {
        self.collection(ty).now.get(key)
    }

    /// The objects at a past or current position.
    pub(super) fn at(&self, ty: &FakeType, position: u64) -> ObjectsByKey {
        let collection = self.collection(ty);
        let mut objects = collection.now.clone();
        for change in collection.changes.iter().rev().take_while(|change| change.version > position) {
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), Arc::clone(before)),
                None => objects.remove(&change.key),
            };
        }
        objects
    }

    /// The first change after a position.
    pub(super) fn next(&self, ty: &FakeType, after: u64) -> Option<&FakeChange> {
        let changes = &self.collection(ty).changes;
        changes.get(changes.partition_point(|change| change.version <= after))
    }

    /// Creates or replaces an object. A write that changes nothing is ignored. An object being deleted is removed once
    /// its last finalizer is removed.
    pub(super) fn put(&mut self, ty: &FakeType, mut object: Value) {
        let (namespace, name) = place(ty, &mut object);
        let key = ty.key(&namespace, &name);
        let before = self.get(ty, &key).cloned();
        let metadata = metadata(&mut object);
        metadata.remove("resourceVersion");
        self.keep_identity(before.as_deref(), metadata);
        let leaves = metadata.contains_key("deletionTimestamp") && has_no(metadata.get("finalizers"));
        let is_same = |before: &StoredObject| {
            let same = StoredObject::new(ty, &namespace, &name, before.version, object.clone());
            same.value() == before.value()
        };
        match before {
            Some(before) if is_same(&before) => {}
            Some(_) if leaves => self.remove(ty, &key),
            Some(_) | None => drop(self.store(ty, object)),
        }
    }

    /// Stores an object at the next resourceVersion, as it is.
    pub(super) fn store(&mut self, ty: &FakeType, mut object: Value) -> Arc<StoredObject> {
        let (namespace, name) = place(ty, &mut object);
        let key = ty.key(&namespace, &name);
        if ty.plural == DEFINITIONS {
            types::defined(&object).into_iter().for_each(|ty| drop(self.serve(ty)));
        }
        self.position += 1;
        let after = Arc::new(StoredObject::new(ty, &namespace, &name, self.position, object));
        self.record(ty, key, Some(Arc::clone(&after)));
        after
    }

    /// Removes an object at the next resourceVersion, if it exists.
    pub(super) fn remove(&mut self, ty: &FakeType, key: &str) {
        if self.get(ty, key).is_some() {
            self.position += 1;
            self.record(ty, key.to_owned(), None);
        }
    }

    /// Deletes an object, or marks it while it has finalizers.
    pub(super) fn delete(&mut self, ty: &FakeType, key: &str) {
        let Some(mut object) = self.get(ty, key).map(|stored| stored.value()) else { return };
        let metadata = metadata(&mut object);
        if has_no(metadata.get("finalizers")) {
            self.remove(ty, key);
        } else {
            metadata.entry("deletionTimestamp").or_insert_with(|| CREATED.into());
            self.put(ty, object);
        }
    }

    /// Forgets every change after a position.
    pub(super) fn restore(&mut self, position: u64) {
        let types: Vec<Arc<FakeType>> =
            self.collections.values().map(|collection| Arc::clone(&collection.ty)).collect();
        for ty in types {
            let objects = self.at(&ty, position);
            let collection = self.collection_mut(&ty);
            collection.now = objects;
            collection.changes.retain(|change| change.version <= position);
        }
        self.position = self.position.min(position.max(1));
        self.epoch += 1;
    }

    /// Gives every object a new uid, at every version.
    pub(super) fn replace_uids(&mut self) {
        let prefix = uid_prefix(self.id);
        self.id = HISTORIES.fetch_add(1, Ordering::Relaxed);
        let other = uid_prefix(self.id);
        for collection in self.collections.values_mut() {
            let ty = Arc::clone(&collection.ty);
            let renew = |stored: &mut Arc<StoredObject>| {
                let mut object = stored.value();
                let uid = metadata(&mut object).entry("uid").or_insert(Value::Null);
                let text = uid.as_str().unwrap_or_default();
                *uid = match text.strip_prefix(&prefix) {
                    Some(rest) => format!("{other}{rest}"),
                    None => format!("{text}-{other}"),
                }
                .into();
                *stored = Arc::new(StoredObject::new(&ty, &stored.namespace, &stored.name, stored.version, object));
            };
            collection.now.values_mut().for_each(renew);
            for change in &mut collection.changes {
                change.before.iter_mut().chain(&mut change.after).for_each(renew);
            }
        }
        self.epoch += 1;
    }

    fn collection(&self, ty: &FakeType) -> &FakeCollection {
        let id = (ty.api_version.clone(), ty.plural.clone());
        self.collections.get(&id).expect("a type is served from its first mention on")
    }

    fn collection_mut(&mut self, ty: &FakeType) -> &mut FakeCollection {
        let id = (ty.api_version.clone(), ty.plural.clone());
        self.collections.get_mut(&id).expect("a type is served from its first mention on")
    }

    fn record(&mut self, ty: &FakeType, key: String, after: Option<Arc<StoredObject>>) {
        let version = self.position;
        let collection = self.collection_mut(ty);
        let before = match &after {
            Some(after) => collection.now.insert(key.clone(), Arc::clone(after)),
            None => collection.now.remove(&key),
        };
        collection.changes.push(FakeChange { version, key, before, after });
    }

    /// Returns a uid that no other object has.
    pub(super) fn new_uid(&mut self) -> String {
        self.uids += 1;
        // As different as real ones, whose hashes decide about shards. An odd factor repeats none.
        let node = self.uids.wrapping_mul(0x9e37_79b9_7f4a_7c15) & 0xffff_ffff_ffff;
        format!("{}{node:012x}", uid_prefix(self.id))
    }

    /// Restores the metadata a writer cannot change: uid, creation time and deletion time.
    fn keep_identity(&mut self, before: Option<&StoredObject>, metadata: &mut Map<String, Value>) {
        let before = before.map(|before| before.value()["metadata"].take());
        if let Some(deleted) = before.as_ref().map(|before| &before["deletionTimestamp"]).filter(|at| !at.is_null()) {
            metadata.insert("deletionTimestamp".to_owned(), deleted.clone());
        }
        for (member, default) in [("uid", None), ("creationTimestamp", Some(CREATED))] {
            let retained = before.as_ref().map(|before| before[member].clone()).filter(|value| !value.is_null());
            if let Some(retained) = retained {
                metadata.insert(member.to_owned(), retained);
            } else if metadata.get(member).is_none_or(Value::is_null) {
                let value = default.map(str::to_owned).unwrap_or_else(|| self.new_uid());
                metadata.insert(member.to_owned(), value.into());
            }
        }
    }
}

/// First 24 characters of a history's uids.
fn uid_prefix(id: u64) -> String {
    format!("{id:08x}-0000-4000-8000-")
}

fn has_no(finalizers: Option<&Value>) -> bool {
    finalizers.and_then(Value::as_array).is_none_or(Vec::is_empty)
}

fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    let members = object.as_object_mut().expect("an object is a JSON object");
    let metadata = members.entry("metadata").or_insert_with(|| Map::new().into());
    if !metadata.is_object() {
        *metadata = Map::new().into();
    }
    metadata.as_object_mut().expect("made one above")
}

/// Guesses the plural of a kind. Source: `to_plural` of kube-core.
fn plural_of(kind: &str) -> String {
    let word = kind.to_lowercase();
    let ends = |endings: &[&str]| endings.iter().any(|ending| word.ends_with(ending));
    match (&*word, word.strip_suffix('y')) {
        ("endpoints" | "endpointslices", _) => word,
        ("nodemetrics", _) => "nodes".to_owned(),
        ("podmetrics", _) => "pods".to_owned(),
        _ if ends(&["s", "x", "z", "ch", "sh"]) => word + "es",
        (_, Some(stem)) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ => word + "s",
    }
}

/// Returns namespace and name of an object to write. The default namespace is the one `kubectl` uses.
///
/// # Panics
/// If the object has no name.
pub(super) fn place(ty: &FakeType, object: &mut Value) -> (String, String) {
    assert!(object.is_object(), "an object is a JSON object, not {object}");
    let metadata = metadata(object);
    if ty.namespaced == Some(true) {
        let namespace = metadata.entry("namespace").or_insert(Value::Null);
        if namespace.as_str().is_none_or(str::is_empty) {
            *namespace = "default".into();
        }
    } else if ty.namespaced == Some(false) {
        metadata.remove("namespace");
    }
    let text = |member: &str| metadata.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    assert!(!name.is_empty(), "a {} without metadata.name", ty.kind);
    (namespace, name)
}

impl StoredObject {
    fn new(ty: &FakeType, namespace: &str, name: &str, version: u64, mut object: Value) -> Self {
        metadata(&mut object).insert("resourceVersion".to_owned(), version.to_string().into());
        let members = object.as_object_mut().expect("an object is a JSON object");
        members.retain(|member, _| !matches!(member.as_str(), "kind" | "apiVersion"));
        let (kind, api_version) = (Value::from(&*ty.kind), Value::from(&*ty.api_version));
        let head = format!(r#"{{"kind":{kind},"apiVersion":{api_version},"#);
        let rest_at = head.len();
        let json = Bytes::from(head + &object.to_string()[1..]);
        let meta = Meta::read(&json).expect("metadata of our own writing");
        let (version_at, labels_at) = (meta.resource_version_at.clone(), meta.labels_at.clone());
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            version,
            json,
            rest_at,
            version_at: version_at.expect("a version of our own writing"),
            labels_at,
        }
    }

    pub(super) fn value(&self) -> Value {
        serde_json::from_slice(&self.json).expect("JSON of our own writing")
    }

    /// The object without kind and apiVersion, as an item of a built-in list.
    pub(super) fn item(&self) -> Vec<u8> {
        [b"{", &self.json[self.rest_at..]].concat()
    }

    /// The object with another resourceVersion: a deletion carries its own.
    pub(super) fn json_at(&self, version: u64) -> Vec<u8> {
        let Range { start, end } = self.version_at;
        [&self.json[..start], version.to_string().as_bytes(), &self.json[end..]].concat()
    }

    pub(super) fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        object::label(&self.json[self.labels_at.clone()?], key)
    }

    pub(super) fn field(&self, path: &str) -> Option<Cow<'_, str>> {
        object::field(&self.json, path)
    }
}
