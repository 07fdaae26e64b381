//! Webhooks and policies where users have rights, objects are on disk, and servers end.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use cache_server::{
    Server,
    config::{AuthenticationConfig, AuthorizationConfig, AuthorizationMode, Config, TlsFiles},
};
use serde_json::{Value, json};
use tests::{
    genuine::token_of,
    http::{Client, MERGE_PATCH},
    objects::configmap,
    tls::{Authority, Trust},
};
use tokio::{
    sync::oneshot,
    task::{JoinHandle, JoinSet},
    time::timeout,
};

use super::{
    CONFIGMAPS,
    conversion::{DEFINITIONS, converted, define, host, hosts},
    hook::{Hook, Reply},
    named,
    policies::{POLICIES, bind, enforce, policy},
};
use crate::durable::full::{SmallDisk, fill};

const WORKS: u8 = 0;
const FAILS: u8 = 1;
const HANGS: u8 = 2;

/// A webhook that converts hosts in one of these ways.
async fn converter(mode: &Arc<AtomicU8>) -> Hook {
    let mode = Arc::clone(mode);
    Hook::start(move |_, question| match mode.load(Ordering::SeqCst) {
        FAILS => Reply::Raw(503, String::new()),
        HANGS => Reply::Never,
        _ => {
            let desired = question["desiredAPIVersion"].as_str().expect("a version");
            let objects = question["objects"].as_array().expect("objects").iter();
            let objects: Vec<_> = objects.map(|object| converted(object.clone(), desired)).collect();
            Reply::Response(json!({"convertedObjects": objects, "result": {"status": "Success"}}))
        }
    })
    .await
}

/// A server in this process. Ends when it is stopped, or with the test.
struct RunningServer {
    client: Client,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl RunningServer {
    async fn start(config: Config) -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let grace = Duration::from_secs(1);
        let config = Config { listen, grace, acts_as_cluster: true, ..config };
        // The tasks of an earlier one hold its folder a little longer.
        let server = loop {
            match Server::bind(config.clone()).await {
                Ok(server) => break server,
                Err(error) if format!("{error:?}").contains("InUse") => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        };
        let client = Client::new(server.local_addr());
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(server.serve(async { drop(stopped.await) }));
        Self { client, stop, serving }
    }

    async fn on(folder: &Path) -> Self {
        Self::start(Config { data_dir: Some(folder.to_owned()), ..Config::default() }).await
    }

    async fn stop(self) {
        let _ = self.stop.send(());
        timeout(Duration::from_secs(30), self.serving).await.expect("ends").expect("no panic");
    }
}

/// A server with users, over TLS, whose clients speak HTTP/2.
struct UserServer {
    server: RunningServer,
    trust: Trust,
    _folder: tempfile::TempDir,
}

impl UserServer {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority::new();
        let files = authority.issue(folder.path());
        let line = |user: &str, groups: &str| format!("{},{user},{user},\"{groups}\"\n", token_of(user));
        let users = [line("admin", "system:masters"), line("alice", ""), line("bob", "")].concat();
        let tokens = folder.path().join("tokens.csv");
        fs::write(&tokens, users).expect("a file");
        let authentication = AuthenticationConfig { token_auth_file: Some(tokens), ..AuthenticationConfig::default() };
        let authorization = AuthorizationConfig { modes: vec![AuthorizationMode::Rbac] };
        let tls = Some(TlsFiles { cert: files.cert, key: files.key });
        let server = RunningServer::start(Config { authentication, authorization, tls, ..Config::default() }).await;
        Self { server, trust: authority.trust(), _folder: folder }
    }

    fn client(&self, user: &str) -> Client {
        self.server.client.over_tls(self.trust.clone()).over_http2().with_token(&token_of(user))
    }
}

/// Lets a user do everything with resources in the namespace `default`.
async fn grant(admin: &Client, user: &str, group: &str, resource: &str) {
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let name = format!("{user}-{resource}");
    let role = json!({"metadata": {"name": name},
        "rules": [{"apiGroups": [group], "resources": [resource], "verbs": ["*"]}]});
    admin.post(&format!("{path}/roles"), &role).await.with_code(201);
    let api = "rbac.authorization.k8s.io";
    let binding = json!({"metadata": {"name": name}, "roleRef": {"apiGroup": api, "kind": "Role", "name": name},
        "subjects": [{"apiGroup": api, "kind": "User", "name": user}]});
    admin.post(&format!("{path}/rolebindings"), &binding).await.with_code(201);
}

