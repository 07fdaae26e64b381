//! Requests against a whole server without sockets: properties of every response, and cases that fit no other file.

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture};
use http_body_util::Full;
use serde_json::json;

use super::*;
use crate::{
    cacher::Caches,
    config::{AuthorizationConfig, AuthorizationMode, Config},
    limits,
    registry::ResourceType,
    storage::{
        FollowFrom, SourceError, Updates,
        embedded::EmbeddedStorage,
        hooked::{HookedStore, StoreHook},
    },
};

mod authorizers;
mod debug;
mod dropped;
mod flow;
mod forms;
mod metrics;
mod paths;
#[cfg(feature = "assets")]
mod webhooks;

/// A server without sockets, at revision 100.
pub(crate) struct Server {
    pub(crate) app: Arc<App>,
}

/// A response, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        Self { app: Arc::new(App::new(Config { first_revision: Some(100), ..config })) }
    }

    pub(crate) async fn open(&self, request: Request<Full<Bytes>>) -> Response {
        handle(Arc::clone(&self.app), request).await
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        let (parts, body) = self.open(request).await.into_parts();
        let body = body.collect().await.expect("a body that is not cut").to_bytes();
        let body = String::from_utf8(body.to_vec()).expect("text");
        Answer { code: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(get(path)).await
    }

    /// Creates a ConfigMap and returns its resourceVersion.
    pub(crate) async fn create(&self, namespace: &str, name: &str, labels: &str) -> u64 {
        let object = format!(
            r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","labels":{{{labels}}}}},"data":{{"k":"v"}}}}"#
        );
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let answer = self.send(with_body("POST", &path, object)).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
        answer.resource_version()
    }

    /// Changes a ConfigMap and returns its resourceVersion.
    pub(crate) async fn patch(&self, namespace: &str, name: &str, patch: &str) -> u64 {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
        let mut request = with_body("PATCH", &path, patch.to_owned());
        let content_type = HeaderValue::from_static("application/merge-patch+json");
        request.headers_mut().insert(header::CONTENT_TYPE, content_type);
        let answer = self.send(request).await;
        assert_eq!(answer.code, 200, "{}", answer.body);
        answer.resource_version()
    }

    pub(crate) async fn delete(&self, namespace: &str, name: &str) {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
        let answer = self.send(with_body("DELETE", &path, String::new())).await;
        assert_eq!(answer.code, 200, "{}", answer.body);
    }
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).expect("JSON")
    }

    pub(crate) fn resource_version(&self) -> u64 {
        self.json()["metadata"]["resourceVersion"].as_str().expect("a position").parse().expect("a number")
    }

    /// Returns the keys of a list's items.
    pub(crate) fn keys(&self) -> Vec<String> {
        let document = self.json();
        let items = document["items"].as_array().expect("items").iter();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        items.map(|item| text(&item["metadata"]["namespace"]) + "/" + &text(&item["metadata"]["name"])).collect()
    }

    pub(crate) fn message(&self) -> String {
        self.json()["message"].as_str().unwrap_or_default().to_owned()
    }
}

pub(crate) fn get(path: &str) -> Request<Full<Bytes>> {
    with_body("GET", path, String::new())
}

pub(crate) fn with_body(method: &str, path: &str, body: String) -> Request<Full<Bytes>> {
    Request::builder().method(method).uri(path).body(Full::from(body)).expect("a request")
}

fn with_header(path: &str, name: header::HeaderName, value: &str) -> Request<Full<Bytes>> {
    let mut request = get(path);
    request.headers_mut().insert(name, HeaderValue::from_str(value).expect("a header"));
    request
}

