//! One epoch of a cache, from one listing of the storage to the next, and the positions that its readers still need.
//!
//! A position here is the number of an event: a reader at it needs the events after that one. Revisions would not do,
//! because a snapshot may be taken between two changes of one revision.
//!
//! INVARIANT: a snapshot opened at a position either keeps the events after it in the window or is cut. The slowest
//! readers, which are at the oldest positions, are cut first. INVARIANT: a reader that exceeded its time keeps no
//! event that the window would evict otherwise; a slow reader is cut only when the window must move past it.

mod holders;
mod pin;

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use informer_core::Time;

pub use self::holders::{HoldKind, WindowHolder};
use self::pin::PinnedState;
pub(crate) use self::pin::{CutCounts, CutReader, FrozenState, Pin};
use crate::{
    limits::{HELD_POSITIONS_MAX, Limits, RESUMED_WITHIN},
    sync::{Mutex, UNDER_STATE},
};

/// One epoch. Every positioned value holds an `Arc` of its epoch, so a position is never used in another one.
#[derive(Debug)]
pub(crate) struct Epoch {
    /// Starts at one; zero is the time before the first listing.
    pub(crate) number: u64,
    /// Unique in this process, across all caches.
    pub(crate) id: u64,
    /// Set under the state's write lock: a watcher that parks under the read lock has seen it or will be woken.
    ended: AtomicBool,
    needs: Mutex<Needs, UNDER_STATE>,
}

/// A position held for the next page of a list.
#[derive(Clone, Copy, Debug)]
struct HeldPosition {
    until: Time,
    /// The first one to hold it.
    owner: u64,
}

/// Readers by position and reader number.
type Readers = BTreeMap<(u64, u64), Open>;

#[derive(Debug, Default)]
struct Needs {
    /// Snapshots that keep the events after their position.
    open: Readers,
    /// Readers that exceeded their time and keep no events.
    late: Readers,
    /// Positions held for the next page of a list.
    held: BTreeMap<u64, HeldPosition>,
    /// Oldest position that a slow reader may resume from, by the second at which the grace period ends.
    returning: BTreeMap<u64, u64>,
    /// Number of readers so far.
    numbers: u64,
    /// Time of the last scan for overdue readers.
    looked: Option<Time>,
}

/// One open snapshot.
#[derive(Debug)]
struct Open {
    held: Arc<PinnedState>,
    /// Time of the first scan that saw it.
    since: Option<Time>,
    owner: u64,
}

static HISTORIES: AtomicU64 = AtomicU64::new(0);

/// Minimum time between two scans for overdue readers. A scan costs some nanoseconds per open snapshot.
const LOOK_PAUSE: Duration = Duration::from_millis(250);

impl Epoch {
    pub(crate) fn new(number: u64) -> Arc<Self> {
        Arc::new(Self {
            number,
            id: HISTORIES.fetch_add(1, Ordering::Relaxed),
            ended: AtomicBool::new(false),
            needs: Mutex::default(),
        })
    }

    /// Marks the epoch as ended. The caller holds the state's write lock and wakes all watchers afterwards.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Opens a snapshot at `position`. The caller holds the state's lock, so no event is evicted in between.
    pub(crate) fn pin(self: &Arc<Self>, position: u64, owner: u64) -> Arc<Pin> {
        let held = Arc::<PinnedState>::default();
        let needs = &mut *self.needs.lock();
        needs.numbers += 1;
        let number = needs.numbers;
        needs.open.insert((position, number), Open { held: Arc::clone(&held), since: None, owner });
        Arc::new(Pin::new(Arc::clone(self), position, number, held))
    }

    /// Closes a snapshot. A slow reader that finished keeps its position for as long as it took (at most
    /// [`RESUMED_WITHIN`]), so that its next watch can resume.
    fn unpin(&self, position: u64, number: u64) {
        let needs = &mut *self.needs.lock();
        // A reader that was cut is in neither map.
        let Some(open) = needs.open.remove(&(position, number)).or_else(|| needs.late.remove(&(position, number)))
        else {
            return;
        };
        // Readers that no scan saw were fast (under `LOOK_PAUSE`) and keep nothing: ordinary lists must not lengthen
        // the window.
        if let Some((since, now)) = open.since.zip(needs.looked).filter(|_| open.held.is_done()) {
            let until = now + now.since(since).min(RESUMED_WITHIN);
            let oldest = needs.returning.entry(until.0.as_secs()).or_insert(position);
            *oldest = position.min(*oldest);
        }
    }

