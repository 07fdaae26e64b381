//! Cost of the server's hot paths without sockets and tasks, in instructions and allocations.

#![expect(missing_docs, reason = "the macros of gungraun make public items")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Wake, Waker},
};

use cache_server::registry::Registry;
use gungraun::{library_benchmark, library_benchmark_group, main};
use informer_core::{Meta, Objects, Time, object::label, selector};
use watch_cache::{
    BucketWaker, Budget, Change, Cursor, CursorStart, Draft, Entry, Filter, Limits, Reader, Schema, Slices, Step,
    Writer, cache,
};

mod gate;
#[path = "gate/objects.rs"]
mod objects;

use gate::limits;

/// Number of objects in the cache.
const STORED: u32 = 1_000;

/// Number of nodes that they run on.
const NODES: usize = 80;

fn schema(plural: &str, group: &str) -> Arc<Schema> {
    let ty = Registry::builtin().find(group, "v1", plural).expect("a built-in type");
    Arc::clone(&ty.schema)
}

/// A Lease as renewed by a node.
const LEASE: &[u8] = br#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"node-17","namespace":"kube-node-lease","uid":"7a5b6c7d-0000-4000-8000-000000000017","resourceVersion":"123456","creationTimestamp":"2026-01-01T00:00:00Z","ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"node-17","uid":"7a5b6c7d-0000-4000-8000-000000000018"}],"managedFields":[{"manager":"kubelet","operation":"Update","apiVersion":"coordination.k8s.io/v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:ownerReferences":{".":{},"k:{\"uid\":\"7a5b6c7d-0000-4000-8000-000000000018\"}":{}}},"f:spec":{"f:holderIdentity":{},"f:leaseDurationSeconds":{},"f:renewTime":{}}}}]},"spec":{"holderIdentity":"node-17","leaseDurationSeconds":40,"renewTime":"2026-01-01T00:10:00.123456Z"}}"#;

fn pod_text() -> (Arc<Schema>, Vec<u8>) {
    (schema("pods", ""), objects::at_version(&objects::pods(1)[0], 1, 1))
}

fn lease_text() -> (Arc<Schema>, Vec<u8>) {
    (schema("leases", "coordination.k8s.io"), LEASE.to_vec())
}

#[library_benchmark]
#[bench::pod(
    setup = pod_text,
    config = limits(203_000, 32, 15_800),
)]
#[bench::lease(
    setup = lease_text,
    config = limits(27_400, 12, 2_860),
)]
fn draft_to_entry((schema, text): (Arc<Schema>, Vec<u8>)) -> (Arc<Schema>, Vec<u8>, Arc<Entry>) {
    let entry = Draft::new(&schema, &text).expect("an object").commit(7);
    (schema, text, entry)
}

/// Counts wake-ups.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A cache with pods, and the changes to apply.
struct World {
    schema: Arc<Schema>,
    pods: Vec<Vec<u8>>,
    writer: Writer,
    waking: BucketWaker,
    reader: Reader,
    cursors: Vec<Cursor>,
    woken: Arc<Counting>,
    changes: Vec<Change>,
    out: Slices,
}

impl World {
    fn new() -> Self {
        let (schema, pods) = (schema("pods", ""), objects::pods(STORED));
        let (mut writer, waking, reader) = cache(Arc::clone(&schema), Limits::default());
        let entry = |(number, pod): (usize, &Vec<u8>)| {
            let pod = objects::at_version(pod, number, 1);
            Draft::new(&schema, &pod).expect("a pod").commit(number as u64 + 1)
        };
        let objects: Objects<Entry> = pods.iter().enumerate().map(entry).collect();
        writer.reset(objects, STORED.into(), Time::ZERO);
        let (cursors, woken, changes, out) = (Vec::new(), Arc::default(), Vec::new(), Slices::new());
        Self { schema, pods, writer, waking, reader, cursors, woken, changes, out }
    }

    /// Prepares a new version of every tenth pod: 100 changes, each at its own revision.
    fn changing(self) -> Self {
        self.changing_at(|number| u64::from(STORED) + 1 + number as u64)
    }

    /// Like `changing`, at these revisions.
    fn changing_at(mut self, revision: impl Fn(usize) -> u64) -> Self {
        for (number, pod) in self.pods.iter().enumerate().step_by(10) {
            let pod = objects::at_version(pod, number, 1);
            let draft = Draft::new(&self.schema, &pod).expect("a pod");
            self.changes.push(Change::Put(draft.commit(revision(number))));
        }
        self
    }

    /// Adds this number of watchers of a node each, all parked.
    fn watched(mut self, watchers: usize) -> Self {
        for number in 0..watchers {
            let filter = self.filter("", &format!("spec.nodeName=node-{}", number % NODES));
            let start = CursorStart::After(self.reader.applied());
            let mut cursor = self.reader.cursor(start, filter).expect("a position in the window");
            let waker = Waker::from(Arc::clone(&self.woken));
            assert_eq!(cursor.step(PLENTY, &mut self.out, Some(&mut Context::from_waker(&waker))), Step::Wait);
            self.cursors.push(cursor);
        }
        self
    }

