//! Resumed initial streams: against a server that supports them, one that forgets its marks, and one without support.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use informer::{Cluster, Event, InitialList, raw, testing::FakeApiServer};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, core::ApiResource, runtime::watcher};
use serde_json::json;

use crate::fixture::{SOON, Step, added, end_bookmark, in_memory, is_stream, ok, until};

const OBJECTS: usize = 100;
/// Longer than the backoff after all breaks of a test.
const LONG: Duration = Duration::from_secs(30 * 60);

fn server() -> FakeApiServer {
    let server = FakeApiServer::new();
    for number in 0..OBJECTS {
        server.put(configmap(number));
    }
    server
}

fn configmap(number: usize) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("map-{number:03}"), "namespace": "a"}})
}

/// Goal: a state received in pieces is complete and consistent, and costs little more than one read. Method: each
/// response breaks after 35 objects, with a mark every ten; check what readers see at every change.
#[tokio::test(start_paused = true)]
async fn a_state_that_comes_in_pieces_is_complete_and_was_never_seen_in_part() {
    let server = server().mark_initial_events(10).break_streams_after(35);
    let maps = Cluster::new(server.client()).informer::<ConfigMap>().start().unwrap();
    let mut changes = maps.subscribe();
    maps.ready(LONG).await.unwrap();
    let stats = maps.stats().reflector;
    assert_eq!((stats.initial_resumes, stats.syncs), (3, 1));
    assert_eq!(stats.initial_objects, OBJECTS as u64 + 3 * 5, "behind each break, what came after the last mark");
    assert_eq!(maps.store().snapshot().len(), OBJECTS);
    server.put(configmap(OBJECTS));
    let mut seen = 0;
    while seen <= OBJECTS {
        match tokio::time::timeout(SOON, changes.next()).await.unwrap().unwrap() {
            Event::Added(_) => seen += 1,
            // The first complete state had all objects.
            Event::Synced(_) => assert!(seen >= OBJECTS, "{seen}"),
            Event::Updated { .. } | Event::Deleted { .. } | Event::Reset | _ => panic!("only objects that are new"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn changes_meanwhile_come_behind_the_state_that_was_begun() {
    let server = server().mark_initial_events(10).break_streams_after(60);
    let at = server.resource_version();
    let mut events = Cluster::new(server.client()).raw(&ApiResource::erase::<ConfigMap>(&())).start().unwrap();
    let mut lines = Vec::new();
    while lines.last().is_none_or(|last: &String| !last.starts_with('-')) {
        let event = tokio::time::timeout(LONG, events.next()).await.unwrap().unwrap();
        if event.is_err() {
            // The connection broke: change an object already sent and delete one not sent yet, before the stream
            // resumes.
            server.put(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map-000", "namespace": "a"}, "data": {"k": "v"}}));
            server.delete(configmap(99));
        }
        lines.push(match event {
            Ok(raw::Event::Init) => "init".to_owned(),
            Ok(raw::Event::InitApply(object)) => format!("({}@{})", object.key(), object.resource_version()),
            Ok(raw::Event::InitDone(version)) => format!("={version}"),
            Ok(raw::Event::Apply(object)) => object.key().to_owned(),
            Ok(raw::Event::Delete(object)) => format!("-{}", object.key()),
            Ok(raw::Event::InitAbandoned | raw::Event::Bookmark(_) | _) => "unexpected".to_owned(),
            Err(_) => "broke".to_owned(),
        });
    }
    assert_eq!(lines[61], "broke");
    assert_eq!(lines.iter().filter(|line| *line == "init").count(), 1, "the same initial state goes on: {lines:?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("(a/map-000@")).count(), 1);
    assert_eq!(lines[lines.len() - 3..], [format!("={at}"), "a/map-000".to_owned(), "-a/map-099".to_owned()]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_forgot_its_marks_begins_anew_and_the_stage_goes() {
    let server = server().mark_initial_events(10).break_streams_after(60);
    let mut events = Cluster::new(server.client()).raw(&ApiResource::erase::<ConfigMap>(&())).start().unwrap();
    let mut steps = String::new();
    let mut objects = 0;
    while !steps.ends_with("done ") {
        let event = tokio::time::timeout(LONG, events.next()).await.unwrap().unwrap();
        match event {
            Ok(raw::Event::Init) => steps.push_str("init "),
            Ok(raw::Event::InitApply(_)) => objects += 1,
            Ok(raw::Event::InitAbandoned) => steps.push_str("abandoned "),
            Ok(raw::Event::InitDone(_)) => steps.push_str("done "),
            Err(_) => {
                steps.push_str("broke ");
                server.delete(configmap(0)).forget_marks().break_streams_after(usize::MAX);
            }
            Ok(event) => panic!("{event:?}"),
        }
    }
    assert_eq!((steps.as_str(), objects), ("init broke abandoned init done ", 60 + OBJECTS - 1));
}

#[tokio::test(start_paused = true)]
async fn kubes_watcher_goes_on_within_one_init() {
    let server = server().mark_initial_events(10).break_streams_after(60);
    let api: Api<ConfigMap> = Api::all(server.client());
    let events =
        informer::watcher(api, watcher::Config::default().streaming_lists()).filter_map(|event| async { event.ok() });
    let mut events = Box::pin(events.map(Ok::<_, ()>));
    let (mut inits, mut names) = (0, std::collections::BTreeSet::new());
    loop {
        match tokio::time::timeout(LONG, events.try_next()).await.unwrap().unwrap().unwrap() {
            watcher::Event::Init => inits += 1,
            watcher::Event::InitApply(map) => drop(names.insert(map.metadata.name)),
            watcher::Event::InitDone => break,
            event @ (watcher::Event::Apply(_) | watcher::Event::Delete(_)) => panic!("{event:?}"),
        }
    }
    assert_eq!((inits, names.len()), (1, OBJECTS));
}

/// Goal: resuming is what helps, and it can be turned off. Method: a server that breaks every response, once with
/// resuming turned off at the client and once without marks at the server.
#[tokio::test(start_paused = true)]
async fn without_marks_a_server_that_breaks_every_stream_is_left_for_pages() {
    for (server, resumes) in [(server().mark_initial_events(10), false), (server(), true)] {
        let server = server.break_streams_after(35);
        let maps = Cluster::new(server.client()).informer::<ConfigMap>().resume_initial(resumes).start().unwrap();
        maps.ready(LONG).await.unwrap();
        let stats = maps.stats().reflector;
        assert_eq!((stats.initial_resumes, stats.fallbacks(informer::FallBack::Failures)), (0, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn streams_alone_get_through_a_server_that_breaks_every_one() {
    let server = server().mark_initial_events(1).break_streams_after(3);
    let declared = Cluster::new(server.client()).informer::<ConfigMap>().initial_list(InitialList::Stream);
    let maps = declared.start().unwrap();
    maps.ready(2 * LONG).await.unwrap();
    assert_eq!(maps.stats().reflector.initial_objects, OBJECTS as u64, "each object was marked, so none came twice");
}

/// Goal: half a state is not taken for a whole one behind a proxy that drops headers. Method: a broken response with
/// marks; then the rest of the state without the header that announces it.
#[tokio::test(start_paused = true)]
async fn the_rest_of_a_state_without_its_header_is_not_taken() {
    let mark = |token: &str| {
        format!(
            "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{{\"annotations\":{{\"resume-initial-events\":\"{token}\"}}}}}}}}\n"
        )
    };
    let (cluster, log) = in_memory(move |number, uri| {
        assert!(is_stream(uri), "{uri}");
        match number {
            1 => {
                ok([Step::Send(added("a/a", 3) + &mark("t1")), Step::Abort]).header("resume-initial-events", "accepted")
            }
            2 => ok([Step::Send(mark("t1") + &end_bookmark(9)), Step::Hang]),
            _ => ok([Step::Send(added("a/a", 3) + &end_bookmark(9)), Step::Hang]),
        }
    });
    let pods = cluster.informer::<k8s_openapi::api::core::v1::Pod>().start().unwrap();
    until("the second answer was given up", || log.uris().len() == 3).await;
    pods.ready(SOON).await.unwrap();
    assert_eq!(crate::fixture::contents(&pods), "a/a@3");
    assert_eq!(pods.stats().reflector.syncs, 1);
}
