//! Metrics of requests: names, durations, bytes, and the number of series.

use std::collections::BTreeSet;

use super::*;

/// Metrics that a server has only after a panic, a refusal, a change of a file, a full window, or with an audit log or an
/// upstream; other tests read each of them.
const AT_TIMES: [&str; 13] = [
    "apiserver_audit_event_total",
    "apiserver_audit_level_total",
    "apiserver_authorization_decisions_total",
    "apiserver_request_aborts_total",
    "authenticated_user_requests_total",
    "authentication_attempts_total",
    "cache_flow_config_reloads_total",
    "cache_marked_streams_total",
    "cache_task_panics_total",
    "cache_upstream_silent_seconds",
    "cache_watches_refused_total",
    "cache_window_seconds",
    "apiserver_audit_error_total",
];

/// Returns the value of a series; `None` without it.
fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// Goal: the documentation lists exactly the metrics. Method: compare the names in its tables with those that a server shows
/// after a list, a watch and a write.
#[tokio::test]
async fn every_metric_is_documented_and_nothing_else() {
    let server = Server::new();
    server.create("default", "a", "").await;
    server.get("/api/v1/configmaps").await;
    let mut watch = server.open(get(&format!("/api/v1/configmaps?watch=1&{WATCH_LIST}"))).await.into_body();
    watch.frame().await.expect("the state").expect("is whole");
    let text = server.get("/metrics").await.body;
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let exposed: BTreeSet<String> = families
        .map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() })
        .collect();
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md")).expect("the page");
    let (_, ours) = page.split_once("# Metrics of the server").expect("its part");
    // Paths of documents follow.
    let (ours, _) = ours.split_once("\n## ").expect("a part behind it");
    let cells = ours.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |")).map(|(names, _)| names);
    let documented: BTreeSet<String> = cells.flat_map(|names| names.split("`, `")).map(str::to_owned).collect();
    let missing: Vec<_> = exposed.difference(&documented).collect();
    assert!(missing.is_empty(), "not documented: {missing:?}");
    let absent: Vec<_> = documented.difference(&exposed).filter(|name| !AT_TIMES.contains(&&***name)).collect();
    assert!(absent.is_empty(), "documented and not there: {absent:?}");
}

const WATCH_LIST: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// Goal: a list lasts until its last byte was taken, and its bytes are counted. Method: a long list of which one part is read,
/// and then, after a minute, the rest.
#[tokio::test(start_paused = true)]
async fn a_list_is_measured_until_its_last_byte_was_taken() {
    let server = Server::new();
    for number in 0..500 {
        server.create("default", &format!("c{number}"), "").await;
    }
    let of = r#"{verb="LIST",group="",version="v1",resource="configmaps",subresource="",scope="namespace"}"#;
    let (count, sum) = ("apiserver_request_duration_seconds_count", "apiserver_request_duration_seconds_sum");
    let mut list = server.open(get("/api/v1/namespaces/default/configmaps")).await.into_body();
    let mut bytes = list.frame().await.expect("a part").expect("is whole").into_data().expect("data").bytes();
    tokio::time::advance(Duration::from_secs(45)).await;
    let text = server.get("/metrics").await.body;
    assert_eq!(value(&text, &format!("{count}{of}")).unwrap_or_default(), 0.0, "it is being sent");
    assert_eq!(value(&text, &format!("cache_sent_bytes_total{of}")), Some(bytes as f64));
    bytes += list.collect().await.expect("the rest").to_bytes().len();
    let text = server.get("/metrics").await.body;
    assert_eq!(value(&text, &format!("{count}{of}")), Some(1.0));
    assert!(value(&text, &format!("{sum}{of}")).is_some_and(|seconds| (45.0..46.0).contains(&seconds)), "{text}");
    assert_eq!(value(&text, &format!("cache_sent_bytes_total{of}")), Some(bytes as f64));
}

