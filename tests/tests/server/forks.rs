//! Forks of a server: their own objects from one moment on, below a path of their origin.

use std::time::Duration;

use cache_server::{
    config::{AuthorizationConfig, AuthorizationMode, Config},
    limits::FORKS_MAX,
    testing::{self, ApiServer},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, PostParams, WatchParams},
};
use serde_json::{Value, json};
use tests::{
    http::{Client, MERGE_PATCH, briefs},
    objects::{Object, configmap, namespace},
    process::{STOP_WAIT, Server},
    tls::Authority,
};
use tokio::time::{sleep, timeout};

use crate::cluster::client_of;

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const CONFIGMAPS: &str = "/api/v1/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// Timeout of each step of a kube client.
const PATIENCE: Duration = Duration::from_secs(30);

/// Forks the server of `origin`. Returns the answer, and a client of the fork.
async fn fork(origin: Client) -> (Value, Client) {
    let made = origin.post("/snapshots", &json!({})).await.with_code(201).json();
    let (name, server) = (text(&made["name"]), text(&made["server"]));
    let (host, path) = server.split_once("://").expect("a scheme").1.split_once('/').expect("a path");
    assert_eq!(format!("/{path}"), format!("/snapshots/{name}"));
    assert!(host.starts_with("127.0.0.1:"), "{server}");
    (made.clone(), origin.below(&format!("/{path}")))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// Waits until a right that was granted counts.
async fn allowed(client: Client, path: &str) {
    let counts = async {
        while client.get(path).await.code != 200 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, counts).await.unwrap_or_else(|_| panic!("{path} is not allowed to {client:?}"));
}

async fn start() -> Server {
    Server::start(BINARY, &["--forks"]).await
}

/// Goal: nothing that is written on one side is seen on the other. Method: writes of each kind to a server, its fork, and a
/// fork of that, with a watch of each.
#[tokio::test]
async fn a_fork_and_its_origin_change_apart() {
    let server = start().await;
    let origin = server.client();
    let (kept, old) = (configmap("kept"), configmap("old"));
    origin.create(&kept).await;
    let last = origin.create(&old).await;
    let (made, first) = fork(origin).await;
    assert_eq!(text(&made["resourceVersion"]), last.to_string());
    let listed = first.get(CONFIGMAPS).await.with_code(200);
    assert_eq!(listed.keys(), ["default/kept", "default/old"]);
    assert_eq!(listed.resource_version(), last);
    let uid = |answer: Value| answer["metadata"]["uid"].clone();
    assert_eq!(uid(first.get(&kept.path()).await.json()), uid(origin.get(&kept.path()).await.json()));

    let watch =
        |client: Client| async move { client.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={last}")).await };
    let (mut of_origin, mut of_first) = (watch(origin).await, watch(first).await);
    let in_first = first.create(&configmap("first")).await;
    first.delete(&old.path()).await.with_code(200);
    let (_, second) = fork(first).await;
    let mut of_second = second.watch(&format!("{CONFIGMAPS}?watch=1")).await;
    let in_origin = origin.create(&configmap("origin")).await;
    assert_eq!((in_first, in_origin), (last + 1, last + 1), "revisions go on, and are each server's own");
    second.update(&kept.clone().data("second")).await;

    assert_eq!(briefs(&of_origin.events(1).await), ["ADDED default/origin"]);
    assert_eq!(briefs(&of_first.events(2).await), ["ADDED default/first", "DELETED default/old"]);
    assert_eq!(
        briefs(&of_second.events(3).await),
        ["ADDED default/first", "ADDED default/kept", "MODIFIED default/kept"]
    );
    for (client, keys) in
        [(origin, &["kept", "old", "origin"][..]), (first, &["first", "kept"]), (second, &["first", "kept"])]
    {
        let expected: Vec<String> = keys.iter().map(|name| format!("default/{name}")).collect();
        assert_eq!(client.get(CONFIGMAPS).await.keys(), expected);
    }
}

/// Goal: a client goes on across a fork if nothing was written, and learns it otherwise. Method: a position of the origin, in
/// forks made at it and after it.
#[tokio::test]
async fn a_watch_goes_on_in_a_fork_or_begins_anew() {
    let server = start().await;
    let origin = server.client();
    origin.create(&configmap("a")).await;
    let listed = origin.get(CONFIGMAPS).await.resource_version();
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={listed}");
    let (_, here) = fork(origin).await;
    origin.create(&configmap("b")).await;
    let (_, later) = fork(origin).await;
    let mut resumed = here.watch(&path).await;
    here.create(&configmap("c")).await;
    assert_eq!(briefs(&resumed.events(1).await), ["ADDED default/c"]);
    assert_eq!(briefs(&later.watch(&path).await.events(1).await), ["ERROR 410"]);
    let token = origin.get(&format!("{CONFIGMAPS}?limit=1")).await.token().expect("a next page");
    here.get(&format!("{CONFIGMAPS}?limit=1&continue={token}")).await.with_code(410);
}

/// Goal: a fork ends at once, and leaves nothing to its clients. Method: a fork with a watch, and one beside it.
#[tokio::test]
async fn an_ended_fork_ends_its_watches_and_is_not_found() {
    let server = Server::start(BINARY, &["--forks", "--log", "cache_server=debug"]).await;
    let origin = server.client();
    origin.create(&configmap("a")).await;
    let ((made, first), (other, second)) = (fork(origin).await, fork(origin).await);
    let mut watches = Vec::new();
    for client in [origin, first, second] {
        let mut watch = client.watch(&format!("{CONFIGMAPS}?watch=1")).await;
        assert_eq!(briefs(&watch.events(1).await), ["ADDED default/a"]);
        watches.push(watch);
    }
    let all = origin.get("/snapshots").await.with_code(200).json();
    let mut names: Vec<_> = all["items"].as_array().expect("a list").iter().map(|one| text(&one["name"])).collect();
    names.sort_unstable();
    let mut expected = [text(&made["name"]), text(&other["name"])];
    expected.sort_unstable();
    assert_eq!(names, expected);
    let path = format!("/snapshots/{}", text(&made["name"]));
    assert_eq!(origin.get(&path).await.with_code(200).json(), made);
    assert_eq!(origin.delete(&path).await.with_code(200).json(), made);
    assert_eq!(watches[1].rest(STOP_WAIT).await.len(), 0);
    let missing = first.get(CONFIGMAPS).await.with_code(404);
    assert_eq!(missing.message(), format!("snapshots \"{}\" not found", text(&made["name"])));
    server.logged(&format!("uri={path}{CONFIGMAPS}")).await;
    origin.delete(&path).await.with_code(404);
    origin.get(&path).await.with_code(404);
    for (client, watch) in [(origin, 0), (second, 2)] {
        client.create(&configmap("b")).await;
        assert_eq!(briefs(&watches[watch].events(1).await), ["ADDED default/b"]);
    }
    server.terminate();
    assert_eq!(watches[2].rest(STOP_WAIT).await.len(), 0);
    assert_eq!(server.ended().await.code, Some(0));
}

/// Goal: forgotten forks do not grow without bound. Method: as many forks as there may be, and one more.
#[tokio::test]
async fn forks_have_a_limit() {
    let server = start().await;
    let origin = server.client();
    let (first, _) = fork(origin).await;
    for _ in 1..FORKS_MAX {
        origin.post("/snapshots", &json!({})).await.with_code(201);
    }
    let refused = origin.post("/snapshots", &json!({})).await.with_code(429);
    assert!(refused.message().starts_with(&format!("there are {FORKS_MAX} forks, which is the limit")));
    assert_eq!(refused.header("retry-after"), "1");
    origin.delete(&format!("/snapshots/{}", text(&first["name"]))).await.with_code(200);
    fork(origin).await;
    origin.put("/snapshots", &json!({})).await.with_code(405);
    origin.post(&format!("/snapshots/{}", text(&first["name"])), &json!({})).await.with_code(405);
}

/// Goal: forks are for tests on one machine. Method: a server without the flag, and settings that it does not go with.
#[tokio::test]
async fn forks_are_off_unless_the_server_is_one_for_tests() {
    let server = Server::start(BINARY, &[]).await;
    assert_eq!(server.client().post("/snapshots", &json!({})).await.code, 404);
    assert_eq!(server.client().get("/snapshots").await.code, 404);
    assert_eq!(server.client().get("/snapshots/a/api/v1/pods").await.code, 404);
    let folder = tempfile::tempdir().expect("a folder");
    let elsewhere = folder.path().join("data").display().to_string();
    for (flags, reason) in [
        (&["--listen", "0.0.0.0:0", "--insecure-anonymous"][..], "--forks needs --listen with a loopback address"),
        (&["--listen", "127.0.0.1:0", "--data-dir", &elsewhere], "--forks needs objects in memory"),
        (&["--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:1"], "--forks needs objects in memory"),
    ] {
        let ended = Server::run(BINARY, &[&["serve", "--forks"], flags].concat()).await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(reason), "{ended:?}");
    }
}

/// Goal: forks are a right, and each decides by its own roles. Method: certificates and roles over TLS, by both versions of
/// HTTP.
#[tokio::test]
async fn a_fork_has_the_callers_of_its_origin_and_its_own_roles() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new();
    let (files, ca) = (authority.issue(folder.path()), folder.path().join("ca.crt"));
    std::fs::write(&ca, authority.pem()).expect("a file");
    let ca = ca.display().to_string();
    let key = folder.path().join("signer.key");
    std::fs::write(&key, rcgen::KeyPair::generate().expect("a key").serialize_pem()).expect("a file");
    let key = key.display().to_string();
    let tokens = ["--service-account-issuer", "https://a", "--service-account-signing-key-file", &key];
    let flags = [&["--forks", "--client-ca-file", &ca, "--authorization", "rbac"][..], &tokens].concat();
    let server = Server::start(BINARY, &[&files.flags(), &flags[..]].concat()).await;
    let client = |name: &str, groups: &[&str]| {
        server.client().over_tls(authority.trust_as(&authority.issue_user(folder.path(), name, groups)))
    };
    let (admin, user) = (client("admin", &["system:masters"]), client("user", &[]));
    let refused = user.post("/snapshots", &json!({})).await.with_code(403);
    let moved = fork(admin).await.1.get("/openapi/v3/api/v1?hash=OLD").await.with_code(301);
    assert!(moved.header("location").starts_with("?hash="), "the path of a fork stays");
    assert!(refused.message().contains("cannot post path \"/snapshots\""), "{}", refused.message());
    let granted = async |client: Client, rule: Value| {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "granted"}, "rules": [rule]});
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "granted"}, "subjects": [{"kind": "User", "name": "user"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "granted"}});
        for manifest in [role, binding] {
            assert_eq!(client.create_manifest(&manifest).await.code, 201);
        }
    };
    for admin in [admin, admin.over_http2()] {
        let (made, in_fork) = fork(admin).await;
        assert!(text(&made["server"]).starts_with("https://"));
        let (other, _) = fork(admin).await;
        let listed = in_fork.get("/snapshots").await.with_code(200).json();
        assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "a fork knows itself alone: {listed}");
        in_fork.delete(&format!("/snapshots/{}", text(&other["name"]))).await.with_code(404);
        for path in ["/metrics", "/debug/watches", "/statusz", "/ui/"] {
            assert_eq!(in_fork.get(path).await.code, 404, "{path} is of the whole process");
        }
        let fork_user = user.below(&format!("/snapshots/{}", text(&made["name"])));
        fork_user.get(CONFIGMAPS).await.with_code(403);
        granted(
            in_fork,
            json!({"apiGroups": [""], "resources": ["configmaps", "serviceaccounts/token"], "verbs": ["*"]}),
        )
        .await;
        allowed(fork_user, CONFIGMAPS).await;
        let account = "/api/v1/namespaces/default/serviceaccounts";
        in_fork.post(account, &json!({"metadata": {"name": "a"}})).await.with_code(201);
        let account = format!("{account}/a/token");
        in_fork.post(&account, &json!({"spec": {}})).await.with_code(201);
        let refused = fork_user.post(&account, &json!({"spec": {}})).await.with_code(403).message();
        assert!(refused.contains("a fork issues tokens to system:masters only"), "{refused}");
        fork_user.create(&configmap("own")).await;
        fork_user.over_http2().get(CONFIGMAPS).await.with_code(200);
        user.get(CONFIGMAPS).await.with_code(403);
        user.get("/snapshots/missing/api/v1/configmaps").await.with_code(403);
        user.delete(&format!("/snapshots/{}", text(&made["name"]))).await.with_code(403);
    }
    granted(admin, json!({"nonResourceURLs": ["/snapshots", "/snapshots/*"], "verbs": ["get", "post", "delete"]}))
        .await;
    allowed(user, "/snapshots").await;
    let (made, fork_user) = fork(user).await;
    fork_user.get(CONFIGMAPS).await.with_code(403);
    user.delete(&format!("/snapshots/{}", text(&made["name"]))).await.with_code(200);
}

