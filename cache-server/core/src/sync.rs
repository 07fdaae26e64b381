//! The crate's locks and atomics. Debug builds check the order of locks stated in `cache.rs` each time one is taken.
//!
//! INVARIANT: `interest` imports its locks and atomics only from here. `tests/cache/wake_up.rs` mounts that file with a
//! module of this name that contains a model checker's locks and atomics, and so checks the production source.

use std::ops::{Deref, DerefMut};

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};

/// Ranks of locks. A thread that holds a lock takes only one more, of the next higher rank; a leaf is taken alone.
pub(crate) const INDEX: u8 = 1;
const STATE: u8 = 2;
pub(crate) const UNDER_STATE: u8 = 3;
pub(crate) const LEAF: u8 = 5;

/// A mutex of this rank.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T, const RANK: u8 = LEAF>(parking_lot::Mutex<T>);

/// The lock of a cache's state.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(parking_lot::RwLock<T>);

impl<T, const RANK: u8> Mutex<T, RANK> {
    pub(crate) fn lock(&self) -> Guard<parking_lot::MutexGuard<'_, T>> {
        let rank = RankHeld::take(RANK);
        Guard { guard: self.0.lock(), _rank: rank }
    }
}

impl<T> RwLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(parking_lot::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> Guard<parking_lot::RwLockReadGuard<'_, T>> {
        let rank = RankHeld::take(STATE);
        Guard { guard: self.0.read(), _rank: rank }
    }

    pub(crate) fn write(&self) -> Guard<parking_lot::RwLockWriteGuard<'_, T>> {
        let rank = RankHeld::take(STATE);
        Guard { guard: self.0.write(), _rank: rank }
    }
}

/// A lock that is held.
pub(crate) struct Guard<G> {
    // Before the rank, so that it is released first.
    guard: G,
    _rank: RankHeld,
}

impl<T> Guard<parking_lot::MutexGuard<'_, T>> {
    /// Unlocks, and hands the lock to the thread that waits longest for it.
    pub(crate) fn unlock_fair(self) {
        parking_lot::MutexGuard::unlock_fair(self.guard);
    }
}

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

#[cfg(debug_assertions)]
thread_local! {
    // Ranks of the locks that this thread holds: none, one or two.
    static HELD: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Notes a lock of this thread, in debug builds.
struct RankHeld {
    #[cfg(debug_assertions)]
    rank: u8,
}

#[cfg(debug_assertions)]
impl RankHeld {
    #[track_caller]
    fn take(rank: u8) -> Self {
        HELD.with_borrow_mut(|held| {
            let is_in_order = held.is_empty() || (held.len() == 1 && held[0] + 1 == rank);
            assert!(is_in_order, "a lock of rank {rank} is taken while locks of ranks {held:?} are held");
            held.push(rank);
        });
        Self { rank }
    }
}

#[cfg(debug_assertions)]
impl Drop for RankHeld {
    fn drop(&mut self) {
        HELD.with_borrow_mut(|held| {
            let at = held.iter().rposition(|rank| *rank == self.rank);
            held.remove(at.expect("a lock that was taken"));
        });
    }
}

#[cfg(not(debug_assertions))]
impl RankHeld {
    const fn take(_rank: u8) -> Self {
        Self {}
    }
}

#[cfg(test)]
mod tests {
    use std::panic;

    use super::*;

    /// Goal: a change that breaks the order of locks fails its tests. Method: take two locks in each order.
    #[test]
    fn locks_out_of_order_are_refused() {
        let (state, below) = (RwLock::new(()), Mutex::<(), UNDER_STATE>::default());
        let (index, leaf) = (Mutex::<(), INDEX>::default(), Mutex::<()>::default());
        let passes = |act: &dyn Fn()| panic::catch_unwind(panic::AssertUnwindSafe(act)).is_ok();
        let in_order: [&dyn Fn(); 4] = [
            &|| {
                drop(index.lock());
                drop(state.write());
            },
            &|| drop((index.lock(), state.read())),
            &|| drop((state.read(), below.lock())),
            &|| drop(leaf.lock()),
        ];
        assert_eq!(in_order.map(passes), [true; 4]);
        let out_of_order: [&dyn Fn(); 5] = [
            &|| drop((state.read(), index.lock())),
            &|| drop((below.lock(), state.read())),
            &|| drop((state.read(), leaf.lock())),
            &|| drop((leaf.lock(), leaf.lock())),
            &|| drop((index.lock(), state.read(), below.lock())),
        ];
        let is_checked = cfg!(debug_assertions);
        // Twice the same leaf would wait for ever where nothing refuses it.
        for act in out_of_order.into_iter().filter(|_| is_checked) {
            assert!(!passes(act));
        }
        assert!(passes(&|| drop(index.lock())), "a refused lock is not held");
    }
}
