//! Sections that one thread executes at a time: the commit lock of the storage, the state lock of a type, the round of
//! its waking task, and the accepting task.
//!
//! INVARIANT: each cost is an upper bound of the section: it is measured around the call that contains it.

use std::{
    future::poll_fn,
    net::SocketAddr,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use cache_server::{
    registry::Registry,
    storage::{Expect, Store as _, Txn, embedded::EmbeddedStorage},
};
use informer_core::{Objects, Time};
use serde::{Deserialize, Serialize};
use tokio::{net::TcpListener, runtime::Builder, task::JoinSet};
use watch_cache::{BucketWaker, Change, Cursor, CursorStart, Draft, Limits, Reader, Slices, Step, Writer, cache};

use super::{Failure, steps};
use crate::publish::{self, BUDGET, Watched};

/// Watchers of a round of waking.
const WATCHERS: usize = 10_000;
/// Rounds of which the median counts, after one that warms up.
const ROUNDS: usize = 15;
/// Commits, of which the mean counts, and their objects.
const COMMITS: u32 = 200_000;
const COMMITTED_OBJECTS: u32 = 1_000;
/// Connections that are accepted.
const CONNECTIONS: u32 = 4_000;
/// Time for which threads read beside each other.
const READ_TIME: Duration = Duration::from_millis(300);
/// Events of a watcher that reads a batch.
pub(super) const BATCH: u64 = 32;

/// Costs in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SerialCosts {
    /// A commit of a prepared object, under the lock of all types.
    pub(super) commit: f64,
    /// An event that is applied, under the write lock of its type.
    pub(super) apply: f64,
    /// A step of a watcher that finds no event, under the read lock of the type; by threads.
    pub(super) idle_step: Vec<(u32, f64)>,
    /// A step of a watcher that takes [`BATCH`] events, the encoding without lock included.
    pub(super) batch_step: f64,
    /// Rounds of waking [`WATCHERS`]; by worker threads.
    pub(super) rounds: Vec<WakeRound>,
    /// An accepted connection, in the accepting task.
    pub(super) accept: f64,
}

/// A round in which all watchers are woken.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct WakeRound {
    pub(super) threads: u32,
    /// Time of the waking task for one watcher, in microseconds.
    pub(super) wake: f64,
    /// Time until the last watcher has read the event, in milliseconds.
    pub(super) all_millis: f64,
    /// Share of the watchers that ran on another thread than the waking task.
    pub(super) elsewhere: f64,
}

