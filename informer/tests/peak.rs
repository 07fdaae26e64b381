//! Memory of one informer, in live bytes: its steady state, the peak of a relist, and the rest after many changes.
//!
//! INVARIANT: a binary of its own, whose tests run one after the other, so that no other code allocates meanwhile.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::{sync::Mutex, time::Duration};

use informer::{
    Cluster, InitialList, Ready,
    testing::{FakeApiServer, RequestKind},
};
use informer_core::{
    Meta, Time,
    store::{Event, Store},
};
use k8s_openapi::api::core::v1::Pod;
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};

#[global_allocator]
static LIVE: PeakAlloc = PeakAlloc;

static ALONE: Mutex<()> = Mutex::new(());

const PODS: usize = 3_000;

/// One pod of about 3 KB, half of it `managedFields`, as API servers send them.
fn pod(number: usize, step: usize) -> Value {
    let text = |part: usize| format!("{:x}", (number + 1) * 0x9e37_79b9 * (part + 1)).repeat(4);
    let fields: serde_json::Map<String, Value> = (0..24).map(|part| (format!("f:{}", text(part)), json!({}))).collect();
    let env: Vec<Value> = (0..10).map(|part| json!({"name": format!("NAME_{part}"), "value": text(part)})).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("pod-{number:05}"), "namespace": format!("ns-{}", number % 40),
            "labels": {"app": text(1), "step": step.to_string()},
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": fields}}],
        },
        "spec": {"nodeName": format!("node-{}", number % 80), "containers": [{"name": "c", "image": text(2), "env": env}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "message": text(3)},
    })
}

/// P8 covers the complaint that a relist holds everything twice: twice the steady memory, and up to four times. Method:
/// one in a hundred pods changes unseen by the informer, whose position is then too old.
#[test]
fn p8_a_relist_holds_what_differs_and_nothing_twice() {
    let _alone = ALONE.lock().unwrap();
    for initial in [InitialList::Stream, InitialList::Paged, InitialList::Unpaged] {
        // A runtime for each, so that dropping it frees everything the previous one held.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (steady, peak) = runtime.block_on(relist(initial));
        println!("{initial:?}: steady {steady} bytes, {peak} at the peak of a relist: {:.3}", peak / steady);
        assert!(peak / steady <= 1.1, "{initial:?}: {peak} of {steady}");
    }
}

/// Live bytes of an informer at rest, and at the peak of a relist.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
async fn relist(initial: InitialList) -> (f64, f64) {
    let server = FakeApiServer::new();
    for number in 0..PODS {
        server.put(pod(number, 0));
    }
    let cluster = Cluster::new(server.client());
    let before = LIVE.current_usage();
    let pods = cluster.informer::<Pod>().initial_list(initial).start().unwrap();
    assert_eq!(pods.ready(Duration::from_secs(20)).await.unwrap(), Ready::Watching);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let steady = LIVE.current_usage() - before;

    server.freeze();
    let quiet = LIVE.current_usage();
    for number in (0..PODS).step_by(100) {
        server.put(pod(number, 1));
    }
    // Growth of the fake server itself.
    let written = LIVE.current_usage() - quiet;
    let (reads, relists) = (server.initial_reads(), pods.stats().reflector.requests);
    LIVE.reset_peak_usage();
    server.recover().expire_at(server.resource_version() - 1).close_watches();
    pods.wait_for(server.resource_version(), Duration::from_secs(60)).await.unwrap();
    let peak = LIVE.peak_usage() - before - written;

    assert!(server.initial_reads() > reads && pods.stats().reflector.requests > relists, "{:?}", server.requests());
    assert!(initial == InitialList::Stream || server.count(RequestKind::Stream) == 0);
    let first =
        pods.store().snapshot().get("ns-0/pod-00000").map(|pod| pod.label("step").map(|step| step.into_owned()));
    assert_eq!(first, Some(Some("1".to_owned())));
    (steady as f64, peak as f64)
}

/// Goal: a controller adds no copy of the objects. Method: live bytes of an informer before, while and after a controller
/// reconciles each of its objects.
#[cfg(feature = "controller")]
#[test]
fn a_controller_holds_keys_and_no_second_copy() {
    let _alone = ALONE.lock().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (alone, peak, rest) = runtime.block_on(controlled());
    println!("informer {alone} bytes; with a controller {peak} at its peak, {rest} at rest");
    assert!(peak * 100 <= alone * 120, "{peak} of {alone}");
    assert!(rest * 100 <= alone * 105, "{rest} of {alone}");
}

/// Live bytes of an informer, the peak while a controller reconciles every object, and the rest afterwards.
#[cfg(feature = "controller")]
async fn controlled() -> (usize, usize, usize) {
    use informer::controller::{Controller, Requeue};
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    let server = FakeApiServer::new();
    for number in 0..PODS {
        server.put(pod(number, 0));
    }
    let before = LIVE.current_usage();
    let pods = Cluster::new(server.client()).informer::<Pod>().start().unwrap();
    pods.ready(Duration::from_secs(20)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let alone = LIVE.current_usage() - before;
    LIVE.reset_peak_usage();
    let count = Arc::new(AtomicUsize::new(0));
    let run = Controller::new(&pods).run(
        |pod: Arc<Pod>, count: Arc<AtomicUsize>| async move {
            tokio::task::yield_now().await;
            assert!(pod.spec.is_some());
            count.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(Requeue::await_change())
        },
        |failure| failure.backoff(),
        Arc::clone(&count),
    );
    let running = tokio::spawn(run);
    while count.load(Ordering::Relaxed) < PODS {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (peak, rest) = (LIVE.peak_usage() - before, LIVE.current_usage() - before);
    running.abort();
    (alone, peak, rest)
}

/// Goal: changes cost only the memory of the objects they replace, however long they continue. Method: ten changes of
/// each of a thousand objects, published after each change, and a reader that takes a snapshot every thousand changes.
#[test]
fn steady_changes_allocate_only_what_the_store_keeps() {
    let _alone = ALONE.lock().unwrap();
    let object = |number: usize, version: usize| {
        let mut pod = pod(number % 1_000, number / 1_000 % 2);
        pod["metadata"]["uid"] = json!(format!("{:036}", number % 1_000));
        pod["metadata"]["resourceVersion"] = json!(format!("{version:08}"));
        serde_json::to_vec(&pod).unwrap()
    };
    let mut store = Store::default();
    let mut published = store.snapshot();
    let mut reader = store.snapshot();
    let (mut settled, mut most) = (0, 0);
    for number in 0..11_000 {
        let json = object(number, number + 1);
        let meta = Meta::read(&json).unwrap();
        let before = LIVE.current_usage();
        LIVE.reset_peak_usage();
        store.handle(Time::ZERO, Event::Apply(&json, &meta)).unwrap();
        most = most.max((LIVE.peak_usage() - before).saturating_sub(json.len()));
        published = store.snapshot();
        if number % 1_000 == 999 {
            reader = published.clone();
        }
        drop(meta);
        drop(json);
        if number == 1_999 {
            settled = LIVE.current_usage();
        }
    }
    let left = LIVE.current_usage().saturating_sub(settled);
    println!("{most} bytes beside the object at most, {left} more after 9,000 changes");
    assert_eq!((published.objects.len(), reader.objects.len()), (1_000, 1_000));
    assert!(most <= 8_192, "{most} bytes for one change, beside the object");
    assert!(left <= 4_096, "{left} bytes more than after the first changes");
}
