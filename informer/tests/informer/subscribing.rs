//! Subscriptions: every change once, deletions always, updates never across uids; no lost wake-ups.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{Stream, StreamExt as _};
use informer::{Cluster, Event, Informer, InitialList, ObjectView, ResourceVersion, testing::FakeApiServer};
use k8s_openapi::api::core::v1::Pod;

use crate::fixture::{
    Live, SOON, Step, added, deleted, describe, in_memory, is_watch, item, list, modified, next, ok, pod, refuse,
    status,
};

/// An informer whose LISTs return `lists` in turn, and whose watches carry the events of `live`.
async fn informer_of(lists: Vec<String>, live: &Live) -> Informer<Pod> {
    let (live, listed) = (live.clone(), AtomicU64::new(0));
    let (cluster, _log) = in_memory(move |_, uri| {
        if is_watch(uri) {
            return ok([]).live(&live);
        }
        let number = usize::try_from(listed.fetch_add(1, Ordering::Relaxed)).unwrap();
        lists.get(number).map_or_else(|| refuse(500, ""), |list| ok([Step::Send(list.clone())]))
    });
    let informer = cluster.informer::<Pod>().initial_list(InitialList::Unpaged).start().unwrap();
    informer.ready(SOON).await.unwrap();
    // The watch must be open before an event is sent on it.
    crate::fixture::until("the watch", || informer.age().is_some() && informer.explain().contains("watch")).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    informer
}

async fn at(informer: &Informer<Pod>, version: u64) {
    informer.wait_for(&ResourceVersion::from(version), SOON).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn first_what_is_there_then_what_changes() {
    let live = Live::default();
    let informer = informer_of(vec![list(&[item("a/a", 3), item("a/b", 4)], 9, "")], &live).await;
    let mut changes = informer.subscribe();
    assert_eq!(next(&mut changes, 3).await, ["+a/a@3", "+a/b@4", "=9"]);
    for (sent, expected) in [
        (added("a/c", 10), "+a/c@10"),
        (modified("a/a", 11), "a/a@3>11"),
        (deleted("a/b", 12), "-a/b@4"),
        (added("a/b", 13), "+a/b@13"),
    ] {
        live.send(sent);
        assert_eq!(next(&mut changes, 1).await, [expected]);
    }
}

/// Goal: cases that a level-triggered reader could get wrong. Method: it polls only after all of them happened.
#[tokio::test(start_paused = true)]
async fn a_late_reader_sees_the_difference_and_never_mixes_two_uids() {
    let live = Live::default();
    let informer = informer_of(vec![list(&[item("a/a", 3), item("a/b", 4)], 9, "")], &live).await;
    let mut changes = informer.subscribe();
    assert_eq!(next(&mut changes, 3).await, ["+a/a@3", "+a/b@4", "=9"]);
    live.send(modified("a/a", 10) + &modified("a/a", 11));
    live.send(deleted("a/b", 12) + &added("a/b", 13).replace("uid-b", "uid-b2"));
    live.send(added("a/gone", 14) + &deleted("a/gone", 15));
    at(&informer, 15).await;
    assert_eq!(next(&mut changes, 3).await, ["a/a@3>11", "-a/b@4", "+a/b@13"]);
    live.send(added("a/z", 16));
    assert_eq!(next(&mut changes, 1).await, ["+a/z@16"], "what came and went was never told");
}

#[tokio::test(start_paused = true)]
async fn what_a_relist_no_longer_holds_is_a_missed_deletion() {
    let live = Live::default();
    let lists = vec![
        list(&[item("a/a", 3), item("a/b", 4), item("a/c", 5)], 9, ""),
        list(&[item("a/a", 3), item("a/c", 15).replace("uid-c", "uid-c2"), item("a/d", 16)], 20, ""),
    ];
    let informer = informer_of(lists, &live).await;
    let mut changes = informer.subscribe();
    assert_eq!(next(&mut changes, 4).await, ["+a/a@3", "+a/b@4", "+a/c@5", "=9"]);
    live.send(format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status(410, "Expired", "too old").trim()));
    at(&informer, 20).await;
    assert_eq!(next(&mut changes, 5).await, ["-a/b@4?", "-a/c@5?", "+a/c@15", "+a/d@16", "=20"]);
}

#[tokio::test(start_paused = true)]
async fn decoding_works_on_old_and_new() {
    let live = Live::default();
    let informer = informer_of(vec![list(&[item("a/a", 3)], 9, "")], &live).await;
    let mut changes = informer.subscribe();
    next(&mut changes, 2).await;
    live.send(modified("a/a", 10));
    let Some(Event::Updated { old, new }) = changes.next().await else { panic!("an update") };
    assert_eq!(old.decode().unwrap().metadata.resource_version.as_deref(), Some("3"));
    assert_eq!(new.decode().unwrap().metadata.resource_version.as_deref(), Some("10"));
    assert!(old != new && new == new.clone());
}

