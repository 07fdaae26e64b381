//! The stream for `kube::runtime` in combined situations: failovers, relists, broken objects, ends.

use std::{
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures::{Stream, StreamExt};
use informer::{Cluster, testing::FakeApiServer};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, ResourceExt,
    core::{DeserializeGuard, PartialObjectMeta},
    runtime::{reflector, watcher},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use watcher::{Config, Event};

use crate::fixture::{
    Step, added, client_in_memory, deleted, end_bookmark, event, is_stream, is_watch, item, list, ok, status,
};

const MINUTE: Duration = Duration::from_secs(60);

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "a"}, "spec": {"containers": []}})
}

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + 60 * MINUTE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// Goal: a deletion is delivered at once, and not held back for an abandoned initial state. Method: the fallback lags
/// behind, so that its stream fails before it sends an object; back at the preferred endpoint, the watch resumes.
#[tokio::test(start_paused = true)]
async fn a_delete_after_a_refused_move_is_told() {
    let preferred = FakeApiServer::new().at(41).put(pod("x"));
    let behind = preferred.replica().freeze();
    preferred.put(pod("y"));
    let cluster = Cluster::builder(preferred.client()).fallback(behind.client()).build();
    let (reader, writer) = reflector::store::<Pod>();
    let declared = cluster.watcher(&Api::all(preferred.client()), Config::default().streaming_lists());
    tokio::spawn(reflector(writer, declared.stream()).for_each(|_| std::future::ready(())));
    let held = || reader.state().len();
    eventually("initial state", || held() == 2).await;

    preferred.refuse_connections().close_watches();
    eventually("the move", || behind.initial_reads() > 0).await;
    preferred.recover().delete(pod("x"));
    sleep(2 * MINUTE).await;
    assert_eq!(preferred.initial_reads(), 1, "no relist: {:?}", preferred.requests());
    assert_eq!(held(), 1);
}

fn broken(text: &str) -> String {
    text.replace("\"containers\":[]", "\"containers\":7")
}

async fn next<K: ResourceExt>(
    events: &mut (impl Stream<Item = watcher::Result<Event<K>>> + Unpin),
    count: usize,
) -> String {
    let mut all = Vec::new();
    for _ in 0..count {
        let event = tokio::time::timeout(MINUTE, events.next()).await.expect("an event within a minute");
        all.push(match event {
            Some(Ok(event)) => event.to_string(),
            Some(Err(_)) => "error".into(),
            None => "end".into(),
        });
    }
    all.join(" ")
}

/// Goal: a broken object is reported again after it was gone in between. Method: one that a relist leaves out and that
/// comes back; another that stays broken and is not reported twice.
#[tokio::test(start_paused = true)]
async fn an_object_that_came_back_broken_is_told_again() {
    let (client, _log) = client_in_memory(|number, uri| match (number, is_watch(uri)) {
        (1, _) => ok([Step::Send(list(&[broken(&item("a/x", 3)), item("a/a", 4)], 9, ""))]),
        (2, _) => ok([Step::Send(broken(&added("a/y", 10)) + &event("ERROR", status(410, "Expired", "old").trim()))]),
        (_, false) => ok([Step::Send(list(&[item("a/a", 4), broken(&item("a/y", 10))], 20, ""))]),
        _ => {
            let again = broken(&added("a/x", 21)) + &added("a/b", 22) + &broken(&added("a/y", 23));
            ok([Step::Send(again + &added("a/c", 24)), Step::Hang])
        }
    });
    let mut events = pin!(informer::watcher(Api::<Pod>::all(client), Config::default()));
    assert_eq!(next(&mut events, 4).await, "Init InitApply(a) InitDone error", "x");
    assert_eq!(next(&mut events, 1).await, "error", "410");
    // The second of two errors in a row is held back until an event was delivered.
    assert_eq!(next(&mut events, 2).await, "Init InitApply(a)");
    assert_eq!(next(&mut events, 5).await, "InitDone error Apply(b) error Apply(c)", "y, then x, and not y again");
}

/// Goal: a stream that resumes by itself yields no error, so that no program pauses for it. Method: a stream of initial
/// state that ends early, a watch that ends, and one that breaks off within an event.
#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_or_ends_is_no_error() {
    let (client, log) = client_in_memory(|number, uri| match uri {
        _ if number == 1 => ok([Step::Send(added("a/x", 3))]),
        _ if is_stream(uri) => ok([Step::Send(added("a/x", 3) + &end_bookmark(9)), Step::Wait(MINUTE / 10)]),
        _ if uri.contains("resourceVersion=9&") => ok([Step::Send(added("a/y", 10) + &added("a/z", 11)[..40])]),
        _ => ok([Step::Send(added("a/z", 11)), Step::Hang]),
    });
    let mut events = pin!(informer::watcher(Api::<Pod>::all(client), Config::default().streaming_lists()));
    assert_eq!(next(&mut events, 2).await, "Init InitApply(x)");
    assert_eq!(next(&mut events, 3).await, "Init InitApply(x) InitDone");
    assert_eq!(next(&mut events, 2).await, "Apply(y) Apply(z)");
    assert_eq!(log.uris().len(), 4);
}

