//! Reads: snapshots, selectors, decoded objects, versions, and the end of informers.

use std::{sync::Arc, time::Duration};

use informer::{
    Cause, EndReason, Informer, InitialList, LabelSelector, ObjectRef, ObjectView, Representation, ResourceVersion,
};
use k8s_openapi::api::core::v1::Pod;
use tokio::time::timeout;

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
    let keys = |objects: Vec<ObjectView<'_, Pod>>| objects.iter().map(|pod| pod.key().to_owned()).collect::<Vec<_>>();
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
async fn objects_are_found_by_namespace_and_name_reference_and_uid() {
    let informer = informer_of(&["a/x", "a/y", "b/x"], &Live::default()).await;
    let now = informer.store().snapshot();
    let pod = now.get_named("b", "x").unwrap();
    let reference = ObjectRef::new("x").within("b");
    assert_eq!((pod.key(), pod.to_ref(), ObjectRef::from(&pod)), ("b/x", reference.clone(), reference.clone()));
    assert_eq!(now.get_ref(&reference).unwrap(), pod);
    assert_eq!(now.get_by_uid("uid-y").unwrap().key(), "a/y");
    assert!(now.get_named("b", "y").is_none() && now.get_named("", "x").is_none() && now.get_by_uid("").is_none());
    assert_eq!((reference.to_string(), format!("{reference:?}")), ("b/x".into(), "ObjectRef(b/x)".into()));
    let mut references: Vec<ObjectRef<Pod>> = now.iter().map(ObjectRef::from).collect();
    references.reverse();
    references.sort();
    assert_eq!(references.iter().map(ObjectRef::key).collect::<Vec<_>>(), ["a/x", "a/y", "b/x"]);
}

