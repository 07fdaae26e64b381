//! One client of a world: reflector, store, level-triggered subscriber, endpoints and checkpoint, with notes of what it
//! saw.

use std::{collections::VecDeque, sync::Arc};

use fastrand::Rng;
use informer_core::{
    InitialList, ListSemantic, Read, Time,
    endpoints::Endpoints,
    object::Meta,
    proof,
    reflector::{self, Action, Ending, Input, Observed, Proof, ProofBy, Reflector, Report, Testimony, Verdict},
    resource_version::ResourceVersion,
    stats::Stats,
    store::{self, Event, Snapshot, Store},
};

use super::{
    Site,
    evidence::HeldCopy,
    histories::Histories,
    notes::Notes,
    wire::{json, object_of, state_of, tell_fact},
};
use crate::{
    api::{Answer, Fact},
    checkers::{self, Seen, Violation, ensure},
    model::{Change, Kind, Object, State},
};

/// Maximum lines of a node's trace for the report of a failure.
const TRACE_LINES: usize = 60;

/// The servers and histories around a node.
pub(super) struct Around<'a> {
    pub(super) sites: &'a [Site],
    pub(super) histories: &'a Histories,
}

/// An input of a node.
pub(super) enum Heard {
    Start,
    Fact(Fact),
    Moved,
    TimedOut,
}

pub(super) struct Node {
    config: reflector::Config,
    reflector: Reflector,
    store: Store,
    endpoints: Endpoints,
    /// Knowledge about each endpoint.
    known: Vec<Known>,
    answer: Option<Answer>,
    /// The request of the open response.
    asked: Option<Read>,
    /// The object and position of the open proof.
    witness: Option<(Arc<store::Entry>, ResourceVersion)>,
    /// The result of a proof that needs no request.
    unasked: Option<Proof>,
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
    earlier: Stats,
    /// The last actions and inputs, if tracing is on.
    trace: Option<VecDeque<String>>,
}