    /// Keeps `position` until `until`. Above `HELD_POSITIONS_MAX`, the owner of most positions loses the one with the
    /// earliest deadline.
    pub(crate) fn hold(&self, position: u64, until: Time, owner: u64) {
        let held = &mut self.needs.lock().held;
        let entry = held.entry(position).or_insert(HeldPosition { until, owner });
        entry.until = until.max(entry.until);
        if held.len() > HELD_POSITIONS_MAX {
            let largest = largest_owner(held.values().map(|one| one.owner));
            let of_largest = held.iter().filter(|(_, one)| one.owner == largest);
            let first = of_largest.min_by_key(|(_, one)| one.until).map(|(&position, _)| position);
            held.remove(&first.expect("more than the limit is more than none"));
        }
    }

    /// Scans for overdue readers if a scan is due. Call whenever time passes.
    pub(crate) fn look(&self, now: Time, limits: &Limits) {
        self.needs.lock().look(now, limits);
    }

    /// Returns true if the event numbered `number`, the oldest of the window, may be evicted at `now`: no reader needs
    /// it, or `must` is set. Readers that have not read it are then cut and added to `cut`. Cost: O(log n), paid for every
    /// evicted event.
    pub(crate) fn let_go(&self, number: u64, must: bool, now: Time, cut: &mut Vec<CutReader>) -> bool {
        let needs = &mut *self.needs.lock();
        let is_needed = needs.oldest(now).is_some_and(|position| position < number);
        if is_needed && !must {
            return false;
        }
        needs.cut_below(number, cut);
        true
    }

    /// Releases the objects of initial streams when the epoch is over, because those streams end anyway. LISTs keep
    /// theirs until they exceed their time. Call without locks.
    pub(crate) fn release_streams(&self) {
        let mut gone = Vec::new();
        {
            let needs = &mut *self.needs.lock();
            for readers in [&mut needs.open, &mut needs.late] {
                gone.extend(readers.extract_if(.., |_, open| open.held.is_stream()));
            }
        }
        // Freed after the lock: the objects of a stream may be large.
        gone.iter().for_each(|(_, open)| open.held.release());
    }

    /// Cuts the overdue readers of an ended epoch: only they keep its objects alive.
    pub(crate) fn cut_late(&self, now: Time, limits: &Limits, cut: &mut Vec<CutReader>) {
        let needs = &mut *self.needs.lock();
        needs.look(now, limits);
        cut.extend(mem::take(&mut needs.late).into_values().map(|open| CutReader::new(open.held, true)));
    }
}

/// Returns the owner of most items, and the first of several; zero without items.
pub(crate) fn largest_owner(mut owners: impl Iterator<Item = u64> + Clone) -> u64 {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for owner in owners.clone() {
        *counts.entry(owner).or_default() += 1;
    }
    let most = counts.values().max();
    owners.find(|owner| counts.get(owner) == most).unwrap_or_default()
}

impl Needs {
    fn look(&mut self, now: Time, limits: &Limits) {
        if self.looked.is_some_and(|looked| now < looked + LOOK_PAUSE) {
            return;
        }
        self.looked = Some(now);
        let late = self.open.extract_if(.., |_, open| {
            let since = *open.since.get_or_insert(now);
            open.held.is_late(since, now, limits)
        });
        self.late.extend(late);
    }

    /// Returns the oldest position that a reader still needs. Expired held positions are removed once they are the
    /// oldest.
    fn oldest(&mut self, now: Time) -> Option<u64> {
        while let Some(first) = self.held.first_entry().filter(|first| first.get().until <= now) {
            first.remove();
        }
        while let Some(first) = self.returning.first_entry().filter(|first| *first.key() < now.0.as_secs()) {
            first.remove();
        }
        let open = self.open.first_key_value().map(|(&(position, _), _)| position);
        let held = self.held.first_key_value().map(|(&position, _)| position);
        let returning = self.returning.values().copied().min();
        [open, held, returning].into_iter().flatten().min()
    }

    /// Drops every position below `number`, whose event is about to be evicted.
    fn cut_below(&mut self, number: u64, cut: &mut Vec<CutReader>) {
        for (readers, late) in [(&mut self.open, false), (&mut self.late, true)] {
            while let Some(first) = readers.first_entry().filter(|first| first.key().0 < number) {
                cut.push(CutReader::new(first.remove().held, late));
            }
        }
        while let Some(first) = self.held.first_entry().filter(|first| *first.key() < number) {
            first.remove();
        }
        self.returning.retain(|_, position| number <= *position);
    }
}

#[cfg(test)]
mod tests;
