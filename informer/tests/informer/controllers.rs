//! Controllers on an informer's store: each object once, each change once, and nothing for a relist without changes.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, stream};
use informer::{
    Cluster, EndReason, Informer, ObjectRef,
    controller::{Controller, ControllerError, ReconcileError, ReconcileFailure, Requeue, changed},
    testing::FakeApiServer,
};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::ConfigMap,
};
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, Semaphore, oneshot},
    task::JoinHandle,
    time::Instant,
};

use crate::fixture::{SOON, until};

/// Long enough for any reconcile that would come, under paused time.
const LONG: Duration = Duration::from_secs(30);

pub(crate) fn deployment(name: &str, generation: u64, ready: u64) -> Value {
    let metadata = json!({"name": name, "namespace": "a", "generation": generation});
    let (spec, status) = (json!({"replicas": generation}), json!({"readyReplicas": ready}));
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec, "status": status})
}

/// A ReplicaSet with one owner reference.
fn replica_set(name: &str, owner: &Value, ready: u64) -> Value {
    let metadata = json!({"name": name, "namespace": "a", "ownerReferences": [owner]});
    json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "status": {"replicas": ready}})
}

fn configmap(name: &str, deployment: &str) -> Value {
    let data = json!({"deployment": deployment});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "a"}, "data": data})
}

/// A cluster of one server.
pub(crate) struct World {
    pub(crate) server: FakeApiServer,
    pub(crate) cluster: Cluster,
    pub(crate) deployments: Informer<Deployment>,
}

impl World {
    pub(crate) async fn new(names: &[&str]) -> Self {
        let server = FakeApiServer::new().serve::<Deployment>().serve::<ReplicaSet>().serve::<ConfigMap>();
        for name in names {
            server.put(deployment(name, 1, 0));
        }
        let cluster = Cluster::new(server.client());
        let deployments = cluster.informer::<Deployment>().start().unwrap();
        deployments.ready(SOON).await.unwrap();
        Self { server, cluster, deployments }
    }

    async fn informer<K>(&self) -> Informer<K>
    where
        K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned + Send + Sync + 'static,
        K::Scope: 'static,
    {
        let informer = self.cluster.informer::<K>().start().unwrap();
        informer.ready(SOON).await.unwrap();
        informer
    }

    /// The controlling owner reference to a Deployment.
    fn owner(&self, name: &str) -> Value {
        let uid = self.deployments.store().snapshot().get(&format!("a/{name}")).unwrap().uid().to_owned();
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": uid, "controller": true})
    }
}

/// Counts reconciles by name.
#[derive(Default)]
struct Reconciles(Mutex<BTreeMap<String, usize>>);

impl Reconciles {
    fn add(&self, deployment: &Deployment) {
        *self.0.lock().unwrap().entry(deployment.metadata.name.clone().unwrap()).or_default() += 1;
    }

    /// Waits until exactly these reconciles have come since the last call, and for a time in which no more come.
    async fn are(&self, expected: &[(&str, usize)]) {
        let seen = || self.0.lock().unwrap().clone();
        let expected: BTreeMap<String, usize> =
            expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let deadline = Instant::now() + SOON;
        while seen() != expected && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        tokio::time::sleep(LONG).await;
        assert_eq!(seen(), expected);
        self.0.lock().unwrap().clear();
    }
}

/// Runs a controller that counts its reconciles.
fn counted(controller: Controller<Deployment>) -> (Arc<Reconciles>, JoinHandle<Result<(), ControllerError>>) {
    let reconciles = Arc::<Reconciles>::default();
    let reconcile = |deployment: Arc<Deployment>, reconciles: Arc<Reconciles>| async move {
        reconciles.add(&deployment);
        Ok::<_, Infallible>(Requeue::await_change())
    };
    let run = controller.run(reconcile, |failure| failure.backoff(), Arc::clone(&reconciles));
    (reconciles, tokio::spawn(run))
}