fn widgets(plural: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"size": {"type": "integer"}}});
    let kind = plural.to_uppercase();
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

/// Goal: definitions are in effect in a fork from its first request on, and change apart. Method: a definition before the
/// fork, one after it, and the deletion of the first, while its objects are watched.
#[tokio::test]
async fn a_fork_has_the_definitions_of_its_origin() {
    let origin = testing::start().await;
    let client = client_of(&origin);
    client.post(DEFINITIONS, &widgets("widgets")).await.with_code(201);
    client.post(WIDGETS, &json!({"metadata": {"name": "a"}, "size": 1})).await.with_code(201);
    let copy = origin.fork();
    let in_copy = client_of(&copy);
    assert_eq!(in_copy.get(WIDGETS).await.with_code(200).keys(), ["default/a"]);
    let refused = in_copy.post(WIDGETS, &json!({"metadata": {"name": "b"}, "size": "big"})).await.with_code(422);
    assert!(refused.message().contains("size: Invalid value"), "{}", refused.message());
    let mut watch = in_copy.watch(&format!("{WIDGETS}?watch=1")).await;
    assert_eq!(briefs(&watch.events(1).await), ["ADDED default/a"]);

    in_copy.post(DEFINITIONS, &widgets("others")).await.with_code(201);
    let others = WIDGETS.replace("widgets", "others");
    in_copy.post(&others, &json!({"metadata": {"name": "o"}})).await.with_code(201);
    client.get(&others).await.with_code(404);
    in_copy.patch(&format!("{WIDGETS}/a"), MERGE_PATCH, &json!({"size": 2})).await.with_code(200);
    assert_eq!(briefs(&watch.events(1).await), ["MODIFIED default/a"], "another definition ends no watch");
    let index = in_copy.get("/openapi/v3").await.with_code(200).json();
    assert!(index["paths"]["apis/example.com/v1"].is_object(), "{index}");

    in_copy.delete(&format!("{DEFINITIONS}/widgets.example.com")).await.with_code(200);
    assert_eq!(briefs(&watch.rest(STOP_WAIT).await), ["DELETED default/a"]);
    in_copy.get(WIDGETS).await.with_code(404);
    assert_eq!(client.get(WIDGETS).await.with_code(200).keys(), ["default/a"]);
}

