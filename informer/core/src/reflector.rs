//! Decides how to keep a copy in step with a server: initial state, watch, resume, relist. Does no I/O.
//!
//! The driver feeds facts to [`Reflector::handle`], then drains [`Reflector::poll_action`], then arms a timer for
//! [`Reflector::poll_timeout`].

mod vocabulary;

mod lateness;
mod listing;
mod marks;
mod missing;
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
    stats::Stats,
    time::Time,
};

use listing::Listing;
use memory::{Memory, Way};
use proving::{Proving, Why};
use streaming::Streaming;
use waiting::{Next, Waiting};
use watching::Watching;

pub use vocabulary::{
    Action, Change, Class, End, Ending, Failure, FallBack, Input, Observed, Proof, ProofBy, RelistCause, Report,
    Testimony, Verdict,
};

/// Settings of one reflector. Plain data; `Default` is what production should use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How fresh the first read has to be. Relists ask for "not older than seen". Default [`ListSemantic::Any`].
    pub semantic: ListSemantic,
    /// How initial state is fetched. Default [`InitialList::Auto`].
    pub initial: InitialList,
    /// What is known about streams, for [`InitialList::Auto`]. Default: worth asking for.
    pub verdict: Verdict,
    /// A saved position. The first request proves it, then resumes from it. Default none: initial state is asked for.
    pub resume: Option<ResourceVersion>,
    /// The first request waits a random part of this. Default zero; for fleets that start together.
    pub spread: Duration,
    /// Whether a stream of initial state that breaks goes on where it broke, at servers that can. Default yes. Costs
    /// others nothing.
    pub resume_initial: bool,
    /// Objects a page. Default 500, as client-go. The server pays: one page in memory. Lists "not older than seen" are not
    /// paged, since kube-apiserver before 1.34 reads their pages from etcd, unless the server has paged "any" state.
    pub page_size: u32,
    /// A session that lived this long after it became live is healthy. Default 10 s.
    pub healthy_after: Duration,
    /// How long an answer may stay silent before it is closed. Default 150 s: the API server aims at one bookmark a
    /// minute, so two may go missing. Shorter finds dead connections sooner and costs one request per resource type.
    pub idle_timeout: Duration,
    /// How long an accepted stream may send nothing of its initial state before that is complete. Default 10 s. Objects that
    /// are newer than what was sent before may have been created meanwhile, and prolong it to twice that at most.
    pub initial_events_stall: Duration,
    /// `timeoutSeconds` of a watch, drawn from this range. Default 300 to 599, as client-go.
    pub watch_timeout_seconds: RangeInclusive<u32>,
    /// Pause between polls while watches are forbidden. Default 5 minutes, a fifth of jitter added.
    pub poll_interval: Duration,
    /// How long a verdict against streams lasts. Default 1 hour, a fifth of jitter added; costs one refused request.
    pub verdict_lasts: Duration,
    /// Delays after sessions that ended.
    pub backoff: backoff::Config,
    /// Where jitter and lifetimes come from. Equal seeds decide equally.
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
            poll_interval: Duration::from_mins(5),
            verdict_lasts: Duration::from_hours(1),
            backoff: backoff::Config::default(),
            seed: 0,
        }
    }
}

/// Keeps a copy in step with a server.
///
/// Between [`Input::Start`] and the end there is always a timer armed. Every request for initial state has a counted
/// cause, every pause grows unless a session proved healthy in between, and a position is only moved by what was live.
///
/// Cost: an input allocates only when a position moves or a request is due.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Reflector {
    state: State,
    memory: Memory,
}

/// One struct per state, each with what is valid there and nothing else.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
enum State {
    /// Not started.
    Idle,
    /// A LIST is open, or a page of one.
    Listing(Listing),
    /// A stream is open and its initial state is not complete.
    Streaming(Streaming),
    /// One stored object is read again.
    Proving(Proving),
    /// A watch is open, or a stream past its initial state.
    Watching(Watching),
    /// Nothing is open; something follows later.
    Waiting(Waiting),
    /// Nothing is open and nothing follows.
    Over,
}

