//! Client programs through a cache-server in front of a stock kube-apiserver.
//!
//! Goal: whatever happens, every program's copy is the API server's state in the end, and the API server is listed no
//! more often than its own restarts explain. Method: all programs of `libraries`, kube-state-metrics and the SDK follow one
//! cache-server while ConfigMaps are written through it and past it. Meanwhile connections break one by one and all at
//! once, kube-apiserver is killed and starts again, and etcd is compacted. Each program sees only states that existed, and
//! no object goes back.
//!
//! A resourceVersion names one write of one object, so equal keys and resourceVersions are equal objects, uids included.
//!
//! A program that cannot be built or installed here is skipped with one line, as are all of them without a kube-apiserver.

mod cluster;
mod followers;
mod gitops;
mod helm;
mod kubectl;
mod metrics;
pub(super) mod scene;
mod writer;

use std::env;

use tests::{
    genuine::CACHE,
    http::{key, resource_version, with_query},
};

use self::{
    followers::{Follower, start_all},
    metrics::KubeStateMetrics,
    scene::{READER, RESOURCES, Scene, until},
    writer::{Way, Writer},
};
use crate::libraries::{
    check::{check_each_object, state},
    history::{SELECTOR, SENTINEL, State},
};

/// Writes of a usual run. The nightly run sets `UPSTREAM_WRITES=2000`.
const WRITES: usize = 200;
/// Seed of the writes.
const SEED: u64 = 13;
/// Initial reads of a type that the API server may get: one at the start, one after its restart, as its own window is empty
/// then, and one after the compaction.
const INITIAL_READS_MAX: usize = 3;
/// States that a client may read: one at the start, and one for each loss of the cache's own position. client-go also lists
/// again after a watch that ends at once, as each of the two cuts of all connections may end one.
const STATES_MAX: usize = INITIAL_READS_MAX + 2;
/// Objects in the longest list, or page of one, that only proves the cache complete.
const PROOF_OBJECTS_MAX: u32 = 500;
/// Writes after the last fault: more bytes than the latest cut waits for.
const LAST_WRITES: usize = 60;

#[tokio::test(flavor = "multi_thread")]
async fn every_copy_is_the_api_servers_state_in_the_end() {
    let Some(mut scene) = Scene::set("clients upstream").await else { return };
    let writes = env::var("UPSTREAM_WRITES").map_or(WRITES, |text| text.parse().expect("a number of writes"));
    let mut writer = Writer::new(&scene, SEED).await;
    writer.write(writes / 10, Way::Direct).await;
    writer.write_others().await;
    let (mut followers, metrics) = (start_all(&scene, writes == WRITES).await, KubeStateMetrics::start(&scene).await);
    for follower in &followers {
        follower.started().await;
    }
    play(&mut scene, &mut writer, writes).await;
    catch_up(&mut writer, &followers).await;
    writer.create(SENTINEL).await;
    compare(&scene, &writer, &mut followers, metrics.as_ref()).await;
    assert_few_reads(&scene);
}

/// Writes while connections break, kube-apiserver is killed, and etcd is compacted.
async fn play(scene: &mut Scene, writer: &mut Writer, writes: usize) {
    let step = writes / 10;
    writer.write(2 * step, Way::Either).await;
    writer.write_others().await;

    // The API server dies while a write is on its way, and the writes wait for it. As behind a load balancer, it gets no
    // requests before it is ready: for some hundred milliseconds it has no roles and refuses every request.
    let (genuine, above) = (&mut scene.genuine, &scene.above);
    let outage = async {
        genuine.kill();
        above.part();
        genuine.restart().await;
        above.rejoin();
    };
    tokio::join!(writer.write(2 * step, Way::Either), outage);
    writer.write_others().await;

    scene.below.cut();
    scene.above.cut();
    writer.write(step, Way::Either).await;
    scene.below.cut();
    writer.write(step, Way::Either).await;
    assert!(scene.below.broken() > 0 && scene.above.broken() > 0, "open connections were cut");

    // The cache-server does not receive these writes, and the API server drops them from its history.
    scene.above.part();
    writer.write(2 * step, Way::Direct).await;
    scene.genuine.kill();
    scene.genuine.compact().await;
    scene.genuine.restart().await;
    scene.above.rejoin();
    // These reads also end the delay of the cache's stream, however long it has become.
    let cached = scene.cached();
    until("the cache follows again", async || cached.get(RESOURCES[0].1).await.code == 200).await;
    writer.write(step, Way::Either).await;
    writer.write_others().await;
}

