//! Who waits for which bucket, and the step that wakes them.
//!
//! INVARIANT: nobody sleeps through an event. A watcher parks while it holds the state's read lock and has seen that
//! nothing is unread; the writer pushes under the write lock and only then looks who is parked.
//! INVARIANT: wakers are called and dropped while no lock is held: both may run other people's code.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

use crate::cache::Closed;

/// Watchers of one bucket that wait for its next event.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    places: Mutex<Places>,
    /// In the list of touched buckets already.
    touched: AtomicBool,
}

#[derive(Debug, Default)]
struct Places {
    /// Indexed by place, in the order they parked.
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
    /// Counts how often everybody was taken out; a place is good for one round.
    round: u64,
}

/// Where a watcher is parked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    index: usize,
    round: u64,
}

impl Parked {
    /// Parks a watcher, once however often it is called. Returns a waker to drop outside of locks.
    pub(crate) fn park(&self, place: &mut Option<Place>, waker: &Waker) -> Option<Waker> {
        let places = &mut *self.places.lock();
        if let Some(place) = place
            && place.round == places.round
        {
            let parked = &mut places.wakers[place.index];
            let same = parked.as_ref().is_some_and(|parked| parked.will_wake(waker));
            return if same { None } else { parked.replace(waker.clone()) };
        }
        let index = places.free.pop().unwrap_or_else(|| {
            places.wakers.push(None);
            places.wakers.len() - 1
        });
        *place = Some(Place { index, round: places.round });
        places.wakers[index].replace(waker.clone())
    }

    /// Takes a watcher out. Returns a waker to drop outside of locks.
    pub(crate) fn leave(&self, place: Option<Place>) -> Option<Waker> {
        let place = place?;
        let places = &mut *self.places.lock();
        if place.round != places.round {
            return None;
        }
        places.free.push(place.index);
        places.wakers[place.index].take()
    }

    fn is_empty(&self) -> bool {
        let places = self.places.lock();
        places.wakers.len() == places.free.len()
    }

    /// Takes everybody out.
    fn take(&self, into: &mut Vec<Waker>) {
        let places = &mut *self.places.lock();
        into.extend(places.wakers.drain(..).flatten());
        places.free.clear();
        places.round += 1;
    }
}

/// Buckets touched since the last round, shared by the writer and the waking side.
#[derive(Debug, Default)]
pub(crate) struct Interest {
    rounds: Mutex<Touched>,
}

#[derive(Debug, Default)]
struct Touched {
    buckets: Vec<Arc<Parked>>,
    /// Of the waking side.
    waker: Option<Waker>,
    closed: bool,
}

impl Interest {
    /// Notes the buckets in `touched` where somebody is parked, and lets the waking side run. Leaves `touched` empty.
    /// The caller holds no lock and has pushed before.
    pub(crate) fn touch(&self, touched: &mut Vec<Arc<Parked>>) {
        touched.retain(|parked| !parked.is_empty() && !parked.touched.swap(true, Ordering::AcqRel));
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

    /// Ready when a bucket with somebody parked was touched since the last round.
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

    /// Wakes whoever is parked at a touched bucket. Returns how many. Cost: one waker each.
    pub fn wake(&mut self) -> usize {
        let touched = mem::take(&mut self.interest.rounds.lock().buckets);
        for parked in &touched {
            // Before taking: who parks from now on is in the next round.
            parked.touched.store(false, Ordering::Release);
            parked.take(&mut self.wakers);
        }
        let woken = self.wakers.len();
        self.wakers.drain(..).for_each(Waker::wake);
        woken
    }
}
