//! State of a live watch: every change and bookmark moves the position.
//!
//! INVARIANT: the position never goes back here. A session resets the backoff once it has proved healthy: it delivered a
//! change or a bookmark, lasted for a while, or used its whole lifetime. If it ended before `healthy_after`, the pace
//! bounds the next ones.

use std::time::Duration;

use super::{
    Action, Class, End, Ending, Failure, FallBack, Input, Memory, ObservedKind, ObservedObject, RelistCause, Report,
    State,
    lateness::LateDecision,
    memory::DOUBTS_MAX,
    moved,
    proving::{Attempt, ProofReason, ProofSession, relist_later},
    waiting::{BackoffWait, NextAction},
};
use crate::{resource_version::ResourceVersion, semantics::Read, time::Time};

/// Time below which a watch that delivered nothing is very short, and its end a failure. client-go takes a second, which
/// resets each second would just not reach.
const VERY_SHORT: Duration = Duration::from_millis(500);

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct WatchSession {
    sent: Time,
    /// Time after which the server ends the response by itself.
    lifetime: Duration,
    /// When the session became live: headers arrived, or the initial state of its stream was complete.
    live_since: Option<Time>,
    /// True once the session has proved healthy.
    healthy: bool,
    /// True once the session has delivered a change or a bookmark.
    moved: bool,
    /// True if a list immediately preceded it, so that a refusal concerns only watches.
    after_list: bool,
    last_sign: Time,
}

impl WatchSession {
    /// Opens the first watch after a list.
    pub(super) fn after_list(now: Time, memory: &mut Memory) -> State {
        Self::ask(now, true, memory)
    }

    /// Continues a stream past its initial state: the same response stays open.
    pub(super) fn after_stream(now: Time, sent: Time, timeout_seconds: u32) -> State {
        let lifetime = Duration::from_secs(timeout_seconds.into());
        State::Watching(Self {
            sent,
            lifetime,
            live_since: Some(now),
            healthy: false,
            moved: false,
            after_list: false,
            last_sign: now,
        })
    }

    /// Opens a watch from the position of an earlier one.
    pub(super) fn resume(now: Time, memory: &mut Memory) -> State {
        Self::ask(now, false, memory)
    }

    fn ask(now: Time, after_list: bool, memory: &mut Memory) -> State {
        let after = memory.position.clone().expect("a watch follows completed initial state");
        memory.missing.resume(&after);
        let timeout_seconds = memory.draw_watch_timeout();
        memory.send(Read::Watch { after, timeout_seconds });
        State::Watching(Self {
            sent: now,
            lifetime: Duration::from_secs(timeout_seconds.into()),
            live_since: None,
            healthy: false,
            moved: false,
            after_list,
            last_sign: now,
        })
    }

    pub(super) fn handle(mut self, now: Time, input: Input<'_>, memory: &mut Memory) -> State {
        // Before the input, which may end the session: health depends on its age alone.
        self.prove(now, memory);
        match input {
            Input::TimedOut if now >= self.silent_at(memory) => return self.silent(now, memory),
            Input::TimedOut if self.overdue_at(memory).is_some_and(|due| now >= due) => {
                return Self::other_history(now, memory);
            }
            Input::Moved { home } => return moved(now, home, memory),
            Input::TimedOut | Input::Start | Input::Proof(_) => return State::Watching(self),
            Input::Accepted | Input::AcceptedWithMarks | Input::Resumed => self.live(now, memory),
            Input::Object(object) => return self.change(now, &object, memory),
            Input::Bookmark { resource_version, .. } => return self.bookmark(now, resource_version, memory),
            Input::PageEnd { .. } | Input::Mark { .. } | Input::Ignored => memory.stats.ignored += 1,
            Input::Ended(End::Closed) => return self.closed(now, memory),
            Input::Ended(End::Failed(failure)) => return self.failed(now, failure, memory),
        }
        self.last_sign = now;
        State::Watching(self)
    }

    pub(super) fn deadline(&self, memory: &Memory) -> Time {
        let silent = self.silent_at(memory);
        let silent = self.overdue_at(memory).map_or(silent, |overdue| silent.min(overdue));
        match self.live_since {
            // Wake up when the session becomes healthy.
            Some(since) if !self.healthy => silent.min(since + memory.config.healthy_after),
            Some(_) | None => silent,
        }
    }

