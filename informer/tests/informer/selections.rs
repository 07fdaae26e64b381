//! Selectors of single namespaces, and selections of a whole cluster: the requests sent, and the objects held.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::StreamExt as _;
use informer::{
    Cause, Cluster, ConfigError, Informer, InformerBuilder, InformerPhase, InitialList, Ready, Representation,
    ShardField, ready_all,
    testing::{FakeApiServer, LoggedRequest, RequestKind},
};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::{
    Client,
    client::Body,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
    discovery::Scope,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    fixture::{SOON, contents, next, until},
    sharing::{ALL, pod, ready, server},
};

const MINUTE: Duration = Duration::from_secs(60);

/// Of namespace `a` the pods of `app=web`, of `b` those on `node-y`.
fn web_in_a(cluster: &Cluster) -> InformerBuilder<Pod> {
    let declared = cluster.informer::<Pod>().namespace_labels("a", "app=web").namespaces(["a", "b"]);
    declared.namespace_fields("b", "spec.nodeName=node-y")
}

const WEB_IN_A: &str = "a/x@42 b/y@45";

/// Path and selectors of a request: `a app=web`, without a namespace `* …`.
fn selection(request: &str) -> String {
    let (path, query) = request.split_once('?').unwrap();
    let namespace = path.strip_prefix("GET /api/v1/namespaces/").map_or("*", |rest| rest.split('/').next().unwrap());
    let selector = |name: &str| query.split('&').find_map(|part| part.strip_prefix(name)).unwrap_or_default();
    let text = [selector("labelSelector="), selector("fieldSelector=")].join(" ");
    format!("{namespace} {text}").replace("%3D", "=").replace("%21", "!").replace("%2C", ",").trim().to_owned()
}

/// The selections of the requests from the `first` on, but for the objects that prove a history.
fn selections(server: &FakeApiServer, first: usize) -> Vec<String> {
    let requests = server.requests();
    requests[first..].iter().filter(|seen| seen.kind != RequestKind::Get).map(|seen| selection(&seen.request)).collect()
}

