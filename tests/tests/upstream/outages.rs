//! Outages around the cache that `docs/upstream.md` lists: a rolling restart of two API servers, a restart of etcd, a
//! network that loses everything for some seconds.

use std::time::{Duration, Instant};

use tests::{
    genuine::{ADMIN, Counters, Genuine, GenuineSettings},
    http::{Client, Watch},
    process::Server,
    relay::Relay,
};
use tokio::time::sleep;

use super::{
    cache_at, client_of,
    faults::{DEPLOYMENTS, RESOURCES, assert_unavailable, deployment, next, open},
    namespace, until,
};

/// Longest time until a consistent read is refused while nothing answers: reads wait for three seconds.
const REFUSED_WITHIN: Duration = Duration::from_secs(10);
/// Time in which nothing passes.
const APART: Duration = Duration::from_secs(5);

/// API servers with three Deployments, a cache of them at these addresses, and a watch through it.
struct OutageScene {
    genuine: Genuine,
    server: Server,
    cached: Client,
    watch: Watch,
}

/// Reads of Deployments that a cache sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CountedReads {
    /// Streams that began with the state.
    initial: u64,
    /// Lists, of which those of a cache that has its state have at most one object.
    lists: u64,
}

impl CountedReads {
    fn new(counters: &Counters) -> Self {
        Self { initial: counters.initial_streams("deployments"), lists: counters.lists("deployments") }
    }

    const fn since(self, earlier: Self) -> Self {
        Self { initial: self.initial - earlier.initial, lists: self.lists - earlier.lists }
    }
}

async fn fill(genuine: &Genuine) {
    let admin = genuine.client(ADMIN);
    admin.create_manifest(&namespace("faults")).await;
    for number in 0..3 {
        admin.create_manifest(&deployment(&format!("d{number}"))).await;
    }
}

async fn scene(genuine: Genuine, urls: &str) -> OutageScene {
    let server = cache_at(urls, &genuine, RESOURCES, &[]).await;
    let cached = client_of(&server, ADMIN);
    let watch = open(&cached, DEPLOYMENTS).await;
    OutageScene { genuine, server, cached, watch }
}

/// Goal: API servers that restart one after the other cost no initial read, and clients see nothing but changes. Method:
/// each of two is killed and started again while the other takes a write; the reads of every process are counted.
#[tokio::test]
async fn a_rolling_restart_costs_no_initial_read() {
    let settings = GenuineSettings { servers: 2, ..GenuineSettings::default() };
    let Some(genuine) = Genuine::start_with("upstream rolling restart", settings).await else { return };
    fill(&genuine).await;
    let urls = format!("https://{},https://{}", genuine.address_of(0), genuine.address_of(1));
    let mut scene = scene(genuine, &urls).await;
    let mut before = [0, 1].map(|_| CountedReads::default());
    for (at, before) in before.iter_mut().enumerate() {
        *before = CountedReads::new(&scene.genuine.counters_of(at).await);
    }
    for at in [0, 1] {
        let counters = scene.genuine.counters_of(at).await;
        assert_eq!(CountedReads::new(&counters).since(before[at]).initial, 0);
        scene.genuine.kill_server(at);
        let other = scene.genuine.client_at(1 - at, ADMIN);
        other.create_manifest(&deployment(&format!("without-{at}"))).await;
        assert_eq!(next(&mut scene.watch).await, format!("ADDED faults/without-{at}"));
        scene.genuine.restart_server(at).await;
        before[at] = CountedReads::default();
        scene.genuine.client_at(at, ADMIN).create_manifest(&deployment(&format!("with-{at}"))).await;
        assert_eq!(next(&mut scene.watch).await, format!("ADDED faults/with-{at}"));
    }
    for at in [0, 1] {
        let reads = CountedReads::new(&scene.genuine.counters_of(at).await).since(before[at]);
        // A proof of the history may be a list of one name. At each new address keys and versions are compared.
        assert!(reads.initial == 0 && reads.lists <= 3, "server {at}: {reads:?}");
    }
    assert_eq!(scene.cached.get(DEPLOYMENTS).await.with_code(200).keys().len(), 7);
}

/// Goal: a restart of etcd costs at most one initial read of a type, and clients see nothing but changes. Method: etcd is
/// killed until the API server's `/readyz` fails, and started again; then a write.
#[tokio::test]
async fn a_restart_of_etcd_ends_no_watch() {
    let Some(genuine) = Genuine::start("upstream etcd").await else { return };
    fill(&genuine).await;
    let mut scene = scene(genuine, "").await;
    let before = CountedReads::new(&scene.genuine.counters().await);
    scene.genuine.kill_etcd();
    let admin = scene.genuine.client(ADMIN);
    until("the API server misses etcd", async || admin.get("/readyz").await.code != 200).await;
    let any = format!("{DEPLOYMENTS}?resourceVersion=0");
    assert_eq!(scene.cached.get(&any).await.with_code(200).keys().len(), 3);
    scene.genuine.start_etcd();
    until("the API server is ready", async || admin.get("/readyz").await.code == 200).await;
    admin.create_manifest(&deployment("new")).await;
    assert_eq!(next(&mut scene.watch).await, "ADDED faults/new");
    let reads = CountedReads::new(&scene.genuine.counters().await).since(before);
    assert!(reads.initial <= 1 && reads.lists <= 2, "{reads:?}");
    assert_eq!(scene.cached.get(DEPLOYMENTS).await.with_code(200).keys().len(), 4);
}

/// Goal: a network that loses everything for some seconds costs no read of a state, and clients see nothing but changes.
/// Method: a proxy stops all bytes between the cache and the API server; meanwhile a write, and reads of both kinds.
#[tokio::test]
async fn a_partition_costs_no_read_of_the_state() {
    let Some(genuine) = Genuine::start("upstream partition").await else { return };
    fill(&genuine).await;
    let relay = Relay::start(genuine.address()).await;
    let mut scene = scene(genuine, &format!("https://{}", relay.address())).await;
    let any = format!("{DEPLOYMENTS}?resourceVersion=0");
    scene.cached.get(&any).await.with_code(200);
    let before = CountedReads::new(&scene.genuine.counters().await);
    let begun = Instant::now();
    relay.silence();
    scene.genuine.client(ADMIN).create_manifest(&deployment("new")).await;
    assert_unavailable(&scene.cached.get(DEPLOYMENTS).await);
    assert!(begun.elapsed() < REFUSED_WITHIN, "refused after {:?}", begun.elapsed());
    assert_eq!(scene.cached.get(&any).await.with_code(200).keys().len(), 3, "what was known before");
    sleep(APART.saturating_sub(begun.elapsed())).await;
    relay.rejoin();
    assert_eq!(next(&mut scene.watch).await, "ADDED faults/new");
    let reads = CountedReads::new(&scene.genuine.counters().await).since(before);
    assert_eq!(reads.initial, 0, "{reads:?}");
    until("the partition is over", async || scene.cached.get(DEPLOYMENTS).await.code == 200).await;
    assert_eq!(scene.cached.get(DEPLOYMENTS).await.keys().len(), 4);
    assert!(!scene.server.client().get("/readyz?verbose").await.text().contains("degraded"));
}
