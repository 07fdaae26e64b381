//! A process with a checkpoint against the real server: killed at random moments, and down for a while.
//!
//! The process is this test's own binary, started as an agent through the environment; see [`agent`].

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]
#![expect(clippy::print_stdout, reason = "an agent speaks to its test by its output")]

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use informer::{Cluster, Event, ResourceVersion, Subscription};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use tests::{
    http::Client,
    objects::pod,
    process::Server,
    tap::{Tap, initial_reads},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::mpsc,
    task::JoinSet,
    time::{interval, sleep, timeout},
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
/// Timeout of every step, with a margin for busy machines.
const PATIENCE: Duration = Duration::from_secs(60);
/// Environment variables of an agent process: the server's URL and the checkpoint's directory.
const AGENT_URL: &str = "CHECKPOINT_AGENT_URL";
const AGENT_DIR: &str = "CHECKPOINT_AGENT_DIR";
/// The test framework's name of [`agent`].
const AGENT: &str = "checkpoint::agent";
/// Prefix of an agent's lines; other lines are the test framework's.
const SAYS: &str = "> ";

const PODS: &str = "/api/v1/pods";

/// A state: versions by key.
type Versions = BTreeMap<String, String>;

/// Not a test: the program that the tests below start, kill and restart. It runs an informer of all pods with a
/// checkpoint, prints the events of the pods named `marked-…`, and prints its state on request.
#[tokio::test]
#[ignore = "the process that the other tests start"]
async fn agent() {
    let (Ok(url), Ok(dir)) = (std::env::var(AGENT_URL), std::env::var(AGENT_DIR)) else { return };
    let cluster = Cluster::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
    let pods = cluster.informer::<Pod>().checkpoint(dir).start().unwrap();
    tokio::spawn(tell_marked(pods.subscribe()));
    pods.ready(PATIENCE).await.unwrap();
    println!("{SAYS}ready");
    let (sender, mut asked) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let lines = std::io::stdin().lines().map_while(Result::ok);
        lines.map_while(|line| sender.send(line).ok()).for_each(drop);
    });
    while let Some(line) = asked.recv().await {
        let version = ResourceVersion::parse(line.trim()).unwrap();
        pods.wait_for(&version, PATIENCE).await.unwrap();
        let state = pods.store().snapshot();
        let state: Versions = state.iter().map(|pod| (pod.key().into(), pod.resource_version().into())).collect();
        println!("{SAYS}state {}", serde_json::to_string(&state).unwrap());
    }
}

async fn tell_marked(mut changes: Subscription<Pod>) {
    while let Some(event) = changes.next().await {
        let (sign, pod, missed) = match event {
            Event::Added(pod) => ("+", pod, false),
            Event::Updated { new, .. } => ("~", new, false),
            Event::Deleted { last_known, missed } => ("-", last_known, missed),
            Event::Synced(_) | Event::Reset => continue,
            other => unreachable!("{other:?}"),
        };
        if pod.name().starts_with("marked-") {
            println!("{SAYS}{sign} {}{}", pod.name(), if missed { " missed" } else { "" });
        }
    }
}

/// A running agent. Killed when dropped.
struct Agent {
    child: Child,
    asks: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
    /// Events of marked pods that it has printed so far.
    marked: Vec<String>,
}

impl Agent {
    fn start(server: SocketAddr, dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", AGENT, "--ignored", "--nocapture", "--test-threads", "1"])
            .env(AGENT_URL, format!("http://{server}"))
            .env(AGENT_DIR, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (asks, says) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, asks, says: BufReader::new(says).lines(), marked: Vec::new() }
    }

    /// Waits for the next line that begins with `what`, and collects the events of marked pods before it.
    async fn says(&mut self, what: &str) -> String {
        let heard = timeout(PATIENCE, async {
            loop {
                let line = self.says.next_line().await.unwrap().expect("the agent runs");
                // The framework prints its own text on the same line first.
                let Some((_, said)) = line.split_once(SAYS) else { continue };
                if said.starts_with(['+', '~', '-']) {
                    self.marked.push(said.to_owned());
                }
                if let Some(rest) = said.strip_prefix(what) {
                    return rest.trim().to_owned();
                }
            }
        });
        heard.await.unwrap_or_else(|_| panic!("the agent did not say {what:?}; of marked pods {:?}", self.marked))
    }

    /// Its state once it has reached `version`.
    async fn state(&mut self, version: u64) -> Versions {
        self.asks.write_all(format!("{version}\n").as_bytes()).await.unwrap();
        serde_json::from_str(&self.says("state").await).unwrap()
    }

