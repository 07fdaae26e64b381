//! State of an open stream whose initial state is incomplete.
//!
//! INVARIANT: no input here moves the position, because initial events carry the versions of their objects, in no
//! order. Only the annotated bookmark ends the phase. INVARIANT: a stage holds objects of one state. It outlives its
//! stream only while the server may resume behind a mark, and is dropped when the server does not.

use std::{cmp::Ordering, time::Duration};

use super::{
    Action, Class, End, Ending, Failure, FallBack, Input, Memory, ObservedKind, ObservedObject, RelistCause, Report,
    State, WatchSession,
    marks::{MarkResult, ResumePoints},
    moved, relist,
    stall::Stall,
    waiting::{BackoffWait, NextAction, cause_after},
};
use crate::{
    resource_version::ResourceVersion,
    semantics::{ListSemantic, Read},
    time::Time,
};

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct StreamSession {
    /// List semantic of the request.
    semantic: ListSemantic,
    sent: Time,
    timeout_seconds: u32,
    /// True if a stage is open, from this response or from the one that it resumes.
    opened: bool,
    marks: ResumePoints,
    stall: Stall,
    /// When the last frame or headers arrived.
    last_sign: Time,
}

impl StreamSession {
    pub(super) fn begin(now: Time, memory: &mut Memory) -> State {
        let marks = ResumePoints::new(memory.config.resume_initial);
        let streaming = Self {
            semantic: memory.semantic(),
            sent: now,
            timeout_seconds: 0,
            opened: false,
            marks,
            stall: Stall::new(now, None),
            last_sign: now,
        };
        streaming.ask(now, memory)
    }

    /// Requests the rest of this stream, from the last mark.
    pub(super) fn go_on(self, now: Time, memory: &mut Memory) -> State {
        self.ask(now, memory)
    }

    fn ask(mut self, now: Time, memory: &mut Memory) -> State {
        let timeout_seconds = memory.draw_watch_timeout();
        let marks = self.marks.ask();
        let requested = match &self.semantic {
            ListSemantic::NotOlderThan(position) => Some(position.clone()),
            ListSemantic::MostRecent | ListSemantic::Any | ListSemantic::Exact(_) => None,
        };
        let stall = Stall::new(now, requested);
        memory.send(Read::Stream { semantic: self.semantic.clone(), timeout_seconds, marks });
        State::Streaming(Self { sent: now, timeout_seconds, stall, last_sign: now, ..self })
    }

    /// Restarts the timers, because the request was sent only now.
    pub(super) const fn went_out(&mut self, now: Time) {
        (self.sent, self.last_sign) = (now, now);
        self.stall.progressed(now);
    }

    pub(super) fn handle(mut self, now: Time, input: Input<'_>, memory: &mut Memory) -> State {
        match input {
            Input::TimedOut if now >= self.deadline(memory) => return self.stalled(now, memory),
            Input::Moved { home } => return self.moved(now, home, memory),
            Input::TimedOut | Input::Start | Input::Proof(_) => return State::Streaming(self),
            Input::Accepted => self.accepted(now, false, memory),
            Input::AcceptedWithMarks => self.accepted(now, true, memory),
            Input::Resumed if self.marks.is_answered() => memory.stats.ignored += 1,
            // The server continues a state without its beginning in the stage.
            Input::Resumed if !self.marks.go_on() => return self.unusable(now, memory),
            Input::Resumed => {
                self.stall.progressed(now);
                memory.stats.initial_resumes += 1;
            }
            Input::Mark { token } => match self.marks.take(token) {
                MarkResult::Unusable => return self.unusable(now, memory),
                MarkResult::Noted => self.stall.progressed(now),
                MarkResult::Ignored => {}
            },
            Input::Object(object) => self.event(now, &object, memory),
            Input::Bookmark { resource_version, initial_events_end: true } => {
                // Opens the stage of an empty state whose headers were not reported.
                self.accepted(now, false, memory);
                return self.complete(now, resource_version, memory);
            }
            Input::Bookmark { .. } => {
                self.stall.bookmark();
                memory.stats.ignored += 1;
            }
            Input::PageEnd { .. } | Input::Ignored => memory.stats.ignored += 1,
            Input::Ended(End::Closed) => return self.closed(now, memory),
            Input::Ended(End::Failed(failure)) => return self.failed(now, failure, memory),
        }
        self.last_sign = now;
        State::Streaming(self)
    }

