//! Copies shared by the components of a program: requests counted by the fake server, users by time.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use informer::{
    Cause, Cluster, ConfigError, EndReason, Event, Index, Informer, ListSemantic, Ready, Representation, SHARED_GRACE,
    index, ready_all,
    testing::{FakeApiServer, RequestKind},
};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    core::{ApiResource, DynamicObject, PartialObjectMeta},
    discovery::Scope,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::fixture::{SOON, contents, next, until};

pub(crate) fn pod(namespace: &str, name: &str, app: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
        "spec": {"nodeName": format!("node-{name}"), "containers": []}
    })
}

/// Two namespaces with two pods each, from version 42 on.
pub(crate) fn server() -> FakeApiServer {
    let server = FakeApiServer::new().at(41);
    for (namespace, name, app) in [("a", "x", "web"), ("a", "y", "api"), ("b", "x", "web"), ("b", "y", "api")] {
        server.put(pod(namespace, name, app));
    }
    server
}

pub(crate) const ALL: &str = "a/x@42 a/y@43 b/x@44 b/y@45";

pub(crate) async fn ready<K>(pods: &Informer<K>) {
    assert_eq!(pods.ready(SOON).await.unwrap(), Ready::Watching);
}

/// Streams and watches so far. A stream of initial state is also the watch.
fn requests_to(server: &FakeApiServer) -> usize {
    server.requests().len()
}

/// Goal: three components, one watch, whatever type they decode to and whatever order they write selectors in.
#[tokio::test(start_paused = true)]
async fn equal_declarations_share_one_watch_and_one_store() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let labels = ["app in (web,api),!old", "!old,app in (api,web)", "!old , app in (web, api)"];
    let pods = labels.map(|labels| cluster.informer::<Pod>().labels(labels).start_shared().unwrap());
    let resource = ApiResource::erase::<Pod>(&());
    let dynamic = cluster.informer_for::<DynamicObject>(&resource).labels(labels[0]).start_shared().unwrap();
    for pods in &pods {
        ready(pods).await;
        assert_eq!(contents(pods), ALL);
    }
    ready(&dynamic).await;
    assert_eq!(requests_to(&server), 1);
    assert!(pods[0].explain().ends_with(" (shared by 4)"), "{}", pods[0].explain());

    let mut events = pods[1].subscribe();
    assert_eq!(next(&mut events, 5).await.join(" "), "+a/x@42 +a/y@43 +b/x@44 +b/y@45 =45");
    server.put(pod("a", "z", "web"));
    assert_eq!(next(&mut events, 1).await, ["+a/z@46"]);
    let object = dynamic.store().snapshot().get("a/z").unwrap();
    assert_eq!(object.decode().unwrap().data["spec"]["nodeName"], "node-z");
    let (mine, other) = (pods[0].store().snapshot(), pods[2].store().snapshot());
    let decoded = mine.get("a/z").unwrap().decode().unwrap();
    assert!(std::sync::Arc::ptr_eq(&decoded, &other.get("a/z").unwrap().decode().unwrap()), "decoded once");
    assert_eq!(requests_to(&server), 1);
}

/// Goal: declarations that store something else do not share.
#[tokio::test(start_paused = true)]
async fn other_forms_and_selectors_do_not_share() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let separate: Vec<Informer<Pod>> = [
        cluster.informer::<Pod>(),
        cluster.informer::<Pod>().store(Representation::Typed),
        cluster.informer::<Pod>().drop_path("status"),
        cluster.informer::<Pod>().keep_managed_fields(),
        cluster.informer::<Pod>().object_bytes_max(1 << 20),
        cluster.informer::<Pod>().linger(Duration::from_secs(60)),
        cluster.informer::<Pod>().fields("status.phase!=Failed"),
    ]
    .into_iter()
    .map(|declared| declared.start_shared().unwrap())
    .collect();
    let metadata = cluster.informer::<Pod>().metadata_only::<PartialObjectMeta<Pod>>().start_shared().unwrap();
    let own = cluster.informer::<Pod>().start().unwrap();
    for pods in &separate {
        ready(pods).await;
    }
    ready(&metadata).await;
    ready(&own).await;
    assert_eq!(server.count(RequestKind::Stream), separate.len() + 2);
}

