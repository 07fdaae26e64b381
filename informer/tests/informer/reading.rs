//! Reads: snapshots, selectors, decoded objects, versions, and the end of informers.

use std::{sync::Arc, time::Duration};

use informer::{Cause, Informer, InitialList, LabelSelector, ResourceVersion};
use k8s_openapi::api::core::v1::Pod;

use crate::fixture::{Live, SOON, Step, added, bookmark, deleted, in_memory, item, list, modified, ok, until};

async fn informer_of(keys: &[&str], live: &Live) -> Informer<Pod> {
    let items: Vec<String> = keys.iter().map(|key| item(key, 3)).collect();
    let live = live.clone();
    let (cluster, _log) = in_memory(move |number, _| match number {
        1 => ok([Step::Send(list(&items, 9, ""))]),
        _ => ok([]).live(&live),
    });
    let informer = cluster.informer::<Pod>().initial_list(InitialList::Unpaged).start().unwrap();
    informer.ready(SOON).await.unwrap();
    informer
}

#[tokio::test(start_paused = true)]
async fn snapshots_are_read_by_key_namespace_and_labels_in_key_order() {
    let informer = informer_of(&["foo-bar/a", "foo/b", "foo/a", "foo.x/a"], &Live::default()).await;
    let now = informer.store().snapshot();
    let keys = |objects: Vec<informer::Object<Pod>>| objects.iter().map(|pod| pod.key().to_owned()).collect::<Vec<_>>();
    assert_eq!(keys(now.iter().collect()), ["foo-bar/a", "foo.x/a", "foo/a", "foo/b"]);
    assert_eq!(keys(now.namespace("foo").collect()), ["foo/a", "foo/b"]);
    let selector = LabelSelector::parse("app in (b,c)").unwrap();
    assert_eq!(keys(now.select(&selector).collect()), ["foo/b"]);
    assert_eq!((now.len(), now.is_empty()), (4, false));
    assert_eq!(now.resource_version().unwrap().as_str(), "9");
    let pod = now.get("foo/b").unwrap();
    assert_eq!((pod.namespace(), pod.name(), pod.uid(), pod.resource_version()), ("foo", "b", "uid-b", "3"));
    assert_eq!((pod.label("app").as_deref(), pod.field("spec.nodeName").as_deref()), (Some("b"), Some("node-1")));
    assert_eq!(pod.labels(), [("app".into(), "b".into())]);
    assert!(now.get("foo/c").is_none() && pod.field("spec.what").is_none());
    assert_eq!(format!("{now:?} {pod:?}"), "Snapshot(4 objects at 9) Object(foo/b@3)");
}

/// Goal: decoded objects are shared while held, and freed afterwards. Method: two reads, then the count of a `Weak`.
#[tokio::test(start_paused = true)]
async fn a_decoded_object_is_shared_while_somebody_holds_it() {
    let keys: Vec<String> = (0..200).map(|number| format!("a/{number}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let informer = informer_of(&keys, &Live::default()).await;
    let read = || informer.store().snapshot().get("a/7").unwrap().decode().unwrap();
    let (first, second) = (read(), read());
    assert!(Arc::ptr_eq(&first, &second));
    let held = Arc::downgrade(&first);
    drop((first, second));
    assert!(held.upgrade().is_none(), "nothing but users keeps it");
    let all: Vec<Arc<Pod>> = informer.store().snapshot().iter().map(|pod| pod.decode().unwrap()).collect();
    for (pod, again) in all.iter().zip(informer.store().snapshot().iter()) {
        assert!(Arc::ptr_eq(pod, &again.decode().unwrap()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_stays_while_the_store_moves_on_and_writes_can_be_waited_for() {
    let live = Live::default();
    let informer = informer_of(&["a/a", "a/b"], &live).await;
    let before = informer.store().snapshot();
    let at = ResourceVersion::from(12);
    let behind = informer.wait_for(&at, Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(behind.to_string(), "version 12 was not reached; the store is at 9");
    live.send(added("a/c", 10) + &modified("a/a", 11) + &deleted("a/b", 12));
    informer.wait_for(&at, SOON).await.unwrap();
    let keys = |snapshot: informer::Snapshot<Pod>| snapshot.iter().map(|pod| pod.key().to_owned()).collect::<Vec<_>>();
    assert_eq!(keys(informer.store().snapshot()), ["a/a", "a/c"]);
    assert_eq!(keys(before), ["a/a", "a/b"]);
    live.send(bookmark(40));
    informer.wait_for(&ResourceVersion::from(40), SOON).await.unwrap();
    assert_eq!(informer.resource_version().unwrap().as_str(), "40");
}

#[tokio::test(start_paused = true)]
async fn age_counts_from_the_last_word_of_the_server() {
    let live = Live::default();
    let informer = informer_of(&["a/a"], &live).await;
    until("the watch", || informer.explain().contains("watch=true")).await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert!(informer.age().unwrap() >= Duration::from_secs(50));
    live.send(bookmark(10));
    informer.wait_for(&ResourceVersion::from(10), SOON).await.unwrap();
    assert!(informer.age().unwrap() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn the_last_clone_stops_the_informer_and_reads_remain() {
    let live = Live::default();
    let informer = informer_of(&["a/a"], &live).await;
    let (clone, store, mut changes) = (informer.clone(), informer.store().clone(), informer.subscribe());
    drop(informer);
    live.send(added("a/b", 10));
    clone.wait_for(&ResourceVersion::from(10), SOON).await.unwrap();
    drop(clone);
    assert_eq!(crate::fixture::next(&mut changes, 4).await, ["+a/a@3", "+a/b@10", "=10", "end"]);
    assert_eq!(store.snapshot().len(), 2);
}

/// Goal: no caller waits for an informer whose runtime was dropped. Method: start it on a runtime that is then dropped.
#[tokio::test]
async fn an_informer_ends_with_its_runtime_and_says_so() {
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let started = other.spawn(async {
        let (cluster, _log) = in_memory(|_, _| ok([Step::Hang]));
        cluster.informer::<Pod>().start().unwrap()
    });
    let informer = started.await.unwrap();
    other.shutdown_background();
    let not_ready = informer.ready(SOON).await.unwrap_err();
    assert!(matches!(not_ready.cause, Cause::Stopped), "{not_ready}");
    assert!(informer.subscribe().next().await.is_none());
}
