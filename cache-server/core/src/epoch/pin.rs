//! A reader's share in the past: a position in the epoch and the objects at that position.
//!
//! INVARIANT: the objects of a cut reader are freed at once, even if the reader never runs again, because the epoch
//! owns them. INVARIANT: a reader holds the objects itself only during one step.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use informer_core::{Objects, Time};

use super::Epoch;
use crate::{entry::Entry, limits::Limits, sync::Mutex};

/// A snapshot's share in the window. Dropping it allows its events to be evicted.
#[derive(Debug)]
pub(crate) struct Pin {
    epoch: Arc<Epoch>,
    /// Number of the newest event that the objects contain.
    position: u64,
    /// Distinguishes pins at one position.
    number: u64,
    held: Arc<PinnedState>,
}

/// State shared by a pin and its epoch.
#[derive(Debug, Default)]
pub(crate) struct PinnedState {
    /// Set once a reader reads the objects incrementally.
    objects: Mutex<Option<Objects<Entry>>>,
    cut: AtomicBool,
    /// True if the reader follows changes after the snapshot.
    is_stream: AtomicBool,
    /// Bytes of objects that the reader was given.
    read: AtomicU64,
    /// True once the reader was given all objects.
    done: AtomicBool,
}

/// A snapshot that is read incrementally, possibly by a slow reader.
#[derive(Clone, Debug)]
pub(crate) struct FrozenState {
    pub(crate) resource_version: u64,
    pub(super) pin: Arc<Pin>,
}

/// A reader that was cut.
#[derive(Debug)]
pub(crate) struct CutReader {
    held: Arc<PinnedState>,
    /// True if the reader exceeded its time; false if the byte bound was reached.
    pub(super) late: bool,
}

impl Pin {
    pub(super) const fn new(epoch: Arc<Epoch>, position: u64, number: u64, held: Arc<PinnedState>) -> Self {
        Self { epoch, position, number, held }
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.held.is_cut()
    }

    pub(crate) const fn position(&self) -> u64 {
        self.position
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

impl FrozenState {
    /// Moves `objects` at the position of `pin` into the ownership of the epoch.
    pub(crate) fn new(objects: Objects<Entry>, resource_version: u64, pin: Arc<Pin>, is_stream: bool) -> Self {
        pin.held.is_stream.store(is_stream, Ordering::Relaxed);
        let place = &mut *pin.held.objects.lock();
        // Checked under the lock: a cut sets the flag before it takes the objects from here.
        if !pin.is_cut() {
            *place = Some(objects);
        }
        Self { resource_version, pin: Arc::clone(&pin) }
    }

    /// Returns the objects, for one step. `None` once the reader is cut, or once its epoch ended and its stream was
    /// released.
    pub(crate) fn objects(&self) -> Option<Objects<Entry>> {
        self.pin.held.objects.lock().clone()
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.pin.is_cut()
    }

    /// Counts `bytes` of objects given to the reader.
    pub(crate) fn read(&self, bytes: usize) {
        self.pin.held.read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Marks the snapshot as read to the end: the reader may resume with the events since.
    pub(crate) fn done(&self) {
        self.pin.held.done.store(true, Ordering::Relaxed);
    }
}

impl PinnedState {
    pub(super) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    pub(super) fn is_stream(&self) -> bool {
        self.is_stream.load(Ordering::Relaxed)
    }

    /// Bytes of objects that the reader was given.
    pub(super) fn read_bytes(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    pub(super) fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns true if the reader, open since `since`, exceeded its time.
    pub(super) fn is_late(&self, since: Time, now: Time, limits: &Limits) -> bool {
        let open = now.since(since);
        let least = u128::from(limits.stream_rate_min) * open.as_millis() / 1_000;
        let keeps_up = self.is_stream() && least <= u128::from(self.read.load(Ordering::Relaxed));
        limits.read_time_max <= open && !keeps_up
    }

    /// Frees the objects. Call without locks.
    pub(super) fn release(&self) {
        // Moved out first, so that the map is freed after the lock is released.
        let objects = self.objects.lock().take();
        drop(objects);
    }
}

impl CutReader {
    /// Sets the cut flag; the reader notices at its next step.
    pub(super) fn new(held: Arc<PinnedState>, late: bool) -> Self {
        held.cut.store(true, Ordering::Release);
        Self { held, late }
    }

    /// Frees the objects and counts the cut. Call without locks.
    pub(crate) fn release(self, cuts: &CutCounts) {
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

/// Readers that were cut, by kind of read and cause.
#[derive(Debug, Default)]
pub(crate) struct CutCounts {
    pub(crate) lists_for_bytes: AtomicU64,
    pub(crate) lists_for_time: AtomicU64,
    pub(crate) streams_for_bytes: AtomicU64,
    pub(crate) streams_for_time: AtomicU64,
}
