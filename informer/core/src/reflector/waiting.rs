//! Nothing is open. INVARIANT: nothing but time ends the wait; facts about answers that were closed change nothing.

use super::{End, Input, Memory, RelistCause, State, Watching, relist};
use crate::time::Time;

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Waiting {
    until: Time,
    next: Next,
}

/// What follows the wait.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) enum Next {
    /// Resume from the position.
    Watch,
    /// Ask for initial state.
    Relist(RelistCause),
}

impl Waiting {
    pub(super) const fn until(until: Time, next: Next) -> State {
        State::Waiting(Self { until, next })
    }

    pub(super) fn handle(self, now: Time, input: Input<'_>, memory: &mut Memory) -> State {
        match input {
            Input::TimedOut if now >= self.until => match self.next {
                Next::Watch => Watching::resume(now, memory),
                Next::Relist(cause) => relist(now, cause, memory),
            },
            Input::TimedOut
            | Input::Start
            | Input::Accepted
            | Input::Object(_)
            | Input::Bookmark { .. }
            | Input::PageEnd { .. }
            | Input::Ignored
            | Input::Proof(_)
            | Input::Moved
            | Input::Ended(End::Closed | End::Failed(_)) => State::Waiting(self),
        }
    }

    pub(super) const fn deadline(&self) -> Time {
        self.until
    }
}
