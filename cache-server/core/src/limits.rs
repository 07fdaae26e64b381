//! Every bound of the cache by name, with its unit and what it costs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Bounds of one resource type's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that only the window keeps alive: previous objects and the events themselves. Default 64 MiB. Hard, except
    /// that one event always fits and that open snapshots may raise it to [`Self::snapshot_bytes_max`].
    pub window_bytes_max: usize,
    /// Events in the window. Default 65,536. Memory: counted in bytes as well, so this only bounds the time of an undo.
    pub window_events_max: usize,
    /// Age above which events go even when there is room. Default 5 min. Only trims; never keeps.
    pub window_age_max: Duration,
    /// Window bytes while an open snapshot still needs its events. Default 128 MiB. Above it the slowest reader is cut.
    pub snapshot_bytes_max: usize,
    /// How long a reader of a snapshot may keep events that would go without it. Default 60 s, as long as a LIST may take
    /// in Kubernetes. Who takes longer is cut when the window moves on.
    pub read_time_max: Duration,
    /// Bytes a second, of objects as they are stored, at which an initial stream may take longer than that. Default
    /// 256 KiB.
    pub stream_rate_min: u64,
    /// Window bytes of all resource types that share a [`Total`]. Default 256 MiB. Hard, whatever is open.
    pub window_bytes_total_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            window_bytes_max: 64 << 20,
            window_events_max: 65_536,
            window_age_max: Duration::from_secs(300),
            snapshot_bytes_max: 128 << 20,
            read_time_max: Duration::from_secs(60),
            stream_rate_min: 256 << 10,
            window_bytes_total_max: 256 << 20,
        }
    }
}

/// Window bytes of several caches together. Clones count into the same sum.
#[derive(Clone, Debug, Default)]
pub struct Total(Arc<Sums>);

#[derive(Debug, Default)]
struct Sums {
    now: AtomicUsize,
    gone: AtomicU64,
}

impl Total {
    /// The sum now, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.now.load(Ordering::Relaxed)
    }

    /// What was taken off the sum since the start, in bytes: all that updates and deletions leave behind goes this way.
    #[must_use]
    pub fn bytes_gone(&self) -> u64 {
        self.0.gone.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.0.now.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, bytes: usize) {
        self.0.now.fetch_sub(bytes, Ordering::Relaxed);
        self.0.gone.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Events a reader takes while it holds the lock. Cost under the lock: one reference count each.
pub const EVENTS_PER_LOCK: usize = 64;

/// Events that go while the writer holds the lock. When a slow reader is done, a hundred thousand may be due at once: about
/// 0.3 µs each, and everybody waits meanwhile.
pub const EVICTED_PER_LOCK: usize = 256;

/// Objects and events a cursor looks at in one step, whether they match or not. Bounds the time it holds a worker.
pub const LOOKED_AT_PER_STEP: usize = 2_048;

/// Conditions of a selector that an object is asked for one look at it; with more of them it counts as more objects.
pub const CONDITIONS_PER_OBJECT: usize = 8;

/// Bytes of objects that are shown in one step; the object that reaches them still is. Slices of them cost nothing, but
/// what is made of an object when it is shown first does: rows, compressed pieces. About a millisecond.
pub const READ_PER_STEP: usize = 128 << 10;

/// Objects longer than this, in bytes, are not kept alive by a small part of them on its way to a client: of a part that is
/// shorter than the object divided by [`SHARED_PART_MIN`] the client gets a copy. So what a slow client keeps is bounded by
/// the bytes of its batch times that, and by this for each of its slices.
pub const SHARED_BYTES_MIN: usize = 4 << 10;

/// See [`SHARED_BYTES_MIN`]. Copying a quarter costs less than one look at memory that is not in a cache.
pub const SHARED_PART_MIN: usize = 4;

/// Bytes of an object above which another encoding of it is made apart from others, where it holds up nobody: some 10 ns
/// each.
pub const APART_BYTES: usize = 64 << 10;

/// The same of its row: columns may look at each value some times, which makes 100 ns of a byte.
pub const ROW_APART_BYTES: usize = 16 << 10;

/// How many bytes of an object that is shown as it is a byte counts as whose row is made now.
pub const ROW_EFFORT: usize = 8;

/// Bytes that each row counts as at least, before [`ROW_EFFORT`]: columns look at some thousand values of any object.
pub const ROW_BYTES_MIN: usize = 2 << 10;

/// Bytes of an object's cells that are kept with it, whatever else is kept.
pub const CELLS_KEPT_MAX: usize = 1 << 10;

/// Bytes of longer cells, as of a column that shows half of a custom resource, that are kept of all objects of this
/// process. Without room they are made each time.
pub const LONG_CELLS_BYTES_MAX: usize = 16 << 20;

/// Values of one requirement that are looked for in an object's sketch. With more of them only the label's key is, since
/// one of them is nearly always said to be there.
pub const VALUES_SKETCHED_MAX: usize = 16;

/// Requirements of several values that are looked for in an object's sketch, each with up to [`VALUES_SKETCHED_MAX`].
pub const REQUIREMENTS_SKETCHED_MAX: usize = 16;

/// Requirements of a selector whose labels are each searched for in an object's text. With more of them, the labels of the
/// object are looked up in the selector. Memory: some 300 bytes each, for as long as the filter lives.
pub const KEYS_SEARCHED_MAX: usize = 8;

/// Bytes of compressed objects that are kept for lists, of all caches of this process. Without room, short objects are
/// compressed for each list that has them.
pub const PIECES_BYTES_MAX: usize = 64 << 20;

/// Bytes of an object that is compressed for one list alone. Longer ones go into it as they are: they are shared then.
pub const PIECE_ALONE_BYTES_MAX: usize = 16 << 10;

/// Filters that watchers of one cache share. Memory: some 100 bytes each, and with two watchers or more [`VERDICTS_KEPT`]
/// words; gone with their watchers. Beyond that each watcher has a filter of its own.
pub const FILTERS_SHARED_MAX: usize = 2_048;

/// Events that a shared filter remembers its verdict of: watchers that are further apart ask again. Memory: 8 bytes each.
pub const VERDICTS_KEPT: usize = 256;

/// Locks of the state that one watcher that comes back takes in a row while it holds the index of who comes back. Up to
/// [`EVENTS_PER_LOCK`] events each, about 0.3 ms together; others go on in between.
pub const LOOKS_PER_TURN: usize = 16;

/// Exact states kept for the next page or reader. Memory: what each does not share with the objects now; gone as soon
/// as the window no longer reaches back to them.
pub const EXACT_STATES_KEPT: usize = 16;

/// Positions of paged listings that are kept resumable for a while. More replace the one that would end first.
pub const HELD_POSITIONS_MAX: usize = 1_024;

/// How long the position of a reader that was slow and got everything is kept, so that it can come back for what happened
/// since: as long as it read, and no longer than this. Within [`Limits::snapshot_bytes_max`].
pub const RESUMED_WITHIN: Duration = Duration::from_secs(30);

const _: () = assert!(EVENTS_PER_LOCK <= LOOKED_AT_PER_STEP, "a step takes at least one batch");
