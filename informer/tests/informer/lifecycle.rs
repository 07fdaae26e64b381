//! Ends of informers: by their handles, for all clones at once, or by a panic of the program's own function. An ended
//! informer never makes a caller wait, and never looks alive.

use std::time::Duration;

use informer::{Cause, Cluster, Informer, Ready, delays::Delays, testing::FakeApiServer};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::fixture::{SOON, contents, until};

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "a"}, "spec": {"containers": []}})
}

async fn started(server: &FakeApiServer) -> Informer<Pod> {
    let pods = Cluster::new(server.client()).informer::<Pod>().start().unwrap();
    assert_eq!(pods.ready(SOON).await.unwrap(), Ready::Watching);
    pods
}

/// Checks that every method reports the end, and that the last state stays readable.
async fn has_ended(pods: &Informer<Pod>, held: &str) {
    until("the end", || !pods.is_running()).await;
    let not_ready = timeout(SOON, pods.ready(Duration::from_secs(3_600))).await.unwrap().unwrap_err();
    assert!(matches!(not_ready.cause, Cause::Stopped), "{not_ready}");
    assert!(!pods.store().is_live());
    assert_eq!(contents(pods), held);
    let mut changes = pods.subscribe();
    let rest = timeout(SOON, async { while changes.next().await.is_some() {} });
    rest.await.expect("subscriptions end");
    timeout(SOON, pods.shutdown()).await.expect("there is nothing to wait for");
}

/// Goal: a graceful shutdown does not hang because some state of a web framework holds a clone.
#[tokio::test(start_paused = true)]
async fn stop_ends_the_informer_whatever_clones_exist() {
    let server = FakeApiServer::new().at(41).put(pod("x"));
    let pods = started(&server).await;
    let (clone, other) = (pods.clone(), pods.clone());
    assert!(clone.is_running() && clone.store().is_live());
    timeout(Duration::from_secs(1), pods.stop()).await.expect("it does not wait for the clones");
    has_ended(&clone, "a/x@42").await;
    timeout(Duration::from_secs(1), other.stop()).await.expect("a second time is nothing to wait for");
}

#[tokio::test(start_paused = true)]
async fn shutdown_by_reference_ends_the_informer_and_may_be_called_by_several() {
    let server = FakeApiServer::new().at(41).put(pod("x"));
    let pods = started(&server).await;
    let clone = pods.clone();
    let both = async { tokio::join!(pods.shutdown(), clone.shutdown()) };
    timeout(Duration::from_secs(1), both).await.expect("both return");
    has_ended(&pods, "a/x@42").await;
    let asked = server.requests().len();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(server.requests().len(), asked, "nothing is asked any more");
}

/// Goal: a liveness probe on `ready` detects a dead informer. Method: an index function that panics on the second
/// object, long after the first sync.
#[tokio::test(start_paused = true)]
async fn an_informer_whose_index_function_panicked_is_not_ready() {
    let server = FakeApiServer::new().at(41).put(pod("x"));
    let mut declared = Cluster::new(server.client()).informer::<Pod>();
    let _by_name = declared.index(|pod| {
        assert_ne!(pod.name(), "poison", "the program's own mistake");
        pod.label("app")
    });
    let pods = declared.start().unwrap();
    pods.ready(SOON).await.unwrap();
    server.put(pod("poison"));
    has_ended(&pods, "a/x@42").await;
}

#[tokio::test(start_paused = true)]
async fn an_informer_whose_transform_or_delays_panicked_is_not_ready() {
    struct Broken;
    impl Delays for Broken {
        fn next(&mut self) -> Option<Duration> {
            panic!("the program's own mistake")
        }

        fn reset(&mut self) {}
    }
    let server = FakeApiServer::new().at(41).put(pod("x"));
    let cluster = Cluster::new(server.client());
    let transformed =
        cluster.informer::<Pod>().transform(|pod| assert_ne!(pod.metadata.name.as_deref(), Some("poison")));
    let (transformed, delayed) =
        (transformed.start().unwrap(), cluster.informer::<Pod>().delays(Broken).start().unwrap());
    transformed.ready(SOON).await.unwrap();
    delayed.ready(SOON).await.unwrap();
    server.put(pod("poison"));
    has_ended(&transformed, "a/x@42").await;
    until("the other one has it", || delayed.store().snapshot().len() == 2).await;
    server.refuse_connections().close_watches();
    has_ended(&delayed, "a/poison@43 a/x@42").await;
}
