//! Caches over the embedded storage: reads are as fresh as requested, and a failed change stream ends the history.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use watch_cache::{Budget, Change, Cursor, CursorStart, Draft, Entry, Filter, Limits, Reader, Slices, Step};

use super::{
    coalesced::CoalescedSource,
    embedded::EmbeddedStorage,
    faulty::{Fault, Faulty, Verb},
    hooked::{HookedStore, StoreHook},
    *,
};
use crate::{
    cacher::{CacheNotReady, Caches, FreshnessError},
    registry::{Definition, Registry, ResourceType},
    stored::removal::{DeleteContext, DeleteError, delete_listed},
};

fn ty(plural: &str) -> Arc<ResourceType> {
    Registry::builtin().find("", "v1", plural).expect("a built-in type")
}

fn draft(ty: &ResourceType, name: &str) -> Draft {
    let object = format!(r#"{{"metadata":{{"name":"{name}","namespace":"a"}}}}"#);
    Draft::new(&ty.schema, object.as_bytes()).expect("an object")
}

async fn create(storage: &dyn Store, ty: &Arc<ResourceType>, name: &str) -> u64 {
    let draft = draft(ty, name);
    let txn =
        Txn { ty: Arc::clone(ty), key: draft.key().to_owned(), expect: Expect::Absent, put: Some(draft), cause: None };
    storage.write(txn).await.expect("absent").resource_version
}

fn embedded() -> (Arc<dyn Store>, Caches) {
    let storage: Arc<dyn Store> = Arc::new(EmbeddedStorage::new(Some(100)));
    let caches = Caches::new(storage.clone(), Limits::default());
    (storage, caches)
}

/// Steps until slices were sent or the cursor is over.
async fn step(cursor: &mut Cursor) -> (usize, Step) {
    let mut out = Slices::new();
    let step = poll_fn(|cx| match cursor.step(Budget { slices: 64, bytes: 16 << 10 }, &mut out, Some(cx)) {
        Step::Wait => Poll::Pending,
        step @ (Step::Sent | Step::InitialDone(_) | Step::Expired(_) | Step::EpochEnded) => Poll::Ready(step),
    });
    let step = step.await;
    (out.iter().map(|slice| slice.iter().filter(|&&byte| byte == b'\n').count()).sum(), step)
}

#[tokio::test(start_paused = true)]
async fn a_fresh_read_contains_every_acknowledged_write() {
    let (storage, caches) = embedded();
    let (pods, maps) = (ty("pods"), ty("configmaps"));
    for n in 0..50 {
        let written = create(&*storage, if n % 3 == 0 { &maps } else { &pods }, &format!("x{n}")).await;
        for ty in [&pods, &maps] {
            let snapshot = caches.fresh(ty).await.expect("embedded storage is quick").snapshot();
            assert_eq!(snapshot.resource_version, written, "quiet types advance as well");
            assert_eq!(snapshot.objects.get(&format!("a/x{n}")).is_some(), (n % 3 == 0) == (ty.id() == "configmaps"));
        }
    }
    assert_eq!(
        caches.stats().iter().map(|(id, stats)| (id.as_str(), stats.epochs)).collect::<Vec<_>>(),
        [("configmaps", 1), ("pods", 1)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_position_ahead_is_waited_for_and_then_refused() {
    let (storage, caches) = embedded();
    let (pods, maps) = (ty("pods"), ty("configmaps"));
    let before = Instant::now();
    let refused = caches.at_least(&pods, 105).await.expect_err("nobody writes");
    assert!(matches!(refused, FreshnessError::TooLarge { requested: 105, current: 100 }), "{refused}");
    assert_eq!(before.elapsed().as_millis(), 3_000);
    let waits = caches.at_least(&pods, 103);
    let writes = async {
        for n in 0..3 {
            sleep(Duration::from_millis(500)).await;
            // Writes of another type advance the position as well.
            create(&*storage, &maps, &format!("x{n}")).await;
        }
    };
    let (reader, ()) = futures::join!(waits, writes);
    assert_eq!(reader.expect("reached in time").applied(), 103);
}

#[tokio::test]
async fn watchers_are_woken_and_end_with_the_server() {
    let (storage, caches) = embedded();
    let pods = ty("pods");
    let reader = caches.reader(&pods).await.expect("listed");
    let seen = Arc::new(AtomicUsize::new(0));
    let watch = |_| {
        let mut cursor = reader.cursor(CursorStart::After(reader.applied()), Filter::all()).expect("at the head");
        let seen = Arc::clone(&seen);
        tokio::spawn(async move {
            loop {
                let (lines, step) = step(&mut cursor).await;
                seen.fetch_add(lines, Ordering::Relaxed);
                match step {
                    Step::Sent => {}
                    Step::EpochEnded => return,
                    Step::InitialDone(_) | Step::Wait | Step::Expired(_) => panic!("{step:?}"),
                }
            }
        })
    };
    let watchers: Vec<_> = (0..100).map(watch).collect();
    for n in 0..500 {
        create(&*storage, &pods, &format!("x{n}")).await;
    }
    // A lost wake-up would hang here.
    while seen.load(Ordering::Relaxed) < 100 * 500 {
        tokio::task::yield_now().await;
    }
    caches.shut_down();
    for watcher in watchers {
        watcher.await.expect("a watcher failed");
    }
    assert_eq!(seen.load(Ordering::Relaxed), 100 * 500, "nothing twice");
    assert!(caches.reader(&pods).await.is_ok(), "what is there can still be read");
    assert!(caches.reader(&ty("nodes")).await.is_err_and(|refused| is_not_ready(&refused, true)), "nothing new starts");
}

/// A storage that follows a script: each listing takes the next history.
struct Scripted {
    histories: Mutex<VecDeque<History>>,
    listed: AtomicUsize,
}

struct History {
    listed: Result<(u64, Vec<Arc<Entry>>), SourceError>,
    /// The changes; after `None` the stream stays open.
    changes: Vec<Option<Result<Change, SourceError>>>,
}

impl Source for Scripted {
    fn follow(
        &self,
        _: &Arc<ResourceType>,
        from: FollowFrom,
        _: Reader,
    ) -> BoxFuture<'_, Result<Updates, SourceError>> {
        if let FollowFrom::After(after) = from {
            return std::future::ready(Err(SourceError::Compacted { after })).boxed();
        }
        self.listed.fetch_add(1, Ordering::Relaxed);
        let Some(History { listed, changes }) = self.histories.lock().pop_front() else {
            return std::future::pending().boxed();
        };
        let followed = listed.map(|(resource_version, entries)| {
            let entries = stream::iter(entries.into_iter().map(Ok)).boxed();
            let changes = stream::iter(changes).then(|change| async {
                match change {
                    Some(change) => change,
                    None => std::future::pending().await,
                }
            });
            let listed = ListSnapshot { resource_version, entries };
            ListAndWatch { listed, changes: changes.boxed() }.into_updates()
        });
        std::future::ready(followed).boxed()
    }

    fn current(&self, _: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>> {
        std::future::ready(Ok(30)).boxed()
    }
}

impl Store for Scripted {
    fn list(&self, _: &Arc<ResourceType>) -> BoxFuture<'_, Result<ListSnapshot, SourceError>> {
        std::future::pending().boxed()
    }

    fn write(&self, _: Txn) -> BoxFuture<'_, Result<WriteResult, WriteError>> {
        std::future::pending().boxed()
    }
}

fn scripted(histories: Vec<History>) -> (Arc<Scripted>, Caches) {
    let storage = Arc::new(Scripted { histories: Mutex::new(histories.into()), listed: AtomicUsize::new(0) });
    let caches = Caches::new(storage.clone(), Limits::default());
    (storage, caches)
}

fn entry(name: &str, at: u64) -> Arc<Entry> {
    draft(&ty("pods"), name).commit(at)
}

fn unavailable<T>() -> Result<T, SourceError> {
    Err(SourceError::Unavailable("gone".to_owned()))
}

/// Goal: whatever ends the changes, the cache relists and never shows a difference as an event. Method: a script.
#[tokio::test(start_paused = true)]
async fn a_storage_that_loses_the_thread_is_listed_again() {
    let ends: [Vec<Option<Result<Change, SourceError>>>; 3] =
        [vec![Some(unavailable())], vec![], vec![Some(Ok(Change::Put(entry("late", 9))))]];
    for end in ends {
        let first = History { listed: Ok((10, vec![entry("a", 5), entry("b", 6)])), changes: end };
        let failed = History { listed: unavailable(), changes: vec![] };
        let then = vec![Some(Ok(Change::Put(entry("a", 30)))), None];
        let second = History { listed: Ok((20, vec![entry("a", 7)])), changes: then };
        let (storage, caches) = scripted(vec![first, failed, second]);
        let reader = caches.reader(&ty("pods")).await.expect("listed");
        let mut watcher = reader.cursor(CursorStart::Initial(reader.snapshot()), Filter::all()).expect("now");
        let snapshot = caches.fresh(&ty("pods")).await.expect("the second history reaches 30").snapshot();
        assert_eq!((snapshot.epoch, snapshot.objects.len(), storage.listed.load(Ordering::Relaxed)), (2, 1, 3));
        assert_eq!(step(&mut watcher).await, (0, Step::EpochEnded));
        assert!(reader.cursor(CursorStart::After(19), Filter::all()).is_err(), "below the new history");
        let mut resumed = reader.cursor(CursorStart::After(20), Filter::all()).expect("where it began");
        assert_eq!(step(&mut resumed).await, (1, Step::Sent));
    }
}

fn is_not_ready(error: &FreshnessError, is_stopped: bool) -> bool {
    matches!(error, FreshnessError::NotReady(CacheNotReady { stopped, .. }) if *stopped == is_stopped)
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_cannot_list_is_not_ready() {
    let (_storage, caches) = scripted(vec![]);
    let before = Instant::now();
    let pods = ty("pods");
    let refused = caches.reader(&pods).await.expect_err("never listed");
    assert!(is_not_ready(&refused, false), "{refused}");
    assert_eq!(before.elapsed().as_millis(), 3_000);
    let again = caches.fresh(&pods).await.expect_err("never listed");
    assert!(matches!(again, FreshnessError::NotReady(CacheNotReady { since, .. }) if since.as_secs() == 6), "{again}");
}

#[tokio::test(start_paused = true)]
async fn a_fresh_read_that_cannot_be_had_says_how_far_we_are() {
    let history = History { listed: Ok((10, vec![])), changes: vec![Some(Ok(Change::Progress(12))), None] };
    let (_storage, caches) = scripted(vec![history]);
    let refused = caches.fresh(&ty("pods")).await.expect_err("30 is never reached");
    assert!(matches!(refused, FreshnessError::TooLarge { requested: 30, current: 12 }), "{refused}");
}

/// A change stream that panics once at each object called `defect`.
struct DefectiveStream {
    panics: Arc<AtomicUsize>,
}

impl StoreHook for DefectiveStream {
    fn follow<'a>(
        &'a self,
        inner: &'a EmbeddedStorage,
        ty: &Arc<ResourceType>,
        from: FollowFrom,
        cache: Reader,
    ) -> BoxFuture<'a, Result<Updates, SourceError>> {
        let (followed, panics) = (inner.follow(ty, from, cache), Arc::clone(&self.panics));
        async move {
            let updates = followed.await?.inspect(move |update| {
                if let Ok(Update::Put(SourceRecord::Entry(entry))) = update
                    && entry.name() == "defect"
                {
                    panics.fetch_add(1, Ordering::Relaxed);
                    panic!("as a defect would");
                }
            });
            Ok(updates.boxed())
        }
        .boxed()
    }
}

/// Goal: a defect in one task costs only the open watches of its type. Method: a change whose task panics; reads,
/// watches and consistent reads of that type and of another one before, while it is down, and after.
#[tokio::test(start_paused = true)]
async fn a_type_whose_task_panicked_starts_again() {
    let panics = Arc::<AtomicUsize>::default();
    let storage: Arc<dyn Store> = Arc::new(HookedStore::by(DefectiveStream { panics: Arc::clone(&panics) }));
    let caches = Caches::new(storage.clone(), Limits::default());
    let (pods, maps) = (ty("pods"), ty("configmaps"));
    for round in 1..=3_usize {
        create(&*storage, &pods, &format!("x{round}")).await;
        let reader = caches.fresh(&pods).await.expect("it started again").clone();
        caches.fresh(&maps).await.expect("another type");
        assert_eq!(caches.down(), []);
        let mut watcher = reader.cursor(CursorStart::After(reader.applied()), Filter::all()).expect("at the head");
        let defect = create(&*storage, &pods, "defect").await;
        assert_eq!(step(&mut watcher).await, (0, Step::EpochEnded));
        assert!(watcher.is_closed(), "its client may come back at once");
        tokio::task::yield_now().await;
        let down: Vec<_> = caches.down().into_iter().map(|down| down.resource).collect();
        assert_eq!((down, panics.load(Ordering::Relaxed)), (vec!["pods".to_owned()], round));
        caches.fresh(&maps).await.expect("another type is not concerned");
        let snapshot = caches.reader(&pods).await.expect("within three seconds").snapshot();
        assert_eq!((snapshot.objects.len(), snapshot.resource_version), (round + 1, defect));
        let gone = Txn {
            ty: Arc::clone(&pods),
            key: "a/defect".to_owned(),
            expect: Expect::At(defect),
            put: None,
            cause: None,
        };
        storage.write(gone).await.expect("as expected");
    }
    caches.shut_down();
    assert!(caches.reader(&pods).await.is_ok(), "what is there can still be read");
}

/// Goal: a request that was routed before its definition was deleted starts no cache. Method: a type that is defined,
/// redefined and deleted, with and without a cache at that time.
#[tokio::test(start_paused = true)]
async fn a_type_whose_definition_is_gone_gets_no_cache() {
    let (_, caches) = embedded();
    let object = serde_json::json!({"metadata": {"name": "widgets.example.com", "uid": "w"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget", "singular": "widget",
        "listKind": "WidgetList"}, "versions": [{"name": "v1", "served": true, "storage": true}]}});
    let definition = Definition::read(object.as_object().expect("an object")).expect("a definition");
    let schema = Arc::new(definition.schema());
    let defined = |at| definition.types(&schema, at).remove(0);
    let registry = |types: &[&Arc<ResourceType>]| Registry::builtin().changed([], types.iter().copied());
    for (at, is_cached) in [(10, true), (30, false)] {
        let (first, second) = (defined(at), defined(at + 10));
        caches.retain(&registry(&[&first]));
        if is_cached {
            caches.reader(&first).await.expect("defined");
        }
        caches.retain(&registry(&[&second]));
        assert!(
            caches.reader(&first).await.is_err_and(|refused| is_not_ready(&refused, false)),
            "it would be read wrongly"
        );
        caches.reader(&second).await.expect("defined");
        caches.retain(&registry(&[]));
        assert!(caches.reader(&second).await.is_err(), "nobody would ever end it");
        assert!(caches.stats().is_empty());
    }
    assert!(caches.reader(&defined(50)).await.is_ok(), "a definition that is not in effect yet");
}

