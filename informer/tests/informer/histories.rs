//! Servers whose positions cannot be trusted: restored servers that have passed the position, positions the server
//! refuses itself, events out of order, objects without a version.

use std::time::Duration;

use informer::{
    Cluster, Informer, InitialList, Ready, RelistCause,
    testing::{FakeApiServer, RequestKind},
};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fixture::{
    Reply, SOON, Step, added, bookmark, client_in_memory, contents, deleted, end_bookmark, event, in_memory, is_stream,
    item, list, modified, ok, refuse, status, until,
};

const MINUTE: Duration = Duration::from_secs(60);

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "a", "uid": format!("uid-{name}")},
        "spec": {"nodeName": "n", "containers": []}})
}

/// Server with two pods, at 42 and 43.
fn server() -> FakeApiServer {
    FakeApiServer::new().at(41).put(pod("x")).put(pod("y")).bookmarks_every(Duration::from_secs(1))
}

async fn ready(cluster: &Cluster) -> Informer<Pod> {
    let pods = cluster.informer::<Pod>().start().unwrap();
    assert_eq!(pods.ready(SOON).await.unwrap(), Ready::Watching);
    pods
}

fn resets(pods: &Informer<Pod>) -> (u64, u64) {
    let stats = pods.stats().reflector;
    (stats.history_resets, stats.relists(RelistCause::HistoryReset))
}

/// Restores the server such that its newest object is lost, an older one is unchanged, and the position is passed
/// again.
fn restored(server: &FakeApiServer) -> &'static str {
    let before = server.resource_version() - 1;
    server.restore(before).put(pod("z")).delete(pod("z")).put(pod("v"));
    "a/v@45 a/x@42"
}