/// Goal: the copy ends with its last user, after the grace period. Method: clones, drops and time.
#[tokio::test(start_paused = true)]
async fn the_copy_ends_a_grace_period_after_its_last_user() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let (first, second) =
        (cluster.informer::<Pod>().start_shared().unwrap(), cluster.informer::<Pod>().start_shared().unwrap());
    ready(&first).await;
    let (clone, store) = (first.clone(), first.store().detached());
    drop((first, clone));
    sleep(SHARED_GRACE * 2).await;
    assert!(store.is_live(), "the second one uses it");
    assert!(second.explain().ends_with(" (shared by 1)"), "{}", second.explain());

    drop(second);
    sleep(SHARED_GRACE - Duration::from_millis(1)).await;
    assert!(store.is_live());
    sleep(Duration::from_millis(2)).await;
    assert!(!store.is_live(), "the grace period is over");
    assert_eq!(store.snapshot().len(), 4, "its last state stays readable");
    let before = requests_to(&server);
    server.put(pod("a", "z", "web"));
    sleep(Duration::from_secs(3_600)).await;
    assert_eq!(requests_to(&server), before, "it asks for nothing any more");

    let again = cluster.informer::<Pod>().start_shared().unwrap();
    ready(&again).await;
    assert_eq!((requests_to(&server), again.store().snapshot().len()), (before + 1, 5));
}

#[tokio::test(start_paused = true)]
async fn a_user_within_the_grace_period_takes_the_copy_over() {
    let server = server();
    let grace = Duration::from_secs(5);
    let cluster = Cluster::builder(server.client()).shared_grace(grace).build();
    let mut last = cluster.informer::<Pod>().start_shared().unwrap();
    ready(&last).await;
    for _ in 0..10 {
        drop(last);
        sleep(grace - Duration::from_millis(1)).await;
        last = cluster.informer::<Pod>().start_shared().unwrap();
        assert_eq!(last.ready(Duration::ZERO).await.unwrap(), Ready::Watching);
        assert_eq!(contents(&last), ALL);
    }
    assert_eq!(requests_to(&server), 1);
}

/// Goal: one component's shutdown does not stop the others, and returns.
#[tokio::test(start_paused = true)]
async fn shutdown_ends_one_use() {
    let server = server();
    let cluster = Cluster::builder(server.client()).shared_grace(Duration::ZERO).build();
    let (first, second) =
        (cluster.informer::<Pod>().start_shared().unwrap(), cluster.informer::<Pod>().start_shared().unwrap());
    ready(&first).await;
    let clone = first.clone();
    timeout(SOON, first.stop()).await.expect("it waits for nothing");
    assert_eq!(clone.shutdown(Duration::ZERO).await, Ok(EndReason::ShutDown), "there is nothing to wait for");
    assert!(!clone.is_running() && second.is_running());
    assert_eq!(second.shutdown(SOON).await, Ok(EndReason::ShutDown));
    until("the end of the copy", || second.store().end_reason().is_some()).await;
    drop(clone);
    assert!(cluster.informer::<Pod>().start_shared().unwrap().is_running(), "a new one starts");
}

