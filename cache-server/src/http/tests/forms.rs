//! Other forms of objects: metadata only, tables, without managedFields; watches by path; request timeouts.

use api_rules::object::protobuf::decoded;
use serde_json::Value;
use watch_cache::Draft;

use super::*;
use crate::storage::{
    Expect, Txn,
    faulty::{Fault, Faulty},
};

const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const SHORT: &str = "application/json;drop=metadata.managedFields";

/// Creates a server with two objects; returns the first one's metadata too.
async fn two() -> (Server, Value) {
    let server = Server::new();
    for name in ["a", "b"] {
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"k": "v"},
            "metadata": {"name": name, "managedFields": [{"manager": "m"}], "labels": {"l": "1"}}});
        let answer = server.send(with_body("POST", "/api/v1/namespaces/ns/configmaps", object.to_string())).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
    }
    let metadata = server.get("/api/v1/namespaces/ns/configmaps/a").await.json()["metadata"].clone();
    (server, metadata)
}

async fn accepting(server: &Server, accept: &'static str, path: &str) -> Answer {
    server.send(with_header(path, header::ACCEPT, accept)).await
}

fn partial(metadata: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

fn without_managed_fields(mut metadata: Value) -> Value {
    metadata.as_object_mut().expect("an object").remove("managedFields").expect("there were some");
    metadata
}

#[tokio::test]
async fn metadata_alone_is_a_form_of_objects_and_lists() {
    let (server, metadata) = two().await;
    let object = accepting(&server, METADATA, "/api/v1/namespaces/ns/configmaps/a").await;
    assert_eq!(object.json(), partial(&metadata));
    assert_eq!(object.headers["content-type"], "application/json");
    let list = accepting(&server, METADATA_LIST, "/api/v1/configmaps?limit=1").await;
    let head = r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"#;
    assert!(list.body.starts_with(head) && list.body.ends_with("}]}\n"), "{}", list.body);
    assert_eq!(list.json()["items"], json!([partial(&metadata)]));
    assert_eq!(list.json()["metadata"]["remainingItemCount"], 1);
    let empty = accepting(&server, METADATA_LIST, "/api/v1/namespaces/none/configmaps").await;
    assert!(empty.body.ends_with(",\"items\":null}\n"), "{}", empty.body);
}

#[tokio::test]
async fn a_form_of_something_else_is_not_acceptable() {
    let (server, _) = two().await;
    for (accept, path, expected) in [
        (
            METADATA,
            "/api/v1/configmaps",
            "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)",
        ),
        (
            METADATA_LIST,
            "/api/v1/namespaces/ns/configmaps/a",
            "you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)",
        ),
    ] {
        let answer = accepting(&server, accept, path).await;
        assert_eq!((answer.code, answer.json()["message"].as_str()), (406, Some(expected)));
        assert!(answer.body.starts_with("{\n") && answer.body.ends_with('}'), "it is read by people: {}", answer.body);
    }
    let missing = accepting(&server, METADATA_LIST, "/api/v1/namespaces/ns/configmaps/none").await;
    assert_eq!(missing.code, 404, "what is not there has no form");
    let bad = accepting(&server, TABLE, "/api/v1/configmaps?includeObject=X").await;
    assert_eq!((bad.code, bad.body.starts_with("{\n")), (400, true), "{}", bad.body);
}

#[tokio::test]
async fn tables_show_lists_and_objects() {
    let (server, metadata) = two().await;
    let object = accepting(&server, TABLE, "/api/v1/namespaces/ns/configmaps/a").await.json();
    assert_eq!((&object["kind"], &object["apiVersion"]), (&"Table".into(), &"meta.k8s.io/v1".into()));
    assert_eq!(object["metadata"], json!({"resourceVersion": metadata["resourceVersion"]}));
    assert_eq!(object["columnDefinitions"][0]["name"], "Name");
    assert_eq!((&object["rows"][0]["cells"][0], &object["rows"][0]["object"]), (&"a".into(), &partial(&metadata)));
    let list = accepting(&server, TABLE, "/api/v1/configmaps?includeObject=None").await.json();
    let names: Vec<_> = list["rows"].as_array().expect("rows").iter().map(|row| row["cells"][0].clone()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(list["rows"][0]["object"].is_null());
    let whole = accepting(&server, TABLE, "/api/v1/configmaps?includeObject=Object").await.json();
    assert_eq!(whole["rows"][1]["object"]["data"], json!({"k": "v"}));
    assert_eq!(whole["rows"][1]["object"]["kind"], "ConfigMap");
    let empty = accepting(&server, TABLE, "/api/v1/namespaces/none/configmaps").await;
    assert!(empty.body.ends_with(",\"rows\":[]}\n"), "{}", empty.body);
    let old = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
    let old = accepting(&server, old, "/api/v1/configmaps").await.json();
    assert_eq!((&old["apiVersion"], &old["rows"][0]["object"]["apiVersion"]), (&OLD.into(), &OLD.into()));
}

const OLD: &str = "meta.k8s.io/v1beta1";

#[tokio::test]
async fn managed_fields_stay_away_on_request() {
    let (server, metadata) = two().await;
    let expected = without_managed_fields(metadata);
    let object = accepting(&server, SHORT, "/api/v1/namespaces/ns/configmaps/a").await.json();
    assert_eq!((&object["metadata"], &object["data"]), (&expected, &json!({"k": "v"})));
    let list = accepting(&server, SHORT, "/api/v1/configmaps").await.json();
    assert_eq!((&list["kind"], &list["items"][0]["metadata"]), (&"ConfigMapList".into(), &expected));
    let both = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io;drop=metadata.managedFields";
    let list = accepting(&server, both, "/api/v1/configmaps").await.json();
    assert_eq!(list["items"][0], partial(&expected));
}

#[tokio::test]
async fn what_a_write_answers_has_the_form_too() {
    let (server, _) = two().await;
    let path = "/api/v1/namespaces/ns/configmaps/a";
    let mut patch = with_body("PATCH", path, r#"{"data":{"k":"w"}}"#.to_owned());
    patch.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/merge-patch+json"));
    let mut delete = with_body("DELETE", path, String::new());
    for (request, expected) in [(&mut patch, "PartialObjectMetadata"), (&mut delete, "Status")] {
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(METADATA));
        let answer = server.send(request.clone()).await;
        assert_eq!((answer.code, answer.json()["kind"].as_str()), (200, Some(expected)), "{}", answer.body);
        assert!(answer.json().get("data").is_none());
    }
}

/// Returns the lines of a watch with a short timeout.
async fn lines(server: &Server, accept: &'static str, path: &str) -> Vec<Value> {
    let answer = accepting(server, accept, path).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    answer.body.lines().map(|line| serde_json::from_str(line).expect("a line is a document")).collect()
}

#[tokio::test(start_paused = true)]
async fn events_come_in_every_form() {
    let (server, metadata) = two().await;
    let watch = "/api/v1/configmaps?watch=1&allowWatchBookmarks=1&timeoutSeconds=1";
    let came = lines(&server, METADATA, watch).await;
    assert_eq!(came[0], json!({"type": "ADDED", "object": partial(&metadata)}));
    let end = &came[2]["object"];
    assert_eq!(
        (&end["kind"], &end["metadata"]["annotations"]),
        (&"PartialObjectMetadata".into(), &json!({"k8s.io/initial-events-end": "true"}))
    );
    let came = lines(&server, TABLE, &format!("{watch}&includeObject=None")).await;
    assert_eq!(came.len(), 3);
    assert!(came[0]["object"]["columnDefinitions"].is_array());
    assert!(came[1..].iter().all(|line| line["object"]["columnDefinitions"].is_null()), "columns are told once");
    assert_eq!(came[1]["object"]["rows"][0]["object"], Value::Null);
    assert_eq!(came[2]["type"], "BOOKMARK");
    let end = &came[2]["object"]["rows"][0]["object"]["metadata"]["annotations"];
    assert_eq!(end, &json!({"k8s.io/initial-events-end": "true"}), "even who wants no objects is told");
    let came = lines(&server, SHORT, watch).await;
    assert_eq!(came[0]["object"]["metadata"], without_managed_fields(metadata));
}

#[tokio::test(start_paused = true)]
async fn a_path_can_ask_for_a_watch() {
    let (server, _) = two().await;
    let names = |lines: &[Value]| -> Vec<String> {
        let text = |line: &Value| line["object"]["metadata"]["name"].as_str().unwrap_or("-").to_owned();
        lines.iter().map(text).collect()
    };
    for (path, expected) in [
        ("/api/v1/watch/configmaps?timeoutSeconds=1", &["a", "b"][..]),
        ("/api/v1/watch/namespaces/ns/configmaps?timeoutSeconds=1&allowWatchBookmarks=1", &["a", "b"]),
        ("/api/v1/watch/namespaces/ns/configmaps/b?timeoutSeconds=1", &["b"]),
        ("/api/v1/watch/namespaces/ns/configmaps/b?timeoutSeconds=1&fieldSelector=metadata.name%3Db", &["b"]),
        ("/api/v1/watch/namespaces/ns/configmaps?watch=1&timeoutSeconds=1&allowWatchBookmarks=1", &["a", "b", "-"]),
        ("/api/v1/watch/namespaces/other/configmaps?timeoutSeconds=1", &[]),
    ] {
        assert_eq!(names(&lines(&server, "", path).await), expected, "{path}");
    }
    let path = "/api/v1/watch/namespaces/ns/configmaps/b?fieldSelector=metadata.name%3Da";
    let answer = server.get(path).await;
    let expected = "fieldSelector metadata.name doesn't match requested name";
    assert_eq!((answer.code, answer.json()["message"].as_str()), (400, Some(expected)));
    let answer = server.get("/api/v1/watch/configmaps?sendInitialEvents=true").await;
    assert_eq!(answer.code, 422, "its options are those of a list");
    assert_eq!(server.send(with_body("POST", "/api/v1/watch/configmaps", String::new())).await.code, 405);
}

#[tokio::test(start_paused = true)]
async fn a_request_can_have_a_time_of_its_own() {
    let (server, _) = two().await;
    let late = "resourceVersion=99999999&resourceVersionMatch=NotOlderThan";
    let began = Instant::now();
    let answer = server.get(&format!("/api/v1/configmaps?timeout=1s&{late}")).await;
    assert_eq!((answer.code, began.elapsed()), (504, Duration::from_secs(1)));
    assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    let expected = r#"{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted timeout","reason":"Timeout","details":{},"code":504}"#;
    assert_eq!(answer.body, expected);
    let unasked = server.get(&format!("/api/v1/configmaps?timeout=0s&{late}")).await;
    assert!(unasked.body.contains("Too large resource version"), "{}", unasked.body);
    for path in
        ["/api/v1/configmaps?timeout=abc", "/api/v1/namespaces/ns/configmaps/a?timeout=abc", "/apis?timeout=abc"]
    {
        let answer = server.get(path).await;
        let expected = "invalid timeout specified in the request URL - time: invalid duration \"abc\"";
        assert_eq!((answer.code, answer.json()["message"].as_str()), (400, Some(expected)), "{path}");
    }
    let watch = server.get("/api/v1/configmaps?watch=1&timeout=abc&timeoutSeconds=1").await;
    assert_eq!(watch.code, 200, "a watch has timeoutSeconds");
}

#[tokio::test]
async fn a_server_that_ends_starts_no_cache_for_anybody() {
    let server = Server::new();
    server.app.caches.shut_down();
    for path in ["/api/v1/configmaps", "/api/v1/configmaps?watch=1", "/api/v1/namespaces/ns/configmaps/a"] {
        let answer = server.get(path).await;
        assert_eq!((answer.code, answer.json()["reason"].as_str()), (429, Some("TooManyRequests")), "{path}");
        assert_eq!(
            (&answer.headers["retry-after"], &answer.headers["cache-control"]),
            (&header_value("1"), &header_value(PRIVATE))
        );
        assert_eq!(answer.headers["content-type"], "application/json");
    }
}

const PRIVATE: &str = "no-cache, private";

fn header_value(text: &'static str) -> HeaderValue {
    HeaderValue::from_static(text)
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PROTOBUF_OR_JSON: &str = "application/vnd.kubernetes.protobuf,application/json";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Creates a server with three definitions, of which `b` has a schema nested too deep for protobuf. As the API refuses it,
/// they are written to the storage.
async fn with_a_deep_definition() -> Server {
    let server = Server::new();
    let ty = server.app.registry.now().by_id("customresourcedefinitions.apiextensions.k8s.io").expect("a type");
    let deep = format!("{}{{}}{}", r#"{"not":"#.repeat(200), "}".repeat(200));
    for (name, schema) in [("a", "{}"), ("b", &*deep), ("c", "{}")] {
        let versions = format!(r#"[{{"name":"v1","schema":{{"openAPIV3Schema":{schema}}}}}]"#);
        let object = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"versions":{versions}}}}}"#);
        let draft = Draft::new(&ty.schema, object.as_bytes()).expect("an object");
        let (ty, key, expect) = (Arc::clone(&ty), name.to_owned(), Expect::Absent);
        let txn = Txn { ty, key, expect, put: Some(draft), cause: None };
        server.app.local().expect("writes are local").store.write(txn).await.expect("is written");
    }
    server
}

/// Returns code, Content-Type and body.
async fn bytes(server: &Server, accept: &'static str, path: &str) -> (u16, String, Bytes) {
    let (parts, body) = server.open(with_header(path, header::ACCEPT, accept)).await.into_parts();
    let content_type = parts.headers["content-type"].to_str().expect("text").to_owned();
    (parts.status.as_u16(), content_type, body.collect().await.expect("a body that is not cut").to_bytes())
}

/// Goal: an object that protobuf cannot hold is neither left out nor sent in part. Method: a LIST and GETs of clients that
/// also accept JSON, and of others.
#[tokio::test]
async fn objects_that_protobuf_cannot_hold_are_json_or_an_error() {
    let server = with_a_deep_definition().await;
    let json = server.get(DEFINITIONS).await;
    let names = ["a", "b", "c"].map(|name| format!(r#""name":"{name}""#));
    assert!(names.iter().all(|name| json.body.contains(name)), "{}", json.body);
    let (code, content_type, body) = bytes(&server, PROTOBUF_OR_JSON, DEFINITIONS).await;
    assert_eq!((code, &*content_type, &body), (200, "application/json", &Bytes::from(json.body)));
    for name in ["a", "b"] {
        let path = format!("{DEFINITIONS}/{name}");
        let json = server.get(&path).await;
        let (code, content_type, body) = bytes(&server, PROTOBUF_OR_JSON, &path).await;
        let is_json = name == "b";
        assert_eq!((code, &*content_type), (200, if is_json { "application/json" } else { PROTOBUF }), "{name}");
        assert!(!is_json || body == json.body, "{name}");
    }
    for path in [DEFINITIONS.to_owned(), format!("{DEFINITIONS}/b")] {
        let (code, content_type, body) = bytes(&server, PROTOBUF, &path).await;
        assert_eq!((code, &*content_type), (500, PROTOBUF), "{path}");
        assert_eq!(decoded(&body).expect("a Status")["reason"], "InternalError", "{path}");
    }
}

/// Goal: no client takes a state without an object that protobuf cannot hold for complete. Method: a watch of the state.
#[tokio::test(start_paused = true)]
async fn a_watch_ends_at_an_object_that_protobuf_cannot_hold() {
    let server = with_a_deep_definition().await;
    let path = format!("{DEFINITIONS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    let (code, content_type, mut body) = bytes(&server, PROTOBUF, &path).await;
    assert_eq!((code, &*content_type), (200, "application/vnd.kubernetes.protobuf;stream=watch"));
    let mut events = Vec::new();
    while let Some(length) = body.first_chunk::<4>() {
        let event = body.split_to(4 + u32::from_be_bytes(*length) as usize);
        // Field 1 is the type, and the object is the rest.
        let name = &event[6..6 + usize::from(event[5])];
        let object_at = event.windows(4).position(|bytes| bytes == b"k8s\0").expect("an object");
        let object = decoded(&event[object_at..]).expect("an object");
        events.push((String::from_utf8_lossy(name).into_owned(), object));
    }
    let [(added, first), (error, status)] = &*events else { panic!("{events:?}") };
    assert_eq!((&**added, &first["metadata"]["name"]), ("ADDED", &json!("a")));
    assert_eq!((&**error, &status["kind"], &status["code"]), ("ERROR", &json!("Status"), &json!(500)));
    assert!(body.is_empty());
}

/// Goal: no client takes a document for whole that lacks the custom types. Method: a server whose storage cannot list the
/// definitions for a while.
#[tokio::test(start_paused = true)]
async fn documents_of_all_types_wait_for_the_definitions() {
    let store =
        Faulty::new(
            |_, _, id| {
                if id == "customresourcedefinitions.apiextensions.k8s.io" { Fault::Fails } else { Fault::None }
            },
        );
    let server = Server { app: Arc::new(App::with_storage(Config::default(), Arc::clone(&store) as _)) };
    server.app.start().await;
    for path in ["/openapi/v2", "/openapi/v3/apis/example.com/v1"] {
        let refused = server.get(path).await;
        assert_eq!((refused.code, &refused.headers["retry-after"]), (503, &header_value("5")), "{path}");
    }
    assert_eq!(server.get("/openapi/v3/api/v1").await.code, 200, "does not depend on them");
    store.heal();
    while !server.app.definitions.are_known() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(server.get("/openapi/v2").await.code, 200);
}
