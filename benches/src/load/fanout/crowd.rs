//! The watchers: many streams read by few threads, at minimal cost per stream.
//!
//! INVARIANT: a watcher belongs to one thread. Its results are shared only when the thread ends; while it runs, only
//! the counters of [`Progress`] are read.

use std::{
    cell::RefCell,
    io,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use hdrhistogram::Histogram;
use tokio::{sync::watch, task::LocalSet, time::Instant};

use super::{
    super::{
        client::{Ask, Connection, Http, Target},
        failure::{Failure, Failures, Kind},
        scan::Events,
        writer::nanos,
    },
    marks::{Mark, Scanner, Tally},
};

/// Maximum bytes of one read, so that no stream holds its thread for long.
const READ_BYTES: usize = 64 << 10;

/// Reader threads. Two, so that a single slow reader thread does not limit the measured throughput.
const THREADS: usize = 2;

/// The watches to make.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) target: Target,
    /// Path and query of each watcher.
    pub(crate) paths: Arc<Vec<String>>,
    /// Streams per connection, with HTTP/2.
    pub(crate) streams: usize,
    /// Connections per second; an HTTP/2 connection with several streams counts once.
    pub(crate) connect_rate: f64,
    /// True if streams begin with an initial state.
    pub(crate) initial: bool,
}

/// Counters that are shared while the watchers run.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Streams with a 2xx response head.
    pub(crate) open: AtomicUsize,
    /// Streams with a complete initial state.
    pub(crate) synced: AtomicUsize,
    /// Streams that have ended or failed.
    pub(crate) ended: AtomicUsize,
    /// Number of marks found.
    pub(crate) delivered: AtomicU64,
    /// Bytes of response bodies.
    pub(crate) bytes: AtomicU64,
    /// Marks with an earlier timestamp do not count for the latency.
    pub(crate) counted_from_nanos: AtomicU64,
}

/// Results of the watchers.
pub(crate) struct Sight {
    /// Tallies with the index of their watchers.
    pub(crate) tallies: Vec<(usize, Tally)>,
    /// Microseconds from sending a write to reading its event here.
    pub(crate) latency: Histogram<u64>,
    /// Microseconds from the start to each response head.
    pub(crate) opening: Histogram<u64>,
    pub(crate) failures: Failures,
}

/// Running watchers.
pub(crate) struct Crowd {
    pub(crate) progress: Arc<Progress>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<io::Result<Sight>>>,
}

impl Crowd {
    /// Starts the threads; watchers connect at the plan's rate.
    pub(crate) fn start(plan: &Plan) -> io::Result<Self> {
        let progress = Arc::new(Progress::default());
        let (stop, stopped) = watch::channel(false);
        let spawn = |part: usize| {
            let (plan, progress, stopped) = (plan.clone(), Arc::clone(&progress), stopped.clone());
            thread::Builder::new().name(format!("watchers-{part}")).spawn(move || run(part, &plan, &progress, stopped))
        };
        let threads = (0..THREADS).map(spawn).collect::<io::Result<_>>()?;
        Ok(Self { progress, stop, threads })
    }

    /// Waits until every stream has its response head, or the time is over. Returns the number of streams without one.
    pub(crate) async fn opened(&self, watchers: usize, wait: Duration) -> usize {
        let is_open = || {
            let (open, ended) =
                (self.progress.open.load(Ordering::Acquire), self.progress.ended.load(Ordering::Acquire));
            open + ended >= watchers
        };
        until(wait, is_open).await;
        watchers - self.progress.open.load(Ordering::Acquire).min(watchers)
    }

    /// Waits until every initial state is complete, or the time is over. Returns the number of incomplete ones.
    pub(crate) async fn synced(&self, watchers: usize, wait: Duration) -> usize {
        let synced = || self.progress.synced.load(Ordering::Acquire);
        until(wait, || synced() + self.progress.ended.load(Ordering::Acquire) >= watchers).await;
        watchers.saturating_sub(synced())
    }

    /// Waits until this many marks were found, or the time is over. Returns the number of missing ones.
    pub(crate) async fn delivered(&self, deliveries: u64, wait: Duration) -> u64 {
        let delivered = || self.progress.delivered.load(Ordering::Acquire);
        until(wait, || delivered() >= deliveries).await;
        deliveries.saturating_sub(delivered())
    }

    /// Waits until no mark was found for a period of `wait`.
    pub(crate) async fn settled(&self, wait: Duration) {
        let mut last = 0;
        loop {
            tokio::time::sleep(wait).await;
            let now = self.progress.delivered.load(Ordering::Acquire);
            if now == last {
                return;
            }
            last = now;
        }
    }

    /// Excludes all writes so far from the latency.
    pub(crate) fn forget_latency(&self) {
        self.progress.counted_from_nanos.store(nanos(), Ordering::Release);
    }

    /// Bytes of response bodies so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.progress.bytes.load(Ordering::Relaxed)
    }

    /// Drops all connections and returns the results.
    pub(crate) fn stop(self) -> Result<Sight, Failure> {
        // An error means that all threads have ended.
        let _ = self.stop.send(true);
        let mut all = Sight::none();
        for thread in self.threads {
            let sight = thread.join().map_err(|_| Failure::new(Kind::Client, "a thread of watchers failed"))?;
            all.add(sight.map_err(|error| Failure::new(Kind::Client, error))?);
        }
        Ok(all)
    }
}

