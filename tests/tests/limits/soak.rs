//! A soak: writers, watchers that come, relist, stay and leave, and tokens that are replaced, at a server with its
//! objects on disk and at another one in front of it. Memory, open files and disk of both must stay flat.
//!
//! `SOAK_SECONDS=3600 cargo test --release --workspace --test limits soak -- --nocapture` is the whole one: 500 events
//! a second, 500 clients. `SOAK_SERVER` names another program to test, such as the release build. `DEFINITIONS=10000`
//! with `definitions` creates and deletes as many. Without them both are short, and assert no slope.
//!
//! INVARIANT: a request that fails, or that a server of a soak may not refuse, ends the test: a run that ends has served
//! all others.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

mod clients;
mod definitions;
mod gauge;
mod users;

use std::{
    env,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use fastrand::Rng;
use tempfile::TempDir;
use tests::{objects::namespace, process::Server};
use tokio::{task::JoinSet, time::sleep};

use clients::{Counts, Follower, Writer};
use gauge::Gauge;
use users::Users;

/// Pause between two samples, and between two lines about them.
const SAMPLE_EVERY: Duration = Duration::from_secs(5);
const PRINT_EVERY: Duration = Duration::from_secs(60);
/// Shortest run whose slopes are judged, and their limit in bytes or files an hour.
const JUDGED: Duration = Duration::from_secs(3_600);
const SLOPE_MAX: f64 = (1 << 20) as f64;
const FILES_SLOPE_MAX: f64 = 5.0;
/// Timeout of a step, with a margin for busy machines.
const PATIENCE: Duration = Duration::from_secs(120);

/// Size of a run.
#[derive(Clone, Copy)]
struct Plan {
    length: Duration,
    followers: usize,
    writers: usize,
    /// Events a second of all writers.
    rate: usize,
    /// Time between two replacements of all tokens.
    tokens_last: Duration,
    /// Longest time of a watch.
    watches_last: Duration,
}

impl Plan {
    fn new() -> Self {
        let seconds = number("SOAK_SECONDS").map(Duration::from_secs);
        let Some(length) = seconds else {
            let [tokens_last, watches_last, length] = [1, 2, 5].map(Duration::from_secs);
            return Self { length, followers: 20, writers: 2, rate: 40, tokens_last, watches_last };
        };
        let [tokens_last, watches_last] = [60, 150].map(Duration::from_secs);
        Self { length, followers: 500, writers: 10, rate: 500, tokens_last, watches_last }
    }
}

/// A number in the environment.
fn number<N: FromStr>(name: &str) -> Option<N> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// The tested program.
fn program() -> String {
    env::var("SOAK_SERVER").unwrap_or_else(|_| env!("CARGO_BIN_EXE_tests-cache-server").to_owned())
}

/// Waits until a server is ready.
async fn ready(server: &Server) {
    let begun = Instant::now();
    while !server.client().try_get("/readyz").await.is_ok_and(|answer| answer.code == 200) {
        assert!(begun.elapsed() < PATIENCE, "a server does not get ready: {}", server.log());
        sleep(Duration::from_millis(20)).await;
    }
}

/// A server with its objects on disk, another one in front of it, and their clients.
struct Soak {
    plan: Plan,
    servers: [Server; 2],
    gauges: [Gauge; 2],
    users: Arc<Users>,
    counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
    // Drops after the servers.
    _folder: TempDir,
}

impl Soak {
    async fn start(plan: Plan) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let text = |name: &str| at(name).display().to_string();
        let users = Users::write(at("tokens.csv"), at("own-token"));
        let (data, tokens, own, state) = (text("data"), text("tokens.csv"), text("own-token"), text("state"));
        let storing = Server::start(&program(), &["--data-dir", &data, "--token-auth-file", &tokens]).await;
        storing.client().with_token(&users.token_of(0)).create(&namespace("kube-system")).await;
        let upstream = ["--upstream", &format!("http://{}", storing.address()), "--upstream-token-file", &own];
        let flags = ["--resources", "configmaps", "--state-dir", &state];
        let front = Server::start(&program(), &[upstream, flags].concat()).await;
        ready(&front).await;
        let gauges =
            [Gauge::new("with its objects on disk", &storing, at("data")), Gauge::new("in front", &front, at("state"))];
        let (users, servers, tasks) = (Arc::new(users), [storing, front], JoinSet::new());
        let (counts, stop) = Default::default();
        let mut soak = Self { plan, servers, gauges, users, counts, stop, tasks, _folder: folder };
        soak.start_clients();
        soak
    }

    fn start_clients(&mut self) {
        let mut rng = Rng::with_seed(1);
        let clients = self.servers.each_ref().map(Server::client);
        let pause = Duration::from_secs_f64(self.plan.writers as f64 / self.plan.rate as f64);
        for number in 0..self.plan.writers {
            // One of them writes through the server in front.
            let server = clients[usize::from(number == 1)];
            let (users, counts) = (Arc::clone(&self.users), Arc::clone(&self.counts));
            self.tasks.spawn(Writer { number, server, users, counts }.run(pause, Arc::clone(&self.stop)));
        }
        for number in 0..self.plan.followers {
            let server = clients[number % clients.len()];
            let (users, counts, rng) = (Arc::clone(&self.users), Arc::clone(&self.counts), rng.fork());
            let follower = Follower { number, server, users, counts, rng };
            self.tasks.spawn(follower.run(self.plan.watches_last, Arc::clone(&self.stop)));
        }
    }

    /// Samples both servers and replaces tokens until the time is over. Returns it.
    async fn last(&mut self) -> Duration {
        let clients = self.servers.each_ref().map(Server::client);
        let begun = Instant::now();
        let (mut printed, mut renewed) = (begun, begun);
        while begun.elapsed() < self.plan.length {
            sleep(SAMPLE_EVERY.min(self.plan.tokens_last)).await;
            assert!(self.tasks.try_join_next().is_none(), "a client ended");
            self.gauges.iter_mut().for_each(|gauge| gauge.sample(begun.elapsed()));
            if renewed.elapsed() >= self.plan.tokens_last {
                renewed = Instant::now();
                self.users.renew(&clients).await;
            }
            if printed.elapsed() >= PRINT_EVERY {
                printed = Instant::now();
                eprintln!(
                    "{:>5} s: {} {:?}",
                    begun.elapsed().as_secs(),
                    self.counts.line(begun.elapsed()),
                    self.gauges
                );
            }
        }
        begun.elapsed()
    }
}

/// Goal: nothing grows with time. Method: the load of the module; the slopes of both servers are those of least squares
/// after a quarter of the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_soak_leaves_memory_files_and_disk_flat() {
    // Each watch is a connection of this process.
    rlimit::increase_nofile_limit(4_096).unwrap();
    let mut soak = Soak::start(Plan::new()).await;
    let elapsed = soak.last().await;
    soak.stop.store(true, Ordering::Relaxed);
    println!("{} s: {}", elapsed.as_secs(), soak.counts.line(elapsed));
    for gauge in &soak.gauges {
        let slopes = gauge.slopes(elapsed / 4);
        println!("{}: {slopes}", gauge.name);
        // Files of states grow by 64 MiB before they are replaced, so the slope of the disk is only printed.
        let is_flat = slopes.memory.hourly <= SLOPE_MAX;
        assert!(elapsed < JUDGED || is_flat && slopes.files.hourly <= FILES_SLOPE_MAX, "{slopes}");
    }
    soak.counts.assert_everything_happened();
    if elapsed >= JUDGED {
        soak.counts.assert_rates(&soak.plan, elapsed);
    }
    while let Some(ended) = soak.tasks.join_next().await {
        ended.unwrap();
    }
}
