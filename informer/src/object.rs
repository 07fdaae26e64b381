//! One object as readers and subscribers hold or borrow it: bytes and metadata, and the typed value on demand.

use std::{borrow::Cow, fmt, sync::Arc};

use informer_core::{object::string_map, store::Entry};
use serde::de::DeserializeOwned;

use crate::{
    decode::{self, DecodeError, DecodedObjects},
    object_ref::ObjectRef,
};

/// One version of one object. Cheap to clone. Shares its bytes with the store, and keeps them after the store drops
/// them.
pub struct Object<K> {
    entry: Arc<Entry>,
    decoded: Arc<DecodedObjects<K>>,
}

/// One version of one object, borrowed from a [`Snapshot`](crate::Snapshot) or an [`Object`], with the methods of
/// `Object`. Copying it is free, and the text it returns lives as long as the snapshot. [`to_object`](Self::to_object)
/// keeps the object beyond that.
pub struct ObjectView<'a, K> {
    entry: &'a Arc<Entry>,
    decoded: &'a Arc<DecodedObjects<K>>,
}

/// Defines the methods that [`Object`] and [`ObjectView`] have in common. A trait would have to be imported, and its
/// methods could not return text that outlives a view, as `snapshot.iter().map(|pod| pod.key())` needs.
macro_rules! object_methods {
    ($self:ident, [$($receiver:tt)+], $text:lifetime) => {
        /// Namespace and name, as an owned value.
        #[must_use]
        pub fn to_ref($($receiver)+) -> ObjectRef<K> {
            ObjectRef::from_key($self.key())
        }

        /// `namespace/name`, or `name` for cluster-scoped types.
        #[must_use]
        pub fn key($($receiver)+) -> &$text str {
            $self.entry.key()
        }

        /// The namespace; empty for cluster-scoped types.
        #[must_use]
        pub fn namespace($($receiver)+) -> &$text str {
            $self.entry.namespace()
        }

        /// The name.
        #[must_use]
        pub fn name($($receiver)+) -> &$text str {
            $self.entry.name()
        }

        /// The uid; empty if the server sent none.
        #[must_use]
        pub fn uid($($receiver)+) -> &$text str {
            $self.entry.uid()
        }

        /// The version as the server sent it.
        #[must_use]
        pub fn resource_version($($receiver)+) -> &$text str {
            $self.entry.resource_version()
        }

        /// True if the object exists and only its names are known: its newest version is larger than
        /// [`Config::object_bytes_max`](crate::Config::object_bytes_max), nested too deep, or no JSON object. It has
        /// neither labels nor fields here, and does not decode.
        #[must_use]
        pub fn is_skipped($($receiver)+) -> bool {
            $self.entry.is_skipped()
        }

        /// All labels, in the order the server sent them. Cost: parses the labels, and copies only text with escapes.
        #[must_use]
        pub fn labels($($receiver)+) -> Vec<(Cow<$text, str>, Cow<$text, str>)> {
            string_map($self.entry.labels()).collect()
        }

        /// The value of one label.
        #[must_use]
        pub fn label($($receiver)+, key: &str) -> Option<Cow<$text, str>> {
            $self.entry.label(key)
        }

        /// The scalar at a dotted path, such as `spec.nodeName`: the contents of a string, or the text of a number or
        /// bool. `None` if the path has no scalar; paths cannot enter arrays. Cost: the cost of [`json`](Self::json),
        /// plus a scan of the bytes before the value. To find objects by the value, declare an
        /// [`index`](crate::InformerBuilder::index).
        #[must_use]
        pub fn field($($receiver)+, path: &str) -> Option<Cow<$text, str>> {
            $self.entry.field(path)
        }

        /// The object as JSON: as received, with kind and apiVersion, without the dropped paths, after transforms. For
        /// an object stored as [`Typed`](crate::Representation::Typed), only the fields its type knows.
        ///
        /// Cost: none where JSON is stored. Otherwise each call unpacks or serializes the object, which takes
        /// microseconds for a pod: keep the result if you need it again.
        #[must_use]
        pub fn json($($receiver)+) -> Cow<$text, [u8]> {
            $self.entry.json()
        }

        /// The typed object. Objects stored decoded return it directly; for others the value is decoded on first use
        /// and shared with all readers that hold it at this version.
        ///
        /// Cost: none for objects stored decoded, else tens of microseconds for a pod on first use. The value is
        /// dropped with its last holder.
        ///
        /// # Errors
        /// [`DecodeError`] names the path at which the object is no `K`.
        pub fn decode($($receiver)+) -> Result<Arc<K>, DecodeError>
        where
            K: DeserializeOwned + Send + Sync + 'static,
        {
            $self.decoded.get(&$self.entry)
        }

        /// The typed object if it is stored decoded ([`Typed`](crate::Representation::Typed)): nothing is left to fail.
        /// `None` in other representations, and for the objects that did not decode on arrival, which
        /// [`Stats::undecodable`](crate::Stats::undecodable) counts. [`Snapshot::typed`](crate::Snapshot::typed) hands
        /// out each as an `Arc`.
        ///
        /// Cost: none.
        #[must_use]
        pub fn typed($($receiver)+) -> Option<&$text K>
        where
            K: 'static,
        {
            decode::stored_value(&$self.entry)
        }
    };
}

