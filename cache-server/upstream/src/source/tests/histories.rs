//! Histories that went back, or are another cluster's: never read as current, and healed without a reader.

use std::sync::atomic::{AtomicUsize, Ordering};

use informer::testing::RequestKind;
use tokio::time::Instant;
use watch_cache::{CursorStart, Filter};

use super::{comparison::RESTARTS_MAX, reads::COMPARED_PAGE, *};

/// Virtual time until a cache has the state of another history.
const HEALED_WITHIN: Duration = Duration::from_secs(10);

/// Outage that is long enough for a restore.
const OUTAGE: Duration = Duration::from_secs(30);

fn source(api: &FakeApiServer) -> Arc<UpstreamSource> {
    Arc::new(UpstreamSource::new(vec![api.client()], Peers::new(Vec::new()), HashMap::new()))
}

/// An API server with this number of ConfigMaps, and caches of it.
async fn scene(objects: usize) -> (FakeApiServer, Caches) {
    let api = FakeApiServer::new().at(100).bookmarks_every(Duration::from_secs(1));
    (0..objects).for_each(|number| drop(api.put(map(&format!("m{number}"), 0))));
    let caches = Caches::new(CoalescedSource::new(source(&api)), Limits::default());
    filled(&caches).await;
    (api, caches)
}

/// A client of an address at which one server answers, and the other one once the number is 1.
fn turning(servers: [&FakeApiServer; 2]) -> (kube::Client, Arc<AtomicUsize>) {
    let (servers, turned) = (servers.map(FakeApiServer::clone), Arc::new(AtomicUsize::new(0)));
    let at = Arc::clone(&turned);
    let answering = move |request: http::Request<kube::client::Body>| {
        let server = servers[at.load(Ordering::SeqCst)].clone();
        async move { server.respond(request).await }
    };
    (kube::Client::new(tower::service_fn(answering), "default"), turned)
}

/// When each page was begun and answered.
type PageTimes = Arc<Mutex<Vec<(Instant, Instant)>>>;

/// A client of an API server that takes some time for each page of a comparison.
fn paging(api: &FakeApiServer, time: Duration) -> (kube::Client, PageTimes) {
    let pages = PageTimes::default();
    let (server, read) = (api.clone(), Arc::clone(&pages));
    let answering = move |request: http::Request<kube::client::Body>| {
        let (server, read) = (server.clone(), Arc::clone(&read));
        let is_page = request.uri().query().is_some_and(|query| query.contains(&format!("limit={COMPARED_PAGE}")));
        async move {
            let begun = Instant::now();
            if is_page {
                sleep(time).await;
            }
            let answer = server.respond(request).await;
            if is_page {
                read.lock().push((begun, Instant::now()));
            }
            answer
        }
    };
    (kube::Client::new(tower::service_fn(answering), "default"), pages)
}