/// Goal: an unused cache ends, and no other one does. Method: a watched type, one that is read, one that is
/// neither, and the definitions, before and after the idle time; the ended one is read again.
#[tokio::test(start_paused = true)]
async fn an_idle_cache_ends_and_starts_again() {
    let (storage, caches) = embedded();
    let registry = Registry::builtin();
    let definitions = registry.iter().find(|ty| ty.defines_types).expect("a built-in type");
    let [watched, read, idle] = ["pods", "services", "configmaps"].map(ty);
    for ty in [&watched, &read, &idle, definitions] {
        caches.reader(ty).await.expect("listed");
    }
    let reader = caches.reader(&watched).await.expect("listed");
    let cursor = reader.cursor(CursorStart::After(reader.applied()), Filter::all()).expect("at the head");
    let limit = Duration::from_secs(600);
    tokio::time::advance(limit - Duration::from_secs(1)).await;
    caches.reader(&read).await.expect("listed");
    caches.expire(&registry, limit);
    let running = |caches: &Caches| caches.stats().into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!(running(&caches).len(), 4, "not yet");
    tokio::time::advance(Duration::from_secs(1)).await;
    caches.expire(&registry, limit);
    assert_eq!(running(&caches), ["customresourcedefinitions.apiextensions.k8s.io", "pods", "services"]);
    assert!(!cursor.is_closed());
    let written = create(&*storage, &idle, "x").await;
    let snapshot = caches.fresh(&idle).await.expect("it starts again").snapshot();
    assert_eq!((snapshot.resource_version, snapshot.objects.len()), (written, 1));
}

