//! The stream for `kube::runtime`: its events and errors, and the requests of kube's settings.

use std::{
    convert::Infallible,
    error::Error as _,
    fmt::Debug,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{Stream, StreamExt};
use informer::{Cluster, ConfigError, DecodeError, Error};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, ResourceExt,
    core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta},
    runtime::{WatchStreamExt, reflector, watcher},
};
use watcher::{Config, Event};

use crate::fixture::{
    Reply, SOON, Step, added, client_in_memory, deleted, end_bookmark, event, is_stream, is_watch, item, list,
    modified, ok, refuse, status,
};

const MINUTE: Duration = Duration::from_secs(60);

fn describe<K: ResourceExt>(item: &watcher::Result<Event<K>>) -> String {
    let at = |object: &K| format!("{}@{}", object.name_any(), object.resource_version().unwrap_or_default());
    match item {
        Ok(Event::Init) => "init".into(),
        Ok(Event::InitApply(object)) => format!("({})", at(object)),
        Ok(Event::InitDone) => "done".into(),
        Ok(Event::Apply(object)) => at(object),
        Ok(Event::Delete(object)) => format!("-{}", at(object)),
        Err(watcher::Error::WatchError(status)) => format!("status {}", status.code),
        Err(watcher::Error::WatchFailed(error)) if error.source().is_some() => "failed".into(),
        Err(error) => panic!("{error}"),
    }
}

async fn next<K: ResourceExt>(
    events: &mut (impl Stream<Item = watcher::Result<Event<K>>> + Unpin),
    count: usize,
) -> String {
    let mut all = Vec::new();
    for _ in 0..count {
        let item = tokio::time::timeout(10 * SOON, events.next()).await.expect("an event soon");
        all.push(item.as_ref().map_or_else(|| "end".into(), describe));
    }
    all.join(" ")
}

/// Collects the items of this time.
async fn read_for<T: Debug>(time: Duration, events: impl Stream<Item = T>) -> Vec<T> {
    let deadline = pin!(tokio::time::sleep(time));
    events.take_until(deadline).collect().await
}

fn pods(answer: impl Fn(usize, &str) -> Reply + Send + Sync + 'static) -> (Api<Pod>, crate::fixture::Log) {
    let (client, log) = client_in_memory(answer);
    (Api::all(client), log)
}

/// The error of type `T` inside a `WatchFailed`.
fn cause<T: std::error::Error + 'static>(error: &watcher::Error) -> &T {
    let watcher::Error::WatchFailed(kube::Error::Service(cause)) = error else { panic!("{error:?}") };
    cause.downcast_ref().unwrap_or_else(|| panic!("{cause:?}"))
}

/// Removes `timeoutSeconds`, which is drawn at random unless it is set.
fn without_timeout(uri: &str) -> String {
    let parts: Vec<&str> = uri.split('&').filter(|part| !part.starts_with("timeoutSeconds=")).collect();
    parts.join("&")
}

