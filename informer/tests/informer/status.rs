//! Status of informers: what they do, since when, and what failed last.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::StreamExt as _;
use informer::{Cluster, EndReason, InformerPhase, Ready, SHARED_GRACE, testing::FakeApiServer};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, client::Body};
use prometheus_client::registry::Registry;
use serde_json::{Value, json, to_value};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    fixture::{SOON, until},
    metrics::scrape,
};

const DAY: Duration = Duration::from_secs(86_400);

fn server() -> FakeApiServer {
    FakeApiServer::new()
        .put(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "a"}}))
}

/// Goal: a copy that has been refused for a day is not taken for a current one, and says why. Method: a role that is
/// withdrawn and given back, beside a filtered copy and one of two namespaces.
#[tokio::test(start_paused = true)]
async fn a_copy_that_is_refused_for_a_day_is_disconnected() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let mut registry = Registry::default();
    informer::metrics::register(&mut registry, &cluster);
    let disconnected = || scrape(&registry)[r#"informer_disconnected{resource="configmaps"}"#];
    let maps = cluster.informer::<ConfigMap>().start_shared().unwrap();
    assert_eq!((maps.status().phase, maps.status().last_error.is_none()), (InformerPhase::Starting, true));
    maps.ready(SOON).await.unwrap();
    let filtered = cluster.informer::<ConfigMap>().namespace("a").start_shared().unwrap();
    let merged = cluster.informer::<ConfigMap>().namespaces(["a", "b"]).start().unwrap();
    let all = [&maps, &filtered, &merged];
    cluster.ready_all(SOON).await.unwrap();
    let is_watching = || all.iter().all(|copy| copy.status().phase == InformerPhase::Watching);
    until("the watches", is_watching).await;
    sleep(DAY).await;
    assert!(is_watching() && maps.status().since > DAY / 2, "{}", maps.status());
    assert!(disconnected().abs() < 1e-9);

    server.fail_next(usize::MAX, 403).close_watches();
    sleep(DAY).await;
    for copy in all {
        let status = copy.status();
        assert_eq!(status.phase, InformerPhase::Disconnected, "{status}");
        assert!((86_000..=86_400).contains(&status.since.as_secs()) && status.requests > 100, "{status}");
        assert_eq!(status.last_error.as_ref().and_then(|(error, _)| error.code()), Some(403), "{status}");
        assert_eq!(copy.ready(Duration::ZERO).await.unwrap(), Ready::Disconnected);
        assert!(status.to_string().starts_with("disconnected for 86"), "{status}");
    }

    assert!(disconnected() > 0.5);

    server.recover();
    let recovered = Instant::now();
    while !is_watching() {
        assert!(recovered.elapsed() < DAY / 2, "{}", merged.status());
        sleep(Duration::from_secs(1)).await;
    }
    assert!(disconnected().abs() < 1e-9);
    for copy in all {
        assert_eq!(copy.ready(Duration::ZERO).await.unwrap(), Ready::Watching);
        assert!(copy.status().last_error.is_some(), "it stays readable");
    }
    maps.stop().await;
    merged.clone().stop().await;
    assert_eq!(merged.status().phase, InformerPhase::Ended(EndReason::ShutDown));
    let ended = to_value(merged.status()).unwrap();
    assert_eq!((&ended["phase"], &ended["reason"]), (&json!("ended"), &json!(EndReason::ShutDown.to_string())));
}

