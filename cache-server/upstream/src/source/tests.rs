//! Caches in front of the SDK's fake API server: filled from peers, and through every single fault of their source.

mod faults;
mod histories;
mod objects;
mod peers;

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use informer::testing::FakeApiServer;
use serde_json::{Value, json};
use tokio::time::timeout;
use watch_cache::{Limits, Reader};

use super::*;
use crate::{
    cacher::Caches,
    coalesced::CoalescedSource,
    config::UpstreamConfig,
    registry::Registry,
    tests::{Api, addresses_of, full},
};

/// Longest time for a cache to be filled or to catch up, in virtual time.
const PATIENCE: Duration = Duration::from_secs(120);

fn maps() -> Arc<ResourceType> {
    Registry::builtin().find("", "v1", "configmaps").expect("a built-in type")
}

fn map(name: &str, content: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n", "uid": format!("u-{name}")},
        "data": {"content": content.to_string()},
    })
}

/// Names and versions of the API server's objects, in order. Leaves no trace in its log.
async fn listed(api: &FakeApiServer) -> Vec<(String, u64)> {
    let request = http::Request::get("/api/v1/configmaps").body(Vec::new()).expect("a request");
    let text = api.replica().client().request_text(request).await.expect("a list");
    let list: Value = serde_json::from_str(&text).expect("JSON");
    let object = |object: &Value| {
        let text = |name: &str| object["metadata"][name].as_str().expect("a text").to_owned();
        (text("name"), text("resourceVersion").parse().expect("a number"))
    };
    let mut objects: Vec<_> = list["items"].as_array().expect("items").iter().map(object).collect();
    objects.sort();
    objects
}

/// Names and versions of the cached objects, in order.
fn cached(cache: &Reader) -> Vec<(String, u64)> {
    let snapshot = cache.snapshot();
    snapshot.objects.iter().map(|entry| (entry.name().to_owned(), entry.resource_version())).collect()
}

/// Waits until the cache is filled.
async fn filled(caches: &Caches) -> Reader {
    let reading = async {
        loop {
            if let Ok(reader) = caches.reader(&maps()).await {
                return reader;
            }
        }
    };
    timeout(PATIENCE, reading).await.expect("the cache is filled in the end")
}

/// Waits until the cache holds the API server's objects.
async fn becomes_equal(caches: &Caches, api: &FakeApiServer) -> Reader {
    let expected = listed(api).await;
    let comparing = async {
        loop {
            let reader = filled(caches).await;
            if cached(&reader) == expected {
                return reader;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, comparing).await.expect("the cache becomes equal in the end")
}

/// Goal: consistent reads of a quiet type work in front of an API server that does not send the type's position. Method:
/// more objects than are compared at once otherwise, no bookmarks, and a write of another type before each read.
#[tokio::test(start_paused = true)]
async fn a_quiet_type_is_read_though_its_position_is_not_told() {
    let api = FakeApiServer::new().bookmarks_every(Duration::MAX);
    for number in 0..2 * COMPARED_QUIET_MAX {
        api.put(map(&format!("m{number}"), number));
    }
    let source = Arc::new(UpstreamSource::new(vec![api.client()], Peers::new(Vec::new()), HashMap::new()));
    let caches = Caches::new(CoalescedSource::new(source), Limits::default());
    filled(&caches).await;
    for round in 0..3 {
        let other =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("s{round}"), "namespace": "n"}});
        api.put(other);
        let begun = Instant::now();
        let reader = caches.fresh(&maps()).await.expect("a consistent read");
        assert_eq!(cached(&reader), listed(&api).await);
        // The first one finds out.
        assert!(round == 0 || begun.elapsed() < Duration::from_secs(1), "round {round}: {:?}", begun.elapsed());
    }
    api.put(map("new", 0));
    assert_eq!(cached(&caches.fresh(&maps()).await.expect("a consistent read")), listed(&api).await);
}

