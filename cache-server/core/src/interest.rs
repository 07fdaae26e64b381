//! The wake-up protocol: the watchers that wait for each bucket, and the step that wakes them.
//!
//! INVARIANT: no wake-up is lost. A watcher starts to wait while it holds the state's read lock and has seen that no
//! event is unread ([`look_or_wait`]). The writer pushes under the write lock and only then checks for waiters
//! ([`Interest::publish`]). The waking side clears a bucket's `touched` flag before it takes the waiters
//! ([`BucketWaker::wake`]). INVARIANT: wakers are called and dropped while no lock is held, because both may run foreign
//! code. INVARIANT: this file imports only `std`, `slab` and `super::sync`, so that `tests/cache/wake_up.rs` can
//! check it under every schedule.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use slab::Slab;

use super::sync::{AtomicBool, Mutex, Ordering, RwLock, UNDER_STATE};

/// The cache was closed and applies no more changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedCache;

impl std::fmt::Display for ClosedCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the cache is closed")
    }
}

impl std::error::Error for ClosedCache {}

/// Watchers that wait for one bucket's next event.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    places: Mutex<WaiterSlots, UNDER_STATE>,
    /// True if the bucket is already in the list of touched buckets.
    touched: AtomicBool,
}

#[derive(Debug, Default)]
struct WaiterSlots {
    /// By index: in order of arrival, but for places that were left.
    wakers: Slab<Waker>,
    /// Number of times that all waiters were taken out; a place is valid for one round.
    rounds: u64,
}

/// A watcher's registration among the waiters of a bucket; by default there is none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaiterRegistration {
    index: usize,
    /// The round it is valid for, counted from one.
    round: u64,
}

impl Waiters {
    /// Registers the waker. Idempotent for one place. Returns a replaced waker, to be dropped without locks.
    fn wait(&self, place: &mut WaiterRegistration, waker: &Waker) -> Option<Waker> {
        let places = &mut *self.places.lock();
        if let Some(waiting) = places.at(*place) {
            return if waiting.will_wake(waker) { None } else { Some(mem::replace(waiting, waker.clone())) };
        }
        *place = places.put(waker.clone());
        None
    }

    /// Removes a watcher. Returns its waker, to be dropped without locks.
    pub(crate) fn leave(&self, place: WaiterRegistration) -> Option<Waker> {
        let places = &mut *self.places.lock();
        places.at(place)?;
        places.wakers.try_remove(place.index)
    }

    fn is_empty(&self) -> bool {
        self.places.lock().wakers.is_empty()
    }

    /// Takes all waiters out.
    fn take(&self, into: &mut Vec<Waker>) {
        let places = &mut *self.places.lock();
        let came = places.wakers.len();
        into.extend(places.wakers.drain());
        // Shrink the table after most watchers have left.
        if places.wakers.capacity() > came * 2 {
            places.wakers = Slab::with_capacity(came * 2);
        }
        places.rounds += 1;
    }
}

impl WaiterSlots {
    /// Returns the waker of a place that is still valid.
    fn at(&mut self, place: WaiterRegistration) -> Option<&mut Waker> {
        if place.round == self.rounds + 1 { self.wakers.get_mut(place.index) } else { None }
    }

    fn put(&mut self, waker: Waker) -> WaiterRegistration {
        if self.wakers.capacity() == 0 {
            // Most buckets have one watcher.
            self.wakers.reserve_exact(1);
        }
        WaiterRegistration { index: self.wakers.insert(waker), round: self.rounds + 1 }
    }
}

/// Result of reading the state.
pub(crate) enum Look<T> {
    Found(T),
    /// No event is unread.
    Nothing,
}

/// Runs `look` on `state`, and if it finds no unread event, registers the given waker with the given waiters. Both
/// happen under one read lock, so no event is pushed in between.
pub(crate) fn look_or_wait<S, T>(
    state: &RwLock<S>,
    wait: Option<(&Waiters, &Waker)>,
    place: &mut WaiterRegistration,
    look: impl FnOnce(&S) -> Look<T>,
) -> Look<T> {
    let (found, _dropped_outside) = {
        let state = &*state.read();
        let found = look(state);
        let dropped = match (&found, wait) {
            (Look::Nothing, Some((waiters, waker))) => waiters.wait(place, waker),
            (Look::Nothing | Look::Found(_), _) => None,
        };
        (found, dropped)
    };
    found
}

