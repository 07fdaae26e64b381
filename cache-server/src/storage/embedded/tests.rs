//! One commit order, whatever writers, readers and cancellations do.

use std::{collections::BTreeMap, task::Poll};

use futures::{TryStreamExt, poll};
use informer_core::Keyed;

use super::*;
use crate::registry::Registry;

fn ty(plural: &str) -> Arc<ResourceType> {
    Registry::builtin().find("", "v1", plural).expect("a built-in type")
}

fn put(ty: &Arc<ResourceType>, name: &str, expect: Expect, content: u64) -> Txn {
    let object = format!(r#"{{"metadata":{{"name":"{name}","namespace":"a"}},"data":{{"n":"{content}"}}}}"#);
    let draft = Draft::new(&ty.schema, object.as_bytes()).expect("an object");
    Txn { ty: Arc::clone(ty), key: draft.key().to_owned(), expect, put: Some(draft) }
}

fn delete(ty: &Arc<ResourceType>, name: &str, at: u64) -> Txn {
    Txn { ty: Arc::clone(ty), key: format!("a/{name}"), expect: Expect::At(at), put: None }
}

async fn list(store: &Embedded, ty: &Arc<ResourceType>) -> (u64, Vec<Arc<Entry>>) {
    let listed = store.list(ty).await.expect("embedded storage lists");
    (listed.resource_version, listed.entries.try_collect().await.expect("embedded storage lists"))
}

/// A change as text: `+a/x@7`, `-a/x@8`, `=9`.
fn told(change: &Change) -> String {
    match change {
        Change::Put(entry) => format!("+{}@{}", entry.key(), entry.resource_version()),
        Change::Deleted { key, resource_version } => format!("-{key}@{resource_version}"),
        Change::Progress(position) => format!("={position}"),
    }
}

async fn next(changes: &mut Changes) -> String {
    told(&changes.next().await.expect("still open").expect("no error"))
}

#[tokio::test]
async fn what_is_written_is_told_in_order_and_then_listed() {
    let (store, pods, maps) = (Embedded::new(Some(10)), ty("pods"), ty("configmaps"));
    assert_eq!(list(&store, &pods).await.0, 10);
    let (from, none) = list(&store, &maps).await;
    assert!(none.is_empty());
    // Between the listing and the watch: not missed.
    let first = store.write(put(&maps, "x", Expect::Absent, 1)).await.expect("absent");
    let mut changes = store.watch(&maps, from).await.expect("just listed");
    store.write(put(&pods, "p", Expect::Absent, 1)).await.expect("absent");
    store.write(put(&maps, "x", Expect::At(first.resource_version), 2)).await.expect("as expected");
    let last = store.write(delete(&maps, "x", 13)).await.expect("as expected");
    assert_eq!((first.resource_version, last.resource_version, last.entry.resource_version()), (11, 14, 13));
    for expected in ["+a/x@11", "+a/x@13", "-a/x@14"] {
        assert_eq!(next(&mut changes).await, expected);
    }
    assert_eq!((list(&store, &maps).await.1.len(), list(&store, &pods).await.1.len()), (0, 1));
}

#[tokio::test]
async fn an_expectation_that_does_not_hold_writes_nothing() {
    let (store, maps) = (Embedded::new(Some(10)), ty("configmaps"));
    let expect = |outcome: Result<Written, WriteError>| outcome.expect_err("refused").to_string();
    assert_eq!(expect(store.write(put(&maps, "x", Expect::At(3), 1)).await), "the object does not exist");
    assert_eq!(expect(store.write(delete(&maps, "x", 3)).await), "the object does not exist");
    store.write(put(&maps, "x", Expect::Absent, 1)).await.expect("absent");
    assert_eq!(expect(store.write(put(&maps, "x", Expect::Absent, 1)).await), "the object exists");
    assert_eq!(expect(store.write(delete(&maps, "x", 3)).await), "the object is at 11");
    assert_eq!(store.progress(&maps).await.expect("embedded"), 11, "no revision was spent");
}

#[tokio::test]
async fn progress_is_told_to_who_is_behind_and_only_then() {
    let (store, pods, maps) = (Embedded::new(Some(10)), ty("pods"), ty("configmaps"));
    let from = list(&store, &maps).await.0;
    let mut changes = store.watch(&maps, from).await.expect("just listed");
    assert_eq!(store.progress(&maps).await.expect("embedded"), 10);
    store.write(put(&pods, "p", Expect::Absent, 1)).await.expect("absent");
    for _ in 0..3 {
        assert_eq!(store.progress(&maps).await.expect("embedded"), 11);
    }
    store.write(put(&maps, "x", Expect::Absent, 1)).await.expect("absent");
    assert_eq!(store.progress(&maps).await.expect("embedded"), 12);
    assert_eq!((next(&mut changes).await.as_str(), next(&mut changes).await.as_str()), ("=11", "+a/x@12"));
    assert!(poll!(changes.next()).is_pending(), "nothing is told twice");
}

#[tokio::test]
async fn progress_promised_between_listing_and_watch_is_told_to_the_watch() {
    let (store, pods, maps) = (Embedded::new(Some(10)), ty("pods"), ty("configmaps"));
    let from = list(&store, &maps).await.0;
    store.write(put(&pods, "p", Expect::Absent, 1)).await.expect("absent");
    assert_eq!(store.progress(&maps).await.expect("embedded"), 11);
    let mut changes = store.watch(&maps, from).await.expect("just listed");
    assert!(matches!(poll!(changes.next()), Poll::Ready(Some(Ok(Change::Progress(11))))), "promised");
}

#[tokio::test]
async fn a_watch_needs_the_listing_it_follows() {
    let (store, maps) = (Embedded::new(Some(10)), ty("configmaps"));
    assert!(store.watch(&maps, 10).await.is_err(), "nobody listed");
    let from = list(&store, &maps).await.0;
    assert!(store.watch(&maps, from + 1).await.is_err(), "another position");
    assert!(store.watch(&maps, from).await.is_ok());
    assert!(store.watch(&maps, from).await.is_err(), "one watch a listing");
}

/// Goal: listings that nobody follows cost nothing and stop nobody. Method: many, and more writes than a queue holds.
#[tokio::test]
async fn a_listing_that_is_not_followed_never_makes_a_write_wait() {
    let (store, maps) = (Embedded::new(Some(10)), ty("configmaps"));
    for n in 0..CHANGES_QUEUED as u64 * 2 {
        if n % 100 == 0 {
            list(&store, &maps).await;
        }
        let mut write = store.write(put(&maps, &format!("x{n}"), Expect::Absent, n));
        assert!(matches!(poll!(&mut write), Poll::Ready(Ok(_))), "write {n} waits");
    }
    let queues = store.store.lock().types["configmaps"].queues.len();
    assert!(queues <= UNCLAIMED_MAX, "{queues} queues");
    assert!(store.watch(&maps, 10).await.is_err(), "too far behind: list again");
}

/// Goal: a full queue makes writes wait, outside the lock; a reader that goes away frees them. Method: fill it.
#[tokio::test]
async fn a_slow_reader_makes_writes_of_its_type_wait_and_no_others() {
    let (store, pods, maps) = (Embedded::new(Some(10)), ty("pods"), ty("configmaps"));
    let from = list(&store, &maps).await.0;
    let mut changes = store.watch(&maps, from).await.expect("just listed");
    for n in 0..CHANGES_QUEUED {
        store.write(put(&maps, &format!("x{n}"), Expect::Absent, 1)).await.expect("absent");
    }
    let mut waits = store.write(put(&maps, "waits", Expect::Absent, 1));
    let mut dropped = store.write(put(&maps, "dropped", Expect::Absent, 1));
    assert!(poll!(&mut waits).is_pending() && poll!(&mut dropped).is_pending());
    store.write(put(&pods, "p", Expect::Absent, 1)).await.expect("other types go on");
    drop(dropped);
    assert_eq!(next(&mut changes).await, "+a/x0@11");
    waits.await.expect("there is room");
    let mut last = store.write(put(&maps, "last", Expect::Absent, 1));
    assert!(poll!(&mut last).is_pending());
    drop(changes);
    last.await.expect("nobody reads any more");
    let keys: Vec<_> = list(&store, &maps).await.1.iter().map(|entry| entry.name().to_owned()).collect();
    assert!(keys.contains(&"waits".into()) && !keys.contains(&"dropped".into()), "dropped before its commit");
}

/// The state after everything told up to `a/end`, by key and revision; asserts that it was told in order.
async fn replay(from: u64, mut changes: Changes) -> BTreeMap<String, u64> {
    let mut state = BTreeMap::new();
    let mut last = from;
    while !state.contains_key("a/end") {
        let position = match changes.next().await.expect("still open").expect("no error") {
            Change::Put(entry) => {
                let position = entry.resource_version();
                assert!(last < position, "{position} after {last}");
                state.insert(entry.key().to_owned(), position);
                position
            }
            Change::Deleted { key, resource_version } => {
                assert!(last < resource_version, "{resource_version} after {last}");
                assert!(state.remove(&key).is_some(), "deleted what was never put");
                resource_version
            }
            Change::Progress(position) => position,
        };
        assert!(last <= position, "progress goes back");
        last = position;
    }
    state
}

/// Goal: the order told is the order of revisions, without gaps, under concurrent writers of which some give up.
/// Method: real threads; replay what was told and compare it with what is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_commit_in_one_order() {
    let (store, pods, maps) = (Arc::new(Embedded::new(Some(10))), ty("pods"), ty("configmaps"));
    let from = list(&store, &maps).await.0;
    let changes = store.watch(&maps, from).await.expect("just listed");
    let reader = tokio::spawn(replay(from, changes));
    let writers = (0..8_u64).map(|writer| {
        let (store, pods, maps) = (Arc::clone(&store), Arc::clone(&pods), Arc::clone(&maps));
        tokio::spawn(async move {
            let mut rng = fastrand::Rng::with_seed(writer);
            for n in 0..500 {
                let name = format!("x{}", rng.u8(0..20));
                let now = store.store.lock().types["configmaps"].objects.get(&format!("a/{name}")).cloned();
                let ty = if rng.u8(0..5) == 0 { &pods } else { &maps };
                let txn = match now {
                    Some(now) if rng.u8(0..3) == 0 => delete(ty, &name, now.resource_version()),
                    Some(now) => put(ty, &name, Expect::At(now.resource_version()), n),
                    None => put(ty, &name, Expect::Absent, n),
                };
                let mut write = store.write(txn);
                if rng.u8(0..4) == 0 {
                    // Gives up at once: it either happened or it did not.
                    let _ = poll!(&mut write);
                } else {
                    let _ = write.await;
                }
                if rng.u8(0..10) == 0 {
                    store.progress(&maps).await.expect("embedded");
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("a writer failed");
    }
    store.write(put(&maps, "end", Expect::Absent, 1)).await.expect("absent");
    let replayed = reader.await.expect("the reader failed");
    let stored = list(&store, &maps).await.1;
    let stored: BTreeMap<_, _> =
        stored.iter().map(|entry| (entry.key().to_owned(), entry.resource_version())).collect();
    assert_eq!(replayed, stored);
}

#[test]
fn a_new_store_begins_above_an_older_one() {
    let revision = |store: &Embedded| store.store.lock().revision;
    let now = Embedded::new(None);
    assert!(1_700_000_000_u64 << 20 < revision(&now) && revision(&now) < 1 << 53, "exact in every JSON reader");
    assert_eq!(revision(&Embedded::new(Some(0))), 1);
}

/// Goal: a type that is defined otherwise has entries of that definition, whenever they were written. Method: a schema
/// with a field, then one without kind and field of the same names.
#[tokio::test]
async fn objects_follow_the_schema_they_are_listed_with() {
    let store = Embedded::new(Some(10));
    let mut registry = Registry::builtin();
    let maps = registry.find("", "v1", "configmaps").expect("a built-in type");
    drop(std::mem::take(&mut registry));
    let mut changed = Arc::try_unwrap(maps).expect("nobody else has it");
    let before = Arc::clone(&changed.schema);
    let field = watch_cache::Field { label: "data.n".into(), path: "data.n".into(), absent: String::new(), or: None };
    changed.schema = Arc::new(Schema { fields: vec![field], api_version: "v2".into(), ..Schema::clone(&before) });
    let changed = Arc::new(changed);
    let maps = ty("configmaps");
    store.write(put(&maps, "x", Expect::Absent, 1)).await.expect("absent");
    assert_eq!(list(&store, &maps).await.1[0].field(0), "");
    let found = list(&store, &changed).await.1;
    assert_eq!((found[0].field(0), found[0].resource_version()), ("1", 11));
    assert!(found[0].object().starts_with(br#"{"kind":"ConfigMap","apiVersion":"v2","#));
    // Somebody who did not hear of it yet writes all the same.
    let late = store.write(put(&maps, "y", Expect::Absent, 2)).await.expect("absent");
    assert_eq!(late.entry.field(0), "2");
}

#[tokio::test]
async fn a_reader_that_goes_takes_its_queue_along() {
    let (store, maps) = (Embedded::new(Some(10)), ty("configmaps"));
    let (from, _) = list(&store, &maps).await;
    let changes = store.watch(&maps, from).await.expect("just listed");
    assert_eq!(store.store.lock().types["configmaps"].queues.len(), 1);
    drop(changes);
    assert_eq!(store.store.lock().types["configmaps"].queues.len(), 0);
}
