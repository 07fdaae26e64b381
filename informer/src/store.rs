//! Read side of an informer's store. INVARIANT: a snapshot is one state at one version and never changes.

use std::{fmt, sync::Arc};

use informer_core::{ResourceVersion, selector::label, store};
use tokio::sync::watch;

use crate::{decode::DecodedObjects, index::Index, object::Object};

/// The read side of an informer's store. Cheap to clone. Does not keep the informer running: after the informer has
/// ended, its last state stays readable, and [`is_live`](Self::is_live) returns false.
pub struct Store<K> {
    now: watch::Receiver<store::Snapshot>,
    decoded: Arc<DecodedObjects<K>>,
}

impl<K> Store<K> {
    pub(crate) const fn new(now: watch::Receiver<store::Snapshot>, decoded: Arc<DecodedObjects<K>>) -> Self {
        Self { now, decoded }
    }

    /// Returns the current state. Empty before the first sync. Cost: three reference counts; holds no lock afterwards.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<K> {
        Snapshot { state: self.now.borrow().clone(), decoded: Arc::clone(&self.decoded) }
    }

    /// True while an informer writes this store. False once it has ended: the state no longer changes.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.now.has_changed().is_ok()
    }
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self { now: self.now.clone(), decoded: Arc::clone(&self.decoded) }
    }
}

impl<K> fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(f)
    }
}

/// One state at one version. Cheap to clone. Holding it keeps its objects in memory, including ones replaced since.
pub struct Snapshot<K> {
    state: store::Snapshot,
    decoded: Arc<DecodedObjects<K>>,
}

impl<K> Snapshot<K> {
    /// Returns the object `namespace/name`, or `name` for cluster-scoped types.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Object<K>> {
        self.state.objects.get(key).map(|entry| self.object(entry))
    }

    /// Iterates over all objects, in byte order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = Object<K>> {
        self.state.objects.iter().map(|entry| self.object(entry))
    }

    /// Iterates over the objects of one namespace, in byte order of their keys. Cost: O(log n + result).
    pub fn namespace(&self, namespace: &str) -> impl Iterator<Item = Object<K>> {
        self.state.objects.namespace(namespace).map(|entry| self.object(entry))
    }

    /// Iterates over the objects whose labels match, in byte order of their keys. Cost: a scan over the labels of all
    /// objects.
    pub fn select(&self, labels: &label::Selector) -> impl Iterator<Item = Object<K>> {
        let matching = self.state.objects.iter().filter(|entry| labels.matches(|key| entry.label(key)));
        matching.map(|entry| self.object(entry))
    }

    /// Iterates over the objects that `index` maps to `value`, in byte order of their keys. Empty for an index of
    /// another informer. Cost: O(log n + result).
    pub fn by<'a>(&'a self, index: &Index<K>, value: &'a str) -> impl Iterator<Item = Object<K>> + use<'a, K> {
        let found = index.position_in(&self.decoded).map(|position| self.state.by(position, value));
        found.into_iter().flatten().map(|entry| self.object(entry))
    }

    /// Iterates over the last states of deleted objects with this key or uid, most recently deleted first, as long as
    /// [`linger`](crate::InformerBuilder::linger) keeps them. Does not contain a new object that took the key;
    /// [`get`](Self::get) returns that one. Cost: O(log n + result).
    pub fn lingering<'a>(&'a self, key_or_uid: &str) -> impl Iterator<Item = Object<K>> + use<'a, K> {
        self.state.lingering(key_or_uid).map(|entry| self.object(entry))
    }

    /// Iterates over the last states of deleted objects that `index` mapped to `value`, most recently deleted first, as
    /// long as [`linger`](crate::InformerBuilder::linger) keeps them: for example the pod of an exited container. Empty
    /// for an index of another informer. Cost: O(log n + result).
    pub fn lingering_by<'a>(&'a self, index: &Index<K>, value: &str) -> impl Iterator<Item = Object<K>> + use<'a, K> {
        let found = index.position_in(&self.decoded).map(|position| self.state.lingering_by(position, value));
        found.into_iter().flatten().map(|entry| self.object(entry))
    }

    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.objects.len()
    }

    /// Returns true if there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.state.objects.is_empty()
    }

    /// Version of this state: it contains every change up to this version and no later one. `None` before the first
    /// sync.
    #[must_use]
    pub const fn resource_version(&self) -> Option<&ResourceVersion> {
        self.state.resource_version.as_ref()
    }

    fn object(&self, entry: &Arc<store::Entry>) -> Object<K> {
        Object::new(Arc::clone(entry), Arc::clone(&self.decoded))
    }
}

impl<K> Clone for Snapshot<K> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), decoded: Arc::clone(&self.decoded) }
    }
}

impl<K> fmt::Debug for Snapshot<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.resource_version().map_or("nothing", ResourceVersion::as_str);
        write!(f, "Snapshot({} objects at {version})", self.len())
    }
}