    fn filter(&self, labels: &str, fields: &str) -> Arc<Filter> {
        let labels = selector::label::Selector::parse(labels).expect("a label selector");
        let fields = selector::field::Selector::parse(fields).expect("a field selector");
        Filter::new(&self.schema, true, None, labels, &fields).expect("known fields")
    }

    /// Applies the prepared changes and wakes the watchers.
    fn published(mut self) -> Self {
        for change in self.changes.drain(..) {
            self.writer.apply(change, Time::ZERO).expect("changes in order");
            self.waking.wake();
        }
        self
    }

    /// Applies the prepared changes as one batch and wakes the watchers.
    fn published_at_once(mut self) -> Self {
        let changes = std::mem::take(&mut self.changes);
        self.writer.apply_batch(changes, Time::ZERO).expect("a change in order");
        self.waking.wake();
        self
    }

    /// Adds a single watcher that reads from `start` with the label selector `labels`.
    fn read_by(mut self, start: CursorStart, labels: &str) -> Self {
        let filter = self.filter(labels, "");
        self.cursors = vec![self.reader.cursor(start, filter).expect("a position in the window")];
        self
    }

    /// Steps every cursor until it waits.
    fn stepped(mut self) -> Self {
        for cursor in &mut self.cursors {
            loop {
                match cursor.step(PLENTY, &mut self.out, None) {
                    Step::Sent | Step::InitialDone(_) => self.out = Slices::new(),
                    Step::Wait => break,
                    Step::Expired(_) | Step::EpochEnded => unreachable!("the history goes on"),
                }
            }
        }
        self
    }
}

const PLENTY: Budget = Budget { slices: 64, bytes: 64 << 10 };

fn unwatched() -> World {
    World::new().changing()
}

fn watched(watchers: usize) -> World {
    World::new().watched(watchers).changing()
}

#[library_benchmark]
#[bench::nobody_watches(
    setup = unwatched,
    config = limits(281_000, 223, 16_300),
)]
#[bench::node_watchers_100(
    args = (100),
    setup = watched,
    config = limits(362_000, 260, 18_700),
)]
#[bench::node_watchers_2000(
    args = (2_000),
    setup = watched,
    config = limits(367_000, 262, 19_700),
)]
fn publish_100_events(world: World) -> World {
    world.published()
}

/// Watchers of nodes, and 100 changes of one revision.
fn watched_batch(watchers: usize) -> World {
    World::new().watched(watchers).changing_at(|_| u64::from(STORED) + 1)
}

#[library_benchmark]
#[bench::node_watchers_100(
    args = (100),
    setup = watched_batch,
    config = limits(454_000, 335, 43_700),
)]
fn publish_a_batch_of_100(world: World) -> World {
    world.published_at_once()
}

/// Watchers of everything, each `events` behind. Many of them, because a single step costs less than the allocator's
/// occasional housekeeping.
fn behind(watchers: usize, events: usize) -> World {
    let mut world = World::new();
    for _ in 0..watchers {
        let start = CursorStart::After(world.reader.applied());
        let cursor = world.reader.cursor(start, world.filter("", "")).expect("a position in the window");
        world.cursors.push(cursor);
    }
    world = world.changing();
    world.changes.truncate(events);
    world.published()
}

#[library_benchmark]
#[bench::events_1(
    args = (200, 1),
    setup = behind,
    config = limits(615_000, 433, 35_200),
)]
#[bench::events_100(
    args = (20, 100),
    setup = behind,
    config = limits(988_000, 346, 212_000),
)]
fn step_live_cursors(world: World) -> World {
    world.stepped()
}

/// A watcher at the start of an initial state with the label selector `labels`; `app` alone selects the application of
/// the first pod.
fn starting(labels: &str) -> World {
    let world = World::new();
    let first = objects::at_version(&world.pods[0], 0, 1);
    let at = Meta::read(&first).expect("a pod").labels_at.expect("a pod has labels");
    let app = label(&first[at], "app").expect("an application");
    let labels = if labels == "app" { format!("app={app}") } else { labels.to_owned() };
    let start = CursorStart::Initial(world.reader.snapshot());
    world.read_by(start, &labels)
}

#[library_benchmark]
#[bench::all(
    args = (""),
    setup = starting,
    // 667,000 to 711,000: it varies with the seed of hash maps.
    config = limits(750_000, 1_417, 106_000),
)]
#[bench::one_application(
    args = ("app"),
    setup = starting,
    config = limits(144_000, 6, 256),
)]
#[bench::nothing(
    args = ("app=nothing-has-this"),
    setup = starting,
    config = limits(135_000, 2, 36),
)]
fn walk_an_initial_state_of_1000_pods(world: World) -> World {
    world.stepped()
}

library_benchmark_group!(
    name = hot_paths,
    benchmarks = [
        draft_to_entry,
        publish_100_events,
        publish_a_batch_of_100,
        step_live_cursors,
        walk_an_initial_state_of_1000_pods
    ]
);

main!(library_benchmark_groups = hot_paths);
