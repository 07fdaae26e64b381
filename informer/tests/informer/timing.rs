//! Time, paused: delays under refusal, silence, stalls, the relist budget.

use std::time::Duration;

use informer::{
    Cause, Cluster, InitialList, Ready, RelistCause,
    testing::{Asked, FakeApiServer},
};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};

use crate::fixture::{
    SOON, Step, added, bookmark, contents, end_bookmark, in_memory, is_stream, is_watch, item, list, ok, refuse,
    status, until,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Goal: a server in trouble is left alone. Method: ten minutes of each kind of trouble, asked in each way, requests
/// counted. Answers the complaint that delays never grow, because each attempt counted as a success: 500 lists.
#[tokio::test(start_paused = true)]
async fn p2_ten_minutes_of_refusal_are_few_requests() {
    for code in [401, 403, 404, 422, 429, 500, 503, 504] {
        for initial in [InitialList::Auto, InitialList::Stream, InitialList::Paged, InitialList::Unpaged] {
            let (cluster, log) = in_memory(move |_, _| refuse(code, status(code, "Sorry", "no")));
            let pods = cluster.informer::<Pod>().initial_list(initial).start().unwrap();
            let not_ready = pods.ready(10 * MINUTE).await.unwrap_err();
            let is_told = matches!(&not_ready.cause, Cause::Failed(error) if error.code() == Some(code));
            assert!(is_told, "{code} {initial:?}: {not_ready}");
            assert_eq!(usize::try_from(not_ready.attempts), Ok(log.uris().len()), "{code} {initial:?}");
            // One more than lists alone: the stream that was refused first.
            assert!((5..=21).contains(&log.uris().len()), "{code} {initial:?}: {} requests", log.uris().len());
        }
    }
}

/// The same where nobody answers at all.
#[tokio::test(start_paused = true)]
async fn p2_ten_minutes_of_refused_connections_are_few_requests() {
    for initial in [InitialList::Auto, InitialList::Stream, InitialList::Paged, InitialList::Unpaged] {
        let server = FakeApiServer::new().refuse_connections();
        let pods = Cluster::new(server.client()).informer::<Pod>().initial_list(initial).start().unwrap();
        let not_ready = pods.ready(10 * MINUTE).await.unwrap_err();
        assert!(matches!(&not_ready.cause, Cause::Failed(error) if error.is_retryable()), "{not_ready}");
        assert!((5..=20).contains(&server.requests().len()), "{initial:?}: {}", server.requests().len());
    }
}

/// Goal: a position that is always too old by the time it is watched costs few lists. Method: ten minutes of a server
/// that forgets at once, asked in each way.
#[tokio::test(start_paused = true)]
async fn ten_minutes_of_410_after_every_list_are_few_lists() {
    for initial in [InitialList::Auto, InitialList::Paged, InitialList::Unpaged] {
        let server = FakeApiServer::new().at(41).expire_at(u64::MAX).refuse_stream(422);
        let pods = Cluster::new(server.client()).informer::<Pod>().initial_list(initial).start().unwrap();
        pods.ready(SOON).await.unwrap();
        tokio::time::sleep(10 * MINUTE).await;
        assert!((3..=20).contains(&server.count(Asked::List)), "{initial:?}: {}", server.count(Asked::List));
    }
}

/// Goal: a balancer that cuts long answers makes nothing worse. Method: an hour of cuts after 60 s each; every gap.
#[tokio::test(start_paused = true)]
async fn an_hour_of_watches_cut_every_minute_makes_no_delay_grow() {
    let server = FakeApiServer::new().at(41).close_watches_after(MINUTE);
    let pods = Cluster::new(server.client()).informer::<Pod>().start().unwrap();
    pods.ready(SOON).await.unwrap();
    tokio::time::sleep(60 * MINUTE).await;
    let times: Vec<Duration> = server.requests().iter().map(|seen| seen.at).collect();
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(longest < MINUTE + Duration::from_millis(200), "{longest:?}");
    assert_eq!(server.initial_reads(), 1, "no relist");
}

/// Goal: nonsense is asked for as rarely as refusals, and memory stays. Method: ten minutes of each, requests counted.
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

#[tokio::test(start_paused = true)]
async fn a_stream_whose_headers_do_not_come_is_read_in_pages_within_seconds() {
    let service = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
        if request.uri().to_string().contains("watch=true") {
            std::future::pending::<()>().await;
        }
        let body = http_body_util::Full::new(bytes::Bytes::from(list(&[item("a/a", 3)], 9, "")));
        Ok::<_, std::convert::Infallible>(http::Response::new(body))
    });
    let pods = Cluster::new(kube::Client::new(service, "default")).informer::<Pod>().start().unwrap();
    pods.ready(Duration::from_secs(12)).await.unwrap();
    assert_eq!(contents(&pods), "a/a@3");
}