    /// Returns when the session counts as silent. Headers must arrive within `idle_timeout`. After two silent sessions
    /// in a row the bound doubles, up to the watch's lifetime, so that a quiet type on a server without bookmarks costs
    /// few requests.
    fn silent_at(&self, memory: &Memory) -> Time {
        let idle = memory.config.idle_timeout;
        // At most 16, to bound the shift.
        let doublings = memory.silences.saturating_sub(1).min(16);
        let patient = idle.saturating_mul(1 << doublings).min(self.lifetime.max(idle));
        self.last_sign + if self.live_since.is_some() { patient } else { idle }
    }

    /// Returns when a missing deletion proves another history, with or without a bookmark. Only a healthy session
    /// proves it: others may have broken before the deletion was sent.
    fn overdue_at(&self, memory: &Memory) -> Option<Time> {
        memory.missing.overdue_at(memory.config.idle_timeout).filter(|_| self.healthy)
    }

    fn live(&mut self, now: Time, memory: &mut Memory) {
        memory.missing.accepted(now);
        if self.live_since.is_none() {
            self.live_since = Some(now);
            memory.is_live();
        }
    }

    fn prove(&mut self, now: Time, memory: &mut Memory) {
        let old_enough = self.live_since.is_some_and(|since| now.since(since) >= memory.config.healthy_after);
        if old_enough && !self.healthy {
            self.healthy = true;
            memory.prove_healthy(now);
        }
    }

    fn change(mut self, now: Time, object: &ObservedObject<'_>, memory: &mut Memory) -> State {
        self.live(now, memory);
        self.last_sign = now;
        let action = match object.change {
            ObservedKind::Added | ObservedKind::Modified => Action::Apply,
            ObservedKind::Deleted => Action::Delete,
            ObservedKind::Item => {
                memory.stats.ignored += 1;
                return State::Watching(self);
            }
        };
        match ResourceVersion::parse(object.resource_version) {
            // The position stays, so the next watch sends this event again, which is harmless.
            Err(_) => memory.stats.unversioned += 1,
            Ok(_) if memory.is_late(object.resource_version) => match memory.lateness.meet(now, object) {
                LateDecision::Taken => {}
                LateDecision::Dropped => {
                    memory.stats.ignored += 1;
                    return State::Watching(self);
                }
                LateDecision::Repeated => return self.went_back(now, memory),
                LateDecision::Asks => return self.lacks(now, memory),
            },
            // `is_late` above compared the versions: once per event.
            Ok(position) => memory.move_to(now, position),
        }
        if !memory.missing.take(object) {
            return Self::other_history(now, memory);
        }
        self.moved = true;
        memory.stats.live_objects += 1;
        memory.stats.live_deletions += u64::from(object.change == ObservedKind::Deleted);
        memory.push(action);
        State::Watching(self)
    }

    fn bookmark(mut self, now: Time, resource_version: &str, memory: &mut Memory) -> State {
        self.live(now, memory);
        self.last_sign = now;
        let Ok(position) = ResourceVersion::parse(resource_version) else {
            memory.stats.ignored += 1;
            return State::Watching(self);
        };
        if !memory.advance(now, &position) {
            return self.went_back(now, memory);
        }
        if memory.missing.is_owed_at(&position) {
            return Self::other_history(now, memory);
        }
        // This server sends bookmarks, so the plain bound on silence applies again.
        memory.silences = 0;
        if !memory.missing.is_empty() {
            // It is at the position at which the deletions were found due, so it confirms neither history.
            memory.stats.ignored += 1;
            return State::Watching(self);
        }
        self.moved = true;
        memory.stats.bookmarks += 1;
        memory.push(Action::Bookmark(position));
        State::Watching(self)
    }

    /// Closes a silent watch and resumes it. This is no failure, since quiet types exist.
    fn silent(self, now: Time, memory: &mut Memory) -> State {
        if self.live_since.is_none() {
            memory.push(Action::Close);
            // Missing headers mean an outage, unlike silence of an accepted watch.
            memory.suspect(now);
            return self.pause(now, Ending::Unanswered, None, NextAction::Watch, memory);
        }
        memory.silences = memory.silences.saturating_add(1);
        memory.doubts += 1;
        memory.stats.silences += 1;
        if memory.doubts >= DOUBTS_MAX {
            // A server restored to an older state sends no event until its versions reach the position.
            return ProofSession::begin(now, ProofReason::Doubt, memory);
        }
        Self::resume(now, memory)
    }