/// Goal: of two programs that declare a half of the pods each, one has a pod, whatever the server knows. Method: three ways
/// to read, at servers with and without shards; then changes, deletions, and pods that return as other ones.
#[tokio::test(start_paused = true)]
async fn each_pod_is_in_one_of_two_programs() {
    let ways = [InitialList::Stream, InitialList::Paged, InitialList::Unpaged];
    for (initial, is_known) in ways.into_iter().flat_map(|way| [(way, true), (way, false)]) {
        let server = FakeApiServer::new();
        if !is_known {
            server.ignore_shards();
        }
        let name = |number: usize| format!("p{number:02}");
        (0..40).for_each(|number| drop(server.put(pod("a", &name(number), "web"))));
        let half = |index| {
            let declared = Cluster::new(server.client()).informer::<Pod>().initial_list(initial).page_size(7);
            declared.shard(ShardField::Uid, index, 2).start().unwrap()
        };
        let (first, second) = (half(0), half(1));
        ready(&first).await;
        ready(&second).await;
        let names = |pods: &Informer<Pod>| -> BTreeSet<String> {
            pods.store().snapshot().iter().map(|pod| pod.name().to_owned()).collect()
        };
        let agree = |expected: &BTreeSet<String>| {
            let (first, second) = (names(&first), names(&second));
            first.is_disjoint(&second) && first.union(&second).eq(expected)
        };
        let mut expected: BTreeSet<_> = (0..40).map(name).collect();
        assert!(agree(&expected), "{initial:?} {is_known}");
        assert!(names(&first).len() > 8 && names(&second).len() > 8, "{initial:?} {is_known}");

        for number in 0..30 {
            server.delete(pod("a", &name(number), "web"));
            if number % 2 == 0 {
                server.put(pod("a", &name(number), "api"));
            } else {
                expected.remove(&name(number));
            }
        }
        expected.extend((40..50).map(name));
        (30..50).for_each(|number| drop(server.put(pod("a", &name(number), "api"))));
        until("both have their half", || agree(&expected)).await;
        server.close_watches().put(pod("a", "last", "api"));
        expected.insert("last".to_owned());
        until("both have their half", || agree(&expected)).await;
        assert_eq!(server.initial_reads(), 2, "{initial:?} {is_known}");
        let is_whole =
            |seen: &&LoggedRequest| seen.kind != RequestKind::Get && !seen.request.contains("shardSelector=");
        assert_eq!(server.requests().iter().find(is_whole), None, "{initial:?} {is_known}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_does_not_exist_is_an_error() {
    let cluster = Cluster::new(server().client());
    for (index, count) in [(2, 2), (0, 0)] {
        let refused = cluster.informer::<Pod>().shard(ShardField::Namespace, index, count).start();
        assert_eq!(refused.err(), Some(ConfigError::Shard { index, count }));
    }
    let whole = cluster.informer::<Pod>().start_shared().unwrap();
    let half = cluster.informer::<Pod>().shard(ShardField::Namespace, 0, 2).start_shared().unwrap();
    ready(&whole).await;
    ready(&half).await;
    assert_eq!(contents(&whole), ALL);
    let others = cluster.informer::<Pod>().shard(ShardField::Namespace, 1, 2).start_shared().unwrap();
    ready(&others).await;
    let mut both = [contents(&half), contents(&others)].map(|shown| shown.trim().to_owned());
    both.sort();
    assert_eq!(both.join(" ").trim(), ALL, "a namespace is in one half");
}

/// Goal: each namespace is read by its own selectors, in whatever way, into one store with one subscription. Method:
/// streams, pages, and one list; then changes that match, leave, and do not match.
#[tokio::test(start_paused = true)]
async fn each_namespace_is_read_by_its_own_selectors() {
    for initial in [InitialList::Stream, InitialList::Paged, InitialList::Unpaged] {
        let server = server().put(pod("c", "x", "web"));
        let cluster = Cluster::new(server.client());
        let pods = web_in_a(&cluster).initial_list(initial).page_size(1).start().unwrap();
        ready(&pods).await;
        assert_eq!(contents(&pods), WEB_IN_A, "{initial:?}");
        until("both watches", || server.count(RequestKind::Watch) + server.count(RequestKind::Stream) == 2).await;
        let mut requested = selections(&server, 0);
        requested.sort();
        requested.dedup();
        assert_eq!(requested, ["a app=web", "b  spec.nodeName=node-y"], "{initial:?}");

        let mut events = pods.subscribe();
        assert_eq!(next(&mut events, 2).await.join(" "), "+a/x@42 +b/y@45");
        // The version of the whole is the lowest one of both.
        assert!(next(&mut events, 1).await[0].starts_with('='));
        server.put(pod("a", "z", "api")).put(pod("b", "x", "api")).put(pod("a", "x", "api")).put(pod("a", "y", "web"));
        assert_eq!(next(&mut events, 2).await.join(" "), "-a/x@42 +a/y@50");
        assert_eq!(contents(&pods), "a/y@50 b/y@45");
    }
}

/// Goal: all namespaces can be read, some of them by selectors of their own, and no object twice.
#[tokio::test(start_paused = true)]
async fn one_namespace_differs_from_all_others() {
    let server = server().put(pod("c", "x", "web")).put(pod("c", "y", "api"));
    let cluster = Cluster::new(server.client());
    let declared = cluster.informer::<Pod>().labels("app=web");
    let pods = declared.namespace_labels("b", "app=api").namespace_labels("c", "").start_shared().unwrap();
    ready(&pods).await;
    assert_eq!(contents(&pods), "a/x@42 b/y@45 c/x@46 c/y@47");
    let expected = ["* app=web metadata.namespace!=b,metadata.namespace!=c", "b app=api", "c"];
    assert_eq!(selections(&server, 0), expected);
    server.put(pod("b", "z", "web")).put(pod("d", "z", "web"));
    pods.wait_until(|now| now.get("d/z").is_some()).await.unwrap();
    assert_eq!(contents(&pods), "a/x@42 b/y@45 c/x@46 c/y@47 d/z@49");
    let (of_c, of_d) = (cluster.informer::<Pod>().namespace("c"), cluster.informer::<Pod>().namespace("d"));
    let (of_c, of_d) = (of_c.start_shared().unwrap(), of_d.labels("app=web").start_shared().unwrap());
    ready_all([of_c.readiness(), of_d.readiness()], SOON).await.unwrap();
    assert_eq!((contents(&of_c).as_str(), contents(&of_d).as_str()), ("c/x@46 c/y@47", "d/z@49"));
    assert_eq!(server.requests().len(), 3, "the copies of the parts answer");
}

/// Goal: a copy filtered out of one that has a namespace apart gets no object of a namespace that it excludes, whether it
/// is declared or the part of another one. Method: a copy whose other part is a filter, too.
#[tokio::test(start_paused = true)]
async fn a_namespace_apart_in_the_wider_copy_stays_excluded() {
    let server = server();
    server.put(pod("c", "x", "api")).put(pod("c", "y", "api")).put(pod("c", "z", "api"));
    let cluster = Cluster::new(server.client());
    let without_a = cluster.informer::<Pod>().fields("metadata.namespace!=a").start_shared().unwrap();
    ready(&without_a).await;
    let apart = cluster.informer::<Pod>().labels("app=web").namespace_labels("a", "").start_shared().unwrap();
    ready(&apart).await;
    assert_eq!(contents(&apart), "a/x@42 a/y@43 b/x@44");
    let narrower = cluster.informer::<Pod>().labels("app=web,app").fields("metadata.namespace!=a");
    let narrower = narrower.start_shared().unwrap();
    ready(&narrower).await;
    assert_eq!(contents(&narrower), "b/x@44");
    let api_in_a = cluster.informer::<Pod>().labels("app=web,!old").namespace_labels("a", "app=api");
    let api_in_a = api_in_a.start_shared().unwrap();
    ready(&api_in_a).await;
    assert_eq!(contents(&api_in_a), "a/y@43 b/x@44");
    assert_eq!(selections(&server, 0), ["*  metadata.namespace!=a", "a"], "others are filtered");
}

/// Goal: users share what is equal, and no user gets objects of other selectors.
#[tokio::test(start_paused = true)]
async fn copies_are_shared_by_the_selectors_of_each_namespace() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let first = web_in_a(&cluster).start_shared().unwrap();
    ready(&first).await;
    let equal = cluster.informer::<Pod>().namespaces(["b", "a"]).fields("spec.nodeName=node-y");
    let equal = equal.namespace_labels("a", "app in (web)").namespace_labels("a", "app=web");
    let equal = equal.namespace_fields("a", "").start_shared().unwrap();
    let part = cluster.informer::<Pod>().namespace("a").labels("app=web").start_shared().unwrap();
    ready_all([equal.readiness(), part.readiness()], SOON).await.unwrap();
    assert_eq!((contents(&equal).as_str(), contents(&part).as_str()), (WEB_IN_A, "a/x@42"));
    assert_eq!(server.requests().len(), 2, "nothing new was asked");
    assert!(first.explain().ends_with(" (shared by 2, one of 2 watches)"), "{}", first.explain());

    let all_of_a = cluster.informer::<Pod>().namespaces(["a", "b"]).namespace_fields("b", "spec.nodeName=node-y");
    let all_of_a = all_of_a.start_shared().unwrap();
    ready(&all_of_a).await;
    assert_eq!(contents(&all_of_a), "a/x@42 a/y@43 b/y@45");
    assert_eq!(selections(&server, 2), ["a"], "the part that is equal is shared");

    // A copy of all pods answers each namespace by its filter.
    let cluster = Cluster::new(server.client());
    let all = cluster.informer::<Pod>().start_shared().unwrap();
    ready(&all).await;
    let filtered = web_in_a(&cluster).start_shared().unwrap();
    ready(&filtered).await;
    assert_eq!((contents(&all).as_str(), contents(&filtered).as_str()), (ALL, WEB_IN_A));
    assert_eq!(server.requests().len(), 4);
    let filter = "namespace a or b, labels app=web in a, fields spec.nodeName=node-y in b)";
    assert!(filtered.explain().ends_with(filter), "{}", filtered.explain());
}

/// Goal: after a 410, each namespace is read again by its own selectors, and misses no deletion. Method: streams, and a
/// server that refuses them.
#[tokio::test(start_paused = true)]
async fn a_relist_of_each_namespace_has_its_selectors() {
    for refused in [false, true] {
        let server = server();
        if refused {
            server.refuse_stream(422);
        }
        let cluster = Cluster::new(server.client());
        let pods = web_in_a(&cluster).start().unwrap();
        ready(&pods).await;
        until("both watches", || server.count(RequestKind::Watch) + server.count(RequestKind::Stream) >= 2).await;
        let mut events = pods.subscribe();
        next(&mut events, 3).await;
        let (before, lists) = (server.requests().len(), server.initial_reads());
        server.refuse_connections().break_watches();
        server.delete(pod("a", "x", "web")).put(pod("a", "y", "web")).put(pod("b", "z", "api"));
        server.put(pod("b", "y", "web")).put(pod("b", "x", "web"));
        server.expire_at(server.resource_version()).recover().expire_at(server.resource_version());
        let mut seen = Vec::new();
        while seen.len() < 3 {
            // Each of both relists ends in a `Synced`.
            seen.extend(next(&mut events, 1).await.into_iter().filter(|event| !event.starts_with('=')));
        }
        seen.sort();
        assert_eq!(seen, ["+a/y@47", "-a/x@42?", "b/y@45>49"]);
        assert_eq!(contents(&pods), "a/y@47 b/y@49");
        let mut requested = selections(&server, before);
        requested.sort();
        requested.dedup();
        assert_eq!(requested, ["a app=web", "b  spec.nodeName=node-y"]);
        assert_eq!(server.initial_reads() - lists, 2, "one for each namespace");
    }
}

/// Goal: a namespace without matching changes moves on by its own bookmarks, so that the whole can resume.
#[tokio::test(start_paused = true)]
async fn bookmarks_of_each_namespace_move_the_whole() {
    let server = server();
    let pods = web_in_a(&Cluster::new(server.client())).start().unwrap();
    ready(&pods).await;
    server.put(pod("a", "z", "web")).put(pod("c", "z", "web"));
    pods.wait_until(|now| now.get("a/z").is_some()).await.unwrap();
    let behind = pods.resource_version().unwrap();
    assert_eq!(behind.as_str(), "45", "b has seen nothing of it");
    pods.wait_for(server.resource_version(), 2 * MINUTE).await.unwrap();
    // Both resume at the bookmark: what came before it has expired.
    server.expire_at(server.resource_version() - 1).break_watches();
    server.put(pod("b", "y", "new"));
    pods.wait_for(server.resource_version(), 2 * MINUTE).await.unwrap();
    assert_eq!((contents(&pods).as_str(), server.initial_reads()), ("a/x@42 a/z@46 b/y@48", 2));
}

/// Goal: each namespace resumes from the checkpoint of its selectors, and of no others. Method: restarts.
#[tokio::test]
async fn checkpoints_are_those_of_a_namespace_and_its_selectors() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let saved = || {
        let files = std::fs::read_dir(folder.path()).unwrap().filter_map(Result::ok);
        files.filter(|file| file.metadata().is_ok_and(|file| file.len() > 0)).count()
    };
    let start = |labels: &'static str| {
        let declared = web_in_a(&Cluster::new(server.client())).namespace_labels("a", labels);
        declared.checkpoint(folder.path()).start().unwrap()
    };
    let pods = start("app=web");
    ready(&pods).await;
    pods.stop().await;
    until("two checkpoints", || saved() >= 2).await;
    server.put(pod("a", "y", "web")).put(pod("b", "y", "new"));
    let again = start("app=web");
    ready(&again).await;
    until("both changes", || contents(&again) == "a/x@42 a/y@46 b/y@47").await;
    assert_eq!(server.initial_reads(), 2, "the restart resumed both");
    again.stop().await;

    let other = start("app=api");
    ready(&other).await;
    assert_eq!(contents(&other), "b/y@47", "the saved state of other selectors is not used");
    assert_eq!(server.initial_reads(), 3, "namespace a has other selectors");
}

