//! Subscribers against a model: any interleaving of events, publishing and polls, with slow and overrun subscribers.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    task::Waker,
};

use informer_core::{
    Meta, Time,
    store::{Event as Change, Store},
};
use k8s_openapi::api::core::v1::Pod;
use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;

/// uid and version of each object.
type Objects = BTreeMap<String, (String, u64)>;

#[derive(Clone, Debug)]
enum Op {
    Apply(usize),
    /// Deletes an object and creates another of its name between two publishes.
    Replace(usize),
    Delete(usize),
    /// Relists after these objects were deleted and those changed.
    Relist {
        vanish: Vec<usize>,
        change: Vec<usize>,
    },
    /// Proves the saved state, if there is one and initial state was not read yet.
    Resume,
    Publish,
    Subscribe,
    SubscribeAll {
        capacity: usize,
    },
    Poll {
        who: Index,
        events: usize,
    },
    Leave(Index),
}

fn op(keys: usize) -> impl Strategy<Value = Op> {
    let some = vec(0..keys, 0..8);
    prop_oneof![
        12 => (0..keys).prop_map(Op::Apply),
        2 => (0..keys).prop_map(Op::Replace),
        5 => (0..keys).prop_map(Op::Delete),
        1 => (some.clone(), some).prop_map(|(vanish, change)| Op::Relist { vanish, change }),
        1 => Just(Op::Resume),
        6 => Just(Op::Publish),
        1 => Just(Op::Subscribe),
        1 => (0..40_usize).prop_map(|capacity| Op::SubscribeAll { capacity }),
        12 => (any::<Index>(), 1..90_usize).prop_map(|(who, events)| Op::Poll { who, events }),
        1 => any::<Index>().prop_map(Op::Leave),
    ]
}

fn key(number: usize) -> String {
    format!("ns/p-{number:03}")
}

