//! Parses an object that is in no cache, the response of a write, so that it can be formatted.

use informer_core::{object::Meta as ObjectMeta, wire::json};

use super::{Form, MetaVersion};

/// One object as JSON, with its metadata already in the requested format.
pub(super) struct UnstoredObject<'a> {
    /// Key and text of every member except kind and apiVersion; `None` is a placeholder for metadata.
    members: Vec<(Vec<u8>, Option<&'a [u8]>)>,
    kind: &'a [u8],
    api_version: &'a [u8],
    metadata: Vec<u8>,
    pub(super) resource_version: Vec<u8>,
}

impl<'a> UnstoredObject<'a> {
    /// Returns `None` for a Status, and for text that is not an object.
    pub(super) fn read(object: &'a [u8], without_managed_fields: bool) -> Option<Self> {
        let meta = ObjectMeta::read(object).ok()?;
        if meta.kind.as_deref() == Some("Status") && meta.api_version.as_deref() == Some("v1") {
            return None;
        }
        let resource_version = meta.resource_version.as_bytes().to_vec();
        let mut found =
            Self { members: Vec::new(), kind: b"", api_version: b"", metadata: Vec::new(), resource_version };
        for member in json::members(object) {
            let member = member.ok()?;
            match &*member.key.bytes() {
                b"kind" => found.kind = member.value,
                b"apiVersion" => found.api_version = member.value,
                b"metadata" => {
                    found.metadata = metadata(member.value, without_managed_fields)?;
                    found.members.push((b"\"metadata\"".to_vec(), None));
                }
                _ => {
                    let key = json::quote(&member.key.text()?).into_bytes();
                    found.members.push((key, Some(member.value)));
                }
            }
        }
        Some(found)
    }

    pub(super) fn push_whole(&self, form: &Form, text: &mut Vec<u8>) {
        match &form.version {
            // The head ends with a comma, which the next member writes itself.
            Some(version) => text.extend_from_slice(version.head.strip_suffix(b",").unwrap_or_default()),
            None => {
                text.extend_from_slice(br#"{"kind":"#);
                text.extend_from_slice(self.kind);
                text.extend_from_slice(br#","apiVersion":"#);
                text.extend_from_slice(self.api_version);
            }
        }
        for (key, value) in &self.members {
            text.push(b',');
            text.extend_from_slice(key);
            text.push(b':');
            text.extend_from_slice(value.unwrap_or(&self.metadata));
        }
        text.push(b'}');
    }

    pub(super) fn push_partial(&self, meta: MetaVersion, text: &mut Vec<u8>) {
        text.extend_from_slice(meta.partial_head().as_bytes());
        text.extend_from_slice(&self.metadata);
        text.push(b'}');
    }
}

fn metadata(value: &[u8], without_managed_fields: bool) -> Option<Vec<u8>> {
    if !without_managed_fields {
        return Some(value.to_vec());
    }
    let mut text = b"{".to_vec();
    for member in json::members(value) {
        let member = member.ok()?;
        if member.key.is("managedFields") {
            continue;
        }
        if text.len() > 1 {
            text.push(b',');
        }
        text.extend_from_slice(json::quote(&member.key.text()?).as_bytes());
        text.push(b':');
        text.extend_from_slice(member.value);
    }
    text.push(b'}');
    Some(text)
}
