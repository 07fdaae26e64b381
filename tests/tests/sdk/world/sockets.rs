//! Random faults of real connections: TLS, HTTP/2 and sockets as shipped, and a clock that the test moves.
//!
//! The SDK's own simulation (`informer/src/world.rs`) has many more worlds, over connections in memory.
//! `SOCKET_SEEDS=200 cargo test --workspace --test sdk world::sockets` runs more of these; `SOCKET_SEED=3` one.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    thread,
    time::Duration,
};

use fastrand::Rng;
use futures::FutureExt as _;
use informer::{Cluster, Event, Informer, Ready, SubscriptionAll, client_from, testing::FakeApiServer};
use k8s_openapi::api::core::v1::Pod;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::json;
use tests::{
    relay::Relay,
    tls::{Authority, Files},
};
use tokio::{
    net::TcpListener,
    runtime::Builder,
    task::spawn_blocking,
    time::{Instant, advance},
};
use tokio_rustls::TlsAcceptor;

use super::number;

/// Worlds of an ordinary run.
const SEEDS: u64 = 3;
/// Faults of one world.
const FAULTS: usize = 8;
/// Time that passes for the SDK in each [`TICK`].
const STEP: Duration = Duration::from_millis(200);
/// Time in which sockets work between two steps.
const TICK: Duration = Duration::from_millis(1);
/// Bound on the time until every view is right, while one endpoint serves: leaving the other one takes up to 120 s, and
/// attempts and pauses come on top.
const CONVERGES_WITHIN: Duration = Duration::from_secs(300);
/// Time after which the SDK has noticed a silent peer.
const NOTICED: Duration = Duration::from_secs(50);

/// Two endpoints of one history, and a program with copies of its pods.
struct SocketWorld {
    rng: Rng,
    /// Two servers for the names that clients know.
    servers: [(FakeApiServer, SocketAddr); 2],
    relays: [Relay; 2],
    all: Informer<Pod>,
    web: Informer<Pod>,
    both: Informer<Pod>,
    /// Every change of `all`, and the pods that they add up to.
    events: SubscriptionAll<Pod>,
    told: BTreeMap<String, String>,
    pods: BTreeMap<String, String>,
    /// Keys of the pods that `web` shows.
    web_pods: BTreeSet<String>,
    writes: Vec<u64>,
    seen: Vec<u64>,
    trace: Vec<String>,
}

/// Passes time: for sockets a millisecond at a time, for the SDK a step. The blocking task keeps tokio from moving the
/// clock by itself while sockets work.
async fn pass(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        spawn_blocking(|| thread::sleep(TICK)).await.unwrap();
        advance(STEP).await;
    }
}

/// Serves `fake` behind TLS, with HTTP/2.
async fn serve(fake: &FakeApiServer, files: &Files) -> SocketAddr {
    let certs = CertificateDer::pem_file_iter(&files.cert).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = versions.unwrap().with_no_client_auth().with_single_cert(certs, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, fake) = (listener.local_addr().unwrap(), fake.clone());
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (acceptor, fake) = (acceptor.clone(), fake.clone());
            tokio::spawn(async move {
                // A connection that breaks is part of the test.
                if let Ok(stream) = acceptor.accept(socket).await {
                    let _ = fake.serve_connection(stream).await;
                }
            });
        }
    });
    address
}

impl SocketWorld {
    async fn start(seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let files = authority.issue(folder.path());
        let first = FakeApiServer::new().at(41);
        let mut pods = BTreeMap::new();
        for (namespace, app) in [("a", "web"), ("b", "api")] {
            first.put(pod(namespace, 0, app));
            pods.insert(format!("{namespace}/pod-0"), first.resource_version().to_string());
        }
        let other = first.replica();
        let servers = [(first.clone(), serve(&first, &files).await), (other.clone(), serve(&other, &files).await)];
        let relays = [Relay::start(servers[0].1).await, Relay::start(servers[1].1).await];
        let client = |relay: &Relay| {
            let mut config = kube::Config::new(format!("https://{}", relay.address()).parse().unwrap());
            config.root_cert = Some(vec![CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap().to_vec()]);
            client_from(config).unwrap()
        };
        let cluster = Cluster::builder(client(&relays[0])).fallback(client(&relays[1])).build();
        let all = cluster.informer::<Pod>().start_shared().unwrap();
        until_ready(&all).await;
        let web = cluster.informer::<Pod>().namespace("a").labels("app=web").start_shared().unwrap();
        let both = cluster.informer::<Pod>().namespaces(["a", "b"]).from_wider(false).start_shared().unwrap();
        until_ready(&web).await;
        until_ready(&both).await;
        let events = all.subscribe_all(4_096);
        let (told, trace, web_pods) = (BTreeMap::new(), Vec::new(), BTreeSet::from(["a/pod-0".to_owned()]));
        let rng = Rng::with_seed(seed);
        let (writes, seen) = (Vec::new(), Vec::new());
        Self { rng, servers, relays, all, web, both, events, told, pods, web_pods, writes, seen, trace }
    }

    fn initial_reads(&self) -> usize {
        self.servers.iter().map(|(server, _)| server.initial_reads()).sum()
    }

