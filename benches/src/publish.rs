//! Cost of an event inside the cache, without sockets and tasks: to apply it, to wake its watchers, and to deliver it
//! to each of them.
//!
//! INVARIANT: objects and events do not depend on the watchers, so that only the watchers explain a difference between
//! two results.
//! INVARIANT: a single thread, and medians over bursts shorter than a scheduler's time slice, so that other programs do
//! not affect the result.

use std::{
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Wake, Waker},
    time::{Duration, Instant},
};

use informer_core::{
    Objects, Time,
    selector::{field, label},
};
use watch_cache::{
    Budget, Change, Cursor, CursorStart, Draft, Field, Filter, Limits, Reader, Schema, Slices, Step, cache,
};

/// Scope of the watchers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// Each watcher watches its own node: an event concerns one of them.
    Nodes,
    /// Each watcher watches everything: an event concerns all of them.
    All,
}

/// Settings of a run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Scope of the watchers.
    pub watched: Watched,
    /// Number of watchers; zero measures an unwatched type.
    pub watchers: usize,
    /// Events applied per round of waking. With at least as many watched nodes, each event is for another node.
    pub burst: usize,
    /// Number of measured bursts.
    pub bursts: usize,
    /// Number of objects, spread over the watched nodes, and the size of each in bytes.
    pub objects: (usize, usize),
}

/// Writes and deliveries of a second, on one thread.
#[derive(Clone, Copy, Debug)]
pub struct Throughput {
    /// Objects parsed, applied and delivered to all watchers.
    pub writes: f64,
    /// Events that a watcher read.
    pub deliveries: f64,
}

/// Cost of an event: medians over the bursts.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Time to apply it and to record the buckets it concerns.
    pub publish: Duration,
    /// Its share of a round of waking.
    pub wake: Duration,
    /// Time to deliver it to one watcher; zero without watchers.
    pub deliver: Duration,
    /// Total number of deliveries, which follows from the setup.
    pub deliveries: u64,
}

/// Events in the window.
const WINDOW_EVENTS: usize = 10_000;

/// The budget of a server's response body.
pub(crate) const BUDGET: Budget = Budget { slices: 56, bytes: 64 << 10 };

/// Applies events, wakes watchers and reads, burst by burst.
///
/// # Panics
/// If a watcher is woken without an event for it, or misses one.
#[must_use]
pub fn run(setup: Setup) -> Cost {
    World::new(setup).run()
}

/// Writes as fast as possible for this time, after one second for which it does the same.
///
/// # Panics
/// As [`run`].
#[must_use]
pub fn throughput(setup: Setup, time: Duration) -> Throughput {
    let mut world = World::new(setup);
    let mut count = |time: Duration| {
        let (begin, mut bursts, mut deliveries) = (Instant::now(), 0_usize, 0_u64);
        while begin.elapsed() < time {
            deliveries += world.burst().deliveries;
            bursts += 1;
        }
        let seconds = begin.elapsed().as_secs_f64();
        Throughput { writes: (bursts * setup.burst) as f64 / seconds, deliveries: deliveries as f64 / seconds }
    };
    count(Duration::from_secs(1));
    count(time)
}

/// A cache and its parked watchers.
struct World {
    setup: Setup,
    writer: watch_cache::Writer,
    waking: watch_cache::BucketWaker,
    watchers: Vec<Watcher>,
    woken: Woken,
    /// Texts of the objects, which are written again and again.
    objects: Vec<String>,
    schema: Arc<Schema>,
    /// Position of the last applied event.
    position: u64,
}

/// A watcher.
struct Watcher {
    cursor: Cursor,
    waker: Waker,
}

/// Indices of the woken watchers.
type Woken = Arc<Mutex<Vec<usize>>>;

struct Call {
    number: usize,
    woken: Woken,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
    }
}

/// Times and deliveries of a burst.
struct Burst {
    publish: Duration,
    wake: Duration,
    deliver: Duration,
    deliveries: u64,
}

impl World {
    fn new(setup: Setup) -> Self {
        let schema = schema();
        let limits = Limits { window_events_max: WINDOW_EVENTS, ..Limits::default() };
        let (mut writer, waking, reader) = cache(Arc::clone(&schema), limits);
        let (count, bytes) = setup.objects;
        let nodes = if setup.watched == Watched::Nodes { setup.watchers.max(1) } else { count };
        let texts: Vec<String> = (0..count).map(|number| object(number, number % nodes, bytes)).collect();
        let position = count as u64;
        let objects: Objects<_> =
            texts.iter().zip(1..).map(|(text, version)| draft(&schema, text).commit(version)).collect();
        writer.reset(objects, position, Time::default());
        let woken = Woken::default();
        let open = |number| Watcher::new(&reader, filter(&schema, setup.watched, number), number, &woken);
        let mut watchers: Vec<Watcher> = (0..setup.watchers).map(open).collect();
        for watcher in &mut watchers {
            assert_eq!(watcher.drain(), 0, "nothing happened yet");
        }
        Self { setup, writer, waking, watchers, woken, objects: texts, schema, position }
    }

