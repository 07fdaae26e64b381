//! An object on its way into storage: canonical text without the digits of its resourceVersion.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use informer_core::{
    limits::OBJECT_BYTES_MAX,
    wire::json::{self, JsonError, Key, Walk, string_end},
};
use informer_serving::watch_event::TAIL;
use serde_json::{Map, Value};

use super::{Entry, Schema, Sketch, Span, head, narrow};

mod object;

/// The reason why bytes were rejected as an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// Not a single JSON object with one metadata object in it.
    #[error("not a JSON object with metadata")]
    NotAnObject,
    /// No `metadata.name`.
    #[error("the object has no name")]
    NoName,
    /// A name or namespace with `/` or control characters cannot be a key.
    #[error("the object's name or namespace cannot be a key")]
    BadName,
    /// Longer than [`OBJECT_BYTES_MAX`].
    #[error("the object has {bytes} bytes")]
    TooLarge {
        /// Its length in bytes.
        bytes: usize,
    },
}

impl From<JsonError> for EntryError {
    fn from(_: JsonError) -> Self {
        Self::NotAnObject
    }
}

/// An object on its way into storage: canonical text without the digits of its resourceVersion.
pub struct Draft {
    /// The object with `"resourceVersion":""`.
    body: Vec<u8>,
    /// Values of fields that are not contained in the body verbatim. Spans beyond the body point here.
    values: Vec<u8>,
    digits_at: usize,
    rest_at: usize,
    metadata: Span,
    managed_fields: Span,
    uid: Span,
    labels: Span,
    plain_labels: bool,
    sketch: Sketch,
    fields: Box<[Span]>,
    key: Box<str>,
    name_at: usize,
    builtin: bool,
    normal: bool,
}

impl Draft {
    /// Parses `object`, one JSON object with its members in any order. Takes kind and apiVersion from `schema` and
    /// leaves the resourceVersion to [`Self::commit`]. Cost: two passes and one copy, some 3 ns per byte; white space
    /// is removed.
    ///
    /// # Errors
    /// [`EntryError`], which never contains the object's content.
    pub fn new(schema: &Schema, object: &[u8]) -> Result<Self, EntryError> {
        if object.len() > OBJECT_BYTES_MAX {
            return Err(EntryError::TooLarge { bytes: object.len() });
        }
        // Checked before parsing: the parser and all spans assume valid UTF-8.
        if std::str::from_utf8(object).is_err() {
            return Err(EntryError::NotAnObject);
        }
        Self::of_canonical(schema, Canonical::write(schema, object)?)
    }