/// Goal: a page of the program shows each copy, where it stands and what failed last, and no object. Method: a copy, one
/// filtered from it, and one with selectors, before and after the server refuses them.
#[tokio::test(start_paused = true)]
async fn a_cluster_reports_each_of_its_informers() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let report = || to_value(cluster.status()).unwrap();
    assert_eq!(report(), json!({"informers": []}));
    let maps = cluster.informer::<ConfigMap>().start_shared().unwrap();
    let starting = &report()["informers"][0];
    assert_eq!((&starting["phase"], starting.get("ageSeconds")), (&json!("starting"), None), "{starting}");
    maps.ready(SOON).await.unwrap();
    let filtered = cluster.informer::<ConfigMap>().namespace("b").start_shared().unwrap();
    let selected = cluster.informer::<ConfigMap>().namespace("a").labels("app=web").start().unwrap();
    cluster.ready_all(SOON).await.unwrap();
    until("the watches", || report()["informers"].as_array().unwrap().iter().all(|one| one["phase"] == "watching"))
        .await;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rows = |report: &Value| {
        let row = |one: &Value| {
            assert_eq!(one["resource"], "configmaps", "{one}");
            (
                one["namespaces"][0].as_str().map(str::to_owned),
                text(&one["labels"]),
                one["isDerived"].clone(),
                one["objects"].clone(),
            )
        };
        report["informers"].as_array().unwrap().iter().map(row).collect::<Vec<_>>()
    };
    let (a, b) = (Some("a".to_owned()), Some("b".to_owned()));
    let expected = vec![
        (None, String::new(), json!(false), json!(1)),
        (a, "app=web".to_owned(), json!(false), json!(0)),
        (b, String::new(), json!(true), json!(0)),
    ];
    let calm = report();
    assert_eq!(rows(&calm), expected, "{calm}");
    assert_eq!(calm["informers"][0]["bytes"], json!(cluster.status().informers[0].bytes), "{calm}");
    assert!(calm["informers"][0]["bytes"].as_u64() > Some(50) && calm["informers"][0]["ageSeconds"].is_f64(), "{calm}");
    assert!(calm["informers"][0].get("lastError").is_none() && !calm.to_string().contains("\"x\""), "{calm}");

    server.fail_next(usize::MAX, 403).close_watches();
    sleep(Duration::from_secs(600)).await;
    for one in report()["informers"].as_array().unwrap() {
        assert_eq!((&one["phase"], &one["lastError"]["code"]), (&json!("disconnected"), &json!(403)), "{one}");
        assert!(text(&one["lastError"]["message"]).contains("403"), "{one}");
        assert!(one["sinceSeconds"].as_f64() > Some(500.0) && one["requests"].as_u64() > Some(1), "{one}");
    }
    maps.stop().await;
    drop((filtered, selected));
    // The filtered copy ends after its grace period, and the copy that it follows after another one.
    sleep(3 * SHARED_GRACE).await;
    assert_eq!(report(), json!({"informers": []}));
}

