//! Prefixes that a kube-apiserver owns, and values that this server cannot read.

use futures::future::join_all;
use serde_json::json;
use tests::{
    etcd::{EtcdCluster, EtcdKeyValue},
    http::{Client, MERGE_PATCH, with_query},
    objects::{configmap, namespace},
    process::Server,
};

use super::{MAP_KEYS, MAPS, assert_converged, listed, serve, stored, until};

/// An etcd with the objects of a cluster, of which no cache-server knows.
async fn foreign(test: &str) -> Option<EtcdCluster> {
    let etcd = EtcdCluster::start(test).await?;
    let team = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "uid": "uid-of-team"},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    });
    etcd.keys().put("/registry/namespaces/team", team.to_string()).await;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "1"},
        "metadata": {"name": "a", "namespace": "team", "uid": "uid-of-a"},
    });
    etcd.keys().put(&format!("{MAP_KEYS}team/a"), map.to_string()).await;
    Some(etcd)
}

/// Asserts that no write is taken, each with an answer that names the flag.
async fn assert_read_only(client: &Client) {
    let object = configmap("a").namespace("team").data("2");
    let json = [("content-type", "application/json")];
    let review = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "a-"}});
    for answer in [
        client.post(&object.collection(), configmap("b").namespace("team").body()).await,
        client.post(&object.collection(), &review).await,
        client.put(&object.path(), object.body()).await,
        client.patch(&object.path(), MERGE_PATCH, &json!({"data": {"k": "2"}})).await,
        client.delete(&object.path()).await,
        client.delete(&object.collection()).await,
        client.send(Client::request(http::Method::DELETE, "/api/v1/namespaces/team", &json, "{}".into())).await,
    ] {
        assert!(matches!(answer.code.as_u16(), 403 | 405), "{}: {}", answer.asked, answer.text());
        assert_eq!(answer.json()["kind"], "Status", "{}", answer.asked);
        assert!(answer.message().contains("--etcd-allow-writes"), "{}: {}", answer.asked, answer.text());
    }
}

/// Goal: the etcd of a cluster is served and stays untouched. Method: keys without a marker of this server; every kind of
/// write; all keys before and after.
#[tokio::test]
async fn a_foreign_prefix_is_read_only() {
    let Some(etcd) = foreign("etcd foreign").await else { return };
    let before: Vec<EtcdKeyValue> = etcd.keys().range("").await;
    let server = serve(&etcd, &[]).await;
    let client = server.client();
    assert_converged(&client, &etcd.keys()).await;
    assert_eq!(client.get("/api/v1/namespaces").await.with_code(200).keys(), ["team"]);
    let after = client.get(MAPS).await.with_code(200).resource_version().to_string();
    let mut watch = client.watch(&with_query(MAPS, &[("watch", "1"), ("resourceVersion", &after)])).await;
    assert_read_only(&client).await;
    assert_eq!(etcd.keys().range("").await, before, "no key was touched");

    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "namespace": "team"}});
    let at = etcd.keys().put(&format!("{MAP_KEYS}team/b"), map.to_string()).await;
    assert_eq!(watch.event().await.resource_version(), at, "changes of the owner are served");
}

/// Goal: with the operator's permission writes are taken, and nothing else is: controllers of the owner finish deletions.
/// Method: writes with the flag; a namespace and a definition that a controller would finish.
#[tokio::test]
async fn a_foreign_prefix_takes_writes_with_permission_and_no_controllers() {
    let Some(etcd) = foreign("etcd foreign writes").await else { return };
    let server = serve(&etcd, &["--etcd-allow-writes"]).await;
    let client = server.client();
    let object = configmap("b").namespace("team").data("1");
    let at = client.create(&object).await;
    assert_eq!(etcd.keys().get(&format!("{MAP_KEYS}team/b")).await.unwrap().mod_revision, at);
    client.update(&object.data("2")).await;
    client.delete("/api/v1/namespaces/team").await.with_code(200);
    // Written after the deletion, so a controller would have had its turn.
    for number in 0..20 {
        client.create(&configmap(&format!("later-{number}")).namespace("other")).await;
    }
    let team = etcd.keys().get("/registry/namespaces/team").await.expect("it waits for its controller").json();
    assert!(team["metadata"]["deletionTimestamp"].is_string(), "{team}");
    assert!(etcd.keys().get(&format!("{MAP_KEYS}team/a")).await.is_some(), "objects are the controller's to delete");
    let keys: Vec<String> = etcd.keys().range("").await.into_iter().map(|pair| pair.key).collect();
    assert!(keys.iter().all(|key| key.starts_with(MAP_KEYS) || key == "/registry/namespaces/team"), "{keys:?}");
}