    /// Like [`Self::new`], for a decoded object. An absent resourceVersion gets its sorted place. Cost: one pass and no
    /// copy.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of_object(schema: &Schema, object: &Map<String, Value>) -> Result<Self, EntryError> {
        Self::of_canonical(schema, Canonical::of_object(schema, object)?)
    }

    /// Like [`Self::new`], for the members of an object and of its metadata, both sorted by name, with their values as
    /// compact JSON. Ignores kind, apiVersion and metadata among `members`. Cost: one copy.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of_members<'a>(
        schema: &Schema,
        members: impl Iterator<Item = (&'a str, &'a [u8])> + Clone,
        metadata: impl Iterator<Item = (&'a str, &'a [u8])> + Clone,
    ) -> Result<Self, EntryError> {
        // With quotes, colon and comma.
        let bytes = |(name, value): (&str, &[u8])| name.len() + value.len() + 4;
        let bytes = members.clone().map(bytes).sum::<usize>() + metadata.clone().map(bytes).sum::<usize>();
        Self::of_canonical(schema, Canonical::of_members(schema, bytes, members, metadata)?)
    }

    fn of_canonical(schema: &Schema, canonical: Canonical<'_>) -> Result<Self, EntryError> {
        let Canonical { body, rest_at, metadata } = canonical;
        let MetadataSpans {
            at: metadata,
            managed_fields,
            digits_at,
            name,
            namespace,
            uid,
            labels,
            plain_labels,
            mut sketch,
        } = metadata;
        if name.is_empty() {
            return Err(EntryError::NoName);
        }
        if [&name, &namespace].iter().any(|part| part.contains(|c: char| c == '/' || c.is_control())) {
            return Err(EntryError::BadName);
        }
        let name_at = if namespace.is_empty() { 0 } else { namespace.len() + 1 };
        let mut key = String::with_capacity(name_at + name.len());
        if !namespace.is_empty() {
            key.push_str(&namespace);
            key.push('/');
        }
        key.push_str(&name);
        let key = key.into_boxed_str();
        let (fields, values) = FieldFinder::read(schema, &body)?;
        if let Some(node) = schema.node_field.and_then(|place| fields.get(place)) {
            sketch.add(Sketch::node(value_of(&body, &values, *node)));
        }
        let builtin = schema.builtin;
        Ok(Self {
            body,
            values,
            digits_at,
            rest_at,
            metadata,
            managed_fields,
            uid,
            labels,
            plain_labels,
            sketch,
            fields,
            key,
            name_at,
            builtin,
            normal: false,
        })
    }

    /// Marks the text as canonical: its writer produces equal bytes for equal objects, so a byte comparison detects
    /// no-op updates.
    #[must_use]
    pub const fn normal(mut self) -> Self {
        self.normal = true;
        self
    }

    /// Returns `namespace/name`, or `name` if there is no namespace.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the object with an empty resourceVersion.
    #[must_use]
    pub fn json(&self) -> &[u8] {
        &self.body
    }

    /// Returns the length of the object in bytes, without the digits of its resourceVersion.
    #[must_use]
    pub fn len(&self) -> usize {
        self.body.len()
    }

    /// Returns false, because an object has at least a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// Returns true if committing would change only the resourceVersion: such an update causes no event.
    #[must_use]
    pub fn same_content(&self, entry: &Entry) -> bool {
        let object = entry.object();
        let (digits, head) =
            ((entry.digits.end - entry.digits.start) as usize, (entry.digits.start - entry.object_at()) as usize);
        head == self.digits_at
            && object[..head] == self.body[..head]
            && object[head + digits..] == self.body[self.digits_at..]
    }

    /// Returns the entry of a new object at `resource_version`. Cost: one allocation of the line's size and one for
    /// the entry.
    #[must_use]
    pub fn commit(self, resource_version: u64) -> Arc<Entry> {
        self.commit_as(false, resource_version)
    }

    /// Like [`Self::commit`], for an object that existed before: its MODIFIED line is one slice.
    #[must_use]
    pub fn commit_update(self, resource_version: u64) -> Arc<Entry> {
        self.commit_as(true, resource_version)
    }

    fn commit_as(self, updated: bool, resource_version: u64) -> Arc<Entry> {
        let head = head(updated);
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(resource_version);
        let line_len = head.len() + self.body.len() + digits.len() + TAIL.len();
        let mut text = Vec::with_capacity(line_len + self.values.len());
        text.extend_from_slice(head);
        text.extend_from_slice(&self.body[..self.digits_at]);
        text.extend_from_slice(digits.as_bytes());
        text.extend_from_slice(&self.body[self.digits_at..]);
        text.extend_from_slice(TAIL);
        text.extend_from_slice(&self.values);
        let place = |span: Span| self.place(span, head.len(), digits.len());
        let digits_at = head.len() + self.digits_at;
        Arc::new(Entry {
            line_len: narrow(line_len),
            rest_at: narrow(head.len() + self.rest_at),
            digits: Span::new(digits_at, digits_at + digits.len()),
            uid: place(self.uid),
            labels: place(self.labels),
            metadata: place(self.metadata),
            managed_fields: place(self.managed_fields),
            fields: self.fields.iter().map(|&span| place(span)).collect(),
            name_at: narrow(self.name_at),
            builtin: self.builtin,
            updated,
            normal: self.normal,
            plain_labels: self.plain_labels,
            sketch: self.sketch,
            resource_version,
            text: Bytes::from(text),
            key: self.key,
            variants: OnceLock::new(),
        })
    }

    /// Maps a span of the body, or of the values after it, to the entry's text. The span may contain the digits.
    fn place(&self, span: Span, head: usize, digits: usize) -> Span {
        if span.is_empty() {
            return span;
        }
        let (start, end) = (span.start as usize, span.end as usize);
        let shift = |behind_digits: bool| {
            let tail = if start >= self.body.len() { TAIL.len() } else { 0 };
            head + tail + if behind_digits { digits } else { 0 }
        };
        Span::new(start + shift(start >= self.digits_at), end + shift(end > self.digits_at))
    }
}

