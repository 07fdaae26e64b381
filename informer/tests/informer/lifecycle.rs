//! Ends of informers: by their handles, for all clones at once, by a signal, by their runtime, or by a panic of the
//! program's own function. An ended informer never makes a caller wait, never looks alive, and has a reason.

use std::{future::pending, time::Duration};

use informer::{Cause, Cluster, EndReason, Informer, Ready, delays::Delays, testing::FakeApiServer};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::{sync::oneshot, time::timeout};

use crate::fixture::{SOON, contents, next, until};

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "a"}, "spec": {"containers": []}})
}

async fn started(server: &FakeApiServer) -> Informer<Pod> {
    let pods = Cluster::new(server.client()).informer::<Pod>().start().unwrap();
    assert_eq!(pods.ready(SOON).await.unwrap(), Ready::Watching);
    assert!(pods.is_running() && pods.readiness().is_running());
    pods
}

/// Long enough for every age.
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Checks that every method reports the end and its reason, and that the last state stays readable.
async fn has_ended(pods: &Informer<Pod>, reason: EndReason, held: &str) {
    until("the end", || !pods.is_running()).await;
    let not_ready = timeout(SOON, pods.ready(DAY)).await.unwrap().unwrap_err();
    assert!(matches!(not_ready.cause, Cause::Ended(found) if found == reason), "{not_ready}");
    let mut store = pods.store().clone();
    assert_eq!((pods.end_reason(), store.end_reason()), (Some(reason), Some(reason)));
    assert!(!store.is_live() && !store.is_alive(DAY) && !pods.is_alive(DAY) && !pods.readiness().is_running());
    assert_eq!(contents(pods), held);
    let mut changes = pods.subscribe();
    let rest = timeout(SOON, async { while changes.next().await.is_some() {} });
    rest.await.expect("subscriptions end");
    assert_eq!(changes.end_reason(), Some(reason));
    let rest = timeout(SOON, async { while store.changed().await.is_ok() {} });
    rest.await.expect("stores end");
    assert_eq!(timeout(SOON, store.wait_until(|_| false)).await.unwrap().unwrap_err(), reason);
    assert_eq!(pods.shutdown(Duration::ZERO).await, Ok(reason), "there is nothing to wait for");
    assert_eq!((pods.join().await, store.join().await), (reason, reason));
}

/// Goal: a graceful shutdown does not hang because some state of a web framework holds a clone.
#[tokio::test(start_paused = true)]
async fn stop_ends_the_informer_whatever_clones_exist() {
    let server = FakeApiServer::new().at(41).put(pod("x"));
    let pods = started(&server).await;
    let (clone, other) = (pods.clone(), pods.clone());
    assert!(clone.is_running() && clone.store().is_live());
    timeout(Duration::from_secs(1), pods.stop()).await.expect("it does not wait for the clones");
    has_ended(&clone, EndReason::ShutDown, "a/x@42").await;
    timeout(Duration::from_secs(1), other.stop()).await.expect("a second time is nothing to wait for");
}

#[tokio::test(start_paused = true)]
async fn shutdown_by_reference_ends_the_informer_and_may_be_called_by_several() {
    let server = FakeApiServer::new().at(41).put(pod("x"));
    let pods = started(&server).await;
    let clone = pods.clone();
    let second = Duration::from_secs(1);
    let both = tokio::join!(pods.shutdown(second), clone.shutdown(second));
    assert_eq!(both, (Ok(EndReason::ShutDown), Ok(EndReason::ShutDown)));
    has_ended(&pods, EndReason::ShutDown, "a/x@42").await;
    let earlier = server.requests().len();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(server.requests().len(), earlier, "nothing is asked any more");
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
    has_ended(&pods, EndReason::Panicked, "a/x@42").await;
}

/// Goal: a panic before the first sync is an error too, not a wait until the deadline.
#[tokio::test(start_paused = true)]
async fn an_informer_whose_index_function_panics_on_the_second_object_is_never_ready() {
    let server = FakeApiServer::new().at(41).put(pod("a")).put(pod("poison"));
    let mut declared = Cluster::new(server.client()).informer::<Pod>();
    let _by_name = declared.index(|pod| {
        assert_ne!(pod.name(), "poison", "the program's own mistake");
        None
    });
    let pods = declared.start().unwrap();
    let not_ready = timeout(SOON, pods.ready(DAY)).await.unwrap().unwrap_err();
    let text = "the informer has ended: a function of the program panicked in its task";
    assert!(not_ready.to_string().ends_with(text), "{not_ready}");
    has_ended(&pods, EndReason::Panicked, "").await;
}

