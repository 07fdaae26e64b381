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
    /// Bytes that only the window keeps alive: previous objects and the events themselves. Default 64 MiB. Hard,
    /// except that one event always fits and that open snapshots may raise it to [`Self::snapshot_bytes_max`].
    pub window_bytes_max: usize,
    /// Events in the window. Default 65,536. Their memory is bounded in bytes as well, so this bounds only the time of
    /// an undo.
    pub window_events_max: usize,
    /// Age above which events are evicted even when there is room. Default 5 min. Not a minimum: the other bounds may
    /// evict earlier.
    pub window_age_max: Duration,
    /// Window bytes while an open snapshot still needs its events. Default 128 MiB. Above it the slowest reader is
    /// cut.
    pub snapshot_bytes_max: usize,
    /// Time for which a reader of a snapshot may keep events that would be evicted otherwise. Default 60 s, the
    /// duration of a LIST in Kubernetes. A slower reader is cut when the window moves past it.
    pub read_time_max: Duration,
    /// Bytes of stored objects per second at which an initial stream may exceed [`Self::read_time_max`]. Default 256
    /// KiB.
    pub stream_rate_min: u64,
    /// Window bytes of all resource types that share a [`Total`]. Default 256 MiB. Hard, even while snapshots are
    /// open.
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

/// Window bytes of several caches together. Clones share one sum.
#[derive(Clone, Debug, Default)]
pub struct Total(Arc<Sums>);

#[derive(Debug, Default)]
struct Sums {
    now: AtomicUsize,
    gone: AtomicU64,
}

impl Total {
    /// Returns the current sum, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.now.load(Ordering::Relaxed)
    }

    /// Returns the bytes subtracted from the sum since the start: all bytes that updates and deletions leave behind.
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

/// Events that a reader takes under one lock. Cost under the lock: one reference count each.
pub const EVENTS_PER_LOCK: usize = 64;

/// Events that the writer evicts under one lock. When a slow reader finishes, a hundred thousand may be due at once,
/// at about 0.3 µs each, during which all readers would wait.
pub const EVICTED_PER_LOCK: usize = 256;

/// Objects and events that a cursor examines in one step, whether they match or not. Bounds the time for which it
/// occupies a worker.
pub const LOOKED_AT_PER_STEP: usize = 2_048;

/// Conditions of a selector that are evaluated at the cost of one examined object; a selector with more of them counts
/// as several objects.
pub const CONDITIONS_PER_OBJECT: usize = 4;

/// Examined objects that one match of a selector counts as, above which a step takes about a millisecond however little
/// it finds. Selectors of real clients have up to ten conditions.
pub const LONG_SELECTOR_WEIGHT: usize = 16;

/// Bytes of objects that are sent in one step; the object that reaches the bound is still sent. Slicing is free, but
/// values derived from an object at its first use (table rows, compressed pieces) are not. About a millisecond.
pub const READ_PER_STEP: usize = 128 << 10;

/// Bytes of an object above which a small slice of it on its way to a client does not keep it alive: a slice shorter
/// than the object divided by [`SHARED_PART_MIN`] is copied. A slow client therefore keeps at most the bytes of its
/// batch times that divisor, plus this much per slice.
pub const SHARED_BYTES_MIN: usize = 4 << 10;

/// See [`SHARED_BYTES_MIN`]. Copying a quarter of the object costs less than one access to memory outside the CPU
/// cache.
pub const SHARED_PART_MIN: usize = 4;

/// Bytes of an object above which another encoding of it is computed outside the cursor's step, where it delays no
/// other client: some 10 ns per byte.
pub const APART_BYTES: usize = 64 << 10;

/// Like [`APART_BYTES`], for table rows: columns may visit each value several times, which makes about 100 ns per
/// byte.
pub const ROW_APART_BYTES: usize = 16 << 10;

/// Weight of a byte of an object whose row is computed now, relative to a byte that is sent as stored.
pub const ROW_EFFORT: usize = 8;

/// Minimum bytes that each row is charged for, before [`ROW_EFFORT`]: columns visit some thousand values of any
/// object.
pub const ROW_BYTES_MIN: usize = 2 << 10;

/// Bytes of an object's cells that are cached with it, independent of the process-wide bound.
pub const CELLS_KEPT_MAX: usize = 1 << 10;

/// Bytes of longer cells that are cached for all objects of this process, such as a column that shows half of a custom
/// resource. Without room they are computed each time.
pub const LONG_CELLS_BYTES_MAX: usize = 16 << 20;

/// Values of one requirement that are checked against an object's sketch. For more values only the label's key is
/// checked, because the Bloom filter would nearly always report one of them as present.
pub const VALUES_SKETCHED_MAX: usize = 16;

/// Requirements with several values that are checked against an object's sketch, each with up to
/// [`VALUES_SKETCHED_MAX`].
pub const REQUIREMENTS_SKETCHED_MAX: usize = 16;

/// Requirements of a selector whose labels are each searched for in an object's text. With more of them, the object's
/// labels are looked up in the selector instead. Memory: some 300 bytes each, while the filter lives.
pub const KEYS_SEARCHED_MAX: usize = 8;

/// Bytes of compressed objects that are cached for responses, for all caches of this process. Without room, objects are
/// embedded uncompressed: that costs neither time nor a copy.
pub const PIECES_BYTES_MAX: usize = 64 << 20;

/// Average bytes of a group of objects that is compressed together. The window of deflate is 32 KiB.
pub const GROUP_BYTES: usize = 48 << 10;

/// Bytes of objects at which such a group ends; the object that reaches it belongs to it. Compressing them takes about a
/// millisecond.
pub const GROUP_BYTES_MAX: usize = 128 << 10;

/// Bytes of protobuf messages and converted objects that are cached for all caches of this process. Without room, lists
/// encode and convert objects for each client, and events displace what was not used lately.
pub const MESSAGES_BYTES_MAX: usize = 128 << 20;

/// Time after which a message, converted object or piece that no client used is dropped, at the latest at twice that.
pub const MESSAGES_IDLE: Duration = Duration::from_secs(60);

/// Filters that the watchers of one cache share. Memory: some 100 bytes each, and with two watchers or more
/// [`VERDICTS_KEPT`] words; freed with their last watcher. Above the limit filters are not shared.
pub const FILTERS_SHARED_MAX: usize = 2_048;

/// Events whose verdict a shared filter caches; watchers that are further apart evaluate it again. Memory: 8 bytes
/// each.
pub const VERDICTS_KEPT: usize = 256;

/// State locks that one reconnecting watcher takes in a row while it holds an index of the backlog. Up to
/// [`EVENTS_PER_LOCK`] events each, about 0.3 ms together; then other watchers get their turn.
pub const LOOKS_PER_TURN: usize = 16;

/// Exact states cached for the next page or reader. Memory: the parts of each that it does not share with the current
/// objects; dropped once the window no longer reaches back to them. Above the limit, the user with most of them loses one.
pub const EXACT_STATES_KEPT: usize = 16;

/// Positions of paged lists that are kept resumable for a while. Above the limit, the user with most of them loses the one
/// with the earliest deadline.
pub const HELD_POSITIONS_MAX: usize = 1_024;

/// Upper bound on the time for which the position of a slow reader that finished is kept, so that it can resume; the
/// time is as long as the read took. Within [`Limits::snapshot_bytes_max`].
pub const RESUMED_WITHIN: Duration = Duration::from_secs(30);

const _: () = assert!(EVENTS_PER_LOCK <= LOOKED_AT_PER_STEP, "a step takes at least one batch");
