//! Data that outlives a state: the position, verdicts about the server, delays, counters, and pending actions.
//!
//! INVARIANT: only complete initial state, live changes and live bookmarks move `position`. It is dropped when the
//! server proves to have another history, or refuses it.

use std::{cmp::Ordering, collections::VecDeque, mem, time::Duration};

use super::{
    Action, Class, Config, Ending, FallBack, ObservedObject, ProofBy, RelistCause, Report, State, Verdict,
    lateness::Lateness,
    missing::MissingObjects,
    pace::RequestPace,
    proving::{Attempt, ProofReason},
    waiting::{BackoffWait, NextAction},
};
use crate::{
    backoff::Backoff,
    resource_version::{self, ResourceVersion},
    semantics::{InitialList, ListSemantic, Read},
    stats::ReflectorStats,
    time::Time,
};

/// Failed reads "not older than seen", of everything or of one object, before a read of the most recent state.
const UNSATISFIED_MAX: u32 = 3;

/// Streams in a row that may break after they were accepted, or violate the protocol, before one attempt with pages.
const STREAM_FAILURES_MAX: u32 = 3;

/// Watches in a row that the server may refuse right after answering a list before the reflector polls. The retries
/// absorb a role that is being replaced, or one bad server behind a load balancer.
const REFUSED_WATCHES_MAX: u32 = 3;

/// First pauses between polls; later ones are [`Config::poll_interval`]. Most refusals of watches end within minutes: a
/// role was being replaced, the position was refused, or one bad server behind a load balancer answered. In between the
/// watch is requested again, which costs the server less than a list.
const EARLY_POLLS: [Duration; 3] = [Duration::from_secs(20), Duration::from_secs(60), Duration::from_secs(120)];

/// Sessions from one position that may deliver nothing, or only older events, before the position must be proved.
pub(super) const DOUBTS_MAX: u32 = 2;

/// Times in a row that a fresh initial state may expire early. Beyond that only a state that lasts resets the delays:
/// sessions in between can be healthy while the server is not.
const EARLY_EXPIRIES_FREE: u32 = 1;

/// Failed attempts in a row to resume before the position is dropped.
const FAILED_RESUMES_MAX: u32 = 3;

/// Time after a proof during which an outage needs no new one. Shorter than replacing or restoring a server takes.
const PROOF_LASTS: Duration = Duration::from_secs(10);

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Memory {
    pub(super) config: Config,
    pub(super) backoff: Backoff,
    pub(super) stats: ReflectorStats,
    pub(super) actions: VecDeque<Action>,
    pub(super) position: Option<ResourceVersion>,
    pub(super) verdict: Verdict,
    /// End of a verdict against streams. Set on first use, since a verdict can be passed in.
    verdict_until: Option<Time>,
    /// Reason why the next initial read uses pages once.
    trial: Option<FallBack>,
    /// True once the endpoint in use has answered a read of any state with a continue token.
    pages_any_state: bool,
    /// True once an expired page has restarted the list without pages; reset when initial state is complete.
    started_over: bool,
    /// True if the next list has no limit, because pages of the previous one expired.
    unpaged_next: bool,
    /// Streams in a row that broke before their initial state was complete.
    stream_failures: u32,
    /// Streams that should have resumed behind a mark and started over, at any endpoint, since initial state was last
    /// complete.
    streams_anew: u32,
    /// Failed reads "not older than" in a row.
    unsatisfied: u32,
    /// Failed attempts in a row to resume.
    failed_resumes: u32,
    /// Watches in a row that the server refused right after answering a list.
    refused_watches: u32,
    /// Entries of [`EARLY_POLLS`] used up since the server accepted a watch.
    early_polls: usize,
    /// Sessions closed for silence since this endpoint last sent a bookmark. Initial state does not reset it: a server
    /// whose watches deliver nothing may still answer lists.
    pub(super) silences: u32,
    /// Sessions from the current position that were silent or went backwards, since the position was last proved.
    pub(super) doubts: u32,
    /// True if there was an outage since the position was last proved or sent by the server.
    pub(super) is_suspect: bool,
    /// When an object of the server last proved the position.
    proved_at: Option<Time>,
    /// When the server last sent the position, or an object proved it.
    heard_at: Time,
    /// True once there is a state to show.
    pub(super) synced: bool,
    /// When initial state was last complete.
    synced_at: Option<Time>,
    /// Times in a row that initial state expired soon after it was complete.
    early_expiries: u32,
    /// True if the position belongs to the history of the endpoint in use, or of the one that a refused move returns
    /// to.
    pub(super) is_proved: bool,
    /// True if the endpoint in use was moved to and has not proved its history: it can be refused.
    pub(super) on_probation: bool,
    /// True if equal versions prove nothing until initial state is complete again.
    pub(super) distrust: bool,
    /// True if the next initial read requests the most recent state, whatever the position and configuration.
    latest: bool,
    /// Objects whose deletions are outstanding.
    pub(super) missing: MissingObjects,
    pub(super) lateness: Lateness,
    /// True once the server refused GET of an object and listed it instead. Each denied GET would add a line to its
    /// audit log.
    pub(super) get_is_refused: bool,
    /// True if a session was healthy since initial state was last complete, so the position was usable.
    pub(super) healthy_since_sync: bool,
    /// True if lists are allowed and watches are not.
    pub(super) polling: bool,
    pub(super) pace: RequestPace,
    /// When a refused watch is requested again, whatever polls come before.
    watch_at: Option<Time>,
    /// When the next poll is due. Survives moves between endpoints, so that repeated moves do not postpone it.
    poll_at: Option<Time>,
    rng: fastrand::Rng,
}

