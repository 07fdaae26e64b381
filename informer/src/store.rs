//! Read side of an informer's store. INVARIANT: a snapshot is one state at one version and never changes.

use std::{fmt, iter::FusedIterator, sync::Arc, time::Duration};

use informer_core::{ResourceVersion, objects::ObjectsIter, selector::label, store};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::{
    decode::DecodedObjects,
    ended::EndReason,
    index::Index,
    keep_alive::KeepAlive,
    lifetime::Lifetime,
    object::{Object, ObjectView},
    object_ref::{ObjectRef, key_of},
};

/// The read side of an informer's store. Cheap to clone. Keeps the informer running, as a handle and a subscription do,
/// unless it is [`detached`](Self::detached). After the informer has ended, its last state stays readable, and
/// [`end_reason`](Self::end_reason) says why it ended.
pub struct Store<K> {
    now: watch::Receiver<store::Snapshot>,
    decoded: Arc<DecodedObjects<K>>,
    life: Lifetime,
    /// `None` if it is detached.
    informer: Option<Arc<KeepAlive>>,
}

impl<K> Store<K> {
    pub(crate) fn new(
        now: watch::Receiver<store::Snapshot>,
        decoded: Arc<DecodedObjects<K>>,
        informer: Arc<KeepAlive>,
    ) -> Self {
        Self { now, decoded, life: informer.life().clone(), informer: Some(informer) }
    }

    /// Returns a handle that does not keep the informer running: for readers that only observe, such as a debug page.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self { informer: None, ..self.clone() }
    }

    /// Returns the current state. Empty before the first sync. Cost: three reference counts; holds no lock afterwards.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<K> {
        Snapshot { state: self.now.borrow().clone(), decoded: Arc::clone(&self.decoded) }
    }

    /// True while an informer writes this store. False once it has ended: the state no longer changes.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.end_reason().is_none()
    }

    /// Why the informer has ended; `None` while it runs.
    #[must_use]
    pub fn end_reason(&self) -> Option<EndReason> {
        self.life.end_reason()
    }

    /// Time since the server last confirmed this state; see [`Informer::age`](crate::Informer::age).
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        self.life.progress().age()
    }

    /// True if the server was heard within `max_age`; see [`Informer::is_alive`](crate::Informer::is_alive).
    #[must_use]
    pub fn is_alive(&self, max_age: Duration) -> bool {
        self.life.is_alive(max_age)
    }

    /// Waits until the informer has ended, and returns the reason. Does not end it; a handle that is not
    /// [`detached`](Self::detached) keeps it running. Cancel safe.
    pub async fn join(&self) -> EndReason {
        self.life.ended().await
    }

    /// Waits for a state that this handle has not returned from `changed` yet, and returns it. The first call returns
    /// at once if a state was published since the informer's start. States that come faster than the calls are skipped.
    ///
    /// A state is also new if only its version changed (a bookmark), or if lingering objects left it. Cancel safe. Use
    /// a clone for each task: `let mut store = informer.store().clone()`.
    ///
    /// # Errors
    /// The [`EndReason`] once the informer has ended and its last state was returned; at once after a
    /// [`shutdown`](crate::Informer::shutdown) of a shared copy, whose states continue for its other users.
    pub async fn changed(&mut self) -> Result<Snapshot<K>, EndReason> {
        let has_changed = tokio::select! { biased;
            () = self.life.shut_down() => false,
            changed = self.now.changed() => changed.is_ok(),
        };
        if has_changed { Ok(self.look()) } else { Err(self.join().await) }
    }

    /// Waits until a state satisfies `condition`, and returns that state; see
    /// [`Informer::wait_until`](crate::Informer::wait_until).
    ///
    /// # Errors
    /// The [`EndReason`] if the informer has ended and its last state does not satisfy `condition`.
    pub async fn wait_until(&self, mut condition: impl FnMut(&Snapshot<K>) -> bool) -> Result<Snapshot<K>, EndReason> {
        let mut store = self.clone();
        let mut snapshot = store.look();
        while !condition(&snapshot) {
            // Not held while waiting: it would keep replaced objects in memory.
            drop(snapshot);
            snapshot = store.changed().await?;
        }
        Ok(snapshot)
    }

    /// Returns the current state, and marks it as seen in one step.
    fn look(&mut self) -> Snapshot<K> {
        Snapshot { state: self.now.borrow_and_update().clone(), decoded: Arc::clone(&self.decoded) }
    }
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        let (decoded, informer) = (Arc::clone(&self.decoded), self.informer.clone());
        Self { now: self.now.clone(), decoded, life: self.life.clone(), informer }
    }
}

