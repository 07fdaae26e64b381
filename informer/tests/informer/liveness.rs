//! Silently lost connections: detected and resumed without a relist.

use std::time::Duration;

use informer::{
    Cluster, Informer, Ready,
    testing::{FakeApiServer, RequestKind},
};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    fixture::{SOON, until},
    serving::behind_a_proxy,
};

/// Idle timeout of these tests over sockets.
const PATIENCE: Duration = Duration::from_millis(300);

fn pod(name: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "a"},
        "spec": {"nodeName": node, "containers": []}})
}

fn node_of(pods: &Informer<Pod>, key: &str) -> String {
    let snapshot = pods.store().snapshot();
    snapshot.get(key).and_then(|pod| pod.field("spec.nodeName").map(|node| node.into_owned())).unwrap_or_default()
}

async fn impatient(cluster: &Cluster) -> Informer<Pod> {
    let pods = cluster.informer::<Pod>().config(|config| config.idle_timeout = PATIENCE).start().unwrap();
    pods.ready(SOON).await.unwrap();
    pods
}

/// A half-open connection on a busy type. Covers the complaint that informers hang for a quarter of an hour behind
/// proxies and balancers that lost their connection.
#[tokio::test]
async fn a_lost_connection_of_a_busy_type_is_resumed_without_a_relist() {
    let server = FakeApiServer::new().put(pod("x", "n-0"));
    let (cluster, proxy) = behind_a_proxy(&server).await;
    let pods = impatient(&cluster).await;
    let writer = server.clone();
    let writing = tokio::spawn(async move {
        for number in 1_u64.. {
            writer.put(pod("x", &format!("n-{number}")));
            sleep(Duration::from_millis(20)).await;
        }
    });
    let seen = || pods.stats().reflector.live_objects;
    until("changes", || seen() >= 5).await;
    for _ in 0..3 {
        proxy.lose();
        let before = seen();
        let lost_at = Instant::now();
        until("changes again", || seen() > before + 5).await;
        assert!(lost_at.elapsed() < PATIENCE + Duration::from_secs(5), "{:?}", lost_at.elapsed());
    }
    writing.abort();
    until("the last change", || pods.resource_version() == Some(server.resource_version().into())).await;
    assert_eq!(server.initial_reads(), 1, "no relist");
}

/// A half-open connection on a quiet type.
#[tokio::test]
async fn a_lost_connection_of_a_quiet_type_is_resumed_without_a_relist() {
    let server = FakeApiServer::new().put(pod("x", "n-0"));
    let (cluster, proxy) = behind_a_proxy(&server).await;
    let pods = impatient(&cluster).await;
    proxy.lose();
    let watches = server.count(RequestKind::Watch);
    until("another watch", || server.count(RequestKind::Watch) > watches).await;
    server.put(pod("x", "n-1"));
    until("the change", || node_of(&pods, "a/x") == "n-1").await;
    assert_eq!(server.initial_reads(), 1, "no relist");
}

/// Goal: detection of lost connections is cheap on healthy ones. Method: a healthy server that sends neither changes
/// nor bookmarks for an hour. The documentation of `idle_timeout` states the number.
#[tokio::test(start_paused = true)]
async fn an_hour_of_silence_costs_twenty_five_requests_at_most_and_readiness_stays() {
    for objects in [0, 3] {
        let server = FakeApiServer::new().at(41).bookmarks_every(Duration::MAX);
        for number in 0..objects {
            server.put(pod(&format!("p-{number}"), "n"));
        }
        let pods = Cluster::new(server.client()).informer::<Pod>().start().unwrap();
        assert_eq!(pods.ready(SOON).await.unwrap(), Ready::Watching);
        sleep(Duration::from_secs(3600)).await;
        let requests = server.requests();
        let shown: Vec<String> = requests.iter().map(ToString::to_string).collect();
        assert!((5..=25).contains(&requests.len()), "{objects} objects: {shown:#?}");
        assert_eq!(pods.ready(Duration::ZERO).await.unwrap(), Ready::Watching);
        if objects > 0 {
            assert_eq!(server.initial_reads(), 1, "{shown:#?}");
        }
        server.put(pod("p-0", "m"));
        until("the change", || node_of(&pods, "a/p-0") == "m").await;
    }
}