/// A client's knowledge about one endpoint.
#[derive(Clone, Copy, Default)]
struct Known {
    verdict: Verdict,
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
        Self {
            reflector: Reflector::new(config.clone()),
            store: Store::default(),
            endpoints: Endpoints::new(sites, informer_core::endpoints::Config::default(), config.seed),
            known: vec![Known::default(); sites],
            answer: None,
            asked: None,
            witness: None,
            unasked: None,
            is_watch: false,
            is_accepted: false,
            subscriber: Subscriber::default(),
            checkpoint: None,
            notes: Notes::default(),
            requests: Vec::new(),
            proofs: Vec::new(),
            healthy: Vec::new(),
            earlier: Stats::default(),
            trace: traced.then(VecDeque::new),
            config,
        }
    }

    /// Counters of all its processes.
    pub(super) fn stats(&self) -> Stats {
        let mut stats = self.earlier.clone();
        stats += self.reflector.stats();
        stats
    }

    pub(super) fn trace(&self) -> Vec<String> {
        self.trace.iter().flatten().cloned().collect()
    }

    /// The endpoint in use.
    pub(super) const fn site(&self) -> usize {
        self.endpoints.current()
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        [self.reflector.poll_timeout(), self.endpoints.poll_timeout()].into_iter().flatten().min()
    }

    /// The copies from whose positions it may still resume, its own and its checkpoint's, for which `concerns` holds
    /// with their history and position.
    pub(super) fn copies(&self, concerns: impl Fn(usize, u64) -> bool) -> Vec<HeldCopy> {
        let now = self.notes.holds().map(|(of, at)| (of, at, None));
        let saved = self.checkpoint.as_ref().map(|it| (it.history, position_of(&it.saved), Some(&it.saved)));
        let concerned = now.into_iter().chain(saved).filter(|(of, at, _)| concerns(*of, *at));
        let copy = |(_, at, saved): (usize, u64, Option<&Snapshot>)| {
            let objects = saved.map_or_else(|| state_of(&self.store.snapshot()), state_of);
            HeldCopy { at, objects, is_suspect: saved.is_none() && self.owes_deletions() }
        };
        concerned.map(copy).collect()
    }

    /// Returns true while deletions are due that would confirm the server's history; without them it is another
    /// history.
    fn owes_deletions(&self) -> bool {
        self.reflector.is_settled() && !self.reflector.is_sound()
    }

    pub(super) fn is_connected(&self) -> bool {
        self.answer.is_some()
    }

    /// Fires timers that are due, and takes up to 11 facts of the open response.
    pub(super) fn tick(&mut self, now: Time, around: &Around<'_>, rng: &mut Rng) -> Result<(), Violation> {
        for _ in 0..rng.u32(1..12) {
            let site = &around.sites[self.site()];
            let model = around.histories.model(site.history);
            let Some(fact) = self.answer.as_mut().and_then(|answer| answer.next(now, &site.api, model, rng)) else {
                break;
            };
            self.tell(now, &Heard::Fact(fact), around, rng)?;
        }
        if self.reflector.poll_timeout().is_some_and(|due| due <= now) {
            self.tell(now, &Heard::TimedOut, around, rng)?;
        }
        if self.endpoints.poll_timeout().is_some_and(|due| due <= now) && self.endpoints.handle_timeout(now).is_some() {
            self.tell(now, &Heard::Moved, around, rng)?;
        }
        if rng.u8(..8) == 0 {
            self.subscriber.catch_up(&self.store.snapshot())?;
        }
        if rng.u8(..16) == 0 && self.reflector.is_synced() && self.reflector.is_sound() {
            self.checkpoint =
                self.notes.holds().map(|(history, _)| Checkpoint { saved: self.store.snapshot(), history });
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
        self.earlier += self.reflector.stats();
        let saved = self.checkpoint.take().filter(|_| !forgets);
        let position = saved.as_ref().and_then(|saved| saved.saved.resource_version.clone());
        let config = reflector::Config { resume: position.clone(), seed: rng.u64(..), ..self.config.clone() };
        let old = std::mem::replace(self, Self::new(config, around.sites.len(), false));
        self.notes = old.notes;
        (self.earlier, self.trace, self.config) = (old.earlier, old.trace, old.config);
        self.note(now, || format!("RESTART from {position:?}"));
        self.notes.begin(saved.as_ref().map(|saved| (saved.history, position_of(&saved.saved))));
        if let Some(Checkpoint { saved, .. }) = &saved {
            let bodies: Vec<Vec<u8>> = saved.objects.iter().map(|entry| entry.json().into_owned()).collect();
            self.store.restore(bodies.iter().map(|json| (Meta::read(json).unwrap(), json.as_slice())), position);
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
        // Handling the input may send the next request, which overwrites `is_watch`.
        let was_watch = self.is_watch;
        match heard {
            Heard::Start => self.reflector.handle(now, Input::Start),
            Heard::TimedOut => self.reflector.handle(now, Input::TimedOut),
            Heard::Moved => {
                self.note(now, || "  Moved".to_owned());
                self.answer = None;
                let home = self.endpoints.is_home();
                self.know_the_endpoint();
                self.reflector.handle(now, Input::Moved { home });
            }
            Heard::Fact(fact) => self.hear(now, fact),
        }
        let object = match heard {
            Heard::Fact(Fact::Item(object)) => Some((object, Kind::Added)),
            Heard::Fact(Fact::Event(change)) => Some((&change.object, change.kind)),
            Heard::Start | Heard::TimedOut | Heard::Moved | Heard::Fact(_) => None,
        };
        loop {
            self.known[self.endpoints.current()].verdict = self.reflector.verdict();
            while let Some(action) = self.reflector.poll_action() {
                self.note(now, || format!("    {action:?}"));
                self.act(now, action, object, around, rng)?;
            }
            if self.reflector.is_settled() {
                self.endpoints.settle();
            }
            // `prove` runs while actions are polled, so its immediate result is fed back only now.
            let Some(proof) = self.unasked.take() else { break };
            self.reflector.handle(now, Input::Proof(Testimony::without_object(proof)));
        }
        ensure(self.reflector.poll_timeout().is_some(), "Alive", || "no timer is armed".into())?;
        let expired = reflector::End::Failed(reflector::Failure::new(reflector::Class::Expired));
        let is_too_old = was_watch && matches!(heard, Heard::Fact(Fact::Ended(end)) if *end == expired);
        if is_too_old && self.endpoints.expired(now).is_some() {
            return self.tell(now, &Heard::Moved, around, rng);
        }
        Ok(())
    }

    fn learn(&mut self, fact: &Fact) {
        let known = &mut self.known[self.endpoints.current()];
        match (&self.asked, fact) {
            (Some(Read::Stream { .. }), Fact::Accepted | Fact::AcceptedWithMarks | Fact::Resumed) => {
                known.has_streamed = true;
            }
            (_, Fact::Ended(reflector::End::Failed(failure))) => {
                use reflector::Class::{Forbidden, Malformed, Refused};
                known.has_streamed |= matches!(failure.class, Forbidden | Malformed | Refused);
            }
            (Some(Read::List { semantic: ListSemantic::Any, .. }), Fact::PageEnd { token: Some(_), .. }) => {
                known.pages_any_state = true;
            }
            _ => {}
        }
    }

    fn hear(&mut self, now: Time, fact: &Fact) {
        self.note(now, || format!("  {fact:?}"));
        self.learn(fact);
        match fact {
            Fact::Ended(reflector::End::Failed(failure)) => self.endpoints.failed(now, failure.class),
            Fact::Accepted | Fact::AcceptedWithMarks | Fact::Resumed => {
                self.is_accepted = true;
                self.endpoints.worked(now);
            }
            Fact::Found(_)
            | Fact::Ended(reflector::End::Closed)
            | Fact::PageEnd { .. }
            | Fact::Item(_)
            | Fact::Event(_)
            | Fact::Bookmark { .. }
            | Fact::Mark { .. }
            | Fact::Noise => {}
        }
        if matches!(fact, Fact::Ended(_) | Fact::PageEnd { .. } | Fact::Found(_)) {
            self.answer = None;
        }
        let Fact::Found(found) = fact else {
            let is_news = self.is_news(fact);
            return tell_fact(&mut self.reflector, now, fact, is_news);
        };
        let (stored, at) = self.witness.take().expect("only what was asked for is found");
        let json = found.as_ref().map(json);
        let meta = json.as_deref().map(|json| Meta::read(json).unwrap());
        let judged = proof::judge(&stored, &at, meta.as_ref());
        self.note(now, || format!("  {judged:?} by {stored:?}"));
        self.reflector.handle(now, Input::Proof(Testimony { proof: judged, key: stored.key(), uid: stored.uid() }));
    }

    /// Returns true if the copy lacks the content of an event.
    fn is_news(&self, fact: &Fact) -> bool {
        let Fact::Event(Change { kind, object }) = fact else { return true };
        let change = match kind {
            Kind::Added => reflector::Change::Added,
            Kind::Modified => reflector::Change::Modified,
            Kind::Deleted => reflector::Change::Deleted,
        };
        let resource_version = &*object.version.to_string();
        if !self.reflector.is_behind(resource_version) {
            return true;
        }
        let observed = Observed { change, key: &object.key, uid: &object.uid, resource_version, is_news: true };
        proof::is_news(&self.store.snapshot(), &observed)
    }

    fn act(
        &mut self,
        now: Time,
        action: Action,
        object: Option<(&Object, Kind)>,
        around: &Around<'_>,
        rng: &mut Rng,
    ) -> Result<(), Violation> {
        match action {
            Action::Send(read) => self.send(now, &read, around, rng)?,
            Action::Prove { at, by, skip } => self.prove(now, at, by, skip, around, rng),
            Action::Refuse => {
                self.endpoints.refuse(now);
                self.know_the_endpoint();
            }
            Action::Close => self.answer = None,
            Action::Restored => {
                ensure(self.is_watch && self.is_accepted, "Proved", || "shown before a watch was accepted".into())?;
                self.keep(now, Event::Restored)?;
                self.restored(around);
            }
            Action::Init { trusts_versions } => self.keep(now, Event::Init { trusts_versions })?,
            Action::Abandon => self.keep(now, Event::Abandon)?,
            Action::InitDone(position) => {
                let version = position.as_u64().unwrap_or(0);
                self.keep(now, Event::InitDone(position))?;
                let objects = state_of(&self.store.snapshot());
                self.saw(around, Seen::State { version, objects });
            }
            Action::Bookmark(position) => {
                self.saw(around, Seen::Bookmark { version: position.as_u64().unwrap_or(0) });
                self.keep(now, Event::Bookmark(position))?;
            }
            Action::InitApply => self.store_object(now, object, around, |json, meta| Event::InitApply(json, meta))?,
            Action::Apply => self.store_object(now, object, around, |json, meta| Event::Apply(json, meta))?,
            Action::Delete => self.store_object(now, object, around, |_, meta| Event::Delete(meta))?,
            Action::Report(Report::Healthy) => self.healthy.push(now),
            Action::Report(Report::Waiting { cause: Ending::Unanswered, .. }) => {
                self.endpoints.failed(now, reflector::Class::Connection);
            }
            Action::Report(
                Report::Relist { .. }
                | Report::FellBack { .. }
                | Report::Waiting { .. }
                | Report::Spread { .. }
                | Report::Proved
                | Report::Foreign
                | Report::HistoryReset
                | Report::Unordered
                | Report::Expired,
            ) => {}
        }
        Ok(())
    }

    /// Applies the knowledge about the endpoint that requests now go to.
    fn know_the_endpoint(&mut self) {
        let known = &mut self.known[self.endpoints.current()];
        known.pages_any_state = false;
        self.reflector.set_verdict(known.verdict);
    }

    /// Every request must be as cheap as possible: only outcomes that concern streaming justify a list, and states in a
    /// server's cache are not requested by pages.
    fn is_cheap(&self, read: &Read) -> Result<(), Violation> {
        let Read::List { semantic, limit } = read else { return Ok(()) };
        let known = self.known[self.endpoints.current()];
        let may_list = self.config.initial != InitialList::Auto || known.has_streamed;
        ensure(may_list, "Cheap", || format!("{read:?}, and no stream was ever answered"))?;
        let is_cached = matches!(semantic, ListSemantic::NotOlderThan(_)) && !known.pages_any_state;
        ensure(!is_cached || limit.is_none(), "Cheap", || format!("{read:?} is read from etcd"))
    }

    fn send(&mut self, now: Time, read: &Read, around: &Around<'_>, rng: &mut Rng) -> Result<(), Violation> {
        self.is_cheap(read)?;
        self.asked = Some(read.clone());
        self.answer = Some(around.sites[self.site()].api.ask(now, read, rng));
        (self.is_watch, self.is_accepted) = (matches!(read, Read::Watch { .. }), false);
        match read {
            Read::Page { .. } => return Ok(()),
            Read::Watch { after, .. } => self.saw(around, Seen::Resumed { after: after.as_u64().unwrap_or(0) }),
            Read::Stream { .. } | Read::List { .. } => {}
        }
        self.requests.push(now);
        Ok(())
    }

    fn prove(&mut self, now: Time, at: ResourceVersion, by: ProofBy, skip: usize, around: &Around<'_>, rng: &mut Rng) {
        (self.answer, self.asked) = (None, None);
        let Some(stored) = proof::witness(&self.store.snapshot(), skip) else {
            self.unasked = Some(Proof::Nothing);
            return;
        };
        let version = at.as_u64().unwrap_or(0);
        self.answer = Some(around.sites[self.site()].api.ask_object(now, stored.key(), version, by, rng));
        self.witness = Some((stored, at));
        (self.is_watch, self.is_accepted) = (false, false);
        self.proofs.push(now);
    }

    /// Records a restored state as the server's at its position, unless the server has not reached the position yet or
    /// owes deletions: then its history may turn out to be another.
    fn restored(&mut self, around: &Around<'_>) {
        if self.owes_deletions() {
            return;
        }
        let snapshot = self.store.snapshot();
        let version = position_of(&snapshot);
        if around.histories.model(around.sites[self.site()].history).version() >= version {
            self.saw(around, Seen::State { version, objects: state_of(&snapshot) });
        }
    }

    /// Gives the object of the current fact to the store.
    fn store_object(
        &mut self,
        now: Time,
        heard: Option<(&Object, Kind)>,
        around: &Around<'_>,
        event: for<'a> fn(&'a [u8], &'a Meta<'a>) -> Event<'a>,
    ) -> Result<(), Violation> {
        let Some((object, kind)) = heard else {
            return ensure(false, "Alive", || "an order about an object without one".into());
        };
        let json = json(object);
        let meta = Meta::read(&json).map_err(|error| broken(&error))?;
        let before = self.store.snapshot();
        self.keep(now, event(&json, &meta))?;
        // Record only events that changed the store, because only those reach its readers.
        if store::diff(&before, &self.store.snapshot()).next().is_some() {
            self.saw(around, Seen::Change(Change { kind, object: object.clone() }));
        }
        Ok(())
    }

    fn keep(&mut self, now: Time, event: Event<'_>) -> Result<(), Violation> {
        self.store.handle(now, event).map_err(|error| broken(&error))
    }

    fn saw(&mut self, around: &Around<'_>, seen: Seen) {
        let history = around.sites[self.site()].history;
        let is_change = matches!(seen, Seen::Change(_));
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
        let snapshot = self.store.snapshot();
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
                store::Change::Added(new) => {
                    let known = self.view.insert(new.key().to_owned(), object_of(&new));
                    ensure(known.is_none(), "Subscribed", || format!("{new:?} added over {known:?}"))?;
                }
                store::Change::Updated { old, new } => {
                    let known = self.view.insert(new.key().to_owned(), object_of(&new));
                    ensure(known == Some(object_of(&old)), "Subscribed", || format!("{new:?} over {known:?}"))?;
                    ensure(old.uid() == new.uid(), "Subscribed", || format!("{old:?} became {new:?} across uids"))?;
                }
                store::Change::Deleted { last_known, missed } => {
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

fn broken(error: &dyn std::fmt::Display) -> Violation {
    Violation { guarantee: "Kept", seen: error.to_string() }
}
