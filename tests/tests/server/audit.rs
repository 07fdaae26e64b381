//! The audit log of a running server: each request has its records, however it ends, and no credential is in them.

#![allow(clippy::unwrap_used, reason = "a test panics with the story")]

mod callers;
mod files;
mod leaving;
mod secrets;
mod stock;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use http::Method;
use serde_json::{Value, json};
use tests::{
    http::{Answer, Client, MERGE_PATCH},
    objects::configmap,
    process::Server,
    tls::Authority,
    websocket::WebSocket,
};
use tokio::{net::TcpStream, time::sleep};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: (&str, &str) = ("content-type", "application/json");

/// RequestRecords everything, with bodies.
const ALL: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: RequestResponse\n";

/// Timeout for records that are due: they are written behind the response.
const RECORD_WAIT: Duration = Duration::from_secs(30);
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// A server with an audit log.
struct Audited {
    server: Server,
    folder: tempfile::TempDir,
}

/// The records of one request: its stages in order, and the last record.
#[derive(Debug)]
struct RequestRecords {
    stages: Vec<String>,
    last: Value,
}

impl Audited {
    /// Starts a server that records by `policy`.
    async fn start(policy: Option<&str>, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (log, file) = (text(&folder.path().join("audit.log")), folder.path().join("policy.yaml"));
        let mut all = vec!["--audit-log", &*log];
        let file_name = text(&file);
        if let Some(policy) = policy {
            fs::write(&file, policy).unwrap();
            all.extend(["--audit-policy-file", &file_name]);
        }
        all.extend(arguments);
        let server = Server::start(BINARY, &all).await;
        Self { server, folder }
    }

    fn client(&self) -> Client {
        self.server.client()
    }

    /// The lines of all files of the log, in the order of their names.
    fn lines(&self) -> Vec<String> {
        lines_of(self.folder.path())
    }

    /// The records by Audit-Id.
    fn records(&self) -> BTreeMap<String, RequestRecords> {
        let mut all = BTreeMap::<String, RequestRecords>::new();
        let read = |line: String| serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let mut events: Vec<Value> = self.lines().into_iter().map(read).collect();
        events.sort_by_key(|event| event["stageTimestamp"].as_str().unwrap().to_owned());
        for event in events {
            assert_eq!((&event["kind"], &event["apiVersion"]), (&json!("Event"), &json!("audit.k8s.io/v1")));
            let of = |member: &str| event[member].as_str().unwrap().to_owned();
            let (id, stage) = (of("auditID"), of("stage"));
            let records = all.entry(id).or_insert_with(|| RequestRecords { stages: Vec::new(), last: Value::Null });
            records.stages.push(stage);
            records.last = event;
        }
        all
    }

    /// Waits for the last record of a request.
    async fn last(&self, id: &str) -> RequestRecords {
        self.when(|all| all.get(id).is_some_and(RequestRecords::are_complete), id).await.remove(id).unwrap()
    }

    /// Waits until the records fulfil a condition.
    async fn when(
        &self,
        condition: impl Fn(&BTreeMap<String, RequestRecords>) -> bool,
        what: &str,
    ) -> BTreeMap<String, RequestRecords> {
        let begun = Instant::now();
        loop {
            let records = self.records();
            if condition(&records) {
                return records;
            }
            assert!(begun.elapsed() < RECORD_WAIT, "{what}: {records:#?}\n{}", self.server.log());
            sleep(CHECK_EVERY).await;
        }
    }

    /// Value of a metric without labels, or with these.
    async fn metric(&self, series: &str) -> u64 {
        let metrics = self.client().get("/metrics").await;
        let line = metrics.text().lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{series}: {}", metrics.text())).parse().unwrap()
    }
}

impl RequestRecords {
    fn are_complete(&self) -> bool {
        self.stages.last().is_some_and(|stage| stage == "ResponseComplete")
    }