/// A cluster whose server forbids namespace `b` while the switch is set.
fn forbidding_b(server: &FakeApiServer) -> (Cluster, Arc<AtomicBool>) {
    let (client, is_forbidden) = (server.client(), Arc::new(AtomicBool::new(true)));
    let (denied, forbids) = (FakeApiServer::new().fail_next(usize::MAX, 403).client(), Arc::clone(&is_forbidden));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let is_denied = request.uri().path().contains("/namespaces/b/") && forbids.load(Ordering::SeqCst);
        let client = if is_denied { denied.clone() } else { client.clone() };
        async move { client.send(request).await }
    });
    (Cluster::new(Client::new(service, "default")), is_forbidden)
}

/// Goal: a namespace that is forbidden is named, never silently missing; the others are read meanwhile. Method: a role
/// that lacks a namespace, gets it, and loses it again.
#[tokio::test(start_paused = true)]
async fn a_forbidden_namespace_is_named_while_the_others_are_read() {
    let server = server();
    let (cluster, is_forbidden) = forbidding_b(&server);
    let pods: Informer<Pod> = web_in_a(&cluster).start_shared().unwrap();
    let refused = pods.ready(MINUTE).await.unwrap_err();
    assert!(matches!(&refused.cause, Cause::Failed(error) if error.is_forbidden()), "{refused}");
    let status = pods.status();
    assert_eq!(status.phase, InformerPhase::Starting, "{status}");
    let (error, _) = status.last_error.unwrap();
    assert!(error.request().unwrap().to_string().contains("/namespaces/b/pods?"), "{error:?}");
    assert!(pods.explain().contains("/namespaces/b/pods?"), "{}", pods.explain());
    let unready = cluster.ready_all(Duration::ZERO).await.unwrap_err().to_string();
    assert!(unready.contains("pods in namespace b with fields spec.nodeName=node-y: not ready after"), "{unready}");
    assert!(!unready.contains("pods in namespace a with labels app=web: not"), "{unready}");
    assert_eq!(contents(&pods), "", "a state without b would pass for a whole one");
    let part = cluster.informer::<Pod>().namespace("a").labels("app=web").start_shared().unwrap();
    ready(&part).await;
    assert_eq!(contents(&part), "a/x@42", "the namespace alone is readable");

    is_forbidden.store(false, Ordering::SeqCst);
    pods.ready(10 * MINUTE).await.unwrap();
    assert_eq!(contents(&pods), WEB_IN_A);
    // It lists what it could not watch, and then tries again to watch.
    reaches(&pods, InformerPhase::Watching).await;

    is_forbidden.store(true, Ordering::SeqCst);
    server.break_watches();
    reaches(&pods, InformerPhase::Disconnected).await;
    server.put(pod("a", "z", "web")).put(pod("b", "y", "new"));
    pods.wait_until(|now| now.get("a/z").is_some()).await.unwrap();
    sleep(MINUTE).await;
    assert_eq!(contents(&pods), "a/x@42 a/z@46 b/y@45", "the others go on");
    let status = pods.status();
    assert_eq!((status.phase, pods.ready(SOON).await.unwrap()), (InformerPhase::Disconnected, Ready::Disconnected));
    assert!(status.last_error.is_some_and(|(error, _)| error.is_forbidden()));
    assert_eq!(part.status().phase, InformerPhase::Watching, "its namespace is not forbidden");
    is_forbidden.store(false, Ordering::SeqCst);
    reaches(&pods, InformerPhase::Watching).await;
    assert_eq!(contents(&pods), "a/x@42 a/z@46 b/y@47");
}