#[tokio::test(start_paused = true)]
async fn every_object_is_reconciled_once_and_then_once_a_change() {
    let world = World::new(&["x", "y"]).await;
    let (reconciles, _running) = counted(Controller::new(&world.deployments));
    reconciles.are(&[("x", 1), ("y", 1)]).await;
    world.server.put(deployment("x", 2, 0));
    reconciles.are(&[("x", 1)]).await;
    world.server.put(deployment("z", 1, 0)).delete(deployment("y", 1, 0));
    reconciles.are(&[("z", 1)]).await;
}

/// Goal: a controller costs no copy, and has its own triggers. Method: two controllers on equal declarations, one of
/// which ignores changes of the status.
#[tokio::test(start_paused = true)]
async fn controllers_of_a_program_share_one_copy() {
    let world = World::new(&["x"]).await;
    let shared = || world.cluster.informer::<Deployment>().start_shared().unwrap();
    let (every, _one) = counted(Controller::new(&shared()));
    let (specs, _other) = counted(Controller::new(&shared()).when(changed::generation));
    every.are(&[("x", 1)]).await;
    specs.are(&[("x", 1)]).await;
    world.server.put(deployment("x", 1, 1));
    every.are(&[("x", 1)]).await;
    specs.are(&[]).await;
    assert_eq!(world.server.initial_reads(), 2, "one of the world's own informer, one for both controllers");
}

/// Goal: a relist costs no reconcile for objects that did not change. Method: a relist without a change, then one after
/// a change, an addition and a deletion that no watch carried.
#[tokio::test(start_paused = true)]
async fn a_relist_reconciles_only_what_differs() {
    let world = World::new(&["x", "y", "z"]).await;
    let (reconciles, _running) = counted(Controller::new(&world.deployments));
    reconciles.are(&[("x", 1), ("y", 1), ("z", 1)]).await;
    let reads = world.server.initial_reads();
    world.server.expire_at(u64::MAX).close_watches();
    until("a relist", || world.server.initial_reads() > reads).await;
    world.server.recover();
    reconciles.are(&[]).await;

    let reads = world.server.initial_reads();
    world.server.freeze().put(deployment("y", 2, 0)).put(deployment("new", 1, 0)).delete(deployment("z", 1, 0));
    world.server.recover().expire_at(u64::MAX).close_watches();
    until("a relist", || world.server.initial_reads() > reads).await;
    world.server.recover();
    reconciles.are(&[("new", 1), ("y", 1)]).await;
}

#[tokio::test(start_paused = true)]
async fn predicates_pass_what_they_are_for_and_every_start_of_a_deletion() {
    let world = World::new(&["x"]).await;
    let (reconciles, _running) = counted(
        Controller::new(&world.deployments)
            .when(|old, new| changed::generation(old, new) || changed::finalizers(old, new)),
    );
    reconciles.are(&[("x", 1)]).await;
    world.server.put(deployment("x", 1, 7));
    reconciles.are(&[]).await;
    world.server.put(deployment("x", 2, 7));
    reconciles.are(&[("x", 1)]).await;
    let mut held = deployment("x", 2, 7);
    held["metadata"]["finalizers"] = json!(["example.dev/keep"]);
    world.server.put(&held);
    reconciles.are(&[("x", 1)]).await;
    world.server.delete(&held);
    reconciles.are(&[("x", 1)]).await;

    let (labels, _running) = counted(Controller::new(&world.deployments).when(changed::labels));
    let (notes, _running) = counted(Controller::new(&world.deployments).when(changed::annotations));
    labels.are(&[("x", 1)]).await;
    held["metadata"]["labels"] = json!({"a": "b"});
    world.server.put(&held);
    labels.are(&[("x", 1)]).await;
    held["metadata"]["annotations"] = json!({"a": "b"});
    world.server.put(&held);
    labels.are(&[]).await;
    notes.are(&[("x", 2)]).await;
}

