//! One client of a world: the session as shipped, a store, a level-triggered subscriber and a checkpoint, with notes of
//! what it saw.

use std::{cell::Cell, collections::VecDeque, mem, sync::Arc};

use fastrand::Rng;
use informer_core::{
    InitialList, ListSemantic, Read, Time,
    endpoints::{self, Endpoints},
    object::Meta,
    proof,
    reflector::{self, Report, Testimony, Verdict},
    resource_version::ResourceVersion,
    session::{Session, SessionAction, SessionInput, SessionReport, TURN_MAX, VerdictTable},
    stats::ReflectorStats,
    store::{self, Snapshot},
};

use super::{
    Site,
    evidence::HeldCopy,
    histories::Histories,
    notes::Notes,
    replica::{Replica, Taken},
    wire::{self, Told, object_of, state_of},
};
use crate::{
    api::{Answer, Fact},
    checkers::{self, Observation, Violation, ensure},
    model::{Change, Kind, State},
};

/// Maximum lines of a node's trace for the report of a failure.
const TRACE_LINES: usize = 60;

/// The servers, histories and relist budget around a node.
pub(super) struct Around<'a> {
    pub(super) sites: &'a [Site],
    pub(super) histories: &'a Histories,
    /// Permits of the relist budget that are free.
    pub(super) permits: &'a Cell<u32>,
}

/// An input of a node.
pub(super) enum Heard {
    Start,
    Granted,
    Fact(Fact),
    TimedOut,
}

pub(super) struct Node {
    config: reflector::Config,
    session: Session<Replica, Verdicts>,
    /// Knowledge about each endpoint.
    known: Vec<Known>,
    answer: Option<Answer>,
    /// The request of the open response.
    asked: Option<Read>,
    /// The object and position of the open proof.
    witness: Option<(Arc<store::Entry>, ResourceVersion)>,
    permit: Permit,
    /// True if the last request was a watch, and true once it was accepted.
    is_watch: bool,
    is_accepted: bool,
    subscriber: Subscriber,
    checkpoint: Option<Checkpoint>,
    notes: Notes,
    requests: Vec<Time>,
    proofs: Vec<Time>,
    healthy: Vec<Time>,
    /// Counters of earlier processes.
    earlier: ReflectorStats,
    /// The last actions and inputs, if tracing is on.
    trace: Option<VecDeque<String>>,
}

/// A node's permit of the relist budget.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Permit {
    None,
    Wanted,
    Held { since: Time },
}

/// Verdicts by endpoint.
pub(super) struct Verdicts(pub(super) Vec<Verdict>);

impl VerdictTable for Verdicts {
    fn verdict(&self, endpoint: usize) -> Verdict {
        self.0[endpoint]
    }

    fn set_verdict(&mut self, endpoint: usize, verdict: Verdict) {
        self.0[endpoint] = verdict;
    }
}

/// A client's knowledge about one endpoint.
#[derive(Clone, Copy, Default)]
struct Known {
    /// True once a stream was accepted, refused or answered with nonsense: any outcome but overload and outage.
    has_streamed: bool,
    /// True once it answered a list of any state with a page token, since the client last moved to it.
    pages_any_state: bool,
}

/// A saved state and its history.
#[derive(Clone)]
struct Checkpoint {
    saved: Snapshot,
    history: usize,
}

impl Node {
    pub(super) fn new(config: reflector::Config, sites: usize, traced: bool) -> Self {
        let endpoints = Endpoints::new(sites, endpoints::Config::default(), config.seed);
        let verdicts = Verdicts(vec![Verdict::default(); sites]);
        Self {
            session: Session::new(config.clone(), None, endpoints, verdicts, Replica::default()),
            known: vec![Known::default(); sites],
            answer: None,
            asked: None,
            witness: None,
            permit: Permit::None,
            is_watch: false,
            is_accepted: false,
            subscriber: Subscriber::default(),
            checkpoint: None,
            notes: Notes::default(),
            requests: Vec::new(),
            proofs: Vec::new(),
            healthy: Vec::new(),
            earlier: ReflectorStats::default(),
            trace: traced.then(VecDeque::new),
            config,
        }
    }