/// Goal: requests follow the configuration. Method: the first two requests of kube's settings. The second line covers
/// the complaint that `any_semantic()` became the most expensive read once pages were on, which is the default; the
/// stream lines cover the complaint that streams always requested `resourceVersion=0`.
#[tokio::test(start_paused = true)]
async fn p1_each_kube_config_asks_exactly_this() {
    let stream = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let watch = "watch=true&resourceVersion=41&allowWatchBookmarks=true";
    let unpaged = |config: Config| Config { page_size: None, ..config };
    let config = Config::default;
    for (config, first, second) in [
        (config(), "limit=500".to_owned(), watch),
        (config().any_semantic(), "resourceVersion=0&limit=500".into(), watch),
        (config().page_size(7), "limit=7".into(), watch),
        (unpaged(config()), String::new(), watch),
        (config().page_size(0), String::new(), watch),
        (unpaged(config().any_semantic()), "resourceVersion=0".into(), watch),
        (config().streaming_lists(), format!("{stream}&allowWatchBookmarks=true"), watch),
        (
            config().streaming_lists().any_semantic(),
            format!("{stream}&resourceVersion=0&allowWatchBookmarks=true"),
            watch,
        ),
        (config().disable_bookmarks(), "limit=500".into(), "watch=true&resourceVersion=41"),
        (
            config().labels("env in (a, b)").fields("spec.nodeName=n"),
            "limit=500&labelSelector=env%20in%20%28a%2Cb%29&fieldSelector=spec.nodeName%3Dn".into(),
            "watch=true&resourceVersion=41&allowWatchBookmarks=true&labelSelector=env%20in%20%28a%2Cb%29&fieldSelector=spec.nodeName%3Dn",
        ),
    ] {
        let (api, log) = pods(|number, uri| match number {
            1 if is_stream(uri) => ok([Step::Send(end_bookmark(41))]),
            1 => ok([Step::Send(list(&[], 41, ""))]),
            _ => ok([Step::Hang]),
        });
        let mut events = pin!(informer::watcher(api, config.clone()));
        assert_eq!(next(&mut events, 2).await, "init done");
        let _ = read_for(Duration::from_secs(5), &mut events).await;
        let uris: Vec<String> = log.uris().iter().map(|uri| without_timeout(uri)).collect();
        let first = if first.is_empty() { "/api/v1/pods".into() } else { format!("/api/v1/pods?{first}") };
        assert_eq!(uris, [first, format!("/api/v1/pods?{second}")], "{config:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_that_is_set_is_asked_for_and_zero_is_drawn() {
    for (timeout, expected) in [(Some(60), 60..=60), (None, 300..=599), (Some(0), 300..=599)] {
        let (api, log) = pods(|number, _| match number {
            1 => ok([Step::Send(list(&[], 41, ""))]),
            _ => ok([Step::Hang]),
        });
        let _ = read_for(SOON, informer::watcher(api, Config { timeout, ..Config::default() })).await;
        let uris = log.uris();
        let (_, seconds) = uris[1].split_once("timeoutSeconds=").unwrap();
        assert!(expected.contains(&seconds.parse().unwrap()), "{timeout:?}: {seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_api_says_what_is_read() {
    let cron_tab = ApiResource::from_gvk(&GroupVersionKind::gvk("stable.example.com", "v1", "CronTab"));
    let (client, log) = client_in_memory(|_, _| ok([Step::Hang]));
    let one = |api: Api<Deployment>| read_for(SOON, informer::watcher(api, Config::default()));
    let _ = one(Api::all(client.clone())).await;
    let _ = one(Api::namespaced(client.clone(), "prod")).await;
    let dynamic: Api<DynamicObject> = Api::namespaced_with(client.clone(), "prod", &cron_tab);
    let _ = read_for(SOON, informer::watcher(dynamic, Config::default())).await;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client);
    let _ = read_for(SOON, informer::watcher(namespaces, Config::default())).await;
    assert_eq!(
        log.uris(),
        [
            "/apis/apps/v1/deployments?limit=500",
            "/apis/apps/v1/namespaces/prod/deployments?limit=500",
            "/apis/stable.example.com/v1/namespaces/prod/crontabs?limit=500",
            "/api/v1/namespaces?limit=500",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn initial_state_then_changes_as_kube_tells_them() {
    for config in [Config::default(), Config::default().streaming_lists()] {
        let (api, _log) = pods(|number, uri| match number {
            1 if is_stream(uri) => ok([Step::Send(added("a/a", 3) + &end_bookmark(9)), Step::Send(live())]),
            1 => ok([Step::Send(list(&[item("a/a", 3)], 9, ""))]),
            2 => ok([Step::Send(live()), Step::Hang]),
            _ => ok([Step::Hang]),
        });
        let mut events = pin!(informer::watcher(api, config));
        let Some(Ok(Event::Init)) = events.next().await else { panic!("init") };
        let Some(Ok(Event::InitApply(pod))) = events.next().await else { panic!("a pod") };
        assert!(!pod.managed_fields().is_empty(), "nothing is cut unless somebody says so");
        assert_eq!(next(&mut events, 4).await, "done b@10 a@11 -b@12");
    }
    fn live() -> String {
        added("a/b", 10) + &modified("a/a", 11) + &deleted("a/b", 12)
    }
}

/// Covers the complaint that a relist discards the last version: after a 410 all clients at once requested the most
/// recent state, or any state, which may lie in the past. Also checks that all objects are delivered again, because
/// kube's reflector detects deletions by what a relist leaves out.
#[tokio::test(start_paused = true)]
async fn p6_a_relist_after_410_tells_all_objects_and_never_asks_for_the_past() {
    let seen = "resourceVersionMatch=NotOlderThan";
    for (config, expected) in [
        (Config::default(), format!("resourceVersion=20&{seen}")),
        (Config::default().any_semantic(), format!("resourceVersion=20&{seen}")),
        (
            Config::default().streaming_lists(),
            format!("watch=true&sendInitialEvents=true&{seen}&resourceVersion=20&allowWatchBookmarks=true"),
        ),
    ] {
        let (api, log) = pods(|number, uri| {
            let state: &[(&str, u64)] = if number == 1 { &[("a/a", 3), ("a/b", 4)] } else { &[("a/a", 3)] };
            let position = if number == 1 { 9 } else { 31 };
            if is_stream(uri) {
                let all: String = state.iter().map(|(key, version)| added(key, *version)).collect();
                let gone = event("ERROR", status(410, "Expired", "too old").trim());
                let live = if number == 1 { modified("a/a", 20) + &gone } else { String::new() };
                return ok([Step::Send(all + &end_bookmark(position) + &live), Step::Hang]);
            }
            if !is_watch(uri) {
                let items: Vec<String> = state.iter().map(|(key, version)| item(key, *version)).collect();
                return ok([Step::Send(list(&items, position, ""))]);
            }
            match number {
                2 => ok([Step::Send(modified("a/a", 20))]),
                3 => refuse(410, status(410, "Expired", "too old")),
                _ => ok([Step::Hang]),
            }
        });
        let (reader, writer) = reflector::store();
        let mut events = pin!(reflector(writer, informer::watcher(api, config.clone())));
        assert_eq!(next(&mut events, 6).await, "init (a@3) (b@4) done a@20 status 410", "{config:?}");
        assert_eq!(reader.state().len(), 2);
        assert_eq!(next(&mut events, 3).await, "init (a@3) done", "{config:?}");
        assert_eq!(reader.state().len(), 1, "what the relist left out is gone");
        let uris = log.uris();
        let relists: Vec<&String> = uris[1..].iter().filter(|uri| !is_watch(uri)).collect();
        assert_eq!(without_timeout(relists[0]), format!("/api/v1/pods?{expected}"), "{config:?}");
    }
}

/// Covers the complaint that delays never grow, because `Init` counted as success before every list: 500 requests in
/// ten minutes. An additional `default_backoff()`, as programs have it today, does not increase the number.
#[tokio::test(start_paused = true)]
async fn p2_ten_minutes_of_refusal_are_few_requests() {
    for code in [403, 429, 500, 503, 504] {
        for config in [Config::default(), Config::default().streaming_lists()] {
            for is_backed_off in [false, true] {
                let (api, log) = pods(move |_, _| refuse(code, status(code, "Sorry", "no")));
                let events = informer::watcher(api, config.clone());
                let items = if is_backed_off {
                    read_for(10 * MINUTE, events.default_backoff()).await
                } else {
                    read_for(10 * MINUTE, events).await
                };
                let requests = log.uris().len();
                assert!((5..=21).contains(&requests), "{code} {config:?} {is_backed_off}: {requests} requests");
                assert!(items.iter().all(|item| describe(item) == format!("status {code}")), "{items:?}");
                assert!(items.len() >= requests - 2, "each is told: {items:?}");
            }
        }
    }
}

/// Covers the complaint that a server which closes watches at once gets 55,000 requests a second.
#[tokio::test(start_paused = true)]
async fn p3_a_minute_of_watches_closed_at_once_is_few_requests() {
    for config in [Config::default(), Config::default().streaming_lists()] {
        let (api, log) = pods(|_, uri| match uri {
            uri if is_stream(uri) => ok([Step::Send(end_bookmark(9))]),
            uri if is_watch(uri) => ok([]),
            _ => ok([Step::Send(list(&[], 9, ""))]),
        });
        let _ = read_for(MINUTE, informer::watcher(api, config)).await;
        assert!((3..=12).contains(&log.uris().len()), "{} requests", log.uris().len());
    }
}

/// Covers the complaints that a store stays empty for ever if a stream never ends its initial state, or if a server
/// refuses streams.
#[tokio::test(start_paused = true)]
async fn p4_p5_streams_that_stall_or_are_refused_become_pages() {
    for refused in [false, true] {
        let (api, log) = pods(move |_, uri| match uri {
            uri if is_stream(uri) && refused => refuse(422, status(422, "Invalid", "sendInitialEvents is forbidden")),
            uri if is_stream(uri) => ok([Step::Send(added("a/a", 3)), Step::Hang]),
            uri if is_watch(uri) => ok([Step::Hang]),
            _ => ok([Step::Send(list(&[item("a/a", 3)], 9, ""))]),
        });
        let (reader, writer) = reflector::store();
        let events = reflector(writer, informer::watcher(api, Config::default().streaming_lists()));
        let items = read_for(MINUTE, events).await;
        assert_eq!(reader.state().len(), 1, "{items:?}");
        assert_eq!(log.count("limit=500"), 1);
    }
}

/// Goal: a deletion during initial state is not lost. Method: kube's own reflector, which stores the objects of initial
/// state apart and would not find the deleted one there.
#[tokio::test(start_paused = true)]
async fn an_object_deleted_while_initial_state_is_streamed_stays_deleted() {
    let again = added("a/c", 3) + &deleted("a/c", 6) + &added("a/c", 7);
    let body = added("a/a", 3) + &added("a/b", 4) + &deleted("a/a", 5) + &again + &end_bookmark(9);
    let (api, _log) = pods(move |_, _| ok([Step::Send(body.clone()), Step::Hang]));
    let (reader, writer) = reflector::store();
    let mut events = pin!(reflector(writer, informer::watcher(api, Config::default().streaming_lists())));
    assert_eq!(next(&mut events, 7).await, "init (a@3) (b@4) (c@3) (c@7) done -a@5");
    let mut names: Vec<String> = reader.state().iter().map(|pod| pod.name_any()).collect();
    names.sort();
    assert_eq!(names, ["b", "c"]);
}

/// Goal: an object that does not decode is reported and does not block others. Method: it is in the list, changes live,
/// and is deleted, which a reflector must learn nevertheless.
#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_decode_is_an_error_and_not_in_the_way() {
    fn broken(text: &str) -> String {
        text.replace("\"containers\":[]", "\"containers\":\"hunter2\"")
    }
    let (api, log) = pods(|number, uri| match uri {
        uri if is_watch(uri) && number == 2 => {
            let deleted = broken(&deleted("a/c", 12));
            ok([Step::Send(broken(&modified("a/a", 10)) + &added("a/d", 11) + &deleted), Step::Hang])
        }
        uri if is_watch(uri) => ok([Step::Hang]),
        _ => {
            let items = [item("a/a", 3), broken(&item("a/b", 4)), item("a/c", 5)];
            ok([Step::Send(list(&items, 9, ""))])
        }
    });
    let (reader, writer) = reflector::store();
    let mut events = pin!(reflector(writer, informer::watcher(api, Config::default())));
    assert_eq!(next(&mut events, 4).await, "init (a@3) (c@5) done");
    let Some(Err(error)) = events.next().await else { panic!("an error") };
    assert_eq!(cause::<DecodeError>(&error).key, "a/b");
    let text = format!("{error} {error:?}");
    assert!(text.contains("spec.containers") && !text.contains("hunter2"), "{text}");
    assert_eq!(next(&mut events, 3).await, "d@11 failed -c@12");
    let mut names: Vec<String> = reader.state().iter().map(|pod| pod.name_any()).collect();
    names.sort();
    assert_eq!(names, ["a", "d"], "the last state that was a pod stays");
    assert_eq!(log.uris().len(), 2, "nothing was asked again");
}

/// Goal: many objects that do not decode do not stop a program that backs off after each error, as kube's controllers
/// always do. Method: a thousand such objects in the list, one of them changing every second.
#[tokio::test(start_paused = true)]
async fn a_thousand_objects_that_do_not_decode_do_not_stop_a_program_that_backs_off() {
    let broken = |text: String| text.replace("\"containers\":[]", "\"containers\":7");
    let (api, _log) = pods(move |number, uri| match uri {
        uri if is_watch(uri) && number == 2 => {
            let beat = move |at| [Step::Wait(Duration::from_secs(1)), Step::Send(broken(modified("a/0", at)))];
            let live = (2000..2060).flat_map(beat).chain([Step::Send(added("a/good", 3000)), Step::Hang]);
            ok(live)
        }
        uri if is_watch(uri) => ok([Step::Hang]),
        _ => {
            let items: Vec<String> = (0..1000).map(|at| broken(item(&format!("a/{at}"), at + 1))).collect();
            ok([Step::Send(list(&items, 1999, ""))])
        }
    });
    let items = read_for(2 * MINUTE, informer::watcher(api, Config::default()).default_backoff()).await;
    assert_eq!(items.iter().map(describe).collect::<Vec<_>>(), ["init", "done", "failed", "good@3000"]);
}

#[tokio::test(start_paused = true)]
async fn a_status_is_what_the_server_said_and_the_rest_is_ours() {
    let refusal = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods is forbidden","reason":"Forbidden","details":{"kind":"pods","retryAfterSeconds":1},"code":403}"#;
    let (api, _log) = pods(move |number, _| match number {
        1 => refuse(403, refusal),
        2 => refuse(502, "<html>bad gateway</html>"),
        3 => ok([Step::Send(list(&[item("a/a", 3)], 9, "")[..100].to_owned())]),
        4 => ok([Step::Send(status(429, "TooManyRequests", "later"))]),
        _ => ok([Step::Hang]),
    });
    let mut events = pin!(informer::watcher(api, Config::default()));
    let Some(Err(watcher::Error::WatchError(status))) = events.next().await else { panic!("a status") };
    assert_eq!((status.code, &*status.message, &*status.reason), (403, "pods is forbidden", "Forbidden"));
    assert!(status.is_forbidden() && status.is_failure());
    assert_eq!(status.details.as_ref().map(|details| details.retry_after_seconds), Some(1));
    let Some(Err(error)) = events.next().await else { panic!("an error") };
    assert_eq!(cause::<Error>(&error).code(), Some(502));
    assert_eq!(next(&mut events, 1).await, "init");
    let Some(Err(error)) = events.next().await else { panic!("an error") };
    let broke_off = cause::<Error>(&error);
    assert!(broke_off.is_retryable() && broke_off.request().is_some(), "{broke_off:?}");
    assert_eq!(next(&mut events, 2).await, "init status 429");
}

/// Goal: only metadata is requested, by the names lists and watches have for it, and only metadata is decoded if the
/// server sends whole objects. Method: check the headers, with a server that sends whole objects.
#[tokio::test(start_paused = true)]
async fn partial_metadata_is_asked_for_and_trimmed_where_servers_do_not_know_it() {
    let accepted: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&accepted);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        seen.lock().unwrap().push(request.headers()["accept"].to_str().unwrap().to_owned());
        let body = match request.uri().query() {
            Some(query) if query.contains("watch=true") => modified("a/a", 10),
            _ => list(&[item("a/a", 3)], 9, ""),
        };
        async { Ok::<_, Infallible>(http::Response::new(http_body_util::Full::new(bytes::Bytes::from(body)))) }
    });
    let api: Api<PartialObjectMeta<Pod>> = Api::all(kube::Client::new(service, "default"));
    let mut events = pin!(informer::watcher(api, Config::default()));
    assert_eq!(next(&mut events, 4).await, "init (a@3) done a@10");
    let only = |kind| format!("application/json;as={kind};g=meta.k8s.io;v=v1, application/json");
    assert_eq!(accepted.lock().unwrap()[..2], [only("PartialObjectMetadataList"), only("PartialObjectMetadata")]);
}

#[tokio::test(start_paused = true)]
async fn dynamic_objects_have_their_types() {
    let (client, _log) = client_in_memory(|number, _| match number {
        1 => ok([Step::Send(list(&[item("a/a", 3)], 9, ""))]),
        _ => ok([Step::Hang]),
    });
    let api: Api<DynamicObject> = Api::all_with(client, &ApiResource::erase::<Pod>(&()));
    let mut events = pin!(informer::watcher(api, Config::default()));
    assert_eq!(next(&mut events, 1).await, "init");
    let Some(Ok(Event::InitApply(pod))) = events.next().await else { panic!("an object") };
    let types = pod.types.unwrap();
    assert_eq!((&*types.api_version, &*types.kind), ("v1", "Pod"));
    assert_eq!(pod.data["spec"]["nodeName"], "node-1");
}

#[tokio::test(start_paused = true)]
async fn a_selector_that_does_not_parse_is_told_and_ends_the_stream() {
    let (api, log) = pods(|_, _| ok([Step::Hang]));
    let mut events = pin!(informer::watcher(api, Config::default().labels("app in")));
    let Some(Err(error)) = events.next().await else { panic!("an error") };
    assert!(matches!(cause::<ConfigError>(&error), ConfigError::Labels(_)));
    assert!(events.next().await.is_none());
    assert!(log.uris().is_empty());
}

/// Programs create streams before they start a runtime, as kube allows.
#[test]
fn a_stream_is_made_without_a_runtime_and_sends_nothing_before_it_is_polled() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (api, log) = {
        let _inside = runtime.enter();
        pods(|_, _| ok([Step::Send(list(&[], 9, ""))]))
    };
    let mut events = Box::pin(informer::watcher(api, Config::default()));
    assert!(log.uris().is_empty());
    assert_eq!(runtime.block_on(next(&mut events, 2)), "init done");
}

/// Goal: a reader that processes an event slowly, or backs off, does not lose its connection. Method: changes that wait
/// unpolled for longer than the idle timeout.
#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_its_time_is_not_taken_for_a_silent_server() {
    let (api, log) = pods(|number, _| match number {
        1 => ok([Step::Send(list(&[item("a/a", 3)], 9, ""))]),
        2 => ok([Step::Send(modified("a/a", 10)), Step::Send(modified("a/a", 11)), Step::Hang]),
        _ => ok([Step::Hang]),
    });
    let mut events = pin!(informer::watcher(api, Config::default()));
    assert_eq!(next(&mut events, 4).await, "init (a@3) done a@10");
    tokio::time::sleep(20 * MINUTE).await;
    assert_eq!(next(&mut events, 1).await, "a@11");
    assert_eq!(log.uris().len(), 2);
}

/// Goal: the watchers of a cluster share the verdict on streams. Method: two streams, one refusal.
#[tokio::test(start_paused = true)]
async fn watchers_of_one_cluster_share_the_verdict_on_streams() {
    let (client, log) = client_in_memory(|_, uri| match uri {
        uri if is_stream(uri) => refuse(422, status(422, "Invalid", "sendInitialEvents is forbidden")),
        uri if is_watch(uri) => ok([Step::Hang]),
        _ => ok([Step::Send(list(&[], 9, ""))]),
    });
    let cluster = Cluster::new(client.clone());
    let api: Api<Pod> = Api::all(client);
    for _ in 0..2 {
        let declared = cluster.watcher(&api, Config::default().streaming_lists());
        let mut events = pin!(declared.drop_path("metadata.managedFields").stream());
        while !matches!(events.next().await, Some(Ok(Event::InitDone))) {}
    }
    assert_eq!(log.count("sendInitialEvents"), 1, "{:?}", log.uris());
}
