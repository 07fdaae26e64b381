//! Writes of callers with few rights: a table that `upstream/authorization/writes` compares with a stock kube-apiserver,
//! sequences that once gave a caller more than it had, and callers without credentials.

#![allow(clippy::unwrap_used, reason = "a test panics with the story")]

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::{
    genuine::{ADMIN, token_of},
    http::{Answer, Client, MERGE_PATCH},
    objects::{configmap, secret},
    process::Server,
    rights::{write_cases, write_faults, write_tokens, write_world},
    tls::Authority,
};

use crate::conformance::BINARY;

/// Longest time until roles and pods act.
const CHANGED_WITHIN: Duration = Duration::from_secs(10);

/// A server that knows the users of the table by their tokens.
struct RestrictedScene {
    server: Server,
    _folder: TempDir,
}

impl RestrictedScene {
    async fn start(is_durable: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        fs::write(at("tokens.csv"), write_tokens()).unwrap();
        let (tokens, data) = (at("tokens.csv"), at("data"));
        let mut flags = vec!["--token-auth-file", &tokens, "--authorization", "node,rbac"];
        if is_durable {
            flags.extend(["--data-dir", &data]);
        }
        let server = Server::start(BINARY, &flags).await;
        Self { server, _folder: folder }
    }

    /// Like [`start`](Self::start), with the objects of the table.
    async fn with_objects() -> Self {
        let scene = Self::start(false).await;
        for manifest in write_world() {
            scene.client(ADMIN).post(&manifest.collection, &manifest.body).await.with_code(201);
        }
        scene
    }

    fn client(&self, user: &str) -> Client {
        self.server.client().with_token(&token_of(user))
    }
}

/// Goal: each write is answered as by a stock kube-apiserver, whatever stores the objects. Method: the table of which that
/// answers each row as expected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restricted_writes_are_answered_as_by_kube_apiserver() {
    let cases = write_cases();
    let mut names: Vec<_> = cases.iter().map(|case| (case.caller, &case.name)).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cases.len(), "each row has its own name");
    let refused = cases.iter().filter(|case| case.expected.0 == 403).count();
    assert!(cases.len() > 200 && refused > 100, "{refused} of {}", cases.len());
    for is_durable in [false, true] {
        let scene = RestrictedScene::start(is_durable).await;
        let faults = write_faults(scene.server.client()).await;
        println!("{} rows, {refused} of them refused; {} faults", cases.len(), faults.len());
        assert!(faults.is_empty(), "{} of {} rows:\n{}", faults.len(), cases.len(), faults.join("\n"));
    }
}

