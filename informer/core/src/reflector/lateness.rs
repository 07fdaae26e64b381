//! Decides about events whose resourceVersion is lower than the position. They come from servers that repeat events,
//! that send events out of order, or that count versions per object.
//!
//! The next initial state shows which case it is: it confirms the event, or refutes it. INVARIANT: [`RELISTS_MAX`]
//! confirmations or refutations reach a verdict, and renewing an ended verdict costs one relist, so that late events
//! cannot cause unbounded relists.

use std::time::Duration;

use super::{ObservedKind, ObservedObject};
use crate::time::Time;

/// Late events that initial state must confirm, or refute, before later ones are applied, or dropped, without a relist.
const RELISTS_MAX: u32 = 2;

/// Verdicts about late events.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Lateness {
    /// The event that the next initial state will confirm or refute.
    pending: Option<LateObject>,
    confirmed: u32,
    refuted: u32,
    /// End of the verdict that the server repeats events.
    repeats_until: Option<Time>,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct LateObject {
    key: Box<str>,
    uid: Box<str>,
    is_deletion: bool,
    /// True if the initial state being read contains the object.
    is_there: bool,
}

/// Decision about a late event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LateDecision {
    /// Apply it: versions of this type have no order.
    Taken,
    /// Drop it: the copy has this change, and versions of this type have no order.
    Dropped,
    /// Repeated: the copy has this change, or the server is known to repeat events.
    Repeated,
    /// The copy lacks this change: relist to see which events are missing.
    Asks,
}

impl Lateness {
    /// Returns true if a lower version means an earlier one, as far as is known.
    pub(super) const fn is_ordered(&self) -> bool {
        self.confirmed < RELISTS_MAX
    }

    pub(super) fn meet(&mut self, now: Time, event: &ObservedObject<'_>) -> LateDecision {
        let repeats = self.repeats_until.is_some_and(|until| now < until);
        match (self.is_ordered(), event.is_news) {
            (false, true) => LateDecision::Taken,
            (false, false) => LateDecision::Dropped,
            (true, true) if !repeats => {
                self.pending = Some(LateObject {
                    key: event.key.into(),
                    uid: event.uid.into(),
                    is_deletion: event.change == ObservedKind::Deleted,
                    is_there: false,
                });
                LateDecision::Asks
            }
            (true, true | false) => LateDecision::Repeated,
        }
    }

    /// Notes that initial state begins.
    pub(super) fn begin(&mut self) {
        if let Some(late) = &mut self.pending {
            late.is_there = false;
        }
    }

    /// Notes an object, or a deletion, of initial state.
    pub(super) fn saw(&mut self, object: &ObservedObject<'_>) {
        if let Some(late) = self.pending.as_mut().filter(|late| *late.key == *object.key) {
            late.is_there = *late.uid == *object.uid && object.change != ObservedKind::Deleted;
        }
    }

    /// Notes that initial state is complete. Returns true if it has just shown that versions have no order.
    pub(super) fn settle(&mut self, now: Time, verdict_lasts: Duration) -> bool {
        let Some(late) = self.pending.take() else { return false };
        // Confirmed: a changed object exists, or a deleted one does not.
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