    /// Kills it with SIGKILL, as `kill -9` does.
    async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// Writes to pods at a steady rate until stopped: eight in ten writes patch existing pods; the others create
/// short-lived pods and delete them.
struct Writes {
    writers: JoinSet<()>,
    done: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

/// Number of writers that share the rate. Each has one request in flight.
const WRITERS: u32 = 8;

impl Writes {
    async fn start(server: SocketAddr, per_second: u32) -> Self {
        // kube's client, because it reuses its connections.
        let client = kube::Client::try_from(kube::Config::new(format!("http://{server}").parse().unwrap())).unwrap();
        let (_, pods) = versions_at(Client::new(server)).await;
        let pods: Arc<Vec<String>> = Arc::new(pods.into_keys().collect());
        let (mut writers, done, stop) = (JoinSet::new(), Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        for writer in 0..WRITERS {
            let pace = Duration::from_secs(1) * WRITERS / per_second;
            let (client, pods, done, stop) = (client.clone(), Arc::clone(&pods), Arc::clone(&done), Arc::clone(&stop));
            writers.spawn(async move {
                let mut ticks = interval(pace);
                for turn in 0.. {
                    ticks.tick().await;
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    write(&client, writer, turn, &pods).await.unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self { writers, done, stop }
    }

    fn count(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Stops once every write that was sent is answered.
    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.writers.join_all().await;
    }
}

async fn write(client: &kube::Client, writer: u32, turn: u64, pods: &[String]) -> kube::Result<()> {
    let in_default = Api::<Pod>::namespaced(client.clone(), "default");
    match turn % 10 {
        0 => {
            let name = format!("short-{writer}-{turn}");
            let short: Pod = serde_json::from_value(pod(&name).body().clone()).unwrap();
            in_default.create(&PostParams::default(), &short).await.map(drop)
        }
        5 if turn > SHORT_LIFE => {
            let name = format!("short-{writer}-{}", turn - SHORT_LIFE);
            in_default.delete(&name, &DeleteParams::default()).await.map(drop)
        }
        _ => {
            let (namespace, name) = pods[fastrand::usize(..pods.len())].split_once('/').unwrap();
            let patch = Patch::Merge(serde_json::json!({"metadata": {"labels": {"turn": turn.to_string()}}}));
            let api = Api::<Pod>::namespaced(client.clone(), namespace);
            api.patch(name, &PatchParams::default(), &patch).await.map(drop)
        }
    }
}

/// Turns between a pod's creation and its deletion. It ends in 5, because turns that create end in 0 and turns that
/// delete end in 5.
const SHORT_LIFE: u64 = 105;

async fn versions_at(server: Client) -> (u64, Versions) {
    let answer = server.get(PODS).await.with_code(200);
    let list: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    let text = |item: &serde_json::Value, member: &str| item["metadata"][member].as_str().unwrap().to_owned();
    let items = list["items"].as_array().unwrap().iter();
    let key = |item| (format!("{}/{}", text(item, "namespace"), text(item, "name")), text(item, "resourceVersion"));
    (answer.resource_version(), items.map(key).collect())
}

/// Path of the agent's checkpoint log, if it exists.
fn log_in(dir: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(dir).ok()?.map(|file| file.unwrap().path());
    files.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "checkpoint"))
}

fn length(dir: &Path) -> u64 {
    log_in(dir).and_then(|log| std::fs::metadata(log).ok()).map_or(0, |log| log.len())
}

/// Waits until the agent's log changes.
async fn saved(dir: &Path) {
    let before = length(dir);
    let begun = Instant::now();
    while length(dir) == before {
        assert!(begun.elapsed() < PATIENCE, "nothing is saved");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Goal: after `kill -9` at any moment the checkpoint is usable, and no state appears that the server never had.
/// Method: kill agents right after the log changes and at random moments, under enough writes that the log is
/// rewritten. Each agent but the first resumes, and the last one's state equals the server's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_moments_it_resumes_and_ends_with_the_servers_state() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(BINARY, &["--populate", "pods=300,nodes=6,namespaces=4"]).await;
    let tap = Tap::start(server.address()).await;
    let writes = Writes::start(server.address(), 200).await;
    let mut reads = Vec::new();
    for round in 0..16 {
        let was_saved = log_in(dir.path()).is_some();
        let agent = Agent::start(tap.address(), dir.path());
        if round % 2 == 0 {
            saved(dir.path()).await;
            sleep(Duration::from_micros(fastrand::u64(..3_000))).await;
        } else {
            sleep(Duration::from_millis(fastrand::u64(100..2_500))).await;
        }
        agent.kill().await;
        let asked = tap.take();
        if was_saved {
            assert_eq!(initial_reads(&asked, PODS), [""; 0], "round {round}");
        }
        reads.push(asked.len());
    }
    assert!(writes.count() > 500, "{} writes", writes.count());
    writes.stop().await;
    let mut agent = Agent::start(tap.address(), dir.path());
    agent.says("ready").await;
    let (version, expected) = versions_at(server.client()).await;
    assert_eq!(agent.state(version).await, expected);
    assert_eq!(initial_reads(&tap.take(), PODS), [""; 0], "requests of the rounds before: {reads:?}");
}

/// Rates and durations of a scenario with a process that is down for a while.
struct Pace {
    pods: u32,
    writes_per_second: u32,
    /// The server's `--window-age`.
    window: &'static str,
    up: Duration,
    down: Duration,
}

/// Events of marked pods that the restarted agent printed, and its requests.
struct Back {
    marked: Vec<String>,
    requests: Vec<String>,
    lists_at_server: u64,
}

/// Number of LIST requests for pods that the server has answered.
async fn lists(server: Client) -> u64 {
    let answer = server.get("/metrics").await.with_code(200);
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let line = r#"apiserver_request_total{verb="LIST",resource="pods",code="200"} "#;
    text.lines().find_map(|found| found.strip_prefix(line)).map_or(0, |count| count.parse().unwrap())
}

/// Runs an agent, kills it, writes to pods, and starts it again.
async fn down_for_a_while(pace: &Pace) -> Back {
    let dir = tempfile::tempdir().unwrap();
    let populate = format!("pods={},nodes=10,namespaces=5", pace.pods);
    let server = Server::start(BINARY, &["--populate", &populate, "--window-age", pace.window]).await;
    let (tap, client) = (Tap::start(server.address()).await, server.client());
    let writes = Writes::start(server.address(), pace.writes_per_second).await;
    for name in ["marked-stays", "marked-goes", "marked-changes"] {
        client.create(&pod(name)).await;
    }
    let mut agent = Agent::start(tap.address(), dir.path());
    agent.says("ready").await;
    sleep(pace.up).await;
    saved(dir.path()).await;
    agent.kill().await;
    tap.take();
    let lists_before = lists(client).await;

    let (came_down, written) = (Instant::now(), writes.count());
    client.delete(&pod("marked-goes").path()).await.with_code(200);
    client.update(&pod("marked-changes").label("seen", "no")).await;
    client.create(&pod("marked-comes")).await;
    client.create(&pod("marked-comes-and-goes")).await;
    sleep(pace.down.saturating_sub(came_down.elapsed())).await;
    println!("{} writes while it was down for {:?}", writes.count() - written, came_down.elapsed());

    let mut agent = Agent::start(tap.address(), dir.path());
    agent.says("ready").await;
    let lists_at_server = lists(client).await - lists_before;
    // The pod created last is reported last, whether the agent resumes or relists.
    let last = client.create(&pod("marked-zzz")).await;
    agent.says("+ marked-zzz").await;
    writes.stop().await;
    let requests = tap.take();
    let (version, expected) = versions_at(client).await;
    assert!(last <= version);
    assert_eq!(agent.state(version).await, expected);
    Back { marked: agent.marked, requests, lists_at_server }
}

/// Every event of one pod, in order.
fn told<'a>(marked: &'a [String], name: &str) -> Vec<&'a str> {
    let of = |said: &&str| said.split(' ').nth(1) == Some(name);
    marked.iter().map(String::as_str).filter(of).collect()
}

fn check_resumed(back: &Back) {
    assert_eq!(initial_reads(&back.requests, PODS), [""; 0], "{:?}", back.requests);
    assert_eq!(back.lists_at_server, 0);
    // The saved objects come first, then the changes that the server replays.
    assert_eq!(told(&back.marked, "marked-stays"), ["+ marked-stays"]);
    assert_eq!(told(&back.marked, "marked-goes"), ["+ marked-goes", "- marked-goes"]);
    assert_eq!(told(&back.marked, "marked-changes"), ["+ marked-changes", "~ marked-changes"]);
    assert_eq!(told(&back.marked, "marked-comes"), ["+ marked-comes"]);
}

/// Goal: a restart within the server's history window costs no list and no initial stream, and loses no event. Method:
/// 100 changes/s, 45 s down and a window of 75 s, scaled to run four times as fast. At a higher speed the process start
/// and the two seconds between saves would dominate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn down_within_the_window_it_resumes_without_a_list() {
    let (up, down) = (Duration::from_secs(1), Duration::from_millis(11_250));
    check_resumed(&down_for_a_while(&Pace { pods: 1_000, writes_per_second: 400, window: "18750ms", up, down }).await);
}

/// The scenario at its real speed: takes a minute and a half.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute and a half"]
async fn down_for_45_s_in_a_window_of_75_s_it_resumes_without_a_list() {
    let (up, down) = (Duration::from_secs(10), Duration::from_secs(45));
    check_resumed(&down_for_a_while(&Pace { pods: 7_130, writes_per_second: 100, window: "75s", up, down }).await);
}

/// Goal: after more downtime than the history window there is one relist, and deletions meanwhile are reported as
/// missed. Method: a window of half a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn down_for_longer_than_the_window_it_relists_once_and_tells_what_it_missed() {
    let (up, down) = (Duration::from_secs(1), Duration::from_millis(2_500));
    let back = down_for_a_while(&Pace { pods: 300, writes_per_second: 200, window: "500ms", up, down }).await;
    assert_eq!(initial_reads(&back.requests, PODS).len(), 1, "{:?}", back.requests);
    assert_eq!(told(&back.marked, "marked-stays"), ["+ marked-stays"]);
    assert_eq!(told(&back.marked, "marked-goes"), ["+ marked-goes", "- marked-goes missed"]);
    assert_eq!(told(&back.marked, "marked-changes"), ["+ marked-changes", "~ marked-changes"]);
    assert_eq!(told(&back.marked, "marked-comes"), ["+ marked-comes"]);
}
