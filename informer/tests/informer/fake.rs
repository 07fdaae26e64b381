//! The fake API server alone: time, faults and writes. The table suite tests what it shares with a real server.

use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use informer::testing::{Body, FakeApiServer, RequestKind};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};
use tokio::time::Instant;

const CONFIGMAPS: &str = "/api/v1/configmaps";

fn configmap(name: &str, data: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "a"}, "data": {"k": data}})
}

async fn ask(server: &FakeApiServer, uri: &str) -> http::Response<Body> {
    let request = http::Request::get(uri).body(Empty::<bytes::Bytes>::new()).unwrap();
    server.respond(request).await.unwrap()
}

async fn answer(server: &FakeApiServer, uri: &str) -> (u16, Value) {
    let response = ask(server, uri).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap())
}

/// An open watch, read line by line.
struct Lines(Body);

impl Lines {
    async fn open(server: &FakeApiServer, query: &str) -> Self {
        let response = ask(server, &format!("{CONFIGMAPS}?watch=true&{query}")).await;
        assert_eq!(response.status(), 200, "{query}");
        Self(response.into_body())
    }

    /// Returns type, name and position of the next line; `end` after a clean end, `broken` after a broken connection.
    async fn next(&mut self) -> String {
        let line = match self.0.frame().await {
            None => return "end".into(),
            Some(Err(_)) => return "broken".into(),
            Some(Ok(frame)) => frame.into_data().unwrap(),
        };
        let event: Value = serde_json::from_slice(&line).unwrap();
        let (kind, object) = (event["type"].as_str().unwrap(), &event["object"]);
        let text = |member: &str| object["metadata"][member].as_str().unwrap_or("-").to_owned();
        if kind == "ERROR" {
            return format!("ERROR {}", object["code"]);
        }
        format!("{kind} {}@{}", text("name"), text("resourceVersion"))
    }

    async fn is_silent_for(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.next()).await.is_err()
    }
}

const STREAM: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn what_is_put_has_identity_and_the_next_position() {
    let server = FakeApiServer::new().at(41).put(configmap("x", "1"));
    assert_eq!(server.resource_version(), 42);
    let (_, first) = answer(&server, "/api/v1/namespaces/a/configmaps/x").await;
    server.put(configmap("x", "1"));
    assert_eq!(server.resource_version(), 42, "nothing changed");
    server.put(configmap("x", "2"));
    let (_, second) = answer(&server, "/api/v1/namespaces/a/configmaps/x").await;
    assert_eq!((&second["metadata"]["resourceVersion"], &second["data"]["k"]), (&json!("43"), &json!("2")));
    assert_eq!(first["metadata"]["uid"], second["metadata"]["uid"]);
    assert!(first["metadata"]["uid"].is_string() && first["metadata"]["creationTimestamp"].is_string());
    server.delete(configmap("x", "")).put(configmap("x", "2"));
    assert_eq!(server.resource_version(), 45);
    let (_, third) = answer(&server, "/api/v1/namespaces/a/configmaps/x").await;
    assert_ne!(first["metadata"]["uid"], third["metadata"]["uid"], "another object");
    server.delete(configmap("y", ""));
    assert_eq!(server.resource_version(), 45, "what is not there is not deleted");
}

#[tokio::test(start_paused = true)]
async fn types_are_served_from_their_first_mention_on() {
    let server = FakeApiServer::new();
    let crons = "/apis/stable.example.com/v1/crontabs";
    assert_eq!(answer(&server, "/apis/apps/v1/deployments").await.0, 200);
    assert_eq!(answer(&server, crons).await.0, 404);
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("stable.example.com", "v1", "CronTab"));
    server.put(DynamicObject::new("x", &resource).within("a").data(json!({"spec": {"every": "5m"}})));
    let (code, list) = answer(&server, &format!("{crons}?fieldSelector=spec.every%3D5m")).await;
    assert_eq!((code, &list["kind"], &list["items"][0]["kind"]), (200, &json!("CronTabList"), &json!("CronTab")));
    let irregular = ApiResource { plural: "sheep".into(), ..resource };
    server.serve_resource(&ApiResource { kind: "Sheep".into(), ..irregular });
    assert_eq!(answer(&server, "/apis/stable.example.com/v1/sheep").await.1["kind"], "SheepList");
    assert_eq!(answer(&server.serve::<Node>(), "/api/v1/nodes").await.1["kind"], "NodeList");
}

