//! What a cache counts. Plain numbers; whoever reports them reads them at scrape.

use std::time::Duration;

/// Counters and gauges of one resource type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Objects now.
    pub objects: usize,
    /// Newest position taken in.
    pub applied: u64,
    /// Times the history began again; the first listing is one.
    pub epochs: u64,
    /// Events taken in since the start.
    pub events: u64,
    /// Events in the window.
    pub window_events: usize,
    /// Bytes charged to the window.
    pub window_bytes: usize,
    /// How far back the window reaches; `None` while nothing was evicted.
    pub window_covers: Option<Duration>,
    /// Buckets that somebody watches, without the one of all.
    pub buckets: usize,
    /// Cursors in their initial state.
    pub watchers_initial: u64,
    /// Cursors with something unread that are on their way to it.
    pub watchers_catching_up: u64,
    /// Cursors with something unread that gave out a batch and were not asked for more: slow clients, if it stays so.
    pub watchers_parked: u64,
    /// Cursors that had nothing unread when they looked last.
    pub watchers_live: u64,
    /// Cursors that fell behind the window.
    pub watchers_expired: u64,
    /// LISTs that were cut because what they kept reached [`Limits::snapshot_bytes_max`](crate::Limits::snapshot_bytes_max).
    pub lists_cut_for_bytes: u64,
    /// LISTs that were cut because they took longer than [`Limits::read_time_max`](crate::Limits::read_time_max).
    pub lists_cut_for_time: u64,
    /// Initial streams that were cut because of what they kept.
    pub streams_cut_for_bytes: u64,
    /// Initial streams that were cut because they were slower than
    /// [`Limits::stream_rate_min`](crate::Limits::stream_rate_min) for that long.
    pub streams_cut_for_time: u64,
    /// Times that the selectors of a watch were asked about an event: once for all watches with equal ones, if they keep
    /// up.
    pub selectors_asked: u64,
}

impl Stats {
    /// Cursors that are open and not over.
    #[must_use]
    pub const fn watchers(&self) -> u64 {
        self.watchers_initial + self.watchers_catching_up + self.watchers_parked + self.watchers_live
    }
}
