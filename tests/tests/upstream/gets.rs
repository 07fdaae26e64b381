//! GETs of single objects without a resourceVersion: many at once are answered from the cache, as consistent as lists.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::{
    StreamExt as _, future,
    stream::{self, FuturesUnordered},
};
use serde_json::json;
use tests::{
    genuine::{ADMIN, Genuine, GenuineSettings, Identity},
    http::{Answer, Client, with_query},
    objects::{Object, configmap, secret},
};

use super::{cache_of, client_of, namespace, until};

const RESOURCES: &str = "configmaps";
const MAPS: &str = "/api/v1/namespaces/gets/configmaps";
/// Connections that read.
const READERS: usize = 16;
/// GETs at once.
const GETS: u64 = 2_000;
/// Rounds of a write and a read. The stock server takes some milliseconds for each.
const ROUNDS: usize = 1_000;

fn map(name: &str, data: &str) -> Object {
    configmap(name).namespace("gets").data(data)
}

/// Requests for ConfigMaps that the API server has answered: all, and the GETs among them.
async fn answered(genuine: &Genuine) -> (u64, u64) {
    let counters = genuine.counters().await;
    let of = |labels: &[(&str, &str)]| counters.sum("apiserver_request_total", labels);
    (of(&[("resource", "configmaps")]), of(&[("resource", "configmaps"), ("verb", "GET")]))
}

/// Reads twenty objects, [`GETS`] times in all, through a few connections. Returns how many requests the API server has answered
/// meanwhile.
async fn requests_for_gets(genuine: &Genuine, cached: &Client) -> u64 {
    let before = answered(genuine).await;
    let paths = (0..GETS).map(|number| format!("{MAPS}/m{}", number % 20));
    let reads = stream::iter(paths).map(|path| async move { cached.get(&path).await }).buffer_unordered(READERS);
    let answers: Vec<Answer> = reads.collect().await;
    assert!(answers.iter().all(|answer| answer.code == 200 && answer.json()["kind"] == "ConfigMap"));
    answered(genuine).await.0 - before.0
}

/// Reads an object again and again through a few connections until `is_over`, and returns the number of answers.
async fn crowd(client: Client, path: &str, is_over: &AtomicBool) -> usize {
    let count = AtomicUsize::new(0);
    let reader = || async {
        while !is_over.load(Ordering::Relaxed) {
            client.get(path).await.with_code(200);
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    (0..READERS).map(|_| reader()).collect::<FuturesUnordered<_>>().collect::<Vec<()>>().await;
    count.load(Ordering::Relaxed)
}

/// Goal: many GETs cost the API server fewer requests than they are; a deleted object, unknown names, tables, metadata
/// and YAML are answered as by the API server; types that are not cached and callers without the right to all objects are
/// passed on. Method: two thousand GETs of twenty objects over sixteen connections, again until the stream of the type has a
/// proof, and the API server's counters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_gets_cost_the_api_server_few_requests() {
    let identities = vec![Identity::new("one-map", &[])];
    let settings = GenuineSettings { identities, ..GenuineSettings::default() };
    let Some(genuine) = Genuine::start_with("upstream gets", settings).await else { return };
    let admin = genuine.client(ADMIN);
    admin.create_manifest(&namespace("gets")).await;
    for number in 0..20 {
        admin.create(&map(&format!("m{number}"), "one")).await;
    }
    admin.create(&secret("s").namespace("gets").data("dg==")).await;
    let server = cache_of(&genuine, RESOURCES).await;
    let cached = client_of(&server, ADMIN);
    until("few of many GETs reach the API server", async || requests_for_gets(&genuine, &cached).await < GETS / 2)
        .await;

    // Beside a crowd, so that single reads are answered from the cache.
    let (is_over, crowded) = (AtomicBool::new(false), format!("{MAPS}/m0"));
    let checks = async {
        for (path, headers) in [
            (format!("{MAPS}/m1"), &[][..]),
            (format!("{MAPS}/m1"), &[("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")]),
            (format!("{MAPS}/m1"), &[("accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")]),
            (format!("{MAPS}/m1"), &[("accept", "application/yaml")]),
            (format!("{MAPS}/m1?pretty=true"), &[]),
            (format!("{MAPS}/none"), &[]),
            (format!("{MAPS}/m1"), &[("accept", "application/vnd.kubernetes.protobuf")]),
            ("/api/v1/namespaces/gets/secrets/s".to_owned(), &[]),
        ] {
            let (ours, theirs) = (cached.get_with(&path, headers).await, admin.get_with(&path, headers).await);
            assert_eq!(ours.code, theirs.code, "{path} {headers:?}");
            assert_eq!(ours.header("content-type"), theirs.header("content-type"), "{path} {headers:?}");
            if theirs.header("content-type") == "application/json" && headers.is_empty() {
                assert_eq!(ours.json(), theirs.json(), "{path}");
            }
        }
        admits_only_named_objects(&genuine, client_of(&server, "one-map")).await;
        is_over.store(true, Ordering::Relaxed);
    };
    let (count, ()) = future::join(crowd(cached, &crowded, &is_over), checks).await;
    assert!(0 < count);
}

/// A caller that may read one object by its name reads that and no other, however often.
async fn admits_only_named_objects(genuine: &Genuine, caller: Client) {
    let admin = genuine.client(ADMIN);
    let group = "rbac.authorization.k8s.io";
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["m1"]}]);
    let metadata = json!({"name": "one-map", "namespace": "gets"});
    let role = json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata, "rules": rules});
    let subject = json!({"apiGroup": group, "kind": "User", "name": "one-map"});
    let reference = json!({"apiGroup": group, "kind": "Role", "name": "one-map"});
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata, "roleRef": reference,
        "subjects": [subject],
    });
    for manifest in [role, binding] {
        admin.create_manifest(&manifest).await;
    }
    until("the role has effect", async || caller.get(&format!("{MAPS}/m1")).await.code == 200).await;
    for _ in 0..20 {
        let codes = [caller.get(&format!("{MAPS}/m1")).await.code, caller.get(&format!("{MAPS}/m2")).await.code];
        assert_eq!(codes.map(|code| code.as_u16()), [200, 403]);
    }
}

