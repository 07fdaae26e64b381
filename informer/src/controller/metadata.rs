//! Parts of an object's metadata that the store does not keep apart, read from its JSON without decoding the object.

use std::borrow::Cow;

use serde::Deserialize;

use crate::index;

/// The owner reference of the controller that manages an object.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(super) struct ControllerReference<'a> {
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

impl ControllerReference<'_> {
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

/// The owner that controls this object; Kubernetes allows one. `None` if there is none, or if it is malformed.
pub(super) fn controller_of(object: &[u8]) -> Option<ControllerReference<'_>> {
    let owners: Vec<ControllerReference<'_>> = serde_json::from_slice(member(object, "ownerReferences")?).ok()?;
    owners.into_iter().find(|owner| owner.controller == Some(true))
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
        let owner = controller_of(object).expect("an owner");
        assert_eq!((&*owner.name, &*owner.uid), ("rA", "2"));
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
            assert_eq!(controller_of(object.as_bytes()), None, "{object}");
        }
    }
}
