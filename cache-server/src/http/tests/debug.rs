//! Documents about open watches and readers of the window.

use serde_json::Value;

use super::*;
use crate::limits::{LOGGED_CHARS_MAX, READER_CHARS_MAX};

const STATE: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

async fn watch(server: &Server, path: &str) -> Body {
    server.open(with_header(path, header::USER_AGENT, "kubelet/v1.36")).await.into_body()
}

/// Reads a watch until it has nothing to send: it may yield to other tasks before.
fn drain(watch: &mut Body) {
    let mut pending = 0;
    while pending < 3 {
        pending = if watch.frame().now_or_never().is_some() { 0 } else { pending + 1 };
    }
}

async fn watches(server: &Server, query: &str) -> Value {
    let answer = server.get(&format!("/debug/watches{query}")).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    answer.json()
}

/// Goal: an operator sees each open watch, where it stands and why. Method: one that has sent everything, one of which a part
/// of a long state was read, and one whose client does not read changes.
#[tokio::test(start_paused = true)]
async fn open_watches_are_listed_with_their_states() {
    let server = Server::new();
    for number in 0..500 {
        server.create("ns", &format!("c{number}"), "").await;
    }
    let quiet = "/api/v1/namespaces/other/configmaps?watch=1&resourceVersion=0&labelSelector=app%3Dx&fieldSelector=metadata.name%3Da";
    let mut idle = watch(&server, quiet).await;
    drain(&mut idle);
    let mut initial = watch(&server, &format!("/api/v1/configmaps?watch=1&{STATE}")).await;
    initial.frame().await.expect("a part").expect("is whole");
    let mut behind = watch(&server, "/api/v1/configmaps?watch=1").await;
    drain(&mut behind);
    let last = server.create("ns", "last", "").await;
    behind.frame().await.expect("a change").expect("is whole");
    server.create("ns", "later", "").await;
    server.get("/api/v1/namespaces/ns/configmaps/later").await;
    let list = watches(&server, "").await;
    let rows = list["watches"].as_array().expect("rows");
    let parts =
        |row: &Value| [row["state"].clone(), row["waitsFor"].clone()].map(|part| part.as_str().unwrap().to_owned());
    assert_eq!(
        rows.iter().map(parts).collect::<Vec<_>>(),
        [["live", "events"], ["initial", "socket"], ["parked", "socket"]]
    );
    let quiet = &rows[0];
    assert_eq!((&quiet["namespace"], &quiet["labelSelector"]), (&"other".into(), &"app=x".into()));
    assert_eq!((&quiet["fieldSelector"], &quiet["bytesQueued"]), (&"metadata.name=a".into(), &0.into()));
    assert_eq!(quiet["eventsBehind"], 0, "changes that do not concern a watch do not move it: {list}");
    assert_eq!((&quiet["resource"], &quiet["userAgent"]), (&"configmaps".into(), &"kubelet/v1.36".into()));
    assert!(rows[1]["bytesQueued"].as_u64() > Some(1_000) && rows[1]["bytesQueued"] == rows[1]["bytesSent"], "{list}");
    assert_eq!((&rows[2]["resourceVersion"], &rows[2]["eventsBehind"]), (&last.into(), &1.into()), "{list}");
    assert!(rows[2]["eventsSent"].as_u64() >= Some(1), "{list}");
    assert!(!list.to_string().contains("\"data\""), "no object is shown");
    drop(initial);
    assert_eq!(watches(&server, "").await["open"], 2);
}

/// Goal: no client makes the document long. Method: a namespace and a User-Agent of 4,000 characters.
#[tokio::test]
async fn texts_of_clients_are_shortened() {
    let (server, long) = (Server::new(), "n".repeat(4_000));
    let path = format!("/api/v1/namespaces/{long}/configmaps?watch=1");
    let _watch = server.open(with_header(&path, header::USER_AGENT, &long)).await.into_body();
    let list = watches(&server, "").await;
    let chars = |name: &str| list["watches"][0][name].as_str().expect("a text").chars().count();
    assert_eq!((chars("namespace"), chars("userAgent")), (LOGGED_CHARS_MAX + 1, READER_CHARS_MAX + 1), "{list}");
}

/// Goal: the document is short, however many watches there are. Method: pages of three.
#[tokio::test]
async fn open_watches_are_listed_in_pages() {
    let server = Server::new();
    let mut open = Vec::new();
    for _ in 0..8 {
        open.push(watch(&server, "/api/v1/configmaps?watch=1").await);
    }
    let (mut query, mut numbers) = ("?limit=3".to_owned(), Vec::new());
    loop {
        let page = watches(&server, &query).await;
        let rows = page["watches"].as_array().expect("rows").clone();
        assert!(rows.len() <= 3 && page["open"] == 8, "{page}");
        numbers.extend(rows.iter().map(|row| row["number"].as_u64().expect("a number")));
        let Some(next) = page["continue"].as_str() else { break };
        query = format!("?limit=3&continue={next}");
    }
    assert!(numbers.len() == 8 && numbers.is_sorted(), "{numbers:?}");
    assert_eq!(server.get("/debug/watches?continue=x").await.code, 400);
    assert_eq!(server.send(with_body("POST", "/debug/watches", String::new())).await.code, 405);
}