#[tokio::test]
async fn a_restored_server_that_has_passed_the_saved_position_is_recognised() {
    let (server, directory) = (server(), tempfile::tempdir().unwrap());
    let cluster = Cluster::builder(server.client()).identity("one").build();
    let start = || cluster.informer::<Pod>().checkpoint(directory.path()).start().unwrap();
    let pods = start();
    pods.ready(SOON).await.unwrap();
    assert_eq!(contents(&pods), "a/x@42 a/y@43");
    pods.stop().await;
    let expected = restored(&server);
    // Stopped before the first bookmark, so that no mixture of the two histories is saved.
    server.bookmarks_every(Duration::MAX);
    let pods = start();
    until("what follows", || contents(&pods) == "a/v@45 a/x@42 a/y@43").await;
    pods.stop().await;
    server.bookmarks_every(Duration::from_secs(1));
    let pods = start();
    until("the server's own state", || contents(&pods) == expected).await;
    assert_eq!(resets(&pods), (1, 1));
    pods.stop().await;
    let earlier = server.initial_reads();
    let pods = start();
    pods.ready(SOON).await.unwrap();
    assert_eq!((contents(&pods).as_str(), server.initial_reads()), (expected, earlier));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_restored_and_has_passed_the_position_during_an_outage_is_recognised() {
    let server = server();
    let pods = ready(&Cluster::new(server.client())).await;
    server.refuse_connections().close_watches();
    let expected = restored(&server);
    sleep(Duration::from_millis(100)).await;
    server.recover();
    until("the server's own state", || contents(&pods) == expected).await;
    assert_eq!(resets(&pods), (1, 1));
}

/// In one history the deletion arrives, and there is no relist.
#[tokio::test]
async fn an_object_deleted_meanwhile_is_no_other_history() {
    let (server, directory) = (server(), tempfile::tempdir().unwrap());
    let cluster = Cluster::builder(server.client()).identity("one").build();
    let start = || cluster.informer::<Pod>().checkpoint(directory.path()).start().unwrap();
    let pods = start();
    pods.ready(SOON).await.unwrap();
    pods.stop().await;
    server.delete(pod("y")).put(pod("z"));
    let pods = start();
    until("what was written meanwhile", || contents(&pods) == "a/x@42 a/z@45").await;
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!((server.initial_reads(), server.count(RequestKind::Get), resets(&pods)), (1, 2, (0, 0)));
}

/// A disaster-recovery copy of the same store: its old objects have equal uids and versions.
#[tokio::test(start_paused = true)]
async fn a_fallback_to_a_clone_that_went_its_own_way_is_recognised() {
    let preferred = server();
    let clone = FakeApiServer::new().at(41).put(pod("x")).put(pod("z")).delete(pod("z")).put(pod("w"));
    let pods = ready(&Cluster::builder(preferred.client()).fallback(clone.client()).build()).await;
    assert_eq!(contents(&pods), "a/x@42 a/y@43");
    preferred.refuse_connections().close_watches();
    sleep(5 * MINUTE).await;
    assert_eq!(contents(&pods), "a/w@45 a/x@42");
    assert_eq!(resets(&pods), (1, 1));
}

/// A server without bookmarks.
#[tokio::test(start_paused = true)]
async fn without_bookmarks_a_restored_server_is_recognised_within_minutes() {
    let server = server().bookmarks_every(Duration::MAX);
    let before = server.resource_version() - 1;
    let pods = ready(&Cluster::new(server.client())).await;
    sleep(MINUTE).await;
    server.refuse_connections().close_watches().restore(before).put(pod("z")).delete(pod("z"));
    sleep(MINUTE).await;
    server.recover();
    sleep(5 * MINUTE).await;
    assert_eq!((contents(&pods).as_str(), resets(&pods)), ("a/x@42", (1, 1)));
}

/// Each denied GET is a line in the audit log; for Secrets it is an alarm.
#[tokio::test(start_paused = true)]
async fn an_agent_that_may_not_get_makes_one_denied_get_over_many_outages() {
    let server = server();
    let denying = server.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let server = denying.clone();
        async move {
            if request.uri().path().ends_with("/pods/y") {
                server.fail_next(1, 403);
            }
            server.respond(request).await
        }
    });
    let pods = ready(&Cluster::new(kube::Client::new(service, "default"))).await;
    let gets = || server.requests().iter().filter(|seen| seen.request.contains("/pods/y")).count();
    let mut gets_of_the_first = 0;
    for outage in 0..5 {
        sleep(MINUTE).await;
        server.refuse_connections().close_watches();
        sleep(MINUTE).await;
        server.recover();
        sleep(MINUTE).await;
        if outage == 0 {
            gets_of_the_first = gets();
        }
    }
    assert!(gets_of_the_first > 0 && gets() == gets_of_the_first, "{:?}", server.requests());
    assert_eq!((server.initial_reads(), pods.stats().reflector.proofs > 5), (1, true));
}

fn bookmark_at(position: &str) -> String {
    bookmark(7).replace("\"7\"", &format!("{position:?}"))
}

fn refused() -> Reply {
    refuse(400, status(400, "BadRequest", "invalid resource version"))
}

