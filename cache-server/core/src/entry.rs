//! One object and its bytes on the wire, built once.
//!
//! INVARIANT: the line is `{"type":"ADDED","object":{"kind":K,"apiVersion":V,<other members>}}` and a newline,
//! compact, with `metadata.resourceVersion` present exactly once. It begins with `MODIFIED` if the object existed
//! before, so that the line most watchers receive is one slice. All other fields of an entry are spans of this text.

use std::{
    borrow::Cow,
    ptr,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use informer_core::{KeyedObject, object, wire::json};
use informer_serving::watch_event::{ADDED_HEAD, MODIFIED_HEAD, TAIL};
use memchr::memchr;

use crate::{
    filter::LabelKey,
    form::{Cells, ConvertedForms, LONG_CELLS, MessageSlot, Rows, SentEvent},
    limits::{APART_BYTES, CELLS_KEPT_MAX, SHARED_BYTES_MIN, SHARED_PART_MIN},
    slices::Slices,
};

mod draft;
mod sketch;
mod variants;

pub use draft::{Draft, EntryError};
pub(crate) use sketch::Sketch;
use variants::{ComputedCells, Variants};

/// The properties of a resource type that its cache needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The kind of one object, such as `Pod`.
    pub kind: String,
    /// The apiVersion, such as `v1` or `apps/v1`.
    pub api_version: String,
    /// True if items of its lists omit kind and apiVersion, as Kubernetes' own types do.
    pub builtin: bool,
    /// Selectable fields besides `metadata.name` and `metadata.namespace`.
    pub fields: Vec<Field>,
    /// Index in `fields` of the object's node: watches of one node get a bucket of their own.
    pub node_field: Option<usize>,
}

/// A selectable field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name in selectors, such as `spec.host`.
    pub label: String,
    /// Path of the value, such as `spec.nodeName`.
    pub path: String,
    /// The value of objects whose field is absent or empty: `""`, or Kubernetes' default, such as `false`.
    pub absent: String,
    /// Index in [`Schema::fields`] of the field that replaces this one if it is empty.
    pub or: Option<usize>,
}

/// One object at one resourceVersion. Immutable; shared by all users of the object.
pub struct Entry {
    /// The line, followed by the values of fields that are not contained in it verbatim: escaped or absent ones.
    text: Bytes,
    line_len: u32,
    /// Offset after kind and apiVersion and their commas.
    rest_at: u32,
    /// The digits of the resourceVersion, then uid, then the whole labels map.
    digits: Span,
    uid: Span,
    labels: Span,
    /// The value of metadata, then its member `managedFields` with one comma.
    metadata: Span,
    managed_fields: Span,
    /// Values in the order of [`Schema::fields`].
    fields: Box<[Span]>,
    key: Box<str>,
    /// Offset of the name in the key.
    name_at: u32,
    builtin: bool,
    /// True if the stored line begins with MODIFIED, not ADDED.
    updated: bool,
    /// See [`Self::is_normal`].
    normal: bool,
    /// True if labels are strings without escapes, so that a text search can find a key.
    plain_labels: bool,
    /// Sketch of labels and node. Stored here because a scan reads the entry anyway, while its text is a cache miss
    /// away.
    sketch: Sketch,
    resource_version: u64,
    /// Created at the first use of a variant.
    variants: OnceLock<Box<Variants>>,
}

/// A part of an entry's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinePart {
    Object,
    /// The members after kind and apiVersion, with the brace that closes the object.
    Rest,
    /// Like `Rest`, with the tail of the line.
    RestOfLine,
    /// The value of metadata.
    Metadata,
}

/// A range of an entry's text. Empty spans are at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
}

