//! State in which one stored object is read again, to learn whether the position belongs to the endpoint's history.
//!
//! INVARIANT: no watch resumes before the result, and a failed request says nothing about the history.

use std::time::Duration;

use super::{
    Action, Class, End, Ending, Failure, Input, Memory, Proof, ProofBy, RelistCause, Report, State, Testimony,
    WatchSession, moved, relist,
    waiting::{BackoffWait, NextAction},
};
use crate::{
    proof::{WITNESSES_CHANGED, WITNESSES_MAX},
    time::Time,
};

/// Server errors (not network outages) before the object is read by LIST instead. They take about two minutes, longer
/// than an API server needs to start.
const BROKEN_MAX: u32 = 8;

/// Reason for a proof; decides the consequence of a failed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProofReason {
    /// The position comes from a checkpoint, or was never proved.
    Resume,
    /// Requests go to another endpoint, and the position was proved at the previous one.
    Moved,
    /// The server has not sent the position for too long, or sent older ones.
    Doubt,
    /// The server was unreachable.
    Outage,
    /// A watch is forbidden. A list of one object shows whether everything is forbidden, as on a starting server.
    Forbidden,
}

/// Progress of one proof. Survives the pauses between its requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    why: ProofReason,
    by: ProofBy,
    /// Objects read that were missing or inconclusive.
    requested: usize,
    /// True if one of them was changed after the position, which cannot happen in a foreign history.
    changed: bool,
    broken: u32,
    /// True if GET was refused and a LIST reads the object instead.
    get_refused: bool,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct ProofSession {
    attempt: Attempt,
    sent: Time,
}

impl Attempt {
    pub(super) const fn new(why: ProofReason) -> Self {
        let by = match why {
            ProofReason::Resume | ProofReason::Moved | ProofReason::Doubt | ProofReason::Outage => ProofBy::Get,
            ProofReason::Forbidden => ProofBy::List,
        };
        Self { why, by, requested: 0, changed: false, broken: 0, get_refused: false }
    }
}

impl ProofSession {
    pub(super) fn begin(now: Time, why: ProofReason, memory: &mut Memory) -> State {
        Self::ask(now, Attempt::new(why), memory)
    }

    pub(super) fn ask(now: Time, mut attempt: Attempt, memory: &mut Memory) -> State {
        // A new proof drops the objects that an earlier one found missing.
        if attempt.requested == 0 {
            memory.missing.begin();
        }
        if memory.get_is_refused {
            attempt.by = ProofBy::List;
        }
        memory.prove(attempt.by, attempt.requested);
        State::Proving(Self { attempt, sent: now })
    }

    pub(super) fn handle(self, now: Time, input: Input<'_>, memory: &mut Memory) -> State {
        match input {
            Input::Proof(testimony) => self.evaluate(now, testimony, memory),
            Input::TimedOut if now >= self.deadline(memory) => {
                memory.count_proof();
                memory.push(Action::Close);
                self.retry(now, Ending::Unanswered, None, memory)
            }
            Input::Ended(End::Closed) => {
                memory.count_proof();
                self.retry(now, Ending::Closed, None, memory)
            }
            Input::Ended(End::Failed(failure)) => {
                memory.count_proof();
                self.failed(now, failure, memory)
            }
            Input::Moved { home } => {
                memory.count_proof();
                moved(now, home, memory)
            }
            Input::TimedOut
            | Input::Start
            | Input::Accepted
            | Input::AcceptedWithMarks
            | Input::Resumed
            | Input::Mark { .. }
            | Input::Object(_)
            | Input::Bookmark { .. }
            | Input::PageEnd { .. }
            | Input::Ignored => State::Proving(self),
        }
    }

    pub(super) fn deadline(&self, memory: &Memory) -> Time {
        self.sent + memory.config.idle_timeout
    }

    fn evaluate(mut self, now: Time, testimony: Testimony<'_>, memory: &mut Memory) -> State {
        let Testimony { proof, key, uid } = testimony;
        // Without an object no request was sent.
        if proof != Proof::Nothing {
            memory.charge(now);
            memory.count_proof();
            memory.get_is_refused |= self.attempt.get_refused;
        }
        match proof {
            // Without an order, a version is neither before nor after the position.
            Proof::Foreign | Proof::Reset if !memory.lateness.is_ordered() => {
                self.attempt.changed |= proof == Proof::Reset;
                self.next_witness(now, memory)
            }
            Proof::Same => self.proved(now, memory),
            Proof::Foreign => self.differs(now, Report::Foreign, memory),
            Proof::Reset => self.differs(now, Report::HistoryReset, memory),
            Proof::Changed => {
                self.attempt.changed = true;
                self.next_witness(now, memory)
            }
            Proof::Missing => {
                memory.missing.add(key, uid);
                self.next_witness(now, memory)
            }
            Proof::Nothing => self.exhausted(now, memory),
        }
    }

    fn next_witness(mut self, now: Time, memory: &mut Memory) -> State {
        self.attempt.requested += 1;
        let enough = if self.attempt.changed { WITNESSES_CHANGED } else { WITNESSES_MAX };
        if self.attempt.requested < enough {
            memory.count_without_pause();
            return Self::ask(now, self.attempt, memory);
        }
        self.exhausted(now, memory)
    }

