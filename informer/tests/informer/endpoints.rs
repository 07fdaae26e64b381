//! Two endpoints: with one history the watch resumes at the other one without a relist, with two histories it never
//! does.

use std::time::Duration;

use informer::{
    Cluster, Informer, Ready,
    testing::{FakeApiServer, RequestKind},
};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    fixture::{SOON, contents, hurry, until},
    serving::{client_at, serve},
};

const MINUTE: Duration = Duration::from_secs(60);

fn pod(name: &str, uid: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "a", "uid": uid},
        "spec": {"nodeName": node, "containers": []}})
}

/// Server with two pods, at 42 and 43.
fn server(uid: &str) -> FakeApiServer {
    FakeApiServer::new().at(41).put(pod("x", &format!("{uid}-x"), "n")).put(pod("y", &format!("{uid}-y"), "n"))
}

fn cluster(preferred: &FakeApiServer, fallback: &FakeApiServer) -> Cluster {
    Cluster::builder(preferred.client()).fallback(fallback.client()).build()
}

async fn ready(cluster: &Cluster) -> Informer<Pod> {
    let pods = cluster.informer::<Pod>().start().unwrap();
    assert_eq!(pods.ready(SOON).await.unwrap(), Ready::Watching);
    pods
}

fn fail(server: &FakeApiServer) {
    server.refuse_connections().close_watches();
}

/// Like [`until`], with a longer deadline for paused time.
async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + 60 * MINUTE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        sleep(Duration::from_millis(100)).await;
    }
}

fn requests_to(server: &FakeApiServer) -> Vec<String> {
    server.requests().into_iter().map(|seen| seen.request).collect()
}

#[tokio::test(start_paused = true)]
async fn the_watch_goes_on_at_the_fallback_from_the_same_version_without_a_relist_and_returns_later() {
    let preferred = server("u");
    let fallback = preferred.replica();
    let pods = ready(&cluster(&preferred, &fallback)).await;
    let failed_at = Instant::now();
    fail(&preferred);
    fallback.put(pod("z", "u-z", "n"));
    eventually("the change at the fallback", || pods.resource_version() == Some(44.into())).await;
    let took = failed_at.elapsed();
    assert!(Duration::from_secs(5) <= took && took < MINUTE, "{took:?}");
    let requests = requests_to(&fallback);
    assert_eq!(requests[0], "GET /api/v1/namespaces/a/pods/y?resourceVersion=43", "the newest object is the proof");
    assert!(requests[1].starts_with("GET /api/v1/pods?watch=true&resourceVersion=43&"), "{requests:?}");
    assert_eq!((fallback.initial_reads(), requests.len()), (0, 2));
    assert_eq!((pods.stats().moves, fallback.count(RequestKind::Get)), (1, 1));
    assert!(pods.explain().ends_with(" at fallback 1"), "{}", pods.explain());

    preferred.recover();
    let watches = preferred.count(RequestKind::Watch);
    eventually("the return", || preferred.count(RequestKind::Watch) > watches).await;
    assert!(failed_at.elapsed() < 12 * MINUTE, "{:?}", failed_at.elapsed());
    preferred.put(pod("x", "u-x", "m"));
    eventually("the next change", || pods.resource_version() == Some(45.into())).await;
    assert_eq!((preferred.initial_reads(), fallback.initial_reads()), (1, 0), "no relist");
    assert!(!pods.explain().contains("fallback"), "{}", pods.explain());
}

/// Goal: failover also works over sockets. Method: listeners, kube's own client; the clock runs fast until the client
/// tries the fallback.
#[tokio::test]
async fn the_watch_goes_on_at_the_fallback_over_sockets() {
    let preferred = server("u");
    let fallback = preferred.replica();
    let (near, far) = (serve(&preferred).await, serve(&fallback).await);
    let cluster = Cluster::builder(client_at(near)).fallback(client_at(far)).build();
    let pods = ready(&cluster).await;
    fail(&preferred);
    fallback.put(pod("z", "u-z", "n"));
    hurry("the first request to the fallback", MINUTE, || !requests_to(&fallback).is_empty()).await;
    until("the change at the fallback", || pods.resource_version() == Some(44.into())).await;
    assert_eq!((fallback.initial_reads(), fallback.count(RequestKind::Watch)), (0, 1));
    assert_eq!(contents(&pods), "a/x@42 a/y@43 a/z@44");
}