/// Buckets touched since the last round, shared by the writer and the waking side.
#[derive(Debug, Default)]
pub(crate) struct Interest {
    /// True once the waking side was dropped. The writer then wakes the watchers itself.
    orphaned: AtomicBool,
    rounds: Mutex<TouchedBuckets>,
}

#[derive(Debug, Default)]
struct TouchedBuckets {
    buckets: Vec<Arc<Waiters>>,
    /// Waker of the waking side.
    waker: Option<Waker>,
    closed: bool,
}

impl Interest {
    /// Changes `state` under its write lock with `push`, which collects the buckets it touches, then wakes the waking
    /// side if a watcher waits in one of them. `touched` is a reused buffer: empty before and after.
    pub(crate) fn publish<S, T>(
        &self,
        state: &RwLock<S>,
        touched: &mut Vec<Arc<Waiters>>,
        push: impl FnOnce(&mut S, &mut Vec<Arc<Waiters>>) -> T,
    ) -> T {
        let pushed = push(&mut *state.write(), touched);
        self.touch(touched);
        pushed
    }

    /// Called without locks, after the push.
    pub(crate) fn touch(&self, touched: &mut Vec<Arc<Waiters>>) {
        if self.orphaned.load(Ordering::Acquire) {
            // Take the waiters of every touched bucket, even of flagged ones: no waking side will come for them.
            let mut wakers = Vec::new();
            touched.drain(..).for_each(|waiters| waiters.take(&mut wakers));
            return wakers.into_iter().for_each(Waker::wake);
        }
        touched.retain(|waiters| waiters.touch());
        if touched.is_empty() {
            return;
        }
        let waker = {
            let rounds = &mut *self.rounds.lock();
            rounds.buckets.append(touched);
            rounds.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The writer's last call: no change is published after it.
    pub(crate) fn close(&self) {
        let waker = {
            let rounds = &mut *self.rounds.lock();
            rounds.closed = true;
            rounds.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Waiters {
    /// Returns true if a watcher waits here and the bucket was not flagged before: the caller then lists it.
    fn touch(&self) -> bool {
        // If the flag is set, the waking side takes the waiters after this load, including the waiters of the event
        // just pushed.
        let noted = self.touched.load(Ordering::Acquire);
        !noted && !self.is_empty() && !self.touched.swap(true, Ordering::AcqRel)
    }
}

/// Wakes the watchers of touched buckets. One task drives it; events that arrive while it runs are coalesced into the
/// next round.
#[derive(Debug)]
pub struct BucketWaker {
    interest: Arc<Interest>,
    /// Buffer reused between rounds.
    wakers: Vec<Waker>,
}

impl BucketWaker {
    pub(crate) const fn new(interest: Arc<Interest>) -> Self {
        Self { interest, wakers: Vec::new() }
    }

    /// Ready when a bucket with a waiting watcher was touched since the last round.
    ///
    /// # Errors
    /// [`ClosedCache`] if the cache is closed and all watchers were woken.
    pub fn poll_touched(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClosedCache>> {
        let (outcome, _dropped_outside) = {
            let rounds = &mut *self.interest.rounds.lock();
            if !rounds.buckets.is_empty() {
                (Poll::Ready(Ok(())), None)
            } else if rounds.closed {
                (Poll::Ready(Err(ClosedCache)), None)
            } else {
                (Poll::Pending, rounds.waker.replace(cx.waker().clone()))
            }
        };
        outcome
    }

    /// Wakes the watchers that wait at touched buckets. Returns their number. Cost: one waker each.
    pub fn wake(&mut self) -> usize {
        let touched = mem::take(&mut self.interest.rounds.lock().buckets);
        for waiters in &touched {
            // Cleared before taking the waiters: a watcher that registers later is in the next round.
            waiters.touched.store(false, Ordering::Release);
            waiters.take(&mut self.wakers);
        }
        let woken = self.wakers.len();
        self.wake_all();
        // Shrink the buffer after most watchers have left.
        self.wakers.shrink_to(woken * 2);
        woken
    }

    fn wake_all(&mut self) {
        // One by one: if a waker panics, `drop` still wakes the others.
        while let Some(waker) = self.wakers.pop() {
            waker.wake();
        }
    }
}

impl Drop for BucketWaker {
    fn drop(&mut self) {
        self.interest.orphaned.store(true, Ordering::Release);
        self.wake_all();
    }
}
