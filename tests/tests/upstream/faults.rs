//! The API server is killed, restarted, and its history compacted, while clients read through the cache.

use std::time::{Duration, Instant};

use serde_json::json;
use tests::{
    genuine::{ADMIN, Genuine},
    http::{Answer, Client, MERGE_PATCH, Step, Watch, with_query},
    objects::{Object, configmap},
    process::Server,
};

use super::{PATIENCE, cache_of, cache_with, client_of, namespace, until};

/// Deployments: the API server itself reads none, so every read of them that it counts is the cache's.
pub(super) const RESOURCES: &str = "configmaps,deployments.apps";
const MAPS: &str = "/api/v1/namespaces/faults/configmaps";
pub(super) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/faults/deployments";
/// Time in which a killed API server is noticed by an idle watch: its connection is reset at once.
const NOTICED_WITHIN: Duration = Duration::from_secs(5);
/// Time of an outage.
const OUTAGE: Duration = Duration::from_secs(3);

fn map(name: &str) -> Object {
    configmap(name).namespace("faults").data("one")
}

pub(super) fn deployment(name: &str) -> serde_json::Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "faults"},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        }},
    })
}

/// An API server with 20 ConfigMaps and three Deployments, a cache of them, and open watches through it.
struct Scene {
    genuine: Genuine,
    server: Server,
    cached: Client,
    maps: Watch,
    deployments: Watch,
}

async fn scene(test: &str) -> Option<Scene> {
    let genuine = Genuine::start(test).await?;
    let admin = genuine.client(ADMIN);
    admin.create_manifest(&namespace("faults")).await;
    for number in 0..20 {
        admin.create(&map(&format!("m{number}"))).await;
    }
    for number in 0..3 {
        admin.create_manifest(&deployment(&format!("d{number}"))).await;
    }
    let server = cache_of(&genuine, RESOURCES).await;
    let cached = client_of(&server, ADMIN);
    let [maps, deployments] = [MAPS, DEPLOYMENTS].map(|path| open(&cached, path));
    let (maps, deployments) = (maps.await, deployments.await);
    Some(Scene { genuine, server, cached, maps, deployments })
}

/// Opens a watch from the present.
pub(super) async fn open(client: &Client, path: &str) -> Watch {
    let position = client.get(path).await.with_code(200).resource_version().to_string();
    let query = [("watch", "1"), ("resourceVersion", &*position), ("allowWatchBookmarks", "true")];
    let watch = client.watch(&with_query(path, &query)).await;
    assert_eq!(watch.code(), 200);
    watch
}

/// Asserts that an open watch shows nothing but bookmarks until `end`.
async fn assert_quiet(watch: &mut Watch, end: Instant) {
    loop {
        match watch.step(end.saturating_duration_since(Instant::now())).await {
            Step::Silence => return,
            Step::Event(event) => assert_eq!(event.brief(), "BOOKMARK"),
            other @ (Step::End | Step::Cut(_)) => panic!("the watch ended: {other:?}"),
        }
    }
}

/// The next event other than bookmarks.
pub(super) async fn next(watch: &mut Watch) -> String {
    loop {
        let brief = watch.event().await.brief();
        if brief != "BOOKMARK" {
            return brief;
        }
    }
}

#[track_caller]
pub(super) fn assert_unavailable(answer: &Answer) {
    assert_eq!(answer.code, 503, "{}: {}", answer.asked, answer.text());
    let seconds: u64 = answer.header("retry-after").parse().unwrap_or_else(|_| panic!("no Retry-After: {answer:?}"));
    assert!((1..=60).contains(&seconds), "{answer:?}");
    let status = answer.json();
    assert_eq!((&status["kind"], &status["reason"]), (&json!("Status"), &json!("ServiceUnavailable")), "{status}");
}

/// The text of `/readyz?verbose`.
async fn readiness(server: &Server) -> String {
    server.client().get("/readyz?verbose").await.text().to_owned()
}

impl Scene {
    async fn kill(&mut self) {
        self.genuine.kill();
        let begun = Instant::now();
        until("the outage is noticed", async || readiness(&self.server).await.contains("degraded")).await;
        assert!(begun.elapsed() < NOTICED_WITHIN, "noticed after {:?}", begun.elapsed());
    }

    async fn restart(&mut self) {
        self.genuine.restart().await;
        until("the outage has ended", async || !readiness(&self.server).await.contains("degraded")).await;
    }
}

#[tokio::test]
async fn while_the_api_server_is_away_cached_reads_and_watches_go_on() {
    let Some(mut scene) = scene("upstream outage").await else { return };
    // The decision about this read is cached before the outage.
    let any = format!("{MAPS}?resourceVersion=0");
    scene.cached.get(&any).await.with_code(200);
    scene.kill().await;
    let text = readiness(&scene.server).await;
    let line = text.lines().find(|line| line.contains("degraded")).unwrap();
    assert!(line.contains("since"), "{text}");
    let end = Instant::now() + OUTAGE;
    while Instant::now() < end {
        assert_eq!(scene.cached.get(&any).await.with_code(200).keys().len(), 20);
        assert_quiet(&mut scene.maps, Instant::now() + Duration::from_millis(200)).await;
        assert_quiet(&mut scene.deployments, Instant::now()).await;
    }
    assert_unavailable(&scene.cached.get(MAPS).await);
    assert_unavailable(&scene.cached.get(&map("m1").path()).await);
    assert_unavailable(&scene.cached.post(MAPS, map("new").body()).await);
    assert_unavailable(&scene.cached.patch(&map("m1").path(), MERGE_PATCH, &json!({"data": null})).await);
    assert_unavailable(&scene.cached.delete(&map("m1").path()).await);
    assert_unavailable(&scene.cached.get("/apis").await);
}

