//! Answers through the cache-server equal those of the API server behind it.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};
use tests::{
    genuine::Genuine,
    http::{Answer, Client, Event, MERGE_PATCH, Watch, key, watch_list, with_query},
    objects::{Object, configmap, node, pod, replica_set, secret},
};

use super::{BINARY, Sides, cache_of, definition, namespace, until};

const RESOURCES: &str = "pods,nodes,configmaps,secrets,replicasets.apps";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// Rounds of a write and a read.
const ROUNDS: usize = 200;

/// Creates 200 pods on four nodes and some objects of other types, in a namespace of its own.
async fn fill(client: &Client, team: &str) {
    client.create_manifest(&namespace(team)).await;
    for number in 0..4 {
        client.create(&node(&format!("{team}-{number}")).label("team", team)).await;
    }
    for number in 0..200 {
        let name = format!("p{number:03}");
        let on = format!("{team}-{}", number % 4);
        let tier = if number % 3 == 0 { "web" } else { "store" };
        client.create(&pod(&name).namespace(team).node(&on).label("tier", tier).label("team", team)).await;
    }
    for number in 0..20 {
        let name = format!("m{number}");
        client.create(&configmap(&name).namespace(team).data("one")).await;
        client.create(&secret(&name).namespace(team).data("dg==")).await;
        client.create(&replica_set(&name).namespace(team)).await;
    }
}

/// Removes what two answers about equal objects need not share: the position of a list, its continue token, and ages in
/// the rows of tables.
fn comparable(mut answer: Value) -> Value {
    if let Some(metadata) = answer["metadata"].as_object_mut().filter(|metadata| !metadata.contains_key("name")) {
        metadata.remove("resourceVersion");
        metadata.remove("continue");
    }
    for column in answer["columnDefinitions"].as_array_mut().into_iter().flatten() {
        // Ours are in our own words.
        column.as_object_mut().unwrap().remove("description");
    }
    let columns = answer["columnDefinitions"].as_array().into_iter().flatten();
    let ages: Vec<usize> =
        columns.enumerate().filter(|(_, column)| column["name"] == "Age").map(|(at, _)| at).collect();
    for row in answer["rows"].as_array_mut().into_iter().flatten() {
        for at in &ages {
            row["cells"][*at] = Value::Null;
        }
    }
    answer
}

/// Asserts that both sides answer a read alike: equal objects, at a position that the API server has reached.
async fn assert_equal(sides: &Sides, path: &str, headers: &[(&str, &str)]) -> Answer {
    let cached = sides.cached.get_with(path, headers).await.with_code(200);
    let after = sides.direct.get_with(path, headers).await.with_code(200);
    assert_eq!(cached.header("content-type"), after.header("content-type"), "{path} {headers:?}");
    let (ours, theirs) = (comparable(cached.json()), comparable(after.json()));
    assert_eq!(ours, theirs, "{path} {headers:?}");
    // A list of a quiet type may have the position of its last change.
    assert!(cached.resource_version() <= after.resource_version(), "{path}: {}", cached.resource_version());
    cached
}