/// A stream that breaks once after its last event `last`; then a server that refuses that position and otherwise works.
fn poisoned(last: String, sent: &'static str) -> impl Fn(usize, &str) -> Reply + Send + Sync + 'static {
    move |number, uri| match number {
        1 => ok([Step::Send(added("a/a", 3) + &end_bookmark(7) + &last)]),
        _ if uri.contains(&format!("resourceVersion={sent}")) => refused(),
        _ if is_stream(uri) => ok([Step::Send(added("a/a", 8) + &end_bookmark(9)), Step::Hang]),
        _ if uri.contains("watch=true") => ok([Step::Hang]),
        _ => ok([Step::Send(list(&[item("a/a", 8)], 9, ""))]),
    }
}

/// Positions that no Kubernetes server accepts, each with its form in a query.
const POISON: [(&str, &str); 3] =
    [("abc", "abc"), ("99999999999999999999999999", "99999999999999999999999999"), ("5&limit=1#", "5%26limit%3D1%23")];

#[tokio::test(start_paused = true)]
async fn a_position_that_the_server_refuses_is_given_up_within_a_minute() {
    for (position, sent) in POISON {
        let changed = modified("a/a", 7).replace("\"7\"", &format!("{position:?}"));
        let bookmark = bookmark_at(position);
        for (initial, last) in [
            (InitialList::Auto, &bookmark),
            (InitialList::Auto, &changed),
            (InitialList::Stream, &bookmark),
            (InitialList::Stream, &changed),
        ] {
            let (cluster, log) = in_memory(poisoned(last.clone(), sent));
            let pods = cluster.informer::<Pod>().initial_list(initial).start().unwrap();
            pods.ready(SOON).await.unwrap();
            sleep(MINUTE).await;
            assert_eq!(contents(&pods), "a/a@8", "{:?}", log.uris());
            assert_eq!(pods.stats().reflector.relists(RelistCause::Refused), 1, "{position} {initial:?}");
            let earlier = log.count(&format!("resourceVersion={sent}"));
            assert!(earlier <= 8 && log.count("resourceVersion=0") == 1, "{:?}", log.uris());
            sleep(5 * MINUTE).await;
            assert_eq!(log.count(&format!("resourceVersion={sent}")), earlier);
        }
    }
}

/// The refused position is already in a checkpoint.
#[tokio::test(start_paused = true)]
async fn a_process_that_begins_with_a_position_the_server_refuses_is_ready_soon() {
    for (position, sent) in POISON {
        let directory = tempfile::tempdir().unwrap();
        let first = move |_: usize, _: &str| {
            ok([Step::Send(added("a/a", 3) + &end_bookmark(7) + &bookmark_at(position)), Step::Hang])
        };
        let cluster = |client| Cluster::builder(client).identity("one").build();
        let start = |cluster: Cluster| cluster.informer::<Pod>().checkpoint(directory.path()).start().unwrap();
        let pods = start(cluster(client_in_memory(first).0));
        until("the position", || pods.resource_version().is_some_and(|at| at.as_str() == position)).await;
        pods.stop().await;
        let answer = poisoned(String::new(), sent);
        let (client, log) = client_in_memory(move |number, uri| answer(number + 1, uri));
        let pods = start(cluster(client));
        pods.ready(SOON).await.unwrap();
        assert_eq!(contents(&pods), "a/a@8", "{:?}", log.uris());
        assert!(log.uris().len() <= 8, "{:?}", log.uris());
    }
}

/// Multi-cluster proxies send an encoded map of versions.
#[tokio::test(start_paused = true)]
async fn versions_of_eight_kilobytes_are_carried() {
    for chars in [400, 8 << 10] {
        let version = "eyJhIjoi-_".repeat(chars)[..chars].to_owned();
        let quoted = format!("{version:?}");
        for initial in [InitialList::Stream, InitialList::Unpaged] {
            let quoted = quoted.clone();
            let (cluster, log) = in_memory(move |number, uri| match number {
                1 if is_stream(uri) => ok([Step::Send((added("a/a", 3) + &end_bookmark(7)).replace("\"7\"", &quoted))]),
                1 => ok([Step::Send(list(&[item("a/a", 7)], 7, "").replace("\"7\"", &quoted))]),
                _ => ok([Step::Hang]),
            });
            let pods = cluster.informer::<Pod>().initial_list(initial).start().unwrap();
            pods.ready(SOON).await.unwrap();
            assert_eq!(pods.resource_version().unwrap().as_str(), version);
            until("the watch", || log.uris().len() >= 2).await;
            assert!(log.uris()[1].contains(&format!("resourceVersion={version}")), "{:?}", log.uris());
        }
    }
}

/// Events with a lower version than an earlier event are not lost, and do not cause a relist each time.
#[tokio::test(start_paused = true)]
async fn events_out_of_order_are_not_lost_and_a_type_without_order_is_listed_twice() {
    let (cluster, log) = in_memory(|number, _| {
        let (state, live) = match number {
            1 => (added("a/a", 3) + &added("a/b", 1), modified("a/b", 2)),
            2 => (added("a/a", 3) + &added("a/b", 2), added("a/c", 1)),
            _ => (
                added("a/a", 3) + &added("a/b", 2) + &added("a/c", 1),
                modified("a/c", 2) + &deleted("a/b", 2) + &modified("a/a", 4) + &modified("a/a", 4),
            ),
        };
        ok([Step::Send(state + &end_bookmark(7) + &live), Step::Hang])
    });
    let pods = cluster.informer::<Pod>().initial_list(InitialList::Stream).start().unwrap();
    until("every event", || contents(&pods) == "a/a@4 a/c@2").await;
    assert_eq!(log.uris().len(), 3, "{:?}", log.uris());
    assert_eq!(pods.stats().reflector.relists(RelistCause::WentBack), 2);
}

/// A server that sends a deletion with the object's last version.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_carries_an_old_version_is_not_lost() {
    let (cluster, log) = in_memory(|number, _| match number {
        1 => {
            let live = modified("a/b", 12) + &deleted("a/a", 3);
            ok([Step::Send(added("a/a", 3) + &added("a/b", 4) + &end_bookmark(7) + &live), Step::Hang])
        }
        _ => ok([Step::Send(added("a/b", 12) + &end_bookmark(13)), Step::Hang]),
    });
    let pods = cluster.informer::<Pod>().initial_list(InitialList::Stream).start().unwrap();
    until("the deletion", || contents(&pods) == "a/b@12").await;
    assert!(log.uris()[1].contains("resourceVersion=12&"), "{:?}", log.uris());
    assert_eq!(pods.stats().reflector.relists(RelistCause::WentBack), 1);
}