/// Goal: a copy of one namespace does not depend on the others of a smaller copy that has them, too.
#[tokio::test(start_paused = true)]
async fn a_copy_of_one_namespace_goes_on_without_the_others() {
    let server = server();
    let (cluster, is_forbidden) = forbidding_b(&server);
    is_forbidden.store(false, Ordering::SeqCst);
    let all_of_a = cluster.informer::<Pod>().namespace("a").start_shared().unwrap();
    ready(&all_of_a).await;
    let both = cluster.informer::<Pod>().namespaces(["a", "b"]).labels("app=web");
    let both = both.namespace_fields("b", "spec.nodeName=none").start_shared().unwrap();
    ready(&both).await;
    let web_in_a = cluster.informer::<Pod>().namespace("a").labels("app=web,app").start_shared().unwrap();
    ready(&web_in_a).await;
    assert_eq!((contents(&both).as_str(), contents(&web_in_a).as_str()), ("a/x@42", "a/x@42"));
    is_forbidden.store(true, Ordering::SeqCst);
    server.break_watches();
    reaches(&both, InformerPhase::Disconnected).await;
    sleep(MINUTE).await;
    assert_eq!(web_in_a.status().phase, InformerPhase::Watching);
    assert_eq!(selections(&server, 0)[..2], ["a", "b app=web spec.nodeName=none"]);
}

