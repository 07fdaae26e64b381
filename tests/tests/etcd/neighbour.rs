//! A stock kube-apiserver and a cache-server on one etcd: each serves the writes of the other, and watchers of both see
//! etcd's own history. Needs `benches/kube-apiserver/prepare`.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tests::{
    genuine::{ADMIN, Genuine},
    http::{Client, MERGE_PATCH},
    objects::{configmap, namespace, replica_set},
    process::Server,
};
use tokio::time::sleep;

use super::{
    CHECK_EVERY, MAPS, PATIENCE, assert_converged,
    follower::{Follower, History},
    layout::{create, manifests::manifests},
    listed, serve_at,
    writers::{NAMESPACES, Writers, team},
};

/// Watchers at each of the two servers.
const FOLLOWERS: usize = 3;
const WRITERS: usize = 4;
/// Pause of each writer.
const PAUSE: Duration = Duration::from_millis(10);
const WRITES: usize = 400;

async fn beside(genuine: &Genuine, flags: &[&str]) -> Server {
    serve_at(&format!("http://{}", genuine.etcd()), flags).await
}

/// Goal: with a kube-apiserver beside it the server serves its writes and takes others, and every watcher of both sees
/// every change once. Method: writers and watchers at both; the history of etcd.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_of_both_servers_see_the_history_of_etcd() {
    let Some(genuine) = Genuine::start("etcd neighbour").await else { return };
    let server = beside(&genuine, &["--etcd-allow-writes"]).await;
    let (direct, cached) = (genuine.client(ADMIN), server.client());
    for number in 0..NAMESPACES {
        direct.create(&namespace(&team(number))).await;
    }
    let before = direct.get(MAPS).await.with_code(200).resource_version();
    let sides = [direct, cached];
    let followers: Vec<(usize, Follower)> = (0..2 * FOLLOWERS)
        .map(|number| (number % 2, Follower::start(&sides[number % 2..=number % 2], before, None)))
        .collect();
    let writers = Writers::start(&sides, WRITERS, PAUSE);
    writers.wrote(WRITES).await;
    let log = writers.stop().await;
    let last = cached.create(&configmap("last")).await;
    let history = History::read(&genuine.keys(), before).await;
    log.assert_within(&history);
    for (side, follower) in followers {
        let followed = follower.assert_equals(&history, last).await;
        assert_eq!(followed.watches(), 1, "side {side}");
    }
    let [ours, theirs] = [cached, direct].map(|client| async move { client.get(MAPS).await.with_code(200).json() });
    let (ours, theirs) = (ours.await, theirs.await);
    assert_eq!(listed(&ours), listed(&theirs));
    for (ours, theirs) in ours["items"].as_array().unwrap().iter().zip(theirs["items"].as_array().unwrap()) {
        assert_eq!(without_fields(ours), without_fields(theirs));
    }
    assert_converged(&cached, &genuine.keys()).await;
}

/// An object without `managedFields`, whose order in time both servers may give differently.
fn without_fields(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"].as_object_mut().unwrap().remove("managedFields");
    object
}

/// Goal: without permission nothing of the cluster is touched, and all of it is served. Method: every type that kube-apiserver
/// has objects of, as protobuf and JSON, is listed at both.
#[tokio::test]
async fn a_cluster_is_served_read_only_and_whole() {
    let Some(genuine) = Genuine::start("etcd neighbour read-only").await else { return };
    let direct = genuine.client(ADMIN);
    for (collection, manifest, _) in manifests() {
        create(&direct, collection, &manifest).await;
    }
    let server = beside(&genuine, &[]).await;
    let cached = server.client();
    let collections: BTreeSet<&str> = manifests().into_iter().map(|(collection, ..)| collection).collect();
    for collection in collections.into_iter().filter(|collection| !collection.contains("apiregistration")) {
        // Controllers of kube-apiserver write some of them at any time.
        let begun = Instant::now();
        loop {
            let (ours, theirs) = (cached.get(collection).await, direct.get(collection).await.with_code(200));
            let [ours, theirs] = [ours.with_code(200), theirs].map(|list| items(&list.json()));
            if ours == theirs {
                break;
            }
            // Controllers of kube-apiserver write some of them at any time.
            let different = ours.iter().zip(&theirs).find(|(ours, theirs)| ours != theirs);
            assert!(begun.elapsed() < PATIENCE / 2, "{collection}: {different:#?}");
            sleep(CHECK_EVERY).await;
        }
    }
    let object = configmap("refused");
    let refused = cached.post(&object.collection(), object.body()).await;
    assert!(matches!(refused.code.as_u16(), 403 | 405), "{}", refused.text());
    assert!(genuine.keys().get("/registry/configmaps/default/refused").await.is_none());
}

