//! The counters of a cache, as plain numbers that are read at each scrape.

use std::time::Duration;

/// Counters and gauges of one resource type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Current number of objects.
    pub objects: usize,
    /// Memory of the objects, in bytes, as [`Entry::cost`](crate::Entry::cost) counts it.
    pub object_bytes: usize,
    /// Newest applied position.
    pub applied: u64,
    /// Number of epochs; the first listing starts the first one.
    pub epochs: u64,
    /// Events applied since the start.
    pub events: u64,
    /// Events in the window.
    pub window_events: usize,
    /// Bytes charged to the window.
    pub window_bytes: usize,
    /// Time that the window covers; `None` before the first eviction.
    pub window_covers: Option<Duration>,
    /// Buckets with watchers, not counting the window itself.
    pub buckets: usize,
    /// Cursors in their initial state.
    pub watchers_initial: u64,
    /// Cursors that are scanning unread events.
    pub watchers_catching_up: u64,
    /// Cursors with unread events whose batch is full: slow clients, if the number stays up.
    pub watchers_parked: u64,
    /// Cursors that had no unread event at their last step.
    pub watchers_live: u64,
    /// Cursors that fell behind the window.
    pub watchers_expired: u64,
    /// LISTs that were cut because the events they kept reached
    /// [`Limits::snapshot_bytes_max`](crate::Limits::snapshot_bytes_max).
    pub lists_cut_for_bytes: u64,
    /// LISTs that were cut because they took longer than [`Limits::read_time_max`](crate::Limits::read_time_max).
    pub lists_cut_for_time: u64,
    /// Initial streams that were cut because of the bytes they kept.
    pub streams_cut_for_bytes: u64,
    /// Initial streams that were cut because they were slower than
    /// [`Limits::stream_rate_min`](crate::Limits::stream_rate_min) after
    /// [`Limits::read_time_max`](crate::Limits::read_time_max).
    pub streams_cut_for_time: u64,
    /// Evaluations of selectors against an event: one for all watches with equal selectors, if they keep up.
    pub selector_evaluations: u64,
}

impl CacheStats {
    /// Returns the number of open cursors that are not over.
    #[must_use]
    pub const fn watchers(&self) -> u64 {
        self.watchers_initial + self.watchers_catching_up + self.watchers_parked + self.watchers_live
    }
}