    fn annotation(&self, name: &str) -> &str {
        self.last["annotations"][name].as_str().unwrap_or_default()
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// The lines of the logs in a folder; renamed ones first.
fn lines_of(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_log = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("audit");
    let mut names: Vec<_> = names.filter(is_log).collect();
    names.sort();
    names
        .iter()
        .flat_map(|name| {
            let text = String::from_utf8_lossy(&fs::read(name).unwrap()).into_owned();
            // Without its end, a line is still being written.
            text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

async fn send(client: Client, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    client.send(Client::request(method, path, headers, body.to_owned().into())).await
}

/// Requests about one object: method, path, body, and the verb of the record.
fn requests(object: &str, body: &str) -> Vec<(Method, String, String, &'static str)> {
    let of = |method, path: &str, body: &str, verb| (method, path.to_owned(), body.to_owned(), verb);
    vec![
        of(Method::POST, CONFIGMAPS, body, "create"),
        of(Method::POST, CONFIGMAPS, body, "create"),
        of(Method::POST, CONFIGMAPS, "{", "create"),
        of(Method::GET, object, "", "get"),
        of(Method::HEAD, object, "", "get"),
        of(Method::GET, CONFIGMAPS, "", "list"),
        of(Method::GET, "/api/v1/configmaps?limit=1&labelSelector=a%3Db", "", "list"),
        of(Method::GET, "/api/v1/configmaps?resourceVersion=x", "", "list"),
        of(Method::PUT, object, body, "update"),
        of(Method::PATCH, object, r#"{"data":{"k":"v"}}"#, "patch"),
        of(Method::DELETE, object, "", "delete"),
        of(Method::DELETE, CONFIGMAPS, "", "deletecollection"),
        of(Method::GET, "/api/v1/namespaces/default/configmaps/none", "", "get"),
        of(Method::GET, "/api/v1/none", "", "list"),
        of(Method::GET, "/apis/none.example.com/v1/things", "", "list"),
        of(Method::GET, "/livez", "", "get"),
        of(Method::GET, "/none", "", "get"),
        of(Method::OPTIONS, "/api", "", "options"),
        of(Method::GET, "/api/v1/configmaps?watch=1&timeoutSeconds=1", "", "watch"),
        of(Method::GET, "/api/v1/configmaps?watch=1&resourceVersion=x", "", "watch"),
        of(Method::GET, "/api/v1/nodes/n/proxy/x", "", "get"),
    ]
}

/// Goal: each request has records at each of its stages, with the code of its response. Method: requests of all kinds,
/// each with an Audit-Id, over both versions of HTTP, in the clear and over TLS.
#[tokio::test]
async fn every_request_has_its_records() {
    let tls = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = authority.issue(tls.path());
    let flags = files.flags();
    let (open, secured) = tokio::join!(Audited::start(None, &[]), Audited::start(None, &flags));
    let (clear, tls) = (open.client(), secured.client().over_tls(authority.trust()));
    let ways = [
        (&open, clear, "a"),
        (&open, clear.over_http2(), "b"),
        (&secured, tls, "c"),
        (&secured, tls.over_http2(), "d"),
    ];
    for (audited, client, name) in ways {
        let object = format!("{CONFIGMAPS}/{name}");
        let body = json!({"metadata": {"name": name}}).to_string();
        for (at, (method, path, body, verb)) in requests(&object, &body).into_iter().enumerate() {
            let id = format!("{name}-{at}");
            let kind = if method == Method::PATCH { MERGE_PATCH } else { JSON.1 };
            let headers = [("audit-id", &*id), ("user-agent", "tester"), ("content-type", kind)];
            let answer = send(client, method, &path, &headers, &body).await;
            let found = audited.last(&id).await;
            check(&found, &answer, &path, verb);
        }
        let created = audited.last(&format!("{name}-0")).await.last;
        let reference = json!({"resource": "configmaps", "namespace": "default", "name": name, "apiVersion": "v1"});
        assert_eq!(created["objectRef"], reference);
    }
    // A request without an identifier gets one, and one that is too long is replaced.
    for headers in [&[][..], &[("audit-id", &*"x".repeat(65))]] {
        let id = open.client().get_with("/livez", headers).await.header("audit-id").to_owned();
        assert_eq!(id.len(), 36, "{id}");
        open.last(&id).await;
    }
    let events = open.lines().len() as u64;
    assert!(open.metric("apiserver_audit_event_total").await >= events);
    assert_eq!(open.metric(r#"apiserver_audit_error_total{plugin="log"}"#).await, 0);
}

/// Checks the records of a request against its response.
fn check(found: &RequestRecords, answer: &Answer, path: &str, verb: &str) {
    let (asked, last) = (&answer.asked, &found.last);
    assert_eq!(answer.header("audit-id"), last["auditID"], "{asked}");
    let lasts_long = verb == "watch" || path.contains("/proxy");
    let stages: Vec<&str> = found.stages.iter().map(String::as_str).collect();
    match &*stages {
        ["RequestReceived", "ResponseStarted", "ResponseComplete"] => assert!(lasts_long, "{asked}"),
        ["RequestReceived", "ResponseComplete"] => assert!(!lasts_long, "{asked}"),
        _ => panic!("{asked}: {found:#?}"),
    }
    assert_eq!(last["responseStatus"]["code"], answer.code.as_u16(), "{asked}: {found:#?}");
    assert_eq!((&last["verb"], &last["requestURI"]), (&json!(verb), &json!(path)), "{found:#?}");
    assert_eq!((&last["userAgent"], &last["sourceIPs"]), (&json!("tester"), &json!(["127.0.0.1"])));
    assert_eq!(last["user"]["username"], "system:unsecured");
    assert_eq!(found.annotation("authorization.k8s.io/decision"), "allow");
    assert_eq!(found.annotation("audit.cache-server/client-left"), "", "{asked}");
    let status: Option<Value> =
        serde_json::from_slice(&answer.body).ok().filter(|body: &Value| body["kind"] == "Status");
    if let Some(status) = status {
        assert_eq!(last["responseStatus"].get("message"), status.get("message"), "{asked}");
    }
}

/// Goal: requests that are refused before they are routed are recorded too. Method: a foreign Host, a foreign Origin, and
/// no Host.
#[tokio::test]
async fn refused_requests_are_recorded_without_a_user() {
    let audited = Audited::start(None, &[]).await;
    for (at, (method, headers, code)) in
        [(Method::GET, &[("host", "evil.example")][..], 403), (Method::POST, &[("origin", "http://evil.example")], 403)]
            .into_iter()
            .enumerate()
    {
        let id = format!("refused-{at}");
        let headers = [headers, &[("audit-id", &*id)]].concat();
        send(audited.client(), method, CONFIGMAPS, &headers, "{}").await.with_code(code);
        let found = audited.last(&id).await;
        assert_eq!((&found.last["user"], &found.last["responseStatus"]["code"]), (&json!({}), &json!(code)));
        assert_eq!(found.stages, ["RequestReceived", "ResponseComplete"]);
    }
}

/// Goal: the policy decides what is recorded. Method: one rule for each level, and omitted stages.
#[tokio::test]
async fn the_policy_chooses_levels_and_stages() {
    let policy = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  nonResourceURLs: ["/livez*", /metrics]
- level: Metadata
  verbs: [delete]
- level: Request
  verbs: [patch]
- level: RequestResponse
  resources: [{group: "", resources: [configmaps]}]
"#;
    let audited = Audited::start(Some(policy), &[]).await;
    let client = audited.client();
    let create = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    let id = |name: &'static str| [("audit-id", name), JSON];
    send(client, Method::GET, "/livez", &id("none"), "").await.with_code(200);
    send(client, Method::GET, "/readyz", &id("unmatched"), "").await.with_code(200);
    send(client, Method::POST, CONFIGMAPS, &id("create"), &create.to_string()).await.with_code(201);
    let object = configmap("a").path();
    let yaml = [("audit-id", "yaml"), ("accept", "application/yaml")];
    let stored = client.get(&object).await.json();
    send(client, Method::GET, &object, &yaml, "").await.with_code(200);
    send(client, Method::GET, CONFIGMAPS, &id("list"), "").await.with_code(200);
    let patch = [("audit-id", "patch"), ("content-type", "application/json-patch+json")];
    let operations = json!([{"op": "replace", "path": "/data/k", "value": "w"}]);
    send(client, Method::PATCH, &object, &patch, &operations.to_string()).await.with_code(200);
    send(client, Method::DELETE, &object, &id("delete"), r#"{"propagationPolicy":"Background"}"#).await.with_code(200);

    let deleted = audited.last("delete").await;
    assert_eq!((&deleted.last["level"], deleted.stages.len()), (&json!("Metadata"), 1));
    assert_eq!((deleted.last.get("requestObject"), deleted.last.get("responseObject")), (None, None));
    let created = audited.last("create").await.last;
    assert_eq!(created["requestObject"], create);
    let mut answered = stored.clone();
    answered["metadata"].as_object_mut().unwrap().remove("managedFields");
    assert_eq!(created["responseObject"], answered);
    assert_eq!(audited.last("yaml").await.last["responseObject"], answered);
    let patched = audited.last("patch").await.last;
    assert_eq!((&patched["requestObject"], patched.get("responseObject")), (&operations, None));
    let listed = audited.last("list").await;
    assert_eq!((listed.last.get("responseObject"), listed.annotation("audit.k8s.io/truncated")), (None, "true"));
    let records = audited.records();
    assert!(!records.contains_key("none") && !records.contains_key("unmatched"), "{records:#?}");
}

/// Goal: bodies have a bound, and the name of an object is recorded however long the object is. Method: objects in three
/// encodings.
#[tokio::test]
async fn long_bodies_are_left_out() {
    let audited = Audited::start(Some(ALL), &[]).await;
    for (name, kind, bytes) in [
        ("short", "application/json", 50 << 10),
        ("long", "application/json", 150 << 10),
        ("longest", "application/json", 1 << 20),
        ("yaml", "application/yaml", 1 << 20),
    ] {
        let data = "x".repeat(bytes);
        let body = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"k": data}});
        let headers = [("audit-id", name), ("content-type", kind)];
        send(audited.client(), Method::POST, CONFIGMAPS, &headers, &body.to_string()).await.with_code(201);
        let found = audited.last(name).await;
        let is_short = bytes < 100 << 10;
        assert_eq!(found.last["objectRef"]["name"], name);
        assert_eq!(found.last.get("requestObject").is_some(), is_short, "{name}");
        assert_eq!(found.last.get("responseObject").is_some(), is_short, "{name}");
        assert_eq!(found.annotation("audit.k8s.io/truncated"), if is_short { "" } else { "true" });
    }
    let longest = audited.lines().iter().map(String::len).max().unwrap();
    assert!(longest < 300 << 10, "{longest}");
}

#[tokio::test]
async fn a_websocket_has_the_records_of_a_watch() {
    let audited = Audited::start(None, &[]).await;
    let stream = TcpStream::connect(audited.server.address()).await.unwrap();
    let address = audited.server.address();
    let path = "/api/v1/configmaps?watch=1";
    let socket = WebSocket::over(stream, address, path, &[("audit-id", "socket")]).await;
    let open = audited.when(|all| all.get("socket").is_some_and(|found| found.stages.len() == 2), "open").await;
    assert_eq!(open["socket"].stages, ["RequestReceived", "ResponseStarted"]);
    drop(socket);
    let found = audited.last("socket").await;
    assert_eq!((found.stages.len(), &found.last["responseStatus"]["code"]), (3, &json!(101)));
}

#[tokio::test]
async fn wrong_settings_are_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let log = text(&folder.path().join("audit.log"));
    let policy = folder.path().join("policy.yaml");
    fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None}, {level: Some}]\n").unwrap();
    let (policy, good) = (text(&policy), text(&folder.path().join("good.yaml")));
    fs::write(&good, ALL).unwrap();
    for (arguments, error) in [
        (&["--audit-log", &*log, "--audit-policy-file", &*policy][..], "rules[1].level: Unsupported value: \"Some\""),
        (&["--audit-log", "/no/such/folder/audit.log"], "cannot write the audit log /no/such/folder/audit.log"),
        (&["--audit-policy-file", &*good], "--audit-log"),
    ] {
        let ended = Server::run(BINARY, &[&["serve", "--listen", "127.0.0.1:0"], arguments].concat()).await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(error) && ended.stderr.trim().lines().count() == 1, "{ended:?}");
    }
}
