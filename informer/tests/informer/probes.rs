//! Known complaints about other informers, as tests of this one. Time is paused; the server is the fake one.
//!
//! P1 (the configured request goes on the wire) is in `wire.rs`, P7 (no wake-up is lost) in `subscribing.rs`, P8 (peak
//! memory of a relist) in `tests/peak.rs`.

use std::{collections::BTreeSet, time::Duration};

use informer::{
    Cause, Cluster, Informer, InitialList, Ready,
    testing::{FakeApiServer, RequestKind},
};
use k8s_openapi::api::core::v1::Pod;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::fixture::{SOON, Step, contents, in_memory, item, list, next, ok, refuse, status};

const MINUTE: Duration = Duration::from_secs(60);

const EVERY_WAY: [InitialList; 4] = [InitialList::Auto, InitialList::Stream, InitialList::Paged, InitialList::Unpaged];

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "a"}})
}

fn start(server: &FakeApiServer, initial: InitialList) -> Informer<Pod> {
    Cluster::new(server.client()).informer::<Pod>().initial_list(initial).start().unwrap()
}

/// Server with the pods `a/x` at 42 and `a/y` at 43.
fn two_pods() -> FakeApiServer {
    FakeApiServer::new().at(41).put(pod("x")).put(pod("y"))
}

/// Goal: a server in trouble gets few requests. Method: ten minutes of each kind of trouble, with each initial list;
/// count requests. Covers the complaint that delays never grow, because each attempt counted as a success: 500 lists.
#[tokio::test(start_paused = true)]
async fn p2_refusals_of_ten_minutes_are_few_requests() {
    for code in [401, 403, 404, 422, 429, 500, 503, 504] {
        for initial in EVERY_WAY {
            let server = two_pods().fail_next(usize::MAX, code);
            let not_ready = start(&server, initial).ready(10 * MINUTE).await.unwrap_err();
            let is_reported = matches!(&not_ready.cause, Cause::Failed(error) if error.code() == Some(code));
            assert!(is_reported, "{code} {initial:?}: {not_ready}");
            let requests = server.requests().len();
            assert_eq!(usize::try_from(not_ready.attempts), Ok(requests), "{code} {initial:?}");
            // One more than with lists alone: the stream that was refused first.
            assert!((5..=21).contains(&requests), "{code} {initial:?}: {requests} requests");
        }
    }
}

/// Goal: few requests also when connections are refused.
#[tokio::test(start_paused = true)]
async fn p2_refused_connections_of_ten_minutes_are_few_requests() {
    for initial in EVERY_WAY {
        let server = two_pods().refuse_connections();
        let not_ready = start(&server, initial).ready(10 * MINUTE).await.unwrap_err();
        assert!(matches!(&not_ready.cause, Cause::Failed(error) if error.is_retryable()), "{not_ready}");
        assert!((5..=20).contains(&server.requests().len()), "{initial:?}: {}", server.requests().len());
    }
}

/// Covers the complaint that clients with equal `Retry-After` return in lockstep.
#[tokio::test(start_paused = true)]
async fn p2b_retry_after_is_kept_and_jittered() {
    let mut second_attempts = BTreeSet::new();
    for _ in 0..20 {
        let server = two_pods().fail_next(2, 429).retry_after(30 * Duration::from_secs(1));
        let pods = start(&server, InitialList::Unpaged);
        sleep(MINUTE).await;
        drop(pods);
        let times: Vec<Duration> = server.requests().iter().map(|seen| seen.at).collect();
        assert_eq!(times.len(), 2, "{times:?}");
        assert!(times[1] - times[0] >= Duration::from_secs(30), "{times:?}");
        second_attempts.insert(times[1].as_millis() / 100);
    }
    assert!(second_attempts.len() >= 5, "in tenths of a second: {second_attempts:?}");
}

