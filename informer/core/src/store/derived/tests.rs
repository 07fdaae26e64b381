//! A derived store against its definition: the filtered union of its sources, whatever order and pace it follows them
//! in; and readers of each change against a replay.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    object::Meta,
    store::{Event, Store},
    time::Time,
};

#[derive(Clone, Debug)]
enum Op {
    /// Writes an object of a source, inside the filter or outside.
    Write {
        source: usize,
        name: usize,
        is_inside: bool,
    },
    Delete {
        source: usize,
        name: usize,
    },
    /// Reads initial state again: some objects are gone.
    Relist {
        source: usize,
        keep: Vec<usize>,
    },
    Bookmark {
        source: usize,
    },
    Follow {
        source: usize,
    },
    /// Lets the reader of each change catch up.
    Read,
}

fn op() -> impl Strategy<Value = Op> {
    let (source, name) = (0..2_usize, 0..4_usize);
    prop_oneof![
        8 => (source.clone(), name.clone(), any::<bool>())
            .prop_map(|(source, name, is_inside)| Op::Write { source, name, is_inside }),
        3 => (source.clone(), name.clone()).prop_map(|(source, name)| Op::Delete { source, name }),
        1 => (source.clone(), vec(name, 0..4)).prop_map(|(source, keep)| Op::Relist { source, keep }),
        1 => source.clone().prop_map(|source| Op::Bookmark { source }),
        6 => source.prop_map(|source| Op::Follow { source }),
        3 => Just(Op::Read),
    ]
}

fn is_inside(entry: &Entry) -> bool {
    entry.label("app").as_deref() == Some("in")
}

fn json(source: usize, name: usize, version: u64, is_inside: bool) -> Vec<u8> {
    let app = if is_inside { "in" } else { "out" };
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"{source}","uid":"u{source}{name}","resourceVersion":"{version}","labels":{{"app":"{app}"}}}}}}"#
    )
    .into_bytes()
}

/// Two stores, the store derived from them, and a reader of each of its changes.
struct World {
    stores: [Store; 2],
    derived: DerivedStore,
    version: u64,
    listener: Listener,
    reader: Option<(u64, BTreeMap<String, String>)>,
    resets: usize,
}

impl World {
    fn new() -> Self {
        let stores = [Store::default(), Store::default()];
        // Two values for each object: its version, and the last digit of its version.
        let by_version: IndexFn = Box::new(|entry, tell| {
            let version = entry.resource_version();
            [version, &version[version.len() - 1..]].into_iter().for_each(tell);
        });
        let none: IndexFn = Box::new(|_, _| {});
        let derived = DerivedStore::new(stores.iter().map(|store| store.ring().clone()), Box::new(is_inside));
        let derived = derived.with_indexes(vec![none, by_version]);
        let listener = derived.ring().listen(64, &derived.snapshot());
        Self { stores, derived, version: 10, listener, reader: None, resets: 0 }
    }

    fn handle(&mut self, source: usize, event: Event<'_>) {
        self.stores[source].handle(Time::ZERO, event).unwrap();
    }

    fn run(&mut self, op: &Op) {
        self.version += 1;
        match op {
            Op::Write { source, name, is_inside } => {
                let json = json(*source, *name, self.version, *is_inside);
                self.handle(*source, Event::Apply(&json, &Meta::read(&json).unwrap()));
            }
            Op::Delete { source, name } => {
                let json = json(*source, *name, self.version, true);
                self.handle(*source, Event::Delete(&Meta::read(&json).unwrap()));
            }
            Op::Relist { source, keep } => self.relist(*source, keep),
            Op::Bookmark { source } => self.handle(*source, Event::Bookmark(self.version.into())),
            Op::Follow { source } => self.follow(*source),
            Op::Read => self.read(),
        }
    }

    fn relist(&mut self, source: usize, keep: &[usize]) {
        self.handle(source, Event::Init { trusts_versions: true });
        for name in keep {
            let json = json(source, *name, self.version, name % 2 == 0);
            self.handle(source, Event::InitApply(&json, &Meta::read(&json).unwrap()));
        }
        self.handle(source, Event::InitDone(self.version.into()));
    }

    fn follow(&mut self, source: usize) {
        let before = self.derived.snapshot();
        let has_changed = self.derived.follow(source, &self.stores[source].snapshot());
        let now = self.derived.snapshot();
        assert!(has_changed || (shown(&before) == shown(&now) && before.sequence == now.sequence));
        self.check();
    }