/// Goal: a child's events reconcile its controller and no other object. Method: owners that differ in one field each.
#[tokio::test(start_paused = true)]
async fn children_trigger_the_owner_that_controls_them() {
    let world = World::new(&["x", "y"]).await;
    world.server.put(replica_set("present", &world.owner("x"), 0));
    let sets = world.informer::<ReplicaSet>().await;
    let (reconciles, _running) = counted(Controller::new(&world.deployments).owns(&sets));
    reconciles.are(&[("x", 1), ("y", 1)]).await;

    world.server.put(replica_set("x-1", &world.owner("x"), 0));
    reconciles.are(&[("x", 1)]).await;
    world.server.put(replica_set("x-1", &world.owner("x"), 1));
    reconciles.are(&[("x", 1)]).await;
    world.server.put(replica_set("x-1", &world.owner("y"), 1));
    reconciles.are(&[("x", 1), ("y", 1)]).await;
    world.server.delete(replica_set("x-1", &world.owner("y"), 1));
    reconciles.are(&[("y", 1)]).await;

    for (field, other) in [
        ("uid", json!("another life")),
        ("kind", json!("StatefulSet")),
        ("apiVersion", json!("v1")),
        ("controller", json!(false)),
        ("name", json!("none")),
    ] {
        let mut owner = world.owner("x");
        owner[field] = other;
        world.server.put(replica_set(field, &owner, 0));
    }
    reconciles.are(&[]).await;
    let mut owner = world.owner("x");
    owner["apiVersion"] = json!("apps/v2");
    world.server.put(replica_set("a-later-version", &owner, 0));
    reconciles.are(&[("x", 1)]).await;
}

/// Goal: a controller ported from kube sees the children that it saw there. Method: owner references without a
/// controller, several of them, and one to another type.
#[tokio::test(start_paused = true)]
async fn children_trigger_every_owner_if_that_is_requested() {
    let world = World::new(&["x", "y"]).await;
    let sets = world.informer::<ReplicaSet>().await;
    let (reconciles, _running) = counted(Controller::new(&world.deployments).owns_any(&sets));
    reconciles.are(&[("x", 1), ("y", 1)]).await;
    let owned = |name: &str, count: u64| {
        let mut owner = world.owner(name);
        owner["controller"] = json!(false);
        let mut set = replica_set("shared", &owner, count);
        let unmarked =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "y", "uid": world.owner("y")["uid"]});
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "y", "uid": "u"});
        set["metadata"]["ownerReferences"].as_array_mut().unwrap().extend([unmarked, other]);
        set
    };
    world.server.put(owned("x", 0));
    reconciles.are(&[("x", 1), ("y", 1)]).await;
    world.server.put(owned("x", 1));
    reconciles.are(&[("x", 1), ("y", 1)]).await;
    world.server.delete(owned("x", 1));
    reconciles.are(&[("x", 1), ("y", 1)]).await;
}

#[tokio::test(start_paused = true)]
async fn related_objects_and_streams_trigger_what_they_map_to() {
    let world = World::new(&["x", "y"]).await;
    world.server.put(configmap("present", "x"));
    let maps = world.informer::<ConfigMap>().await;
    let (one, ones) = tokio::sync::mpsc::channel(4);
    let (all, alls) = tokio::sync::mpsc::channel(4);
    let ones = stream::unfold(ones, async |mut ones| Some((ones.recv().await?, ones)));
    let alls = stream::unfold(alls, async |mut alls| Some((alls.recv().await?, alls)));
    let controller = Controller::new(&world.deployments)
        .watches(&maps, |map| {
            let name = map.field("data.deployment").map(|name| name.into_owned());
            name.map(|name| ObjectRef::new(&name).within(map.namespace()))
        })
        .reconcile_on(ones.boxed())
        .reconcile_all_on(alls.boxed());
    let (reconciles, _running) = counted(controller);
    reconciles.are(&[("x", 1), ("y", 1)]).await;
    world.server.put(configmap("m", "x")).put(configmap("n", "none"));
    reconciles.are(&[("x", 1)]).await;
    world.server.put(configmap("m", "y"));
    reconciles.are(&[("x", 1), ("y", 1)]).await;
    world.server.delete(configmap("m", "y"));
    reconciles.are(&[("y", 1)]).await;
    for name in ["x", "none"] {
        one.send(ObjectRef::new(name).within("a")).await.unwrap();
    }
    reconciles.are(&[("x", 1)]).await;
    all.send(()).await.unwrap();
    reconciles.are(&[("x", 1), ("y", 1)]).await;
    drop((one, all));
    world.server.put(deployment("x", 9, 0));
    reconciles.are(&[("x", 1)]).await;
}