    /// Counters of all its processes.
    pub(super) fn stats(&self) -> ReflectorStats {
        let mut stats = self.earlier.clone();
        stats += self.session.stats();
        stats
    }

    pub(super) fn trace(&self) -> Vec<String> {
        self.trace.iter().flatten().cloned().collect()
    }

    /// The endpoint in use.
    pub(super) const fn site(&self) -> usize {
        self.session.endpoint()
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.session.poll_timeout()
    }

    fn snapshot(&self) -> Snapshot {
        self.session.sink().store.snapshot()
    }

    /// The copies from whose positions it may still resume, its own and its checkpoint's, for which `concerns` holds
    /// with their history and position.
    pub(super) fn copies(&self, concerns: impl Fn(usize, u64) -> bool) -> Vec<HeldCopy> {
        let now = self.notes.holds().map(|(of, at)| (of, at, None));
        let saved = self.checkpoint.as_ref().map(|it| (it.history, position_of(&it.saved), Some(&it.saved)));
        let concerned = now.into_iter().chain(saved).filter(|(of, at, _)| concerns(*of, *at));
        let copy = |(_, at, saved): (usize, u64, Option<&Snapshot>)| {
            let objects = saved.map_or_else(|| state_of(&self.snapshot()), state_of);
            HeldCopy { at, objects, is_suspect: saved.is_none() && self.owes_deletions() }
        };
        concerned.map(copy).collect()
    }

    /// Returns true while deletions are due that would confirm the server's history; without them it is another
    /// history.
    fn owes_deletions(&self) -> bool {
        let reflector = self.session.reflector();
        reflector.is_settled() && !reflector.is_sound()
    }

    pub(super) fn is_connected(&self) -> bool {
        self.answer.is_some()
    }

    /// Takes a free permit, fires timers that are due, and takes up to 11 facts of the open response.
    pub(super) fn tick(&mut self, now: Time, around: &Around<'_>, rng: &mut Rng) -> Result<(), Violation> {
        let free = around.permits.get();
        if self.permit == Permit::Wanted && free > 0 {
            around.permits.set(free - 1);
            self.permit = Permit::Held { since: now };
            self.tell(now, &Heard::Granted, around, rng)?;
        }
        for _ in 0..rng.u32(1..12) {
            let site = &around.sites[self.site()];
            let model = around.histories.model(site.history);
            let Some(fact) = self.answer.as_mut().and_then(|answer| answer.next(now, &site.api, model, rng)) else {
                break;
            };
            self.tell(now, &Heard::Fact(fact), around, rng)?;
        }
        if self.session.poll_timeout().is_some_and(|due| due <= now) {
            self.tell(now, &Heard::TimedOut, around, rng)?;
        }
        if let Permit::Held { since } = self.permit {
            let held = now.since(since);
            ensure(held <= TURN_MAX, "Fair", || format!("a permit of the relist budget was held for {held:?}"))?;
        }
        if rng.u8(..8) == 0 {
            self.subscriber.catch_up(&self.snapshot())?;
        }
        let reflector = self.session.reflector();
        if rng.u8(..16) == 0 && reflector.is_synced() && reflector.is_sound() {
            self.checkpoint = self.notes.holds().map(|(history, _)| Checkpoint { saved: self.snapshot(), history });
        }
        Ok(())
    }

    /// Ends the process and starts another, from its checkpoint or without a state.
    pub(super) fn restart(
        &mut self,
        now: Time,
        forgets: bool,
        around: &Around<'_>,
        rng: &mut Rng,
    ) -> Result<(), Violation> {
        // The new node starts without request times, so check the old ones now.
        self.bounded()?;
        self.earlier += self.session.stats();
        self.release(around);
        let saved = self.checkpoint.take().filter(|_| !forgets);
        let position = saved.as_ref().and_then(|saved| saved.saved.resource_version.clone());
        let config = reflector::Config { resume: position.clone(), seed: rng.u64(..), ..self.config.clone() };
        let old = mem::replace(self, Self::new(config, around.sites.len(), false));
        self.notes = old.notes;
        (self.earlier, self.trace, self.config) = (old.earlier, old.trace, old.config);
        self.note(now, || format!("RESTART from {position:?}"));
        self.notes.begin(saved.as_ref().map(|saved| (saved.history, position_of(&saved.saved))));
        if let Some(Checkpoint { saved, .. }) = &saved {
            let bodies: Vec<Vec<u8>> = saved.objects.iter().map(|entry| entry.json().into_owned()).collect();
            let objects = bodies.iter().map(|json| (Meta::read(json).unwrap(), json.as_slice()));
            self.session.sink_mut().store.restore(objects, position);
        }
        self.checkpoint = saved;
        self.tell(now, &Heard::Start, around, rng)
    }

