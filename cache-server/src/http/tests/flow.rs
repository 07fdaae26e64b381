//! Flow control as clients see it.

use access_rules::user::User;

use super::*;
use crate::{
    access::testing::{OTHER_SEATS, objects},
    config::FlowSettings,
    limits::SEAT_WAIT,
};

/// A server whose callers are all one user, with one seat and a queue of `length` requests.
fn with_one_seat(length: u32) -> Server {
    let flow = FlowSettings { seats: 1 + OTHER_SEATS, ..FlowSettings::default() };
    let mut app = App::new(Config { first_revision: Some(100), flow, ..Config::default() });
    app.access.let_in(&User::authenticated("alice", []));
    app.access.flow.configure(objects(1, length));
    Server { app: Arc::new(app) }
}

async fn has_a_seat(server: &Server) -> bool {
    server.get("/version").await.code == 200
}

/// Reads the body until `end` is in it.
async fn read_until(response: &mut Response, end: &str) {
    let mut text = String::new();
    while !text.contains(end) {
        let frame = response.body_mut().frame().await.expect("more").expect("a body that is not cut");
        let mut data = frame.into_data().expect("data");
        let length = bytes::Buf::remaining(&data);
        let bytes = bytes::Buf::copy_to_bytes(&mut data, length);
        text.push_str(&String::from_utf8_lossy(&bytes));
    }
}

#[tokio::test]
async fn requests_without_a_seat_get_429_in_the_words_of_kube_apiserver() {
    let server = with_one_seat(0);
    server.create("a", "b", "").await;
    let list = server.open(get("/api/v1/configmaps")).await;
    let refused = server.get("/api/v1/namespaces/a/configmaps/b").await;
    assert_eq!((refused.code, &*refused.body), (429, "Too many requests, please try again later.\n"));
    assert_eq!(refused.headers[header::CONTENT_TYPE], "text/plain; charset=utf-8");
    assert_eq!(refused.headers[header::RETRY_AFTER], "1");
    for headers in [&refused.headers, list.headers()] {
        assert_eq!(headers["x-kubernetes-pf-flowschema-uid"], "schema-uid");
        assert_eq!(headers["x-kubernetes-pf-prioritylevel-uid"], "level-uid");
    }
    drop(list);
    assert_eq!(server.get("/api/v1/namespaces/a/configmaps/b").await.code, 200);
    let metrics = server.get("/metrics").await.body;
    let line = r#"apiserver_flowcontrol_rejected_requests_total{priority_level="all",flow_schema="all",reason="concurrency-limit"} 1"#;
    assert!(metrics.lines().any(|have| have == line), "{metrics}");
}

/// Goal: each kind of request has its seat for as long as it costs something. Method: with one seat, another request finds
/// it free or not.
#[tokio::test]
async fn seats_come_back_with_answers_drained_lists_and_initial_states() {
    let server = with_one_seat(0);
    server.create("a", "b", "").await;
    let version = server.create("a", "c", "").await;
    assert!(has_a_seat(&server).await, "after a write");

    let mut list = server.open(get("/api/v1/configmaps")).await;
    assert!(!has_a_seat(&server).await, "while a list is sent");
    while list.body_mut().frame().await.is_some() {}
    drop(list);
    assert!(has_a_seat(&server).await, "after a list");

    for query in
        ["", "&resourceVersion=0", "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"]
    {
        let mut watch = server.open(get(&format!("/api/v1/configmaps?watch=1{query}"))).await;
        assert_eq!(watch.status(), 200, "{query}");
        assert!(!has_a_seat(&server).await, "while an initial state is sent: {query}");
        let end = if query.contains("send") { "initial-events-end" } else { r#""name":"c""# };
        let read = tokio::time::timeout(Duration::from_secs(10), read_until(&mut watch, end)).await;
        read.expect("the initial state");
        assert!(has_a_seat(&server).await, "after an initial state: {query}");
    }
    let _watch = server.open(get(&format!("/api/v1/configmaps?watch=1&resourceVersion={version}"))).await;
    assert!(has_a_seat(&server).await, "a watch without initial state");
    assert_eq!(server.get("/api/v1/namespaces/a/configmaps/missing").await.code, 404);
    assert_eq!(server.get("/api/v1/configmaps?limit=x").await.code, 400);
    assert!(has_a_seat(&server).await, "after errors");
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_quarter_of_its_own_time() {
    let server = with_one_seat(5);
    let list = server.open(get("/api/v1/configmaps")).await;
    let began = Instant::now();
    assert_eq!(server.get("/version?timeout=8s").await.code, 429);
    assert_eq!(began.elapsed(), Duration::from_secs(2));
    assert_eq!(server.get("/version").await.code, 429);
    assert_eq!(began.elapsed(), Duration::from_secs(2) + SEAT_WAIT);
    let leaving = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(list);
    };
    let (answer, ()) = futures::join!(server.get("/version"), leaving);
    assert_eq!(answer.code, 200);
}

/// Goal: a client that does not read its list blocks others for a short time only. Method: the task of the server, with a paused
/// clock.
#[tokio::test(start_paused = true)]
async fn a_list_that_is_not_read_gives_its_seat_back() {
    let server = with_one_seat(5);
    server.app.keep_flow_control();
    let _list = server.open(get("/api/v1/configmaps")).await;
    let began = Instant::now();
    assert_eq!(server.get("/version").await.code, 200);
    let latest = limits::SEAT_CHECK_EVERY + limits::SEAT_PARKED + limits::SEAT_CHECK_EVERY_HELD;
    assert!(began.elapsed() >= limits::SEAT_PARKED && began.elapsed() <= latest, "{:?}", began.elapsed());
}

/// Goal: clients that pause while they read have no more lists at work than there are seats. Method: eight lists, and a pause
/// after each of their parts that is longer than seats are held, at a server with one seat.
#[tokio::test(start_paused = true)]
async fn lists_whose_readers_pause_wait_for_each_other() {
    let server = with_one_seat(50);
    server.app.keep_flow_control();
    let data = "v".repeat(limits::BATCH_BYTES);
    for index in 0..6 {
        let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": format!("a{index}")},
            "data": {"k": data}});
        assert_eq!(server.send(with_body("POST", "/api/v1/namespaces/a/configmaps", map.to_string())).await.code, 201);
    }
    let parts = parking_lot::Mutex::new(Vec::new());
    let read = async || {
        let mut list = server.open(get("/api/v1/configmaps")).await;
        assert_eq!(list.status(), 200);
        while let Some(part) = list.body_mut().frame().await {
            part.expect("a list that is not cut");
            let is_last = http_body::Body::is_end_stream(list.body());
            parts.lock().push((Instant::now(), is_last));
            if is_last {
                break;
            }
            // Beyond the check that takes the seats.
            tokio::time::sleep(limits::SEAT_PARKED * 7 / 4).await;
        }
    };
    futures::future::join_all((0..8).map(|_| read())).await;
    let parts = parts.into_inner();
    assert!(parts.len() >= 8 * 6, "{parts:?}");
    for pair in parts.windows(2) {
        let [(first, gives_back), (second, _)] = pair else { unreachable!("a pair") };
        // A part is followed by another once its list has given the seat back.
        assert!(*gives_back || *second - *first >= limits::SEAT_PARKED, "{parts:?}");
    }
}

