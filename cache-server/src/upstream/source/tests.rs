//! Caches in front of the SDK's fake API server: filled from peers, and through every single fault of their source.

mod faults;
mod peers;

use std::time::Duration;

use informer::testing::FakeApiServer;
use serde_json::{Value, json};
use tokio::time::timeout;
use watch_cache::Reader;

use super::*;
use crate::{cacher::Caches, registry::Registry};

/// Longest time for a cache to be filled or to catch up, in virtual time.
const PATIENCE: Duration = Duration::from_secs(120);

fn maps() -> Arc<ResourceType> {
    Registry::builtin().find("", "v1", "configmaps").expect("a built-in type")
}

fn map(name: &str, content: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n", "uid": format!("u-{name}")},
        "data": {"content": content.to_string()},
    })
}

/// Names and versions of the API server's objects, in order. Leaves no trace in its log.
async fn listed(api: &FakeApiServer) -> Vec<(String, u64)> {
    let request = http::Request::get("/api/v1/configmaps").body(Vec::new()).expect("a request");
    let text = api.replica().client().request_text(request).await.expect("a list");
    let list: Value = serde_json::from_str(&text).expect("JSON");
    let object = |object: &Value| {
        let text = |name: &str| object["metadata"][name].as_str().expect("a text").to_owned();
        (text("name"), text("resourceVersion").parse().expect("a number"))
    };
    let mut objects: Vec<_> = list["items"].as_array().expect("items").iter().map(object).collect();
    objects.sort();
    objects
}

/// Names and versions of the cached objects, in order.
fn cached(cache: &Reader) -> Vec<(String, u64)> {
    let snapshot = cache.snapshot();
    snapshot.objects.iter().map(|entry| (entry.name().to_owned(), entry.resource_version())).collect()
}

/// Waits until the cache is filled.
async fn filled(caches: &Caches) -> Reader {
    let reading = async {
        loop {
            if let Ok(reader) = caches.reader(&maps()).await {
                return reader;
            }
        }
    };
    timeout(PATIENCE, reading).await.expect("the cache is filled in the end")
}

/// Waits until the cache holds the API server's objects.
async fn becomes_equal(caches: &Caches, api: &FakeApiServer) -> Reader {
    let expected = listed(api).await;
    let comparing = async {
        loop {
            let reader = filled(caches).await;
            if cached(&reader) == expected {
                return reader;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, comparing).await.expect("the cache becomes equal in the end")
}