    /// Decides when no object is left to read. On a busy type, an object changed since is the best evidence.
    fn exhausted(self, now: Time, memory: &mut Memory) -> State {
        if self.attempt.changed {
            return self.proved(now, memory);
        }
        let nothing_stored = self.attempt.requested == 0;
        match self.attempt.why {
            ProofReason::Moved if !nothing_stored => memory.refuse(now),
            // An empty store cannot mix histories, and relisting here would make every client list after a server
            // restart.
            ProofReason::Outage if nothing_stored => Self::take_for_granted(now, memory),
            ProofReason::Forbidden if nothing_stored => relist(now, RelistCause::WatchForbidden, memory),
            ProofReason::Forbidden => WatchSession::after_list(now, memory),
            ProofReason::Moved | ProofReason::Resume | ProofReason::Doubt | ProofReason::Outage => {
                Self::unproven(now, memory)
            }
        }
    }

    /// Resumes without a proof. A later silence still raises doubt.
    fn take_for_granted(now: Time, memory: &mut Memory) -> State {
        memory.is_suspect = false;
        WatchSession::resume(now, memory)
    }

    fn proved(self, now: Time, memory: &mut Memory) -> State {
        memory.proved(now);
        match self.attempt.by {
            ProofBy::Get => WatchSession::resume(now, memory),
            // The server answered a list, so a refusal of this watch concerns only watches.
            ProofBy::List => WatchSession::after_list(now, memory),
        }
    }

    /// The position is useless here. Equal versions prove nothing either: each history may have used one for another
    /// object.
    fn differs(self, now: Time, what: Report, memory: &mut Memory) -> State {
        let cause = memory.found_other_history(what);
        match self.attempt.why {
            ProofReason::Moved => memory.refuse(now),
            ProofReason::Resume | ProofReason::Doubt | ProofReason::Outage | ProofReason::Forbidden => {
                memory.forget_position(cause);
                relist_later(now, cause, memory)
            }
        }
    }

    /// Relists because the proof failed: not older than the position, and without trusting equal versions.
    fn unproven(now: Time, memory: &mut Memory) -> State {
        memory.distrust = true;
        relist_later(now, RelistCause::Unproven, memory)
    }

    fn failed(mut self, now: Time, failure: Failure, memory: &mut Memory) -> State {
        let ending = Ending::Failed(failure.class);
        match failure.class {
            Class::TooLarge => return self.behind(now, failure, memory),
            Class::Forbidden | Class::Refused | Class::NotFound | Class::Malformed | Class::Expired => {
                return self.other_way(now, failure, memory);
            }
            Class::Server => {
                self.attempt.broken += 1;
                if self.attempt.broken >= BROKEN_MAX {
                    self.attempt.by = ProofBy::List;
                }
            }
            Class::Connection => {
                let until = memory.failed_cheaply(now, ending, failure.retry_after);
                return BackoffWait::until(until, NextAction::Prove(self.attempt));
            }
            Class::TooMany => {}
        }
        self.retry(now, ending, failure.retry_after, memory)
    }

    fn behind(self, now: Time, failure: Failure, memory: &mut Memory) -> State {
        if self.attempt.why == ProofReason::Moved {
            return memory.refuse(now);
        }
        // At any endpoint: a move must not reset the count.
        memory.not_satisfied();
        let ending = Ending::Failed(failure.class);
        if !memory.is_never_satisfied() {
            return self.retry(now, ending, failure.retry_after, memory);
        }
        let until = memory.unhealthy(now, ending, failure.retry_after);
        BackoffWait::until(until, NextAction::Relist(RelistCause::TooLarge))
    }

    /// Reads by LIST of one object if GET is refused. If both are refused, a quiet watch alone does not justify a
    /// relist.
    fn other_way(mut self, now: Time, failure: Failure, memory: &mut Memory) -> State {
        match (self.attempt.by, self.attempt.why) {
            (ProofBy::Get, _) => {
                self.attempt.by = ProofBy::List;
                self.attempt.get_refused = is_refusal(failure.class);
                memory.charge(now);
                Self::ask(now, self.attempt, memory)
            }
            (ProofBy::List, ProofReason::Moved) => memory.refuse(now),
            (ProofBy::List, ProofReason::Resume) => Self::unproven(now, memory),
            // Invalid responses to both requests say nothing about permissions: the server is unhealthy.
            (ProofBy::List, ProofReason::Outage | ProofReason::Doubt) if !is_refusal(failure.class) => {
                self.retry(now, Ending::Failed(failure.class), failure.retry_after, memory)
            }
            (ProofBy::List, ProofReason::Outage) => {
                memory.charge(now);
                Self::take_for_granted(now, memory)
            }
            (ProofBy::List, ProofReason::Forbidden) => {
                let until = memory.unhealthy(now, Ending::Failed(failure.class), failure.retry_after);
                BackoffWait::until(until, NextAction::Watch)
            }
            // The client may not read objects: resume, and reset the doubts so that the proof is not repeated at once.
            (ProofBy::List, ProofReason::Doubt) => {
                memory.charge(now);
                memory.believe(now);
                WatchSession::resume(now, memory)
            }
        }
    }

    fn retry(self, now: Time, ending: Ending, retry_after: Option<Duration>, memory: &mut Memory) -> State {
        let until = memory.unhealthy(now, ending, retry_after);
        BackoffWait::until(until, NextAction::Prove(self.attempt))
    }
}

/// Returns true if the server understood the request and does not answer it.
const fn is_refusal(class: Class) -> bool {
    matches!(class, Class::Forbidden | Class::Refused | Class::NotFound)
}

/// Relists after a delay: all clients of a restored server notice it together.
pub(super) fn relist_later(now: Time, cause: RelistCause, memory: &mut Memory) -> State {
    let until = memory.unhealthy(now, Ending::Unproven, None);
    BackoffWait::until(until, NextAction::Relist(cause))
}