/// Waits until a copy has this phase, for at most an hour of paused time.
async fn reaches(pods: &Informer<Pod>, phase: InformerPhase) {
    for _ in 0..3_600 {
        if pods.status().phase == phase {
            return;
        }
        sleep(Duration::from_secs(1)).await;
    }
    panic!("{}", pods.status());
}

/// Goal: contradictions are errors before a request.
#[tokio::test(start_paused = true)]
async fn selectors_of_namespaces_that_are_not_read_are_errors() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let unselected = || cluster.informer::<Pod>().namespace("a").namespace_labels("b", "app=web");
    assert_eq!(unselected().start().unwrap_err(), ConfigError::UnselectedNamespace("b".into()));
    assert_eq!(unselected().start_shared().unwrap_err(), ConfigError::UnselectedNamespace("b".into()));
    let nodes = cluster.informer::<Node>().namespace_fields("a", "spec.unschedulable=true").start().unwrap_err();
    assert_eq!(nodes, ConfigError::ClusterScoped { plural: "nodes".into() });
    let bad = cluster.informer::<Pod>().namespaces(["a", "b"]).namespace_labels("a", "==").start().unwrap_err();
    assert!(matches!(bad, ConfigError::Labels(_)), "{bad}");
    let lingering = cluster.informer::<Pod>().namespace_labels("a", "app=web").linger(SOON).start().unwrap_err();
    assert_eq!(lingering, ConfigError::LingerDerived);
    assert_eq!(server.requests().len(), 0);
}