/// Goal: clients cannot distinguish the cache from the API server by a read. Method: the same reads on both sides while
/// no client writes the objects.
#[tokio::test]
async fn reads_have_the_objects_and_positions_of_the_api_server() {
    let Some(genuine) = Genuine::shared("upstream reads").await else { return };
    let server = cache_of(genuine, RESOURCES).await;
    let sides = Sides::new(genuine, &server);
    fill(&sides.direct, "reads").await;
    let pods = "/api/v1/namespaces/reads/pods";
    let lists = [
        with_query("/api/v1/pods", &[("labelSelector", "team=reads")]),
        with_query("/api/v1/nodes", &[("labelSelector", "team=reads")]),
        pods.to_owned(),
        "/api/v1/namespaces/reads/configmaps".to_owned(),
        "/api/v1/namespaces/reads/secrets".to_owned(),
        "/apis/apps/v1/namespaces/reads/replicasets".to_owned(),
        with_query(pods, &[("fieldSelector", "spec.nodeName=reads-1")]),
        with_query(pods, &[("fieldSelector", "metadata.name=p007")]),
        with_query(pods, &[("labelSelector", "tier in (web),team")]),
        with_query(pods, &[("labelSelector", "tier=none")]),
        with_query(pods, &[("resourceVersion", "0")]),
    ];
    for path in &lists {
        for accept in ["application/json", TABLE, METADATA] {
            assert_equal(&sides, path, &[("accept", accept)]).await;
        }
    }
    let position = assert_equal(&sides, pods, &[]).await.resource_version().to_string();
    assert_equal(&sides, &with_query(pods, &[("resourceVersion", &position)]), &[]).await;
    let exact = [("resourceVersion", &*position), ("resourceVersionMatch", "Exact")];
    let answer = assert_equal(&sides, &with_query(pods, &exact), &[]).await;
    assert_eq!(answer.resource_version().to_string(), position);
    for path in ["pods/p000", "pods/p199", "configmaps/m3", "secrets/m3"] {
        for query in ["", "?resourceVersion=0"] {
            let path = format!("/api/v1/namespaces/reads/{path}{query}");
            let [ours, theirs] = [&sides.cached, &sides.direct].map(|side| side.get(&path));
            assert_eq!(ours.await.with_code(200).json(), theirs.await.with_code(200).json(), "{path}");
        }
    }
    for query in ["", "?resourceVersion=0"] {
        let path = format!("{pods}/missing{query}");
        let [ours, theirs] = [&sides.cached, &sides.direct].map(|side| side.get(&path));
        assert_eq!(ours.await.with_code(404).json(), theirs.await.with_code(404).json(), "{path}");
    }
}

/// All items of a paged list.
async fn pages(client: &Client, path: &str) -> Vec<Value> {
    let mut items = Vec::new();
    let mut page = client.get(&with_query(path, &[("limit", "37")])).await.with_code(200);
    loop {
        items.extend(page.json()["items"].as_array().unwrap().iter().cloned());
        let Some(token) = page.token() else { return items };
        page = client.get(&with_query(path, &[("limit", "37"), ("continue", &token)])).await.with_code(200);
    }
}

#[tokio::test]
async fn pages_add_up_to_the_list_of_the_api_server() {
    let Some(genuine) = Genuine::shared("upstream pages").await else { return };
    let server = cache_of(genuine, RESOURCES).await;
    let sides = Sides::new(genuine, &server);
    fill(&sides.direct, "pages").await;
    let path = "/api/v1/namespaces/pages/pods";
    let (ours, theirs) = (pages(&sides.cached, path).await, pages(&sides.direct, path).await);
    assert_eq!(ours.len(), 200);
    assert_eq!(ours, theirs);
}

/// Changes of all kinds, one of them in and out of the selector `tier=web`; the last object is `last`.
async fn change(client: &Client, team: &str) {
    let pods = format!("/api/v1/namespaces/{team}/pods");
    for number in 0..10 {
        client.create(&pod(&format!("new{number}")).namespace(team).label("tier", "web")).await;
        let path = format!("{pods}/new{number}");
        let tier = json!({"metadata": {"labels": {"tier": if number % 2 == 0 { "store" } else { "web" }, "x": "y"}}});
        client.patch(&path, MERGE_PATCH, &tier).await.with_code(200);
        let phase = json!({"status": {"phase": "Running", "message": "café \u{2028} \"quoted\" <&>"}});
        client.patch(&format!("{path}/status"), MERGE_PATCH, &phase).await.with_code(200);
        if number % 3 == 0 {
            client.delete(&format!("{path}?gracePeriodSeconds=0")).await.with_code(200);
        }
    }
    client.create(&pod("last").namespace(team).label("tier", "web")).await;
}

