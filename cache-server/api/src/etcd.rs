//! Kubernetes' layout of objects in etcd: the keys, and the formats of the values.
//!
//! A key is the root prefix ([`ROOT`]), a slash, [`key_prefix`], and [`ResourceType::key`].
//!
//! `tests/tests/upstream/layout.rs` compares both with a running kube-apiserver, for every built-in type.
//!
//! kube-apiserver writes protobuf for built-in types and JSON for custom ones, or CBOR with its feature gate
//! `CBORServingAndStorage`. It reads JSON, protobuf and CBOR for built-in types: it chooses the decoder by the first
//! bytes. So a value may be written as JSON:
//! - It needs `kind` and `apiVersion`, of any version that kube-apiserver knows; the other members in any order.
//! - `metadata.resourceVersion` and `metadata.selfLink` are empty or missing. A reader replaces the resourceVersion by
//!   the key's mod revision, so a value with one is read too, but kube-apiserver never writes one.
//! - `null` is like a missing member, as everywhere in Go's JSON. Unknown members are ignored, and lost with
//!   kube-apiserver's next update of the object.
//! - Defaults are applied to built-in types at each read.
//! - The first update by kube-apiserver writes protobuf, even one that changes nothing: it omits a write only if its own
//!   encoding equals the stored bytes.
//!
//! Source: `pkg/kubeapiserver/default_storage_factory_builder.go` (`SpecialDefaultResourcePrefixes`, stored versions) in
//! kubernetes; `pkg/registry/generic/registry/store.go` (keys), `pkg/server/options/etcd.go` (`SimpleStorageFactory`, for
//! the groups apiextensions.k8s.io and apiregistration.k8s.io and for custom types), `pkg/storage/etcd3/store.go`,
//! `pkg/storage/etcd3/decoder.go`, `pkg/storage/api_object_versioner.go` in apiserver;
//! `pkg/runtime/serializer/{recognizer,json,protobuf}` in apimachinery.

mod cbor;
mod defaults;
mod definition;
mod value;

pub use value::{StoredValueError, decode_value};

use crate::registry::ResourceType;

/// Default of kube-apiserver's flag `--etcd-prefix`.
pub const ROOT: &str = "/registry";

/// Prefix of the keys of a type, relative to the root prefix and with a slash at the end, such as `pods/`.
///
/// INVARIANT: no prefix of a type begins with the prefix of another one. Groups of custom types contain a dot, and
/// folders of built-in types outside two groups contain none.
#[must_use]
pub fn key_prefix(ty: &ResourceType) -> String {
    match ty.etcd_folder {
        Some(folder) => format!("{folder}/"),
        None if ty.schema.builtin => format!("{}/", ty.plural),
        None => format!("{}/{}/", ty.group, ty.plural),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::registry::{Definition, Registry};

    pub(super) fn custom() -> Arc<ResourceType> {
        let definition = json!({"metadata": {"name": "things.example.com"},
            "spec": {"group": "example.com", "versions": [{"name": "v1", "served": true, "storage": true}]},
            "status": {"acceptedNames": {"plural": "things", "kind": "Thing"}}});
        let definition = Definition::read(definition.as_object().expect("an object")).expect("a definition");
        let types = definition.types(&Arc::new(definition.schema()), 1);
        types.into_iter().next().expect("one version")
    }

    /// Goal: keys are those of kube-apiserver. Method: the types with a folder of their own, one of each usual form, and
    /// all others by the rule.
    #[test]
    fn prefixes_are_those_of_kube_apiserver() {
        let table = [
            ("nodes", "minions/"),
            ("services", "services/specs/"),
            ("endpoints", "services/endpoints/"),
            ("replicationcontrollers", "controllers/"),
            ("ingresses.networking.k8s.io", "ingress/"),
            ("apiservices.apiregistration.k8s.io", "apiregistration.k8s.io/apiservices/"),
            ("customresourcedefinitions.apiextensions.k8s.io", "apiextensions.k8s.io/customresourcedefinitions/"),
        ];
        let registry = Registry::builtin();
        for ty in registry.iter() {
            let special = table.iter().find(|(id, _)| *id == ty.id()).map(|(_, prefix)| (*prefix).to_owned());
            assert_eq!(key_prefix(ty), special.unwrap_or_else(|| format!("{}/", ty.plural)), "{}", ty.id());
        }
        assert_eq!(key_prefix(&custom()), "example.com/things/");
    }

    #[test]
    fn no_prefix_contains_the_keys_of_another_type() {
        let registry = Registry::builtin();
        let prefixes: Vec<_> = registry.iter().chain([&custom()]).map(|ty| key_prefix(ty)).collect();
        for (at, one) in prefixes.iter().enumerate() {
            let others = prefixes.iter().enumerate().filter(|(other, _)| *other != at);
            assert!(others.clone().all(|(_, other)| !other.starts_with(one.as_str())), "{one}");
        }
    }
}
