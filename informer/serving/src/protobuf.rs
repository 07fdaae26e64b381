//! The envelopes of protobuf bodies: of one object, of a LIST and of watch events.
//!
//! INVARIANT: an object's message is one field, [`MESSAGE_FIELD`], in its own envelope and in a list alike, so that both
//! share its bytes. An envelope is [`PREFIX`], the type, that field and [`ENVELOPE_TAIL`].
//!
//! Source: apimachinery `pkg/runtime/serializer/protobuf`, `pkg/runtime/generated.proto`, `pkg/apis/meta/v1/generated.proto`.

use informer_core::wire::watch_event::INITIAL_EVENTS_ANNOTATION;

use crate::list::ListMetadata;

/// Content-Type of one object or list.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Content-Type of a watch.
pub const STREAM_MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// First bytes of every envelope.
pub const PREFIX: &[u8] = b"k8s\0";

/// Number of the message in an envelope, and of the items in a list.
pub const MESSAGE_FIELD: u32 = 2;

/// Last bytes of an envelope: neither encoded nor of another content type, which Go writes too.
pub const ENVELOPE_TAIL: &[u8] = &[0x1a, 0, 0x22, 0];

/// Number of `metadata` in objects and lists.
pub const METADATA_FIELD: u32 = 1;

/// Wire type of integers.
pub const VARINT: u32 = 0;
/// Wire type of texts and messages: a length and bytes.
pub const BYTES: u32 = 2;

/// Bytes of the length before each event of a watch.
const FRAME_LENGTH_BYTES: usize = 4;

/// Writes an integer.
pub fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number > 0x7f {
        out.push(0x80 | low_bits(number));
        number >>= 7;
    }
    out.push(low_bits(number));
}

const fn low_bits(number: u64) -> u8 {
    (number & 0x7f) as u8
}

/// Returns the bytes that [`put_varint`] writes.
#[must_use]
pub const fn varint_len(number: usize) -> usize {
    let bits = usize::BITS - (number | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Reads an integer at `at`, and moves `at` behind it; `None` at the end.
pub fn take_varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte <= 0x7f {
            return Some(number);
        }
    }
    None
}

/// Writes the tag of a field.
pub fn put_tag(field: u32, wire_type: u32, out: &mut Vec<u8>) {
    put_varint(u64::from(field << 3 | wire_type), out);
}

/// Writes the tag and the length of a field of `len` bytes.
pub fn put_head(field: u32, len: usize, out: &mut Vec<u8>) {
    put_tag(field, BYTES, out);
    put_varint(len as u64, out);
}

