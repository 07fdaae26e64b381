//! `--max-staleness`: consistent reads that may be a few seconds old cost the API server one list.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use serde_json::json;
use tests::{
    genuine::{ADMIN, Genuine},
    http::{watch_list, with_query},
};
use tokio::time::sleep;

use super::{CHECK_EVERY, cache_with, client_of, namespace};

const MAX_STALENESS: Duration = Duration::from_secs(10);
const READS: usize = 200;
/// Reads at the same time.
const AT_ONCE: usize = 16;
/// Deployments: the API server itself reads none, so every list of them that it counts is the cache's.
const RESOURCES: &str = "deployments.apps";
const PATH: &str = "/apis/apps/v1/namespaces/stale/deployments";

fn deployment(name: &str) -> serde_json::Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "stale"},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        }},
    })
}

/// Goal: many consistent reads cost one list in the allowed time, carry the age of its answer, are never older than allowed,
/// and get 503 once the API server is away for that time. Method: the API server's counter of lists; then it is killed,
/// and one client reads until it is refused.
#[tokio::test]
async fn reads_that_may_be_stale_cost_one_list() {
    let Some(mut genuine) = Genuine::start("upstream staleness").await else { return };
    let admin = genuine.client(ADMIN);
    admin.create_manifest(&namespace("stale")).await;
    admin.create_manifest(&deployment("one")).await;
    let server = cache_with(&genuine, RESOURCES, &["--max-staleness", "10s"]).await;
    let cached = client_of(&server, ADMIN);
    cached.get(&with_query(PATH, &[("resourceVersion", "0")])).await.with_code(200);

    let (before, begun) = (genuine.counters().await, Instant::now());
    let reads = stream::iter(0..READS).map(|_| cached.get(PATH)).buffer_unordered(AT_ONCE);
    let answers: Vec<_> = reads.map(|answer| answer.with_code(200)).collect().await;
    let allowed = 1 + begun.elapsed().as_secs() / MAX_STALENESS.as_secs();
    let lists = genuine.counters().await.lists("deployments") - before.lists("deployments");
    assert!(lists <= allowed, "{lists} lists for {READS} reads in {:?}", begun.elapsed());
    assert!(answers.iter().all(|answer| answer.keys() == ["stale/one"]));
    let aged = answers.iter().filter(|answer| !answer.header("age").is_empty()).count();
    assert!(READS - AT_ONCE * usize::try_from(allowed).unwrap() <= aged && aged < READS, "{aged} with an age");
    // Watches from the most recent state share the list; reads with a position need none.
    let watch = cached.watch(&watch_list(PATH)).await;
    assert_eq!(watch.code(), 200);
    assert!(cached.get(&with_query(PATH, &[("resourceVersion", "0")])).await.header("age").is_empty());

    // A read with a confirmation of its own, which starts the allowed time.
    let mut confirmed = cached.get(PATH).await.with_code(200);
    while !confirmed.header("age").is_empty() {
        sleep(CHECK_EVERY).await;
        confirmed = cached.get(PATH).await.with_code(200);
    }
    let confirmed_at = Instant::now();
    genuine.kill();
    let mut answered = 0;
    let refused = loop {
        let arrived = Instant::now();
        let answer = cached.get(PATH).await;
        if answer.code != 200 {
            break answer;
        }
        let age: u64 = answer.header("age").parse().expect("the age of a read that is not confirmed");
        assert!(age <= arrived.elapsed().as_secs() + MAX_STALENESS.as_secs(), "{age} s");
        assert!(arrived.saturating_duration_since(confirmed_at) < MAX_STALENESS, "answered too late");
        assert_eq!(answer.keys(), ["stale/one"]);
        answered += 1;
        sleep(CHECK_EVERY).await;
    };
    assert!(answered > 0, "no read was answered while the API server was away");
    assert_eq!(refused.code, 503, "{}", refused.text());
    assert!(!refused.header("retry-after").is_empty());
}
