//! Structure of the JSON values of a type: members, kinds, and merge strategies.
//!
//! A [`ValueShape`] describes one value. It is made from the definitions of the built-in types or from the
//! `openAPIV3Schema` of a CustomResourceDefinition.
//!
//! INVARIANT: this module describes values and validates none.
//!
//! Source: the markers `listType`, `listMapKey`, `structType` and the tags `patchStrategy`, `patchMergeKey` of
//! `k8s.io/api`; for custom resources apiextensions-apiserver `pkg/apiserver/schema`.

mod builtin;
mod definition;
mod published;
mod read;
mod shape;

pub use published::definitions;
pub use shape::{JsonKind, Merge, ShapeMember, ValueShape};

use crate::registry::ResourceType;

/// Prefix of references to definitions in an OpenAPI document.
pub const PREFIX: &str = "#/components/schemas/";
/// Name of the definition of `metadata`.
pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The structure of objects of `ty`. `None` for built-in types without a definition.
///
/// Cost: the first call for any built-in type indexes the definitions, which takes a millisecond. The shape of a type is
/// made or found on the first call for it.
pub fn of(ty: &ResourceType) -> Option<ValueShape> {
    let shape = ty.derived.get_or_make(|| match &ty.custom {
        None => builtin::find(ty.api_version(), &ty.kind),
        Some(custom) if custom.preserve_unknown_fields => Some(ValueShape::free()),
        Some(custom) => Some(ValueShape::from_openapi(&custom.read_schema())),
    });
    (*shape).clone()
}

/// Name of the definition of a built-in kind, such as `io.k8s.api.core.v1.Pod`.
pub fn definition(api_version: &str, kind: &str) -> Option<&'static str> {
    definition::of_kind(api_version, kind)
}

/// The shape of objects of a built-in kind.
pub(crate) fn built_in(api_version: &str, kind: &str) -> Option<ValueShape> {
    builtin::find(api_version, kind)
}

/// The shape of `metadata`.
pub fn object_meta() -> Option<ValueShape> {
    builtin::named(OBJECT_META)
}
