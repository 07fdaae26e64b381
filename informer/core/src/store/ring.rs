//! Recent changes of a store in order, for readers that want each of them: one ring, and any number of cursors into it.
//!
//! INVARIANT: the records are numbered without a gap, and the last has the number of the store's last change.
//! INVARIANT: nothing is kept while nobody listens.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Change, Entry, Snapshot};
use crate::{limits::RING_CHANGES_MAX, objects::Objects, resource_version::ResourceVersion};

/// What is told to readers that want everything.
#[derive(Clone, Debug)]
pub enum Record {
    /// One object changed.
    Change(Change),
    /// Initial state was read again, and everything it changed stands before this. Boxed, because
    /// changes are many and have to be small.
    Synced(Box<ResourceVersion>),
}

/// The ring of one store. Clones are the same ring.
///
/// Memory: for each of the records kept, 24 to 48 bytes and the one version of an object that it replaced; as many
/// records as the listener with the largest capacity asked for. Nobody listens: nothing.
/// Cost: a change takes a lock nobody holds for longer than [`Listener::read`] copies pointers.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    records: VecDeque<Record>,
    /// The number of the last change, whether it was kept or not.
    newest: u64,
    /// Where changes begin to mean something: the first state that was complete.
    began: Option<Began>,
    /// How many listeners asked for which capacity.
    capacities: BTreeMap<usize, usize>,
}

#[derive(Clone, Debug)]
struct Began {
    sequence: u64,
    position: Option<ResourceVersion>,
}

/// The changes asked for are no longer, or were never, in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun;

/// The state a listener starts from: every change after it is in the ring.
#[derive(Clone, Debug)]
pub struct Start {
    /// The objects of that state.
    pub objects: Objects<Entry>,
    /// Every change up to this position is in that state.
    pub position: Option<ResourceVersion>,
    /// [`Snapshot::relists`] of that state.
    pub relists: u64,
    /// [`Snapshot::sequence`] of that state.
    pub sequence: u64,
}

impl Ring {
    /// Keeps changes from now on, at least `capacity` of them, at most [`RING_CHANGES_MAX`], until the listener is
    /// dropped. `published` is the state that readers see now; the store may be ahead of it.
    #[must_use]
    pub fn listen(&self, capacity: usize, published: &Snapshot) -> Listener {
        let capacity = capacity.clamp(1, RING_CHANGES_MAX);
        let mut inner = self.lock();
        *inner.capacities.entry(capacity).or_default() += 1;
        let position = published.resource_version.clone().filter(|_| published.synced);
        Listener { ring: self.clone(), capacity, since: inner.newest, position }
    }

    /// Whether somebody wants to know every change.
    pub(super) fn is_wanted(&self) -> bool {
        self.lock().capacity() > 0
    }

    /// Takes one record and returns its number.
    pub(super) fn record(&self, record: Record) -> u64 {
        let mut inner = self.lock();
        inner.newest += 1;
        if inner.began.is_some() && inner.capacity() > 0 {
            inner.records.push_back(record);
        }
        let evicted = inner.trim();
        let newest = inner.newest;
        drop(inner);
        // The last reference to an object may go here: not under the lock.
        drop(evicted);
        newest
    }

    /// The state changed in a way that is not told record by record. Returns the number of the new state.
    pub(super) fn skip(&self) -> u64 {
        let mut inner = self.lock();
        inner.newest += 1;
        let skipped = std::mem::take(&mut inner.records);
        let newest = inner.newest;
        drop(inner);
        drop(skipped);
        newest
    }

    /// The first complete state stands: changes are told from here on. Returns the number of that state.
    pub(super) fn begin(&self, position: Option<ResourceVersion>) -> u64 {
        let sequence = self.skip();
        self.lock().began = Some(Began { sequence, position });
        sequence
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it is held, and a ring is never half changed.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// What the most demanding listener asked for; zero when nobody listens.
    fn capacity(&self) -> usize {
        self.capacities.last_key_value().map_or(0, |(capacity, _)| *capacity)
    }

    /// Cuts the ring to its capacity. What falls out is handed back, to be dropped without the lock.
    fn trim(&mut self) -> Vec<Record> {
        let surplus = self.records.len().saturating_sub(self.capacity());
        self.records.drain(..surplus).collect()
    }

    /// The records of the numbers `after + 1 ..= to`, at most `max` of them.
    fn read(&self, after: u64, to: u64, max: usize) -> Result<Vec<Record>, Overrun> {
        let before_first = self.newest - self.records.len() as u64;
        let skip = after.checked_sub(before_first).ok_or(Overrun)?;
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let wanted = usize::try_from(to.saturating_sub(after)).unwrap_or(usize::MAX).min(max);
        Ok(self.records.iter().skip(skip).take(wanted).cloned().collect())
    }
}

/// Somebody who wants every change. Keeps the ring as long as it asked for.
#[derive(Debug)]
pub struct Listener {
    ring: Ring,
    capacity: usize,
    since: u64,
    position: Option<ResourceVersion>,
}

impl Listener {
    /// The state to start from, reached by going back from `now`, so that nothing was kept alive for it meanwhile.
    /// `None` while there is no such state: `now` is older than the listener, or nothing was complete yet.
    ///
    /// Cost: one step for each change since the listener came, or since the first state was complete.
    ///
    /// # Errors
    /// [`Overrun`] when more has changed than the ring holds.
    #[must_use]
    pub fn start(&self, now: &Snapshot) -> Option<Result<Start, Overrun>> {
        let inner = self.ring.lock();
        let began = inner.began.clone()?;
        let sequence = self.since.max(began.sequence);
        if !now.synced || now.sequence < sequence {
            return None;
        }
        let records = inner.read(sequence, now.sequence, usize::MAX);
        drop(inner);
        let is_from_began = began.sequence >= self.since;
        let position = if is_from_began { began.position } else { self.position.clone().or(began.position) };
        Some(records.map(|records| rewind(now, records, sequence, position)))
    }

    /// The changes after the state of number `after` and up to that of number `to`, in order, at most `max` of them.
    ///
    /// # Errors
    /// [`Overrun`] when the ring no longer holds the first of them.
    pub fn read(&self, after: u64, to: u64, max: usize) -> Result<Vec<Record>, Overrun> {
        self.ring.lock().read(after, to, max)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut inner = self.ring.lock();
        if let Some(count) = inner.capacities.get_mut(&self.capacity) {
            *count -= 1;
            if *count == 0 {
                inner.capacities.remove(&self.capacity);
            }
        }
        let surplus = inner.trim();
        if inner.capacity() == 0 {
            inner.records.shrink_to_fit();
        }
        drop(inner);
        drop(surplus);
    }
}

/// `now` as it was before `records`.
fn rewind(now: &Snapshot, records: Vec<Record>, sequence: u64, position: Option<ResourceVersion>) -> Start {
    let mut start = Start { objects: now.objects.clone(), position, relists: now.relists, sequence };
    for record in records.into_iter().rev() {
        match record {
            Record::Change(Change::Added(new)) => drop(start.objects.remove(new.key())),
            Record::Change(Change::Updated { old, .. }) => drop(start.objects.insert(old)),
            Record::Change(Change::Deleted { last_known, .. }) => drop(start.objects.insert(last_known)),
            Record::Synced(_) => start.relists -= 1,
        }
    }
    start
}

#[cfg(test)]
mod tests;
