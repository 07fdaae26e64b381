//! Parses the envelope around the objects of a document: the type of an event, the metadata of a list.

use std::borrow::Cow;

use super::TypeMeta;
use crate::{
    object,
    wire::{
        json::{self, Member},
        watch_event::EventKind,
    },
};

/// Metadata of a list, returned at its end because members come in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListEnd {
    /// `metadata.resourceVersion`; empty if the list has none.
    pub resource_version: String,
    /// `metadata.continue` if more pages follow; `None` for `""`.
    pub continue_token: Option<String>,
    /// `metadata.remainingItemCount`.
    pub remaining: Option<u64>,
}

/// Returns the type of a watch event; `None` if `type` is not a string.
pub(super) fn event_kind(envelope: &[u8]) -> Option<EventKind> {
    // Known servers send the type first, and without escapes: no walk is needed.
    let first = envelope.strip_prefix(br#"{"type":""#).and_then(|rest| rest.split(|byte| *byte == b'"').next());
    match first.map(EventKind::parse) {
        Some(EventKind::Other) | None => string(envelope, "type").map(|kind| EventKind::parse(kind.as_bytes())),
        known => known,
    }
}

/// Returns true if a document without objects is a Status.
pub(super) fn is_status(envelope: &[u8]) -> bool {
    string(envelope, "kind").is_some_and(|kind| kind == "Status")
}

/// Returns the type of a list's items, as far as its envelope, which may be incomplete, contains it.
pub(super) fn type_meta(envelope: &[u8]) -> Option<TypeMeta> {
    let kind = string(envelope, "kind")?.strip_suffix("List").filter(|kind| !kind.is_empty())?.to_owned();
    let api_version = string(envelope, "apiVersion")?.into_owned();
    Some(TypeMeta { api_version, kind })
}

/// Returns the metadata of a complete list; `None` if `items` or `metadata` has the wrong type.
pub(super) fn list_end(envelope: &[u8]) -> Option<ListEnd> {
    let items = member(envelope, "items")?;
    if items.value != b"[]" && items.value != b"null" {
        return None;
    }
    let metadata = match member(envelope, "metadata") {
        None => return Some(ListEnd::default()),
        Some(metadata) if metadata.value == b"null" => return Some(ListEnd::default()),
        Some(metadata) => metadata.value.starts_with(b"{").then_some(metadata.value)?,
    };
    let text = |key| match member(metadata, key) {
        None => Some(Cow::Borrowed("")),
        Some(found) if found.value == b"null" => Some(Cow::Borrowed("")),
        Some(found) => json::string(found.value),
    };
    let continue_token = text("continue")?.into_owned();
    Some(ListEnd {
        resource_version: text("resourceVersion")?.into_owned(),
        continue_token: (!continue_token.is_empty()).then_some(continue_token),
        remaining: object::field(metadata, "remainingItemCount").and_then(|count| count.parse().ok()),
    })
}

fn string<'a>(envelope: &'a [u8], key: &str) -> Option<Cow<'a, str>> {
    json::string(member(envelope, key)?.value)
}

fn member<'a>(object: &'a [u8], key: &str) -> Option<Member<'a>> {
    json::members(object).map_while(Result::ok).find(|member| member.key.is(key))
}