/// The events up to the one about the pod `last`, without bookmarks.
async fn events_to_the_last(watch: &mut Watch) -> Vec<(String, Value)> {
    let mut events = Vec::new();
    loop {
        let event: Event = watch.event().await;
        let brief = event.brief();
        assert!(!brief.starts_with("ERROR"), "{event:?} after {events:?}");
        let is_last = brief.ends_with("/last");
        if !brief.contains("BOOKMARK") && !brief.contains("INITIAL-END") {
            events.push((brief, event.object));
        }
        if is_last {
            return events;
        }
    }
}

#[tokio::test]
async fn watches_send_the_events_of_the_api_server() {
    let Some(genuine) = Genuine::shared("upstream watches").await else { return };
    let server = cache_of(genuine, RESOURCES).await;
    let sides = Sides::new(genuine, &server);
    fill(&sides.direct, "watches").await;
    let path = "/api/v1/namespaces/watches/pods";
    let position = sides.cached.get(path).await.with_code(200).resource_version().to_string();
    for selector in [&[][..], &[("labelSelector", "tier=web")], &[("fieldSelector", "status.phase=Running")]] {
        let query = [&[("watch", "1"), ("resourceVersion", &position), ("allowWatchBookmarks", "true")], selector];
        let path = with_query(path, &query.concat());
        let (mut ours, mut theirs) = (sides.cached.watch(&path).await, sides.direct.watch(&path).await);
        assert_eq!((ours.code(), theirs.code()), (http::StatusCode::OK, http::StatusCode::OK));
        if selector.is_empty() {
            change(&sides.direct, "watches").await;
        }
        if selector != [("fieldSelector", "status.phase=Running")] {
            let (ours, theirs) = (events_to_the_last(&mut ours).await, events_to_the_last(&mut theirs).await);
            assert!(ours.len() > 10, "{ours:?}");
            assert_eq!(ours, theirs, "{path}");
            continue;
        }
        // `last` never runs, so the number of events ends the comparison.
        let theirs = theirs.events(10).await;
        let ours = ours.events(10).await;
        let objects = |events: &[Event]| -> Vec<(String, Value)> {
            events.iter().map(|event| (event.brief(), event.object.clone())).collect()
        };
        assert_eq!(objects(&ours), objects(&theirs), "{path}");
    }
}

/// The initial state of a watch-list by key, and the position of its end.
async fn initial_state(watch: &mut Watch) -> (BTreeMap<String, Value>, u64) {
    let mut state = BTreeMap::new();
    loop {
        let event = watch.event().await;
        if event.ends_initial_state() {
            return (state, event.resource_version());
        }
        assert!(event.brief().starts_with("ADDED "), "{event:?}");
        assert!(state.insert(key(&event.object), event.object).is_none(), "an object came twice");
    }
}

#[tokio::test]
async fn a_watch_list_has_the_state_of_the_api_server_and_then_its_events() {
    let Some(genuine) = Genuine::shared("upstream watch-lists").await else { return };
    let server = cache_of(genuine, RESOURCES).await;
    let sides = Sides::new(genuine, &server);
    fill(&sides.direct, "streams").await;
    let path = watch_list("/api/v1/namespaces/streams/pods");
    let (mut ours, mut theirs) = (sides.cached.watch(&path).await, sides.direct.watch(&path).await);
    let ((our_state, _), (their_state, _)) = (initial_state(&mut ours).await, initial_state(&mut theirs).await);
    assert_eq!(our_state.len(), 200);
    assert_eq!(our_state, their_state);
    change(&sides.cached, "streams").await;
    assert_eq!(events_to_the_last(&mut ours).await, events_to_the_last(&mut theirs).await);
}