/// Goal: watches are measured like kube-apiserver's: the state of one that begins with it, and all of it at its end. Method:
/// a watch of an object that ends after its timeout.
#[tokio::test(start_paused = true)]
async fn a_watch_is_measured_at_the_end_of_its_state_and_at_its_end() {
    let server = Server::new();
    server.create("default", "a", "").await;
    let path = format!("/api/v1/configmaps?watch=1&timeoutSeconds=7&{WATCH_LIST}");
    let body = server.send(get(&path)).await.body;
    let text = server.get("/metrics").await.body;
    let of = r#"group="",version="v1",resource="configmaps",scope="cluster"}"#;
    assert_eq!(value(&text, &format!("apiserver_watch_list_duration_seconds_count{{{of}")), Some(1.0), "{text}");
    let of = r#"{verb="WATCH",group="",version="v1",resource="configmaps",subresource="",scope="cluster"}"#;
    let whole = format!("apiserver_request_duration_seconds_sum{of}");
    assert!(value(&text, &whole).is_some_and(|seconds| (7.0..8.0).contains(&seconds)), "{text}");
    assert_eq!(value(&text, &format!("cache_sent_bytes_total{of}")), Some(body.len() as f64));
}

/// Goal: bytes that are not sent do not count, and writes to impossible paths add no scope. Method: a probe by HEAD, and a
/// PATCH without a name.
#[tokio::test]
async fn requests_without_a_body_or_a_name_are_measured() {
    let server = Server::new();
    server.send(with_body("HEAD", "/livez", String::new())).await;
    server.send(with_body("PATCH", "/api/v1/namespaces/default/configmaps", "{}".to_owned())).await;
    let text = server.get("/metrics").await.body;
    let head = r#"{verb="OTHER",group="",version="",resource="",subresource="",scope=""}"#;
    assert_eq!(value(&text, &format!("apiserver_request_duration_seconds_count{head}")), Some(1.0), "{text}");
    assert_eq!(value(&text, &format!("cache_sent_bytes_total{head}")), Some(0.0), "{text}");
    let patch = r#"{verb="PATCH",group="",version="v1",resource="configmaps",subresource="",scope="resource"}"#;
    assert_eq!(value(&text, &format!("apiserver_request_duration_seconds_count{patch}")), Some(1.0), "{text}");
}

/// Goal: clients create no series. Method: many requests for types, verbs and paths that do not exist.
#[tokio::test]
async fn unknown_types_and_methods_share_one_series() {
    let server = Server::new();
    server.get("/unknown").await;
    let series = |text: &str| text.lines().filter(|line| line.contains("request_duration_seconds_count")).count();
    let before = series(&server.get("/metrics").await.body);
    for number in 0..50 {
        server.get(&format!("/apis/g{number}/v1/types")).await;
        server.get(&format!("/api/v1/types{number}")).await;
        server.send(with_body(&format!("M{number}"), "/version", String::new())).await;
    }
    let text = server.get("/metrics").await.body;
    // GET of a document is `/metrics` itself.
    assert_eq!(series(&text), before + 1, "{text}");
}

/// Goal: a scrape is short before there are requests. Method: the lines of flow control after one request.
#[tokio::test]
async fn flow_control_shows_schemas_with_requests() {
    let server = Server::new();
    let lines = |text: &str| text.lines().filter(|line| line.contains("flow_schema=")).count();
    server.get("/api/v1/configmaps").await;
    let text = server.get("/metrics").await.body;
    let schemas: BTreeSet<&str> =
        text.lines().filter_map(|line| line.split_once("flow_schema=\"")?.1.split('"').next()).collect();
    assert_eq!(schemas.len(), 1, "{schemas:?}");
    assert!(lines(&text) < 60, "{text}");
    let refused = text.lines().filter(|line| line.starts_with("apiserver_flowcontrol_rejected_requests_total{"));
    let counts: Vec<_> = refused.map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(counts, [Some("0"); 3], "an increase of one from zero: {text}");
}