/// Strategy of one initial read.
pub(super) enum Way {
    Stream,
    List { limit: Option<u32>, trial: Option<FallBack> },
}

impl Memory {
    pub(super) fn new(config: Config, backoff: Backoff) -> Self {
        let mut rng = fastrand::Rng::with_seed(config.seed);
        // `Reflector::new` seeds the backoff with the first number: do not draw it twice.
        let _ = rng.u64(..);
        Self {
            backoff,
            stats: ReflectorStats::default(),
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
            missing: MissingObjects::default(),
            lateness: Lateness::default(),
            get_is_refused: false,
            healthy_since_sync: false,
            polling: false,
            pace: RequestPace::default(),
            watch_at: None,
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

    /// Orders a proof of the position by the next stored object.
    pub(super) fn prove(&mut self, by: ProofBy, skip: usize) {
        let at = self.position.clone().expect("only a position is proved");
        self.push(Action::Prove { at, by, skip });
    }

    /// Counts one object read. Called after the read, because there may have been no object to read.
    pub(super) const fn count_proof(&mut self) {
        self.stats.requests += 1;
        self.stats.proofs += 1;
    }

    /// Draws the delay of the first request, if starts are spread.
    pub(super) fn draw_spread(&mut self) -> Option<Duration> {
        let spread = self.config.spread;
        (!spread.is_zero()).then(|| spread.mul_f64(self.rng.f64()))
    }

    /// Returns a delay in `[delay, delay * 1.2)`: jitter for periodic work, so that clients do not synchronize. Not drawn
    /// from the delays, whose sequence it would disturb.
    pub(super) fn around(&mut self, delay: Duration) -> Duration {
        delay + delay.mul_f64(self.rng.f64() / 5.0)
    }

    /// Draws the lifetime of one watch, in seconds.
    pub(super) fn draw_watch_timeout(&mut self) -> u32 {
        let range = &self.config.watch_timeout_seconds;
        let (least, most) = (*range.start(), *range.end());
        // A reversed range would panic, so only its start counts.
        if least < most { self.rng.u32(least..=most) } else { least }
    }

    /// Returns the list semantic of the next initial read.
    pub(super) fn semantic(&self) -> ListSemantic {
        let semantic = match &self.position {
            Some(seen) => ListSemantic::NotOlderThan(seen.clone()),
            None => self.config.semantic.clone(),
        };
        match semantic {
            _ if self.latest => ListSemantic::MostRecent,
            ListSemantic::NotOlderThan(_) if self.is_never_satisfied() => ListSemantic::MostRecent,
            ListSemantic::NotOlderThan(_) | ListSemantic::MostRecent | ListSemantic::Any | ListSemantic::Exact(_) => {
                semantic
            }
        }
    }

    /// Opens a stage for `semantic`. If the most recent state is read because the server cannot reach the position,
    /// that state may belong to an older history, where equal versions may be different objects.
    pub(super) fn open_stage(&mut self, semantic: &ListSemantic) {
        self.lateness.begin();
        let may_go_back = self.position.is_some() && *semantic == ListSemantic::MostRecent;
        let continues_history = !self.distrust && !may_go_back;
        // While deletions are due, the history is not confirmed: another one may have used the same version twice.
        let trusts_versions = continues_history && self.missing.is_empty();
        self.push(Action::Init { trusts_versions, continues_history });
    }

    pub(super) fn choose_way(&mut self, now: Time) -> Way {
        let trial = self.trial.take();
        let semantic = self.semantic();
        let is_paged = self.may_page(&semantic) && !mem::take(&mut self.unpaged_next);
        let pages = Way::List { limit: is_paged.then_some(self.config.page_size), trial };
        // Called for every strategy, because it also starts and ends the verdict's time.
        let streams = self.streams_are_worth_asking(now);
        let exact = matches!(semantic, ListSemantic::Exact(_));
        match self.config.initial {
            InitialList::Unpaged => Way::List { limit: None, trial: None },
            InitialList::Paged => pages,
            // A stream cannot request an exact state.
            InitialList::Stream | InitialList::Auto if exact => pages,
            InitialList::Stream => Way::Stream,
            InitialList::Auto if trial.is_none() && streams => Way::Stream,
            InitialList::Auto => pages,
        }
    }

    /// Returns true if a LIST for `semantic` may carry a limit.
    ///
    /// kube-apiserver answers "not older than" from its cache, but with a limit 1.29 and 1.30 read every page from
    /// etcd, and 1.31 to 1.33 every page but the first. Relists come in herds, so client-go sends no limit either
    /// (kubernetes#86430). A server that pages `resourceVersion=0` has no cache, so pages are cheaper there.
    const fn may_page(&self, semantic: &ListSemantic) -> bool {
        !matches!(semantic, ListSemantic::NotOlderThan(_)) || self.pages_any_state
    }

    /// Notes that the server answered a first page with a continue token.
    pub(super) fn was_paged(&mut self, semantic: &ListSemantic) {
        self.pages_any_state |= *semantic == ListSemantic::Any;
    }

    /// Notes that a page after the first has expired. Returns true if the list may start over at once without pages:
    /// once until initial state is complete. Later lists alternate between paged and unpaged, each after the usual
    /// delay.
    pub(super) const fn may_start_over(&mut self) -> bool {
        self.unpaged_next = self.started_over;
        !mem::replace(&mut self.started_over, true)
    }

    /// Resets the state that is specific to the previous endpoint.
    pub(super) fn endpoint_changed(&mut self) {
        self.trial = None;
        self.pages_any_state = false;
        self.unpaged_next = false;
        self.refused_watches = 0;
        self.silences = 0;
    }

    /// Sets the verdict on the streams of the endpoint in use.
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
            // The verdict was passed in, so its time starts now.
            (Verdict::Pages(_), None) => {
                self.verdict_until = Some(now + self.around(self.config.verdict_lasts));
                false
            }
        }
    }