/// Waits until all clients follow again, with no fault to come: a client that lists would read the sentinel before the rest
/// of its state.
async fn catch_up(writer: &mut Writer, followers: &[Follower]) {
    for follower in followers {
        follower.proxy.iter().for_each(crate::faults::Proxy::calm);
    }
    writer.write(LAST_WRITES, Way::Either).await;
    let key = writer.create("last-but-one").await;
    for follower in followers {
        until(&format!("{} has {key}", follower.name), async || follower.has(&key) || !follower.is_running()).await;
    }
}

/// Compares all copies with a consistent list of the API server.
async fn compare(scene: &Scene, writer: &Writer, followers: &mut [Follower], metrics: Option<&KubeStateMetrics>) {
    let (direct, cached) = (scene.direct(), scene.cached());
    let selected = with_query(RESOURCES[0].1, &[("labelSelector", SELECTOR)]);
    let list = direct.get(&selected).await.with_code(200).json();
    let served: State =
        list["items"].as_array().unwrap().iter().map(|item| (key(item), resource_version(item))).collect();
    assert_eq!(served, writer.history.state_at(u64::MAX), "the API server holds what was written");
    let mut failures = Vec::new();
    for follower in followers.iter_mut() {
        let ended = follower.ended().await;
        let compared = ended.and_then(|lines| {
            let end = lines.iter().find_map(|line| line.cache.as_ref()).ok_or("it printed no copy")?;
            if state(end) != served {
                return Err(format!("in the end {end:?}, not {served:?}"));
            }
            check_each_object(&lines, &writer.history)?;
            follower.check_states(STATES_MAX)
        });
        failures.extend(compared.err().map(|error| format!("{}: {error}", follower.name)));
    }
    assert!(failures.is_empty(), "{failures:#?}");
    for (_, path) in RESOURCES {
        until("the cache answers", async || cached.get(path).await.code == 200).await;
        let [ours, theirs] = [&cached, &direct].map(|server| server.get(path));
        let (ours, theirs) = (ours.await.with_code(200).json(), theirs.await.with_code(200).json());
        assert_eq!(ours["items"], theirs["items"], "{path}");
    }
    if let Some(metrics) = metrics {
        metrics.equals(&direct).await;
    }
    let Writer { through, failed, .. } = writer;
    let changes = writer.history.told().len();
    eprintln!("{} objects after {changes} changes: {through} writes through the cache, {failed} failed", served.len());
}

/// Asserts that no client's read reached the API server, and how often the cache read a whole type.
fn assert_few_reads(scene: &Scene) {
    let reads = scene.genuine.reads();
    for (resource, path) in RESOURCES {
        let of_type = || reads.iter().filter(|read| read.is_of(path));
        let passed_on: Vec<_> = of_type().filter(|read| read.user == READER).collect();
        assert!(passed_on.is_empty(), "{resource}: read by clients themselves: {passed_on:#?}");
        // A restarted API server refuses some before its own caches are filled.
        let initial: Vec<_> = of_type()
            .filter(|read| read.user == CACHE && read.is_initial(PROOF_OBJECTS_MAX))
            .filter(|read| read.code.is_none_or(|code| code == 200))
            .collect();
        let all = of_type().filter(|read| read.user == CACHE).count();
        eprintln!("{resource}: {} initial reads of the API server, and {all} reads of any kind", initial.len());
        assert!((1..=INITIAL_READS_MAX).contains(&initial.len()), "{resource}: {initial:#?}");
    }
}