fn json(key: &str, uid: &str, version: u64) -> Vec<u8> {
    let name = key.trim_start_matches("ns/");
    format!(r#"{{"metadata":{{"name":"{name}","namespace":"ns","uid":"{uid}","resourceVersion":"{version}"}}}}"#).into()
}

/// The expected state, and a store that receives it.
struct World {
    version: u64,
    objects: Objects,
    /// Each change since the first complete state, as subscribers must receive it.
    log: Vec<String>,
    is_synced: bool,
    store: Store,
    outlet: StatePublisher,
    source: Source,
    /// The state published last, and the length of the log at that time.
    published: (Objects, usize),
    is_published: bool,
    saved: Option<Objects>,
    /// The first complete state, and the number of relists until then.
    first: Option<(Objects, usize)>,
    relists: usize,
}

impl World {
    fn new() -> Self {
        let store = Store::default();
        let (outlet, source) = StatePublisher::new(&store);
        let (objects, log) = (Objects::new(), Vec::new());
        let published = (Objects::new(), 0);
        Self {
            version: 10,
            objects,
            log,
            is_synced: false,
            store,
            outlet,
            source,
            published,
            is_published: false,
            saved: None,
            first: None,
            relists: 0,
        }
    }

    /// Restores the objects of a checkpoint.
    fn restore(&mut self, count: usize) {
        let saved: Objects = (0..count).map(|number| (key(number), (format!("u{number}"), 5))).collect();
        let bodies: Vec<Vec<u8>> = saved.iter().map(|(key, (uid, version))| json(key, uid, *version)).collect();
        self.store.restore(bodies.iter().map(|json| (Meta::read(json).unwrap(), &json[..])), Some(5.into()));
        self.outlet.restored(&self.store.snapshot());
        self.objects = saved.clone();
        self.published = (saved.clone(), 0);
        self.outlet.publish(self.store.snapshot());
        self.saved = Some(saved);
    }

    fn handle(&mut self, change: Change<'_>) {
        self.store.handle(Time::default(), change).unwrap();
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn apply(&mut self, number: usize, is_replaced: bool) {
        let (key, version) = (key(number), self.next_version());
        let uid = match self.objects.get(&key) {
            Some((uid, _)) if !is_replaced => uid.clone(),
            Some(_) | None => format!("v{version}"),
        };
        let old = self.objects.insert(key.clone(), (uid.clone(), version));
        if self.is_synced {
            let json = json(&key, &uid, version);
            self.handle(Change::Apply(&json, &Meta::read(&json).unwrap()));
            self.log.extend(events_of(&key, old.as_ref(), Some(&(uid, version)), false));
        }
    }

    fn delete(&mut self, number: usize) {
        let (key, version) = (key(number), self.next_version());
        let Some(old) = self.objects.remove(&key) else { return };
        if self.is_synced {
            let json = json(&key, &old.0, version);
            self.handle(Change::Delete(&Meta::read(&json).unwrap()));
            self.log.extend(events_of(&key, Some(&old), None, false));
        }
    }

    fn relist(&mut self, vanish: &[usize], change: &[usize]) {
        let before = self.objects.clone();
        let synced = std::mem::replace(&mut self.is_synced, false);
        vanish.iter().for_each(|number| self.delete(*number));
        change.iter().for_each(|number| self.apply(*number, false));
        let at = self.next_version();
        self.handle(Change::Init { trusts_versions: true });
        for (key, (uid, version)) in self.objects.clone() {
            let json = json(&key, &uid, version);
            self.handle(Change::InitApply(&json, &Meta::read(&json).unwrap()));
        }
        self.handle(Change::InitDone(at.into()));
        self.relists += 1;
        self.synced();
        if synced {
            self.log.extend(difference(&before, &self.objects, true));
            self.log.push(format!("={at}"));
        }
    }

    /// Proves that the saved state is still the server's state.
    fn resume(&mut self) {
        if let (Some(saved), false) = (&self.saved, self.is_synced) {
            self.objects = saved.clone();
            self.handle(Change::Restored);
            self.synced();
        }
    }

    fn synced(&mut self) {
        self.is_synced = true;
        if self.first.is_none() {
            self.first = Some((self.objects.clone(), self.relists));
        }
    }

    fn publish(&mut self) {
        if self.is_synced {
            self.published = (self.objects.clone(), self.log.len());
            self.is_published = true;
        }
        let state = self.store.snapshot();
        let counted: usize = state.objects.iter().map(|entry| entry.stored_bytes()).sum();
        assert_eq!(state.stored_bytes, counted as u64);
        self.outlet.publish(state);
    }
}

/// Events expected for a difference.
fn difference(old: &Objects, new: &Objects, missed: bool) -> Vec<String> {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differing = keys.into_iter().filter(|key| old.get(*key) != new.get(*key));
    differing.flat_map(|key| events_of(key, old.get(key), new.get(key), missed)).collect()
}

/// Events expected for a change of one key.
fn events_of(key: &str, old: Option<&(String, u64)>, new: Option<&(String, u64)>, missed: bool) -> Vec<String> {
    let mark = if missed { "?" } else { "" };
    match (old, new) {
        (Some((uid, old)), Some((same, new))) if uid == same => vec![format!("{key}@{old}>{new}")],
        (old, new) => {
            let gone = old.map(|(_, version)| format!("-{key}@{version}{mark}"));
            let came = new.map(|(_, version)| format!("+{key}@{version}"));
            gone.into_iter().chain(came).collect()
        }
    }
}

fn show(event: &Event<Pod>) -> String {
    match event {
        Event::Added(new) => format!("+{}@{}", new.key(), new.resource_version()),
        Event::Updated { old, new } => format!("{}@{}>{}", new.key(), old.resource_version(), new.resource_version()),
        Event::Deleted { last_known, missed } => {
            format!("-{}@{}{}", last_known.key(), last_known.resource_version(), if *missed { "?" } else { "" })
        }
        Event::Reset => "reset".into(),
        Event::Synced(version) => format!("={version}"),
    }
}

enum Reader {
    Latest(Subscription<Pod>),
    All(SubscriptionAll<Pod>),
}

/// One subscriber, and the state its events add up to.
struct Subscriber {
    reader: Reader,
    capacity: usize,
    mirror: Objects,
    resets: usize,
    saved: Option<Objects>,
    /// The state it starts from, and its position in the log; the first sync's for an earlier subscriber.
    base: Option<(Objects, usize)>,
    since: usize,
    place: Place,
}

/// Events that a subscriber to all changes must receive next.
enum Place {
    /// The saved state, then its difference to the start state.
    Saved(VecDeque<String>),
    Base(VecDeque<String>),
    /// This line of the log.
    Log(usize),
    /// A difference, after a reset.
    Anything,
}

impl Subscriber {
    fn new(world: &World, capacity: Option<usize>) -> Self {
        let saved = world.saved.clone().filter(|_| !world.is_published);
        let first = difference(&Objects::new(), saved.as_ref().unwrap_or(&Objects::new()), false);
        let (source, decoded) = (world.source.clone(), Arc::default());
        Self {
            reader: match capacity {
                Some(capacity) => Reader::All(SubscriptionAll::new(source, decoded, capacity)),
                None => Reader::Latest(Subscription::new(source, decoded)),
            },
            capacity: capacity.unwrap_or_default().max(1),
            mirror: Objects::new(),
            resets: 0,
            saved,
            base: world.is_synced.then(|| (world.objects.clone(), world.relists)),
            since: world.log.len(),
            place: Place::Saved(first.into()),
        }
    }

    fn poll(&mut self) -> Poll<Option<Event<Pod>>> {
        let mut cx = Context::from_waker(Waker::noop());
        match &mut self.reader {
            Reader::Latest(reader) => Pin::new(reader).poll_next(&mut cx),
            Reader::All(reader) => Pin::new(reader).poll_next(&mut cx),
        }
    }

    /// Reads up to `events` events.
    fn read(&mut self, world: &World, events: usize) {
        for _ in 0..events {
            match self.poll() {
                Poll::Ready(Some(event)) => self.take(world, &event),
                Poll::Ready(None) => panic!("the informer has not stopped"),
                Poll::Pending => return self.waits(world),
            }
        }
    }

    /// Checks a subscriber that has no more events to deliver.
    fn waits(&mut self, world: &World) {
        let is_all = matches!(self.reader, Reader::All(_));
        if is_all && !(world.is_published && self.since <= world.published.1) {
            // The state it starts from is not published yet.
            return assert_eq!(self.mirror, self.saved.clone().unwrap_or_default());
        }
        assert_eq!(self.mirror, world.published.0, "told everything, and not what is");
        if matches!(self.place, Place::Anything) {
            self.place = Place::Log(world.published.1);
        }
        if is_all && let Place::Log(at) = self.place {
            assert_eq!(at, world.published.1, "told everything, and not all changes");
        }
    }

    fn take(&mut self, world: &World, event: &Event<Pod>) {
        self.apply(event);
        match (event, &self.reader) {
            (Event::Reset, Reader::All(_)) => {
                let delivered = match self.place {
                    Place::Saved(_) | Place::Base(_) => Some(self.since),
                    Place::Log(at) => Some(at),
                    Place::Anything => None,
                };
                if let Some(delivered) = delivered {
                    let behind = world.log.len() - delivered;
                    assert!(behind > self.capacity, "reset when {behind} behind of {}", self.capacity);
                }
                self.resets += 1;
                self.place = Place::Anything;
            }
            (Event::Reset, Reader::Latest(_)) => panic!("a reset of one that cannot lag"),
            (_, Reader::All(_)) => self.expect(world, &show(event)),
            (_, Reader::Latest(_)) => {}
        }
    }

    /// Checks that each change arrives once, and in order.
    fn expect(&mut self, world: &World, delivered: &str) {
        loop {
            match &mut self.place {
                Place::Saved(rest) | Place::Base(rest) if !rest.is_empty() => {
                    let expected = rest.pop_front().unwrap();
                    return assert!(
                        delivered == expected || expected == "=" && delivered.starts_with('='),
                        "{delivered}: {expected}"
                    );
                }
                Place::Saved(_) => {
                    let (base, relists) =
                        self.base.as_ref().or(world.first.as_ref()).expect("told after the first sync");
                    let saved = self.saved.clone().unwrap_or_default();
                    let first = difference(&saved, base, *relists > 0).into_iter().chain(["=".to_owned()]);
                    self.place = Place::Base(first.collect());
                }
                Place::Base(_) => self.place = Place::Log(self.since),
                Place::Log(at) => {
                    assert_eq!(Some(delivered), world.log.get(*at).map(String::as_str), "in order, none left out");
                    assert!(*at < world.published.1, "ahead of what snapshots show");
                    *at += 1;
                    return;
                }
                Place::Anything => return,
            }
        }
    }

    /// Checks that the event follows from the events before.
    fn apply(&mut self, event: &Event<Pod>) {
        let of = |object: &Object<Pod>| {
            (object.uid().to_owned(), object.resource_version().parse::<u64>().expect("a number"))
        };
        match event {
            Event::Added(new) => assert_eq!(self.mirror.insert(new.key().into(), of(new)), None, "added twice"),
            Event::Updated { old, new } => {
                assert_eq!(old.uid(), new.uid(), "across uids");
                assert!(of(old).1 < of(new).1, "back");
                assert_eq!(self.mirror.insert(new.key().into(), of(new)), Some(of(old)), "not what was told");
            }
            Event::Deleted { last_known, .. } => {
                assert_eq!(self.mirror.remove(last_known.key()), Some(of(last_known)), "not what was told");
            }
            Event::Reset | Event::Synced(_) => {}
        }
    }
}

/// Runs the script and returns the number of resets.
fn run(saved: Option<usize>, ops: Vec<Op>) -> usize {
    let mut world = World::new();
    if let Some(count) = saved {
        world.restore(count);
    }
    let mut subscribers = vec![Subscriber::new(&world, None), Subscriber::new(&world, Some(8))];
    for op in ops {
        match op {
            Op::Apply(number) => world.apply(number, false),
            Op::Replace(number) => world.apply(number, true),
            Op::Delete(number) => world.delete(number),
            Op::Relist { vanish, change } => world.relist(&vanish, &change),
            Op::Resume => world.resume(),
            Op::Publish => world.publish(),
            Op::Subscribe => subscribers.push(Subscriber::new(&world, None)),
            Op::SubscribeAll { capacity } => subscribers.push(Subscriber::new(&world, Some(capacity))),
            Op::Poll { who, events } if !subscribers.is_empty() => {
                let who = who.index(subscribers.len());
                subscribers[who].read(&world, events);
            }
            Op::Leave(who) if !subscribers.is_empty() => {
                let who = who.index(subscribers.len());
                subscribers.swap_remove(who);
            }
            Op::Poll { .. } | Op::Leave(_) => {}
        }
    }
    if !world.is_synced {
        world.relist(&[], &[]);
    }
    world.publish();
    for subscriber in &mut subscribers {
        subscriber.read(&world, usize::MAX);
        assert_eq!(subscriber.mirror, world.objects);
    }
    drop(world);
    for subscriber in &mut subscribers {
        assert!(matches!(subscriber.poll(), Poll::Ready(None)), "stopped, and told all");
    }
    subscribers.iter().map(|subscriber| subscriber.resets).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn events_add_up_and_none_is_left_out(
        saved in proptest::option::of(0..90_usize),
        ops in vec(op(12), 0..300),
    ) {
        run(saved, ops);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

    /// Uses more objects than one look delivers, so that changes interrupt long differences.
    #[test]
    fn long_differences_add_up_too(
        saved in proptest::option::of(0..200_usize),
        ops in vec(op(200), 300..900),
    ) {
        run(saved, ops);
    }
}

/// Goal: the property above exercises resets. Method: a script in which a subscriber is overrun.
#[test]
fn slow_subscribers_are_reset_in_such_scripts() {
    let changes = (0..100).flat_map(|round| [Op::Apply(round % 9), Op::Publish]);
    let ops = [Op::Relist { vanish: Vec::new(), change: vec![1, 2] }, Op::Publish];
    assert_eq!(run(None, ops.into_iter().chain(changes).collect()), 1);
}

#[test]
fn what_was_saved_is_let_go_of_when_nobody_needs_it() {
    let mut world = World::new();
    world.restore(5);
    let saved = world.source.saved.clone();
    let early = [Subscriber::new(&world, None), Subscriber::new(&world, Some(5))];
    world.relist(&[], &[]);
    world.publish();
    assert!(world.source.saved().is_none(), "who comes now starts from what is");
    for mut subscriber in early {
        assert!(saved.strong_count() > 0);
        subscriber.read(&world, usize::MAX);
    }
    assert_eq!(saved.strong_count(), 0);
}