    /// Returns true if pages may replace streams.
    pub(super) const fn may_fall_back(&self) -> bool {
        matches!(self.config.initial, InitialList::Auto)
    }

    /// Replaces streams by pages until the verdict ends.
    pub(super) fn give_up_streams(&mut self, now: Time, cause: FallBack) {
        self.record_verdict(now, cause);
        self.stats.count_fallback(cause);
        self.report(Report::FellBack { cause });
    }

    /// Records a verdict against streams.
    pub(super) fn record_verdict(&mut self, now: Time, cause: FallBack) {
        self.verdict = Verdict::Pages(cause);
        self.verdict_until = Some(now + self.around(self.config.verdict_lasts));
        self.forgive_streams();
    }

    /// Makes the next initial read use pages, once.
    pub(super) fn try_pages(&mut self, cause: FallBack) {
        self.trial = Some(cause);
        self.forgive_streams();
        self.stats.count_fallback(cause);
        self.report(Report::FellBack { cause });
    }

    /// Makes the next initial read use pages, once, after a 404. Not reported as a fallback: the type may be missing.
    pub(super) const fn ask_for_pages_once(&mut self) {
        self.trial = Some(FallBack::Refused);
    }

    /// Notes that a stream started over although it should have resumed. Its marks may prove useless as well.
    pub(super) const fn stream_began_anew(&mut self) {
        self.streams_anew = self.streams_anew.saturating_add(1);
    }