/// Measures all of them.
pub(super) fn measure() -> Result<SerialCosts, Failure> {
    let setup = |watched| publish::Setup { watched, watchers: 1_000, burst: 20, bursts: 500 };
    let costs = SerialCosts {
        commit: commit()?,
        apply: micros(publish::run(setup(Watched::Nodes)).publish),
        idle_step: steps().map(|threads| (threads, idle_step(threads))).collect(),
        batch_step: batch_step(),
        rounds: steps().map(rounds).collect::<Result<_, _>>()?,
        accept: accept()?,
    };
    eprintln!("numbers: {costs:?}");
    Ok(costs)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Mean of a commit: revision, entry, object map and history, without parsing.
fn commit() -> Result<f64, Failure> {
    let failed = |error: String| Failure::Server(error);
    let registry = Registry::builtin();
    let ty = registry.by_id("pods").ok_or_else(|| failed("there is no type of pods".to_owned()))?;
    let storage = EmbeddedStorage::new(Some(1));
    let runtime = Builder::new_current_thread().build()?;
    let (mut spent, mut versions) = (Duration::ZERO, vec![None; COMMITTED_OBJECTS as usize]);
    for number in 0..COMMITS {
        let place = (number % COMMITTED_OBJECTS) as usize;
        let text = publish::object(place, 0);
        let draft = Draft::new(&ty.schema, text.as_bytes()).map_err(|error| failed(error.to_string()))?;
        let expect = versions[place].map_or(Expect::Absent, Expect::At);
        let txn =
            Txn { ty: Arc::clone(&ty), key: format!("default/pod-{place}"), expect, put: Some(draft), cause: None };
        let begun = Instant::now();
        let written = runtime.block_on(storage.write(txn)).map_err(|error| failed(error.to_string()))?;
        spent += begun.elapsed();
        versions[place] = Some(written.resource_version);
    }
    Ok(micros(spent) / f64::from(COMMITS))
}

/// A type with one object, at position 1.
struct QuietType {
    writer: Writer,
    waking: BucketWaker,
    reader: Reader,
    position: u64,
}

impl QuietType {
    fn new() -> Self {
        let (mut writer, waking, reader) = cache(publish::schema(), Limits::default());
        writer.reset(Objects::new(), 1, Time::default());
        Self { writer, waking, reader, position: 1 }
    }

    /// A watcher of everything, at the head.
    fn watcher(&self) -> Cursor {
        let filter = publish::filter(&publish::schema(), Watched::All, 0);
        self.reader.cursor(CursorStart::After(self.reader.applied()), filter).expect("the head is in the window")
    }

    fn change(&mut self) {
        self.position += 1;
        let draft = Draft::new(&publish::schema(), publish::object(0, 0).as_bytes()).expect("an object");
        let put = Change::Put(draft.commit(self.position));
        self.writer.apply(put, Time::default()).expect("positions grow");
    }
}

/// Time of a step that finds nothing, in each of this number of threads that do nothing else.
fn idle_step(threads: u32) -> f64 {
    let quiet = QuietType::new();
    let (barrier, stop) = (Barrier::new(threads as usize + 1), AtomicBool::new(false));
    let steps: u64 = thread::scope(|scope| {
        let readers: Vec<_> = (0..threads)
            .map(|_| {
                let mut watcher = quiet.watcher();
                let (barrier, stop) = (&barrier, &stop);
                scope.spawn(move || {
                    barrier.wait();
                    let (mut steps, mut out) = (0_u64, Slices::new());
                    while !stop.load(Ordering::Relaxed) {
                        assert!(matches!(watcher.step(BUDGET, &mut out, None), Step::Wait));
                        steps += 1;
                    }
                    steps
                })
            })
            .collect();
        barrier.wait();
        thread::sleep(READ_TIME);
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().map(|reader| reader.join().unwrap_or_default()).sum()
    });
    #[expect(clippy::cast_precision_loss, reason = "steps of a third of a second")]
    let steps = steps as f64;
    micros(READ_TIME) * f64::from(threads) / steps
}

/// Median time of a step that takes a batch of events.
fn batch_step() -> f64 {
    let mut quiet = QuietType::new();
    let mut times: Vec<Duration> = (0..ROUNDS * 20)
        .map(|_| {
            let mut watcher = quiet.watcher();
            (0..BATCH).for_each(|_| quiet.change());
            let mut out = Slices::new();
            let begun = Instant::now();
            assert!(matches!(watcher.step(BUDGET, &mut out, None), Step::Sent));
            begun.elapsed()
        })
        .collect();
    micros(median(&mut times))
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Counters of the watchers' tasks.
#[derive(Default)]
struct RoundProgress {
    /// Tasks that wait, in all rounds so far.
    parked: AtomicUsize,
    /// Events that were read.
    read: AtomicUsize,
    /// Those of them that were read in the thread of the waking task.
    beside: AtomicUsize,
    /// Number of the waking task's thread.
    waking: AtomicUsize,
}

thread_local! {
    static THREAD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// Wakes [`WATCHERS`] tasks by a task, on a runtime like the server's.
fn rounds(threads: u32) -> Result<WakeRound, Failure> {
    let runtime = Builder::new_multi_thread().worker_threads(threads as usize).build()?;
    let (mut quiet, progress) = (QuietType::new(), Arc::new(RoundProgress::default()));
    for _ in 0..WATCHERS {
        runtime.spawn(watch(quiet.watcher(), Arc::clone(&progress)));
    }
    let (mut waking_times, mut all_times) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        until(|| progress.parked.load(Ordering::Acquire) == WATCHERS * (round + 1));
        if round == 1 {
            progress.beside.store(0, Ordering::Relaxed);
        }
        quiet.change();
        let (mut waking, begun) = (quiet.waking, Instant::now());
        let noted = Arc::clone(&progress);
        let woken = runtime.block_on(runtime.spawn(async move {
            noted.waking.store(THREAD.with(|thread| *thread), Ordering::Release);
            let begun = Instant::now();
            waking.wake();
            (begun.elapsed(), waking)
        }));
        let (time, waking) = woken.map_err(|error| Failure::Server(error.to_string()))?;
        quiet.waking = waking;
        until(|| progress.read.load(Ordering::Acquire) == WATCHERS * (round + 1));
        if 0 < round {
            waking_times.push(time);
            all_times.push(begun.elapsed());
        }
    }
    let counted = u32::try_from(WATCHERS * ROUNDS).unwrap_or(u32::MAX);
    let beside = u32::try_from(progress.beside.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
    Ok(WakeRound {
        threads,
        wake: micros(median(&mut waking_times)) / f64::from(u32::try_from(WATCHERS).unwrap_or(u32::MAX)),
        all_millis: micros(median(&mut all_times)) / 1e3,
        elsewhere: 1.0 - f64::from(beside) / f64::from(counted),
    })
}

/// A watcher's task: reads each event and waits for the next one.
async fn watch(mut cursor: Cursor, progress: Arc<RoundProgress>) {
    poll_fn(|cx| {
        loop {
            let mut out = Slices::new();
            match cursor.step(BUDGET, &mut out, Some(cx)) {
                Step::Sent => {
                    if THREAD.with(|thread| *thread) == progress.waking.load(Ordering::Acquire) {
                        progress.beside.fetch_add(1, Ordering::Relaxed);
                    }
                    progress.read.fetch_add(1, Ordering::AcqRel);
                }
                Step::Wait => {
                    progress.parked.fetch_add(1, Ordering::AcqRel);
                    return Poll::<()>::Pending;
                }
                Step::InitialDone(_) | Step::Expired(_) | Step::EpochEnded => return Poll::Ready(()),
            }
        }
    })
    .await;
}

/// Looks every 50 µs, which leaves the cores to the workers.
fn until(holds: impl Fn() -> bool) {
    while !holds() {
        thread::sleep(Duration::from_micros(50));
    }
}

/// CPU time of an accepting task for one connection, which it hands to a task of its own.
fn accept() -> Result<f64, Failure> {
    let (sender, receiver) = std::sync::mpsc::channel::<SocketAddr>();
    let accepting = thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
            // An error means that nothing connects, and the receiver says so.
            let _ = sender.send(listener.local_addr()?);
            let (mut open, before) = (JoinSet::new(), own_cpu());
            for _ in 0..CONNECTIONS {
                let (stream, _) = listener.accept().await?;
                open.spawn(async move { drop(stream) });
                // Ends of earlier connections, as in the server.
                while open.try_join_next().is_some() {}
            }
            Ok::<_, std::io::Error>(own_cpu().saturating_sub(before))
        })
    });
    let address = receiver.recv().map_err(|error| Failure::Server(error.to_string()))?;
    for _ in 0..CONNECTIONS {
        drop(std::net::TcpStream::connect(address)?);
    }
    let spent = accepting.join().map_err(|_| Failure::Server("the accepting thread panicked".to_owned()))??;
    Ok(micros(spent) / f64::from(CONNECTIONS))
}

/// CPU time of this thread.
fn own_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a round counts every watcher once. Method: the real runtime, one thread.
    #[test]
    fn a_round_reaches_all_watchers() {
        let round = rounds(1).unwrap();
        assert!(0.0 < round.wake && 0.0 < round.all_millis);
        assert!((0.0..=1.0).contains(&round.elsewhere), "{round:?}");
    }

    #[test]
    fn sections_have_a_cost() {
        assert!(0.0 < idle_step(1) && 0.0 < batch_step() && 0.0 < accept().unwrap());
    }
}
