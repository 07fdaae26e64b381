//! What outlives a state: the position, what is known about the server, delays, counts, and orders not yet taken.
//!
//! INVARIANT: `position` is moved by completed initial state, live changes and live bookmarks, by nothing else. It is
//! forgotten when the server proves to have another history.

use std::{cmp::Ordering, collections::VecDeque, mem, time::Duration};

use super::{
    Action, Class, Config, Ending, FallBack, Observed, ProofBy, RelistCause, Report, State, Verdict,
    lateness::Lateness,
    missing::Missing,
    proving::{Attempt, Why},
    waiting::{Next, Waiting},
};
use crate::{
    backoff::Backoff,
    resource_version::{self, ResourceVersion},
    semantics::{InitialList, ListSemantic, Read},
    stats::Stats,
    time::Time,
};

/// Reads "not older than seen", of everything or of one object, that the server may fail to satisfy before the most
/// recent state is taken instead.
const UNSATISFIED_MAX: u32 = 3;

/// Streams in a row that may break after they were accepted, or answer nonsense, before one attempt with pages.
const STREAM_FAILURES_MAX: u32 = 3;

/// Pauses before a watch that was refused right after a list is asked for again, a fifth of jitter added. After the last
/// one the reflector polls: a role that is being replaced, or one bad server behind a balancer, costs seconds then.
const REFUSED_WATCH_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// Pauses before lists while the server refuses the watches after them as it would refuse an unknown path or a wrong
/// position; then [`Config::poll_interval`]. The list may have brought that position, or one bad server behind a balancer
/// may have answered: both are over within minutes. 403 and 405 say what they mean, and are polled at the interval from
/// the beginning.
const EARLY_POLLS: [Duration; 3] = [Duration::from_secs(20), Duration::from_secs(60), Duration::from_secs(120)];

/// Sessions from one position that may bring nothing, or only what lies behind it, before it has to be proved.
pub(super) const DOUBTS_MAX: u32 = 2;

/// Times in a row that initial state may expire soon after it was complete before only one that lasts makes delays
/// small again: a session between the two can be healthy, and its server is not.
const EARLY_EXPIRIES_FREE: u32 = 1;

/// Attempts in a row to resume that the server may answer with nonsense before the position is given up.
const FAILED_RESUMES_MAX: u32 = 3;

