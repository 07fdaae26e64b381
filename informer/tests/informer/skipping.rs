//! Objects that are too large, nested too deep or not JSON objects: known by name, never taken for deleted, and no
//! obstacle to others.

use futures::StreamExt;
use informer::{Cluster, Informer, InitialList, Representation, SHARED_GRACE};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    core::ApiResource,
    runtime::watcher::{self, Event},
};

use crate::fixture::{
    Live, SOON, Step, added, bookmark, client_in_memory, contents, deleted, end_bookmark, event, in_memory, is_stream,
    is_watch, item, list, modified, next, ok, pod, until,
};

/// The pod, enlarged beyond the limit of these tests.
fn large(object: &str) -> String {
    object.replace("\"node-1\"", &format!("\"{}\"", "n".repeat(LIMIT)))
}

/// The pod, nested as deep as Go's decoder allows.
fn deep(object: &str) -> String {
    object.replace("\"node-1\"", &("[".repeat(9_990) + &"]".repeat(9_990)))
}

/// Large enough for the deep one.
const LIMIT: usize = 32 << 10;

fn informer_of(cluster: &Cluster, initial: InitialList) -> Informer<Pod> {
    cluster.informer::<Pod>().initial_list(initial).object_bytes_max(LIMIT).start().unwrap()
}

/// Goal: one tenant's object does not stop every informer of its type. Method: initial state with one object of each
/// kind, as a stream and as a list.
#[tokio::test(start_paused = true)]
async fn initial_state_with_objects_that_cannot_be_kept_is_ready_and_has_their_names() {
    for initial in [InitialList::Stream, InitialList::Paged, InitialList::Unpaged] {
        let (cluster, log) = in_memory(|_, uri| {
            let odd = [large(&pod("a/large", 4)), deep(&pod("a/deep", 5)), "null".into(), "[7]".into()];
            if is_stream(uri) {
                let odd: Vec<String> = odd.iter().map(|object| event("ADDED", object)).collect();
                return ok([
                    Step::Send(added("a/a", 3) + &odd.concat() + &added("a/z", 6) + &end_bookmark(9)),
                    Step::Hang,
                ]);
            }
            if is_watch(uri) {
                return ok([Step::Hang]);
            }
            let [large, deep, null, other] = odd;
            ok([Step::Send(list(&[item("a/a", 3), large, deep, null, other, item("a/z", 6)], 9, ""))])
        });
        let pods = informer_of(&cluster, initial);
        pods.ready(SOON).await.unwrap();
        assert_eq!(contents(&pods), "a/a@3 a/deep@5! a/large@4! a/z@6", "{initial:?}");
        let snapshot = pods.store().snapshot();
        let large = snapshot.get("a/large").unwrap();
        let error = large.decode().unwrap_err().to_string();
        assert!(error.contains("a/large") && error.contains("only its names are known"), "{error}");
        assert_eq!((snapshot.typed().count(), snapshot.get_by_uid("uid-large").unwrap().key()), (2, "a/large"));
        assert!(large.labels().is_empty() && large.field("spec.nodeName").is_none() && large.typed().is_none());
        assert_eq!((pods.stats().skipped, pods.resource_version()), (4, Some(9.into())));
        until("the watch", || initial == InitialList::Stream || log.uris().len() == 2).await;
        assert!(log.uris().len() <= 2, "nothing is asked again: {:?}", log.uris());
    }
}