/// Goal: each informer of a cluster has its defaults where it sets nothing, and clears them one by one. Method: the
/// requests of declarations of three types.
#[tokio::test(start_paused = true)]
async fn informers_begin_with_the_selection_of_their_cluster() {
    let server = server().put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}));
    let builder = Cluster::builder(server.client()).default_namespaces(["a", "b"]).default_labels("app=web");
    let cluster = builder.default_fields("metadata.name!=y").build();
    let pods = || cluster.informer::<Pod>();
    let nodes = ApiResource::erase::<Node>(&());
    let of_cluster = cluster.informer_for::<DynamicObject>(&nodes).scope(&Scope::Cluster);
    for (declared, expected) in [
        (pods(), vec!["a app=web metadata.name!=y", "b app=web metadata.name!=y"]),
        (pods().namespace("c"), vec!["c app=web metadata.name!=y"]),
        (pods().all_namespaces(), vec!["* app=web metadata.name!=y"]),
        (pods().labels("app=api"), vec!["a app=api metadata.name!=y", "b app=api metadata.name!=y"]),
        (pods().labels("").fields(""), vec!["a", "b"]),
        (pods().namespace_labels("b", ""), vec!["a app=web metadata.name!=y", "b  metadata.name!=y"]),
        (pods().all_namespaces().labels("").fields(""), vec!["*"]),
    ] {
        let before = server.requests().len();
        ready(&declared.start().unwrap()).await;
        assert_eq!(selections(&server, before), expected);
    }
    let before = server.requests().len();
    let (all, dynamic) = (cluster.informer::<Node>().start().unwrap(), of_cluster.start().unwrap());
    ready_all([all.readiness(), dynamic.readiness()], SOON).await.unwrap();
    assert_eq!(selections(&server, before), ["* app=web metadata.name!=y"; 2], "nodes have no namespace");
    let before = server.requests().len();
    let mut raw = cluster.raw(&ApiResource::erase::<Pod>(&())).start().unwrap();
    raw.next().await.unwrap().unwrap();
    assert_eq!(selections(&server, before), ["*"], "raw streams say all themselves");

    let wider = cluster.informer::<Pod>().start_shared().unwrap();
    ready(&wider).await;
    let before = server.requests().len();
    ready(&cluster.informer::<Pod>().namespace("b").start_shared().unwrap()).await;
    assert_eq!(server.requests().len(), before, "copies are shared as ever");
    let outside = cluster.informer::<Pod>().namespace_labels("c", "").start().unwrap_err();
    assert_eq!(outside, ConfigError::UnselectedNamespace("c".into()));
    let wrong = Cluster::builder(server.client()).default_labels("==").default_namespaces::<&str>([]).build();
    assert!(matches!(wrong.informer::<Node>().start().unwrap_err(), ConfigError::Labels(_)));
}

