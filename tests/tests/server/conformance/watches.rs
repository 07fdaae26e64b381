//! WATCH scenarios beyond the rows of the table: bookmarks, the transition from initial state to events, deprecated
//! paths.

use std::time::{Duration, Instant};

use futures::future::join_all;
use informer_core::wire::watch_event::EventKind;
use serde_json::json;
use tests::{
    http::{Client, Event, LINE_WAIT, MERGE_PATCH, briefs, strictly_increase, watch_list, with_query},
    objects::{configmap, node, pod, replica_set},
};

use super::server;

const CONFIGMAPS: &str = "/api/v1/configmaps";

/// Flags of a server with frequent bookmarks.
const OFTEN: &[&str] = &["--bookmark-interval", "200ms"];

/// Path of a watch of `default` from a position, with bookmarks.
fn here_from(at: u64) -> String {
    format!("/api/v1/namespaces/default/configmaps?watch=1&allowWatchBookmarks=true&resourceVersion={at}")
}

#[tokio::test]
async fn bookmarks_move_with_the_type_and_never_back() {
    let server = server(OFTEN).await;
    let client = server.client();
    let begin = client.create(&configmap("a")).await;
    let mut watch = client.watch(&here_from(begin)).await;
    let quiet = here_from(begin).replace("&allowWatchBookmarks=true", "&timeoutSeconds=2");
    let mut silent = client.watch(&quiet).await;
    let mut last = begin;
    for round in 0..4 {
        // Events outside the watch's scope advance its position too.
        let written = client.create(&configmap(&format!("c{round}")).namespace("other")).await;
        let deadline = Instant::now() + LINE_WAIT;
        loop {
            let event = watch.event().await;
            assert_eq!(event.brief(), "BOOKMARK");
            assert!(event.resource_version() >= last, "{event:?} after {last}");
            last = event.resource_version();
            let metadata = json!({"resourceVersion": last.to_string()});
            let expected = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata});
            assert_eq!(event.object, expected, "nothing but a position");
            if last >= written {
                break;
            }
            assert!(Instant::now() < deadline, "still at {last}, written at {written}");
        }
    }
    assert!(silent.rest(LINE_WAIT).await.is_empty(), "only for those who asked");
}

#[tokio::test]
async fn a_bookmark_can_be_resumed_from() {
    let server = server(OFTEN).await;
    let client = server.client();
    let mut at = client.create(&configmap("a")).await;
    for round in 0..5 {
        let mut watch = client.watch(&here_from(at)).await;
        client.create(&configmap(&format!("c{round}")).namespace("other")).await;
        let bookmark = watch.event().await;
        assert_eq!(bookmark.brief(), "BOOKMARK");
        at = client.create(&configmap(&format!("c{round}"))).await;
        let mut watch = client.watch(&here_from(bookmark.resource_version())).await;
        let next = watch.event().await;
        assert_eq!((next.brief(), next.resource_version()), (format!("ADDED default/c{round}"), at));
    }
}

/// Goal: a bookmark never passes an event that was not sent. Method: writes and bookmarks at full speed.
#[tokio::test]
async fn a_bookmark_is_never_ahead_of_an_event() {
    let server = server(&["--bookmark-interval", "1ms"]).await;
    let client = server.client();
    let begin = client.create(&configmap("a").data("0")).await;
    let path = format!("{CONFIGMAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={begin}");
    let mut watch = client.watch(&path).await;
    let (mut last, mut reached) = (begin, begin);
    let writer = tokio::spawn(async move {
        let mut positions = Vec::new();
        for round in 1..=200 {
            positions.push(client.update(&configmap("a").data(&round.to_string())).await);
        }
        positions
    });
    let mut positions = Vec::new();
    while positions.len() < 200 || reached < last {
        let event = watch.event().await;
        if event.kind == EventKind::Bookmark {
            reached = reached.max(event.resource_version());
        } else {
            assert!(event.resource_version() > reached, "{event:?} after a bookmark at {reached}");
            positions.push(event.resource_version());
        }
        assert!(event.resource_version() >= last, "{event:?} after {last}");
        last = event.resource_version();
    }
    // The last bookmark is at the last event.
    assert_eq!(positions, writer.await.unwrap(), "each write once");
}

