//! WATCH scenarios over real sockets: against the real binary and, where the protocol alone decides, also against the
//! fake API server. Cases that are plain data are in the table (`tests/src/table/`).

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::time::Duration;

use futures::future::join_all;
use informer_core::wire::watch_event::EventKind;
use tests::{
    http::{Client, Event, LINE_WAIT, Step, briefs, strictly_increase, watch_list, with_query},
    objects::{configmap, pod},
    process::Server,
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const CONFIGMAPS: &str = "/api/v1/configmaps";
const PODS: &str = "/api/v1/pods";

tests::on_both![
    initial_state_from_the_future_is_sent_once_it_is_there,
    a_line_is_one_compact_document_with_its_type_first,
    every_write_is_one_event_with_its_own_position,
    a_watch_ends_cleanly_when_its_time_is_over,
    resuming_at_any_position_continues_without_loss_or_repetition,
    streamed_state_equals_the_list_at_its_bookmark,
    watchers_agree_on_one_order_under_concurrent_writes,
    a_reader_that_does_not_read_holds_up_nobody,
];

#[tokio::test]
async fn what_the_window_dropped_is_too_old_and_what_it_names_is_not() {
    let server = Server::start(BINARY, &["--first-revision", "1000", "--window-bytes", "65536"]).await;
    let client = server.client();
    let listed = client.get(CONFIGMAPS).await.with_code(200).resource_version();
    let filler = "x".repeat(4_000);
    client.create(&configmap("a").data(&filler)).await;
    let mut rounds = 0..1_000;
    let events = loop {
        for round in rounds.by_ref().take(100) {
            client.update(&configmap("a").data(&format!("{round}{filler}"))).await;
        }
        // After this response the cache has seen every write, and its window no longer moves.
        client.get(CONFIGMAPS).await.with_code(200);
        let mut watch = client.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={listed}")).await;
        let first = watch.event().await;
        // The position of a list stays resumable for as long as the list took to be read, which may outlast the writes.
        if rounds.is_empty() || first.brief().starts_with("ERROR") {
            let mut events = vec![first];
            events.extend(watch.rest(LINE_WAIT).await);
            break events;
        }
    };
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

async fn initial_state_from_the_future_is_sent_once_it_is_there(client: Client) {
    let now = client.create(&configmap("a")).await;
    let path = format!("{}&resourceVersion={}", watch_list(CONFIGMAPS), now + 2);
    let (mut watch, ()) = tokio::join!(client.watch(&path), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        client.create(&configmap("b")).await;
        client.create(&configmap("c")).await;
    });
    let expected = ["ADDED default/a", "ADDED default/b", "ADDED default/c", "INITIAL-END"];
    assert_eq!(briefs(&watch.events(4).await), expected);
}

async fn a_line_is_one_compact_document_with_its_type_first(client: Client) {
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

async fn every_write_is_one_event_with_its_own_position(client: Client) {
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
}

async fn a_watch_ends_cleanly_when_its_time_is_over(client: Client) {
    client.create(&configmap("a")).await;
    // Six seconds: a machine that stalls for three does not end them before their state.
    let watches = [
        ("timeoutSeconds=6", &["ADDED default/a"][..]),
        ("timeoutSeconds=6&resourceVersion=0", &["ADDED default/a"]),
        ("timeoutSeconds=6&labelSelector=none", &[]),
    ]
    .map(async |(query, expected)| {
        let mut watch = client.watch(&format!("{CONFIGMAPS}?watch=1&{query}")).await;
        assert_eq!(briefs(&watch.rest(LINE_WAIT).await), expected, "{query}");
        assert!(watch.age() >= Duration::from_millis(5_900), "{query}: {:?}", watch.age());
    });
    join_all(watches).await;
}

async fn resuming_at_any_position_continues_without_loss_or_repetition(client: Client) {
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
    // Each watcher reads a part, disconnects, and resumes from its last position.
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

async fn streamed_state_equals_the_list_at_its_bookmark(client: Client) {
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
            // Items of a list have neither member.
            object.as_object_mut().unwrap().retain(|member, _| member != "kind" && member != "apiVersion");
            objects.push(object);
        };
        let exact = with_query(&path, &[("resourceVersion", &end), ("resourceVersionMatch", "Exact")]);
        let list = client.get(&exact).await.with_code(200).json();
        assert_eq!(list["items"].as_array().unwrap(), &objects, "{path}");
        assert!(!objects.is_empty());
    }
}

async fn watchers_agree_on_one_order_under_concurrent_writes(client: Client) {
    const WRITERS: usize = 4;
    const WRITES: usize = 25;
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

async fn a_reader_that_does_not_read_holds_up_nobody(client: Client) {
    let filler = "x".repeat(100_000);
    let listed = client.get(CONFIGMAPS).await.resource_version();
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={listed}");
    let mut slow = client.watch(&path).await;
    let mut quick = client.watch(&path).await;
    for number in 0..100 {
        client.create(&configmap(&format!("c{number}")).data(&filler)).await;
        assert_eq!(quick.event().await.brief(), format!("ADDED default/c{number}"));
    }
    // The slow reader gets a prefix without gaps: every event, or those up to the eviction.
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
