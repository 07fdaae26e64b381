//! Declaring what an informer keeps of its objects, and how they are found.
//!
//! INVARIANT: whatever is declared, key, uid, resourceVersion and labels of an object can be read at no cost.

use std::{any::type_name, borrow::Cow, sync::Arc, time::Duration};

use informer_core::{
    store::{IndexFn, Json, Keeping, Represent, Transformed},
    wire::json,
};
use kube::core::PartialObjectMeta;
use serde::{Serialize, de::DeserializeOwned};

use super::InformerBuilder;
use crate::{
    checkpoint::KeptAs,
    decode::{Decoded, Typed},
    index::Index,
    object::Object,
};

/// In which form a store keeps its objects. Whichever it is, reading names, versions and labels costs nothing.
///
/// Live memory of an informer of 7,130 pods that are 21.7 MiB of JSON, and CPU for one pod of 3 KB, on the machine of
/// the project's benchmarks:
///
/// | | memory | to receive one and keep it | [`Object::decode`] |
/// | --- | ---: | ---: | ---: |
/// | `Json` | 23.8 MiB, 1.1 x the JSON | 10 us | tens of us, shared while somebody holds it |
/// | `Typed` | 121 MiB, 5.6 x | 43 us | nothing |
/// | `Packed` | 6.2 MiB, 0.29 x | 24 us | as `Json`, and a few us to unpack |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Representation {
    /// As JSON, trimmed as it was received.
    #[default]
    Json,
    /// Decoded, without its JSON. What the type does not know of an object is gone; reading
    /// [`Object::json`] or [`Object::field`] writes the JSON anew. An object that does not decode is kept as JSON, and
    /// counted in [`Stats::undecodable`](crate::Stats::undecodable).
    Typed,
    /// As JSON, compressed by a dictionary that is trained on the first objects received, 512 of them if there are as
    /// many, which takes some 100 ms once. When objects have become different and packs a fourth longer, it is trained
    /// anew. Reading [`Object::json`] or [`Object::field`] unpacks the object each time.
    #[cfg(feature = "packed")]
    Packed,
}

/// How the objects of a builder are kept, and who decodes them.
pub(crate) struct Keep<K> {
    pub(crate) keeping: Keeping,
    pub(crate) decoded: Arc<Decoded<K>>,
}

impl<K> Default for Keep<K> {
    fn default() -> Self {
        Self { keeping: Keeping::default(), decoded: Arc::default() }
    }
}

impl<K> InformerBuilder<K> {
    /// The form in which objects are kept. Default [`Representation::Json`].
    pub fn store(mut self, representation: Representation) -> Self
    where
        K: DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
    {
        self.keep.keeping.represent = self.keep.represent(representation);
        self.declared.kept_as.decoded_to = matches!(representation, Representation::Typed).then(type_name::<K>);
        self
    }