fn v2(name: &str) -> Value {
    host("v2", name, &json!({"host": "a", "port": 1}))
}

/// Goal: users with few rights write through webhooks and policies as others do, and one whose webhook hangs stops no other one.
/// Method: two users over TLS and HTTP/2, with flow control; one of them floods a hung webhook.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_a_hung_webhook_stops_no_other_user() {
    let server = UserServer::start().await;
    let [admin, alice, bob] = ["admin", "alice", "bob"].map(|user| server.client(user));
    let mode = Arc::new(AtomicU8::new(WORKS));
    let hook = converter(&mode).await;
    define(&admin, &hook).await;
    grant(&admin, "alice", "example.com", "hosts").await;
    grant(&admin, "bob", "", "configmaps").await;
    enforce(
        &admin,
        "named",
        &["configmaps"],
        "request.userInfo.username != 'bob' || object == null || has(object.data)",
        &json!({}),
    )
    .await;
    let made = alice.post(&hosts("v2"), &v2("a")).await.with_code(201).json();
    assert_eq!(alice.get(&format!("{}/a", hosts("v1"))).await.with_code(200).json()["metadata"], made["metadata"]);
    alice.post(CONFIGMAPS, &named("a")).await.with_code(403);
    bob.get(&hosts("v2")).await.with_code(403);
    let denied = bob.post(CONFIGMAPS, &named("a")).await.with_code(422);
    assert!(denied.message().contains("ValidatingAdmissionPolicy 'named'"), "{}", denied.message());
    mode.store(HANGS, Ordering::SeqCst);
    let mut flood = JoinSet::new();
    for at in 0..400 {
        flood.spawn(async move { alice.try_send(post(&hosts("v2"), &v2(&format!("h{at}")))).await.map(drop) });
    }
    while hook.seen().len() < 20 {
        tokio::task::yield_now().await;
    }
    for at in 0..50 {
        let object = configmap(&format!("m{at}")).data("1");
        bob.post(CONFIGMAPS, object.body()).await.with_code(201);
        bob.get(&object.path()).await.with_code(200);
    }
    // An ordinary user can neither change the policy nor the definition.
    alice.delete(&format!("{POLICIES}/named")).await.with_code(403);
    alice.delete(&format!("{DEFINITIONS}/hosts.example.com")).await.with_code(403);
    drop(flood);
    mode.store(WORKS, Ordering::SeqCst);
    while alice.post(&hosts("v2"), &v2("after")).await.code != 201 {
        tokio::task::yield_now().await;
    }
}

fn post(path: &str, body: &Value) -> http::Request<http_body_util::Full<bytes::Bytes>> {
    Client::request(http::Method::POST, path, &[("content-type", "application/json")], body.to_string().into())
}

/// Goal: each version shows the objects of an earlier process, with their versions, once its webhook is there. Method: a
/// restart while it is away, by a folder of objects, with a policy.
#[tokio::test]
async fn a_restart_keeps_versions_while_a_webhook_is_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = RunningServer::on(folder.path()).await;
    let mode = Arc::new(AtomicU8::new(WORKS));
    let hook = converter(&mode).await;
    define(&server.client, &hook).await;
    enforce(&server.client, "p", &["hosts"], "object.metadata.name != 'bad'", &json!({})).await;
    let made = server.client.post(&hosts("v2"), &v2("a")).await.with_code(201).json();
    let at = made["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    server.client.post(&hosts("v2"), &v2("b")).await.with_code(201);
    server.stop().await;
    mode.store(FAILS, Ordering::SeqCst);
    let server = RunningServer::on(folder.path()).await;
    let client = server.client;
    let why =
        "conversion webhook for example.com/v1, Kind=Host failed: the server is currently unable to handle the request";
    assert_eq!(client.get(&hosts("v2")).await.with_code(500).message(), why);
    assert_eq!(client.get(&hosts("v1")).await.keys(), ["default/a", "default/b"]);
    client.post(&hosts("v1"), &host("v1", "c", &json!({"address": "c:1"}))).await.with_code(201);
    client.post(&hosts("v1"), &host("v1", "bad", &json!({"address": "c:1"}))).await.with_code(422);
    let path = format!("{}/a", hosts("v2"));
    client.patch(&path, MERGE_PATCH, &json!({"spec": {"port": 2}})).await.with_code(500);
    client.delete(&path).await.with_code(500);
    mode.store(WORKS, Ordering::SeqCst);
    assert_eq!(client.get(&path).await.with_code(200).json(), made);
    let mut watch = client.watch(&format!("{}?watch=1&resourceVersion={at}", hosts("v2"))).await;
    let events = watch.events(2).await;
    assert_eq!(tests::http::briefs(&events), ["ADDED default/b", "ADDED default/c"]);
    assert_eq!(events[1].object["spec"], json!({"host": "c", "port": 1}));
    client.post(&hosts("v2"), &v2("bad")).await.with_code(422);
    server.stop().await;
}