/// Goal: a narrower question costs no request, says so, and is answered as by the server: objects that enter and leave
/// the filter appear and disappear.
#[tokio::test(start_paused = true)]
async fn a_narrower_question_is_filtered_out_of_a_ready_wider_copy() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let all = cluster.informer::<Pod>().start_shared().unwrap();
    ready(&all).await;
    let web = cluster.informer::<Pod>().namespace("a").labels("app=web").start_shared().unwrap();
    let here = cluster.informer::<Pod>().fields("spec.nodeName=node-x").start_shared().unwrap();
    ready(&web).await;
    ready(&here).await;
    assert_eq!((contents(&web), contents(&here)), ("a/x@42".into(), "a/x@42 b/x@44".into()));
    let explained = web.explain();
    assert!(explained.starts_with("GET /api/v1/pods?"), "{explained}");
    assert!(explained.ends_with(" (shared by 1, filtered here: namespace a, labels app=web)"), "{explained}");

    let (mut latest, mut each) = (web.subscribe(), web.subscribe_all(16));
    assert_eq!(next(&mut latest, 2).await, ["+a/x@42", "=45"]);
    assert_eq!(next(&mut each, 2).await, ["+a/x@42", "=45"]);
    let mut changed = pod("a", "x", "web");
    changed["metadata"]["labels"]["new"] = "1".into();
    let steps = [
        (pod("a", "y", "web"), "+a/y@46"),
        (pod("b", "z", "web"), ""),
        (pod("a", "y", "old"), "-a/y@46"),
        (changed, "a/x@42>49"),
    ];
    for (object, expected) in steps {
        server.put(object);
        web.wait_for(server.resource_version(), SOON).await.expect("its position moves with every change");
        if !expected.is_empty() {
            assert_eq!(next(&mut latest, 1).await, [expected]);
            assert_eq!(next(&mut each, 1).await, [expected]);
        }
    }
    assert!(web.age().unwrap() < Duration::from_secs(1));
    assert_eq!(requests_to(&server), 1);
}

/// Goal: a filtered copy keeps the wider one running, which ends a grace period after it.
#[tokio::test(start_paused = true)]
async fn a_filtered_copy_is_a_user_of_the_wider_one() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let all = cluster.informer::<Pod>().start_shared().unwrap();
    ready(&all).await;
    let store = all.store().detached();
    let web = cluster.informer::<Pod>().namespace("a").start_shared().unwrap();
    ready(&web).await;
    drop(all);
    sleep(SHARED_GRACE * 2).await;
    server.put(pod("a", "z", "web"));
    until("the change", || contents(&web).ends_with("a/z@46")).await;
    drop(web);
    sleep(SHARED_GRACE - Duration::from_millis(1)).await;
    assert!(store.is_live());
    sleep(Duration::from_millis(2)).await;
    assert!(!store.is_live());
}

/// Goal: no wider copy answers where it could be wrong: not ready, not watching, forbidden by the user, or less fresh
/// than asked for.
#[tokio::test(start_paused = true)]
async fn a_wider_copy_is_not_used_where_it_may_be_wrong() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let all = cluster.informer::<Pod>().start_shared().unwrap();
    let early = cluster.informer::<Pod>().namespace("a").labels("app=web").start_shared().unwrap();
    ready(&all).await;
    ready(&early).await;
    assert_eq!(requests_to(&server), 2, "the wider one was not ready");
    let own = cluster.informer::<Pod>().namespace("a").from_wider(false).start_shared().unwrap();
    ready(&own).await;
    assert_eq!(requests_to(&server), 3);
    let filtered = cluster.informer::<Pod>().namespace("b").start_shared().unwrap();
    ready(&filtered).await;
    let own = cluster.informer::<Pod>().namespace("b").from_wider(false).start_shared().unwrap();
    ready(&own).await;
    assert!(own.explain().ends_with(" (shared by 1)"), "{}", own.explain());
    assert!(filtered.explain().contains("filtered here"), "{}", filtered.explain());
    assert_eq!(requests_to(&server), 4, "an equal copy that is filtered is none of its own");
    for semantic in
        [ListSemantic::MostRecent, ListSemantic::NotOlderThan(45_u64.into()), ListSemantic::Exact(45_u64.into())]
    {
        let before = requests_to(&server);
        let fresh = cluster.informer::<Pod>().list_semantic(semantic.clone()).start_shared().unwrap();
        ready(&fresh).await;
        assert!(requests_to(&server) > before, "{semantic:?} shares nothing");
    }

    let polled = FakeApiServer::new().at(41).put(pod("a", "x", "web")).forbid_watch().refuse_stream(422);
    let cluster = Cluster::new(polled.client());
    let all = cluster.informer::<Pod>().start_shared().unwrap();
    all.ready(SOON).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(all.ready(SOON).await.unwrap(), Ready::Polling);
    let before = requests_to(&polled);
    let narrow = cluster.informer::<Pod>().namespace("a").start_shared().unwrap();
    narrow.ready(SOON).await.unwrap();
    assert!(requests_to(&polled) > before, "a polled copy is minutes old");
}

