//! Writers, raw watches, informers, broken connections, refusals, and stopped and restarted servers, all at once. Every
//! list, watch and copy is compared with the one history that an undisturbed watch saw.
//!
//! `HISTORY_SECONDS` is the duration; one seed, printed and taken from `HISTORY_SEED`, determines the actions.
//! INVARIANT: a violation's message has everything needed to understand it; a fault excuses no violation.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

pub(crate) mod copies;
pub(crate) mod proxy;
pub(crate) mod truth;
pub(crate) mod watchers;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use copies::Copy;
use fastrand::Rng;
use informer_core::wire::watch_event::EventKind;
use proxy::Line;
use tests::{
    http::{Client, MERGE_PATCH, Step, resource_version},
    objects::{Object, configmap},
    process::Server,
};
use tokio::{sync::mpsc, task::JoinSet, time::sleep};
use truth::{Content, Epoch, State};
use watchers::{APPS, Begin, NAMES, NAMESPACES, Segment, Watcher};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const CONFIGMAPS: &str = "/api/v1/configmaps";

/// Lifetime of one server.
const ROUND: Duration = Duration::from_secs(20);

/// Number of servers between two convergence checks.
const ROUNDS_TO_CALM: usize = 4;

/// Without faults every copy equals the server after this time. Delays grow to 30 s, and jitter doubles them.
const CONVERGES: Duration = Duration::from_secs(180);

const PROXIES: usize = 8;

/// The position, key and content of an acknowledged write.
struct Acknowledged {
    at: u64,
    key: String,
    content: Content,
}

/// Number of participants of each kind.
struct Cast {
    writers: usize,
    watchers: usize,
    copies: usize,
}

/// State of the run.
struct Run {
    rng: Rng,
    lines: Vec<Arc<Line>>,
    servers: Arc<AtomicUsize>,
    segments: mpsc::UnboundedReceiver<Segment>,
    copies: Vec<Copy>,
    /// The watchers, which never end.
    tasks: JoinSet<()>,
    /// The history of each server. `None` if the undisturbed watch was too slow for a small window.
    epochs: Vec<Option<Epoch>>,
    checked: Checked,
}

#[derive(Debug, Default)]
struct Checked {
    writes: usize,
    segments: usize,
    events: usize,
    bookmarks: usize,
    states: usize,
    samples: usize,
    blind: usize,
    slowest: Duration,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_client_sees_one_history_under_faults() {
    let seconds = std::env::var("HISTORY_SECONDS").ok().map(|text| text.parse().expect("seconds"));
    let seed = std::env::var("HISTORY_SEED").map_or_else(|_| fastrand::u64(..), |text| text.parse().expect("a seed"));
    let cast = match seconds {
        Some(_) => Cast { writers: 16, watchers: 200, copies: 24 },
        None => Cast { writers: 4, watchers: 20, copies: 8 },
    };
    println!("HISTORY_SEED={seed}");
    let folder = tempfile::tempdir().unwrap();
    let deadline = Instant::now() + Duration::from_secs(seconds.unwrap_or(5));
    let mut run = Run::new(seed, &cast, folder.path()).await;
    let mut rounds = 0;
    while rounds == 0 || Instant::now() < deadline {
        let storm = ROUND.min(deadline.saturating_duration_since(Instant::now())).max(Duration::from_secs(3));
        rounds += 1;
        let last = Instant::now() + storm >= deadline;
        run.round(&cast, rounds, storm, last || rounds % ROUNDS_TO_CALM == 0).await;
        println!("{rounds} servers: {:?}", run.checked);
    }
    let broken: usize = run.lines.iter().map(|line| line.broken.load(Ordering::Relaxed)).sum();
    println!("{rounds} servers, {broken} connections broken or refused: {:?}", run.checked);
    assert!(run.checked.blind * 5 <= rounds, "{} of {rounds} servers were not understood", run.checked.blind);
    assert!(run.checked.events > 0 && run.checked.samples > 0 && broken > 0, "{:?}", run.checked);
}

impl Run {
    async fn new(seed: u64, cast: &Cast, checkpoints: &std::path::Path) -> Self {
        let mut rng = Rng::with_seed(seed);
        // No server listens on this address before the first round.
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let (mut lines, mut addresses) = (Vec::new(), Vec::new());
        for _ in 0..PROXIES {
            let line = Line::new(nowhere);
            addresses.push(line.listen(rng.u64(..)).await);
            lines.push(line);
        }
        let servers = Arc::new(AtomicUsize::new(0));
        let (sender, segments) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for index in 0..cast.watchers {
            let (servers, segments) = (Arc::clone(&servers), sender.clone());
            let client = Client::new(addresses[index % PROXIES]);
            let watcher = Watcher { client, rng: rng.fork(), servers, segments };
            tasks.spawn(watcher.run());
        }
        let copies = (0..cast.copies)
            .map(|index| Copy::start(index, &[addresses[index % PROXIES]], None, checkpoints, &mut rng))
            .collect();
        Self { rng, lines, servers, segments, copies, tasks, epochs: Vec::new(), checked: Checked::default() }
    }

