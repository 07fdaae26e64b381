//! Requests on the wire for each setting, each sent once.

use std::time::Duration;

use informer::{
    Cause, Cluster, InitialList, LabelSelector, ListSemantic, ResourceVersion,
    testing::{FakeApiServer, RequestKind},
};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::core::{ApiResource, DynamicObject, Expression, GroupVersionKind};
use serde_json::{Value, json};
use tokio::time::sleep;
use wiremock::{Mock, MockServer, ResponseTemplate, matchers::any};

use crate::fixture::{
    SOON, Step, cluster_at, end_bookmark, event, in_memory, is_stream, item, list, ok, refuse, status, until,
};

const MINUTE: Duration = Duration::from_secs(60);

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "a"}})
}

const HEAD: &str = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

/// Removes `timeoutSeconds`, which is drawn at random.
fn without_timeout(uri: &str) -> String {
    let parts: Vec<&str> = uri.split('&').filter(|part| !part.starts_with("timeoutSeconds=")).collect();
    parts.join("&")
}

/// Goal: requests follow the configuration. Method: the first two requests of every semantic × strategy. Covers the
/// complaint that `Any` with pages requested the most recent state, from every agent at once.
#[tokio::test(start_paused = true)]
async fn p1_each_semantic_and_strategy_asks_exactly_this() {
    let at = || ResourceVersion::from(7);
    let stream = |query: &str| format!("{HEAD}{query}&allowWatchBookmarks=true");
    for (semantic, initial, first) in [
        (ListSemantic::Any, InitialList::Auto, stream("&resourceVersion=0")),
        (ListSemantic::Any, InitialList::Stream, stream("&resourceVersion=0")),
        (ListSemantic::MostRecent, InitialList::Stream, stream("")),
        (ListSemantic::NotOlderThan(at()), InitialList::Stream, stream("&resourceVersion=7")),
        (ListSemantic::Any, InitialList::Paged, "resourceVersion=0&limit=500".into()),
        (ListSemantic::MostRecent, InitialList::Paged, "limit=500".into()),
        (
            ListSemantic::NotOlderThan(at()),
            InitialList::Paged,
            "resourceVersion=7&resourceVersionMatch=NotOlderThan".into(),
        ),
        (
            ListSemantic::Exact(at()),
            InitialList::Paged,
            "resourceVersion=7&resourceVersionMatch=Exact&limit=500".into(),
        ),
        (ListSemantic::Any, InitialList::Unpaged, "resourceVersion=0".into()),
        (ListSemantic::MostRecent, InitialList::Unpaged, String::new()),
        (ListSemantic::Exact(at()), InitialList::Unpaged, "resourceVersion=7&resourceVersionMatch=Exact".into()),
    ] {
        let (cluster, log) = in_memory(|number, uri| match number {
            1 if is_stream(uri) => ok([Step::Send(end_bookmark(41)), Step::Send(end_bookmark(41))]),
            1 => ok([Step::Send(list(&[], 41, ""))]),
            _ => ok([Step::Hang]),
        });
        let informer = cluster.informer::<Pod>().list_semantic(semantic.clone()).initial_list(initial).start().unwrap();
        informer.ready(SOON).await.unwrap();
        until("the watch", || log.uris().len() == 2).await;
        let uris = log.uris();
        let (path, query) = uris[0].split_once('?').unwrap_or((&uris[0], ""));
        assert_eq!((path, without_timeout(query)), ("/api/v1/pods", first), "{semantic:?} {initial:?}");
        let watch = "/api/v1/pods?watch=true&resourceVersion=41&allowWatchBookmarks=true";
        assert_eq!(without_timeout(&uris[1]), watch, "{semantic:?} {initial:?}");
    }
}

/// Queries of all LISTs and pages so far.
fn lists(server: &FakeApiServer) -> Vec<String> {
    let seen = server.requests().into_iter().filter(|seen| matches!(seen.kind, RequestKind::List | RequestKind::Page));
    seen.map(|seen| seen.request.split_once('?').map_or_else(String::new, |(_, query)| query.to_owned())).collect()
}

/// Goal: a fleet's relists are served from the server's cache: kube-apiserver before 1.34 reads limited pages "not
/// older than" from etcd. Method: a server without streams, whose watches expire.
#[tokio::test(start_paused = true)]
async fn a_relist_after_410_has_no_limit() {
    let server = FakeApiServer::new().at(41).put(pod("x")).put(pod("y")).refuse_stream(422);
    let pods = Cluster::new(server.client()).informer::<Pod>().page_size(1).start().unwrap();
    pods.ready(SOON).await.unwrap();
    sleep(MINUTE).await;
    server.put(pod("z")).expire_at(43).close_watches();
    sleep(MINUTE).await;
    assert_eq!(lists(&server), ["resourceVersion=0&limit=1", "resourceVersion=43&resourceVersionMatch=NotOlderThan"]);
}