/// Goal: each user has indexes of its own over the one copy.
#[tokio::test(start_paused = true)]
async fn users_index_the_shared_objects_as_they_like() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let _plain = cluster.informer::<Pod>().start_shared().unwrap();
    let mut declared = cluster.informer::<Pod>();
    let (by_node, by_app) =
        (declared.index(index::node), declared.index_each(|pod| pod.label("app").map(String::from)));
    let pods = declared.start_shared().unwrap();
    ready(&pods).await;
    let found = |index: &Index<Pod>, value: &str| {
        let now = pods.store().snapshot();
        let found: Vec<String> = now.by(index, value).map(|pod| pod.key().to_owned()).collect();
        found.join(" ")
    };
    assert_eq!((found(&by_node, "node-x"), found(&by_app, "api")), ("a/x b/x".into(), "a/y b/y".into()));
    assert!(pods.explain().ends_with(" (shared by 2)"), "{}", pods.explain());

    server.put(pod("a", "y", "web")).delete(pod("b", "x", "web"));
    pods.wait_for(server.resource_version(), SOON).await.unwrap();
    assert_eq!((found(&by_node, "node-x"), found(&by_app, "api")), ("a/x".into(), "b/y".into()));
    assert_eq!(found(&by_app, "web"), "a/x a/y");

    let mut narrower = cluster.informer::<Pod>().namespaces(["b", "c"]);
    let by_node = narrower.index(index::node);
    let narrower = narrower.start_shared().unwrap();
    ready(&narrower).await;
    let now = narrower.store().snapshot();
    assert_eq!((now.len(), now.by(&by_node, "node-y").count()), (1, 1));
    assert_eq!(requests_to(&server), 1);
}

/// Goal: several namespaces are one store, one readiness, and one watch each, shared with those who ask for one of them.
#[tokio::test(start_paused = true)]
async fn several_namespaces_are_one_informer() {
    let server = server().put(pod("c", "x", "web"));
    let cluster = Cluster::new(server.client());
    let both = cluster.informer::<Pod>().namespaces(["b", "a"]).start_shared().unwrap();
    let one = cluster.informer::<Pod>().namespace("a").start_shared().unwrap();
    ready(&both).await;
    ready(&one).await;
    assert_eq!((contents(&both).as_str(), contents(&one).as_str()), (ALL, "a/x@42 a/y@43"));
    let paths: Vec<String> =
        server.requests().iter().map(|seen| seen.request.split('?').next().unwrap().to_owned()).collect();
    assert_eq!(paths, ["GET /api/v1/namespaces/a/pods", "GET /api/v1/namespaces/b/pods"]);
    assert!(both.explain().ends_with(" (shared by 1, one of 2 watches)"), "{}", both.explain());

    let mut events = both.subscribe();
    assert_eq!(next(&mut events, 5).await[..4].join(" "), "+a/x@42 +a/y@43 +b/x@44 +b/y@45");
    server.put(pod("c", "z", "web")).put(pod("b", "z", "web")).delete(pod("a", "x", "web"));
    let mut seen = next(&mut events, 2).await;
    seen.sort();
    assert_eq!(seen, ["+b/z@48", "-a/x@42"]);
    assert_eq!(both.stats().reflector.requests, 2);
    assert_eq!(cluster.informer::<Pod>().namespaces(["a", "b"]).start_shared().unwrap().store().snapshot().len(), 4);
    assert_eq!(requests_to(&server), 2);
}

/// Goal: of several namespaces none is shown before all are complete.
#[tokio::test(start_paused = true)]
async fn several_namespaces_are_ready_together() {
    let server = server();
    let cluster = Cluster::builder(server.client()).relists_at_once(1).build();
    server.fail_next(2, 503);
    let both = cluster.informer::<Pod>().namespaces(["a", "b"]).start_shared().unwrap();
    let mut events = both.subscribe();
    let not_ready = both.ready(Duration::ZERO).await.unwrap_err();
    assert!(matches!(not_ready.cause, Cause::Queued | Cause::Receiving | Cause::Failed(_)), "{not_ready}");
    let first = timeout(SOON, events.next()).await.unwrap().unwrap();
    assert!(matches!(first, Event::Added(_)));
    assert_eq!(contents(&both), ALL, "the first event comes when everything is there");
    ready(&both).await;
}