/// Goal: two clusters are never mixed. Method: equal names and resourceVersions, other uids; an outage of a day.
#[tokio::test(start_paused = true)]
async fn a_server_of_another_history_is_refused_however_long_the_outage() {
    let (preferred, foreign) = (server("u"), server("v"));
    foreign.put(pod("z", "v-z", "n"));
    let pods = ready(&cluster(&preferred, &foreign)).await;
    fail(&preferred);
    sleep(24 * 60 * MINUTE).await;
    assert_eq!((foreign.initial_reads(), foreign.count(RequestKind::Watch)), (0, 0), "{:?}", requests_to(&foreign));
    let proofs = foreign.count(RequestKind::Get);
    assert!((1..=100).contains(&proofs), "asked now and then: {proofs}");
    assert_eq!(contents(&pods), "a/x@42 a/y@43", "readers keep what they have");
    preferred.recover().put(pod("x", "u-x", "m"));
    eventually("the change", || contents(&pods) == "a/x@44 a/y@43").await;
    assert_eq!(preferred.initial_reads(), 1);
}

/// Goal: a state restored during an outage is never mixed in, even after failovers meanwhile. Method: both endpoints of
/// a control plane go down, the client tries the other one and returns to an older state, in which the same version is
/// another object.
#[tokio::test(start_paused = true)]
async fn a_control_plane_that_was_restored_is_recognised_also_after_moves_that_led_nowhere() {
    let preferred = server("u");
    let before = preferred.resource_version();
    preferred.put(pod("x", "u-x", "m"));
    let fallback = preferred.replica();
    let pods = ready(&cluster(&preferred, &fallback)).await;
    sleep(MINUTE).await;
    fail(&preferred);
    fallback.refuse_connections();
    for moves in 1..=2 {
        eventually("a move", || pods.stats().moves == moves).await;
        assert_eq!(contents(&pods), "a/x@44 a/y@43", "readers keep what they have");
    }
    preferred.restore(before).put(pod("y", "u-y", "other")).recover();
    eventually("what was restored", || contents(&pods) == "a/x@42 a/y@44").await;
    let stats = pods.stats().reflector;
    assert_eq!((stats.history_resets, stats.refused_moves), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_behind_is_not_moved_to_until_it_is_there() {
    let preferred = server("u");
    let behind = preferred.replica().freeze();
    preferred.put(pod("x", "u-x", "m")).put(pod("x", "u-x", "o"));
    let pods = ready(&cluster(&preferred, &behind)).await;
    assert_eq!(pods.resource_version(), Some(45.into()));
    fail(&preferred);
    sleep(5 * MINUTE).await;
    assert!(behind.count(RequestKind::Get) > 0, "it is asked");
    assert_eq!((behind.initial_reads(), behind.count(RequestKind::Watch)), (0, 0), "{:?}", requests_to(&behind));
    behind.recover().put(pod("z", "u-z", "n"));
    eventually("the change", || pods.resource_version() == Some(46.into())).await;
    assert_eq!(behind.initial_reads(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_fallback_that_has_forgotten_is_left_for_the_preferred_endpoint_before_anything_is_listed() {
    let preferred = server("u");
    let fallback = preferred.replica();
    let pods = ready(&cluster(&preferred, &fallback)).await;
    fail(&preferred);
    eventually("the move", || fallback.count(RequestKind::Watch) == 1).await;
    preferred.recover();
    sleep(MINUTE).await;
    fallback.expire_at(u64::MAX).close_watches();
    preferred.put(pod("z", "u-z", "n"));
    eventually("the change", || pods.resource_version() == Some(44.into())).await;
    assert_eq!((preferred.initial_reads(), fallback.initial_reads()), (1, 0), "no relist");
}

#[tokio::test(start_paused = true)]
async fn with_one_endpoint_down_from_the_start_initial_state_comes_from_the_other() {
    let preferred = server("u");
    let fallback = preferred.replica();
    preferred.refuse_connections();
    let pods = cluster(&preferred, &fallback).informer::<Pod>().start().unwrap();
    pods.ready(2 * MINUTE).await.unwrap();
    assert_eq!((contents(&pods).as_str(), fallback.initial_reads()), ("a/x@42 a/y@43", 1));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_forbids_get_is_asked_by_a_list_of_one() {
    let preferred = server("u");
    let fallback = preferred.replica();
    let pods = ready(&cluster(&preferred, &fallback)).await;
    fail(&preferred);
    fallback.fail_next(1, 403).put(pod("z", "u-z", "n"));
    eventually("the change", || pods.resource_version() == Some(44.into())).await;
    let requests = requests_to(&fallback);
    assert_eq!(
        requests[1],
        "GET /api/v1/namespaces/a/pods?resourceVersion=43&resourceVersionMatch=NotOlderThan&fieldSelector=metadata.name%3Dy"
    );
    assert_eq!(fallback.initial_reads(), 0);
}
