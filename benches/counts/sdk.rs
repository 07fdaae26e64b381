//! Cost of the SDK's path from bytes to a stored object, in instructions and allocations.
//!
//! INVARIANT: a change of a stored object allocates its entry, its text and its body, and nothing else.

#![expect(missing_docs, reason = "the macros of gungraun make public items")]

use gungraun::{library_benchmark, library_benchmark_group, main};
use informer_core::{
    InitialList, Meta, ResourceVersion, Time,
    reflector::{Config, Input, ObservedKind, ObservedObject, Reflector},
    store::{Event, Store},
    wire::framer::{Frame, Framer, FramerConfig, MANAGED_FIELDS, Shape},
};

mod gate;
#[path = "gate/objects.rs"]
mod objects;

use gate::limits;

/// Number of objects that arrive in a run.
const OBJECTS: u32 = 100;

/// Number of objects in the store before changes arrive.
const STORED: u32 = 1_000;

/// Size of a chunk from a socket.
const CHUNK_BYTES: usize = 64 * 1024;

/// A body and the store that it goes into.
struct Arrival {
    framer: Framer,
    store: Store,
    body: Vec<u8>,
    /// True if the objects belong to an initial state.
    initial: bool,
}

impl Arrival {
    /// Pods as sent by a watch-list, and an empty store.
    fn initial(cut: bool) -> Self {
        let mut store = Store::default();
        store.handle(Time::ZERO, Event::Init { trusts_versions: true }).expect("a beginning");
        Self { framer: framer(cut), store, body: lines("ADDED", 1, 1, &objects::pods(OBJECTS)), initial: true }
    }

    /// A full store, and a new version of every tenth pod.
    fn changes(cut: bool) -> Self {
        let pods = objects::pods(STORED);
        let body = lines("ADDED", 1, 1, &pods);
        let full = Self { framer: framer(cut), store: Store::default(), body, initial: false }.taken();
        Self { body: lines("MODIFIED", 10_000, (STORED / OBJECTS) as usize, &pods), ..full }
    }

    /// Processes chunks like a driver, without reflector and readers.
    fn taken(mut self) -> Self {
        for mut chunk in self.body.chunks(CHUNK_BYTES) {
            while let Some(frame) = self.framer.next(&mut chunk).expect("watch events") {
                let Frame::Event { object, .. } = frame else { unreachable!("only events were put in") };
                let meta = Meta::read(object).expect("a pod");
                let event = if self.initial { Event::InitApply(object, &meta) } else { Event::Apply(object, &meta) };
                self.store.handle(Time::ZERO, event).expect("a pod that can be kept");
            }
        }
        self
    }
}

fn framer(cut: bool) -> Framer {
    let cut = if cut { vec![MANAGED_FIELDS.to_owned()] } else { Vec::new() };
    Framer::new(FramerConfig { cut, ..FramerConfig::new(Shape::Watch) })
}

/// Events for every `step`th of `pods`, with versions starting at `first`.
fn lines(kind: &str, first: usize, step: usize, pods: &[Vec<u8>]) -> Vec<u8> {
    let mut all = Vec::new();
    for (number, pod) in pods.iter().enumerate().step_by(step) {
        all.extend_from_slice(format!(r#"{{"type":"{kind}","object":"#).as_bytes());
        all.extend_from_slice(&objects::at_version(pod, number, first + number));
        all.extend_from_slice(b"}\n");
    }
    all
}

#[library_benchmark]
#[bench::cut(
    args = (true),
    setup = Arrival::initial,
    config = limits(7_710_000, 354, 425_000),
)]
#[bench::whole(
    args = (false),
    setup = Arrival::initial,
    config = limits(9_640_000, 345, 697_000),
)]
fn frame_and_store_100_pods(arrival: Arrival) -> Arrival {
    arrival.taken()
}

#[library_benchmark]
#[bench::cut(
    args = (true),
    setup = Arrival::changes,
    config = limits(7_240_000, 300, 332_000),
)]
#[bench::whole(
    args = (false),
    setup = Arrival::changes,
    config = limits(8_890_000, 300, 551_000),
)]
fn change_100_of_1000_pods(arrival: Arrival) -> Arrival {
    arrival.taken()
}

/// A reflector in its live watch, and the versions of the changes to come.
fn live() -> (Reflector, Vec<String>) {
    let mut reflector = Reflector::new(Config { initial: InitialList::Stream, ..Config::default() });
    let resource_version = "999999";
    for input in [Input::Start, Input::Accepted, Input::Bookmark { resource_version, initial_events_end: true }] {
        reflector.handle(Time::ZERO, input);
        while reflector.poll_action().is_some() {}
    }
    assert_eq!(reflector.position(), Some(&ResourceVersion::from(999_999)));
    (reflector, (1_000_000..1_001_000).map(|version| version.to_string()).collect())
}

#[library_benchmark(config = limits(1_200_000, 0, 0))]
#[bench::live(setup = live)]
fn reflect_1000_changes((mut reflector, versions): (Reflector, Vec<String>)) -> (Reflector, Vec<String>) {
    for resource_version in &versions {
        let observed = ObservedObject {
            change: ObservedKind::Modified,
            key: "shop/web-0",
            uid: "u-1",
            resource_version,
            is_news: true,
        };
        reflector.handle(Time::ZERO, Input::Object(observed));
        while reflector.poll_action().is_some() {}
    }
    (reflector, versions)
}

library_benchmark_group!(
    name = sdk,
    benchmarks = [frame_and_store_100_pods, change_100_of_1000_pods, reflect_1000_changes]
);

main!(library_benchmark_groups = sdk);