#[tokio::test(start_paused = true)]
async fn controllers_write_through_kube() {
    let server = FakeApiServer::new().at(9);
    let api: Api<ConfigMap> = Api::namespaced(server.client(), "a");
    let declared: ConfigMap = serde_json::from_value(configmap("x", "1")).unwrap();
    let created = api.create(&PostParams::default(), &declared).await.unwrap();
    let is = |error: kube::Error, code: u16| matches!(error, kube::Error::Api(status) if status.code == code);
    assert!(is(api.create(&PostParams::default(), &declared).await.unwrap_err(), 409));
    let patch = json!({"data": {"k": "2", "new": "3"}});
    let patched = api.patch("x", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(patched.data.unwrap()["new"], "3");
    assert!(is(api.replace("x", &PostParams::default(), &created).await.unwrap_err(), 409), "it was changed since");
    let status = json!({"status": {"phase": "odd"}});
    let refused = api.patch_status("x", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap_err();
    assert!(is(refused, 404), "a ConfigMap has no status");
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 1);
    api.delete("x", &DeleteParams::default()).await.unwrap();
    assert!(is(api.delete("x", &DeleteParams::default()).await.unwrap_err(), 404));
    assert_eq!((server.resource_version(), server.count(RequestKind::Write)), (12, 7));
    let bad = http::Request::post("/api/v1/namespaces/a/configmaps").body(Full::<bytes::Bytes>::from("[]")).unwrap();
    assert_eq!(server.respond(bad).await.unwrap().status(), 400);
}

/// Goal: writes that a real server refuses do not succeed in tests. Method: common mistakes of programs.
#[tokio::test(start_paused = true)]
async fn writes_that_a_real_server_refuses_are_refused() {
    let server = FakeApiServer::new().put(configmap("x", "1"));
    let (all, own) = (Api::<ConfigMap>::all(server.client()), Api::<ConfigMap>::namespaced(server.client(), "a"));
    let named = |name: &str, namespace: &str| -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": namespace}})).unwrap()
    };
    let code = |error: kube::Error| {
        let kube::Error::Api(status) = error else { panic!("{error:?}") };
        status.code
    };
    let posted = PostParams::default();
    assert_eq!(code(all.create(&posted, &named("y", "a")).await.unwrap_err()), 405, "in which namespace?");
    assert_eq!(code(own.create(&posted, &named("y", "b")).await.unwrap_err()), 400, "another namespace");
    assert_eq!(code(own.create(&posted, &named("", "a")).await.unwrap_err()), 422, "no name");
    assert_eq!(code(own.replace("x", &posted, &named("y", "a")).await.unwrap_err()), 400, "another name");
    let other = DeleteParams::default().preconditions(Preconditions { uid: Some("u".into()), resource_version: None });
    assert_eq!(code(own.delete("x", &other).await.unwrap_err()), 409, "another object");
    let old = DeleteParams::default().preconditions(Preconditions { uid: None, resource_version: Some("1".into()) });
    assert_eq!(code(own.delete("x", &old).await.unwrap_err()), 409, "changed since");
    assert_eq!(server.resource_version(), 2, "nothing was written");

    let now = DeleteParams::default().preconditions(Preconditions {
        uid: own.get("x").await.unwrap().metadata.uid,
        resource_version: Some("2".into()),
    });
    own.delete("x", &now).await.unwrap();
    let generated: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "", "generateName": "z-"}})).unwrap();
    assert!(own.create(&posted, &generated).await.unwrap().metadata.name.unwrap().starts_with("z-"));
}

