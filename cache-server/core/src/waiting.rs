//! Reads that wait until the cache has applied a position.
//!
//! INVARIANT: no read waits for a position that was reached. A read checks the position under the lock before it
//! registers; the writer stores the position before it takes the lock.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use crate::{interest::ClosedCache, sync::Mutex};

/// The applied position, and the reads that wait for a later one.
#[derive(Debug, Default)]
pub(crate) struct AppliedPosition {
    /// The cache's applied position; zero before the first listing.
    applied: AtomicU64,
    closed: AtomicBool,
    readers: Mutex<WaitingReaders>,
}

#[derive(Debug, Default)]
struct WaitingReaders {
    /// By position and reader number.
    wakers: BTreeMap<(u64, u64), Waker>,
    next: u64,
}

impl AppliedPosition {
    pub(crate) fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    /// Advances the position and wakes the reads that waited for it. The caller holds no lock.
    pub(crate) fn reach(&self, position: u64) {
        self.applied.store(position, Ordering::Release);
        let ready = {
            let readers = &mut *self.readers.lock();
            if readers.wakers.first_key_value().is_none_or(|(&(first, _), _)| position < first) {
                return;
            }
            let later = readers.wakers.split_off(&(position.saturating_add(1), 0));
            std::mem::replace(&mut readers.wakers, later)
        };
        ready.into_values().for_each(Waker::wake);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        let all = {
            let readers = &mut *self.readers.lock();
            // Set under the lock, so that a read that registers later sees it.
            self.closed.store(true, Ordering::Release);
            std::mem::take(&mut readers.wakers)
        };
        all.into_values().for_each(Waker::wake);
    }
}

/// Waits for a position; see [`Reader::reached`](crate::Reader::reached). Cancel safe.
#[derive(Debug)]
pub struct PositionWait {
    waiting: Arc<AppliedPosition>,
    position: u64,
    /// Its number among the waiting reads, once it is registered.
    number: Option<u64>,
}

impl PositionWait {
    pub(crate) fn new(waiting: Arc<AppliedPosition>, position: u64) -> Self {
        // No state has position zero: a read of it waits for the first listing.
        Self { waiting, position: position.max(1), number: None }
    }
}

impl Future for PositionWait {
    type Output = Result<(), ClosedCache>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (outcome, _dropped_outside) = {
            let readers = &mut *this.waiting.readers.lock();
            if this.position <= this.waiting.applied() {
                (Poll::Ready(Ok(())), None)
            } else if this.waiting.is_closed() {
                (Poll::Ready(Err(ClosedCache)), None)
            } else {
                let number = *this.number.get_or_insert_with(|| {
                    readers.next += 1;
                    readers.next
                });
                (Poll::Pending, readers.wakers.insert((this.position, number), cx.waker().clone()))
            }
        };
        outcome
    }
}

impl Drop for PositionWait {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let _dropped_outside = self.waiting.readers.lock().wakers.remove(&(self.position, number));
        }
    }
}
