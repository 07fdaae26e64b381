//! State machine that keeps a copy in step with a server: initial state, watch, resume, relist. Does no I/O.
//!
//! The driver passes each input to [`Reflector::handle`], drains [`Reflector::poll_action`], then arms a timer for
//! [`Reflector::poll_timeout`].

mod vocabulary;

mod lateness;
mod listing;
mod marks;
mod missing;
mod pace;
mod proving;
mod stall;
mod streaming;
mod waiting;
mod watching;

mod memory;

use std::{mem, ops::RangeInclusive, time::Duration};

use crate::{
    backoff::{self, Backoff, Delays},
    limits,
    resource_version::ResourceVersion,
    semantics::{InitialList, ListSemantic},
    stats::ReflectorStats,
    time::Time,
};

use listing::ListSession;
use memory::{Memory, Way};
use proving::{ProofReason, ProofSession};
use streaming::StreamSession;
use waiting::{BackoffWait, NextAction};
use watching::WatchSession;

pub use vocabulary::{
    Action, Class, End, Ending, Failure, FallBack, Input, ObservedKind, ObservedObject, Proof, ProofBy, RelistCause,
    Report, Testimony, Verdict,
};

/// Settings of one reflector. Plain data; the default suits production.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// List semantic of the first read. Relists request "not older than seen". Default [`ListSemantic::Any`].
    pub semantic: ListSemantic,
    /// Strategy for initial state. Default [`InitialList::Auto`].
    pub initial: InitialList,
    /// Initial verdict on streams, for [`InitialList::Auto`]. Default: try them.
    pub verdict: Verdict,
    /// A saved position. The first request proves it, then a watch resumes from it. Default: none, so the reflector
    /// lists.
    pub resume: Option<ResourceVersion>,
    /// Upper bound of the random delay before the first request. Default zero; for fleets that start together.
    pub spread: Duration,
    /// True if a broken stream of initial state resumes where it broke, on servers that support it. Default true. Adds
    /// no requests on other servers.
    pub resume_initial: bool,
    /// Objects per page. Default 500, as in client-go. Each page costs the server its memory. Lists "not older than
    /// seen" are not paged, because kube-apiserver before 1.34 reads their pages from etcd, unless this server has
    /// paged "any" state.
    pub page_size: u32,
    /// Time a session must be live to count as healthy. Default 10 s.
    pub healthy_after: Duration,
    /// Longest silence of a response before the client closes it. Default 150 s: kube-apiserver aims at one bookmark
    /// per minute, so two may be lost. A shorter timeout finds dead connections sooner, and costs more requests for
    /// quiet types.
    pub idle_timeout: Duration,
    /// Longest time without progress of an accepted stream's initial state. Default 10 s. Objects newer than all before
    /// them may be live creations; alone they extend it to at most twice this time.
    pub initial_events_stall: Duration,
    /// Range of `timeoutSeconds` of watches, drawn at random. Default 300 to 599, as in client-go.
    pub watch_timeout_seconds: RangeInclusive<u32>,
    /// Interval between polls while watches are forbidden. Default 5 minutes, plus up to 20 % jitter.
    pub poll_interval: Duration,
    /// Lifetime of a verdict against streams. Default 1 hour, plus up to 20 % jitter. Each renewal costs one refused
    /// request.
    pub verdict_lasts: Duration,
    /// Delays between sessions.
    pub backoff: backoff::Config,
    /// Seed of jitter and watch lifetimes. Equal seeds make equal decisions.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            semantic: ListSemantic::Any,
            initial: InitialList::Auto,
            verdict: Verdict::Streams,
            resume: None,
            spread: Duration::ZERO,
            resume_initial: true,
            page_size: limits::PAGE_SIZE,
            healthy_after: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(150),
            initial_events_stall: Duration::from_secs(10),
            watch_timeout_seconds: 300..=599,
            poll_interval: Duration::from_secs(5 * 60),
            verdict_lasts: Duration::from_secs(60 * 60),
            backoff: backoff::Config::default(),
            seed: 0,
        }
    }
}