/// Goal: writes through the cache are the API server's. Method: each write on both sides, about objects whose names
/// differ by one letter; status codes, warnings and messages are equal.
#[tokio::test]
async fn writes_through_the_cache_are_the_api_servers() {
    let Some(genuine) = Genuine::shared("upstream writes").await else { return };
    let server = cache_of(genuine, RESOURCES).await;
    let sides = Sides::new(genuine, &server);
    sides.direct.create_manifest(&namespace("writes")).await;
    let collection = "/api/v1/namespaces/writes/configmaps";
    let apply = "application/apply-patch+yaml";
    let whole = |name: &str| configmap(name).namespace("writes").data("two").body().clone();
    let applied =
        |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "3"}});
    type Body<'a> = &'a dyn Fn(&str) -> Value;
    let invalid = |_: &str| json!({"metadata": {"name": "Not Valid"}});
    let stale = |name: &str| json!({"metadata": {"name": name, "resourceVersion": "1"}});
    let merge = |_: &str| json!({"data": {"k": "v"}});
    let dry = "?dryRun=All";
    let steps: [(Method, &str, &str, Body<'_>, u16); 9] = [
        (Method::POST, "", "application/json", &whole, 201),
        (Method::POST, "", "application/json", &whole, 409),
        (Method::POST, "", "application/json", &invalid, 422),
        (Method::PUT, "/NAME", "application/json", &whole, 200),
        (Method::PUT, "/NAME", "application/json", &stale, 409),
        (Method::PATCH, "/NAME", MERGE_PATCH, &merge, 200),
        (Method::PATCH, "/NAME?fieldManager=test&force=true", apply, &applied, 200),
        (Method::DELETE, "/NAME", "application/json", &|_| json!({"dryRun": ["All"]}), 200),
        (Method::DELETE, "/NAME", "application/json", &|_| Value::Null, 200),
    ];
    for (method, path, content_type, body, code) in steps {
        let send = async |client: &Client, name: &str| {
            let body = Some(body(name)).filter(|body| !body.is_null()).map(|body| body.to_string().into());
            let body: bytes::Bytes = body.unwrap_or_default();
            let path = format!("{collection}{}", path.replace("NAME", name));
            client.send(Client::request(method.clone(), &path, &[("content-type", content_type)], body)).await
        };
        let (theirs, ours) = (send(&sides.direct, "a").await, send(&sides.cached, "b").await);
        assert_eq!((theirs.code.as_u16(), ours.code.as_u16()), (code, code), "{method} {path}: {}", ours.text());
        assert_eq!(theirs.headers.get_all("warning").iter().count(), ours.headers.get_all("warning").iter().count());
        assert_eq!(theirs.message().replace("\"a\"", "\"b\""), ours.message(), "{method} {path}");
        let read = sides.direct.get(&format!("{collection}/b")).await;
        if ours.code.is_success() && method != Method::DELETE {
            assert_eq!(read.json()["metadata"]["resourceVersion"], ours.json()["metadata"]["resourceVersion"]);
        }
    }
    assert_eq!(sides.direct.get(&format!("{collection}/b")).await.code, 404);
    let made = sides.cached.post(&format!("{collection}{dry}"), &whole("dry")).await.with_code(201);
    assert_eq!(
        sides.direct.get(&format!("{collection}/{}", made.json()["metadata"]["name"].as_str().unwrap())).await.code,
        404
    );
}

/// Goal: a read without a position contains every write that was acknowledged before it. Method: 200 rounds of a write,
/// through the cache or past it, and a list and a get through the cache.
#[tokio::test]
async fn a_consistent_read_after_a_write_contains_it() {
    let Some(genuine) = Genuine::shared("upstream consistent reads").await else { return };
    let server = cache_of(genuine, RESOURCES).await;
    let sides = Sides::new(genuine, &server);
    sides.direct.create_manifest(&namespace("rounds")).await;
    let list = "/api/v1/namespaces/rounds/configmaps";
    for round in 0..ROUNDS {
        let writer = if round % 2 == 0 { &sides.direct } else { &sides.cached };
        let object: Object = configmap(&format!("c{}", round / 2)).namespace("rounds").data(&round.to_string());
        let written = if round % 2 == 0 { writer.create(&object).await } else { writer.update(&object).await };
        let read = sides.cached.get(list).await.with_code(200);
        assert!(read.resource_version() >= written, "round {round}: {} < {written}", read.resource_version());
        let items = read.json()["items"].take();
        let found = items.as_array().unwrap().iter().find(|item| item["metadata"]["name"] == format!("c{}", round / 2));
        let found = found.unwrap_or_else(|| panic!("round {round}: the list has no {}", object.path()));
        assert_eq!(found["data"]["k"], round.to_string(), "round {round}");
        let got = sides.cached.get(&object.path()).await.with_code(200);
        assert_eq!(got.resource_version(), written, "round {round}");
        let not_older = with_query(list, &[("resourceVersion", &written.to_string())]);
        assert!(sides.cached.get(&not_older).await.with_code(200).resource_version() >= written, "round {round}");
    }
}

