//! WATCH: start positions, events and their times, and ends. Time is paused: it advances only when every task is idle.

use std::io::Read as _;

use http_body_util::BodyExt as _;
use informer_core::selector::shard;
use informer_serving::marks;
use serde_json::Value;

use super::*;
use crate::{
    config::Config,
    http::tests::{Server, get},
    read::body::BodyError,
    storage::hooked::{HookedStore, StoreHook},
};

/// A watch stream, read line by line.
struct Stream {
    body: Body,
    text: String,
}

impl Stream {
    /// Opens a watch of all ConfigMaps.
    async fn open(server: &Server, query: &str) -> Self {
        let response = server.open(get(&format!("/api/v1/configmaps?watch=1&{query}"))).await;
        assert_eq!(response.status(), 200, "{query}");
        assert_eq!(response.headers()["content-type"], "application/json");
        assert_eq!(http_body::Body::size_hint(response.body()).exact(), None, "a stream has no length");
        Self { body: response.into_body(), text: String::new() }
    }

    /// Returns a summary of the next line: type, name and position. `None` at the end of the stream.
    async fn next(&mut self) -> Option<String> {
        let line = self.line().await?;
        let event: Value = serde_json::from_str(&line).expect("a line is a document");
        let metadata = &event["object"]["metadata"];
        let kind = event["type"].as_str().unwrap();
        let name = metadata["name"].as_str().unwrap_or("-");
        let end = if metadata["annotations"]["k8s.io/initial-events-end"] == "true" { " end" } else { "" };
        Some(format!("{kind} {name} {}{end}", metadata["resourceVersion"].as_str().unwrap_or("-")))
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.text.find('\n') {
                return Some(self.text.drain(..=end).collect());
            }
            let batch = self.body.frame().await?.expect("a watch is never cut").into_data().expect("data");
            for slice in batch.iter() {
                self.text.push_str(std::str::from_utf8(slice).unwrap());
            }
        }
    }

    /// Reads the stream to its end.
    async fn rest(mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(line) = self.next().await {
            lines.push(line);
        }
        lines
    }

    /// Reads lines that are available without time passing.
    async fn now(&mut self, count: usize) -> Vec<String> {
        let began = Instant::now();
        let mut lines = Vec::new();
        for _ in 0..count {
            lines.push(self.next().await.expect("a line"));
        }
        assert_eq!(began.elapsed(), Duration::ZERO, "{lines:?}");
        lines
    }
}

