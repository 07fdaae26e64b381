//! One history of a cache, from one listing of the storage to the next, and which of its positions are still needed.
//!
//! INVARIANT: a snapshot opened at a position either keeps the events after it in the window, or is cut: the slowest
//! first, which are those at the oldest positions. INVARIANT: a reader that has had its time keeps nothing that the
//! window would not keep without it; nobody is cut as long as it costs nothing.

mod pin;

use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use informer_core::Time;
use parking_lot::Mutex;

use self::pin::Held;
pub(crate) use self::pin::{Cut, Cuts, Frozen, Pin};
use crate::limits::{HELD_POSITIONS_MAX, Limits, RESUMED_WITHIN};

/// One history. What is positioned in it holds it, so a position is never read in another.
#[derive(Debug)]
pub(crate) struct Epoch {
    /// Counts from one; zero is the time before the first listing.
    pub(crate) number: u64,
    /// No other history in this process has it, of whatever cache.
    pub(crate) id: u64,
    /// Set under the state's write lock, so who parks under the read lock has seen it or will be woken.
    ended: AtomicBool,
    needs: Mutex<Needs>,
}

/// Readers by position, and by what tells them apart.
type Readers = BTreeMap<(u64, u64), Open>;

#[derive(Debug, Default)]
struct Needs {
    /// Snapshots that keep the events after them.
    open: Readers,
    /// Those that have had their time, and keep nothing.
    late: Readers,
    /// Positions kept for a next page, and until when.
    held: BTreeMap<u64, Time>,
    /// The oldest position that somebody slow may come back for, by the second up to which it is kept.
    returning: BTreeMap<u64, u64>,
    /// Readers that there were.
    numbers: u64,
    /// When it was looked last who has had its time.
    looked: Option<Time>,
}

/// One open snapshot.
#[derive(Debug)]
struct Open {
    held: Arc<Held>,
    /// When it was seen first.
    since: Option<Time>,
}

static HISTORIES: AtomicU64 = AtomicU64::new(0);

/// Between two looks who has had its time. The cost of one is some nanoseconds for each open snapshot.
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

    /// Marks the end. The caller holds the state's write lock and wakes everybody afterwards.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Opens a snapshot at `position`. The caller holds the state's lock, so nothing is evicted in between.
    pub(crate) fn pin(self: &Arc<Self>, position: u64) -> Arc<Pin> {
        let held = Arc::<Held>::default();
        let needs = &mut *self.needs.lock();
        needs.numbers += 1;
        let number = needs.numbers;
        needs.open.insert((position, number), Open { held: Arc::clone(&held), since: None });
        Arc::new(Pin::new(Arc::clone(self), position, number, held))
    }

    /// Closes a snapshot. Who was slow and got everything may need as long again before it comes back.
    fn unpin(&self, position: u64, number: u64) {
        let needs = &mut *self.needs.lock();
        // One that was cut is not there any more.
        let Some(open) = needs.open.remove(&(position, number)).or_else(|| needs.late.remove(&(position, number)))
        else {
            return;
        };
        if let Some((since, now)) = open.since.zip(needs.looked).filter(|_| open.held.is_done()) {
            let until = now + now.since(since).min(RESUMED_WITHIN);
            let oldest = needs.returning.entry(until.0.as_secs()).or_insert(position);
            *oldest = position.min(*oldest);
        }
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

    /// Looks who has had its time, if that is due. To be called whenever time passes.
    pub(crate) fn look(&self, now: Time, limits: &Limits) {
        self.needs.lock().look(now, limits);
    }

    /// Whether the event at `version`, the oldest of the window, may go at `now`: when nobody needs it, or it `must`. Then
    /// whoever has not read it is cut, into `cut`. Cost: O(log n), for it is asked for every evicted event.
    pub(crate) fn let_go(&self, version: u64, must: bool, now: Time, cut: &mut Vec<Cut>) -> bool {
        let needs = &mut *self.needs.lock();
        let is_needed = needs.oldest(now).is_some_and(|position| position < version);
        if is_needed && !must {
            return false;
        }
        needs.cut_below(version, cut);
        true
    }

    /// What becomes of snapshots when the history is over: streams end anyway, lists go on until they have had their time.
    /// To be called without locks.
    pub(crate) fn release_streams(&self) {
        let mut gone = Vec::new();
        {
            let needs = &mut *self.needs.lock();
            for readers in [&mut needs.open, &mut needs.late] {
                gone.extend(readers.extract_if(.., |_, open| open.held.is_stream()));
            }
        }
        gone.iter().for_each(|(_, open)| open.held.release());
    }

    /// Cuts those that have had their time, of a history that is over: their objects are only theirs.
    pub(crate) fn cut_late(&self, now: Time, limits: &Limits, cut: &mut Vec<Cut>) {
        let needs = &mut *self.needs.lock();
        needs.look(now, limits);
        cut.extend(mem::take(&mut needs.late).into_values().map(|open| Cut::new(open.held, true)));
    }
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

    /// The oldest position that somebody still needs. Held positions whose time is over go when they are the oldest.
    fn oldest(&mut self, now: Time) -> Option<u64> {
        while let Some(first) = self.held.first_entry().filter(|first| *first.get() <= now) {
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

    /// Gives up every position below `version`, whose event is about to go.
    fn cut_below(&mut self, version: u64, cut: &mut Vec<Cut>) {
        for (readers, late) in [(&mut self.open, false), (&mut self.late, true)] {
            while let Some(first) = readers.first_entry().filter(|first| first.key().0 < version) {
                cut.push(Cut::new(first.remove().held, late));
            }
        }
        while let Some(first) = self.held.first_entry().filter(|first| *first.key() < version) {
            first.remove();
        }
        self.returning.retain(|_, position| version <= *position);
    }
}

#[cfg(test)]
mod tests;
