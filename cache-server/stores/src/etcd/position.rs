//! The stream of one type as others see it: the position that they need, the cache that it fills, and the keys that it
//! had to leave out.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use watch_cache::Reader;

/// Shared by the stream of a type and by the readers that need its position.
#[derive(Default)]
pub(super) struct StreamPosition {
    /// The newest revision that a reader needs.
    requested: AtomicU64,
    is_requested: Notify,
    /// True if etcd was found without the history of the stream, until the stream ends for that.
    is_lost: AtomicBool,
    /// Cluster of the last stream; zero before the first.
    cluster: AtomicU64,
    followed: Mutex<FollowedCache>,
    /// Keys below the type's prefix that are no objects, or whose values cannot be read.
    unreadable: Mutex<BTreeSet<Box<[u8]>>>,
}

/// The cache that the newest stream fills.
#[derive(Default)]
struct FollowedCache {
    /// `None` between two streams.
    cache: Option<Reader>,
    /// Position of the last cache when its stream ended.
    left_at: u64,
    /// Number of the stream.
    stream: u64,
}

/// Where the cache of a type is.
#[derive(Clone, Copy)]
pub(super) struct CachePosition {
    /// Position of the cache; of the last stream's end between two streams.
    pub(super) applied: u64,
    /// Number of the stream that fills it.
    pub(super) stream: u64,
}

impl FollowedCache {
    fn position(&self) -> CachePosition {
        CachePosition { applied: self.cache.as_ref().map_or(self.left_at, Reader::applied), stream: self.stream }
    }
}

impl StreamPosition {
    /// Makes the stream report a position at or above `revision`.
    pub(super) fn want(&self, revision: u64) {
        if self.requested.fetch_max(revision, Ordering::Relaxed) < revision {
            self.is_requested.notify_one();
        }
    }

    /// Returns where the cache is.
    pub(super) fn of_cache(&self) -> CachePosition {
        self.followed.lock().position()
    }

    /// True if etcd may have the history of the cache: `newest` and `cluster` are of an answer to a question that was sent
    /// when the cache was at `before`. Otherwise etcd was restored, and this call ends that stream: the
    /// process that served its watch may have exited without closing it. A history that has reached the same revision again is not told apart.
    pub(super) fn has_history(&self, before: CachePosition, newest: u64, cluster: u64) -> bool {
        let followed = self.followed.lock();
        let now = followed.position();
        // The cache may have the other history since, or changes behind the answer.
        if self.has_cluster(cluster) && (before.applied <= newest || now.applied <= newest) {
            return true;
        }
        if before.stream == now.stream {
            self.is_lost.store(true, Ordering::Relaxed);
            self.is_requested.notify_one();
        }
        false
    }

    /// True once after [`has_history`](Self::has_history) was false.
    pub(super) fn take_lost(&self) -> bool {
        self.is_lost.swap(false, Ordering::Relaxed)
    }

    /// Waits until the history is lost; or until a position above `delivered` is needed, and [`ASK_AGAIN`] has passed since
    /// the time of a request for it that was not answered.
    pub(super) async fn due(&self, delivered: u64, unanswered: Option<Instant>) {
        let is_lost = || self.is_lost.load(Ordering::Relaxed);
        while !is_lost() && self.requested.load(Ordering::Relaxed) <= delivered {
            self.is_requested.notified().await;
        }
        if is_lost() {
            return;
        }
        if let Some(sent) = unanswered {
            sleep_until(sent + ASK_AGAIN).await;
        }
    }

    /// Begins a stream with a state: positions of an earlier one may be those of another history.
    pub(super) fn begin(&self) {
        self.requested.store(0, Ordering::Relaxed);
        self.is_lost.store(false, Ordering::Relaxed);
        self.cluster.store(0, Ordering::Relaxed);
        self.unreadable.lock().clear();
    }

    /// Notes the cluster that answers. Returns false if another one did before.
    pub(super) fn note_cluster(&self, cluster: u64) -> bool {
        [0, cluster].contains(&self.cluster.swap(cluster, Ordering::Relaxed))
    }

    /// True unless another cluster answered before.
    pub(super) fn has_cluster(&self, cluster: u64) -> bool {
        [0, cluster].contains(&self.cluster.load(Ordering::Relaxed))
    }

    /// Begins to fill a cache. Returns the number of the stream.
    pub(super) fn follow(&self, cache: Reader) -> u64 {
        let followed = &mut *self.followed.lock();
        self.is_lost.store(false, Ordering::Relaxed);
        followed.cache = Some(cache);
        followed.stream += 1;
        followed.stream
    }

    /// Ends a stream, and frees its cache. A later stream may have begun.
    pub(super) fn leave(&self, stream: u64) {
        let followed = &mut *self.followed.lock();
        if followed.stream == stream {
            followed.left_at = followed.cache.take().map_or(followed.left_at, |cache| cache.applied());
        }
    }

    /// Returns the cache that the stream fills, if it has a state.
    pub(super) fn cache(&self) -> Option<Reader> {
        self.followed.lock().cache.clone().filter(|cache| 0 < cache.applied())
    }

    /// Notes whether a key is left out of the state.
    pub(super) fn note_readable(&self, key: &[u8], is_readable: bool) {
        let unreadable = &mut *self.unreadable.lock();
        if is_readable {
            unreadable.remove(key);
        } else {
            unreadable.insert(key.into());
        }
    }

    /// True if a key was left out of the state.
    pub(super) fn is_unreadable(&self, key: &[u8]) -> bool {
        self.unreadable.lock().contains(key)
    }

    /// Returns the number of keys that are left out.
    pub(super) fn unreadable(&self) -> usize {
        self.unreadable.lock().len()
    }
}

/// Pause before a position is asked for again: etcd does not answer while the watch has changes to catch up with.
const ASK_AGAIN: Duration = Duration::from_millis(50);