    /// A stall counts only if pages can follow, and only after the server accepted the stream: an overloaded server may
    /// queue a request for long, and a list would cost it more. Otherwise silence and the requested lifetime are the
    /// bounds.
    pub(super) fn deadline(&self, memory: &Memory) -> Time {
        let silent = self.last_sign + memory.config.idle_timeout;
        let patient = silent.min(self.ends_at());
        let may_stall = memory.may_fall_back() && self.marks.is_answered();
        if may_stall { patient.min(self.stands_still_at(memory)) } else { patient }
    }

    /// Returns when the stream counts as stalled, unless initial state arrives before.
    pub(super) fn stands_still_at(&self, memory: &Memory) -> Time {
        self.stall.at(memory.config.initial_events_stall)
    }

    /// Returns when the server ends the response by itself.
    fn ends_at(&self) -> Time {
        self.sent + Duration::from_secs(self.timeout_seconds.into())
    }

    /// Handles a response that starts from the beginning, as its headers or its first event show. Objects staged before
    /// belong to another state.
    fn accepted(&mut self, now: Time, with_marks: bool, memory: &mut Memory) {
        if self.marks.is_answered() {
            return;
        }
        self.stall.progressed(now);
        self.abandon(memory);
        if self.opened {
            memory.stats.count_relist(RelistCause::Interrupted);
            memory.report(Report::Relist { cause: RelistCause::Interrupted });
            memory.stream_began_anew();
        }
        self.marks.begin(with_marks);
        self.opened = true;
        memory.open_stage(&self.semantic);
    }

    fn event(&mut self, now: Time, object: &ObservedObject<'_>, memory: &mut Memory) {
        self.accepted(now, false, memory);
        let action = match object.change {
            ObservedKind::Added | ObservedKind::Modified => Action::InitApply,
            ObservedKind::Deleted => Action::Delete,
            ObservedKind::Item => {
                memory.stats.ignored += 1;
                return;
            }
        };
        let version = ResourceVersion::parse(object.resource_version).ok();
        if object.change == ObservedKind::Added {
            self.stall.added(now, version, memory.config.initial_events_stall);
        } else {
            self.stall.changed(now, version);
        }
        self.marks.object(object.change == ObservedKind::Added);
        memory.received(object);
        memory.push(action);
    }

    fn complete(self, now: Time, resource_version: &str, memory: &mut Memory) -> State {
        let Ok(position) = ResourceVersion::parse(resource_version) else {
            return self.unusable(now, memory);
        };
        // A state older than requested counts as a failed read, not as initial state.
        if let ListSemantic::NotOlderThan(requested) = &self.semantic
            && position.compare(requested) == Some(Ordering::Less)
            && memory.lateness.is_ordered()
        {
            memory.push(Action::Close);
            return self.not_satisfied(now, Ending::WentBack, None, memory);
        }
        memory.synced(now, position);
        memory.is_live();
        WatchSession::after_stream(now, self.sent, self.timeout_seconds)
    }

    fn failed(mut self, now: Time, failure: Failure, memory: &mut Memory) -> State {
        // A refusal to resume may concern only the mark. The retry without a mark shows whether it concerns streams.
        let is_about_streams = !self.marks.is_resuming();
        match failure.class {
            Class::Refused if memory.may_fall_back() && is_about_streams => {
                return self.give_up(now, FallBack::Refused, memory);
            }
            // A type that does not exist has no streams either, and its definition may be installed at any time: one list
            // shows whether this server only lacks streams, and no verdict outlasts it.
            Class::NotFound if memory.may_fall_back() && is_about_streams => memory.ask_for_pages_once(),
            // Perhaps the server forbids lists too, which would not be the stream's fault. One list shows it.
            Class::Forbidden if memory.may_fall_back() && is_about_streams => memory.try_pages(FallBack::Forbidden),
            Class::Expired | Class::TooLarge => {
                let ending = Ending::Failed(failure.class);
                return self.not_satisfied(now, ending, failure.retry_after, memory);
            }
            // Without a fallback, the position may be the reason for the refusal.
            Class::Refused if is_about_streams && matches!(self.semantic, ListSemantic::NotOlderThan(_)) => {
                self.abandon(memory);
                return memory.position_refused(now, failure.retry_after);
            }
            // Retry from the beginning.
            Class::Refused | Class::NotFound | Class::Forbidden => self.marks.forget(),
            Class::TooMany | Class::Connection | Class::Server | Class::Malformed => {}
        }
        self.fail(now, Ending::Failed(failure.class), failure.retry_after, memory)
    }

