//! How long a copy is stale after an outage, beside `kube::runtime::watcher` with its default backoff, and how many
//! requests each sends. Both read the same fake server; time is virtual.
//!
//! `RUNS=100 cargo test --workspace --test informer outages -- --nocapture` prints the table of
//! `docs/outages.md`.

use std::{env, fmt::Write as _, sync::Arc, time::Duration};

use futures::{Stream, StreamExt as _, future};
use informer::{Cluster, Informer, testing::FakeApiServer};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    runtime::{
        WatchStreamExt as _,
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

const SECOND: Duration = Duration::from_secs(1);

/// Time without faults before an outage.
const HEALTHY: Duration = Duration::from_secs(60);

/// Time between two changes of the only object.
const WRITE_EVERY: Duration = Duration::from_secs(5);

/// Longest time until a copy is right.
const PATIENCE: Duration = Duration::from_secs(900);

/// One outage of the server.
#[derive(Clone, Copy, Debug)]
enum Outage {
    /// The connections of watches break every five seconds, twelve times.
    Cuts,
    /// Like `Cuts`; then no connection for ten seconds, and a 410 for the position before them.
    CutsThen410,
    /// Watches are answered with 403 for this time; lists are answered.
    WatchForbidden(Duration),
    /// The connections of watches break five times, a second apart.
    Resets,
    /// Connections are refused for twelve seconds; then a 410, three seconds without faults, and `Resets`.
    UnreachableThenResets,
    /// Connections break and are refused for this time.
    Unreachable(Duration),
    /// Like `Unreachable`, and a 410 for the position before it.
    UnreachableThen410(Duration),
}

impl Outage {
    fn rows() -> Vec<Self> {
        let [forbidden, unreachable, long] = [&[5, 15, 30][..], &[10, 30], &[60, 120, 300, 600]]
            .map(|seconds| seconds.iter().map(|seconds| Duration::from_secs(*seconds)).collect::<Vec<_>>());
        let plain = [unreachable, long].concat();
        [Self::Cuts, Self::CutsThen410, Self::Resets, Self::UnreachableThenResets]
            .into_iter()
            .chain(forbidden.into_iter().map(Self::WatchForbidden))
            .chain(plain.iter().copied().map(Self::Unreachable))
            .chain(plain.iter().copied().map(Self::UnreachableThen410))
            .collect()
    }

    fn name(self) -> String {
        let time = |time: Duration| match time.as_secs() {
            minutes if minutes >= 60 => format!("{} min", minutes / 60),
            seconds => format!("{seconds} s"),
        };
        match self {
            Self::Cuts => "connections cut every 5 s".into(),
            Self::CutsThen410 => "cuts every 5 s, no server for 10 s, 410".into(),
            Self::Resets => "five resets, 1 s apart".into(),
            Self::UnreachableThenResets => "no server for 12 s, 410, five resets, 1 s apart".into(),
            Self::WatchForbidden(for_time) => format!("403 for watches for {}", time(for_time)),
            Self::Unreachable(for_time) => format!("no server for {}", time(for_time)),
            Self::UnreachableThen410(for_time) => format!("no server for {}, 410", time(for_time)),
        }
    }
}

/// A client under comparison.
struct Client {
    copy: Copied,
    /// Notified after each change of the copy.
    changed: Arc<Notify>,
    task: AbortHandle,
}

/// The copy that a client keeps.
enum Copied {
    Informer(Informer<ConfigMap>),
    Kube(Store<ConfigMap>),
}

impl Client {
    fn informer(server: &FakeApiServer) -> Self {
        let maps = Cluster::new(server.client()).informer().start().unwrap();
        let events = maps.subscribe();
        Self::new(Copied::Informer(maps), events)
    }

    fn kube(server: &FakeApiServer) -> Self {
        let (store, writer) = reflector::store();
        let api: Api<ConfigMap> = Api::all(server.client());
        let events = reflector::reflector(writer, watcher(api, watcher::Config::default()).default_backoff());
        Self::new(Copied::Kube(store), events)
    }

    fn new(copy: Copied, events: impl Stream<Item: Send> + Send + 'static) -> Self {
        let changed = Arc::new(Notify::new());
        let notified = Arc::clone(&changed);
        let events = events.for_each(move |_| {
            notified.notify_one();
            future::ready(())
        });
        Self { copy, changed, task: tokio::spawn(events).abort_handle() }
    }

    /// True once the copy contains this write.
    fn has(&self, write: u64) -> bool {
        let write = write.to_string();
        match &self.copy {
            Copied::Informer(maps) => {
                maps.store().snapshot().get("a/x").is_some_and(|map| map.label("write").as_deref() == Some(&*write))
            }
            Copied::Kube(store) => store
                .get(&ObjectRef::new("x").within("a"))
                .is_some_and(|map| map.metadata.labels.as_ref().and_then(|labels| labels.get("write")) == Some(&write)),
        }
    }

    /// Waits until the copy contains this write. Returns the time that took.
    async fn reach(&self, write: u64) -> Duration {
        let since = Instant::now();
        let reached = async {
            while !self.has(write) {
                self.changed.notified().await;
            }
        };
        timeout(PATIENCE, reached).await.expect("the copy gets right");
        since.elapsed()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A server whose only object changes now and then.
struct Scene {
    server: FakeApiServer,
    writes: u64,
}

fn map(write: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "a", "labels": {"write": write.to_string()}}})
}

