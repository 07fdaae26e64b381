//! Events whose resourceVersion lies behind the position. They come from servers that repeat themselves, that send
//! events out of order, or that count versions for each object by itself.
//!
//! The next initial state tells which: it confirms the event, or has nothing of it. INVARIANT: each verdict costs
//! [`RELISTS_MAX`] relists, so that no server causes them for ever.

use std::time::Duration;

use super::{Change, Observed};
use crate::time::Time;

/// Late events that initial state confirms, or refutes, before the next one is believed, or dropped, without asking.
const RELISTS_MAX: u32 = 2;

/// What is known about late events.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Lateness {
    /// The event that the next initial state is asked about.
    asked: Option<Late>,
    confirmed: u32,
    refuted: u32,
    /// End of the verdict that the server repeats itself.
    repeats_until: Option<Time>,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Late {
    key: Box<str>,
    uid: Box<str>,
    is_deletion: bool,
    /// True if the initial state being read has the object.
    is_there: bool,
}

/// What a late event leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// It is taken: versions of this type have no order.
    Taken,
    /// It says nothing new, in a type whose versions have no order.
    Dropped,
    /// It says nothing new, or the server is known to repeat itself.
    Repeated,
    /// Something is missing: initial state has to show what.
    Asks,
}

impl Lateness {
    /// Returns true if a lower version is an earlier one, as far as is known.
    pub(super) const fn is_ordered(&self) -> bool {
        self.confirmed < RELISTS_MAX
    }

    pub(super) fn meet(&mut self, now: Time, event: &Observed<'_>) -> Met {
        let repeats = self.repeats_until.is_some_and(|until| now < until);
        match (self.is_ordered(), event.is_news) {
            (false, true) => Met::Taken,
            (false, false) => Met::Dropped,
            (true, true) if !repeats => {
                self.asked = Some(Late {
                    key: event.key.into(),
                    uid: event.uid.into(),
                    is_deletion: event.change == Change::Deleted,
                    is_there: false,
                });
                Met::Asks
            }
            (true, true | false) => Met::Repeated,
        }
    }

    /// Initial state begins.
    pub(super) fn begin(&mut self) {
        if let Some(late) = &mut self.asked {
            late.is_there = false;
        }
    }

    /// Initial state has this object, or has it no more.
    pub(super) fn saw(&mut self, object: &Observed<'_>) {
        if let Some(late) = self.asked.as_mut().filter(|late| *late.key == *object.key) {
            late.is_there = *late.uid == *object.uid && object.change != Change::Deleted;
        }
    }

    /// Initial state is complete. Returns true if it has shown that versions have no order.
    pub(super) fn settle(&mut self, now: Time, verdict_lasts: Duration) -> bool {
        let Some(late) = self.asked.take() else { return false };
        if late.is_there != late.is_deletion {
            self.confirmed += 1;
            return self.confirmed == RELISTS_MAX;
        }
        self.refuted += 1;
        if self.refuted >= RELISTS_MAX {
            self.repeats_until = Some(now + verdict_lasts);
        }
        false
    }
}