/// Goal: readers never take a stale state for the current one. Method: a stored object becomes too large, small again,
/// too deep, and is deleted while it is large; an unknown one is created and deleted.
#[tokio::test(start_paused = true)]
async fn a_stored_object_whose_newest_version_is_skipped_exists_by_name_until_it_can_be_kept() {
    let live = Live::default();
    let joins = live.clone();
    let (cluster, log) = in_memory(move |number, _| match number {
        1 => ok([Step::Send(list(&[item("a/a", 3), item("a/b", 4)], 9, ""))]),
        _ => ok([]).live(&joins),
    });
    let pods = informer_of(&cluster, InitialList::Unpaged);
    let (mut latest, mut all) = (pods.subscribe(), pods.subscribe_all(100));
    let first = ["+a/a@3", "+a/b@4", "=9"];
    assert_eq!(next(&mut latest, 3).await, first);
    assert_eq!(next(&mut all, 3).await, first);
    let reached = async |version: u64| pods.wait_for(version, SOON).await.unwrap();
    live.send(event("MODIFIED", &large(&pod("a/a", 10))));
    reached(10).await;
    assert_eq!(contents(&pods), "a/a@10! a/b@4");
    assert_eq!(next(&mut latest, 1).await, ["a/a@3>10!"]);
    live.send(modified("a/a", 11));
    reached(11).await;
    assert_eq!(next(&mut latest, 1).await, ["a/a@10>11"]);
    live.send(event("MODIFIED", &deep(&pod("a/a", 12))));
    reached(12).await;
    live.send(event("ADDED", &large(&pod("a/c", 13))));
    live.send(event("DELETED", &large(&pod("a/c", 14))));
    live.send(event("DELETED", &large(&pod("a/b", 15))));
    reached(15).await;
    assert_eq!(contents(&pods), "a/a@12!");
    live.send(deleted("a/a", 16));
    reached(16).await;
    assert_eq!(contents(&pods), "");
    let expected = ["a/a@3>10!", "a/a@10>11", "a/a@11>12!", "+a/c@13!", "-a/c@13", "-a/b@4", "-a/a@12"];
    assert_eq!(next(&mut all, 7).await, expected);
    let stats = pods.stats();
    assert_eq!((stats.skipped, stats.unreadable, stats.reflector.unhealthy_ends), (5, 0, 0));
    assert_eq!(log.uris().len(), 2, "one list and one watch: {:?}", log.uris());
}

/// Goal: a skipped object is not sent again after every reconnect. Method: it is the last event of a watch.
#[tokio::test(start_paused = true)]
async fn a_watch_resumes_behind_a_skipped_object() {
    let (cluster, log) = in_memory(|number, _| match number {
        1 => ok([Step::Send(list(&[item("a/a", 3)], 9, ""))]),
        2 => ok([Step::Send(event("MODIFIED", &large(&pod("a/a", 10))))]),
        // The proof after the broken watch: the names of the skipped object are enough.
        3 => ok([Step::Send(pod("a/a", 10))]),
        _ => ok([Step::Send(bookmark(20)), Step::Hang]),
    });
    let pods = informer_of(&cluster, InitialList::Unpaged);
    pods.wait_for("20", SOON).await.unwrap();
    assert!(log.uris()[3].contains("resourceVersion=10&"), "{:?}", log.uris());
    assert_eq!(contents(&pods), "a/a@10!");
}

/// Goal: a collector of garbage never takes an object for deleted because it cannot be read here, after a restart from a
/// checkpoint, in a shared copy that is filtered, and in any representation. Method: owners that grow too large, and a
/// relist that still has them.
#[tokio::test(start_paused = true)]
async fn a_skipped_object_exists_for_every_reader() {
    for form in [Representation::Json, Representation::Typed, Representation::Packed] {
        let dir = tempfile::tempdir().unwrap();
        let live = Live::default();
        let joins = live.clone();
        let (cluster, _log) = in_memory(move |_, uri| match uri {
            uri if uri.contains("/pods/") => ok([Step::Send(pod("a/b", 30))]),
            uri if is_watch(uri) && !uri.contains("resourceVersion=30&") => ok([]).live(&joins),
            uri if is_watch(uri) => ok([Step::Hang]),
            _ => ok([Step::Send(list(&[item("a/a", 3), item("a/b", 4)], 9, ""))]),
        });
        let declared = |cluster: &Cluster| {
            let declared = cluster.informer::<Pod>().initial_list(InitialList::Unpaged).store(form);
            declared.object_bytes_max(LIMIT)
        };
        let wide = declared(&cluster).checkpoint(dir.path()).start_shared().unwrap();
        wide.ready(SOON).await.unwrap();
        let web = declared(&cluster).labels("app=a").start_shared().unwrap();
        web.ready(SOON).await.unwrap();
        let (mut wide_events, mut web_events) = (wide.subscribe_all(100), web.subscribe_all(100));
        assert_eq!(next(&mut wide_events, 3).await, ["+a/a@3", "+a/b@4", "=9"]);
        assert_eq!(next(&mut web_events, 2).await, ["+a/a@3", "=9"]);
        live.send(event("MODIFIED", &large(&pod("a/a", 10))));
        assert_eq!(next(&mut wide_events, 1).await, ["a/a@3>10!"], "{form:?}");
        assert_eq!(next(&mut web_events, 1).await, ["a/a@3>10!"], "{form:?}");
        live.send(modified("a/b", 30));
        wide.wait_for("30", SOON).await.unwrap();
        assert_eq!(contents(&web), "a/a@10!");
        wide.shutdown(SOON).await.unwrap();
        web.shutdown(SOON).await.unwrap();
        drop((wide, web, wide_events, web_events));
        tokio::time::sleep(2 * SHARED_GRACE).await;
        let again = declared(&cluster).checkpoint(dir.path()).start_shared().unwrap();
        until("the saved state", || contents(&again) == "a/a@10! a/b@30").await;
        assert!(again.store().snapshot().get("a/a").unwrap().decode().is_err(), "{form:?}");
    }
}

