//! State of an open LIST, or of a page of one.
//!
//! INVARIANT: the pages of one attempt share one stage, the position is the first page's, and each token is used once
//! except to retry a page that broke off.

use std::{cmp::Ordering, time::Duration};

use super::{
    Action, Class, End, Ending, Failure, FallBack, Input, Memory, ObservedKind, ObservedObject, RelistCause, Report,
    State, Verdict, WatchSession, moved,
    waiting::{BackoffWait, NextAction, cause_after},
};
use crate::{
    limits::{LIST_OBJECTS_MAX, LIST_TIME_MAX},
    resource_version::ResourceVersion,
    semantics::{ListSemantic, Read},
    time::Time,
};

/// Pages in a row without progress that follow each other at once. Progress is a key above all keys before: servers list
/// objects in the order of their keys, and one that repeats its objects sends none.
const IDLE_PAGES_FREE: u32 = 4;

/// Pause before the next page after that; it doubles with every further page without progress, up to
/// [`PAGE_PAUSE_MAX`].
const PAGE_PAUSE: Duration = Duration::from_millis(100);

/// Longest pause between two pages.
const PAGE_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Pages in a row without an item. With a selector a server may send some; more mean that it repeats itself.
const EMPTY_PAGES_MAX: u32 = 16;

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct ListSession {
    /// List semantic of the first page; an unpaged second attempt uses it too.
    semantic: ListSemantic,
    /// Objects per page; `None` for an unpaged list.
    limit: Option<u32>,
    /// Cause of trying pages instead of a stream.
    trial: Option<FallBack>,
    /// True if a stage is open.
    opened: bool,
    /// The position of the first page, once it has ended.
    first: Option<ResourceVersion>,
    /// Token of the open page; `None` for the first page.
    token: Option<Box<str>>,
    /// A token seen earlier, to detect a server whose tokens repeat.
    landmark: Landmark,
    /// True once the open page has sent an item.
    has_items: bool,
    empty_pages: u32,
    /// The highest key so far, and true once the open page has sent a higher one.
    highest: String,
    has_progressed: bool,
    /// Pages in a row without progress.
    idle_pages: u32,
    /// Pages requested again.
    retries: u32,
    /// When the first page was requested.
    began: Time,
    /// Items of all pages.
    objects: u64,
    /// When an item, headers or the end of a page last arrived, or a request was sent.
    last_item: Time,
    last_sign: Time,
}

/// Retries of pages in one attempt.
const PAGE_RETRIES_MAX: u32 = 3;

/// Detects repeating tokens, of pages or of marks, in a cycle of any length while storing one token (Brent's
/// algorithm).
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Landmark {
    token: Box<str>,
    pages: u64,
    renew_at: u64,
}

impl Landmark {
    /// Takes the token of one more page. Returns true if the tokens repeat.
    pub(super) fn is_met_by(&mut self, token: &str) -> bool {
        if self.pages > 0 && *self.token == *token {
            return true;
        }
        self.pages += 1;
        if self.pages > self.renew_at {
            // Keeping each token for twice as many pages as the one before finds cycles of any length.
            self.renew_at = self.pages.saturating_mul(2);
            self.token = token.into();
        }
        false
    }
}

impl ListSession {
    pub(super) fn begin(now: Time, limit: Option<u32>, trial: Option<FallBack>, memory: &mut Memory) -> State {
        Self::first_page(now, memory.semantic(), limit, trial, memory)
    }

    fn first_page(
        now: Time,
        semantic: ListSemantic,
        limit: Option<u32>,
        trial: Option<FallBack>,
        memory: &mut Memory,
    ) -> State {
        memory.send(Read::List { semantic: semantic.clone(), limit });
        State::Listing(Self {
            semantic,
            limit,
            trial,
            opened: false,
            first: None,
            token: None,
            landmark: Landmark::default(),
            has_items: false,
            empty_pages: 0,
            highest: String::new(),
            has_progressed: false,
            idle_pages: 0,
            retries: 0,
            began: now,
            objects: 0,
            last_item: now,
            last_sign: now,
        })
    }

    /// Restarts the timers, because the request was sent only now.
    pub(super) const fn went_out(&mut self, now: Time) {
        if self.token.is_none() {
            self.began = now;
        }
        (self.last_item, self.last_sign) = (now, now);
    }

