//! What one informer has done so far, as plain numbers.

use std::time::Duration;

use informer_core::stats;

/// Counts of one informer since its start. Numbers only grow.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// What the reflector counts: requests, relists by cause, fallbacks, failures by class, objects, bookmarks.
    pub reflector: stats::Stats,
    /// Body bytes of accepted answers, as received.
    pub bytes_received: u64,
    /// Objects without readable name or resourceVersion. They are not in the store.
    pub unreadable: u64,
    /// From the request to its first object, for the first request that brought one.
    pub first_object_after: Option<Duration>,
    /// From the start to the first complete initial state.
    pub synced_after: Option<Duration>,
}
