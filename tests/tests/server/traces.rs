//! Spans of requests, as a collector gets them: `serve --otlp-endpoint`.

use std::{
    net::TcpListener,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use http::Method;
use informer::{Cluster, InitialList, kube5};
use k8s_openapi::api::core::v1::ConfigMap;
use opentelemetry::{propagation::TextMapPropagator as _, trace::TracerProvider as _};
use opentelemetry_http::HeaderInjector;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use opentelemetry_sdk::{propagation::TraceContextPropagator, trace::SdkTracerProvider};
use prost::Message as _;
use tests::{http::Client, process::Server};
use tokio::time::sleep;
use tower::util::MapRequestLayer;
use tracing::Dispatch;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::layer::SubscriberExt as _;
use wiremock::{Mock, MockServer, ResponseTemplate, matchers::path};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Timeout of every wait, with a margin for busy machines.
const PATIENCE: Duration = Duration::from_secs(60);
/// Sends spans soon, not after five seconds.
const SOON: (&str, &str) = ("OTEL_BSP_SCHEDULE_DELAY", "100");
/// Trace and span of a client.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A span, and the service that made it.
struct Received {
    service: String,
    span: Span,
}

impl Received {
    fn ids(&self) -> [String; 3] {
        let Span { trace_id, span_id, parent_span_id, .. } = &self.span;
        [trace_id, span_id, parent_span_id].map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// An attribute as text; empty if there is none.
    fn attribute(&self, key: &str) -> String {
        attribute(&self.span.attributes, key)
    }
}

fn attribute(all: &[KeyValue], key: &str) -> String {
    let value = all.iter().find(|attribute| attribute.key == key).and_then(|attribute| attribute.value.clone()?.value);
    match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => other.map(|other| format!("{other:?}")).unwrap_or_default(),
    }
}

async fn collector() -> MockServer {
    let collector = MockServer::start().await;
    Mock::given(path("/v1/traces")).respond_with(ResponseTemplate::new(200)).mount(&collector).await;
    collector
}

/// Waits until a collector has got at least `count` spans.
async fn at_least(collector: &MockServer, count: usize) -> Vec<Received> {
    let begun = Instant::now();
    loop {
        let spans = received(collector).await;
        if spans.len() >= count {
            return spans;
        }
        assert!(begun.elapsed() < PATIENCE, "{} spans came", spans.len());
        sleep(Duration::from_millis(20)).await;
    }
}

/// The spans that a collector has got so far.
async fn received(collector: &MockServer) -> Vec<Received> {
    let requests = collector.received_requests().await.expect("it records them");
    let decoded = requests.iter().map(|request| ExportTraceServiceRequest::decode(&*request.body).expect("OTLP"));
    let mut all = Vec::new();
    for part in decoded.flat_map(|request| request.resource_spans) {
        let service = attribute(&part.resource.expect("the service").attributes, "service.name");
        let spans = part.scope_spans.into_iter().flat_map(|scope| scope.spans);
        all.extend(spans.map(|span| Received { service: service.clone(), span }));
    }
    all
}

async fn send(client: &Client, method: Method, path: &str, parent: &str, body: &str) -> u16 {
    let headers = [("traceparent", parent), ("user-agent", "traced"), ("content-type", "application/json")];
    let headers = if parent.is_empty() { &headers[1..] } else { &headers[..] };
    client.send(Client::request(method, path, headers, body.to_owned().into())).await.code.as_u16()
}

/// Goal: one trace has what both servers did for a request of it, and nothing of what the request carried; other requests
/// have no span. Method: a server in front of another one, requests with and without a sampled parent, a watch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_through_two_servers_is_one_trace() {
    let collector = collector().await;
    let collector_url = collector.uri();
    let traced = ["--otlp-endpoint", &collector_url];
    let back = Server::start_with(BINARY, &[SOON, ("OTEL_SERVICE_NAME", "back")], &traced).await;
    let upstream = format!("--upstream=http://{}", back.address());
    let flags = [&traced[..], &[&upstream, "--resources=configmaps", "--listen-when-ready"]].concat();
    let front = Server::start_with(BINARY, &[SOON], &flags).await;
    let client = front.client();

    let object = |name: &str| format!(r#"{{"metadata": {{"name": "{name}"}}, "data": {{"password": "hunter2"}}}}"#);
    let unsampled = format!("00-{TRACE}-{PARENT}-00");
    assert_eq!(send(&client, Method::POST, CONFIGMAPS, &unsampled, &object("unsampled")).await, 201);
    assert_eq!(send(&client, Method::POST, CONFIGMAPS, "", &object("without-parent")).await, 201);
    let sampled = format!("00-{TRACE}-{PARENT}-01");
    let query = "?fieldManager=manager";
    assert_eq!(send(&client, Method::POST, &format!("{CONFIGMAPS}{query}"), &sampled, &object("sampled")).await, 201);
    let watch = format!("{CONFIGMAPS}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dsampled");
    assert_eq!(send(&client, Method::GET, &watch, &sampled, "").await, 200);

    let spans = at_least(&collector, 3).await;
    let find = |service: &str, name: &str| {
        let mut found = spans.iter().filter(|one| one.service == service && one.span.name == name);
        let span = found.next().unwrap_or_else(|| panic!("no span {name} of {service}"));
        assert!(found.next().is_none(), "two spans {name} of {service}");
        span
    };
    let post = find("cache-server", "POST configmaps");
    let behind = find("back", "POST configmaps");
    let watch = find("cache-server", "WATCH configmaps");
    assert_eq!(spans.len(), 3, "one for each sampled request, and for the one that was passed on");
    let [trace, id, parent] = post.ids();
    assert_eq!((&*trace, &*parent), (TRACE, PARENT));
    let [trace, _, parent] = behind.ids();
    assert_eq!((&*trace, parent), (TRACE, id));
    let [trace, _, parent] = watch.ids();
    assert_eq!((&*trace, &*parent), (TRACE, PARENT));
    for (key, value) in [
        ("http.request.method", "POST"),
        ("http.response.status_code", "201"),
        ("verb", "POST"),
        ("resource", "configmaps"),
        ("namespace", "default"),
        ("user_agent.original", "traced"),
    ] {
        assert_eq!([post.attribute(key), behind.attribute(key)], [value, value], "{key}");
    }
    assert_eq!(post.attribute("audit-id"), behind.attribute("audit-id"));
    assert_eq!(watch.attribute("cause"), "deadline");
    let took = watch.span.end_time_unix_nano - watch.span.start_time_unix_nano;
    assert!(took >= 1_000_000_000, "the span of a watch lasts as long as the watch: {took} ns");
    for Received { span, .. } in &spans {
        let text = format!("{span:?}");
        for secret in ["hunter2", "sampled", "fieldManager", "timeoutSeconds", "metadata.name", "/api/v1"] {
            assert!(!text.contains(secret), "{secret} is in {text}");
        }
    }
}

/// Goal: the spans of a server have the sessions of an informer as their parents. Method: the layer of `docs/sdk.md`, which
/// notes what it sends.
#[tokio::test]
async fn requests_of_an_informer_are_in_the_traces_of_its_sessions() {
    let collector = collector().await;
    let server = Server::start_with(BINARY, &[SOON], &["--otlp-endpoint", &collector.uri()]).await;
    let provider = SdkTracerProvider::builder().build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("program"));
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    // With a single dispatcher, tracing caches the interest of other tests' threads, which have no subscriber.
    let _second = Dispatch::new(tracing_subscriber::registry());
    let sent: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&sent);
    let layer = MapRequestLayer::new(move |mut request: http::Request<kube::client::Body>| {
        let session = tracing::Span::current().context();
        TraceContextPropagator::new().inject_context(&session, &mut HeaderInjector(request.headers_mut()));
        noted.lock().unwrap().push(request.headers()["traceparent"].to_str().unwrap().to_owned());
        request
    });
    let config = kube::Config::new(format!("http://{}", server.address()).parse().unwrap());
    let client = kube5::client_builder_from(config).unwrap().with_layer(&layer).build();
    let maps = Cluster::new(client).informer::<ConfigMap>().initial_list(InitialList::Paged).start().unwrap();
    maps.ready(PATIENCE).await.unwrap();
    let spans = at_least(&collector, 1).await;
    let [trace, _, parent] = spans[0].ids();
    assert_eq!(sent.lock().unwrap()[0], format!("00-{trace}-{parent}-01"));
    assert_eq!(spans[0].span.name, "LIST configmaps");
}

/// Goal: a collector that is away costs one line, and one that hangs does not hold up the end. Method: a closed port, and a
/// socket that accepts nothing; the grace period is far above the time of the flush.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_collector_holds_up_nothing() {
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (address, is_away) in [(hanging.local_addr().unwrap(), false), (closed, true)] {
        let url = format!("http://{address}");
        let flags = ["--otlp-endpoint", &url, "--otlp-sampling-rate-per-million=1000000", "--grace=25s"];
        let server = Server::start_with(BINARY, &[SOON], &flags).await;
        for round in 0..3 {
            assert_eq!(send(&server.client(), Method::GET, "/api/v1/nodes", "", "").await, 200);
            if round == 0 && is_away {
                server.logged("trace export failed").await;
            }
        }
        server.terminate();
        let ended = server.ended().await;
        assert_eq!(ended.code, Some(0), "killed after its grace period: {}", ended.stderr);
        assert_eq!(ended.stderr.matches("trace export failed").count(), usize::from(is_away), "{}", ended.stderr);
    }
}