/// A pod reduced to the field that a program reads.
#[derive(Clone, Deserialize, Serialize)]
struct PodNode {
    spec: NodeOfPod,
}

#[derive(Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeOfPod {
    node_name: String,
}

/// Goal: declarations with one transform share one copy, of changed objects; others do not. Narrower ones are filtered
/// only where the transform cannot have changed the answer.
#[tokio::test(start_paused = true)]
async fn equal_transforms_share_a_copy() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let relabelled = || cluster.informer::<Pod>().transform(relabel);
    let (first, second) = (relabelled().start_shared().unwrap(), relabelled().start_shared().unwrap());
    ready(&first).await;
    ready(&second).await;
    assert_eq!(requests_to(&server), 1);
    for pods in [&first, &second] {
        let now = pods.store().snapshot();
        assert!(now.len() == 4 && now.iter().all(|pod| pod.label("app").as_deref() == Some("changed")));
    }
    let inside = relabelled().namespace("a").start_shared().unwrap();
    ready(&inside).await;
    assert_eq!((requests_to(&server), contents(&inside).as_str()), (1, "a/x@42 a/y@43"));

    let selected = relabelled().labels("app=web").start_shared().unwrap();
    ready(&selected).await;
    assert_eq!((requests_to(&server), selected.store().snapshot().len()), (2, 2), "the server knows the labels before");
    let otherwise = cluster.informer::<Pod>().transform(|pod| pod.spec = None);
    for other in [otherwise, cluster.informer::<Pod>()] {
        let (before, other) = (requests_to(&server), other.start_shared().unwrap());
        ready(&other).await;
        assert_eq!(requests_to(&server), before + 1);
    }
}

fn relabel(pod: &mut Pod) {
    pod.metadata.labels = Some([("app".to_owned(), "changed".to_owned())].into());
}

/// Goal: no user gets objects that another user's function changed. Method: one closure with two captured values, and
/// one pointer type with two functions: their types are equal.
#[tokio::test(start_paused = true)]
async fn transforms_with_captured_values_share_nothing() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let noted = |note: &'static str| {
        cluster
            .informer::<Pod>()
            .transform(move |pod| pod.metadata.annotations = Some([(note.into(), note.into())].into()))
    };
    let pointed = |change: fn(&mut Pod)| cluster.informer::<Pod>().transform(change);
    let declared = [noted("one"), noted("two"), pointed(|pod| pod.spec = None), pointed(relabel)];
    let started = declared.map(|declared| declared.start_shared().unwrap());
    for pods in &started {
        ready(pods).await;
    }
    let fields = ["metadata.annotations.one", "metadata.annotations.two", "spec.nodeName", "metadata.labels.app"];
    let read = |pods: &Informer<Pod>| {
        let now = pods.store().snapshot();
        fields.map(|field| now.get("a/x").unwrap().field(field).unwrap_or_default().into_owned())
    };
    assert_eq!(
        started.each_ref().map(read),
        [
            ["one", "", "node-x", "web"],
            ["", "two", "node-x", "web"],
            ["", "", "", "web"],
            ["", "", "node-x", "changed"],
        ]
    );
    assert_eq!(requests_to(&server), 4);
    assert!(noted("three").namespaces(["a", "b"]).start_shared().unwrap().ready(SOON).await.is_ok());
    assert_eq!(requests_to(&server), 6, "nor do their namespaces");
}

