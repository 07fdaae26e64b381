//! Data derived from objects at their first use, shared by all clients, dropped when idle.
//!
//! INVARIANT: such data of all objects of this process together stays within [`MESSAGES_BYTES_MAX`]. An object refers to it
//! weakly; what keeps it alive is one of two generations, the one in which it was last used.

use std::{
    fmt,
    ops::Deref,
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};

use super::budget::{ByteBudget, Share};
use crate::limits::MESSAGES_BYTES_MAX;

/// Data derived from an object.
pub(crate) struct DerivedForm<T: ?Sized> {
    /// Generation in which it was last used.
    generation: AtomicU32,
    _share: Option<Share>,
    data: T,
}

impl<T> Deref for DerivedForm<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.data
    }
}

/// Refers to data derived from an object while it is cached.
pub(crate) struct DerivedSlot<T>(RwLock<Weak<DerivedForm<T>>>);

impl<T> Default for DerivedSlot<T> {
    fn default() -> Self {
        Self(RwLock::new(Weak::new()))
    }
}

impl<T> fmt::Debug for DerivedSlot<T> {
    /// Never prints the data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DerivedSlot").finish_non_exhaustive()
    }
}

impl<T: Send + Sync + 'static> DerivedSlot<T> {
    /// Returns the data if it is cached.
    pub(crate) fn cached(&self) -> Option<Arc<DerivedForm<T>>> {
        let data = self.0.read().upgrade()?;
        GENERATIONS.mark_used(&data);
        Some(data)
    }

    /// Returns the cached data, or makes them. `make` returns data with their length in bytes; they are cached while there
    /// is room. Clients that come at once wait for the first.
    pub(crate) fn get(&self, is_live: bool, make: impl FnOnce() -> Option<(T, usize)>) -> Option<Arc<DerivedForm<T>>> {
        if let Some(data) = self.cached() {
            return Some(data);
        }
        let mut slot = self.0.write();
        if let Some(data) = slot.upgrade() {
            return Some(data);
        }
        let (data, bytes) = make()?;
        let share = GENERATIONS.room(bytes + size_of::<DerivedForm<T>>(), is_live);
        let is_retained = share.is_some();
        let data = Arc::new(DerivedForm { generation: GENERATIONS.current(), _share: share, data });
        if is_retained {
            *slot = Arc::downgrade(&data);
            GENERATIONS.retain(Arc::clone(&data) as _);
        }
        Some(data)
    }
}

/// Recently used data, in two generations.
struct Generations {
    /// Data used in the current generation, and data used last in the one before.
    retained: Mutex<[Vec<RetainedData>; 2]>,
    current: AtomicU32,
    room: ByteBudget,
}

type RetainedData = Arc<DerivedForm<dyn Send + Sync>>;

static GENERATIONS: Generations = Generations::new(MESSAGES_BYTES_MAX);

/// Returns the bytes of protobuf messages and converted objects that are cached for clients, in all caches of this process.
#[must_use]
pub fn messages_bytes() -> usize {
    GENERATIONS.room.taken()
}

/// Drops the messages and converted objects that were not used since the call before. Cost: frees them.
pub fn drop_idle_messages() {
    GENERATIONS.advance();
}

impl Generations {
    const fn new(max: usize) -> Self {
        let retained = Mutex::new([Vec::new(), Vec::new()]);
        Self { retained, current: AtomicU32::new(0), room: ByteBudget::new(max) }
    }

    /// Returns the number of the current generation.
    fn current(&self) -> AtomicU32 {
        AtomicU32::new(self.current.load(Ordering::Relaxed))
    }

    /// Starts a generation and drops the data not used in the previous one.
    fn advance(&self) {
        let dropped = {
            let mut retained = self.retained.lock();
            self.current.fetch_add(1, Ordering::Relaxed);
            let used = std::mem::take(&mut retained[0]);
            std::mem::replace(&mut retained[1], used)
        };
        // Outside of the lock: there may be tens of thousands.
        drop(dropped);
    }

    /// Takes room for data. Without room a list keeps none, as it would displace the data of the items before; an event
    /// displaces the oldest, as many watchers are about to send it.
    fn room(&'static self, bytes: usize, is_live: bool) -> Option<Share> {
        let bytes = bytes + 2 * size_of::<RetainedData>();
        let turns = if is_live { 2 } else { 0 };
        let found = self.room.share(bytes);
        (0..turns).fold(found, |found, _| {
            found.or_else(|| {
                self.advance();
                self.room.share(bytes)
            })
        })
    }

    /// Retains data in the current generation.
    fn mark_used<T: Send + Sync + 'static>(&self, data: &Arc<DerivedForm<T>>) {
        let current = self.current.load(Ordering::Relaxed);
        if data.generation.swap(current, Ordering::Relaxed) != current {
            self.retain(Arc::clone(data) as _);
        }
    }

    fn retain(&self, data: RetainedData) {
        self.retained.lock()[0].push(data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: without room, a list retains no more data, and an event displaces the oldest. Method: small generations that are
    /// filled.
    #[test]
    fn lists_stop_at_the_budget_and_events_displace() {
        static SMALL: Generations = Generations::new(10_000);
        while let Some(share) = SMALL.room(1_000, false) {
            SMALL.retain(Arc::new(DerivedForm { generation: SMALL.current(), _share: Some(share), data: () }));
        }
        let full = SMALL.room.taken();
        assert!(5_000 < full);
        assert!(SMALL.room(1_000, false).is_none());
        assert_eq!(SMALL.room.taken(), full, "a list displaces nothing");
        assert!(SMALL.room(1_000, true).is_some());
        assert_eq!(SMALL.room.taken(), 0, "idle data, and the share that was dropped at once");
    }
}