    pub(super) fn tell(
        &mut self,
        now: Time,
        heard: &Heard,
        around: &Around<'_>,
        rng: &mut Rng,
    ) -> Result<(), Violation> {
        let site = self.site();
        match heard {
            Heard::Start => self.session.handle(now, SessionInput::Start),
            Heard::Granted => self.session.handle(now, SessionInput::Granted),
            Heard::TimedOut => self.session.handle(now, SessionInput::TimedOut),
            Heard::Fact(fact) => self.hear(now, fact)?,
        }
        for taken in mem::take(&mut self.session.sink_mut().taken) {
            self.took(taken, heard, site, around)?;
        }
        while let Some(action) = self.session.poll_action() {
            self.note(now, || format!("    {action:?}"));
            self.act(now, action, around, rng)?;
        }
        let is_alive = self.permit == Permit::Wanted || self.session.poll_timeout().is_some();
        ensure(is_alive, "Alive", || "no timer is armed".into())
    }

    fn learn(&mut self, fact: &Fact) {
        let known = &mut self.known[self.session.endpoint()];
        match (&self.asked, fact) {
            (Some(Read::Stream { .. }), Fact::Accepted | Fact::AcceptedWithMarks | Fact::Resumed) => {
                known.has_streamed = true;
            }
            (_, Fact::Ended(reflector::End::Failed(failure))) => {
                use reflector::Class::{Forbidden, Malformed, NotFound, Refused};
                known.has_streamed |= matches!(failure.class, Forbidden | Malformed | NotFound | Refused);
            }
            (Some(Read::List { semantic: ListSemantic::Any, .. }), Fact::PageEnd { token: Some(_), .. }) => {
                known.pages_any_state = true;
            }
            _ => {}
        }
    }

    fn hear(&mut self, now: Time, fact: &Fact) -> Result<(), Violation> {
        self.note(now, || format!("  {fact:?}"));
        self.learn(fact);
        self.is_accepted |= matches!(fact, Fact::Accepted | Fact::AcceptedWithMarks | Fact::Resumed);
        if matches!(fact, Fact::Ended(_) | Fact::PageEnd { .. } | Fact::Found(_)) {
            self.answer = None;
        }
        match wire::told(fact) {
            Told::Input(input) => self.session.handle(now, input),
            Told::Frame(frame) => self.session.handle_frame(now, frame.borrow()).map_err(|error| broken(&error))?,
            Told::Found(found) => {
                let (stored, at) = self.witness.take().expect("only what was asked for is found");
                let meta = found.as_deref().map(|json| Meta::read(json).unwrap());
                let proof = proof::compare(&stored, &at, meta.as_ref());
                self.note(now, || format!("  {proof:?} by {stored:?}"));
                let testimony = Testimony { proof, key: stored.key(), uid: stored.uid() };
                self.session.handle(now, SessionInput::Proved(testimony));
            }
        }
        Ok(())
    }

    /// Records what the copy took from the current fact, sent by `site`.
    fn took(&mut self, taken: Taken, heard: &Heard, site: usize, around: &Around<'_>) -> Result<(), Violation> {
        let seen = match taken {
            Taken::Restored(snapshot) => {
                ensure(self.is_watch && self.is_accepted, "Proved", || "shown before a watch was accepted".into())?;
                self.restored(&snapshot, site, around);
                return Ok(());
            }
            Taken::State { version, objects } => Observation::State { version, objects },
            Taken::Bookmark { version } => Observation::Bookmark { version },
            Taken::Object => match heard {
                Heard::Fact(Fact::Item(object)) => {
                    Observation::Change(Change { kind: Kind::Added, object: object.clone() })
                }
                Heard::Fact(Fact::Event(change)) => Observation::Change(change.clone()),
                Heard::Start | Heard::Granted | Heard::TimedOut | Heard::Fact(_) => {
                    return ensure(false, "Alive", || "an order about an object without one".into());
                }
            },
        };
        self.saw(around, site, seen);
        Ok(())
    }

