//! Documents about open watches and readers of the window.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::digest::{SHA256, digest};
use serde_json::Value;
use watch_cache::Filter;

use super::*;
use crate::{
    limits::{LOGGED_CHARS_MAX, READER_CHARS_MAX},
    metrics::watches::WatchOrigin,
};

/// Paths that need a right.
const DOCUMENTS: [&str; 7] =
    ["/metrics", "/statusz", "/debug/watches", "/debug/snapshots", "/debug/summary", "/ui", "/ui/"];

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

/// Goal: an operator finds the few watches of one state among all others, and sees how many are how far behind. Method: one
/// watch that does not read, between others that have sent everything.
#[tokio::test(start_paused = true)]
async fn watches_are_found_by_their_state_and_counted_by_their_lag() {
    let server = Server::new();
    let mut open = Vec::new();
    for _ in 0..6 {
        open.push(watch(&server, "/api/v1/configmaps?watch=1").await);
    }
    open.iter_mut().for_each(drain);
    for number in 0..12 {
        server.create("ns", &format!("c{number}"), "").await;
    }
    server.get("/api/v1/namespaces/ns/configmaps/c11").await;
    // One reads a part of the changes, and the others all of them.
    open[3].frame().await.expect("changes").expect("are whole");
    server.create("ns", "last", "").await;
    server.get("/api/v1/namespaces/ns/configmaps/last").await;
    open.iter_mut().enumerate().filter(|(at, _)| *at != 3).for_each(|(_, watch)| drain(watch));
    let parked = watches(&server, "?state=parked").await;
    let numbers = |page: &Value| {
        page["watches"].as_array().expect("rows").iter().map(|row| row["number"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!((numbers(&parked), &parked["open"]), (vec![Some(4)], &6.into()), "{parked}");
    let live = watches(&server, "?state=live&limit=3").await;
    assert_eq!((numbers(&live).len(), live["continue"].as_str()), (3, Some("3")), "{live}");
    let rest = watches(&server, "?state=live&limit=3&continue=3").await;
    assert_eq!((numbers(&rest), rest.get("continue")), (vec![Some(5), Some(6)], None), "{rest}");
    let summary = server.get("/debug/summary").await.json();
    assert_eq!((&summary["storage"], &summary["open"], &summary["visited"]), (&"memory".into(), &6.into(), &6.into()));
    let classes = json!([{"upTo": 0, "watches": 5}, {"upTo": 9, "watches": 1}, {"upTo": 99, "watches": 0},
        {"upTo": 999, "watches": 0}, {"watches": 0}]);
    assert_eq!((&summary["behind"], &summary["states"]), (&classes, &json!({"live": 5, "parked": 1})));
}

/// Goal: a request costs a bounded time, however many watches are open. Method: more of them than it visits.
#[tokio::test]
async fn one_request_visits_a_bounded_number_of_watches() {
    let server = Server::new();
    let pods = RequestClass::of("WATCH", &target(&server, "pods"));
    let open: Vec<_> =
        (0..10_500).map(|_| server.app.metrics.watch(pods.clone(), WatchOrigin::default(), &Filter::all())).collect();
    let summary = server.get("/debug/summary").await.json();
    assert_eq!((&summary["visited"], &summary["open"]), (&10_000.into(), &10_500.into()));
    let none = watches(&server, "?state=parked").await;
    assert_eq!((none["watches"].as_array().map(Vec::len), &none["continue"]), (Some(0), &"10000".into()), "{none}");
    let end = watches(&server, "?state=parked&continue=10000").await;
    assert_eq!(end.get("continue"), None, "{end}");
    drop(open);
}

fn target(server: &Server, id: &str) -> Target {
    let ty = server.app.registry.now().by_id(id).expect("is served");
    Target { ty, namespace: None, name: None, subresource: None, watched: false }
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

/// Goal: a browser gets a page that runs its own script and nothing else, and keeps it. Method: the headers against the text.
#[tokio::test]
async fn the_page_allows_nothing_but_its_own_script() {
    let server = Server::new();
    let page = server.get("/ui/").await;
    assert_eq!((page.code, &page.headers[header::CONTENT_TYPE]), (200, &"text/html; charset=utf-8".parse().unwrap()));
    let policy = page.headers[header::CONTENT_SECURITY_POLICY].to_str().expect("text");
    for element in ["script", "style"] {
        let (start, end) = (format!("<{element}>"), format!("</{element}>"));
        assert_eq!(page.body.matches(&start).count(), 1, "{element}");
        let text = page.body.split(&start).nth(1).and_then(|rest| rest.split(&end).next()).expect("an element");
        let hash = STANDARD.encode(digest(&SHA256, text.as_bytes()));
        assert!(policy.contains(&format!("{element}-src 'sha256-{hash}';")), "{policy}");
    }
    assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
    for refused in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "style=\"", "onclick", "://"] {
        assert!(!page.body.contains(refused), "{refused}");
    }
    assert!(page.body.len() <= 30_500, "{} bytes", page.body.len());
    assert_eq!(page.headers[header::CACHE_CONTROL], "no-cache, private");
    let etag = page.headers[header::ETAG].to_str().expect("text").to_owned();
    let again = server.send(with_header("/ui/", header::IF_NONE_MATCH, &etag)).await;
    assert_eq!((again.code, &*again.body), (304, ""));
}

#[tokio::test]
async fn the_page_is_read_only_and_has_one_address() {
    let server = Server::new();
    let moved = server.get("/ui").await;
    assert_eq!((moved.code, &moved.headers[header::LOCATION]), (301, &"ui/".parse().unwrap()));
    for (path, code) in [("/ui", 301), ("/ui/", 200)] {
        assert_eq!(server.send(with_body("HEAD", path, String::new())).await.code, code, "{path}");
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            let answer = server.send(with_body(method, path, String::new())).await;
            assert_eq!((answer.code, &answer.json()["reason"]), (405, &"MethodNotAllowed".into()), "{method} {path}");
        }
    }
    assert_eq!(server.get("/ui/index.html").await.code, 404);
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
    for path in DOCUMENTS {
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
    for path in DOCUMENTS {
        let info = RequestInfo { verb: "get".into(), path: path.into(), resource: None };
        let mut changes = server.app.access.authorizer.changes().expect("roles change");
        while !server.app.access.authorizer.decide(&prometheus, &info).await.expect("roles are read").is_allowed() {
            changes.changed().await.expect("roles are followed");
        }
    }
}