impl std::fmt::Debug for Draft {
    /// Never the body.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Draft").field("key", &self.key).field("len", &self.len()).finish()
    }
}

/// The written body and its metadata.
struct Canonical<'a> {
    body: Vec<u8>,
    rest_at: usize,
    metadata: MetadataSpans<'a>,
}

impl<'a> Canonical<'a> {
    fn write(schema: &Schema, object: &'a [u8]) -> Result<Self, EntryError> {
        let (mut body, rest_at) = Self::begin(schema, object.len());
        let mut metadata = None;
        let mut walk = Walk::new(object)?;
        while let Some(key) = walk.key()? {
            let name = key.bytes();
            // `schema` decides these two; they were written first.
            if let b"kind" | b"apiVersion" = &*name {
                continue;
            }
            body.push(b',');
            push_key(&mut body, key)?;
            if *name != *b"metadata" {
                push_compact(&mut body, &object[walk.value()?]);
            } else if metadata.is_none() && walk.enter()? {
                let start = body.len();
                let found = MetadataSpans::write(&mut body, object, &mut walk)?;
                metadata = Some(MetadataSpans { at: Span::new(start, body.len()), ..found });
            } else {
                return Err(EntryError::NotAnObject);
            }
        }
        body.push(b'}');
        let alone = object[walk.taken()..].trim_ascii().is_empty();
        let metadata = metadata.filter(|_| alone).ok_or(EntryError::NotAnObject)?;
        Ok(Self { body, rest_at, metadata })
    }
}

impl Canonical<'_> {
    /// Begins a body of about `bytes` with kind and apiVersion. Returns the place of its other members too.
    fn begin(schema: &Schema, bytes: usize) -> (Vec<u8>, usize) {
        let mut body = Vec::with_capacity(bytes + schema.kind.len() + schema.api_version.len() + ROOM);
        body.extend_from_slice(br#"{"kind":"#);
        push_text(&mut body, &schema.kind);
        body.extend_from_slice(br#","apiVersion":"#);
        push_text(&mut body, &schema.api_version);
        let rest_at = body.len() + 1;
        (body, rest_at)
    }
}

/// Metadata members found while it is written.
#[derive(Default)]
struct MetadataSpans<'a> {
    /// The whole value.
    at: Span,
    /// The member with one comma: the one before it, or the one after it if it is the first.
    managed_fields: Span,
    /// Offset of the digits of the resourceVersion.
    digits_at: usize,
    name: Cow<'a, str>,
    namespace: Cow<'a, str>,
    uid: Span,
    labels: Span,
    plain_labels: bool,
    /// Sketch of the labels.
    sketch: Sketch,
}

