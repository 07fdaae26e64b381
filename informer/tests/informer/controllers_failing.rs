//! Controllers whose reconciles fail: each failure is seen, and all of them together cost a bounded number of writes.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use informer::{
    Cluster,
    controller::{Controller, ControllerMetrics, Requeue},
    testing::FakeApiServer,
};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::core::Status;
use prometheus_client::{encoding::text, registry::Registry};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tracing::Dispatch;

use crate::{
    controllers::{Refusal, World, deployment},
    fixture::{SOON, until},
    logs::RecordedLog,
};

const SECOND: Duration = Duration::from_secs(1);

/// Goal: an operator finds each failure in the log, with its object, and an object of a wrong type once. Method: an
/// object that fails twice, one that panics once, and one that does not decode, changes, decodes and breaks again.
#[tokio::test(start_paused = true)]
async fn each_failure_is_logged_with_its_key_attempt_error_and_delay() {
    let recorded = RecordedLog::default();
    let guard = tracing::subscriber::set_default(recorded.clone());
    // With a single dispatcher, tracing caches the interest of whichever thread reaches a line first.
    let second = Dispatch::new(recorded.clone());
    let world = World::new(&["fails", "panics"]).await;
    let broken = |value: &str| {
        let mut broken = deployment("broken", 1, 0);
        broken["spec"]["replicas"] = json!(value);
        broken
    };
    world.server.put(broken("hunter2"));
    let runs = Arc::new(Mutex::new(BTreeMap::<String, usize>::new()));
    let reconcile = |deployment: Arc<Deployment>, runs: Arc<Mutex<BTreeMap<String, usize>>>| async move {
        let name = deployment.metadata.name.clone().unwrap();
        let run = *runs.lock().unwrap().entry(name.clone()).and_modify(|run| *run += 1).or_insert(1);
        match (&*name, run) {
            ("fails", 1..=2) => Err(Refusal),
            ("panics", 1) => panic!("a reconciler with a defect"),
            _ => Ok(Requeue::await_change()),
        }
    };
    let controller = Controller::new(&world.deployments).name("replicas");
    let _running = tokio::spawn(controller.run(reconcile, |failure| failure.backoff(), Arc::clone(&runs)));
    sleep(SECOND).await;
    world.server.put(broken("hunter3"));
    sleep(SECOND).await;
    let lines = recorded.lines("reconcile failed");
    assert_eq!(lines.len(), 4, "{lines:#?}");
    let of = |part: &str| lines.iter().filter(|line| line.contains(part)).cloned().collect::<Vec<_>>();
    let fails = of(r#"key="a/fails""#);
    for (line, attempt) in fails.iter().zip(1..) {
        assert!(line.starts_with("event WARN") && line.contains(r#"controller="replicas""#), "{line}");
        assert!(line.contains(&format!(" attempt={attempt} error=refused delay=Some(")), "{line}");
    }
    assert_eq!((fails.len(), of(r#"key="a/panics" attempt=1 error=the reconciler panicked"#).len()), (2, 1));
    let undecodable = of(r#"key="a/broken" attempt=1 error=object a/broken does not decode at spec.replicas"#);
    assert!(undecodable.len() == 1 && undecodable[0].ends_with("delay=None"), "{lines:#?}");

    world.server.put(deployment("broken", 2, 0));
    sleep(SECOND).await;
    world.server.put(broken("hunter4"));
    sleep(SECOND).await;
    assert_eq!(recorded.lines("a/broken does not decode").len(), 2, "it was well between");
    assert!(recorded.lines("hunter").is_empty(), "{:#?}", recorded.lines("hunter"));
    let spans = recorded.lines("reconcile INFO");
    assert_eq!(spans.iter().filter(|span| span.contains(r#"controller="replicas" key="a/fails""#)).count(), 3);
    drop((guard, second));
}

/// Goal: controllers can be seen in dashboards made for controller-runtime. Method: a scrape after a success, a delayed
/// one, a failure and a panic, while one reconcile runs and two objects wait; then one after the controller has ended.
#[tokio::test(start_paused = true)]
async fn metrics_have_the_names_of_controller_runtime() {
    let world = World::new(&["a", "delayed", "explodes", "fails", "hangs", "waits-1", "waits-2"]).await;
    let mut registry = Registry::default();
    let metrics = ControllerMetrics::register(&mut registry);
    let reconcile = |deployment: Arc<Deployment>, _: Arc<()>| async move {
        sleep(SECOND / 5).await;
        match &**deployment.metadata.name.as_ref().unwrap() {
            "delayed" => Ok(Requeue::after(Duration::from_secs(3600))),
            "explodes" => panic!("a reconciler with a defect"),
            "fails" => Err(Refusal),
            "hangs" => std::future::pending().await,
            _ => Ok(Requeue::await_change()),
        }
    };
    let controller = Controller::new(&world.deployments).concurrency(1).metrics(&metrics);
    let running = tokio::spawn(controller.run(reconcile, |_| Requeue::after(60 * SECOND), Arc::new(())));
    sleep(10 * SECOND).await;
    assert_scraped(
        &registry,
        &[
            r#"controller_runtime_reconcile_total{controller="deployment",result="success"} 1"#,
            r#"controller_runtime_reconcile_total{controller="deployment",result="requeue_after"} 1"#,
            r#"controller_runtime_reconcile_total{controller="deployment",result="error"} 2"#,
            r#"controller_runtime_reconcile_errors_total{controller="deployment"} 2"#,
            r#"controller_runtime_reconcile_panics_total{controller="deployment"} 1"#,
            r#"controller_runtime_active_workers{controller="deployment"} 1"#,
            r#"controller_runtime_max_concurrent_reconciles{controller="deployment"} 1"#,
            r#"controller_runtime_reconcile_time_seconds_bucket{le="0.15",controller="deployment"} 0"#,
            r#"controller_runtime_reconcile_time_seconds_bucket{le="0.25",controller="deployment"} 4"#,
            r#"workqueue_depth{name="deployment",controller="deployment"} 2"#,
            r#"workqueue_adds_total{name="deployment",controller="deployment"} 7"#,
            r#"workqueue_queue_duration_seconds_count{name="deployment",controller="deployment"} 5"#,
            r#"workqueue_work_duration_seconds_count{name="deployment",controller="deployment"} 4"#,
            r#"workqueue_retries_total{name="deployment",controller="deployment"} 2"#,
        ],
    );
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert_scraped(
        &registry,
        &[
            r#"controller_runtime_active_workers{controller="deployment"} 0"#,
            r#"workqueue_depth{name="deployment",controller="deployment"} 0"#,
        ],
    );
}

/// Asserts that a scrape has these lines.
fn assert_scraped(registry: &Registry, lines: &[&str]) {
    let mut scraped = String::new();
    text::encode(&mut scraped, registry).unwrap();
    for line in lines {
        assert!(scraped.lines().any(|found| found == *line), "{line} in\n{scraped}");
    }
}

/// Times of reconciles since the start.
type Times = Mutex<Vec<Duration>>;

/// Goal: a webhook that is down costs the API server a few writes a second, however many objects a controller has, and
/// a webhook that is back is used at once. Method: 50,000 objects that all fail for ten minutes, and then succeed.
#[tokio::test(start_paused = true)]
async fn fifty_thousand_objects_that_fail_at_once_cost_twelve_writes_a_second() {
    const OBJECTS: usize = 50_000;
    let server = FakeApiServer::new();
    for number in 0..OBJECTS {
        server.put(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("x{number}")}}));
    }
    let maps = Cluster::new(server.client()).informer::<ConfigMap>().start().unwrap();
    maps.ready(SOON).await.unwrap();
    let (times, is_down, start) = (Arc::<Times>::default(), Arc::new(AtomicBool::new(true)), Instant::now());
    let (works, fails) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&is_down));
    let worked = Arc::clone(&works);
    let reconcile = move |_, times: Arc<Times>| {
        let (is_down, works) = (Arc::clone(&fails), Arc::clone(&works));
        async move {
            sleep(Duration::from_millis(5)).await;
            if is_down.load(Ordering::SeqCst) {
                times.lock().unwrap().push(start.elapsed());
                return Err(Refusal);
            }
            works.fetch_add(1, Ordering::SeqCst);
            Ok(Requeue::await_change())
        }
    };
    let run = Controller::new(&maps).run(reconcile, |failure| failure.backoff(), Arc::clone(&times));
    let _running = tokio::spawn(run);
    sleep(600 * SECOND).await;
    let times = std::mem::take(&mut *times.lock().unwrap());
    for minute in 0..10_u64 {
        let writes = times.iter().filter(|at| at.as_secs() / 60 == minute).count();
        assert!((590..=12 * 60).contains(&writes), "{writes} in minute {minute}");
    }
    let most = (1..600).map(|second| times.iter().filter(|at| at.as_secs() == second).count()).max();
    assert!(most <= Some(12), "{most:?} in a second");
    println!("{} writes in 600 s, at most {most:?} in a second", times.len());

    let recovered = Instant::now();
    is_down.store(false, Ordering::SeqCst);
    until("every object", || worked.load(Ordering::SeqCst) >= OBJECTS).await;
    println!("reconciled again after {:?}", recovered.elapsed());
    assert!(recovered.elapsed() < 60 * SECOND, "{:?}", recovered.elapsed());
}

/// Goal: objects that fail delay no other. Method: 300 objects that always fail, and one that changes each second.
#[tokio::test(start_paused = true)]
async fn an_object_that_works_does_not_wait_for_those_that_fail() {
    let names: Vec<String> = (0..300).map(|number| format!("fails{number}")).collect();
    let world = World::new(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let (seen, start) = (Arc::<Mutex<Vec<(i64, Duration)>>>::default(), Instant::now());
    let reconcile = move |deployment: Arc<Deployment>, seen: Arc<Mutex<Vec<(i64, Duration)>>>| async move {
        sleep(Duration::from_millis(5)).await;
        if deployment.metadata.name.as_deref() != Some("works") {
            return Err(Refusal);
        }
        seen.lock().unwrap().push((deployment.metadata.generation.unwrap(), start.elapsed()));
        Ok(Requeue::await_change())
    };
    let run = Controller::new(&world.deployments).run(reconcile, |failure| failure.backoff(), Arc::clone(&seen));
    let _running = tokio::spawn(run);
    for generation in 1..=60 {
        sleep(SECOND).await;
        let changed = start.elapsed();
        world.server.put(deployment("works", generation, 0));
        sleep(SECOND / 2).await;
        let last = seen.lock().unwrap().last().copied().unwrap_or_default();
        assert_eq!(last.0, i64::try_from(generation).unwrap());
        assert!(last.1 - changed <= Duration::from_millis(120), "generation {generation}: {:?}", last.1 - changed);
    }
}

/// Goal: a server that asks for time gets it. Method: a write that is refused three times with seven seconds each.
#[tokio::test(start_paused = true)]
async fn retry_after_of_a_refused_write_is_obeyed() {
    let world = World::new(&["x"]).await;
    let (times, start) = (Arc::<Times>::default(), Instant::now());
    let reconcile = move |_: Arc<Deployment>, times: Arc<Times>| async move {
        times.lock().unwrap().push(start.elapsed());
        if times.lock().unwrap().len() > 3 {
            return Ok(Requeue::await_change());
        }
        let status = json!({"code": 503, "details": {"retryAfterSeconds": 7}});
        Err(kube::Error::Api(serde_json::from_value::<Status>(status).unwrap().boxed()))
    };
    let run = Controller::new(&world.deployments).run(reconcile, |failure| failure.backoff(), Arc::clone(&times));
    let _running = tokio::spawn(run);
    sleep(60 * SECOND).await;
    let times = times.lock().unwrap().clone();
    assert_eq!(times.len(), 4);
    assert!(times.windows(2).all(|pair| (7..8).contains(&(pair[1] - pair[0]).as_secs())), "{times:?}");
}