/// Goal: a restart of the API server costs it at most one initial read of a type, as its own window is empty then, and
/// clients nothing. Method: a short outage without writes; then writes to both types, which the watches opened before it
/// must show.
#[tokio::test]
async fn after_a_restart_open_watches_go_on() {
    let Some(mut scene) = scene("upstream restart").await else { return };
    scene.kill().await;
    scene.restart().await;
    let admin = scene.genuine.client(ADMIN);
    admin.create(&map("new")).await;
    admin.create_manifest(&deployment("new")).await;
    assert_eq!(next(&mut scene.maps).await, "ADDED faults/new");
    assert_eq!(next(&mut scene.deployments).await, "ADDED faults/new");
    let counters = scene.genuine.counters().await;
    // Keys and versions are compared after a break that lasted long.
    assert!(counters.initial_streams("deployments") <= 1 && counters.lists("deployments") <= 2);
    assert_eq!(counters.open_watches("deployments"), 1);
    scene.cached.get(MAPS).await.with_code(200);
    scene.cached.post(MAPS, map("newer").body()).await.with_code(201);
    assert_eq!(next(&mut scene.maps).await, "ADDED faults/newer");
}

/// Goal: with a state on disk, our own restart costs the API server no initial read, and no client relists. Method: writes
/// before and while the server is down; a client resumes from a position before all of them at the next server.
#[tokio::test]
async fn our_own_restart_costs_no_list() {
    let Some(genuine) = Genuine::start("upstream state").await else { return };
    let admin = genuine.client(ADMIN);
    admin.create_manifest(&namespace("faults")).await;
    for number in 0..3 {
        admin.create_manifest(&deployment(&format!("d{number}"))).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--state-dir", folder.path().to_str().unwrap()];
    let first = cache_with(&genuine, RESOURCES, &flags).await;
    let cached = client_of(&first, ADMIN);
    let position = cached.get(DEPLOYMENTS).await.with_code(200).resource_version().to_string();
    let mut watch = open(&cached, DEPLOYMENTS).await;
    admin.create_manifest(&deployment("before")).await;
    assert_eq!(next(&mut watch).await, "ADDED faults/before");
    first.terminate();
    first.ended().await;
    let counters = genuine.counters().await;
    let reads = (counters.lists("deployments"), counters.initial_streams("deployments"));
    admin.create_manifest(&deployment("meanwhile")).await;
    admin.delete(&format!("{DEPLOYMENTS}/d1")).await.with_code(200);

    let second = cache_with(&genuine, RESOURCES, &flags).await;
    let query = [("watch", "1"), ("resourceVersion", &*position), ("allowWatchBookmarks", "true")];
    let mut watch = client_of(&second, ADMIN).watch(&with_query(DEPLOYMENTS, &query)).await;
    assert_eq!(watch.code(), 200);
    for event in ["ADDED faults/before", "ADDED faults/meanwhile", "DELETED faults/d1"] {
        assert_eq!(next(&mut watch).await, event);
    }
    let counters = genuine.counters().await;
    assert_eq!(counters.initial_streams("deployments"), reads.1);
    // The proof of the history is a list of one name where a get tells nothing. Then keys and versions are compared.
    assert!(counters.lists("deployments") <= reads.0 + 2, "{} after {}", counters.lists("deployments"), reads.0);
}

/// Goal: no change is lost when the API server no longer has it. Method: while the cache is stopped, the API server
/// restarts, accepts writes, and restarts again after a compaction, so that no watch can show them. Afterwards lists are
/// equal, and an open watch either shows all changes or ends cleanly before it shows any.
#[tokio::test]
async fn after_a_compaction_the_state_is_the_api_servers() {
    let Some(mut scene) = scene("upstream compaction").await else { return };
    scene.server.signal("STOP");
    scene.genuine.restart().await;
    let admin = scene.genuine.client(ADMIN);
    admin.create(&map("new")).await;
    admin.delete(&map("m3").path()).await.with_code(200);
    admin.patch(&map("m4").path(), MERGE_PATCH, &json!({"data": {"k": "two"}})).await.with_code(200);
    scene.genuine.kill();
    scene.genuine.compact().await;
    scene.genuine.restart().await;
    scene.server.signal("CONT");

    let expected = scene.genuine.client(ADMIN).get(MAPS).await.with_code(200).json();
    until("the cache serves reads", async || scene.cached.get(MAPS).await.code == 200).await;
    assert_eq!(scene.cached.get(MAPS).await.json()["items"], expected["items"]);
    let mut seen = Vec::new();
    loop {
        match scene.maps.step(PATIENCE).await {
            Step::Event(event) if event.brief() == "BOOKMARK" => {}
            Step::Event(event) => seen.push(event.brief()),
            // It may end, but not with a part of the changes.
            Step::End => {
                assert!(seen.is_empty() || seen.len() == 3, "{seen:?}");
                break;
            }
            other @ (Step::Cut(_) | Step::Silence) => panic!("{other:?} after {seen:?}"),
        }
        if seen.len() == 3 {
            break;
        }
    }
    if !seen.is_empty() {
        assert_eq!(seen, ["ADDED faults/new", "DELETED faults/m3", "MODIFIED faults/m4"]);
    }
}