/// Goal: a program stops its informers by the token that stops the rest of it. Method: one of two signals resolves,
/// while a subscription and a clone exist.
#[tokio::test(start_paused = true)]
async fn a_signal_shuts_the_informer_down() {
    let server = FakeApiServer::new().at(41).put(pod("x"));
    let pods = started(&server).await;
    let (cancel, cancelled) = oneshot::channel::<()>();
    pods.shutdown_on(pending::<()>());
    pods.shutdown_on(cancelled);
    let (_clone, _changes) = (pods.clone(), pods.subscribe());
    assert!(timeout(Duration::from_secs(3_600), pods.join()).await.is_err(), "it runs until then");
    cancel.send(()).unwrap();
    assert_eq!(timeout(Duration::from_secs(1), pods.join()).await, Ok(EndReason::ShutDown));
    has_ended(&pods, EndReason::ShutDown, "a/x@42").await;
}

#[tokio::test(start_paused = true)]
async fn a_signal_to_come_does_not_keep_the_informer_running() {
    let server = FakeApiServer::new().at(41).put(pod("x"));
    let pods = started(&server).await;
    pods.shutdown_on(pending::<()>());
    let store = pods.store().detached();
    drop(pods);
    assert_eq!(timeout(Duration::from_secs(1), store.join()).await, Ok(EndReason::Dropped));
}

/// Goal: a subscription of an informer without another handle does not end silently.
#[tokio::test(start_paused = true)]
async fn a_subscription_keeps_its_informer_running() {
    let server = FakeApiServer::new().at(41).put(pod("x"));
    let cluster = Cluster::new(server.client());
    let mut latest = cluster.informer::<Pod>().start().unwrap().subscribe();
    let mut all = cluster.informer::<Pod>().start().unwrap().subscribe_all(10);
    assert_eq!(next(&mut latest, 2).await, ["+a/x@42", "=42"]);
    assert_eq!(next(&mut all, 2).await, ["+a/x@42", "=42"]);
    server.put(pod("y"));
    assert_eq!((next(&mut latest, 1).await, next(&mut all, 1).await), (vec!["+a/y@43".into()], vec!["+a/y@43".into()]));
    assert_eq!((latest.end_reason(), all.end_reason()), (None, None));
}

/// Goal: a store never goes empty or stale silently because its handle was a temporary. Method: take only the store of an
/// own and of a shared informer; then only detached ones.
#[tokio::test(start_paused = true)]
async fn a_store_keeps_its_informer_running_unless_it_is_detached() {
    let server = FakeApiServer::new().at(41).put(pod("x"));
    let cluster = Cluster::new(server.client());
    let own = cluster.informer::<Pod>().start().unwrap().store().clone();
    let shared = cluster.informer::<Pod>().start_shared().unwrap().store().clone();
    let has = |name: &'static str| move |pods: &informer::Snapshot<Pod>| pods.get_named("a", name).is_some();
    for store in [&own, &shared] {
        timeout(SOON, store.wait_until(has("x"))).await.unwrap().unwrap();
    }
    tokio::time::sleep(DAY).await;
    server.put(pod("y"));
    for store in [&own, &shared] {
        timeout(SOON, store.wait_until(has("y"))).await.unwrap().unwrap();
        assert!(store.is_live());
    }
    let observers = [own.detached(), shared.detached()];
    drop((own, shared));
    for store in observers {
        assert_eq!(timeout(DAY, store.join()).await, Ok(EndReason::Dropped));
        assert_eq!(store.snapshot().len(), 2, "its last state stays readable");
    }
}

/// Goal: one call answers a liveness probe. Method: an hour of bookmarks, then an outage that lasts longer than the
/// age, and an informer that starts in it.
#[tokio::test(start_paused = true)]
async fn an_informer_is_alive_while_the_server_is_heard() {
    let (age, minute) = (Duration::from_secs(300), Duration::from_secs(60));
    let server = FakeApiServer::new().at(41).put(pod("x"));
    let pods = started(&server).await;
    for number in 0..60 {
        assert!(pods.is_alive(age) && pods.store().is_alive(age), "after {number} minutes");
        // Writes of other types, as in every cluster: they move the bookmarks of this one.
        server.put(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"n": number}}));
        tokio::time::sleep(minute).await;
    }
    server.refuse_connections().close_watches();
    let late = Cluster::new(server.client()).informer::<Pod>().start().unwrap();
    tokio::time::sleep(minute).await;
    assert!(pods.is_alive(age), "an outage shorter than the age");
    assert!(late.is_alive(age), "it has just started");
    tokio::time::sleep(age).await;
    assert!(!pods.is_alive(age) && !late.is_alive(age));
    assert!(pods.is_running() && late.is_running());
    server.recover();
    tokio::time::sleep(2 * minute).await;
    assert!(pods.is_alive(age) && late.is_alive(age));
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
    has_ended(&transformed, EndReason::Panicked, "a/x@42").await;
    until("the other one has it", || delayed.store().snapshot().len() == 2).await;
    server.refuse_connections().close_watches();
    has_ended(&delayed, EndReason::Panicked, "a/poison@43 a/x@42").await;
}
