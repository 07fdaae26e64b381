//! A simulated program in one thread: components share copies of pods over HTTP/2 in memory, from endpoints whose
//! connections break, fall silent, end by GOAWAY, or lead to another server.
//!
//! `SEEDS=2000 cargo test -p informer --features testing --lib world` runs more worlds; `SEED=17` repeats one and
//! prints its events.
//!
//! INVARIANT: the seed determines every run; time is virtual. The history in `truth` is what every state, every event
//! and every `explain` must agree with.

mod component;
mod experiments;
mod network;
mod quiet;
mod tap;
mod truth;

use std::{env, fmt, time::Duration};

use fastrand::Rng;
use k8s_openapi::api::core::v1::Pod;
use tokio::{
    runtime::Builder,
    time::{Instant, sleep},
};

use self::{
    component::Component,
    network::PipeEndpoint,
    tap::RequestTap,
    truth::{NAMESPACES, PodHistory, PodQuestion},
};
use crate::{Cluster, InformerBuilder, index, testing::FakeApiServer};

/// Number of worlds in an ordinary run.
const SEEDS: u64 = 25;

/// Storms of a world. After each one it is quiet, and then an experiment follows.
const STORMS: usize = 3;
const STORM_STEPS: usize = 40;

/// Most components that run at the same time.
const COMPONENTS_MAX: usize = 8;

/// Capacities of subscribers of each change: one that falls behind, and one that does not.
const CAPACITIES: [usize; 2] = [2, 4_096];

/// Lifetime of watches in worlds where only faults end them, in seconds.
const LONG_LIVED: u32 = 7 * 86_400;

/// A violated guarantee, and the observation that violates it.
#[derive(Debug)]
struct BrokenGuarantee(String);

fn ensure(holds: bool, guarantee: &'static str, seen: impl FnOnce() -> String) -> Result<(), BrokenGuarantee> {
    if holds { Ok(()) } else { Err(BrokenGuarantee(format!("{guarantee}: {}", seen()))) }
}

impl BrokenGuarantee {
    /// Names the component that saw it.
    fn of(self, component: &Component) -> Self {
        let (number, question) = (component.number, component.question);
        Self(format!("component {number} {question}: {}, {}", self.0, component.pods.explain()))
    }
}

/// The program, its network and its servers.
struct ProgramWorld {
    rng: Rng,
    began: Instant,
    truth: PodHistory,
    /// In order of preference; all servers have one history.
    endpoints: Vec<PipeEndpoint>,
    tap: RequestTap,
    cluster: Cluster,
    grace: Duration,
    relists_at_once: usize,
    /// True if only faults end watches.
    is_long_lived: bool,
    /// True if this world makes positions expire.
    expires: bool,
    /// Times that positions expired.
    expirations: u64,
    /// True if a position has expired since the last quiet point.
    may_relist: bool,
    /// Faults that may end, or fill, a connection.
    disturbances: usize,
    components: Vec<Component>,
    started: usize,
    /// Questions of components that read by watches of their own.
    on_their_own: Vec<PodQuestion>,
    trace: Vec<String>,
}

/// Sums over worlds, to show that the storms reach everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct WorldCounts {
    filtered: u64,
    merged: u64,
    resumes: u64,
    moves: u64,
    expired: u64,
    connections: u64,
    resets: u64,
    requests: u64,
}