/// Durations that mean "never".
#[tokio::test(start_paused = true)]
async fn the_longest_durations_are_settings_like_any_other() {
    let (cluster, _log) = in_memory(|_, uri| match uri {
        uri if is_stream(uri) => ok([Step::Wait(MINUTE), Step::Send(added("a/a", 3)), Step::Send(end_bookmark(9))]),
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
    assert_eq!(pods.stats().reflector.requests, 2);
}

/// Answers the complaint that a clean end is no error, so that no delay ever applied: 55,000 requests a second.
#[tokio::test(start_paused = true)]
async fn p3_a_server_that_closes_every_watch_at_once_is_asked_twelve_times_a_minute_at_most() {
    let (cluster, log) = in_memory(|_, uri| match uri {
        uri if is_stream(uri) => ok([Step::Send(end_bookmark(9))]),
        _ => ok([]),
    });
    let pods = cluster.informer::<Pod>().start().unwrap();
    pods.ready(SOON).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    assert!((3..=12).contains(&log.uris().len()), "{:?}", log.times());
    assert_eq!(log.count("sendInitialEvents"), 1, "no relist");
}

/// Answers the complaint that a fleet told the same `Retry-After` comes back in lockstep.
#[tokio::test(start_paused = true)]
async fn p2b_retry_after_is_kept_and_clients_told_the_same_do_not_come_back_together() {
    let mut second_attempts = Vec::new();
    for _ in 0..20 {
        let (cluster, log) =
            in_memory(|_, _| refuse(429, status(429, "TooManyRequests", "later")).header("retry-after", "30"));
        let _pods = cluster.informer::<Pod>().initial_list(InitialList::Unpaged).start().unwrap();
        tokio::time::sleep(Duration::from_secs(29)).await;
        assert_eq!(log.uris().len(), 1);
        tokio::time::sleep(Duration::from_secs(31)).await;
        assert_eq!(log.uris().len(), 2, "{:?}", log.times());
        second_attempts.push(log.times()[1].as_millis() / 100);
    }
    second_attempts.sort_unstable();
    second_attempts.dedup();
    assert!(second_attempts.len() >= 5, "in tenths of a second: {second_attempts:?}");
}

/// Answers the complaint that a fleet that starts together asks together.
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

/// Answers the complaint that a stream which never ends its initial state leaves the store empty for ever.
#[tokio::test(start_paused = true)]
async fn p4_a_stream_without_end_bookmark_falls_back_after_ten_seconds_and_ready_waits_for_it() {
    let (cluster, log) = in_memory(|_, uri| match uri {
        uri if is_stream(uri) => ok([Step::Wait(Duration::from_secs(8)), Step::Send(added("a/a", 3)), Step::Hang]),
        uri if is_watch(uri) => ok([Step::Hang]),
        _ => ok([Step::Send(list(&[item("a/a", 3)], 9, ""))]),
    });
    let pods = cluster.informer::<Pod>().start().unwrap();
    let not_ready = pods.ready(Duration::from_secs(15)).await.unwrap_err();
    assert!(matches!(not_ready.cause, Cause::Receiving), "{not_ready}");
    pods.ready(SOON).await.unwrap();
    assert_eq!(log.times()[1].as_secs(), 18, "each object restarts the ten seconds");
    assert_eq!(contents(&pods), "a/a@3");
}

#[tokio::test(start_paused = true)]
async fn headers_that_do_not_come_are_an_error_in_time() {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
    });
    let cluster = Cluster::new(kube::Client::new(service, "default"));
    let limit = Duration::from_secs(5);
    let declared = cluster.informer::<Pod>().initial_list(InitialList::Unpaged);
    let pods = declared.config(|config| config.headers_timeout = limit).start().unwrap();
    let not_ready = pods.ready(Duration::from_secs(5) + Duration::from_millis(1)).await.unwrap_err();
    let Cause::Failed(error) = &not_ready.cause else { panic!("{not_ready}") };
    assert_eq!(error.to_string(), "the server gave no answer within 5s");
}

/// Goal: at most two informers read at once; waiting for the turn is neither silence nor a stall. Method: two lists
/// that take three minutes, a third that must wait as long and then takes its own time.
#[tokio::test(start_paused = true)]
async fn two_read_at_once_and_the_third_waits_without_losing_patience() {
    let (cluster, log) = in_memory(|_, uri| {
        if is_watch(uri) {
            return ok([Step::Hang]);
        }
        let whole = list(&[item("a/a", 3)], 9, "");
        let (begin, rest) = whole.split_at(60);
        let wait = [Step::Wait(100 * Duration::from_secs(1)), Step::Send(String::new())];
        ok([Step::Send(begin.into())].into_iter().chain(wait).chain([Step::Send(rest.into())]))
    });
    let unpaged = InitialList::Unpaged;
    let first = cluster.informer::<Pod>().initial_list(unpaged).start().unwrap();
    let second = cluster.informer::<Secret>().initial_list(unpaged).start().unwrap();
    let third = cluster.informer::<ConfigMap>().initial_list(unpaged).config(|it| it.idle_timeout = 2 * MINUTE).start();
    let third = third.unwrap();
    let not_ready = third.ready(MINUTE).await.unwrap_err();
    assert!(matches!(not_ready.cause, Cause::Queued), "{not_ready}");
    first.ready(2 * MINUTE).await.unwrap();
    second.ready(MINUTE).await.unwrap();
    third.ready(2 * MINUTE).await.unwrap();
    assert_eq!(log.count("configmaps?resourceVersion=0"), 1, "{:?}", log.uris());
    let sent = log.uris().iter().position(|uri| uri.contains("configmaps")).unwrap();
    assert!(log.times()[sent] >= 100 * Duration::from_secs(1));
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
    assert!((3..=4).contains(&lists), "{:?}", log.uris());
    assert!(pods.stats().reflector.relists(RelistCause::WatchForbidden) >= 2);
    assert!(pods.age().unwrap() <= 6 * MINUTE);
}