/// Goal: also the first consistent read of quiet Events takes no seconds, though kube-apiserver sends no position of them.
/// Method: more Events than are compared of other types, no bookmarks, and a write of another type before the read.
#[tokio::test(start_paused = true)]
async fn the_first_read_of_quiet_events_does_not_wait_for_their_position() {
    let events = Registry::builtin().find("", "v1", "events").expect("a built-in type");
    let api = FakeApiServer::new().bookmarks_every(Duration::MAX);
    for number in 0..2 * COMPARED_QUIET_MAX {
        let metadata = json!({"name": format!("e{number}"), "namespace": "n"});
        api.put(json!({"apiVersion": "v1", "kind": "Event", "metadata": metadata}));
    }
    let source = Arc::new(UpstreamSource::new(vec![api.client()], Peers::new(Vec::new()), HashMap::new()));
    let caches = Caches::new(CoalescedSource::new(source), Limits::default());
    caches.reader(&events).await.expect("their state");
    api.put(map("other", 0));
    let begun = Instant::now();
    let reader = caches.fresh(&events).await.expect("a consistent read");
    assert_eq!(reader.count(), 2 * COMPARED_QUIET_MAX);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// Goal: a consistent read of a quiet type takes seconds only if a list of its versions is long. Method: as above, with types
/// of sizes around the bounds and an API server that sends bookmarks late; the state is the newest one all the same.
#[tokio::test(start_paused = true)]
async fn a_quiet_type_is_compared_up_to_a_bound() {
    for (objects, is_compared) in
        [(COMPARED_MAX + 1, true), (COMPARED_QUIET_MAX, true), (COMPARED_QUIET_MAX + 1, false)]
    {
        let api = FakeApiServer::new().bookmarks_every(Duration::MAX);
        (0..objects).for_each(|number| drop(api.put(map(&format!("m{number}"), number))));
        let source = Arc::new(UpstreamSource::new(vec![api.client()], Peers::new(Vec::new()), HashMap::new()));
        let caches = Caches::new(CoalescedSource::new(source), Limits::default());
        filled(&caches).await;
        api.put(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "n"}}));
        let begun = Instant::now();
        let reader = caches.fresh(&maps()).await.expect("a consistent read");
        assert_eq!(begun.elapsed() < Duration::from_millis(500), is_compared, "{objects}: {:?}", begun.elapsed());
        assert_eq!(cached(&reader), listed(&api).await);
    }
}

/// Goal: a consistent read does not depend on the list of a quiet type, which an overloaded API server refuses. Method: an API
/// server that refuses this list, with bookmarks and without: only without them the read has no proof.
#[tokio::test(start_paused = true)]
async fn a_quiet_type_is_read_though_its_list_is_refused() {
    for (bookmarks, is_read) in [(Duration::from_secs(1), true), (Duration::MAX, false)] {
        let api = FakeApiServer::new().bookmarks_every(bookmarks);
        (0..=COMPARED_MAX).for_each(|number| drop(api.put(map(&format!("m{number}"), number))));
        let (server, refused) = (api.clone(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&refused);
        let answering = move |request: http::Request<kube::client::Body>| {
            let limit = format!("limit={}", COMPARED_QUIET_MAX + 1);
            let is_refused = request.uri().query().is_some_and(|query| query.contains(&limit));
            counted.fetch_add(usize::from(is_refused), Ordering::SeqCst);
            let server = server.clone();
            async move {
                let mut answer = server.respond(request).await?;
                if is_refused {
                    *answer.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
                }
                Ok::<_, std::io::Error>(answer)
            }
        };
        let client = kube::Client::new(tower::service_fn(answering), "default");
        let caches = Caches::new(CoalescedSource::new(Arc::new(UpstreamSource::of(client))), Limits::default());
        filled(&caches).await;
        api.put(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "n"}}));
        let read = caches.fresh(&maps()).await;
        assert!(0 < refused.load(Ordering::SeqCst), "{bookmarks:?}: the list was not sent");
        assert_eq!(read.is_ok(), is_read, "{bookmarks:?}: {:?}", read.err());
        if let Ok(reader) = read {
            assert_eq!(cached(&reader), listed(&api).await);
        }
    }
}

