//! Index functions: look up objects by values other than their key, computed once when an object arrives.
//!
//! The functions here are for [`InformerBuilder::index`](crate::InformerBuilder::index) and
//! [`index_each`](crate::InformerBuilder::index_each):
//!
//! ```
//! # use informer::{Cluster, index};
//! # use k8s_openapi::api::core::v1::Pod;
//! # fn declare(cluster: &Cluster) {
//! let mut pods = cluster.informer::<Pod>();
//! let by_node = pods.index(index::node);
//! let by_app = pods.index(index::label("app"));
//! let by_owner = pods.index_each(index::owner_uids);
//! let by_phase = pods.index(index::field("status.phase"));
//! let by_image = pods.index_each(index::fields("spec.containers[].image"));
//! let by_first_letter = pods.index(|pod| pod.name().get(..1).map(Into::into));
//! # }
//! ```
//!
//! The functions of this module decode nothing: they scan the JSON up to the value, about half a nanosecond per byte.

use std::{borrow::Cow, fmt, sync::Arc};

use informer_core::{object, wire::json};

use crate::{decode::DecodedObjects, object::Object};

/// Handle of an index over the [`Snapshot`](crate::Snapshot)s of one informer, for
/// [`Snapshot::by`](crate::Snapshot::by). With snapshots of other informers that panics.
pub struct Index<K> {
    position: usize,
    // Identifies the informer it was declared for: all snapshots of one informer, and no others, share this `Arc`.
    of: Arc<DecodedObjects<K>>,
}

impl<K> Index<K> {
    pub(crate) const fn new(position: usize, of: Arc<DecodedObjects<K>>) -> Self {
        Self { position, of }
    }

    /// Position of the index in the store of this informer.
    #[track_caller]
    pub(crate) fn position_in(&self, informer: &Arc<DecodedObjects<K>>) -> usize {
        assert!(
            Arc::ptr_eq(&self.of, informer),
            "the index was declared for another informer: each one, and each user of a shared copy, has its own"
        );
        self.position
    }
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Self {
        Self { position: self.position, of: Arc::clone(&self.of) }
    }
}

impl<K> fmt::Debug for Index<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("position", &self.position).finish_non_exhaustive()
    }
}

/// The namespace; none for cluster-scoped types. [`Snapshot::namespace`](crate::Snapshot::namespace) returns the same
/// objects without an index.
#[must_use]
pub fn namespace<K>(object: &Object<K>) -> Option<Cow<'_, str>> {
    let namespace = object.namespace();
    (!namespace.is_empty()).then_some(Cow::Borrowed(namespace))
}

/// The node a pod runs on, `spec.nodeName`; none for unscheduled pods.
#[must_use]
pub fn node<K>(object: &Object<K>) -> Option<Cow<'_, str>> {
    object.field("spec.nodeName").filter(|node| !node.is_empty())
}

/// The value of the label `key`.
pub fn label<K>(key: impl Into<String>) -> impl Fn(&Object<K>) -> Option<Cow<'_, str>> + Send + 'static {
    let key = key.into();
    move |object| object.label(&key)
}

/// The scalar at a dotted path such as `status.phase`; see [`Object::field`].
pub fn field<K>(path: impl Into<String>) -> impl Fn(&Object<K>) -> Option<Cow<'_, str>> + Send + 'static {
    let path = path.into();
    move |object| object.field(&path)
}

/// All scalars at a dotted path that enters arrays by `[]`, without empty texts, for
/// [`index_each`](crate::InformerBuilder::index_each): `spec.containers[].image`, `metadata.finalizers[]`,
/// `spec.volumes[].persistentVolumeClaim.claimName`.
pub fn fields<K>(path: impl Into<String>) -> impl Fn(&Object<K>) -> Vec<String> + Send + 'static {
    let path = path.into();
    move |object| fields_of(&object.json(), &path)
}

/// The uid. With this index, [`Snapshot::get_by_uid`](crate::Snapshot::get_by_uid) finds objects in O(log n); it uses
/// the index by itself: `pods.index(index::uid);`.
#[must_use]
pub fn uid<K>(object: &Object<K>) -> Option<Cow<'_, str>> {
    let uid = object.uid();
    (!uid.is_empty()).then_some(Cow::Borrowed(uid))
}

/// The uids of all owners, `metadata.ownerReferences[].uid`.
#[must_use]
pub fn owner_uids<K>(object: &Object<K>) -> Vec<String> {
    fields_of(&object.json(), "metadata.ownerReferences[].uid")
}

/// The uid of the managing owner, the one with `controller: true`; none if no controller manages the object.
#[must_use]
pub fn controller_uid<K>(object: &Object<K>) -> Option<Cow<'_, str>> {
    let json = object.json();
    let owners = member(member(&json, "metadata")?, "ownerReferences")?;
    let managing =
        json::elements(owners).find(|owner| object::field(owner, "controller").as_deref() == Some("true"))?;
    let uid = object::field(managing, "uid").filter(|uid| !uid.is_empty())?;
    Some(Cow::Owned(uid.into_owned()))
}

fn fields_of(json: &[u8], path: &str) -> Vec<String> {
    let mut found = Vec::new();
    object::push_fields(json, path, &mut found);
    found.retain(|value| !value.is_empty());
    found
}

pub(crate) fn member<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    json::members(object).map_while(Result::ok).find(|member| member.key.is(name)).map(|member| member.value)
}