    pub(super) fn handle(mut self, now: Time, input: Input<'_>, memory: &mut Memory) -> State {
        match input {
            Input::TimedOut if now >= self.ends_at() => {
                memory.push(Action::Close);
                return self.endless(now, memory);
            }
            Input::TimedOut if now >= self.deadline(memory) => {
                memory.push(Action::Close);
                return self.broke_off(now, Ending::Unanswered, None, memory);
            }
            Input::Moved { home } => return self.moved(now, home, memory),
            Input::TimedOut | Input::Start | Input::Proof(_) => return State::Listing(self),
            Input::Accepted | Input::AcceptedWithMarks | Input::Resumed => {
                self.open(memory);
                self.last_item = now;
            }
            Input::Object(object) => {
                self.item(&object, memory);
                self.last_item = now;
                if self.objects >= LIST_OBJECTS_MAX {
                    memory.push(Action::Close);
                    return self.endless(now, memory);
                }
            }
            Input::Bookmark { .. } | Input::Mark { .. } | Input::Ignored => memory.stats.ignored += 1,
            Input::PageEnd { resource_version, continue_token } => {
                return self.page_end(now, resource_version, continue_token, memory);
            }
            Input::Ended(End::Closed) => return self.broke_off(now, Ending::Closed, None, memory),
            Input::Ended(End::Failed(failure)) => return self.failed(now, failure, memory),
        }
        self.last_sign = now;
        State::Listing(self)
    }

    pub(super) fn deadline(&self, memory: &Memory) -> Time {
        (self.last_sign + memory.config.idle_timeout).min(self.ends_at())
    }

    /// Returns when the list fails, however much of it has arrived.
    fn ends_at(&self) -> Time {
        self.began + LIST_TIME_MAX
    }

    /// Returns when the list counts as stalled, unless more of it arrives before.
    pub(super) fn stands_still_at(&self, memory: &Memory) -> Time {
        self.last_item + memory.config.initial_events_stall
    }

    fn open(&mut self, memory: &mut Memory) {
        if !self.opened {
            self.opened = true;
            memory.open_stage(&self.semantic);
        }
    }

    fn item(&mut self, object: &ObservedObject<'_>, memory: &mut Memory) {
        self.has_items = true;
        self.objects += 1;
        match object.change {
            ObservedKind::Item => {
                self.open(memory);
                if *object.key > *self.highest {
                    self.has_progressed = true;
                    self.highest.clear();
                    self.highest.push_str(object.key);
                }
                memory.received(object);
                memory.push(Action::InitApply);
            }
            ObservedKind::Added | ObservedKind::Modified | ObservedKind::Deleted => memory.stats.ignored += 1,
        }
    }

    fn page_end(mut self, now: Time, resource_version: &str, token: Option<&str>, memory: &mut Memory) -> State {
        self.open(memory);
        let Ok(position) = ResourceVersion::parse(resource_version) else {
            return self.unusable(now, memory);
        };
        let is_first = self.first.is_none();
        // Later pages may report newer positions, but the list shows the first page's state.
        let position = self.first.take().unwrap_or(position);
        let Some(token) = token else {
            return self.complete(now, position, memory);
        };
        if is_first {
            memory.was_paged(&self.semantic);
        }
        // The timer may be late: do not request another page after the deadline.
        if now >= self.ends_at() {
            return self.endless(now, memory);
        }
        self.empty_pages = if self.has_items { 0 } else { self.empty_pages + 1 };
        if self.landmark.is_met_by(token) || self.empty_pages > EMPTY_PAGES_MAX {
            return self.unusable(now, memory);
        }
        self.idle_pages = if self.has_progressed { 0 } else { self.idle_pages.saturating_add(1) };
        let next = Self { first: Some(position), token: Some(token.into()), ..self };
        match next.pause() {
            None => next.ask_for_page(now, memory),
            Some(pause) => {
                let until = now + memory.around(pause);
                BackoffWait::until(until, NextAction::NextPage(Box::new(next)))
            }
        }
    }

    /// Returns the pause before the next page; `None` while the pages make progress.
    fn pause(&self) -> Option<Duration> {
        let idle = self.idle_pages.checked_sub(IDLE_PAGES_FREE + 1)?;
        // At most 16, to bound the shift.
        Some(PAGE_PAUSE.saturating_mul(1 << idle.min(16)).min(PAGE_PAUSE_MAX))
    }

    /// Requests the page of the token, from its beginning.
    pub(super) fn ask_for_page(self, now: Time, memory: &mut Memory) -> State {
        // The server may page a list without a limit.
        let limit = self.limit.unwrap_or(memory.config.page_size);
        let token = self.token.as_deref().expect("only pages after the first have a token");
        memory.send(Read::Page { limit, token: token.to_owned() });
        State::Listing(Self { has_items: false, has_progressed: false, last_item: now, last_sign: now, ..self })
    }

