//! Recent events of one resource type (the window) or of one bucket, as rings that share the events.
//!
//! INVARIANT: event numbers strictly increase, and resourceVersions never decrease: the events of one revision have
//! consecutive numbers. INVARIANT: a log holds every event after number `evicted` that belongs to it. A revision may be
//! evicted in part; then only readers that have read the evicted part of it find the rest.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use informer_core::Time;

use crate::{
    event::Event,
    limits::{Limits, Total},
};

/// Events in order, and the newest evicted event.
#[derive(Debug)]
pub(crate) struct Log {
    events: VecDeque<Arc<Event>>,
    /// Revision of the newest evicted event: a reader of all events at or below it misses no event.
    lost: u64,
    /// Number of the newest evicted event: a reader of it and all events before it misses no event.
    evicted: u64,
}

impl Log {
    pub(crate) const fn new(lost: u64, evicted: u64) -> Self {
        Self { events: VecDeque::new(), lost, evicted }
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }

    pub(crate) const fn evicted(&self) -> u64 {
        self.evicted
    }

    pub(crate) fn push(&mut self, event: Arc<Event>) {
        debug_assert!(
            self.events
                .back()
                .is_none_or(|last| { last.number < event.number && last.resource_version <= event.resource_version })
        );
        self.events.push_back(event);
    }

    /// Evicts the oldest event.
    pub(crate) fn evict(&mut self) -> Option<Arc<Event>> {
        let event = self.events.pop_front()?;
        (self.lost, self.evicted) = (event.resource_version, event.number);
        // Shrink after a burst, to half only, so that a steady window does not reallocate.
        if self.events.capacity() > ROOM_KEPT && self.events.len() < self.events.capacity() / 4 {
            self.events.shrink_to(self.events.capacity() / 2);
        }
        Some(event)
    }

    /// Evicts the oldest event if it has this number.
    pub(crate) fn evict_number(&mut self, number: u64) {
        if self.oldest().is_some_and(|event| event.number == number) {
            self.evict();
        }
    }

    pub(crate) fn oldest(&self) -> Option<&Arc<Event>> {
        self.events.front()
    }

    /// Returns the event with this number, if it is still in the log. Cost: O(log n).
    pub(crate) fn get(&self, number: u64) -> Option<&Arc<Event>> {
        let index = self.events.binary_search_by_key(&number, |event| event.number).ok()?;
        self.events.get(index)
    }

    /// Returns the number of the last event at or below `revision`: a reader of it has read that revision as a whole,
    /// as far as it was applied. Only for revisions at or above [`Self::lost`]. Cost: O(log n).
    pub(crate) fn number_at(&self, revision: u64) -> u64 {
        let is_read = |event: &Arc<Event>| event.resource_version <= revision;
        let last = match self.events.back() {
            Some(last) if !is_read(last) => {
                let count = self.events.partition_point(is_read);
                count.checked_sub(1).and_then(|index| self.events.get(index))
            }
            last => last,
        };
        last.map_or(self.evicted, |event| event.number)
    }

    /// Returns the events after `number` in order. Cost: O(log n) to find the first.
    pub(crate) fn after(&self, number: u64) -> impl ExactSizeIterator<Item = &Arc<Event>> {
        self.events.range(self.index_after(number)..)
    }

    /// Returns the events numbered in (`low`, `high`] from the newest to the oldest. Cost: O(log n) to find the first.
    pub(crate) fn back_from(&self, high: u64, low: u64) -> impl Iterator<Item = &Arc<Event>> {
        let high = self.index_after(high);
        self.events.range(self.index_after(low).min(high)..high).rev()
    }

    /// Prepends events that were left out when the log was created: `older` holds all events numbered in (`evicted`,
    /// [`Self::evicted`]], from the newest to the oldest. `lost` is a revision whose reader has read `evicted`.
    pub(crate) fn fill_back(&mut self, older: impl Iterator<Item = Arc<Event>>, lost: u64, evicted: u64) {
        for event in older {
            self.events.push_front(event);
        }
        (self.lost, self.evicted) = (lost, evicted);
    }

