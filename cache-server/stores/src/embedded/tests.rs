//! One commit order under concurrent writers, readers and cancellations.

use std::collections::BTreeMap;

use futures::{TryStreamExt, poll, stream::BoxStream};
use informer_core::KeyedObject;
use watch_cache::{Draft, Schema};

use super::*;
use crate::{registry::Registry, storage::Expect};

fn ty(plural: &str) -> Arc<ResourceType> {
    Registry::builtin().find("", "v1", plural).expect("a built-in type")
}

fn put(ty: &Arc<ResourceType>, name: &str, expect: Expect, content: u64) -> Txn {
    let object = format!(r#"{{"metadata":{{"name":"{name}","namespace":"a"}},"data":{{"n":"{content}"}}}}"#);
    let draft = Draft::new(&ty.schema, object.as_bytes()).expect("an object");
    Txn { ty: Arc::clone(ty), key: draft.key().to_owned(), expect, put: Some(draft), cause: None }
}

fn delete(ty: &Arc<ResourceType>, name: &str, at: u64) -> Txn {
    Txn { ty: Arc::clone(ty), key: format!("a/{name}"), expect: Expect::At(at), put: None, cause: None }
}

async fn list(store: &EmbeddedStorage, ty: &Arc<ResourceType>) -> (u64, Vec<Arc<Entry>>) {
    let listed = store.list(ty).await.expect("embedded storage lists");
    (listed.resource_version, listed.entries.try_collect().await.expect("embedded storage lists"))
}

async fn follow(
    store: &EmbeddedStorage,
    ty: &Arc<ResourceType>,
) -> (u64, Vec<Arc<Entry>>, BoxStream<'static, Result<Change, SourceError>>) {
    let ListAndWatch { listed, changes } = store.list_and_watch(ty).await.expect("embedded storage is followed");
    (listed.resource_version, listed.entries.try_collect().await.expect("embedded storage lists"), changes)
}

/// Returns a version of `maps` that was defined at `defined_at`, with a selectable field.
fn redefined(api_version: &str, defined_at: u64) -> Arc<ResourceType> {
    let mut registry = Registry::builtin();
    let maps = registry.find("", "v1", "configmaps").expect("a built-in type");
    drop(std::mem::take(&mut registry));
    let mut changed = Arc::try_unwrap(maps).expect("nobody else has it");
    let field = watch_cache::Field { label: "data.n".into(), path: "data.n".into(), absent: String::new(), or: None };
    let before = Schema::clone(&changed.schema);
    changed.schema = Arc::new(Schema { fields: vec![field], api_version: api_version.into(), ..before });
    changed.defined_at = defined_at;
    Arc::new(changed)
}

/// Formats a change: `+a/x@7`, `-a/x@8`, `=9`.
fn describe(change: &Change) -> String {
    match change {
        Change::Put(entry) => format!("+{}@{}", entry.key(), entry.resource_version()),
        Change::Deleted { key, resource_version } => format!("-{key}@{resource_version}"),
        Change::Progress(position) => format!("={position}"),
    }
}

async fn next(changes: &mut BoxStream<'static, Result<Change, SourceError>>) -> String {
    describe(&changes.next().await.expect("still open").expect("no error"))
}

#[tokio::test]
async fn what_is_written_is_told_in_order_and_then_listed() {
    let (store, pods, maps) = (EmbeddedStorage::new(Some(10)), ty("pods"), ty("configmaps"));
    assert_eq!(list(&store, &pods).await.0, 10);
    let (_, none, mut changes) = follow(&store, &maps).await;
    assert!(none.is_empty());
    let first = store.write(put(&maps, "x", Expect::Absent, 1)).await.expect("absent");
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
    let (store, maps) = (EmbeddedStorage::new(Some(10)), ty("configmaps"));
    let expect = |outcome: Result<WriteResult, WriteError>| outcome.expect_err("refused").to_string();
    assert_eq!(expect(store.write(put(&maps, "x", Expect::At(3), 1)).await), "the object does not exist");
    assert_eq!(expect(store.write(delete(&maps, "x", 3)).await), "the object does not exist");
    store.write(put(&maps, "x", Expect::Absent, 1)).await.expect("absent");
    assert_eq!(expect(store.write(put(&maps, "x", Expect::Absent, 1)).await), "the object exists");
    assert_eq!(expect(store.write(delete(&maps, "x", 3)).await), "the object is at 11");
    assert_eq!(store.current(&maps).await.expect("embedded"), 11, "no revision was spent");
}

#[tokio::test]
async fn progress_is_told_to_who_is_behind_and_only_then() {
    let (store, pods, maps) = (EmbeddedStorage::new(Some(10)), ty("pods"), ty("configmaps"));
    let (.., mut changes) = follow(&store, &maps).await;
    assert_eq!(store.current(&maps).await.expect("embedded"), 10);
    store.write(put(&pods, "p", Expect::Absent, 1)).await.expect("absent");
    for _ in 0..3 {
        assert_eq!(store.current(&maps).await.expect("embedded"), 11);
    }
    store.write(put(&maps, "x", Expect::Absent, 1)).await.expect("absent");
    assert_eq!(store.current(&maps).await.expect("embedded"), 12);
    assert_eq!((next(&mut changes).await.as_str(), next(&mut changes).await.as_str()), ("=11", "+a/x@12"));
    assert!(poll!(changes.next()).is_pending(), "nothing is describe twice");
}

/// Goal: a listing without a reader keeps no object alive. Method: list, replace an object twice, and check that its
/// versions are freed; then do this for dropped changes.
#[tokio::test]
async fn a_listing_that_is_not_followed_keeps_nothing() {
    let (store, maps) = (EmbeddedStorage::new(Some(10)), ty("configmaps"));
    let first = store.write(put(&maps, "x", Expect::Absent, 1)).await.expect("absent");
    drop(list(&store, &maps).await);
    let second = store.write(put(&maps, "x", Expect::At(first.resource_version), 2)).await.expect("as expected");
    let (.., changes) = follow(&store, &maps).await;
    let third = store.write(put(&maps, "x", Expect::At(second.resource_version), 3)).await.expect("as expected");
    let versions = [first, second, third].map(|written| Arc::downgrade(&written.entry));
    let alive = || versions.iter().filter(|entry| entry.upgrade().is_some()).count();
    assert_eq!(alive(), 1, "only the object itself: nobody holds what it was");
    store.write(put(&maps, "x", Expect::At(13), 4)).await.expect("as expected");
    assert_eq!(alive(), 1, "on its way to who follows");
    drop(changes);
    assert_eq!(alive(), 0);
}

/// Goal: types that come and go leave no memory behind. Method: writes, refused writes, listings, readers dropped
/// before or after the last object, and progress requests, each for a type of its own.
#[tokio::test]
async fn a_type_without_objects_and_readers_leaves_nothing_behind() {
    let (store, maps) = (EmbeddedStorage::new(Some(10)), ty("configmaps"));
    let types = || store.store.lock().types.len();
    let (.., changes) = follow(&store, &maps).await;
    let written = store.write(put(&maps, "x", Expect::Absent, 1)).await.expect("absent");
    drop(changes);
    assert_eq!(types(), 1, "an object");
    store.write(delete(&maps, "x", written.resource_version)).await.expect("as expected");
    assert_eq!(types(), 0);
    let (.., changes) = follow(&store, &maps).await;
    assert_eq!(types(), 1, "a reader");
    drop(changes);
    store.write(delete(&maps, "x", 3)).await.expect_err("not there");
    store.current(&maps).await.expect("embedded");
    list(&store, &maps).await;
    assert_eq!(types(), 0);
}

/// Goal: capacity reserved before a type was removed and added again is not used for its new queues. Method: reserve,
/// drop everything, follow again, commit.
#[tokio::test]
async fn a_type_that_comes_back_misses_no_write() {
    let (store, maps) = (EmbeddedStorage::new(Some(10)), ty("configmaps"));
    let (.., first) = follow(&store, &maps).await;
    let room = store.reserve("configmaps").await;
    drop(first);
    let (.., mut changes) = follow(&store, &maps).await;
    assert!(store.commit(&mut put(&maps, "x", Expect::Absent, 1), room).is_err(), "other queues");
    store.write(put(&maps, "x", Expect::Absent, 1)).await.expect("absent");
    assert_eq!(next(&mut changes).await, "+a/x@11");
}

/// Goal: a full queue makes writes wait outside the lock, and dropping its reader unblocks them. Method: fill it.
#[tokio::test]
async fn a_slow_reader_makes_writes_of_its_type_wait_and_no_others() {
    let (store, pods, maps) = (EmbeddedStorage::new(Some(10)), ty("pods"), ty("configmaps"));
    let (.., mut changes) = follow(&store, &maps).await;
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

/// Replays all changes up to `a/end` into a state by key and revision; asserts that they arrive in order.
async fn replay(from: u64, mut changes: BoxStream<'static, Result<Change, SourceError>>) -> BTreeMap<String, u64> {
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

/// Goal: changes arrive in the order of revisions, without gaps, under concurrent writers some of which cancel.
/// Method: real threads; replay the changes and compare the result with the stored state.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_commit_in_one_order() {
    let (store, pods, maps) = (Arc::new(EmbeddedStorage::new(Some(10))), ty("pods"), ty("configmaps"));
    let (from, _, changes) = follow(&store, &maps).await;
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
                    // Cancelled after one poll: the write either happened or did not.
                    let _ = poll!(&mut write);
                } else {
                    let _ = write.await;
                }
                if rng.u8(0..10) == 0 {
                    store.current(&maps).await.expect("embedded");
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

/// Goal: no position of one store is valid in another, whatever their start times, and every position fits signed
/// 64-bit numbers. Method: starts a millisecond apart with an earlier store that writes without a pause, starts at
/// equal times, and clocks that never ran or are far ahead.
#[test]
fn positions_of_different_stores_are_different() {
    let start = |milliseconds| first_revision(Duration::from_millis(milliseconds));
    let now = 1_800_000_000_000;
    for _ in 0..1_000 {
        let (one, next) = (start(now), start(now + 1));
        assert!(one + 100_000 < next, "far above, though a revision was written every 10 ns");
    }
    let at_once: std::collections::BTreeSet<u64> = (0..6).map(|_| start(now)).collect();
    assert!(at_once.len() >= 5, "random: {at_once:?}");
    for (milliseconds, above) in [(0, 0), (now, 1 << 60), (4_102_444_800_000, 1 << 61), (u64::MAX, 1 << 62)] {
        assert!((above..1 << 63).contains(&start(milliseconds)), "{milliseconds}");
    }
    let revision = |store: &EmbeddedStorage| store.store.lock().revision;
    assert!(1_800_000_000_u64 << 20 < revision(&EmbeddedStorage::new(None)), "above stores that counted seconds");
    assert_eq!(revision(&EmbeddedStorage::new(Some(0))), 1);
}

/// Goal: a redefined type has entries of its new definition, whenever they were written. Method: a schema with a
/// field, and a writer that uses the old one.
#[tokio::test]
async fn objects_follow_the_schema_they_are_followed_with() {
    let store = EmbeddedStorage::new(Some(10));
    let (maps, changed) = (ty("configmaps"), redefined("v2", 0));
    for n in 0..200 {
        store.write(put(&maps, &format!("x{n}"), Expect::Absent, 1)).await.expect("absent");
    }
    assert_eq!(follow(&store, &maps).await.1[0].field(0), "");
    let found = follow(&store, &changed).await.1;
    assert_eq!((found.len(), found[0].field(0), found[0].resource_version()), (200, "1", 11));
    assert!(found.iter().all(|entry| entry.object().starts_with(br#"{"kind":"ConfigMap","apiVersion":"v2","#)));
    let late = store.write(put(&maps, "y", Expect::Absent, 2)).await.expect("absent");
    assert_eq!(late.entry.field(0), "2");
}

#[tokio::test]
async fn an_outdated_definition_changes_no_object() {
    let (store, maps) = (EmbeddedStorage::new(Some(10)), ty("configmaps"));
    let (newer, older) = (redefined("v3", 30), redefined("v2", 20));
    store.write(put(&maps, "x", Expect::Absent, 1)).await.expect("absent");
    for ty in [&newer, &older] {
        let found = follow(&store, ty).await.1;
        assert!(found[0].object().starts_with(br#"{"kind":"ConfigMap","apiVersion":"v3","#));
    }
}

/// Goal: no request waits while many objects are recast. Method: a schema change of 30,000 objects on one thread,
/// while another thread writes and requests progress of another type, and writes the type itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_change_holds_nobody_up() {
    let (store, pods, maps) = (Arc::new(EmbeddedStorage::new(Some(10))), ty("pods"), ty("configmaps"));
    for n in 0..30_000 {
        store.write(put(&maps, &format!("x{n}"), Expect::Absent, n)).await.expect("absent");
    }
    let changed = redefined("v2", 20);
    let following = tokio::spawn({
        let store = Arc::clone(&store);
        async move { follow(&store, &changed).await.1 }
    });
    let mut written = 0;
    while !following.is_finished() {
        store.current(&pods).await.expect("embedded");
        store.write(put(&maps, &format!("y{written}"), Expect::Absent, 1)).await.expect("absent");
        written += 1;
        tokio::task::yield_now().await;
    }
    let found = following.await.expect("no panic");
    assert!(100 < written, "{written} writes while 30,000 objects were read");
    assert!(found.iter().all(|entry| entry.object().starts_with(br#"{"kind":"ConfigMap","apiVersion":"v2","#)));
}

#[tokio::test]
async fn a_reader_that_goes_takes_its_queue_along() {
    let (store, maps) = (EmbeddedStorage::new(Some(10)), ty("configmaps"));
    store.write(put(&maps, "x", Expect::Absent, 1)).await.expect("absent");
    let (.., changes) = follow(&store, &maps).await;
    assert_eq!(store.store.lock().types["configmaps"].queues.len(), 1);
    drop(changes);
    assert_eq!(store.store.lock().types["configmaps"].queues.len(), 0);
}
