//! What one reader keeps of the past: a position in the history, and the objects of that time.
//!
//! INVARIANT: the objects of a reader that is cut are let go at once, whether it ever moves again or not: they are its
//! history's to take. INVARIANT: a reader holds them itself only while it walks on, for one step.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use informer_core::{Objects, Time};
use parking_lot::Mutex;

use super::Epoch;
use crate::{entry::Entry, limits::Limits};

/// A snapshot's share in the window. Dropping it lets the events go.
#[derive(Debug)]
pub(crate) struct Pin {
    epoch: Arc<Epoch>,
    position: u64,
    /// Tells it from others at its position.
    number: u64,
    held: Arc<Held>,
}

/// What a pin has in common with its history.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Once somebody reads them bit by bit.
    objects: Mutex<Option<Objects<Entry>>>,
    cut: AtomicBool,
    /// Whether its reader follows changes afterwards.
    is_stream: AtomicBool,
    /// Bytes of objects that were shown to its reader.
    read: AtomicU64,
    /// Whether everything was shown.
    done: AtomicBool,
}

/// A state that is read bit by bit, maybe by somebody slow.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    pub(crate) resource_version: u64,
    pub(super) pin: Arc<Pin>,
}

/// A reader that was cut.
#[derive(Debug)]
pub(crate) struct Cut {
    held: Arc<Held>,
    /// Whether its time was over; else the bytes were.
    pub(super) late: bool,
}

impl Pin {
    pub(super) const fn new(epoch: Arc<Epoch>, position: u64, number: u64, held: Arc<Held>) -> Self {
        Self { epoch, position, number, held }
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.held.is_cut()
    }

    pub(crate) const fn epoch(&self) -> &Arc<Epoch> {
        &self.epoch
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.epoch.unpin(self.position, self.number);
    }
}

impl Frozen {
    /// `objects` at the position of `pin`, from now on in the hands of its history.
    pub(crate) fn new(objects: Objects<Entry>, pin: Arc<Pin>, is_stream: bool) -> Self {
        pin.held.is_stream.store(is_stream, Ordering::Relaxed);
        let place = &mut *pin.held.objects.lock();
        // Looked at under the lock: who cuts says so before it takes what is here.
        if !pin.is_cut() {
            *place = Some(objects);
        }
        Self { resource_version: pin.position, pin: Arc::clone(&pin) }
    }

    /// The objects, for one step. `None` once it is cut, or its history is over and nothing more is sent of it.
    pub(crate) fn objects(&self) -> Option<Objects<Entry>> {
        self.pin.held.objects.lock().clone()
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.pin.is_cut()
    }

    /// `bytes` of objects were shown.
    pub(crate) fn read(&self, bytes: usize) {
        self.pin.held.read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Everything was shown: its reader may come back for what happened since.
    pub(crate) fn done(&self) {
        self.pin.held.done.store(true, Ordering::Relaxed);
    }
}

impl Held {
    pub(super) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    pub(super) fn is_stream(&self) -> bool {
        self.is_stream.load(Ordering::Relaxed)
    }

    pub(super) fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    /// Whether its reader, since `since`, has had its time.
    pub(super) fn is_late(&self, since: Time, now: Time, limits: &Limits) -> bool {
        let open = now.since(since);
        let least = u128::from(limits.stream_rate_min) * open.as_millis() / 1_000;
        let keeps_up = self.is_stream() && least <= u128::from(self.read.load(Ordering::Relaxed));
        limits.read_time_max <= open && !keeps_up
    }

    /// Lets the objects go. To be called without locks.
    pub(super) fn release(&self) {
        let objects = self.objects.lock().take();
        drop(objects);
    }
}

impl Cut {
    /// Says it to the reader, which finds out when it moves.
    pub(super) fn new(held: Arc<Held>, late: bool) -> Self {
        held.cut.store(true, Ordering::Release);
        Self { held, late }
    }

    /// Lets its objects go and counts it. To be called without locks.
    pub(crate) fn release(self, cuts: &Cuts) {
        self.held.release();
        let counter = match (self.held.is_stream(), self.late) {
            (false, false) => &cuts.lists_for_bytes,
            (false, true) => &cuts.lists_for_time,
            (true, false) => &cuts.streams_for_bytes,
            (true, true) => &cuts.streams_for_time,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Readers that were cut, by what they read and why.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    pub(crate) lists_for_bytes: AtomicU64,
    pub(crate) lists_for_time: AtomicU64,
    pub(crate) streams_for_bytes: AtomicU64,
    pub(crate) streams_for_time: AtomicU64,
}
