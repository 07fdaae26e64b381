//! Properties of every history: seeded writers, random selectors, and readers that are cut off, late or slow.
//!
//! INVARIANT: each test prints its seed first, and `SEED=… cargo test` repeats its requests.

use std::collections::BTreeMap;

use fastrand::Rng;
use futures::future::join_all;
use informer_core::wire::watch_event::EventKind;
use serde_json::Value;
use tests::{
    http::{Client, Event, LINE_WAIT, Step, key, resource_version, strictly_increase, watch_list, with_query},
    objects::{configmap, pod},
};
use tokio::{io::AsyncReadExt as _, net::TcpSocket};

use super::{
    server,
    wire::{Wire, body_so_far},
};

const PODS: &str = "/api/v1/pods";
const CONFIGMAPS: &str = "/api/v1/configmaps";

fn rng(test: &str) -> Rng {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    eprintln!("{test}: SEED={seed}");
    Rng::with_seed(seed)
}

/// Objects by key, without the members that only some responses carry.
type State = BTreeMap<String, Value>;

fn plain(mut object: Value) -> Value {
    let members = object.as_object_mut().expect("an object");
    members.remove("kind");
    members.remove("apiVersion");
    object
}

fn state_of(list: &Value) -> State {
    list["items"].as_array().expect("items").iter().map(|item| (key(item), plain(item.clone()))).collect()
}

/// Makes one random write of pods in two namespaces. Returns the position afterwards.
async fn write(client: &Client, rng: &mut Rng, there: &mut BTreeMap<String, ()>) -> u64 {
    let (namespace, name) = (["ns1", "ns2"][rng.usize(..2)], format!("p{}", rng.u8(..8)));
    let object = pod(&name).namespace(namespace).node(["", "n1", "n2"][rng.usize(..3)]);
    let object = object.label("app", ["web", "api"][rng.usize(..2)]).label("n", &rng.u16(..).to_string());
    let id = format!("{namespace}/{name}");
    if there.contains_key(&id) {
        if rng.u8(..4) == 0 {
            there.remove(&id);
            let path = format!("{}?gracePeriodSeconds=0", object.path());
            client.delete(&path).await.with_code(200);
            return client.get(PODS).await.with_code(200).resource_version();
        }
        return client.update(&object).await;
    }
    there.insert(id, ());
    client.create(&object).await
}

/// A random path and random selectors of pods.
fn question(rng: &mut Rng) -> String {
    let place = [PODS, "/api/v1/namespaces/ns1/pods", "/api/v1/namespaces/ns2/pods"][rng.usize(..3)];
    let fields = ["", "spec.nodeName=n1", "spec.nodeName!=n1", "metadata.name=p3", "spec.nodeName=,metadata.name!=p1"];
    let labels = ["", "app=web", "app in (web,api)", "app!=web", "n>30000", "!app"];
    with_query(place, &[("fieldSelector", fields[rng.usize(..5)]), ("labelSelector", labels[rng.usize(..6)])])
}

/// Applies one event to a state; panics if it does not fit.
fn fold(state: &mut State, event: &Event, story: &str) {
    let id = key(&event.object);
    let before = match event.kind {
        EventKind::Added | EventKind::Modified => state.insert(id, plain(event.object.clone())),
        EventKind::Deleted => state.remove(&id),
        EventKind::Bookmark | EventKind::Error | EventKind::Other => panic!("{story}: {event:?}"),
    };
    assert_eq!(before.is_some(), event.kind != EventKind::Added, "{story}: {event:?} does not fit");
}

/// H1: a client reads its own writes, in a list and in a stream, during concurrent writes.
#[tokio::test]
async fn an_acknowledged_write_is_in_every_later_read() {
    let mut rng = rng("an_acknowledged_write_is_in_every_later_read");
    let server = server(&[]).await;
    let client = server.client();
    let writers = (0..4).map(|writer| {
        let mut rng = Rng::with_seed(rng.u64(..));
        async move {
            let name = format!("w{writer}");
            for round in 0..40 {
                let object = configmap(&name).data(&round.to_string());
                let written = if round == 0 { client.create(&object).await } else { client.update(&object).await };
                if rng.bool() {
                    let list = client.get(CONFIGMAPS).await.with_code(200);
                    assert!(list.resource_version() >= written);
                    let mine = state_of(&list.json()).remove(&format!("default/{name}")).expect("what was written");
                    assert_eq!(resource_version(&mine), written, "nobody else writes it");
                } else {
                    let mut watch = client.watch(&watch_list(CONFIGMAPS)).await;
                    let mut mine = None;
                    let end = loop {
                        let event = watch.event().await;
                        if event.ends_initial_state() {
                            break event.resource_version();
                        }
                        if key(&event.object).ends_with(&name) {
                            mine = Some(event.resource_version());
                        }
                    };
                    assert!(end >= written, "a stream ends at {end}, written at {written}");
                    assert_eq!(mine, Some(written));
                }
            }
        }
    });
    join_all(writers).await;
}