/// Goal: one function changes the objects of all types, unless an informer has its own or none. Method: a closure with a
/// captured value, which copies share.
#[tokio::test(start_paused = true)]
async fn informers_begin_with_the_transform_of_their_cluster() {
    let server = server();
    server.put(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "a"}}));
    let note = "of the cluster".to_owned();
    let builder = Cluster::builder(server.client());
    let cluster =
        builder.default_transform(move |object: &mut Value| object["metadata"]["labels"] = json!({"x": note}));
    let cluster = cluster.build();
    let pods = || cluster.informer::<Pod>();
    let typed = pods().store(Representation::Typed).start().unwrap();
    let (first, second) = (pods().start_shared().unwrap(), pods().start_shared().unwrap());
    let maps = cluster.informer::<ConfigMap>().start().unwrap();
    let own = pods().transform(|pod| pod.spec = None).start().unwrap();
    let none = pods().without_transforms().start().unwrap();
    let metadata = pods().metadata_only::<PartialObjectMeta<Pod>>().start().unwrap();
    cluster.ready_all(SOON).await.unwrap();
    let label = |object: Option<informer::Object<_>>| object.unwrap().label("x").map(|text| text.into_owned());
    let noted = Some("of the cluster".to_owned());
    for copy in [&typed, &first, &second] {
        assert_eq!(label(copy.store().snapshot().get("a/x")), noted);
    }
    let now = typed.store().snapshot();
    let labels = now.get("a/x").unwrap().typed().unwrap().metadata.labels.clone();
    assert_eq!(labels.unwrap()["x"], "of the cluster", "the decoded value is the changed one");
    assert_eq!(maps.store().snapshot().get("a/m").unwrap().label("x").as_deref(), Some("of the cluster"));
    for copy in [&own, &none] {
        assert_eq!(label(copy.store().snapshot().get("a/x")), None);
    }
    assert_eq!(own.store().snapshot().get("a/x").unwrap().field("spec.nodeName"), None);
    assert_eq!(metadata.store().snapshot().get("a/x").unwrap().label("app").as_deref(), Some("web"));
    let requests = server.requests().len();
    assert_eq!(requests, 6, "two of seven declarations share a copy");
    assert_eq!(typed.stats().undecodable + maps.stats().undecodable, 0);
}

/// Goal: a checkpoint of transformed objects is used only under the same defaults, and by no informer with its own
/// transform. Method: restarts.
#[tokio::test]
async fn the_transform_of_a_cluster_is_part_of_a_checkpoint() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let start = |transforms: bool, own: bool| {
        let builder = Cluster::builder(server.client()).identity("one");
        let strip = |object: &mut Value| object["metadata"]["labels"] = Value::Null;
        let cluster = if transforms { builder.default_transform(strip) } else { builder }.build();
        let declared = cluster.informer::<Pod>().checkpoint(folder.path());
        let label = |pod: &mut Pod| pod.metadata.labels = Some([("app".to_owned(), "own".to_owned())].into());
        if own { declared.transform(label) } else { declared }.start().unwrap()
    };
    let restarts = [
        (true, false, 1, None),
        (true, false, 1, None),
        (true, true, 2, Some("own")),
        (true, true, 2, Some("own")),
        (false, false, 3, Some("web")),
        (false, false, 3, Some("web")),
    ];
    for (transforms, own, reads, label) in restarts {
        let pods = start(transforms, own);
        ready(&pods).await;
        assert_eq!(pods.store().snapshot().get("a/x").unwrap().label("app").as_deref(), label);
        assert_eq!(server.initial_reads(), reads);
        pods.stop().await;
    }
}
