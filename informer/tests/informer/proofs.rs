//! Servers that come back as another cluster or with an older state: detected, and never mixed in.

use std::time::Duration;

use informer::{
    Cluster, Event, Informer, InformerBuilder, NotReady, Ready, RelistCause, Subscription,
    testing::{FakeApiServer, RequestKind},
};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::{
    fixture::{SOON, cluster_at, contents, describe, soon},
    serving::Listening,
};

fn pod(name: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "a"},
        "spec": {"nodeName": node, "containers": []}})
}

/// Server with two pods, at 42 and 43.
fn server() -> FakeApiServer {
    FakeApiServer::new().at(41).put(pod("x", "n")).put(pod("y", "n"))
}

fn declared(server: &FakeApiServer, directory: &TempDir) -> InformerBuilder<Pod> {
    Cluster::builder(server.client()).identity("one").build().informer::<Pod>().checkpoint(directory.path())
}

async fn start(server: &FakeApiServer, directory: &TempDir) -> Informer<Pod> {
    let pods = declared(server, directory).start().unwrap();
    assert_eq!(pods.ready(SOON).await.unwrap(), Ready::Watching);
    pods
}

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

async fn next(subscription: &mut Subscription<Pod>) -> Event<Pod> {
    tokio::time::timeout(SOON, subscription.next()).await.expect("an event soon").expect("not the end")
}

/// All events up to the first `Synced`.
async fn until_synced(subscription: &mut Subscription<Pod>) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let event = next(subscription).await;
        let is_last = matches!(event, Event::Synced(_));
        all.push(describe(&event));
        if is_last {
            return all;
        }
    }
}

#[tokio::test]
async fn a_restart_resumes_after_one_proof_and_lists_nothing() {
    let (server, directory) = (server(), tempfile::tempdir().unwrap());
    start(&server, &directory).await.stop().await;
    server.put(pod("x", "m"));
    let earlier = server.requests().len();
    let pods = start(&server, &directory).await;
    eventually("the change", || contents(&pods) == "a/x@44 a/y@43").await;
    let requests: Vec<String> = server.requests().into_iter().skip(earlier).map(|seen| seen.request).collect();
    assert_eq!(requests[0], "GET /api/v1/namespaces/a/pods/y?resourceVersion=43");
    assert!(requests[1].starts_with("GET /api/v1/pods?watch=true&resourceVersion=43&"), "{requests:?}");
    assert_eq!((requests.len(), server.initial_reads()), (2, 1));
    let stats = pods.stats();
    assert_eq!((stats.reflector.proofs, stats.checkpoint_failures), (1, 0));
}

#[tokio::test]
async fn nothing_of_a_saved_state_is_shown_before_it_is_proven_and_ready_says_why() {
    let (server, directory) = (server(), tempfile::tempdir().unwrap());
    start(&server, &directory).await.stop().await;
    server.refuse_connections();
    let pods = declared(&server, &directory).start().unwrap();
    let NotReady { cause, .. } = pods.ready(Duration::from_millis(500)).await.unwrap_err();
    assert!(matches!(cause, informer::Cause::Failed(_)), "{cause}");
    assert_eq!((contents(&pods).as_str(), pods.resource_version(), pods.age()), ("", None, None));
    server.recover();
    pods.ready(SOON).await.unwrap();
    assert_eq!(contents(&pods), "a/x@42 a/y@43");
    assert_eq!(server.initial_reads(), 1);
}

/// A proven state from which no watch is accepted is not published.
#[tokio::test(start_paused = true)]
async fn a_proven_state_that_no_watch_goes_on_from_is_not_ready_and_says_why() {
    let (server, directory) = (server(), tempfile::tempdir().unwrap());
    start(&server, &directory).await.stop().await;
    let behind = server.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let server = behind.clone();
        async move {
            if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
                server.fail_next(1, 503);
            }
            server.respond(request).await
        }
    });
    let cluster = Cluster::builder(kube::Client::new(service, "default")).identity("one").build();
    let pods = cluster.informer::<Pod>().checkpoint(directory.path()).start().unwrap();
    let NotReady { cause, .. } = pods.ready(Duration::from_secs(2)).await.unwrap_err();
    assert!(matches!(&cause, informer::Cause::Failed(error) if error.code() == Some(503)), "{cause}");
    assert_eq!((contents(&pods).as_str(), server.initial_reads()), ("", 1));
}

#[tokio::test(start_paused = true)]
async fn a_saved_state_whose_watch_is_forbidden_is_ready_by_polling() {
    let (server, directory) = (server(), tempfile::tempdir().unwrap());
    start(&server, &directory).await.stop().await;
    server.forbid_watch();
    let pods = declared(&server, &directory).start().unwrap();
    assert_eq!(pods.ready(SOON).await.unwrap(), Ready::Polling);
    assert_eq!(contents(&pods), "a/x@42 a/y@43");
}

#[tokio::test]
async fn an_informer_that_waits_for_the_proof_says_so() {
    let (server, directory) = (server(), tempfile::tempdir().unwrap());
    start(&server, &directory).await.stop().await;
    let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
    });
    let cluster = Cluster::builder(kube::Client::new(silent, "default")).identity("one").build();
    let pods = cluster.informer::<Pod>().checkpoint(directory.path()).start().unwrap();
    eventually("the proof", || pods.explain() == "GET /api/v1/namespaces/a/pods/y?resourceVersion=43").await;
    let NotReady { cause, .. } = pods.ready(Duration::ZERO).await.unwrap_err();
    assert!(matches!(cause, informer::Cause::Proving), "{cause}");
}