    fn complete(self, now: Time, position: ResourceVersion, memory: &mut Memory) -> State {
        // A state older than requested counts as a failed read, not as initial state.
        if let ListSemantic::NotOlderThan(requested) = &self.semantic
            && position.compare(requested) == Some(Ordering::Less)
            && memory.lateness.is_ordered()
        {
            return self.not_satisfied(now, Ending::WentBack, None, memory);
        }
        if self.trial == Some(FallBack::Forbidden) {
            // This list succeeded, so only the watch was forbidden.
            memory.record_verdict(now, FallBack::Forbidden);
        }
        // Set before the first state is shown, because the watch that follows will be refused.
        memory.polling |= memory.verdict == Verdict::Pages(FallBack::Forbidden);
        memory.synced(now, position);
        WatchSession::after_list(now, memory)
    }

    fn failed(self, now: Time, failure: Failure, memory: &mut Memory) -> State {
        match failure.class {
            // Once only: a server whose pages keep expiring gets a delay before each further attempt.
            Class::Expired if self.token.is_some() && self.limit.is_some() && memory.may_start_over() => {
                return self.start_over_unpaged(now, memory);
            }
            // Not the first page that expired since the last complete state: relist after a delay.
            Class::Expired if self.token.is_some() => {}
            Class::Expired if matches!(self.semantic, ListSemantic::Exact(_)) => {
                self.abandon(memory);
                memory.report(Report::Expired);
                return State::Over;
            }
            Class::Expired | Class::TooLarge => {
                let ending = Ending::Failed(failure.class);
                return self.not_satisfied(now, ending, failure.retry_after, memory);
            }
            Class::Refused if self.token.is_none() && matches!(self.semantic, ListSemantic::NotOlderThan(_)) => {
                self.abandon(memory);
                return memory.position_refused(now, failure.retry_after);
            }
            Class::TooMany | Class::Connection | Class::Server => {
                return self.broke_off(now, Ending::Failed(failure.class), failure.retry_after, memory);
            }
            Class::Refused | Class::NotFound | Class::Forbidden | Class::Malformed => {}
        }
        self.fail(now, Ending::Failed(failure.class), failure.retry_after, memory)
    }

    /// The server does not have the requested state. The reflector does not wait for an endpoint that it just moved to.
    fn not_satisfied(self, now: Time, ending: Ending, retry_after: Option<Duration>, memory: &mut Memory) -> State {
        if memory.on_probation {
            self.abandon(memory);
            return memory.refuse(now);
        }
        memory.not_satisfied();
        self.fail(now, ending, retry_after, memory)
    }

    /// The request itself was valid. A page after the first is retried, since its token still holds; otherwise a list
    /// of many pages would never complete while some of its requests fail.
    fn broke_off(mut self, now: Time, ending: Ending, retry_after: Option<Duration>, memory: &mut Memory) -> State {
        if self.token.is_none() || self.retries >= PAGE_RETRIES_MAX {
            return self.fail(now, ending, retry_after, memory);
        }
        self.retries += 1;
        let until = memory.unhealthy(now, ending, retry_after);
        BackoffWait::until(until, NextAction::Page(Box::new(self)))
    }

    /// Requests the page that broke off again, from its beginning.
    pub(super) fn ask_again(self, now: Time, memory: &mut Memory) -> State {
        memory.stats.page_retries += 1;
        self.ask_for_page(now, memory)
    }

    /// Handles a move: tokens are useless at another endpoint.
    pub(super) fn moved(self, now: Time, home: bool, memory: &mut Memory) -> State {
        self.abandon(memory);
        moved(now, home, memory)
    }

    /// Restarts the list without a limit after a page expired. The inconsistent token that the server offers would mix
    /// two states.
    fn start_over_unpaged(self, now: Time, memory: &mut Memory) -> State {
        self.abandon(memory);
        memory.stats.count_relist(RelistCause::PageExpired);
        memory.report(Report::Relist { cause: RelistCause::PageExpired });
        // No delay now, but each such list is one step of the backoff, so the next failure waits longer.
        memory.stats.unhealthy_ends += 1;
        memory.count_without_pause();
        Self::first_page(now, self.semantic, None, self.trial, memory)
    }

    fn endless(self, now: Time, memory: &mut Memory) -> State {
        memory.stats.endless_lists += 1;
        memory.stats.count_failure(Class::Malformed);
        self.fail(now, Ending::Endless, None, memory)
    }

    fn unusable(self, now: Time, memory: &mut Memory) -> State {
        memory.stats.count_failure(Class::Malformed);
        self.fail(now, Ending::Unusable, None, memory)
    }

    fn fail(self, now: Time, ending: Ending, retry_after: Option<Duration>, memory: &mut Memory) -> State {
        self.abandon(memory);
        let until = memory.unhealthy(now, ending, retry_after);
        BackoffWait::until(until, NextAction::Relist(cause_after(ending)))
    }

    fn abandon(&self, memory: &mut Memory) {
        if self.opened {
            memory.push(Action::Abandon);
        }
    }
}