impl ProgramWorld {
    fn new(seed: u64) -> Self {
        // The SDK draws its delays from this generator.
        fastrand::seed(seed);
        let mut rng = Rng::with_seed(seed);
        let first = FakeApiServer::new().at(41);
        let (is_marking, bookmarks) = (rng.bool(), Duration::from_secs([5, 60][rng.usize(..2)]));
        let configured = |server: FakeApiServer| {
            let server = server.bookmarks_every(bookmarks);
            if is_marking { server.mark_initial_events(2) } else { server }
        };
        let tap = RequestTap::default();
        let endpoint = |_| PipeEndpoint::new((0..2).map(|_| configured(first.replica())).collect());
        let endpoints: Vec<PipeEndpoint> = (0..rng.usize(1..3)).map(endpoint).collect();
        let mut connections =
            endpoints.iter().enumerate().map(|(at, endpoint)| tap.connection(at, endpoint.connection()));
        let grace = Duration::from_secs([0, 5, 30][rng.usize(..3)]);
        let relists_at_once = rng.usize(1..4);
        let builder = Cluster::builder(connections.next().expect("at least one"));
        let builder = connections.fold(builder, crate::ClusterBuilder::fallback);
        let cluster = builder.shared_grace(grace).relists_at_once(relists_at_once).build();
        Self {
            truth: PodHistory::new(first),
            began: Instant::now(),
            endpoints,
            tap,
            cluster,
            grace,
            relists_at_once,
            is_long_lived: rng.bool(),
            expires: rng.u8(..3) == 0,
            expirations: 0,
            may_relist: false,
            disturbances: 0,
            components: Vec::new(),
            started: 0,
            on_their_own: Vec::new(),
            trace: Vec::new(),
            rng,
        }
    }

    async fn live(&mut self) -> Result<WorldCounts, BrokenGuarantee> {
        let mut counts = WorldCounts::default();
        for _ in 0..STORMS {
            self.storm().await?;
            self.calm().await?;
            self.count(&mut counts);
            self.experiment().await?;
            self.calm().await?;
        }
        self.count(&mut counts);
        self.end().await?;
        Ok(counts)
    }

    /// Components that come, read and go, writes, and faults.
    async fn storm(&mut self) -> Result<(), BrokenGuarantee> {
        for _ in 0..STORM_STEPS {
            match self.rng.u8(..32) {
                0..9 => {
                    for _ in 0..self.rng.u8(1..4) {
                        let written = self.truth.write(&mut self.rng);
                        self.note(written);
                    }
                }
                9..12 => {
                    let question = PodQuestion::draw(&mut self.rng);
                    self.start(question)?;
                }
                12 => self.leave().await?,
                13..15 => self.subscribe(),
                15..19 => self.read(3)?,
                19.. => self.disturb(),
            }
            let pause = [0, 5, 200, 2_000, 20_000, 120_000][self.rng.usize(..6)];
            sleep(Duration::from_millis(self.rng.u64(..=pause))).await;
            self.check_states()?;
        }
        Ok(())
    }

    fn note(&mut self, text: impl Into<String>) {
        self.trace.push(format!("{:9.3} {}", self.began.elapsed().as_secs_f64(), text.into()));
    }

    /// Starts a component, unless there are enough.
    fn start(&mut self, question: PodQuestion) -> Result<(), BrokenGuarantee> {
        if self.components.len() >= COMPONENTS_MAX {
            return Ok(());
        }
        let is_long_lived = self.is_long_lived;
        let mut declared = self.declared(&question, question.labels);
        let from_wider = self.rng.u8(..4) > 0;
        let by_node = (self.rng.u8(..4) == 0).then(|| declared.index(index::node));
        if !from_wider {
            self.on_their_own.push(question);
        }
        let declared = declared.from_wider(from_wider).config(|config| {
            if is_long_lived {
                config.watch_timeout_seconds = LONG_LIVED..=LONG_LIVED;
            }
        });
        let pods = declared.start_shared().map_err(|error| BrokenGuarantee(format!("a valid declaration: {error}")))?;
        self.started += 1;
        let mut component = Component::new(self.started, question, pods);
        (component.by_node, component.from_wider) = (by_node, from_wider);
        let indexed = if component.by_node.is_some() { ", indexed" } else { "" };
        self.note(format!("start {} {question}{indexed}, from wider: {from_wider}", self.started));
        self.components.push(component);
        if self.rng.bool() {
            self.subscribe_to(self.components.len() - 1);
        }
        Ok(())
    }

