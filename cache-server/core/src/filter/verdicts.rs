//! What one selector says of recent events, found once for all watchers that share it.
//!
//! INVARIANT: a verdict is that of [`Filter::matches`], or it is not kept. One word holds an event's number and what was
//! found, so a reader never sees half of either, whoever writes at the same time.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use super::Filter;
use crate::{
    event::{Event, EventKind},
    limits::VERDICTS_KEPT,
};

/// A filter as watchers of one cache use it: they may share it, and what it said.
#[derive(Debug)]
pub(crate) struct Judge {
    filter: Arc<Filter>,
    /// There once somebody shares it, and asking it costs more than looking here.
    recent: OnceLock<Box<Recent>>,
}

/// Words of an event's number and its verdict, each in the place that the number says. Zero is nobody's: numbers begin
/// with one.
type Recent = [AtomicU64; VERDICTS_KEPT];

/// Whether a filter wanted the object before an event, and wants it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) before: bool,
    pub(crate) now: bool,
}

impl Judge {
    pub(crate) const fn new(filter: Arc<Filter>) -> Self {
        Self { filter, recent: OnceLock::new() }
    }

    pub(crate) const fn filter(&self) -> &Arc<Filter> {
        &self.filter
    }

    /// Keeps verdicts from now on, if that saves anything.
    pub(super) fn share(&self) {
        if self.filter.is_costly() {
            self.recent.get_or_init(|| Box::new([const { AtomicU64::new(0) }; VERDICTS_KEPT]));
        }
    }

    /// The verdict, from whoever found it first; `asked` counts the times that selectors were asked.
    pub(crate) fn verdict(&self, event: &Event, asked: &AtomicU64) -> Verdict {
        if self.filter.is_trivial() {
            return Verdict { before: event.previous.is_some(), now: event.kind != EventKind::Deleted };
        }
        let Some(recent) = self.recent.get() else { return self.ask(event, asked) };
        let place = usize::try_from(event.number % VERDICTS_KEPT as u64).unwrap_or_default();
        let place = &recent[place];
        let word = place.load(Ordering::Relaxed);
        if word >> VERDICT_BITS == event.number {
            return Verdict::of(word);
        }
        let verdict = self.ask(event, asked);
        // Who lags behind does not put its old events in the place of those that most are about to look at.
        if word >> VERDICT_BITS < event.number {
            place.store(event.number << VERDICT_BITS | verdict.bits(), Ordering::Relaxed);
        }
        verdict
    }

    fn ask(&self, event: &Event, asked: &AtomicU64) -> Verdict {
        asked.fetch_add(1, Ordering::Relaxed);
        Verdict {
            before: event.previous.as_ref().is_some_and(|previous| self.filter.matches(previous)),
            now: event.kind != EventKind::Deleted && self.filter.matches(&event.object),
        }
    }
}

impl Verdict {
    const fn bits(self) -> u64 {
        (self.before as u64) << 1 | self.now as u64
    }

    const fn of(word: u64) -> Self {
        Self { before: word & 2 != 0, now: word & 1 != 0 }
    }
}

/// Of a word, at its low end.
const VERDICT_BITS: u32 = 2;
