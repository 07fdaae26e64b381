//! One stored object: its JSON, and the few things about it that are read without looking into that.

use std::{borrow::Cow, fmt, ops::Range};

use super::{
    StoreError,
    representation::{Body, Representation},
};
use crate::{
    object::{self, Meta},
    objects::Keyed,
};

/// One object of a store. Immutable.
///
/// Memory: 64 bytes with its reference counts, its key, uid and resourceVersion in one text, its JSON. The names are
/// copied out of the JSON, 50 bytes or so, so that they need no unescaping, no check for UTF-8, and no unpacking in
/// representations that pack.
pub struct Entry {
    /// Key, uid and resourceVersion, one after the other.
    names: Box<str>,
    body: Body,
    /// Where the labels are in the JSON; empty when there are none.
    labels_at: Range<u32>,
    namespace_bytes: u16,
    key_bytes: u16,
    uid_bytes: u16,
}

impl Entry {
    /// Keeps a copy of `json`, from which `meta` was read.
    ///
    /// # Errors
    /// [`StoreError::Nameless`], and [`StoreError::TooLarge`] for what the short fields cannot describe.
    pub(super) fn new(
        key: String,
        json: &[u8],
        meta: &Meta<'_>,
        representation: Representation,
    ) -> Result<Self, StoreError> {
        if meta.name.is_empty() {
            return Err(StoreError::Nameless);
        }
        let too_large = |_| StoreError::TooLarge { bytes: json.len() };
        let short = |text: &str| u16::try_from(text.len()).map_err(too_large);
        let labels = meta.labels_at.clone().unwrap_or_default();
        let long = |at: usize| u32::try_from(at).map_err(too_large);
        let (key_bytes, uid_bytes, namespace_bytes) = (short(&key)?, short(&meta.uid)?, short(&meta.namespace)?);
        let labels_at = long(labels.start)?..long(labels.end)?;
        let mut names = key;
        names.reserve_exact(meta.uid.len() + meta.resource_version.len());
        names.push_str(&meta.uid);
        names.push_str(&meta.resource_version);
        Ok(Self {
            names: names.into_boxed_str(),
            body: Body::new(json, representation),
            labels_at,
            namespace_bytes,
            key_bytes,
            uid_bytes,
        })
    }

    /// `namespace/name`, or `name` for cluster-scoped types.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.names[..usize::from(self.key_bytes)]
    }

    /// The namespace; empty for cluster-scoped types.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.names[..usize::from(self.namespace_bytes)]
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
        &self.names[usize::from(self.key_bytes)..self.uid_end()]
    }

    /// The resourceVersion as sent; empty when it has none.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        &self.names[self.uid_end()..]
    }

    /// Whether it is this version of this object.
    #[must_use]
    pub fn is(&self, uid: &str, resource_version: &str) -> bool {
        // An empty version says nothing, so two of them are not the same.
        self.uid() == uid && self.resource_version() == resource_version && !resource_version.is_empty()
    }

    /// The object as JSON. Borrowed unless the representation packs.
    #[must_use]
    pub fn json(&self) -> Cow<'_, [u8]> {
        self.body.json()
    }

    /// Bytes its JSON occupies.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        self.body.json().len()
    }

    /// Its labels as the JSON object that holds them; empty when there are none.
    #[must_use]
    pub fn labels(&self) -> Cow<'_, [u8]> {
        let at = self.labels_at.start as usize..self.labels_at.end as usize;
        match self.body.json() {
            Cow::Borrowed(json) => Cow::Borrowed(json.get(at).unwrap_or_default()),
            Cow::Owned(json) => Cow::Owned(json.get(at).unwrap_or_default().to_vec()),
        }
    }

    /// The value of one label. Cost: reads the labels up to it.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        match self.labels() {
            Cow::Borrowed(map) => object::label(map, key),
            Cow::Owned(map) => object::label(&map, key).map(|value| Cow::Owned(value.into_owned())),
        }
    }

    /// The scalar at a dotted path such as `spec.nodeName`. Cost: reads the JSON up to it.
    #[must_use]
    pub fn field(&self, path: &str) -> Option<Cow<'_, str>> {
        match self.body.json() {
            Cow::Borrowed(json) => object::field(json, path),
            Cow::Owned(json) => object::field(&json, path).map(|value| Cow::Owned(value.into_owned())),
        }
    }

    fn uid_end(&self) -> usize {
        usize::from(self.key_bytes) + usize::from(self.uid_bytes)
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
