//! One object as readers and subscribers hold it: bytes and metadata now, the typed value when asked for.

use std::{borrow::Cow, fmt, sync::Arc};

use informer_core::{object::string_map, store::Entry};
use serde::de::DeserializeOwned;

use crate::decode::{DecodeError, Decoded};

/// One version of one object. Cheap to clone; shares its bytes with the store, and keeps them when the store moves on.
pub struct Object<K> {
    entry: Arc<Entry>,
    decoded: Arc<Decoded<K>>,
}

impl<K> Object<K> {
    pub(crate) const fn new(entry: Arc<Entry>, decoded: Arc<Decoded<K>>) -> Self {
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

    /// The uid; empty when the server sent none.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.entry.uid()
    }

    /// The version as the server sent it.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        self.entry.resource_version()
    }

    /// All labels, in the order the server sent them. Cost: reads the labels, borrows them where nothing is escaped.
    #[must_use]
    pub fn labels(&self) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
        string_map(self.entry.labels()).collect()
    }

    /// The value of one label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        self.entry.label(key)
    }

    /// The scalar at a dotted path, such as `spec.nodeName`: a string's contents, or the text of a number or bool.
    /// `None` when there is none; arrays cannot be entered. Cost: that of [`json`](Self::json), and a scan of the bytes
    /// in front of it. To find objects by it, declare an [`index`](crate::InformerBuilder::index).
    #[must_use]
    pub fn field(&self, path: &str) -> Option<Cow<'_, str>> {
        self.entry.field(path)
    }

    /// The object as JSON: as it was received, with kind and apiVersion, without the dropped paths, as transforms left
    /// it. Of an object that is kept as [`Typed`](crate::Representation::Typed) it is what its type knows of it.
    ///
    /// Cost: nothing where JSON is kept. Else it is unpacked or written anew each time, which takes microseconds for a
    /// pod: keep what you read more than once.
    #[must_use]
    pub fn json(&self) -> Cow<'_, [u8]> {
        self.entry.json()
    }

    /// The typed object: as it is kept, or shared with everybody who holds it at this version, else decoded now.
    ///
    /// Cost: nothing where objects are kept decoded, else tens of microseconds for a pod, the first time; nothing is
    /// kept when all holders are gone.
    ///
    /// # Errors
    /// [`DecodeError`] names the place in the object where it is no `K`.
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

/// The same object at the same version.
impl<K> PartialEq for Object<K> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.entry, &other.entry)
            || (self.key() == other.key()
                && self.uid() == other.uid()
                && self.resource_version() == other.resource_version())
    }
}

impl<K> Eq for Object<K> {}

/// Never the bytes: objects may be Secrets.
impl<K> fmt::Debug for Object<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({}@{})", self.key(), self.resource_version())
    }
}
