//! Ends of single uses of a shared copy, and of copies: every reader of an ended use learns that and why, while the
//! other users read on.

use std::{future::pending, sync::Arc, time::Duration};

use informer::{Cause, Cluster, Config, ConfigError, EndReason, Informer, InitialList, ResourceVersion};
use k8s_openapi::api::core::v1::Pod;
use tokio::time::{sleep, timeout};

use crate::{
    fixture::{SOON, contents, next, until},
    sharing::{ALL, pod, ready, server},
};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Goal: nothing that belongs to a use outlives its shutdown, and nothing of another use ends with it. Method: each
/// kind of reader waits when the use is shut down.
#[tokio::test(start_paused = true)]
async fn readers_of_a_use_end_with_its_shutdown() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let (first, other) =
        (cluster.informer::<Pod>().start_shared().unwrap(), cluster.informer::<Pod>().start_shared().unwrap());
    ready(&first).await;
    let (mut latest, mut each, mut others) = (first.subscribe(), first.subscribe_all(8), other.subscribe());
    for events in [&mut latest, &mut others] {
        next(events, 5).await;
    }
    next(&mut each, 5).await;
    let mut store = first.store().clone();
    store.changed().await.unwrap();
    let (waiting, later) = (first.clone(), ResourceVersion::from(99));
    let waits = tokio::spawn(async move {
        tokio::join!(
            latest.next(),
            each.next(),
            store.changed(),
            waiting.wait_until(|_| false),
            waiting.wait_for(&later, DAY),
            waiting.join(),
        )
    });
    tokio::task::yield_now().await;
    assert_eq!(first.shutdown(Duration::ZERO).await, Ok(EndReason::ShutDown));
    let ended = timeout(SOON, waits).await.expect("no reader waits any longer").unwrap();
    assert!(ended.0.is_none() && ended.1.is_none() && ended.4.is_err());
    let reasons = (ended.2.unwrap_err(), ended.3.unwrap_err(), ended.5);
    assert_eq!(reasons, (EndReason::ShutDown, EndReason::ShutDown, EndReason::ShutDown));

    let not_ready = first.ready(DAY).await.unwrap_err();
    assert!(matches!(not_ready.cause, Cause::Ended(EndReason::ShutDown)), "{not_ready}");
    assert!(!first.is_alive(DAY) && !first.store().is_live() && !first.store().is_alive(DAY));
    assert_eq!(
        (first.store().join().await, first.store().end_reason()),
        (EndReason::ShutDown, Some(EndReason::ShutDown))
    );

    server.put(pod("c", "z", "web"));
    assert_eq!(next(&mut others, 1).await, ["+c/z@46"]);
    assert!(other.is_running() && other.is_alive(DAY) && other.store().is_live());
}

/// Goal: a subscription ends with a whole state, the one at the shutdown, however slow it is and however busy the copy.
#[tokio::test(start_paused = true)]
async fn a_slow_subscription_ends_with_the_state_at_the_shutdown() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let (first, other) =
        (cluster.informer::<Pod>().start_shared().unwrap(), cluster.informer::<Pod>().start_shared().unwrap());
    for number in 0..200 {
        server.put(pod("c", &format!("n{number:03}"), "web"));
    }
    ready(&first).await;
    other.wait_for(server.resource_version(), SOON).await.unwrap();
    let mut subscriptions = [first.subscribe(), first.subscribe()];
    let mut each = first.subscribe_all(1_000);
    next(&mut subscriptions[0], 70).await;
    next(&mut each, 70).await;
    first.shutdown(SOON).await.unwrap();
    for events in &mut subscriptions[..1] {
        next(events, 1).await;
    }
    // Later changes are no business of this use.
    for number in 0..200 {
        server.delete(pod("c", &format!("n{number:03}"), "web"));
    }
    other.wait_for(server.resource_version(), SOON).await.unwrap();
    let [mut seen, mut unseen] = subscriptions;
    let (mut rest, mut all, mut rest_of_each) = (0, 0, 0);
    timeout(SOON, async {
        while seen.next().await.is_some() {
            rest += 1;
        }
        while each.next().await.is_some() {
            rest_of_each += 1;
        }
        while unseen.next().await.is_some() {
            all += 1;
        }
    })
    .await
    .expect("they end");
    assert_eq!((71 + rest, 70 + rest_of_each, all), (205, 205, 205), "every object, and the end of initial state");
    assert_eq!((seen.end_reason(), each.end_reason()), (Some(EndReason::ShutDown), Some(EndReason::ShutDown)));
    assert_eq!(contents(&other), ALL);
}

/// Goal: a component that restarts often leaves no task behind in a copy that lives as long as the program. Method: the
/// signal's future owns a value that is counted.
#[tokio::test(start_paused = true)]
async fn a_signal_to_come_is_dropped_with_the_use() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let remaining = cluster.informer::<Pod>().start_shared().unwrap();
    ready(&remaining).await;
    let signal = Arc::new(());
    for is_shut_down in [true, false] {
        let brief = cluster.informer::<Pod>().start_shared().unwrap();
        let held = Arc::clone(&signal);
        brief.shutdown_on(async move {
            pending::<()>().await;
            drop(held);
        });
        if is_shut_down {
            brief.shutdown(SOON).await.unwrap();
        }
        drop(brief);
        until("the end of the signal's task", || Arc::strong_count(&signal) == 1).await;
    }
    assert!(remaining.is_running());
}