/// Goal: changes during a run make one more run, which sees the last of them. Method: a reconcile that waits while its
/// object changes a hundred times.
#[tokio::test(start_paused = true)]
async fn a_hundred_changes_during_a_run_make_one_more() {
    let world = World::new(&["x"]).await;
    let (go, seen) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
    let log = Arc::clone(&seen);
    let reconcile = move |deployment: Arc<Deployment>, go: Arc<Semaphore>| {
        log.lock().unwrap().push(deployment.metadata.generation);
        async move {
            go.acquire().await.unwrap().forget();
            Ok::<_, Infallible>(Requeue::await_change())
        }
    };
    let run = Controller::new(&world.deployments).run(reconcile, |failure| failure.backoff(), Arc::clone(&go));
    let _running = tokio::spawn(run);
    until("the first run", || seen.lock().unwrap().len() == 1).await;
    for generation in 2..=101 {
        world.server.put(deployment("x", generation, 0));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    go.add_permits(10);
    tokio::time::sleep(LONG).await;
    assert_eq!(*seen.lock().unwrap(), [Some(1), Some(101)]);
}

#[derive(Debug)]
pub(crate) struct Refusal;

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}

impl std::error::Error for Refusal {}

/// Goal: a failing object is retried with growing delays, a panic is such a failure, an object that does not decode
/// waits for its change, and none of them delays the others. Method: paused time, one object for each case.
#[tokio::test(start_paused = true)]
async fn failures_of_one_object_back_off_and_stay_its_own() {
    let world = World::new(&["fails", "panics", "works"]).await;
    let mut broken = deployment("broken", 1, 0);
    broken["spec"]["replicas"] = json!("many");
    world.server.put(&broken);
    let (times, failures) = (Arc::<Times>::default(), Arc::<Mutex<BTreeMap<String, Vec<String>>>>::default());
    let start = Instant::now();
    let reconcile = move |deployment: Arc<Deployment>, times: Arc<Times>| async move {
        let name = deployment.metadata.name.clone().unwrap();
        times.lock().unwrap().entry(name.clone()).or_default().push(start.elapsed());
        match name.as_str() {
            "fails" => Err(Refusal),
            "panics" => panic!("a reconciler with a defect"),
            _ => Ok(Requeue::after(Duration::from_secs(5))),
        }
    };
    let recorded = Arc::clone(&failures);
    let error_policy = move |failure: &ReconcileFailure<'_, Refusal>| {
        let text = match failure.error {
            ReconcileError::Undecodable(error) => error.path.clone(),
            ReconcileError::Failed(_) | ReconcileError::Panicked | _ => failure.error.to_string(),
        };
        recorded.lock().unwrap().entry(failure.key.to_owned()).or_default().push(text);
        failure.backoff()
    };
    let run = Controller::new(&world.deployments).run(reconcile, error_policy, Arc::clone(&times));
    let _running = tokio::spawn(run);
    tokio::time::sleep(Duration::from_secs(21)).await;
    let times = times.lock().unwrap().clone();
    assert_eq!(times["works"].len(), 5, "every five seconds: {times:?}");
    for name in ["fails", "panics"] {
        // 5 ms doubled until the sum exceeds 21 s, and each up to a half longer.
        assert!((12..=13).contains(&times[name].len()), "{name}: {times:?}");
        let pauses: Vec<Duration> = times[name].windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.windows(2).all(|pair| pair[1] > pair[0]), "{name}: {pauses:?}");
    }
    let failures = failures.lock().unwrap().clone();
    assert_eq!(failures["a/broken"], ["spec.replicas"]);
    assert_eq!((&*failures["a/fails"][0], &*failures["a/panics"][0]), ("refused", "the reconciler panicked"));
}