/// Goal: equal projections share one copy of the few fields, whatever type they come from by their name.
#[tokio::test(start_paused = true)]
async fn equal_projections_share_a_copy() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let first = cluster.informer::<Pod>().project::<PodNode>().start_shared().unwrap();
    let second = cluster.informer::<Pod>().project::<PodNode>().start_shared().unwrap();
    let whole = cluster.informer::<Pod>().store(Representation::Typed).start_shared().unwrap();
    for pods in [&first, &second] {
        pods.ready(SOON).await.unwrap();
        let now = pods.store().snapshot();
        assert_eq!(now.get("a/x").unwrap().typed().unwrap().spec.node_name, "node-x");
    }
    ready(&whole).await;
    assert_eq!(requests_to(&server), 2, "one for the projections, one for whole pods");
}

/// Goal: one wait for a program, and an error that names each informer that is not ready, and why.
#[tokio::test(start_paused = true)]
async fn ready_all_names_the_informers_that_are_not_ready() {
    let server = server();
    let cluster = Cluster::new(server.client());
    cluster.ready_all(Duration::ZERO).await.expect("there are none");
    let pods = cluster.informer::<Pod>().namespace("a").labels("app=web").start_shared().unwrap();
    let all = cluster.informer::<Pod>().fields("spec.nodeName=node-x").start().unwrap();
    cluster.ready_all(SOON).await.unwrap();
    assert!(pods.store().snapshot().len() == 1 && all.store().snapshot().len() == 2);

    server.fail_next(usize::MAX, 403);
    let nodes = cluster.informer::<Node>().start_shared().unwrap();
    let denied = cluster.informer::<Pod>().namespace("b").labels("app=web").start().unwrap();
    let error = cluster.ready_all(Duration::from_secs(2)).await.unwrap_err();
    assert_eq!((error.unready.len(), error.started), (2, 4));
    assert_eq!((error.unready[0].resource.as_str(), error.unready[0].namespaces.len()), ("nodes", 0));
    let other = &error.unready[1];
    assert_eq!((other.resource.as_str(), other.namespaces.as_slice()), ("pods", ["b".to_owned()].as_slice()));
    assert_eq!((other.labels.as_str(), other.fields.as_str()), ("app=web", ""));
    assert!(matches!(&other.reason.cause, Cause::Failed(error) if error.is_forbidden()), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("2 of 4 informers are not ready; nodes: not ready after "), "{text}");
    assert!(text.contains("; pods in namespace b with labels app=web: not ready after "), "{text}");
    assert!(text.contains("403"), "{text}");

    let some = |deadline| ready_all([pods.readiness(), denied.readiness()], deadline);
    let error = some(Duration::from_secs(2)).await.unwrap_err();
    assert_eq!((error.unready.len(), error.started), (1, 2));
    ready_all([pods.readiness(), all.readiness()], Duration::ZERO).await.expect("the others do not matter");
    pods.shutdown(SOON).await.unwrap();
    let error = timeout(SOON, some(Duration::MAX)).await.expect("waiting is useless").unwrap_err();
    assert!(matches!(error.unready[0].reason.cause, Cause::Ended(EndReason::ShutDown)), "{error}");
    drop((nodes, all));
}

/// Goal: after the wait for all, every handle has its objects, those that follow another copy included.
#[tokio::test(start_paused = true)]
async fn ready_all_waits_for_derived_copies() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let mut declared = cluster.informer::<Pod>();
    let by_app = declared.index(index::label("app"));
    let indexed = declared.start_shared().unwrap();
    let both = cluster.informer::<Pod>().namespaces(["a", "b"]).from_wider(false).start_shared().unwrap();
    cluster.ready_all(SOON).await.unwrap();
    assert_eq!(indexed.store().snapshot().by(&by_app, "web").count(), 2);
    assert_eq!(contents(&both), ALL);

    server.fail_next(usize::MAX, 403);
    let denied = cluster.informer::<Pod>().namespaces(["c", "d"]).from_wider(false).start_shared().unwrap();
    let error = cluster.ready_all(Duration::from_secs(2)).await.unwrap_err();
    assert_eq!(error.unready.len(), 2, "each namespace once: {error}");
    let error = ready_all([denied.readiness()], Duration::ZERO).await.unwrap_err().to_string();
    assert!(error.contains("; pods in namespace c or d: not ready after "), "{error}");
}