#[tokio::test]
async fn every_response_says_that_it_is_not_to_be_kept() {
    let server = Server::new();
    let mut ids = std::collections::HashSet::new();
    for path in ["/api/v1/pods", "/api/v1/foos", "/nothing", "/livez", "/version", "/api", "/metrics"] {
        let answer = server.get(path).await;
        assert_eq!(answer.headers[header::CACHE_CONTROL], "no-cache, private", "{path}");
        assert!(
            answer.headers.contains_key(header::DATE),
            "{path}: hyper's own stands still when the clock is set back"
        );
        let id = answer.headers[AUDIT_ID].to_str().unwrap().to_owned();
        let parts: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12], "{id}");
        assert_eq!(&id[14..15], "4", "{id}");
        assert!(matches!(&id[19..20], "8" | "9" | "a" | "b"), "{id}");
        assert!(ids.insert(id));
    }
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let answer = server.send(with_header("/api", header::ACCEPT, aggregated)).await;
    assert_eq!((answer.code, &answer.headers[header::CACHE_CONTROL]), (200, &HeaderValue::from_static("public")));
    let etag = answer.headers[header::ETAG].clone();
    let mut again = with_header("/api", header::ACCEPT, aggregated);
    again.headers_mut().insert(header::IF_NONE_MATCH, etag);
    let answer = server.send(again).await;
    assert_eq!((answer.code, &*answer.body), (304, ""));
}

#[tokio::test]
async fn what_is_not_served_is_not_found_in_the_words_of_the_api_server() {
    let server = Server::new();
    let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}"#;
    for (path, body, content_type) in [
        ("/api/v1/foos", format!("{status}\n"), "application/json"),
        ("/apis/none/v1/foos", "404 page not found\n".to_owned(), "text/plain; charset=utf-8"),
        ("/apis/none/v1", "404 page not found\n".to_owned(), "text/plain; charset=utf-8"),
        ("/healthz/nothing", "404 page not found\n".to_owned(), "text/plain; charset=utf-8"),
    ] {
        let answer = server.get(path).await;
        assert_eq!((answer.code, answer.body), (404, body), "{path}");
        assert_eq!(answer.headers[header::CONTENT_TYPE], content_type, "{path}");
        assert_eq!(answer.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff", "{path}");
    }
}