    fn write(&mut self) {
        let (namespace, number) = (["a", "b"][self.rng.usize(..2)], self.rng.u8(..4));
        let (server, key) = (&self.servers[0].0, format!("{namespace}/pod-{number}"));
        // The first ones stay, so that no copy is empty.
        if number > 0 && self.pods.contains_key(&key) && self.rng.bool() {
            server.delete(pod(namespace, number, ""));
            self.pods.remove(&key);
            self.web_pods.remove(&key);
        } else {
            let app = if number == 0 { "web" } else { ["web", "api"][self.rng.usize(..2)] };
            let mut object = pod(namespace, number, app);
            object["metadata"]["annotations"] = json!({"at": server.resource_version().to_string()});
            server.put(object);
            if namespace == "a" && app == "web" {
                self.web_pods.insert(key.clone());
            } else {
                self.web_pods.remove(&key);
            }
            self.pods.insert(key, server.resource_version().to_string());
            self.writes.push(server.resource_version());
        }
    }

    /// One fault, its end, and what must hold then.
    async fn disturb(&mut self) {
        let at = self.rng.usize(..2);
        let relay = self.relays[at].clone();
        let fault = self.rng.u8(..6);
        self.trace.push(format!("fault {fault} of endpoint {at}"));
        (0..self.rng.u8(1..4)).for_each(|_| self.write());
        match fault {
            0 => drop(self.servers[at].0.go_away()),
            1 => drop(self.servers[at].0.go_away().close_watches()),
            2 => relay.cut(),
            3 => relay.silence(),
            4 => {
                relay.lead_to(self.servers[self.rng.usize(..2)].1);
                relay.cut();
            }
            _ => relay.part(),
        }
        pass(Duration::from_secs(self.rng.u64(1..4))).await;
        (0..self.rng.u8(1..4)).for_each(|_| self.write());
        pass(NOTICED).await;
        // The other endpoint serves.
        self.converge().await;
        relay.rejoin();
        self.converge().await;
    }

    async fn converge(&mut self) {
        let since = Instant::now();
        while !self.is_right() {
            let (all, web, both) = (self.all.explain(), self.web.explain(), self.both.explain());
            assert!(since.elapsed() < CONVERGES_WITHIN, "{:#?}\n{all}\n{web}\n{both}", self.trace);
            pass(STEP * 5).await;
        }
        self.trace.push(format!("right after {:?}", since.elapsed()));
    }

    /// True if every view is the truth. Reads events on the way.
    fn is_right(&mut self) -> bool {
        while let Some(Some(event)) = self.events.next().now_or_never() {
            self.take(&event);
        }
        let pods = &self.pods;
        let web = self.web_pods.iter().map(|key| (key.clone(), pods[key].clone())).collect::<BTreeMap<_, _>>();
        let is_told = self.told == *pods && self.seen == self.writes;
        is_told && view(&self.all) == *pods && view(&self.web) == web && view(&self.both) == *pods
    }

    /// Each write once, in order.
    fn take(&mut self, event: &Event<Pod>) {
        let (old, new) = match event {
            Event::Added(pod) => (None, Some(pod)),
            Event::Updated { old, new } => (Some(old), Some(new)),
            Event::Deleted { last_known, missed } => {
                assert!(!missed, "{event:?} in {:#?}", self.trace);
                (Some(last_known), None)
            }
            Event::Synced(_) => return,
            Event::Reset | _ => panic!("{event:?} in {:#?}", self.trace),
        };
        let key = old.or(new).unwrap().key();
        let told = match new {
            Some(new) => self.told.insert(key.to_owned(), new.resource_version().to_owned()),
            None => self.told.remove(key),
        };
        assert_eq!(told.as_deref(), old.map(|old| old.resource_version()), "{event:?} in {:#?}", self.trace);
        if let Some(new) = new {
            let version: u64 = new.resource_version().parse().unwrap();
            // The first pods came before the first write.
            if self.writes.contains(&version) {
                self.seen.push(version);
            }
        }
    }
}

async fn until_ready(pods: &Informer<Pod>) {
    let since = Instant::now();
    while !matches!(pods.ready(Duration::ZERO).await, Ok(Ready::Watching)) {
        assert!(since.elapsed() < CONVERGES_WITHIN, "{:?}", pods.ready(Duration::ZERO).await);
        pass(STEP).await;
    }
}

/// Versions by key.
fn view(pods: &Informer<Pod>) -> BTreeMap<String, String> {
    let now = pods.store().snapshot();
    now.iter().map(|pod| (pod.key().to_owned(), pod.resource_version().to_owned())).collect()
}

fn pod(namespace: &str, number: u8, app: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{number}"), "namespace": namespace, "labels": {"app": app}},
    })
}

async fn run(seed: u64) {
    let mut world = SocketWorld::start(seed).await;
    let before = world.initial_reads();
    assert_eq!(before, 3, "all pods once, and two namespaces");
    for _ in 0..FAULTS {
        world.disturb().await;
        assert_eq!(world.initial_reads(), before, "listed again: {:#?}", world.trace);
    }
}

/// Goal: over real connections, no fault of theirs costs a list, loses an event or leaves a view wrong. Method: GOAWAY,
/// cuts, silence, refusals, and names that lead to another server, at two endpoints.
#[test]
fn no_fault_of_a_connection_costs_a_list_or_an_event() {
    let one = number("SOCKET_SEED");
    let seeds = one.map_or_else(|| 0..number("SOCKET_SEEDS").unwrap_or(SEEDS), |seed| seed..seed + 1);
    for seed in seeds {
        eprintln!("SOCKET_SEED={seed}");
        fastrand::seed(seed);
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(seed));
    }
}
