//! What an event costs inside the cache, without sockets and tasks: taking it in, waking whom it concerns, and handing
//! it to each of them.
//!
//! INVARIANT: the same objects and events whoever watches, so that two results differ by the watchers alone. INVARIANT:
//! one thread, and the median of many bursts shorter than a scheduler's slice: what other programs take does not show.

use std::{
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Wake, Waker},
    time::{Duration, Instant},
};

use informer_core::{
    Objects, Time,
    selector::{field, label},
};
use watch_cache::{Budget, Change, Cursor, Draft, Field, Filter, Limits, Reader, Schema, Slices, Start, Step, cache};

/// Who watches while events are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// Each watcher its own node: an event concerns one of them.
    Nodes,
    /// Everybody everything: an event concerns all.
    All,
}

/// What is published and to whom.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Who watches.
    pub watched: Watched,
    /// How many watch; zero is a type that nobody watches.
    pub watchers: usize,
    /// Events taken in between two rounds of waking. Of watched nodes each gets one of them, if there are as many.
    pub burst: usize,
    /// How many bursts are measured.
    pub bursts: usize,
}

/// What one event costs: medians over the bursts.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Taking it in and noting whom it concerns.
    pub publish: Duration,
    /// Its share of the rounds that wake.
    pub wake: Duration,
    /// Handing it to one watcher; zero when nobody watches.
    pub deliver: Duration,
    /// What was handed out in all, which the setup foretells.
    pub deliveries: u64,
}

/// Objects, spread over the nodes that are watched; bytes of each.
const OBJECTS: usize = 10_000;
const OBJECT_BYTES: usize = 512;

/// As a server's body hands them out.
const BUDGET: Budget = Budget { slices: 56, bytes: 64 << 10 };

/// Publishes, wakes and reads, burst by burst.
///
/// # Panics
/// When somebody was woken in vain or missed an event.
#[must_use]
pub fn run(setup: Setup) -> Cost {
    World::new(setup).run()
}

/// A cache, and watchers that wait.
struct World {
    setup: Setup,
    writer: watch_cache::Writer,
    waking: watch_cache::Waking,
    watchers: Vec<Watcher>,
    woken: Woken,
    /// As they are written, again and again.
    objects: Vec<String>,
    schema: Arc<Schema>,
    /// Taken in so far.
    position: u64,
}

/// One watcher.
struct Watcher {
    cursor: Cursor,
    waker: Waker,
}

/// Who was woken, by number.
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

/// What one burst took.
struct Burst {
    publish: Duration,
    wake: Duration,
    deliver: Duration,
    deliveries: u64,
}

impl World {
    fn new(setup: Setup) -> Self {
        let schema = schema();
        let limits = Limits { window_events_max: OBJECTS, ..Limits::default() };
        let (mut writer, waking, reader) = cache(Arc::clone(&schema), limits);
        let nodes = if setup.watched == Watched::Nodes { setup.watchers.max(1) } else { OBJECTS };
        let texts: Vec<String> = (0..OBJECTS).map(|number| object(number, number % nodes)).collect();
        let position = OBJECTS as u64;
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
        // Once through, so that the window is full and every buffer has its size.
        for _ in 0..OBJECTS.div_ceil(self.setup.burst).min(self.setup.bursts) {
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

    /// Takes a burst in, wakes, and lets everybody who was woken read.
    fn burst(&mut self) -> Burst {
        let changes: Vec<Change> = (0..self.setup.burst)
            .map(|_| {
                self.position += 1;
                let object = usize::try_from(self.position % OBJECTS as u64).unwrap_or(0);
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
        let cursor = reader.cursor(Start::After(reader.applied()), filter).expect("at the head");
        Self { cursor, waker: Waker::from(Arc::new(Call { number, woken: Arc::clone(woken) })) }
    }

    /// Reads until it waits again, as a body does: a batch, then the next. Returns how many events came.
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

fn schema() -> Arc<Schema> {
    let node = Field { label: "spec.nodeName".into(), path: "spec.nodeName".into(), absent: String::new(), or: None };
    Arc::new(Schema {
        kind: "Pod".into(),
        api_version: "v1".into(),
        builtin: true,
        fields: vec![node],
        node_field: Some(0),
    })
}

fn filter(schema: &Schema, watched: Watched, number: usize) -> Arc<Filter> {
    let fields = match watched {
        Watched::Nodes => format!("spec.nodeName=node-{number}"),
        Watched::All => String::new(),
    };
    let fields = field::Selector::parse(&fields).expect("a selector");
    Filter::new(schema, true, None, label::Selector::default(), &fields).expect("a field of the schema")
}

fn draft(schema: &Schema, object: &str) -> Draft {
    Draft::new(schema, object.as_bytes()).expect("an object")
}

fn object(number: usize, node: usize) -> String {
    let metadata = format!(r#"{{"name":"pod-{number}","namespace":"default"}}"#);
    let head = format!(r#"{{"metadata":{metadata},"spec":{{"nodeName":"node-{node}"}},"status":{{"message":""#);
    let filling = "x".repeat(OBJECT_BYTES.saturating_sub(head.len() + 3));
    format!("{head}{filling}\"}}}}")
}