#[tokio::test]
async fn methods_that_no_path_takes_are_refused() {
    let server = Server::new();
    for (method, path) in [
        ("PUT", "/api/v1/namespaces/a/configmaps"),
        ("PATCH", "/api/v1/namespaces/a/configmaps"),
        ("POST", "/api/v1/configmaps"),
        ("DELETE", "/api/v1/configmaps"),
        ("POST", "/api/v1/namespaces/a/configmaps/b"),
        ("HEAD", "/api/v1/configmaps"),
        ("OPTIONS", "/api/v1/namespaces/a/configmaps/b"),
        ("TRACE", "/api/v1/configmaps"),
        ("POST", "/version"),
        ("POST", "/api/v1"),
    ] {
        let answer = server.send(with_body(method, path, String::new())).await;
        assert_eq!(answer.code, 405, "{method} {path}");
        let expected = "the server does not allow this method on the requested resource";
        assert_eq!(answer.message(), expected, "{method} {path}");
    }
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused() {
    let server = Server::new();
    let path = "/api/v1/namespaces/a/configmaps";
    let answer = server.send(with_body("POST", path, " ".repeat(limits::REQUEST_BODY_BYTES_MAX + 1))).await;
    assert_eq!(answer.code, 413);
    assert_eq!(answer.message(), "Request entity too large: limit is 3145728");
    let answer = server.send(with_body("POST", path, " ".repeat(limits::REQUEST_BODY_BYTES_MAX))).await;
    assert_eq!(answer.code, 400, "within the limit, but no object");
}

/// Goal: a small body cannot decode into many values. Method: a table of encodings, each with its worst body.
#[tokio::test]
async fn a_body_of_too_many_values_is_refused() {
    let server = Server::new();
    let many = vec![r#"{"":0}"#; 50_000].join(",");
    let aliases = format!("metadata: {{name: a}}\nx: &x [{}]\ny: [{}]\n", "{a: 1},".repeat(1_000), "*x,".repeat(100));
    for (method, content_type, body, code) in [
        ("POST", "application/json", format!(r#"{{"metadata":{{"name":"a"}},"x":[{many}]}}"#), 413),
        ("POST", "application/yaml", aliases, 400),
        ("PATCH", "application/merge-patch+json", format!(r#"{{"x":[{many}]}}"#), 413),
        ("PATCH", "application/json-patch+json", format!("[{many}]"), 413),
        ("DELETE", "application/json", format!(r#"{{"x":[{many}]}}"#), 413),
    ] {
        let name = if method == "POST" { "" } else { "/a" };
        let mut request = with_body(method, &format!("/api/v1/namespaces/a/configmaps{name}"), body);
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        let answer = server.send(request).await;
        assert_eq!(answer.code, code, "{method} {content_type}: {}", answer.body);
        assert!(answer.message().contains("decoded, it has more than 25165824 bytes"), "{}", answer.body);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_not_waited_for_for_ever() {
    let server = Server::new();
    let body =
        http_body_util::StreamBody::new(futures::stream::pending::<Result<http_body::Frame<Bytes>, body::BodyError>>());
    let request = Request::post("/api/v1/namespaces/a/configmaps").body(body).unwrap();
    let response = handle(Arc::clone(&server.app), request).await;
    assert_eq!(response.status(), 504);
    let body = response.into_body().collect().await.expect("a whole body").to_bytes();
    let status = Status::read(&body).expect("a Status");
    assert_eq!(status.message, "Timeout: request did not complete within the allotted timeout");
}

/// Goal: a connection stays usable after a request whose body was not read. Method: bodies that arrive after their
/// heads, at paths that are not served; one that is too long, and one that the client holds back.
#[tokio::test]
async fn bodies_that_nobody_wants_are_passed_by() {
    let server = Server::new();
    let late = |length: usize| {
        let pieces =
            (0..length).map(|_| Ok::<_, body::BodyError>(http_body::Frame::data(Bytes::from(vec![b' '; 1024]))));
        let pieces = futures::stream::iter(pieces).then(|piece| async {
            tokio::task::yield_now().await;
            piece
        });
        http_body_util::StreamBody::new(Box::pin(pieces))
    };
    for (method, path) in [("POST", "/api/v1/foos"), ("POST", "/api/v1/pods"), ("PUT", "/none"), ("DELETE", "/version")]
    {
        for (length, expects, closes) in [(0, false, false), (200, false, false), (300, false, true), (1, true, true)] {
            let mut request = Request::builder().method(method).uri(path);
            if expects {
                request = request.header(header::EXPECT, "100-continue");
            }
            let response = handle(Arc::clone(&server.app), request.body(late(length)).unwrap()).await;
            assert!(response.status().is_client_error(), "{method} {path}");
            assert_eq!(response.headers().contains_key(header::CONNECTION), closes, "{method} {path} {length}");
        }
    }
    let answer = server.send(with_body("POST", "/api/v1/namespaces/a/configmaps", "{}".to_owned())).await;
    assert!(!answer.headers.contains_key(header::CONNECTION));
}

#[tokio::test]
async fn accept_and_pretty_decide_the_form() {
    let server = Server::new();
    let answer = server.send(with_header("/api/v1/pods", header::ACCEPT, "text/html")).await;
    assert_eq!(answer.code, 406);
    assert!(answer.body.starts_with("{\n  \"kind\": \"Status\",\n"), "{}", answer.body);
    assert!(answer.json()["message"].as_str().expect("a text").starts_with("406: Not Acceptable\n\n"));
    assert_eq!((&answer.json()["reason"], &answer.json()["details"]), (&"NotAcceptable".into(), &json!({})));
    server.create("a", "b", "").await;
    let path = "/api/v1/namespaces/a/configmaps/b";
    let compact = server.get(path).await;
    assert!(compact.body.starts_with(r#"{"kind":"ConfigMap","apiVersion":"v1","#) && compact.body.ends_with("}\n"));
    for request in [
        with_header(path, header::USER_AGENT, "curl/8.5.0"),
        with_header(path, header::ACCEPT, "application/json;pretty=1"),
        get(&format!("{path}?pretty=true")),
    ] {
        let answer = server.send(request).await;
        assert!(answer.body.starts_with("{\n  \"kind\": \"ConfigMap\",\n"), "{}", answer.body);
        assert!(answer.body.ends_with("\n}"));
        assert_eq!(answer.json(), compact.json());
    }
    let error = server.send(with_header("/api/v1/foos", header::USER_AGENT, "curl/8.5.0")).await;
    assert!(error.body.starts_with("{\n  \"kind\": \"Status\",\n"));
}

#[tokio::test]
async fn health_version_and_metrics_have_their_documents() {
    let server = Server::new();
    for path in ["/healthz", "/livez", "/readyz", "/readyz/ping"] {
        let answer = server.get(path).await;
        assert_eq!((answer.code, &*answer.body), (200, "ok"), "{path}");
        assert_eq!(answer.headers[header::CONTENT_TYPE], "text/plain; charset=utf-8");
        assert_eq!(server.send(with_body("HEAD", path, String::new())).await.code, 200, "{path}");
    }
    let verbose = server.get("/readyz?verbose").await.body;
    assert!(verbose.starts_with("[+]ping ok\n") && verbose.ends_with("readyz check passed\n"), "{verbose}");
    assert_eq!(server.get("/version").await.json()["minor"], "36");
    server.get("/api/v1/pods").await;
    let metrics = server.get("/metrics").await;
    assert!(metrics.body.contains(r#"apiserver_request_total{verb="LIST",resource="pods",code="200"} 1"#));
}

/// A storage that is unavailable.
struct Away;

impl StoreHook for Away {
    fn follow<'a>(
        &'a self,
        _: &'a EmbeddedStorage,
        _: &Arc<ResourceType>,
        _: FollowFrom,
        _: watch_cache::Reader,
    ) -> BoxFuture<'a, Result<Updates, SourceError>> {
        std::future::ready(Err(SourceError::Unavailable("away".to_owned()))).boxed()
    }

    fn current<'a>(&'a self, _: &'a EmbeddedStorage, _: &Arc<ResourceType>) -> BoxFuture<'a, Result<u64, SourceError>> {
        std::future::pending().boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn readiness_names_the_types_whose_cache_is_down() {
    let mut app = App::new(Config::default());
    app.start().await;
    app.caches = Arc::new(Caches::new(Arc::new(HookedStore::by(Away)), watch_cache::Limits::default()));
    let server = Server { app: Arc::new(app) };
    assert_eq!(server.get("/readyz").await.code, 200);
    assert_eq!(server.get("/api/v1/pods").await.code, 429);
    let down = server.get("/readyz").await;
    let begins = "[+]ping ok\n[+]poststarthook/crd-informer-synced ok\n[+]shutdown ok\n[-]cache/pods failed: its source \
                  fails since 20";
    assert!(down.body.starts_with(begins) && down.body.ends_with("Z\nreadyz check failed\n"), "{}", down.body);
    assert_eq!(down.code, 500);
    assert_eq!(server.get("/livez").await.code, 200);
    tokio::time::advance(Duration::from_secs(90)).await;
    let scrape = server.get("/metrics").await.body;
    assert!(scrape.contains("kubernetes_healthcheck{name=\"cache/pods\",type=\"readyz\"} 0\n"), "{scrape}");
    assert!(scrape.contains("kubernetes_healthcheck{name=\"ping\",type=\"readyz\"} 1\n"), "{scrape}");
    let stale = scrape.lines().find_map(|line| line.strip_prefix("cache_stale_seconds{resource=\"pods\"} "));
    assert!(stale.is_some_and(|stale| 90.0 <= stale.parse().unwrap()), "{scrape}");
}

/// Goal: paths and errors of the operating system are for callers who may read every check, as in kube-apiserver. Method: a
/// store that refuses writes; users with the right, without it, and without credentials, with roles and without an authorizer.
#[tokio::test]
async fn readiness_withholds_reasons_from_callers_without_the_right() {
    let monitoring = User::authenticated("prometheus", ["system:monitoring".to_owned()]);
    let (alice, anonymous) = (User::authenticated("alice", []), User::anonymous());
    let rows = [
        (vec![AuthorizationMode::Rbac], vec![(&monitoring, true), (&alice, false), (&anonymous, false)]),
        (Vec::new(), vec![(&alice, true)]),
    ];
    for (modes, callers) in rows {
        for (caller, sees) in callers {
            let authorization = AuthorizationConfig { modes: modes.clone() };
            let config = Config { authorization, data_dir: Some("/data".into()), ..Config::default() };
            let mut app = App::with_storage(config, Arc::new(HookedStore::by(RefusedWrites)));
            app.start().await;
            app.access.let_in(caller);
            let server = Server { app: Arc::new(app) };
            for path in ["/readyz", "/readyz?verbose"] {
                let answer = server.get(path).await;
                let reason = if sees { REFUSED_REASON } else { "reason withheld" };
                assert_eq!(answer.code, 500);
                let line = format!("[-]storage failed: {reason}\n");
                assert!(answer.body.contains(&line), "{}: {}", caller.name, answer.body);
                assert!(sees || !answer.body.contains("/data"), "{}: {}", caller.name, answer.body);
            }
            let alone = server.get("/readyz/storage").await;
            assert_eq!(alone.body.contains(REFUSED_REASON), sees, "{}: {}", caller.name, alone.body);
        }
    }
}

/// A store that refuses writes once it has started.
struct RefusedWrites;

const REFUSED_WRITE: &str = "/data/objects.redb: Input/output error (os error 5)";

const REFUSED_REASON: &str = "storage is not available: /data/objects.redb: Input/output error (os error 5)";

impl StoreHook for RefusedWrites {
    fn refuses(&self) -> Option<SourceError> {
        Some(SourceError::Unavailable(REFUSED_WRITE.to_owned()))
    }
}

/// Goal: deleted definitions leave neither caches nor metrics behind. Method: types with an object, a list and a watch
/// each, which are deleted; then the caches and metric series that remain.
#[tokio::test(start_paused = true)]
async fn definitions_that_come_and_go_leave_no_caches_and_no_series() {
    let server = Server::new();
    server.app.start().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for number in 0..50 {
        let (plural, kind) = (format!("widgets{number}"), format!("Widget{number}"));
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let definition = json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1", "metadata":
            {"name": format!("{plural}.example.com")}, "spec": {"group": "example.com", "scope": "Namespaced", "names":
            {"plural": plural, "kind": kind}, "versions": [{"name": "v1", "served": true, "storage": true, "schema":
            schema}]}});
        let created = server.send(with_body("POST", definitions, definition.to_string())).await;
        assert_eq!(created.code, 201, "{}", created.body);
        let objects = format!("/apis/example.com/v1/namespaces/ns/{plural}");
        let object = json!({"kind": kind, "apiVersion": "example.com/v1", "metadata": {"name": "a"}});
        assert_eq!(server.send(with_body("POST", &objects, object.to_string())).await.code, 201);
        assert_eq!(server.get(&objects).await.code, 200);
        let watch = server.open(get(&format!("{objects}?watch=1"))).await;
        let metrics = server.get("/metrics").await.body;
        assert!(metrics.contains(&format!(r#"{{verb="WATCH",resource="{plural}.example.com"}} 1"#)), "{metrics}");
        drop(watch);
        let path = format!("{definitions}/{plural}.example.com");
        assert_eq!(server.send(with_body("DELETE", &path, String::new())).await.code, 200);
        assert_eq!(server.get(&objects).await.code, 404);
    }
    let metrics = server.get("/metrics").await.body;
    assert!(!metrics.contains("example.com"), "{metrics}");
    let cached: Vec<String> = server.app.caches.stats().into_iter().map(|(id, _)| id).collect();
    assert_eq!(cached, ["customresourcedefinitions.apiextensions.k8s.io"]);
}