/// Covers the complaint that a clean end is no error, so that no delay applied: 55,000 requests a second.
#[tokio::test(start_paused = true)]
async fn p3_instant_closes_of_a_minute_are_twelve_requests_at_most() {
    for initial in EVERY_WAY {
        let server = two_pods();
        let pods = start(&server, initial);
        assert_eq!(pods.ready(SOON).await.unwrap(), Ready::Watching);
        server.close_watches_after(Duration::ZERO).close_watches();
        let before = server.requests().len();
        sleep(MINUTE).await;
        let requests = server.requests().len() - before;
        assert!((3..=12).contains(&requests), "{initial:?}: {requests}");
        assert_eq!(server.initial_reads(), 1, "no relist");
    }
}

/// Goal: a balancer that cuts long responses does not increase delays. Method: an hour of cuts after 60 s each; check
/// every gap.
#[tokio::test(start_paused = true)]
async fn p3_an_hour_of_watches_cut_every_minute_makes_no_delay_grow() {
    let server = two_pods().close_watches_after(MINUTE);
    let pods = start(&server, InitialList::Auto);
    pods.ready(SOON).await.unwrap();
    sleep(60 * MINUTE).await;
    let times: Vec<Duration> = server.requests().iter().map(|seen| seen.at).collect();
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(longest < MINUTE + Duration::from_millis(200), "{longest:?}");
    assert_eq!(server.initial_reads(), 1, "no relist");
}

/// Goal: a position that has always expired before the watch costs few lists. Method: ten minutes of a server that
/// forgets at once, with each initial list.
#[tokio::test(start_paused = true)]
async fn p3_ten_minutes_of_410_after_every_list_are_few_lists() {
    for initial in [InitialList::Auto, InitialList::Paged, InitialList::Unpaged] {
        let server = two_pods().expire_at(u64::MAX).refuse_stream(422);
        let pods = start(&server, initial);
        pods.ready(SOON).await.unwrap();
        sleep(10 * MINUTE).await;
        assert!(
            (3..=20).contains(&server.count(RequestKind::List)),
            "{initial:?}: {}",
            server.count(RequestKind::List)
        );
    }
}

/// Covers the complaint that a stream without an end bookmark leaves the store empty for ever.
#[tokio::test(start_paused = true)]
async fn p4_a_stream_without_end_bookmark_becomes_pages_after_ten_seconds_and_ready_waits_for_it() {
    let server = two_pods().withhold_end_bookmark();
    let pods = start(&server, InitialList::Auto);
    let not_ready = pods.ready(Duration::from_secs(9)).await.unwrap_err();
    assert!(matches!(not_ready.cause, Cause::Receiving), "{not_ready}");
    pods.ready(Duration::from_secs(2)).await.unwrap();
    assert_eq!(contents(&pods), "a/x@42 a/y@43");
}

/// Goal: the fallback also happens while objects are being created, which are not part of the initial state. Method:
/// one object every nine seconds, which once kept an informer from being ready for ten minutes; and one a second, also
/// with changes beside them.
#[tokio::test(start_paused = true)]
async fn p4_a_stream_without_end_bookmark_becomes_pages_in_time_also_on_a_busy_type() {
    for (every, with_changes, most) in [(9_000, false, 11), (1_000, true, 12), (1_000, false, 21), (100, false, 21)] {
        let server = two_pods().withhold_end_bookmark();
        let pods = start(&server, InitialList::Auto);
        let writer = tokio::spawn(async move {
            for number in 0.. {
                sleep(Duration::from_millis(every)).await;
                server.put(pod(&format!("z{number:05}")));
                if with_changes {
                    server.put(json!({"apiVersion": "v1", "kind": "Pod",
                        "metadata": {"name": "x", "namespace": "a", "labels": {"turn": number.to_string()}}}));
                }
            }
        });
        let ready = pods.ready(Duration::from_secs(most)).await;
        assert!(ready.is_ok(), "one each {every} ms: {ready:?}");
        writer.abort();
    }
}