/// Polls until the condition holds or the time is over.
async fn until(wait: Duration, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() && start.elapsed() < wait {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

impl Sight {
    fn none() -> Self {
        let times = || Histogram::new_with_max(600_000_000, 3).expect("constant bounds are valid");
        Self { tallies: Vec::new(), latency: times(), opening: times(), failures: Failures::default() }
    }

    fn add(&mut self, other: Self) {
        self.tallies.extend(other.tallies);
        // Cannot fail: the histograms have equal bounds.
        let _ = self.latency.add(other.latency);
        let _ = self.opening.add(other.opening);
        self.failures.merge(other.failures);
    }
}

/// Runs one thread, which has every `THREADS`-th connection with all its streams.
fn run(part: usize, plan: &Plan, progress: &Arc<Progress>, mut stopped: watch::Receiver<bool>) -> io::Result<Sight> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let sight = Rc::new(RefCell::new(Sight::none()));
    let tallies: Rc<RefCell<Vec<(usize, Tally)>>> = Rc::default();
    let local = LocalSet::new();
    let streams = if plan.target.http() == Http::Two { plan.streams.max(1) } else { 1 };
    let start = Instant::now();
    for connection in (part..plan.paths.len().div_ceil(streams)).step_by(THREADS) {
        let watchers = connection * streams..((connection + 1) * streams).min(plan.paths.len());
        let (plan, progress) = (plan.clone(), Arc::clone(progress));
        let (sight, tallies) = (Rc::clone(&sight), Rc::clone(&tallies));
        local.spawn_local(async move {
            #[expect(clippy::cast_precision_loss, reason = "a count of connections")]
            tokio::time::sleep_until(start + Duration::from_secs_f64(connection as f64 / plan.connect_rate)).await;
            let first = match plan.target.connect().await {
                Ok(first) => first,
                Err(failure) => {
                    progress.ended.fetch_add(watchers.len(), Ordering::AcqRel);
                    return sight.borrow_mut().failures.add(failure);
                }
            };
            let mut first = Some(first);
            for watcher in watchers {
                let another = first.as_ref().and_then(Connection::another);
                let Some(connection) = another.or_else(|| first.take()) else { break };
                let mut watcher = Watcher::new(watcher, start, &progress, &sight, &tallies);
                watcher.initial = plan.initial.then(Box::default);
                tokio::task::spawn_local(watcher.run(connection, Arc::clone(&plan.paths)));
            }
        });
    }
    // Dropping the `LocalSet` drops the streams that are still open.
    runtime.block_on(local.run_until(async { stopped.wait_for(|stop| *stop).await.map(drop) })).unwrap_or_default();
    drop(local);
    drop(runtime);
    let mut sight = sight.replace(Sight::none());
    sight.tallies = tallies.take();
    Ok(sight)
}

/// One stream.
struct Watcher {
    index: usize,
    start: Instant,
    /// Index of its tally in `tallies`.
    place: usize,
    scanner: Scanner,
    /// `Some` until the initial state is complete.
    initial: Option<Box<Events>>,
    progress: Arc<Progress>,
    sight: Rc<RefCell<Sight>>,
    tallies: Rc<RefCell<Vec<(usize, Tally)>>>,
}

impl Watcher {
    fn new(
        index: usize,
        start: Instant,
        progress: &Arc<Progress>,
        sight: &Rc<RefCell<Sight>>,
        tallies: &Rc<RefCell<Vec<(usize, Tally)>>>,
    ) -> Self {
        let mut all = tallies.borrow_mut();
        all.push((index, Tally::default()));
        let place = all.len() - 1;
        let (progress, sight, tallies) = (Arc::clone(progress), Rc::clone(sight), Rc::clone(tallies));
        Self { index, start, place, scanner: Scanner::new(), initial: None, progress, sight, tallies }
    }

    async fn run(mut self, mut connection: Connection, paths: Arc<Vec<String>>) {
        let end = self.watch(&mut connection, &paths).await;
        self.progress.ended.fetch_add(1, Ordering::AcqRel);
        let failure = end.err().unwrap_or_else(|| Failure::new(Kind::Ended, format!("watcher {}", self.index)));
        self.sight.borrow_mut().failures.add(failure);
    }

    async fn watch(&mut self, connection: &mut Connection, paths: &[String]) -> Result<(), Failure> {
        connection.send_well(&Ask::get(&paths[self.index])).await?;
        let micros = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.sight.borrow_mut().opening.saturating_record(micros);
        self.progress.open.fetch_add(1, Ordering::AcqRel);
        while connection.bytes(READ_BYTES, |piece| self.take(piece)).await? {}
        Ok(())
    }

    fn take(&mut self, piece: &[u8]) {
        let now = nanos();
        let (mut sight, mut tallies) = (self.sight.borrow_mut(), self.tallies.borrow_mut());
        let tally = &mut tallies[self.place].1;
        let mut found = 0;
        let from = self.progress.counted_from_nanos.load(Ordering::Relaxed);
        self.scanner.feed(piece, |Mark { number, nanos }| {
            found += 1;
            tally.add(number);
            if nanos >= from {
                sight.latency.saturating_record(now.saturating_sub(nanos) / 1_000);
            }
        });
        if let Some(events) = &mut self.initial {
            events.feed(piece);
            if events.is_synced() {
                self.initial = None;
                self.progress.synced.fetch_add(1, Ordering::AcqRel);
            }
        }
        self.progress.bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
        if found > 0 {
            self.progress.delivered.fetch_add(found, Ordering::AcqRel);
        }
    }
}
