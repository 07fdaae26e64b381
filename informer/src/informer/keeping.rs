//! Declares the stored form of an informer's objects, and the indexes over them.
//!
//! INVARIANT: in every form, key, uid, resourceVersion and labels of an object are read without decoding.

use std::{
    any::{TypeId, type_name},
    borrow::Cow,
    sync::Arc,
    time::Duration,
};

use informer_core::{
    store::{IndexFn, Json, Represent, StoreConfig, TransformFn, TransformedObject},
    wire::json,
};
use kube::core::PartialObjectMeta;
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};

use super::InformerBuilder;
use crate::{
    checkpoint::KeptAs,
    decode::{DecodedForm, DecodedObjects},
    index::{self, Index},
    object::Object,
    representation::Representation,
};

/// Storage settings of a builder, and the cache of decoded objects.
pub(crate) struct Keep<K> {
    /// Its stored form is set by [`config`](Self::config).
    pub(crate) keeping: StoreConfig,
    pub(crate) decoded: Arc<DecodedObjects<K>>,
    /// Creates the stored form; `None` for JSON.
    represent: Option<RepresentFn>,
}

/// Creates the stored form of one store. A form learns from the objects of its store.
type RepresentFn = Arc<dyn Fn() -> Box<dyn Represent> + Send + Sync>;

impl<K> Default for Keep<K> {
    fn default() -> Self {
        Self { keeping: StoreConfig::default(), decoded: Arc::default(), represent: None }
    }
}

impl<K> InformerBuilder<K> {
    /// Sets the form in which objects are stored. Default [`Representation::Json`].
    pub fn store(mut self, representation: Representation) -> Self
    where
        K: DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
    {
        self.keep.represent(representation);
        self.declared.kept_as.decoded_to = matches!(representation, Representation::Typed).then(type_name::<K>);
        self
    }

