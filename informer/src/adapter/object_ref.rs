//! Conversions from and to kube-runtime's references.

use super::kube::runtime::reflector::{self, Lookup};
use crate::object_ref::{ObjectRef, key_of};

/// Converts a reference into kube-runtime's, for a type known at run time.
#[must_use]
pub fn to_kube<K: Lookup>(object: &ObjectRef<K>, dyntype: K::DynamicType) -> reflector::ObjectRef<K> {
    let of_kube = reflector::ObjectRef::new_with(object.name(), dyntype);
    if object.namespace().is_empty() { of_kube } else { of_kube.within(object.namespace()) }
}

impl<K: Lookup> From<&ObjectRef<K>> for reflector::ObjectRef<K>
where
    K::DynamicType: Default,
{
    fn from(object: &ObjectRef<K>) -> Self {
        to_kube(object, K::DynamicType::default())
    }
}

impl<K: Lookup> From<&reflector::ObjectRef<K>> for ObjectRef<K> {
    fn from(object: &reflector::ObjectRef<K>) -> Self {
        Self::from_key(&key_of(object.namespace.as_deref().unwrap_or_default(), &object.name))
    }
}
