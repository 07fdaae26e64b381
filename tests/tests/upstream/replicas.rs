//! Several cache-servers in front of one API server: they fill themselves from each other, start together, and listen
//! only when they are ready.

use futures::future::join_all;
use http::Method;
use serde_json::json;
use tests::{
    genuine::{ADMIN, CACHE, Counters, Genuine},
    http::{Client, MERGE_PATCH, with_query},
    objects::{Object, configmap, replica_set},
    process::Server,
};

use super::{BINARY, cache_of, cache_with, client_of, namespace, until};

/// ReplicaSets: the API server itself reads none, so every read of them that it counts is a cache's.
const RESOURCES: &str = "configmaps,replicasets.apps";
const SETS: &str = "/apis/apps/v1/namespaces/replicas/replicasets";
const MAPS: &str = "/api/v1/namespaces/replicas/configmaps";
/// Objects of each type.
const OBJECTS: usize = 50;
/// Cache-servers that start together.
const TOGETHER: usize = 10;

fn map(name: &str) -> Object {
    configmap(name).namespace("replicas").data("one")
}

fn set(name: &str) -> Object {
    replica_set(name).namespace("replicas")
}

/// Creates the objects of both types.
async fn fill(admin: &Client) {
    admin.create_manifest(&namespace("replicas")).await;
    for number in 0..OBJECTS {
        admin.create(&map(&format!("m{number}"))).await;
        admin.create(&set(&format!("s{number}"))).await;
    }
}

/// Streams of initial state and lists of ReplicaSets so far.
fn reads(counters: &Counters) -> (u64, u64) {
    (counters.initial_streams("replicasets"), counters.lists("replicasets"))
}

/// A cache-server that is filled from `peer`.
async fn filled_from(genuine: &Genuine, peer: &str) -> Server {
    cache_with(genuine, RESOURCES, &["--peer", peer]).await
}

fn url(server: &Server) -> String {
    format!("http://{}", server.address())
}

/// Asserts that a cache holds what the API server has.
async fn assert_equal(genuine: &Genuine, server: &Server) {
    let (admin, cached) = (genuine.client(ADMIN), client_of(server, ADMIN));
    for path in [SETS, MAPS] {
        let (ours, theirs) = (cached.get(path).await.with_code(200), admin.get(path).await.with_code(200));
        assert_eq!(ours.json()["items"], theirs.json()["items"], "{path}");
    }
}

/// Goal: a new replica costs the API server no initial read, serves what the API server has, and follows it without its
/// peer. Method: counters of the API server around the start of the second replica; writes after it; a third replica
/// whose peer has ended.
#[tokio::test]
async fn a_new_replica_fills_itself_from_another() {
    let Some(genuine) = Genuine::start("upstream peer").await else { return };
    let admin = genuine.client(ADMIN);
    fill(&admin).await;
    let first = cache_of(&genuine, RESOURCES).await;
    let before = client_of(&first, ADMIN).get(SETS).await.with_code(200).resource_version().to_string();
    admin.create(&set("between")).await;
    let all = format!("{SETS}?limit=1&resourceVersion=0");
    let newest = admin.get(SETS).await.with_code(200).resource_version();
    until("the first replica has it", async || {
        client_of(&first, ADMIN).get(&all).await.with_code(200).resource_version() >= newest
    })
    .await;

    let counted = reads(&genuine.counters().await);
    let second = filled_from(&genuine, &url(&first)).await;
    let (streams, lists) = reads(&genuine.counters().await);
    // The history is proved by GETs of single objects.
    assert_eq!((streams, lists), counted, "initial reads at the API server");
    assert_equal(&genuine, &second).await;

    let position = client_of(&second, ADMIN).get(SETS).await.with_code(200).resource_version().to_string();
    drop(first);
    let watched = |after: &str| with_query(SETS, &[("watch", "1"), ("resourceVersion", after)]);
    let mut watch = client_of(&second, ADMIN).watch(&watched(&position)).await;
    admin.create(&set("after")).await;
    assert_eq!(watch.event().await.brief(), "ADDED replicas/after");
    admin.patch(&set("s1").path(), MERGE_PATCH, &json!({"metadata": {"labels": {"a": "b"}}})).await.with_code(200);
    admin.delete(&set("s2").path()).await.with_code(200);
    assert_eq!(watch.event().await.brief(), "MODIFIED replicas/s1");
    assert_eq!(watch.event().await.brief(), "DELETED replicas/s2");
    let mut older = client_of(&second, ADMIN).watch(&watched(&before)).await;
    assert_eq!(older.event().await.brief(), "ERROR 410", "the window begins with the state");

    let third = filled_from(&genuine, "http://127.0.0.1:1").await;
    assert_eq!(reads(&genuine.counters().await).0, counted.0 + 1, "the peer is away");
    assert_equal(&genuine, &third).await;
}