    /// Declares the pods of a question, by these labels.
    fn declared(&self, question: &PodQuestion, labels: &str) -> InformerBuilder<Pod> {
        let mut declared = self.cluster.informer::<Pod>().labels(labels).fields(question.fields());
        if let Some((namespace, labels)) = question.labels_apart() {
            declared = declared.namespace_labels(namespace, labels);
        }
        let namespaces = question.namespaces.iter().copied();
        if question.namespaces.is_empty() { declared } else { declared.namespaces(namespaces) }
    }

    /// Ends a component: by its drop, or by its shutdown, which must return.
    async fn leave(&mut self) -> Result<(), BrokenGuarantee> {
        if self.components.is_empty() {
            return Ok(());
        }
        let component = self.components.swap_remove(self.rng.usize(..self.components.len()));
        let shuts_down = self.rng.bool();
        self.note(format!("leave {}{}", component.number, if shuts_down { " by shutdown" } else { "" }));
        if shuts_down {
            let clone = component.pods.clone();
            let ended = component.pods.shutdown(Duration::ZERO).await;
            let has_ended = ended == Ok(crate::EndReason::ShutDown) && !clone.is_running();
            ensure(has_ended, "Lifecycle", || format!("shutdown: {ended:?}"))?;
        }
        Ok(())
    }

    fn subscribe(&mut self) {
        if !self.components.is_empty() {
            let at = self.rng.usize(..self.components.len());
            self.subscribe_to(at);
        }
    }

    fn subscribe_to(&mut self, at: usize) {
        let each = self.rng.u8(..3) > 0;
        let capacity = CAPACITIES[usize::from(self.rng.u8(..3) > 0)];
        let component = &mut self.components[at];
        if each {
            component.follow_each(capacity)
        } else {
            component.follow_latest()
        }
        let number = component.number;
        self.note(if each { format!("subscribe {number}, each of {capacity}") } else { format!("subscribe {number}") });
    }

    /// Reads waiting events of every subscriber.
    fn read(&mut self, count: usize) -> Result<(), BrokenGuarantee> {
        for component in &mut self.components {
            component.read(&self.truth, self.may_relist, count).map_err(|violation| violation.of(component))?;
        }
        Ok(())
    }

    fn check_states(&mut self) -> Result<(), BrokenGuarantee> {
        for component in &mut self.components {
            component.check_state(&self.truth).map_err(|violation| violation.of(component))?;
        }
        Ok(())
    }

    /// One fault of one endpoint or namespace, or the end of one.
    fn disturb(&mut self) {
        let at = self.rng.usize(..self.endpoints.len());
        let endpoint = self.endpoints[at].clone();
        let text = match self.rng.u8(..16) {
            fault @ (0..8 | 13) => self.disturb_connections(&endpoint, fault),
            fault => self.disturb_answers(endpoint.server(), fault),
        };
        self.disturbances += 1;
        self.note(format!("endpoint {at}: {text}"));
    }

    fn disturb_connections(&mut self, endpoint: &PipeEndpoint, fault: u8) -> String {
        let text = match fault {
            0 | 1 => {
                endpoint.server().go_away();
                "GOAWAY"
            }
            2 | 3 => {
                endpoint.cut();
                "cut"
            }
            4 | 5 => {
                endpoint.silence();
                "silence"
            }
            6 => {
                endpoint.lead_on();
                "another server"
            }
            7 => {
                let refuses = self.rng.bool();
                endpoint.refuse(refuses);
                return format!("refuse connections: {refuses}");
            }
            _ => {
                endpoint.refuse(true);
                endpoint.cut();
                "down"
            }
        };
        text.to_owned()
    }