/// Reads consistently until it succeeds, and asserts that no read returns another state. Returns the time that this takes.
async fn assert_no_old_read(caches: &Caches, api: &FakeApiServer, case: &str) -> Duration {
    let (begun, expected) = (Instant::now(), listed(api).await);
    let reading = async {
        loop {
            if let Ok(reader) = caches.fresh(&maps()).await {
                assert_eq!(cached(&reader), expected, "{case}, after {:?}", begun.elapsed());
                return begun.elapsed();
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, reading).await.unwrap_or_else(|_| panic!("{case}: no read succeeds"))
}

/// Goal: a position of the API server below the cache's is another history, at once. Method: a small and a large type; the
/// API server goes back while the stream is open, with and without an end of it; consistent reads meanwhile.
#[tokio::test(start_paused = true)]
async fn a_history_that_went_back_is_never_read_as_current() {
    for objects in [3, 2 * COMPARED_MAX, 2 * COMPARED_QUIET_MAX] {
        for closes in [false, true] {
            let case = format!("{objects} objects, closes: {closes}");
            let (api, caches) = scene(objects).await;
            let before = api.resource_version();
            api.put(map("lost", 0)).put(map("m0", 1)).delete(map("m1", 0));
            becomes_equal(&caches, &api).await;
            api.restore(before);
            if closes {
                api.close_watches();
            }
            let took = assert_no_old_read(&caches, &api, &case).await;
            assert!(took < HEALED_WITHIN, "{case}: {took:?}");
            assert_eq!(caches.down(), [], "{case}");
        }
    }
}

/// Goal: another cluster at the same address is no continuation. Method: a history with other uids, at lower and at higher
/// positions than the cache's, after a short outage.
#[tokio::test(start_paused = true)]
async fn another_cluster_at_the_address_is_never_read_as_the_first() {
    for passed in [false, true] {
        let (api, _) = scene(3).await;
        let other = FakeApiServer::new().at(if passed { api.resource_version() + 50 } else { 10 });
        let foreign = |name: &str| {
            let mut object = map(name, 7);
            object["metadata"]["uid"] = json!(format!("foreign-{name}"));
            object
        };
        other.put(foreign("m0")).put(foreign("foreign"));
        let (client, turned) = turning([&api, &other]);
        let caches = Caches::new(CoalescedSource::new(Arc::new(UpstreamSource::of(client))), Limits::default());
        becomes_equal(&caches, &api).await;
        turned.store(1, Ordering::SeqCst);
        api.close_watches();
        let took = assert_no_old_read(&caches, &other, &format!("passed: {passed}")).await;
        // Ahead of the position only proofs find out, if the cluster cannot be named.
        assert!(took < HEALED_WITHIN * (1 + 2 * u32::from(passed)), "passed: {passed}: {took:?}");
    }
}

/// Goal: no watch of one cluster shows changes of another's. Method: an object that is created and deleted, then a cluster
/// that is ahead, with as few objects.
#[tokio::test(start_paused = true)]
async fn changes_of_one_cluster_are_not_shown_to_watches_of_the_next() {
    let (api, other) = (FakeApiServer::new().at(100), FakeApiServer::new().at(500));
    let (client, turned) = turning([&api, &other]);
    let source = Arc::new(UpstreamSource::of(client));
    let caches = Caches::new(CoalescedSource::new(Arc::clone(&source)), Limits::default());
    let reader = becomes_equal(&caches, &api).await;
    let before = reader.applied();
    api.put(map("secret", 0)).delete(map("secret", 0));
    timeout(PATIENCE, reader.reached(api.resource_version())).await.expect("in time").expect("an open cache");
    assert!(reader.cursor(CursorStart::After(before), Filter::all()).is_ok());
    turned.store(1, Ordering::SeqCst);
    api.close_watches();
    source.lose_histories();
    assert_no_old_read(&caches, &other, "as empty").await;
    let reader = filled(&caches).await;
    assert!(other.resource_version() <= reader.applied(), "it is the other cluster's");
    assert!(reader.cursor(CursorStart::After(before), Filter::all()).is_err(), "a position of the first cluster");
}

/// Goal: a read that accepts an age is not answered by a confirmation of a history that was lost. Method: a restore that this
/// server or the SDK finds, whose state does not come for a while; a read meanwhile, and one only afterwards.
#[tokio::test(start_paused = true)]
async fn no_accepted_age_reaches_into_a_lost_history() {
    for (is_found_by_sdk, is_read_meanwhile) in [(false, true), (false, false), (true, true), (true, false)] {
        let case = format!("by the SDK: {is_found_by_sdk}, read meanwhile: {is_read_meanwhile}");
        let api = FakeApiServer::new().at(100).put(map("a", 0));
        let before = api.resource_version();
        api.put(map("lost", 0));
        let source = source(&api);
        let caches = Caches::new(CoalescedSource::new(Arc::clone(&source)), Limits::default());
        let caches = caches.at_most_stale(Duration::from_secs(60));
        let at_once = async || timeout(Duration::from_secs(1), caches.recent(&maps())).await.ok()?.ok();
        becomes_equal(&caches, &api).await;
        sleep(Duration::from_secs(1)).await;
        assert!(at_once().await.expect("a read").1.is_none());
        sleep(Duration::from_secs(1)).await;
        assert!(at_once().await.expect("a read of that age").1.is_some());
        if is_found_by_sdk {
            api.withhold_end_bookmark().restore(before);
        } else {
            api.stall_streams().restore(before);
            source.lose_histories();
            assert!(!is_read_meanwhile || at_once().await.is_none(), "{case}");
        }
        let begun = Instant::now();
        while is_read_meanwhile && at_once().await.is_some() {
            assert!(begun.elapsed() < HEALED_WITHIN, "{case}: the lost state is read");
            sleep(Duration::from_millis(10)).await;
        }
        api.recover();
        becomes_equal(&caches, &api).await;
        assert!(matches!(at_once().await, Some((_, None))), "{case}: no read of the new history");
    }
}

/// Goal: objects that a restore has lost do not stay, and those that it brought back do not stay away, though the API server
/// has passed the position and the newest objects are its own. Method: a restore during an outage, then writes; the cases are
/// a lost object, a lost deletion and a lost change; no reader. Afterwards an outage without a restore costs one list of
/// metadata and no initial read.
#[tokio::test(start_paused = true)]
async fn a_restored_server_that_passed_the_position_is_found_out() {
    for (objects, lost) in
        [3, 2 * COMPARED_MAX].into_iter().flat_map(|n| ["created", "deleted", "changed"].map(|l| (n, l)))
    {
        let case = format!("{lost} among {objects}");
        let (api, caches) = scene(objects).await;
        let before = api.resource_version();
        match lost {
            "created" => drop(api.put(map("lost", 0))),
            "deleted" => drop(api.delete(map("m1", 0))),
            _ => drop(api.put(map("m1", 1))),
        }
        // The newest objects are equal in both histories, or rewritten after it: they prove nothing.
        becomes_equal(&caches, &api).await;
        api.refuse_connections().close_watches();
        api.restore(before);
        sleep(OUTAGE).await;
        (0..20).for_each(|number| drop(api.put(map("m0", 10 + number))));
        api.recover();
        becomes_equal(&caches, &api).await;
        let begun = Instant::now();
        assert_no_old_read(&caches, &api, &case).await;
        assert!(begun.elapsed() < HEALED_WITHIN, "{case}");

        let reads = api.count(RequestKind::Stream);
        api.refuse_connections().close_watches();
        sleep(OUTAGE).await;
        api.recover().put(map("later", 0));
        becomes_equal(&caches, &api).await;
        assert_no_old_read(&caches, &api, &case).await;
        assert_eq!(api.count(RequestKind::Stream), reads, "{case}: the history is the same");
    }
}

/// Goal: however long the comparison of a large type takes, no consistent read shows what a restore has lost, and none waits for
/// more than seconds: lists are passed on meanwhile. Method: an API server that takes two seconds for each page, was restored
/// or not, and has passed the position; the difference is on the last page.
#[tokio::test(start_paused = true)]
async fn lists_of_a_large_type_in_doubt_are_passed_on() {
    const PAGES: u32 = 3;
    const PAGE_TIME: Duration = Duration::from_secs(2);
    for is_restored in [true, false] {
        let api = FakeApiServer::new().at(100).bookmarks_every(Duration::from_secs(1));
        (0..COMPARED_PAGE * PAGES as usize - 1).for_each(|number| drop(api.put(map(&format!("m{number}"), 0))));
        let (client, pages) = paging(&api, PAGE_TIME);
        let source = Arc::new(UpstreamSource::of(client));
        let caches = Caches::new(CoalescedSource::new(Arc::clone(&source)), Limits::default());
        // Behind all others. Its deletion leaves no object that proves anything.
        let before = api.put(map("z", 0)).resource_version();
        becomes_equal(&caches, &api).await;
        api.delete(map("z", 0));
        becomes_equal(&caches, &api).await;
        api.refuse_connections().close_watches();
        if is_restored {
            api.restore(before);
        }
        sleep(OUTAGE).await;
        (0..20).for_each(|number| drop(api.put(map("m0", 10 + number))));
        api.recover();
        let (expected, mut doubted) = (listed(&api).await, None);
        loop {
            let begun = Instant::now();
            let is_here = source.may_list_newest(&maps()).await;
            assert!(begun.elapsed() <= DOUBT_WAIT, "{:?}", begun.elapsed());
            // Other reads wait for the result, or fail.
            let read = caches.fresh(&maps()).await;
            let is_current = read.as_ref().map_or(true, |reader| cached(reader) == expected);
            assert!(is_current, "restored: {is_restored}: another state is read as current");
            if !is_here {
                doubted.get_or_insert(begun);
            } else if read.is_ok() {
                break;
            }
            assert!(doubted.is_none_or(|since| since.elapsed() < PATIENCE), "no result");
            sleep(Duration::from_millis(100)).await;
        }
        let doubted = doubted.expect("lists are passed on");
        assert!(doubted.elapsed() < PAGES * PAGE_TIME * 2 + HEALED_WITHIN, "{:?}", doubted.elapsed());
        assert!(PAGES as usize <= pages.lock().len(), "all pages were read");
    }
}

/// Goal: a type that changes faster than it can be compared does not hide what a restore brought back. Method: an API server that
/// was restored, has passed the position, and forgets the state of a list before its second page.
#[tokio::test(start_paused = true)]
async fn a_type_that_cannot_be_compared_is_read_anew() {
    let (api, caches) = scene(COMPARED_PAGE + 100).await;
    // Behind all others, so that no first page finds out. Its deletion leaves no object that proves anything.
    let before = api.put(map("z", 0)).resource_version();
    becomes_equal(&caches, &api).await;
    api.delete(map("z", 0));
    becomes_equal(&caches, &api).await;
    api.refuse_connections().close_watches();
    api.restore(before);
    sleep(OUTAGE).await;
    (0..20).for_each(|number| drop(api.put(map("m0", 10 + number))));
    let counts = || [RequestKind::Page, RequestKind::Stream].map(|kind| api.count(kind));
    let [pages, states] = counts();
    api.recover().page_tokens_expire();
    becomes_equal(&caches, &api).await;
    assert_eq!(counts(), [pages + 1 + RESTARTS_MAX as usize, states + 1], "second pages and new states");
}

/// Goal: the comparisons after an outage take at most half of the time of one connection, however many types there are. Method:
/// ten types of two pages; the API server takes 100 ms for each page.
#[tokio::test(start_paused = true)]
async fn comparisons_read_one_page_at_a_time_and_pause() {
    const PAGE_TIME: Duration = Duration::from_millis(100);
    let registry = Registry::builtin();
    let names = [
        "configmaps",
        "secrets",
        "services",
        "endpoints",
        "pods",
        "serviceaccounts",
        "limitranges",
        "resourcequotas",
        "persistentvolumeclaims",
        "replicationcontrollers",
    ];
    let types = names.map(|name| registry.find("", "v1", name).expect("a built-in type"));
    let api = FakeApiServer::new().at(100).bookmarks_every(Duration::from_secs(1));
    for ty in &types {
        for number in 0..=COMPARED_PAGE {
            let metadata =
                json!({"name": format!("o{number}"), "namespace": "n", "uid": format!("{}-{number}", ty.kind)});
            api.put(json!({"apiVersion": "v1", "kind": ty.kind, "metadata": metadata}));
        }
    }
    let (client, pages) = paging(&api, PAGE_TIME);
    let caches = Caches::new(CoalescedSource::new(Arc::new(UpstreamSource::of(client))), Limits::default());
    for ty in &types {
        while caches.reader(ty).await.is_err() {}
    }
    assert_eq!(pages.lock().len(), 0, "no page is read before an outage");
    api.refuse_connections().close_watches();
    sleep(OUTAGE).await;
    api.recover();
    let compared = async {
        while pages.lock().len() < 2 * types.len() {
            sleep(PAGE_TIME).await;
        }
    };
    timeout(PATIENCE, compared).await.expect("all types are compared");
    for pages in pages.lock().windows(2) {
        let pause = pages[1].0.saturating_duration_since(pages[0].1);
        assert!(PAGE_TIME <= pause, "{pause:?} after the page before");
    }
}