/// Goal: an event without a readable object leaves no stale object behind. Method: a deletion without an object,
/// repeated by each watch from that position.
#[tokio::test(start_paused = true)]
async fn a_change_of_an_object_that_cannot_be_named_leads_to_a_relist() {
    let (cluster, log) = in_memory(|number, uri| match number {
        1 => ok([Step::Send(list(&[item("a/a", 3), item("a/b", 4)], 9, ""))]),
        _ if !is_watch(uri) => ok([Step::Send(list(&["null".into(), item("a/b", 4)], 12, ""))]),
        _ if uri.contains("resourceVersion=9&") => ok([Step::Send(event("DELETED", "null")), Step::Hang]),
        _ => ok([Step::Send(bookmark(20)), Step::Hang]),
    });
    let pods = informer_of(&cluster, InitialList::Unpaged);
    pods.wait_for("20", SOON).await.unwrap();
    assert_eq!((contents(&pods).as_str(), pods.stats().reflector.syncs), ("a/b@4", 2), "{:?}", log.uris());
}

/// Goal: the informer's memory and the response survive an object of any size. Method: one of 200 MB in the middle of a
/// stream.
#[tokio::test(start_paused = true)]
async fn an_object_of_two_hundred_megabytes_is_passed_over() {
    let piece = "n".repeat(1 << 20);
    let (cluster, _log) = in_memory(move |_, _| {
        let object = pod("a/huge", 4);
        let (head, tail) = object.split_once("node-1").unwrap();
        let begin = added("a/a", 3) + "{\"type\":\"ADDED\",\"object\":" + head;
        let huge = std::iter::repeat_n(Step::Send(piece.clone()), 200);
        let end = format!("{tail}}}\n") + &added("a/z", 5) + &end_bookmark(9);
        ok([Step::Send(begin)].into_iter().chain(huge).chain([Step::Send(end), Step::Hang]))
    });
    let pods = cluster.informer::<Pod>().initial_list(InitialList::Stream).start().unwrap();
    pods.ready(SOON).await.unwrap();
    assert_eq!((contents(&pods).as_str(), pods.stats().skipped), ("a/a@3 a/huge@4! a/z@5", 1));
}

/// Goal: an error event that cannot be read still ends the response.
#[tokio::test(start_paused = true)]
async fn an_error_event_without_an_object_ends_its_answer() {
    let (cluster, log) = in_memory(|number, _| match number {
        1 => ok([Step::Send(list(&[item("a/a", 3)], 9, ""))]),
        2 => ok([Step::Send(modified("a/a", 10) + &event("ERROR", "null")), Step::Hang]),
        _ => ok([Step::Send(bookmark(20)), Step::Hang]),
    });
    let pods = informer_of(&cluster, InitialList::Unpaged);
    pods.wait_for("20", SOON).await.unwrap();
    assert_eq!((contents(&pods).as_str(), log.uris().len(), pods.stats().skipped), ("a/a@10", 3, 0));
}