/// Goal: a server ends in time though writes and reads wait for a webhook. Method: both, and a server that is stopped.
#[tokio::test]
async fn a_server_ends_while_conversions_hang() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = RunningServer::on(folder.path()).await;
    let client = server.client;
    let mode = Arc::new(AtomicU8::new(WORKS));
    let hook = converter(&mode).await;
    define(&client, &hook).await;
    client.post(&hosts("v1"), &host("v1", "a", &json!({"address": "a:1"}))).await.with_code(201);
    mode.store(HANGS, Ordering::SeqCst);
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { client.try_send(post(&hosts("v2"), &v2("b"))).await.map(drop) });
    waiting.spawn(async move { client.try_get(&hosts("v2")).await.map(drop) });
    while hook.seen().len() < 2 {
        tokio::task::yield_now().await;
    }
    server.stop().await;
    mode.store(WORKS, Ordering::SeqCst);
    let server = RunningServer::on(folder.path()).await;
    assert_eq!(server.client.get(&hosts("v2")).await.with_code(200).keys(), ["default/a"]);
    server.stop().await;
}

/// Goal: on a full disk, writes through webhooks and policies say so, and deletions go on. Method: objects fill a small disk.
#[tokio::test(flavor = "multi_thread")]
async fn converted_writes_on_a_full_disk_say_so() {
    let Some(disk) = SmallDisk::mount("full disk with webhooks") else { return };
    let server = RunningServer::on(&disk.path("data")).await;
    let client = server.client;
    let mode = Arc::new(AtomicU8::new(WORKS));
    let hook = converter(&mode).await;
    define(&client, &hook).await;
    enforce(&client, "p", &["hosts"], "object == null || object.metadata.name != 'bad'", &json!({})).await;
    client.post(&hosts("v2"), &v2("a")).await.with_code(201);
    fill(client).await;
    client.post(&hosts("v2"), &v2("b")).await.with_code(507);
    client.post(&hosts("v2"), &v2("bad")).await.with_code(422);
    let path = format!("{}/a", hosts("v2"));
    client.patch(&path, MERGE_PATCH, &json!({"spec": {"port": 2}})).await.with_code(507);
    assert_eq!(client.get(&path).await.with_code(200).json()["spec"]["port"], 1);
    client.delete(&path).await.with_code(200);
    assert_eq!(client.get(&hosts("v1")).await.keys(), [""; 0]);
    server.stop().await;
}

/// Goal: a policy that refuses all writes of everything does not refuse its own end. Method: an ordinary administrator over TLS.
#[tokio::test]
async fn a_policy_against_everything_can_be_deleted() {
    let server = UserServer::start().await;
    let admin = server.client("admin");
    let rules = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]);
    let more = json!({"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "false"}]});
    admin.post(POLICIES, &policy("all", &[], &more)).await.with_code(201);
    bind(&admin, "all", &json!({})).await.with_code(201);
    admin.post(CONFIGMAPS, &named("a")).await.with_code(422);
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    admin.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await.with_code(201);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    admin.patch(&format!("{POLICIES}/all"), MERGE_PATCH, &label).await.with_code(200);
    admin.delete(&format!("{POLICIES}/all")).await.with_code(200);
    admin.post(CONFIGMAPS, &named("a")).await.with_code(201);
}
