//! Recent changes of a store in order, for readers that need each of them: one ring and any number of cursors into it.
//!
//! INVARIANT: the records are numbered without a gap, and the last one has the number of the store's last change.
//! INVARIANT: no record is kept without a listener.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Entry, Snapshot, StoreChange};
use crate::{limits::RING_CHANGES_MAX, objects::Objects, resource_version::ResourceVersion};

/// One record of the ring.
#[derive(Clone, Debug)]
pub enum Record {
    /// One object changed.
    Change(StoreChange),
    /// Initial state was read again; the changes it made precede this record. Boxed, because changes are many and must
    /// be small.
    Synced(Box<ResourceVersion>),
}

/// The ring of one store. Clones share it.
///
/// Memory: for each record 24 to 48 bytes and the object version that it replaced; as many records as the largest
/// capacity of a listener, none without listeners.
/// Cost: a change takes a lock, which [`Listener::read`] holds only while it copies pointers.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    inner: Arc<Mutex<RingState>>,
}

#[derive(Debug, Default)]
struct RingState {
    records: VecDeque<Record>,
    /// The number of the last change, recorded or not.
    newest: u64,
    /// The first complete state; earlier changes are not recorded.
    began: Option<RelistStart>,
    /// Number of listeners by capacity.
    capacities: BTreeMap<usize, usize>,
}

#[derive(Clone, Debug)]
struct RelistStart {
    sequence: u64,
    position: Option<ResourceVersion>,
}

/// The requested changes are no longer in the ring, or never were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun;

/// The state from which a listener starts: the ring holds every change after it.
#[derive(Clone, Debug)]
pub struct ListenerStart {
    /// The objects of this state.
    pub objects: Objects<Entry>,
    /// The state contains every change up to this position.
    pub position: Option<ResourceVersion>,
    /// [`Snapshot::relists`] of this state.
    pub relists: u64,
    /// [`Snapshot::sequence`] of this state.
    pub sequence: u64,
}

impl Ring {
    /// Adds a listener: keeps at least `capacity` of the changes from now on, and at most [`RING_CHANGES_MAX`], until
    /// it is dropped. `published` is the state that readers see now; the store may be ahead of it.
    #[must_use]
    pub fn listen(&self, capacity: usize, published: &Snapshot) -> Listener {
        let capacity = capacity.clamp(1, RING_CHANGES_MAX);
        let mut inner = self.lock();
        *inner.capacities.entry(capacity).or_default() += 1;
        let position = published.resource_version.clone().filter(|_| published.synced);
        Listener { ring: self.clone(), capacity, since: inner.newest, position }
    }

    /// Returns true if there are listeners.
    pub(super) fn has_listeners(&self) -> bool {
        self.lock().capacity() > 0
    }

    /// Adds one record and returns its number.
    pub(super) fn record(&self, record: Record) -> u64 {
        let mut inner = self.lock();
        inner.newest += 1;
        if inner.began.is_some() && inner.capacity() > 0 {
            inner.records.push_back(record);
        }
        let evicted = inner.trim();
        let newest = inner.newest;
        drop(inner);
        // This may drop the last reference to an object, so not under the lock.
        drop(evicted);
        newest
    }

    /// Notes a change of the state that is not recorded. Returns the number of the new state.
    pub(super) fn skip(&self) -> u64 {
        let mut inner = self.lock();
        inner.newest += 1;
        let skipped = std::mem::take(&mut inner.records);
        let newest = inner.newest;
        drop(inner);
        drop(skipped);
        newest
    }

    /// Starts recording after the first complete state. Returns the number of that state.
    pub(super) fn begin(&self, position: Option<ResourceVersion>) -> u64 {
        // Only the store adds records, so none can come between the two locks.
        let sequence = self.skip();
        self.lock().began = Some(RelistStart { sequence, position });
        sequence
    }

    fn lock(&self) -> MutexGuard<'_, RingState> {
        // No code panics while holding it, and every update leaves the ring consistent.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RingState {
    /// Returns the largest capacity of a listener; zero without listeners.
    fn capacity(&self) -> usize {
        self.capacities.last_key_value().map_or(0, |(capacity, _)| *capacity)
    }

    /// Cuts the ring to its capacity. Returns the evicted records, to be dropped without the lock.
    fn trim(&mut self) -> Vec<Record> {
        let surplus = self.records.len().saturating_sub(self.capacity());
        self.records.drain(..surplus).collect()
    }

    /// Returns the records with numbers `after + 1 ..= to`, at most `max` of them.
    fn read(&self, after: u64, to: u64, max: usize) -> Result<Vec<Record>, Overrun> {
        let before_first = self.newest - self.records.len() as u64;
        let skip = after.checked_sub(before_first).ok_or(Overrun)?;
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let count = usize::try_from(to.saturating_sub(after)).unwrap_or(usize::MAX).min(max);
        Ok(self.records.iter().skip(skip).take(count).cloned().collect())
    }
}

/// A reader that needs every change. The ring keeps its capacity until it is dropped.
#[derive(Debug)]
pub struct Listener {
    ring: Ring,
    capacity: usize,
    since: u64,
    position: Option<ResourceVersion>,
}

impl Listener {
    /// Returns the state to start from. Reconstructs it backwards from `now`, so that no snapshot is kept alive
    /// meanwhile. `None` if there is no such state: `now` is older than the listener, or no state was complete yet.
    ///
    /// Cost: one step for each change since the listener was added, or since the first complete state.
    ///
    /// # Errors
    /// [`Overrun`] if more changes happened than the ring holds.
    #[must_use]
    pub fn start(&self, now: &Snapshot) -> Option<Result<ListenerStart, Overrun>> {
        let inner = self.ring.lock();
        let began = inner.began.clone()?;
        let sequence = self.since.max(began.sequence);
        if !now.synced || now.sequence < sequence {
            return None;
        }
        let records = inner.read(sequence, now.sequence, usize::MAX);
        // Rewind without the lock.
        drop(inner);
        let is_from_began = began.sequence >= self.since;
        let position = if is_from_began { began.position } else { self.position.clone().or(began.position) };
        Some(records.map(|records| rewind(now, records, sequence, position)))
    }

    /// Returns the changes after state `after` up to state `to`, in order, at most `max` of them.
    ///
    /// # Errors
    /// [`Overrun`] if the ring no longer holds the first of them.
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
        // As in `record`: drop objects only after the lock is released.
        drop(inner);
        drop(surplus);
    }
}

/// Undoes `records` on the state `now`.
fn rewind(now: &Snapshot, records: Vec<Record>, sequence: u64, position: Option<ResourceVersion>) -> ListenerStart {
    let mut start = ListenerStart { objects: now.objects.clone(), position, relists: now.relists, sequence };
    for record in records.into_iter().rev() {
        match record {
            Record::Change(StoreChange::Added(new)) => drop(start.objects.remove(new.key())),
            Record::Change(StoreChange::Updated { old, .. }) => drop(start.objects.insert(old)),
            Record::Change(StoreChange::Deleted { last_known, .. }) => drop(start.objects.insert(last_known)),
            Record::Synced(_) => start.relists -= 1,
        }
    }
    start
}

#[cfg(test)]
mod tests;
