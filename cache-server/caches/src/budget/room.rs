//! Memory budget of request bodies: one for the server, one for each connection that may have several at once, and one for
//! each user.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::{
    BODIES_BYTES_MAX, CONNECTION_BODIES_BYTES_MAX, CONNECTION_SMALL_BODIES_BYTES_MAX, SMALL_BODIES_BYTES_MAX,
    USER_BODIES_BYTES_MAX, USER_SMALL_BODIES_BYTES_MAX,
};

/// Bytes per semaphore permit.
pub const UNIT: usize = 1 << 10;

/// Budget for request bodies, of the server or of one connection. Clones share it.
#[derive(Clone, Debug)]
pub struct Room {
    /// For bodies up to [`BODY_PIECEMEAL_BYTES`], and for longer ones until they exceed it.
    small: Pool,
    large: Pool,
}

/// A shared budget, in units of [`UNIT`] bytes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pool(Arc<PoolState>);

#[derive(Debug)]
struct PoolState {
    units: Arc<Semaphore>,
    /// Number of bodies that wait for budget.
    waiting: AtomicUsize,
}

impl Room {
    /// Creates the budget for all requests of the server.
    pub fn of_server() -> Self {
        Self { small: Pool::new(SMALL_BODIES_BYTES_MAX), large: Pool::new(BODIES_BYTES_MAX) }
    }

    /// Creates the budget for the requests of one connection.
    pub fn of_connection() -> Self {
        Self { small: Pool::new(CONNECTION_SMALL_BODIES_BYTES_MAX), large: Pool::new(CONNECTION_BODIES_BYTES_MAX) }
    }

    /// Creates the budget for the requests of one user.
    pub fn of_user() -> Self {
        Self { small: Pool::new(USER_SMALL_BODIES_BYTES_MAX), large: Pool::new(USER_BODIES_BYTES_MAX) }
    }

    /// Pool of bodies of one size.
    pub const fn pool(&self, is_large: bool) -> &Pool {
        if is_large { &self.large } else { &self.small }
    }
}

impl Pool {
    fn new(bytes: usize) -> Self {
        let units = Arc::new(Semaphore::new(bytes / UNIT));
        Self(Arc::new(PoolState { units, waiting: AtomicUsize::new(0) }))
    }

    /// Bytes that are free now.
    #[cfg(any(test, feature = "testing"))]
    pub fn free(&self) -> usize {
        self.0.units.available_permits() * UNIT
    }

    /// Takes units; `None` if there are too few.
    pub fn try_take(&self, units: u32) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.units).try_acquire_many_owned(units).ok()
    }

    /// Waits for units, in the order of the calls.
    pub async fn take(&self, units: u32) -> OwnedSemaphorePermit {
        if let Some(permit) = self.try_take(units) {
            return permit;
        }
        let _waiting = WaitingCount::new(&self.0.waiting);
        Arc::clone(&self.0.units).acquire_many_owned(units).await.expect("room is never closed")
    }

    /// True while a body waits for room.
    pub fn has_waiters(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed) > 0
    }
}

/// Counts a waiting body until dropped.
struct WaitingCount<'a>(&'a AtomicUsize);

impl<'a> WaitingCount<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for WaitingCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