/// A waker that panics.
struct Broken;

impl std::task::Wake for Broken {
    fn wake(self: Arc<Self>) {
        panic!("as a defect would")
    }
}

/// Goal: watchers are woken even after the waking task panicked. Method: a waker that panics, before and after others
/// in one round.
#[tokio::test(start_paused = true)]
async fn a_type_whose_waking_task_panicked_starts_again() {
    let (storage, caches) = embedded();
    let pods = ty("pods");
    let reader = caches.reader(&pods).await.expect("listed");
    let open = || reader.cursor(CursorStart::After(reader.applied()), Filter::all()).expect("at the head");
    let watch = |mut cursor: Cursor| {
        tokio::spawn(async move {
            while step(&mut cursor).await.1 == Step::Sent {}
            cursor.is_closed()
        })
    };
    let before = watch(open());
    tokio::task::yield_now().await;
    let mut broken = open();
    let waker = std::task::Waker::from(Arc::new(Broken));
    let mut cx = std::task::Context::from_waker(&waker);
    assert_eq!(broken.step(Budget { slices: 64, bytes: 16 << 10 }, &mut Slices::new(), Some(&mut cx)), Step::Wait);
    let behind = watch(open());
    tokio::task::yield_now().await;
    create(&*storage, &pods, "x").await;
    for watcher in [before, behind] {
        assert!(watcher.await.expect("no panic"), "its client may come back at once");
    }
    assert_eq!(caches.reader(&pods).await.expect("it started again").snapshot().objects.len(), 1);
    assert_eq!(caches.down(), []);
}

