//! The formats in which a client gets objects: whole, as metadata only, or as rows of a table; as JSON or protobuf.
//!
//! INVARIANT: no object is re-encoded for a client. Every format is made of slices of the entry's one line, of its one
//! protobuf message, or of those of its one converted object, between texts that are constants or computed once per object
//! version; only the ages in a row depend on the time and are written each time. INVARIANT: [`Form::whole`] costs nothing
//! extra.
//!
//! Source: apiserver `endpoints/handlers/response.go`, `registry/rest/table.go`; apimachinery `apis/meta/v1` types.

mod budget;
mod cells;
mod derived;
mod group;
mod message;
mod served;
mod unstored;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use informer_core::{KeyedObject as _, wire::json};
use informer_serving::{
    protobuf,
    watch_event::{self, ADDED_HEAD, DELETED_HEAD, MODIFIED_HEAD},
};

pub(crate) use budget::{LONG_CELLS, Share};
pub use cells::{Cells, Rows, human_duration};
pub use derived::{drop_idle_messages, messages_bytes};
pub use group::{ObjectGroup, Piece, drop_idle_pieces, pieces_bytes};
pub(crate) use message::MessageSlot;
pub use message::Messages;
use message::{MessageContext, MessageForm, MessagePart};
pub use served::Conversion;
pub(crate) use served::ConvertedForms;
use served::ServedEntry;
use unstored::UnstoredObject;

use crate::{
    entry::{Entry, LinePart, Schema},
    limits::{ROW_APART_BYTES, ROW_BYTES_MIN, ROW_EFFORT},
    slices::Slices,
};

/// The format in which a client gets objects. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Form {
    /// The part of an object that is sent.
    pub content: Content,
    /// True if `metadata.managedFields` is omitted.
    pub without_managed_fields: bool,
    /// Set by [`Self::at_version`].
    version: Option<Arc<ServedVersion>>,
    /// Set by [`Self::in_protobuf`].
    message: Option<Arc<MessageForm>>,
}

/// The part of an object that is sent.
#[derive(Clone, Debug, Default)]
pub enum Content {
    /// The object.
    #[default]
    Whole,
    /// Only its metadata, as a PartialObjectMetadata.
    Metadata(MetaVersion),
    /// A row of a Table.
    Row(Arc<Row>),
}

/// The version of the `meta.k8s.io` types around an object's parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetaVersion {
    /// `meta.k8s.io/v1`.
    #[default]
    V1,
    /// `meta.k8s.io/v1beta1`, for old clients.
    V1Beta1,
}

/// The table format of one request.
#[derive(Clone)]
pub struct Row {
    /// Computes the cells.
    pub rows: Arc<dyn Rows>,
    /// The text of `columnDefinitions`, a JSON array. A watch sends it once.
    pub definitions: Bytes,
    /// The content of a row's `object`.
    pub object: RowObject,
    /// Version of the Table, and of the PartialObjectMetadata in it.
    pub meta: MetaVersion,
}

/// The content of a row's `object`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowObject {
    /// A PartialObjectMetadata.
    #[default]
    Metadata,
    /// The object.
    Whole,
    /// `null`.
    None,
}

/// An apiVersion other than the stored one.
#[derive(Debug)]
struct ServedVersion {
    api_version: Box<str>,
    /// `{"kind":…,"apiVersion":…,`
    head: Bytes,
    /// `None` if only the apiVersion differs.
    conversion: Option<&'static dyn Conversion>,
}

impl Form {
    /// Sends the object as stored.
    #[must_use]
    pub fn whole() -> Self {
        Self::default()
    }

    /// Sends only the metadata.
    #[must_use]
    pub fn metadata(meta: MetaVersion) -> Self {
        Self { content: Content::Metadata(meta), ..Self::default() }
    }

    /// Sends a row of a table.
    #[must_use]
    pub fn row(row: Row) -> Self {
        Self { content: Content::Row(Arc::new(row)), ..Self::default() }
    }

    /// Sets the version of a custom resource that is read at another version than the stored one. No fields are
    /// converted.
    #[must_use]
    pub fn at_version(self, kind: &str, api_version: &str) -> Self {
        self.versioned(kind, api_version, None)
    }

    /// Like [`Self::at_version`], with conversion.
    #[must_use]
    pub fn converted(self, kind: &str, api_version: &str, conversion: &'static dyn Conversion) -> Self {
        self.versioned(kind, api_version, Some(conversion))
    }