/// Goal: long differences, delivered in parts while the state changes, add up to the current state. Method: a reader
/// mirrors the events in a map and is interrupted by changes before, at and after its key; the map must end equal.
#[tokio::test(start_paused = true)]
async fn long_differences_in_parts_add_up_while_the_state_moves() {
    let live = Live::default();
    let keys: Vec<String> = (0..700).map(|number| format!("a/{number:04}")).collect();
    let items: Vec<String> = keys.iter().map(|key| item(key, 3)).collect();
    let informer = informer_of(vec![list(&items, 9, "")], &live).await;
    let mut changes = informer.subscribe();
    let mut mirror = std::collections::BTreeMap::new();
    let mut random = fastrand::Rng::with_seed(7);
    let mut version = 10_u64;
    for round in 0..3000 {
        if round % 3 == 0 {
            let key = random.choice(&keys).unwrap();
            let known = informer.store().snapshot().get(key).is_some();
            live.send(match (known, random.bool()) {
                (true, true) => modified(key, version),
                (true, false) => deleted(key, version),
                (false, _) => added(key, version).replace("uid-", &format!("uid{version}-")),
            });
            at(&informer, version).await;
            version += 1;
        }
        let Ok(event) = tokio::time::timeout(Duration::from_millis(1), changes.next()).await else { continue };
        match event.unwrap() {
            Event::Added(new) => assert!(mirror.insert(new.key().to_owned(), new).is_none(), "added twice"),
            Event::Updated { old, new } => {
                assert_eq!(old.uid(), new.uid());
                assert_eq!(mirror.insert(new.key().to_owned(), new), Some(old));
            }
            Event::Deleted { last_known, .. } => {
                assert_eq!(mirror.remove(last_known.key()), Some(last_known));
            }
            Event::Synced(_) | _ => {}
        }
    }
    while let Ok(Some(event)) = tokio::time::timeout(Duration::from_millis(1), changes.next()).await {
        match event {
            Event::Added(new) | Event::Updated { new, .. } => drop(mirror.insert(new.key().to_owned(), new)),
            Event::Deleted { last_known, .. } => drop(mirror.remove(last_known.key())),
            Event::Synced(_) | _ => {}
        }
    }
    let mirrored: Vec<_> = mirror.into_values().collect();
    assert_eq!(mirrored, informer.store().snapshot().iter().map(ObjectView::to_object).collect::<Vec<_>>());
}

/// Goal: a reader slower than the changes still gets `Synced`. Method: everything changes again after every 30 events
/// it reads.
#[tokio::test(start_paused = true)]
async fn a_reader_that_never_catches_up_is_synced_all_the_same() {
    let live = Live::default();
    let keys: Vec<String> = (0..200).map(|number| format!("a/{number:04}")).collect();
    let items: Vec<String> = keys.iter().map(|key| item(key, 3)).collect();
    let informer = informer_of(vec![list(&items, 9, "")], &live).await;
    let mut changes = informer.subscribe();
    let (mut version, mut seen) = (10, Vec::new());
    while !seen.iter().any(|describe: &String| describe.starts_with('=')) {
        assert!(seen.len() < 1_000, "never synced");
        live.send(keys.iter().map(|key| modified(key, version)).collect::<String>());
        at(&informer, version).await;
        version += 1;
        seen.extend(next(&mut changes, 30).await);
    }
    let added = seen
        .iter()
        .take_while(|describe| !describe.starts_with('='))
        .filter(|describe| describe.starts_with('+'))
        .count();
    assert_eq!(added, 200, "all of it came first");
}

/// Goal: no lost wake-up. Method: real threads, a writer at full speed, and a reader that must reach the last change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_is_lost_between_a_look_and_a_wait() {
    let live = Live::default();
    let informer = Arc::new(informer_of(vec![list(&[item("a/a", 3)], 9, "")], &live).await);
    let mut changes = informer.subscribe();
    let reader = tokio::spawn(async move {
        let mut last = String::new();
        while last != "a/a@2009" {
            let event = tokio::time::timeout(SOON, changes.next()).await.expect("woken").expect("running");
            last = describe(&event).split_once('>').map_or(String::new(), |(_, version)| format!("a/a@{version}"));
        }
    });
    for version in 10..2010 {
        live.send(format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", pod("a/a", version)));
        if version % 7 == 0 {
            tokio::task::yield_now().await;
        }
    }
    reader.await.unwrap();
}

fn gone() -> String {
    format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status(410, "Expired", "too old").trim())
}