fn stream_with_odd_ones(uri: &str) -> crate::fixture::Reply {
    assert!(is_stream(uri), "{uri}");
    let odd = event("ADDED", &large(&pod("a/large", 4))) + &event("ADDED", "null");
    let live =
        event("MODIFIED", &deep(&pod("a/a", 10))) + &event("DELETED", &large(&pod("a/a", 11))) + &deleted("a/z", 12);
    ok([Step::Send(added("a/a", 3) + &odd + &added("a/z", 5) + &end_bookmark(9) + &live), Step::Hang])
}

#[tokio::test(start_paused = true)]
async fn raw_streams_tell_a_skipped_object_as_an_error_of_its_own_and_go_on() {
    let (cluster, log) = in_memory(|_, uri| stream_with_odd_ones(uri));
    let raw = cluster.raw(&ApiResource::erase::<Pod>(&())).config(|config| config.object_bytes_max = LIMIT);
    let events: Vec<String> = raw
        .start()
        .unwrap()
        .take(9)
        .map(|event| match event {
            Ok(informer::raw::Event::Delete(pod)) => format!("-{} {}", pod.key(), String::from_utf8_lossy(pod.json())),
            Ok(event) => format!("{event:?}"),
            Err(error) => format!("{error}: {}", std::error::Error::source(&error).unwrap()),
        })
        .collect()
        .await;
    let at = |part: &str| events.iter().position(|event| event.contains(part)).unwrap_or_else(|| panic!("{events:#?}"));
    assert_eq!((at("Init"), at("InitApply(Object(a/a@3))"), at("InitApply(Object(a/z@5))")), (0, 1, 4), "{events:#?}");
    assert!(
        events[2].starts_with("object a/large at byte ") && events[2].ends_with(&format!("larger than {LIMIT} bytes"))
    );
    assert!(events[3].starts_with("object at byte ") && events[3].ends_with("no JSON object"), "{events:#?}");
    assert!(
        events[6].starts_with("object a/a at byte ") && events[6].ends_with("deeper than 512 levels"),
        "{events:#?}"
    );
    let names = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"a","uid":"uid-a","resourceVersion":"11"}}"#;
    assert_eq!(events[7], format!("-a/a {names}"));
    assert!(events[8].starts_with("-a/z "), "{events:#?}");
    assert_eq!(log.uris().len(), 1, "one answer: {:?}", log.uris());
}

/// Goal: skipped objects are reported as sparingly as undecodable ones, because kube's controllers pause after each
/// error.
#[tokio::test(start_paused = true)]
async fn watchers_tell_skipped_objects_once_and_go_on() {
    let (client, log) = client_in_memory(|_, uri| stream_with_odd_ones(uri));
    let config = watcher::Config::default().streaming_lists();
    let watcher = Cluster::new(client.clone()).watcher(&Api::<Pod>::all(client), config);
    let events: Vec<String> = watcher
        .config(|config| config.object_bytes_max = LIMIT)
        .stream()
        .take(8)
        .map(|event| match event {
            Ok(Event::Init) => "init".into(),
            Ok(Event::InitApply(pod)) => format!("({})", pod.metadata.name.unwrap_or_default()),
            Ok(Event::InitDone) => "done".into(),
            Ok(Event::Apply(pod)) => format!("+{}", pod.metadata.name.unwrap_or_default()),
            Ok(Event::Delete(pod)) => format!("-{}", pod.metadata.name.unwrap_or_default()),
            Err(error) => format!("{error}"),
        })
        .collect()
        .await;
    let expected = |at: usize, part: &str| assert!(events[at].contains(part), "{events:#?}");
    assert_eq!(events[..4], ["init", "(a)", "(z)", "done"], "{events:#?}");
    expected(4, "object a/large at byte ");
    assert_eq!((events[5].as_str(), events[7].as_str()), ("-a", "-z"), "{events:#?}");
    expected(6, "object a/a at byte ");
    assert_eq!(log.uris().len(), 1, "one answer: {:?}", log.uris());
}