/// A pod event with an invalid resourceVersion.
fn unversioned(kind: &str, name: &str, version: &str, node: &str) -> String {
    let meta = format!(r#"{{"name":"{name}","namespace":"a","uid":"uid-{name}"{version}}}"#);
    event(kind, &format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{meta},"spec":{{"nodeName":"{node}"}}}}"#))
}

/// client-go and kube keep such objects, too.
#[tokio::test(start_paused = true)]
async fn objects_without_a_version_are_kept_and_their_changes_are_seen() {
    for version in ["", r#","resourceVersion":"""#, r#","resourceVersion":null"#, r#","resourceVersion":12"#] {
        let state = unversioned("ADDED", "x", version, "n") + &unversioned("ADDED", "y", version, "n");
        let live = unversioned("MODIFIED", "x", version, "m") + &unversioned("DELETED", "y", version, "n");
        let (cluster, log) =
            in_memory(move |_, _| ok([Step::Send(state.clone() + &end_bookmark(7) + &live), Step::Hang]));
        let pods = cluster.informer::<Pod>().initial_list(InitialList::Stream).start().unwrap();
        pods.ready(SOON).await.unwrap();
        let node = || pods.store().snapshot().get("a/x").and_then(|pod| pod.field("spec.nodeName").map(String::from));
        until("the changes", || contents(&pods) == "a/x@" && node().as_deref() == Some("m")).await;
        let stats = pods.stats();
        assert_eq!((stats.unreadable, stats.reflector.unversioned), (0, 4), "{version}");
        assert_eq!((pods.resource_version(), log.uris().len()), (Some(7.into()), 1));
    }
}

/// An object without a name is not stored, and confirms no state.
#[tokio::test(start_paused = true)]
async fn a_change_that_names_no_object_does_not_make_the_copy_younger() {
    let (cluster, _log) = in_memory(|_, _| {
        let nameless = event("MODIFIED", r#"{"metadata":{"resourceVersion":"8"}}"#);
        ok([Step::Send(added("a/a", 3) + &end_bookmark(7)), Step::Wait(MINUTE), Step::Send(nameless), Step::Hang])
    });
    let pods = cluster.informer::<Pod>().initial_list(InitialList::Stream).start().unwrap();
    pods.ready(SOON).await.unwrap();
    sleep(2 * MINUTE).await;
    assert_eq!(pods.stats().unreadable, 1);
    assert!(pods.age().unwrap() >= 2 * MINUTE, "{:?}", pods.age());
}
