//! Writers of one object through two servers: no update is lost.

use http::Method;
use serde_json::{Value, json};
use tests::{
    etcd::EtcdCluster,
    http::{Client, MERGE_PATCH},
    objects::configmap,
};
use tokio::task::JoinSet;

use super::{MAP_KEYS, serve};

/// Writers at each of two servers.
const WRITERS: usize = 4;
/// Increments of each.
const INCREMENTS: usize = 10;

/// The way in which a writer increments the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A PUT with the version that was read; a conflict begins anew.
    Put,
    /// A merge patch with the version that was read.
    MergePatch,
    /// A JSON patch that tests the old value.
    JsonPatch,
}

/// Goal: no update is lost when writers at different servers change one object. Method: writers read a counter, increment
/// it under the condition that it is unchanged, and begin anew after a conflict.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn increments_through_two_servers_are_all_counted() {
    let Some(etcd) = EtcdCluster::start("etcd conflicts").await else { return };
    let servers = [serve(&etcd, &[]).await, serve(&etcd, &[]).await];
    for way in [Way::Put, Way::MergePatch, Way::JsonPatch] {
        servers[0].client().delete(&configmap("counter").path()).await;
        servers[0].client().create(&configmap("counter").data("0")).await;
        let mut writers = JoinSet::new();
        for writer in 0..2 * WRITERS {
            writers.spawn(increment(servers[writer % 2].client(), way));
        }
        let conflicts: usize = writers.join_all().await.into_iter().sum();
        let stored = etcd.keys().get(&format!("{MAP_KEYS}default/counter")).await.unwrap().json();
        assert_eq!(stored["data"]["k"], (2 * WRITERS * INCREMENTS).to_string(), "{way:?}");
        println!("{way:?}: {conflicts} conflicts");
    }
}

/// Returns the number of conflicts.
async fn increment(client: Client, way: Way) -> usize {
    let (mut done, mut conflicts) = (0, 0);
    while done < INCREMENTS {
        let path = configmap("counter").path();
        let mut object = client.get(&path).await.with_code(200).json();
        let version = object["metadata"]["resourceVersion"].clone();
        let old: usize = object["data"]["k"].as_str().unwrap().parse().unwrap();
        let new = Value::from((old + 1).to_string());
        let answer = match way {
            Way::Put => {
                object["data"]["k"] = new;
                client.put(&path, &object).await
            }
            Way::MergePatch => {
                let patch = json!({"metadata": {"resourceVersion": version}, "data": {"k": new}});
                client.patch(&path, MERGE_PATCH, &patch).await
            }
            Way::JsonPatch => {
                let patch = json!([
                    {"op": "test", "path": "/data/k", "value": old.to_string()},
                    {"op": "replace", "path": "/data/k", "value": new},
                ]);
                client.patch(&path, "application/json-patch+json", &patch).await
            }
        };
        match (answer.code.as_u16(), way) {
            (200, _) => done += 1,
            (409, _) | (422, Way::JsonPatch) => conflicts += 1,
            _ => panic!("{way:?}: {}", answer.text()),
        }
    }
    conflicts
}

/// Goal: one of several creations of a name succeeds, and one of several deletions of a version. Method: writers at two
/// servers create and delete equal names at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_creations_and_deletions_succeeds() {
    let Some(etcd) = EtcdCluster::start("etcd creations").await else { return };
    let servers = [serve(&etcd, &[]).await, serve(&etcd, &[]).await];
    for round in 0..10 {
        let object = configmap(&format!("once-{round}"));
        let mut requests = JoinSet::new();
        for writer in 0..2 * WRITERS {
            let (client, object) = (servers[writer % 2].client(), object.clone());
            requests.spawn(async move { client.post(&object.collection(), object.body()).await.code.as_u16() });
        }
        let mut codes = requests.join_all().await;
        codes.sort_unstable();
        assert_eq!((codes[0], &codes[1..]), (201, &[409; 2 * WRITERS - 1][..]));
        let uid = servers[1].client().get(&object.path()).await.with_code(200).json()["metadata"]["uid"].clone();
        let mut requests = JoinSet::new();
        for writer in 0..2 * WRITERS {
            let body = json!({"preconditions": {"uid": uid}}).to_string();
            let json = [("content-type", "application/json")];
            let request = Client::request(Method::DELETE, &object.path(), &json, body.into());
            let client = servers[writer % 2].client();
            requests.spawn(async move { client.send(request).await.code.as_u16() });
        }
        let mut codes = requests.join_all().await;
        codes.sort_unstable();
        assert_eq!((codes[0], &codes[1..]), (200, &[404; 2 * WRITERS - 1][..]));
    }
}
