//! What outlives a state: the position, what is known about the server, delays, counts, and orders not yet taken.
//!
//! INVARIANT: `position` is moved by completed initial state, live changes and live bookmarks, by nothing else.

use std::{cmp::Ordering, collections::VecDeque, time::Duration};

use super::{Action, Class, Config, Ending, FallBack, Report, Verdict};
use crate::{
    backoff::Backoff,
    resource_version::ResourceVersion,
    semantics::{InitialList, ListSemantic, Read},
    stats::Stats,
    time::Time,
};

/// Reads "not older than seen" that the server may fail to satisfy before the most recent state is taken instead.
const UNSATISFIED_MAX: u32 = 3;

/// Streams in a row that may fail, for whatever reason, before one attempt with pages.
const STREAM_FAILURES_MAX: u32 = 3;

/// Attempts in a row to resume that the server may answer with nonsense before the position is given up.
const FAILED_RESUMES_MAX: u32 = 3;

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Memory {
    pub(super) config: Config,
    pub(super) backoff: Backoff,
    pub(super) stats: Stats,
    pub(super) actions: VecDeque<Action>,
    pub(super) position: Option<ResourceVersion>,
    pub(super) verdict: Verdict,
    /// When a verdict against streams ends. Set when first needed, since a verdict can be handed in.
    verdict_until: Option<Time>,
    /// The next initial read goes by pages once, for this reason.
    trial: Option<FallBack>,
    /// Streams in a row that broke before their initial state was complete.
    stream_failures: u32,
    /// Reads in a row that asked for "not older than" and were not given it.
    unsatisfied: u32,
    /// Attempts in a row to resume that were answered with nonsense.
    failed_resumes: u32,
    /// Sessions in a row that were closed because they were silent.
    pub(super) silences: u32,
    /// Whether a session was healthy since initial state was last complete: then the position was worth something.
    pub(super) healthy_since_sync: bool,
    /// Whether lists are allowed and watches are not.
    pub(super) polling: bool,
    rng: fastrand::Rng,
}

/// How initial state is fetched this time.
pub(super) enum Way {
    Stream,
    List { limit: Option<u32>, trial: Option<FallBack> },
}

impl Memory {
    pub(super) fn new(config: Config, backoff: Backoff) -> Self {
        let mut rng = fastrand::Rng::with_seed(config.seed);
        // The first number is the delays'.
        let _ = rng.u64(..);
        Self {
            backoff,
            stats: Stats::default(),
            actions: VecDeque::new(),
            position: None,
            verdict: config.verdict,
            verdict_until: None,
            trial: None,
            stream_failures: 0,
            unsatisfied: 0,
            failed_resumes: 0,
            silences: 0,
            healthy_since_sync: false,
            polling: false,
            rng,
            config,
        }
    }