/// Goal: the fallback also happens if the stream is accepted and sends no data.
#[tokio::test(start_paused = true)]
async fn p4_a_stream_that_says_nothing_becomes_pages_within_seconds() {
    let server = two_pods().stall_streams();
    start(&server, InitialList::Auto).ready(Duration::from_secs(11)).await.unwrap();
    assert_eq!((server.count(RequestKind::Stream), server.count(RequestKind::List)), (1, 1));
}

/// Covers the complaint that a server without watch-list leaves the store empty for ever if clients request streams.
#[tokio::test(start_paused = true)]
async fn p5_422_for_a_stream_becomes_pages_at_once_and_is_remembered() {
    let server = two_pods().refuse_stream(422);
    let cluster = Cluster::new(server.client());
    let began = Instant::now();
    let pods =
        cluster.informer::<Pod>().list_semantic(informer::ListSemantic::MostRecent).page_size(1).start().unwrap();
    pods.ready(SOON).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(contents(&pods), "a/x@42 a/y@43");
    assert_eq!(
        (server.count(RequestKind::Stream), server.count(RequestKind::List), server.count(RequestKind::Page)),
        (1, 1, 1)
    );
    let more = cluster.informer::<Pod>().namespace("a").start().unwrap();
    more.ready(SOON).await.unwrap();
    assert_eq!(server.count(RequestKind::Stream), 1, "the next informer of the type does not ask");
}

/// A server without watches is polled, and probed for a watch now and then.
#[tokio::test(start_paused = true)]
async fn p5b_405_for_every_watch_is_polling() {
    for code in [404, 405] {
        let (cluster, log) = in_memory(move |_, uri| match uri {
            uri if uri.contains("watch=true") => refuse(code, status(code, "MethodNotAllowed", "no watches")),
            _ => ok([Step::Send(list(&[item("a/a", 3)], 9, ""))]),
        });
        let pods = cluster.informer::<Pod>().start().unwrap();
        pods.ready(SOON).await.unwrap();
        sleep(MINUTE).await;
        assert_eq!(pods.ready(SOON).await.unwrap(), Ready::Polling, "{code}");
        sleep(29 * MINUTE).await;
        let lists = log.uris().len() - log.count("watch=true");
        assert!((7..=9).contains(&lists), "{code}: {lists} lists in thirty minutes");
        assert!(log.count("watch=true") <= 100, "{code}: {:?}", log.uris());
    }
}

/// A role that is being replaced, or one bad server behind a balancer, costs seconds instead of a whole polling
/// interval.
#[tokio::test(start_paused = true)]
async fn p5c_a_watch_that_is_forbidden_for_a_moment_is_asked_for_again_within_seconds() {
    let server = two_pods();
    let pods = start(&server, InitialList::Auto);
    pods.ready(SOON).await.unwrap();
    sleep(MINUTE).await;
    server.forbid_watch().close_watches();
    sleep(Duration::from_secs(5)).await;
    server.recover().put(pod("z"));
    sleep(Duration::from_secs(6)).await;
    assert_eq!(contents(&pods), "a/x@42 a/y@43 a/z@44");
    assert_eq!((pods.ready(SOON).await.unwrap(), server.initial_reads()), (Ready::Watching, 1));
}

