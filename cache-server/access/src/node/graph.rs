//! References from nodes to objects, by way of pods, volumes and claims. Holds names only.
//!
//! INVARIANT: an object is related to a node as often as it is counted: once for each pod of the node that refers to it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::object::{PodReferences, VolumeReferences, read_node};
use crate::slots::NumberedEntries;

/// A kind of object that relates others to nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeObjectKind {
    /// A Pod: relates what it refers to.
    Pod,
    /// A PersistentVolume: relates itself and its secrets to the nodes of its claim.
    Volume,
    /// A VolumeAttachment: relates itself to its node.
    Attachment,
    /// A ResourceSlice: relates itself to its node.
    Slice,
}

impl NodeObjectKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Pod, Self::Volume, Self::Attachment, Self::Slice];

    /// API group and plural name of the resource.
    #[must_use]
    pub const fn resource(self) -> (&'static str, &'static str) {
        match self {
            Self::Pod => ("", "pods"),
            Self::Volume => ("", "persistentvolumes"),
            Self::Attachment => ("storage.k8s.io", "volumeattachments"),
            Self::Slice => ("resource.k8s.io", "resourceslices"),
        }
    }
}

/// A kind of object that a node may read by its relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ReferencedKind {
    Pod,
    Secret,
    ConfigMap,
    ServiceAccount,
    Claim,
    ResourceClaim,
    Volume,
    Attachment,
    Slice,
}

/// An object that a node may read by its relation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ReferencedObject {
    kind: ReferencedKind,
    namespace: String,
    name: String,
}

impl ReferencedObject {
    pub(crate) fn new(kind: ReferencedKind, namespace: &str, name: &str) -> Self {
        // The namespace in the path of a request for a cluster-scoped object does not count.
        let is_global = matches!(kind, ReferencedKind::Volume | ReferencedKind::Attachment | ReferencedKind::Slice);
        let namespace = if is_global { "" } else { namespace };
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// Number of references from each node, by the node's number. Sorted by number.
type ReferenceCounts = Vec<(u32, u32)>;

/// The references of all nodes.
///
/// Memory: each name once; 4 bytes for each reference of a pod, and 8 bytes for each pair of object and node.
#[derive(Clone, Debug, Default)]
pub struct NodeGraph {
    /// Nodes by name, with the number of objects that refer to them.
    nodes: NumberedEntries<String, u32>,
    objects: NumberedEntries<ReferencedObject, ReferenceCounts>,
    /// References of pods, attachments and slices, by their own numbers.
    placed: HashMap<u32, PlacedObject>,
    volumes: HashMap<String, VolumeReferences>,
    /// Names of the volumes that refer to a secret, by namespace and name of the secret.
    secret_volumes: BTreeMap<(String, String), BTreeSet<String>>,
}

/// An object at a node, and the objects it refers to, itself included.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PlacedObject {
    node: u32,
    references: Box<[u32]>,
}

impl NodeGraph {
    /// Takes over the current state of an object: JSON, as it is stored. Returns true if a relation changed.
    ///
    /// An unreadable object is treated as missing.
    ///
    /// # Errors
    /// The error of the parser.
    pub fn apply(
        &mut self,
        kind: NodeObjectKind,
        namespace: &str,
        name: &str,
        json: &[u8],
    ) -> Result<bool, serde_json::Error> {
        let applied = match kind {
            NodeObjectKind::Pod => PodReferences::read(json, name).map(|pod| self.set_pod(namespace, name, &pod)),
            NodeObjectKind::Volume => VolumeReferences::read(json).map(|volume| self.set_volume(name, volume)),
            NodeObjectKind::Attachment => {
                read_node(json).map(|node| self.place(ReferencedKind::Attachment, name, &node))
            }
            NodeObjectKind::Slice => read_node(json).map(|node| self.place(ReferencedKind::Slice, name, &node)),
        };
        if applied.is_err() {
            self.remove(kind, namespace, name);
        }
        applied
    }

    /// Removes an object. Returns true if a relation changed.
    pub fn remove(&mut self, kind: NodeObjectKind, namespace: &str, name: &str) -> bool {
        match kind {
            NodeObjectKind::Pod => self.set_pod(namespace, name, &PodReferences::default()),
            NodeObjectKind::Volume => self.set_volume(name, None),
            NodeObjectKind::Attachment => self.place(ReferencedKind::Attachment, name, ""),
            NodeObjectKind::Slice => self.place(ReferencedKind::Slice, name, ""),
        }
    }

