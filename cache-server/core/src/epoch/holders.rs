//! Readers that keep events in the window: operators find the one that makes it large.

use std::time::Duration;

use informer_core::Time;

use super::{Epoch, Open};

/// A position in the history, and what keeps the events after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowHolder {
    /// Its kind.
    pub kind: HoldKind,
    /// Number of the newest event before it.
    pub number: u64,
    /// Owner of the [`Reader`](crate::Reader) that opened it; zero without one.
    pub owner: u64,
    /// Time since a scan saw it first; `None` if it is younger than a scan, and for positions without a reader.
    pub seen_for: Option<Duration>,
    /// Time for which a position without a reader is still kept.
    pub held_for: Option<Duration>,
    /// Bytes of objects that the reader was given.
    pub read_bytes: u64,
    /// True if the reader exceeded its time: it keeps no events, and ends when the window moves past it.
    pub is_late: bool,
}

/// Kind of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldKind {
    /// A LIST that is being sent.
    List,
    /// The initial state of a watch.
    Stream,
    /// The position of the next page of a list, or of the rest of a stream.
    Page,
    /// The position of a slow reader that finished and may resume.
    Return,
}

impl Epoch {
    /// Returns at most `limit` holders, those at the oldest positions first, and the number of all.
    pub(crate) fn holders(&self, now: Time, limit: usize) -> (Vec<WindowHolder>, usize) {
        let needs = &*self.needs.lock();
        let readers = |is_late| {
            let readers = if is_late { &needs.late } else { &needs.open };
            readers.iter().take(limit).map(move |(&(number, _), open)| open.holder(number, is_late, now))
        };
        let position = |kind, number, owner, until: Time| {
            let held_for = Some(until.since(now));
            WindowHolder { kind, number, owner, seen_for: None, held_for, read_bytes: 0, is_late: false }
        };
        let pages = needs.held.iter().take(limit);
        let pages = pages.map(|(&number, held)| position(HoldKind::Page, number, held.owner, held.until));
        let returns = needs.returning.iter();
        let returns =
            returns.map(|(&until, &number)| position(HoldKind::Return, number, 0, Time(Duration::from_secs(until))));
        let mut holders: Vec<_> = readers(false).chain(readers(true)).chain(pages).chain(returns).collect();
        holders.sort_by_key(|holder| (holder.is_late, holder.number));
        holders.truncate(limit);
        (holders, needs.open.len() + needs.late.len() + needs.held.len() + needs.returning.len())
    }
}

impl Open {
    fn holder(&self, number: u64, is_late: bool, now: Time) -> WindowHolder {
        let kind = if self.held.is_stream() { HoldKind::Stream } else { HoldKind::List };
        let (owner, seen_for) = (self.owner, self.since.map(|since| now.since(since)));
        let read_bytes = self.held.read_bytes();
        WindowHolder { kind, number, owner, seen_for, held_for: None, read_bytes, is_late }
    }
}