/// Goal: consistent reads of a busy type do not list all its versions, though the API server sends no position of it. Method:
/// as above, with a write of the type every millisecond once it is known.
#[tokio::test(start_paused = true)]
async fn a_busy_type_is_not_compared_though_its_position_is_not_told() {
    let api = FakeApiServer::new().bookmarks_every(Duration::MAX);
    (0..2 * COMPARED_QUIET_MAX).for_each(|number| drop(api.put(map(&format!("m{number}"), number))));
    let (server, comparisons) = (api.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&comparisons);
    let answering = move |request: http::Request<kube::client::Body>| {
        let limit = format!("limit={}", COMPARED_MUTE_MAX + 1);
        let is_comparison = request.uri().query().is_some_and(|query| query.contains(&limit));
        counted.fetch_add(usize::from(is_comparison), Ordering::SeqCst);
        let server = server.clone();
        async move { server.respond(request).await }
    };
    let client = kube::Client::new(tower::service_fn(answering), "default");
    let caches = Caches::new(CoalescedSource::new(Arc::new(UpstreamSource::of(client))), Limits::default());
    filled(&caches).await;
    api.put(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "n"}}));
    caches.fresh(&maps()).await.expect("a consistent read");
    assert_eq!(comparisons.load(Ordering::SeqCst), 1, "a quiet type is compared");
    let busy = api.clone();
    let writes = tokio::spawn(async move {
        for number in 0.. {
            busy.put(map("busy", number));
            sleep(Duration::from_millis(1)).await;
        }
    });
    for _ in 0..5 {
        let written = api.resource_version();
        let reader = caches.fresh(&maps()).await.expect("a consistent read");
        assert!(written <= reader.applied(), "a write before the read is missing");
    }
    writes.abort();
    assert_eq!(comparisons.load(Ordering::SeqCst), 1, "the stream proves a busy one");
}

/// Goal: a consistent read of a large type costs the API server one name, and works where that is no question. Method: the
/// queries of one read of a type with more objects than are compared: of a whole type, of a part, and from an API server that
/// refuses selectors of names.
#[tokio::test(start_paused = true)]
async fn a_consistent_read_of_a_large_type_costs_one_name() {
    const NAME: &str = "fieldSelector=metadata.name%3Dnone";
    const PAGE: &str = "limit=1";
    for (scope, refuses, expected) in
        [(None, false, &[NAME][..]), (Some("metadata.namespace=n"), false, &[PAGE]), (None, true, &[NAME, PAGE])]
    {
        let api = FakeApiServer::new().bookmarks_every(Duration::from_millis(1));
        (0..=COMPARED_QUIET_MAX).for_each(|number| drop(api.put(map(&format!("m{number}"), number))));
        let (server, queries) = (api.clone(), Arc::new(Mutex::new(Vec::new())));
        let noted = Arc::clone(&queries);
        let answering = move |request: http::Request<kube::client::Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let is_refused = refuses && query.contains(NAME);
            noted.lock().push(query);
            let server = server.clone();
            async move {
                let mut answer = server.respond(request).await?;
                if is_refused {
                    *answer.status_mut() = http::StatusCode::BAD_REQUEST;
                }
                Ok::<_, std::io::Error>(answer)
            }
        };
        let client = kube::Client::new(tower::service_fn(answering), "default");
        let scopes = scope.map(|scope| ("configmaps".to_owned(), scope.to_owned())).into_iter().collect();
        let source = Arc::new(UpstreamSource::new(vec![client], Peers::new(Vec::new()), scopes));
        let caches = Caches::new(CoalescedSource::new(source), Limits::default());
        filled(&caches).await;
        queries.lock().clear();
        let reader = caches.fresh(&maps()).await.expect("a consistent read");
        assert_eq!(cached(&reader), listed(&api).await);
        let sent = queries.lock().clone();
        let sent: Vec<_> = sent.iter().filter(|query| !query.contains("watch=")).collect();
        assert_eq!(sent.len(), expected.len(), "{scope:?} {refuses}: {sent:?}");
        for (query, expected) in sent.iter().zip(expected) {
            assert!(query.contains(expected) && query.contains(NAME) == (*expected == NAME), "{query}, not {expected}");
        }
    }
}

