//! Recent events of one resource type (the window) or of one bucket, as rings that share the events.
//!
//! INVARIANT: resourceVersions strictly increase. INVARIANT: a log holds every event above `lost` that belongs to it.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use informer_core::Time;

use crate::{
    event::Event,
    limits::{Limits, Total},
};

/// Events in order, and the newest evicted position.
#[derive(Debug)]
pub(crate) struct Log {
    events: VecDeque<Arc<Event>>,
    /// Newest evicted position: a reader at `lost` or above misses no event.
    lost: u64,
}

impl Log {
    pub(crate) const fn new(lost: u64) -> Self {
        Self { events: VecDeque::new(), lost }
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }

    pub(crate) fn push(&mut self, event: Arc<Event>) {
        debug_assert!(self.events.back().is_none_or(|last| last.resource_version < event.resource_version));
        self.events.push_back(event);
    }

    /// Evicts the oldest event.
    pub(crate) fn evict(&mut self) -> Option<Arc<Event>> {
        let event = self.events.pop_front()?;
        self.lost = event.resource_version;
        // Shrink after a burst, to half only, so that a steady window does not reallocate.
        if self.events.capacity() > ROOM_KEPT && self.events.len() < self.events.capacity() / 4 {
            self.events.shrink_to(self.events.capacity() / 2);
        }
        Some(event)
    }

    /// Evicts the oldest event if its position is `resource_version`.
    pub(crate) fn evict_at(&mut self, resource_version: u64) {
        if self.oldest().is_some_and(|event| event.resource_version == resource_version) {
            self.evict();
        }
    }

    pub(crate) fn oldest(&self) -> Option<&Arc<Event>> {
        self.events.front()
    }

    /// Returns the event at `resource_version`, if it is still in the log. Cost: O(log n).
    pub(crate) fn get(&self, resource_version: u64) -> Option<&Arc<Event>> {
        let index = self.events.binary_search_by_key(&resource_version, |event| event.resource_version).ok()?;
        self.events.get(index)
    }

    /// Returns the events above `position` in order. Cost: O(log n) to find the first.
    pub(crate) fn after(&self, position: u64) -> impl ExactSizeIterator<Item = &Arc<Event>> {
        self.events.range(self.index_after(position)..)
    }

    /// Returns the events in (`low`, `high`] from the newest to the oldest. Cost: O(log n) to find the first.
    pub(crate) fn back_from(&self, high: u64, low: u64) -> impl Iterator<Item = &Arc<Event>> {
        let high = self.index_after(high);
        self.events.range(self.index_after(low).min(high)..high).rev()
    }

    /// Prepends events that were left out when the log was created: `older` holds all events in (`lost`,
    /// [`Self::lost`]], from the newest to the oldest.
    pub(crate) fn fill_back(&mut self, older: impl Iterator<Item = Arc<Event>>, lost: u64) {
        for event in older {
            self.events.push_front(event);
        }
        self.lost = lost;
    }

    fn index_after(&self, position: u64) -> usize {
        // Fast path: most readers are at or near the head.
        if self.events.back().is_none_or(|last| last.resource_version <= position) {
            return self.events.len();
        }
        self.events.partition_point(|event| event.resource_version <= position)
    }
}

/// Capacity that a log keeps allocated when its events are evicted.
const ROOM_KEPT: usize = 64;

/// The log of all events, and its memory cost.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) log: Log,
    bytes: usize,
    total: Total,
    /// Time at which the newest evicted event was applied.
    lost_at: Option<Time>,
    covers: Option<Duration>,
}

impl Window {
    pub(crate) const fn new(lost: u64, total: Total) -> Self {
        Self { log: Log::new(lost), bytes: 0, total, lost_at: None, covers: None }
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns how far back the window reaches, as of the last [`Self::measure`].
    pub(crate) const fn covers(&self) -> Option<Duration> {
        self.covers
    }

    pub(crate) fn push(&mut self, event: Arc<Event>) {
        let cost = event.cost();
        self.bytes += cost;
        self.total.add(cost);
        self.log.push(event);
    }

    /// Returns true if every bound holds. A single event may exceed the byte and count bounds, but not the age.
    pub(crate) fn fits(&self, limits: &Limits, now: Time) -> bool {
        let Some(oldest) = self.log.oldest() else { return true };
        let small = self.log.len() == 1
            || self.bytes <= limits.window_bytes_max
                && self.log.len() <= limits.window_events_max
                && self.total.bytes() <= limits.window_bytes_total_max;
        small && now.since(oldest.at) <= limits.window_age_max
    }

    /// Returns true if the bounds hold that even open snapshots cannot extend.
    pub(crate) fn fits_snapshots(&self, limits: &Limits) -> bool {
        self.log.len() == 1
            || self.bytes <= limits.snapshot_bytes_max.max(limits.window_bytes_max)
                && self.total.bytes() <= limits.window_bytes_total_max
    }

    pub(crate) fn evict(&mut self) -> Option<Arc<Event>> {
        let event = self.log.evict()?;
        let cost = event.cost();
        self.bytes -= cost;
        self.total.sub(cost);
        self.lost_at = Some(event.at);
        Some(event)
    }

    pub(crate) fn measure(&mut self, now: Time) {
        self.covers = self.lost_at.map(|lost_at| now.since(lost_at));
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.total.sub(self.bytes);
    }
}
