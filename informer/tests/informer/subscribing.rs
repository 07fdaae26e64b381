//! Subscriptions: every change once, deletions always, across uids never.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use informer::{Event, Informer, InitialList, ResourceVersion};
use k8s_openapi::api::core::v1::Pod;

use crate::fixture::{
    Live, SOON, Step, added, deleted, in_memory, is_watch, item, list, modified, next, ok, pod, refuse, status, told,
};

/// An informer whose LISTs answer `lists` in turn, and whose watches carry what `live` sends.
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
    // The watch has to be open before something can be sent on it.
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

/// Goal: the cases a level-triggered reader could get wrong. Method: it looks only when all has happened.
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

/// Goal: long differences, taken in parts while the state moves on, add up to the truth. Method: a reader that applies
/// events to a map of its own and is interrupted by changes before, at and behind its place; the map must end equal.
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
    assert_eq!(mirrored, informer.store().snapshot().iter().collect::<Vec<_>>());
}

/// Goal: a reader slower than the changes still learns that it has the initial state. Method: everything changes again
/// after every few events it takes.
#[tokio::test(start_paused = true)]
async fn a_reader_that_never_catches_up_is_synced_all_the_same() {
    let live = Live::default();
    let keys: Vec<String> = (0..200).map(|number| format!("a/{number:04}")).collect();
    let items: Vec<String> = keys.iter().map(|key| item(key, 3)).collect();
    let informer = informer_of(vec![list(&items, 9, "")], &live).await;
    let mut changes = informer.subscribe();
    let (mut version, mut seen) = (10, Vec::new());
    while !seen.iter().any(|told: &String| told.starts_with('=')) {
        assert!(seen.len() < 1_000, "never synced");
        live.send(keys.iter().map(|key| modified(key, version)).collect::<String>());
        at(&informer, version).await;
        version += 1;
        seen.extend(next(&mut changes, 30).await);
    }
    let added = seen.iter().take_while(|told| !told.starts_with('=')).filter(|told| told.starts_with('+')).count();
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
            last = told(&event).split_once('>').map_or(String::new(), |(_, version)| format!("a/a@{version}"));
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
