//! A change of one object: as storage tells it, and as the window keeps it.

use std::sync::Arc;

use bytes::Bytes;
use informer_core::Time;

use crate::entry::Entry;

/// What storage tells a cache, in commit order.
#[derive(Clone, Debug)]
pub enum Change {
    /// The object is now this; its own resourceVersion is that of the change.
    Put(Arc<Entry>),
    /// The object is gone.
    Deleted {
        /// `namespace/name` or `name`.
        key: String,
        /// Of the deletion.
        resource_version: u64,
    },
    /// Nothing at or below this resourceVersion is still to come.
    Progress(u64),
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// It was not there before.
    Created,
    /// It was there before with other content.
    Updated,
    /// It is gone.
    Deleted,
}

/// One change, shared by the window, the buckets and whoever is sending it.
#[derive(Debug)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The object after the change; for a deletion, the last one.
    pub object: Arc<Entry>,
    /// The object before the change. `None` for a creation only.
    pub previous: Option<Arc<Entry>>,
    /// Of the change. Above [`Entry::resource_version`] of `object` for a deletion, equal otherwise.
    pub resource_version: u64,
    /// When the cache took it in.
    pub at: Time,
    /// Digits of `resource_version`: shared with `object` where it has them.
    pub(crate) digits: Bytes,
    /// Counts the events of one cache, through all its histories, from one.
    pub(crate) number: u64,
}

impl Event {
    /// An event; decides its kind.
    pub(crate) fn put(number: u64, object: Arc<Entry>, previous: Option<Arc<Entry>>, at: Time) -> Self {
        let kind = if previous.is_some() { EventKind::Updated } else { EventKind::Created };
        let (resource_version, digits) = (object.resource_version(), object.digits());
        Self { kind, object, previous, resource_version, at, digits, number }
    }

    /// The end of `last`.
    pub(crate) fn deleted(number: u64, last: Arc<Entry>, resource_version: u64, at: Time) -> Self {
        let digits = Bytes::copy_from_slice(itoa::Buffer::new().format(resource_version).as_bytes());
        let previous = Some(Arc::clone(&last));
        Self { kind: EventKind::Deleted, object: last, previous, resource_version, at, digits, number }
    }

    /// Bytes that only the window keeps alive: the previous object and the event.
    pub(crate) fn cost(&self) -> usize {
        size_of::<Self>() + EVENT_OVERHEAD + self.previous.as_ref().map_or(0, |previous| previous.cost())
    }
}

/// Reference counts, allocator slack, and a place in the window and in up to three buckets.
const EVENT_OVERHEAD: usize = 64;