    /// Returns true if a node may read an object because of its relation.
    pub(crate) fn is_related(&self, node: &str, object: &ReferencedObject) -> bool {
        let Some(node) = self.nodes.number(&node.to_owned()) else { return false };
        if object.kind == ReferencedKind::Volume {
            return self.has_volume(node, &object.name);
        }
        self.has_counted(node, object) || (object.kind == ReferencedKind::Secret && self.has_volume_with(node, object))
    }

    fn has_counted(&self, node: u32, object: &ReferencedObject) -> bool {
        let counts = self.objects.get(object);
        counts.is_some_and(|counts| counts.binary_search_by_key(&node, |&(node, _)| node).is_ok())
    }

    fn has_volume(&self, node: u32, volume: &str) -> bool {
        let claim = self.volumes.get(volume);
        claim.is_some_and(|volume| {
            let claim = ReferencedObject::new(ReferencedKind::Claim, &volume.claim_namespace, &volume.claim_name);
            self.has_counted(node, &claim)
        })
    }

    fn has_volume_with(&self, node: u32, secret: &ReferencedObject) -> bool {
        let volumes = self.secret_volumes.get(&(secret.namespace.clone(), secret.name.clone()));
        volumes.is_some_and(|volumes| volumes.iter().any(|volume| self.has_volume(node, volume)))
    }

    fn set_pod(&mut self, namespace: &str, name: &str, pod: &PodReferences) -> bool {
        let own = ReferencedObject::new(ReferencedKind::Pod, namespace, name);
        let referenced = pod.references.iter().map(|(kind, name)| ReferencedObject::new(*kind, namespace, name));
        let references: BTreeSet<ReferencedObject> = referenced.collect();
        self.set_placed(own, &pod.node, references)
    }

    /// Relates a cluster-scoped object to the node that it names; an empty name relates it to none.
    fn place(&mut self, kind: ReferencedKind, name: &str, node: &str) -> bool {
        self.set_placed(ReferencedObject::new(kind, "", name), node, BTreeSet::new())
    }

    fn set_placed(&mut self, own: ReferencedObject, node: &str, mut references: BTreeSet<ReferencedObject>) -> bool {
        let known = self.objects.number(&own).and_then(|own| self.placed.remove(&own));
        if node.is_empty() {
            if let Some(known) = &known {
                self.release(known);
            }
            return known.is_some();
        }
        references.insert(own.clone());
        let node = self.nodes.number_or_insert(node.to_owned());
        let references = references.into_iter().map(|object| self.objects.number_or_insert(object)).collect();
        let placed = PlacedObject { node, references };
        let changed = known.as_ref() != Some(&placed);
        if changed {
            // The new references are counted before the old ones are released, so that no number is lost between.
            self.count(&placed);
            if let Some(known) = &known {
                self.release(known);
            }
        }
        let own = self.objects.number(&own).expect("a reference to itself");
        self.placed.insert(own, placed);
        changed
    }

    fn count(&mut self, placed: &PlacedObject) {
        *self.nodes.value_mut(placed.node) += 1;
        for &object in &placed.references {
            let counts = self.objects.value_mut(object);
            match counts.binary_search_by_key(&placed.node, |&(node, _)| node) {
                Ok(at) => counts[at].1 += 1,
                Err(at) => counts.insert(at, (placed.node, 1)),
            }
        }
    }

    /// Takes the references back, and removes the names that have none left.
    fn release(&mut self, placed: &PlacedObject) {
        for &object in &placed.references {
            let counts = self.objects.value_mut(object);
            if let Ok(at) = counts.binary_search_by_key(&placed.node, |&(node, _)| node) {
                counts[at].1 -= 1;
                if counts[at].1 == 0 {
                    counts.remove(at);
                }
            }
            if counts.is_empty() {
                self.objects.remove(object);
            }
        }
        let left = self.nodes.value_mut(placed.node);
        *left -= 1;
        if *left == 0 {
            self.nodes.remove(placed.node);
        }
    }

    fn set_volume(&mut self, name: &str, volume: Option<VolumeReferences>) -> bool {
        let known = self.volumes.remove(name);
        let changed = known != volume;
        for secret in known.into_iter().flat_map(|known| known.secrets) {
            if let Some(volumes) = self.secret_volumes.get_mut(&secret) {
                volumes.remove(name);
                if volumes.is_empty() {
                    self.secret_volumes.remove(&secret);
                }
            }
        }
        if let Some(volume) = volume {
            for secret in &volume.secrets {
                self.secret_volumes.entry(secret.clone()).or_default().insert(name.to_owned());
            }
            self.volumes.insert(name.to_owned(), volume);
        }
        changed
    }
}

#[cfg(test)]
impl NodeGraph {
    /// Number of names that are held.
    pub(super) fn len(&self) -> usize {
        self.nodes.iter().count() + self.objects.iter().count() + self.volumes.len() + self.secret_volumes.len()
    }
}
