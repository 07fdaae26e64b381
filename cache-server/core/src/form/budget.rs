//! Process-wide bounds on data cached for objects.
//!
//! INVARIANT: cached long cells of all objects together stay within [`LONG_CELLS_BYTES_MAX`].

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::LONG_CELLS_BYTES_MAX;

/// Bytes of all long cells that are cached in this process.
pub(crate) static LONG_CELLS: ByteBudget = ByteBudget::new(LONG_CELLS_BYTES_MAX);

/// A byte budget for data cached with objects.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    taken: AtomicUsize,
    max: usize,
}

/// Bytes taken from a budget. Dropping it returns them.
#[derive(Debug)]
pub(crate) struct Share {
    bytes: usize,
    room: &'static ByteBudget,
}

impl ByteBudget {
    pub(super) const fn new(max: usize) -> Self {
        Self { taken: AtomicUsize::new(0), max }
    }

    /// Returns the bytes taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Returns true if `bytes` more are within the budget.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.taken() + bytes <= self.max
    }

    /// Takes `bytes`. Returns false, and takes none, if the budget is exceeded.
    fn take(&self, bytes: usize) -> bool {
        let sum = self.taken.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if sum > self.max {
            self.taken.fetch_sub(bytes, Ordering::Relaxed);
        }
        sum <= self.max
    }

    /// Takes `bytes`, if the budget allows it.
    pub(crate) fn share(&'static self, bytes: usize) -> Option<Share> {
        // Created lazily: dropping a share returns bytes, which must have been taken.
        self.take(bytes).then(|| Share { bytes, room: self })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shared_while_there_is_room() {
        static ROOM: ByteBudget = ByteBudget::new(1_000);
        let first = ROOM.share(700).expect("room");
        assert!(ROOM.share(700).is_none());
        let small = ROOM.share(10).expect("there is still room for less");
        drop(first);
        assert_eq!(ROOM.taken(), 10);
        assert!(ROOM.share(700).is_some());
        drop(small);
        assert_eq!(ROOM.taken(), 0);
    }
}
