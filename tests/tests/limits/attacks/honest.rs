//! The honest clients beside an attack, each on a priority level of its own: a user that reads and, every fourth time,
//! writes, a service account that lists, a node that renews its lease, and a controller whose watch shows the writes.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use tests::{
    http::{Client, Step},
    objects::configmap,
};
use tokio::{task::JoinHandle, time::sleep};

use super::world::World;

/// Pause between two requests of the user.
const PAUSE: Duration = Duration::from_millis(20);

/// Pause between two lists, and between two renewals of the lease.
const SELDOM: Duration = Duration::from_millis(100);

/// One request of the user in this many is a write.
const READS_A_WRITE: usize = 4;

/// Time for which the watch waits for an event before it looks whether it should stop.
const LOOK: Duration = Duration::from_millis(100);

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// Running honest clients.
pub(crate) struct Honest {
    stop: Arc<AtomicBool>,
    tasks: [JoinHandle<Vec<Duration>>; 4],
}

/// Latencies of the honest clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    pub(crate) get: Latencies,
    pub(crate) list: Latencies,
    pub(crate) lease: Latencies,
    /// From the begin of a write to its event.
    pub(crate) event: Latencies,
}

/// Latencies of one kind of request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latencies {
    pub(crate) median: Duration,
    pub(crate) p99: Duration,
    pub(crate) most: Duration,
}

impl Latencies {
    fn of(mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        let at = |share: usize| took.get((took.len() * share / 100).min(took.len().max(1) - 1)).copied();
        let [median, p99, most] = [50, 99, 100].map(|share| at(share).unwrap_or_default());
        Self { median, p99, most }
    }
}

/// Times at which the user began its writes, by the text that it wrote.
type Begun = Arc<Mutex<HashMap<String, Instant>>>;

impl Honest {
    pub(crate) async fn start(world: &World) -> Self {
        let [user, lister, node, watcher] = ["honest", "robot", "node", "manager"].map(|name| world.as_user(name));
        let own = configmap("honest").data("0");
        if user.get(&own.path()).await.code == 404 {
            user.create(&own).await;
            let lease = json!({"kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
                "metadata": {"name": "n1", "namespace": "kube-node-lease"}, "spec": {"holderIdentity": "n1"}});
            world.as_user("admin").post(LEASES, &lease).await.with_code(201);
        }
        let (stop, begun) = (Arc::new(AtomicBool::new(false)), Begun::default());
        let path = "/api/v1/namespaces/default/configmaps?watch=1&fieldSelector=metadata.name%3Dhonest";
        let watch = watcher.watch(path).await;
        let list = async move || drop(lister.get("/api/v1/nodes").await.with_code(200));
        let renew = async move || {
            let path = format!("{LEASES}/n1");
            let lease = node.get(&path).await.with_code(200).json();
            let put = node.put(&path, &lease).await;
            // Another renewal of the same node cannot come between.
            put.with_code(200);
        };
        let tasks = [
            tokio::spawn(work(user, Arc::clone(&stop), Arc::clone(&begun))),
            tokio::spawn(repeat(Arc::clone(&stop), list)),
            tokio::spawn(repeat(Arc::clone(&stop), renew)),
            tokio::spawn(follow(watch, Arc::clone(&stop), begun)),
        ];
        Self { stop, tasks }
    }

    /// Stops the clients.
    pub(crate) async fn stop(self) -> Took {
        self.stop.store(true, Ordering::Relaxed);
        let [get, list, lease, event] = futures::future::join_all(self.tasks).await.try_into().expect("four tasks");
        let latencies = |took: Result<Vec<Duration>, _>| Latencies::of(took.expect("every answer is 200"));
        let (get, list, lease) = (latencies(get), latencies(list), latencies(lease));
        Took { get, list, lease, event: latencies(event) }
    }
}

/// Repeats a request until it is time to stop, at least once.
async fn repeat(stop: Arc<AtomicBool>, request: impl AsyncFn()) -> Vec<Duration> {
    let mut took = Vec::new();
    while !stop.load(Ordering::Relaxed) || took.is_empty() {
        let began = Instant::now();
        request().await;
        took.push(began.elapsed());
        sleep(SELDOM).await;
    }
    took
}

/// Reads and writes. Returns the latencies of both.
async fn work(client: Client, stop: Arc<AtomicBool>, begun: Begun) -> Vec<Duration> {
    let mut took = Vec::new();
    while !stop.load(Ordering::Relaxed) || took.is_empty() {
        let began = Instant::now();
        let text = took.len().to_string();
        let own = configmap("honest").data(&text);
        if took.len() % READS_A_WRITE == 0 {
            begun.lock().unwrap().insert(text, began);
            client.update(&own).await;
        } else {
            client.get(&own.path()).await.with_code(200);
        }
        took.push(began.elapsed());
        sleep(PAUSE).await;
    }
    took
}

/// Notes how long after the begin of a write its event comes.
async fn follow(mut watch: tests::http::Watch, stop: Arc<AtomicBool>, begun: Begun) -> Vec<Duration> {
    let mut took = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        match watch.step(LOOK).await {
            Step::Event(event) => {
                let data = event.object["data"].as_object().and_then(|data| data.values().next()?.as_str());
                took.extend(data.and_then(|text| begun.lock().unwrap().remove(text)).map(|began| began.elapsed()));
            }
            Step::Silence => {}
            Step::End | Step::Cut(_) => panic!("the honest watch ended"),
        }
    }
    took
}
