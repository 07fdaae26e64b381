//! A change of one object: as the storage delivers it, and as the window keeps it.

use std::sync::Arc;

use bytes::Bytes;
use informer_core::Time;

use crate::entry::Entry;

/// A change delivered by the storage, in commit order.
#[derive(Clone, Debug)]
pub enum Change {
    /// The object has this new value, whose resourceVersion is the position of the change.
    Put(Arc<Entry>),
    /// The object was deleted.
    Deleted {
        /// `namespace/name` or `name`.
        key: String,
        /// Position of the deletion.
        resource_version: u64,
    },
    /// All changes at or below this resourceVersion were delivered.
    Progress(u64),
}

impl Change {
    /// Returns the position of the change. Changes of one transaction have equal positions.
    #[must_use]
    pub fn resource_version(&self) -> u64 {
        match self {
            Self::Put(entry) => entry.resource_version(),
            Self::Deleted { resource_version, .. } | Self::Progress(resource_version) => *resource_version,
        }
    }
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// The object did not exist before.
    Created,
    /// The object existed before with other content.
    Updated,
    /// The object was deleted.
    Deleted,
}

/// One change, shared by the window, the buckets and the responses that contain it.
#[derive(Debug)]
pub struct Event {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// The object after the change; for a deletion, the last value.
    pub object: Arc<Entry>,
    /// The object before the change. `None` only for a creation.
    pub previous: Option<Arc<Entry>>,
    /// Position of the change. Greater than [`Entry::resource_version`] of `object` for a deletion, equal otherwise.
    /// Not unique: a transaction changes many objects at one position.
    pub resource_version: u64,
    /// Time at which the cache applied it.
    pub at: Time,
    /// Digits of `resource_version`, shared with `object` unless it is a deletion.
    pub(crate) digits: Bytes,
    /// Number of the event in its cache, across all epochs, from one. Unique, ascending and without gaps.
    pub(crate) number: u64,
}

impl Event {
    /// Creates a `Created` event, or an `Updated` one if there is a previous value.
    pub(crate) fn put(number: u64, object: Arc<Entry>, previous: Option<Arc<Entry>>, at: Time) -> Self {
        let kind = if previous.is_some() { ChangeKind::Updated } else { ChangeKind::Created };
        let (resource_version, digits) = (object.resource_version(), object.digits());
        Self { kind, object, previous, resource_version, at, digits, number }
    }

    /// Creates the deletion of `last`.
    pub(crate) fn deleted(number: u64, last: Arc<Entry>, resource_version: u64, at: Time) -> Self {
        let digits = Bytes::copy_from_slice(itoa::Buffer::new().format(resource_version).as_bytes());
        let previous = Some(Arc::clone(&last));
        Self { kind: ChangeKind::Deleted, object: last, previous, resource_version, at, digits, number }
    }

    /// Bytes that only the window keeps alive: the previous object and the event.
    pub(crate) fn cost(&self) -> usize {
        size_of::<Self>() + EVENT_OVERHEAD + self.previous.as_ref().map_or(0, |previous| previous.cost())
    }
}

/// Reference counts, allocator slack, and a slot in the window and in up to three buckets.
const EVENT_OVERHEAD: usize = 64;