    /// Returns true if pages follow when the open stream breaks. A stream that `progressed` has sent a mark from which
    /// the next one resumes: no failure, unless resuming has failed too often.
    pub(super) const fn is_last_stream(&self, progressed: bool) -> bool {
        let failures = if progressed { 0 } else { self.stream_failures + 1 };
        (failures >= STREAM_FAILURES_MAX || self.streams_anew >= STREAM_FAILURES_MAX) && self.may_fall_back()
    }

    /// Notes that a stream broke before its initial state was complete, for a reason other than overload.
    pub(super) fn stream_broke(&mut self, progressed: bool) {
        // Before the count below, which `is_last_stream` anticipates.
        let is_last = self.is_last_stream(progressed);
        self.stream_failures = if progressed { 0 } else { self.stream_failures + 1 };
        if is_last {
            self.try_pages(FallBack::Failures);
        }
    }

    const fn forgive_streams(&mut self) {
        (self.stream_failures, self.streams_anew) = (0, 0);
    }

    /// Returns true if the next initial read uses pages.
    pub(super) const fn tries_pages(&self) -> bool {
        self.trial.is_some()
    }

    /// Notes that the server failed to satisfy "not older than".
    pub(super) const fn not_satisfied(&mut self) {
        self.unsatisfied += 1;
        if self.unsatisfied == UNSATISFIED_MAX {
            // The next read has another semantic, for which streams have not failed yet.
            self.forgive_streams();
        }
    }

    /// Notes a failed attempt to resume. Returns true if the position should be dropped.
    pub(super) const fn resume_failed(&mut self) -> bool {
        self.failed_resumes += 1;
        let give_up = self.failed_resumes >= FAILED_RESUMES_MAX;
        if give_up {
            self.failed_resumes = 0;
        }
        give_up
    }

    /// Returns true if the next initial read requests the most recent state, because the server cannot reach the
    /// position.
    pub(super) const fn is_never_satisfied(&self) -> bool {
        self.unsatisfied >= UNSATISFIED_MAX
    }

    /// Notes that the position belongs to the history of the endpoint in use.
    pub(super) fn proved(&mut self, now: Time) {
        self.is_proved = true;
        self.unsatisfied = 0;
        self.proved_at = Some(now);
        self.on_probation = false;
        self.believe(now);
        self.report(Report::Proved);
    }

    /// Resets the doubts about the position.
    pub(super) const fn believe(&mut self, now: Time) {
        self.doubts = 0;
        self.is_suspect = false;
        self.heard_at = now;
    }

    /// Notes an outage: the server that answers next may be another one, or may have been restored to an older state.
    /// Within [`PROOF_LASTS`] of a proof this is ignored, so that a connection that breaks repeatedly costs one proof.
    pub(super) fn suspect(&mut self, now: Time) {
        self.is_suspect = self.proved_at.is_none_or(|at| now.since(at) >= PROOF_LASTS);
    }

    /// Returns true if the position needs a proof: sessions from it delivered nothing, or the server has not sent it
    /// for the time of [`DOUBTS_MAX`] silent sessions, however many short or failed sessions that was.
    pub(super) fn is_doubtful(&self, now: Time) -> bool {
        self.doubts >= DOUBTS_MAX || now.since(self.heard_at) >= self.config.idle_timeout.saturating_mul(DOUBTS_MAX)
    }

    /// Counts that the endpoint's history is not the position's. Returns the cause for a relist.
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

    /// Drops the position: no reachable server has its history. The next read uses the configured semantic, or the most
    /// recent state after a reset, after a refused position, or if an exact state of the old history was configured.
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

