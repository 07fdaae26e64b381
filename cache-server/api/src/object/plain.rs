//! Replaces objects without decoding them: one pass over the body checks it against its type's schema and writes its
//! members in order, and the metadata of the stored object is completed by the client's own members.
//!
//! INVARIANT: a draft of this module equals the draft that [`plan`](super::update::plan) leads to. Whatever is unusual
//! in a body or in the stored object has no plain form, and is decoded: errors, complaints about fields, duplicate
//! members, unusual escapes, nulls in lists and maps, fractions, objects that are being deleted.

mod scan;

use std::{borrow::Cow, sync::Arc};

use watch_cache::{Draft, Entry};

use self::scan::{PlainMember, PlainScan};
use super::{WriteRequest, WriteTarget, body, metadata::Part, protobuf};
use crate::{limits::UNREAD_BYTES_MAX, registry::ResourceType, schemas};

/// An object as sent, checked and in canonical form.
pub struct PlainObject<'a>(PlainScan<'a>);

/// Members of metadata that a replacement cannot change.
const KEPT: [&str; 6] = ["creationTimestamp", "generation", "name", "namespace", "resourceVersion", "uid"];

/// Returns the body of a replacement as JSON; `None` if its type or its form is decoded in any case. Cost: none for
/// JSON, one pass for protobuf.
pub fn text<'a>(request: &WriteRequest<'a>) -> Option<Cow<'a, [u8]>> {
    let WriteRequest { ty, content_type, body, .. } = *request;
    if !ty.is_replaced_whole() || ty.texts.is_some() {
        return None;
    }
    let text = match body::media_type(content_type).as_deref() {
        None | Some("application/json") => Cow::Borrowed(body),
        // Such as a node's renewal of its Lease.
        Some(protobuf::MEDIA_TYPE) if body.len() <= UNREAD_BYTES_MAX => Cow::Owned(protobuf::read_text(body, ty)?),
        Some(_) => return None,
    };
    // Longer texts are weighed while they are decoded.
    (text.len() <= UNREAD_BYTES_MAX).then_some(text)
}

impl<'a> PlainObject<'a> {
    /// Reads the [`text`] of a replacement. Returns `None` if it has no plain form. Cost: one pass and one copy.
    pub fn read(ty: &ResourceType, text: &'a [u8]) -> Option<Self> {
        let object = Self(PlainScan::of_object(text, Some(&schemas::of(ty)?))?);
        object.is_of(ty).then_some(object)
    }

    /// Returns true if the object has the kind and the apiVersion of `ty`, or none.
    fn is_of(&self, ty: &ResourceType) -> bool {
        let mut expected = [("kind", &*ty.kind), ("apiVersion", ty.api_version())].into_iter();
        expected.all(|(member, expected)| {
            let mut found = self.members().filter(|(name, _)| *name == member);
            found.all(|(_, value)| {
                value.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")) == Some(expected.as_bytes())
            })
        })
    }

    /// Returns the members with their values, sorted by name.
    fn members(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        values(&self.0.members, &self.0.text)
    }

    /// Returns the successor of `stored` with the members of this object. Returns `None` if it has no plain form.
    pub fn succeed(&self, target: &WriteTarget<'_>, stored: &NormalEntry) -> Option<Draft> {
        if target.part != Part::Main {
            return None;
        }
        let retained = PlainScan::of_object(stored.0.metadata_text(), None)?;
        let (retained, sent) = (values(&retained.members, &retained.text), values(&self.0.metadata, &self.0.text));
        let metadata = metadata_of_successor(retained, sent)?;
        let draft = Draft::of_members(&target.ty.schema, self.members(), metadata.iter().copied()).ok()?;
        Some(draft.normal())
    }
}

/// A stored object whose text is the one that this module writes, so that equal objects have equal texts.
pub struct NormalEntry(Arc<Entry>);

impl NormalEntry {
    /// Returns `None` if the text differs. Cost: none for an entry that was marked by its writer. Entries of a storage in
    /// which others write too, such as etcd, have no mark: one pass and two copies.
    #[must_use]
    pub fn of(ty: &ResourceType, stored: Arc<Entry>) -> Option<Self> {
        if !stored.is_normal() {
            let text = stored.object_text();
            let PlainObject(scan) = (text.len() <= UNREAD_BYTES_MAX).then(|| PlainObject::read(ty, text)).flatten()?;
            let (members, metadata) = (values(&scan.members, &scan.text), values(&scan.metadata, &scan.text));
            let written = Draft::of_members(&ty.schema, members, metadata).ok()?;
            if !written.same_content(&stored) {
                return None;
            }
        }
        Some(Self(stored))
    }

    /// Returns the object.
    #[must_use]
    pub const fn entry(&self) -> &Arc<Entry> {
        &self.0
    }
}

/// Returns the members that are not dropped, with their values in `text`.
fn values<'t>(members: &'t [PlainMember<'_>], text: &'t [u8]) -> impl Iterator<Item = (&'t str, &'t [u8])> + Clone {
    members.iter().filter_map(|member| Some((&*member.name, member.value_in(text)?)))
}

/// Returns the metadata that a replacement leads to: members that clients own as sent, all others as stored.
fn metadata_of_successor<'t>(
    stored: impl Iterator<Item = (&'t str, &'t [u8])> + Clone,
    sent: impl Iterator<Item = (&'t str, &'t [u8])> + Clone,
) -> Option<Vec<(&'t str, &'t [u8])>> {
    let is_sent = |name: &str| sent.clone().any(|(found, _)| found == name);
    if !is_sent("name") || !is_sent("resourceVersion") {
        return None;
    }
    let mut next = Vec::with_capacity(METADATA_MEMBERS);
    for (name, value) in stored.clone() {
        match name {
            // The finalizers of an object that is being deleted have rules of their own.
            "deletionTimestamp" | "deletionGracePeriodSeconds" => return None,
            // Decoded objects lose these.
            "generation" if value == b"0" || value.starts_with(b"-") => return None,
            "managedFields" if value == b"[{}]" => return None,
            "managedFields" if !is_sent(name) => next.push((name, value)),
            name if KEPT.contains(&name) => next.push((name, value)),
            _ => {}
        }
    }
    for (name, value) in sent {
        if KEPT.contains(&name) {
            let (_, before) = stored.clone().find(|(found, _)| *found == name)?;
            let is_ignored = match name {
                "creationTimestamp" | "generation" => true,
                "namespace" | "uid" => value == b"\"\"",
                _ => false,
            };
            if !is_ignored && value != before {
                return None;
            }
            continue;
        }
        match name {
            "deletionTimestamp" | "deletionGracePeriodSeconds" => return None,
            // This value removes the entries of all managers.
            "managedFields" if value == b"[{}]" => return None,
            "selfLink" => {}
            _ => next.push((name, value)),
        }
    }
    next.sort_unstable_by_key(|(name, _)| *name);
    Some(next)
}

/// Members of metadata for which there is room at first.
const METADATA_MEMBERS: usize = 12;

#[cfg(test)]
mod tests;
