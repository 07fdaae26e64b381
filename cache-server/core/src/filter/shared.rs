//! Deduplicates equal filters of one cache: their watchers share the filter's memory and its verdicts.
//!
//! INVARIANT: the table keeps no filter alive; a filter is freed with its last watcher. INVARIANT: the table has at
//! most [`FILTERS_SHARED_MAX`] entries, and dead ones are swept out when it has doubled. Above the limit a watcher
//! gets a filter of its own with equal results.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{Filter, verdicts::CachedFilter};
use crate::{limits::FILTERS_SHARED_MAX, sync::Mutex};

/// The filters of one cache's watchers.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    hasher: RandomState,
    table: Mutex<Table>,
    /// Number of evaluations of a filter against an event.
    pub(crate) evaluations: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    /// By hash. Of two filters with one hash, the later one is not shared.
    known: HashMap<u64, Weak<CachedFilter>>,
    /// Number of entries at which dead ones are swept out.
    room: usize,
    /// Filters that are not inserted before a full table is swept again.
    skip: usize,
}

impl Filters {
    /// Returns the shared filter equal to `filter`; the first watcher's filter becomes the shared one.
    pub(crate) fn share(&self, filter: Arc<Filter>) -> Arc<CachedFilter> {
        if !filter.is_worth_sharing() {
            return Arc::new(CachedFilter::new(filter));
        }
        let hash = self.hasher.hash_one(&*filter);
        let mut table = self.table.lock();
        match table.known.get(&hash).and_then(Weak::upgrade) {
            Some(cached) if **cached.filter() == *filter => {
                cached.share();
                cached
            }
            // A hash collision: the known filter keeps its place, and this one is not shared.
            Some(_) => Arc::new(CachedFilter::new(filter)),
            None => {
                let cached = Arc::new(CachedFilter::new(filter));
                table.insert(hash, &cached);
                cached
            }
        }
    }

    /// Returns the number of evaluations of selectors against an event.
    pub(crate) fn evaluations(&self) -> u64 {
        self.evaluations.load(Ordering::Relaxed)
    }
}

impl Table {
    fn insert(&mut self, hash: u64, cached: &Arc<CachedFilter>) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        if self.room <= self.known.len() {
            self.known.retain(|_, cached| cached.strong_count() > 0);
            self.room = (self.known.len() * 2).clamp(ROOM_MIN, FILTERS_SHARED_MAX);
            self.known.shrink_to(self.room);
        }
        if self.known.len() < self.room {
            self.known.insert(hash, Arc::downgrade(cached));
        } else {
            // A full sweep of a full table costs too much to repeat for each new filter.
            self.skip = FILTERS_SHARED_MAX;
        }
    }
}

/// Minimum number of entries before dead ones are swept out.
const ROOM_MIN: usize = 64;