    fn act(&mut self, now: Time, action: SessionAction, around: &Around<'_>, rng: &mut Rng) -> Result<(), Violation> {
        match action {
            SessionAction::Queue { .. } => {
                self.close();
                self.permit = Permit::Wanted;
            }
            SessionAction::Send { endpoint, read } => self.send(now, endpoint, &read, around, rng)?,
            SessionAction::Prove { endpoint, witness, at, by } => {
                let version = at.as_u64().unwrap_or(0);
                let api = &around.sites[endpoint].api;
                self.close();
                self.answer = Some(api.ask_object(now, witness.key(), version, by, rng));
                self.witness = Some((witness, at));
                (self.is_watch, self.is_accepted) = (false, false);
                self.proofs.push(now);
            }
            SessionAction::Close => self.close(),
            SessionAction::Release => {
                let is_held = matches!(self.permit, Permit::Held { .. });
                ensure(is_held, "Fair", || "a permit was released that was not held".into())?;
                self.release(around);
            }
            SessionAction::Report(SessionReport::Moved { to, .. } | SessionReport::Reverted { to, .. }) => {
                self.known[to].pages_any_state = false;
            }
            SessionAction::Report(SessionReport::Unreadable { key, cause }) => {
                return ensure(false, "Kept", || format!("{key}: {cause:?}"));
            }
            SessionAction::Report(SessionReport::Reflector(Report::Healthy)) => self.healthy.push(now),
            SessionAction::Report(
                SessionReport::Reflector(_)
                | SessionReport::Restored
                | SessionReport::Synced(_)
                | SessionReport::FirstObject,
            ) => {}
        }
        Ok(())
    }

    /// Drops the open response, or leaves the queue of the relist budget.
    fn close(&mut self) {
        (self.answer, self.asked, self.witness) = (None, None, None);
        if self.permit == Permit::Wanted {
            self.permit = Permit::None;
        }
    }

    /// Gives its permit of the relist budget back, if it has one.
    fn release(&mut self, around: &Around<'_>) {
        if matches!(mem::replace(&mut self.permit, Permit::None), Permit::Held { .. }) {
            around.permits.set(around.permits.get() + 1);
        }
    }

    /// Every request must be as cheap as possible: only outcomes that concern streaming justify a list, and states in a
    /// server's cache are not requested by pages.
    fn is_cheap(&self, endpoint: usize, read: &Read) -> Result<(), Violation> {
        let Read::List { semantic, limit } = read else { return Ok(()) };
        let known = self.known[endpoint];
        let may_list = self.config.initial != InitialList::Auto || known.has_streamed;
        ensure(may_list, "Cheap", || format!("{read:?}, and no stream was ever answered"))?;
        let is_cached = matches!(semantic, ListSemantic::NotOlderThan(_)) && !known.pages_any_state;
        ensure(!is_cached || limit.is_none(), "Cheap", || format!("{read:?} is read from etcd"))
    }

    fn send(
        &mut self,
        now: Time,
        endpoint: usize,
        read: &Read,
        around: &Around<'_>,
        rng: &mut Rng,
    ) -> Result<(), Violation> {
        self.is_cheap(endpoint, read)?;
        let is_queued = read.is_initial() && !matches!(read, Read::Page { .. });
        let has_permit = matches!(self.permit, Permit::Held { .. });
        ensure(!is_queued || has_permit, "Fair", || format!("{read:?} without a permit of the relist budget"))?;
        self.asked = Some(read.clone());
        self.answer = Some(around.sites[endpoint].api.ask(now, read, rng));
        (self.is_watch, self.is_accepted) = (matches!(read, Read::Watch { .. }), false);
        match read {
            Read::Page { .. } => return Ok(()),
            Read::Watch { after, .. } => {
                self.saw(around, endpoint, Observation::Resumed { after: after.as_u64().unwrap_or(0) });
            }
            Read::Stream { .. } | Read::List { .. } => {}
        }
        self.requests.push(now);
        Ok(())
    }