    fn versioned(self, kind: &str, api_version: &str, conversion: Option<&'static dyn Conversion>) -> Self {
        let head = format!("{{\"kind\":{},\"apiVersion\":{},", json::quote(kind), json::quote(api_version));
        let version = ServedVersion { api_version: api_version.into(), head: head.into(), conversion };
        Self { version: Some(Arc::new(version)), ..self }
    }

    /// Sends objects as protobuf messages of `messages`, with `kind` and `api_version` in the envelopes of whole objects.
    /// Rows have no message and stay JSON.
    #[must_use]
    pub fn in_protobuf(self, messages: &'static dyn Messages, api_version: &str, kind: &str) -> Self {
        let (part, envelope) = match self.content {
            Content::Whole => (MessagePart::Whole, protobuf::envelope_head(api_version, kind).into()),
            Content::Metadata(meta) => (MessagePart::Metadata(meta), message::partial_envelope(meta)),
            Content::Row(_) => return self,
        };
        Self { message: Some(Arc::new(MessageForm { messages, envelope, part })), ..self }
    }

    /// Returns true if objects are protobuf messages.
    #[must_use]
    pub const fn is_protobuf(&self) -> bool {
        self.message.is_some()
    }

    /// Formats an object that is in no cache, such as the result of a dry run: JSON that starts with its kind and ends
    /// with a newline. `stored` is the object with its stored members, which cells show. Returns `None` if the text stays
    /// as it is: for [`Self::whole`], for a Status, and for text that is not an object.
    #[must_use]
    pub fn text(&self, object: &[u8], stored: &[u8], now: i64) -> Option<Vec<u8>> {
        if self.is_whole() {
            return None;
        }
        let unstored = UnstoredObject::read(object, self.without_managed_fields)?;
        let mut text = Vec::with_capacity(object.len());
        match &self.content {
            Content::Whole => unstored.push_whole(self, &mut text),
            Content::Metadata(meta) => unstored.push_partial(*meta, &mut text),
            Content::Row(row) => {
                row.table_head(&unstored.resource_version, false, &mut text);
                text.extend_from_slice(br#"{"cells":"#);
                row.rows.cells(stored).write(now, &mut text);
                text.extend_from_slice(br#","object":"#);
                match row.object {
                    RowObject::None => text.extend_from_slice(b"null"),
                    RowObject::Metadata => unstored.push_partial(row.meta, &mut text),
                    RowObject::Whole => unstored.push_whole(self, &mut text),
                }
                text.extend_from_slice(b"}]}");
            }
        }
        text.push(b'\n');
        Some(text)
    }

    /// Returns the entry at the version of this form. Cost: none before its members are read.
    fn served<'a>(&self, entry: &'a Entry) -> ServedEntry<'a> {
        ServedEntry { stored: entry, conversion: self.version.as_ref().and_then(|version| version.conversion) }
    }

    /// Returns true if `entry` takes long to format: a long object whose row or message is not cached. Format it where
    /// it delays no other client.
    #[must_use]
    pub fn is_slow(&self, entry: &Entry) -> bool {
        match &self.message {
            Some(form) => entry.is_long() && !self.served(entry).has_message(form),
            None => entry.len() > ROW_APART_BYTES && self.is_read(entry),
        }
    }

    /// Returns the bytes of `entry` as an item of a protobuf list; zero for other forms, and for an object that cannot be
    /// encoded. Cost: encodes the object at the first call.
    #[must_use]
    pub fn item_bytes(&self, entry: &Entry) -> u64 {
        let form = self.message.as_ref();
        form.map_or(0, |form| self.served(entry).message_len(form, self.without_managed_fields) as u64)
    }

    /// Returns true if [`Self::item_bytes`] takes long for `entry`.
    pub(crate) fn is_slow_to_measure(&self, entry: &Entry) -> bool {
        entry.is_long() && self.message.as_ref().is_some_and(|form| !self.served(entry).has_message_len(form))
    }