    /// Runs one server from start to end.
    async fn round(&mut self, cast: &Cast, round: usize, storm: Duration, calm: bool) {
        // The first window holds every event, so that the shortest run has a known history.
        let window = if round == 1 { "64MiB" } else { self.rng.choice(["512KiB", "2MiB", "64MiB"]).unwrap() };
        let server = Server::start(BINARY, &["--window-bytes", window]).await;
        let client = server.client();
        let start = client.get(CONFIGMAPS).await.with_code(200).resource_version();
        let highest = self.epochs.last().and_then(Option::as_ref).map_or(0, Epoch::last);
        assert!(start > highest, "server {round} starts at {start}, below {highest} of the one before");
        let oracle = tokio::spawn(undisturbed(client, start));
        // Count the server before connections reach it: watchers use the count to attribute a response.
        self.servers.fetch_add(1, Ordering::SeqCst);
        for line in &self.lines {
            line.lead_to(server.address());
            line.calm.store(false, Ordering::Relaxed);
        }
        let (acknowledged, deletions) = self.storm(cast, &server, round, storm).await;
        for line in &self.lines {
            line.calm.store(true, Ordering::Relaxed);
        }
        let end = client.get(CONFIGMAPS).await.with_code(200).resource_version();
        STOP_AT.store(usize::try_from(end).unwrap(), Ordering::SeqCst);
        let epoch = oracle.await.unwrap();
        STOP_AT.store(0, Ordering::SeqCst);
        if let Some(epoch) = &epoch {
            assert_eq!(epoch.len(), acknowledged.len() + deletions, "each acknowledged write is one change");
            for write in &acknowledged {
                assert_eq!(epoch.written(write.at), Some((&*write.key, &write.content)), "the write at {}", write.at);
            }
            self.checked.writes += epoch.len();
        } else {
            self.checked.blind += 1;
        }
        if calm {
            self.converge(&client, end).await;
        }
        self.epochs.push(epoch);
        self.check();
        drop(server);
    }

    /// Runs the writers, and pauses the server at random.
    async fn storm(
        &mut self,
        cast: &Cast,
        server: &Server,
        round: usize,
        storm: Duration,
    ) -> (Vec<Acknowledged>, usize) {
        let stop = Arc::new(AtomicBool::new(false));
        let mut writers = JoinSet::new();
        for index in 0..cast.writers {
            let name = format!("{round}-{index}");
            writers.spawn(write(server.client(), name, self.rng.fork(), Arc::clone(&stop)));
        }
        let until = Instant::now() + storm;
        while Instant::now() < until {
            sleep(Duration::from_millis(self.rng.u64(200..3_000)).min(until - Instant::now())).await;
            if self.rng.bool() {
                server.signal("STOP");
                sleep(Duration::from_millis(self.rng.u64(50..1_500))).await;
                server.signal("CONT");
            }
        }
        stop.store(true, Ordering::Relaxed);
        let (mut acknowledged, mut deletions) = (Vec::new(), 0);
        for (wrote, deleted) in writers.join_all().await {
            acknowledged.extend(wrote);
            deletions += deleted;
        }
        (acknowledged, deletions)
    }

    /// Waits until every copy equals the server's state.
    async fn converge(&mut self, client: &Client, end: u64) {
        let list = client.get(CONFIGMAPS).await.with_code(200).json();
        assert_eq!(resource_version(&list), end, "nobody writes");
        let state = watchers::state(&list);
        for copy in &self.copies {
            let took = copy.converges(&copy.selector.part_of(&state), CONVERGES).await;
            let took = took.unwrap_or_else(|story| panic!("does not converge: {story}"));
            self.checked.slowest = self.checked.slowest.max(took);
        }
    }

