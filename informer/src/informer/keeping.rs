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
use serde::{Serialize, de::DeserializeOwned};

use super::InformerBuilder;
use crate::{
    checkpoint::ObjectChanges,
    decode::{DecodedForm, DecodedObjects},
    index::{self, Index},
    object::Object,
    representation::Representation,
    shared::StoredForm,
    transform::Transform,
};

/// Storage settings of a builder, and the cache of decoded objects that belongs to its index handles.
pub(super) struct Keep<K> {
    pub(super) form: StoredForm,
    /// Transforms in their order.
    pub(super) transforms: Vec<Transform>,
    pub(super) indexes: Vec<IndexFn>,
    pub(super) decoded: Arc<DecodedObjects<K>>,
    /// Creates the stored form; `None` for JSON.
    represent: Option<RepresentFn<K>>,
}

/// Creates the stored form of one store, whose objects the cache decodes. A form learns from the objects of its store.
type RepresentFn<K> = fn(Representation, &Arc<DecodedObjects<K>>) -> Box<dyn Represent>;

impl<K> Default for Keep<K> {
    fn default() -> Self {
        Self {
            form: StoredForm::default(),
            transforms: Vec::new(),
            indexes: Vec::new(),
            decoded: Arc::default(),
            represent: None,
        }
    }
}

impl<K> InformerBuilder<K> {
    /// Sets the form in which objects are stored. Default [`Representation::Json`].
    pub fn store(mut self, representation: Representation) -> Self
    where
        K: DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
    {
        self.keep.represent(representation);
        self.declared.object_changes.decoded_to = matches!(representation, Representation::Typed).then(type_name::<K>);
        self
    }

    /// Changes each object before it is stored, for example to drop unused fields. May be called several times; changes
    /// apply in order, in place of the [cluster's](crate::ClusterBuilder::default_transform).
    ///
    /// The object keeps the key, uid and resourceVersion the server sent, even if `change` modifies its metadata; its
    /// labels are taken after the change. An object that does not decode, or does not serialize afterwards, is stored
    /// unchanged, and counted in [`Stats::undecodable`](crate::Stats::undecodable).
    ///
    /// [`start_shared`](Self::start_shared) compares functions by their type, so declarations that pass one `fn`, or
    /// one closure without captures, share a copy. With a closure that captures values, or a function pointer, a
    /// declaration shares nothing: it gets a watch of its own.
    ///
    /// Cost: each object is decoded and serialized again, tens of microseconds for a pod.
    /// [`drop_path`](Self::drop_path) costs nothing.
    pub fn transform<F>(mut self, change: F) -> Self
    where
        F: Fn(&mut K) + Send + Sync + 'static,
        K: DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
    {
        self.keep.transforms.retain(|transform| !transform.is_of_cluster());
        self.keep.transforms.push(Transform::new(change));
        self.declared.object_changes.transforms = self.keep.transforms.len();
        self.declared.object_changes.is_transform_of_cluster = false;
        self
    }

    /// Discards the transforms set before, and the [cluster's](crate::ClusterBuilder::default_transform).
    pub fn without_transforms(mut self) -> Self {
        self.keep.transforms.clear();
        self.declared.object_changes.transforms = 0;
        self.declared.object_changes.is_transform_of_cluster = false;
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
        let mut keep = Keep { form: self.keep.form, transforms: self.keep.transforms, ..Keep::default() };
        keep.represent(Representation::Typed);
        self.declared.object_changes.decoded_to = Some(type_name::<T>());
        InformerBuilder { declared: self.declared, keep, from_wider: self.from_wider }
    }

    /// Reads only metadata: requests nothing else from the server, and drops the rest if the server sends whole
    /// objects. `M` decodes from it, such as kube's `PartialObjectMeta<K>`.
    ///
    /// Discards transforms, indexes and the stored form declared before.
    pub fn metadata_only<M>(mut self) -> InformerBuilder<M> {
        let form = StoredForm { is_metadata: true, linger: self.keep.form.linger, ..StoredForm::default() };
        self.declared.metadata_only = true;
        self.declared.object_changes = ObjectChanges { is_metadata: true, ..ObjectChanges::default() };
        let keep = Keep { form, ..Keep::default() };
        InformerBuilder { declared: self.declared, keep, from_wider: self.from_wider }
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
    ///
    /// Of a [shared](Self::start_shared) copy, each user has its own indexes over the shared objects. `value` then runs
    /// in a task of this user, so [`ready`](super::Informer::ready) waits for it, and sees the object in its stored
    /// form; of a `Packed` one it unpacks the fields it reads. Memory: for each object about 30 bytes, and for each
    /// value its bytes and about 120 more.
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
    /// Combined with several namespaces, or with indexes of a [shared](Self::start_shared) copy, it is an error at the
    /// start. No wider copy answers a shared declaration with it.
    ///
    /// [`Snapshot::lingering`]: crate::Snapshot::lingering
    /// [`Snapshot::lingering_by`]: crate::Snapshot::lingering_by
    pub const fn linger(mut self, time: Duration) -> Self {
        self.keep.form.linger = Some(time);
        self
    }
}

impl<K> Keep<K> {
    fn represent(&mut self, representation: Representation)
    where
        K: DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
    {
        self.form.representation = representation;
        self.form.decoded_to = matches!(representation, Representation::Typed).then(TypeId::of::<K>);
        self.represent = Some(|representation, decoded| match representation {
            Representation::Json => Box::new(Json),
            Representation::Typed => Box::new(DecodedForm::new(Arc::clone(decoded))),
            #[cfg(feature = "packed")]
            Representation::Packed => Box::new(crate::compression::Packer::new()),
        });
    }

    /// Returns the settings of one store. `decoded` counts its objects that do not decode.
    pub(super) fn config(&self, decoded: &Arc<DecodedObjects<K>>, indexes: Vec<IndexFn>) -> StoreConfig
    where
        K: Send + Sync + 'static,
    {
        let metadata: Option<TransformFn> = self.form.is_metadata.then_some(Box::new(|object| {
            let json = metadata_of(object)?;
            Some(TransformedObject { json, value: None })
        }));
        let counted = |transform: &Transform| -> TransformFn {
            let (change, decoded) = (Arc::clone(&transform.change), Arc::clone(decoded));
            Box::new(move |json| {
                let changed = change(json);
                if changed.is_none() {
                    decoded.count_undecodable();
                }
                changed
            })
        };
        StoreConfig {
            transforms: metadata.into_iter().chain(self.transforms.iter().map(counted)).collect(),
            represent: match self.represent {
                Some(represent) => represent(self.form.representation, decoded),
                None => Box::new(Json),
            },
            indexes,
            linger: self.form.linger,
        }
    }

    fn index<F>(&mut self, value: F) -> Index<K>
    where
        F: Fn(&Object<K>) -> Option<Cow<'_, str>> + Send + 'static,
        K: Send + Sync + 'static,
    {
        if is_uid(&value) {
            self.decoded.has_uid_index(self.indexes.len());
        }
        let decoded = Arc::clone(&self.decoded);
        self.indexed(Box::new(move |entry, report| {
            if let Some(value) = value(&Object::new(Arc::clone(entry), Arc::clone(&decoded))) {
                report(&value);
            }
        }))
    }

    fn index_each<F, V>(&mut self, values: F) -> Index<K>
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
        self.indexes.push(index);
        Index::new(self.indexes.len() - 1, Arc::clone(&self.decoded))
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