impl Reflector {
    /// A reflector that has asked for nothing yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let jitter = fastrand::Rng::with_seed(config.seed).u64(..);
        let backoff = Backoff::new(config.backoff.clone(), jitter);
        Self { state: State::Idle, memory: Memory::new(config, backoff) }
    }

    /// The same, with delays after unhealthy ends that `delays` names instead of [`Config::backoff`].
    #[must_use]
    pub fn with_delays(config: Config, delays: Box<dyn Delays>) -> Self {
        let jitter = fastrand::Rng::with_seed(config.seed).u64(..);
        let backoff = Backoff::with_delays(config.backoff.clone(), jitter, delays);
        Self { state: State::Idle, memory: Memory::new(config, backoff) }
    }

    /// Takes one fact. Afterwards drain [`Self::poll_action`], then arm a timer for [`Self::poll_timeout`].
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        let memory = &mut self.memory;
        if let Input::Ended(End::Failed(failure)) = &input {
            memory.stats.count_failure(failure.class);
        }
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

    /// The next thing to do; `None` when all is done until the next fact.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.memory.actions.pop_front()
    }

    /// When to hand in [`Input::TimedOut`] if nothing else happens. `None` before the start and after the end.
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

    /// The read ordered last went out only now, since it waited for its turn: silence and stalls count from here on.
    pub const fn went_out(&mut self, now: Time) {
        match &mut self.state {
            State::Listing(state) => state.went_out(now),
            State::Streaming(state) => state.went_out(now),
            State::Idle | State::Proving(_) | State::Watching(_) | State::Waiting(_) | State::Over => {}
        }
    }

    /// When the open read of initial state counts as standing still, unless more of the state comes before. `None` while
    /// no such read is open. For budgets: the read itself goes on.
    #[must_use]
    pub fn stands_still_at(&self) -> Option<Time> {
        match &self.state {
            State::Listing(state) => Some(state.stands_still_at(&self.memory)),
            State::Streaming(state) => Some(state.stands_still_at(&self.memory)),
            State::Idle | State::Proving(_) | State::Watching(_) | State::Waiting(_) | State::Over => None,
        }
    }

    /// What was counted so far.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.memory.stats
    }

    /// Whether there is a state to show: initial state was complete once, or a saved one was proved and the server
    /// accepted a watch from it.
    #[must_use]
    pub const fn is_synced(&self) -> bool {
        self.memory.synced
    }

    /// Whether lists are answered and watches are refused: the copy is kept by polling, and ready in its way.
    #[must_use]
    pub const fn is_polling(&self) -> bool {
        self.memory.polling
    }

    /// Whether the position belongs to the history of the endpoint in use: it was fetched or proved there. This is where
    /// [`Action::Refuse`] leads back to.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.memory.is_proved && !self.memory.on_probation
    }

    /// The last position seen: of initial state, a live change or a bookmark; at first the saved one. `None` before the
    /// first, and while the state of another history is being fetched.
    #[must_use]
    pub const fn position(&self) -> Option<&ResourceVersion> {
        self.memory.position.as_ref()
    }

    /// Returns true if the copy is the server's state at [`position`](Self::position), as far as is known: the position
    /// was not refused, and no deletion that would prove its history is due. Only such a copy is worth saving.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.memory.is_proved && self.memory.position.is_some() && self.memory.missing.is_empty()
    }

    /// Returns true if a live event at this version lies behind the position: then [`Observed::is_news`] counts.
    #[must_use]
    pub fn is_behind(&self, resource_version: &str) -> bool {
        self.memory.is_late(resource_version)
    }

    /// Whether nothing will be asked any more: the exact state asked for has expired.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Takes over what is known about the streams of another endpoint. To be called before [`Input::Moved`], and after
    /// [`Action::Refuse`], which leads back to the endpoint before.
    pub const fn set_verdict(&mut self, verdict: Verdict) {
        self.memory.set_verdict(verdict);
    }

    /// What is known about streams by now. For whoever starts the next reflector of this resource type.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        self.memory.verdict
    }
}

/// The first request, or a part of [`Config::spread`] to wait for it.
fn start(now: Time, memory: &mut Memory) -> State {
    match memory.draw_spread() {
        Some(pause) => {
            let until = now + pause;
            memory.report(Report::Spread { until });
            Waiting::until(until, Next::Begin)
        }
        None => begin(now, memory),
    }
}

fn begin(now: Time, memory: &mut Memory) -> State {
    if memory.position.is_some() {
        return Proving::begin(now, Why::Resume, memory);
    }
    relist(now, RelistCause::Start, memory)
}

/// Requests go to another endpoint. Whatever was to follow, a position that can be proved there is resumed from: the
/// cheap thing first.
fn moved(now: Time, home: bool, memory: &mut Memory) -> State {
    memory.endpoint_changed();
    if memory.position.is_none() {
        return relist(now, RelistCause::Interrupted, memory);
    }
    let why = match (memory.is_proved, home) {
        (false, _) => Why::Resume,
        (true, false) => Why::Moved,
        (true, true) => Why::Outage,
    };
    memory.on_probation = why == Why::Moved;
    Proving::begin(now, why, memory)
}

/// Asks for initial state, in the way that fits what is known.
fn relist(now: Time, cause: RelistCause, memory: &mut Memory) -> State {
    memory.stats.count_relist(cause);
    memory.report(Report::Relist { cause });
    match memory.choose_way(now) {
        Way::Stream => Streaming::begin(now, memory),
        Way::List { limit, trial } => Listing::begin(now, limit, trial, memory),
    }
}

#[cfg(test)]
mod exhaustive;
#[cfg(test)]
mod tests;
