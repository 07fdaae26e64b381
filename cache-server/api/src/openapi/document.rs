//! Builds one document: the paths of a group version and the schemas that they refer to.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{operations, schemas::Schemas};
use crate::{
    registry::{GroupVersion, ResourceType},
    schemas::PREFIX,
    version::git_version,
};

/// Builds the document of a group version.
pub fn text(group: &GroupVersion) -> Bytes {
    let schemas = Schemas::of(group);
    let mut paths = Map::new();
    for ty in group.types.iter().chain(&group.reviews) {
        operations::paths(ty, &mut paths);
    }
    let document = json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": git_version() },
        "paths": paths,
        "components": { "schemas": schemas.into_value() },
    });
    document.to_string().into()
}

/// Returns a hash that changes with the document of a group version.
///
/// Cost: serialises the schemas of custom types; built-in ones change only with the program.
pub fn hash(group: &GroupVersion) -> String {
    let mut seed = format!("{} {}\n", env!("CARGO_PKG_VERSION"), git_version());
    for ty in group.types.iter().chain(&group.reviews) {
        let ResourceType { group, version, plural, kind, namespaced, verbs, custom, scale, subresources, .. } = &**ty;
        seed.push_str(&format!("{group} {version} {plural} {kind} {namespaced} {verbs:?} {}\n", ty.list_kind()));
        seed.push_str(&format!("{} {} {subresources:?}\n", ty.has_status, scale.is_some()));
        if let Some(custom) = custom {
            seed.push_str(&format!("{} {}\n", custom.preserve_unknown_fields, custom.schema));
        }
    }
    fingerprint(seed.as_bytes())
}

/// Formats a hash for URLs, by FNV-1a: sufficient to detect that a document changed.
pub fn fingerprint(bytes: &[u8]) -> String {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016X}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix))
}

/// Returns a reference to the schema `name`.
pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("{}{name}", PREFIX) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    /// Goal: the schemas of built-in types change only with Kubernetes' version. Method: a hash of all 20 documents; the
    /// sum does not depend on their order.
    #[test]
    fn schemas_are_those_of_kubernetes_1_36() {
        let components = |group| {
            let document: Value = serde_json::from_slice(&text(group)).expect("is JSON");
            let hash = fingerprint(document["components"].to_string().as_bytes());
            u64::from_str_radix(&hash, 16).expect("hexadecimal")
        };
        let hash = Registry::builtin().groups().map(components).fold(0, u64::wrapping_add);
        assert_eq!(format!("{hash:016x}"), "e45014b10e9188a1");
    }

    /// Goal: every reference in a document leads to one of its schemas. Method: all group versions of a cluster.
    #[test]
    fn documents_are_whole() {
        fn check(value: &Value, schemas: &Value, name: &str) {
            match value {
                Value::Object(members) => {
                    if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
                        let found = reference.strip_prefix("#/components/schemas/").and_then(|name| schemas.get(name));
                        assert!(found.is_some(), "{name}: {reference}");
                    }
                    members.values().for_each(|value| check(value, schemas, name));
                }
                Value::Array(items) => items.iter().for_each(|value| check(value, schemas, name)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        for group in Registry::of_cluster().groups() {
            let text = text(group);
            let document: Value = serde_json::from_slice(&text).expect("is JSON");
            check(&document, &document["components"]["schemas"], &group.group);
        }
    }
}