    /// Changes each object before it is stored, for example to drop unused fields. May be called several times; changes
    /// apply in order.
    ///
    /// The object keeps the key, uid and resourceVersion the server sent, even if `change` modifies its metadata; its
    /// labels are taken after the change. An object that does not decode, or does not serialize afterwards, is stored
    /// unchanged, and counted in [`Stats::undecodable`](crate::Stats::undecodable).
    ///
    /// Cost: each object is decoded and serialized again, tens of microseconds for a pod.
    /// [`drop_path`](Self::drop_path) costs nothing.
    pub fn transform(mut self, mut change: impl FnMut(&mut K) + Send + 'static) -> Self
    where
        K: DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
    {
        let decoded = Arc::clone(&self.keep.decoded);
        self.declared.kept_as.transforms += 1;
        self.keep.keeping.transforms.push(Box::new(move |json| {
            let changed = serde_json::from_slice::<K>(json).and_then(|mut value| {
                change(&mut value);
                Ok(TransformedObject { json: serde_json::to_vec(&value)?, value: Some(Arc::new(value)) })
            });
            changed.inspect_err(|_| decoded.count_undecodable()).ok()
        }));
        self
    }

    /// Decodes the same objects as `T`, such as a struct of the few fields a program reads. They are stored as
    /// [`Representation::Typed`], so memory holds only those fields, unless [`store`](Self::store) is called
    /// afterwards.
    ///
    /// Transforms declared before still see a `K`. Indexes declared before are discarded: their handles are for
    /// snapshots of `K`.
    pub fn project<T>(mut self) -> InformerBuilder<T>
    where
        T: DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
    {
        // The inherited transforms count undecodable objects there.
        let decoded = DecodedObjects::<T>::counting(self.keep.decoded.undecodable_count());
        let mut keep = Keep { decoded: Arc::new(decoded), ..Keep::default() };
        keep.keeping.transforms = self.keep.keeping.transforms;
        keep.keeping.linger = self.keep.keeping.linger;
        keep.represent(Representation::Typed);
        self.declared.kept_as.decoded_to = Some(type_name::<T>());
        InformerBuilder { declared: self.declared, keep }
    }

    /// Reads only metadata: requests nothing else from the server, and drops the rest if the server sends whole
    /// objects.
    ///
    /// Discards transforms, indexes and the stored form declared before.
    pub fn metadata_only(mut self) -> InformerBuilder<PartialObjectMeta<K>> {
        let mut keep = Keep::default();
        keep.keeping.linger = self.keep.keeping.linger;
        keep.keeping.transforms.push(Box::new(|object| {
            let json = metadata_of(object)?;
            Some(TransformedObject { json, value: None })
        }));
        self.declared.metadata_only = true;
        self.declared.kept_as = KeptAs { is_metadata: true, ..KeptAs::default() };
        InformerBuilder { declared: self.declared, keep }
    }

    /// Indexes objects by one value that `value` returns for each: `|pod| pod.field("spec.nodeName")`. The module
    /// [`index`](crate::index) has ready-made functions.
    ///
    /// `value` runs once for each version of an object, when it arrives, and sees the object as received, trimmed and
    /// transformed, in whatever form it is stored. After a restart from a [`checkpoint`](Self::checkpoint) it sees the
    /// stored form: names, labels and, of decoded objects, the fields their type knows. It should be quick and must not
    /// panic: it runs in the informer's task, and a panic ends the informer
    /// ([`EndReason::Panicked`](crate::EndReason::Panicked)). Values longer than 65,535 bytes are not indexed.
    ///
    /// Memory: for each object the value's bytes and about 64 more. Cost: O(log n) for each change.
    pub fn index<F>(&mut self, value: F) -> Index<K>
    where
        F: Fn(&Object<K>) -> Option<Cow<'_, str>> + Send + 'static,
        K: Send + Sync + 'static,
    {
        self.keep.index(value)
    }

    /// Like [`index`](Self::index), for any number of values per object: each of them finds the object.
    ///
    /// The values are owned, not borrowed from the object, because a closure cannot name a return type that depends on
    /// its argument's lifetime.
    ///
    /// Memory: for each object 32 bytes, for each value its bytes and about 32 more.
    pub fn index_each<F, V>(&mut self, values: F) -> Index<K>
    where
        F: Fn(&Object<K>) -> V + Send + 'static,
        V: IntoIterator<Item: AsRef<str>>,
        K: Send + Sync + 'static,
    {
        self.keep.index_each(values)
    }

    /// Keeps the last state of deleted objects readable for `time`, and up to half a second longer:
    /// [`Snapshot::lingering`], and by an index [`Snapshot::lingering_by`]. At most
    /// [`LINGERING_OBJECTS_MAX`](crate::LINGERING_OBJECTS_MAX) objects; the ones deleted first are dropped first.
    ///
    /// Lingering objects do not survive a restart, with or without a [`checkpoint`](crate::Config::checkpoint). Objects
    /// of a checkpoint that were deleted while the program was down linger from the moment the informer notices their
    /// absence.
    ///
    /// [`Snapshot::lingering`]: crate::Snapshot::lingering
    /// [`Snapshot::lingering_by`]: crate::Snapshot::lingering_by
    pub fn linger(mut self, time: Duration) -> Self {
        self.keep.keeping.linger = Some(time);
        self
    }
}

impl<K> Keep<K> {
    fn represent(&mut self, representation: Representation)
    where
        K: DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
    {
        let decoded = Arc::clone(&self.decoded);
        self.represent = Some(Arc::new(move || -> Box<dyn Represent> {
            match representation {
                Representation::Json => Box::new(Json),
                Representation::Typed => Box::new(DecodedForm::new(Arc::clone(&decoded))),
                #[cfg(feature = "packed")]
                Representation::Packed => Box::new(crate::compression::Packer::new()),
            }
        }));
    }