    /// The server does not have the requested state. The reflector does not wait for an endpoint that it just moved to.
    fn not_satisfied(mut self, now: Time, ending: Ending, retry_after: Option<Duration>, memory: &mut Memory) -> State {
        if memory.on_probation {
            self.abandon(memory);
            return memory.refuse(now);
        }
        memory.not_satisfied();
        self.marks.forget();
        self.fail(now, ending, retry_after, memory)
    }

    /// Handles a close by the server. If the stream used its whole lifetime without the end bookmark, a retry would
    /// fail the same way, unless each stream resumes where the previous one ended.
    fn closed(self, now: Time, memory: &mut Memory) -> State {
        let is_over = self.marks.is_answered() && now >= self.ends_at();
        if memory.may_fall_back() && is_over && !self.marks.has_progressed() {
            return self.give_up(now, FallBack::Stalled, memory);
        }
        self.fail(now, Ending::Closed, None, memory)
    }

    fn stalled(self, now: Time, memory: &mut Memory) -> State {
        if memory.may_fall_back() && self.marks.is_answered() && !self.marks.has_progressed() {
            return self.give_up(now, FallBack::Stalled, memory);
        }
        memory.push(Action::Close);
        let ending = if now >= self.ends_at() { Ending::Closed } else { Ending::Unanswered };
        self.fail(now, ending, None, memory)
    }

    /// The response is complete, or announced as resumed, but unusable.
    fn unusable(mut self, now: Time, memory: &mut Memory) -> State {
        memory.stats.count_failure(Class::Malformed);
        memory.push(Action::Close);
        self.marks.forget();
        self.fail(now, Ending::Unusable, None, memory)
    }

    /// Replaces the stream by pages at once, which happens once per verdict. It counts as an unhealthy end, so the next
    /// failure waits longer.
    fn give_up(self, now: Time, cause: FallBack, memory: &mut Memory) -> State {
        self.abandon(memory);
        memory.give_up_streams(now, cause);
        memory.stats.unhealthy_ends += 1;
        memory.count_without_pause();
        relist(now, RelistCause::FellBack, memory)
    }

    /// Returns true if `ending` concerns streams, and not an overloaded or unreachable server, which pages would cost
    /// more. A kube-apiserver with a cold cache answers streams with 429, and reads a list with a limit from etcd.
    const fn concerns_streams(&self, ending: Ending) -> bool {
        match ending {
            Ending::Failed(Class::Malformed | Class::Refused | Class::Forbidden) | Ending::Unusable => true,
            // Proxies that limit the duration of a response end each stream before its state is complete, but no page.
            Ending::Failed(Class::Connection) | Ending::Closed | Ending::Unanswered => self.marks.is_answered(),
            Ending::Failed(Class::NotFound | Class::TooMany | Class::Server | Class::Expired | Class::TooLarge)
            | Ending::WentBack
            | Ending::Endless
            | Ending::Unproven
            | Ending::WatchForbidden => false,
        }
    }

    /// Ends the response. A response that sent a mark is no failure of streams, however it ended: the next one resumes
    /// behind the mark. If resuming fails repeatedly, pages follow.
    fn fail(mut self, now: Time, ending: Ending, retry_after: Option<Duration>, memory: &mut Memory) -> State {
        // Read before `end`, which may drop the marks.
        let progressed = self.marks.has_progressed();
        let concerns_streams = self.concerns_streams(ending);
        self.marks.end();
        let pages_follow = memory.tries_pages() || (concerns_streams && memory.is_last_stream(progressed));
        let goes_on = self.marks.is_known() && !pages_follow;
        if !goes_on {
            self.abandon(memory);
        }
        if concerns_streams {
            memory.stream_broke(progressed);
        }
        let until = memory.unhealthy(now, ending, retry_after);
        let next = if goes_on { NextAction::Stream(Box::new(self)) } else { NextAction::Relist(cause_after(ending)) };
        BackoffWait::until(until, next)
    }

    /// Handles a move: marks are useless at another endpoint. Alternating between two failing endpoints makes no
    /// progress, so a lost mark counts as a restart of the stream.
    pub(super) fn moved(self, now: Time, home: bool, memory: &mut Memory) -> State {
        if self.marks.is_known() {
            memory.stream_began_anew();
        }
        self.abandon(memory);
        moved(now, home, memory)
    }

    fn abandon(&self, memory: &mut Memory) {
        if self.opened {
            memory.push(Action::Abandon);
        }
    }
}