    /// Records a restored state as the server's at its position, unless the server has not reached the position yet or
    /// owes deletions: then its history may turn out to be another.
    fn restored(&mut self, snapshot: &Snapshot, site: usize, around: &Around<'_>) {
        if self.owes_deletions() {
            return;
        }
        let version = position_of(snapshot);
        if around.histories.model(around.sites[site].history).version() >= version {
            self.saw(around, site, Observation::State { version, objects: state_of(snapshot) });
        }
    }

    fn saw(&mut self, around: &Around<'_>, site: usize, seen: Observation) {
        let history = around.sites[site].history;
        let is_change = matches!(seen, Observation::Change(_));
        let is_tolerated = is_change && self.owes_deletions() && !self.notes.is_of(history, around.histories);
        self.notes.saw(history, seen, is_tolerated);
    }

    fn note(&mut self, now: Time, line: impl FnOnce() -> String) {
        let Some(trace) = &mut self.trace else { return };
        if trace.len() == TRACE_LINES {
            trace.pop_front();
        }
        trace.push_back(format!("{now} {}", line()));
    }

    pub(super) fn check(&self, histories: &Histories) -> Result<(), Violation> {
        self.notes.check(histories)?;
        self.bounded()
    }

    fn bounded(&self) -> Result<(), Violation> {
        checkers::bounded(&self.requests, &self.healthy)?;
        checkers::bounded(&self.proofs, &self.healthy)
    }

    /// The copy equals one server's state and contains nothing of another. The client may be moving to the other
    /// endpoint.
    pub(super) fn converged(&self, around: &Around<'_>) -> Result<(), Violation> {
        let snapshot = self.snapshot();
        let mut subscriber = self.subscriber.clone();
        subscriber.catch_up(&snapshot)?;
        let copy = state_of(&snapshot);
        let other = around.sites.iter().map(|site| around.histories.model(site.history));
        let of = other.into_iter().find(|model| *model.state() == copy);
        let model = of.unwrap_or_else(|| around.histories.model(around.sites[self.site()].history));
        checkers::converges(&copy, model)?;
        checkers::converges(&subscriber.view, model)
    }
}

/// Folds state differences into its own view, as applications do.
#[derive(Clone, Default)]
struct Subscriber {
    held: Snapshot,
    view: State,
}

impl Subscriber {
    fn catch_up(&mut self, now: &Snapshot) -> Result<(), Violation> {
        for change in store::diff(&self.held, now) {
            match change {
                store::StoreChange::Added(new) => {
                    let known = self.view.insert(new.key().to_owned(), object_of(&new));
                    ensure(known.is_none(), "Subscribed", || format!("{new:?} added over {known:?}"))?;
                }
                store::StoreChange::Updated { old, new } => {
                    let known = self.view.insert(new.key().to_owned(), object_of(&new));
                    ensure(known == Some(object_of(&old)), "Subscribed", || format!("{new:?} over {known:?}"))?;
                    ensure(old.uid() == new.uid(), "Subscribed", || format!("{old:?} became {new:?} across uids"))?;
                }
                store::StoreChange::Deleted { last_known, missed } => {
                    let known = self.view.remove(last_known.key());
                    ensure(known == Some(object_of(&last_known)), "Subscribed", || format!("not {known:?}"))?;
                    let relisted = self.held.relists != now.relists;
                    ensure(missed == relisted, "Subscribed", || format!("{last_known:?} missed: {missed}"))?;
                }
            }
        }
        self.held = now.clone();
        Ok(())
    }
}

fn position_of(snapshot: &Snapshot) -> u64 {
    snapshot.resource_version.as_ref().and_then(ResourceVersion::as_u64).unwrap_or(0)
}

fn broken(error: &dyn std::fmt::Debug) -> Violation {
    Violation { guarantee: "Kept", seen: format!("{error:?}") }
}
