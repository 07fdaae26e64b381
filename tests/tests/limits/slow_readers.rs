//! Slow and stopped readers: what they receive, what they cost, and whether they affect others. Runs against a server
//! in this process with scaled-down bounds.
//!
//! INVARIANT: no measurement of time. A slow reader takes some bytes for each write of other clients.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::{
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use cache_server::{Server, app::App, config::Config};
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tests::{
    http::{Client, Step, watch_list, with_query},
    objects::{Object, configmap, pod},
    slow::{End, Slow},
};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};
use watch_cache::{Entry, Limits};

const CONFIGMAPS: &str = "/api/v1/configmaps";

/// Number and size in bytes of the objects: many times what sockets hold.
const OBJECTS: usize = 500;
const OBJECT_BYTES: usize = 5_000;

/// Timeout of every step.
const DUE: Duration = Duration::from_secs(30);

struct World {
    address: SocketAddr,
    app: Arc<App>,
    client: Client,
}

impl World {
    async fn new(limits: Limits) -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let bookmark_interval = Duration::from_millis(200);
        // On a busy machine a test's writes take longer than the default time that a stopped reader gets.
        let socket_stuck = 10 * DUE;
        let config = Config { listen, limits, bookmark_interval, socket_stuck, ..Config::default() };
        let server = Server::bind(config).await.unwrap();
        let (address, app) = (server.local_addr(), Arc::clone(server.app()));
        tokio::spawn(server.serve(std::future::pending()));
        Self { address, app, client: Client::new(address) }
    }

    /// A world with [`OBJECTS`] objects.
    async fn with_state(limits: Limits) -> Self {
        let world = Self::new(limits).await;
        for index in 0..OBJECTS {
            world.client.create(&object(index, 0)).await;
        }
        world
    }

    /// Writes version `round` of one object.
    async fn write(&self, round: usize) -> u64 {
        self.client.update(&object(round * 7 % OBJECTS, round)).await
    }

    /// Sums all series of a metric whose labels contain all of `labels`.
    async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let answer = self.client.get("/metrics").await.with_code(200);
        let series = answer.text().lines().filter_map(|line| line.strip_prefix(name)?.rsplit_once(' '));
        let wanted = series.filter(|(has, _)| labels.iter().all(|label| has.contains(label)));
        wanted.map(|(_, value)| value.parse::<f64>().unwrap()).sum()
    }

    async fn is(&self, name: &str, labels: &[&str], expected: f64) {
        let mut last = f64::NAN;
        let reached = timeout(DUE, async {
            while last != expected {
                last = self.metric(name, labels).await;
                sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(reached.await.is_ok(), "{name} {labels:?} is {last}, not {expected}");
    }

    /// A weak reference to an object's current cache entry.
    async fn entry(&self, key: &str) -> Weak<Entry> {
        let ty = self.app.registry.now().by_id("configmaps").unwrap();
        let entry = self.app.caches.fresh(&ty).await.unwrap().get(key).unwrap();
        Arc::downgrade(&entry)
    }
}

fn object(index: usize, round: usize) -> Object {
    configmap(&format!("c{index:03}")).data(&format!("{round}{}", "x".repeat(OBJECT_BYTES)))
}

fn position(line: &Value) -> u64 {
    line["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn is_end(line: &Value) -> bool {
    line["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
}

/// Goal: a reader as slow as the writers are fast gets its initial state, and can resume from it. Method: 40 MB at 1
/// MB/s under 200 writes of 5 KB a second, against a window of 64 MiB, all scaled to a sixteenth.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_initial_stream_ends_with_a_position_to_resume_from() {
    let limits = Limits { window_bytes_max: 4 << 20, snapshot_bytes_max: 8 << 20, ..Limits::default() };
    let world = World::with_state(limits).await;
    let mut slow = Slow::get(world.address, &watch_list(CONFIGMAPS), &[]).await;
    let (mut lines, mut writes) = (0, Vec::new());
    let end = loop {
        slow.take(OBJECT_BYTES).await;
        assert_eq!(slow.end(), None, "after {lines} lines");
        writes.push(world.write(writes.len() + 1).await);
        let mut end = None;
        while let (None, Some(line)) = (&end, slow.line()) {
            lines += 1;
            end = is_end(&line).then(|| position(&line));
            assert!(end.is_some() || line["type"] == "ADDED", "{line}");
        }
        if let Some(end) = end {
            break end;
        }
    };
    assert_eq!(lines, OBJECTS + 1);
    assert!(writes.len() > OBJECTS / 2 && end < writes[0], "{} writes, the state is at {end}", writes.len());
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={end}");
    let resumed: Vec<u64> = world
        .client
        .watch(&path)
        .await
        .events(writes.len())
        .await
        .iter()
        .map(tests::http::Event::resource_version)
        .collect();
    assert_eq!(resumed, writes, "nothing is lost, and no 410");
    let mut same = Vec::new();
    while same.len() < writes.len() {
        let line = slow.next().await.expect("the stream itself goes on as well");
        if line["type"] != "BOOKMARK" {
            same.push(position(&line));
        }
    }
    assert_eq!(same, writes);
}

/// Goal: above the bound the slowest readers are cut without a clean end, and no others. Method: a watch-list and a
/// LIST that stop, a watch-list that begins later and keeps reading, and writes beyond the bound of the first two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_the_bound_the_slowest_are_cut_and_others_go_on() {
    let limits = Limits { window_bytes_max: 256 << 10, snapshot_bytes_max: 1 << 20, ..Limits::default() };
    let world = World::with_state(limits).await;
    let mut stream = Slow::get(world.address, &watch_list(CONFIGMAPS), &[]).await;
    let mut list = Slow::get(world.address, CONFIGMAPS, &[]).await;
    stream.take(1).await;
    list.take(1).await;
    for round in 1..=100 {
        world.write(round).await;
    }
    let mut later = Slow::get(world.address, &watch_list(CONFIGMAPS), &[]).await;
    later.take(1).await;
    assert_eq!(world.metric("cache_readers_cut_total", &[]).await, 0.0);
    let mut round = 100;
    while world.metric("cache_readers_cut_total", &[]).await < 2.0 {
        round += 1;
        assert!(round < 400, "a bound of 1 MiB is about 200 writes of {OBJECT_BYTES} bytes");
        world.write(round).await;
    }
    for reader in [r#"reader="list""#, r#"reader="stream""#] {
        world.is("cache_readers_cut_total", &[reader, r#"reason="bytes""#], 1.0).await;
    }
    assert_eq!(list.to_the_end().await, End::Cut);
    assert!(list.taken() < OBJECTS * OBJECT_BYTES, "{} bytes are the whole list", list.taken());
    assert_eq!(stream.to_the_end().await, End::Cut);
    while let Some(line) = stream.line() {
        assert_eq!(line["type"], "ADDED");
    }
    let mut lines = 0;
    while !is_end(&later.next().await.expect("it is not cut")) {
        lines += 1;
    }
    assert_eq!(lines, OBJECTS);
    world.is("cache_readers_cut_total", &[], 2.0).await;
}

/// Goal: the server does not keep memory for a reader that never reads. Method: an HTTP/2 stream whose window never
/// opens, so that its body is never polled again; an object that only the stream's snapshot still needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_state_of_a_stream_that_never_moves_is_let_go() {
    let limits = Limits { window_bytes_max: 256 << 10, snapshot_bytes_max: 512 << 10, ..Limits::default() };
    let world = World::with_state(limits).await;
    let io = TokioIo::new(TcpStream::connect(world.address).await.unwrap());
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let connecting = builder.initial_stream_window_size(1_024).handshake::<_, Empty<Bytes>>(io);
    let (mut sender, connection) = connecting.await.unwrap();
    tokio::spawn(connection);
    let mut answers = Vec::new();
    for path in [watch_list(CONFIGMAPS), CONFIGMAPS.to_owned()] {
        let uri = format!("http://{}{path}", world.address);
        let request = http::Request::get(uri).body(Empty::new()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        answers.push(answer);
    }
    // The last object in key order: none of its bytes have been sent.
    let last = OBJECTS - 1;
    let entry = world.entry(&format!("default/c{last:03}")).await;
    world.client.update(&object(last, 1)).await;
    assert!(entry.upgrade().is_some(), "both streams need it");
    for round in 1..=200 {
        world.client.update(&object(round, round)).await;
    }
    world.is("cache_readers_cut_total", &[r#"reason="bytes""#], 2.0).await;
    assert!(entry.upgrade().is_none(), "nobody needs it");
    assert!(world.metric("cache_window_bytes", &[r#"resource="configmaps""#]).await <= f64::from(256 << 10));
    drop(answers);
}

/// Goal: an unread watch blocks no other client, continues where it was while the window reaches back to it, and ends
/// when it no longer does. Method: a reader that stops, one that does not, and writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_not_read_goes_on_as_long_as_the_window_lasts() {
    let limits = Limits { window_bytes_max: 4 << 20, ..Limits::default() };
    let world = World::with_state(limits).await;
    let from = world.client.get(CONFIGMAPS).await.with_code(200).resource_version();
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={from}");
    let (mut slow, mut stopped) =
        (Slow::get(world.address, &path, &[]).await, Slow::get(world.address, &path, &[]).await);
    let mut fast = world.client.watch(&path).await;
    let mut writes = Vec::new();
    for round in 1..=500 {
        writes.push(world.write(round).await);
        assert_eq!(fast.event().await.resource_version(), writes[round - 1], "nobody waits for the slow ones");
    }
    for &write in &writes {
        assert_eq!(position(&slow.next().await.expect("the window reaches back")), write);
    }
    // Write twice the window.
    for round in 501..=2_200 {
        let write = world.write(round).await;
        assert_eq!(fast.event().await.resource_version(), write);
        // The slow reader keeps up from here on.
        assert_eq!(position(&slow.next().await.expect("the window reaches back")), write);
        writes.push(write);
    }
    assert_eq!(stopped.to_the_end().await, End::Clean, "it resumes where it is");
    let mut seen = Vec::new();
    while let Some(line) = stopped.line() {
        seen.push(position(&line));
    }
    assert!(seen.len() < 500 && writes.starts_with(&seen), "{} events, without a gap", seen.len());
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={}", seen.last().copied().unwrap_or(from));
    assert_eq!(world.client.watch(&path).await.event().await.brief(), "ERROR 410");
    world.is("cache_watches_expired_total", &[r#"resource="configmaps""#], 1.0).await;
}

/// Goal: a node's watch is not affected by events of other nodes. Method: ten windows of such events.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_a_quiet_node_lives_through_ten_windows_of_events_elsewhere() {
    const WINDOW: usize = 64 << 10;
    let world = World::new(Limits { window_bytes_max: WINDOW, ..Limits::default() }).await;
    let padded = |name: &str, node: &str, round: usize| {
        let image = format!("{round}{}", "x".repeat(OBJECT_BYTES));
        pod(name).with("spec", serde_json::json!({"containers": [{"name": "c", "image": image}]})).node(node)
    };
    let path = |more: &[(&str, &str)]| {
        let query =
            [&[("watch", "1"), ("allowWatchBookmarks", "true"), ("fieldSelector", "spec.nodeName=quiet")], more];
        with_query("/api/v1/pods", &query.concat())
    };
    world.client.create(&padded("here", "quiet", 0)).await;
    let from = world.client.create(&padded("there", "busy", 0)).await;
    let mut watch = world.client.watch(&path(&[("resourceVersion", &from.to_string())])).await;
    let mut head = from;
    for round in 1..=10 * WINDOW / OBJECT_BYTES {
        head = world.client.update(&padded("there", "busy", round)).await;
    }
    let gone = world.client.watch(&format!("/api/v1/pods?watch=1&resourceVersion={from}")).await.event().await;
    assert_eq!(gone.brief(), "ERROR 410", "the window has moved on");
    let bookmark = loop {
        let bookmark = watch.event().await;
        assert_eq!(bookmark.brief(), "BOOKMARK");
        if bookmark.resource_version() == head {
            break bookmark.resource_version();
        }
    };
    let next = world.client.update(&padded("here", "quiet", 1)).await;
    let after = world.client.update(&padded("here", "quiet", 2)).await;
    for mut stream in [watch, world.client.watch(&path(&[("resourceVersion", &bookmark.to_string())])).await] {
        let mut events = Vec::new();
        while events.len() < 2 {
            match stream.step(DUE).await {
                Step::Event(event) if event.brief() == "BOOKMARK" => {}
                Step::Event(event) => events.push((event.brief(), event.resource_version())),
                other @ (Step::End | Step::Cut(_) | Step::Silence) => panic!("{other:?} after {events:?}"),
            }
        }
        let expected = [next, after].map(|position| ("MODIFIED default/here".to_owned(), position));
        assert_eq!(events, expected, "exactly what comes next");
    }
}

/// Goal: deletecollection responds however large the collection is. Method: delete 2.5 MB of objects with a window of
/// 100 KB: first a page of 100 objects, then the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_collection_that_fills_the_window_is_answered_whole() {
    let limits = Limits { window_bytes_max: 100_000, snapshot_bytes_max: 200_000, ..Limits::default() };
    let world = World::with_state(limits).await;
    let path = "/api/v1/namespaces/default/configmaps";
    for (query, count) in [("?limit=100", 100), ("", OBJECTS - 100)] {
        let answer = world.client.delete(&format!("{path}{query}")).await.with_code(200).json();
        let items = answer["items"].as_array().expect("items");
        assert_eq!(items.len(), count);
        assert!(items.iter().all(|item| item["data"].is_object()), "as they were");
    }
    let left = world.client.get(path).await.with_code(200).json();
    assert_eq!(left["items"].as_array().expect("items").len(), 0);
    assert_eq!(
        world.metric("cache_window_bytes", &["configmaps"]).await.max(200_000.0),
        200_000.0,
        "nothing is kept for it"
    );
}