/// Goal: a GET contains every write that was acknowledged before it, through the cache or past it, deletions and creations
/// too, and across restarts of the API server. Method: a thousand rounds of a write and a GET beside a crowd of GETs, of which
/// the cache answers some; then the same after a kill of the API server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_get_contains_every_write_before_it() {
    let Some(mut genuine) = Genuine::start("upstream gets after writes").await else { return };
    let admin = genuine.client(ADMIN);
    admin.create_manifest(&namespace("gets")).await;
    admin.create(&map("crowded", "one")).await;
    let server = cache_of(&genuine, RESOURCES).await;
    let sides = [admin, client_of(&server, ADMIN)];
    for (rounds, restarts) in [(ROUNDS, true), (ROUNDS / 10, false)] {
        let before = answered(&genuine).await;
        let (is_over, path) = (AtomicBool::new(false), format!("{MAPS}/crowded"));
        let writes = async {
            for round in 0..rounds {
                check_round(&sides, round).await;
            }
            is_over.store(true, Ordering::Relaxed);
        };
        let (count, ()) = future::join(crowd(sides[1], &path, &is_over), writes).await;
        let gets = answered(&genuine).await.1 - before.1;
        let passed = usize::try_from(gets).unwrap();
        assert!(passed < count + rounds, "{passed} of {count} GETs and {rounds} rounds were passed on");
        if restarts {
            genuine.restart().await;
            until("the cache is ready", async || sides[1].get(&with_query(MAPS, &[("limit", "1")])).await.code == 200)
                .await;
        }
    }
}

/// Creates, changes or deletes an object through one of the sides, and reads it through the cache.
async fn check_round(sides: &[Client; 2], round: usize) {
    let (writer, cached, object) = (sides[round % 2], sides[1], map("changing", &round.to_string()));
    match round % 4 {
        0 => {
            let written = writer.create(&object).await;
            assert_eq!(cached.get(&object.path()).await.with_code(200).resource_version(), written, "round {round}");
        }
        3 => {
            writer.delete(&object.path()).await.with_code(200);
            assert_eq!(cached.get(&object.path()).await.code, 404, "round {round}");
        }
        _ => {
            writer.update(&object).await;
            let read = cached.get(&object.path()).await.with_code(200);
            assert_eq!(read.json()["data"]["k"], round.to_string(), "round {round}");
        }
    }
}
