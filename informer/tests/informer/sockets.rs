//! Over sockets: streams held open, cut into odd pieces, closed early, broken or too large.

use std::{sync::Mutex, time::Duration};

use informer::InitialList;
use k8s_openapi::api::core::v1::Pod;

use crate::fixture::{
    Live, SOON, Step, added, bookmark, contents, deleted, end_bookmark, hurry, is_stream, is_watch, item, list,
    modified, next, ok, over_socket, pod, refuse, soon, status, until,
};

fn initial(count: u64) -> String {
    (1..=count).map(|number| added(&format!("a/{number}"), number)).collect::<String>() + &end_bookmark(count + 10)
}

#[tokio::test]
async fn a_stream_syncs_and_goes_on() {
    let live = Live::default();
    let serving = live.clone();
    let (cluster, log) = over_socket(move |_, _| ok([Step::Send(initial(3))]).live(&serving)).await;
    let pods = cluster.informer::<Pod>().start().unwrap();
    pods.ready(SOON).await.unwrap();
    assert_eq!(contents(&pods), "a/1@1 a/2@2 a/3@3");
    let mut changes = pods.subscribe();
    next(&mut changes, 4).await;
    live.send(modified("a/1", 20) + &deleted("a/2", 21));
    assert_eq!(next(&mut changes, 1).await, ["a/1@1>20"]);
    assert_eq!(next(&mut changes, 1).await, ["-a/2@2"]);
    assert_eq!(log.uris().len(), 1, "one request for everything");
    let stats = pods.stats();
    assert!(stats.first_object_after.unwrap() <= SOON && stats.synced_after.is_some() && stats.bytes_received > 0);
}

/// Goal: chunk boundaries do not matter. Method: one response byte by byte, and in pieces of seven.
#[tokio::test]
async fn pieces_of_any_size_are_the_same_answer() {
    for (size, strategy) in [(1, InitialList::Stream), (7, InitialList::Stream), (7, InitialList::Unpaged)] {
        let (cluster, _log) = over_socket(move |_, uri| {
            let whole = if is_stream(uri) {
                initial(4) + &modified("a/1", 30)
            } else if is_watch(uri) {
                modified("a/1", 30)
            } else {
                list(&[item("a/1", 1), item("a/2", 2), item("a/3", 3), item("a/4", 4)], 14, "")
            };
            let pieces =
                whole.as_bytes().chunks(size).map(|piece| Step::Send(String::from_utf8(piece.to_vec()).unwrap()));
            let tail = if uri.contains("watch=true") { Some(Step::Hang) } else { None };
            ok(pieces.chain(tail))
        })
        .await;
        let pods = cluster.informer::<Pod>().initial_list(strategy).start().unwrap();
        until("the change", || contents(&pods) == "a/1@30 a/2@2 a/3@3 a/4@4").await;
    }
}

#[tokio::test]
async fn a_watch_that_ends_is_resumed_from_the_last_position_and_nothing_is_read_again() {
    let (cluster, log) = over_socket(|number, uri| match number {
        1 => ok([Step::Send(initial(2)), Step::Send(modified("a/1", 20)), Step::Send(bookmark(33))]),
        2 => {
            assert_eq!(
                uri, "/api/v1/namespaces/a/pods/1?resourceVersion=33",
                "a server that ends so early has to prove itself"
            );
            ok([Step::Send(pod("a/1", 20))])
        }
        3 => ok([Step::Send(deleted("a/2", 40)), Step::Abort]),
        _ => ok([Step::Send(added("a/3", 41)), Step::Hang]),
    })
    .await;
    let pods = cluster.informer::<Pod>().start().unwrap();
    // A pause of ten seconds precedes the proof.
    hurry("the last answer", 60 * SOON, || contents(&pods) == "a/1@20 a/3@41").await;
    let uris = log.uris();
    assert!(is_stream(&uris[0]) && uris[2].contains("resourceVersion=33&") && uris[3].contains("resourceVersion=40&"));
    assert_eq!(log.count("sendInitialEvents"), 1);
}

#[tokio::test]
async fn a_stream_that_stands_still_is_given_up_for_pages() {
    let (cluster, log) = over_socket(|_, uri| match uri {
        uri if is_stream(uri) => ok([Step::Send(added("a/1", 1)), Step::Hang]),
        uri if is_watch(uri) => ok([Step::Hang]),
        _ => ok([Step::Send(list(&[item("a/1", 1), item("a/2", 2)], 9, ""))]),
    })
    .await;
    let stall = Duration::from_millis(100);
    let pods = cluster.informer::<Pod>().config(|config| config.initial_events_stall = stall).start().unwrap();
    pods.ready(SOON).await.unwrap();
    assert_eq!(contents(&pods), "a/1@1 a/2@2");
    assert!(is_stream(&log.uris()[0]) && log.uris()[1].contains("limit=500"), "{:?}", log.uris());
}

/// Goal: an object above the limit costs a bounded buffer and does not block the others. Method: a small limit, an
/// object of 4 MiB.
#[tokio::test]
async fn an_object_above_the_limit_is_skipped() {
    let (cluster, _log) = over_socket(|_, _| {
        let filler = "x".repeat(64 << 10);
        let begin = r#"{"type":"ADDED","object":{"metadata":{"name":"huge"},"data":""#.to_owned();
        let end = "\"}}\n".to_owned() + &added("a/1", 1) + &end_bookmark(9);
        let object = std::iter::once(begin).chain(std::iter::repeat_n(filler, 64)).chain([end]);
        ok(object.map(Step::Send).chain([Step::Hang]))
    })
    .await;
    let declared = cluster.informer::<Pod>().initial_list(InitialList::Stream).object_bytes_max(256 << 10);
    let pods = declared.start().unwrap();
    pods.ready(SOON).await.unwrap();
    assert_eq!((contents(&pods).as_str(), pods.stats().skipped), ("a/1@1 huge@!", 1));
}

/// Goal: a response that breaks in the middle does not change what readers see. Method: a relist that breaks, then one
/// that works.
#[tokio::test]
async fn a_broken_relist_leaves_the_old_state_until_one_is_complete() {
    let gate = std::sync::Arc::new(Mutex::new(false));
    let open = std::sync::Arc::clone(&gate);
    let (cluster, log) = over_socket(move |number, uri| match number {
        1 => ok([Step::Send(list(&[item("a/1", 1), item("a/2", 2)], 9, ""))]),
        _ if is_watch(uri) && number == 2 => refuse(410, status(410, "Expired", "too old")),
        _ if is_watch(uri) => ok([Step::Hang]),
        _ if *open.lock().unwrap() => ok([Step::Send(list(&[item("a/3", 3)], 12, ""))]),
        _ => ok([Step::Send(list(&[item("a/3", 3), item("a/4", 4)], 12, "")[..250].to_owned()), Step::Abort]),
    })
    .await;
    let pods = cluster.informer::<Pod>().initial_list(InitialList::Unpaged).delays(soon()).start().unwrap();
    until("a broken relist", || log.uris().len() >= 4).await;
    assert_eq!(contents(&pods), "a/1@1 a/2@2");
    *gate.lock().unwrap() = true;
    until("a whole one", || contents(&pods) == "a/3@3").await;
    assert!(log.count("resourceVersion=9&resourceVersionMatch=NotOlderThan") >= 2, "never older than seen");
}