/// Goal: waiting for the impossible ends at once.
#[tokio::test(start_paused = true)]
async fn ready_all_returns_early_if_waiting_is_useless() {
    let server = server();
    server.expire_at(43);
    let cluster = Cluster::new(server.client());
    let slow = cluster.informer::<Node>().spread(Duration::from_secs(86_400)).start().unwrap();
    let exact = ListSemantic::Exact(42_u64.into());
    let expired = cluster.informer::<Pod>().list_semantic(exact).start().unwrap();
    let waited = timeout(Duration::from_secs(60), cluster.ready_all(Duration::from_secs(3_600))).await;
    let error = waited.expect("it returns early").unwrap_err();
    assert!(error.unready.iter().any(|informer| informer.resource == "pods"), "{error}");
    drop((slow, expired));
}

/// Goal: a scope that cannot be is an error before a request, in whatever order it is declared.
#[tokio::test(start_paused = true)]
async fn a_namespace_of_a_cluster_scoped_type_is_an_error() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let refused = |plural: &str| ConfigError::ClusterScoped { plural: plural.into() };
    assert_eq!(cluster.informer::<Node>().namespace("a").start().unwrap_err(), refused("nodes"));
    assert_eq!(cluster.informer::<Node>().namespaces(["a", "b"]).start_shared().unwrap_err(), refused("nodes"));
    let nodes = ApiResource::erase::<Node>(&());
    let scoped = cluster.informer_for::<DynamicObject>(&nodes).namespace("a").scope(&Scope::Cluster);
    assert_eq!(scoped.start().unwrap_err(), refused("nodes"));
    let scoped = cluster.informer_for::<DynamicObject>(&nodes).scope(&Scope::Cluster).namespace("a");
    assert_eq!(scoped.start_shared().unwrap_err(), refused("nodes"));
    let raw = cluster.raw(&nodes).scope(&Scope::Cluster).namespace("a");
    assert_eq!(raw.start().unwrap_err(), refused("nodes"));
    let bad = cluster.informer::<Pod>().namespaces(["a", "../b"]).start_shared().unwrap_err();
    assert_eq!(bad, ConfigError::Namespace("../b".into()));
    let none = cluster.informer::<Pod>().namespaces::<&str>([]).start_shared().unwrap_err();
    assert_eq!(none, ConfigError::Namespace(String::new()), "none is not all");
    let lingering = cluster.informer::<Pod>().namespaces(["a", "b"]).linger(SOON).start_shared().unwrap_err();
    assert_eq!(lingering, ConfigError::LingerDerived);
    assert_eq!(requests_to(&server), 0);
}

/// Goal: the patience of an informer is the program's choice. Method: the times of requests.
#[tokio::test(start_paused = true)]
async fn delays_polls_and_probes_of_streams_are_settings() {
    let server = server();
    server.fail_next(usize::MAX, 503);
    let second = Duration::from_secs(1);
    let quick = Cluster::new(server.client()).informer::<Pod>().config(|config| {
        (config.backoff.base, config.backoff.max) = (second, second);
    });
    let quick = quick.start().unwrap();
    sleep(second * 100).await;
    assert!(
        (50..110).contains(&requests_to(&server)),
        "{} requests in 100 s, one to two seconds apart",
        requests_to(&server)
    );
    drop(quick);

    let polled = FakeApiServer::new().at(41).put(pod("a", "x", "web")).forbid_watch().refuse_stream(422);
    let cluster = Cluster::builder(polled.client()).retry_streams_after(second * 600).build();
    let pods = cluster.informer::<Pod>().config(|config| config.poll_interval = second * 10).start().unwrap();
    pods.ready(SOON).await.unwrap();
    sleep(second * 10).await;
    assert_eq!(pods.ready(SOON).await.unwrap(), Ready::Polling);
    let (lists, streams) = (polled.count(RequestKind::List), polled.count(RequestKind::Stream));
    sleep(second * 400).await;
    assert!((30..45).contains(&(polled.count(RequestKind::List) - lists)));
    assert_eq!(polled.count(RequestKind::Stream), streams, "the verdict lasts");
    sleep(second * 400).await;
    let again = cluster.informer::<Pod>().start().unwrap();
    again.ready(SOON).await.unwrap();
    assert!(polled.count(RequestKind::Stream) > streams, "and ends");

    let zero = Cluster::new(polled.client()).informer::<Pod>().config(|config| config.backoff.max = Duration::ZERO);
    assert_eq!(zero.start().unwrap_err(), ConfigError::Zero("backoff.max"));
}

