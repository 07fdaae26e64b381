//! One stored object: its body, and the fields that readers need without parsing it.

use std::{borrow::Cow, fmt, ops::Range};

use super::{StoreError, body::Body, index::Tag};
use crate::{
    object::{self, Meta},
    objects::KeyedObject,
};

/// One object of a store. Immutable.
///
/// Memory: 96 bytes with its reference counts, one text of its key, uid and resourceVersion, and its body. These names
/// are copied out of the JSON, about 50 bytes, so that reading them needs no unescaping, no UTF-8 check and no body. If
/// the body is not JSON, the text also holds a copy of the labels. Each index value costs its bytes in the text and 8
/// more.
pub struct Entry {
    /// Concatenation of key, uid, resourceVersion, labels (unless the body is JSON) and index values.
    text: Box<str>,
    body: Body,
    tags: Box<[Tag]>,
    /// Range of the labels, in the body's JSON or in the text; empty if there are none.
    labels_at: Range<u32>,
    namespace_bytes: u16,
    key_bytes: u16,
    uid_bytes: u16,
    version_bytes: u16,
}

/// Parts of a new entry, besides its body.
pub(super) struct Parts<'a> {
    pub(super) key: &'a str,
    pub(super) meta: &'a Meta<'a>,
    /// The stored JSON, which differs from the received one if a transform changed it.
    pub(super) json: &'a [u8],
    /// Range of the labels in `json`.
    pub(super) labels_at: Range<usize>,
    /// The labels, if `json` lacks them.
    pub(super) labels: Option<&'a [u8]>,
}

/// Index values of one object.
#[derive(Debug, Default)]
pub(super) struct Values {
    text: String,
    tags: Vec<Tag>,
}

impl Entry {
    /// Creates an entry without index values.
    ///
    /// # Errors
    /// [`StoreError::Nameless`], and [`StoreError::TooLarge`] if a length does not fit its short field.
    pub(super) fn new(parts: &Parts<'_>, body: Body) -> Result<Self, StoreError> {
        let Parts { key, meta, json, labels_at, labels } = parts;
        if meta.name.is_empty() {
            return Err(StoreError::Nameless);
        }
        let too_large = |_| StoreError::TooLarge { bytes: json.len() };
        let short = |text: &str| u16::try_from(text.len()).map_err(too_large);
        let long = |at: usize| u32::try_from(at).map_err(too_large);
        let labels = labels.or_else(|| json.get(labels_at.clone())).unwrap_or_default();
        let labels = str::from_utf8(labels);
        let (body, labels, labels_at) = match (body, labels) {
            (body @ (Body::Packed(_) | Body::Value { .. }), Ok(labels)) => {
                let at = key.len() + meta.uid.len() + meta.resource_version.len();
                (body, labels, at..at + labels.len())
            }
            (body @ (Body::Json(_) | Body::Skipped(_)), _) => (body, "", labels_at.clone()),
            // Labels that are not UTF-8 do not fit the text. Such an object is undecodable, so keep its JSON.
            (Body::Packed(_) | Body::Value { .. }, Err(_)) => (Body::Json((*json).into()), "", labels_at.clone()),
        };
        Ok(Self {
            namespace_bytes: short(&meta.namespace)?,
            key_bytes: short(key)?,
            uid_bytes: short(&meta.uid)?,
            version_bytes: short(&meta.resource_version)?,
            labels_at: long(labels_at.start)?..long(labels_at.end)?,
            text: [key, &*meta.uid, &*meta.resource_version, labels].concat().into_boxed_str(),
            body,
            tags: Box::default(),
        })
    }

    /// Adds index `values` to an entry that has none.
    pub(super) fn tagged(mut self, values: &Values) -> Self {
        let start = self.text.len();
        let tag = |tag: &Tag| Some(Tag { at: u32::try_from(start + tag.at as usize).ok()?, ..*tag });
        self.tags = values.tags.iter().filter_map(tag).collect();
        if !self.tags.is_empty() {
            self.text = [&*self.text, &*values.text].concat().into_boxed_str();
        }
        self
    }

    /// Returns a copy of an entry stored as JSON, with `body` instead.
    pub(super) fn again(&self, body: Body) -> Option<Self> {
        let labels = match &self.body {
            Body::Json(json) => str::from_utf8(json.get(self.labels_range()).unwrap_or_default()).ok()?,
            Body::Packed(_) | Body::Value { .. } | Body::Skipped(_) => return None,
        };
        let at = u32::try_from(self.text.len()).ok()?;
        let text = [&*self.text, labels].concat().into_boxed_str();
        let labels_at = at..u32::try_from(text.len()).ok()?;
        Some(Self { text, body, tags: self.tags.clone(), labels_at, ..*self })
    }