    /// The definition: objects of the followed states that pass the filter.
    fn check(&self) {
        let now = self.derived.snapshot();
        let mut expected = BTreeMap::new();
        let mut bytes = 0;
        for followed in &self.derived.sources {
            for entry in followed.state.objects.iter().filter(|entry| is_inside(entry)) {
                expected.insert(entry.key().to_owned(), entry.resource_version().to_owned());
                bytes += entry.stored_bytes() as u64;
            }
        }
        assert_eq!((shown(&now), now.stored_bytes), (expected, bytes));
        for digit in 0..10 {
            let digit = digit.to_string();
            let found: Vec<&str> = now.by(1, &digit).map(|entry| entry.key()).collect();
            let ends = |entry: &&Arc<Entry>| entry.resource_version().ends_with(&digit);
            let expected: Vec<&str> = now.objects.iter().filter(ends).map(|entry| entry.key()).collect();
            assert_eq!(found, expected);
        }
        assert!(now.by(0, "1").next().is_none() && now.by(2, "1").next().is_none());
        assert_eq!(now.synced, self.derived.sources.iter().all(|followed| followed.state.synced));
        assert_eq!(now.relists, self.derived.sources.iter().map(|followed| followed.state.relists).sum::<u64>());
    }

    /// Each change, applied in order, leads to the current state, unless the reader is reset.
    fn read(&mut self) {
        let now = self.derived.snapshot();
        let (sequence, state) = match self.reader.take() {
            Some(reader) => reader,
            None => match self.listener.start(&now) {
                Some(Ok(start)) => (start.sequence, entries(&start.objects)),
                Some(Err(_)) => (0, BTreeMap::new()),
                None => return,
            },
        };
        let Ok(records) = self.listener.read(sequence, now.sequence, usize::MAX) else {
            self.resets += 1;
            self.reader = Some((now.sequence, shown(&now)));
            return;
        };
        let mut state = state;
        assert_eq!(sequence + records.len() as u64, now.sequence);
        for record in records {
            let version = |entry: &Arc<Entry>| entry.resource_version().to_owned();
            match record {
                Record::Change(StoreChange::Added(new)) => {
                    assert!(state.insert(new.key().to_owned(), version(&new)).is_none());
                }
                Record::Change(StoreChange::Updated { old, new }) => {
                    assert_eq!(state.insert(new.key().to_owned(), version(&new)), Some(version(&old)));
                }
                Record::Change(StoreChange::Deleted { last_known, .. }) => {
                    assert_eq!(state.remove(last_known.key()), Some(version(&last_known)));
                }
                Record::Synced(_) => {}
            }
        }
        assert_eq!(state, shown(&now));
        self.reader = Some((now.sequence, state));
    }
}

fn entries(objects: &crate::objects::Objects<Entry>) -> BTreeMap<String, String> {
    objects.iter().map(|entry| (entry.key().to_owned(), entry.resource_version().to_owned())).collect()
}

fn shown(snapshot: &Snapshot) -> BTreeMap<String, String> {
    entries(&snapshot.objects)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_derived_store_is_the_filtered_union_of_its_sources(ops in vec(op(), 0..60)) {
        let mut world = World::new();
        for op in &ops {
            world.run(op);
        }
    }
}

/// Goal: a reader of each change is reset at most once, when it begins, however far the sources run ahead. Method:
/// bursts of ten changes between two follows.
#[test]
fn a_reader_of_each_change_gets_bursts_without_a_reset() {
    let mut world = World::new();
    for source in 0..2 {
        world.relist(source, &[0, 1]);
        world.follow(source);
    }
    world.read();
    for burst in 0..10 {
        for name in 0..10 {
            world.run(&Op::Write { source: burst % 2, name, is_inside: true });
        }
        world.follow(burst % 2);
        world.read();
    }
    assert!(world.resets <= 1, "{} resets", world.resets);
    assert_eq!(world.derived.snapshot().objects.len(), 20);
}

#[test]
fn the_position_is_the_lowest_of_the_sources() {
    let mut world = World::new();
    let version = |world: &World| world.derived.snapshot().resource_version.map(|version| version.to_string());
    world.relist(0, &[0]);
    world.follow(0);
    assert_eq!((version(&world), world.derived.snapshot().synced), (None, false));
    world.version = 20;
    world.relist(1, &[0]);
    world.follow(1);
    assert_eq!((version(&world), world.derived.snapshot().synced), (Some("10".into()), true));
    world.run(&Op::Bookmark { source: 0 });
    world.follow(0);
    assert_eq!(version(&world), Some("20".into()), "now the other one is the lowest");
}
