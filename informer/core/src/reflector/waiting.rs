//! State between requests. INVARIANT: only time, or a move to another endpoint, ends the wait. Inputs of responses that
//! were closed are ignored.

use super::{
    Class, End, Ending, Input, ListSession, Memory, RelistCause, State, StreamSession, WatchSession, begin, moved,
    proving, proving::ProofSession, relist,
};
use crate::time::Time;

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct BackoffWait {
    until: Time,
    next: NextAction,
}

/// Action after the wait.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) enum NextAction {
    /// The first request.
    Begin,
    /// Resume from the position.
    Watch,
    /// Retry the watch that was refused right after a list.
    WatchAfterList,
    /// Request initial state.
    Relist(RelistCause),
    /// Retry the same page, with the stage still open.
    Page(Box<ListSession>),
    /// Request the next page, with the stage still open.
    NextPage(Box<ListSession>),
    /// Request the rest of a stream's initial state, with the stage still open.
    Stream(Box<StreamSession>),
    /// Continue a proof.
    Prove(proving::Attempt),
}

impl BackoffWait {
    pub(super) const fn until(until: Time, next: NextAction) -> State {
        State::Waiting(Self { until, next })
    }

    pub(super) fn handle(self, now: Time, input: Input<'_>, memory: &mut Memory) -> State {
        match input {
            Input::TimedOut if now >= self.until => match self.next {
                NextAction::Begin => begin(now, memory),
                NextAction::Watch => WatchSession::resume(now, memory),
                NextAction::WatchAfterList => WatchSession::after_list(now, memory),
                NextAction::Relist(cause) => relist(now, cause, memory),
                NextAction::Page(listing) => listing.ask_again(now, memory),
                NextAction::NextPage(listing) => listing.ask_for_page(now, memory),
                NextAction::Stream(streaming) => streaming.go_on(now, memory),
                NextAction::Prove(attempt) => ProofSession::ask(now, attempt, memory),
            },
            Input::Moved { home } => match self.next {
                // The spread of starts still applies.
                NextAction::Begin => State::Waiting(self),
                NextAction::Page(listing) | NextAction::NextPage(listing) => listing.moved(now, home, memory),
                NextAction::Stream(streaming) => streaming.moved(now, home, memory),
                NextAction::Watch | NextAction::WatchAfterList | NextAction::Relist(_) | NextAction::Prove(_) => {
                    moved(now, home, memory)
                }
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

/// Returns the relist cause after an attempt at initial state ended with `ending`.
pub(super) const fn cause_after(ending: Ending) -> RelistCause {
    match ending {
        Ending::Failed(Class::Expired) => RelistCause::Expired,
        Ending::Failed(Class::TooLarge) => RelistCause::TooLarge,
        Ending::Failed(
            Class::Refused
            | Class::NotFound
            | Class::Forbidden
            | Class::TooMany
            | Class::Connection
            | Class::Server
            | Class::Malformed,
        )
        | Ending::Closed
        | Ending::Unanswered
        | Ending::WentBack
        | Ending::Unusable
        | Ending::Endless
        | Ending::Unproven
        | Ending::WatchForbidden => RelistCause::Interrupted,
    }
}
