//! Cost of requests without sockets, from their first byte to the last byte of the response, in instructions and
//! allocations.

#![expect(missing_docs, reason = "the macros of gungraun make public items")]

use std::sync::Arc;

use bytes::Bytes;
use cache_server::{
    app::App,
    config::Config,
    http::handle,
    populate::{PopulateSpec, into_storage},
};
use gungraun::{library_benchmark, library_benchmark_group, main};
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use informer_core::Meta;
use tokio::runtime::{Builder, Runtime};

mod gate;

use gate::limits;

/// Number of pods on the server.
const PODS: u32 = 200;

/// Number of writes in a run.
const WRITES: u64 = 100;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// A single-threaded server and the requests to answer.
struct Server {
    runtime: Runtime,
    app: Arc<App>,
    requests: Vec<Request<Full<Bytes>>>,
    bytes: usize,
}

impl Server {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let app = Arc::new(App::new(Config { first_revision: Some(1), ..Config::default() }));
        runtime.block_on(app.start());
        let spec = PopulateSpec { pods: PODS, nodes: 20, namespaces: 4, seed: 1 };
        runtime.block_on(into_storage(&app, &spec)).expect("objects that can be stored");
        Self { runtime, app, requests: Vec::new(), bytes: 0 }
    }

    /// Answers all requests and reads the bodies to their ends.
    fn answered(mut self) -> Self {
        for request in std::mem::take(&mut self.requests) {
            self.bytes += self.answer(request).len();
        }
        self
    }

    fn answer(&self, request: Request<Full<Bytes>>) -> Bytes {
        self.runtime.block_on(async {
            let response = handle(Arc::clone(&self.app), request).await;
            assert!(response.status().is_success(), "{}", response.status());
            response.into_body().collect().await.expect("a whole body").to_bytes()
        })
    }
}

/// A server with one pending LIST of all pods in the given form. A LIST as plain JSON was answered before, to build the
/// caches.
fn listing(accept: &str, encoding: &str) -> Server {
    let mut server = Server::new();
    let list = |accept: &str, encoding: &str| {
        let request = Request::get("/api/v1/pods").header(header::ACCEPT, accept);
        request.header(header::ACCEPT_ENCODING, encoding).body(Full::default()).expect("a request")
    };
    server.requests.push(list("application/json", "identity"));
    server = server.answered();
    server.requests.push(list(accept, encoding));
    server
}

#[library_benchmark]
#[bench::plain(
    args = ("application/json", "identity"),
    setup = listing,
    // Runs of one program take 355,000 to 364,000.
    config = limits(368_000, 133, 1_270_000),
)]
#[bench::gzip(
    args = ("application/json", "gzip"),
    setup = listing,
    config = limits(112_000_000, 1_211, 4_050_000),
)]
#[bench::table(
    args = ("application/json;as=Table;v=v1;g=meta.k8s.io", "identity"),
    setup = listing,
    config = limits(38_100_000, 16_756, 4_500_000),
)]
fn list_200_pods(server: Server) -> Server {
    server.answered()
}

