//! LIST and GET: the table of resourceVersion, match, limit and continue, and exact response bodies.

use bytes::Buf as _;
use http::HeaderValue;
use http_body_util::BodyExt as _;

use super::*;
use crate::{
    config::Config,
    http::tests::{Server, get as request},
};

async fn three() -> Server {
    let server = Server::new();
    server.create("ns", "a", r#""app":"x""#).await;
    server.create("ns", "b", "").await;
    server.create("other", "c", r#""app":"x""#).await;
    server
}

#[tokio::test]
async fn a_list_looks_like_that_of_the_api_server() {
    let server = three().await;
    let answer = server.get("/api/v1/namespaces/ns/configmaps").await;
    let version = answer.resource_version();
    let head = format!(
        r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[{{"#
    );
    assert!(answer.body.starts_with(&head) && answer.body.ends_with("}]}\n"), "{}", answer.body);
    assert_eq!(answer.keys(), ["ns/a", "ns/b"]);
    assert!(answer.json()["items"][0].get("kind").is_none(), "items of built-in lists do not say what they are");
    let empty = server.get("/api/v1/namespaces/none/configmaps").await;
    let expected = format!(
        r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[]}}"#
    );
    assert_eq!(empty.body.trim_end(), expected);
}

#[tokio::test]
async fn a_list_after_a_write_has_the_write() {
    let server = Server::new();
    for index in 0..50 {
        let written = server.create("ns", &format!("c{index:02}"), "").await;
        let answer = server.get("/api/v1/configmaps").await;
        assert!(written <= answer.resource_version());
        assert_eq!(answer.keys().len(), index + 1);
    }
}

#[tokio::test]
async fn selectors_and_scope_narrow_a_list() {
    let server = three().await;
    for (path, expected) in [
        ("/api/v1/configmaps", &["ns/a", "ns/b", "other/c"][..]),
        ("/api/v1/configmaps?labelSelector=app%3Dx", &["ns/a", "other/c"]),
        ("/api/v1/configmaps?fieldSelector=metadata.name%3Db", &["ns/b"]),
        ("/api/v1/configmaps?fieldSelector=metadata.namespace%3Dother", &["other/c"]),
        ("/api/v1/namespaces/ns/configmaps?fieldSelector=metadata.name%3Da", &["ns/a"]),
        ("/api/v1/namespaces/ns/configmaps?fieldSelector=metadata.name%3Da&limit=1", &["ns/a"]),
        ("/api/v1/namespaces/ns/configmaps?fieldSelector=metadata.name%3Da,metadata.name%3Db", &[]),
        ("/api/v1/namespaces/ns/configmaps?fieldSelector=metadata.namespace%3Dother", &[]),
        ("/api/v1/namespaces/ns/configmaps?fieldSelector=metadata.name%3Dnone", &[]),
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.keys(), expected, "{path}");
        assert!(answer.json()["metadata"].get("continue").is_none(), "{path}");
    }
}

/// Goal: clients of two shards get each object once, and can see that the list is of their shard. Method: both halves,
/// whole and in pages.
#[tokio::test]
async fn shards_divide_a_list_and_say_so() {
    let server = Server::new();
    let mut expected = Vec::new();
    for index in 0..30 {
        server.create("ns", &format!("c{index:02}"), "").await;
        expected.push(format!("ns/c{index:02}"));
    }
    let mut found = Vec::new();
    for index in [0, 1] {
        let half = shard::Selector::part(shard::ShardField::Uid, index, 2).unwrap().to_string();
        let path = format!("/api/v1/configmaps?shardSelector={}", half.replace(' ', "%20"));
        let whole = server.get(&path).await;
        assert_eq!(whole.json()["metadata"]["shardInfo"]["selector"], half);
        let (mut pages, mut query) = (Vec::new(), "&limit=3".to_owned());
        while !query.is_empty() {
            let page = server.get(&format!("{path}{query}")).await;
            let metadata = &page.json()["metadata"];
            assert_eq!(metadata["shardInfo"]["selector"], half, "{query}");
            assert!(metadata.get("remainingItemCount").is_none(), "it would count the other half");
            let token = metadata["continue"].as_str();
            query = token.map(|token| format!("&limit=3&continue={token}")).unwrap_or_default();
            pages.extend(page.keys());
        }
        assert_eq!(pages, whole.keys());
        assert!(!pages.is_empty() && pages.len() < expected.len(), "{pages:?}");
        found.extend(pages);
    }
    found.sort_unstable();
    assert_eq!(found, expected);
    let whole = server.get("/api/v1/configmaps?shardSelector=").await.json();
    assert!(whole["metadata"].get("shardInfo").is_none(), "an empty selector is none");
    let refused = server.get("/api/v1/configmaps?shardSelector=half").await;
    let text = "invalid shard selector: unexpected expression kind 3; expected shardRange() call or || operator";
    assert_eq!((refused.code, &refused.json()["message"]), (500, &text.into()));
}

#[tokio::test]
async fn pages_show_one_state() {
    let server = three().await;
    let first = server.get("/api/v1/configmaps?limit=1").await;
    assert_eq!((first.keys(), &first.json()["metadata"]["remainingItemCount"]), (vec!["ns/a".to_owned()], &2.into()));
    let token = first.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    let decoded = ContinueToken::decode(&token).unwrap();
    assert_eq!(decoded, ContinueToken::after("ns/a", Position::At(first.resource_version())));
    // Writes between pages do not show in them.
    server.create("ns", "aa", "").await;
    server.delete("ns", "b").await;
    let second = server.get(&format!("/api/v1/configmaps?limit=1&continue={token}")).await;
    assert_eq!((second.keys(), second.resource_version()), (vec!["ns/b".to_owned()], first.resource_version()));
    assert_eq!(second.json()["metadata"]["remainingItemCount"], 1);
    let token = second.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    let third = server.get(&format!("/api/v1/configmaps?limit=1&continue={token}")).await;
    assert_eq!((third.keys(), third.resource_version()), (vec!["other/c".to_owned()], first.resource_version()));
    assert_eq!(third.json()["metadata"].as_object().unwrap().len(), 1, "no token, no count");
    assert_eq!(server.get("/api/v1/configmaps").await.keys(), ["ns/a", "ns/aa", "other/c"]);
    // A page of the latest state, which the token of an expired one requests.
    let latest = ContinueToken::after("ns/a", Position::Latest).encode();
    let rest = server.get(&format!("/api/v1/configmaps?limit=1&continue={latest}")).await;
    assert_eq!(rest.keys(), ["ns/aa"]);
    assert!(first.resource_version() < rest.resource_version());
    // Within a namespace, keys in tokens are relative to it.
    let page = server.get("/api/v1/namespaces/ns/configmaps?limit=1").await;
    let token = page.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    assert_eq!(ContinueToken::decode(&token).unwrap().start, "a\0");
    let page = server.get(&format!("/api/v1/namespaces/ns/configmaps?continue={token}")).await;
    assert_eq!(page.keys(), ["ns/aa"]);
}

#[tokio::test]
async fn selected_pages_do_not_count_what_remains() {
    let server = three().await;
    let first = server.get("/api/v1/configmaps?limit=1&labelSelector=app%3Dx").await;
    assert_eq!(first.keys(), ["ns/a"]);
    assert!(first.json()["metadata"].get("remainingItemCount").is_none());
    assert!(first.json()["metadata"].get("continue").is_some());
    let none = server.get("/api/v1/configmaps?limit=3").await;
    assert!(none.json()["metadata"].get("continue").is_none(), "the last page has no token");
}

#[tokio::test]
async fn an_exact_version_is_read_as_it_was() {
    let server = Server::new();
    server.create("ns", "a", "").await;
    let then = server.create("ns", "b", "").await;
    let a = server.patch("ns", "a", r#"{"data":{"k":"new"}}"#).await;
    server.delete("ns", "b").await;
    let exact = format!("/api/v1/configmaps?resourceVersion={then}&resourceVersionMatch=Exact");
    let answer = server.get(&exact).await;
    assert_eq!((answer.resource_version(), answer.keys()), (then, vec!["ns/a".to_owned(), "ns/b".to_owned()]));
    assert_eq!(answer.json()["items"][0]["data"]["k"], "v");
    let legacy = server.get(&format!("/api/v1/configmaps?resourceVersion={a}&limit=9")).await;
    assert_eq!((legacy.resource_version(), legacy.keys().len()), (a, 2));
    assert_eq!(server.get("/api/v1/configmaps").await.keys(), ["ns/a"]);
    let newer = server.get(&format!("/api/v1/configmaps?resourceVersion={then}")).await;
    assert_eq!(newer.keys(), ["ns/a"], "not older than that version, and not older than what was seen");
}

#[tokio::test]
async fn what_is_too_old_is_expired() {
    let server = three().await;
    server.get("/api/v1/configmaps").await;
    let answer = server.get("/api/v1/configmaps?resourceVersion=1&resourceVersionMatch=Exact").await;
    let expected = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"The resourceVersion for the provided list is too old.","reason":"Expired","code":410}"#;
    assert_eq!((answer.code, answer.body.trim_end()), (410, expected));
    let token = ContinueToken::after("ns/a", Position::At(1)).encode();
    let answer = server.get(&format!("/api/v1/configmaps?limit=1&continue={token}")).await;
    assert_eq!(answer.code, 410);
    assert!(answer.message().starts_with("The provided continue parameter is too old"));
    let offered = answer.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    assert_eq!(ContinueToken::decode(&offered).unwrap(), ContinueToken::after("ns/a", Position::Latest));
    let rest = server.get(&format!("/api/v1/configmaps?continue={offered}")).await;
    assert_eq!(rest.keys(), ["ns/b", "other/c"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_too_new_is_refused_after_three_seconds() {
    let server = three().await;
    let current = server.get("/api/v1/configmaps").await.resource_version();
    for query in ["", "&resourceVersionMatch=NotOlderThan", "&resourceVersionMatch=Exact", "&limit=1"] {
        let started = tokio::time::Instant::now();
        let answer = server.get(&format!("/api/v1/configmaps?resourceVersion=99999{query}")).await;
        assert_eq!(answer.code, 504, "{query}");
        assert_eq!(answer.message(), format!("Timeout: Too large resource version: 99999, current: {current}"));
        assert_eq!(answer.headers["retry-after"], "1");
        assert_eq!(started.elapsed().as_secs(), 3, "{query}");
    }
}

#[tokio::test]
async fn one_object_is_read_at_or_after_a_version() {
    let server = three().await;
    let path = "/api/v1/namespaces/ns/configmaps/a";
    let object = server.get(path).await;
    assert_eq!(object.json()["metadata"]["name"], "a");
    let version = object.resource_version();
    for query in
        ["?resourceVersion=0".to_owned(), format!("?resourceVersion={version}"), "?resourceVersion=".to_owned()]
    {
        assert_eq!(server.get(&format!("{path}{query}")).await.body, object.body, "{query}");
    }
    let bad = server.get(&format!("{path}?resourceVersion=abc")).await;
    let expected = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax","code":500}"#;
    assert_eq!((bad.code, bad.body.trim_end()), (500, expected));
    let none = server.get("/apis/apps/v1/namespaces/ns/deployments/nope").await;
    let expected = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"nope\" not found","reason":"NotFound","details":{"name":"nope","group":"apps","kind":"deployments"},"code":404}"#;
    assert_eq!((none.code, none.body.trim_end()), (404, expected));
}

/// Goal: a long list is streamed in small batches, and equals the list that is built at once.
#[tokio::test]
async fn long_lists_are_streams_of_small_batches() {
    let server = Server::new();
    let buffered = Server::with(Config { list_encoding: ListEncoding::Buffered, ..Config::default() });
    for index in 0..300 {
        let name = format!("c{index:03}");
        assert_eq!(server.create("ns", &name, "").await, buffered.create("ns", &name, "").await);
    }
    let mut body = server.open(request("/api/v1/configmaps")).await.into_body();
    assert_eq!(http_body::Body::size_hint(&body).exact(), None);
    let mut batches = 0;
    while let Some(frame) = body.frame().await {
        let batch = frame.unwrap().into_data().unwrap();
        assert!(batch.len() <= limits::SLICES_MAX, "{} slices", batch.len());
        assert!(batch.remaining() < 2 * limits::BATCH_BYTES, "{} bytes", batch.remaining());
        batches += 1;
    }
    assert!(3 < batches);
    let (streamed, whole) = (server.get("/api/v1/configmaps").await, buffered.get("/api/v1/configmaps").await);
    let keys = streamed.keys();
    assert_eq!((keys.len(), &keys), (300, &whole.keys()));
    assert!(keys.is_sorted());
    let selected = "/api/v1/configmaps?labelSelector=none%3Dx";
    assert_eq!(server.get(selected).await.body, buffered.get(selected).await.body);
    let short = server.open(request(selected)).await.into_body();
    assert!(http_body::Body::size_hint(&short).exact().is_some(), "a short list has a length");
    let mut protobuf = request("/api/v1/configmaps");
    protobuf.headers_mut().insert("accept", HeaderValue::from_static("application/vnd.kubernetes.protobuf"));
    let body = server.open(protobuf).await.into_body().collect().await.expect("a whole list").to_bytes();
    let list = api_rules::object::protobuf::decoded(&body).expect("a list");
    let items = list["items"].as_array().expect("items").iter();
    let name = |item: &serde_json::Value| format!("ns/{}", item["metadata"]["name"].as_str().unwrap_or_default());
    assert_eq!(items.map(name).collect::<Vec<_>>(), keys);
    // In encodings that are made on another thread, batch by batch.
    assert_eq!(server.get("/api/v1/configmaps?pretty=true").await.json(), streamed.json());
    for path in ["/api/v1/configmaps", selected] {
        let mut yaml = request(path);
        yaml.headers_mut().insert("accept", HeaderValue::from_static("application/yaml"));
        let yaml: serde_json::Value = serde_saphyr::from_str(&server.send(yaml).await.body).expect("is YAML");
        assert_eq!(yaml, server.get(path).await.json(), "{path}");
    }
}

#[tokio::test]
async fn deleting_a_collection_answers_what_was_there() {
    let server = three().await;
    let path = "/api/v1/namespaces/ns/configmaps";
    let delete = |query: &str| crate::http::tests::with_body("DELETE", &format!("{path}{query}"), String::new());
    let answer = server.send(delete("?labelSelector=app%3Dx")).await;
    assert_eq!((answer.code, answer.keys()), (200, vec!["ns/a".to_owned()]));
    assert_eq!(server.get("/api/v1/configmaps").await.keys(), ["ns/b", "other/c"]);
    assert_eq!(server.send(delete("?resourceVersionMatch=Exact")).await.code, 422);
}
