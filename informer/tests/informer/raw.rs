//! The raw stream: its events, its recovery, and that it reads only while it is polled.

use std::time::Duration;

use futures::StreamExt;
use informer::{Error, InitialList, ListSemantic, raw};
use k8s_openapi::api::core::v1::Pod;
use kube::core::ApiResource;

use crate::fixture::{
    SOON, Step, added, bookmark, deleted, end_bookmark, in_memory, is_watch, item, list, modified, ok, over_socket,
    refuse, status,
};

fn pods() -> ApiResource {
    ApiResource::erase::<Pod>(&())
}

fn describe(event: &Result<raw::Event, Error>) -> String {
    match event {
        Ok(raw::Event::Init) => "init".into(),
        Ok(raw::Event::InitApply(pod)) => format!("({}@{})", pod.key(), pod.resource_version()),
        Ok(raw::Event::InitDone(version)) => format!("={version}"),
        Ok(raw::Event::InitAbandoned) => "abandoned".into(),
        Ok(raw::Event::Apply(pod)) => format!("{}@{}", pod.key(), pod.resource_version()),
        Ok(raw::Event::Delete(pod)) => format!("-{}@{}", pod.key(), pod.resource_version()),
        Ok(raw::Event::Bookmark(version)) => format!("at {version}"),
        Ok(other) => format!("{other:?}"),
        Err(error) => format!("error {:?}", error.code()),
    }
}

async fn next(events: &mut raw::Events, count: usize) -> String {
    let mut all = Vec::new();
    for _ in 0..count {
        let event = tokio::time::timeout(SOON, events.next()).await.expect("an event soon");
        all.push(event.as_ref().map_or_else(|| "end".into(), describe));
    }
    all.join(" ")
}

#[tokio::test(start_paused = true)]
async fn initial_state_then_changes_then_errors_and_on_from_the_last_version() {
    let (cluster, log) = in_memory(|number, uri| match number {
        1 => ok([Step::Send(added("a/a", 3) + &end_bookmark(9) + &modified("a/a", 10) + &deleted("a/a", 11))]),
        2 => refuse(500, status(500, "InternalError", "no")),
        _ => {
            assert!(is_watch(uri) && uri.contains("resourceVersion=11&"), "{uri}");
            ok([Step::Send(bookmark(20)), Step::Hang])
        }
    });
    let mut events = cluster.raw(&pods()).start().unwrap();
    assert!(log.uris().is_empty(), "nothing before it is polled");
    assert_eq!(next(&mut events, 7).await, "init (a/a@3) =9 a/a@10 -a/a@11 error Some(500) at 20");
    assert!(events.explain().starts_with("GET /api/v1/pods?watch=true&resourceVersion=11&"), "{}", events.explain());
}

#[tokio::test(start_paused = true)]
async fn bytes_are_whole_unless_paths_are_dropped() {
    let serve = || in_memory(|_, _| ok([Step::Send(list(&[item("a/a", 3)], 9, ""))]));
    for (drop, expected) in [(false, true), (true, false)] {
        let (cluster, _log) = serve();
        let mut declared = cluster.raw(&pods()).initial_list(InitialList::Unpaged);
        if drop {
            declared = declared.drop_path("metadata.managedFields");
        }
        let mut events = declared.start().unwrap();
        events.next().await;
        let Some(Ok(raw::Event::InitApply(pod))) = events.next().await else { panic!("an object") };
        let text = String::from_utf8(pod.json().to_vec()).unwrap();
        assert_eq!(text.contains("managedFields"), expected);
        assert!(text.starts_with(r#"{"kind":"Pod","apiVersion":"v1","#), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_initial_state_that_breaks_off_begins_anew() {
    let (cluster, _log) = in_memory(|number, _| match number {
        1 => ok([Step::Send(list(&[item("a/a", 3), item("a/b", 4)], 9, "")[..400].to_owned())]),
        _ => ok([Step::Send(list(&[item("a/c", 5)], 12, ""))]),
    });
    let mut events = cluster.raw(&pods()).initial_list(InitialList::Unpaged).start().unwrap();
    assert_eq!(next(&mut events, 7).await, "init (a/a@3) error None abandoned init (a/c@5) =12");
}

/// Goal: backpressure by pulling. Method: a server with endless objects over a socket; a reader that takes one.
#[tokio::test]
async fn a_stream_that_is_not_polled_reads_nothing() {
    let (cluster, _log) = over_socket(|_, _| {
        let endless = (1..200_000).map(|version| Step::Send(added(&format!("a/{version}"), version).repeat(8)));
        ok(endless)
    })
    .await;
    let mut events = cluster.raw(&pods()).start().unwrap();
    assert_eq!(next(&mut events, 2).await, "init (a/1@1)");
    let before = events.bytes_received();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(events.bytes_received(), before);
    assert!(before < 1 << 20, "{before} bytes for the first object");
}

/// Covers the request to resume a stream of changes after a restart from a saved version.
#[tokio::test(start_paused = true)]
async fn a_stream_from_a_saved_version_lists_nothing() {
    let (cluster, log) = in_memory(|number, uri| {
        assert!(is_watch(uri), "{uri}");
        match number {
            1 => ok([Step::Send(modified("a/a", 41) + &bookmark(50))]),
            _ => ok([Step::Send(deleted("a/a", 51)), Step::Hang]),
        }
    });
    let mut events = cluster.raw(&pods()).resume_from(40.into()).start().unwrap();
    assert_eq!(next(&mut events, 4).await, "at 40 a/a@41 at 50 -a/a@51");
    assert!(log.uris()[0].contains("resourceVersion=40&"), "{:?}", log.uris());
}

#[tokio::test(start_paused = true)]
async fn a_saved_version_that_is_too_old_is_followed_by_initial_state() {
    let gone = status(410, "Expired", "too old resource version");
    let (cluster, log) = in_memory(move |_, uri| match uri {
        uri if is_watch(uri) => ok([Step::Send(format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", gone.trim()))]),
        _ => ok([Step::Send(added("a/a", 43) + &end_bookmark(49)), Step::Hang]),
    });
    let mut events = cluster.raw(&pods()).resume_from(40.into()).start().unwrap();
    assert_eq!(next(&mut events, 5).await, "at 40 error Some(410) init (a/a@43) =49");
    assert!(log.uris()[1].contains("resourceVersion=40&"), "not older than it: {:?}", log.uris());
}

#[tokio::test(start_paused = true)]
async fn an_exact_version_that_is_gone_ends_the_stream() {
    let (cluster, _log) = in_memory(|_, _| refuse(410, status(410, "Expired", "gone")));
    let declared = cluster.raw(&pods()).list_semantic(ListSemantic::Exact(7.into()));
    let mut events = declared.start().unwrap();
    assert_eq!(next(&mut events, 3).await, "error Some(410) end end");
}
