//! `cache-server serve --upstream` beside the stock kube-apiserver that it follows: equal answers, equal rights, and
//! what the API server notices of it. `layout` compares the keys and values in its etcd with what the server knows of
//! them.
//!
//! Every test needs the programs that `benches/kube-apiserver/prepare` builds. Where they were not built it passes with
//! one line about that, unless `GENUINE=required`.

#![allow(clippy::unwrap_used, reason = "a test panics with the story")]

mod audit;
mod authentication;
mod authorization;
mod clusters;
mod counts;
mod documents;
mod faults;
mod gets;
mod impersonation;
mod known_users;
mod layout;
mod outages;
mod populate;
mod replicas;
mod restores;
mod rights;
mod schemas;
mod serves;
mod shards;
mod staleness;
mod upgrade;
mod withdrawn;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::{
    genuine::{ADMIN, CACHE, Genuine, token_of},
    http::Client,
    process::Server,
};
use tokio::time::sleep;

/// The server binary of all cases.
const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
/// Timeout of every step, with a margin for busy machines.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two checks of a condition.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// Starts a cache-server in front of a cluster, with the identity of [`CACHE`], and waits until it is ready. It caches
/// `resources`, separated by commas.
async fn cache_of(genuine: &Genuine, resources: &str) -> Server {
    cache_with(genuine, resources, &[]).await
}

/// Like [`cache_of`], with more flags.
async fn cache_with(genuine: &Genuine, resources: &str, flags: &[&str]) -> Server {
    cache_at("", genuine, resources, flags).await
}

/// Like [`cache_with`], with addresses of the API server, separated by commas; empty: the kubeconfig's.
async fn cache_at(urls: &str, genuine: &Genuine, resources: &str, flags: &[&str]) -> Server {
    let kubeconfig = genuine.kubeconfig(CACHE);
    let kubeconfig = kubeconfig.to_str().unwrap();
    let urls = format!("--upstream={urls}");
    let upstream = [&urls, "--kubeconfig", kubeconfig, "--resources", resources];
    let server = Server::start(BINARY, &[&upstream, flags].concat()).await;
    until("the cache is ready", async || server.client().get("/readyz").await.code == 200).await;
    server
}

/// A client of the cache-server that sends a user's token.
fn client_of(server: &Server, user: &str) -> Client {
    server.client().with_token(&token_of(user))
}

/// The API server and the cache-server, both as the administrator.
struct Sides {
    direct: Client,
    cached: Client,
}

impl Sides {
    fn new(genuine: &Genuine, server: &Server) -> Self {
        Self { direct: genuine.client(ADMIN), cached: client_of(server, ADMIN) }
    }
}

/// Waits until a condition holds.
async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        sleep(CHECK_EVERY).await;
    }
}

/// A definition of a namespaced type `kind`, in lower case and with an `s` at its end in the plural, with one field.
fn definition(group: &str, kind: &str, field: &str) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {field: {"type": "integer"}},
            }}}],
        },
    })
}

/// A namespace's manifest.
fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}