    fn disturb_answers(&mut self, server: &FakeApiServer, fault: u8) -> String {
        let text = match fault {
            9 => {
                server.close_watches();
                "close watches"
            }
            10 => {
                server.break_next_body(self.rng.usize(..2_000));
                "break a body"
            }
            11 => {
                server.silence();
                "silent watches"
            }
            12 => {
                let namespace = NAMESPACES[self.rng.usize(..NAMESPACES.len())];
                self.tap.fail(namespace);
                return format!("fail namespace {namespace}");
            }
            8 => {
                let (count, code) = (self.rng.usize(1..4), [429, 500, 503, 504][self.rng.usize(..4)]);
                server.fail_next(count, code);
                return format!("fail {count} with {code}");
            }
            14 if self.expires => {
                let oldest = self.truth.version().saturating_sub(self.rng.u64(..10));
                self.expire(oldest);
                return format!("expire {oldest}");
            }
            _ => {
                self.heal();
                "heal"
            }
        };
        text.to_owned()
    }

    /// Lets every server forget the history up to a version.
    fn expire(&mut self, oldest: u64) {
        for endpoint in &self.endpoints {
            endpoint.servers().iter().for_each(|server| drop(server.expire_at(oldest)));
        }
        self.expirations += 1;
        self.may_relist = true;
    }

    /// Ends every fault. Dead connections stay dead.
    fn heal(&mut self) {
        self.tap.heal();
        for endpoint in &self.endpoints {
            endpoint.refuse(false);
            endpoint.servers().iter().for_each(|server| drop(server.recover()));
        }
    }
}

/// Runs the world of a seed to its end.
fn run(seed: u64) -> Result<WorldCounts, WorldFailure> {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let mut world = ProgramWorld::new(seed);
        let outcome = world.live().await;
        outcome.map_err(|violation| WorldFailure { seed, violation, trace: world.trace.join("\n") })
    })
}

/// A failed world.
struct WorldFailure {
    seed: u64,
    violation: BrokenGuarantee,
    trace: String,
}

impl fmt::Debug for WorldFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, violation, trace } = self;
        write!(f, "{trace}\n{}\nAgain: SEED={seed} cargo test -p informer --features testing --lib world", violation.0)
    }
}

fn env_number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Goal: shared copies, their views and their subscribers are right, and cost no request too many, whatever the network
/// does. Method: random programs, networks and writes; see the head of this file.
#[test]
fn every_guarantee_holds_in_random_programs() {
    let one = env_number("SEED");
    let seeds = one.map_or_else(|| 0..env_number("SEEDS").unwrap_or(SEEDS), |seed| seed..seed + 1);
    let count = seeds.end - seeds.start;
    let (mut sum, mut failed) = (WorldCounts::default(), Vec::new());
    for seed in seeds {
        match run(seed) {
            Ok(counts) => sum.add(&counts),
            Err(failure) => failed.push(failure),
        }
    }
    let others: Vec<String> =
        failed.iter().skip(1).take(10).map(|failure| format!("{} {}", failure.seed, failure.violation.0)).collect();
    if let Some(first) = failed.first() {
        panic!("{first:?}\n{} of {count} seeds failed, then {others:#?}", failed.len());
    }
    println!("{sum:?}");
    if one.is_none() {
        sum.reach_everything();
    }
}

/// Goal: a failure can be repeated. Method: some worlds twice.
#[test]
fn a_seed_decides_everything() {
    for seed in 0..3 {
        assert_eq!(run(seed).ok(), run(seed).ok(), "seed {seed}");
    }
}

impl WorldCounts {
    fn add(&mut self, other: &Self) {
        let Self { filtered, merged, resumes, moves, expired, connections, resets, requests } = other;
        self.filtered += filtered;
        self.merged += merged;
        self.resumes += resumes;
        self.moves += moves;
        self.expired += expired;
        self.connections += connections;
        self.resets += resets;
        self.requests += requests;
    }

    /// A simulation tests only what its faults can reach.
    fn reach_everything(&self) {
        let Self { filtered, merged, resumes, moves, expired, connections, resets, requests } = self;
        for (what, count) in [
            ("filtered copies", filtered),
            ("copies of several namespaces", merged),
            ("resumed watches", resumes),
            ("failovers", moves),
            ("expired positions", expired),
            ("connections", connections),
            ("resets of subscribers", resets),
            ("requests", requests),
        ] {
            assert!(*count > 0, "no {what}");
        }
    }
}