fn of_configmaps(types: &Value) -> &Value {
    types.as_array().expect("types").iter().find(|ty| ty["resource"] == "configmaps").expect("a cache")
}

/// Goal: an operator finds the reader that keeps a window large. Method: a page of a list, a list of which a part was read, and
/// changes after them.
#[tokio::test(start_paused = true)]
async fn readers_that_hold_a_window_open_are_listed() {
    let server = Server::new();
    for number in 0..500 {
        server.create("ns", &format!("c{number}"), "").await;
    }
    server.get("/api/v1/configmaps?limit=1").await;
    server.create("ns", "a", "").await;
    let mut list = server.open(get("/api/v1/configmaps")).await.into_body();
    list.frame().await.expect("a part").expect("is whole");
    server.create("ns", "b", "").await;
    server.get("/api/v1/namespaces/ns/configmaps/b").await;
    let types = server.get("/debug/snapshots").await.json();
    let configmaps = of_configmaps(&types);
    let held: Vec<_> =
        configmaps["oldest"].as_array().expect("rows").iter().map(|row| (&row["kind"], &row["eventsHeld"])).collect();
    assert_eq!(held, [(&"page".into(), &2.into()), (&"list".into(), &1.into())], "{types}");
    assert_eq!(configmaps["holders"], 2);
    assert!(
        configmaps["oldest"][0]["heldSeconds"].as_u64() > Some(60)
            && configmaps["oldest"][1]["bytesRead"].as_u64() > Some(0)
    );
    drop(list);
    let types = server.get("/debug/snapshots").await.json();
    assert_eq!(of_configmaps(&types)["holders"], 1, "{types}");
}

#[tokio::test]
async fn status_is_a_text_for_people() {
    let server = Server::new();
    server.get("/api/v1/configmaps").await;
    let answer = server.get("/statusz").await;
    assert_eq!(
        (answer.code, &answer.headers[header::CONTENT_TYPE]),
        (200, &"text/plain; charset=utf-8".parse().unwrap())
    );
    for line in ["cache-server statusz", "Up: 0 hr 00 min 0", "Emulation version: v1.", "Watches: 0", "/debug/watches"]
    {
        assert!(answer.body.contains(line), "{line} in {}", answer.body);
    }
}

/// A server whose roles decide, and whose only caller has no rights but those of everyone.
async fn restricted() -> Server {
    let authorization = AuthorizationConfig { modes: vec![AuthorizationMode::Rbac] };
    let mut app = App::new(Config { authorization, ..Config::default() });
    app.access.let_in(&User::authenticated("alice", []));
    app.start().await;
    Server { app: Arc::new(app) }
}

/// Goal: callers without a right learn nothing. Method: a user with the rights of every authenticated one.
#[tokio::test]
async fn documents_about_the_server_need_a_right() {
    let server = restricted().await;
    for path in ["/metrics", "/statusz", "/debug/watches", "/debug/snapshots"] {
        let answer = server.get(path).await;
        assert_eq!((answer.code, answer.json()["kind"].as_str()), (403, Some("Status")), "{path}");
        assert!(answer.message().contains(&format!("User \"alice\" cannot get path \"{path}\"")), "{}", answer.body);
    }
}

/// Goal: the role of the example is enough to scrape and to look. Method: its objects, and its service account.
#[tokio::test]
async fn the_role_of_the_example_is_enough() {
    let authorization = AuthorizationConfig { modes: vec![AuthorizationMode::Rbac] };
    let server = Server::with(Config { authorization, ..Config::default() });
    server.app.start().await;
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/observe/scrape.yaml");
    let file = std::fs::read_to_string(file).expect("the example");
    for (object, plural) in file.split("---\n").zip(["clusterroles", "clusterrolebindings"]) {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{plural}");
        let mut request = with_body("POST", &path, object.to_owned());
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
        let answer = server.send(request).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
    }
    let prometheus = User::authenticated("system:serviceaccount:monitoring:prometheus", []);
    for path in ["/metrics", "/statusz", "/debug/watches", "/debug/snapshots"] {
        let info = RequestInfo { verb: "get".into(), path: path.into(), resource: None };
        let mut changes = server.app.access.authorizer.changes().expect("roles change");
        while !server.app.access.authorizer.decide(&prometheus, &info).await.expect("roles are read").is_allowed() {
            changes.changed().await.expect("roles are followed");
        }
    }
}
