//! What is known about the JSON values of a type: members, kinds, and how two values become one.
//!
//! A [`Shape`] stands for one value. It comes from the schemas of the built-in types (feature `openapi`; they are made
//! once, when first asked for) or from the `openAPIV3Schema` of a CustomResourceDefinition.
//!
//! INVARIANT: nothing here judges an object; it says what could stand where.
//!
//! Source: the markers `listType`, `listMapKey`, `structType` and the tags `patchStrategy`, `patchMergeKey` of
//! `k8s.io/api`; for custom resources apiextensions-apiserver `pkg/apiserver/schema`.
#![cfg_attr(not(feature = "openapi"), allow(dead_code, reason = "some of it only built-in types have"))]

#[cfg(feature = "openapi")]
mod builtin;
#[cfg(feature = "openapi")]
mod published;
mod read;
mod shape;

pub(crate) use shape::{JsonKind, Member, Merge, Shape};

#[cfg(feature = "openapi")]
pub(crate) use published::definitions;

use crate::registry::ResourceType;

/// Where definitions stand in an OpenAPI document.
pub(crate) const PREFIX: &str = "#/components/schemas/";
/// The definition of `metadata`.
pub(crate) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// What is known about objects of `ty`. `None` when nothing is: built-in types without the feature `openapi`.
///
/// Cost: the first call for any built-in type makes the shapes of all of them, some milliseconds; after that one
/// look-up. The shape of a custom type is made with the first call for it.
pub(crate) fn of(ty: &ResourceType) -> Option<Shape> {
    let Some(custom) = &ty.custom else { return of_builtin(ty.api_version(), &ty.kind) };
    let read =
        || if custom.preserve_unknown_fields { Shape::free() } else { Shape::from_openapi(&custom.read_schema()) };
    Some(ty.shape.get_or_init(read).clone())
}

#[cfg(feature = "openapi")]
fn of_builtin(api_version: &str, kind: &str) -> Option<Shape> {
    builtin::find(api_version, kind)
}

#[cfg(not(feature = "openapi"))]
fn of_builtin(_: &str, _: &str) -> Option<Shape> {
    None
}

/// The definitions of these kinds, of which nothing is known.
#[cfg(not(feature = "openapi"))]
pub(crate) fn definitions<'a>(
    _: impl Iterator<Item = (&'a str, &'a str)>,
) -> std::collections::BTreeMap<String, serde_json::Value> {
    std::collections::BTreeMap::new()
}

/// The name of the definition of a built-in kind, such as `io.k8s.api.core.v1.Pod`.
#[cfg(feature = "openapi")]
pub(crate) fn definition(api_version: &str, kind: &str) -> Option<String> {
    builtin::root(api_version, kind).map(|root| (root.name)())
}

#[cfg(not(feature = "openapi"))]
pub(crate) fn definition(_: &str, _: &str) -> Option<String> {
    None
}

/// The shape of `metadata`.
#[cfg(feature = "openapi")]
pub(crate) fn object_meta() -> Option<Shape> {
    builtin::named(OBJECT_META)
}

#[cfg(not(feature = "openapi"))]
pub(crate) fn object_meta() -> Option<Shape> {
    None
}