/// Method: the checkpoint is older than this process; the server accepts the watch and sends no event at first.
#[tokio::test]
async fn the_age_of_a_restored_state_counts_from_when_it_was_confirmed() {
    let (server, directory) = (server(), tempfile::tempdir().unwrap());
    start(&server, &directory).await.stop().await;
    sleep(Duration::from_millis(1200)).await;
    let pods = start(&server, &directory).await;
    assert!(pods.age().unwrap() >= Duration::from_millis(1200), "{:?}", pods.age());
    server.put(pod("x", "m"));
    eventually("the change", || contents(&pods) == "a/x@44 a/y@43").await;
    assert!(pods.age().unwrap() < Duration::from_millis(1000), "{:?}", pods.age());
}

#[tokio::test]
async fn another_cluster_with_the_same_versions_is_recognised_and_not_mixed_in() {
    let (server, directory) = (server(), tempfile::tempdir().unwrap());
    start(&server, &directory).await.stop().await;
    server.replace_history().delete(pod("x", "n"));
    let pods = declared(&server, &directory).start().unwrap();
    let mut events = pods.subscribe();
    pods.ready(SOON).await.unwrap();
    assert_eq!(contents(&pods), "a/y@43");
    assert_eq!(until_synced(&mut events).await, ["+a/y@43", "=44"], "what was saved was never here");
    let stats = pods.stats().reflector;
    assert_eq!((stats.foreign, stats.relists(RelistCause::Foreign)), (1, 1));
}

#[tokio::test]
async fn a_server_restored_to_an_older_state_is_recognised() {
    let (server, directory) = (server(), tempfile::tempdir().unwrap());
    let before = server.resource_version();
    server.put(pod("x", "m"));
    start(&server, &directory).await.stop().await;
    // 44 is another write now.
    server.restore(before).put(pod("y", "other"));
    let pods = start(&server, &directory).await;
    eventually("the server's state", || contents(&pods) == "a/x@42 a/y@44").await;
    assert_eq!(pods.stats().reflector.history_resets, 1);
}

/// Deletions during the downtime are reported although the checkpoint has expired.
#[tokio::test]
async fn too_old_a_checkpoint_still_tells_what_was_deleted_meanwhile() {
    let (server, directory) = (server(), tempfile::tempdir().unwrap());
    start(&server, &directory).await.stop().await;
    server.delete(pod("x", "n")).put(pod("z", "n")).expire_at(44);
    let pods = declared(&server, &directory).start().unwrap();
    let mut events = pods.subscribe();
    let mut all = Vec::new();
    while !all.contains(&"+a/z@45".to_owned()) {
        all.push(describe(&next(&mut events).await));
    }
    all.retain(|event| !event.starts_with('='));
    assert_eq!(all, ["+a/x@42", "+a/y@43", "-a/x@42?", "+a/z@45"]);
    assert_eq!(pods.stats().reflector.relists(RelistCause::Expired), 1);
}

/// A running process whose server is replaced.
#[tokio::test(start_paused = true)]
async fn a_server_exchanged_under_a_quiet_informer_is_recognised_within_minutes() {
    let server = server().bookmarks_every(Duration::MAX);
    let pods = Cluster::new(server.client()).informer::<Pod>().start().unwrap();
    pods.ready(SOON).await.unwrap();
    server.replace_history();
    sleep(Duration::from_secs(10 * 60)).await;
    assert_eq!(pods.stats().reflector.foreign, 1);
    assert!(server.count(RequestKind::Get) >= 1);
    assert_eq!(pods.ready(Duration::ZERO).await.unwrap(), Ready::Watching);
}

/// A running process whose server is killed and replaced at its address: by another cluster with equal names and
/// resourceVersions, and by the same cluster restored to an older state. Over sockets.
#[tokio::test]
async fn a_server_that_comes_back_as_another_one_is_recognised_before_anything_of_it_is_taken() {
    for is_foreign in [true, false] {
        let server = server();
        let before = server.resource_version();
        server.put(pod("x", "m"));
        let listening = Listening::at(&server, 0).await;
        let pods =
            cluster_at(&format!("http://{}", listening.address)).informer::<Pod>().delays(soon()).start().unwrap();
        pods.ready(SOON).await.unwrap();
        assert_eq!(contents(&pods), "a/x@44 a/y@43");
        let address = listening.address;
        listening.kill().await;
        if is_foreign {
            server.replace_history().delete(pod("x", "m"));
        } else {
            server.restore(before).put(pod("y", "other"));
        }
        server.put(pod("z", "n"));
        let _listening = Listening::at(&server, address.port()).await;
        let expected = if is_foreign { "a/y@43 a/z@46" } else { "a/x@42 a/y@44 a/z@45" };
        eventually("the state of what is there now", || contents(&pods) == expected).await;
        let stats = pods.stats().reflector;
        assert_eq!(stats.foreign + stats.history_resets, 1);
    }
}