/// A server with pending renewals of a Lease, sent like a node's: full updates with the known resourceVersion.
fn renewing() -> Server {
    let mut server = Server::new();
    let lease = |renewals: u64, version: &str| {
        let kind = r#""apiVersion":"coordination.k8s.io/v1","kind":"Lease""#;
        let metadata = format!(r#"{{"name":"node-17","namespace":"kube-node-lease"{version}}}"#);
        let holder = r#""holderIdentity":"node-17","leaseDurationSeconds":40"#;
        let (minute, second) = (renewals / 60, renewals % 60);
        let spec = format!(r#"{{{holder},"renewTime":"2026-01-01T00:{minute:02}:{second:02}.123456Z"}}"#);
        Full::from(format!(r#"{{{kind},"metadata":{metadata},"spec":{spec}}}"#))
    };
    let json = |request: http::request::Builder| request.header(header::CONTENT_TYPE, "application/json");
    let created = server.answer(json(Request::post(LEASES)).body(lease(0, "")).expect("a request"));
    let created = Meta::read(&created).expect("the Lease").resource_version.parse::<u64>().expect("digits");
    let renewal = |number| {
        // There is no other writer, so each write gets the next revision.
        let version = format!(r#","resourceVersion":"{}""#, created + number - 1);
        json(Request::put(format!("{LEASES}/node-17"))).body(lease(number, &version)).expect("a request")
    };
    server.requests.extend((1..=WRITES).map(renewal));
    server
}

#[library_benchmark(config = limits(6_710_000, 4_720, 794_000))]
#[bench::nobody_watches(setup = renewing)]
fn renew_a_lease_100_times(server: Server) -> Server {
    server.answered()
}

/// Returns a pod of some 4 KB as its owner writes it, about twice that with managedFields. `generation` is the value of a
/// label.
fn pod(generation: u64) -> String {
    let variable = |number| {
        let value = format!("value-of-setting-{number}-as-long-as-usual");
        format!(r#"{{"name":"SETTING_{number}","value":"{value}"}}"#)
    };
    let container = |name: &str| {
        let variables = (0..24).map(variable).collect::<Vec<_>>().join(",");
        let ports =
            r#"[{"containerPort":8080,"protocol":"TCP","name":"http"},{"containerPort":9090,"protocol":"TCP"}]"#;
        let resources = r#"{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"memory":"256Mi"}}"#;
        let probe = r#"{"httpGet":{"path":"/healthz","port":8080},"periodSeconds":10,"failureThreshold":3}"#;
        format!(
            r#"{{"name":"{name}","image":"registry.example/{name}:1.2.3","env":[{variables}],"ports":{ports},"resources":{resources},"livenessProbe":{probe}}}"#
        )
    };
    let containers = [container("main"), container("proxy")].join(",");
    let labels = format!(r#"{{"app":"shop","tier":"front","generation":"g{generation}"}}"#);
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"pod-17","namespace":"default","labels":{labels}}},"spec":{{"containers":[{containers}],"nodeName":"node-17"}}}}"#
    )
}

/// A change of the pod, by its number.
type Change = fn(u64) -> Request<Full<Bytes>>;

/// Returns a PATCH of the pod by a manager, or of its subresource.
fn patch(subresource: &str, manager: &str, media_type: &str, body: String) -> Request<Full<Bytes>> {
    let request = Request::patch(format!("{PODS_PATH}/pod-17{subresource}?fieldManager={manager}"));
    request.header(header::CONTENT_TYPE, media_type).body(Full::from(body)).expect("a request")
}

const PODS_PATH: &str = "/api/v1/namespaces/default/pods";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// A server with a pod that was changed once, and pending further changes of it.
fn patching(change: Change) -> Server {
    let mut server = Server::new();
    server.answer(apply(0));
    server.answer(change(0));
    server.requests.extend((1..=WRITES).map(change));
    server
}

/// An apply of the whole pod by its owner.
fn apply(number: u64) -> Request<Full<Bytes>> {
    patch("", "counts", APPLY, pod(number))
}

/// An apply of one annotation by another manager.
fn apply_one_field(number: u64) -> Request<Full<Bytes>> {
    let metadata = format!(r#"{{"name":"pod-17","annotations":{{"count":"{number}"}}}}"#);
    patch("", "other", APPLY, format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{metadata}}}"#))
}

/// A strategic merge patch of one variable of one container.
fn strategic_merge(number: u64) -> Request<Full<Bytes>> {
    let variable = format!(r#"{{"name":"SETTING_7","value":"changed-{number}"}}"#);
    patch("", "counts", STRATEGIC, format!(r#"{{"spec":{{"containers":[{{"name":"proxy","env":[{variable}]}}]}}}}"#))
}

/// A merge patch of the pod's status.
fn merge_status(number: u64) -> Request<Full<Bytes>> {
    let condition = format!(r#"{{"type":"Ready","status":"True","message":"changed-{number}"}}"#);
    patch("/status", "counts", MERGE, format!(r#"{{"status":{{"phase":"Running","conditions":[{condition}]}}}}"#))
}

#[library_benchmark]
#[bench::apply(
    args = (apply),
    setup = patching,
    config = limits(155_000_000, 123_000, 20_900_000),
)]
#[bench::apply_one_field(
    args = (apply_one_field),
    setup = patching,
    config = limits(63_700_000, 42_300, 8_390_000),
)]
#[bench::strategic_merge(
    args = (strategic_merge),
    setup = patching,
    config = limits(102_000_000, 91_400, 12_800_000),
)]
#[bench::merge_status(
    args = (merge_status),
    setup = patching,
    config = limits(46_800_000, 28_100, 7_280_000),
)]
fn patch_a_pod_100_times(server: Server) -> Server {
    server.answered()
}

library_benchmark_group!(name = server, benchmarks = [list_200_pods, renew_a_lease_100_times, patch_a_pod_100_times]);

main!(library_benchmark_groups = server);
