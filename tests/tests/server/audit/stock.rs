//! Beside a stock kube-apiserver: the same policy and the same requests give the same records.

use std::{
    fs,
    time::{Duration, Instant},
};

use http::Method;
use serde_json::{Value, json};
use tests::{
    genuine::{ADMIN, Genuine, GenuineSettings, Identity, cluster_role, cluster_role_binding, token_of},
    http::{Client, MERGE_PATCH},
};
use tokio::time::sleep;

use super::{Audited, CHECK_EVERY, JSON, text};

const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- level: None
  nonResourceURLs: ["/healthz*"]
- level: Request
  verbs: [patch]
  omitStages: [RequestReceived]
- level: Metadata
"#;

/// Time for kube-apiserver to write its records: it does so before the response ends, but for watches.
const STOCK_WAIT: Duration = Duration::from_secs(20);

/// Requests in order: method, path, content type, body.
#[expect(clippy::too_many_lines, reason = "a table")]
fn requests() -> Vec<(Method, &'static str, &'static str, String)> {
    const MAPS: &str = "/api/v1/namespaces/audited/configmaps";
    let object = |name: &str| {
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"k": "v"}}).to_string()
    };
    let get = |path| (Method::GET, path, "", String::new());
    let delete = |path| (Method::DELETE, path, "", String::new());
    let post = |path, body| (Method::POST, path, JSON.1, body);
    let patch = |path, kind, body: Value| (Method::PATCH, path, kind, body.to_string());
    vec![
        post(
            "/api/v1/namespaces",
            json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "audited"}}).to_string(),
        ),
        post(MAPS, object("a")),
        post(MAPS, object("a")),
        post(MAPS, object("b")),
        post(MAPS, r#"{"kind":"Pod","apiVersion":"v1"}"#.to_owned()),
        post(MAPS, object("Not-A-Name")),
        (Method::POST, MAPS, "text/plain", object("c")),
        get("/api/v1/namespaces/audited/configmaps/a"),
        get("/api/v1/namespaces/audited/configmaps/none"),
        get(MAPS),
        get("/api/v1/configmaps?limit=1"),
        get("/api/v1/namespaces/audited/configmaps?labelSelector=a%3Db"),
        get("/api/v1/namespaces/audited/configmaps?fieldSelector=metadata.name%3Da"),
        get("/api/v1/namespaces/audited/configmaps?resourceVersion=x"),
        get("/api/v1/namespaces/audited/configmaps?watch=1&timeoutSeconds=1"),
        get("/api/v1/namespaces/audited/configmaps?watch=1&resourceVersion=x"),
        (Method::PUT, "/api/v1/namespaces/audited/configmaps/a", JSON.1, object("a")),
        (Method::PUT, "/api/v1/namespaces/audited/configmaps/a", JSON.1, object("b")),
        patch("/api/v1/namespaces/audited/configmaps/a", MERGE_PATCH, json!({"data": {"k": "w"}})),
        patch(
            "/api/v1/namespaces/audited/configmaps/a",
            "application/json-patch+json",
            json!([{"op": "add", "path": "/data/x", "value": "y"}]),
        ),
        patch(
            "/api/v1/namespaces/audited/configmaps/a",
            "application/strategic-merge-patch+json",
            json!({"data": {"k": "z"}}),
        ),
        patch("/api/v1/namespaces/audited/configmaps/none", MERGE_PATCH, json!({"data": {"k": "w"}})),
        patch(
            "/api/v1/namespaces/audited/configmaps/s?fieldManager=m",
            "application/apply-patch+yaml",
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "s"}}),
        ),
        post(
            "/api/v1/namespaces/audited/secrets",
            json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"}, "stringData": {"k": "v"}})
                .to_string(),
        ),
        get("/api/v1/namespaces/audited/secrets/s"),
        get("/api/v1/namespaces/audited"),
        get("/apis/apps/v1/namespaces/audited/deployments"),
        get("/apis/apps/v1/namespaces/audited/deployments/none/scale"),
        get("/apis/none.example.com/v1/things"),
        get("/api/v1/none"),
        get("/version"),
        get("/livez"),
        get("/healthz"),
        get("/api"),
        get("/apis"),
        get("/none"),
        delete("/api/v1/namespaces/audited/configmaps/a"),
        delete("/api/v1/namespaces/audited/configmaps/a"),
        (
            Method::DELETE,
            "/api/v1/namespaces/audited/configmaps/b",
            JSON.1,
            json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}).to_string(),
        ),
        delete(MAPS),
    ]
}

/// A user whom a ClusterRoleBinding lets read ConfigMaps, and nothing else.
const VIEWER: &str = "viewer";