/// Goal: an empty prefix belongs to the first server and to every later one. Method: a server, its objects, and another server
/// after it; controllers of one of them finish what the other one began.
#[tokio::test]
async fn an_own_prefix_is_writable_by_every_server() {
    let Some(etcd) = EtcdCluster::start("etcd own prefix").await else { return };
    let first = serve(&etcd, &[]).await;
    first.client().create(&configmap("a")).await;
    let second = serve(&etcd, &[]).await;
    second.client().update(&configmap("a").data("2")).await;
    second.client().create(&namespace("ending")).await;
    first.client().create(&configmap("within").namespace("ending")).await;
    second.client().delete("/api/v1/namespaces/ending").await.with_code(200);
    until("the namespace ends", async || first.client().get("/api/v1/namespaces/ending").await.code == 404).await;
    assert_eq!(stored(&etcd.keys(), 0).await.len(), 1);
    first.terminate();
    first.ended().await;
    let third = serve(&etcd, &[]).await;
    third.client().create(&configmap("b")).await;
    assert_eq!(second.client().get(MAPS).await.with_code(200).keys(), ["default/a", "default/b"]);
}

/// Goal: one of several servers that start at once on an empty prefix makes it theirs, and none takes it for a cluster's.
/// Method: servers that start together, and a write through each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_start_together_share_an_empty_prefix() {
    let Some(etcd) = EtcdCluster::start("etcd common start").await else { return };
    let servers: Vec<Server> = join_all((0..4).map(|_| serve(&etcd, &[]))).await;
    for (number, server) in servers.iter().enumerate() {
        server.client().create(&configmap(&format!("m{number}"))).await;
    }
    assert_converged(&servers[0].client(), &etcd.keys()).await;
    assert_eq!(stored(&etcd.keys(), 0).await.len(), 4);
}

/// Goal: values that kube-apiserver encrypted are refused with a reason, and other types are served. Method: a Secret as
/// encryption at rest stores it, before a start and under a running server.
#[tokio::test]
async fn encrypted_values_are_refused_with_a_reason() {
    let Some(etcd) = foreign("etcd encryption").await else { return };
    let encrypted = b"k8s:enc:aescbc:v1:key1:\x01\x02\xfe\xff";
    etcd.keys().put("/registry/secrets/team/hidden", encrypted).await;
    let server = serve(&etcd, &[]).await;
    let client = server.client();
    let paths = ["/api/v1/secrets", "/api/v1/namespaces/team/secrets/hidden", "/api/v1/secrets?resourceVersion=0"];
    join_all(paths.map(async |path| {
        let answer = client.get(path).await;
        assert!(answer.code == 429 || answer.code.as_u16() >= 500, "{path}: {} {}", answer.code, answer.text());
    }))
    .await;
    let reason = "encrypted at rest (provider aescbc)";
    let log = server.logged(reason).await;
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(reason)).collect();
    // Attempts with a growing delay, within the five seconds of a read.
    assert!((1..20).contains(&lines.len()), "{} lines: {:?}", lines.len(), lines.last());
    client.get("/readyz/cache/secrets").await.with_code(500);
    assert_eq!(listed(&client.get(MAPS).await.with_code(200).json()), stored(&etcd.keys(), 0).await);
}