impl<'a> MetadataSpans<'a> {
    /// Writes the object that `walk` has entered, with an empty resourceVersion in its original position, or first if
    /// absent.
    fn write(body: &mut Vec<u8>, object: &'a [u8], walk: &mut Walk<'a>) -> Result<Self, EntryError> {
        let mut members = Vec::with_capacity(METADATA_MEMBERS);
        while let Some(key) = walk.key()? {
            members.push((key, walk.value()?));
        }
        let mut found = Self::default();
        let mut separator = b'{';
        if !members.iter().any(|(key, _)| key.is("resourceVersion")) {
            body.push(separator);
            found.digits_at = push_position(body);
            separator = b',';
        }
        for (key, at) in members {
            let name = key.bytes();
            let is_position = *name == *b"resourceVersion";
            // A duplicate resourceVersion: the first one is kept.
            if is_position && found.digits_at > 0 {
                continue;
            }
            let before = body.len();
            body.push(separator);
            let is_first = std::mem::replace(&mut separator, b',') == b'{';
            if is_position {
                found.digits_at = push_position(body);
            } else {
                push_key(body, key)?;
                let start = body.len();
                push_compact(body, &object[at.clone()]);
                match &*name {
                    b"name" => read_name(&mut found.name, &object[at])?,
                    b"namespace" => read_name(&mut found.namespace, &object[at])?,
                    _ => found.read(&name, &body[start..], start)?,
                }
            }
            if *name == *b"managedFields" && found.managed_fields.is_empty() {
                // If it is first, another member follows: there is always a resourceVersion.
                let comma = usize::from(is_first);
                found.managed_fields = Span::new(before + comma, body.len() + comma);
            }
        }
        body.push(b'}');
        Ok(found)
    }

    /// Reads a member whose value starts at `start` in the body. Of duplicate members the first one counts.
    fn read(&mut self, key: &[u8], value: &[u8], start: usize) -> Result<(), EntryError> {
        let is_null = value == b"null";
        let text = || json::string(value).ok_or(EntryError::NotAnObject);
        match key {
            b"uid" | b"labels" | b"annotations" if is_null => {}
            b"uid" if self.uid.is_empty() => {
                text()?;
                self.uid = Span::new(start + 1, start + value.len() - 1);
            }
            b"labels" | b"annotations" if value.first() != Some(&b'{') => return Err(EntryError::NotAnObject),
            b"labels" if self.labels.is_empty() => {
                self.labels = Span::new(start, start + value.len());
                (self.sketch, self.plain_labels) = Sketch::of_labels(value);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Reads a name or a namespace. Of duplicate members the first one counts.
fn read_name<'a>(name: &mut Cow<'a, str>, value: &'a [u8]) -> Result<(), EntryError> {
    if value != b"null" && name.is_empty() {
        *name = json::string(value).ok_or(EntryError::NotAnObject)?;
    }
    Ok(())
}

fn push_position(body: &mut Vec<u8>) -> usize {
    body.extend_from_slice(br#""resourceVersion":"""#);
    body.len() - 1
}

fn push_key(body: &mut Vec<u8>, key: Key<'_>) -> Result<(), EntryError> {
    let name = key.bytes();
    // Fast path: such a name needs no escaping.
    if name.iter().all(|byte| byte.is_ascii_alphanumeric()) {
        body.push(b'"');
        body.extend_from_slice(&name);
        body.extend_from_slice(b"\":");
        return Ok(());
    }
    push_text(body, &key.text().ok_or(EntryError::NotAnObject)?);
    body.push(b':');
    Ok(())
}

/// Writes a string.
fn push_text(body: &mut Vec<u8>, text: &str) {
    // Fast path: such a text needs no escaping.
    if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'-')) {
        body.push(b'"');
        body.extend_from_slice(text.as_bytes());
        body.push(b'"');
    } else {
        body.extend_from_slice(json::quote(text).as_bytes());
    }
}

/// Copies a value without the white space between its tokens.
fn push_compact(body: &mut Vec<u8>, value: &[u8]) {
    let (mut from, mut at) = (0, 0);
    while let Some(byte) = value.get(at) {
        at += 1;
        match byte {
            b'"' => at = string_end(value, at),
            b' ' | b'\n' | b'\r' | b'\t' => {
                body.extend_from_slice(&value[from..at - 1]);
                from = at;
            }
            _ => {}
        }
    }
    body.extend_from_slice(&value[from..]);
}

/// Finds all selectable fields in one walk.
struct FieldFinder<'a> {
    body: &'a [u8],
    found: Vec<Option<Span>>,
    values: Vec<u8>,
}

impl<'a> FieldFinder<'a> {
    fn read(schema: &Schema, body: &'a [u8]) -> Result<(Box<[Span]>, Vec<u8>), EntryError> {
        if schema.fields.is_empty() {
            return Ok((Box::default(), Vec::new()));
        }
        let paths: Vec<_> = schema.fields.iter().map(|field| &*field.path).enumerate().collect();
        let mut fields = Self { body, found: vec![None; paths.len()], values: Vec::new() };
        fields.visit(&mut Walk::new(body)?, &paths)?;
        let Self { found, mut values, .. } = fields;
        let spans = found
            .into_iter()
            .zip(&schema.fields)
            // Kubernetes applies the default to empty values as well.
            .map(|(found, field)| match found.filter(|span| !span.is_empty() || field.absent.is_empty()) {
                Some(span) => span,
                None => push_value(body, &mut values, &field.absent),
            });
        let mut spans: Box<[Span]> = spans.collect();
        for (place, field) in schema.fields.iter().enumerate() {
            if let Some(other) = field.or.and_then(|other| spans.get(other)).filter(|_| spans[place].is_empty()) {
                spans[place] = *other;
            }
        }
        values.shrink_to_fit();
        Ok((spans, values))
    }