    /// Checks the segments and samples seen since the last call against the history.
    fn check(&mut self) {
        if let Some(ended) = self.tasks.try_join_next() {
            panic!("a watcher ended: {ended:?}");
        }
        while let Ok(segment) = self.segments.try_recv() {
            if let Err(violation) = self.check_segment(&segment) {
                panic!("{violation}\n{} of server {:?}", segment.asked, segment.server);
            }
            self.checked.segments += 1;
            self.checked.events += segment.events.len();
            self.checked.bookmarks += segment.bookmarks.len();
        }
        for copy in &self.copies {
            for (at, state) in copy.samples() {
                let Some((_, Some(epoch))) = self.epoch(at) else { continue };
                let expected = epoch.state(&copy.selector, at);
                assert_eq!(state, expected, "{}: the state at {at}", copy.name);
                self.checked.samples += 1;
            }
        }
    }

    /// The server that issued this position, and its history.
    fn epoch(&self, at: u64) -> Option<(usize, Option<&Epoch>)> {
        let index = (0..self.epochs.len()).rev().find(|&index| {
            // The start of a server without a known history is unknown too: any later position may be its own.
            self.epochs[index].as_ref().is_none_or(|epoch| epoch.start <= at)
        })?;
        Some((index, self.epochs[index].as_ref()))
    }

    fn check_segment(&mut self, segment: &Segment) -> Result<(), String> {
        let Some((index, Some(epoch))) = self.epoch(segment.after()) else { return Ok(()) };
        if segment.server.is_some_and(|server| server != index + 1) {
            return Err(format!("a position of server {} was taken by another one", index + 1));
        }
        segment.check(epoch)?;
        self.checked.states += usize::from(matches!(segment.begin, Begin::At { .. }));
        Ok(())
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(patience: Duration, what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < patience, "waited in vain: {what}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Position at which the undisturbed watch ends; 0 while it continues.
static STOP_AT: AtomicUsize = AtomicUsize::new(0);

/// Watches all events, without a proxy, up to [`STOP_AT`]. `None` if the server evicted unread events from its window.
async fn undisturbed(client: Client, start: u64) -> Option<Epoch> {
    let (mut epoch, mut position) = (Epoch::new(start, State::new()), start);
    loop {
        let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={position}&allowWatchBookmarks=true");
        let mut watch = client.try_watch(&path).await.ok()?;
        loop {
            let stop = STOP_AT.load(Ordering::SeqCst) as u64;
            if stop > 0 && position >= stop {
                return Some(epoch);
            }
            match watch.step(Duration::from_millis(200)).await {
                Step::Event(event) if event.kind == EventKind::Error => return None,
                Step::Event(event) => {
                    position = event.resource_version();
                    if let Some(seen) = watchers::seen(&event) {
                        epoch.take(seen).unwrap_or_else(|story| panic!("the undisturbed watch: {story}"));
                    }
                }
                Step::Silence => {}
                Step::End | Step::Cut(_) => break,
            }
        }
    }
}

/// Writes until `stop`. Returns the acknowledged writes and the number of deletions.
async fn write(client: Client, name: String, mut rng: Rng, stop: Arc<AtomicBool>) -> (Vec<Acknowledged>, usize) {
    let (mut acknowledged, mut deletions, mut count) = (Vec::new(), 0, 0);
    while !stop.load(Ordering::Relaxed) {
        count += 1;
        let content = Content { app: format!("a{}", rng.usize(0..APPS)), value: format!("{name}-{count}") };
        let (namespace, object) = (rng.usize(0..NAMESPACES), rng.usize(0..NAMES));
        let wanted = named(namespace, object, &content);
        let answer = match rng.u8(0..10) {
            0..4 => client.put(&wanted.path(), wanted.body()).await,
            4..7 => client.post(&wanted.collection(), wanted.body()).await,
            7..9 => client.patch(&wanted.path(), MERGE_PATCH, wanted.body()).await,
            _ => client.delete(&wanted.path()).await,
        };
        match (answer.code.as_u16(), answer.asked.starts_with("DELETE")) {
            (200, true) => deletions += 1,
            (200 | 201, false) => {
                let key = format!("ns{namespace}/n{object}");
                acknowledged.push(Acknowledged { at: answer.resource_version(), key, content });
            }
            (404 | 409, _) => {}
            (code, _) => panic!("{}: {code} {}", answer.asked, answer.text()),
        }
        sleep(Duration::from_millis(rng.u64(0..400))).await;
    }
    (acknowledged, deletions)
}

pub(crate) fn named(namespace: usize, name: usize, content: &Content) -> Object {
    let object = configmap(&format!("n{name}")).namespace(&format!("ns{namespace}"));
    object.label("app", &content.app).data(&content.value)
}
