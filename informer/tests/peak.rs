//! Memory of one informer, in live bytes: what it holds, and what a relist costs on top.
//!
//! INVARIANT: one test in a binary of its own, so that nothing else allocates meanwhile.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::time::Duration;

use informer::{
    Cluster, InitialList, Ready,
    testing::{Asked, FakeApiServer},
};
use k8s_openapi::api::core::v1::Pod;
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};

#[global_allocator]
static LIVE: PeakAlloc = PeakAlloc;

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

/// P8 answers the complaint that a relist holds everything twice: twice the steady memory, and up to four times. Method:
/// one in a hundred pods changes behind the back of the informer, whose position then is too old.
#[test]
fn p8_a_relist_holds_what_differs_and_nothing_twice() {
    for initial in [InitialList::Stream, InitialList::Paged, InitialList::Unpaged] {
        // A runtime each: with it goes everything that the one before held.
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
    // What the server itself holds more of.
    let written = LIVE.current_usage() - quiet;
    let (reads, relists) = (server.initial_reads(), pods.stats().reflector.requests);
    LIVE.reset_peak_usage();
    server.recover().expire_at(server.resource_version() - 1).close_watches();
    pods.wait_for(&server.resource_version().into(), Duration::from_secs(60)).await.unwrap();
    let peak = LIVE.peak_usage() - before - written;

    assert!(server.initial_reads() > reads && pods.stats().reflector.requests > relists, "{:?}", server.requests());
    assert!(initial == InitialList::Stream || server.count(Asked::Stream) == 0);
    let first =
        pods.store().snapshot().get("ns-0/pod-00000").map(|pod| pod.label("step").map(|step| step.into_owned()));
    assert_eq!(first, Some(Some("1".to_owned())));
    (steady as f64, peak as f64)
}
