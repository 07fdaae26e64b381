//! `cache-server serve` with its objects in a real etcd: the layout of its keys, access, several servers on one etcd, and
//! the faults of an etcd.
//!
//! Every test needs the programs that `benches/kube-apiserver/prepare --only etcd` builds. Where they were not built it
//! passes with one line about that, unless `CI` is set. `ETCD_LOAD=all` runs the load of the nightly run.

#![allow(clippy::unwrap_used, reason = "a test panics with the story")]

mod access;
mod compaction;
mod conflicts;
mod costs;
mod faults;
mod follower;
mod foreign;
mod layout;
mod neighbour;
mod pages;
mod plugins;
mod quota;
mod replicas;
mod restarts;
mod restore;
mod silent;
mod upgrade;
mod writers;

use std::{
    env,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tests::{
    etcd::{EtcdCluster, EtcdKeys},
    genuine::Counters,
    http::{Client, key, resource_version},
    process::Server,
};
use tokio::time::sleep;

/// The server binary of all cases.
const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
/// Timeout of every step, with a margin for busy machines.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two checks of a condition.
const CHECK_EVERY: Duration = Duration::from_millis(20);
/// The type that most cases write: its collection, and the prefix of its keys.
const MAPS: &str = "/api/v1/configmaps";
const MAP_KEYS: &str = "/registry/configmaps/";

/// Starts a cache-server on an etcd, and waits until it is ready.
async fn serve(etcd: &EtcdCluster, flags: &[&str]) -> Server {
    serve_at(&etcd.endpoints(), flags).await
}

/// Like [`serve`], with other addresses of the etcd, such as a relay's.
async fn serve_at(endpoints: &str, flags: &[&str]) -> Server {
    let server = Server::start(BINARY, &[&["--etcd-endpoints", endpoints], flags].concat()).await;
    until("the server is ready", async || server.client().get("/readyz").await.code == 200).await;
    server
}

/// Waits until a condition holds.
async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        sleep(CHECK_EVERY).await;
    }
}

/// True in the nightly run.
fn is_long() -> bool {
    env::var("ETCD_LOAD").is_ok_and(|load| load == "all")
}

/// The metrics of a server now.
async fn counters(client: &Client) -> Counters {
    Counters::parse(client.get("/metrics").await.with_code(200).text())
}

/// Key and value of a ConfigMap, for writes past the servers.
fn raw_map(name: &str, value: &str) -> (String, String) {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": value},
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-of-{name}")},
    });
    (format!("{MAP_KEYS}default/{name}"), object.to_string())
}

/// ConfigMaps by key, each with its version.
type MapVersions = Vec<(String, u64)>;

/// The ConfigMaps of a list.
fn listed(list: &Value) -> MapVersions {
    let items = list["items"].as_array().unwrap_or_else(|| panic!("no list: {list}"));
    items.iter().map(|item| (key(item), resource_version(item))).collect()
}

/// The ConfigMaps in etcd at one revision; zero is the present.
async fn stored(keys: &EtcdKeys, revision: u64) -> MapVersions {
    let pairs = keys.range_at(MAP_KEYS, revision).await;
    pairs.into_iter().map(|pair| (pair.key[MAP_KEYS.len()..].to_owned(), pair.mod_revision)).collect()
}

/// Asserts that a consistent list is the present state of etcd. No other client may write meanwhile.
async fn assert_converged(client: &Client, keys: &EtcdKeys) {
    let list = client.get(MAPS).await.with_code(200).json();
    assert_eq!(listed(&list), stored(keys, 0).await);
}
