//! Changes to objects before they are stored.

use std::{any::TypeId, sync::Arc};

use informer_core::store::TransformedObject;
use serde::{Serialize, de::DeserializeOwned};

/// A change to each object before it is stored. Clones are the same change.
#[derive(Clone)]
pub(crate) struct Transform {
    /// Equal for equal changes. `None` if equal functions may be different changes.
    pub(crate) identity: Option<TypeId>,
    pub(crate) change: ChangeFn,
}

/// Returns the changed object, or `None` for an object that does not decode.
type ChangeFn = Arc<dyn Fn(&[u8]) -> Option<TransformedObject> + Send + Sync>;

/// Identity of a cluster's default transform: its declarations share one.
enum ClusterTransform {}

impl Transform {
    /// Creates a change to objects that decode as `K`. It is known by the type of its function, unless that captures
    /// values.
    pub(crate) fn new<K, F>(change: F) -> Self
    where
        F: Fn(&mut K) + Send + Sync + 'static,
        K: DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
    {
        let change = Arc::new(move |json: &[u8]| {
            let (value, json) = changed(&change, json)?;
            Some(TransformedObject { json, value: Some(Arc::new(value)) })
        });
        Self { identity: (size_of::<F>() == 0).then(TypeId::of::<F>), change }
    }

    /// Creates the change that all declarations of a cluster begin with.
    pub(crate) fn of_cluster<T, F>(change: F) -> Self
    where
        F: Fn(&mut T) + Send + Sync + 'static,
        T: DeserializeOwned + Serialize,
    {
        // The declarations' own types are decoded from the JSON.
        let change =
            Arc::new(move |json: &[u8]| Some(TransformedObject { json: changed(&change, json)?.1, value: None }));
        Self { identity: Some(TypeId::of::<ClusterTransform>()), change }
    }

    /// True for the change that all declarations of a cluster begin with.
    pub(crate) fn is_of_cluster(&self) -> bool {
        self.identity == Some(TypeId::of::<ClusterTransform>())
    }
}

/// Returns the changed value, decoded and serialized.
fn changed<T: DeserializeOwned + Serialize>(change: impl Fn(&mut T), json: &[u8]) -> Option<(T, Vec<u8>)> {
    let mut value = serde_json::from_slice(json).ok()?;
    change(&mut value);
    let json = serde_json::to_vec(&value).ok()?;
    Some((value, json))
}