async fn two() -> (Server, u64, u64) {
    let server = Server::new();
    let a = server.create("ns", "a", r#""app":"x""#).await;
    let b = server.create("ns", "b", "").await;
    (server, a, b)
}

const WATCH_LIST: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

#[tokio::test(start_paused = true)]
async fn a_watch_list_is_the_state_its_end_and_what_follows() {
    let (server, a, b) = two().await;
    let mut stream = Stream::open(&server, WATCH_LIST).await;
    let state = [format!("ADDED a {a}"), format!("ADDED b {b}"), format!("BOOKMARK - {b} end")];
    assert_eq!(stream.now(3).await, state);
    let c = server.create("other", "c", "").await;
    let a2 = server.patch("ns", "a", r#"{"data":{"k":"new"}}"#).await;
    server.delete("ns", "b").await;
    let expected = [format!("ADDED c {c}"), format!("MODIFIED a {a2}"), format!("DELETED b {}", a2 + 1)];
    assert_eq!(stream.now(3).await, expected);
}

/// An empty last block, the checksum and the length.
const TRAILER_BYTES: usize = 10;

/// Goal: a compressed watch is one gzip member, of which each event can be read at once. Method: a state of 200 KB and a
/// change, until the watch's time is over; and clients that read lines or resume tokens, whose watches are plain.
#[tokio::test(start_paused = true)]
async fn a_compressed_watch_ends_as_one_member() {
    let server = Server::new();
    for index in 0..40 {
        server.create("ns", &format!("a{index}"), "").await;
        server.patch("ns", &format!("a{index}"), &format!(r#"{{"data":{{"k":"{}"}}}}"#, "x".repeat(5_000))).await;
    }
    let open = async |others: &[(&'static str, &str)]| {
        let mut request = get(&format!("/api/v1/configmaps?watch=1&{WATCH_LIST}&timeoutSeconds=1"));
        for (name, value) in [&[("accept-encoding", "gzip")], others].concat() {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        server.open(request).await
    };
    for plain in [("upgrade", "websocket"), (marks::HEADER, "new")] {
        assert_eq!(open(&[plain]).await.headers().get("content-encoding"), None, "{plain:?}");
    }
    let response = open(&[]).await;
    assert_eq!(response.headers()["content-encoding"], "gzip");
    server.delete("ns", "a7").await;
    let whole = response.into_body().collect().await.expect("a clean end").to_bytes();
    assert!(whole.len() < 20_000, "{} bytes", whole.len());
    let (events, _trailer) = whole.split_at(whole.len() - TRAILER_BYTES);
    assert!(events.ends_with(&[0, 0, 0, 0xff, 0xff]), "a reader that waits for an empty block has the last event");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&*whole).read_to_string(&mut text).expect("one member");
    let kinds: Vec<_> = text.lines().map(|line| line.split('"').nth(3).unwrap()).collect();
    assert_eq!(kinds, [&["ADDED"; 40][..], &["BOOKMARK", "DELETED"]].concat());
}

/// Goal: objects that are compressed on another thread are all sent, and the watch goes on behind them. Method: long objects,
/// whose initial state several clients read, and a change behind it.
#[tokio::test(start_paused = true)]
async fn a_compressed_watch_of_long_objects_goes_on() {
    let server = Server::new();
    for index in 0..4 {
        server.create("ns", &format!("a{index}"), "").await;
        let text: String = (0..20_000).map(|number| format!("{:05x}", number * 7_919 % 1_048_576)).collect();
        server.patch("ns", &format!("a{index}"), &format!(r#"{{"data":{{"k":"{text}"}}}}"#)).await;
    }
    for round in 0..2 {
        let mut request = get(&format!("/api/v1/configmaps?watch=1&{WATCH_LIST}&timeoutSeconds=30"));
        request.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
        let response = server.open(request).await;
        assert_eq!(response.headers()["content-encoding"], "gzip");
        let changed = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            server.patch("ns", "a3", &format!(r#"{{"data":{{"k":"{round}"}}}}"#)).await;
        };
        let (whole, ()) = tokio::join!(response.into_body().collect(), changed);
        let mut text = String::new();
        let whole = whole.expect("a clean end").to_bytes();
        flate2::read::GzDecoder::new(&*whole).read_to_string(&mut text).expect("one member");
        let kinds: Vec<_> = text.lines().map(|line| line.split('"').nth(3).unwrap()).collect();
        assert_eq!(kinds[..6], [&["ADDED"; 4][..], &["BOOKMARK", "MODIFIED"]].concat());
    }
}

/// Goal: a watch of a shard has the events of its objects alone, each once among all shards.
#[tokio::test(start_paused = true)]
async fn shards_divide_events() {
    let (server, a, b) = two().await;
    let mut streams = Vec::new();
    for index in [0, 1] {
        let half = shard::Selector::part(shard::ShardField::Uid, index, 2).unwrap().to_string().replace(' ', "%20");
        streams.push(Stream::open(&server, &format!("{WATCH_LIST}&shardSelector={half}&timeoutSeconds=30")).await);
    }
    let c = server.create("other", "c", "").await;
    let a2 = server.patch("ns", "a", r#"{"data":{"k":"new"}}"#).await;
    server.delete("ns", "b").await;
    let mut lines = Vec::new();
    for found in futures::future::join_all(streams.into_iter().map(Stream::rest)).await {
        let of = |name: &str| found.iter().filter(|line| line.split(' ').nth(1) == Some(name)).count();
        assert!(matches!((of("a"), of("b"), of("c")), (0 | 2, 0 | 2, 0 | 1)), "{found:?}");
        lines.extend(found.into_iter().filter(|line| !line.starts_with("BOOKMARK")));
    }
    lines.sort_unstable_by_key(|line| line.rsplit(' ').next().and_then(|position| position.parse::<u64>().ok()));
    let expected = [
        format!("ADDED a {a}"),
        format!("ADDED b {b}"),
        format!("ADDED c {c}"),
        format!("MODIFIED a {a2}"),
        format!("DELETED b {}", a2 + 1),
    ];
    assert_eq!(lines, expected);
}

#[tokio::test(start_paused = true)]
async fn only_who_knows_bookmarks_gets_them() {
    let (server, a, b) = two().await;
    let state = vec![format!("ADDED a {a}"), format!("ADDED b {b}")];
    for query in ["", "resourceVersion=0", "sendInitialEvents=1&resourceVersionMatch=NotOlderThan"] {
        let stream = Stream::open(&server, &format!("{query}&timeoutSeconds=300")).await;
        assert_eq!(stream.rest().await, state, "{query}");
    }
    // A client that did not request the end bookmark gets it too, because the initial state is sent by default.
    let mut stream = Stream::open(&server, "allowWatchBookmarks=1").await;
    assert_eq!(stream.now(3).await[2], format!("BOOKMARK - {b} end"));
    let stream =
        Stream::open(&server, &format!("{WATCH_LIST}&fieldSelector=metadata.name%3Dnone&timeoutSeconds=1")).await;
    assert_eq!(stream.rest().await, [format!("BOOKMARK - {b} end")]);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_hears_where_it_is_every_minute_and_before_its_end() {
    let (server, _, b) = two().await;
    let began = Instant::now();
    let mut stream =
        Stream::open(&server, &format!("resourceVersion={b}&allowWatchBookmarks=1&timeoutSeconds=150")).await;
    for second in [60, 120, 148] {
        assert_eq!(stream.next().await.unwrap(), format!("BOOKMARK - {b}"));
        assert_eq!(began.elapsed().as_secs(), second);
    }
    assert_eq!(stream.next().await, None);
    assert_eq!(began.elapsed().as_secs(), 150);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_carry_what_others_wrote() {
    let (server, _, b) = two().await;
    let query = format!("resourceVersion={b}&allowWatchBookmarks=1&timeoutSeconds=10&labelSelector=app%3Dnone");
    let mut stream = Stream::open(&server, &query).await;
    let c = server.create("ns", "c", "").await;
    assert_eq!(stream.next().await.unwrap(), format!("BOOKMARK - {c}"));
    assert_eq!(stream.next().await, None);
    let stream = Stream::open(&server, &format!("resourceVersion={b}&allowWatchBookmarks=1&timeoutSeconds=1")).await;
    assert_eq!(stream.rest().await, [format!("ADDED c {c}")], "too short for a bookmark");
}

#[tokio::test(start_paused = true)]
async fn the_interval_of_bookmarks_is_a_setting() {
    let server = Server::with(Config { bookmark_interval: Duration::from_millis(100), ..Config::default() });
    let a = server.create("ns", "a", "").await;
    let query = format!("resourceVersion={a}&allowWatchBookmarks=1&timeoutSeconds=1");
    let lines = Stream::open(&server, &query).await.rest().await;
    assert!((8..=10).contains(&lines.len()), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn history_is_replayed_after_a_position() {
    let (server, a, b) = two().await;
    let c = server.create("ns", "c", "").await;
    for (query, expected) in [
        (format!("resourceVersion={a}"), vec![format!("ADDED b {b}"), format!("ADDED c {c}")]),
        (
            format!("resourceVersion={b}&sendInitialEvents=0&resourceVersionMatch=NotOlderThan"),
            vec![format!("ADDED c {c}")],
        ),
        (format!("resourceVersion={c}"), vec![]),
        ("sendInitialEvents=0&resourceVersionMatch=NotOlderThan".into(), vec![]),
        ("sendInitialEvents=0&resourceVersionMatch=NotOlderThan&resourceVersion=0".into(), vec![]),
    ] {
        let stream = Stream::open(&server, &format!("{query}&timeoutSeconds=2")).await;
        assert_eq!(stream.rest().await, expected, "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn objects_enter_and_leave_a_selector() {
    let (server, a, _) = two().await;
    let query = format!("resourceVersion={a}&labelSelector=app%3Dx");
    let mut stream = Stream::open(&server, &query).await;
    let left = server.patch("ns", "a", r#"{"metadata":{"labels":{"app":"y"}}}"#).await;
    server.patch("ns", "a", r#"{"data":{"k":"unseen"}}"#).await;
    let back = server.patch("ns", "a", r#"{"metadata":{"labels":{"app":"x"}}}"#).await;
    server.delete("ns", "a").await;
    let line = stream.line().await.unwrap();
    let gone: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&gone["type"], &gone["object"]["metadata"]["labels"]["app"]), (&"DELETED".into(), &"x".into()));
    assert_eq!(gone["object"]["metadata"]["resourceVersion"], left.to_string());
    assert_eq!(stream.now(2).await, [format!("ADDED a {back}"), format!("DELETED a {}", back + 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_position_that_is_too_old_is_said_in_the_stream() {
    let (server, ..) = two().await;
    server.get("/api/v1/configmaps").await;
    let mut stream = Stream::open(&server, "resourceVersion=5").await;
    let line = stream.line().await.unwrap();
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(event["type"], "ERROR");
    let status = &event["object"];
    assert_eq!((&status["code"], &status["reason"]), (&410.into(), &"Expired".into()));
    let message = status["message"].as_str().unwrap();
    assert!(message.starts_with("too old resource version: 5 ("), "{message}");
    assert_eq!(stream.next().await, None);
    let metrics = server.get("/metrics").await.body;
    assert!(metrics.contains("cache_watches_refused_total{resource=\"configmaps\"} 1\n"), "{metrics}");
    // As the minimum version of an initial state, an old position is valid.
    let mut stream = Stream::open(&server, &format!("{WATCH_LIST}&resourceVersion=5")).await;
    assert_eq!(stream.now(3).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_state_that_is_too_new_is_said_in_the_stream_after_three_seconds() {
    let (server, _, b) = two().await;
    let began = Instant::now();
    let mut stream = Stream::open(&server, &format!("{WATCH_LIST}&resourceVersion=99999")).await;
    assert_eq!(began.elapsed().as_secs(), 3);
    let expected = format!(
        r#"{{"type":"ERROR","object":{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"Timeout: Too large resource version: 99999, current: {b}","reason":"Timeout","details":{{"causes":[{{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}}],"retryAfterSeconds":1}},"code":504}}}}"#
    );
    assert_eq!(stream.line().await.unwrap().trim_end(), expected);
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn what_is_wrong_with_the_request_is_an_http_status() {
    let (server, ..) = two().await;
    for (query, code, message) in [
        (
            "resourceVersion=abc",
            500,
            "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax",
        ),
        ("limit=x", 400, "strconv.ParseInt: parsing \"x\": invalid syntax"),
        (
            "fieldSelector=spec.foo%3Dx",
            400,
            "\"spec.foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        (
            "sendInitialEvents=true",
            422,
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
    ] {
        let answer = server.get(&format!("/api/v1/configmaps?watch=1&{query}")).await;
        assert_eq!((answer.code, &*answer.message()), (code, message), "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn watches_that_do_not_say_last_half_an_hour_or_more() {
    let (server, _, b) = two().await;
    for query in ["", "&timeoutSeconds=0"] {
        let began = Instant::now();
        let stream = Stream::open(&server, &format!("resourceVersion={b}{query}")).await;
        assert!(stream.rest().await.is_empty());
        assert!((1_800..3_600).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    }
    for (requested, expected) in [(Some(-1), 0), (Some(7), 7), (Some(i64::MAX), SECONDS_MAX)] {
        assert_eq!(lifetime(requested), Duration::from_secs(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_ends_its_watches_cleanly() {
    let (server, ..) = two().await;
    let mut stream = Stream::open(&server, WATCH_LIST).await;
    stream.now(3).await;
    server.app.caches.shut_down();
    assert_eq!(stream.next().await, None);
}

/// The collection of all objects of a type.
fn all_of(ty: &Arc<ResourceType>) -> Target {
    Target { ty: Arc::clone(ty), namespace: None, name: None, subresource: None, watched: false }
}

/// Goal: after a relist clients reconnect spread out, and a server that shuts down ends all watches at once. Method: a
/// cache that is reset, then one that is closed.
#[tokio::test(start_paused = true)]
async fn watches_of_a_history_that_is_over_end_one_after_the_other() {
    let app = App::new(Config::default());
    let ty = app.registry.now().find("", "v1", "configmaps").expect("a built-in type");
    for closed in [false, true] {
        let (mut writer, _waking, reader) = watch_cache::cache(Arc::clone(&ty.schema), Default::default());
        writer.reset(Default::default(), 5, app.caches.now());
        let begun = Instant::now();
        let watches = (0..200).map(|_| {
            let cursor = reader.cursor(CursorStart::After(5), Filter::all()).expect("the head");
            let deadline = begun + Duration::from_secs(3_600);
            let watching =
                app.metrics.watch(RequestClass::of("WATCH", &all_of(&ty)), WatchOrigin::default(), &Filter::all());
            Body::watch(Watch::new(cursor, None, None, false, deadline, watching))
        });
        let watches: Vec<_> = watches.collect();
        if closed {
            writer.close();
        } else {
            writer.reset(Default::default(), 9, app.caches.now());
        }
        let ends = watches.into_iter().map(|mut watch| async move {
            assert!(watch.frame().await.is_none(), "nothing is sent");
            // tokio's timers fire at the next whole millisecond.
            begun.elapsed().saturating_sub(Duration::from_millis(1)).as_secs()
        });
        let seconds: std::collections::BTreeSet<u64> = futures::future::join_all(ends).await.into_iter().collect();
        let expected: Vec<u64> = if closed { vec![0] } else { (0..10).collect() };
        assert_eq!(seconds.into_iter().collect::<Vec<_>>(), expected, "closed: {closed}");
        assert_eq!(app.metrics.open_watches().take_causes(), ["history_ended"], "closed: {closed}");
    }
}

/// Reason for the end of a watch.
#[derive(Clone, Copy)]
enum End {
    Relist,
    Closed,
    Deadline,
}

/// Goal: no client takes a partial state for complete and resumes from its last object. Method: streams of a state of
/// many batches, of which one was read when the history or the watch's timeout ends; one of them without bookmarks.
#[tokio::test(start_paused = true)]
async fn what_ends_a_watch_cuts_the_initial_states_that_are_not_whole() {
    let app = App::new(Config::default());
    let ty = app.registry.now().find("", "v1", "configmaps").expect("a built-in type");
    let entry = |index: u64| {
        let object = format!(
            r#"{{"metadata":{{"name":"a{index:04}","namespace":"ns"}},"data":{{"k":"{}"}}}}"#,
            "x".repeat(1_000)
        );
        watch_cache::Draft::new(&ty.schema, object.as_bytes()).expect("an object").commit(index + 1)
    };
    for (end, end_bookmark) in [
        (End::Relist, true),
        (End::Relist, false),
        (End::Closed, true),
        (End::Closed, false),
        (End::Deadline, true),
        (End::Deadline, false),
    ] {
        let (mut writer, _waking, reader) = watch_cache::cache(Arc::clone(&ty.schema), Default::default());
        writer.reset((0..500).map(entry).collect(), 1_000, app.caches.now());
        let begun = Instant::now();
        let cursor = reader.cursor(CursorStart::Initial(reader.snapshot()), Filter::all()).expect("the head");
        let deadline = begun + Duration::from_secs(3_600);
        let watch = Watch::new(
            cursor,
            None,
            None,
            end_bookmark,
            deadline,
            app.metrics.watch(RequestClass::of("WATCH", &all_of(&ty)), WatchOrigin::default(), &Filter::all()),
        );
        let mut body = Body::watch(watch);
        body.frame().await.expect("the first batch").expect("not cut yet");
        let cause = if matches!(end, End::Deadline) { "deadline" } else { "history_ended" };
        let within = match end {
            End::Closed => {
                writer.close();
                Duration::ZERO
            }
            End::Relist => {
                writer.reset(Default::default(), 2_000, app.caches.now());
                ENDS_SPREAD
            }
            End::Deadline => {
                tokio::time::advance(Duration::from_secs(3_600)).await;
                Duration::from_secs(3_600)
            }
        };
        let end = body.frame().await.expect("no clean end").expect_err("nothing more is sent");
        assert_eq!(end, BodyError::Cut);
        assert!(body.frame().await.is_none(), "nothing follows");
        assert!(begun.elapsed() <= within, "{:?}", begun.elapsed());
        drop(body);
        assert_eq!(app.metrics.open_watches().take_causes(), [cause]);
    }
}

#[tokio::test(start_paused = true)]
async fn watches_are_counted_while_they_are_open() {
    let (server, ..) = two().await;
    let open = |text: &str| format!("apiserver_longrunning_requests{{verb=\"WATCH\",resource=\"configmaps\"}} {text}");
    let mut stream = Stream::open(&server, WATCH_LIST).await;
    stream.now(3).await;
    server.patch("ns", "a", r#"{"data":{"k":"new"}}"#).await;
    server.delete("ns", "b").await;
    stream.now(2).await;
    let metrics = server.get("/metrics").await.body;
    assert!(metrics.contains(&open("1")), "{metrics}");
    assert!(metrics.contains("apiserver_watch_events_total{resource=\"configmaps\"} 4"), "{metrics}");
    drop(stream);
    assert!(server.get("/metrics").await.body.contains(&open("0")));
    assert_eq!(server.app.metrics.open_watches().take_causes(), ["client_left"]);
    let unread = Stream::open(&server, "timeoutSeconds=5").await;
    tokio::time::advance(Duration::from_secs(6)).await;
    drop(unread);
    assert_eq!(server.app.metrics.open_watches().take_causes(), ["slow"]);
}

/// Goal: a slow reader whose snapshot is evicted never gets the end bookmark. Method: a tiny bound, a reader that stops
/// after the first batch, and writes until its snapshot is too expensive.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_cut_ends_before_its_end_bookmark() {
    let limits = watch_cache::Limits { window_bytes_max: 4 << 10, snapshot_bytes_max: 8 << 10, ..Default::default() };
    let server = Server::with(Config { limits, ..Config::default() });
    for index in 0..200 {
        server.create("ns", &format!("c{index:03}"), "").await;
    }
    let mut stream = Stream::open(&server, WATCH_LIST).await;
    let mut list = server.open(get("/api/v1/configmaps")).await.into_body();
    stream.next().await.expect("the first object");
    list.frame().await.expect("the first batch").expect("not cut yet");
    for round in 0..100 {
        server.patch("ns", "c000", &format!(r#"{{"data":{{"k":"{round}"}}}}"#)).await;
    }
    server.get("/api/v1/configmaps").await;
    let mut text = stream.text;
    let cut = async |body: &mut Body, text: &mut String| {
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => {
                    for slice in frame.into_data().expect("data").iter() {
                        text.push_str(std::str::from_utf8(slice).unwrap());
                    }
                }
                Err(error) => return Some(error),
            }
        }
        None
    };
    assert_eq!(cut(&mut stream.body, &mut text).await, Some(BodyError::Cut), "an initial state that is not whole");
    assert!(stream.body.frame().await.is_none(), "nothing follows");
    drop(stream.body);
    assert_eq!(server.app.metrics.open_watches().take_causes(), ["cut"]);
    assert!(text.lines().count() < 200 && text.lines().all(|line| line.starts_with(r#"{"type":"ADDED""#)), "{text}");
    assert_eq!(cut(&mut list, &mut text).await, Some(BodyError::Cut), "a LIST that is cut is no whole list");
}

/// Goal: a watch without time ends as in kube-apiserver: with an error if it needs the current position, silently otherwise.
#[tokio::test(start_paused = true)]
async fn a_negative_timeout_is_over_before_it_begins() {
    let (server, a, _) = two().await;
    for (query, fails) in [
        ("", true),
        ("allowWatchBookmarks=1", true),
        (WATCH_LIST, true),
        ("resourceVersion=0", false),
        (&*format!("resourceVersion={a}"), false),
    ] {
        let mut stream = Stream::open(&server, &format!("{query}&timeoutSeconds=-1")).await;
        let error = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"context deadline exceeded","reason":"InternalError","code":500}}"#;
        assert_eq!(stream.line().await.as_deref().map(str::trim_end), fails.then_some(error), "{query}");
        assert_eq!(stream.line().await, None, "{query}");
    }
}

/// Goal: a position that only an earlier run can have assigned is refused before this run assigns it to another change.
/// Method: watches one position and many ahead of a store in memory, which then writes.
#[tokio::test(start_paused = true)]
async fn a_watch_ahead_of_the_own_storage_is_refused_at_once() {
    let (server, _, b) = two().await;
    for ahead in [1, 3, 1_000_000] {
        let mut stream = Stream::open(&server, &format!("resourceVersion={}&timeoutSeconds=60", b + ahead)).await;
        let began = Instant::now();
        let error: Value = serde_json::from_str(&stream.line().await.expect("an error")).expect("a document");
        let status = &error["object"];
        assert_eq!((&status["code"], &status["reason"]), (&410.into(), &"Expired".into()), "{error}");
        assert_eq!(status["message"], format!("unknown resource version: {}, current: {b}", b + ahead));
        assert_eq!((stream.next().await, began.elapsed()), (None, Duration::ZERO));
    }
    let mut stream = Stream::open(&server, &format!("resourceVersion={b}&timeoutSeconds=60")).await;
    let c = server.create("ns", "c", "").await;
    assert_eq!(stream.next().await, Some(format!("ADDED c {c}")), "the newest position is no such position");
}

/// Replaces no call: positions of a store without a history may be those of other processes.
struct SharedPositions;

impl StoreHook for SharedPositions {}

/// Goal: a position of another history is refused instead of waiting in silence. Method: watches ahead of a shared storage,
/// and one whose position is reached while it waits.
#[tokio::test(start_paused = true)]
async fn a_watch_that_stays_ahead_of_a_shared_storage_is_refused_after_three_seconds() {
    let storage = HookedStore::by(SharedPositions);
    let server = Server { app: Arc::new(App::with_storage(Config::default(), Arc::new(storage))) };
    server.create("ns", "a", "").await;
    let b = server.create("ns", "b", "").await;
    for query in ["", "&allowWatchBookmarks=1", "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"] {
        let began = Instant::now();
        let mut stream = Stream::open(&server, &format!("resourceVersion={}{query}", b + 3)).await;
        assert_eq!(began.elapsed(), Duration::ZERO, "accepted at once");
        let error: Value = serde_json::from_str(&stream.line().await.expect("an error")).expect("a document");
        assert_eq!(error["type"], "ERROR");
        let status = &error["object"];
        assert_eq!((&status["code"], &status["reason"]), (&410.into(), &"Expired".into()), "{error}");
        assert_eq!(status["message"], format!("unknown resource version: {}, current: {b}", b + 3));
        assert_eq!((stream.next().await, began.elapsed()), (None, Duration::from_secs(3)));
    }
    let mut stream = Stream::open(&server, &format!("resourceVersion={}&timeoutSeconds=60", b + 3)).await;
    for name in ["c", "d", "e"] {
        server.create("ns", name, "").await;
    }
    let f = server.create("ns", "f", "").await;
    assert_eq!(stream.next().await, Some(format!("ADDED f {f}")), "nothing at or below its position");
    tokio::time::sleep(Duration::from_secs(10)).await;
    let g = server.create("ns", "g", "").await;
    assert_eq!(stream.rest().await, [format!("ADDED g {g}")], "it is not ahead any more");
}
