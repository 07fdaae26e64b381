//! Requests whose clients leave: the future of each is dropped after a few polls, at every route and verb. Whatever it held
//! or had begun must come back, and nothing that others wait for may depend on it.

mod upstream;

use std::{fs, path::Path};

use http_body_util::{StreamBody, combinators::UnsyncBoxBody};
use tokio::time::sleep;

use super::*;
use crate::{
    access::{
        authenticate::Authenticator,
        testing::{OTHER_SEATS, objects},
    },
    config::{AuthenticationConfig, FlowSettings},
    limits::{FILE_CHECK_EVERY, RESTART_PAUSE_MAX, WITHDRAWAL_WAIT},
};

/// Polls after which a request is dropped, at most.
const POLLS_MAX: usize = 6;

type LateBody = UnsyncBoxBody<Bytes, body::BodyError>;

const MAPS: &str = "/api/v1/namespaces/a/configmaps";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Method, path, Content-Type and body of a request.
type DroppedRequest = (&'static str, String, &'static str, String);

fn requests() -> Vec<DroppedRequest> {
    let map = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"dropped"}}"#;
    let lease = r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"dropped"}}"#;
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"dropped"},"spec":{"nodeName":"n"}}"#;
    let review = r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}"#;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/a/leases";
    let watch_list = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let large = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"large"}},"data":{{"k":"{}"}}}}"#,
        "v".repeat(600_000)
    );
    let mut rows: Vec<(&str, String, &str, &str)> = [
        "/api",
        "/apis",
        "/api/v1",
        "/openapi/v3",
        "/version",
        "/metrics",
        "/livez",
        "/readyz?verbose",
        "/none",
        "/api/v1/configmaps",
        "/api/v1/namespaces/a/configmaps/kept",
        "/api/v1/namespaces/a/configmaps/none",
        "/api/v1/configmaps?limit=1",
        "/api/v1/configmaps?watch=1",
        "/api/v1/configmaps?watch=1&resourceVersion=0",
        "/api/v1/watch/configmaps",
        "/apis/coordination.k8s.io/v1/leases",
    ]
    .map(|path| ("GET", path.to_owned(), "", ""))
    .into();
    rows.push(("GET", format!("/api/v1/configmaps?watch=1&{watch_list}"), "", ""));
    rows.extend([
        ("POST", MAPS.to_owned(), "", map),
        ("POST", MAPS.to_owned(), "", large.as_str()),
        (
            "PUT",
            format!("{MAPS}/kept"),
            "",
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kept"},"data":{"k":"new"}}"#,
        ),
        ("PUT", format!("{leases}/dropped"), "", lease),
        ("PATCH", format!("{MAPS}/kept"), MERGE, r#"{"data":{"k":"w"}}"#),
        ("PATCH", format!("{MAPS}/made?fieldManager=m"), APPLY, map),
        ("POST", "/api/v1/namespaces/a/pods".to_owned(), "", pod),
        ("DELETE", "/api/v1/namespaces/a/pods/dropped".to_owned(), "", ""),
        ("DELETE", format!("{MAPS}/dropped"), "", ""),
        ("DELETE", leases.to_owned(), "", ""),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(), "", review),
        ("POST", "/none".to_owned(), "", map),
    ]);
    rows.into_iter().map(|(method, path, content, body)| (method, path, content, body.to_owned())).collect()
}

/// Each method at each path of each type that is served, with each content type of patches.
fn requests_of_types(app: &App) -> Vec<DroppedRequest> {
    let patches = [MERGE, APPLY, "application/json-patch+json", "application/strategic-merge-patch+json"];
    let mut rows = Vec::new();
    for ty in app.registry.now().iter() {
        let root = if ty.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}", ty.api_version()) };
        let (all, namespace) = (format!("{root}/{}", ty.plural), if ty.namespaced { "/namespaces/a" } else { "" });
        let collection = format!("{root}{namespace}/{}", ty.plural);
        let body = format!(
            r#"{{"apiVersion":"{}","kind":"{}","metadata":{{"name":"dropped"}},"spec":{{}}}}"#,
            ty.api_version(),
            ty.kind
        );
        rows.extend([("GET", all, "", String::new()), ("POST", collection.clone(), "", body.clone())]);
        for object in ["", "/status", "/scale"].map(|part| format!("{collection}/dropped{part}")) {
            rows.extend([("GET", object.clone(), "", String::new()), ("PUT", object.clone(), "", body.clone())]);
            rows.extend(patches.map(|content_type| {
                let body = if content_type.contains("json-patch") { "[]" } else { &body };
                ("PATCH", format!("{object}?fieldManager=m"), content_type, body.to_owned())
            }));
            rows.push(("DELETE", object, "", String::new()));
        }
        let dropped = "fieldSelector=metadata.name%3Ddropped";
        rows.push(("DELETE", format!("{collection}?{dropped}"), "", String::new()));
    }
    rows
}