impl Scene {
    fn write(&mut self) -> u64 {
        self.writes += 1;
        self.server.put(map(self.writes));
        self.writes
    }

    async fn pass(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() + WRITE_EVERY < until {
            sleep(WRITE_EVERY).await;
            self.write();
        }
        sleep(until - Instant::now()).await;
    }

    /// Cuts the watches every five seconds. Returns the longest time for which a write was missing afterwards.
    async fn cuts(&mut self, client: &Client) -> Duration {
        let mut longest = Duration::ZERO;
        for _ in 0..12 {
            self.pass(5 * SECOND).await;
            self.server.break_watches();
            let write = self.write();
            longest = longest.max(client.reach(write).await);
        }
        longest
    }

    /// Resets the watches five times, a second apart. Returns the time until the last write arrived.
    async fn resets(&mut self, client: &Client) -> Duration {
        for _ in 0..5 {
            self.server.break_watches();
            sleep(SECOND).await;
        }
        let write = self.write();
        client.reach(write).await
    }

    /// Takes the server away. Returns the time until the copy is right again after it is back.
    async fn outage(&mut self, client: &Client, time: Duration, expires: bool) -> Duration {
        self.server.refuse_connections().break_watches();
        self.pass(time).await;
        let position = self.server.resource_version();
        let write = self.write();
        self.server.recover();
        if expires {
            self.server.expire_at(position);
        }
        client.reach(write).await
    }
}

/// Runs one outage. Returns how long the copy was stale while the server was well, and the number of requests from the
/// beginning of the outage until the copy was right.
async fn run(outage: Outage, start: fn(&FakeApiServer) -> Client) -> (Duration, usize) {
    let mut scene = Scene { server: FakeApiServer::new(), writes: 0 };
    scene.write();
    let client = start(&scene.server);
    client.reach(1).await;
    scene.pass(HEALTHY).await;
    let before = scene.server.requests().len();
    let stale = match outage {
        Outage::Cuts => scene.cuts(&client).await,
        Outage::CutsThen410 => {
            scene.cuts(&client).await;
            scene.outage(&client, 10 * SECOND, true).await
        }
        Outage::WatchForbidden(time) => {
            scene.server.forbid_watch().break_watches();
            scene.pass(time).await;
            let write = scene.write();
            scene.server.recover();
            client.reach(write).await
        }
        Outage::Resets => scene.resets(&client).await,
        Outage::UnreachableThenResets => {
            scene.outage(&client, 12 * SECOND, true).await;
            sleep(3 * SECOND).await;
            scene.resets(&client).await
        }
        Outage::Unreachable(time) => scene.outage(&client, time, false).await,
        Outage::UnreachableThen410(time) => scene.outage(&client, time, true).await,
    };
    (stale, scene.server.requests().len() - before)
}

/// Results of several runs.
struct Measured {
    median: f64,
    worst: f64,
    requests: usize,
}

fn measure(outage: Outage, runs: u64, start: fn(&FakeApiServer) -> Client) -> Measured {
    let mut stale = Vec::new();
    let mut requests = Vec::new();
    for seed in 0..runs {
        // Both clients draw their jitter from this generator.
        fastrand::seed(seed);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (time, count) = runtime.block_on(run(outage, start));
        stale.push(time.as_secs_f64());
        requests.push(count);
    }
    stale.sort_by(f64::total_cmp);
    requests.sort_unstable();
    Measured { median: stale[stale.len() / 2], worst: stale[stale.len() - 1], requests: requests[requests.len() / 2] }
}

/// Goal: after no outage is the copy stale for longer than kube's, in the median and at worst. Method: each outage with
/// several seeds; the clients differ in nothing else.
#[test]
fn outages_leave_the_copy_stale_for_no_longer_than_kubes() {
    let runs = env::var("RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(10);
    let mut table = String::from(
        "| outage | informer: median s | worst s | requests | kube: median s | worst s | requests |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let mut worse = Vec::new();
    for outage in Outage::rows() {
        let ours = measure(outage, runs, Client::informer);
        let kubes = measure(outage, runs, Client::kube);
        writeln!(
            table,
            "| {} | {:.1} | {:.1} | {} | {:.1} | {:.1} | {} |",
            outage.name(),
            ours.median,
            ours.worst,
            ours.requests,
            kubes.median,
            kubes.worst,
            kubes.requests
        )
        .unwrap();
        if ours.median > kubes.median || ours.worst > kubes.worst {
            worse.push(outage.name());
        }
    }
    println!("{table}");
    assert!(worse.is_empty(), "worse than kube after {worse:?}\n{table}");
}