impl Entry {
    /// Returns the namespace; `""` for cluster-scoped objects.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.key.get(..(self.name_at as usize).saturating_sub(1)).unwrap_or_default()
    }

    /// Returns the name without the namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        self.key.get(self.name_at as usize..).unwrap_or_default()
    }

    /// Returns the uid as written in the object; `""` if absent.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.str(self.uid)
    }

    /// Returns the object's own resourceVersion.
    #[must_use]
    pub const fn resource_version(&self) -> u64 {
        self.resource_version
    }

    /// Returns the digits of the resourceVersion, as a slice that keeps the object alive.
    #[must_use]
    pub fn digits(&self) -> Bytes {
        self.slice(self.digits.start, self.digits.end)
    }

    /// Returns the value of metadata. Shared, not copied.
    #[must_use]
    pub fn metadata(&self) -> Bytes {
        self.slice(self.metadata.start, self.metadata.end)
    }

    /// Returns the value of metadata, as [`Self::metadata`] does, without a reference count.
    #[must_use]
    pub fn metadata_text(&self) -> &[u8] {
        self.bytes(self.metadata)
    }

    /// Returns true if [`Draft::normal`] was called for it.
    #[must_use]
    pub const fn is_normal(&self) -> bool {
        self.normal
    }

    /// Returns a label's value. Cost: reads the labels up to it, not the body.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        object::label(self.bytes(self.labels), key)
    }

    /// Returns all labels whose value is a string, as written in the object.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        let members = json::members(self.bytes(self.labels)).map_while(Result::ok);
        members.filter_map(|member| Some((member.key.text()?, json::string(member.value)?)))
    }

    /// Returns the sketch of labels and node: a key or label missing in it is missing in the object.
    pub(crate) const fn sketch(&self) -> Sketch {
        self.sketch
    }

    /// Returns the value of a label, with a prepared search for use on many objects. Cost: one search through the
    /// labels.
    pub(crate) fn find_label(&self, key: &LabelKey) -> Option<Cow<'_, str>> {
        if !self.plain_labels {
            return self.label(&key.key);
        }
        let labels = self.bytes(self.labels);
        let value = labels.get(key.finder.find(labels)? + key.finder.needle().len()..)?;
        // `plain_labels` rules out escapes, so the next quote ends the value.
        let value = value.get(..memchr(b'"', value)?)?;
        Some(Cow::Borrowed(str::from_utf8(value).expect("a draft is UTF-8 and spans lie between ASCII")))
    }

    /// Returns the value of a selectable field by its index in [`Schema::fields`]; `""` if the index does not exist.
    #[must_use]
    pub fn field(&self, place: usize) -> &str {
        self.fields.get(place).map_or("", |&span| self.str(span))
    }

    /// Returns the object: `{"kind":…}`, no newline. Shared, not copied.
    #[must_use]
    pub fn object(&self) -> Bytes {
        self.slice(self.object_at(), self.object_end())
    }

    /// Returns the object, as [`Self::object`] does, without a reference count.
    #[must_use]
    pub fn object_text(&self) -> &[u8] {
        &self.text[self.object_at() as usize..self.object_end() as usize]
    }

    /// Pushes the ADDED line: one slice, or two if the entry is an update.
    pub fn added(&self, out: &mut Slices) {
        self.push_line(&SentEvent::Added, false, out);
    }

    /// Pushes the MODIFIED line: one slice if the entry is an update, else two.
    pub fn modified(&self, out: &mut Slices) {
        self.push_line(&SentEvent::Modified, false, out);
    }

    /// Pushes the DELETED line: this content with `digits` as its resourceVersion. Four slices.
    pub fn deleted(&self, digits: &Bytes, out: &mut Slices) {
        self.push_line(&SentEvent::Deleted(digits), false, out);
    }

    /// Pushes an item of a LIST, with a comma before it unless it is the first. Items of built-in types omit kind and
    /// apiVersion.
    pub fn item(&self, first: bool, out: &mut Slices) {
        if self.builtin {
            self.push_item(first, false, out);
        } else {
            out.push_static(if first { b"" } else { b"," });
            out.push(self.object());
        }
    }

    /// Pushes an item of a built-in type's LIST.
    pub(crate) fn push_item(&self, first: bool, without_managed_fields: bool, out: &mut Slices) {
        out.push_static(if first { b"{" } else { b",{" });
        self.push_part(LinePart::Rest, without_managed_fields, None, out);
    }

    /// Pushes the line for the given event type, optionally without managedFields.
    pub(crate) fn push_line(&self, event: &SentEvent<'_>, without_managed_fields: bool, out: &mut Slices) {
        let as_stored = match event {
            SentEvent::Added => !self.updated,
            SentEvent::Modified => self.updated,
            SentEvent::Deleted(_) => false,
        };
        // The stored head fits only its own event type; for others the head is a constant slice.
        let start = if as_stored { 0 } else { self.object_at() };
        if !as_stored {
            out.push_static(event.head());
        }
        self.push_edited(start, self.line_len, without_managed_fields, event.digits(), out);
    }

    /// Pushes a part of the line, optionally without managedFields, or with other digits.
    pub(crate) fn push_part(&self, part: LinePart, without: bool, digits: Option<&Bytes>, out: &mut Slices) {
        let (start, end) = match part {
            LinePart::Object => (self.object_at(), self.object_end()),
            LinePart::Rest => (self.rest_at, self.object_end()),
            LinePart::RestOfLine => (self.rest_at, self.line_len),
            LinePart::Metadata => (self.metadata.start, self.metadata.end),
        };
        self.push_edited(start, end, without, digits, out);
    }

    /// Returns the place of its protobuf message, at the stored version or the other one, whole or as metadata only.
    pub(crate) fn message_slot(&self, is_converted: bool, is_partial: bool) -> &MessageSlot {
        let variants = self.variants.get_or_init(Box::default);
        match (is_converted, is_partial) {
            (false, false) => &variants.message,
            (false, true) => &variants.partial,
            (true, false) => &self.converted_forms().message,
            (true, true) => &self.converted_forms().partial,
        }
    }

    pub(crate) fn converted_forms(&self) -> &ConvertedForms {
        self.variants.get_or_init(Box::default).converted.get_or_init(Box::default)
    }

    /// Returns true if its stored line is a MODIFIED event, not ADDED.
    #[must_use]
    pub const fn is_updated(&self) -> bool {
        self.updated
    }

    pub(crate) const fn is_builtin(&self) -> bool {
        self.builtin
    }

    /// Returns the cells in a table. Cost: parses the object at the first call, and at each call if the cells are long
    /// and [`LONG_CELLS`] is full.
    pub(crate) fn cells(&self, rows: &Arc<dyn Rows>) -> Cow<'_, Cells> {
        let cached = &self.variants.get_or_init(Box::default).cells;
        let mut long = None;
        let made = cached.get_or_init(|| {
            let cells = rows.cells(&self.object());
            let is_short = cells.len() <= CELLS_KEPT_MAX;
            let share = if is_short { None } else { LONG_CELLS.share(cells.len()) };
            let cells = if is_short || share.is_some() { Some(cells.shrink()) } else { long.replace(cells) };
            ComputedCells { rows: Arc::clone(rows), cells, _share: share }
        });
        // The cached cells do not fit if the type's columns have changed, or for another version of the type.
        let is_of = ptr::addr_eq(Arc::as_ptr(&made.rows), Arc::as_ptr(rows));
        match (&made.cells, long) {
            (Some(cells), _) if is_of => Cow::Borrowed(cells),
            (_, Some(cells)) => Cow::Owned(cells),
            (_, None) => Cow::Owned(rows.cells(&self.object())),
        }
    }

    /// Returns true if it takes long to convert to another encoding, see [`APART_BYTES`].
    #[must_use]
    pub const fn is_long(&self) -> bool {
        self.len() > APART_BYTES
    }

    /// Returns true if its cells for these columns are cached.
    pub(crate) fn has_cells(&self, rows: &Arc<dyn Rows>) -> bool {
        let made = self.variants.get().and_then(|variants| variants.cells.get());
        made.is_some_and(|made| made.cells.is_some() && ptr::addr_eq(Arc::as_ptr(&made.rows), Arc::as_ptr(rows)))
    }

    /// Pushes a part of the line that contains metadata or lies in it: without managedFields, or with `digits` in
    /// place of its own.
    fn push_edited(&self, start: u32, end: u32, without: bool, digits: Option<&Bytes>, out: &mut Slices) {
        let cut = if without { self.managed_fields } else { Span::default() };
        let is_shared = self.may_keep(end - start - (cut.end - cut.start));
        if digits.is_none() && cut.is_empty() {
            // The common case: nearly every line of nearly every watch.
            return out.push(self.part(start, end, is_shared));
        }
        let cut = (!cut.is_empty()).then(|| (cut, Bytes::new()));
        // Copied: the digits may be a slice of the new object, which may be long and must not be kept alive by this
        // line.
        let swap = digits.map(|digits| (self.digits, Bytes::copy_from_slice(digits)));
        // Edits are applied in text order, which depends on the object's member order.
        let edits = if self.managed_fields.start < self.digits.start { [cut, swap] } else { [swap, cut] };
        let mut at = start;
        for (span, replacement) in edits.into_iter().flatten() {
            out.push(self.part(at, span.start, is_shared));
            out.push(replacement);
            at = span.end;
        }
        out.push(self.part(at, end, is_shared));
    }

    /// Memory of the entry and its line, in bytes. Does not include derived values: table cells, some 150 bytes and seldom
    /// more than [`CELLS_KEPT_MAX`]; the protobuf message, about three quarters of the line, and the object at another
    /// version, both within [`MESSAGES_BYTES_MAX`](crate::limits::MESSAGES_BYTES_MAX); its part of compressed groups.
    #[must_use]
    pub fn cost(&self) -> usize {
        size_of::<Self>() + self.text.len() + self.key.len() + size_of_val(&*self.fields) + ALLOCATIONS
    }

    /// Returns the length of its line, in bytes.
    pub(crate) const fn len(&self) -> usize {
        self.line_len as usize
    }

    const fn object_at(&self) -> u32 {
        narrow(head(self.updated).len())
    }

    const fn object_end(&self) -> u32 {
        self.line_len - LINE_TAIL
    }

    /// Returns true if a slice of this many bytes may keep the whole entry alive. Otherwise a client would keep much
    /// memory for little data, which no bound counts.
    const fn may_keep(&self, bytes: u32) -> bool {
        self.text.len() <= SHARED_BYTES_MIN || self.text.len() <= bytes as usize * SHARED_PART_MIN
    }

    /// Returns bytes to send: a shared slice, or a copy.
    fn part(&self, start: u32, end: u32, is_shared: bool) -> Bytes {
        if is_shared { self.slice(start, end) } else { Bytes::copy_from_slice(self.bytes(Span { start, end })) }
    }

    fn slice(&self, start: u32, end: u32) -> Bytes {
        self.text.slice(start as usize..end as usize)
    }

    fn bytes(&self, span: Span) -> &[u8] {
        self.text.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    fn str(&self, span: Span) -> &str {
        std::str::from_utf8(self.bytes(span)).expect("a draft is UTF-8 and spans lie between ASCII")
    }
}

