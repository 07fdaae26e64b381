//! Writes a decoded object as the canonical text of a draft.
//!
//! INVARIANT: the text equals the text that [`Draft::new`](super::Draft::new) makes of the object's compact JSON.

use std::{borrow::Cow, mem};

use informer_core::limits::OBJECT_BYTES_MAX;
use serde_json::{Map, Value};

use super::{Canonical, EntryError, MetadataSpans, Span, push_position, push_text};
use crate::entry::Schema;

/// Bytes of most objects that are written often: leases, events, nodes without images.
const USUAL_BYTES: usize = 1 << 10;

impl<'a> Canonical<'a> {
    pub(super) fn of_object(schema: &Schema, object: &'a Map<String, Value>) -> Result<Self, EntryError> {
        let (mut body, rest_at) = Self::begin(schema, USUAL_BYTES);
        let mut metadata = None;
        for (name, value) in object {
            // `schema` decides these two; they were written first.
            if let "kind" | "apiVersion" = &**name {
                continue;
            }
            body.push(b',');
            push_text(&mut body, name);
            body.push(b':');
            if name != "metadata" {
                push_value(&mut body, value);
                continue;
            }
            let start = body.len();
            let found = MetadataSpans::of_object(&mut body, value.as_object().ok_or(EntryError::NotAnObject)?)?;
            metadata = Some(MetadataSpans { at: Span::new(start, body.len()), ..found });
        }
        body.push(b'}');
        let version = object.get("metadata").and_then(|metadata| metadata.get("resourceVersion")?.as_str());
        let bytes = body.len() + version.map_or(0, str::len);
        if bytes > OBJECT_BYTES_MAX {
            return Err(EntryError::TooLarge { bytes });
        }
        Ok(Self { body, rest_at, metadata: metadata.ok_or(EntryError::NotAnObject)? })
    }
}

impl<'a> MetadataSpans<'a> {
    /// Writes metadata with an empty resourceVersion in its original position, or first if absent.
    fn of_object(body: &mut Vec<u8>, members: &'a Map<String, Value>) -> Result<Self, EntryError> {
        let mut found = Self::default();
        let mut separator = b'{';
        if !members.contains_key("resourceVersion") {
            body.push(separator);
            found.digits_at = push_position(body);
            separator = b',';
        }
        for (name, value) in members {
            let before = body.len();
            body.push(separator);
            let is_first = mem::replace(&mut separator, b',') == b'{';
            if name == "resourceVersion" {
                found.digits_at = push_position(body);
                continue;
            }
            push_text(body, name);
            body.push(b':');
            let start = body.len();
            push_value(body, value);
            match (&**name, value) {
                ("name", Value::String(name)) => found.name = Cow::Borrowed(name),
                ("namespace", Value::String(namespace)) => found.namespace = Cow::Borrowed(namespace),
                ("name" | "namespace", Value::Null) => {}
                ("name" | "namespace", _) => return Err(EntryError::NotAnObject),
                _ => found.read(name.as_bytes(), &body[start..], start)?,
            }
            if name == "managedFields" {
                // If it is first, another member follows: there is always a resourceVersion.
                let comma = usize::from(is_first);
                found.managed_fields = Span::new(before + comma, body.len() + comma);
            }
        }
        body.push(b'}');
        Ok(found)
    }
}

fn push_value(body: &mut Vec<u8>, value: &Value) {
    serde_json::to_writer(body, value).expect("a JSON value has a text");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::Draft;
    use super::*;

    fn schema() -> Schema {
        let (kind, api_version) = ("Ki\"nd".to_owned(), "a.b/v1".to_owned());
        Schema { kind, api_version, builtin: true, fields: Vec::new(), node_field: None }
    }

    fn object(value: &Value) -> &Map<String, Value> {
        value.as_object().expect("an object")
    }

    /// Asserts that both ways lead to one entry, or to one error.
    fn assert_one_entry(value: &Value) {
        let text = value.to_string();
        let of_text = Draft::new(&schema(), text.as_bytes());
        let of_object = Draft::of_object(&schema(), object(value));
        match (of_text, of_object) {
            (Ok(of_text), Ok(of_object)) => {
                assert_eq!(of_text.json(), of_object.json());
                let [left, right] = [of_text.commit(77), of_object.commit(77)];
                assert_eq!(
                    (left.object(), left.metadata(), left.uid()),
                    (right.object(), right.metadata(), right.uid())
                );
                assert_eq!((left.namespace(), left.name()), (right.namespace(), right.name()));
                assert_eq!((left.labels, left.managed_fields), (right.labels, right.managed_fields));
                assert_eq!((left.digits, left.rest_at, left.sketch()), (right.digits, right.rest_at, right.sketch()));
            }
            (left, right) => assert_eq!(left.map(drop), right.map(drop), "{text}"),
        }
    }

    /// Goal: a decoded object leads to the entry of its text. Method: a table of metadata, accepted and refused.
    #[test]
    fn a_decoded_object_has_the_draft_of_its_text() {
        for metadata in [
            json!({"name": "a"}),
            json!({"name": "a", "namespace": "b", "resourceVersion": "5", "uid": "u", "labels": {"a/b": "c\"d"}}),
            json!({"managedFields": [{"manager": "m"}], "name": "a", "resourceVersion": ""}),
            json!({"managedFields": [{}], "name": "a"}),
            json!({"a\nb": 1.5, "name": "a", "namespace": null, "annotations": {"k": null}}),
            json!({"name": ""}),
            json!({"name": "a/b"}),
            json!({"name": 1}),
            json!({"name": "a", "labels": []}),
            json!({"name": "a", "uid": 7}),
            json!({}),
            json!(null),
            json!([]),
        ] {
            assert_one_entry(
                &json!({"kind": "x", "apiVersion": "y", "a": 1, "metadata": metadata, "é\"": [{"b": "\t"}]}),
            );
        }
        assert_one_entry(&json!({"kind": "x"}));
    }

    proptest! {
        /// Goal: as above. Method: random texts as names, keys and values.
        #[test]
        fn random_texts_are_written_alike(name in ".{0,6}", key in ".{0,6}", value in ".{0,6}") {
            let metadata = json!({"name": name, "namespace": "n", "annotations": {key.clone(): value}});
            assert_one_entry(&json!({"metadata": metadata, key: value}));
        }
    }
}