#[tokio::test]
async fn callers_of_a_server_without_authentication_notice_nothing() {
    let flow = FlowSettings { seats: 1, ..FlowSettings::default() };
    let server = Server::with(Config { flow, ..Config::default() });
    let lists: Vec<_> = futures::future::join_all((0..100).map(|_| server.open(get("/api/v1/pods")))).await;
    assert!(lists.iter().all(|list| list.status() == 200));
    assert!(lists.iter().all(|list| !list.headers().contains_key("x-kubernetes-pf-flowschema-uid")));
    assert_eq!(server.get("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas").await.keys(), Vec::<String>::new());
}

/// Goal: a watch counts for its user for as long as it is open, and not at all if it is refused.
#[tokio::test]
async fn open_watches_count_for_their_user() {
    let server = with_one_seat(5);
    let user = User::authenticated("alice", []);
    let context = |query| {
        let (parts, ()) = Request::get(format!("/api/v1/pods?{query}")).body(()).expect("a request").into_parts();
        RequestContext::new(&parts, &Query::parse(parts.uri.query()))
    };
    let mut places = Vec::new();
    let mut take = || {
        let mut context = context("watch=1");
        context.caller = Some(crate::access::testing::caller(&user));
        server.app.access.share(&mut context).map(|()| places.extend(context.place.take()))
    };
    while take().is_ok() {}
    let refused = server.get("/api/v1/pods?watch=1&timeoutSeconds=0").await;
    assert_eq!(
        (refused.code, refused.message()),
        (429, "too many watches of this user are open, please try again later".to_owned())
    );
    assert_eq!(server.get("/api/v1/pods").await.code, 200);
    places.pop();
    let watch = server.open(get("/api/v1/pods?watch=1&resourceVersion=100")).await;
    assert_eq!(watch.status(), 200);
    assert_eq!(server.get("/api/v1/pods?watch=1").await.code, 429);
    drop(watch);
    assert_eq!(server.get("/api/v1/pods?watch=1&resourceVersion=x").await.code, 500);
    assert_eq!(server.open(get("/api/v1/pods?watch=1&resourceVersion=100")).await.status(), 200);
}

/// Goal: stored objects take effect at once. Method: a schema that leads all users to a level that refuses is created,
/// changed and deleted.
#[tokio::test]
async fn changes_of_stored_objects_take_effect() {
    let flow = FlowSettings { source: crate::config::FlowSource::Stored, ..FlowSettings::default() };
    let mut app = App::new(Config { first_revision: Some(100), flow, ..Config::default() });
    app.access.let_in(&User::authenticated("alice", []));
    let server = Server { app: Arc::new(app) };
    crate::workload::flow_objects::begin(&server.app).await.expect("the built-in objects are stored");
    let schemas = server.get("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas").await;
    assert_eq!(schemas.keys().len(), 11);
    let schema_of = async |expected: &str| {
        for _ in 0..1_000 {
            let schemas = server.get("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas").await.json();
            let answer = server.get("/version").await;
            let uid = answer.headers.get("x-kubernetes-pf-flowschema-uid");
            let items = schemas["items"].as_array().expect("items").iter();
            let mut names =
                items.filter(|item| uid.is_some_and(|uid| item["metadata"]["uid"] == *uid.to_str().expect("text")));
            if names.any(|item| item["metadata"]["name"] == expected) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("requests do not belong to {expected}");
    };
    schema_of("global-default").await;
    let path = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
    let mut schema = server.get(&format!("{path}/global-default")).await.json();
    schema["metadata"] = json!({"name": "mine"});
    schema["spec"]["matchingPrecedence"] = json!(3);
    assert_eq!(server.send(with_body("POST", path, schema.to_string())).await.code, 201);
    schema_of("mine").await;
    assert_eq!(server.send(with_body("DELETE", &format!("{path}/mine"), String::new())).await.code, 200);
    schema_of("global-default").await;
}
