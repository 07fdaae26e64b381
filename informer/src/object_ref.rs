//! Reference to an object by namespace and name, as keys of queues and lookups.

use std::{cmp::Ordering, fmt, hash, marker::PhantomData};

/// Reference to an object of type `K` by namespace and name. Says nothing about uid, version or existence.
///
/// client-go's key text, controller-runtime's `NamespacedName`, and kube-runtime's `ObjectRef`, to and from which it
/// converts (features `kube-…` and `runtime`).
///
/// ```
/// # use informer::ObjectRef;
/// # use k8s_openapi::api::core::v1::{Node, Pod};
/// let pod = ObjectRef::<Pod>::new("web-0").within("prod");
/// assert_eq!((pod.namespace(), pod.name(), pod.key()), ("prod", "web-0", "prod/web-0"));
/// assert_eq!(ObjectRef::<Pod>::from_key("prod/web-0"), pod);
/// assert_eq!(ObjectRef::<Node>::new("node-1").key(), "node-1");
/// ```
pub struct ObjectRef<K> {
    key: Box<str>,
    of: PhantomData<fn() -> K>,
}

impl<K> ObjectRef<K> {
    /// A cluster-scoped object, or one whose namespace [`within`](Self::within) sets.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::from_key(name)
    }

    /// Sets the namespace. An empty one makes the reference cluster-scoped.
    #[must_use]
    pub fn within(self, namespace: &str) -> Self {
        Self::from_key(&key_of(namespace, self.name()))
    }

    /// The object of a key text: `namespace/name`, or `name` for cluster-scoped types.
    #[must_use]
    pub fn from_key(key: &str) -> Self {
        Self { key: key.into(), of: PhantomData }
    }

    /// `namespace/name`, or `name` for cluster-scoped types, as [`Snapshot::get`](crate::Snapshot::get) takes it.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The namespace; empty for cluster-scoped types.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.key.split_once('/').map_or(&*self.key, |(_, name)| name)
    }
}

/// The key text of an object; an empty namespace means a cluster-scoped one.
pub(crate) fn key_of(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

// The traits are not derived: derives would require them of `K`.
impl<K> Clone for ObjectRef<K> {
    fn clone(&self) -> Self {
        Self { key: self.key.clone(), of: PhantomData }
    }
}

impl<K> PartialEq for ObjectRef<K> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<K> Eq for ObjectRef<K> {}

impl<K> PartialOrd for ObjectRef<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Byte order of keys, as in snapshots.
impl<K> Ord for ObjectRef<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

impl<K> hash::Hash for ObjectRef<K> {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

impl<K> fmt::Display for ObjectRef<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)
    }
}

impl<K> fmt::Debug for ObjectRef<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectRef({})", self.key)
    }
}
