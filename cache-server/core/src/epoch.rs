//! One history of a cache, from one listing of the storage to the next, and which of its positions are still needed.
//!
//! INVARIANT: a snapshot opened at a position either keeps the events after it in the window, or is cut.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use informer_core::Time;
use parking_lot::Mutex;

use crate::limits::HELD_POSITIONS_MAX;

/// One history. What is positioned in it holds it, so a position is never read in another.
#[derive(Debug)]
pub(crate) struct Epoch {
    /// Counts from one; zero is the time before the first listing.
    pub(crate) number: u64,
    /// No other history in this process has it, of whatever cache.
    pub(crate) id: u64,
    /// Set under the state's write lock, so who parks under the read lock has seen it or will be woken.
    ended: AtomicBool,
    /// Snapshots below this position are cut. Only grows.
    cut: AtomicU64,
    needs: Mutex<Needs>,
}

#[derive(Debug, Default)]
struct Needs {
    /// Open snapshots by position.
    open: BTreeMap<u64, usize>,
    /// Positions kept for a next page, and until when.
    held: BTreeMap<u64, Time>,
}

/// A snapshot's share in the window. Dropping it lets the events go.
#[derive(Debug)]
pub(crate) struct Pin {
    epoch: Arc<Epoch>,
    position: u64,
}

static HISTORIES: AtomicU64 = AtomicU64::new(0);

impl Epoch {
    pub(crate) fn new(number: u64) -> Arc<Self> {
        Arc::new(Self {
            number,
            id: HISTORIES.fetch_add(1, Ordering::Relaxed),
            ended: AtomicBool::new(false),
            cut: AtomicU64::new(0),
            needs: Mutex::new(Needs::default()),
        })
    }

    /// Marks the end. The caller holds the state's write lock and wakes everybody afterwards.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Opens a snapshot at `position`. The caller holds the state's lock, so nothing is evicted in between.
    pub(crate) fn pin(self: &Arc<Self>, position: u64) -> Arc<Pin> {
        *self.needs.lock().open.entry(position).or_default() += 1;
        Arc::new(Pin { epoch: Arc::clone(self), position })
    }

    /// Keeps `position` until `until`. Above the limit, what would end first goes.
    pub(crate) fn hold(&self, position: u64, until: Time) {
        let held = &mut self.needs.lock().held;
        let entry = held.entry(position).or_insert(until);
        *entry = until.max(*entry);
        if held.len() > HELD_POSITIONS_MAX {
            let first = held.iter().min_by_key(|&(_, until)| *until).map(|(&position, _)| position);
            held.remove(&first.expect("more than the limit is more than none"));
        }
    }

    /// The oldest position that somebody still needs at `now`. Cost: O(log n), for it is asked for every evicted event:
    /// held positions whose time is over go when they are the oldest.
    pub(crate) fn oldest_needed(&self, now: Time) -> Option<u64> {
        let needs = &mut *self.needs.lock();
        while let Some(first) = needs.held.first_entry().filter(|first| *first.get() <= now) {
            first.remove();
        }
        let open = needs.open.first_key_value().map(|(&position, _)| position);
        let held = needs.held.first_key_value().map(|(&position, _)| position);
        open.into_iter().chain(held).min()
    }

    /// Gives up every position below `position`, whose event is about to go.
    pub(crate) fn cut_below(&self, position: u64) {
        self.cut.fetch_max(position, Ordering::AcqRel);
        let needs = &mut *self.needs.lock();
        needs.open = needs.open.split_off(&position);
        needs.held = needs.held.split_off(&position);
    }
}

impl Pin {
    pub(crate) fn is_cut(&self) -> bool {
        self.position < self.epoch.cut.load(Ordering::Acquire)
    }

    pub(crate) const fn epoch(&self) -> &Arc<Epoch> {
        &self.epoch
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let open = &mut self.epoch.needs.lock().open;
        // A cut position is not there any more.
        if let Some(count) = open.get_mut(&self.position) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.position);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Time {
        Time(Duration::from_secs(seconds))
    }

    #[test]
    fn the_oldest_open_snapshot_or_held_page_counts() {
        let epoch = Epoch::new(1);
        let (first, again, later) = (epoch.pin(5), epoch.pin(5), epoch.pin(9));
        epoch.hold(7, at(75));
        assert_eq!(epoch.oldest_needed(at(0)), Some(5));
        drop(first);
        assert_eq!(epoch.oldest_needed(at(0)), Some(5));
        drop(again);
        assert_eq!(epoch.oldest_needed(at(74)), Some(7));
        assert_eq!(epoch.oldest_needed(at(75)), Some(9));
        drop(later);
        assert_eq!(epoch.oldest_needed(at(75)), None);
    }

    #[test]
    fn a_cut_leaves_newer_snapshots_alone() {
        let epoch = Epoch::new(1);
        let (old, new) = (epoch.pin(5), epoch.pin(9));
        epoch.cut_below(8);
        assert!(old.is_cut() && !new.is_cut());
        assert_eq!(epoch.oldest_needed(at(0)), Some(9));
        drop(old);
        let same_place_again = epoch.pin(9);
        drop(new);
        assert_eq!(epoch.oldest_needed(at(0)), Some(9));
        drop(same_place_again);
    }

    #[test]
    fn held_positions_are_bounded() {
        let epoch = Epoch::new(1);
        for position in 1..=u64::try_from(HELD_POSITIONS_MAX).expect("small") + 3 {
            epoch.hold(position, at(position));
        }
        assert_eq!(epoch.needs.lock().held.len(), HELD_POSITIONS_MAX);
        assert_eq!(epoch.oldest_needed(at(0)), Some(4), "what would end first went");
    }
}
