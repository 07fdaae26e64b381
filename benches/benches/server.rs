//! What requests cost the server from their first byte to the last of the answer, without sockets: in instructions and
//! allocations.

#![expect(missing_docs, reason = "the macros of gungraun make public items")]

use std::sync::Arc;

use bytes::Bytes;
use cache_server::{
    app::App,
    config::Config,
    http::handle,
    populate::{Spec, into_storage},
};
use gungraun::{library_benchmark, library_benchmark_group, main};
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use tokio::runtime::{Builder, Runtime};

mod gate;

use gate::limits;

/// Objects of the server.
const PODS: u32 = 200;

/// Writes in one run.
const WRITES: u32 = 100;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// A server of one thread, and the requests that it is about to answer.
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
        let spec = Spec { pods: PODS, nodes: 20, namespaces: 4, seed: 1 };
        runtime.block_on(into_storage(&app, &spec)).expect("objects that can be stored");
        Self { runtime, app, requests: Vec::new(), bytes: 0 }
    }

    /// Answers everything, to the end.
    fn answered(mut self) -> Self {
        for request in self.requests.drain(..) {
            let app = Arc::clone(&self.app);
            self.bytes += self.runtime.block_on(async {
                let response = handle(app, request).await;
                assert!(response.status().is_success(), "{}", response.status());
                response.into_body().collect().await.expect("a whole body").to_bytes().len()
            });
        }
        self
    }
}

/// A list of all pods is about to be read, in this form. Others have been read before, in another one.
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
    config = limits(9_999_999, 9_999, 9_999_999),
)]
#[bench::gzip(
    args = ("application/json", "gzip"),
    setup = listing,
    config = limits(9_999_999, 9_999, 9_999_999),
)]
#[bench::table(
    args = ("application/json;as=Table;v=v1;g=meta.k8s.io", "identity"),
    setup = listing,
    config = limits(9_999_999, 9_999, 9_999_999),
)]
fn list_200_pods(server: Server) -> Server {
    server.answered()
}

/// A Lease is about to be renewed, again and again.
fn renewing() -> Server {
    let mut server = Server::new();
    let lease = |second: u32| {
        let holder = r#""holderIdentity":"node-17","leaseDurationSeconds":40"#;
        let spec = format!(r#"{{{holder},"renewTime":"2026-01-01T00:{:02}:{:02}.123456Z"}}"#, second / 60, second % 60);
        let metadata = r#"{"name":"node-17","namespace":"kube-node-lease"}"#;
        let kind = r#""apiVersion":"coordination.k8s.io/v1","kind":"Lease""#;
        Full::from(format!(r#"{{{kind},"metadata":{metadata},"spec":{spec}}}"#))
    };
    let json = |request: http::request::Builder| request.header(header::CONTENT_TYPE, "application/json");
    server.requests.push(json(Request::post(LEASES)).body(lease(0)).expect("a request"));
    server = server.answered();
    let renewal = |second| json(Request::put(format!("{LEASES}/node-17"))).body(lease(second)).expect("a request");
    server.requests.extend((1..=WRITES).map(renewal));
    server
}

#[library_benchmark(config = limits(9_999_999, 9_999, 9_999_999))]
#[bench::nobody_watches(setup = renewing)]
fn renew_a_lease_100_times(server: Server) -> Server {
    server.answered()
}

library_benchmark_group!(name = server, benchmarks = [list_200_pods, renew_a_lease_100_times]);

main!(library_benchmark_groups = server);