    /// Returns true if both give an object the same text, whatever the time.
    fn has_text_of(&self, other: &Self) -> bool {
        let is_content = match (&self.content, &other.content) {
            (Content::Whole, Content::Whole) => true,
            (Content::Metadata(ours), Content::Metadata(theirs)) => ours == theirs,
            (Content::Whole | Content::Metadata(_) | Content::Row(_), _) => false,
        };
        let head = |form: &Self| form.version.as_ref().map(|version| version.head.clone());
        let envelope = |form: &Self| form.message.as_ref().map(|message| message.envelope.clone());
        is_content
            && self.without_managed_fields == other.without_managed_fields
            && head(self) == head(other)
            && envelope(self) == envelope(other)
    }

    /// Returns true if the JSON of `entry` has to be parsed: for the cells of a row, or for another version.
    fn is_read(&self, entry: &Entry) -> bool {
        let (is_fresh_row, shows_object) = match &self.content {
            Content::Whole | Content::Metadata(_) => (false, true),
            Content::Row(row) => (!entry.has_cells(&row.rows), row.object != RowObject::None),
        };
        is_fresh_row || shows_object && self.served(entry).is_unconverted()
    }

    /// Returns true if the stored bytes are sent unchanged.
    const fn is_plain(&self) -> bool {
        self.is_whole() && self.message.is_none()
    }

    /// Returns true if the JSON of an object stays as it is.
    const fn is_whole(&self) -> bool {
        matches!(self.content, Content::Whole) && !self.without_managed_fields && self.version.is_none()
    }
}

