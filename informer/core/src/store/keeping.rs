//! Settings of a store: transforms, the form of bodies, indexes, and the time for which deleted objects stay readable.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    Entry,
    body::{Body, Value},
};

/// The settings of a [`Store`](super::Store). The default stores JSON as received, without indexes, and drops deleted
/// objects at once.
pub struct StoreConfig {
    /// Changes to each object before it is stored, applied in order.
    pub transforms: Vec<TransformFn>,
    /// The form of the bodies.
    pub represent: Box<dyn Represent>,
    /// Index functions; [`Snapshot::by`](super::Snapshot::by) takes the position in this list.
    pub indexes: Vec<IndexFn>,
    /// Time for which deleted objects stay readable; `None`: no time. At most
    /// [`LINGERING_OBJECTS_MAX`](crate::limits::LINGERING_OBJECTS_MAX) stay.
    pub linger: Option<Duration>,
}

/// Changes an object, passed as JSON, before it is stored; `None` leaves it unchanged.
///
/// The object keeps the name, namespace, uid and version from before the change; its labels are those after it.
pub type TransformFn = Box<dyn FnMut(&[u8]) -> Option<TransformedObject> + Send>;

/// The result of a transform.
pub struct TransformedObject {
    /// Its JSON.
    pub json: Vec<u8>,
    /// The value that this JSON was encoded from, if the transform had decoded it.
    pub value: Option<Arc<dyn Value>>,
}

/// The form in which bodies are stored. May learn from the objects it sees.
pub trait Represent: Send {
    /// Returns the body for `json`; `value` is the decoded object, if a transform had decoded it.
    fn keep(&mut self, json: &[u8], value: Option<Arc<dyn Value>>) -> Body;

    /// Returns true if, since the last call, the form has learned enough to convert earlier [`Body::Json`]s. `complete`
    /// is true once initial state is complete, when no more of it comes to learn from.
    fn learned(&mut self, complete: bool) -> bool;
}

/// Reports the index values of an object, any number of them. Called once per version of an object, with its body as
/// [`Body::Json`], whatever form is stored.
pub type IndexFn = Box<dyn FnMut(&Arc<Entry>, &mut dyn FnMut(&str)) + Send>;

/// Stores bodies as JSON, as received.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json;

impl Represent for Json {
    fn keep(&mut self, json: &[u8], _value: Option<Arc<dyn Value>>) -> Body {
        Body::Json(json.into())
    }

    fn learned(&mut self, _complete: bool) -> bool {
        false
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { transforms: Vec::new(), represent: Box::new(Json), indexes: Vec::new(), linger: None }
    }
}

impl fmt::Debug for StoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeping")
            .field("transforms", &self.transforms.len())
            .field("indexes", &self.indexes.len())
            .field("linger", &self.linger)
            .finish_non_exhaustive()
    }
}