/// Goal: a fork goes on with deletions that finalizers held in its origin. Method: a namespace and a definition that
/// terminate, each with a held object.
#[tokio::test]
async fn a_fork_goes_on_with_deletions() {
    let origin = testing::start().await;
    let client = client_of(&origin);
    client.post(DEFINITIONS, &widgets("widgets")).await.with_code(201);
    client.create(&namespace("ending")).await;
    let mut held = configmap("held").namespace("ending").body().clone();
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    client.post("/api/v1/namespaces/ending/configmaps", &held).await.with_code(201);
    let widget = json!({"metadata": {"name": "held", "finalizers": ["example.com/held"]}});
    client.post(WIDGETS, &widget).await.with_code(201);
    client.delete("/api/v1/namespaces/ending").await.with_code(200);
    client.delete(&format!("{DEFINITIONS}/widgets.example.com")).await.with_code(200);

    let between = origin.fork();
    let copy = between.fork();
    let in_copy = client_of(&copy);
    let refused = in_copy.post("/api/v1/namespaces/ending/configmaps", &json!({"metadata": {"name": "new"}})).await;
    assert_eq!(refused.code, 403, "{}", refused.message());
    let mut namespaces = in_copy.watch("/api/v1/namespaces?watch=1&fieldSelector=metadata.name%3Dending").await;
    let mut definitions = in_copy.watch(&format!("{DEFINITIONS}?watch=1")).await;
    assert_eq!(briefs(&namespaces.events(1).await), ["ADDED ending"]);
    assert_eq!(briefs(&definitions.events(1).await), ["ADDED widgets.example.com"]);
    let release = json!({"metadata": {"finalizers": null}});
    in_copy.patch("/api/v1/namespaces/ending/configmaps/held", MERGE_PATCH, &release).await.with_code(200);
    in_copy.patch(&format!("{WIDGETS}/held"), MERGE_PATCH, &release).await.with_code(200);
    while namespaces.event().await.brief() != "DELETED ending" {}
    while definitions.event().await.brief() != "DELETED widgets.example.com" {}
    client.get("/api/v1/namespaces/ending/configmaps/held").await.with_code(200);
    client.get(&format!("{DEFINITIONS}/widgets.example.com")).await.with_code(200);
}