#[test]
#[should_panic(expected = "200 is no error")]
fn success_is_no_failure() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _inside = runtime.enter();
    FakeApiServer::new().fail_next(1, 200);
}

#[tokio::test(start_paused = true)]
async fn finalizers_hold_an_object_until_the_last_is_taken() {
    let mut held = configmap("x", "1");
    held["metadata"]["finalizers"] = json!(["me"]);
    let server = FakeApiServer::new().put(held.clone());
    let mut watch = Lines::open(&server, "resourceVersion=2").await;
    server.delete(held.clone()).delete(held.clone()).put(held);
    assert_eq!(watch.next().await, "MODIFIED x@3");
    assert_eq!(server.resource_version(), 3, "being deleted is not taken back");
    let (_, marked) = answer(&server, "/api/v1/namespaces/a/configmaps/x").await;
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    let mut free = marked;
    free["metadata"]["finalizers"] = json!([]);
    server.put(free);
    assert_eq!(watch.next().await, "DELETED x@4");
    assert_eq!(answer(&server, "/api/v1/namespaces/a/configmaps/x").await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_every_minute_once_something_moved() {
    let server = FakeApiServer::new().at(9).put(configmap("x", "1"));
    let began = Instant::now();
    let mut watch = Lines::open(&server, "resourceVersion=10&allowWatchBookmarks=true&timeoutSeconds=200").await;
    assert!(watch.is_silent_for(100 * Duration::from_secs(1)).await, "nothing moved");
    server.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}));
    assert_eq!((watch.next().await, began.elapsed()), ("BOOKMARK -@11".into(), 2 * MINUTE));
    assert_eq!((watch.next().await, began.elapsed()), ("BOOKMARK -@11".into(), 3 * MINUTE));
    assert_eq!((watch.next().await, began.elapsed().as_secs()), ("BOOKMARK -@11".into(), 198));
    assert_eq!((watch.next().await, began.elapsed().as_secs()), ("end".into(), 200));
    server.bookmarks_every(Duration::MAX);
    let mut watch = Lines::open(&server, "resourceVersion=10&allowWatchBookmarks=true").await;
    assert_eq!((watch.next().await, began.elapsed().as_secs()), ("end".into(), 2000), "half an hour unless asked");
}

