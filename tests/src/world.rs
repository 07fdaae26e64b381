//! A world in one thread: the model's history is the truth, everything else must agree with it.
//!
//! INVARIANT: one seed decides everything; time is virtual; nothing here sleeps, and nothing depends on an address.

use std::{collections::VecDeque, time::Duration};

use fastrand::Rng;
use informer_core::{
    InitialList, ListSemantic, Read, Time,
    object::Meta,
    reflector::{self, Action, Input, Observed, Reflector, Report},
    stats::Stats,
    store::{self, Event, Snapshot, Store},
};

use crate::{
    api::{Answer, Api, Fact},
    checkers::{self, Seen, Violation, ensure},
    model::{Change, Kind, Model, Object, State},
};

/// Steps of a world with faults, and of one without.
const STORM_STEPS: u32 = 400;
const CALM_STEP: Duration = Duration::from_secs(5);

/// Timers that may fire in one step of the world, all clients together.
const TIMERS_MAX: u32 = 10_000;

/// Requests at which counting ends.
const REQUESTS_MAX: usize = 1_000;

/// How many of a node's last lines are kept for the report of a failure.
const TRACE_LINES: usize = 60;

/// A model, a server, and clients.
struct World {
    rng: Rng,
    now: Time,
    model: Model,
    api: Api,
    nodes: Vec<Node>,
    /// The client looked at last: the one to blame when something breaks.
    suspect: usize,
}

/// A failed world: what broke, and what the client did last.
#[derive(Debug)]
pub struct Failed {
    /// The seed that shows it again.
    pub seed: u64,
    /// What broke.
    pub violation: Violation,
    /// The last things that happened at the client that saw it.
    pub trace: Vec<String>,
}

/// Runs the world of `seed`: a storm of faults, then calm, then every guarantee. Returns what each client counted.
///
/// # Errors
/// The guarantee that did not hold.
pub fn run(seed: u64) -> Result<Vec<Stats>, Failed> {
    let mut world = World::new(seed, false);
    if world.live().is_ok() {
        return Ok(world.nodes.iter().map(|node| node.reflector.stats().clone()).collect());
    }
    // Again, with notes: taking them costs more than the world.
    let mut world = World::new(seed, true);
    let violation = world.live().expect_err("a seed decides everything");
    Err(Failed { seed, violation, trace: world.nodes[world.suspect].trace.iter().flatten().cloned().collect() })
}

impl World {
    fn new(seed: u64, traced: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut model = Model::new(rng.u64(1..200));
        for key in 0..rng.u32(..30) {
            model.put(&key_name(key));
        }
        let api = Api::draw(&mut rng);
        let nodes = (0..rng.u32(1..4)).map(|_| Node::new(draw_config(&mut rng, model.version()), traced)).collect();
        Self { rng, now: Time::ZERO, model, api, nodes, suspect: 0 }
    }

    fn live(&mut self) -> Result<(), Violation> {
        self.storm()?;
        self.calm()?;
        for (at, node) in self.nodes.iter().enumerate() {
            self.suspect = at;
            node.check(&self.model)?;
        }
        Ok(())
    }

    /// Writes and faults.
    fn storm(&mut self) -> Result<(), Violation> {
        for (at, node) in self.nodes.iter_mut().enumerate() {
            self.suspect = at;
            node.tell(self.now, &Heard::Start, &self.api, &mut self.rng)?;
        }
        for _ in 0..STORM_STEPS {
            match self.rng.u8(..20) {
                0..8 => self.write(),
                8 => self.model.pass(self.rng.u64(1..30)),
                9 => self.forget(),
                10 if self.rng.u8(..4) == 0 => self.restart()?,
                11 if self.rng.u8(..4) == 0 => self.api.down = !self.api.down,
                _ => {}
            }
            let pause = [0, 5, 200, 2_000, 20_000, 200_000][self.rng.usize(..6)];
            let pause = Duration::from_millis(self.rng.u64(..=pause));
            self.advance(pause)?;
        }
        Ok(())
    }

    /// No more faults; writes for a moment, then time for everybody to notice.
    fn calm(&mut self) -> Result<(), Violation> {
        self.api = self.api.without_faults();
        for _ in 0..20 {
            self.write();
            self.advance(CALM_STEP)?;
        }
        let end = self.now + checkers::CONVERGES_WITHIN;
        while self.now < end {
            self.advance(CALM_STEP)?;
        }
        for (at, node) in self.nodes.iter().enumerate() {
            self.suspect = at;
            node.converged(&self.model)?;
        }
        Ok(())
    }

