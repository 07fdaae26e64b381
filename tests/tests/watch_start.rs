//! WATCH over real sockets against the real binary: where a stream starts, what initial state it sends, what its
//! bookmarks carry, and how it ends.

use std::time::Duration;

use futures::future::join_all;
use informer_core::wire::watch_event::EventKind;
use tests::{
    http::{Client, Event, LINE_WAIT, Step, briefs, strictly_increase, watch_list, with_query},
    objects::{configmap, pod, secret},
    process::Server,
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const CONFIGMAPS: &str = "/api/v1/configmaps";
const PODS: &str = "/api/v1/pods";

async fn server() -> Server {
    Server::start(BINARY, &["--first-revision", "1000"]).await
}

/// Where a row of the start table asks to start.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Start {
    Unset,
    Zero,
    /// The position before the objects of the row were written.
    Before,
    /// A position before everything that is remembered.
    Lost,
    /// The position of the last write.
    Current,
}

/// What a row sends before anything new happens.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Initial {
    /// Each object once, as it is.
    State,
    /// The writes that made them.
    History,
    Nothing,
}

/// Name of the row, position, sendInitialEvents, allowWatchBookmarks; initial events, and whether their end is marked.
type Row = (&'static str, Start, Option<bool>, bool, Initial, bool);

const ROWS: &[Row] = &[
    ("B1", Start::Unset, Some(true), true, Initial::State, true),
    ("B2", Start::Unset, Some(false), true, Initial::Nothing, false),
    ("B2 without bookmarks", Start::Unset, Some(false), false, Initial::Nothing, false),
    ("B4", Start::Unset, Some(true), false, Initial::State, false),
    ("legacy", Start::Unset, None, false, Initial::State, false),
    ("legacy with bookmarks", Start::Unset, None, true, Initial::State, true),
    ("B5", Start::Zero, Some(true), true, Initial::State, true),
    ("B6", Start::Zero, Some(false), true, Initial::Nothing, false),
    ("B7", Start::Zero, Some(false), false, Initial::Nothing, false),
    ("B8", Start::Zero, Some(true), false, Initial::State, false),
    ("B10", Start::Before, Some(false), true, Initial::History, false),
    ("B11", Start::Before, Some(false), false, Initial::History, false),
    ("from history", Start::Before, None, true, Initial::History, false),
    ("B13", Start::Current, Some(true), true, Initial::State, true),
    ("B14", Start::Current, Some(false), true, Initial::Nothing, false),
    ("B15", Start::Current, Some(false), false, Initial::Nothing, false),
    ("B16", Start::Current, Some(true), false, Initial::State, false),
    ("from now", Start::Current, None, false, Initial::Nothing, false),
    ("B17", Start::Zero, None, false, Initial::State, false),
    ("B18", Start::Zero, None, true, Initial::State, true),
    ("not older than something old", Start::Before, Some(true), true, Initial::State, true),
    ("never too old for state", Start::Lost, Some(true), true, Initial::State, true),
];

/// Goal: the start table row by row. Method: per row a namespace with p1, p2 (written twice) and p3, then a foreign
/// write, the watch, p4 and p5; the whole sequence is compared.
#[tokio::test]
async fn every_start_sends_its_initial_state_and_then_what_follows() {
    let server = server().await;
    let client = server.client();
    let begin = client.get(CONFIGMAPS).await.with_code(200).resource_version();
    for (number, row) in ROWS.iter().enumerate() {
        check_start(&client, begin, number, row).await;
    }
}

async fn check_start(client: &Client, begin: u64, number: usize, row: &Row) {
    let (id, start, send_initial, bookmarks, initial, end) = *row;
    let namespace = format!("row-{number}");
    let object = |name: &str| configmap(name).namespace(&namespace);
    let before = client.create(&configmap(&format!("before-{number}"))).await;
    let mut written = Vec::new();
    for name in ["p1", "p2", "p3"] {
        written.push(client.create(&object(name)).await);
    }
    let updated = client.update(&object("p2").data("new")).await;
    let foreign = client.create(&configmap(&format!("foreign-{number}"))).await;
    // Reads of any age are of this age from here on.
    client.get(CONFIGMAPS).await.with_code(200);

    let position = match start {
        Start::Unset => String::new(),
        Start::Zero => "0".into(),
        Start::Before => before.to_string(),
        Start::Lost => (begin - 1).to_string(),
        Start::Current => foreign.to_string(),
    };
    let mut watch =
        client.watch(&with_query(&object("").collection(), &query(&position, send_initial, bookmarks))).await;
    assert_eq!(watch.code(), 200, "{id}");
    written.push(client.create(&object("p4")).await);
    written.push(client.create(&object("p5")).await);

    let mut expected = match initial {
        Initial::Nothing => vec![],
        Initial::State => vec![("ADDED p1", written[0]), ("ADDED p2", updated), ("ADDED p3", written[2])],
        Initial::History => {
            vec![("ADDED p1", written[0]), ("ADDED p2", written[1]), ("ADDED p3", written[2]), ("MODIFIED p2", updated)]
        }
    };
    if end {
        // The position of the whole type, not of what was sent.
        expected.push(("INITIAL-END", foreign));
    }
    expected.extend([("ADDED p4", written[3]), ("ADDED p5", written[4])]);
    let events = watch.events(expected.len()).await;
    let found: Vec<_> = events
        .iter()
        .map(|event| (event.brief().replace(&format!("{namespace}/"), ""), event.resource_version()))
        .collect();
    let expected: Vec<_> = expected.into_iter().map(|(brief, at)| (brief.to_owned(), at)).collect();
    assert_eq!(found, expected, "{id}");
}

fn query(position: &str, send_initial: Option<bool>, bookmarks: bool) -> Vec<(&'static str, &str)> {
    let send = send_initial.map_or("", |send| if send { "true" } else { "false" });
    let query = [
        ("watch", "true"),
        ("resourceVersion", position),
        ("sendInitialEvents", send),
        ("resourceVersionMatch", send_initial.map_or("", |_| "NotOlderThan")),
        ("allowWatchBookmarks", if bookmarks { "true" } else { "" }),
    ];
    query.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

#[tokio::test]
async fn a_start_before_the_history_is_an_error_in_the_stream() {
    let server = server().await;
    let client = server.client();
    let listed = client.get(CONFIGMAPS).await.with_code(200).resource_version();
    for more in ["", "&allowWatchBookmarks=true", "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"] {
        let mut watch = client.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={}{more}", listed - 1)).await;
        assert_eq!((watch.code().as_u16(), watch.header("content-type")), (200, "application/json"));
        let events = watch.rest(LINE_WAIT).await;
        assert_eq!(
            std::str::from_utf8(&events[0].raw).unwrap(),
            format!(
                "{{\"type\":\"ERROR\",\"object\":{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\
                 \"status\":\"Failure\",\"message\":\"too old resource version: {} ({listed})\",\"reason\":\"Expired\",\
                 \"code\":410}}}}\n",
                listed - 1
            )
        );
        assert_eq!(events.len(), 1, "{events:?}");
    }
    // The list's own position is the oldest one to start from; one above it is fine too.
    let mut at = client.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={listed}")).await;
    let mut above = client.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={}", listed + 1)).await;
    client.create(&secret("elsewhere")).await;
    let written = client.create(&configmap("a")).await;
    assert!(written > listed + 1);
    for watch in [&mut at, &mut above] {
        assert_eq!(watch.event().await.brief(), "ADDED default/a");
    }
}

#[tokio::test]
async fn what_the_window_dropped_is_too_old_and_what_it_names_is_not() {
    let server = Server::start(BINARY, &["--first-revision", "1000", "--window-bytes", "65536"]).await;
    let client = server.client();
    let listed = client.get(CONFIGMAPS).await.with_code(200).resource_version();
    let filler = "x".repeat(4_000);
    for round in 0..100 {
        let object = configmap("a").data(&format!("{round}{filler}"));
        if round == 0 {
            client.create(&object).await
        } else {
            client.update(&object).await
        };
    }
    // Once this is answered, the cache has seen every write, and the window rests.
    client.get(CONFIGMAPS).await.with_code(200);
    let mut watch = client.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={listed}")).await;
    let events = watch.rest(LINE_WAIT).await;
    assert_eq!(briefs(&events), ["ERROR 410"]);
    let message = events[0].object["message"].as_str().unwrap().to_owned();
    let oldest = message.strip_prefix(&format!("too old resource version: {listed} ("));
    let oldest: u64 = oldest.and_then(|rest| rest.strip_suffix(')')).unwrap().parse().unwrap();
    assert!(oldest > listed, "{message}");
    let mut watch = client.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={oldest}")).await;
    let event = watch.event().await;
    assert_eq!(event.brief(), "MODIFIED default/a", "{message}, and then {}", event.object["message"]);
    let mut watch = client.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={}", oldest - 1)).await;
    assert_eq!(briefs(&watch.rest(LINE_WAIT).await), ["ERROR 410"]);
}

#[tokio::test]
async fn a_plain_start_in_the_future_is_silent_until_then() {
    let server = server().await;
    let client = server.client();
    let now = client.create(&configmap("a")).await;
    let mut watch = client.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={}", now + 3)).await;
    assert!(watch.age() < Duration::from_secs(2), "the headers do not wait");
    let mut written = Vec::new();
    for name in ["b", "c", "d", "e", "f"] {
        written.push(client.create(&configmap(name)).await);
    }
    let expected: Vec<_> = written.into_iter().filter(|at| *at > now + 3).collect();
    let events = watch.events(expected.len()).await;
    assert_eq!(events.iter().map(Event::resource_version).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn initial_state_from_the_future_is_refused_in_the_stream_until_it_is_there() {
    let server = server().await;
    let client = server.client();
    let now = client.create(&configmap("a")).await;
    let path = format!("{}&resourceVersion={}", watch_list(CONFIGMAPS), now + 2);
    let mut watch = client.watch(&path).await;
    let waited = watch.age().as_secs_f64();
    assert!((2.8..8.0).contains(&waited), "headers after {waited} s");
    let events = watch.rest(LINE_WAIT).await;
    assert_eq!(briefs(&events), ["ERROR 504"]);
    let status = &events[0].object;
    assert_eq!(status["message"], format!("Timeout: Too large resource version: {}, current: {now}", now + 2));
    assert_eq!(status["reason"], "Timeout");
    assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(status["details"]["retryAfterSeconds"], 1);

    let (mut watch, ()) = tokio::join!(client.watch(&path), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        client.create(&configmap("b")).await;
        client.create(&configmap("c")).await;
    });
    let expected = ["ADDED default/a", "ADDED default/b", "ADDED default/c", "INITIAL-END"];
    assert_eq!(briefs(&watch.events(4).await), expected);
}

#[tokio::test]
async fn state_is_sorted_by_key_and_carries_each_objects_own_position() {
    let server = server().await;
    let client = server.client();
    let mut written = Vec::new();
    for key in ["b/a", "a/z", "a-b/x", "a/a"] {
        let (namespace, name) = key.split_once('/').unwrap();
        written.push((key.to_owned(), client.create(&configmap(name).namespace(namespace)).await));
    }
    written.sort();
    let mut watch = client.watch(&watch_list(CONFIGMAPS)).await;
    let events = watch.events(5).await;
    let found: Vec<_> = events[..4]
        .iter()
        .map(|event| (event.brief().strip_prefix("ADDED ").unwrap().to_owned(), event.resource_version()))
        .collect();
    assert_eq!(found, written);
    assert!(events[4].ends_initial_state());
}

#[tokio::test]
async fn nothing_to_send_still_ends_the_initial_state() {
    let server = server().await;
    let client = server.client();
    let other = client.create(&secret("s")).await;
    for path in [
        CONFIGMAPS.to_owned(),
        "/api/v1/namespaces/none/secrets".to_owned(),
        "/api/v1/secrets?labelSelector=none".to_owned(),
        "/api/v1/namespaces/default/secrets?fieldSelector=metadata.name%3Dnone".to_owned(),
    ] {
        let end = client.watch(&watch_list(&path)).await.event().await;
        assert!(end.ends_initial_state(), "{path}: {end:?}");
        assert_eq!(end.resource_version(), other, "{path}: the position is that of the storage");
    }
}

#[tokio::test]
async fn a_bookmark_is_an_empty_object_of_the_type() {
    let server = server().await;
    let client = server.client();
    let now = client.create(&secret("s")).await;
    for (path, kind, api_version) in
        [(CONFIGMAPS, "ConfigMap", "v1"), (PODS, "Pod", "v1"), ("/apis/apps/v1/deployments", "Deployment", "apps/v1")]
    {
        let line = client.watch(&watch_list(path)).await.event().await;
        assert_eq!(
            std::str::from_utf8(&line.raw).unwrap(),
            format!(
                "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":\
                 {{\"resourceVersion\":\"{now}\",\"annotations\":{{\"k8s.io/initial-events-end\":\"true\"}}}}}}}}\n"
            )
        );
    }
}

#[tokio::test]
async fn one_name_is_watched_alone_but_bookmarked_with_all() {
    let server = server().await;
    let client = server.client();
    let single = configmap("single").label("app", "x");
    let written = client.create(&single).await;
    let later = client.create(&configmap("later")).await;
    let path = "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Dsingle";
    let mut watch = client.watch(&watch_list(path)).await;
    let events = watch.events(2).await;
    assert_eq!(briefs(&events), ["ADDED default/single", "INITIAL-END"]);
    assert_eq!((events[0].resource_version(), events[1].resource_version()), (written, later));
    client.update(&configmap("later").data("new")).await;
    client.update(&single.data("new")).await;
    assert_eq!(watch.event().await.brief(), "MODIFIED default/single");
}

#[tokio::test]
async fn a_line_is_one_compact_document_with_its_type_first() {
    let server = server().await;
    let client = server.client();
    client.create(&configmap("a").data("v")).await;
    let mut watch = client.watch(&format!("{CONFIGMAPS}?watch=true&pretty=1")).await;
    assert_eq!(watch.header("content-type"), "application/json");
    assert_eq!(watch.header("transfer-encoding"), "chunked");
    assert!(watch.header("cache-control").contains("private"));
    let raw = watch.event().await.raw;
    let head = br#"{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","#;
    assert!(raw.starts_with(head), "{}", String::from_utf8_lossy(&raw));
    assert!(raw.ends_with(b"}}\n") && !raw[..raw.len() - 1].contains(&b'\n'));
    client.delete(&configmap("a").path()).await.with_code(200);
    let raw = watch.event().await.raw;
    let head = br#"{"type":"DELETED","object":{"kind":"ConfigMap","apiVersion":"v1","#;
    assert!(raw.starts_with(head), "{}", String::from_utf8_lossy(&raw));
}

#[tokio::test]
async fn every_write_is_one_event_with_its_own_position() {
    let server = server().await;
    let client = server.client();
    let listed = client.get(CONFIGMAPS).await.resource_version();
    let mut watch = client.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={listed}")).await;
    let object = configmap("a").data("1");
    let created = client.create(&object).await;
    assert_eq!(client.update(&object).await, created, "no change, no event");
    let updated = client.update(&configmap("a").data("2")).await;
    let deleted = client.remove(&object).await;
    let again = client.create(&object).await;
    let events = watch.events(4).await;
    assert_eq!(briefs(&events), ["ADDED default/a", "MODIFIED default/a", "DELETED default/a", "ADDED default/a"]);
    let positions: Vec<_> = events.iter().map(Event::resource_version).collect();
    assert_eq!(positions, [created, updated, deleted, again]);
    assert_eq!(events[2].object["data"]["k"], "2", "the last content");
    assert_ne!(events[0].object["metadata"]["uid"], events[3].object["metadata"]["uid"], "another object");
    // From any of these positions exactly the rest follows.
    for (seen, at) in positions.iter().enumerate() {
        let mut watch = client.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={at}")).await;
        let rest = watch.events(3 - seen).await;
        assert_eq!(rest.iter().map(Event::resource_version).collect::<Vec<_>>(), positions[seen + 1..]);
    }
}

#[tokio::test]
async fn a_watch_ends_cleanly_when_its_time_is_over() {
    let server = server().await;
    let client = server.client();
    client.create(&configmap("a")).await;
    for (query, expected) in [
        ("timeoutSeconds=1", &["ADDED default/a"][..]),
        ("timeoutSeconds=1&resourceVersion=0", &["ADDED default/a"]),
        ("timeoutSeconds=1&labelSelector=none", &[]),
    ] {
        let mut watch = client.watch(&format!("{CONFIGMAPS}?watch=1&{query}")).await;
        let events = watch.rest(LINE_WAIT).await;
        assert_eq!(briefs(&events), expected, "{query}");
        let lived = watch.age().as_secs_f64();
        assert!((0.9..4.0).contains(&lived), "{query}: {lived} s");
    }
}

/// A bookmark is due two seconds before the end, when the position has moved since the start.
#[tokio::test]
async fn a_bookmark_comes_before_the_end_and_only_to_those_who_asked() {
    let server = server().await;
    let client = server.client();
    let start = client.create(&configmap("a").namespace("here")).await;
    let path = format!("/api/v1/namespaces/here/configmaps?watch=1&resourceVersion={start}&timeoutSeconds=4");
    let mut asked = client.watch(&format!("{path}&allowWatchBookmarks=true")).await;
    let mut silent = client.watch(&path).await;
    let foreign = client.create(&configmap("b").namespace("there")).await;
    let (asked, silent) = tokio::join!(asked.rest(LINE_WAIT), silent.rest(LINE_WAIT));
    assert!(!asked.is_empty(), "no bookmark");
    for event in &asked {
        assert_eq!((event.brief().as_str(), event.resource_version()), ("BOOKMARK", foreign));
    }
    assert!(silent.is_empty(), "{silent:?}");
}

#[tokio::test]
async fn resuming_at_any_position_continues_without_loss_or_repetition() {
    let server = server().await;
    let client = server.client();
    let listed = client.get(CONFIGMAPS).await.resource_version();
    let mut reference = client.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={listed}")).await;
    for round in 0..30 {
        let object = configmap(&format!("c{}", round % 7)).data(&round.to_string());
        match round {
            0..7 => client.create(&object).await,
            7..20 => client.update(&object).await,
            _ if round % 2 == 0 => {
                client.delete(&object.path()).await.with_code(200);
                client.create(&object).await
            }
            _ => client.update(&object).await,
        };
    }
    let events = reference.events(35).await;
    let positions: Vec<_> = events.iter().map(Event::resource_version).collect();
    assert!(strictly_increase(&positions));
    // Each watcher reads a part, leaves, and comes back with its last position.
    join_all((0..positions.len()).step_by(3).map(|cut| {
        let (client, events, positions) = (client, &events, &positions);
        async move {
            let mut first = client.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={listed}")).await;
            let mut seen = first.events(cut + 1).await;
            drop(first);
            let mut second = client.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={}", positions[cut])).await;
            seen.extend(second.events(positions.len() - cut - 1).await);
            let (seen, expected): (Vec<_>, Vec<_>) =
                seen.iter().zip(events).map(|(seen, event)| (&seen.raw, &event.raw)).unzip();
            assert!(seen == expected, "cut after {cut}");
        }
    }))
    .await;
}

#[tokio::test]
async fn streamed_state_equals_the_list_at_its_bookmark() {
    let server = server().await;
    let client = server.client();
    for index in 0..40 {
        client
            .create(&pod(&format!("p{index}")).node(&format!("n{}", index % 4)).label("odd", ["no", "yes"][index % 2]))
            .await;
    }
    for selector in [&[][..], &[("labelSelector", "odd=yes")], &[("fieldSelector", "spec.nodeName=n2")]] {
        let path = with_query(PODS, selector);
        let mut watch = client.watch(&watch_list(&path)).await;
        let mut objects = Vec::new();
        let end = loop {
            let event = watch.event().await;
            if event.ends_initial_state() {
                break event.resource_version().to_string();
            }
            assert_eq!(event.kind, EventKind::Added);
            let mut object = event.object;
            // Items of a list carry neither.
            object.as_object_mut().unwrap().retain(|member, _| member != "kind" && member != "apiVersion");
            objects.push(object);
        };
        let exact = with_query(&path, &[("resourceVersion", &end), ("resourceVersionMatch", "Exact")]);
        let list = client.get(&exact).await.with_code(200).json();
        assert_eq!(list["items"].as_array().unwrap(), &objects, "{path}");
        assert!(!objects.is_empty());
    }
}

#[tokio::test]
async fn watchers_agree_on_one_order_under_concurrent_writes() {
    const WRITERS: usize = 4;
    const WRITES: usize = 25;
    let server = server().await;
    let client = server.client();
    let listed = client.get(CONFIGMAPS).await.resource_version();
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={listed}");
    let mut watches = Vec::new();
    for _ in 0..10 {
        watches.push(client.watch(&path).await);
    }
    let writing = join_all((0..WRITERS).map(|writer| async move {
        for number in 0..WRITES {
            client.create(&configmap(&format!("w{writer}-{number}"))).await;
        }
    }));
    let reading = join_all(watches.iter_mut().map(|watch| watch.events(WRITERS * WRITES)));
    let (_, seen) = tokio::join!(writing, reading);
    let positions: Vec<_> = seen[0].iter().map(Event::resource_version).collect();
    assert!(strictly_increase(&positions));
    for other in &seen[1..] {
        assert_eq!(other.iter().map(Event::resource_version).collect::<Vec<_>>(), positions);
    }
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_up_nobody() {
    let server = server().await;
    let client = server.client();
    let filler = "x".repeat(100_000);
    let listed = client.get(CONFIGMAPS).await.resource_version();
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={listed}");
    let mut slow = client.watch(&path).await;
    let mut quick = client.watch(&path).await;
    for number in 0..100 {
        client.create(&configmap(&format!("c{number}")).data(&filler)).await;
        assert_eq!(quick.event().await.brief(), format!("ADDED default/c{number}"));
    }
    // What the slow one gets is a prefix without gaps: all of it, or as far as the window reached.
    let mut read = 0;
    loop {
        match slow.step(LINE_WAIT).await {
            Step::Event(event) => {
                assert_eq!(event.brief(), format!("ADDED default/c{read}"));
                read += 1;
                if read == 100 {
                    break;
                }
            }
            Step::End => break,
            Step::Cut(error) => panic!("cut after {read}: {error}"),
            Step::Silence => panic!("silent after {read}"),
        }
    }
    assert!(read > 10, "only {read}");
}