impl<K> fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(f)
    }
}

/// One state at one version. Cheap to clone. Holding it keeps its objects in memory, including ones replaced since.
///
/// Iteration borrows objects from the snapshot ([`ObjectView`]) and counts no references; lookups return an [`Object`]
/// that outlives it.
pub struct Snapshot<K> {
    state: store::Snapshot,
    decoded: Arc<DecodedObjects<K>>,
}

impl<K> Snapshot<K> {
    /// Returns the object with this key text: `namespace/name`, or `name` for cluster-scoped types. Cost: O(log n).
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Object<K>> {
        self.state.objects.get(key).map(|entry| self.view(entry).to_object())
    }

    /// Returns the object with this namespace, empty for cluster-scoped types, and this name. Cost: O(log n), and the
    /// key text.
    #[must_use]
    pub fn get_named(&self, namespace: &str, name: &str) -> Option<Object<K>> {
        self.get(&key_of(namespace, name))
    }

    /// Returns the object of this reference. Cost: O(log n).
    #[must_use]
    pub fn get_ref(&self, object: &ObjectRef<K>) -> Option<Object<K>> {
        self.get(object.key())
    }

    /// Returns the object with this uid; `None` for an empty one. Cost: O(log n) if the index
    /// [`index::uid`](crate::index::uid) was declared, else a scan over the uids of all objects.
    #[must_use]
    pub fn get_by_uid(&self, uid: &str) -> Option<Object<K>> {
        if uid.is_empty() {
            return None;
        }
        let found = match self.decoded.uid_index() {
            Some(index) => self.state.by(index, uid).next(),
            None => self.state.objects.iter().find(|entry| entry.uid() == uid),
        };
        found.map(|entry| self.view(entry).to_object())
    }