impl KeyedObject for Entry {
    fn key(&self) -> &str {
        &self.key
    }
}

impl std::fmt::Debug for Entry {
    /// Never prints the body.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.key, self.resource_version)
    }
}

impl Span {
    fn new(start: usize, end: usize) -> Self {
        if start == end { Self::default() } else { Self { start: narrow(start), end: narrow(end) } }
    }

    const fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// Returns the head of the stored line.
const fn head(updated: bool) -> &'static [u8] {
    if updated { MODIFIED_HEAD } else { ADDED_HEAD }
}

/// Length of the tail of a line, which is equal for all event types.
const LINE_TAIL: u32 = narrow(TAIL.len());

/// Converts an offset in an entry's text.
///
/// # Panics
/// If the offset is 4 GiB or more, far above [`OBJECT_BYTES_MAX`](informer_core::limits::OBJECT_BYTES_MAX).
#[expect(clippy::cast_possible_truncation, reason = "asserted in the line before; TryFrom is not const")]
const fn narrow(at: usize) -> u32 {
    assert!(at <= u32::MAX as usize, "an object is shorter than 4 GiB");
    at as u32
}

/// Allocator overhead of line, key and fields, reference counts, and the slot in the map of objects.
const ALLOCATIONS: usize = 112;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn schema(builtin: bool) -> Schema {
        let field = |label: &str, path: &str, absent: &str| Field {
            label: label.into(),
            path: path.into(),
            absent: absent.into(),
            or: None,
        };
        Schema {
            kind: "Pod".into(),
            api_version: "v1".into(),
            builtin,
            fields: vec![
                field("spec.nodeName", "spec.nodeName", ""),
                field("spec.host", "spec.nodeName", ""),
                field("spec.hostNetwork", "spec.hostNetwork", "false"),
                field("status.phase", "status.phase", ""),
            ],
            node_field: Some(0),
        }
    }

    fn entry(object: &str, resource_version: u64) -> Arc<Entry> {
        Draft::new(&schema(true), object.as_bytes()).expect(object).commit(resource_version)
    }

    fn text(pushed: impl FnOnce(&mut Slices)) -> String {
        let mut out = Slices::new();
        pushed(&mut out);
        out.iter().map(|slice| std::str::from_utf8(slice).expect("UTF-8")).collect()
    }

    /// Goal: any member order, white space and earlier resourceVersion give one canonical line. Method: golden text.
    #[test]
    fn an_object_becomes_its_canonical_line() {
        let line = r#"{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7","name":"a","namespace":"b"},"spec":{"x":[1, 2]}}}"#.replace(", 2", ",2") + "\n";
        for object in [
            r#"{"metadata":{"name":"a","namespace":"b"},"spec":{"x":[1,2]}}"#,
            r#"{"apiVersion":"v9","metadata":{"name":"a","namespace":"b"},"spec":{"x":[1,2]},"kind":"Nod"}"#,
            r#"{"kind":"Pod","metadata":{"resourceVersion":"123456","name":"a","namespace":"b"},"spec":{"x":[1,2]}}"#,
            r#"{"metadata":{"resourceVersion":"","name":"a","resourceVersion":"5","namespace":"b"},"spec":{"x":[1,2]}}"#,
            "\n{ \"metadata\" : {\t\"name\": \"a\",\r\n\"namespace\":\"b\" },\n \"spec\":{\"x\" : [ 1 , 2 ] } } ",
            r#"{"\u006betadata":1,"metadata":{"name":"a","namespace":"b"},"spec":{"x":[1,2]}}"#,
        ] {
            let odd = object.contains("etadata\":1");
            let expected = if odd { line.replace(r#""metadata""#, r#""ketadata":1,"metadata""#) } else { line.clone() };
            assert_eq!(text(|out| entry(object, 7).added(out)), expected, "{object}");
        }
    }

    #[test]
    fn white_space_in_strings_stays() {
        let entry = entry(r#"{"metadata":{"name":"a","annotations":{"x":" \" : \\"}}}"#, 7);
        let expected = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7","name":"a","annotations":{"x":" \" : \\"}}}"#;
        assert_eq!(entry.object(), expected.as_bytes());
    }

    /// Goal: a deletion's line has its digits in place of the object's, for any number of digits. Method: parse it.
    #[test]
    fn heads_and_digits_are_swapped_and_nothing_else_changes() {
        for resource_version in [1, 99, 1_844_674_407_370_955] {
            let entry =
                entry(r#"{"metadata":{"name":"a","resourceVersion":"3"},"spec":{"nodeName":"n"}}"#, resource_version);
            let object = json!({
                "kind": "Pod", "apiVersion": "v1", "spec": {"nodeName": "n"},
                "metadata": {"name": "a", "resourceVersion": resource_version.to_string()},
            });
            let read = |line: &str| serde_json::from_str::<Value>(line).expect("a line is JSON");
            assert_eq!(read(&text(|out| entry.added(out))), json!({"type": "ADDED", "object": object}));
            assert_eq!(read(&text(|out| entry.modified(out))), json!({"type": "MODIFIED", "object": object}));
            for digits in ["9", "10000000000"] {
                let mut gone = object.clone();
                gone["metadata"]["resourceVersion"] = json!(digits);
                let line = text(|out| entry.deleted(&Bytes::from(digits), out));
                assert_eq!(read(&line), json!({"type": "DELETED", "object": gone}));
                assert!(line.ends_with("}\n") && line.matches('\n').count() == 1);
            }
            assert_eq!((entry.field(0), entry.field(1)), ("n", "n"), "behind the digits");
            assert_eq!(entry.digits(), resource_version.to_string());
        }
    }

    #[test]
    fn items_of_custom_types_keep_their_kind() {
        let object = r#"{"metadata":{"name":"a"}}"#;
        for (builtin, first, expected) in [
            (true, true, r#"{"metadata":{"resourceVersion":"7","name":"a"}}"#),
            (true, false, r#",{"metadata":{"resourceVersion":"7","name":"a"}}"#),
            (false, true, r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7","name":"a"}}"#),
            (false, false, r#",{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7","name":"a"}}"#),
        ] {
            let entry = Draft::new(&schema(builtin), object.as_bytes()).expect("an object").commit(7);
            assert_eq!(text(|out| entry.item(first, out)), expected);
        }
    }

    #[test]
    fn what_selectors_read_is_found_on_arrival() {
        let entry = entry(
            r#"{"spec":{"containers":[{"nodeName":"no"}],"nodeName":"n\u002d1"},"status":{"phase":"Running"},
                "metadata":{"uid":"u","labels":{"app":"x","b/c":"\"y\""},"namespace":"ns","name":"p"}}"#,
            12,
        );
        assert_eq!((entry.key(), entry.namespace(), entry.name(), entry.uid()), ("ns/p", "ns", "p", "u"));
        assert_eq!((entry.label("app").as_deref(), entry.label("b/c").as_deref()), (Some("x"), Some("\"y\"")));
        assert_eq!(entry.label("none"), None);
        assert_eq!((entry.field(0), entry.field(2), entry.field(3)), ("n-1", "false", "Running"));
        assert_eq!(entry.field(9), "");
        let bare = self::entry(
            r#"{"metadata":{"name":"p"},"spec":{"nodeName":null,"hostNetwork":true},"status":{"phase":{}}}"#,
            1,
        );
        assert_eq!((bare.field(0), bare.field(2), bare.field(3), bare.uid()), ("", "true", "", ""));
        assert_eq!((bare.key(), bare.namespace(), bare.name(), bare.label("a")), ("p", "", "p", None));
    }

    /// Goal: an Event's source falls back to its reporter. Method: a field with a replacement field.
    #[test]
    fn an_empty_field_is_what_stands_in_for_it() {
        let field = |path: &str, or| Field { label: path.into(), path: path.into(), absent: String::new(), or };
        let fields = vec![field("source.component", Some(1)), field("reporter", None)];
        let schema = Schema { fields, node_field: None, ..schema(true) };
        for (source, value) in [(r#"{"component":"a"}"#, "a"), (r#"{"component":""}"#, "b"), ("{}", "b"), ("null", "b")]
        {
            let object = format!(r#"{{"metadata":{{"name":"x"}},"source":{source},"reporter":"b"}}"#);
            let entry = Draft::new(&schema, object.as_bytes()).expect("an object").commit(7);
            assert_eq!((entry.field(0), entry.field(1)), (value, "b"), "{source}");
        }
    }

    /// Goal: a search through labels finds the values that parsing them finds. Method: maps of every kind, each key
    /// both ways.
    #[test]
    fn a_label_is_found_where_it_is_read() {
        for labels in [
            "{}",
            r#"{"a":"b"}"#,
            r#"{"a":"","app":"x","a":"second"}"#,
            r#"{"x":"a","y":":","z":","}"#,
            r#"{ "a" : "b" , "app" : "x" }"#,
            r#"{"ap":"1","app":"2","pp":"3","apps":"4"}"#,
            r#"{"\u0061":"escaped","b":"\"a\":\"c\""}"#,
            r#"{"n":1,"a":null,"app":{"a":"inner"}}"#,
            r#"{"app":["a"],"b":{"app":"x"}}"#,
            r#"{"é":"ü","a":"é"}"#,
            "null",
        ] {
            let entry = entry(&format!(r#"{{"metadata":{{"name":"p","labels":{labels}}}}}"#), 1);
            for key in ["a", "b", "app", "pp", "x", "y", "z", "n", "none"] {
                assert_eq!(entry.find_label(&LabelKey::new(key)), entry.label(key), "{key} in {labels}");
            }
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for (object, error) in [
            ("", EntryError::NotAnObject),
            ("null", EntryError::NotAnObject),
            ("{}", EntryError::NotAnObject),
            (r#"{"metadata":[]}"#, EntryError::NotAnObject),
            (r#"{"metadata":{"name":"a"}"#, EntryError::NotAnObject),
            (r#"{"metadata":{"name":"a"}} x"#, EntryError::NotAnObject),
            (r#"{"metadata":{"name":"a"},"metadata":{"name":"b"}}"#, EntryError::NotAnObject),
            (r#"{"metadata":{"name":"a","labels":["b"]}}"#, EntryError::NotAnObject),
            (r#"{"metadata":{"namespace":"b"}}"#, EntryError::NoName),
            (r#"{"metadata":{"name":""}}"#, EntryError::NoName),
            (r#"{"metadata":{"name":"a/b"}}"#, EntryError::BadName),
            (r#"{"metadata":{"name":"a\u0000"}}"#, EntryError::BadName),
            (r#"{"metadata":{"name":"a","namespace":"b/c"}}"#, EntryError::BadName),
        ] {
            assert_eq!(Draft::new(&schema(true), object.as_bytes()).err(), Some(error), "{object}");
        }
        assert_eq!(
            Draft::new(&schema(true), b"{\"metadata\":{\"name\":\"\xff\"}}").err(),
            Some(EntryError::NotAnObject)
        );
    }

    #[test]
    fn a_draft_knows_whether_it_changes_anything() {
        let stored = entry(r#"{"metadata":{"name":"a","resourceVersion":"1"},"spec":{}}"#, 99);
        let same =
            |object: &str| Draft::new(&schema(true), object.as_bytes()).expect("an object").same_content(&stored);
        assert!(same(r#"{"metadata":{"name":"a","resourceVersion":"99"},"spec":{}}"#));
        assert!(same(r#"{ "kind": "Pod", "metadata": {"name":"a","resourceVersion":"5"},"spec":{}}"#));
        assert!(!same(r#"{"metadata":{"name":"a","resourceVersion":"99"},"spec":{"x":1}}"#));
        assert!(!same(r#"{"metadata":{"name":"b","resourceVersion":"99"},"spec":{}}"#));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let text = "[a-z\"\\\\ \n\u{1}é{}\\[\\],:]{0,6}";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            text.prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map(text, inner, 0..4).prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        /// Goal: no content is lost or invented. Method: random documents, pretty or compact, read back by a full
        /// decoder.
        #[test]
        fn an_entry_says_what_the_object_said(rest in any_json(), label in ".{0,8}", pretty: bool, at in 1..u64::MAX) {
            let mut object = json!({
                "metadata": {"name": "a", "namespace": "b", "labels": {&label: label}}, "a": rest, "status": {"phase": "x y"},
            });
            let sent = if pretty { format!("{object:#}") } else { object.to_string() };
            let draft = Draft::new(&schema(true), sent.as_bytes()).expect("an object");
            object["kind"] = json!("Pod");
            object["apiVersion"] = json!("v1");
            object["metadata"]["resourceVersion"] = json!(at.to_string());
            let entry = draft.commit(at);
            prop_assert_eq!(serde_json::from_slice::<Value>(&entry.object()).expect("JSON"), object);
            prop_assert_eq!(text(|out| entry.added(out)).matches('\n').count(), 1);
            prop_assert_eq!((entry.key(), entry.field(3)), ("b/a", "x y"));
            prop_assert_eq!(entry.label(&label), Some(label.as_str().into()));
            let again = Draft::new(&schema(true), &entry.object()).expect("an object");
            prop_assert!(again.same_content(&entry));
        }
    }

    #[test]
    fn an_entry_adds_little_to_its_bytes() {
        assert!(size_of::<Entry>() <= 160, "{}", size_of::<Entry>());
    }
}