/// Goal: after a long outage caches are up to date soon, though no client reads. Method: an API server that is away until the
/// delays of the stream are half a minute and more; then a change. The comparison of the doubtful history gets an answer.
#[tokio::test(start_paused = true)]
async fn after_a_long_outage_a_cache_is_up_to_date_soon() {
    let api = FakeApiServer::new().put(map("a", 0));
    let source = Arc::new(UpstreamSource::new(vec![api.client()], Peers::new(Vec::new()), HashMap::new()));
    let caches = Caches::new(CoalescedSource::new(source), Limits::default());
    let reader = filled(&caches).await;
    api.refuse_connections().close_watches();
    sleep(Duration::from_secs(600)).await;
    api.recover().put(map("b", 0));
    let caught_up = reader.reached(api.resource_version());
    timeout(Duration::from_secs(6), caught_up).await.expect("the delay was ended").expect("an open cache");
    assert_eq!(cached(&reader), listed(&api).await);
}

/// Goal: the first stream that recovers brings all caches up to date. Method: two types and a long outage, after which no
/// client reads and no other request is sent.
#[tokio::test(start_paused = true)]
async fn streams_recover_together() {
    let namespaces = Registry::builtin().find("", "v1", "namespaces").expect("a built-in type");
    let api = FakeApiServer::new().put(map("a", 0));
    let source = Arc::new(UpstreamSource::new(vec![api.client()], Peers::new(Vec::new()), HashMap::new()));
    let caches = Caches::new(CoalescedSource::new(source), Limits::default());
    let (maps, namespaces) = (filled(&caches).await, caches.reader(&namespaces).await.expect("an empty state"));
    api.refuse_connections().close_watches();
    sleep(Duration::from_secs(600)).await;
    api.recover().put(map("b", 0));
    let maps_done = maps.reached(api.resource_version());
    api.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "m"}}));
    let namespaces_done = namespaces.reached(api.resource_version());
    let both = async {
        let (first, other) =
            futures::future::select(Box::pin(maps_done), Box::pin(namespaces_done)).await.factor_first();
        first.expect("an open cache");
        // Pauses between the attempts of one stream, and of one cache, come to 1.2 s; the delay that ends is a minute.
        timeout(Duration::from_secs(3), other).await.expect("the other one follows at once").expect("an open cache");
    };
    timeout(PATIENCE, both).await.expect("a stream recovers by itself");
}

/// Goal: a broken API server, or a proxy in its place, costs no more than an error. Method: a list whose answer has no end,
/// is no list, leads elsewhere, or is a long refusal.
#[tokio::test]
async fn broken_lists_are_errors() {
    let endless = |code: u16| {
        let pieces = stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(&[b' '; 8 << 10]))));
        Response::builder().status(code).body(StreamBody::new(pieces).boxed_unsync()).expect("a response")
    };
    let text = |code: u16, text: &'static str| {
        let builder = Response::builder().status(code).header("location", "http://127.0.0.1:1/");
        builder.body(full(text)).expect("a response")
    };
    let api = Api::start(move |request| {
        let answer = match request.uri().path() {
            "/endless/api/v1/configmaps" => endless(200),
            "/refused/api/v1/configmaps" => endless(403),
            "/html/api/v1/configmaps" => text(200, "<html>"),
            "/number/api/v1/configmaps" => text(200, r#"{"metadata": {"resourceVersion": "x"}, "items": []}"#),
            _ => text(301, r#"{"metadata": {"resourceVersion": "7"}, "items": []}"#),
        };
        Box::pin(std::future::ready(answer))
    })
    .await;
    for path in ["endless", "refused", "html", "number", "elsewhere"] {
        let url = Some(format!("{}/{path}", api.url()));
        let config = UpstreamConfig { url, ..UpstreamConfig::default() };
        let clients = addresses_of(&config).await.expect("a configuration").clients;
        let listed = probe::list(&clients, &maps(), None, 1, None).await;
        let error = listed.err().unwrap_or_else(|| panic!("{path} is a list")).to_string();
        assert!(!error.contains("in time"), "{path}: {error}");
        assert_eq!(api.seen.lock().drain(..).count(), 1, "{path} is sent once");
    }
}
