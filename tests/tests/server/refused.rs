//! Requests that must be refused: each caller with each request, over each protocol, on a fresh connection and on one that
//! an administrator uses as well. None may show a part of an object, tell whether one exists, or change anything.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test prints its counts, and panics with the story")]

mod table;

use std::{
    collections::BTreeSet,
    fs,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use tests::{
    http::{Answer, Client, Connection},
    process::Server,
    rights::{MARKER, world},
    tls::Authority,
};

use self::table::{RefusedCaller, RefusedRequest, callers, requests};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const ADMIN: &str = "token-of-admin";
/// Requests in flight at once.
const AT_ONCE: usize = 16;
/// Time after which a withdrawn right is not used any more: a second, and five for a machine that stalls.
const WITHDRAWN_WITHIN: Duration = Duration::from_secs(1 + 5);

/// Credentials of a row, and the code that refuses it.
struct RefusedIdentity {
    name: String,
    headers: Vec<(&'static str, String)>,
    code: u16,
    allowed: BTreeSet<&'static str>,
}

/// A server with the objects of all rows, the callers with their roles, and clients for each protocol.
struct RefusedScene {
    server: Server,
    admin: Client,
    ways: Vec<(&'static str, Client)>,
    _folder: tempfile::TempDir,
}

fn bearer(token: &str) -> (&'static str, String) {
    ("authorization", format!("Bearer {token}"))
}

/// All identities: callers with tokens, and requests without valid credentials.
fn identities() -> Vec<RefusedIdentity> {
    let of = |name: &str, headers: &[(&'static str, &str)], code| RefusedIdentity {
        name: name.to_owned(),
        headers: headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
        code,
        allowed: BTreeSet::new(),
    };
    let named = callers().into_iter().map(|caller| RefusedIdentity {
        name: caller.name.to_owned(),
        headers: vec![bearer(&format!("token-of-{}", caller.name))],
        code: 403,
        allowed: caller.allowed.iter().copied().collect(),
    });
    let nothing = "Bearer token-of-nothing";
    named
        .chain([
            of("anonymous", &[], 403),
            of("another scheme", &[("authorization", "Basic YWRtaW46YWRtaW4=")], 403),
            of("no token", &[("authorization", "Bearer ")], 403),
            of("unknown token", &[("authorization", "Bearer unknown")], 401),
            of("part of a token", &[("authorization", "Bearer token-of-admi")], 401),
            of("longer token", &[("authorization", "Bearer token-of-admin0")], 401),
            of("name as token", &[("authorization", "Bearer admin")], 401),
            of("front proxy", &[("x-remote-user", "admin"), ("x-remote-group", "system:masters")], 403),
            of("impersonates", &[("authorization", nothing), ("impersonate-user", "admin")], 403),
            of(
                "impersonates a group",
                &[("authorization", nothing), ("impersonate-user", "nothing"), ("impersonate-group", "system:masters")],
                403,
            ),
            of("anonymous impersonates", &[("impersonate-user", "admin")], 403),
        ])
        .collect()
}

/// Lines of the token file.
fn token_file() -> String {
    let lines = callers()
        .into_iter()
        .map(|RefusedCaller { name, groups, .. }| format!("token-of-{name},{name},uid-of-{name},\"{groups}\"\n"));
    lines.chain([format!("{ADMIN},admin,0,\"system:masters\"\n")]).collect()
}

/// Role and binding of a caller: collection and object.
fn grants(caller: &RefusedCaller) -> Option<[(String, Value); 2]> {
    let (namespace, rules) = caller.rules.clone()?;
    let (prefix, kind) = match namespace {
        Some(namespace) => (format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/"), "Role"),
        None => ("/apis/rbac.authorization.k8s.io/v1/cluster".to_owned(), "ClusterRole"),
    };
    let metadata = json!({"name": caller.name.replace(':', "-")});
    let api_version = "rbac.authorization.k8s.io/v1";
    let role = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "rules": rules});
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": api_version, "kind": format!("{kind}Binding"), "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": kind, "name": metadata["name"]},
        "subjects": [{"apiGroup": group, "kind": "User", "name": caller.name}],
    });
    Some([(format!("{prefix}roles"), role), (format!("{prefix}rolebindings"), binding)])
}

async fn scene(with_tls: bool) -> RefusedScene {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.csv");
    fs::write(&tokens, token_file()).unwrap();
    let authority = Authority::new();
    let files = authority.issue(folder.path());
    let mut flags = vec!["--token-auth-file", tokens.to_str().unwrap(), "--authorization", "node,rbac"];
    if with_tls {
        flags.extend(files.flags());
    }
    let server = Server::start(BINARY, &flags).await;
    let plain = Client::new(server.address());
    let client = if with_tls { plain.over_tls(authority.trust()) } else { plain };
    let names = if with_tls { ["HTTP/1.1 over TLS", "HTTP/2 over TLS"] } else { ["HTTP/1.1", "HTTP/2"] };
    let ways = vec![(names[0], client), (names[1], client.over_http2())];
    let admin = client.with_token(ADMIN);
    let manifests = world().into_iter().map(|manifest| (manifest.collection, manifest.body));
    let granted = callers().iter().filter_map(grants).flatten().collect::<Vec<_>>();
    for (collection, body) in manifests.chain(granted) {
        // The type of a new definition is served a moment later.
        let mut answer = admin.post(&collection, &body).await;
        while answer.code == 404 {
            answer = admin.post(&collection, &body).await;
        }
        answer.with_code(201);
    }
    RefusedScene { server, admin, ways, _folder: folder }
}

impl RefusedScene {
    /// Version of the newest object.
    async fn version(&self) -> u64 {
        self.admin.get("/api/v1/configmaps?limit=1").await.with_code(200).resource_version()
    }

    /// Waits until every caller may send what its role allows.
    async fn settle(&self) {
        for identity in identities() {
            for request in requests().iter().filter(|request| identity.allowed.contains(request.name)) {
                let begun = Instant::now();
                while matches!(self.admin.send(http_request(request, &identity)).await.code.as_u16(), 401 | 403) {
                    assert!(begun.elapsed() < Duration::from_secs(10), "{} may not {}", identity.name, request.name);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }
}

fn http_request(row: &RefusedRequest, identity: &RefusedIdentity) -> Request<Full<Bytes>> {
    let credentials = identity.headers.iter().map(|(name, value)| (*name, value.as_str()));
    let headers: Vec<(&str, &str)> = row.headers.iter().copied().chain(credentials).collect();
    let body = if row.body.is_null() { Bytes::new() } else { row.body.to_string().into() };
    Client::request(row.method.clone(), row.path, &headers, body)
}

/// Returns the fault of an answer that must be a refusal.
fn fault(answer: &Answer, code: u16, is_head: bool) -> Option<String> {
    let text = String::from_utf8_lossy(&answer.body);
    let status: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let is_status = is_head || (status["kind"] == "Status" && status["code"] == code && status["status"] == "Failure");
    let tells = text.contains(MARKER) || text.contains("not found");
    let is_refusal = answer.code == code && is_status && !tells && !answer.headers.contains_key("etag");
    (!is_refusal).then(|| format!("expected {code}, got {}: {text}", answer.code))
}

/// Sends each row that must be refused, on a connection of its own and on one that the administrator uses. Returns their
/// number, and the faults.
async fn refuse_all(scene: &RefusedScene) -> (usize, Vec<String>) {
    let rows: Vec<_> = identities()
        .into_iter()
        .flat_map(|identity| {
            let refused: Vec<_> = requests().into_iter().filter(|row| !identity.allowed.contains(row.name)).collect();
            refused
                .into_iter()
                .map(move |row| {
                    (
                        row,
                        RefusedIdentity {
                            headers: identity.headers.clone(),
                            name: identity.name.clone(),
                            allowed: BTreeSet::new(),
                            ..identity
                        },
                    )
                })
                .collect::<Vec<_>>()
        })
        .collect();
    let sent = scene.ways.iter().flat_map(|(way, client)| rows.iter().map(move |row| (*way, *client, row)));
    let count = rows.len() * scene.ways.len();
    let checks = stream::iter(sent).map(async |(way, client, (row, identity))| {
        let mut faults = Vec::new();
        let mut check = |phase: &str, answer: &Answer| {
            let fault = fault(answer, identity.code, row.method == http::Method::HEAD);
            faults.extend(fault.map(|fault| format!("{way} {phase}: {} {}: {fault}", identity.name, row.name)));
        };
        check("fresh", &client.send(http_request(row, identity)).await);
        let mut shared = Connection::open(client).await;
        let admin = Client::request(
            http::Method::GET,
            "/api/v1/nodes",
            &[("authorization", &format!("Bearer {ADMIN}"))],
            Bytes::new(),
        );
        shared.send(admin).await.with_code(200);
        check("after the administrator", &shared.send(http_request(row, identity)).await);
        faults
    });
    (count, checks.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await.concat())
}

async fn refuse_over(with_tls: bool) {
    let scene = scene(with_tls).await;
    scene.settle().await;
    let before = scene.version().await;
    let (count, faults) = refuse_all(&scene).await;
    println!(
        "{count} requests are refused on fresh connections and on shared ones, over {:?}",
        scene.ways.iter().map(|(way, _)| *way).collect::<Vec<_>>()
    );
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert!(count >= 2 * 100, "{count}");
    assert_eq!(scene.version().await, before, "a refused write changed nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_without_a_right_are_refused() {
    refuse_over(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_without_a_right_are_refused_over_tls() {
    refuse_over(true).await;
}

/// Goal: a right ends with its binding. Method: each allowed row is sent until it is refused, after its binding is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_withdrawn_right_is_refused_within_a_second() {
    let scene = scene(false).await;
    scene.settle().await;
    let (_, client) = scene.ways[0];
    for caller in callers() {
        let Some([_, (bindings, binding)]) = grants(&caller) else { continue };
        let name = binding["metadata"]["name"].as_str().unwrap().to_owned();
        scene.admin.delete(&format!("{bindings}/{name}")).await.with_code(200);
        let deleted = Instant::now();
        let identity = identities().into_iter().find(|identity| identity.name == caller.name).unwrap();
        for row in requests().iter().filter(|row| identity.allowed.contains(row.name)) {
            while fault(&client.send(http_request(row, &identity)).await, 403, row.method == http::Method::HEAD)
                .is_some()
            {
                assert!(deleted.elapsed() < WITHDRAWN_WITHIN, "{} may still {}", caller.name, row.name);
            }
        }
    }
    drop(scene.server);
}
