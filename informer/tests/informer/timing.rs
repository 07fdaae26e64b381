//! Timing, with paused time: backoff, silence, stalls, the relist budget.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::stream;
use http_body_util::StreamBody;
use informer::{
    Cause, Cluster, InitialList, Ready, RelistCause,
    testing::{FakeApiServer, RequestKind},
};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use serde_json::{Value, json};

use crate::fixture::{
    SOON, Step, added, bookmark, contents, end_bookmark, in_memory, is_stream, is_watch, item, list, ok, refuse,
    status, until,
};

const MINUTE: Duration = Duration::from_secs(60);

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "a"}})
}

/// Goal: malformed responses cause as few requests as refusals, in bounded memory. Method: ten minutes of each kind;
/// count requests.
#[tokio::test(start_paused = true)]
async fn ten_minutes_of_nonsense_are_few_requests() {
    let truncated = r#"{"type":"ADDED","object":{"metadata":{"name":"a""#.to_owned();
    let endless = format!("{truncated}{}", "x".repeat(128 << 10));
    for (name, body) in [
        ("HTML", "<html>sign in</html>".to_owned()),
        ("truncated JSON", truncated),
        ("an endless line", endless),
        ("an error in a 200", status(500, "InternalError", "no")),
        ("nothing", String::new()),
    ] {
        for initial in [InitialList::Auto, InitialList::Stream, InitialList::Paged] {
            let body = body.clone();
            let (cluster, log) = in_memory(move |_, _| ok([Step::Send(body.clone())]));
            let declared = cluster.informer::<Pod>().initial_list(initial).object_bytes_max(64 << 10);
            let not_ready = declared.start().unwrap().ready(10 * MINUTE).await.unwrap_err();
            assert!(matches!(&not_ready.cause, Cause::Failed(_)), "{name} {initial:?}: {not_ready}");
            assert!((5..=20).contains(&log.uris().len()), "{name} {initial:?}: {} requests", log.uris().len());
        }
    }
}

/// An overloaded server may queue a request: the client repeats the stream and never falls back to a list.
#[tokio::test(start_paused = true)]
async fn a_stream_whose_headers_do_not_come_is_asked_for_again() {
    let requests = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&requests);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        assert!(is_stream(&request.uri().to_string()), "{}", request.uri());
        let is_first = seen.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            if is_first {
                std::future::pending::<()>().await;
            }
            let body = http_body_util::Full::new(bytes::Bytes::from([added("a/a", 3), end_bookmark(9)].concat()));
            Ok::<_, Infallible>(http::Response::new(body))
        }
    });
    let pods = Cluster::new(kube::Client::new(service, "default")).informer::<Pod>().start().unwrap();
    pods.ready(Duration::from_secs(67)).await.unwrap();
    assert_eq!(contents(&pods), "a/a@3");
}

/// Maximum durations, which mean "never".
#[tokio::test(start_paused = true)]
async fn the_longest_durations_are_settings_like_any_other() {
    let (cluster, _log) = in_memory(|_, uri| match uri {
        uri if is_stream(uri) => ok([Step::Wait(MINUTE), Step::Send(added("a/a", 3)), Step::Send(end_bookmark(9))]),
        uri if uri.contains("/pods/a") => ok([Step::Send(item("a/a", 3))]),
        _ => ok([Step::Hang]),
    });
    let declared = cluster.informer::<Pod>().config(|config| {
        config.idle_timeout = Duration::MAX;
        config.healthy_after = Duration::MAX;
        config.initial_events_stall = Duration::MAX;
        config.headers_timeout = Duration::MAX;
    });
    let pods = declared.start().unwrap();
    pods.ready(Duration::MAX).await.unwrap();
    until("the watch", || pods.explain().contains("resourceVersion=9&")).await;
    tokio::time::sleep(60 * MINUTE).await;
    assert!(matches!(pods.ready(SOON).await, Ok(Ready::Watching)) && !format!("{pods:?}").is_empty());
    let stats = pods.stats().reflector;
    assert_eq!((stats.requests, stats.proofs), (3, 1));
}