    /// Handles a server that refuses every read with the position: another kind of server sent it, or a faulty one. The
    /// most recent state follows, which is not older than any position of this history.
    pub(super) fn position_refused(&mut self, now: Time, retry_after: Option<Duration>) -> State {
        if self.on_probation {
            return self.refuse(now);
        }
        self.forget_position(RelistCause::Refused);
        if self.verdict == Verdict::Pages(FallBack::Refused) {
            // The stream may have been refused because of the position, so try streams again.
            (self.verdict, self.verdict_until) = (Verdict::Streams, None);
        }
        let until = self.unhealthy(now, Ending::Failed(Class::Refused), retry_after);
        BackoffWait::until(until, NextAction::Relist(RelistCause::Refused))
    }

    /// Returns to the previous endpoint, where the position is proved. If there was an outage, it is proved there again
    /// first.
    pub(super) fn refuse(&mut self, now: Time) -> State {
        // Objects missing at the refused endpoint prove nothing about the previous one.
        self.missing.begin();
        self.on_probation = false;
        self.unsatisfied = 0;
        self.endpoint_changed();
        self.stats.refused_moves += 1;
        self.push(Action::Refuse);
        // Outages at another endpoint, or while initial state was read, leave no suspicion, but the last sign is old then.
        let is_stale = now.since(self.heard_at) >= PROOF_LASTS;
        let next = if self.is_suspect || is_stale {
            NextAction::Prove(Attempt::new(ProofReason::Outage))
        } else {
            NextAction::Watch
        };
        BackoffWait::until(self.unhealthy(now, Ending::Unproven, None), next)
    }

