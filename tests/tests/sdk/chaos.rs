//! Three cache-servers on one storage, under faults of everything: of them (kill -9, SIGTERM, SIGSTOP, jumps of the
//! clock), of the storage (also compaction), of the network between both, and of each client's connections. Lists,
//! watches, copies and writes are compared with the storage's own history all the time; after each storm every copy
//! must equal the storage.
//!
//! `CHAOS_SECONDS=3600 cargo test --release --workspace --test sdk chaos -- --nocapture` is a long run. `CHAOS_SEED`
//! repeats a schedule; processes and sockets have their own.
//!
//! INVARIANT: no fault excuses a violation, only errors and delays.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod clock;
mod storage;
mod writers;

use std::{
    collections::{HashMap, HashSet},
    env,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use fastrand::Rng;
use tests::{
    http::{Client, with_query},
    process::Server,
    relay::Relay,
};
use tokio::{sync::mpsc, task::JoinSet, time::sleep};

use super::history::{
    self,
    copies::Copy,
    proxy::Line,
    truth::{Epoch, Selector, State},
    watchers::{self, Begin, Segment, Watcher},
};
use clock::Clocks;
use storage::{Storage, StorageFault};
use writers::{Shared, Writer, WriterLog};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const MAPS: &str = "/api/v1/configmaps";
const SERVERS: usize = 3;
/// Proxies with faults before each server.
const LINES: usize = 3;
/// Without faults every copy equals the storage after this time. Delays grow to 30 s, and jitter doubles them.
const CONVERGES: Duration = Duration::from_secs(180);
/// Timeout of every other step.
const PATIENCE: Duration = Duration::from_secs(90);
/// Storms of a run that has not seen everything.
const ROUNDS_MAX: usize = 10;
/// Longest time, in seconds, between two readings of a clock; slower ones are repeated.
const READING_MAX: u64 = 2;
/// Faults that a failure prints.
const PRINTED: usize = 30;

/// Size of a run.
struct Plan {
    seed: u64,
    length: Duration,
    /// Time with faults before each calm.
    storm: Duration,
    /// Longest duration of a fault.
    fault: Duration,
    members: usize,
    writers: usize,
    watchers: usize,
    copies: usize,
}

impl Plan {
    fn new() -> Self {
        let seed = env::var("CHAOS_SEED").map_or_else(|_| fastrand::u64(..), |text| text.parse().expect("a seed"));
        eprintln!("CHAOS_SEED={seed}");
        match env::var("CHAOS_SECONDS") {
            Ok(seconds) => {
                let [length, storm, fault] = [seconds.parse().expect("seconds"), 40, 6].map(Duration::from_secs);
                Self { seed, length, storm, fault, members: 3, writers: 8, watchers: 60, copies: 18 }
            }
            Err(_) => {
                let [length, storm, fault] = [1, 4, 1].map(Duration::from_secs);
                Self { seed, length, storm, fault, members: 1, writers: 3, watchers: 9, copies: 6 }
            }
        }
    }
}

/// A cache-server, and the network around it.
struct Replica {
    flags: Vec<String>,
    environment: [(&'static str, String); 2],
    /// `None` while it is away.
    server: Option<Server>,
    to_storage: Vec<Relay>,
    /// Proxies with faults, and one without that writers use.
    lines: Vec<Arc<Line>>,
    door: Arc<Line>,
    client: Client,
}

/// A fault, until it is healed.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A signal that ends a server: it is then started again.
    Ended(usize, &'static str),
    Stopped(usize),
    /// Its wall clock jumps.
    Jumped(usize),
    /// Between a server and the storage: no byte passes, all connections are reset once, or reset and refused.
    Silent(usize),
    Cut(usize),
    Parted(usize),
    Storage(StorageFault),
}

#[derive(Debug, Default)]
struct Checked {
    faults: usize,
    changes: usize,
    acknowledged: usize,
    deleted: usize,
    unknown: usize,
    consistent_lists: usize,
    single_reads: usize,
    segments: usize,
    events: usize,
    bookmarks: usize,
    states: usize,
    samples: usize,
    slowest: Duration,
}

/// State of a run.
struct Run {
    plan: Plan,
    rng: Rng,
    storage: Storage,
    clocks: Clocks,
    replicas: Vec<Replica>,
    tasks: JoinSet<()>,
    segments: mpsc::UnboundedReceiver<Segment>,
    copies: Vec<Copy>,
    /// Position of each copy's last sample.
    sampled: Vec<u64>,
    epoch: Epoch,
    /// Position up to which the history is known.
    known: u64,
    /// Positions of all contents.
    contents: HashMap<String, u64>,
    /// Uids of all objects whose deletion was acknowledged.
    deleted: HashSet<String>,
    faults: Vec<String>,
    checked: Checked,
    begun: Instant,
}

/// Goal: clients of several servers on one etcd see its one history, whatever fails. Method: the run that the module
/// describes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_copy_equals_etcd_after_every_storm() {
    let plan = Plan::new();
    let Some(storage) = Storage::etcd("chaos over etcd", plan.members).await else { return };
    Run::start(plan, storage).await.run().await;
}

/// Like [`every_copy_equals_etcd_after_every_storm`], with servers in front of a stock kube-apiserver, which save their
/// states.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_copy_equals_an_api_server_after_every_storm() {
    let plan = Plan::new();
    let Some(storage) = Storage::apiserver("chaos before an API server").await else { return };
    Run::start(plan, storage).await.run().await;
}

impl Replica {
    async fn start(storage: &Storage, environment: [(&'static str, String); 2], number: usize) -> Self {
        let mut to_storage = Vec::new();
        for address in storage.addresses() {
            to_storage.push(Relay::start(address).await);
        }
        // It has no address before the server begins.
        let line = || Line::new(SocketAddr::from(([127, 0, 0, 1], 1)));
        let door = line();
        door.calm.store(true, Ordering::Relaxed);
        let client = storage.client(door.listen(0).await);
        let flags = storage.flags(number, &to_storage);
        let lines = (0..LINES).map(|_| line()).collect();
        let mut replica = Self { flags, environment, lines, server: None, to_storage, door, client };
        replica.begin().await;
        replica
    }

    async fn begin(&mut self) {
        let environment: Vec<_> = self.environment.iter().map(|(name, value)| (*name, &**value)).collect();
        let flags: Vec<_> = self.flags.iter().map(String::as_str).collect();
        let server = Server::start_with(BINARY, &environment, &flags).await;
        self.lines.iter().chain([&self.door]).for_each(|line| line.lead_to(server.address()));
        self.server = Some(server);
    }

    async fn end(&mut self, signal: &str) {
        let server = self.server.take().expect("runs");
        server.signal(signal);
        server.ended().await;
    }

    /// The time of its clock, in the head of a watch; `None` while it serves none.
    async fn time(&self) -> Option<i64> {
        let watch = self.client.try_watch(&with_query(MAPS, &[("watch", "1"), ("resourceVersion", "0")])).await.ok()?;
        (watch.code() == 200).then(|| clock::seconds(httpdate::parse_http_date(watch.header("date")).unwrap()))
    }

    fn signal(&self, name: &str) {
        self.server.as_ref().expect("runs").signal(name);
    }
}

impl Run {
    async fn start(plan: Plan, storage: Storage) -> Self {
        let mut rng = Rng::with_seed(plan.seed);
        let (clocks, mut replicas) = (Clocks::build(), Vec::new());
        for number in 0..SERVERS {
            let environment = clocks.environment(number, &mut rng);
            replicas.push(Replica::start(&storage, environment, number).await);
        }
        let known = storage.keys().revision().await;
        let epoch = Epoch::new(known, storage.state().await);
        let mut addresses = Vec::new();
        for number in 0..SERVERS * LINES {
            addresses.push(replicas[number % SERVERS].lines[number / SERVERS].listen(rng.u64(..)).await);
        }
        let (sender, segments) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for index in 0..plan.watchers {
            let (servers, segments) = (Arc::new(AtomicUsize::new(0)), sender.clone());
            let client = storage.client(addresses[index % addresses.len()]);
            tasks.spawn(Watcher { client, rng: rng.fork(), servers, segments }.run());
        }
        let checkpoints = tempfile::tempdir().unwrap();
        let copies = (0..plan.copies).map(|index| {
            // Each prefers another server. Half of them know the others, too.
            addresses.rotate_left(1);
            let known = if index.is_multiple_of(2) { SERVERS } else { 1 };
            Copy::start(index, &addresses[..known], storage.token().as_deref(), checkpoints.path(), &mut rng)
        });
        let copies: Vec<_> = copies.collect();
        tasks.spawn(async move {
            let _kept = checkpoints;
            std::future::pending::<()>().await
        });
        let sampled = vec![0; copies.len()];
        let (contents, deleted, faults, checked) = Default::default();
        let begun = Instant::now();
        Self {
            plan,
            rng,
            storage,
            clocks,
            replicas,
            tasks,
            segments,
            copies,
            sampled,
            epoch,
            known,
            contents,
            deleted,
            faults,
            checked,
            begun,
        }
    }

    async fn run(mut self) {
        let mut round = 0;
        // On a busy machine a short storm may pass without an event.
        while self.begun.elapsed() < self.plan.length || !self.has_everything() && round < ROUNDS_MAX {
            round += 1;
            self.storm(round).await;
            self.calm().await;
            eprintln!("{round} storms: {:?}", self.checked);
        }
        eprintln!("{round} storms, {} connections broken or refused: {:?}", self.broken(), self.checked);
        assert!(self.has_everything(), "{:?}", self.checked);
    }

    /// Connections that proxies broke or refused.
    fn broken(&self) -> usize {
        let lines = self.replicas.iter().flat_map(|replica| &replica.lines);
        lines.map(|line| line.broken.load(Ordering::Relaxed)).sum()
    }

    fn has_everything(&self) -> bool {
        let Checked { faults, acknowledged, events, samples, .. } = self.checked;
        [faults, acknowledged, events, samples, self.broken()].iter().all(|&count| count > 0)
    }

    /// Runs writers and faults, and checks after each fault.
    async fn storm(&mut self, round: usize) {
        for line in self.replicas.iter().flat_map(|replica| &replica.lines) {
            line.calm.store(false, Ordering::Relaxed);
        }
        let shared = Arc::new(Shared::default());
        let mut writers = JoinSet::new();
        let reading: Vec<Client> = self.replicas.iter().map(|replica| replica.client).collect();
        for index in 0..self.plan.writers {
            let writer = Writer {
                name: format!("{round}-{index}"),
                rng: self.rng.fork(),
                writing: self.storage.writing(reading.clone()),
                reading: reading.clone(),
                shared: Arc::clone(&shared),
                pause: Duration::from_millis(100),
            };
            writers.spawn(writer.run());
        }
        let begun = Instant::now();
        while begun.elapsed() < self.plan.storm {
            sleep(self.short(0.3)).await;
            let faults = self.draw();
            self.suffer(&faults).await;
            self.check(&shared).await;
            assert!(writers.try_join_next().is_none(), "a writer ended: {:?}", self.last_faults());
        }
        shared.is_over.store(true, Ordering::Relaxed);
        writers.join_all().await;
        self.check(&shared).await;
    }

    /// A random part of the longest duration of a fault.
    fn short(&mut self, part: f64) -> Duration {
        self.plan.fault.mul_f64(part * self.rng.f64())
    }

    /// One fault, or two that differ.
    fn draw(&mut self) -> Vec<Fault> {
        let server = self.rng.usize(0..SERVERS);
        let of_server = match self.rng.u8(0..7) {
            0 => Fault::Ended(server, "KILL"),
            1 => Fault::Ended(server, "TERM"),
            2 => Fault::Stopped(server),
            3 => Fault::Silent(server),
            4 => Fault::Cut(server),
            5 => Fault::Jumped(server),
            _ => Fault::Parted(server),
        };
        let of_storage = Fault::Storage(self.storage.draw(&mut self.rng));
        match self.rng.u8(0..4) {
            0 => vec![of_storage],
            1 => vec![of_storage, of_server],
            _ => vec![of_server],
        }
    }

    /// Lets faults happen, last for some time, and end: those of the storage first, because a start of a server needs
    /// it.
    async fn suffer(&mut self, faults: &[Fault]) {
        self.checked.faults += faults.len();
        self.faults.push(format!("{:.1} s: {faults:?} after {}", self.begun.elapsed().as_secs_f64(), self.known));
        for fault in faults {
            match *fault {
                Fault::Ended(server, signal) => self.replicas[server].end(signal).await,
                Fault::Stopped(server) => self.replicas[server].signal("STOP"),
                Fault::Jumped(server) => self.clocks.jump(server, &mut self.rng),
                Fault::Silent(server) => self.replicas[server].to_storage.iter().for_each(Relay::silence),
                Fault::Cut(server) => self.replicas[server].to_storage.iter().for_each(Relay::cut),
                Fault::Parted(server) => self.replicas[server].to_storage.iter().for_each(Relay::part),
                Fault::Storage(fault) => self.storage.strike(fault, self.known).await,
            }
        }
        sleep(self.short(1.0)).await;
        for fault in faults {
            match *fault {
                Fault::Ended(server, _) => self.replicas[server].begin().await,
                Fault::Stopped(server) => self.replicas[server].signal("CONT"),
                Fault::Silent(server) | Fault::Parted(server) => {
                    self.replicas[server].to_storage.iter().for_each(Relay::rejoin);
                }
                // The clock stays wrong until it jumps again.
                Fault::Cut(_) | Fault::Jumped(_) => {}
                Fault::Storage(fault) => {
                    self.storage.heal(fault).await;
                    history::until(PATIENCE, "the storage answers", async || self.storage.answers().await).await;
                }
            }
        }
    }

    fn last_faults(&self) -> &[String] {
        &self.faults[self.faults.len().saturating_sub(PRINTED)..]
    }

    /// Compares everything that was seen since the last call with the storage's history.
    async fn check(&mut self, shared: &Shared) {
        let log = std::mem::take(&mut *shared.log.lock().unwrap());
        let segments: Vec<_> = std::iter::from_fn(|| self.segments.try_recv().ok()).collect();
        let samples: Vec<_> = self.copies.iter().map(Copy::samples).collect();
        if let Some(ended) = self.tasks.try_join_next() {
            panic!("a watcher ended: {ended:?}");
        }
        // Only now, so that the history has all of that.
        let (before, count) = (self.known, self.epoch.len());
        self.known = self.storage.tell(&mut self.epoch, before).await;
        self.checked.changes += self.epoch.len() - count;
        let existing = self.storage.uids().await;
        let compared = self.compare(before, &log, &segments, &samples);
        if let Err(violation) = compared.and_then(|()| self.check_deletions(log.deleted, &existing)) {
            panic!("{violation}\nCHAOS_SEED={}, {:#?}", self.plan.seed, self.last_faults());
        }
    }

    fn compare(
        &mut self,
        before: u64,
        log: &WriterLog,
        segments: &[Segment],
        samples: &[Vec<(u64, State)>],
    ) -> Result<(), String> {
        self.check_contents(before)?;
        self.check_writers(log)?;
        for segment in segments {
            self.check_segment(segment)?;
        }
        for (copy, samples) in samples.iter().enumerate() {
            self.check_samples(copy, samples)?;
        }
        Ok(())
    }

    /// Each content is of one write of a writer: no write happens twice.
    fn check_contents(&mut self, after: u64) -> Result<(), String> {
        for (at, content) in self.epoch.contents(after) {
            if let Some(first) = self.contents.insert(content.value.clone(), at) {
                return Err(format!("the write of {content:?} happened at {first} and again at {at}"));
            }
        }
        Ok(())
    }

    /// Acknowledged writes happened, and consistent reads show a state that is not older than they are.
    fn check_writers(&mut self, log: &WriterLog) -> Result<(), String> {
        for write in &log.acknowledged {
            let found = self.epoch.written(write.at);
            if found != Some((&*write.key, &write.content)) {
                return Err(format!("{} {:?} was acknowledged at {}: {found:?}", write.key, write.content, write.at));
            }
        }
        for read in &log.reads {
            if !self.epoch.versions(&read.key, read.floor).any(|version| version == read.found) {
                return Err(format!("a stale read: {read:?}"));
            }
        }
        self.checked.acknowledged += log.acknowledged.len();
        self.checked.unknown += log.unknown;
        self.checked.consistent_lists += log.lists;
        self.checked.single_reads += log.reads.len();
        Ok(())
    }

    /// Objects whose deletion was acknowledged do not exist. Copies have none either, as they equal the storage.
    fn check_deletions(&mut self, deleted: Vec<String>, existing: &HashSet<String>) -> Result<(), String> {
        self.checked.deleted += deleted.len();
        self.deleted.extend(deleted);
        let exists = self.deleted.intersection(existing).next();
        exists.map_or(Ok(()), |uid| Err(format!("the deletion of {uid} was acknowledged, and it exists")))
    }

    fn check_segment(&mut self, segment: &Segment) -> Result<(), String> {
        let last = segment.bookmarks.last().map_or_else(|| segment.after(), |(_, mark)| *mark);
        if last > self.known {
            return Err(format!("{}: a position of {last}, and the storage is at {}", segment.asked, self.known));
        }
        segment.check(&self.epoch).map_err(|violation| format!("{violation}\n{}", segment.asked))?;
        self.checked.segments += 1;
        self.checked.states += usize::from(matches!(segment.begin, Begin::At { .. }));
        self.checked.events += segment.events.len();
        self.checked.bookmarks += segment.bookmarks.len();
        Ok(())
    }

    /// The states of a copy are those of the storage, and do not go back.
    fn check_samples(&mut self, copy: usize, samples: &[(u64, State)]) -> Result<(), String> {
        let (Copy { name, selector, .. }, before) = (&self.copies[copy], &mut self.sampled[copy]);
        for (at, state) in samples {
            if at < before {
                return Err(format!("{name}: at {at} after {before}"));
            }
            *before = *at;
            let expected = self.epoch.state(selector, *at);
            if *state != expected {
                return Err(format!("{name}: the state at {at} is {state:?}, not {expected:?}"));
            }
            self.checked.samples += 1;
        }
        Ok(())
    }

    /// Waits without faults and writers until every server and every copy equals the storage. Each server then has the
    /// clock that its jumps lead to.
    async fn calm(&mut self) {
        for line in self.replicas.iter().flat_map(|replica| &replica.lines) {
            line.calm.store(true, Ordering::Relaxed);
        }
        let state = self.storage.state().await;
        assert_eq!(self.epoch.state(&Selector::default(), self.known), state, "the history leads to the state");
        for (number, replica) in self.replicas.iter().enumerate() {
            let what = format!("server {number} equals the storage, after {:#?}", self.last_faults());
            history::until(PATIENCE, &what, async || {
                let Ok(answer) = replica.client.try_get(MAPS).await else { return false };
                answer.code == 200 && watchers::state(&answer.json()) == state
            })
            .await;
            history::until(PATIENCE, &format!("server {number} has its own clock"), async || {
                let time = replica.time().await;
                time.is_some_and(|time| time.abs_diff(self.clocks.now(number)) <= READING_MAX)
            })
            .await;
        }
        for copy in &self.copies {
            let took = copy.converges(&self.epoch.state(&copy.selector, self.known), CONVERGES).await;
            let took = took.unwrap_or_else(|story| {
                panic!("does not converge: {story}\nCHAOS_SEED={}, {:#?}", self.plan.seed, self.last_faults())
            });
            self.checked.slowest = self.checked.slowest.max(took);
        }
    }
}