    fn write(&mut self) {
        for _ in 0..self.rng.u32(1..4) {
            let key = key_name(self.rng.u32(..30));
            if self.rng.u8(..3) == 0 { self.model.delete(&key) } else { self.model.put(&key) }
        }
    }

    /// Servers forget: some of their history, or all of it.
    fn forget(&mut self) {
        let kept = self.rng.u64(..40);
        self.model.compact(self.model.version().saturating_sub(kept));
    }

    /// Every connection breaks and the new server knows no history.
    fn restart(&mut self) -> Result<(), Violation> {
        self.model.compact(self.model.version());
        for (at, node) in self.nodes.iter_mut().enumerate() {
            self.suspect = at;
            if node.answer.is_some() {
                let broken = reflector::Failure::new(reflector::Class::Connection);
                let fact = Fact::Ended(reflector::End::Failed(broken));
                node.tell(self.now, &Heard::Fact(fact), &self.api, &mut self.rng)?;
            }
        }
        Ok(())
    }

    /// Lets `span` pass: timers fire when they are due, answers arrive meanwhile.
    fn advance(&mut self, span: Duration) -> Result<(), Violation> {
        let end = self.now + span;
        for _ in 0..TIMERS_MAX {
            let due = self.nodes.iter().filter_map(|node| node.reflector.poll_timeout()).min();
            let next = due.map_or(end, |due| due.max(self.now).min(end));
            self.now = next;
            for (at, node) in self.nodes.iter_mut().enumerate() {
                self.suspect = at;
                node.tick(self.now, &self.model, &self.api, &mut self.rng)?;
            }
            if self.now >= end {
                return Ok(());
            }
        }
        ensure(false, "Bounded", || format!("{TIMERS_MAX} timers in {span:?}"))
    }
}

fn key_name(number: u32) -> String {
    // Names around the characters that sort before a slash.
    format!("{}/pod-{number}", ["prod", "prod-a", "prod.b"][number as usize % 3])
}

fn draw_config(rng: &mut Rng, version: u64) -> reflector::Config {
    let semantic = match rng.u8(..4) {
        0 => ListSemantic::MostRecent,
        1 => ListSemantic::NotOlderThan(version.into()),
        _ => ListSemantic::Any,
    };
    let initial = match rng.u8(..6) {
        0 => InitialList::Paged,
        1 => InitialList::Unpaged,
        _ => InitialList::Auto,
    };
    let default =
        reflector::Config { semantic, initial, page_size: rng.u32(1..20), seed: rng.u64(..), ..Default::default() };
    if rng.u8(..4) == 0 { reflector::Config { watch_timeout_seconds: 5..=30, ..default } } else { default }
}

/// What a node hears.
enum Heard {
    Start,
    Fact(Fact),
    TimedOut,
}

/// One client: reflector, store, a level-triggered subscriber, and what they saw.
struct Node {
    reflector: Reflector,
    store: Store,
    answer: Option<Answer>,
    subscriber: Subscriber,
    seen: Vec<Seen>,
    requests: Vec<Time>,
    healthy: Vec<Time>,
    /// The last things that happened, if they are noted at all.
    trace: Option<VecDeque<String>>,
}

impl Node {
    fn new(config: reflector::Config, traced: bool) -> Self {
        Self {
            reflector: Reflector::new(config),
            store: Store::default(),
            answer: None,
            subscriber: Subscriber::default(),
            seen: Vec::new(),
            requests: Vec::new(),
            healthy: Vec::new(),
            trace: traced.then(VecDeque::new),
        }
    }

    /// Fires the timer when it is due, and takes a few facts of the open answer.
    fn tick(&mut self, now: Time, model: &Model, api: &Api, rng: &mut Rng) -> Result<(), Violation> {
        for _ in 0..rng.u32(1..12) {
            let Some(fact) = self.answer.as_mut().and_then(|answer| answer.next(now, api, model, rng)) else { break };
            self.tell(now, &Heard::Fact(fact), api, rng)?;
        }
        if self.reflector.poll_timeout().is_some_and(|due| due <= now) {
            self.tell(now, &Heard::TimedOut, api, rng)?;
        }
        if rng.u8(..8) == 0 {
            self.subscriber.catch_up(&self.store.snapshot())?;
        }
        Ok(())
    }