/// A PartialObjectMetadata up to its metadata, after the text `$before`.
macro_rules! partial {
    ($before:literal, $version:literal) => {
        concat!($before, r#"{"kind":"PartialObjectMetadata","apiVersion":""#, $version, r#"","metadata":"#)
    };
}

impl MetaVersion {
    /// Returns the `apiVersion`.
    #[must_use]
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }

    /// Returns a PartialObjectMetadata up to its metadata.
    const fn partial_head(self) -> &'static str {
        match self {
            Self::V1 => partial!("", "meta.k8s.io/v1"),
            Self::V1Beta1 => partial!("", "meta.k8s.io/v1beta1"),
        }
    }

    /// Like [`Self::partial_head`], after another item.
    const fn next_partial_head(self) -> &'static str {
        match self {
            Self::V1 => partial!(",", "meta.k8s.io/v1"),
            Self::V1Beta1 => partial!(",", "meta.k8s.io/v1beta1"),
        }
    }

    /// Like [`Self::partial_head`], in a line of a watch.
    const fn partial_line_head(self, event: &SentEvent<'_>) -> &'static str {
        match (self, event) {
            (Self::V1, SentEvent::Added) => partial!(r#"{"type":"ADDED","object":"#, "meta.k8s.io/v1"),
            (Self::V1, SentEvent::Modified) => partial!(r#"{"type":"MODIFIED","object":"#, "meta.k8s.io/v1"),
            (Self::V1, SentEvent::Deleted(_)) => partial!(r#"{"type":"DELETED","object":"#, "meta.k8s.io/v1"),
            (Self::V1Beta1, SentEvent::Added) => partial!(r#"{"type":"ADDED","object":"#, "meta.k8s.io/v1beta1"),
            (Self::V1Beta1, SentEvent::Modified) => partial!(r#"{"type":"MODIFIED","object":"#, "meta.k8s.io/v1beta1"),
            (Self::V1Beta1, SentEvent::Deleted(_)) => partial!(r#"{"type":"DELETED","object":"#, "meta.k8s.io/v1beta1"),
        }
    }
}

impl Row {
    /// Writes a Table of one row up to the cells array: its metadata, and the columns unless `columns_sent`.
    fn table_head(&self, digits: &[u8], columns_sent: bool, text: &mut Vec<u8>) {
        text.extend_from_slice(br#"{"kind":"Table","apiVersion":""#);
        text.extend_from_slice(self.meta.api_version().as_bytes());
        text.extend_from_slice(br#"","metadata":{"resourceVersion":""#);
        text.extend_from_slice(digits);
        text.extend_from_slice(br#""},"columnDefinitions":"#);
        text.extend_from_slice(if columns_sent { b"null" } else { &self.definitions });
        text.extend_from_slice(br#","rows":["#);
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row").field("object", &self.object).field("meta", &self.meta).finish_non_exhaustive()
    }
}

/// The text that follows a row.
#[derive(Clone, Copy, Debug)]
enum RowEnd {
    /// Only closes the row; another row may follow.
    Row,
    /// Also closes the table.
    Table,
    /// Also closes the table and its line.
    Line,
}

impl RowEnd {
    /// Returns the closing text of the row, including the PartialObjectMetadata in it if `inner`.
    const fn text(self, inner: bool) -> &'static [u8] {
        match (self, inner) {
            (Self::Row, false) => b"}",
            (Self::Row, true) => b"}}",
            (Self::Table, false) => b"}]}",
            (Self::Table, true) => b"}}]}",
            (Self::Line, false) => b"}]}}\n",
            (Self::Line, true) => b"}}]}}\n",
        }
    }
}

/// Follows the metadata of a PartialObjectMetadata in a line.
const PARTIAL_LINE_TAIL: &[u8] = b"}}\n";

/// The event type as one client sees it.
#[derive(Clone, Debug)]
pub(crate) enum SentEvent<'a> {
    Added,
    Modified,
    /// Carries the digits of the deletion.
    Deleted(&'a Bytes),
}

impl SentEvent<'_> {
    pub(crate) const fn head(&self) -> &'static [u8] {
        match self {
            Self::Added => ADDED_HEAD,
            Self::Modified => MODIFIED_HEAD,
            Self::Deleted(_) => DELETED_HEAD,
        }
    }

    /// The event of a stored object: its creation or an update.
    pub(crate) const fn as_stored(is_updated: bool) -> SentEvent<'static> {
        if is_updated { SentEvent::Modified } else { SentEvent::Added }
    }

    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted(_) => "DELETED",
        }
    }

    pub(crate) const fn digits(&self) -> Option<&Bytes> {
        match self {
            Self::Added | Self::Modified => None,
            Self::Deleted(digits) => Some(digits),
        }
    }
}

/// The format state of one response.
#[derive(Debug, Default)]
pub(crate) struct EventFormatter {
    form: Form,
    /// Current time for ages, in Unix seconds. Small, because each idle watch has one.
    now: u32,
    /// True once this stream has sent the columns of a table.
    columns_sent: bool,
    /// True while an initial state is sent, whose objects other clients need less than those of events.
    is_initial: bool,
    /// Key of the object of an event that was not pushed because it cannot be encoded.
    failed: Option<Box<FailedObject>>,
}

/// Key of an object that cannot be encoded. Boxed as a whole, because few streams ever have one.
#[derive(Debug)]
struct FailedObject(Box<str>);

impl EventFormatter {
    pub(crate) fn new(form: Form) -> Self {
        Self { form, ..Self::default() }
    }

    fn at(form: &Form, now: i64, columns_sent: bool) -> Self {
        let mut formatter = Self { columns_sent, ..Self::new(form.clone()) };
        formatter.set_now(now);
        formatter
    }

    pub(crate) const fn set_initial(&mut self, is_initial: bool) {
        self.is_initial = is_initial;
    }

    pub(crate) const fn is_protobuf(&self) -> bool {
        self.form.is_protobuf()
    }

    pub(crate) const fn form(&self) -> &Form {
        &self.form
    }

    pub(crate) fn failed(&self) -> Option<&str> {
        self.failed.as_ref().map(|object| &*object.0)
    }

    pub(crate) fn item_bytes(&self, entry: &Entry) -> u64 {
        self.form.item_bytes(entry)
    }

    pub(crate) fn is_slow_to_measure(&self, entry: &Entry) -> bool {
        self.form.is_slow_to_measure(entry)
    }

    pub(crate) const fn tells_time(&self) -> bool {
        matches!(self.form.content, Content::Row(_))
    }

    pub(crate) fn set_now(&mut self, now: i64) {
        self.now = u32::try_from(now).unwrap_or(0);
    }

    fn now(&self) -> i64 {
        self.now.into()
    }

    pub(crate) fn item(&self, entry: &Entry, first: bool, out: &mut Slices) {
        entry.item_as(&self.form, first, self.now(), out);
    }

    /// Returns the cost of formatting `entry`, in bytes of the [`READ_PER_STEP`](crate::limits::READ_PER_STEP) budget.
    pub(crate) fn effort(&self, entry: &Entry) -> usize {
        if self.form.is_read(entry) { ROW_EFFORT * entry.len().max(ROW_BYTES_MIN) } else { entry.len() }
    }

    /// Returns the item as a deferred one if it takes long to format.
    pub(crate) fn slow_item(&self, entry: &Arc<Entry>, first: bool) -> Option<SlowItem> {
        let item = || SlowItem { entry: Arc::clone(entry), form: self.form.clone(), first, now: self.now() };
        self.form.is_slow(entry).then(item)
    }

    /// Pushes a line of a watch.
    pub(crate) fn line(&mut self, entry: &Entry, event: &SentEvent<'_>, out: &mut Slices) {
        let Form { content, without_managed_fields: without, version, message } = &self.form;
        let served = self.form.served(entry);
        if let Some(form) = message {
            let context = MessageContext::Event { event, is_initial: self.is_initial };
            let before = out.bytes();
            // Behind an event that is missing, no other may follow.
            if self.failed.is_none() {
                served.push_message(form, *without, context, out);
                if out.bytes() == before {
                    self.failed = Some(Box::new(FailedObject(entry.key().into())));
                }
            }
            return;
        }
        let object = || served.object(!self.is_initial);
        match (content, version) {
            (Content::Whole, None) => entry.push_line(event, *without, out),
            (Content::Whole, Some(version)) => {
                out.push_static(event.head());
                out.push(version.head.clone());
                object().push_part(LinePart::RestOfLine, *without, event.digits(), out);
            }
            (Content::Metadata(meta), _) => {
                out.push_static(meta.partial_line_head(event).as_bytes());
                object().push_part(LinePart::Metadata, *without, event.digits(), out);
                out.push_static(PARTIAL_LINE_TAIL);
            }
            (Content::Row(row), _) => {
                let mut text = event.head().to_vec();
                let position = event.digits().map_or_else(|| entry.digits(), Bytes::clone);
                row.table_head(&position, self.columns_sent, &mut text);
                entry.push_row(&self.form, row, event.digits(), self.now(), text, RowEnd::Line, out);
                // Only the first line of a stream carries the columns, as in kube-apiserver.
                self.columns_sent = true;
            }
        }
    }

    /// Pushes a bookmark line: an empty object in this format that carries only the position.
    pub(crate) fn bookmark(&mut self, schema: &Schema, at: u64, initial_events_end: bool, out: &mut Slices) {
        let bookmark = if self.form.is_protobuf() { protobuf::bookmark } else { watch_event::bookmark };
        let row = match &self.form.content {
            Content::Whole => {
                let version = self.form.version.as_ref();
                let api_version = version.map_or(&*schema.api_version, |version| &version.api_version);
                return out.push(bookmark(&schema.kind, api_version, at, initial_events_end).into());
            }
            Content::Metadata(meta) => {
                let kind = "PartialObjectMetadata";
                return out.push(bookmark(kind, meta.api_version(), at, initial_events_end).into());
            }
            Content::Row(row) => row,
        };
        // The metadata is sent even for `includeObject=None`: the annotation has no other place.
        let object =
            watch_event::bookmark_object("PartialObjectMetadata", row.meta.api_version(), at, initial_events_end);
        let mut text = br#"{"type":"BOOKMARK","object":"#.to_vec();
        row.table_head(itoa::Buffer::new().format(at).as_bytes(), self.columns_sent, &mut text);
        text.extend_from_slice(br#"{"cells":"#);
        row.rows.cells(b"{}").write(self.now(), &mut text);
        text.extend_from_slice(br#","object":"#);
        text.extend_from_slice(&object);
        text.extend_from_slice(RowEnd::Line.text(false));
        self.columns_sent = true;
        out.push(text.into());
    }
}

/// A list item that takes long to format, see [`Form::is_slow`].
#[derive(Debug)]
pub struct SlowItem {
    entry: Arc<Entry>,
    form: Form,
    first: bool,
    now: i64,
}

impl SlowItem {
    /// Formats the item, with a comma before it unless it is the first. Cost: parses the object, some milliseconds.
    #[must_use]
    pub fn make(&self) -> Slices {
        let mut out = Slices::new();
        self.entry.item_as(&self.form, self.first, self.now, &mut out);
        out
    }
}

impl Entry {
    /// Pushes the object in this format, no newline: an envelope as protobuf, or nothing if it cannot be encoded. A row
    /// comes with its table. `now` is in Unix seconds and used only by rows.
    pub fn object_as(&self, form: &Form, now: i64, out: &mut Slices) {
        let served = form.served(self);
        if let Some(message) = &form.message {
            return served.push_message(message, form.without_managed_fields, MessageContext::Document, out);
        }
        match &form.content {
            Content::Whole => served.object(false).push_whole(form, None, out),
            Content::Metadata(meta) => served.object(false).push_partial(meta.partial_head(), form, out),
            Content::Row(row) => {
                let mut text = Vec::new();
                row.table_head(&self.digits(), false, &mut text);
                self.push_row(form, row, None, now, text, RowEnd::Table, out);
            }
        }
    }

    /// Pushes an item of a LIST, or a row of a Table, with a comma before it unless it is the first.
    pub fn item_as(&self, form: &Form, first: bool, now: i64, out: &mut Slices) {
        if form.is_plain() {
            return self.item(first, out);
        }
        let served = form.served(self);
        if let Some(message) = &form.message {
            return served.push_message(message, form.without_managed_fields, MessageContext::Item, out);
        }
        match &form.content {
            Content::Whole if self.is_builtin() => {
                served.object(false).push_item(first, form.without_managed_fields, out);
            }
            Content::Whole => {
                out.push_static(if first { b"" } else { b"," });
                served.object(false).push_whole(form, None, out);
            }
            Content::Metadata(meta) => {
                let head = if first { meta.partial_head() } else { meta.next_partial_head() };
                served.object(false).push_partial(head, form, out);
            }
            Content::Row(row) => {
                let text = if first { Vec::new() } else { vec![b','] };
                self.push_row(form, row, None, now, text, RowEnd::Row, out);
            }
        }
    }

    /// Pushes the ADDED line in this format; a table includes its columns.
    pub fn added_as(&self, form: &Form, now: i64, out: &mut Slices) {
        EventFormatter::at(form, now, false).line(self, &SentEvent::Added, out);
    }

    /// Pushes the MODIFIED line in this format; a table omits its columns.
    pub fn modified_as(&self, form: &Form, now: i64, out: &mut Slices) {
        EventFormatter::at(form, now, true).line(self, &SentEvent::Modified, out);
    }

    /// Pushes the DELETED line in this format, with `digits` as its resourceVersion; a table omits its columns.
    pub fn deleted_as(&self, digits: &Bytes, form: &Form, now: i64, out: &mut Slices) {
        EventFormatter::at(form, now, true).line(self, &SentEvent::Deleted(digits), out);
    }

    /// Pushes the object with all its members.
    fn push_whole(&self, form: &Form, digits: Option<&Bytes>, out: &mut Slices) {
        let part = match &form.version {
            Some(version) => {
                out.push(version.head.clone());
                LinePart::Rest
            }
            None => LinePart::Object,
        };
        self.push_part(part, form.without_managed_fields, digits, out);
    }

    /// Pushes a PartialObjectMetadata that begins with `head`.
    fn push_partial(&self, head: &'static str, form: &Form, out: &mut Slices) {
        out.push_static(head.as_bytes());
        self.push_part(LinePart::Metadata, form.without_managed_fields, None, out);
        out.push_static(b"}");
    }

    /// Pushes `{"cells":…,"object":…}` after `text`, followed by the closing text for `behind`. Cells show the stored members,
    /// at whatever version the object beside them is.
    #[expect(clippy::too_many_arguments, reason = "what a row is made of, and what stands around it")]
    fn push_row(
        &self,
        form: &Form,
        row: &Row,
        digits: Option<&Bytes>,
        now: i64,
        mut text: Vec<u8>,
        behind: RowEnd,
        out: &mut Slices,
    ) {
        text.extend_from_slice(br#"{"cells":"#);
        self.cells(&row.rows).write(now, &mut text);
        text.extend_from_slice(br#","object":"#);
        match row.object {
            RowObject::None => {
                text.extend_from_slice(b"null");
                text.extend_from_slice(behind.text(false));
                out.push(text.into());
            }
            RowObject::Metadata => {
                text.extend_from_slice(row.meta.partial_head().as_bytes());
                out.push(text.into());
                let object = form.served(self).object(false);
                object.push_part(LinePart::Metadata, form.without_managed_fields, digits, out);
                out.push_static(behind.text(true));
            }
            RowObject::Whole => {
                out.push(text.into());
                form.served(self).object(false).push_whole(form, digits, out);
                out.push_static(behind.text(false));
            }
        }
    }
}

#[cfg(test)]
mod tests;