#[tokio::test]
async fn documents_are_the_api_servers_byte_by_byte() {
    let Some(genuine) = Genuine::shared("upstream documents").await else { return };
    let server = cache_of(genuine, RESOURCES).await;
    let sides = Sides::new(genuine, &server);
    let index = sides.direct.get("/openapi/v3").await.with_code(200).json();
    let schemas = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let json = "application/json";
    let documents = [
        ("/api", json),
        ("/apis", json),
        ("/api", DISCOVERY),
        ("/apis", DISCOVERY),
        ("/api/v1", json),
        ("/apis/apps", json),
        ("/apis/apps/v1", json),
        ("/apis/none", json),
        ("/openapi/v2", json),
        ("/openapi/v3", json),
        (&schemas, json),
        ("/version", json),
    ];
    for (path, accept) in documents {
        let headers = [("accept", accept)];
        // Other tests define types in this cluster meanwhile.
        until(&format!("both have one {path} in {accept}"), async || {
            let (ours, theirs) =
                (sides.cached.get_with(path, &headers).await, sides.direct.get_with(path, &headers).await);
            let has_equal = |name: &&str| ours.header(name) == theirs.header(name);
            ours.code == theirs.code
                && ["content-type", "etag", "vary"].iter().all(has_equal)
                && ours.body == theirs.body
        })
        .await;
    }
}

/// Goal: a type that is defined while the cache runs is served from the cache. Method: a server that caches types on first
/// use; reads that no other server may answer, once the API server serves the type; then a watch.
#[tokio::test]
async fn a_new_type_is_served_from_the_cache() {
    let Some(genuine) = Genuine::shared("upstream new types").await else { return };
    let kubeconfig = genuine.kubeconfig(tests::genuine::CACHE);
    let flags = ["--upstream", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let server = tests::process::Server::start(BINARY, &flags).await;
    let sides = Sides::new(genuine, &server);
    until("the cache is ready", async || sides.cached.get("/readyz").await.code == 200).await;
    sides.direct.create_manifest(&definition("serves.example.com", "Widget", "size")).await;
    let path = "/apis/serves.example.com/v1/namespaces/default/widgets";
    until("the API server serves the type", async || sides.direct.get(path).await.code == 200).await;
    let only_cached = [("cache-control", "only-if-cached")];
    until("the cache serves the type", async || {
        // The first read of a type starts its cache.
        sides.cached.get(path).await;
        sides.cached.get_with(path, &only_cached).await.code == 200
    })
    .await;
    let position = sides.cached.get(path).await.with_code(200).resource_version().to_string();
    let mut watch = sides.cached.watch(&with_query(path, &[("watch", "1"), ("resourceVersion", &position)])).await;
    let widget = json!({
        "apiVersion": "serves.example.com/v1", "kind": "Widget", "metadata": {"name": "one", "namespace": "default"}, "size": 3,
    });
    let made = sides.direct.create_manifest(&widget).await.with_code(201).json();
    let event = watch.event().await;
    assert_eq!((event.brief(), &event.object), ("ADDED default/one".to_owned(), &made));
}
