//! One object as readers and subscribers hold it: bytes and metadata, and the typed value on demand.

use std::{borrow::Cow, fmt, sync::Arc};

use informer_core::{object::string_map, store::Entry};
use serde::de::DeserializeOwned;

use crate::decode::{DecodeError, DecodedObjects};

/// One version of one object. Cheap to clone. Shares its bytes with the store, and keeps them after the store drops
/// them.
pub struct Object<K> {
    entry: Arc<Entry>,
    decoded: Arc<DecodedObjects<K>>,
}

impl<K> Object<K> {
    pub(crate) const fn new(entry: Arc<Entry>, decoded: Arc<DecodedObjects<K>>) -> Self {
        Self { entry, decoded }
    }

    /// `namespace/name`, or `name` for cluster-scoped types.
    #[must_use]
    pub fn key(&self) -> &str {
        self.entry.key()
    }

    /// The namespace; empty for cluster-scoped types.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.entry.namespace()
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.entry.name()
    }

    /// The uid; empty if the server sent none.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.entry.uid()
    }

    /// The version as the server sent it.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        self.entry.resource_version()
    }

    /// All labels, in the order the server sent them. Cost: parses the labels, and copies only text with escapes.
    #[must_use]
    pub fn labels(&self) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
        string_map(self.entry.labels()).collect()
    }

    /// The value of one label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        self.entry.label(key)
    }

    /// The scalar at a dotted path, such as `spec.nodeName`: the contents of a string, or the text of a number or bool.
    /// `None` if the path has no scalar; paths cannot enter arrays. Cost: the cost of [`json`](Self::json), plus a scan
    /// of the bytes before the value. To find objects by the value, declare an
    /// [`index`](crate::InformerBuilder::index).
    #[must_use]
    pub fn field(&self, path: &str) -> Option<Cow<'_, str>> {
        self.entry.field(path)
    }

    /// The object as JSON: as received, with kind and apiVersion, without the dropped paths, after transforms. For an
    /// object stored as [`Typed`](crate::Representation::Typed), only the fields its type knows.
    ///
    /// Cost: none where JSON is stored. Otherwise each call unpacks or serializes the object, which takes microseconds
    /// for a pod: keep the result if you need it again.
    #[must_use]
    pub fn json(&self) -> Cow<'_, [u8]> {
        self.entry.json()
    }

    /// The typed object. Objects stored decoded return it directly; for others the value is decoded on first use and
    /// shared with all readers that hold it at this version.
    ///
    /// Cost: none for objects stored decoded, else tens of microseconds for a pod on first use. The value is dropped
    /// with its last holder.
    ///
    /// # Errors
    /// [`DecodeError`] names the path at which the object is no `K`.
    pub fn decode(&self) -> Result<Arc<K>, DecodeError>
    where
        K: DeserializeOwned + Send + Sync + 'static,
    {
        self.decoded.get(&self.entry)
    }
}

impl<K> Clone for Object<K> {
    fn clone(&self) -> Self {
        Self { entry: Arc::clone(&self.entry), decoded: Arc::clone(&self.decoded) }
    }
}

/// Equal if key, uid and resourceVersion are equal.
impl<K> PartialEq for Object<K> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.entry, &other.entry)
            || (self.key() == other.key()
                && self.uid() == other.uid()
                && self.resource_version() == other.resource_version())
    }
}

impl<K> Eq for Object<K> {}

/// Never shows the bytes: objects may be Secrets.
impl<K> fmt::Debug for Object<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({}@{})", self.key(), self.resource_version())
    }
}