/// Goal: each fault has the effect and the scope its name says, until it is removed.
#[tokio::test(start_paused = true)]
async fn faults_do_what_their_names_say() {
    let server = FakeApiServer::new().at(6).put(configmap("x", "1")).put(configmap("y", "1"));
    let list = |query: &str| format!("{CONFIGMAPS}?{query}");
    let stream = format!("{CONFIGMAPS}?watch=true&{STREAM}");

    server.fail_next(2, 429).retry_after(Duration::from_secs(7));
    let refused = ask(&server, CONFIGMAPS).await;
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (429, "7"));
    assert_eq!(answer(&server, &stream).await.0, 429);
    assert_eq!(answer(&server, CONFIGMAPS).await.0, 200);

    server.refuse_stream(422);
    let (code, status) = answer(&server, &stream).await;
    assert_eq!((code, &status["details"]["causes"][0]["field"]), (422, &json!("sendInitialEvents")));
    let mut legacy = Lines::open(&server, "allowWatchBookmarks=true&timeoutSeconds=1").await;
    assert_eq!([legacy.next().await, legacy.next().await, legacy.next().await], ["ADDED x@7", "ADDED y@8", "end"]);

    server.recover().forbid_watch();
    assert_eq!(answer(&server, &list("watch=true&resourceVersion=8")).await.0, 403);
    assert_eq!(answer(&server, &stream).await.0, 403);

    server.recover().expire_at(7);
    assert_eq!(Lines::open(&server, "resourceVersion=7").await.next().await, "ERROR 410");
    assert_eq!(answer(&server, &list("resourceVersion=7&resourceVersionMatch=Exact")).await.0, 410);
    assert_eq!(answer(&server, &list("resourceVersion=7&resourceVersionMatch=NotOlderThan")).await.0, 200);
    assert!(Lines::open(&server, "resourceVersion=8").await.is_silent_for(MINUTE).await);

    server.recover();
    let page = answer(&server, &list("limit=1")).await.1;
    let next = list(&format!("limit=1&continue={}", page["metadata"]["continue"].as_str().unwrap()));
    server.page_tokens_expire();
    let (code, status) = answer(&server, &next).await;
    assert_eq!(code, 410);
    let latest = status["metadata"]["continue"].as_str().unwrap();
    assert_eq!(answer(&server, &list(&format!("continue={latest}"))).await.1["items"][0]["metadata"]["name"], "y");
    assert_eq!(answer(&server.recover(), &next).await.0, 200);

    server.refuse_connections();
    let request = http::Request::get(CONFIGMAPS).body(Empty::<bytes::Bytes>::new()).unwrap();
    assert!(server.respond(request).await.is_err());

    server.recover().stall_streams();
    assert!(Lines::open(&server, STREAM).await.is_silent_for(10 * MINUTE).await);
    server.recover().withhold_end_bookmark();
    let mut watch = Lines::open(&server, STREAM).await;
    assert_eq!([watch.next().await, watch.next().await], ["ADDED x@7", "ADDED y@8"]);
    server.put(configmap("x", "2"));
    assert_eq!(watch.next().await, "MODIFIED x@9");
    assert!(watch.is_silent_for(10 * MINUTE).await, "no bookmark of any kind");
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_open_close_break_and_fall_silent() {
    let server = FakeApiServer::new().at(6).put(configmap("x", "1"));
    let mut closed = Lines::open(&server, "resourceVersion=7").await;
    server.close_watches();
    assert_eq!(closed.next().await, "end");
    let mut silent = Lines::open(&server, "resourceVersion=7").await;
    server.silence().put(configmap("x", "2")).close_watches();
    assert!(silent.is_silent_for(100 * MINUTE).await, "and never ends");
    server.close_watches_after(MINUTE);
    let began = Instant::now();
    let mut cut = Lines::open(&server, "resourceVersion=7").await;
    assert_eq!([cut.next().await, cut.next().await], ["MODIFIED x@8", "end"]);
    assert_eq!(began.elapsed(), MINUTE);
    server.close_watches_after(Duration::ZERO);
    assert_eq!(Lines::open(&server, "resourceVersion=7").await.next().await, "end");
    server.recover().break_next_body(30);
    let mut broken = ask(&server, CONFIGMAPS).await.into_body();
    assert_eq!(broken.frame().await.unwrap().unwrap().into_data().unwrap().len(), 30);
    assert!(broken.frame().await.unwrap().is_err());
    assert_eq!(answer(&server, CONFIGMAPS).await.0, 200, "only the next one");
}

#[tokio::test(start_paused = true)]
async fn histories_go_back_and_are_replaced() {
    let server = FakeApiServer::new().at(6).put(configmap("x", "1")).put(configmap("x", "2")).put(configmap("y", "1"));
    let uid = |list: &Value| list["items"][0]["metadata"]["uid"].clone();
    let before = answer(&server, CONFIGMAPS).await.1;
    let mut watch = Lines::open(&server, "resourceVersion=9").await;
    server.restore(7);
    assert_eq!(watch.next().await, "end");
    let restored = answer(&server, CONFIGMAPS).await.1;
    assert_eq!((server.resource_version(), restored["items"].as_array().unwrap().len()), (7, 1));
    assert_eq!((uid(&restored), &restored["items"][0]["data"]["k"]), (uid(&before), &json!("1")));
    server.put(configmap("z", "1"));
    assert_eq!(server.resource_version(), 8, "used again");
    server.replace_history();
    let other = answer(&server, CONFIGMAPS).await.1;
    assert_eq!(other["items"][0]["metadata"]["resourceVersion"], "7");
    assert_ne!(uid(&other), uid(&before));
    let mut watch = Lines::open(&server, "resourceVersion=7").await;
    assert_eq!(watch.next().await, "ADDED z@8");
}