/// Goal: a Rust program's tests have a server each. Method: kube's client at a server and at its forks, of which one ends.
#[tokio::test]
async fn tests_of_a_kube_program_fork_a_server() {
    let client = |server: &ApiServer| {
        kube::Client::try_from(kube::Config::new(server.url().parse().expect("a URL"))).expect("a client")
    };
    let api = testing::start().await;
    let maps = |server: &ApiServer| Api::<ConfigMap>::default_namespaced(client(server));
    let named = |name: &str| {
        let map: Object = configmap(name);
        serde_json::from_value::<ConfigMap>(map.body().clone()).expect("a ConfigMap")
    };
    let names = async |server: &ApiServer| {
        let listed = maps(server).list(&ListParams::default()).await.expect("lists");
        listed.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>()
    };
    maps(&api).create(&PostParams::default(), &named("fixture")).await.expect("creates");
    let (first, second) = (api.fork(), api.fork());
    for (server, name) in [(&first, "first"), (&second, "second")] {
        let made = maps(server).create(&PostParams::default(), &named(name)).await.expect("creates");
        assert!(made.uid().is_some());
    }
    assert_eq!(names(&api).await, ["fixture"]);
    assert_eq!(names(&first).await, ["first", "fixture"]);
    assert_eq!(names(&second).await, ["fixture", "second"]);
    let of_first = maps(&first);
    let watch = of_first.watch(&WatchParams::default(), "0").await.expect("watches");
    let mut watch = std::pin::pin!(watch);
    let third = first.fork();
    drop(first);
    let ended = async { while futures::StreamExt::next(&mut watch).await.is_some() {} };
    timeout(PATIENCE, ended).await.expect("its watch ends");
    let missing = of_first.list(&ListParams::default()).await.expect_err("it has ended");
    assert!(matches!(&missing, kube::Error::Api(status) if status.code == 404), "{missing}");
    // The last user keeps the server.
    drop((api, second));
    assert_eq!(names(&third).await, ["first", "fixture"]);
}

/// Goal: a server in the background takes the settings of a test. Method: one with roles, which refuses an anonymous caller.
#[tokio::test]
async fn a_server_of_tests_has_settings() {
    let authorization = AuthorizationConfig { modes: vec![AuthorizationMode::Rbac] };
    let server = testing::start_with(Config { authorization, ..Config::default() }).await.expect("starts");
    client_of(&server).get(CONFIGMAPS).await.with_code(403);
    let refused = Config { data_dir: Some("/dev/null/missing".into()), ..Config::default() };
    assert!(testing::start_with(refused).await.is_err());
}
