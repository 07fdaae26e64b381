//! The wake-up protocol: who waits for which bucket, and the step that wakes them.
//!
//! INVARIANT: nobody sleeps through an event. A watcher starts to wait while it holds the state's read lock and has seen
//! that nothing is unread ([`look_or_wait`]); the writer pushes under the write lock and only then looks who waits
//! ([`Interest::publish`]); the waking side forgets that a bucket was touched before it takes who waits there
//! ([`Waking::wake`]). INVARIANT: wakers are called and dropped while no lock is held: both may run other people's code.
//! INVARIANT: this file knows `std` and `super::sync` alone, so that `tests/wake_up.rs` can check it on every schedule.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use super::sync::{AtomicBool, Mutex, Ordering, RwLock};

/// The cache takes nothing in any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the cache is closed")
    }
}

impl std::error::Error for Closed {}

/// Watchers that wait for one bucket's next event.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    places: Mutex<Places>,
    /// In the list of touched buckets already.
    touched: AtomicBool,
}

#[derive(Debug, Default)]
struct Places {
    /// By index, in the order they came.
    slots: Vec<Slot>,
    /// How many of them wait.
    waiting: u32,
    /// The first slot that is free.
    free: Option<u32>,
    /// Counts how often everybody was taken out; a place is good for one round.
    rounds: u64,
}

/// One watcher's place among [`Waiters`].
#[derive(Debug)]
enum Slot {
    Waiting(Waker),
    /// With the next one that is free.
    Free(Option<u32>),
}

/// Where a watcher waits; by default nowhere.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    index: u32,
    /// The round it is good for, from one.
    round: u64,
}

impl Waiters {
    /// Waits, once however often it is called. Returns a waker to drop outside of locks.
    fn wait(&self, place: &mut Place, waker: &Waker) -> Option<Waker> {
        let places = &mut *self.places.lock();
        if let Some(Slot::Waiting(waiting)) = places.at(*place) {
            return if waiting.will_wake(waker) { None } else { Some(mem::replace(waiting, waker.clone())) };
        }
        *place = places.put(waker.clone());
        None
    }

    /// Takes a watcher out. Returns a waker to drop outside of locks.
    pub(crate) fn leave(&self, place: Place) -> Option<Waker> {
        let places = &mut *self.places.lock();
        let free = Slot::Free(places.free);
        let Slot::Waiting(waker) = mem::replace(places.at(place)?, free) else { return None };
        places.free = Some(place.index);
        places.waiting -= 1;
        Some(waker)
    }

    fn is_empty(&self) -> bool {
        self.places.lock().waiting == 0
    }

    /// Takes everybody out.
    fn take(&self, into: &mut Vec<Waker>) {
        let places = &mut *self.places.lock();
        let came = places.slots.len();
        into.extend(places.slots.drain(..).filter_map(|slot| match slot {
            Slot::Waiting(waker) => Some(waker),
            Slot::Free(_) => None,
        }));
        // When most have left, the room for them goes too.
        places.slots.shrink_to(came * 2);
        (places.free, places.waiting) = (None, 0);
        places.rounds += 1;
    }
}

impl Places {
    /// The slot of a place that is still good.
    fn at(&mut self, place: Place) -> Option<&mut Slot> {
        if place.round == self.rounds + 1 { self.slots.get_mut(place.index as usize) } else { None }
    }

    fn put(&mut self, waker: Waker) -> Place {
        let slot = Slot::Waiting(waker);
        let index = match self.free {
            Some(index) => {
                let Slot::Free(next) = mem::replace(&mut self.slots[index as usize], slot) else {
                    unreachable!("the free list leads from free slot to free slot")
                };
                self.free = next;
                index
            }
            None => {
                if self.slots.capacity() == 0 {
                    // Most buckets have one watcher.
                    self.slots.reserve_exact(1);
                }
                self.slots.push(slot);
                u32::try_from(self.slots.len() - 1).expect("memory for fewer than 2^32 watchers")
            }
        };
        self.waiting += 1;
        Place { index, round: self.rounds + 1 }
    }
}

/// What a look at the state came to.
pub(crate) enum Look<T> {
    Found(T),
    /// Nothing is unread.
    Nothing,
}

/// Looks at `state`, and when it finds nothing there, waits with the waker given for the next event of the waiters given.
/// The read lock is held for both, so nothing is pushed in between.
pub(crate) fn look_or_wait<S, T>(
    state: &RwLock<S>,
    wait: Option<(&Waiters, &Waker)>,
    place: &mut Place,
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
    /// True once the waking side is gone. Then the writer wakes.
    orphaned: AtomicBool,
    rounds: Mutex<Touched>,
}

#[derive(Debug, Default)]
struct Touched {
    buckets: Vec<Arc<Waiters>>,
    /// Of the waking side.
    waker: Option<Waker>,
    closed: bool,
}

impl Interest {
    /// Changes `state` under its write lock with `push`, which notes whose buckets it touches, and lets the waking side
    /// run when somebody waits there. `touched` is room kept between calls: empty before and after.
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

    /// The caller holds no lock and has pushed before.
    fn touch(&self, touched: &mut Vec<Arc<Waiters>>) {
        if self.orphaned.load(Ordering::Acquire) {
            // Those noted before too: nobody comes for them.
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

    /// Nothing is published any more. The last word of the writer.
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
    /// Whether somebody waits here and this was not noted before: the caller notes it.
    fn touch(&self) -> bool {
        // A bucket that is noted already is taken after this: whoever waited for what was just pushed came before.
        let noted = self.touched.load(Ordering::Acquire);
        !noted && !self.is_empty() && !self.touched.swap(true, Ordering::AcqRel)
    }
}

/// Wakes the watchers of touched buckets. One task drives it; meanwhile the next events gather, and that is the
/// coalescing.
#[derive(Debug)]
pub struct Waking {
    interest: Arc<Interest>,
    /// Room kept between rounds.
    wakers: Vec<Waker>,
}

impl Waking {
    pub(crate) const fn new(interest: Arc<Interest>) -> Self {
        Self { interest, wakers: Vec::new() }
    }

    /// Ready when a bucket with somebody waiting was touched since the last round.
    ///
    /// # Errors
    /// [`Closed`] when the cache is closed and everybody was woken.
    pub fn poll_touched(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        let (outcome, _dropped_outside) = {
            let rounds = &mut *self.interest.rounds.lock();
            if !rounds.buckets.is_empty() {
                (Poll::Ready(Ok(())), None)
            } else if rounds.closed {
                (Poll::Ready(Err(Closed)), None)
            } else {
                (Poll::Pending, rounds.waker.replace(cx.waker().clone()))
            }
        };
        outcome
    }

    /// Wakes whoever waits at a touched bucket. Returns how many. Cost: one waker each.
    pub fn wake(&mut self) -> usize {
        let touched = mem::take(&mut self.interest.rounds.lock().buckets);
        for waiters in &touched {
            // Before taking: who waits from now on is in the next round.
            waiters.touched.store(false, Ordering::Release);
            waiters.take(&mut self.wakers);
        }
        let woken = self.wakers.len();
        self.wake_all();
        // When most have left, the room for them goes too.
        self.wakers.shrink_to(woken * 2);
        woken
    }

    fn wake_all(&mut self) {
        // One by one: should a waker panic, the others are still there to be woken.
        while let Some(waker) = self.wakers.pop() {
            waker.wake();
        }
    }
}

impl Drop for Waking {
    fn drop(&mut self) {
        self.interest.orphaned.store(true, Ordering::Release);
        self.wake_all();
    }
}