#[tokio::test]
async fn an_idle_watch_shows_that_it_lives() {
    let server = server(OFTEN).await;
    let client = server.client();
    let begin = client.create(&configmap("a")).await;
    let path = format!("{CONFIGMAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={begin}");
    let events = client.watch(&path).await.events(3).await;
    assert!(events.iter().all(|event| event.brief() == "BOOKMARK" && event.resource_version() == begin));
}

/// Goal: live events follow the initial state without gap or repetition. Method: streams opened during writes.
#[tokio::test]
async fn events_begin_where_the_state_ends() {
    const WRITES: usize = 150;
    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("c0").data("-")).await;
    let writing = async {
        let mut positions = Vec::new();
        for round in 0..WRITES {
            let object = configmap(&format!("c{}", round % 10)).data(&round.to_string());
            let position =
                if (1..10).contains(&round) { client.create(&object).await } else { client.update(&object).await };
            positions.push(position);
        }
        positions.push(client.create(&configmap("end")).await);
        positions
    };
    let reading = join_all((0..12).map(|index| async move {
        tokio::time::sleep(Duration::from_millis(5 * index)).await;
        let mut watch = client.watch(&watch_list(CONFIGMAPS)).await;
        let (mut state, mut live) = (Vec::new(), Vec::new());
        let end = loop {
            let event = watch.event().await;
            if event.ends_initial_state() {
                break event.resource_version();
            }
            assert_eq!(event.kind, EventKind::Added);
            state.push(event);
        };
        let is_last = |event: &Event| event.brief().ends_with("default/end");
        while !state.iter().chain(&live).any(is_last) {
            live.push(watch.event().await);
        }
        (state, end, live)
    }));
    let (positions, streams) = tokio::join!(writing, reading);
    for (state, end, live) in streams {
        assert!(state.iter().all(|event| event.resource_version() <= end), "{state:?} up to {end}");
        // A bookmark repeats a position.
        let seen = live.iter().filter(|event| event.kind != EventKind::Bookmark);
        let seen: Vec<u64> = seen.map(Event::resource_version).collect();
        let after: Vec<u64> = positions.iter().copied().filter(|&at| at > end).collect();
        assert_eq!(seen, after, "after {end}");
    }
}

/// Goal: a watch from the last event's position never goes back. Method: consecutive short watches during concurrent
/// updates.
#[tokio::test]
async fn watches_in_a_row_never_go_back_in_time() {
    let server = server(&[]).await;
    let client = server.client();
    let begin = client.get(CONFIGMAPS).await.resource_version();
    let writers = join_all((0..3).map(|writer| async move {
        let name = format!("w{writer}");
        client.create(&configmap(&name)).await;
        for round in 0..60 {
            client.update(&configmap(&name).data(&round.to_string())).await;
        }
    }));
    let reader = async {
        let (mut at, mut seen) = (begin, Vec::new());
        while seen.len() < 3 * 61 {
            let mut watch = client.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={at}")).await;
            for _ in 0..fastrand::usize(1..20) {
                if seen.len() == 3 * 61 {
                    break;
                }
                at = watch.event().await.resource_version();
                seen.push(at);
            }
        }
        seen
    };
    let (_, seen) = tokio::join!(writers, reader);
    assert!(strictly_increase(&seen));
    assert_eq!(seen.last().copied(), Some(client.get(CONFIGMAPS).await.resource_version()));
}

#[tokio::test]
async fn one_object_is_watched_as_kubectl_does() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("a").data("1")).await;
    client.create(&configmap("b")).await;
    let path = "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Da&resourceVersion=0&watch=true";
    let mut watch = client.watch(path).await;
    assert_eq!(watch.event().await.brief(), "ADDED default/a");
    client.update(&configmap("b").data("2")).await;
    client.update(&configmap("a").data("2")).await;
    client.delete(&configmap("a").path()).await.with_code(200);
    client.create(&configmap("a").data("3")).await;
    let expected = ["MODIFIED default/a", "DELETED default/a", "ADDED default/a"];
    assert_eq!(briefs(&watch.events(3).await), expected);
}