/// Goal: members that kube-apiserver fills in while it reads are here too, and selectors see them. Method: a Job whose
/// template has no labels, a claim, and a StatefulSet with a claim template, written by kube-apiserver.
#[tokio::test]
async fn members_that_kube_apiserver_does_not_store_are_filled_in() {
    let Some(genuine) = Genuine::start("etcd neighbour defaults").await else { return };
    let direct = genuine.client(ADMIN);
    let pods = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let labelled = replica_set("a").body()["spec"]["template"].clone();
    let set = json!({"serviceName": "a", "replicas": 0, "selector": {"matchLabels": {"app": "a"}},
        "template": labelled, "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}]});
    let within = |group: &str, plural: &str| format!("{group}/namespaces/default/{plural}");
    let objects = [
        (within("/apis/batch/v1", "jobs"), "batch/v1", "Job", json!({"template": pods})),
        (within("/api/v1", "persistentvolumeclaims"), "v1", "PersistentVolumeClaim", claim),
        (within("/apis/apps/v1", "statefulsets"), "apps/v1", "StatefulSet", set),
    ];
    for (collection, api_version, kind, spec) in &objects {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, "spec": spec});
        direct.post(collection, &object).await.with_code(201);
    }
    let server = beside(&genuine, &[]).await;
    for (collection, ..) in &objects {
        let [ours, theirs] = [server.client(), direct].map(|client| async move { client.get(collection).await });
        let (ours, theirs) = (ours.await.with_code(200).json(), theirs.await.with_code(200).json());
        assert_eq!(items(&ours), items(&theirs), "{collection}");
    }
    let selected = format!("{}?labelSelector=batch.kubernetes.io%2Fjob-name%3Da", objects[0].0);
    for client in [server.client(), direct] {
        assert_eq!(client.get(&selected).await.with_code(200).keys(), ["default/a"]);
    }
}

/// The objects of a list without null members, which Go writes for empty lists and this server leaves out.
fn items(list: &Value) -> Vec<Value> {
    let mut items = list["items"].as_array().unwrap().clone();
    for item in &mut items {
        item.as_object_mut().unwrap().retain(|_, member| !member.is_null());
    }
    items
}

/// Goal: a conflict between the two servers is a conflict, and no update is lost. Method: both increment one counter.
#[tokio::test]
async fn increments_through_both_servers_are_all_counted() {
    let Some(genuine) = Genuine::start("etcd neighbour conflicts").await else { return };
    let server = beside(&genuine, &["--etcd-allow-writes"]).await;
    genuine.client(ADMIN).create(&configmap("counter").data("0")).await;
    let increments = [genuine.client(ADMIN), server.client()].map(|client| tokio::spawn(increment(client, 50)));
    for increment in increments {
        increment.await.unwrap();
    }
    for client in [genuine.client(ADMIN), server.client()] {
        let counter = client.get(&configmap("counter").path()).await.with_code(200).json();
        assert_eq!(counter["data"]["k"], "100");
    }
}

async fn increment(client: Client, times: usize) {
    let (path, mut done) = (configmap("counter").path(), 0);
    while done < times {
        let counter = client.get(&path).await.with_code(200).json();
        let next = counter["data"]["k"].as_str().unwrap().parse::<usize>().unwrap() + 1;
        let version = counter["metadata"]["resourceVersion"].clone();
        let patch = json!({"metadata": {"resourceVersion": version}, "data": {"k": next.to_string()}});
        let answer = client.patch(&path, MERGE_PATCH, &patch).await;
        match answer.code.as_u16() {
            200 => done += 1,
            409 => {}
            code => panic!("{code}: {}", answer.text()),
        }
    }
}