/// Goal: a copy that ended with its runtime is not handed out. kube's client does not outlive the runtime either, so a
/// running task is all that the new copy can show.
#[test]
fn a_copy_that_ended_with_its_runtime_is_replaced() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let server = server();
    let first = runtime();
    let (cluster, ended) = first.block_on(async {
        let cluster = Cluster::new(server.client());
        let pods: [Informer<Pod>; 2] = [cluster.informer(), cluster.informer().namespaces(["a", "b"])]
            .map(|declared| declared.start_shared().unwrap());
        for pods in &pods {
            ready(pods).await;
        }
        (cluster, pods)
    });
    drop(first);
    assert_eq!(ended.each_ref().map(Informer::end_reason), [Some(EndReason::RuntimeGone); 2]);
    runtime().block_on(async {
        assert!(cluster.informer::<Pod>().start_shared().unwrap().is_running());
    });
    drop(ended);
}

/// A setting of the SDK, and a change of it.
type SettingChange = (&'static str, fn(&mut Config));

/// Goal: no setting that a user declared is dropped. Method: later users with the same settings, with defaults, and
/// with another value of one; and a narrower declaration with a setting that the wider copy lacks.
#[tokio::test(start_paused = true)]
async fn settings_of_a_later_user_are_refused_or_in_force() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let declare = || cluster.informer::<Pod>().page_size(100);
    let first = declare().start_shared().unwrap();
    ready(&first).await;
    let requests = server.requests().len();
    drop(declare().spread(DAY).start_shared().expect("the same settings, and no request to be spread"));
    drop(cluster.informer::<Pod>().start_shared().expect("defaults refuse nothing"));
    let changes: [SettingChange; 13] = [
        ("initial_list", |config| config.initial_list = InitialList::Paged),
        ("page_size", |config| config.page_size = 50),
        ("resume_initial", |config| config.resume_initial = false),
        ("healthy_after", |config| config.healthy_after = DAY),
        ("idle_timeout", |config| config.idle_timeout = DAY),
        ("initial_events_stall", |config| config.initial_events_stall = DAY),
        ("watch_timeout_seconds", |config| config.watch_timeout_seconds = 1..=2),
        ("bookmarks", |config| config.bookmarks = false),
        ("headers_timeout", |config| config.headers_timeout = DAY),
        ("backoff", |config| config.backoff.max = DAY),
        ("poll_interval", |config| config.poll_interval = DAY),
        ("gzip_lists", |config| config.gzip_lists = true),
        ("checkpoint", |config| config.checkpoint = Some("/nowhere".into())),
    ];
    for (name, change) in changes {
        assert_eq!(declare().config(change).start_shared().unwrap_err(), ConfigError::SharedSetting(name));
    }
    assert_eq!(server.requests().len(), requests);
    let narrower = cluster.informer::<Pod>().namespace("a").config(|config| config.idle_timeout = DAY);
    let narrower = narrower.start_shared().unwrap();
    ready(&narrower).await;
    assert!(!narrower.explain().contains("filtered here"), "{}", narrower.explain());
    let like_it = cluster.informer::<Pod>().namespace("b").start_shared().unwrap();
    assert!(like_it.explain().contains("filtered here"), "{}", like_it.explain());
    let other = cluster.informer::<Pod>().namespace("b").config(|config| config.idle_timeout = DAY);
    let other = other.start_shared().expect("a filtered copy of other settings does not stand in the way");
    assert!(!other.explain().contains("filtered here"), "{}", other.explain());

    // A refused declaration of several namespaces starts none of them.
    let cluster = Cluster::new(server.client());
    let last = cluster.informer::<Pod>().namespace("b").page_size(50).start_shared().unwrap();
    ready(&last).await;
    let requests = server.requests().len();
    let several = cluster.informer::<Pod>().namespaces(["a", "b"]).page_size(60).start_shared();
    assert_eq!(several.unwrap_err(), ConfigError::SharedSetting("page_size"));
    sleep(SOON).await;
    assert_eq!(server.requests().len(), requests);
    let first = cluster.informer::<Pod>().namespace("a").page_size(70).start_shared().expect("no copy is in the way");
    ready(&first).await;
}

#[tokio::test(start_paused = true)]
async fn settings_of_a_cluster_are_those_of_its_informers() {
    let server = server();
    let builder = Cluster::builder(server.client()).defaults(|config| config.page_size = 1);
    let cluster = builder.defaults(|config| config.drop_paths.push("metadata.labels".to_owned())).build();
    let first = cluster.informer::<Pod>().initial_list(InitialList::Paged).start_shared().unwrap();
    ready(&first).await;
    assert!(server.requests().iter().any(|request| request.request.ends_with("limit=1")), "{:?}", server.requests());
    assert_eq!(first.store().snapshot().get("a/x").unwrap().label("app"), None);
    // No user changed what is the cluster's.
    drop(cluster.informer::<Pod>().start_shared().expect("an equal declaration"));

    let cluster = Cluster::builder(server.client()).defaults(|config| config.gzip_lists = true).build();
    let plain = cluster.informer::<Pod>().config(|config| config.gzip_lists = false).start_shared().unwrap();
    drop(cluster.informer::<Pod>().start_shared().expect("its user set nothing"));
    drop(plain);
}