/// Goal: a read that may be stale says how old its confirmation is, and contains what was committed that long before it.
/// Method: an embedded store whose questions are counted, in paused time.
#[tokio::test(start_paused = true)]
async fn reads_that_may_be_stale_share_a_confirmation() {
    let questions = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&questions);
    let storage = Faulty::new(move |_, verb, _| {
        if verb == Verb::Current {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        Fault::None
    });
    let source = CoalescedSource::new(Arc::clone(&storage));
    let caches = Caches::new(source, Limits::default()).at_most_stale(Duration::from_secs(5));
    let pods = ty("pods");
    assert_eq!(caches.recent(&pods).await.expect("listed").1, None, "the first one asks");
    create(&*storage, &pods, "a").await;
    sleep(Duration::from_millis(4_999)).await;
    let (reader, age) = caches.recent(&pods).await.expect("listed");
    assert_eq!((age, questions.load(Ordering::Relaxed)), (Some(Duration::from_millis(4_999)), 1));
    assert_eq!(reader.snapshot().objects.len(), 1, "the cache follows changes all the same");
    sleep(Duration::from_millis(1)).await;
    let (_, age) = caches.recent(&pods).await.expect("listed");
    assert_eq!((age, questions.load(Ordering::Relaxed)), (None, 2));
    caches.fresh(&pods).await.expect("listed");
    assert_eq!(questions.load(Ordering::Relaxed), 3, "reads of the server itself are always confirmed");
}