/// Times of reconciles by name.
type Times = Mutex<BTreeMap<String, Vec<Duration>>>;

/// Counts reconciles that run now and the most that ever did.
#[derive(Default)]
struct Gauge {
    running: AtomicUsize,
    most: AtomicUsize,
    ended: AtomicUsize,
    go: Notify,
}

impl Gauge {
    async fn reconcile(self: Arc<Self>, time: Duration) -> Result<Requeue, Infallible> {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        self.go.notify_one();
        tokio::time::sleep(time).await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        self.ended.fetch_add(1, Ordering::SeqCst);
        Ok(Requeue::await_change())
    }
}

#[tokio::test(start_paused = true)]
async fn at_most_so_many_reconciles_run_at_once() {
    let names: Vec<String> = (0..50).map(|number| format!("x{number}")).collect();
    let world = World::new(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let gauge = Arc::<Gauge>::default();
    let run = Controller::new(&world.deployments).concurrency(4).run(
        |_, gauge: Arc<Gauge>| gauge.reconcile(Duration::from_secs(1)),
        |failure| failure.backoff(),
        Arc::clone(&gauge),
    );
    let _running = tokio::spawn(run);
    let all_ended = || gauge.ended.load(Ordering::SeqCst) == 50;
    until("the end of all", all_ended).await;
    assert_eq!(gauge.most.load(Ordering::SeqCst), 4);
}

/// Goal: a shutdown lets reconciles end within its grace, starts none, and aborts those that take longer. Method: two
/// shutdowns during a reconcile, with more and with less time than it needs; then a dropped controller.
#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_running_reconciles_up_to_its_deadline() {
    let world = World::new(&["x", "y"]).await;
    for (needed, is_clean) in [(5, true), (15, false)] {
        let gauge = Arc::<Gauge>::default();
        let (stop, stopped) = oneshot::channel::<()>();
        let run = Controller::new(&world.deployments)
            .concurrency(1)
            .shutdown_grace(Duration::from_secs(10))
            .graceful_shutdown_on(async { drop(stopped.await) })
            .run(
                move |_, gauge: Arc<Gauge>| gauge.reconcile(Duration::from_secs(needed)),
                |failure| failure.backoff(),
                Arc::clone(&gauge),
            );
        let running = tokio::spawn(run);
        gauge.go.notified().await;
        let started = Instant::now();
        drop(stop);
        let outcome = running.await.unwrap();
        assert_eq!(started.elapsed().as_secs(), needed.min(10));
        assert_eq!(gauge.ended.load(Ordering::SeqCst), usize::from(is_clean), "y was never started");
        match outcome {
            Ok(()) => assert!(is_clean),
            Err(error) => assert!(!is_clean && matches!(error, ControllerError::Aborted { reconciles: 1 }), "{error}"),
        }
    }
    let gauge = Arc::<Gauge>::default();
    let run = Controller::new(&world.deployments).run(
        |_, gauge: Arc<Gauge>| gauge.reconcile(LONG),
        |failure| failure.backoff(),
        Arc::clone(&gauge),
    );
    let running = tokio::spawn(run);
    gauge.go.notified().await;
    running.abort();
    until("the end of the tasks", || Arc::strong_count(&gauge) == 1).await;
    assert_eq!(gauge.ended.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_controller_ends_with_its_informers_and_keeps_them_running() {
    let world = World::new(&["x"]).await;
    let sets = world.informer::<ReplicaSet>().await;
    let (reconciles, running) = counted(Controller::new(&world.deployments).owns(&sets));
    reconciles.are(&[("x", 1)]).await;
    let (World { server, deployments, .. }, store) = (world, sets.store().detached());
    drop(deployments);
    server.put(deployment("x", 2, 0));
    reconciles.are(&[("x", 1)]).await;
    assert!(store.is_live());
    sets.stop().await;
    let error = running.await.unwrap().expect_err("without an informer it is blind");
    assert!(
        matches!(&error, ControllerError::InformerEnded { request, reason: EndReason::ShutDown } if request.contains("replicasets")),
        "{error}"
    );
}