/// Keeps a copy in step with a server.
///
/// A timer is always armed between [`Input::Start`] and the end. Every request for initial state has a counted cause.
/// Delays grow until a session proves healthy. Only complete initial state, live events and bookmarks move the
/// position.
///
/// Cost: an input allocates only when the position moves or a request is due.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Reflector {
    state: State,
    memory: Memory,
}

/// One struct per state, holding only data valid in that state.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
enum State {
    /// Not started.
    Idle,
    /// A LIST, or a page of one, is open.
    Listing(ListSession),
    /// A stream is open and its initial state is incomplete.
    Streaming(StreamSession),
    /// One stored object is being read again to prove the position.
    Proving(ProofSession),
    /// A watch is open, or a stream past its initial state.
    Watching(WatchSession),
    /// No request is open; one follows later.
    Waiting(BackoffWait),
    /// No request is open and none follows.
    Over,
}

impl Reflector {
    /// Creates a reflector that has sent no request yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        // The seed's first number starts the jitter; `Memory` draws the others.
        let jitter = fastrand::Rng::with_seed(config.seed).u64(..);
        let backoff = Backoff::new(config.backoff.clone(), jitter);
        Self { state: State::Idle, memory: Memory::new(config, backoff) }
    }

    /// Like [`Self::new`], with delays from `delays` instead of [`Config::backoff`] after unhealthy sessions.
    #[must_use]
    pub fn with_delays(config: Config, delays: Box<dyn Delays>) -> Self {
        let jitter = fastrand::Rng::with_seed(config.seed).u64(..);
        let backoff = Backoff::with_delays(config.backoff.clone(), jitter, delays);
        Self { state: State::Idle, memory: Memory::new(config, backoff) }
    }

    /// Handles one input. Afterwards drain [`Self::poll_action`], then arm a timer for [`Self::poll_timeout`].
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        let memory = &mut self.memory;
        // Counted in every state, so late failures of closed responses count too.
        if let Input::Ended(End::Failed(failure)) = &input {
            memory.stats.count_failure(failure.class);
        }
        // `Over` only fills the place while the state, taken by value, handles the input.
        self.state = match mem::replace(&mut self.state, State::Over) {
            State::Idle if input == Input::Start => start(now, memory),
            State::Idle => State::Idle,
            State::Listing(state) => state.handle(now, input, memory),
            State::Streaming(state) => state.handle(now, input, memory),
            State::Proving(state) => state.handle(now, input, memory),
            State::Watching(state) => state.handle(now, input, memory),
            State::Waiting(state) => state.handle(now, input, memory),
            State::Over => State::Over,
        };
    }

    /// Returns the next action; `None` when the queue is empty until the next input.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.memory.actions.pop_front()
    }

    /// Returns when to pass [`Input::TimedOut`] if no other input arrives. `None` before the start and after the end.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        match &self.state {
            State::Idle | State::Over => None,
            State::Listing(state) => Some(state.deadline(&self.memory)),
            State::Streaming(state) => Some(state.deadline(&self.memory)),
            State::Proving(state) => Some(state.deadline(&self.memory)),
            State::Watching(state) => Some(state.deadline(&self.memory)),
            State::Waiting(state) => Some(state.deadline()),
        }
    }

    /// Restarts the silence and stall timers of the last read, because its request waited in a queue until now.
    pub const fn went_out(&mut self, now: Time) {
        match &mut self.state {
            State::Listing(state) => state.went_out(now),
            State::Streaming(state) => state.went_out(now),
            State::Idle | State::Proving(_) | State::Watching(_) | State::Waiting(_) | State::Over => {}
        }
    }

    /// Returns when the open read of initial state counts as stalled unless more of it arrives. `None` if no such read
    /// is open. For relist budgets only: the read itself continues.
    #[must_use]
    pub fn stands_still_at(&self) -> Option<Time> {
        match &self.state {
            State::Listing(state) => Some(state.stands_still_at(&self.memory)),
            State::Streaming(state) => Some(state.stands_still_at(&self.memory)),
            State::Idle | State::Proving(_) | State::Watching(_) | State::Waiting(_) | State::Over => None,
        }
    }

    /// Counters so far.
    #[must_use]
    pub const fn stats(&self) -> &ReflectorStats {
        &self.memory.stats
    }

    /// Returns true once the copy can be shown: initial state was complete, or a saved state was proved and the server
    /// accepted a watch from it.
    #[must_use]
    pub const fn is_synced(&self) -> bool {
        self.memory.synced
    }

    /// Returns true while the server answers lists and refuses watches: the copy is kept by polling, and counts as
    /// ready.
    #[must_use]
    pub const fn is_polling(&self) -> bool {
        self.memory.polling
    }

    /// Returns true if the position was fetched or proved at the endpoint in use. [`Action::Refuse`] returns to the
    /// last endpoint for which this was true.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.memory.is_proved && !self.memory.on_probation
    }

    /// Returns the last position: of initial state, a live event or a bookmark; at first the saved one. `None` before
    /// the first, and while the state of another history is fetched.
    #[must_use]
    pub const fn position(&self) -> Option<&ResourceVersion> {
        self.memory.position.as_ref()
    }

    /// Returns true if the copy is, as far as is known, the server's state at [`position`](Self::position): the
    /// position was not refused, and no deletion that would prove its history is outstanding. Save a checkpoint only
    /// then.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.memory.is_proved && self.memory.position.is_some() && self.memory.missing.is_empty()
    }

    /// Returns true if `resource_version` is lower than the position; only then is [`ObservedObject::is_news`] read.
    #[must_use]
    pub fn is_behind(&self, resource_version: &str) -> bool {
        self.memory.is_late(resource_version)
    }

    /// Returns true once no request follows: the exact state that was requested has expired.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Sets the verdict on the streams of another endpoint. Call it before [`Input::Moved`], and after
    /// [`Action::Refuse`], which returns to the previous endpoint.
    pub const fn set_verdict(&mut self, verdict: Verdict) {
        self.memory.set_verdict(verdict);
    }

    /// Returns the current verdict on streams, for the next reflector of this resource type.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        self.memory.verdict
    }
}

