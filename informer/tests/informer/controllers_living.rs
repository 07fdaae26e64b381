//! The life of a controller: its start, the order of its work, deletions, results and signals.

use std::{
    convert::Infallible,
    future::pending,
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt as _;
use informer::{
    Cluster, Informer, ObjectRef,
    controller::{Controller, ControllerError, ReconcileError, ReconcileFailure, ReconcileOutcome, Requeue},
    testing::FakeApiServer,
};
use k8s_openapi::api::apps::v1::Deployment;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use tokio::{
    select,
    time::{Instant, sleep},
};

use crate::{
    controllers::{Refusal, World, deployment},
    fixture::until,
    logs::RecordedLog,
};

const SECOND: Duration = Duration::from_secs(1);

/// Names in the order of their reconciles.
type Order = Mutex<Vec<String>>;

/// Adds the name to the order, a second later.
async fn after_a_second(deployment: Arc<Deployment>, order: Arc<Order>) -> Result<Requeue, Infallible> {
    sleep(SECOND).await;
    order.lock().unwrap().push(deployment.metadata.name.clone().unwrap());
    Ok(Requeue::await_change())
}

/// Goal: after a start with many objects, users see the effect of a change at once. Method: a change, a new object and
/// a change of an object that waits, while the first of a hundred objects is reconciled.
#[tokio::test(start_paused = true)]
async fn changed_objects_come_before_those_that_only_exist() {
    let names: Vec<String> = (10..110).map(|number| format!("x{number}")).collect();
    let world = World::new(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let order = Arc::<Order>::default();
    let controller = Controller::new(&world.deployments).concurrency(1);
    let _running = tokio::spawn(controller.run(after_a_second, |failure| failure.backoff(), Arc::clone(&order)));
    sleep(SECOND / 2).await;
    world.server.put(deployment("new", 1, 0)).put(deployment("x99", 2, 0));
    sleep(110 * SECOND).await;
    let order = order.lock().unwrap().clone();
    assert_eq!(order[..4], ["x10", "new", "x99", "x100"], "{order:?}");
    assert_eq!(order.len(), 101, "each once");
}

#[tokio::test(start_paused = true)]
async fn a_debounced_controller_makes_one_reconcile_of_many_changes() {
    let world = World::new(&["x"]).await;
    let (seen, start) = (Arc::<Mutex<Vec<_>>>::default(), Instant::now());
    let log = Arc::clone(&seen);
    let reconcile = move |deployment: Arc<Deployment>, _: Arc<()>| {
        log.lock().unwrap().push((deployment.metadata.generation.unwrap(), start.elapsed().as_millis() / 100));
        async { Ok::<_, Infallible>(Requeue::await_change()) }
    };
    let controller = Controller::new(&world.deployments).debounce(SECOND);
    let _running = tokio::spawn(controller.run(reconcile, |failure| failure.backoff(), Arc::new(())));
    sleep(SECOND).await;
    for generation in 2..=21 {
        world.server.put(deployment("x", generation, 0));
        sleep(SECOND / 10).await;
    }
    sleep(10 * SECOND).await;
    // A second after the first change, and again; never put off by the changes between.
    assert_eq!(*seen.lock().unwrap(), [(1, 0), (11, 20), (21, 30)]);
}

/// Goal: a program whose controller waits for a type that does not exist ends, and names the type. Method: a custom
/// resource without a definition, beside a type that is ready.
#[tokio::test(start_paused = true)]
async fn a_missing_type_ends_the_start_and_is_named() {
    let server = FakeApiServer::new().serve::<Deployment>();
    let cluster = Cluster::new(server.client());
    let deployments = cluster.informer::<Deployment>().start().unwrap();
    let widget = ApiResource::from_gvk(&GroupVersionKind::gvk("example.dev", "v1", "Widget"));
    let widgets = cluster.informer_for::<DynamicObject>(&widget).start().unwrap();
    let started = Instant::now();
    for (deadline, seconds) in [(None, 120), (Some(5 * SECOND), 5)] {
        let controller = Controller::new(&deployments).watches(&widgets, |_| None::<ObjectRef<Deployment>>);
        let controller = match deadline {
            Some(deadline) => controller.sync_deadline(deadline),
            None => controller,
        };
        let before = started.elapsed();
        let run = controller.run(after_a_second, |failure| failure.backoff(), Arc::<Order>::default());
        let error = run.await.unwrap_err();
        assert_eq!((started.elapsed() - before).as_secs(), seconds);
        assert!(matches!(error, ControllerError::NotReady(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains("1 of 2 informers are not ready") && text.contains("widgets.example.dev"), "{text}");
    }
}

/// Goal: state outside the cluster follows deletions, and no reconcile of a new object runs before the old one is
/// cleaned up. Method: deletions while nothing runs, during a reconcile, and with a new object of the name.
#[tokio::test(start_paused = true)]
async fn deletions_have_their_turn_if_that_is_requested() {
    let world = World::new(&["x", "y"]).await;
    let order = Arc::<Order>::default();
    let deleted = Arc::clone(&order);
    let controller = Controller::new(&world.deployments).on_deleted(move |last_known| {
        let deleted = Arc::clone(&deleted);
        async move {
            sleep(SECOND).await;
            deleted.lock().unwrap().push(format!("{} deleted", last_known.name()));
        }
    });
    let _running = tokio::spawn(controller.run(after_a_second, |failure| failure.backoff(), Arc::clone(&order)));
    sleep(SECOND / 2).await;
    world.server.delete(deployment("y", 1, 0));
    sleep(10 * SECOND).await;
    assert_eq!(*order.lock().unwrap(), ["x", "y", "y deleted"], "after the reconcile that ran");
    world.server.delete(deployment("x", 1, 0)).put(deployment("x", 1, 0));
    sleep(10 * SECOND).await;
    assert_eq!(order.lock().unwrap()[3..], ["x deleted", "x"]);
}

/// Goal: state of a reconciled object is cleaned up, though its name is used again. Method: while it is reconciled, it is
/// deleted, and so is a new object of its name.
#[tokio::test(start_paused = true)]
async fn the_deletion_of_the_reconciled_object_is_not_replaced_by_a_later_one() {
    let world = World::new(&["x"]).await;
    let first = world.deployments.store().snapshot().get("a/x").unwrap().uid().to_owned();
    let (order, deleted) = (Arc::<Order>::default(), Arc::<Order>::default());
    let uids = Arc::clone(&deleted);
    let controller = Controller::new(&world.deployments).on_deleted(move |last_known| {
        uids.lock().unwrap().push(last_known.uid().to_owned());
        async {}
    });
    let _running = tokio::spawn(controller.run(after_a_second, |failure| failure.backoff(), Arc::clone(&order)));
    sleep(SECOND / 4).await;
    for is_present in [false, true, false] {
        if is_present {
            world.server.put(deployment("x", 1, 0));
        } else {
            world.server.delete(deployment("x", 1, 0));
        }
        let seen = world.deployments.clone();
        until("the change", move || seen.store().snapshot().get("a/x").is_some() == is_present).await;
        sleep(SECOND / 10).await;
    }
    sleep(10 * SECOND).await;
    assert_eq!((&*order.lock().unwrap(), &*deleted.lock().unwrap()), (&vec!["x".to_owned()], &vec![first]));
}

/// Goal: each reconciled object is cleaned up, though the store is ahead of the events. Method: the error policy, which
/// runs between two reads of the events, replaces an object that waits; the new one is deleted while it is reconciled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconciled_object_is_cleaned_up_though_its_predecessor_was_not_seen_deleted() {
    let world = World::new(&["fails", "x"]).await;
    let uid_of = |deployments: &Informer<Deployment>| {
        deployments.store().snapshot().get("a/x").map(|object| object.uid().to_owned())
    };
    let first = uid_of(&world.deployments).unwrap();
    let (reconciled, deleted) = (Arc::<Order>::default(), Arc::<Order>::default());
    let reconcile = {
        let (server, seen, uids) = (world.server.clone(), world.deployments.clone(), Arc::clone(&reconciled));
        move |object: Arc<Deployment>, _: Arc<()>| {
            let (server, seen, uids) = (server.clone(), seen.clone(), Arc::clone(&uids));
            async move {
                if object.metadata.name.as_deref() == Some("fails") {
                    return Err(Refusal);
                }
                uids.lock().unwrap().push(object.metadata.uid.clone().unwrap());
                // The events of its creation arrive before those of its deletion.
                sleep(SECOND / 10).await;
                server.delete(deployment("x", 1, 0));
                until("the deletion", || uid_of(&seen).is_none()).await;
                sleep(SECOND / 10).await;
                Ok(Requeue::await_change())
            }
        }
    };
    let policy = |_: &ReconcileFailure<'_, Refusal>| {
        world.server.delete(deployment("x", 1, 0)).put(deployment("x", 1, 0));
        while uid_of(&world.deployments).is_none_or(|uid| uid == first) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Requeue::await_change()
    };
    let uids = Arc::clone(&deleted);
    let controller = Controller::new(&world.deployments).concurrency(1).on_deleted(move |last_known| {
        uids.lock().unwrap().push(last_known.uid().to_owned());
        async {}
    });
    select! {
        end = controller.run(reconcile, policy, Arc::new(())) => panic!("{end:?}"),
        () = until("the deletion of both", || deleted.lock().unwrap().len() == 2) => {}
    }
    let reconciled = reconciled.lock().unwrap().clone();
    assert!(reconciled.len() == 1 && reconciled[0] != first, "{first} {reconciled:?}");
    assert_eq!(*deleted.lock().unwrap(), [first, reconciled[0].clone()]);
}

#[tokio::test(start_paused = true)]
async fn results_come_as_a_stream_that_ends_with_the_controller() {
    let world = World::new(&["fails", "works"]).await;
    let reconcile = |deployment: Arc<Deployment>, _: Arc<()>| async move {
        if deployment.metadata.name.as_deref() == Some("fails") { Err(Refusal) } else { Ok(Requeue::after(SECOND)) }
    };
    let controller = Controller::new(&world.deployments);
    let mut results = controller.run_stream(reconcile, |_| Requeue::after(3600 * SECOND), Arc::new(()));
    let mut seen = Vec::new();
    while seen.len() < 5 {
        let ReconcileOutcome { object, result, requeue, .. } = results.next().await.unwrap().unwrap();
        let is_refused = matches!(result, Err(ReconcileError::Failed(Refusal)));
        seen.push((object.key().to_owned(), is_refused, requeue.delay().unwrap().as_secs()));
    }
    let works = ("a/works".to_owned(), false, 1);
    assert!(seen.contains(&("a/fails".to_owned(), true, 3600)), "{seen:?}");
    assert_eq!(seen.iter().filter(|it| **it == works).count(), 4, "{seen:?}");
    world.deployments.clone().stop().await;
    let error = loop {
        match results.next().await.unwrap() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ControllerError::InformerEnded { .. }), "{error}");
    assert!(results.next().await.is_none());
}

/// Goal: the kubelet's signal ends a controller in order, and a second one at once. Method: SIGTERM to this process while
/// a reconcile runs, then twice while one hangs. One test, because every controller of a process hears its signals.
#[cfg(unix)]
#[tokio::test]
async fn sigterm_lets_running_reconciles_end() {
    let recorded = RecordedLog::default();
    let _guard = tracing::subscriber::set_default(recorded.clone());
    // With a single dispatcher, tracing caches the interest of whichever thread reaches a line first.
    let _second = tracing::Dispatch::new(recorded.clone());
    let received = |count: usize| {
        let recorded = recorded.clone();
        until("the signal", move || recorded.lines("shutdown signal received").len() == count)
    };
    let terminate = || {
        let pid = std::process::id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    };
    let world = World::new(&["x"]).await;
    let order = Arc::<Order>::default();
    let reconcile = |_: Arc<Deployment>, order: Arc<Order>| async move {
        order.lock().unwrap().push("started".to_owned());
        until("the end", || order.lock().unwrap().len() == 2).await;
        Ok::<_, Infallible>(Requeue::await_change())
    };
    for (signals, end) in [(1, Some("SIGTERM")), (2, None)] {
        order.lock().unwrap().clear();
        let controller = Controller::new(&world.deployments).shutdown_on_signal().graceful_shutdown_on(pending());
        let running = tokio::spawn(controller.run(reconcile, |failure| failure.backoff(), Arc::clone(&order)));
        until("the reconcile", || order.lock().unwrap().len() == 1).await;
        for _ in 0..signals {
            let before = recorded.lines("shutdown signal received").len();
            terminate();
            received(before + 1).await;
        }
        order.lock().unwrap().extend(end.map(str::to_owned));
        let is_aborted = matches!(running.await.unwrap(), Err(ControllerError::Aborted { reconciles: 1 }));
        assert_eq!(is_aborted, signals == 2);
    }
}