/// Goal: a copy whose server accepts connections and answers nothing is not taken for a current one.
#[tokio::test(start_paused = true)]
async fn a_copy_whose_requests_are_not_answered_is_disconnected() {
    let (server, hangs) = (server(), Arc::new(AtomicBool::new(false)));
    let service = tower::service_fn({
        let (client, hangs) = (server.client(), Arc::clone(&hangs));
        move |request: http::Request<Body>| {
            let (client, hangs) = (client.clone(), Arc::clone(&hangs));
            async move {
                if hangs.load(Ordering::SeqCst) {
                    pending::<()>().await;
                }
                client.send(request).await
            }
        }
    });
    let maps = Cluster::new(Client::new(service, "default")).informer::<ConfigMap>().start().unwrap();
    maps.ready(SOON).await.unwrap();
    sleep(DAY).await;
    assert_eq!(maps.status().phase, InformerPhase::Watching, "a watch that ends is no failure");
    hangs.store(true, Ordering::SeqCst);
    server.close_watches();
    sleep(DAY / 24).await;
    let status = maps.status();
    assert!(status.phase == InformerPhase::Disconnected && status.last_error.is_some(), "{status}");
    hangs.store(false, Ordering::SeqCst);
    let changed = json!({"name": "y", "namespace": "a"});
    server.put(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": changed}));
    maps.wait_for(server.resource_version(), DAY / 24).await.unwrap();
    until("the confirmation", || maps.status().phase == InformerPhase::Watching).await;
}

/// Goal: a program can react to each failure, as with client-go's `WatchErrorHandler`. Method: three refusals, and the
/// end of the informer.
#[tokio::test(start_paused = true)]
async fn failures_come_as_a_stream_that_ends_with_the_informer() {
    let server = server();
    let maps = Cluster::new(server.client()).informer::<ConfigMap>().start().unwrap();
    maps.ready(SOON).await.unwrap();
    let mut errors = maps.errors();
    server.fail_next(3, 500).close_watches();
    for _ in 0..3 {
        assert_eq!(errors.next().await.unwrap().code(), Some(500));
    }
    assert!(timeout(DAY / 24, errors.next()).await.is_err(), "all is well");
    maps.stop().await;
    assert!(errors.next().await.is_none());
}

/// Goal: `errors()` of one use of a shared copy ends with the use, whose status keeps the time of its end. Method:
/// another use keeps the copy running.
#[tokio::test(start_paused = true)]
async fn failures_and_times_of_a_shared_copy_end_with_the_use() {
    let server = server();
    let cluster = Cluster::new(server.client());
    let [dropped, stopped, other] = [(); 3].map(|()| cluster.informer::<ConfigMap>().start_shared().unwrap());
    dropped.ready(SOON).await.unwrap();
    let mut errors = dropped.errors();
    drop(dropped);
    assert!(timeout(DAY, errors.next()).await.expect("it ends with the handle").is_none());

    sleep(DAY).await;
    stopped.clone().stop().await;
    let status = stopped.status();
    assert_eq!(status.phase, InformerPhase::Ended(EndReason::ShutDown));
    assert!(status.since < Duration::from_secs(1) && status.requests == 0, "{status}");
    sleep(DAY).await;
    assert_eq!((stopped.status().since, stopped.status().requests), (DAY, 0));
    assert!(other.status().phase == InformerPhase::Watching && other.status().since > DAY, "{}", other.status());

    other.clone().stop().await;
    sleep(DAY).await;
    let (phase, since) = (other.status().phase, other.status().since);
    assert_eq!((phase, since), (InformerPhase::Ended(EndReason::ShutDown), DAY), "the copy ended for want of users");
}

/// Goal: one namespace that is refused makes a copy of several no current one, however much the others change.
#[tokio::test(start_paused = true)]
async fn a_copy_of_several_namespaces_is_as_well_as_the_worst() {
    let (server, is_refused) = (server(), Arc::new(AtomicBool::new(false)));
    let service = tower::service_fn({
        let (server, is_refused) = (server.clone(), Arc::clone(&is_refused));
        move |request: http::Request<Body>| {
            let (server, is_refused) = (server.clone(), Arc::clone(&is_refused));
            async move {
                if is_refused.load(Ordering::SeqCst) && request.uri().path().contains("namespaces/b") {
                    server.fail_next(1, 403);
                }
                server.respond(request).await
            }
        }
    });
    let merged = Cluster::new(Client::new(service, "default")).informer::<ConfigMap>().namespaces(["a", "b"]);
    let merged = merged.start().unwrap();
    assert_eq!(merged.ready(SOON).await.unwrap(), Ready::Watching);
    is_refused.store(true, Ordering::SeqCst);
    server.close_watches();
    sleep(DAY / 24).await;
    for number in 0..10 {
        let status = merged.status();
        assert_eq!(status.phase, InformerPhase::Disconnected, "{status}");
        assert_eq!(status.last_error.as_ref().and_then(|(error, _)| error.code()), Some(403), "{status}");
        assert_eq!(merged.ready(Duration::ZERO).await.unwrap(), Ready::Disconnected);
        let changed = json!({"name": format!("x-{number}"), "namespace": "a"});
        server.put(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": changed}));
        merged.wait_until(|now| now.get(&format!("a/x-{number}")).is_some()).await.unwrap();
    }
    is_refused.store(false, Ordering::SeqCst);
    let is_watching = || merged.status().phase == InformerPhase::Watching;
    let recovered = Instant::now();
    while !is_watching() {
        assert!(recovered.elapsed() < DAY / 2, "{}", merged.status());
        sleep(Duration::from_secs(1)).await;
    }
}