/// Goal: a read of a peer never reaches the API server. Method: reads with and without a cached answer, and a write, all
/// with `Cache-Control: only-if-cached`.
#[tokio::test]
async fn a_read_only_if_cached_is_not_passed_on() {
    let Some(genuine) = Genuine::shared("upstream only-if-cached").await else { return };
    let server = cache_with(genuine, "configmaps,pods", &["--scope", "pods=spec.nodeName=n"]).await;
    let cached = client_of(&server, ADMIN);
    for (path, code) in [
        ("/api/v1/configmaps?resourceVersion=0", 200),
        ("/api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName%3Dn", 200),
        ("/api/v1/pods?resourceVersion=0", 504),
        ("/apis/apps/v1/replicasets?resourceVersion=0", 504),
        ("/api/v1/namespaces/default/configmaps/none", 504),
        ("/version", 504),
        ("/readyz", 200),
    ] {
        let answer = cached.get_with(path, &[("cache-control", "no-transform, Only-If-Cached")]).await;
        assert_eq!(answer.code, code, "{path}: {}", answer.text());
        if code == 504 {
            assert_eq!(answer.json()["reason"], "Timeout", "{path}");
        }
    }
    let headers = [("cache-control", "only-if-cached"), ("content-type", "application/json")];
    let body = configmap("written").namespace("default").body().to_string().into();
    let written = cached.send(Client::request(Method::POST, "/api/v1/namespaces/default/configmaps", &headers, body));
    written.await.with_code(201);
}

/// Goal: a state of another cluster is never served. Method: a peer in front of another cluster with equally named objects
/// and one more.
#[tokio::test]
async fn a_peer_of_another_cluster_is_found_out() {
    let Some(genuine) = Genuine::start("upstream foreign peer").await else { return };
    let Some(other) = Genuine::start("upstream foreign peer").await else { return };
    fill(&genuine.client(ADMIN)).await;
    fill(&other.client(ADMIN)).await;
    other.client(ADMIN).create(&set("foreign")).await;
    let peer = cache_of(&other, RESOURCES).await;
    let before = reads(&genuine.counters().await).0;
    let server = filled_from(&genuine, &url(&peer)).await;
    assert_equal(&genuine, &server).await;
    assert_eq!(reads(&genuine.counters().await).0, before + 1);
}

/// Goal: replicas that start together cost the API server one initial read of a type each at most. Method: as many
/// processes at once; afterwards each of them serves everything.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_start_together_read_each_type_once() {
    let Some(genuine) = Genuine::start("upstream replicas").await else { return };
    fill(&genuine.client(ADMIN)).await;
    let before = reads(&genuine.counters().await);
    let servers = join_all((0..TOGETHER).map(|_| cache_of(&genuine, RESOURCES))).await;
    let (streams, lists) = reads(&genuine.counters().await);
    assert_eq!((streams - before.0, lists - before.1), (TOGETHER as u64, 0));
    for server in &servers {
        let any = format!("{SETS}?resourceVersion=0");
        assert_eq!(client_of(server, ADMIN).get(&any).await.with_code(200).keys().len(), OBJECTS);
    }
}

/// Goal: no client is sent to a server that is not filled. Method: two servers that start while the API server is away: one
/// fails `/readyz`, the other one does not listen; then the API server starts, and both serve at once.
#[tokio::test]
async fn a_server_is_ready_when_its_types_are_filled() {
    let Some(mut genuine) = Genuine::start("upstream readiness").await else { return };
    fill(&genuine.client(ADMIN)).await;
    genuine.kill();
    let kubeconfig = genuine.kubeconfig(CACHE);
    let flags = ["--upstream", "--kubeconfig", kubeconfig.to_str().unwrap(), "--resources", RESOURCES];
    let unready = Server::start(BINARY, &flags).await;
    for path in ["/readyz", "/readyz?verbose"] {
        let answer = unready.client().get(path).await.with_code(500);
        for name in ["configmaps", "replicasets.apps"] {
            assert!(answer.text().contains(&format!("[-]cache/{name} failed")), "{}", answer.text());
        }
    }
    unready.client().get("/readyz/cache/configmaps").await.with_code(500);
    unready.client().get("/livez").await.with_code(200);
    let waits = [&flags[..], &["--listen-when-ready"]].concat();
    let mut waiting = Box::pin(Server::start(BINARY, &waits));
    let silence = tokio::time::timeout(super::PATIENCE / 10, &mut waiting).await;
    assert!(silence.is_err(), "it listens, and the API server is away");

    genuine.restart().await;
    let listening = waiting.await;
    listening.client().get("/readyz").await.with_code(200);
    let any = format!("{MAPS}?resourceVersion=0");
    assert_eq!(client_of(&listening, ADMIN).get(&any).await.with_code(200).keys().len(), OBJECTS);
    until("the other one is ready", async || unready.client().get("/readyz").await.code == 200).await;
    let verbose = unready.client().get("/readyz?verbose").await.with_code(200);
    assert!(verbose.text().contains("[+]cache/configmaps ok\n[+]cache/replicasets.apps ok\n"), "{}", verbose.text());
}