    /// Visits the object entered last. `paths` are field indexes with the rest of their paths.
    fn visit(&mut self, walk: &mut Walk<'_>, paths: &[(usize, &str)]) -> Result<(), JsonError> {
        while let Some(key) = walk.key()? {
            let key = key.bytes();
            let mut here = Vec::new();
            let mut deeper = Vec::new();
            for &(place, path) in paths {
                match path.as_bytes().strip_prefix(&*key) {
                    Some([]) => here.push(place),
                    Some([b'.', ..]) => deeper.push((place, &path[key.len() + 1..])),
                    Some([_, ..]) | None => {}
                }
            }
            if !deeper.is_empty() && walk.enter()? {
                self.visit(walk, &deeper)?;
            } else if !here.is_empty() {
                let at = walk.value()?;
                let span = self.scalar(at.start, at.end);
                for place in here {
                    // Of duplicate members the first one counts.
                    self.found[place] = self.found[place].or(span);
                }
            }
        }
        Ok(())
    }

    /// Returns the text of a string, number or boolean; `None` for other values.
    fn scalar(&mut self, start: usize, end: usize) -> Option<Span> {
        let value = &self.body[start..end];
        match value.first()? {
            b'"' if value.contains(&b'\\') => {
                let text = json::string(value)?;
                Some(push_value(self.body, &mut self.values, &text))
            }
            b'"' => Some(Span::new(start + 1, end - 1)),
            b'{' | b'[' | b'n' => None,
            _ => Some(Span::new(start, end)),
        }
    }
}

/// Returns the text at `span` in the body, or in the values after it.
fn value_of<'a>(body: &'a [u8], values: &'a [u8], span: Span) -> &'a str {
    let (start, end) = (span.start as usize, span.end as usize);
    let bytes = match start.checked_sub(body.len()) {
        Some(start) => values.get(start..end - body.len()),
        None => body.get(start..end),
    };
    std::str::from_utf8(bytes.unwrap_or_default()).expect("a draft is UTF-8 and spans lie between ASCII")
}

/// Appends a value after the body.
fn push_value(body: &[u8], values: &mut Vec<u8>, value: &str) -> Span {
    let start = body.len() + values.len();
    values.extend_from_slice(value.as_bytes());
    Span::new(start, start + value.len())
}

/// Spare capacity for the keys kind and apiVersion and an inserted resourceVersion.
const ROOM: usize = 64;

/// Members of metadata for which there is room at first.
const METADATA_MEMBERS: usize = 12;
