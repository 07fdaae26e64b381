//! One stored object: its body, and the few things about it that are read without looking into that.

use std::{borrow::Cow, fmt, ops::Range};

use super::{StoreError, body::Body, index::Tag};
use crate::{
    object::{self, Meta},
    objects::Keyed,
};

/// One object of a store. Immutable.
///
/// Memory: 96 bytes with its reference counts, a text of its key, uid and resourceVersion, its body. The names are
/// copied out of the JSON, 50 bytes or so, so that they need no unescaping, no check for UTF-8, and no body. Bodies
/// that are not JSON have a copy of the labels in that text. Each value of an index costs its bytes in the text and 8.
pub struct Entry {
    /// Key, uid, resourceVersion, the labels unless the body is JSON, values of indexes: one after the other.
    text: Box<str>,
    body: Body,
    tags: Box<[Tag]>,
    /// Where the labels are, in the body's JSON or in the text; empty when there are none.
    labels_at: Range<u32>,
    namespace_bytes: u16,
    key_bytes: u16,
    uid_bytes: u16,
    version_bytes: u16,
}

/// What an entry is made from, besides its body.
pub(super) struct Parts<'a> {
    pub(super) key: &'a str,
    pub(super) meta: &'a Meta<'a>,
    /// As it is kept, which is not as it was received when a transform changed it.
    pub(super) json: &'a [u8],
    /// Where the labels are in that.
    pub(super) labels_at: Range<usize>,
    /// The labels, if that lacks them.
    pub(super) labels: Option<&'a [u8]>,
}

/// Values by which one object is found.
#[derive(Debug, Default)]
pub(super) struct Values {
    text: String,
    tags: Vec<Tag>,
}

impl Entry {
    /// An entry that no index finds.
    ///
    /// # Errors
    /// [`StoreError::Nameless`], and [`StoreError::TooLarge`] for what the short fields cannot describe.
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
            (body @ Body::Json(_), _) => (body, "", labels_at.clone()),
            // The text cannot hold them; this is no object that anybody could decode.
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

    /// The same, found by `values`. It was found by nothing before.
    pub(super) fn tagged(mut self, values: &Values) -> Self {
        let start = self.text.len();
        let tag = |tag: &Tag| Some(Tag { at: u32::try_from(start + tag.at as usize).ok()?, ..*tag });
        self.tags = values.tags.iter().filter_map(tag).collect();
        if !self.tags.is_empty() {
            self.text = [&*self.text, &*values.text].concat().into_boxed_str();
        }
        self
    }

    /// The same in another form, of which its JSON is kept now.
    pub(super) fn again(&self, body: Body) -> Option<Self> {
        let labels = match &self.body {
            Body::Json(json) => str::from_utf8(json.get(self.labels_range()).unwrap_or_default()).ok()?,
            Body::Packed(_) | Body::Value { .. } => return None,
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

    /// The uid; empty when it has none.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.text[usize::from(self.key_bytes)..self.uid_end()]
    }

    /// The resourceVersion as sent; empty when it has none.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        &self.text[self.uid_end()..self.uid_end() + usize::from(self.version_bytes)]
    }

    /// Whether it is this version of this object.
    #[must_use]
    pub fn is(&self, uid: &str, resource_version: &str) -> bool {
        // An empty version says nothing, so two of them are not the same.
        self.uid() == uid && self.resource_version() == resource_version && !resource_version.is_empty()
    }

    /// Whether a reader of this version of this object could not tell it from `other`, whatever form each is kept in.
    /// A decoded object's JSON does not say all of it: labels and values of indexes come from what was received.
    pub(super) fn shows_the_same(&self, other: &Self) -> bool {
        let has_values = self.values().eq(other.values());
        has_values && self.labels() == other.labels() && self.json() == other.json()
    }

    /// In which form the object is kept.
    #[must_use]
    pub const fn body(&self) -> &Body {
        &self.body
    }

    /// The object as JSON. Borrowed where it is kept as such, else made now; see [`Body::json`].
    #[must_use]
    pub fn json(&self) -> Cow<'_, [u8]> {
        self.body.json()
    }

    /// Bytes kept for it: its body's and its text's. The rest is the same for each; see [`Entry`].
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.body.kept_bytes() + self.text.len()
    }

    /// Its labels as the JSON object that holds them; empty when there are none. In every form without cost.
    #[must_use]
    pub fn labels(&self) -> &[u8] {
        match &self.body {
            Body::Json(json) => json.get(self.labels_range()).unwrap_or_default(),
            Body::Packed(_) | Body::Value { .. } => self.text.as_bytes().get(self.labels_range()).unwrap_or_default(),
        }
    }

    /// The value of one label. Cost: reads the labels up to it.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        object::label(self.labels(), key)
    }

    /// The scalar at a dotted path such as `spec.nodeName`. Cost: reads the JSON up to it, once it is made.
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

    /// Whether an index finds it by this value.
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
    /// Forgets the values of the object before.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.tags.clear();
    }

    /// One more value of this index. What is told twice counts once, what is too long not at all.
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

impl Keyed for Entry {
    fn key(&self) -> &str {
        self.key()
    }
}

/// Never shows the object: bodies do not belong in logs.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key(), self.resource_version())
    }
}