    /// Iterates over all objects, in byte order of their keys.
    #[must_use]
    pub fn iter(&self) -> SnapshotIter<'_, K> {
        SnapshotIter { entries: self.state.objects.iter(), decoded: &self.decoded }
    }

    /// Iterates over the typed objects, in byte order of their keys. Leaves out the objects that do not decode, as
    /// kube's reflector does; [`Stats::undecodable`](crate::Stats::undecodable) counts them.
    ///
    /// Cost: one reference count for each object stored as [`Typed`](crate::Representation::Typed), else
    /// [`Object::decode`]. [`ObjectView::typed`] borrows instead.
    pub fn typed(&self) -> impl Iterator<Item = Arc<K>>
    where
        K: DeserializeOwned + Send + Sync + 'static,
    {
        self.iter().filter_map(|object| object.decode().ok())
    }

    /// Iterates over the objects of one namespace, in byte order of their keys. Cost: O(log n + result).
    pub fn namespace(&self, namespace: &str) -> impl Iterator<Item = ObjectView<'_, K>> {
        self.state.objects.namespace(namespace).map(|entry| self.view(entry))
    }

    /// Iterates over the objects whose labels match, in byte order of their keys. Cost: a scan over the labels of all
    /// objects. [Skipped](Object::is_skipped) objects have no labels.
    pub fn select(&self, labels: &label::Selector) -> impl Iterator<Item = ObjectView<'_, K>> {
        let matching = self.state.objects.iter().filter(|entry| labels.matches(|key| entry.label(key)));
        matching.map(|entry| self.view(entry))
    }

    /// Iterates over the objects that `index` maps to `value`, in byte order of their keys. Cost: O(log n + result).
    ///
    /// # Panics
    /// If the index was declared for another informer, also for another user of a shared copy: an empty result would read
    /// as if there were no such objects.
    #[track_caller]
    pub fn by<'a>(&'a self, index: &Index<K>, value: &'a str) -> impl Iterator<Item = ObjectView<'a, K>> + use<'a, K> {
        let position = index.position_in(&self.decoded);
        self.state.by(position, value).map(|entry| self.view(entry))
    }

    /// Iterates over the last states of all deleted objects that [`linger`](crate::InformerBuilder::linger) keeps, most
    /// recently deleted first. An object that was deleted and created again several times comes once for each deletion.
    pub fn lingering_objects(&self) -> impl Iterator<Item = ObjectView<'_, K>> {
        self.state.lingering_objects().map(|entry| self.view(entry))
    }

    /// Iterates over the last states of deleted objects with this key or uid, most recently deleted first, as long as
    /// [`linger`](crate::InformerBuilder::linger) keeps them. Does not contain a new object that took the key;
    /// [`get`](Self::get) returns that one. Cost: O(log n + result).
    pub fn lingering<'a>(&'a self, key_or_uid: &str) -> impl Iterator<Item = ObjectView<'a, K>> + use<'a, K> {
        self.state.lingering(key_or_uid).map(|entry| self.view(entry))
    }

    /// Iterates over the last states of deleted objects that `index` mapped to `value`, most recently deleted first, as
    /// long as [`linger`](crate::InformerBuilder::linger) keeps them: for example the pod of an exited container. Cost:
    /// O(log n + result).
    ///
    /// # Panics
    /// Like [`by`](Self::by).
    #[track_caller]
    pub fn lingering_by<'a>(
        &'a self,
        index: &Index<K>,
        value: &str,
    ) -> impl Iterator<Item = ObjectView<'a, K>> + use<'a, K> {
        let position = index.position_in(&self.decoded);
        self.state.lingering_by(position, value).map(|entry| self.view(entry))
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

    /// True once initial state has been complete.
    pub(crate) const fn is_synced(&self) -> bool {
        self.state.synced
    }

    const fn view<'a>(&'a self, entry: &'a Arc<store::Entry>) -> ObjectView<'a, K> {
        ObjectView::new(entry, &self.decoded)
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

impl<'a, K> IntoIterator for &'a Snapshot<K> {
    type Item = ObjectView<'a, K>;
    type IntoIter = SnapshotIter<'a, K>;

    fn into_iter(self) -> SnapshotIter<'a, K> {
        self.iter()
    }
}

/// All objects of a [`Snapshot`], in byte order of their keys.
pub struct SnapshotIter<'a, K> {
    entries: ObjectsIter<'a, store::Entry>,
    decoded: &'a Arc<DecodedObjects<K>>,
}

impl<'a, K> Iterator for SnapshotIter<'a, K> {
    type Item = ObjectView<'a, K>;

    fn next(&mut self) -> Option<ObjectView<'a, K>> {
        self.entries.next().map(|entry| ObjectView::new(entry, self.decoded))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl<K> DoubleEndedIterator for SnapshotIter<'_, K> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.entries.next_back().map(|entry| ObjectView::new(entry, self.decoded))
    }
}

impl<K> ExactSizeIterator for SnapshotIter<'_, K> {}

impl<K> FusedIterator for SnapshotIter<'_, K> {}

impl<K> Clone for SnapshotIter<'_, K> {
    fn clone(&self) -> Self {
        Self { entries: self.entries.clone(), decoded: self.decoded }
    }
}

impl<K> fmt::Debug for SnapshotIter<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}