    fn index_after(&self, number: u64) -> usize {
        // Fast path: most readers are at or near the head.
        if self.events.back().is_none_or(|last| last.number <= number) {
            return self.events.len();
        }
        self.events.partition_point(|event| event.number <= number)
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
    pub(crate) const fn new(lost: u64, evicted: u64, total: Total) -> Self {
        Self { log: Log::new(lost, evicted), bytes: 0, total, lost_at: None, covers: None }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Draft, Schema};

    /// Events by revision: two at 3, one at 5, three at 6, and a listing at 2 before them.
    const REVISIONS: [u64; 6] = [3, 3, 5, 6, 6, 6];

    /// Returns the events of `REVISIONS`, numbered from 11.
    fn events() -> Vec<Arc<Event>> {
        let (kind, api_version) = ("ConfigMap".to_owned(), "v1".to_owned());
        let schema = Schema { kind, api_version, builtin: true, fields: Vec::new(), node_field: None };
        let entry = |(index, &revision): (usize, &u64)| {
            let object = format!(r#"{{"metadata":{{"name":"o{index}"}}}}"#);
            let entry = Draft::new(&schema, object.as_bytes()).expect("an object").commit(revision);
            Arc::new(Event::put(11 + index as u64, entry, None, Time::ZERO))
        };
        REVISIONS.iter().enumerate().map(entry).collect()
    }

    fn numbers<'a>(events: impl Iterator<Item = &'a Arc<Event>>) -> Vec<u64> {
        events.map(|event| event.number).collect()
    }

    /// Goal: a position is after all events of its revision. Method: every revision and every number, for every number
    /// of evicted events.
    #[test]
    fn a_position_is_never_between_the_events_of_one_revision() {
        for evicted in 0..=REVISIONS.len() {
            let mut log = Log::new(2, 10);
            events().into_iter().for_each(|event| log.push(event));
            (0..evicted).for_each(|_| assert!(log.evict().is_some()));
            let evicted_number = 10 + evicted as u64;
            let lost = evicted.checked_sub(1).map_or(2, |last| REVISIONS[last]);
            assert_eq!((log.lost(), log.evicted(), log.len()), (lost, evicted_number, REVISIONS.len() - evicted));
            for revision in lost..=8 {
                let up_to = REVISIONS.iter().filter(|&&at| at <= revision).count().max(evicted) as u64;
                assert_eq!(log.number_at(revision), 10 + up_to, "at {revision} without {evicted}");
            }
            for number in evicted_number..=18 {
                let expected: Vec<u64> = (number + 1..=16).collect();
                assert_eq!(numbers(log.after(number)), expected, "after {number} without {evicted}");
                let back: Vec<u64> = (evicted_number + 1..=number.min(16)).rev().collect();
                assert_eq!(numbers(log.back_from(number, 0)), back, "back from {number} without {evicted}");
                let is_retained = evicted_number < number && number <= 16;
                assert_eq!(log.get(number).map(|event| event.number), is_retained.then_some(number));
            }
        }
    }

    /// Goal: eviction by number leaves the other events of the revision. Method: a log that lacks some of them.
    #[test]
    fn a_part_of_a_revision_is_evicted_by_number() {
        let all = events();
        let mut log = Log::new(5, 13);
        log.push(Arc::clone(&all[4]));
        log.push(Arc::clone(&all[5]));
        log.evict_number(14);
        assert_eq!((log.lost(), log.evicted(), log.len()), (5, 13, 2), "another bucket's event");
        log.evict_number(15);
        assert_eq!((log.lost(), log.evicted(), log.len()), (6, 15, 1));
        assert_eq!(numbers(log.after(15)), [16]);
        let mut late = Log::new(u64::MAX, u64::MAX);
        late.fill_back(all[2..].iter().rev().cloned(), 3, 12);
        assert_eq!((late.lost(), late.evicted(), numbers(late.after(12))), (3, 12, vec![13, 14, 15, 16]));
    }
}