/// How long after a proof an outage needs no other. Shorter than a server takes to be exchanged or restored.
const PROOF_LASTS: Duration = Duration::from_secs(10);

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
    /// True once the endpoint in use has answered a read of any state with a page token.
    pages_any_state: bool,
    /// True once a list was started over without pages because a page had expired, since initial state was complete.
    started_over: bool,
    /// The next list goes without a limit: pages of the one before expired.
    unpaged_next: bool,
    /// Streams in a row that broke before their initial state was complete.
    stream_failures: u32,
    /// Streams that were to go on behind a mark and began anew, there or elsewhere, since initial state was complete last.
    streams_anew: u32,
    /// Reads in a row that asked for "not older than" and were not given it.
    unsatisfied: u32,
    /// Attempts in a row to resume that were answered with nonsense.
    failed_resumes: u32,
    /// Watches in a row that the server refused right after a list it answered.
    refused_watches: usize,
    /// Entries of [`EARLY_POLLS`] used up since the server accepted a watch.
    early_polls: usize,
    /// Sessions that were closed because they were silent, since this endpoint sent a bookmark. Initial state does not count
    /// against them: a server whose watches bring nothing can go on answering lists.
    pub(super) silences: u32,
    /// Sessions from the present position that were silent or went back, since it was proved last.
    pub(super) doubts: u32,
    /// Whether there was an outage since the position was proved or told.
    pub(super) is_suspect: bool,
    /// When an object of the server proved the position last.
    proved_at: Option<Time>,
    /// When the position was last told, or proved.
    heard_at: Time,
    /// Whether there is a state to show.
    pub(super) synced: bool,
    /// When initial state was complete last.
    synced_at: Option<Time>,
    /// Times in a row that initial state expired soon after it was complete.
    early_expiries: u32,
    /// Whether the position belongs to the endpoint in use, or to the one that a refused move leads back to.
    pub(super) is_proved: bool,
    /// Whether the endpoint in use was moved to and has proved nothing: it can be refused.
    pub(super) on_probation: bool,
    /// Whether equal versions prove nothing until initial state is complete again.
    pub(super) distrust: bool,
    /// Whether the next initial read takes the most recent state, whatever was seen or configured.
    latest: bool,
    /// Objects whose deletions are due.
    pub(super) missing: Missing,
    pub(super) lateness: Lateness,
    /// True once the server refused GET of an object and listed it: each denied GET would be a line in an audit log.
    pub(super) get_is_refused: bool,
    /// Whether a session was healthy since initial state was last complete: then the position was worth something.
    pub(super) healthy_since_sync: bool,
    /// Whether lists are allowed and watches are not.
    pub(super) polling: bool,
    /// When the next poll is due: kept while requests go to another endpoint and come back, so that moves do not put
    /// it off again and again.
    poll_at: Option<Time>,
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
            position: config.resume.clone(),
            verdict: config.verdict,
            verdict_until: None,
            trial: None,
            pages_any_state: false,
            started_over: false,
            unpaged_next: false,
            stream_failures: 0,
            streams_anew: 0,
            unsatisfied: 0,
            failed_resumes: 0,
            refused_watches: 0,
            early_polls: 0,
            silences: 0,
            doubts: 0,
            is_suspect: false,
            proved_at: None,
            heard_at: Time::ZERO,
            synced: false,
            synced_at: None,
            early_expiries: 0,
            is_proved: false,
            on_probation: false,
            distrust: false,
            latest: false,
            missing: Missing::default(),
            lateness: Lateness::default(),
            get_is_refused: false,
            healthy_since_sync: false,
            polling: false,
            poll_at: None,
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

    /// Orders the proof of the position by one more stored object.
    pub(super) fn prove(&mut self, by: ProofBy, skip: usize) {
        let at = self.position.clone().expect("only a position is proved");
        self.push(Action::Prove { at, by, skip });
    }

    /// The object was read. Counted afterwards, since there may be none to ask about.
    pub(super) const fn count_proof(&mut self) {
        self.stats.requests += 1;
        self.stats.proofs += 1;
    }

    /// How long the first request waits, if starts are spread.
    pub(super) fn draw_spread(&mut self) -> Option<Duration> {
        let spread = self.config.spread;
        (!spread.is_zero()).then(|| spread.mul_f64(self.rng.f64()))
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
            _ if self.latest => ListSemantic::MostRecent,
            ListSemantic::NotOlderThan(_) if self.is_never_satisfied() => ListSemantic::MostRecent,
            ListSemantic::NotOlderThan(_) | ListSemantic::MostRecent | ListSemantic::Any | ListSemantic::Exact(_) => {
                wanted
            }
        }
    }

    /// Opens a stage for what `semantic` asks for. The most recent state of a server that cannot give one as new as was
    /// seen may be of an older history, where equal versions are not equal objects.
    pub(super) fn open_stage(&mut self, semantic: &ListSemantic) {
        self.lateness.begin();
        let may_go_back = self.position.is_some() && *semantic == ListSemantic::MostRecent;
        self.push(Action::Init { trusts_versions: !self.distrust && !may_go_back });
    }

    pub(super) fn choose_way(&mut self, now: Time) -> Way {
        let trial = self.trial.take();
        let semantic = self.semantic();
        let is_paged = self.may_page(&semantic) && !mem::take(&mut self.unpaged_next);
        let pages = Way::List { limit: is_paged.then_some(self.config.page_size), trial };
        let streams = self.streams_are_worth_asking(now);
        let exact = matches!(semantic, ListSemantic::Exact(_));
        match self.config.initial {
            InitialList::Unpaged => Way::List { limit: None, trial: None },
            InitialList::Paged => pages,
            InitialList::Stream | InitialList::Auto if exact => pages,
            InitialList::Stream => Way::Stream,
            InitialList::Auto if trial.is_none() && streams => Way::Stream,
            InitialList::Auto => pages,
        }
    }

    /// True if a LIST for `semantic` may carry a limit.
    ///
    /// kube-apiserver answers "not older than" from its cache, but 1.29 and 1.30 read every page of it from etcd as soon as
    /// there is a limit, and 1.31 to 1.33 every page but the first. Relists come in herds, so client-go sends no limit
    /// either (kubernetes#86430). A server that pages `resourceVersion=0` has no cache, and pages are the cheaper read there.
    const fn may_page(&self, semantic: &ListSemantic) -> bool {
        !matches!(semantic, ListSemantic::NotOlderThan(_)) || self.pages_any_state
    }

    /// The server answered a first page with a token.
    pub(super) fn was_paged(&mut self, semantic: &ListSemantic) {
        self.pages_any_state |= *semantic == ListSemantic::Any;
    }

    /// A page after the first has expired. True if the list may start over at once, without pages: once until initial
    /// state is complete. Later ones alternate between pages and none, with the pause of every failed read.
    pub(super) const fn may_start_over(&mut self) -> bool {
        self.unpaged_next = self.started_over;
        !mem::replace(&mut self.started_over, true)
    }

    /// Requests go to another endpoint: what was learned of the one before says nothing about it.
    pub(super) fn endpoint_changed(&mut self) {
        self.trial = None;
        self.pages_any_state = false;
        self.unpaged_next = false;
        self.refused_watches = 0;
        self.silences = 0;
    }

    /// Takes over what is known about the streams of the endpoint in use.
    pub(super) const fn set_verdict(&mut self, verdict: Verdict) {
        self.verdict = verdict;
        self.verdict_until = None;
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
        self.forgive_streams();
    }

    /// Fetches the next initial state by pages, once.
    pub(super) fn try_pages(&mut self, cause: FallBack) {
        self.trial = Some(cause);
        self.forgive_streams();
        self.stats.count_fallback(cause);
        self.report(Report::FellBack { cause });
    }

    /// A stream began anew that was to go on. Whatever marks it brings, they may come to nothing again.
    pub(super) const fn stream_began_anew(&mut self) {
        self.streams_anew = self.streams_anew.saturating_add(1);
    }

    /// True if pages follow a stream that breaks now. One that `progressed` has brought a mark, behind which the next one
    /// goes on: that is no failure, unless going on has failed too often.
    pub(super) const fn is_last_stream(&self, progressed: bool) -> bool {
        let failures = if progressed { 0 } else { self.stream_failures + 1 };
        (failures >= STREAM_FAILURES_MAX || self.streams_anew >= STREAM_FAILURES_MAX) && self.may_fall_back()
    }

    /// A stream broke before its initial state was complete, and not because the server had too much to do.
    pub(super) fn stream_broke(&mut self, progressed: bool) {
        let is_last = self.is_last_stream(progressed);
        self.stream_failures = if progressed { 0 } else { self.stream_failures + 1 };
        if is_last {
            self.try_pages(FallBack::Failures);
        }
    }

    const fn forgive_streams(&mut self) {
        (self.stream_failures, self.streams_anew) = (0, 0);
    }

    /// The next initial state is fetched by pages.
    pub(super) const fn tries_pages(&self) -> bool {
        self.trial.is_some()
    }

    /// The server did not give what was asked by "not older than".
    pub(super) const fn not_satisfied(&mut self) {
        self.unsatisfied += 1;
        if self.unsatisfied == UNSATISFIED_MAX {
            // The next read asks another question, which streams have not failed to answer yet.
            self.forgive_streams();
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

    /// Whether the next initial read takes what the server has, since it cannot give what was seen.
    pub(super) const fn is_never_satisfied(&self) -> bool {
        self.unsatisfied >= UNSATISFIED_MAX
    }

    /// The position belongs to the history of the endpoint in use.
    pub(super) fn proved(&mut self, now: Time) {
        self.is_proved = true;
        self.unsatisfied = 0;
        self.proved_at = Some(now);
        self.on_probation = false;
        self.believe(now);
        self.report(Report::Proved);
    }

    /// Doubts begin anew.
    pub(super) const fn believe(&mut self, now: Time) {
        self.doubts = 0;
        self.is_suspect = false;
        self.heard_at = now;
    }

    /// There was an outage: what comes back may be another server, or the same one with an older state. A connection that
    /// breaks again and again is no new outage each time.
    pub(super) fn suspect(&mut self, now: Time) {
        self.is_suspect = self.proved_at.is_none_or(|at| now.since(at) >= PROOF_LASTS);
    }

    /// Whether the position needs a proof: sessions from it brought nothing, or nothing has told it for as long as two
    /// silent sessions take, however many short ones or failures that were.
    pub(super) fn is_doubtful(&self, now: Time) -> bool {
        self.doubts >= DOUBTS_MAX || now.since(self.heard_at) >= self.config.idle_timeout.saturating_mul(DOUBTS_MAX)
    }

    /// Counts that the endpoint has another history than the position; why it would be listed.
    pub(super) fn found_other_history(&mut self, what: Report) -> RelistCause {
        self.report(what);
        if what == Report::HistoryReset {
            self.stats.history_resets += 1;
            RelistCause::HistoryReset
        } else {
            self.stats.foreign += 1;
            RelistCause::Foreign
        }
    }

    /// The position is of no history that can be reached any more. What is asked next is what was configured, unless
    /// the very same server went back, or an exact state of the other history was wanted.
    pub(super) fn forget_position(&mut self, cause: RelistCause) {
        self.position = None;
        self.missing.clear();
        self.is_proved = false;
        self.on_probation = false;
        self.distrust = true;
        self.unsatisfied = 0;
        let exact = matches!(self.config.semantic, ListSemantic::Exact(_));
        self.latest = matches!(cause, RelistCause::HistoryReset | RelistCause::Refused) || exact;
    }

    /// The server takes no read that names the position: it was sent by another kind of server, or by one with a fault.
    /// The most recent state follows, which is not older than any position of this history.
    pub(super) fn position_refused(&mut self, now: Time, retry_after: Option<Duration>) -> State {
        if self.on_probation {
            return self.refuse(now);
        }
        self.forget_position(RelistCause::Refused);
        if self.verdict == Verdict::Pages(FallBack::Refused) {
            // Perhaps it was the position that the stream was refused for.
            (self.verdict, self.verdict_until) = (Verdict::Streams, None);
        }
        let until = self.unhealthy(now, Ending::Failed(Class::Refused), retry_after);
        Waiting::until(until, Next::Relist(RelistCause::Refused))
    }

    /// Goes back to the endpoint before, where the position is proved, unless what was left there was an outage.
    pub(super) fn refuse(&mut self, now: Time) -> State {
        self.missing.begin();
        self.on_probation = false;
        self.unsatisfied = 0;
        self.endpoint_changed();
        self.stats.refused_moves += 1;
        self.push(Action::Refuse);
        let next = if self.is_suspect { Next::Prove(Attempt::new(Why::Outage)) } else { Next::Watch };
        Waiting::until(self.unhealthy(now, Ending::Unproven, None), next)
    }

    /// Initial state is complete at `position`.
    pub(super) fn synced(&mut self, now: Time, position: ResourceVersion) {
        if self.is_behind(&position) {
            self.found_other_history(Report::HistoryReset);
        }
        if self.lateness.settle(now, self.config.verdict_lasts) {
            self.report(Report::Unordered);
        }
        self.missing.clear();
        self.position = Some(position.clone());
        self.synced = true;
        self.synced_at = Some(now);
        self.poll_at = None;
        self.is_proved = true;
        self.on_probation = false;
        self.distrust = false;
        self.latest = false;
        self.unsatisfied = 0;
        self.forgive_streams();
        self.failed_resumes = 0;
        (self.started_over, self.unpaged_next) = (false, false);
        self.believe(now);
        self.healthy_since_sync = false;
        self.stats.syncs += 1;
        self.push(Action::InitDone(position));
    }

    /// Returns true if an event at this version lies behind the position, in whatever order versions are.
    pub(super) fn is_late(&self, version: &str) -> bool {
        self.position
            .as_ref()
            .is_some_and(|seen| resource_version::compare(version, seen.as_str()) == Some(Ordering::Less))
    }

    /// Returns true if `to` goes back. Where positions have no order they never do.
    pub(super) fn is_behind(&self, to: &ResourceVersion) -> bool {
        let is_lower = self.position.as_ref().is_some_and(|seen| to.compare(seen) == Some(Ordering::Less));
        is_lower && self.lateness.is_ordered()
    }

    /// An object of initial state came. One without a version is kept all the same, as client-go and kube do.
    pub(super) fn received(&mut self, object: &Observed<'_>) {
        self.lateness.saw(object);
        self.stats.initial_objects += 1;
        self.stats.unversioned += u64::from(ResourceVersion::parse(object.resource_version).is_err());
    }

    /// Moves the position to `to`, live. Whether it did not go back.
    pub(super) fn advance(&mut self, now: Time, to: &ResourceVersion) -> bool {
        if self.is_behind(to) {
            return false;
        }
        self.move_to(now, to.clone());
        true
    }

    /// Moves the position to `to`, live, where the caller knows that it does not lie behind.
    pub(super) fn move_to(&mut self, now: Time, to: ResourceVersion) {
        if self.position.as_ref() != Some(&to) {
            self.position = Some(to);
            self.doubts = 0;
        }
        self.heard_at = now;
        self.failed_resumes = 0;
    }

    /// The server has accepted a session that brings what follows the position.
    pub(super) fn is_live(&mut self) {
        self.polling = false;
        self.poll_at = None;
        (self.refused_watches, self.early_polls) = (0, 0);
        if self.verdict == Verdict::Pages(FallBack::Forbidden) {
            // It watches now, so its streams are worth asking for again.
            self.set_verdict(Verdict::Streams);
        }
        if !self.synced {
            self.synced = true;
            self.push(Action::Restored);
        }
    }

    /// The server refused a watch right after it answered a list. When to ask for that watch again; `None` when it was
    /// refused too often.
    pub(super) fn next_refused_watch(&mut self, now: Time, retry_after: Option<Duration>) -> Option<Time> {
        let pause = *REFUSED_WATCH_PAUSES.get(self.refused_watches)?;
        self.refused_watches += 1;
        self.stats.unhealthy_ends += 1;
        Some(now + self.backoff.around(pause).max(self.backoff.after_healthy(retry_after)))
    }

    /// Lists are answered and watches are refused, as `class` says. When to list next: an interval after this was noticed
    /// first.
    pub(super) fn next_poll(&mut self, now: Time, class: Class) -> Time {
        self.polling = true;
        let due = match self.poll_at {
            Some(due) => due,
            None => {
                let interval = self.next_poll_interval(class);
                now + self.backoff.around(interval)
            }
        };
        self.poll_at = Some(due);
        due.max(now)
    }

    fn next_poll_interval(&mut self, class: Class) -> Duration {
        let interval = self.config.poll_interval;
        match EARLY_POLLS.get(self.early_polls) {
            Some(early) if class == Class::Refused => {
                self.early_polls += 1;
                interval.min(*early)
            }
            Some(_) | None => interval,
        }
    }

    /// A request follows the one before without a pause; what fails next waits the longer.
    pub(super) fn count_without_pause(&mut self) {
        let _ = self.backoff.after_unhealthy(None);
    }

    /// The session proved healthy.
    pub(super) fn prove_healthy(&mut self, now: Time) {
        self.healthy_since_sync = true;
        self.stats.healthy_sessions += 1;
        self.settle(now);
        if self.early_expiries <= EARLY_EXPIRIES_FREE {
            self.backoff.reset();
        }
        self.report(Report::Healthy);
    }

    /// The position has expired. Whether that happened several times in a row, each soon after a list.
    pub(super) fn expires_early(&mut self, now: Time) -> bool {
        self.early_expiries = if self.has_lasted(now) { 0 } else { self.early_expiries + 1 };
        self.early_expiries > EARLY_EXPIRIES_FREE
    }

    /// Initial state that lasts forgives what went before.
    pub(super) fn settle(&mut self, now: Time) {
        if self.early_expiries > EARLY_EXPIRIES_FREE && self.has_lasted(now) {
            self.early_expiries = 0;
            self.backoff.reset();
        }
    }

    fn has_lasted(&self, now: Time) -> bool {
        self.synced_at.is_none_or(|at| now.since(at) >= self.config.backoff.max)
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
pub(super) const fn cause_after(ending: Ending) -> RelistCause {
    match ending {
        Ending::Failed(Class::Expired) => RelistCause::Expired,
        Ending::Failed(Class::TooLarge) => RelistCause::TooLarge,
        Ending::Failed(
            Class::Refused | Class::Forbidden | Class::TooMany | Class::Connection | Class::Server | Class::Malformed,
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