    /// `namespace/name`, or `name` for cluster-scoped types.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.text[..usize::from(self.key_bytes)]
    }

    /// The namespace; empty for cluster-scoped types.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.text[..usize::from(self.namespace_bytes)]
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        let slash = usize::from(self.namespace_bytes > 0);
        &self.key()[usize::from(self.namespace_bytes) + slash..]
    }

    /// The uid; empty if it has none.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.text[usize::from(self.key_bytes)..self.uid_end()]
    }

    /// The resourceVersion as sent; empty if it has none.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        &self.text[self.uid_end()..self.uid_end() + usize::from(self.version_bytes)]
    }

    /// Returns true if this is the given version of the given object.
    #[must_use]
    pub fn is(&self, uid: &str, resource_version: &str) -> bool {
        // Empty versions identify no version, so two of them are not equal.
        self.uid() == uid && self.resource_version() == resource_version && !resource_version.is_empty()
    }

    /// Returns true if readers could not distinguish this entry from `other`, whatever form each is stored in. The JSON
    /// of a decoded object is incomplete: labels and index values come from the received JSON.
    pub(super) fn shows_the_same(&self, other: &Self) -> bool {
        let has_values = self.values().eq(other.values());
        has_values && self.labels() == other.labels() && self.json() == other.json()
    }

    /// The body, in the form in which it is stored.
    #[must_use]
    pub const fn body(&self) -> &Body {
        &self.body
    }

    /// Returns true if the object exists and only its names are known; see [`Body::Skipped`].
    #[must_use]
    pub const fn is_skipped(&self) -> bool {
        matches!(self.body, Body::Skipped(_))
    }

    /// Returns the object as JSON. Borrowed if stored as JSON, otherwise built by this call; see [`Body::json`].
    #[must_use]
    pub fn json(&self) -> Cow<'_, [u8]> {
        self.body.json()
    }

    /// Bytes of the body and the text. The other costs are equal for all entries; see [`Entry`].
    #[must_use]
    pub fn stored_bytes(&self) -> usize {
        self.body.stored_bytes() + self.text.len()
    }

    /// The labels as a JSON object; empty if there are none. Free for every representation.
    #[must_use]
    pub fn labels(&self) -> &[u8] {
        match &self.body {
            Body::Json(json) | Body::Skipped(json) => json.get(self.labels_range()).unwrap_or_default(),
            Body::Packed(_) | Body::Value { .. } => self.text.as_bytes().get(self.labels_range()).unwrap_or_default(),
        }
    }

    /// Returns the value of one label. Cost: scans the labels up to it.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        object::label(self.labels(), key)
    }

    /// Returns the scalar at a dotted path such as `spec.nodeName`. Cost: scans the JSON up to it, plus building the
    /// JSON if it is not stored.
    #[must_use]
    pub fn field(&self, path: &str) -> Option<Cow<'_, str>> {
        match self.body.json() {
            Cow::Borrowed(json) => object::field(json, path),
            Cow::Owned(json) => object::field(&json, path).map(|value| Cow::Owned(value.into_owned())),
        }
    }

    pub(super) const fn tags(&self) -> &[Tag] {
        &self.tags
    }

    pub(super) fn value(&self, tag: &Tag) -> &str {
        &self.text[tag.at as usize..tag.at as usize + usize::from(tag.value_bytes)]
    }

    fn values(&self) -> impl Iterator<Item = (u16, &str)> {
        self.tags.iter().map(|tag| (tag.index, self.value(tag)))
    }

    /// Returns true if this index finds the entry by this value.
    pub(super) fn is_found_by(&self, index: u16, value: &str) -> bool {
        self.values().any(|found| found == (index, value))
    }

    fn uid_end(&self) -> usize {
        usize::from(self.key_bytes) + usize::from(self.uid_bytes)
    }

    const fn labels_range(&self) -> Range<usize> {
        self.labels_at.start as usize..self.labels_at.end as usize
    }
}

impl Values {
    /// Removes the values of the previous object.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.tags.clear();
    }

    /// Adds a value for this index. Repeated values and values that are too long are ignored.
    pub(super) fn push(&mut self, index: u16, value: &str) {
        let known = self.tags.iter().any(|tag| tag.index == index && self.of(tag) == value);
        let (at, bytes) = (u32::try_from(self.text.len()), u16::try_from(value.len()));
        if let (false, Ok(at), Ok(value_bytes)) = (known, at, bytes) {
            self.tags.push(Tag { index, value_bytes, at });
            self.text.push_str(value);
        }
    }

    fn of(&self, tag: &Tag) -> &str {
        &self.text[tag.at as usize..tag.at as usize + usize::from(tag.value_bytes)]
    }
}

impl KeyedObject for Entry {
    fn key(&self) -> &str {
        self.key()
    }
}

/// Omits the object's contents: bodies do not belong in logs.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key(), self.resource_version())
    }
}