#[tokio::test(start_paused = true)]
async fn every_change_is_told_in_order_and_what_a_relist_found_before_its_end() {
    let live = Live::default();
    let lists = vec![
        list(&[item("a/a", 3), item("a/b", 4), item("a/c", 5)], 9, ""),
        list(&[item("a/c", 15).replace("uid-c", "uid-c2"), item("a/z", 14)], 20, ""),
    ];
    let informer = informer_of(lists, &live).await;
    let mut changes = informer.subscribe_all(100);
    live.send(modified("a/c", 10) + &modified("a/c", 11));
    live.send(added("a/gone", 12) + &deleted("a/gone", 13));
    live.send(added("a/z", 14) + &deleted("a/b", 15));
    at(&informer, 15).await;
    live.send(gone());
    at(&informer, 20).await;
    let first = ["+a/a@3", "+a/b@4", "+a/c@5", "=9"];
    let live = ["a/c@5>10", "a/c@10>11", "+a/gone@12", "-a/gone@12", "+a/z@14", "-a/b@4"];
    let relist = ["-a/a@3?", "-a/c@11?", "+a/c@15", "=20"];
    assert_eq!(next(&mut changes, 14).await, [&first[..], &live[..], &relist[..]].concat());
}

/// Covers a complaint about kube's shared store: a subscriber stayed asleep if an object was created and deleted before
/// its first poll, and received later changes only when something else woke it.
#[tokio::test(start_paused = true)]
async fn p7_what_comes_and_goes_before_the_first_poll_loses_no_wake_up() {
    let live = Live::default();
    let informer = informer_of(vec![list(&[], 9, "")], &live).await;
    let (mut latest, mut all) = (informer.subscribe(), informer.subscribe_all(10));
    live.send(added("a/a", 10) + &deleted("a/a", 11));
    at(&informer, 11).await;
    let latest = tokio::spawn(async move { next(&mut latest, 3).await });
    let all = tokio::spawn(async move { next(&mut all, 5).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    live.send(added("a/b", 12));
    tokio::time::sleep(Duration::from_secs(1)).await;
    live.send(added("a/c", 13));
    assert_eq!(latest.await.unwrap(), ["=11", "+a/b@12", "+a/c@13"]);
    assert_eq!(all.await.unwrap(), ["=9", "+a/a@10", "-a/a@10", "+a/b@12", "+a/c@13"]);
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_is_overrun_is_told_so_and_goes_on_from_the_difference() {
    let live = Live::default();
    let informer = informer_of(vec![list(&[item("a/a", 3), item("a/b", 4)], 9, "")], &live).await;
    let mut slow = informer.subscribe_all(3);
    assert_eq!(next(&mut slow, 3).await, ["+a/a@3", "+a/b@4", "=9"]);
    live.send(modified("a/a", 10) + &deleted("a/b", 11) + &added("a/c", 12) + &modified("a/a", 13));
    at(&informer, 13).await;
    assert_eq!(next(&mut slow, 4).await, ["reset", "a/a@3>13", "-a/b@4", "+a/c@12"]);
    live.send(modified("a/a", 14) + &modified("a/a", 15) + &deleted("a/c", 16));
    at(&informer, 16).await;
    assert_eq!(next(&mut slow, 3).await, ["a/a@13>14", "a/a@14>15", "-a/c@12"], "each change again");
}

/// Goal: a slow subscriber delays no other. Method: one that never reads beside one that reads everything, through one
/// ring.
#[tokio::test(start_paused = true)]
async fn a_subscriber_that_never_reads_delays_nobody() {
    let live = Live::default();
    let informer = informer_of(vec![list(&[item("a/a", 3)], 9, "")], &live).await;
    let (_idle, _also_idle, mut reader) = (informer.subscribe_all(4), informer.subscribe(), informer.subscribe_all(4));
    next(&mut reader, 2).await;
    for version in 10..1_000 {
        live.send(modified("a/a", version));
        assert_eq!(
            next(&mut reader, 1).await,
            [format!("a/a@{}>{version}", if version == 10 { 3 } else { version - 1 })]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn subscriptions_are_streams_that_end_when_all_is_told() {
    fn is_a_stream<S: Stream<Item = Event<Pod>> + Send + Sync + Unpin + 'static>(stream: S) -> S {
        stream
    }
    let live = Live::default();
    let informer = informer_of(vec![list(&[item("a/a", 3), item("a/b", 4)], 9, "")], &live).await;
    let (latest, all) = (is_a_stream(informer.subscribe()), is_a_stream(informer.subscribe_all(10)));
    live.send(modified("a/a", 10));
    at(&informer, 10).await;
    informer.stop().await;
    let latest: Vec<String> = latest.map(|event| describe(&event)).collect().await;
    let all: Vec<String> = all.map(|event| describe(&event)).collect().await;
    assert_eq!(latest, ["+a/a@10", "+a/b@4", "=10"]);
    assert_eq!(all, ["+a/a@3", "+a/b@4", "=9", "a/a@3>10"]);
}

/// Goal: cancel safety. Method: cancel the wait at every step; no event is lost or repeated.
#[tokio::test(start_paused = true)]
async fn a_wait_that_is_given_up_loses_nothing() {
    let live = Live::default();
    let informer = informer_of(vec![list(&[item("a/a", 3)], 9, "")], &live).await;
    let (mut latest, mut all) = (informer.subscribe(), informer.subscribe_all(10));
    let mut seen = (Vec::new(), Vec::new());
    for version in 10..20 {
        for _ in 0..3 {
            let short = Duration::from_millis(1);
            seen.0.extend(tokio::time::timeout(short, latest.next()).await.map(|event| describe(&event.unwrap())));
            seen.1.extend(tokio::time::timeout(short, all.next()).await.map(|event| describe(&event.unwrap())));
        }
        live.send(modified("a/a", version));
    }
    at(&informer, 19).await;
    informer.stop().await;
    while let Some(event) = latest.next().await {
        seen.0.push(describe(&event));
    }
    while let Some(event) = all.next().await {
        seen.1.push(describe(&event));
    }
    assert_eq!(seen.0, seen.1);
    assert_eq!(seen.0[..3], ["+a/a@3", "=9", "a/a@3>10"]);
}

/// Goal: no lost wake-up and no gap. Method: real threads, a writer at full speed, readers of every change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_change_comes_once_while_threads_race() {
    let live = Live::default();
    let informer = Arc::new(informer_of(vec![list(&[item("a/a", 3)], 9, "")], &live).await);
    let writer = tokio::spawn(async move {
        for version in 10..4010 {
            live.send(modified("a/a", version));
            if version % 7 == 0 {
                tokio::task::yield_now().await;
            }
        }
        live
    });
    let mut readers = Vec::new();
    for _ in 0..20 {
        let mut changes = informer.subscribe_all(10_000);
        readers.push(tokio::spawn(async move {
            let mut last = None;
            loop {
                let event = tokio::time::timeout(SOON, changes.next()).await.expect("woken").expect("running");
                let version = match &event {
                    Event::Added(new) | Event::Updated { new, .. } => new.resource_version().parse::<u64>().unwrap(),
                    Event::Synced(_) => continue,
                    Event::Deleted { .. } | Event::Reset | _ => panic!("{event:?}"),
                };
                let next = last.map_or(version, |last: u64| (last + 1).max(10));
                assert_eq!(version, next, "none left out");
                if version == 4009 {
                    return;
                }
                last = Some(version);
            }
        }));
        tokio::task::yield_now().await;
    }
    for reader in readers {
        reader.await.unwrap();
    }
    drop(writer.await.unwrap());
}

/// All events up to this one.
async fn up_to(changes: &mut (impl Stream<Item = Event<Pod>> + Unpin), last: &str) -> Vec<String> {
    let mut all = Vec::new();
    while all.last().is_none_or(|seen: &String| !seen.starts_with(last)) {
        all.extend(next(changes, 1).await);
    }
    all
}

/// Goal: a program that keeps its own state across restarts can bring it up to date. Method: changes while the program
/// is down, once within the server's history window and once beyond it.
#[tokio::test]
async fn after_a_restart_what_was_saved_comes_first_and_then_what_became_of_it() {
    let pod = |name: &str, node: &str| {
        serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "a"},
            "spec": {"nodeName": node, "containers": []}})
    };
    for is_too_old in [false, true] {
        let server = FakeApiServer::new().at(41).put(pod("x", "n")).put(pod("y", "n"));
        let directory = tempfile::tempdir().unwrap();
        let start = || {
            let cluster = Cluster::builder(server.client()).identity("one").build();
            cluster.informer::<Pod>().checkpoint(directory.path()).start().unwrap()
        };
        let before = start();
        before.ready(SOON).await.unwrap();
        before.stop().await;

        server.put(pod("z", "n")).delete(pod("x", "n")).put(pod("y", "m"));
        if is_too_old {
            server.expire_at(46);
        }
        let informer = start();
        let (mut latest, mut all) = (informer.subscribe(), informer.subscribe_all(10));
        let (latest, all) = (up_to(&mut latest, "a/y@43>").await, up_to(&mut all, "a/y@43>").await);
        assert_eq!(latest[..2], ["+a/x@42", "+a/y@43"]);
        assert_eq!(all[..2], ["+a/x@42", "+a/y@43"]);
        if is_too_old {
            assert_eq!(all[2..], ["=43", "-a/x@42?", "a/y@43>46"], "as the relist found it");
            assert!(latest.contains(&"-a/x@42?".to_owned()), "{latest:?}");
        } else {
            assert_eq!(all[2..], ["=43", "+a/z@44", "-a/x@42", "a/y@43>46"], "as it happened");
            assert!(latest.contains(&"-a/x@42".to_owned()), "{latest:?}");
        }
    }
}