    /// The settings of one store, and the cache of its decoded objects.
    pub(super) fn config(mut self) -> (StoreConfig, Arc<DecodedObjects<K>>) {
        if let Some(represent) = self.represent {
            self.keeping.represent = represent();
        }
        (self.keeping, self.decoded)
    }

    /// Returns the settings of each of several stores, for any number of them. They share the transforms, and have
    /// neither indexes nor lingering objects.
    pub(crate) fn of_parts(&mut self) -> impl Fn() -> Self + Send + Sync + use<K>
    where
        K: Send + Sync,
    {
        let (decoded, represent) = (Arc::clone(&self.decoded), self.represent.clone());
        let transforms = std::mem::take(&mut self.keeping.transforms).into_iter();
        let transforms: Vec<_> = transforms.map(|transform| Arc::new(Mutex::new(transform))).collect();
        move || {
            let shared = |transform: &Arc<Mutex<TransformFn>>| -> TransformFn {
                let transform = Arc::clone(transform);
                Box::new(move |json| (transform.lock())(json))
            };
            let keeping = StoreConfig { transforms: transforms.iter().map(shared).collect(), ..StoreConfig::default() };
            Self { keeping, decoded: Arc::clone(&decoded), represent: represent.clone() }
        }
    }

    pub(crate) fn index<F>(&mut self, value: F) -> Index<K>
    where
        F: Fn(&Object<K>) -> Option<Cow<'_, str>> + Send + 'static,
        K: Send + Sync + 'static,
    {
        if is_uid(&value) {
            self.decoded.has_uid_index(self.keeping.indexes.len());
        }
        let decoded = Arc::clone(&self.decoded);
        self.indexed(Box::new(move |entry, report| {
            if let Some(value) = value(&Object::new(Arc::clone(entry), Arc::clone(&decoded))) {
                report(&value);
            }
        }))
    }

    pub(crate) fn index_each<F, V>(&mut self, values: F) -> Index<K>
    where
        F: Fn(&Object<K>) -> V + Send + 'static,
        V: IntoIterator<Item: AsRef<str>>,
        K: Send + Sync + 'static,
    {
        let decoded = Arc::clone(&self.decoded);
        self.indexed(Box::new(move |entry, report| {
            for value in values(&Object::new(Arc::clone(entry), Arc::clone(&decoded))) {
                report(value.as_ref());
            }
        }))
    }

    fn indexed(&mut self, index: IndexFn) -> Index<K> {
        self.keeping.indexes.push(index);
        Index::new(self.keeping.indexes.len() - 1, Arc::clone(&self.decoded))
    }
}

/// Returns true if `value` is [`index::uid`](crate::index::uid) of `K`. Each function has a type of its own.
fn is_uid<K, F>(_value: &F) -> bool
where
    F: Fn(&Object<K>) -> Option<Cow<'_, str>> + 'static,
    K: 'static,
{
    TypeId::of::<F>() == type_of(&index::uid::<K>)
}

fn type_of<T: 'static>(_value: &T) -> TypeId {
    TypeId::of::<T>()
}

/// Reduces an object to its metadata, in the form of servers that support metadata-only reads. `None` if `object` is
/// not a JSON object with metadata.
fn metadata_of(object: &[u8]) -> Option<Vec<u8>> {
    let metadata = json::members(object).map_while(Result::ok).find(|member| member.key.is("metadata"))?.value;
    let head = br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#;
    Some([&head[..], metadata, b"}"].concat())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    /// Goal: lookups by uid use the index that serves them, and no other one.
    #[test]
    fn the_index_by_uid_is_recognised() {
        let mut keep = Keep::<Pod>::default();
        keep.index(index::node);
        keep.index(|pod| index::uid(pod).filter(|uid| uid.len() > 1));
        assert_eq!(keep.decoded.uid_index(), None, "a closure may return anything");
        keep.index(index::uid);
        keep.index(index::uid);
        assert_eq!(keep.decoded.uid_index(), Some(2));
    }
}