/// Writes a field of bytes.
pub fn put_bytes(field: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_head(field, bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// Returns the length of a field of `len` bytes with its tag, for numbers below 16.
#[must_use]
pub const fn field_len(len: usize) -> usize {
    1 + varint_len(len) + len
}

/// Returns an envelope up to its message.
#[must_use]
pub fn envelope_head(api_version: &str, kind: &str) -> Vec<u8> {
    let mut type_meta = Vec::new();
    put_bytes(1, api_version.as_bytes(), &mut type_meta);
    put_bytes(2, kind.as_bytes(), &mut type_meta);
    let mut head = PREFIX.to_vec();
    put_bytes(1, &type_meta, &mut head);
    head
}

/// Returns a message in its envelope.
#[must_use]
pub fn envelope(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut out = envelope_head(api_version, kind);
    put_bytes(MESSAGE_FIELD, message, &mut out);
    out.extend_from_slice(ENVELOPE_TAIL);
    out
}

/// Returns a list up to its first item; [`ENVELOPE_TAIL`] follows the last one. `kind` is the list's own. `items` is the
/// sum of the items' bytes, each with its tag and length.
#[must_use]
pub fn list_head(kind: &str, api_version: &str, meta: &ListMetadata<'_>, items: u64) -> Vec<u8> {
    let ListMetadata { resource_version, continue_token, remaining, shard } = *meta;
    let mut metadata = Vec::new();
    put_bytes(2, resource_version.to_string().as_bytes(), &mut metadata);
    if let Some(token) = continue_token {
        put_bytes(3, token.as_bytes(), &mut metadata);
    }
    if let Some(remaining) = remaining {
        put_tag(4, VARINT, &mut metadata);
        put_varint(remaining, &mut metadata);
    }
    if let Some(selector) = shard {
        let mut info = Vec::new();
        put_bytes(1, selector.as_bytes(), &mut info);
        put_bytes(5, &info, &mut metadata);
    }
    let mut head = envelope_head(api_version, kind);
    put_tag(MESSAGE_FIELD, BYTES, &mut head);
    put_varint(field_len(metadata.len()) as u64 + items, &mut head);
    put_bytes(METADATA_FIELD, &metadata, &mut head);
    head
}

/// Writes an event of a watch up to its object, an envelope of `object_len` bytes. The object ends the event.
pub fn put_event_head(event: &str, object_len: usize, out: &mut Vec<u8>) {
    let raw_extension = field_len(object_len);
    let len = field_len(event.len()) + field_len(raw_extension);
    // An object of 4 GiB is far above every limit.
    out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
    put_bytes(1, event.as_bytes(), out);
    put_head(2, raw_extension, out);
    put_head(1, object_len, out);
}

/// Returns an event of a watch. `object` is an envelope.
#[must_use]
pub fn event(event: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len() + 32);
    put_event_head(event, object.len(), &mut out);
    out.extend_from_slice(object);
    out
}

/// Returns true if an event of a watch begins with `bytes`, whose object is none of a bookmark or an error.
#[must_use]
pub fn begins_change(bytes: &[u8]) -> bool {
    let [0x0a, len, event @ ..] = bytes.get(FRAME_LENGTH_BYTES..).unwrap_or_default() else { return false };
    ["ADDED", "MODIFIED", "DELETED"]
        .iter()
        .any(|name| usize::from(*len) == name.len() && event.starts_with(name.as_bytes()))
}

/// Returns a whole BOOKMARK event: an object of the watched type with only the position.
#[must_use]
pub fn bookmark(kind: &str, api_version: &str, resource_version: u64, initial_events_end: bool) -> Vec<u8> {
    let mut metadata = Vec::new();
    put_bytes(6, resource_version.to_string().as_bytes(), &mut metadata);
    if initial_events_end {
        let mut entry = Vec::new();
        put_bytes(1, INITIAL_EVENTS_ANNOTATION.as_bytes(), &mut entry);
        put_bytes(2, b"true", &mut entry);
        put_bytes(12, &entry, &mut metadata);
    }
    let mut message = Vec::new();
    put_bytes(METADATA_FIELD, &metadata, &mut message);
    event("BOOKMARK", &envelope(api_version, kind, &message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_that_are_written() {
        for number in [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, u32::MAX as usize] {
            let mut out = Vec::new();
            put_varint(number as u64, &mut out);
            assert_eq!(out.len(), varint_len(number), "{number}");
            let mut at = 0;
            assert_eq!((take_varint(&out, &mut at), at), (Some(number as u64), out.len()));
            assert_eq!(take_varint(&out[1..], &mut out.len()), None);
        }
        let mut out = Vec::new();
        put_bytes(2, &[7; 300], &mut out);
        assert_eq!((out.len(), &out[..3]), (field_len(300), &[0x12, 0xac, 0x02][..]));
    }

    #[test]
    fn envelopes_are_those_of_go() {
        let pod = envelope("v1", "Pod", b"\x0a\x03\x0a\x01a");
        assert_eq!(pod, b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x05\x0a\x03\x0a\x01a\x1a\0\x22\0");
        assert_eq!(
            event("ADDED", &pod),
            [b"\0\0\0\x25\x0a\x05ADDED\x12\x1c\x0a\x1a".as_slice(), &pod].concat(),
            "the length is that of the event"
        );
        assert_eq!(
            list_head("PodList", "v1", &ListMetadata { resource_version: 7, ..ListMetadata::default() }, 9),
            b"k8s\0\x0a\x0d\x0a\x02v1\x12\x07PodList\x12\x0e\x0a\x03\x12\x017"
        );
        let meta =
            ListMetadata { resource_version: 7, continue_token: Some("t"), remaining: Some(300), shard: Some("s") };
        let page = list_head("PodList", "v1", &meta, 0);
        assert!(page.ends_with(b"\x12\x10\x0a\x0e\x12\x017\x1a\x01t\x20\xac\x02\x2a\x03\x0a\x01s"), "{page:x?}");
    }

    #[test]
    fn changes_are_told_from_other_events() {
        for (name, expected) in
            [("ADDED", true), ("MODIFIED", true), ("DELETED", true), ("BOOKMARK", false), ("ERROR", false)]
        {
            assert_eq!(begins_change(&event(name, b"")), expected, "{name}");
        }
        for other in [&b""[..], b"\0\0", b"\0\0\0\0\x0a", b"{\"type\":\"ADDED\""] {
            assert!(!begins_change(other), "{other:x?}");
        }
        assert!(!begins_change(&bookmark("Pod", "v1", 7, true)));
    }
}
