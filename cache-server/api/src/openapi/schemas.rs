//! Schemas of a document: definitions of built-in types, and the schemas of CustomResourceDefinitions.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value, json};

use super::document::reference;
use crate::{
    registry::{Custom, GroupVersion, ResourceType},
    schemas::{self, OBJECT_META},
};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Schemas by name.
pub(super) struct Schemas(BTreeMap<String, Value>);

impl Schemas {
    /// Collects the schemas of all types of a group version, of their lists, and of what is sent to their subresources.
    pub(super) fn of(group: &GroupVersion) -> Self {
        let sent: Vec<_> = group.types.iter().flat_map(|ty| ty.subresources).filter_map(|own| own.sent()).collect();
        let is_new = |ty: &&Arc<ResourceType>| group.reviews.iter().all(|review| review.kind != ty.kind);
        let orders: Vec<_> = group.reviews.iter().chain(sent.into_iter().filter(is_new)).collect();
        let builtin = group.types.iter().filter(|ty| ty.custom.is_none()).chain(orders.iter().copied());
        let scale = group.types.iter().any(|ty| ty.scale.is_some()).then_some(SCALE);
        let kinds = builtin.map(|ty| (ty.api_version(), &*ty.kind)).chain(scale);
        let mut all = Self(schemas::definitions(kinds));
        let patch = json!({ "type": "object", "description": "What a patch holds depends on its content type." });
        all.0.insert(format!("{META}.Patch"), patch);
        for ty in &group.types {
            all.add(ty);
        }
        for ty in orders {
            all.tell_kind(&name(ty, &ty.kind), ty.api_version(), &ty.kind);
        }
        if scale.is_some() {
            all.tell_kind(&scale_name(), SCALE.0, SCALE.1);
        }
        all.tell_options(group);
        all
    }

    pub(super) fn into_value(self) -> Value {
        Value::Object(self.0.into_iter().collect())
    }

    fn add(&mut self, ty: &ResourceType) {
        let name = name(ty, &ty.kind);
        let [api_version, kind] = self.type_members();
        match &ty.custom {
            Some(custom) => {
                let schema = custom_schema(custom, api_version.clone(), kind.clone());
                self.0.insert(name.clone(), schema);
            }
            None => drop(self.0.entry(name.clone()).or_insert_with(|| json!({ "type": "object" }))),
        }
        self.tell_kind(&name, ty.api_version(), &ty.kind);
        let list = self::name(ty, &ty.list_kind());
        self.0.insert(list.clone(), list_schema(ty, &name, api_version, kind));
        self.tell_kind(&list, ty.api_version(), &ty.list_kind());
    }

    /// Returns the schemas of `apiVersion` and `kind`, as of a built-in type that is in every document.
    fn type_members(&self) -> [Value; 2] {
        ["apiVersion", "kind"].map(|name| self.0[&options()]["properties"][name].clone())
    }

    /// Adds a kind to the `x-kubernetes-group-version-kind` of a schema.
    fn tell_kind(&mut self, name: &str, api_version: &str, kind: &str) {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        if let Some(Value::Object(members)) = self.0.get_mut(name) {
            let kinds = members.entry("x-kubernetes-group-version-kind").or_insert_with(|| json!([]));
            if let Value::Array(kinds) = kinds {
                kinds.push(json!({ "group": group, "version": version, "kind": kind }));
            }
        }
    }

    /// Adds the kinds of DeleteOptions, which belong to every group version, and of Status.
    fn tell_options(&mut self, group: &GroupVersion) {
        let name = options();
        self.tell_kind(&name, "v1", "DeleteOptions");
        if !group.group.is_empty() {
            self.tell_kind(&name, &format!("{}/{}", group.group, group.version), "DeleteOptions");
        }
        self.tell_kind(&status(), "v1", "Status");
    }
}

const SCALE: (&str, &str) = ("autoscaling/v1", "Scale");

pub(super) fn scale_name() -> String {
    "io.k8s.api.autoscaling.v1.Scale".to_owned()
}

pub(super) fn options() -> String {
    format!("{META}.DeleteOptions")
}

pub(super) fn status() -> String {
    format!("{META}.Status")
}

pub(super) fn patch() -> String {
    format!("{META}.Patch")
}

/// Returns the schema name of a kind in the group version of `ty`. For custom types: reversed group, version and kind.
pub(super) fn name(ty: &ResourceType, kind: &str) -> String {
    if ty.custom.is_none()
        && let Some(name) = schemas::definition(ty.api_version(), &ty.kind)
        && let Some(package) = name.strip_suffix(&*ty.kind)
    {
        return format!("{package}{kind}");
    }
    let group: Vec<&str> = ty.group.rsplit('.').filter(|part| !part.is_empty()).collect();
    [group.join("."), ty.version.clone(), kind.to_owned()].join(".")
}

fn list_schema(ty: &ResourceType, item: &str, api_version: Value, kind_member: Value) -> Value {
    let kind = &ty.kind;
    json!({
        "description": format!("{} is a list of {kind}.", ty.list_kind()),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": api_version,
            "kind": kind_member,
            "metadata": { "allOf": [reference(&format!("{META}.ListMeta"))], "description": "Position and paging." },
            "items": { "type": "array", "items": reference(item), "description": format!("The {kind} objects.") },
        },
    })
}

/// Builds the schema of a custom type, with the members of every object.
fn custom_schema(custom: &Custom, api_version: Value, kind: Value) -> Value {
    let known = (!custom.preserve_unknown_fields).then(|| custom.read_schema());
    let mut schema = if let Some(Value::Object(known)) = known {
        known
    } else {
        let mut anything = Map::new();
        anything.insert("type".to_owned(), "object".into());
        anything.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
        anything
    };
    let members = schema.entry("properties").or_insert_with(|| json!({}));
    if let Value::Object(members) = members {
        members.insert("apiVersion".to_owned(), api_version);
        members.insert("kind".to_owned(), kind);
        let metadata = json!({ "allOf": [reference(OBJECT_META)], "description": "Standard object's metadata: name, labels and the like." });
        members.insert("metadata".to_owned(), metadata);
    }
    Value::Object(schema)
}
