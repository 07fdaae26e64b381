//! State between requests. INVARIANT: only time, or a move to another endpoint, ends the wait. Inputs of responses that
//! were closed are ignored.

use super::{
    End, Input, Listing, Memory, RelistCause, State, Streaming, Watching, begin, moved, proving, proving::Proving,
    relist,
};
use crate::time::Time;

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Waiting {
    until: Time,
    next: Next,
}

/// Action after the wait.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) enum Next {
    /// The first request.
    Begin,
    /// Resume from the position.
    Watch,
    /// Retry the watch that was refused right after a list.
    WatchAfterList,
    /// Request initial state.
    Relist(RelistCause),
    /// Retry the same page, with the stage still open.
    Page(Box<Listing>),
    /// Request the rest of a stream's initial state, with the stage still open.
    Stream(Box<Streaming>),
    /// Continue a proof.
    Prove(proving::Attempt),
}

impl Waiting {
    pub(super) const fn until(until: Time, next: Next) -> State {
        State::Waiting(Self { until, next })
    }

    pub(super) fn handle(self, now: Time, input: Input<'_>, memory: &mut Memory) -> State {
        match input {
            Input::TimedOut if now >= self.until => match self.next {
                Next::Begin => begin(now, memory),
                Next::Watch => Watching::resume(now, memory),
                Next::WatchAfterList => Watching::after_list(now, memory),
                Next::Relist(cause) => relist(now, cause, memory),
                Next::Page(listing) => listing.ask_again(now, memory),
                Next::Stream(streaming) => streaming.go_on(now, memory),
                Next::Prove(attempt) => Proving::ask(now, attempt, memory),
            },
            Input::Moved { home } => match self.next {
                // The spread of starts still applies.
                Next::Begin => State::Waiting(self),
                Next::Page(listing) => listing.moved(now, home, memory),
                Next::Stream(streaming) => streaming.moved(now, home, memory),
                Next::Watch | Next::WatchAfterList | Next::Relist(_) | Next::Prove(_) => moved(now, home, memory),
            },
            Input::TimedOut
            | Input::Start
            | Input::Accepted
            | Input::AcceptedWithMarks
            | Input::Resumed
            | Input::Mark { .. }
            | Input::Object(_)
            | Input::Bookmark { .. }
            | Input::PageEnd { .. }
            | Input::Ignored
            | Input::Proof(_)
            | Input::Ended(End::Closed | End::Failed(_)) => State::Waiting(self),
        }
    }

    pub(super) const fn deadline(&self) -> Time {
        self.until
    }
}