/// Lets [`VIEWER`] read ConfigMaps, then sends requests of it: allowed and refused.
async fn send_as_viewer(admin: Client, viewer: Client) {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]);
    admin.create_manifest(&cluster_role("maps", &rules)).await;
    admin.create_manifest(&cluster_role_binding("viewer-of-maps", "maps", "User", VIEWER)).await;
    let begun = Instant::now();
    // The authorizers follow the roles.
    while viewer.get("/api/v1/configmaps").await.code != 200 {
        assert!(begun.elapsed() < STOCK_WAIT, "the role has no effect");
        sleep(CHECK_EVERY).await;
    }
    for (at, path) in ["/api/v1/configmaps", "/api/v1/namespaces/a/secrets/b", "/apis", "/metrics"].iter().enumerate() {
        let id = format!("request-viewer-{at}");
        viewer.get_with(path, &[("audit-id", &id), ("user-agent", "tester")]).await;
    }
}

/// Sends the requests, each with an Audit-Id of its own.
async fn send_all(client: Client) {
    for (at, (method, path, kind, body)) in requests().into_iter().enumerate() {
        let id = format!("request-{at:02}");
        let mut headers = vec![("audit-id", &*id), ("user-agent", "tester")];
        headers.extend((!kind.is_empty()).then_some(("content-type", kind)));
        client.send(Client::request(method, path, &headers, body.into())).await;
    }
}

/// The records of the requests, without times, versions, uids, and annotations of others than authorizers.
fn comparable(lines: impl IntoIterator<Item = String>) -> Vec<Value> {
    let events = lines.into_iter().filter_map(|line| serde_json::from_str::<Value>(&line).ok());
    let mut events: Vec<Value> =
        events.filter(|event| event["auditID"].as_str().unwrap().starts_with("request-")).collect();
    for event in &mut events {
        let members = event.as_object_mut().unwrap();
        for name in ["requestReceivedTimestamp", "stageTimestamp"] {
            members.remove(name);
        }
        members.get_mut("user").and_then(Value::as_object_mut).map(|user| user.remove("uid"));
        // Admission plugins and slow requests add others.
        if let Some(annotations) = members.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|name, _| name.starts_with("authorization.k8s.io/"));
        }
        if let Some(reference) = members.get_mut("objectRef").and_then(Value::as_object_mut) {
            reference.remove("resourceVersion");
        }
        if let Some(details) = event.pointer_mut("/responseStatus/details").and_then(Value::as_object_mut) {
            details.remove("uid");
        }
    }
    events.sort_by_key(|event| event["auditID"].as_str().unwrap().to_owned());
    events
}

/// Goal: a log reads the same whichever server wrote it. Method: equal policies and requests; the records are compared
/// without times and versions, users and reasons of authorizers included.
#[tokio::test]
async fn records_equal_those_of_kube_apiserver() {
    let folder = tempfile::tempdir().unwrap();
    let (policy, log) = (folder.path().join("policy.yaml"), folder.path().join("audit.log"));
    fs::write(&policy, POLICY).unwrap();
    let flags =
        vec![format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())];
    let identities = vec![Identity::new(VIEWER, &["viewers"])];
    let settings = GenuineSettings { flags, identities, ..GenuineSettings::default() };
    let Some(genuine) = Genuine::start_with("records beside kube-apiserver", settings).await else { return };
    let tokens = folder.path().join("tokens.csv");
    let lines = [(ADMIN, "system:masters"), (VIEWER, "viewers")];
    let lines = lines.map(|(user, groups)| format!("{},{user},{user},\"{groups}\"\n", token_of(user)));
    fs::write(&tokens, lines.concat()).unwrap();
    let arguments = ["--token-auth-file", &*text(&tokens), "--authorization", "rbac"];
    let audited = Audited::start(Some(POLICY), &arguments).await;
    let last = "request-viewer-3";
    let ours = |user| audited.client().with_token(&token_of(user));
    send_all(ours(ADMIN)).await;
    send_as_viewer(ours(ADMIN), ours(VIEWER)).await;
    audited.last(last).await;
    send_all(genuine.client(ADMIN)).await;
    send_as_viewer(genuine.client(ADMIN), genuine.client(VIEWER)).await;
    let begun = Instant::now();
    let theirs = loop {
        let lines = comparable(fs::read_to_string(&log).unwrap_or_default().lines().map(str::to_owned));
        if lines.iter().any(|event| event["auditID"] == last && event["stage"] == "ResponseComplete") {
            break lines;
        }
        assert!(begun.elapsed() < STOCK_WAIT, "{lines:#?}");
        sleep(CHECK_EVERY).await;
    };
    let ours = comparable(audited.lines());
    let mut differences = Vec::new();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        if ours != theirs {
            differences.push(format!("ours   {ours}\ntheirs {theirs}"));
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
    assert_eq!(ours.len(), theirs.len());
}
