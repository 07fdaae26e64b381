//! Equal filters of one cache, made one: their watchers share its memory and its verdicts.
//!
//! INVARIANT: nothing is kept alive; a filter goes with its last watcher. INVARIANT: at most
//! [`FILTERS_SHARED_MAX`] are known, and only while there are watchers in number: what died is swept out when the table
//! has doubled. Beyond that a watcher has a filter of its own, which says the same.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

use super::{Filter, verdicts::Judge};
use crate::limits::FILTERS_SHARED_MAX;

/// The filters that watchers of one cache have.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    hasher: RandomState,
    table: Mutex<Table>,
    /// Times that a filter was asked about an event.
    pub(crate) asked: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    /// By hash. Of two filters with one hash, the later one is not shared.
    known: HashMap<u64, Weak<Judge>>,
    /// How many there may be before those that died are looked for.
    room: usize,
    /// Filters that are not put in before a full table is looked through again.
    skip: usize,
}

impl Filters {
    /// The one that watchers of an equal filter use; a new one for the first of them.
    pub(crate) fn share(&self, filter: Arc<Filter>) -> Arc<Judge> {
        if !filter.is_worth_sharing() {
            return Arc::new(Judge::new(filter));
        }
        let hash = self.hasher.hash_one(&*filter);
        let mut table = self.table.lock();
        match table.known.get(&hash).and_then(Weak::upgrade) {
            Some(judge) if **judge.filter() == *filter => {
                judge.share();
                judge
            }
            Some(_) => Arc::new(Judge::new(filter)),
            None => {
                let judge = Arc::new(Judge::new(filter));
                table.insert(hash, &judge);
                judge
            }
        }
    }

    /// Times that selectors were asked about an event.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Table {
    fn insert(&mut self, hash: u64, judge: &Arc<Judge>) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        if self.room <= self.known.len() {
            self.known.retain(|_, judge| judge.strong_count() > 0);
            self.room = (self.known.len() * 2).clamp(ROOM_MIN, FILTERS_SHARED_MAX);
            self.known.shrink_to(self.room);
        }
        if self.known.len() < self.room {
            self.known.insert(hash, Arc::downgrade(judge));
        } else {
            self.skip = FILTERS_SHARED_MAX;
        }
    }
}

/// Filters known before those that died are looked for.
const ROOM_MIN: usize = 64;