/// The same for longer. The pauses double, so the last one is shorter than half of the time before it.
#[tokio::test(start_paused = true)]
async fn p5c_a_watch_that_is_forbidden_for_a_while_is_back_within_seconds() {
    for seconds in [15, 30, 60] {
        let server = two_pods();
        let pods = start(&server, InitialList::Auto);
        pods.ready(SOON).await.unwrap();
        sleep(MINUTE).await;
        server.forbid_watch().close_watches();
        sleep(Duration::from_secs(seconds)).await;
        server.recover().put(pod("z"));
        let (since, within) = (Instant::now(), Duration::from_secs(seconds) / 2);
        while !contents(&pods).ends_with("a/z@44") {
            assert!(since.elapsed() <= within, "{seconds}: no change within {within:?}");
            sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(pods.ready(SOON).await.unwrap(), Ready::Watching);
        assert!(server.initial_reads() <= 3, "{seconds}: {} lists", server.initial_reads());
    }
}

/// Goal: a definition that is installed after the program has started turns no stream off. Method: a type that is a 404
/// at first, then one more informer of it.
#[tokio::test(start_paused = true)]
async fn p5d_a_type_that_is_installed_late_gets_streams() {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Widget"), "widgets");
    for waits in 0..20 {
        let server = FakeApiServer::new();
        let cluster = Cluster::new(server.client());
        let widgets = cluster.informer_for::<DynamicObject>(&resource).start().unwrap();
        sleep(Duration::from_secs(1 + 3 * waits)).await;
        assert!(!server.requests().is_empty());
        server.serve_resource(&resource);
        widgets.ready(2 * MINUTE).await.unwrap();
        let streams = server.count(RequestKind::Stream);
        let more = cluster.informer_for::<DynamicObject>(&resource).labels("app=web").start().unwrap();
        more.ready(SOON).await.unwrap();
        assert_eq!(server.count(RequestKind::Stream), streams + 1, "the next one asks for a stream");
        assert_eq!(widgets.stats().reflector.fallbacks(informer::FallBack::Refused), 0);
    }
}

/// Goal: endless pages are neither requested without a pause nor accumulated for ever. Method: an hour in which each
/// page takes a second and has one object and a new token.
#[tokio::test(start_paused = true)]
async fn pages_without_end_are_given_up_with_a_cause_and_growing_pauses() {
    let (cluster, log) = in_memory(|number, uri| match uri {
        uri if uri.contains("watch=true") => refuse(422, status(422, "Invalid", "no streams")),
        _ => {
            let page = list(&[item("a/a", 3)], 9, &format!("t{number}"));
            ok([Step::Wait(Duration::from_secs(1)), Step::Send(page)])
        }
    });
    let pods = cluster.informer::<Pod>().start().unwrap();
    let not_ready = pods.ready(60 * MINUTE).await.unwrap_err();
    assert!(not_ready.to_string().contains("failed"), "{not_ready}");
    let Cause::Failed(error) = &not_ready.cause else { panic!("{not_ready}") };
    assert!(error.to_string().contains("the list did not end"), "{error}");
    assert_eq!(pods.stats().reflector.endless_lists, 3);
    let lists = log.uris().len() - log.count("continue=") - log.count("watch=true");
    assert!(lists <= 5, "{lists}");
}

/// Covers the complaints that a deletion during an outage is never reported, and that a relist discards the last
/// version and may go back in time.
#[tokio::test(start_paused = true)]
async fn p6_a_vanished_object_is_reported_deleted_and_the_relist_is_not_older_than_what_was_seen() {
    for initial in EVERY_WAY {
        let server = two_pods();
        let pods = start(&server, initial);
        let mut changes = pods.subscribe();
        assert_eq!(next(&mut changes, 3).await, ["+a/x@42", "+a/y@43", "=43"]);
        // Deleted while the watch cannot see it, and compacted before the client reconnects.
        server.freeze().delete(pod("y")).recover().expire_at(43).close_watches();
        assert_eq!(next(&mut changes, 2).await, ["-a/y@43?", "=44"], "{initial:?}");
        let requests = server.requests();
        let is_initial = |requested| matches!(requested, RequestKind::List | RequestKind::Stream);
        let relist = requests.iter().rfind(|seen| is_initial(seen.kind)).unwrap();
        let [not_older, at_43] = ["resourceVersionMatch=NotOlderThan", "resourceVersion=43"];
        assert!(relist.request.contains(not_older) && relist.request.contains(at_43), "{relist}");
    }
}
