//! Writes the sorted members of an object, decoded or as JSON, as the canonical text of a draft.
//!
//! INVARIANT: the text equals the text that [`Draft::new`](super::Draft::new) makes of the object's compact JSON, with an
//! empty resourceVersion in its sorted place if there is none. Equal objects therefore have equal texts.

use std::{borrow::Cow, mem};

use informer_core::{limits::OBJECT_BYTES_MAX, wire::json};
use serde_json::{Map, Value};

use super::{Canonical, EntryError, MetadataSpans, Span, push_position, push_text};
use crate::entry::Schema;

/// Bytes of most objects that are written often: leases, events, nodes without images.
const USUAL_BYTES: usize = 1 << 10;

const RESOURCE_VERSION: &str = "resourceVersion";

/// Value of a member: decoded, or as compact JSON.
pub(super) trait MemberValue<'a>: Copy {
    /// Writes the value as compact JSON.
    fn push(self, body: &mut Vec<u8>);

    /// Returns the text of a string.
    fn text(self) -> Option<Cow<'a, str>>;
}

impl<'a> MemberValue<'a> for &'a Value {
    fn push(self, body: &mut Vec<u8>) {
        serde_json::to_writer(body, self).expect("a JSON value has a text");
    }

    fn text(self) -> Option<Cow<'a, str>> {
        self.as_str().map(Cow::Borrowed)
    }
}

impl<'a> MemberValue<'a> for &'a [u8] {
    fn push(self, body: &mut Vec<u8>) {
        body.extend_from_slice(self);
    }

    fn text(self) -> Option<Cow<'a, str>> {
        json::string(self)
    }
}

impl<'a> Canonical<'a> {
    pub(super) fn of_object(schema: &Schema, object: &'a Map<String, Value>) -> Result<Self, EntryError> {
        let metadata = object.get("metadata").and_then(Value::as_object).ok_or(EntryError::NotAnObject)?;
        Self::of_members(schema, USUAL_BYTES, named(object), named(metadata))
    }

    /// Writes sorted members of about `bytes`. Ignores kind, apiVersion and metadata among `members`.
    pub(super) fn of_members<V: MemberValue<'a>>(
        schema: &Schema,
        bytes: usize,
        members: impl Iterator<Item = (&'a str, V)>,
        metadata: impl Iterator<Item = (&'a str, V)> + Clone,
    ) -> Result<Self, EntryError> {
        let (mut body, rest_at) = Self::begin(schema, bytes);
        // `schema` decides kind and apiVersion; they were written first.
        let mut members = members.filter(|(name, _)| !matches!(*name, "kind" | "apiVersion" | "metadata")).peekable();
        while let Some((name, value)) = members.next_if(|(name, _)| *name < "metadata") {
            push_member(&mut body, b',', name, value);
        }
        let version = metadata.clone().find(|(name, _)| *name == RESOURCE_VERSION).map(|(_, value)| value.text());
        body.extend_from_slice(br#","metadata":"#);
        let start = body.len();
        let found = MetadataSpans::of_members(&mut body, version.is_some(), metadata)?;
        let metadata = MetadataSpans { at: Span::new(start, body.len()), ..found };
        for (name, value) in members {
            push_member(&mut body, b',', name, value);
        }
        body.push(b'}');
        let bytes = body.len() + version.flatten().map_or(0, |version| version.len());
        if bytes > OBJECT_BYTES_MAX {
            return Err(EntryError::TooLarge { bytes });
        }
        Ok(Self { body, rest_at, metadata })
    }
}

impl<'a> MetadataSpans<'a> {
    /// Writes metadata with an empty resourceVersion in its sorted place, also if `has_version` is false.
    fn of_members<V: MemberValue<'a>>(
        body: &mut Vec<u8>,
        has_version: bool,
        members: impl Iterator<Item = (&'a str, V)>,
    ) -> Result<Self, EntryError> {
        let mut found = Self::default();
        let (mut separator, mut is_missing) = (b'{', !has_version);
        for (name, value) in members {
            if is_missing && RESOURCE_VERSION < name {
                is_missing = false;
                body.push(mem::replace(&mut separator, b','));
                found.digits_at = push_position(body);
            }
            let before = body.len();
            let comma = mem::replace(&mut separator, b',');
            if name == RESOURCE_VERSION {
                body.push(comma);
                found.digits_at = push_position(body);
                continue;
            }
            let start = push_member(body, comma, name, value);
            match name {
                "name" | "namespace" if body[start..] == *b"null" => {}
                "name" => found.name = value.text().ok_or(EntryError::NotAnObject)?,
                "namespace" => found.namespace = value.text().ok_or(EntryError::NotAnObject)?,
                _ => found.read(name.as_bytes(), &body[start..], start)?,
            }
            if name == "managedFields" {
                // If it is first, another member follows: there is always a resourceVersion.
                let comma = usize::from(comma == b'{');
                found.managed_fields = Span::new(before + comma, body.len() + comma);
            }
        }
        if is_missing {
            body.push(separator);
            found.digits_at = push_position(body);
        }
        body.push(b'}');
        Ok(found)
    }
}

/// Returns the members with their names.
fn named(members: &Map<String, Value>) -> impl Iterator<Item = (&str, &Value)> + Clone {
    members.iter().map(|(name, value)| (&**name, value))
}

/// Writes a member after `separator`. Returns the place of its value.
fn push_member<'a>(body: &mut Vec<u8>, separator: u8, name: &str, value: impl MemberValue<'a>) -> usize {
    body.push(separator);
    push_text(body, name);
    body.push(b':');
    let start = body.len();
    value.push(body);
    start
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

    /// Returns the draft of the members of `value` as JSON.
    fn of_members(value: &Value) -> Result<Draft, EntryError> {
        let texts = |value: &Value| -> Vec<(String, Vec<u8>)> {
            let members = value.as_object().into_iter().flatten();
            members.map(|(name, value)| (name.clone(), value.to_string().into_bytes())).collect()
        };
        let metadata = value.get("metadata").filter(|metadata| metadata.is_object()).ok_or(EntryError::NotAnObject)?;
        let (members, metadata) = (texts(value), texts(metadata));
        let named = |(name, value): &'static (String, Vec<u8>)| (&**name, &**value);
        Draft::of_members(&schema(), members.leak().iter().map(named), metadata.leak().iter().map(named))
    }

    /// Asserts that all three ways lead to one entry, or to one error.
    fn assert_one_entry(value: &Value) {
        let mut whole = value.clone();
        if let Some(Value::Object(metadata)) = whole.get_mut("metadata") {
            metadata.entry(RESOURCE_VERSION).or_insert_with(|| "".into());
        }
        let text = whole.to_string();
        let of_text = || Draft::new(&schema(), text.as_bytes());
        assert_equal(&text, of_text(), Draft::of_object(&schema(), object(value)));
        assert_equal(&text, of_text(), of_members(value));
    }

    fn assert_equal(text: &str, of_text: Result<Draft, EntryError>, of_object: Result<Draft, EntryError>) {
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
            json!({"name": "a", "selfLink": "/x", "uid": "u"}),
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