/// Covers the complaint that clients started together send together.
#[tokio::test(start_paused = true)]
async fn informers_with_a_spread_do_not_start_together_and_ready_says_so() {
    let mut first_requests = Vec::new();
    for _ in 0..30 {
        let (cluster, log) = in_memory(|_, _| ok([Step::Send(end_bookmark(9)), Step::Hang]));
        let pods = cluster.informer::<Pod>().spread(MINUTE).start().unwrap();
        assert!(log.uris().is_empty());
        if let Err(not_ready) = pods.ready(Duration::ZERO).await {
            assert!(matches!(not_ready.cause, Cause::Spread), "{not_ready}");
        }
        pods.ready(MINUTE + SOON).await.unwrap();
        first_requests.push(log.times()[0].as_secs() / 10);
    }
    first_requests.sort_unstable();
    first_requests.dedup();
    assert!(first_requests.len() >= 4 && first_requests.iter().all(|tens| *tens < 6), "{first_requests:?}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_resumed_after_150_seconds_without_a_relist() {
    let (cluster, log) = in_memory(|_, uri| match uri {
        uri if is_stream(uri) => ok([Step::Send(added("a/a", 3)), Step::Send(end_bookmark(9)), Step::Hang]),
        _ => ok([Step::Wait(MINUTE), Step::Send(bookmark(50)), Step::Hang]),
    });
    let pods = cluster.informer::<Pod>().start().unwrap();
    pods.ready(SOON).await.unwrap();
    tokio::time::sleep(Duration::from_secs(155)).await;
    let times = log.times();
    assert_eq!(times.len(), 2, "{times:?}");
    assert!((150..152).contains(&times[1].as_secs()), "{times:?}");
    assert!(log.uris()[1].contains("resourceVersion=9&"));
    tokio::time::sleep(Duration::from_secs(250)).await;
    assert!(log.uris()[2].contains("resourceVersion=50&"), "the bookmark moved the place to resume");
    assert_eq!(log.count("sendInitialEvents"), 1);
}

#[tokio::test(start_paused = true)]
async fn headers_that_do_not_come_are_an_error_in_time() {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, Infallible>>()
    });
    let cluster = Cluster::new(kube::Client::new(service, "default"));
    let limit = Duration::from_secs(5);
    let declared = cluster.informer::<Pod>().initial_list(InitialList::Unpaged);
    let pods = declared.config(|config| config.headers_timeout = limit).start().unwrap();
    let not_ready = pods.ready(Duration::from_secs(5) + Duration::from_millis(1)).await.unwrap_err();
    let Cause::Failed(error) = &not_ready.cause else { panic!("{not_ready}") };
    assert_eq!(error.to_string(), "the server gave no answer within 5s");
}

/// The body of a list of these items, with a pause before each.
fn slowly(items: &[String], pause: Duration) -> Vec<Step> {
    let whole = list(&["SPLIT".to_owned()], 9, "");
    let (head, tail) = whole.split_once("SPLIT").unwrap();
    let mut steps = vec![Step::Send(head.to_owned())];
    for (at, item) in items.iter().enumerate() {
        steps.push(Step::Wait(pause));
        steps.push(Step::Send(if at == 0 { item.clone() } else { format!(",{item}") }));
    }
    steps.push(Step::Send(tail.to_owned()));
    steps
}

/// Goal: at most two informers read at once; waiting for a permit is neither silence nor a stall. Method: two lists
/// that take forty seconds, and a third that must wait as long before it starts.
#[tokio::test(start_paused = true)]
async fn two_read_at_once_and_the_third_waits_without_losing_patience() {
    let (cluster, log) = in_memory(|_, uri| {
        if is_watch(uri) {
            return ok([Step::Hang]);
        }
        let items: Vec<String> = (0..8).map(|number| item(&format!("a/a{number}"), 3)).collect();
        ok(slowly(&items, 5 * Duration::from_secs(1)))
    });
    let unpaged = InitialList::Unpaged;
    let first = cluster.informer::<Pod>().initial_list(unpaged).start().unwrap();
    let second = cluster.informer::<Secret>().initial_list(unpaged).start().unwrap();
    let third = cluster.informer::<ConfigMap>().initial_list(unpaged);
    let third = third.config(|it| it.idle_timeout = 20 * Duration::from_secs(1)).start().unwrap();
    let not_ready = third.ready(39 * Duration::from_secs(1)).await.unwrap_err();
    assert!(matches!(not_ready.cause, Cause::Queued), "{not_ready}");
    first.ready(2 * MINUTE).await.unwrap();
    second.ready(MINUTE).await.unwrap();
    third.ready(2 * MINUTE).await.unwrap();
    assert_eq!(log.count("configmaps?resourceVersion=0"), 1, "{:?}", log.uris());
    let sent = log.uris().iter().position(|uri| uri.contains("configmaps")).unwrap();
    assert!(log.times()[sent] >= 40 * Duration::from_secs(1));
}