    fn tell(&mut self, now: Time, heard: &Heard, api: &Api, rng: &mut Rng) -> Result<(), Violation> {
        match heard {
            Heard::Start => self.reflector.handle(now, Input::Start),
            Heard::TimedOut => self.reflector.handle(now, Input::TimedOut),
            Heard::Fact(fact) => {
                self.note(now, || format!("  {fact:?}"));
                if matches!(fact, Fact::Ended(_) | Fact::PageEnd { .. }) {
                    self.answer = None;
                }
                tell_fact(&mut self.reflector, now, fact);
            }
        }
        let object = match heard {
            Heard::Fact(Fact::Item(object)) => Some((object, Kind::Added)),
            Heard::Fact(Fact::Event(change)) => Some((&change.object, change.kind)),
            Heard::Start | Heard::TimedOut | Heard::Fact(_) => None,
        };
        while let Some(action) = self.reflector.poll_action() {
            self.note(now, || format!("    {action:?}"));
            self.act(now, action, object, api, rng)?;
        }
        ensure(self.reflector.poll_timeout().is_some(), "Alive", || "no timer is armed".into())
    }

    fn act(
        &mut self,
        now: Time,
        action: Action,
        object: Option<(&Object, Kind)>,
        api: &Api,
        rng: &mut Rng,
    ) -> Result<(), Violation> {
        match action {
            Action::Send(read) => self.send(now, &read, api, rng),
            Action::Close => self.answer = None,
            Action::Prove { .. } | Action::Refuse | Action::Restored => {}
            Action::Init { trusts_versions } => self.keep(now, Event::Init { trusts_versions })?,
            Action::Abandon => self.keep(now, Event::Abandon)?,
            Action::InitDone(position) => {
                let version = position.as_u64().unwrap_or(0);
                self.keep(now, Event::InitDone(position))?;
                self.seen.push(Seen::State { version, objects: state_of(&self.store.snapshot()) });
            }
            Action::Bookmark(position) => {
                self.seen.push(Seen::Bookmark { version: position.as_u64().unwrap_or(0) });
                self.keep(now, Event::Bookmark(position))?;
            }
            Action::InitApply => self.store_object(now, object, |json, meta| Event::InitApply(json, meta))?,
            Action::Apply => self.store_object(now, object, |json, meta| Event::Apply(json, meta))?,
            Action::Delete => self.store_object(now, object, |_, meta| Event::Delete(meta))?,
            Action::Report(Report::Healthy) => self.healthy.push(now),
            Action::Report(
                Report::Relist { .. }
                | Report::FellBack { .. }
                | Report::Waiting { .. }
                | Report::Spread { .. }
                | Report::Proved
                | Report::Foreign
                | Report::HistoryReset
                | Report::Expired,
            ) => {}
        }
        Ok(())
    }

    fn send(&mut self, now: Time, read: &Read, api: &Api, rng: &mut Rng) {
        self.answer = Some(api.ask(now, read, rng));
        match read {
            Read::Page { .. } => return,
            Read::Watch { after, .. } => self.seen.push(Seen::Resumed { after: after.as_u64().unwrap_or(0) }),
            Read::Stream { .. } | Read::List { .. } => {}
        }
        self.requests.push(now);
    }

    /// Hands the object just heard of to the store.
    fn store_object(
        &mut self,
        now: Time,
        heard: Option<(&Object, Kind)>,
        event: for<'a> fn(&'a [u8], &'a Meta<'a>) -> Event<'a>,
    ) -> Result<(), Violation> {
        let Some((object, kind)) = heard else {
            return ensure(false, "Alive", || "an order about an object without one".into());
        };
        let json = json(object);
        let meta = Meta::read(&json).map_err(|error| broken(&error))?;
        let before = self.store.snapshot();
        self.keep(now, event(&json, &meta))?;
        // What the store took for a change is what its readers see.
        if store::diff(&before, &self.store.snapshot()).next().is_some() {
            self.seen.push(Seen::Change(Change { kind, object: object.clone() }));
        }
        Ok(())
    }

    fn keep(&mut self, now: Time, event: Event<'_>) -> Result<(), Violation> {
        self.store.handle(now, event).map_err(|error| broken(&error))
    }

    fn note(&mut self, now: Time, line: impl FnOnce() -> String) {
        let Some(trace) = &mut self.trace else { return };
        if trace.len() == TRACE_LINES {
            trace.pop_front();
        }
        trace.push_back(format!("{now} {}", line()));
    }

    fn check(&self, model: &Model) -> Result<(), Violation> {
        checkers::check(&self.seen, model)?;
        checkers::bounded(&self.requests, &self.healthy)
    }

    fn converged(&self, model: &Model) -> Result<(), Violation> {
        let snapshot = self.store.snapshot();
        checkers::converges(&state_of(&snapshot), model)?;
        let mut subscriber = self.subscriber.clone();
        subscriber.catch_up(&snapshot)?;
        checkers::converges(&subscriber.view, model)
    }
}

