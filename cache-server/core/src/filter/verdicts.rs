//! Cached verdicts of one selector on recent events, computed once for all watchers that share it.
//!
//! INVARIANT: a cached verdict equals [`Filter::matches`]. One word holds an event's number and its verdict, so a
//! reader never sees a torn pair while other threads write.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use super::Filter;
use crate::{
    event::{ChangeKind, Event},
    limits::VERDICTS_KEPT,
};

/// A filter as the watchers of one cache use it, with its cached verdicts once it is shared.
#[derive(Debug)]
pub(crate) struct CachedFilter {
    filter: Arc<Filter>,
    /// Created once the filter is shared, if evaluating it costs more than a look-up here.
    recent: OnceLock<Box<Recent>>,
}

/// Words of an event's number and its verdict, at index number modulo length. Zero is an empty word, because numbers
/// start at one.
type Recent = [AtomicU64; VERDICTS_KEPT];

/// Results of a filter for the object before and after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventVerdict {
    pub(crate) before: bool,
    pub(crate) now: bool,
}

impl CachedFilter {
    pub(crate) const fn new(filter: Arc<Filter>) -> Self {
        Self { filter, recent: OnceLock::new() }
    }

    pub(crate) const fn filter(&self) -> &Arc<Filter> {
        &self.filter
    }

    /// Caches verdicts from now on, if the filter is costly.
    pub(super) fn share(&self) {
        if self.filter.is_costly() {
            self.recent.get_or_init(|| Box::new([const { AtomicU64::new(0) }; VERDICTS_KEPT]));
        }
    }

    /// Returns the verdict, from the cache if another watcher computed it; `evaluations` counts the others.
    pub(crate) fn verdict(&self, event: &Event, evaluations: &AtomicU64) -> EventVerdict {
        if self.filter.is_trivial() {
            return EventVerdict { before: event.previous.is_some(), now: event.kind != ChangeKind::Deleted };
        }
        let Some(recent) = self.recent.get() else { return self.evaluate(event, evaluations) };
        let place = usize::try_from(event.number % VERDICTS_KEPT as u64).unwrap_or_default();
        let place = &recent[place];
        // Relaxed is enough: the word itself contains the event number that validates the verdict.
        let word = place.load(Ordering::Relaxed);
        if word >> VERDICT_BITS == event.number {
            return EventVerdict::of(word);
        }
        let verdict = self.evaluate(event, evaluations);
        // A lagging watcher must not overwrite the verdicts of newer events, which most watchers read next.
        if word >> VERDICT_BITS < event.number {
            place.store(event.number << VERDICT_BITS | verdict.bits(), Ordering::Relaxed);
        }
        verdict
    }

    fn evaluate(&self, event: &Event, evaluations: &AtomicU64) -> EventVerdict {
        evaluations.fetch_add(1, Ordering::Relaxed);
        EventVerdict {
            before: event.previous.as_ref().is_some_and(|previous| self.filter.matches(previous)),
            now: event.kind != ChangeKind::Deleted && self.filter.matches(&event.object),
        }
    }
}

impl EventVerdict {
    const fn bits(self) -> u64 {
        (self.before as u64) << 1 | self.now as u64
    }

    const fn of(word: u64) -> Self {
        Self { before: word & 2 != 0, now: word & 1 != 0 }
    }
}

/// Number of low bits of a word that hold the verdict.
const VERDICT_BITS: u32 = 2;