/// A body that arrives in two pieces, each after a poll without one.
fn late(body: &str) -> LateBody {
    let half = body.len() / 2;
    let pieces: Vec<Bytes> = [&body[..half], &body[half..]].map(|piece| Bytes::from(piece.to_owned())).into();
    let pieces = futures::stream::iter(pieces).then(|piece| async {
        tokio::task::yield_now().await;
        Ok::<_, body::BodyError>(http_body::Frame::data(piece))
    });
    UnsyncBoxBody::new(StreamBody::new(Box::pin(pieces)))
}

fn request(token: &str, (method, path, content_type, body): &DroppedRequest) -> Request<LateBody> {
    let request = Request::builder().method(*method).uri(path).header(header::AUTHORIZATION, format!("Bearer {token}"));
    let content_type = if content_type.is_empty() { "application/json" } else { content_type };
    request.header(header::CONTENT_TYPE, content_type).body(late(body)).expect("a request")
}

fn get_as(token: &str, path: &str) -> Request<LateBody> {
    request(token, &("GET", path.to_owned(), "", String::new()))
}

/// A server with one seat and a queue, whose users come from a file of tokens.
async fn server(tokens: &Path) -> Server {
    server_with(tokens, Config::default()).await
}

async fn server_with(tokens: &Path, config: Config) -> Server {
    fs::write(tokens, "t-alice,alice,1\nt-bob,bob,2\n").unwrap();
    let flow = FlowSettings { seats: 1 + OTHER_SEATS, ..FlowSettings::default() };
    let authentication =
        AuthenticationConfig { token_auth_file: Some(tokens.to_owned()), ..AuthenticationConfig::default() };
    let mut app = App::new(Config { first_revision: Some(100), flow, authentication, ..config });
    let (config, metrics) = (app.config.authentication.clone(), app.metrics.authentication.clone());
    let authenticator = Authenticator::load(&config, None, metrics, true, &app.files).await.expect("usable settings");
    app.access.authenticate_by(authenticator);
    app.access.flow.configure(objects(1, 50));
    app.start().await;
    let app = Arc::new(app);
    app.keep_checking_rights();
    Server { app }
}

impl Server {
    async fn send_as(&self, token: &str, path: &str) -> u16 {
        let response = handle(Arc::clone(&self.app), get_as(token, path)).await;
        let code = response.status().as_u16();
        response.into_body().collect().await.expect("a whole body");
        code
    }

    /// Sends every request with each number of polls, with these pauses, and drops it, or its response.
    async fn drop_all_after(&self, token: &str, rows: &[DroppedRequest], polls_max: usize, pause: impl AsyncFn()) {
        for polls in 1..=polls_max {
            for row in rows {
                let mut handling = Box::pin(handle(Arc::clone(&self.app), request(token, row)));
                for _ in 0..polls {
                    // A response is dropped unread.
                    if handling.as_mut().now_or_never().is_some() {
                        break;
                    }
                    pause().await;
                }
            }
        }
    }

    async fn drop_all(&self, token: &str, rows: &[DroppedRequest]) {
        self.drop_all_after(token, rows, POLLS_MAX, tokio::task::yield_now).await;
    }

    /// True if no request holds anything, and no review is on its way.
    fn is_idle(&self) -> bool {
        self.app.access.is_idle() && self.app.upstream().is_none_or(Upstream::is_idle)
    }

    /// The tasks that `/readyz` names as failing.
    async fn failing_tasks(&self) -> Vec<String> {
        let unready = self.get("/readyz").await;
        let named = unready.body.lines().filter_map(|line| line.strip_prefix("[-]task/"));
        named.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
    }

    /// Bytes that are free for bodies of the server and of a user.
    fn free(&self, user: &str) -> [usize; 4] {
        let share = self.app.access.share_of(&User::authenticated(user, [])).expect("a limited user");
        let rooms = [&self.app.room, &share.room];
        let free = rooms.map(|room| [false, true].map(|is_large| room.pool(is_large).free()));
        [free[0][0], free[0][1], free[1][0], free[1][1]]
    }