/// Goal: a node gets no Secret, and no other node's objects, by what it writes. Method: an ordinary pod that mounts a Secret,
/// and what the node can do to another one; then what a kubelet does, which stays allowed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_gains_nothing_by_its_writes() {
    let scene = RestrictedScene::with_objects().await;
    let (node, admin) = (scene.client("system:node:w-n1"), scene.client(ADMIN));
    let pods = "/api/v1/namespaces/vault/pods";
    admin.create(&secret("root").namespace("vault").data("dg==")).await;
    let read = async || node.get("/api/v1/namespaces/vault/secrets/root").await.code.as_u16();
    assert_eq!(read().await, 403);
    let pod = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": "w-n1", "containers": [{"name": "c", "image": "i"}],
                     "volumes": [{"name": "v", "secret": {"secretName": "root"}}]},
        })
    };
    let text = node.post(pods, &pod("thief")).await.with_code(403).message();
    assert!(text.contains("can only create mirror pods"), "{text}");
    assert_eq!(read().await, 403);
    for (request, code) in [
        (node.delete("/api/v1/namespaces/w-a/pods/foreign").await, 403),
        (
            node.patch(
                "/api/v1/nodes/w-n2",
                MERGE_PATCH,
                &json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}),
            )
            .await,
            403,
        ),
        (
            node.post("/api/v1/nodes", &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w-n9"}}))
                .await,
            403,
        ),
        (
            node.patch(
                "/api/v1/namespaces/w-a/pods/foreign/status",
                MERGE_PATCH,
                &json!({"status": {"phase": "Failed"}}),
            )
            .await,
            403,
        ),
    ] {
        request.with_code(code);
    }
    // A status names no further claims, and keeps the spec.
    let own = "/api/v1/namespaces/w-a/pods/own/status";
    let spec =
        json!({"spec": {"volumes": [{"name": "v", "secret": {"secretName": "one"}}]}, "status": {"phase": "Running"}});
    let changed = node.patch(own, MERGE_PATCH, &spec).await.with_code(200).json();
    assert_eq!(
        (&changed["status"]["phase"], &changed["spec"]["volumes"][0]["secret"]),
        (&json!("Running"), &Value::Null)
    );
    // An admin's pod gives it the Secret, which the node reads until the pod is gone.
    admin.post(pods, &pod("guest")).await.with_code(201);
    until(async || read().await == 200).await;
    node.delete(&format!("{pods}/guest?gracePeriodSeconds=0")).await.with_code(200);
    until(async || read().await == 403).await;
    // Renewals go without decoding where the body is plain: another node's lease does not.
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    for (name, code) in [("w-n1", 200), ("w-n2", 403)] {
        let path = format!("{leases}/{name}");
        let mut lease = admin.get(&path).await.with_code(200).json();
        lease["spec"]["leaseDurationSeconds"] = json!(50);
        node.put(&path, &lease).await.with_code(code);
        scene.client("system:node:w-n3").put(&path, &lease).await.with_code(403);
    }
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < CHANGED_WITHIN, "not in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Goal: no write creates an object without the right to create. Method: a user who may get, update and patch; five ways that
/// once created one.
#[tokio::test]
async fn creating_needs_the_right_to_create() {
    let scene = RestrictedScene::with_objects().await;
    let admin = scene.client(ADMIN);
    let rules = json!([{"verbs": ["get", "update", "patch"], "apiGroups": ["*"], "resources": ["*"]}]);
    admin.create_manifest(&tests::genuine::cluster_role("changes", &rules)).await.with_code(201);
    admin
        .create_manifest(&tests::genuine::cluster_role_binding("changes", "changes", "User", "w-none"))
        .await
        .with_code(201);
    let changer = scene.client("w-none");
    until(async || changer.get("/api/v1/namespaces/w-a/configmaps/one").await.code == 200).await;
    let object =
        |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "made"}});
    for (method, path, object) in [
        (Method::PATCH, "/api/v1/namespaces/w-a/configmaps/made", object("v1", "ConfigMap")),
        (Method::PATCH, "/api/v1/namespaces/w-a/secrets/made", object("v1", "Secret")),
        (Method::PATCH, "/api/v1/namespaces/w-a/pods/made", object("v1", "Pod")),
        (
            Method::PUT,
            "/apis/coordination.k8s.io/v1/namespaces/w-a/leases/made",
            object("coordination.k8s.io/v1", "Lease"),
        ),
        (Method::PUT, "/api/v1/namespaces/w-a/services/made", object("v1", "Service")),
    ] {
        let applies = method == Method::PATCH;
        let target = if applies { format!("{path}?fieldManager=m") } else { path.to_owned() };
        let content_type = if applies { "application/apply-patch+yaml" } else { "application/json" };
        let send = async |client: Client| -> Answer {
            let headers = [("content-type", content_type)];
            client.send(Client::request(method.clone(), &target, &headers, Bytes::from(object.to_string()))).await
        };
        let text = send(changer).await.with_code(403).message();
        assert!(text.contains("User \"w-none\" cannot create resource "), "{text}");
        admin.get(path).await.with_code(404);
        send(admin).await.with_code(201);
        assert_ne!(send(changer).await.code, 403, "the object is there now: it is changed, or its version is missing");
    }
}

/// A file of tokens in a folder.
fn token_file(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("tokens.csv");
    fs::write(&path, "t-alice,alice,1\nt-probe,probe,2,system:monitoring\n").unwrap();
    path
}