/// Goal: two sick APIs do not keep the other types of a process from starting. Method: each way a read can hang, for
/// two types; a third must be ready within the given seconds.
#[tokio::test(start_paused = true)]
async fn reads_that_hang_give_their_turn_back() {
    let item_now_and_then: Vec<String> = (0..100).map(|number| item(&format!("a/a{number}"), 3)).collect();
    let byte_now_and_then = || (0..600).flat_map(|_| [Step::Wait(Duration::from_secs(1)), Step::Send(" ".into())]);
    let created: Vec<Step> = (10..100)
        .flat_map(|version| {
            [Step::Wait(9 * Duration::from_secs(1)), Step::Send(added(&format!("a/c{version}"), version))]
        })
        .collect();
    for (what, initial, steps, most) in [
        ("headers, then nothing", InitialList::Paged, vec![Step::Hang], 11),
        ("headers, then nothing", InitialList::Unpaged, vec![Step::Hang], 11),
        ("headers, then nothing", InitialList::Stream, vec![Step::Hang], 11),
        ("a byte a second", InitialList::Paged, byte_now_and_then().collect(), 11),
        ("an item each nine seconds", InitialList::Paged, slowly(&item_now_and_then, 9 * Duration::from_secs(1)), 61),
        ("creations in a stream without end", InitialList::Stream, created.clone(), 11),
        ("creations in a stream without end", InitialList::Auto, created, 23),
    ] {
        let (cluster, _log) = in_memory(move |_, uri| match uri {
            uri if uri.contains("/configmaps") && !uri.contains("watch=true") => ok([Step::Send(list(&[], 9, ""))]),
            uri if uri.contains("/configmaps") => ok([Step::Send(end_bookmark(9)), Step::Hang]),
            _ => ok(steps.clone()),
        });
        let sick = cluster.informer::<Pod>().initial_list(initial).start().unwrap();
        let also_sick = cluster.informer::<Secret>().initial_list(initial).start().unwrap();
        let fine = cluster.informer::<ConfigMap>().initial_list(initial).start().unwrap();
        let ready = fine.ready(Duration::from_secs(most)).await;
        assert!(ready.is_ok(), "{what} {initial:?}: {ready:?}");
        drop((sick, also_sick));
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_without_headers_gives_its_turn_back() {
    let service = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
        if !request.uri().path().contains("/configmaps") {
            std::future::pending::<()>().await;
        }
        let is_watch = request.uri().to_string().contains("watch=true");
        let body = if is_watch { bookmark(10) } else { list(&[], 9, "") };
        Ok::<_, Infallible>(http::Response::new(http_body_util::Full::new(bytes::Bytes::from(body))))
    });
    let cluster = Cluster::new(kube::Client::new(service, "default"));
    let paged = InitialList::Paged;
    let _sick = cluster.informer::<Pod>().initial_list(paged).start().unwrap();
    let _also_sick = cluster.informer::<Secret>().initial_list(paged).start().unwrap();
    let fine = cluster.informer::<ConfigMap>().initial_list(paged).start().unwrap();
    fine.ready(Duration::from_secs(11)).await.unwrap();
}