    fn went_back(self, now: Time, memory: &mut Memory) -> State {
        memory.stats.went_back += 1;
        // Equal versions may now belong to different histories.
        memory.distrust = true;
        memory.doubts += 1;
        memory.push(Action::Close);
        // Regardless of the session's age: a lagging server may reveal that late.
        let give_up = !self.moved && memory.resume_failed();
        let next = if give_up { NextAction::Relist(RelistCause::NotResumable) } else { NextAction::Watch };
        self.pause(now, Ending::WentBack, None, next, memory)
    }

    /// Relists after an event behind the position that contains a change the copy lacks: others may be missing too.
    fn lacks(self, now: Time, memory: &mut Memory) -> State {
        memory.stats.went_back += 1;
        memory.distrust = true;
        memory.push(Action::Close);
        self.pause(now, Ending::WentBack, None, NextAction::Relist(RelistCause::WentBack), memory)
    }

    /// Relists because the deletion of an object found missing did not arrive: the server was restored or replaced, and
    /// has passed the position since.
    fn other_history(now: Time, memory: &mut Memory) -> State {
        memory.push(Action::Close);
        memory.stats.missed_deletions += 1;
        let cause = memory.found_other_history(Report::HistoryReset);
        memory.forget_position(cause);
        relist_later(now, cause, memory)
    }

    fn closed(mut self, now: Time, memory: &mut Memory) -> State {
        // A watch that used its whole lifetime is healthy, even if that is shorter than `healthy_after`.
        if self.live_since.is_some() && now.since(self.sent) >= self.lifetime && !self.healthy {
            self.healthy = true;
            memory.prove_healthy(now);
        }
        if !self.healthy {
            // A server that ends responses early may be shutting down.
            memory.suspect(now);
        }
        self.pause(now, Ending::Closed, None, NextAction::Watch, memory)
    }

    fn failed(self, now: Time, failure: Failure, memory: &mut Memory) -> State {
        let next = match failure.class {
            Class::Expired => return self.expired(now, failure, memory),
            Class::TooLarge => NextAction::Relist(RelistCause::TooLarge),
            // The list was answered, so the watch itself is refused: 403 if the role lacks the verb, 405 if the server
            // has no watches.
            Class::Forbidden | Class::Refused | Class::NotFound if self.after_list && self.live_since.is_none() => {
                return self.refused_after_list(now, failure, memory);
            }
            // A starting server may forbid everything; its clients must not all relist for that.
            Class::Forbidden => NextAction::Prove(Attempt::new(ProofReason::Forbidden)),
            Class::Refused | Class::NotFound | Class::Malformed => self.resume_or_give_up(memory),
            // A 5xx in place of a response is an outage and does not concern the position. A 5xx in the stream may
            // concern the events after the position.
            Class::Server if self.live_since.is_some() => self.resume_or_give_up(memory),
            Class::Server | Class::Connection => {
                memory.suspect(now);
                NextAction::Watch
            }
            Class::TooMany => NextAction::Watch,
        };
        self.pause(now, Ending::Failed(failure.class), failure.retry_after, next, memory)
    }

    fn expired(self, now: Time, failure: Failure, memory: &mut Memory) -> State {
        let (cause, next) = (Ending::Failed(Class::Expired), NextAction::Relist(RelistCause::Expired));
        if memory.expires_early(now) {
            // Regardless of this session's health: a server whose lists keep expiring is not healthy.
            return BackoffWait::until(memory.unhealthy(now, cause, failure.retry_after), next);
        }
        if self.was_worth_something(memory) {
            // A single 410 after a healthy session is normal; do not grow the backoff.
            let until = now + memory.backoff.brief();
            memory.report(Report::Waiting { until, cause });
            return BackoffWait::until(until, next);
        }
        self.pause(now, cause, failure.retry_after, next, memory)
    }

    /// Returns true if the position outlived a healthy session, and this session delivered nothing but the 410.
    const fn was_worth_something(&self, memory: &Memory) -> bool {
        !self.moved && !self.healthy && memory.healthy_since_sync
    }