/// A server that pages `resourceVersion=0` has no cache to serve a relist from; there pages are the cheaper read.
#[tokio::test(start_paused = true)]
async fn a_relist_is_paged_where_the_server_pages_any_state() {
    let (cluster, log) = in_memory(|_, uri| match uri {
        uri if is_stream(uri) => refuse(422, status(422, "Invalid", "no streams")),
        uri if uri.contains("watch=true") => {
            ok([Step::Wait(MINUTE), Step::Send(event("ERROR", &status(410, "Expired", "old")))])
        }
        uri if uri.contains("continue=") => ok([Step::Send(list(&[item("a/b", 4)], 9, ""))]),
        _ => ok([Step::Send(list(&[item("a/a", 3)], 9, "next"))]),
    });
    let pods = cluster.informer::<Pod>().start().unwrap();
    pods.ready(SOON).await.unwrap();
    sleep(2 * MINUTE).await;
    assert_eq!(log.count("resourceVersion=9&resourceVersionMatch=NotOlderThan&limit=500"), 1, "{:?}", log.uris());
}

/// Polls are ordinary relists.
#[tokio::test(start_paused = true)]
async fn polls_have_no_limit() {
    let server = FakeApiServer::new().at(41).put(pod("x")).forbid_watch();
    let pods = Cluster::new(server.client()).informer::<Pod>().start().unwrap();
    pods.ready(SOON).await.unwrap();
    sleep(14 * MINUTE).await;
    let lists = lists(&server);
    assert!(lists.len() >= 3, "{lists:?}");
    assert!(
        lists[1..].iter().all(|query| query == "resourceVersion=42&resourceVersionMatch=NotOlderThan"),
        "{lists:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn group_namespace_and_selectors_are_in_the_request_before_it_is_sent() {
    let (cluster, _log) = in_memory(|_, _| ok([Step::Hang]));
    let declared = || cluster.informer::<Deployment>().namespace("prod").fields("metadata.name!=x");
    let typed = Expression::In("app".into(), ["web".into(), "api".into()].into());
    let parsed = LabelSelector::parse("app in (web,api)").unwrap();
    for declared in [
        declared().labels("app in (web,api)"),
        declared().labels(typed.clone()),
        declared().labels(kube::core::Selector::from(typed)),
        declared().labels(&parsed),
    ] {
        let informer = declared.initial_list(InitialList::Unpaged).start().unwrap();
        assert_eq!(
            informer.explain(),
            "GET /apis/apps/v1/namespaces/prod/deployments?resourceVersion=0&labelSelector=app%20in%20%28api%2Cweb%29&fieldSelector=metadata.name%21%3Dx"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_type_known_at_run_time_is_read_like_any_other() {
    let (cluster, log) = in_memory(|number, _| match number {
        1 => ok([Step::Send(list(&[item("a/a", 3)], 9, "").replace("PodList", "CronTabList"))]),
        _ => ok([Step::Hang]),
    });
    let cron_tabs = ApiResource::from_gvk(&GroupVersionKind::gvk("stable.example.com", "v1", "CronTab"));
    let declared = cluster.informer_for::<DynamicObject>(&cron_tabs).initial_list(InitialList::Unpaged);
    let informer = declared.start().unwrap();
    informer.ready(SOON).await.unwrap();
    assert_eq!(log.uris()[0], "/apis/stable.example.com/v1/crontabs?resourceVersion=0");
    let decoded = informer.store().snapshot().get("a/a").unwrap().decode().unwrap();
    assert_eq!(decoded.types.as_ref().map(|types| types.kind.as_str()), Some("CronTab"));
    assert_eq!(decoded.data["spec"]["nodeName"], "node-1");
}

/// Goal: kube's client, which by default retries 503 fifteen times from 5 ms, does not retry our requests. Method:
/// default settings; compare the requests the informer counted with those that arrived.
#[tokio::test]
async fn one_send_is_one_request() {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(503)).mount(&server).await;
    let informer = cluster_at(&server.uri()).informer::<Pod>().initial_list(InitialList::Unpaged).start().unwrap();
    until("a third attempt", || informer.stats().reflector.requests == 3).await;
    let not_ready = informer.ready(Duration::ZERO).await.unwrap_err();
    let Cause::Failed(error) = &not_ready.cause else { panic!("{not_ready}") };
    assert!(error.code() == Some(503) && error.is_retryable());
    let requests = server.received_requests().await.unwrap();
    assert!((2..=3).contains(&requests.len()), "the third may be on its way: {}", requests.len());
    assert_eq!(requests[0].headers["accept"], "application/json;drop=metadata.managedFields,application/json");
    assert_eq!(requests[0].headers["accept-encoding"], "identity");
    assert!(!requests[0].headers.contains_key("transfer-encoding"), "a GET has no body");
}