    fn run(mut self) -> Cost {
        // Warm up: fill the window and let every buffer reach its size.
        for _ in 0..WINDOW_EVENTS.div_ceil(self.setup.burst).min(self.setup.bursts) {
            self.burst();
        }
        let bursts: Vec<Burst> = (0..self.setup.bursts).map(|_| self.burst()).collect();
        let deliveries = bursts.iter().map(|burst| burst.deliveries).sum();
        let concerned = match self.setup.watched {
            Watched::Nodes => usize::from(self.setup.watchers > 0),
            Watched::All => self.setup.watchers,
        };
        let events = self.setup.burst * self.setup.bursts;
        assert_eq!(deliveries, (events * concerned) as u64, "everybody got what concerns it, once");
        let median = |part: fn(&Burst) -> Duration, count: usize| {
            let mut parts: Vec<Duration> = bursts.iter().map(part).collect();
            parts.sort_unstable();
            parts.get(parts.len() / 2).map_or(Duration::ZERO, |middle| middle.div_f64(count.max(1) as f64))
        };
        Cost {
            publish: median(|burst| burst.publish, self.setup.burst),
            wake: median(|burst| burst.wake, self.setup.burst),
            deliver: median(|burst| burst.deliver, self.setup.burst * concerned),
            deliveries,
        }
    }

    /// Applies a burst, wakes watchers and lets each of them read.
    fn burst(&mut self) -> Burst {
        let changes: Vec<Change> = (0..self.setup.burst)
            .map(|_| {
                self.position += 1;
                let object = usize::try_from(self.position % self.objects.len() as u64).unwrap_or(0);
                Change::Put(draft(&self.schema, &self.objects[object]).commit(self.position))
            })
            .collect();
        let begin = Instant::now();
        for change in changes {
            self.writer.apply(change, Time::default()).expect("in order");
        }
        let published = Instant::now();
        self.waking.wake();
        let woken = Instant::now();
        let numbers = std::mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner));
        let mut deliveries = 0;
        for number in numbers {
            let got = self.watchers[number].drain();
            assert!(0 < got, "woken for something");
            deliveries += got;
        }
        let deliver = woken.elapsed();
        Burst { publish: published - begin, wake: woken - published, deliver, deliveries }
    }
}

impl Watcher {
    fn new(reader: &Reader, filter: Arc<Filter>, number: usize, woken: &Woken) -> Self {
        let cursor = reader.cursor(CursorStart::After(reader.applied()), filter).expect("at the head");
        Self { cursor, waker: Waker::from(Arc::new(Call { number, woken: Arc::clone(woken) })) }
    }

    /// Reads batches until the cursor waits, like a response body. Returns the number of events.
    fn drain(&mut self) -> u64 {
        let mut lines = 0;
        loop {
            let mut out = Slices::new();
            let step = self.cursor.step(BUDGET, &mut out, Some(&mut Context::from_waker(&self.waker)));
            lines += out.iter().filter(|slice| slice.ends_with(b"\n")).count() as u64;
            match step {
                Step::Sent => {}
                Step::Wait => return lines,
                Step::InitialDone(_) | Step::Expired(_) | Step::EpochEnded => panic!("{step:?}: live and in time"),
            }
        }
    }
}

pub(crate) fn schema() -> Arc<Schema> {
    let node = Field { label: "spec.nodeName".into(), path: "spec.nodeName".into(), absent: String::new(), or: None };
    Arc::new(Schema {
        kind: "Pod".into(),
        api_version: "v1".into(),
        builtin: true,
        fields: vec![node],
        node_field: Some(0),
    })
}

pub(crate) fn filter(schema: &Schema, watched: Watched, number: usize) -> Arc<Filter> {
    let fields = match watched {
        Watched::Nodes => format!("spec.nodeName=node-{number}"),
        Watched::All => String::new(),
    };
    let fields = field::Selector::parse(&fields).expect("a selector");
    Filter::new(schema, true, None, label::Selector::default(), &fields).expect("a field of the schema")
}

pub(crate) fn draft(schema: &Schema, object: &str) -> Draft {
    Draft::new(schema, object.as_bytes()).expect("an object")
}

pub(crate) fn object(number: usize, node: usize, bytes: usize) -> String {
    let metadata = format!(r#"{{"name":"pod-{number}","namespace":"default"}}"#);
    let head = format!(r#"{{"metadata":{metadata},"spec":{{"nodeName":"node-{node}"}},"status":{{"message":""#);
    let filling = "x".repeat(bytes.saturating_sub(head.len() + 3));
    format!("{head}{filling}\"}}}}")
}