/// Goal: replicas share one history and no faults. Method: one replica falls behind, a read waits for it, and the other
/// one fails alone.
#[tokio::test(start_paused = true)]
async fn replicas_share_objects_and_nothing_else() {
    let first = FakeApiServer::new().at(6);
    let second = first.replica();
    let mut watch = Lines::open(&second, "resourceVersion=6").await;
    first.put(configmap("x", "1"));
    assert_eq!(watch.next().await, "ADDED x@7");
    second.freeze();
    first.put(configmap("x", "2")).fail_next(1, 500);
    assert!(watch.is_silent_for(MINUTE).await);
    let began = Instant::now();
    let at = format!("{CONFIGMAPS}?resourceVersion=8");
    let (code, status) = answer(&second, &at).await;
    assert_eq!((code, &status["details"]["causes"][0]["reason"]), (504, &json!("ResourceVersionTooLarge")));
    assert_eq!(began.elapsed(), Duration::from_secs(3));
    let (late, _) = tokio::join!(answer(&second, &at), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        second.recover()
    });
    assert_eq!(late.0, 200);
    assert_eq!(watch.next().await, "MODIFIED x@8");
    assert_eq!(answer(&first, CONFIGMAPS).await.0, 500);
    assert_eq!((first.requests().len(), second.requests().len()), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn requests_are_logged_by_kind_and_time() {
    let server = FakeApiServer::new().put(configmap("x", "1"));
    tokio::time::sleep(MINUTE).await;
    let one = "/api/v1/namespaces/a/configmaps";
    for uri in [
        CONFIGMAPS,
        &format!("{CONFIGMAPS}?continue=x"),
        &format!("{CONFIGMAPS}?watch=true"),
        &format!("{CONFIGMAPS}?watch=true&{STREAM}"),
        &format!("{CONFIGMAPS}?watch=true&resourceVersion=2"),
        &format!("{one}/x"),
        &format!("{one}?fieldSelector=metadata.name%3Dx&limit=1"),
    ] {
        ask(&server, uri).await;
    }
    use RequestKind::{Get, List, Page, Stream, Watch};
    let kinds: Vec<_> = server.requests().iter().map(|seen| seen.kind).collect();
    assert_eq!(kinds, [List, Page, Stream, Stream, Watch, Get, Get]);
    assert_eq!(server.initial_reads(), 3);
    assert_eq!(server.requests()[0].to_string(), "60.000s GET /api/v1/configmaps");
}

/// Goal: over HTTP/2, GOAWAY ends a connection after its last watch and breaks none. Method: a watch before GOAWAY, a write
/// after it, and the watch's end.
#[tokio::test(start_paused = true)]
async fn goaway_lets_watches_go_on() {
    let server = FakeApiServer::new();
    let (near, far) = tokio::io::duplex(64 << 10);
    let serving = server.clone();
    let served = tokio::spawn(async move { serving.serve_connection(far).await });
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(near)).await.unwrap();
    tokio::spawn(connection);
    let get = |uri: &str| http::Request::get(format!("http://server{uri}")).body(Empty::<bytes::Bytes>::new()).unwrap();
    let response = sender.send_request(get(&format!("{CONFIGMAPS}?watch=true"))).await.unwrap();
    let mut body = response.into_body();

    server.go_away().put(configmap("one", "x"));
    let line = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(line.starts_with(b"{\"type\":\"ADDED\""));
    let refused = async {
        while sender.send_request(get(CONFIGMAPS)).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), refused).await.expect("no new requests");
    assert!(!served.is_finished());
    server.close_watches();
    while body.frame().await.transpose().unwrap().is_some() {}
    served.await.unwrap().unwrap();
}