/// H2: a list at A and the watch events from A up to B equal the list at B, for any A, B and selector.
#[tokio::test]
async fn a_list_and_its_events_are_the_later_list() {
    let mut rng = rng("a_list_and_its_events_are_the_later_list");
    let server = server(&[]).await;
    let client = server.client();
    let mut positions = vec![client.get(PODS).await.with_code(200).resource_version()];
    let mut there = BTreeMap::new();
    for _ in 0..150 {
        positions.push(write(&client, &mut rng, &mut there).await);
    }
    let questions = (0..40).map(|_| {
        let (one, other) = (positions[rng.usize(..positions.len())], positions[rng.usize(..positions.len())]);
        (question(&mut rng), one.min(other), one.max(other))
    });
    let questions: Vec<_> = questions.collect();
    let told = join_all(questions.iter().map(|(path, from, to)| async move {
        let at = |position: u64| {
            with_query(path, &[("resourceVersion", &position.to_string()), ("resourceVersionMatch", "Exact")])
        };
        let story = format!("{path} from {from} to {to}");
        let mut state = state_of(&client.get(&at(*from)).await.with_code(200).json());
        let from = from.to_string();
        let query = [("watch", "1"), ("timeoutSeconds", "2"), ("resourceVersion", from.as_str())];
        let events = client.watch(&with_query(path, &query)).await.rest(LINE_WAIT).await;
        let order: Vec<u64> = events.iter().map(Event::resource_version).collect();
        assert!(strictly_increase(&order), "{story}: {order:?}");
        let due = events.iter().filter(|event| event.resource_version() <= *to);
        due.clone().for_each(|event| fold(&mut state, event, &story));
        assert_eq!(state, state_of(&client.get(&at(*to)).await.with_code(200).json()), "{story}");
        due.count().min(state.len())
    }))
    .await;
    assert!(told.iter().any(|&count| count > 0), "something happened, and something was left");
}

/// H3: initial events up to the end bookmark at B equal the list at B, during concurrent writes.
#[tokio::test]
async fn streamed_state_is_the_list_at_its_mark() {
    let mut rng = rng("streamed_state_is_the_list_at_its_mark");
    let server = server(&[]).await;
    let client = server.client();
    let mut there = BTreeMap::new();
    let questions: Vec<String> = (0..40).map(|_| question(&mut rng)).collect();
    let writing = async {
        for _ in 0..120 {
            write(&client, &mut rng, &mut there).await;
        }
    };
    let reading = async {
        let mut found = 0;
        for path in questions {
            let mut watch = client.watch(&watch_list(&path)).await;
            let mut state = State::new();
            let end = loop {
                let event = watch.event().await;
                if event.ends_initial_state() {
                    break event.resource_version().to_string();
                }
                fold(&mut state, &event, &path);
            };
            let exact = with_query(&path, &[("resourceVersion", &end), ("resourceVersionMatch", "Exact")]);
            assert_eq!(state, state_of(&client.get(&exact).await.with_code(200).json()), "{path} at {end}");
            found += state.len();
        }
        found
    };
    let ((), found) = tokio::join!(writing, reading);
    assert!(found > 0, "some states held something");
}

