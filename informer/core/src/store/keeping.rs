//! How a store keeps what it is given: what is changed before, the form of the bodies, what objects are found by, and
//! how long deleted ones stay.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    Entry,
    body::{Body, Value},
};

/// The settings of a [`Store`](super::Store). `Default` keeps JSON as it comes, without indexes, and deleted objects
/// not at all.
pub struct Keeping {
    /// What happens to each object before it is kept, in order.
    pub transforms: Vec<TransformFn>,
    /// The form of the bodies.
    pub represent: Box<dyn Represent>,
    /// What objects are found by; [`Snapshot::by`](super::Snapshot::by) takes the position in this list.
    pub indexes: Vec<IndexFn>,
    /// How long deleted objects stay readable; `None` not at all. Of them stay at most
    /// [`LINGERING_OBJECTS_MAX`](crate::limits::LINGERING_OBJECTS_MAX).
    pub linger: Option<Duration>,
}

/// Changes an object, given as JSON, before it is kept; `None` leaves it as it is.
///
/// The names of the object, its uid and its version are those it had before; its labels are those it has after.
pub type TransformFn = Box<dyn FnMut(&[u8]) -> Option<Transformed> + Send>;

/// An object as a transform left it.
pub struct Transformed {
    /// Its JSON.
    pub json: Vec<u8>,
    /// What that JSON was made from, where the transform had it decoded.
    pub value: Option<Arc<dyn Value>>,
}

/// The form in which bodies are kept. May learn from what it sees.
pub trait Represent: Send {
    /// The body of the object that `json` is; `value` is the same object decoded, where a transform had it so.
    fn keep(&mut self, json: &[u8], value: Option<Arc<dyn Value>>) -> Body;

    /// Whether something was learned since this was asked last that makes it worth keeping [`Body::Json`]s of before
    /// once more. `complete` says that initial state is: nothing more of it comes to learn from.
    fn learned(&mut self, complete: bool) -> bool;
}

/// Tells the values by which an object is found, any number of them. Called once for each version of an object, with
/// its body as [`Body::Json`], whatever form it is kept in.
pub type IndexFn = Box<dyn FnMut(&Arc<Entry>, &mut dyn FnMut(&str)) + Send>;

/// Bodies as JSON, as they come.
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

impl Default for Keeping {
    fn default() -> Self {
        Self { transforms: Vec::new(), represent: Box::new(Json), indexes: Vec::new(), linger: None }
    }
}

impl fmt::Debug for Keeping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeping")
            .field("transforms", &self.transforms.len())
            .field("indexes", &self.indexes.len())
            .field("linger", &self.linger)
            .finish_non_exhaustive()
    }
}
