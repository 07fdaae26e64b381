//! Structure of the JSON values of a type: members, kinds, and merge strategies.
//!
//! A [`ValueShape`] describes one value. It is made from the schemas of the built-in types (feature `openapi`, all at
//! once on first use) or from the `openAPIV3Schema` of a CustomResourceDefinition.
//!
//! INVARIANT: this module describes values and validates none.
//!
//! Source: the markers `listType`, `listMapKey`, `structType` and the tags `patchStrategy`, `patchMergeKey` of
//! `k8s.io/api`; for custom resources apiextensions-apiserver `pkg/apiserver/schema`.
#![cfg_attr(not(feature = "openapi"), allow(dead_code, reason = "some of it only built-in types have"))]

#[cfg(feature = "openapi")]
mod builtin;
#[cfg(feature = "openapi")]
mod definition;
#[cfg(feature = "openapi")]
mod published;
mod read;
mod shape;

pub use shape::{JsonKind, Merge, ShapeMember, ValueShape};

#[cfg(feature = "openapi")]
pub use published::definitions;

use crate::registry::ResourceType;

/// Prefix of references to definitions in an OpenAPI document.
pub const PREFIX: &str = "#/components/schemas/";
/// Name of the definition of `metadata`.
pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The structure of objects of `ty`. `None` for built-in types without the feature `openapi`.
///
/// Cost: the first call for any built-in type makes the shapes of all of them, which takes milliseconds; later calls
/// are one lookup. The shape of a custom type is made on the first call for it.
pub fn of(ty: &ResourceType) -> Option<ValueShape> {
    let Some(custom) = &ty.custom else { return of_builtin(ty.api_version(), &ty.kind) };
    let read = || {
        if custom.preserve_unknown_fields {
            ValueShape::free()
        } else {
            ValueShape::from_openapi(&custom.read_schema())
        }
    };
    Some((*ty.derived.get_or_make(read)).clone())
}

#[cfg(feature = "openapi")]
fn of_builtin(api_version: &str, kind: &str) -> Option<ValueShape> {
    builtin::find(api_version, kind)
}

#[cfg(not(feature = "openapi"))]
fn of_builtin(_: &str, _: &str) -> Option<ValueShape> {
    None
}

/// No definitions without the feature `openapi`.
#[cfg(not(feature = "openapi"))]
pub fn definitions<'a>(
    _: impl Iterator<Item = (&'a str, &'a str)>,
) -> std::collections::BTreeMap<String, serde_json::Value> {
    std::collections::BTreeMap::new()
}

/// Name of the definition of a built-in kind, such as `io.k8s.api.core.v1.Pod`.
#[cfg(feature = "openapi")]
pub fn definition(api_version: &str, kind: &str) -> Option<&'static str> {
    definition::of_kind(api_version, kind)
}

/// Returns `None`: nothing is known without the feature `openapi`.
#[cfg(not(feature = "openapi"))]
pub fn definition(_: &str, _: &str) -> Option<&'static str> {
    None
}

/// The shape of `metadata`.
#[cfg(feature = "openapi")]
pub fn object_meta() -> Option<ValueShape> {
    builtin::named(OBJECT_META)
}

/// Returns `None`: nothing is known without the feature `openapi`.
#[cfg(not(feature = "openapi"))]
pub fn object_meta() -> Option<ValueShape> {
    None
}