    /// Notes that initial state is complete at `position`.
    pub(super) fn synced(&mut self, now: Time, position: ResourceVersion) {
        // Compared before `settle`, which may find that versions have no order.
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

    /// Returns true if `version` is lower than the position, even if versions of this type have no order.
    pub(super) fn is_late(&self, version: &str) -> bool {
        self.position
            .as_ref()
            .is_some_and(|seen| resource_version::compare(version, seen.as_str()) == Some(Ordering::Less))
    }

    /// Returns true if `to` is lower than the position. Always false if versions of this type have no order.
    pub(super) fn is_behind(&self, to: &ResourceVersion) -> bool {
        let is_lower = self.position.as_ref().is_some_and(|seen| to.compare(seen) == Some(Ordering::Less));
        is_lower && self.lateness.is_ordered()
    }

    /// Notes an object of initial state. An object without a version is kept too, as in client-go and kube.
    pub(super) fn received(&mut self, object: &ObservedObject<'_>) {
        self.lateness.saw(object);
        self.stats.initial_objects += 1;
        self.stats.unversioned += u64::from(ResourceVersion::parse(object.resource_version).is_err());
    }

    /// Moves the position to `to`, from a live event. Returns false if that would move it backwards.
    pub(super) fn advance(&mut self, now: Time, to: &ResourceVersion) -> bool {
        if self.is_behind(to) {
            return false;
        }
        self.move_to(now, to.clone());
        true
    }

    /// Moves the position to `to`, from a live event. The caller has checked that it does not go backwards.
    pub(super) fn move_to(&mut self, now: Time, to: ResourceVersion) {
        if self.position.as_ref() != Some(&to) {
            self.position = Some(to);
            self.doubts = 0;
        }
        self.heard_at = now;
        self.failed_resumes = 0;
    }

    /// Notes that the server accepted a session that sends the events after the position.
    pub(super) fn is_live(&mut self) {
        self.polling = false;
        (self.watch_at, self.poll_at) = (None, None);
        (self.refused_watches, self.early_polls) = (0, 0);
        if self.verdict == Verdict::Pages(FallBack::Forbidden) {
            // The server allows watches now, so streams may work again.
            self.set_verdict(Verdict::Streams);
        }
        // A restored state becomes current with the first accepted watch.
        if !self.synced {
            self.synced = true;
            self.push(Action::Restored);
        }
    }

    /// Notes that the server refused a watch right after answering a list. Returns true if the reflector polls from now
    /// on.
    pub(super) const fn refused_watch(&mut self) -> bool {
        self.refused_watches = self.refused_watches.saturating_add(1);
        self.refused_watches >= REFUSED_WATCHES_MAX
    }

    /// Returns when to request the refused watch again. A poll in between does not put that off.
    pub(super) fn next_refused_watch(&mut self, now: Time, retry_after: Option<Duration>) -> Time {
        let due = match self.watch_at.filter(|due| *due > now) {
            Some(due) => due.max(now + retry_after.unwrap_or_default().min(self.config.backoff.retry_after_max)),
            None => now + self.backoff.after_refused_watch(retry_after),
        };
        self.watch_at = Some(due);
        due
    }

    /// Returns when to list next while the server answers lists and refuses watches: one interval after that was first
    /// noticed.
    pub(super) fn next_poll(&mut self, now: Time) -> Time {
        self.polling = true;
        let due = match self.poll_at {
            Some(due) => due,
            None => {
                let interval = self.next_poll_interval();
                now + self.around(interval)
            }
        };
        self.poll_at = Some(due);
        // The poll may have become due while requests went to another endpoint.
        due.max(now)
    }

    fn next_poll_interval(&mut self) -> Duration {
        let interval = self.config.poll_interval;
        let Some(early) = EARLY_POLLS.get(self.early_polls) else { return interval };
        self.early_polls += 1;
        interval.min(*early)
    }

    /// Counts a request that follows the previous one without a pause, so that the next failure waits longer.
    pub(super) fn count_without_pause(&mut self) {
        let _ = self.backoff.after_unhealthy(None);
    }

    /// Notes that the session proved healthy.
    pub(super) fn prove_healthy(&mut self, now: Time) {
        self.healthy_since_sync = true;
        self.stats.healthy_sessions += 1;
        self.settle(now);
        // After repeated early expiries a healthy session is not enough; see `settle`.
        if self.early_expiries <= EARLY_EXPIRIES_FREE {
            self.backoff.reset();
        }
        self.report(Report::Healthy);
    }

    /// Notes that the position has expired. Returns true if that happened more than [`EARLY_EXPIRIES_FREE`] times in a
    /// row, each soon after a list.
    pub(super) fn expires_early(&mut self, now: Time) -> bool {
        self.early_expiries = if self.has_lasted(now) { 0 } else { self.early_expiries + 1 };
        self.early_expiries > EARLY_EXPIRIES_FREE
    }

    /// Clears repeated early expiries and resets the delays once initial state has lasted for `backoff.max`.
    pub(super) fn settle(&mut self, now: Time) {
        if self.early_expiries > EARLY_EXPIRIES_FREE && self.has_lasted(now) {
            self.early_expiries = 0;
            self.backoff.reset();
        }
    }

    fn has_lasted(&self, now: Time) -> bool {
        self.synced_at.is_none_or(|at| now.since(at) >= self.config.backoff.max)
    }

    /// Ends an unhealthy session. Returns when the next request is due.
    pub(super) fn unhealthy(&mut self, now: Time, cause: Ending, retry_after: Option<Duration>) -> Time {
        self.stats.unhealthy_ends += 1;
        self.charge(now);
        let until = now + self.backoff.after_unhealthy(retry_after);
        self.report(Report::Waiting { until, cause });
        until
    }

    /// Like [`Self::unhealthy`], after an attempt that cost the server next to nothing: no connection, or a watch that it
    /// forbids. Requests of the first state do not come sooner: they cost the server most once it is back.
    pub(super) fn failed_cheaply(&mut self, now: Time, cause: Ending, retry_after: Option<Duration>) -> Time {
        if !self.synced {
            return self.unhealthy(now, cause, retry_after);
        }
        self.stats.unhealthy_ends += 1;
        let delay = if cause == Ending::Failed(Class::Connection) {
            if self.pace.is_ahead(now) {
                self.charge(now);
            }
            self.backoff.after_no_connection(retry_after)
        } else {
            self.charge(now);
            self.backoff.after_refused_watch(retry_after)
        };
        let until = now + delay;
        self.report(Report::Waiting { until, cause });
        until
    }
}