    /// Changes each object before it is kept, for example to drop what nobody reads. May be called again; changes
    /// happen in order.
    ///
    /// The object keeps the key, the uid and the resourceVersion that the server gave it, whatever happens to its
    /// metadata; its labels are those it has afterwards. One that does not decode, or cannot be written as JSON
    /// afterwards, is kept unchanged, and counted in [`Stats::undecodable`](crate::Stats::undecodable).
    ///
    /// Cost: each object is decoded and written as JSON again, tens of microseconds for a pod.
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
                Ok(Transformed { json: serde_json::to_vec(&value)?, value: Some(Arc::new(value)) })
            });
            changed.inspect_err(|_| decoded.count_undecodable()).ok()
        }));
        self
    }

    /// The same requests, with objects that decode to `T`, such as the few fields that a program reads. They are kept
    /// as [`Representation::Typed`], so that this is all there is of them in memory, unless
    /// [`store`](Self::store) is called afterwards.
    ///
    /// Transforms declared before still see a `K`. Indexes declared before are forgotten: their handles are for
    /// snapshots of `K`.
    pub fn project<T>(mut self) -> InformerBuilder<T>
    where
        T: DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
    {
        // The transforms count there.
        let decoded = Decoded::<T>::counting(self.keep.decoded.undecodable_count());
        let mut keep = Keep { keeping: Keeping::default(), decoded: Arc::new(decoded) };
        keep.keeping.transforms = self.keep.keeping.transforms;
        keep.keeping.linger = self.keep.keeping.linger;
        keep.keeping.represent = keep.represent(Representation::Typed);
        self.declared.kept_as.decoded_to = Some(type_name::<T>());
        InformerBuilder { declared: self.declared, keep }
    }

    /// Only metadata: asks the server for nothing else, and drops the rest of what a server sends that cannot do so.
    ///
    /// Forgets transforms, indexes and the form declared before.
    pub fn metadata_only(mut self) -> InformerBuilder<PartialObjectMeta<K>> {
        let mut keep = Keep::default();
        keep.keeping.linger = self.keep.keeping.linger;
        keep.keeping.transforms.push(Box::new(|object| {
            let json = metadata_of(object)?;
            Some(Transformed { json, value: None })
        }));
        self.declared.metadata_only = true;
        self.declared.kept_as = KeptAs { is_metadata: true, ..KeptAs::default() };
        InformerBuilder { declared: self.declared, keep }
    }

    /// Finds objects by one value that `value` tells of each: `|pod| pod.field("spec.nodeName")`. The functions of
    /// [`index`](crate::index) are ready-made ones.
    ///
    /// `value` is asked once for each version of an object, when it arrives, and sees it as it was received, trimmed
    /// and transformed, whatever form it is kept in. After a restart from a [`checkpoint`](Self::checkpoint) it sees
    /// what was kept: names, labels, and of an object kept decoded what its type knows. It should be quick and not
    /// panic: the informer waits for it, and ends with it. Values longer than 65,535 bytes find nothing.
    ///
    /// Memory: for each object the value's bytes and about 64 more. Cost: O(log n) for each change.
    pub fn index<F>(&mut self, value: F) -> Index<K>
    where
        F: Fn(&Object<K>) -> Option<Cow<'_, str>> + Send + 'static,
        K: Send + Sync + 'static,
    {
        let decoded = Arc::clone(&self.keep.decoded);
        self.keep.indexed(Box::new(move |entry, tell| {
            if let Some(value) = value(&Object::new(Arc::clone(entry), Arc::clone(&decoded))) {
                tell(&value);
            }
        }))
    }

    /// As [`index`](Self::index), by any number of values: an object is found by each of them.
    ///
    /// The values are their own, not borrowed from the object: a function over objects of any lifetime can name one
    /// type to return, and not one for each lifetime.
    ///
    /// Memory: for each object 32 bytes, for each value its bytes and about 32 more.
    pub fn index_each<F, V>(&mut self, values: F) -> Index<K>
    where
        F: Fn(&Object<K>) -> V + Send + 'static,
        V: IntoIterator<Item: AsRef<str>>,
        K: Send + Sync + 'static,
    {
        let decoded = Arc::clone(&self.keep.decoded);
        self.keep.indexed(Box::new(move |entry, tell| {
            for value in values(&Object::new(Arc::clone(entry), Arc::clone(&decoded))) {
                tell(value.as_ref());
            }
        }))
    }

    /// Keeps deleted objects readable for this long, and up to half a second longer, as they were last:
    /// [`Snapshot::lingering`], and by an index [`Snapshot::lingering_by`]. At most
    /// [`LINGERING_OBJECTS_MAX`](crate::LINGERING_OBJECTS_MAX) of them; those deleted first go first.
    ///
    /// They do not survive a restart, [`checkpoint`](crate::Config::checkpoint) or not: what was deleted before it is not
    /// readable after it. Objects of a checkpoint that were deleted while the program was down linger from the moment
    /// when their absence is noticed.
    ///
    /// [`Snapshot::lingering`]: crate::Snapshot::lingering
    /// [`Snapshot::lingering_by`]: crate::Snapshot::lingering_by
    pub fn linger(mut self, time: Duration) -> Self {
        self.keep.keeping.linger = Some(time);
        self
    }
}

impl<K> Keep<K> {
    fn represent(&self, representation: Representation) -> Box<dyn Represent>
    where
        K: DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
    {
        match representation {
            Representation::Json => Box::new(Json),
            Representation::Typed => Box::new(Typed::new(Arc::clone(&self.decoded))),
            #[cfg(feature = "packed")]
            Representation::Packed => Box::new(crate::compression::Packer::new()),
        }
    }

    fn indexed(&mut self, index: IndexFn) -> Index<K> {
        self.keeping.indexes.push(index);
        Index::new(self.keeping.indexes.len() - 1, Arc::clone(&self.decoded))
    }
}

/// What is left of an object of which only the metadata is wanted, in the form servers send that can do so. `None` for
/// what is no object.
fn metadata_of(object: &[u8]) -> Option<Vec<u8>> {
    let metadata = json::members(object).map_while(Result::ok).find(|member| member.key.is("metadata"))?.value;
    let head = br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#;
    Some([&head[..], metadata, b"}"].concat())
}