/// Folds differences between states into a view of its own, as applications do.
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

fn broken(error: &dyn std::fmt::Display) -> Violation {
    Violation { guarantee: "Kept", seen: error.to_string() }
}

/// Tells `reflector` about `fact`.
fn tell_fact(reflector: &mut Reflector, now: Time, fact: &Fact) {
    let mut object = |change, object: &Object| {
        let version = object.version.to_string();
        let observed = Observed { change, key: &object.key, uid: &object.uid, resource_version: &version };
        reflector.handle(now, Input::Object(observed));
    };
    match fact {
        Fact::Item(item) => object(reflector::Change::Item, item),
        Fact::Event(Change { kind: Kind::Added, object: added }) => object(reflector::Change::Added, added),
        Fact::Event(Change { kind: Kind::Modified, object: changed }) => object(reflector::Change::Modified, changed),
        Fact::Event(Change { kind: Kind::Deleted, object: deleted }) => object(reflector::Change::Deleted, deleted),
        Fact::Accepted => reflector.handle(now, Input::Accepted),
        Fact::Noise => reflector.handle(now, Input::Ignored),
        Fact::Bookmark { version, end } => {
            reflector.handle(now, Input::Bookmark { resource_version: version, initial_events_end: *end });
        }
        Fact::PageEnd { version, token } => {
            let (version, continue_token) = (version.to_string(), token.as_deref());
            reflector.handle(now, Input::PageEnd { resource_version: &version, continue_token });
        }
        Fact::Ended(end) => reflector.handle(now, Input::Ended(*end)),
    }
}

/// What `config` asks for during `span` of a server that answers each read with the same facts, each after a pause;
/// and when. Ends early at a thousand requests, which no test allows.
pub fn requests(
    config: reflector::Config,
    span: Duration,
    answer: impl Fn(&Read) -> Vec<(Duration, Fact)>,
) -> Vec<(Time, Read)> {
    let mut reflector = Reflector::new(config);
    let mut now = Time::ZERO;
    let mut sent = Vec::new();
    let mut facts: VecDeque<(Time, Fact)> = VecDeque::new();
    reflector.handle(now, Input::Start);
    while now <= Time(span) && sent.len() < REQUESTS_MAX {
        while let Some(action) = reflector.poll_action() {
            match action {
                Action::Send(read) => {
                    let mut at = now;
                    facts = answer(&read)
                        .into_iter()
                        .map(|(pause, fact)| {
                            at = at + pause;
                            (at, fact)
                        })
                        .collect();
                    sent.push((now, read));
                }
                Action::Close => facts.clear(),
                Action::Init { .. }
                | Action::Prove { .. }
                | Action::Refuse
                | Action::Restored
                | Action::InitApply
                | Action::InitDone(_)
                | Action::Apply
                | Action::Delete
                | Action::Bookmark(_)
                | Action::Abandon
                | Action::Report(_) => {}
            }
        }
        let Some(due) = reflector.poll_timeout() else { break };
        match facts.pop_front() {
            Some((at, fact)) if at <= due => {
                now = at;
                tell_fact(&mut reflector, now, &fact);
            }
            Some(later) => {
                facts.push_front(later);
                now = due;
                reflector.handle(now, Input::TimedOut);
            }
            None => {
                now = due;
                reflector.handle(now, Input::TimedOut);
            }
        }
    }
    sent
}

fn state_of(snapshot: &Snapshot) -> State {
    snapshot.objects.iter().map(|entry| (entry.key().to_owned(), object_of(entry))).collect()
}

fn object_of(entry: &store::Entry) -> Object {
    Object {
        key: entry.key().to_owned(),
        uid: entry.uid().to_owned(),
        version: entry.resource_version().parse().unwrap_or(0),
    }
}

fn json(object: &Object) -> Vec<u8> {
    let (namespace, name) = object.key.split_once('/').unwrap_or(("", &object.key));
    let (uid, version) = (&object.uid, object.version);
    let metadata = format!(r#""namespace":"{namespace}","name":"{name}","uid":"{uid}","resourceVersion":"{version}""#);
    format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{{metadata}}}}}"#).into_bytes()
}
