//! Deleted objects that stay readable for a while.
//!
//! INVARIANT: each is found by its number, its key, its uid and each of its index values, and is in the queue once; the
//! queue is ordered by expiry.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use imbl::OrdMap;

use super::Entry;
use crate::{limits::LINGERING_OBJECTS_MAX, time::Time};

/// The deleted objects of one state. Cloning costs one reference count.
///
/// Memory: for each object its last version, its key and uid twice, and its index values twice.
#[derive(Clone, Debug, Default)]
pub(super) struct LingeringObjects {
    // In order of deletion.
    by_number: OrdMap<u64, Arc<Entry>>,
    // By key and by uid, in order of deletion.
    by_name: OrdMap<(Arc<str>, u64), Arc<Entry>>,
    // By index and value, in order of deletion as well: several objects with one key may share a value.
    by_value: OrdMap<(u16, Arc<str>, u64), Arc<Entry>>,
}

/// Expiry of the deleted objects.
#[derive(Debug)]
pub(super) struct LingerQueue {
    linger: Duration,
    queue: VecDeque<LingerExpiry>,
    // Number of deletions so far. Distinguishes objects with the same name.
    count: u64,
}

#[derive(Debug)]
struct LingerExpiry {
    at: Time,
    number: u64,
    entry: Arc<Entry>,
}

/// Upper bound of the time that an object may stay beyond its expiry.
const SLACK_MAX: Duration = Duration::from_millis(500);

impl LingeringObjects {
    /// Returns all objects, the last deleted first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.by_number.values().rev()
    }

    /// Returns the objects with this key or uid, the last deleted first. Cost: O(log n + result).
    pub(super) fn of<'a>(&'a self, key_or_uid: &str) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        let name: Arc<str> = key_or_uid.into();
        let range = (Arc::clone(&name), 0)..=(name, u64::MAX);
        self.by_name.range(range).rev().map(|(_, entry)| entry)
    }

    /// Returns the objects with `value` in this index, the last deleted first. Cost: O(log n + result).
    pub(super) fn by<'a>(&'a self, index: usize, value: &str) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        let found = u16::try_from(index).ok().map(|index| {
            let value: Arc<str> = value.into();
            self.by_value.range((index, Arc::clone(&value), 0)..=(index, value, u64::MAX))
        });
        found.into_iter().flatten().rev().map(|(_, entry)| entry)
    }

    fn add(&mut self, number: u64, entry: &Arc<Entry>) {
        self.by_number.insert(number, Arc::clone(entry));
        for name in names(entry) {
            self.by_name.insert((name.into(), number), Arc::clone(entry));
        }
        for tag in entry.tags() {
            self.by_value.insert((tag.index, entry.value(tag).into(), number), Arc::clone(entry));
        }
    }

    fn remove(&mut self, number: u64, entry: &Entry) {
        self.by_number.remove(&number);
        for name in names(entry) {
            self.by_name.remove(&(name.into(), number));
        }
        for tag in entry.tags() {
            self.by_value.remove(&(tag.index, entry.value(tag).into(), number));
        }
    }
}

fn names(entry: &Entry) -> impl Iterator<Item = &str> {
    [entry.key(), entry.uid()].into_iter().filter(|name| !name.is_empty())
}

impl LingerQueue {
    pub(super) const fn new(linger: Duration) -> Self {
        Self { linger, queue: VecDeque::new(), count: 0 }
    }

    /// Adds `entry`, deleted at `now`. At the limit, the object deleted first is released.
    pub(super) fn add(&mut self, now: Time, entry: &Arc<Entry>, lingering: &mut LingeringObjects) {
        if self.queue.len() >= LINGERING_OBJECTS_MAX {
            self.remove_first(lingering);
        }
        self.count += 1;
        lingering.add(self.count, entry);
        self.queue.push_back(LingerExpiry { at: now + self.linger, number: self.count, entry: Arc::clone(entry) });
    }

    /// Releases the objects whose time is over. Returns true if there were any.
    pub(super) fn expire(&mut self, now: Time, lingering: &mut LingeringObjects) -> bool {
        let before = self.queue.len();
        while self.queue.front().is_some_and(|end| end.at <= now) {
            self.remove_first(lingering);
        }
        self.queue.len() < before
    }

    /// Returns when to expire objects next. Slightly after the first expiry, so that a thousand objects deleted in
    /// sequence do not wake readers a thousand times.
    pub(super) fn next(&self) -> Option<Time> {
        let slack = (self.linger / 8).min(SLACK_MAX);
        self.queue.front().map(|end| end.at + slack)
    }

    fn remove_first(&mut self, lingering: &mut LingeringObjects) {
        if let Some(end) = self.queue.pop_front() {
            lingering.remove(end.number, &end.entry);
        }
    }
}