/// Goal: a failed question is not kept for later readers. Method: a store whose first answer is an error.
#[tokio::test(start_paused = true)]
async fn a_failure_serves_no_later_reader() {
    let storage = Faulty::new(|call, verb, _| match verb {
        Verb::Current if call == 0 => Fault::Fails,
        Verb::Current | Verb::List | Verb::Follow | Verb::Write => Fault::None,
    });
    let source = CoalescedSource::new(storage);
    let pods = ty("pods");
    assert!(source.recently_confirmed(&pods, Duration::from_secs(5)).await.is_err());
    assert!(source.recently_confirmed(&pods, Duration::from_secs(5)).await.is_ok());
}

/// A storage in which another write always comes first.
struct LostWrites;

impl StoreHook for LostWrites {
    fn write<'a>(&'a self, inner: &'a EmbeddedStorage, txn: Txn) -> BoxFuture<'a, Result<WriteResult, WriteError>> {
        if matches!(txn.expect, Expect::At(_)) {
            return async { Err(WriteError::Exists) }.boxed();
        }
        inner.write(txn)
    }
}

/// Goal: an object that could not be removed does not count as removed, or its namespace would go before it.
/// Method: a delete that loses every attempt.
#[tokio::test]
async fn an_object_that_others_keep_writing_does_not_count_as_removed() {
    let storage: Arc<dyn Store> = Arc::new(HookedStore::by(LostWrites));
    let caches = Caches::new(storage.clone(), Limits::default());
    let maps = ty("configmaps");
    create(&*storage, &maps, "m").await;
    let entry = caches.fresh(&maps).await.expect("a cache").get("a/m").expect("the config map");
    let deleted =
        delete_listed(DeleteContext { caches: &caches, storage: &*storage, cause: None }, &maps, &entry).await;
    assert!(matches!(deleted, Err(DeleteError::Modified)), "{deleted:?}");
}