    pub(super) fn push(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    pub(super) fn report(&mut self, report: Report) {
        self.push(Action::Report(report));
    }

    pub(super) fn send(&mut self, read: Read) {
        self.stats.requests += 1;
        match &read {
            Read::Watch { .. } => self.stats.resumes += 1,
            Read::Page { .. } => self.stats.pages += 1,
            Read::Stream { .. } | Read::List { .. } => {}
        }
        self.push(Action::Send(read));
    }

    /// A lifetime for one watch, in seconds.
    pub(super) fn draw_watch_timeout(&mut self) -> u32 {
        let range = &self.config.watch_timeout_seconds;
        let (least, most) = (*range.start(), *range.end());
        if least < most { self.rng.u32(least..=most) } else { least }
    }

    /// What the next initial read asks for.
    pub(super) fn semantic(&self) -> ListSemantic {
        let wanted = match &self.position {
            Some(seen) => ListSemantic::NotOlderThan(seen.clone()),
            None => self.config.semantic.clone(),
        };
        match wanted {
            ListSemantic::NotOlderThan(_) if self.unsatisfied >= UNSATISFIED_MAX => ListSemantic::MostRecent,
            ListSemantic::NotOlderThan(_) | ListSemantic::MostRecent | ListSemantic::Any | ListSemantic::Exact(_) => {
                wanted
            }
        }
    }

    pub(super) fn choose_way(&mut self, now: Time) -> Way {
        let trial = self.trial.take();
        let pages = Way::List { limit: Some(self.config.page_size), trial };
        let streams = self.streams_are_worth_asking(now);
        let exact = matches!(self.semantic(), ListSemantic::Exact(_));
        match self.config.initial {
            InitialList::Unpaged => Way::List { limit: None, trial: None },
            InitialList::Paged => pages,
            InitialList::Stream | InitialList::Auto if exact => pages,
            InitialList::Stream => Way::Stream,
            InitialList::Auto if trial.is_none() && streams => Way::Stream,
            InitialList::Auto => pages,
        }
    }

    fn streams_are_worth_asking(&mut self, now: Time) -> bool {
        match (self.verdict, self.verdict_until) {
            (Verdict::Streams, _) => true,
            (Verdict::Pages(_), Some(until)) if now >= until => {
                self.verdict = Verdict::Streams;
                self.verdict_until = None;
                true
            }
            (Verdict::Pages(_), Some(_)) => false,
            (Verdict::Pages(_), None) => {
                self.verdict_until = Some(now + self.backoff.around(self.config.verdict_lasts));
                false
            }
        }
    }

    /// Whether streams may be given up for pages.
    pub(super) const fn may_fall_back(&self) -> bool {
        matches!(self.config.initial, InitialList::Auto)
    }

    /// Gives streams up until the verdict ends.
    pub(super) fn give_up_streams(&mut self, now: Time, cause: FallBack) {
        self.judge(now, cause);
        self.stats.count_fallback(cause);
        self.report(Report::FellBack { cause });
    }

    /// Remembers a verdict against streams.
    pub(super) fn judge(&mut self, now: Time, cause: FallBack) {
        self.verdict = Verdict::Pages(cause);
        self.verdict_until = Some(now + self.backoff.around(self.config.verdict_lasts));
        self.stream_failures = 0;
    }

    /// Fetches the next initial state by pages, once.
    pub(super) fn try_pages(&mut self, cause: FallBack) {
        self.trial = Some(cause);
        self.stream_failures = 0;
        self.stats.count_fallback(cause);
        self.report(Report::FellBack { cause });
    }

    /// A stream broke before its initial state was complete.
    pub(super) fn stream_failed(&mut self) {
        self.stream_failures += 1;
        if self.stream_failures >= STREAM_FAILURES_MAX && self.may_fall_back() {
            self.try_pages(FallBack::Failures);
        }
    }

    /// The server did not give what was asked by "not older than".
    pub(super) const fn not_satisfied(&mut self) {
        self.unsatisfied += 1;
        if self.unsatisfied == UNSATISFIED_MAX {
            // The next read asks another question, which streams have not failed to answer yet.
            self.stream_failures = 0;
        }
    }

    /// An attempt to resume was answered with nonsense. Whether the position should be given up.
    pub(super) const fn resume_failed(&mut self) -> bool {
        self.failed_resumes += 1;
        let give_up = self.failed_resumes >= FAILED_RESUMES_MAX;
        if give_up {
            self.failed_resumes = 0;
        }
        give_up
    }

    /// Initial state is complete at `position`.
    pub(super) fn synced(&mut self, position: ResourceVersion) {
        self.position = Some(position.clone());
        self.unsatisfied = 0;
        self.stream_failures = 0;
        self.failed_resumes = 0;
        self.silences = 0;
        self.healthy_since_sync = false;
        self.stats.syncs += 1;
        self.push(Action::InitDone(position));
    }

    /// Moves the position to `to`, live. Whether it did not go back; where positions have no order they never do.
    pub(super) fn advance(&mut self, to: &ResourceVersion) -> bool {
        if self.position.as_ref().is_some_and(|seen| to.compare(seen) == Some(Ordering::Less)) {
            return false;
        }
        self.position = Some(to.clone());
        self.failed_resumes = 0;
        true
    }

    /// The session proved healthy.
    pub(super) fn prove_healthy(&mut self) {
        self.backoff.reset();
        self.healthy_since_sync = true;
        self.stats.healthy_sessions += 1;
        self.report(Report::Healthy);
    }

    /// Ends an unhealthy session; when the next request is due.
    pub(super) fn unhealthy(&mut self, now: Time, cause: Ending, retry_after: Option<Duration>) -> Time {
        self.stats.unhealthy_ends += 1;
        let until = now + self.backoff.after_unhealthy(retry_after);
        self.report(Report::Waiting { until, cause });
        until
    }
}

/// Why initial state is asked for again after an attempt at it failed.
pub(super) const fn cause_after(ending: Ending) -> super::RelistCause {
    match ending {
        Ending::Failed(Class::Expired) => super::RelistCause::Expired,
        Ending::Failed(Class::TooLarge) => super::RelistCause::TooLarge,
        Ending::Failed(
            Class::Refused | Class::Forbidden | Class::TooMany | Class::Connection | Class::Server | Class::Malformed,
        )
        | Ending::Closed
        | Ending::Unanswered
        | Ending::WentBack
        | Ending::Unusable
        | Ending::WatchForbidden => super::RelistCause::Interrupted,
    }
}