/// Goal: credentials that are configured are needed, also on loopback, and invalid ones are refused on every path. Method: the
/// paths that a caller without credentials might reach, with each setting that decides about it.
#[tokio::test]
async fn callers_without_credentials_are_refused_where_there_are_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = token_file(&folder).display().to_string();
    const PATHS: [&str; 6] = ["/api/v1/secrets", "/api", "/metrics", "/version", "/openapi/v3", "/none"];
    const PROBES: [&str; 3] = ["/livez", "/readyz", "/healthz"];
    // Answers to `/api/v1/secrets`, `/metrics` and a POST of a caller without credentials.
    for (flags, expected) in [
        (&[][..], [401, 401, 401]),
        (&["--authorization", "always-allow"], [401, 401, 401]),
        (&["--authorization", "rbac"], [403, 403, 403]),
        (&["--insecure-anonymous"], [200, 200, 201]),
        (&["--insecure-anonymous", "--authorization", "rbac"], [403, 403, 403]),
    ] {
        let server = Server::start(BINARY, &[&["--token-auth-file", &tokens], flags].concat()).await;
        let none = server.client();
        for (client, made) in [(none, configmap("one")), (none.over_http2(), configmap("two"))] {
            let found = [
                client.get("/api/v1/secrets").await.code.as_u16(),
                client.get("/metrics").await.code.as_u16(),
                client.post(&made.collection(), made.body()).await.code.as_u16(),
            ];
            assert_eq!(found, expected, "{flags:?}");
            for path in PROBES {
                assert_eq!(client.get(path).await.code, 200, "{flags:?} {path}: probes have no credentials");
            }
            for path in PATHS.into_iter().chain(PROBES) {
                let answer = client.with_token("wrong").get(path).await;
                assert_eq!(answer.code, 401, "{flags:?} {path}: an invalid token is no anonymous caller");
            }
        }
        let is_open = !flags.contains(&"rbac");
        let alice = none.with_token("t-alice");
        assert_eq!(alice.get("/metrics").await.code, if is_open { 200 } else { 403 }, "{flags:?}");
        assert_eq!(alice.get("/version").await.code, 200, "{flags:?}");
        // Bound to the ClusterRole of the path from the start.
        assert_eq!(none.with_token("t-probe").get("/metrics").await.code, 200, "{flags:?}");
    }
}

/// Goal: a token that no flag can verify makes no anonymous caller. Method: a server that reads client certificates alone.
#[tokio::test]
async fn a_token_that_no_flag_verifies_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, clients) = (Authority::new(), Authority::new());
    let files = authority.issue(folder.path());
    let ca = folder.path().join("clients.crt");
    fs::write(&ca, clients.pem()).unwrap();
    for flags in [&[][..], &["--authorization", "rbac"], &["--insecure-anonymous"]] {
        let arguments = [&files.flags()[..], &["--client-ca-file", ca.to_str().unwrap()], flags].concat();
        let server = Server::start(BINARY, &arguments).await;
        let client = server.client().over_tls(authority.trust()).with_token("anything");
        for path in ["/api/v1/secrets", "/metrics", "/version", "/livez"] {
            assert_eq!(client.get(path).await.code, 401, "{flags:?} {path}");
        }
    }
}

/// Goal: each setting that names callers makes credentials necessary, also on loopback. Method: each of them alone.
#[tokio::test]
async fn each_way_to_authenticate_alone_needs_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (authority, clients) = (Authority::new(), Authority::new());
    let files = authority.issue(folder.path());
    fs::write(at("clients.crt"), clients.pem()).unwrap();
    let (tokens, clients) = (token_file(&folder).display().to_string(), at("clients.crt"));
    let (socket, issuer) = (at("cache.sock"), "https://issuer.example");
    for flags in [
        &["--token-auth-file", &tokens][..],
        &["--client-ca-file", &clients],
        &["--service-account-issuer", issuer],
        &["--oidc-issuer-url", issuer, "--oidc-client-id", "cache"],
        &["--unix-socket", &socket],
    ] {
        for (more, expected) in [(&[][..], [401, 401]), (&["--insecure-anonymous"], [200, 201])] {
            let server = Server::start(BINARY, &[&files.flags()[..], flags, more].concat()).await;
            let client = server.client().over_tls(authority.trust());
            let read = client.get("/api/v1/secrets").await.code.as_u16();
            let made = configmap("made");
            let written = client.post(&made.collection(), made.body()).await.code.as_u16();
            assert_eq!([read, written], expected, "{flags:?} {more:?}");
            assert_eq!(client.get("/readyz").await.code, 200, "{flags:?}: probes have no credentials");
            // The next one takes the same socket.
            server.terminate();
            assert_eq!(server.ended().await.code, Some(0), "{flags:?} {more:?}");
        }
    }
}