/// Sends the first request, or first waits a random part of [`Config::spread`].
fn start(now: Time, memory: &mut Memory) -> State {
    match memory.draw_spread() {
        Some(pause) => {
            let until = now + pause;
            memory.report(Report::Spread { until });
            BackoffWait::until(until, NextAction::Begin)
        }
        None => begin(now, memory),
    }
}

fn begin(now: Time, memory: &mut Memory) -> State {
    if memory.position.is_some() {
        // Proving and resuming a saved position costs less than a list.
        return ProofSession::begin(now, ProofReason::Resume, memory);
    }
    relist(now, RelistCause::Start, memory)
}

/// Handles a move to another endpoint. If there is a position, the reflector tries to prove and resume it there,
/// whatever was pending: resuming is the cheapest request.
fn moved(now: Time, home: bool, memory: &mut Memory) -> State {
    memory.endpoint_changed();
    if memory.position.is_none() {
        return relist(now, RelistCause::Interrupted, memory);
    }
    // A position that is unproved, or returns to its own endpoint, has no endpoint to be sent back to.
    let why = match (memory.is_proved, home) {
        (false, _) => ProofReason::Resume,
        (true, false) => ProofReason::Moved,
        (true, true) => ProofReason::Outage,
    };
    memory.on_probation = why == ProofReason::Moved;
    ProofSession::begin(now, why, memory)
}

/// Requests initial state by the strategy that fits the endpoint.
fn relist(now: Time, cause: RelistCause, memory: &mut Memory) -> State {
    memory.stats.count_relist(cause);
    memory.report(Report::Relist { cause });
    match memory.choose_way(now) {
        Way::Stream => StreamSession::begin(now, memory),
        Way::List { limit, trial } => ListSession::begin(now, limit, trial, memory),
    }
}

#[cfg(test)]
mod exhaustive;
#[cfg(test)]
mod tests;