    /// Waits until all is given back. Tasks that go on without their client end on their own.
    async fn until_idle(&self, free: [usize; 4], what: &str) {
        let idle = async {
            while self.free("alice") != free || !self.is_idle() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let idle = tokio::time::timeout(Duration::from_secs(30), idle).await;
        assert!(idle.is_ok(), "{what}: {:?} of {free:?} bytes are free; idle: {}", self.free("alice"), self.is_idle());
    }
}

/// Goal: requests that are cut give back what they hold. Method: every route and verb, dropped after each number of polls:
/// with a free seat, and while a list holds the only one, so that all others wait.
#[tokio::test(start_paused = true)]
async fn a_dropped_request_gives_everything_back() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder.path().join("tokens.csv")).await;
    let stored = &("POST", MAPS.to_owned(), "", r#"{"metadata":{"name":"kept"}}"#.to_owned());
    assert_eq!(handle(Arc::clone(&server.app), request("t-bob", stored)).await.status(), 201);
    let free = server.free("alice");
    server.drop_all("t-alice", &requests()).await;
    server.until_idle(free, "with a free seat").await;
    server.drop_all("t-alice", &requests_of_types(&server.app)).await;
    server.until_idle(free, "of each type").await;
    let list = handle(Arc::clone(&server.app), get_as("t-bob", "/api/v1/configmaps")).await;
    assert_eq!(list.status(), 200);
    server.drop_all("t-alice", &requests()).await;
    drop(list);
    server.until_idle(free, "while all wait").await;
    // The one seat is free, and each kind of request works.
    for path in ["/version", "/api/v1/configmaps", "/api/v1/namespaces/a/configmaps/kept"] {
        let answered = tokio::time::timeout(Duration::from_secs(1), server.send_as("t-bob", path)).await;
        assert_eq!(answered, Ok(200), "{path}");
    }
    let large = requests().into_iter().find(|(_, _, _, body)| body.len() > 500_000).expect("a large body");
    let created = handle(Arc::clone(&server.app), request("t-bob", &large)).await.status().as_u16();
    assert!([201, 409].contains(&created), "{created}: large writes have their turn");
}

/// Goal: no request puts off the reload of a file, nor the end of a watch whose right is gone. Method: a token leaves the file
/// while requests are dropped all the time.
#[tokio::test(start_paused = true)]
async fn dropped_requests_put_off_no_reload() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.csv");
    let server = server(&tokens).await;
    let mut watch = handle(Arc::clone(&server.app), get_as("t-alice", "/api/v1/configmaps?watch=1")).await;
    assert_eq!(watch.status(), 200);
    let reading = tokio::spawn(async move { while let Some(Ok(_)) = watch.body_mut().frame().await {} });
    fs::write(&tokens, "t-bob,bob,2\n").unwrap();
    let removed = Instant::now();
    while removed.elapsed() < FILE_CHECK_EVERY + Duration::from_millis(500) {
        server.drop_all("t-wrong", &requests()).await;
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(server.send_as("t-alice", "/version").await, 401, "the token is gone");
    assert_eq!(server.send_as("t-bob", "/version").await, 200);
    let ended = tokio::time::timeout(WITHDRAWAL_WAIT, reading).await;
    ended.expect("the watch ends").expect("its reader does not panic");
}

/// Goal: a panic freezes no task of a server, and `/readyz` names the tasks. Method: all of them panic; then a token leaves the
/// file while its watch is open.
#[tokio::test(start_paused = true)]
async fn tasks_that_panic_are_named_and_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.csv");
    let modes = vec![AuthorizationMode::Rbac, AuthorizationMode::AlwaysAllow];
    let server =
        server_with(&tokens, Config { authorization: AuthorizationConfig { modes }, ..Config::default() }).await;
    server.app.keep_flow_control();
    let mut watch = handle(Arc::clone(&server.app), get_as("t-alice", "/api/v1/configmaps?watch=1")).await;
    assert_eq!(watch.status(), 200);
    let reading = tokio::spawn(async move { while let Some(Ok(_)) = watch.body_mut().frame().await {} });
    sleep(Duration::from_millis(100)).await;
    server.app.tasks.break_all();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(server.get("/readyz").await.code, 500);
    let expected = [
        "authorization/clusterrolebindings",
        "authorization/clusterroles",
        "authorization/rolebindings",
        "authorization/roles",
        "definitions",
        "files",
        "flow-seats",
        "watch-rights",
    ];
    assert_eq!(server.failing_tasks().await, expected);
    fs::write(&tokens, "t-bob,bob,2\n").unwrap();
    let ended = tokio::time::timeout(WITHDRAWAL_WAIT, reading).await;
    ended.expect("the watch ends").expect("its reader does not panic");
    sleep(RESTART_PAUSE_MAX).await;
    assert_eq!(server.get("/readyz").await.code, 200);
}