#[tokio::test(start_paused = true)]
async fn a_reference_becomes_one_of_kube_and_comes_back() {
    use kube::{core::DynamicObject, runtime::reflector};
    let reference = ObjectRef::<Pod>::from_key("b/x");
    let of_kube = reflector::ObjectRef::<Pod>::from(&reference);
    assert_eq!((of_kube.name.as_str(), of_kube.namespace.as_deref()), ("x", Some("b")));
    assert_eq!(ObjectRef::from(&of_kube), reference);
    let node = ObjectRef::<DynamicObject>::new("node-1");
    let nodes = kube::core::ApiResource::erase::<k8s_openapi::api::core::v1::Node>(&());
    let of_kube = informer::kube5::to_kube(&node, nodes);
    assert_eq!((of_kube.to_string(), of_kube.namespace.as_deref()), ("Node.v1./node-1".to_owned(), None));
    assert_eq!(ObjectRef::from(&of_kube), node);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_iterated_without_copies_and_knows_how_many_come() {
    let informer = informer_of(&["a/x", "a/y", "b/x"], &Live::default()).await;
    let now = informer.store().snapshot();
    let mut rest = now.iter();
    assert_eq!((rest.len(), rest.next_back().unwrap().key(), rest.len()), (3, "b/x", 2));
    // Texts borrow from the snapshot, not from the item.
    let mut names: Vec<&str> = Vec::new();
    for pod in &now {
        names.push(pod.name());
    }
    assert_eq!(names, ["x", "y", "x"]);
    let owned = now.iter().next().unwrap().to_object();
    drop(now);
    assert_eq!((owned.view().key(), owned.view().to_object() == owned), ("a/x", true));
}

/// Goal: reads of decoded objects have no error to handle. Method: one object among others does not decode.
#[tokio::test(start_paused = true)]
async fn typed_objects_are_handed_out_without_a_result() {
    let broken = item("a/broken", 4).replace("\"containers\":[]", "\"containers\":7");
    let items = vec![item("a/a", 3), broken, item("a/z", 5)];
    let (cluster, _log) = in_memory(move |number, _| match number {
        1 => ok([Step::Send(list(&items, 9, ""))]),
        _ => ok([Step::Hang]),
    });
    let declared = cluster.informer::<Pod>().initial_list(InitialList::Unpaged).store(Representation::Typed);
    let informer = declared.start().unwrap();
    informer.ready(SOON).await.unwrap();
    let now = informer.store().snapshot();
    let names: Vec<Option<String>> = now.typed().map(|pod| pod.metadata.name.clone()).collect();
    assert_eq!(names, [Some("a".to_owned()), Some("z".to_owned())]);
    let (pod, broken) = (now.get("a/a").unwrap(), now.get("a/broken").unwrap());
    assert!(std::ptr::eq(pod.typed().unwrap(), &*now.typed().next().unwrap()), "not copied");
    assert!(broken.typed().is_none());
    let as_json = informer_of(&["a/a"], &Live::default()).await.store().snapshot();
    assert!(as_json.get("a/a").unwrap().typed().is_none(), "it would have to be decoded");
    assert_eq!(as_json.typed().count(), 1);
}

/// Goal: a program waits for a condition without polling. Method: changes of which some satisfy it, and the end.
#[tokio::test(start_paused = true)]
async fn a_condition_can_be_waited_for_until_the_informer_ends() {
    let live = Live::default();
    let informer = informer_of(&["a/a"], &live).await;
    let has = |name: &'static str| move |now: &informer::Snapshot<Pod>| now.get_named("a", name).is_some();
    assert_eq!(informer.wait_until(has("a")).await.unwrap().len(), 1, "it is satisfied already");
    let short = Duration::from_millis(10);
    assert!(timeout(short, informer.wait_until(has("c"))).await.is_err(), "it can be given up");
    let waiting = tokio::spawn({
        let informer = informer.clone();
        async move { informer.wait_until(has("c")).await }
    });
    until("the watch", || informer.explain().contains("watch=true")).await;
    tokio::time::sleep(short).await;
    live.send(added("a/b", 10));
    live.send(added("a/c", 11));
    let found = timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(found.resource_version().unwrap().as_str(), "11");

    let mut store = informer.store().clone();
    assert_eq!(store.changed().await.unwrap().len(), 3, "all that happened before, at once");
    assert!(timeout(short, store.changed()).await.is_err(), "nothing new");
    live.send(deleted("a/c", 12));
    assert_eq!(timeout(SOON, store.changed()).await.unwrap().unwrap().len(), 2);
    let (wait, end) = tokio::join!(store.wait_until(has("d")), informer.shutdown(SOON));
    assert_eq!((wait.unwrap_err(), end), (EndReason::ShutDown, Ok(EndReason::ShutDown)));
    assert_eq!(store.changed().await.unwrap_err(), EndReason::ShutDown);
    assert_eq!(store.wait_until(has("b")).await.unwrap().len(), 2, "the last state stays readable");
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
    // As kube has it in an object that was written, and in one that was not.
    let written = kube::core::ObjectMeta { resource_version: Some("12".into()), ..Default::default() };
    informer.wait_for(written.resource_version.as_deref(), SOON).await.unwrap();
    informer.wait_for(written.resource_version, SOON).await.unwrap();
    informer.wait_for("12", SOON).await.unwrap();
    informer.wait_for("12".to_owned(), SOON).await.unwrap();
    informer.wait_for(12_u64, SOON).await.unwrap();
    let unwritten = informer.wait_for(kube::core::ObjectMeta::default().resource_version, SOON).await.unwrap_err();
    assert!(matches!(&unwritten, informer::WaitError::Invalid(_)), "{unwritten}");
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
async fn the_last_clone_or_subscription_stops_the_informer_and_reads_remain() {
    let live = Live::default();
    let informer = informer_of(&["a/a"], &live).await;
    let (clone, store, mut changes) = (informer.clone(), informer.store().detached(), informer.subscribe());
    drop(informer);
    live.send(added("a/b", 10));
    clone.wait_for(&ResourceVersion::from(10), SOON).await.unwrap();
    drop(clone);
    assert_eq!(crate::fixture::next(&mut changes, 3).await, ["+a/a@3", "+a/b@10", "=10"]);
    live.send(added("a/c", 11));
    assert_eq!(crate::fixture::next(&mut changes, 1).await, ["+a/c@11"], "the subscription keeps it running");
    assert_eq!((store.end_reason(), changes.end_reason()), (None, None));
    drop(changes);
    assert_eq!(timeout(SOON, store.join()).await.unwrap(), EndReason::Dropped);
    assert_eq!(store.snapshot().len(), 3);
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
    assert!(matches!(not_ready.cause, Cause::Ended(EndReason::RuntimeGone)), "{not_ready}");
    assert!(informer.subscribe().next().await.is_none());
}