/// Goal: an informer of its own over several namespaces has all that an informer of one has: transforms, indexes, stored
/// form and counts. Method: a transform that counts, over two namespaces of three.
#[tokio::test(start_paused = true)]
async fn an_unshared_informer_merges_several_namespaces() {
    let server = server().put(pod("c", "x", "web"));
    let cluster = Cluster::new(server.client());
    let count = AtomicUsize::new(0);
    let declared = cluster.informer::<Pod>().namespaces(["b", "a"]).transform(move |pod| {
        let count = count.fetch_add(1, Ordering::Relaxed) + 1;
        pod.metadata.annotations = Some([("number".to_owned(), count.to_string())].into());
    });
    let mut declared = declared.store(Representation::Typed);
    let by_app = declared.index(index::label("app"));
    let pods = declared.start().unwrap();
    ready(&pods).await;
    assert_eq!(contents(&pods), ALL);
    let now = pods.store().snapshot();
    let mut numbers: Vec<&str> =
        now.iter().map(|pod| pod.typed().unwrap().metadata.annotations.as_ref().unwrap()["number"].as_str()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, ["1", "2", "3", "4"], "one transform for all");
    assert_eq!(now.by(&by_app, "web").count(), 2);

    // A pod that does not decode is kept as JSON and counted, once.
    let mut broken = pod("b", "broken", "web");
    broken["spec"]["containers"] = json!("none");
    server.put(broken);
    pods.wait_until(|now| now.get("b/broken").is_some()).await.unwrap();
    assert!(pods.stats().undecodable > 0);
    let shared = cluster.informer::<Pod>().namespaces(["a", "b"]).start_shared().unwrap();
    ready(&shared).await;
    assert_eq!(requests_to(&server), 4, "nothing of it is shared");
    let failed = cluster.informer::<Pod>().namespaces(["a", "b"]).linger(SOON).start().unwrap_err();
    assert_eq!(failed, ConfigError::LingerDerived);
    let delays = informer::delays::from_fn(|| std::iter::repeat(SOON));
    let failed = cluster.informer::<Pod>().namespaces(["a", "b"]).delays(delays).start().unwrap_err();
    assert_eq!(failed, ConfigError::DelaysShared);
    let delays = informer::delays::from_fn(|| std::iter::repeat(SOON));
    let failed = cluster.informer::<Pod>().delays(delays).start_shared().unwrap_err();
    assert_eq!(failed, ConfigError::DelaysShared);
    let one = cluster.informer::<Pod>().namespaces(["a"]).start().unwrap();
    ready(&one).await;
    assert_eq!(contents(&one), "a/x@42 a/y@43");
}

/// Goal: several namespaces resume from checkpoints, one for each. Method: a restart.
#[tokio::test]
async fn several_namespaces_have_checkpoints_of_their_own() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        Cluster::new(server.client())
            .informer::<Pod>()
            .namespaces(["a", "b"])
            .checkpoint(folder.path())
            .start()
            .unwrap()
    };
    let pods = start();
    ready(&pods).await;
    pods.shutdown(SOON).await.unwrap();
    drop(pods);
    let saved = || {
        std::fs::read_dir(folder.path())
            .unwrap()
            .filter(|file| file.as_ref().is_ok_and(|file| file.metadata().is_ok_and(|file| file.len() > 0)))
            .count()
    };
    until("two checkpoints", || saved() >= 2).await;
    server.put(pod("a", "z", "web"));
    let again = start();
    ready(&again).await;
    again.wait_until(|now| now.len() == 5).await.unwrap();
    assert_eq!(server.initial_reads(), 2, "the restart resumed both");
}