/// H4: a client whose connection breaks after any byte resumes from its last whole line and sees every event once.
#[tokio::test]
async fn a_connection_cut_after_any_byte_loses_nothing() {
    let mut rng = rng("a_connection_cut_after_any_byte_loses_nothing");
    let server = server(&[]).await;
    let client = server.client();
    let begin = client.get(CONFIGMAPS).await.resource_version();
    let mut positions = Vec::new();
    for round in 0..60 {
        let object = configmap(&format!("c{}", round % 6)).data(&"x".repeat(rng.usize(..20_000)));
        positions.push(if round < 6 { client.create(&object).await } else { client.update(&object).await });
    }
    let (mut at, mut seen, mut cuts, mut silences) = (begin, Vec::new(), 0, 0);
    while seen.len() < positions.len() {
        let mut wire = Wire::to(&server).await;
        wire.get(&format!("{CONFIGMAPS}?watch=1&resourceVersion={at}")).await;
        let (mut bytes, wanted) = (Vec::new(), rng.usize(1..60_000));
        while bytes.len() < wanted {
            let mut part = vec![0; rng.usize(1..4_096).min(wanted - bytes.len())];
            match tokio::time::timeout(std::time::Duration::from_millis(500), wire.socket.read(&mut part)).await {
                Ok(Ok(read)) if read > 0 => bytes.extend_from_slice(&part[..read]),
                Ok(_) => panic!("the server ended a watch from {at}"),
                // Every event has arrived.
                Err(_) => {
                    silences += 1;
                    break;
                }
            }
        }
        let body = body_so_far(&bytes);
        for line in body.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            let line: Value = serde_json::from_slice(line).expect("a whole line is one document");
            at = resource_version(&line["object"]);
            seen.push(at);
        }
        cuts += 1;
        assert!(cuts < 2_000 && silences < 20, "no progress: {} of {}", seen.len(), positions.len());
    }
    assert_eq!(seen, positions, "after {cuts} cuts");
    assert!(cuts > 2, "{cuts} cuts of some 600 KB, each after 60 KB at most");
}

/// H5: a slow consumer gets a prefix without gaps and a clean end, then a 410, and recovers by a list; memory stays
/// bounded.
#[tokio::test]
async fn a_reader_that_history_overtakes_ends_cleanly_and_finds_back() {
    const WRITES: usize = 2_000;
    // Less than what was written: a server that keeps it for its slow reader grows by 20 MB.
    const GROWTH_MAX: u64 = 12 << 20;
    let server = server(&["--window-bytes", "1MiB"]).await;
    let client = server.client();
    let begin = client.create(&configmap("a").data("0")).await;
    let resident = async || {
        let metrics = client.get("/metrics").await;
        let line =
            metrics.text().lines().find(|line| line.starts_with("process_resident_memory_bytes ")).map(str::to_owned);
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).expect("its size")
    };
    // A small receive buffer, so that the rest waits in the server.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut slow = Wire::over(socket.connect(server.address()).await.unwrap(), &server);
    slow.get(&format!("{CONFIGMAPS}?watch=1&resourceVersion={begin}")).await;
    slow.head().await;
    let before = resident().await;
    let filler = "x".repeat(10_000);
    let mut last = begin;
    for round in 1..=WRITES {
        last = client.update(&configmap("a").data(&format!("{round} {filler}"))).await;
    }
    let grown = resident().await - before;
    #[expect(clippy::cast_precision_loss, reason = "megabytes")]
    let most = GROWTH_MAX as f64;
    assert!(grown < most, "{grown} bytes more after {WRITES} writes of 10 KB");
    let mut body = Vec::new();
    loop {
        let chunk = slow.chunk().await;
        if chunk.is_empty() {
            break;
        }
        body.extend_from_slice(&chunk);
    }
    assert!(body.ends_with(b"\n"), "the end is no cut");
    let mut at = begin;
    for (line, round) in body.split_inclusive(|&byte| byte == b'\n').zip(1..) {
        let line: Value = serde_json::from_slice(line).expect("one document");
        assert_eq!(line["type"], "MODIFIED", "no error, and nothing else");
        let number =
            line["object"]["data"]["k"].as_str().and_then(|text| text.split(' ').next()?.parse::<usize>().ok());
        assert_eq!(number, Some(round), "no gap");
        at = resource_version(&line["object"]);
    }
    assert!(at > begin && at < last, "from {begin} to {last} it saw up to {at}");
    let mut again = client.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={at}")).await;
    assert_eq!(again.event().await.brief(), "ERROR 410");
    assert!(matches!(again.step(LINE_WAIT).await, Step::End));
    let list = client.get("/api/v1/namespaces/default/configmaps").await.with_code(200);
    assert_eq!((list.resource_version(), list.keys().len()), (last, 1));
    let mut live = client.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={last}")).await;
    let next = client.update(&configmap("a").data("end")).await;
    assert_eq!(live.event().await.resource_version(), next);
}