/// Goal: the watch paths of old clients work. Method: each form of such a path.
#[tokio::test]
async fn paths_below_watch_are_watches() {
    let server = server(&[]).await;
    let client = server.client();
    // A stock server keeps objects of its own.
    for object in [configmap("a"), configmap("b").namespace("other"), node("n1"), replica_set("rs")] {
        client.create(&object.label("mine", "yes")).await;
    }
    let table = [
        ("/api/v1/watch/configmaps", &["ADDED default/a", "ADDED other/b"][..]),
        ("/api/v1/watch/namespaces/other/configmaps", &["ADDED other/b"]),
        ("/api/v1/watch/namespaces/other/configmaps/b", &["ADDED other/b"]),
        ("/api/v1/watch/namespaces/other/configmaps/c", &[]),
        ("/api/v1/watch/configmaps?fieldSelector=metadata.name%3Da", &["ADDED default/a"]),
        ("/api/v1/watch/nodes", &["ADDED n1"]),
        ("/api/v1/watch/nodes/n1", &["ADDED n1"]),
        ("/apis/apps/v1/watch/replicasets", &["ADDED default/rs"]),
        ("/apis/apps/v1/watch/namespaces/default/replicasets", &["ADDED default/rs"]),
    ];
    join_all(table.map(|(path, expected)| async move {
        let path = with_query(path, &[("timeoutSeconds", "1"), ("labelSelector", "mine")]);
        let mut watch = client.watch(&path).await;
        assert_eq!(watch.code(), 200, "{path}");
        assert_eq!(briefs(&watch.rest(LINE_WAIT).await), expected, "{path}");
    }))
    .await;
    let at = client.get(CONFIGMAPS).await.resource_version();
    let mut watch = client.watch(&format!("/api/v1/watch/configmaps?resourceVersion={at}")).await;
    client.update(&configmap("a").data("new")).await;
    assert_eq!(watch.event().await.brief(), "MODIFIED default/a");
    let mut old = client.watch("/api/v1/watch/configmaps?resourceVersion=1").await;
    assert_eq!(briefs(&old.rest(LINE_WAIT).await), ["ERROR 410"]);
    client.get("/api/v1/watch/foos").await.with_code(404);
    client.delete("/api/v1/watch/configmaps").await.with_code(405);
}

#[tokio::test]
async fn writes_of_status_are_events_like_others() {
    let server = server(&[]).await;
    let client = server.client();
    let begin = client.create(&pod("p").node("n1")).await;
    let path = format!("/api/v1/pods?watch=1&resourceVersion={begin}&fieldSelector=status.phase%3DRunning");
    let (mut all, mut running) =
        (client.watch(&format!("/api/v1/pods?watch=1&resourceVersion={begin}")).await, client.watch(&path).await);
    for phase in ["Running", "Failed"] {
        let patch = json!({"status": {"phase": phase}});
        client.patch(&format!("{}/status", pod("p").path()), MERGE_PATCH, &patch).await.with_code(200);
    }
    assert_eq!(briefs(&all.events(2).await), ["MODIFIED default/p", "MODIFIED default/p"]);
    let events = running.events(2).await;
    assert_eq!(briefs(&events), ["ADDED default/p", "DELETED default/p"]);
    assert_eq!(events[1].object["status"]["phase"], "Running", "a deletion carries what last matched");
}

/// Goal: an invalid watch is refused before its stream begins. Method: unknown types and objects, and invalid options.
#[tokio::test]
async fn a_watch_of_nothing_is_refused_before_it_begins() {
    let server = server(&[]).await;
    let client: Client = server.client();
    client.create(&configmap("a")).await;
    for (path, code) in [
        ("/api/v1/foos?watch=1", 404),
        ("/apis/none/v1/foos?watch=1", 404),
        ("/api/v1/namespaces/default/configmaps?watch=1&labelSelector=%21%21", 400),
        ("/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1s", 400),
        ("/api/v1/namespaces/default/configmaps?watch=1&resourceVersionMatch=Exact&resourceVersion=5", 422),
        ("/api/v1/namespaces/default/configmaps/nope?watch=1", 404),
    ] {
        client.get(path).await.with_code(code);
    }
    // A GET of one object ignores `watch`.
    assert_eq!(
        client.get(&format!("{}?watch=1", configmap("a").path())).await.with_code(200).json()["kind"],
        "ConfigMap"
    );
}