impl<'a, K> ObjectView<'a, K> {
    pub(crate) const fn new(entry: &'a Arc<Entry>, decoded: &'a Arc<DecodedObjects<K>>) -> Self {
        Self { entry, decoded }
    }

    /// The object itself. Cost: two reference counts.
    #[must_use]
    pub fn to_object(self) -> Object<K> {
        Object::new(Arc::clone(self.entry), Arc::clone(self.decoded))
    }

    object_methods!(self, [self], 'a);
}

impl<K> Object<K> {
    pub(crate) const fn new(entry: Arc<Entry>, decoded: Arc<DecodedObjects<K>>) -> Self {
        Self { entry, decoded }
    }

    /// This object, borrowed: for functions that take objects of snapshots and of events.
    #[must_use]
    pub const fn view(&self) -> ObjectView<'_, K> {
        ObjectView::new(&self.entry, &self.decoded)
    }

    object_methods!(self, [&self], '_);
}

impl<K> Clone for Object<K> {
    fn clone(&self) -> Self {
        self.view().to_object()
    }
}

// Not derived: a derive would require `K: Copy`.
impl<K> Clone for ObjectView<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for ObjectView<'_, K> {}

impl<K> From<ObjectView<'_, K>> for Object<K> {
    fn from(view: ObjectView<'_, K>) -> Self {
        view.to_object()
    }
}

impl<K> From<&Object<K>> for ObjectRef<K> {
    fn from(object: &Object<K>) -> Self {
        object.to_ref()
    }
}

impl<K> From<ObjectView<'_, K>> for ObjectRef<K> {
    fn from(object: ObjectView<'_, K>) -> Self {
        object.to_ref()
    }
}

/// Equal if key, uid and resourceVersion are equal.
impl<K> PartialEq for Object<K> {
    fn eq(&self, other: &Self) -> bool {
        self.view() == other.view()
    }
}

impl<K> Eq for Object<K> {}

/// Equal if key, uid and resourceVersion are equal.
impl<K> PartialEq for ObjectView<'_, K> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.entry, other.entry)
            || (self.key() == other.key()
                && self.uid() == other.uid()
                && self.resource_version() == other.resource_version())
    }
}

impl<K> Eq for ObjectView<'_, K> {}

/// Never shows the bytes: objects may be Secrets.
impl<K> fmt::Debug for Object<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

/// Never shows the bytes: objects may be Secrets.
impl<K> fmt::Debug for ObjectView<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({}@{})", self.key(), self.resource_version())
    }
}