/// Goal: waiting for a permit stops no other timer. Method: stalled streams hold the budget while an informer waits to
/// relist; its lingering object must still expire in time.
#[tokio::test(start_paused = true)]
async fn an_informer_that_waits_for_its_turn_keeps_its_other_times() {
    let server = FakeApiServer::new().at(41).put(pod("x"));
    let cluster = Cluster::new(server.client());
    let linger = 25 * Duration::from_secs(1);
    let pods = cluster.informer::<Pod>().linger(linger).start().unwrap();
    pods.ready(SOON).await.unwrap();
    server.delete(pod("x")).put(pod("y"));
    until("the deletion", || contents(&pods) == "a/y@44").await;
    assert_eq!(pods.store().snapshot().lingering("a/x").count(), 1);
    // Stalled streams hold their permits for ten seconds each and never complete. The relist queues behind all of them.
    server.stall_streams().expire_at(u64::MAX).close_watches();
    let stuck: Vec<_> =
        (0..12).map(|_| cluster.informer::<Secret>().initial_list(InitialList::Stream).start().unwrap()).collect();
    tokio::time::sleep(linger + Duration::from_secs(3)).await;
    assert_eq!(server.count(RequestKind::Stream), 1 + 6, "the relist waits for its turn");
    assert_eq!(pods.store().snapshot().lingering("a/x").count(), 0, "and what lingered is gone in time");
    drop(stuck);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_stream_gives_its_turn_back() {
    let (cluster, _log) = in_memory(|_, uri| match uri {
        uri if uri.contains("/pods") => ok([Step::Send(added("a/a", 3)), Step::Hang]),
        _ => ok([Step::Send(end_bookmark(9)), Step::Hang]),
    });
    let stream = InitialList::Stream;
    let stuck = cluster.informer::<Pod>().initial_list(stream).start().unwrap();
    let also_stuck = cluster.informer::<Pod>().namespace("a").initial_list(stream).start().unwrap();
    let fine = cluster.informer::<Secret>().initial_list(stream).start().unwrap();
    fine.ready(Duration::from_secs(11)).await.unwrap();
    for pods in [&stuck, &also_stuck] {
        assert!(pods.ready(Duration::ZERO).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_an_informer_in_the_queue_or_in_an_answer_ends_it() {
    let (cluster, log) = in_memory(|_, _| ok([Step::Send(added("a/a", 3)), Step::Hang]));
    let informers: Vec<_> = (0..4).map(|_| cluster.informer::<Pod>().start().unwrap()).collect();
    until("two requests", || log.uris().len() == 2).await;
    drop(informers);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(log.uris().len(), 2, "nobody asks any more");
}

#[tokio::test(start_paused = true)]
async fn where_watches_are_forbidden_lists_are_polled_every_few_minutes() {
    let (cluster, log) = in_memory(|_, uri| match uri {
        uri if uri.contains("watch=true") => refuse(403, status(403, "Forbidden", "no watch")),
        _ => ok([Step::Send(list(&[item("a/a", 3)], 9, ""))]),
    });
    let pods = cluster.informer::<Pod>().start().unwrap();
    assert_eq!(pods.ready(SOON).await.unwrap(), Ready::Polling);
    tokio::time::sleep(16 * MINUTE).await;
    let lists = log.uris().len() - log.count("watch=true");
    // After 20 s, one minute and two minutes, then every five to six minutes.
    assert!((5..=7).contains(&lists), "{:?}", log.uris());
    assert!(pods.stats().reflector.relists(RelistCause::WatchForbidden) >= 2);
    assert!(pods.age().unwrap() <= 6 * MINUTE);
}

/// Goal: a stream that always has more data does not run for ever. Method: one object again and again, without a pause
/// or an end, in real time; the requested lifetime of the stream is the bound.
#[tokio::test]
async fn a_stream_that_never_pauses_is_ended_all_the_same() {
    let requests = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&requests);
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        seen.fetch_add(1, Ordering::Relaxed);
        let object = bytes::Bytes::from(added("a/a", 3));
        let endless = stream::repeat_with(move || Ok::<_, Infallible>(http_body::Frame::data(object.clone())));
        async move { Ok::<_, Infallible>(http::Response::new(StreamBody::new(endless))) }
    });
    let declared = Cluster::new(kube::Client::new(service, "default")).informer::<Pod>();
    let declared = declared.initial_list(InitialList::Stream).config(|config| config.watch_timeout_seconds = 1..=1);
    let _pods = declared.start().unwrap();
    until("another request", || requests.load(Ordering::Relaxed) > 1).await;
}

/// A failed page is requested again within the budget; it does not count as a new attempt at initial state.
#[tokio::test(start_paused = true)]
async fn pages_that_are_asked_for_again_are_no_attempts() {
    let (cluster, log) = in_memory(|_, uri| match uri {
        uri if uri.contains("continue=") => refuse(503, status(503, "ServiceUnavailable", "later")),
        _ => ok([Step::Send(list(&[item("a/a", 3)], 9, "t"))]),
    });
    let pods = cluster.informer::<Pod>().initial_list(InitialList::Paged).start().unwrap();
    let not_ready = pods.ready(MINUTE).await.unwrap_err();
    let attempts = log.uris().len() - log.count("continue=");
    assert!(log.count("continue=") > attempts, "{:?}", log.uris());
    assert_eq!(usize::try_from(not_ready.attempts), Ok(attempts));
}
