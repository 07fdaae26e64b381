//! Parts of an object's metadata that the store does not keep apart, read from its JSON without decoding the object.

use std::borrow::Cow;

use serde::Deserialize;

use crate::index;

/// An owner reference.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(super) struct OwnerReference<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) uid: Cow<'a, str>,
    #[serde(default)]
    controller: Option<bool>,
}

impl OwnerReference<'_> {
    /// True if the owner is of this type. Versions are not compared: an object keeps the one its owner had at the time.
    pub(super) fn is_of(&self, group: &str, kind: &str) -> bool {
        let own_group = self.api_version.split_once('/').map_or("", |(group, _)| group);
        own_group == group && self.kind == kind
    }
}

/// The text of `metadata.<name>`. Cost: a scan up to it; servers send the metadata first.
pub(super) fn member<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    index::member(index::member(object, "metadata")?, name)
}

/// Owners of an object that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owners {
    /// The one that controls it; Kubernetes allows one.
    Controller,
    /// All of them.
    Any,
}

/// The owners of this object. None if one of them is malformed.
pub(super) fn owners_of(object: &[u8], owners: Owners) -> Vec<OwnerReference<'_>> {
    let references = member(object, "ownerReferences").and_then(|json| serde_json::from_slice(json).ok());
    let mut found: Vec<OwnerReference<'_>> = references.unwrap_or_default();
    found.retain(|owner| owners == Owners::Any || owner.controller == Some(true));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controlling_owner_is_found_without_decoding_the_rest() {
        let object = br#"{"apiVersion":"v1","metadata":{"name":"x","ownerReferences":[
            {"apiVersion":"v1","kind":"Node","name":"n","uid":"1"},
            {"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r\u0041","uid":"2","controller":true,
             "blockOwnerDeletion":true}]},"spec":{"not":read}}"#;
        let [owner] = &owners_of(object, Owners::Controller)[..] else { panic!("one owner") };
        assert_eq!((&*owner.name, &*owner.uid), ("rA", "2"));
        let any: Vec<String> =
            owners_of(object, Owners::Any).into_iter().map(|owner| owner.name.into_owned()).collect();
        assert_eq!(any, ["n", "rA"]);
        assert!(owner.is_of("apps", "ReplicaSet") && !owner.is_of("", "ReplicaSet") && !owner.is_of("apps", "Node"));
    }

    #[test]
    fn objects_without_a_controlling_owner_have_none() {
        for object in [
            "",
            "{}",
            r#"{"metadata":{}}"#,
            r#"{"metadata":{"ownerReferences":null}}"#,
            r#"{"metadata":{"ownerReferences":[{"controller":true}]}}"#,
            r#"{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"1"}]}}"#,
        ] {
            assert_eq!(owners_of(object.as_bytes(), Owners::Controller), [], "{object}");
        }
    }
}