/// Goal: a stream that makes no progress is not silent. Method: every watch breaks off within the same event, and the
/// tenth delivers it.
#[tokio::test(start_paused = true)]
async fn watches_that_break_off_again_and_again_are_an_error() {
    let watches = AtomicUsize::new(0);
    let (client, log) = client_in_memory(move |_, uri| match uri {
        _ if is_stream(uri) => ok([Step::Send(added("a/x", 3) + &end_bookmark(9))]),
        _ if uri.contains("resourceVersion=9&") => {
            let whole = added("a/y", 10);
            match watches.fetch_add(1, Ordering::SeqCst) {
                9 => ok([Step::Send(whole), Step::Hang]),
                _ => ok([Step::Send(whole[..40].to_owned())]),
            }
        }
        _ => ok([Step::Hang]),
    });
    let mut events = pin!(informer::watcher(Api::<Pod>::all(client), Config::default().streaming_lists()));
    assert_eq!(next(&mut events, 3).await, "Init InitApply(x) InitDone");
    let error = tokio::time::timeout(5 * MINUTE, events.next()).await.expect("an error within five minutes");
    assert!(matches!(error, Some(Err(_))), "{error:?}");
    let watched = log.uris().iter().filter(|uri| uri.contains("resourceVersion=9&")).count();
    assert!(watched >= 8, "the first eight are silent: {:?}", log.uris());
    assert_eq!(next(&mut events, 1).await, "Apply(y)");
}

/// Programs that must see every object wrap its type, as with kube's watcher. With a small type: the wrapper decodes from
/// values, and the compiler would take seconds for a pod's.
#[tokio::test(start_paused = true)]
async fn guarded_objects_are_all_told() {
    let maps = |text: String| text.replace("\"kind\":\"Pod", "\"kind\":\"ConfigMap");
    let broken = |text: String| text.replace("\"spec\":", "\"data\":7,\"spec\":");
    let (client, _log) = client_in_memory(move |_, uri| match is_watch(uri) {
        false => ok([Step::Send(maps(list(&[broken(item("a/x", 3)), item("a/y", 4)], 9, "")))]),
        true => ok([Step::Send(maps(broken(added("a/z", 10)) + &broken(deleted("a/x", 11)))), Step::Hang]),
    });
    let api: Api<DeserializeGuard<ConfigMap>> = Api::all(client);
    let (reader, writer) = reflector::store();
    let mut events = pin!(reflector(writer, informer::watcher(api, Config::default())));
    assert_eq!(next(&mut events, 6).await, "Init InitApply(x) InitApply(y) InitDone Apply(z) Delete(x)");
    let mut held: Vec<(String, bool)> = reader.state().iter().map(|map| (map.name_any(), map.0.is_ok())).collect();
    held.sort();
    assert_eq!(held, [("y".to_owned(), true), ("z".to_owned(), false)]);
}

/// Goal: only metadata is decoded, even if the server sends whole objects. Method: a body nested deeper than the
/// decoder's limit.
#[tokio::test(start_paused = true)]
async fn metadata_is_all_that_is_decoded_whatever_a_server_sends() {
    let deep = format!("\"containers\":{}{}", "[".repeat(200), "]".repeat(200));
    let deep = move |text: String| text.replace("\"containers\":[]", &deep);
    let (client, _log) = client_in_memory(move |_, uri| match is_watch(uri) {
        false => ok([Step::Send(list(&[deep(item("a/x", 3))], 9, ""))]),
        true => ok([Step::Send(deep(added("a/y", 10))), Step::Hang]),
    });
    let api: Api<PartialObjectMeta<Pod>> = Api::all(client);
    let mut events = pin!(informer::watcher(api, Config::default()));
    assert_eq!(next(&mut events, 4).await, "Init InitApply(x) InitDone Apply(y)");
}

/// Combinators may poll a stream once more after its end.
#[tokio::test(start_paused = true)]
async fn an_end_stays_an_end() {
    let (client, _log) = client_in_memory(|_, _| ok([Step::Hang]));
    let api: Api<Pod> = Api::all(client.clone());
    let mut events = pin!(informer::watcher(api, Config::default().labels("app in")));
    assert_eq!(next(&mut events, 3).await, "error end end");
}