    /// Returns true if the connection or the response of a session ended that was not very short.
    fn was_cut(&self, now: Time, cause: Ending) -> bool {
        matches!(cause, Ending::Closed | Ending::Failed(Class::Connection))
            && self.live_since.is_some_and(|since| now.since(since) >= VERY_SHORT)
    }

    fn resume_or_give_up(&self, memory: &mut Memory) -> NextAction {
        let nothing_came = !self.moved && !self.healthy;
        if nothing_came && memory.resume_failed() {
            NextAction::Relist(RelistCause::NotResumable)
        } else {
            NextAction::Watch
        }
    }

    /// The server answers lists and refuses watches, perhaps only briefly: requests the watch again with growing delays,
    /// and polls meanwhile.
    fn refused_after_list(self, now: Time, failure: Failure, memory: &mut Memory) -> State {
        let cause = Ending::Failed(failure.class);
        let polls = memory.refused_watch();
        if polls && !memory.synced {
            // A restored state is not shown before a watch continues it, so it must be fetched first.
            return self.pause(
                now,
                cause,
                failure.retry_after,
                NextAction::Relist(RelistCause::WatchForbidden),
                memory,
            );
        }
        memory.stats.unhealthy_ends += 1;
        memory.charge(now);
        let retry_at = memory.next_refused_watch(now, failure.retry_after);
        if !polls {
            memory.report(Report::Waiting { until: retry_at, cause });
            return BackoffWait::until(retry_at, NextAction::WatchAfterList);
        }
        if memory.may_fall_back() {
            // A stream is a watch, so the server would refuse it too.
            memory.record_verdict(now, FallBack::Forbidden);
        }
        let poll_at = memory.next_poll(now);
        let until = retry_at.min(poll_at);
        memory.report(Report::Waiting { until, cause: Ending::WatchForbidden });
        let next = if poll_at <= retry_at {
            NextAction::Relist(RelistCause::WatchForbidden)
        } else {
            NextAction::WatchAfterList
        };
        BackoffWait::until(until, next)
    }

    fn pause(
        self,
        now: Time,
        cause: Ending,
        retry_after: Option<Duration>,
        next: NextAction,
        memory: &mut Memory,
    ) -> State {
        let next = match next {
            // A server restored to an older state is silent, or sends positions behind ours, for an unbounded time.
            NextAction::Watch if memory.is_doubtful(now) => NextAction::Prove(Attempt::new(ProofReason::Doubt)),
            NextAction::Watch if memory.is_suspect => NextAction::Prove(Attempt::new(ProofReason::Outage)),
            NextAction::Watch
            | NextAction::WatchAfterList
            | NextAction::Begin
            | NextAction::Relist(_)
            | NextAction::Page(_)
            | NextAction::NextPage(_)
            | NextAction::Stream(_)
            | NextAction::Prove(_) => next,
        };
        let until = if self.healthy {
            memory.settle(now);
            let until = now + memory.backoff.after_healthy(retry_after);
            memory.report(Report::Waiting { until, cause });
            until
        } else if self.moved && !is_fault(cause) || self.was_cut(now, cause) {
            memory.charge(now);
            memory.prove_healthy(now);
            let until = memory.after_delivery(now, retry_after);
            memory.report(Report::Waiting { until, cause });
            until
        } else if self.live_since.is_none() && matches!(cause, Ending::Failed(Class::Connection | Class::Forbidden)) {
            memory.failed_cheaply(now, cause, retry_after)
        } else {
            memory.unhealthy(now, cause, retry_after)
        };
        BackoffWait::until(until, next)
    }
}

/// Returns true if a session that ended so is no proof of a healthy server, whatever it delivered before.
const fn is_fault(cause: Ending) -> bool {
    match cause {
        Ending::Closed | Ending::Failed(Class::Connection | Class::Server | Class::TooMany | Class::Expired) => false,
        Ending::Failed(Class::TooLarge | Class::Refused | Class::NotFound | Class::Forbidden | Class::Malformed)
        | Ending::Unanswered
        | Ending::WentBack
        | Ending::Unusable
        | Ending::Endless
        | Ending::Unproven
        | Ending::WatchForbidden => true,
    }
}
