//! The cluster's etcd is restored from a backup, as operators do it: with the kube-apiserver stopped. Nothing of the lost
//! history is read as current, and nothing of it stays.

use std::{path::PathBuf, time::Duration};

use serde_json::json;
use tests::{
    genuine::{ADMIN, Genuine},
    http::{Client, MERGE_PATCH, with_query},
    objects::{Object, configmap, replica_set},
    process::Server,
};
use tokio::time::sleep;

use super::{cache_with, client_of, namespace, until};

const RESOURCES: &str = "configmaps,replicasets.apps";
const MAPS: &str = "/api/v1/namespaces/restores/configmaps";
const SETS: &str = "/apis/apps/v1/namespaces/restores/replicasets";
/// Objects of the larger type: more than are compared at each read, so that pages are.
const MANY: usize = 600;
/// Lost writes of another object: more than a kube-apiserver makes while it starts, so that its position stays below the lost
/// one until the first reads.
const LOST_WRITES: usize = 500;

fn map(name: &str) -> Object {
    configmap(name).namespace("restores").data("one")
}

fn set(name: &str) -> Object {
    replica_set(name).namespace("restores")
}

/// A cluster with many ConfigMaps and three ReplicaSets, a snapshot of that, and changes of both types after it: an object
/// that the snapshot lacks, one that it brings back, and one that it makes older.
async fn changed_after_backup(test: &str) -> Option<(Genuine, PathBuf)> {
    let genuine = Genuine::start(test).await?;
    let admin = genuine.client(ADMIN);
    admin.create_manifest(&namespace("restores")).await;
    for number in 0..MANY {
        admin.create(&map(&format!("m{number}"))).await;
    }
    for number in 0..3 {
        admin.create(&set(&format!("s{number}"))).await;
    }
    let backup = genuine.snapshot();
    change(&admin, "lost").await;
    Some((genuine, backup))
}

/// Creates, deletes and changes one object of each type.
async fn change(admin: &Client, name: &str) {
    for object in [map(name), set(name)] {
        admin.create(&object).await;
    }
    for object in [map("m1"), set("s1")] {
        admin.delete(&object.path()).await.with_code(200);
    }
    let patch = json!({"metadata": {"labels": {"changed": "yes"}}});
    for object in [map("m2"), set("s2")] {
        admin.patch(&object.path(), MERGE_PATCH, &patch).await.with_code(200);
    }
}

/// Reads both types consistently until both reads succeed, and asserts that no answer has another state.
async fn assert_no_old_read(genuine: &Genuine, server: &Server) {
    for path in [MAPS, SETS] {
        let expected = genuine.client(ADMIN).get(path).await.with_code(200).json()["items"].clone();
        let cached = client_of(server, ADMIN);
        until("a consistent read succeeds", async || {
            let answer = cached.get(path).await;
            assert!(
                answer.code != 200 || answer.json()["items"] == expected,
                "{path}: another state is read as current"
            );
            answer.code == 200
        })
        .await;
        let any = with_query(path, &[("resourceVersion", "0")]);
        assert_eq!(cached.get(&any).await.with_code(200).json()["items"], expected, "{path}");
        cached.get(path).await.with_code(200);
    }
}

/// Goal: after a restore, no consistent read returns lost objects, and acknowledged writes are found. Method: the cache has
/// seen changes that the backup lacks; reads from the moment on at which the API server is ready again, and a write.
#[tokio::test]
async fn a_restored_etcd_is_followed_at_once() {
    let Some((mut genuine, backup)) = changed_after_backup("upstream restore").await else { return };
    let admin = genuine.client(ADMIN);
    for number in 0..LOST_WRITES {
        let patch = json!({"data": {"number": number.to_string()}});
        admin.patch(&map("m3").path(), MERGE_PATCH, &patch).await.with_code(200);
    }
    let server = cache_with(&genuine, RESOURCES, &[]).await;
    genuine.kill();
    genuine.restore_snapshot(&backup);
    genuine.restart().await;
    assert_no_old_read(&genuine, &server).await;
    let cached = client_of(&server, ADMIN);
    cached.post(MAPS, map("after").body()).await.with_code(201);
    assert!(cached.get(MAPS).await.with_code(200).keys().contains(&"restores/after".to_owned()));
}

/// Goal: lost objects do not stay if the restored API server has passed the position before the cache is connected again.
/// Method: the cache is stopped during the restore and the writes after it, or ends and starts with its saved state; no client
/// reads for some seconds, and the newest objects were rewritten.
#[tokio::test]
async fn a_restored_etcd_that_passed_the_position_is_found_out() {
    for restarts in [false, true] {
        let Some((mut genuine, backup)) = changed_after_backup("upstream passed").await else { return };
        let folder = tempfile::tempdir().unwrap();
        let flags = ["--state-dir", folder.path().to_str().unwrap()];
        let mut server = cache_with(&genuine, RESOURCES, &flags).await;
        if restarts {
            server.terminate();
            server.ended().await;
            server = Server::foreign(genuine.address(), ());
        } else {
            server.signal("STOP");
        }
        genuine.kill();
        genuine.restore_snapshot(&backup);
        genuine.restart().await;
        let admin = genuine.client(ADMIN);
        for number in 0..40 {
            let patch = json!({"metadata": {"labels": {"round": number.to_string()}}});
            for object in [map("m2"), set("s2")] {
                admin.patch(&object.path(), MERGE_PATCH, &patch).await.with_code(200);
            }
        }
        if restarts {
            server = cache_with(&genuine, RESOURCES, &flags).await;
        } else {
            server.signal("CONT");
        }
        // Without a reader.
        sleep(Duration::from_secs(5)).await;
        let cached = client_of(&server, ADMIN);
        for path in [MAPS, SETS] {
            let (any, expected) = (with_query(path, &[("resourceVersion", "0")]), admin.get(path).await.json());
            until("the cache has the API server's state", async || {
                let answer = cached.get(&any).await;
                answer.code == 200 && answer.json()["items"] == expected["items"]
            })
            .await;
        }
        assert_no_old_read(&genuine, &server).await;
    }
}

/// Goal: an API server that hangs delays no read of a caller whose right is known. Method: its process is stopped; once the
/// answers have an age, reads are quick, although the API server decides about them.
#[tokio::test]
async fn an_api_server_that_is_stopped_delays_no_known_caller() {
    let Some(genuine) = Genuine::start("upstream hangs").await else { return };
    let server = cache_with(&genuine, RESOURCES, &[]).await;
    let cached = client_of(&server, ADMIN);
    let any = "/api/v1/configmaps?resourceVersion=0";
    cached.get(any).await.with_code(200);
    genuine.pause();
    until("the silence is noticed", async || !cached.get(any).await.with_code(200).header("age").is_empty()).await;
    // Longer than an answer about a right is used otherwise.
    sleep(Duration::from_secs(11)).await;
    for _ in 0..5 {
        let answer = cached.get(any).await.with_code(200);
        assert!(answer.took < Duration::from_secs(1), "{:?}", answer.took);
        assert!(!answer.header("age").is_empty());
    }
    assert!(server.client().get("/readyz?verbose").await.with_code(200).text().contains("[+]upstream degraded since"));
    genuine.resume();
    until("it is back", async || cached.get("/api/v1/configmaps").await.code == 200).await;
    until("its answers count", async || cached.get(any).await.with_code(200).header("age").is_empty()).await;
}
