//! Reads of single objects: they share questions, contain every write before them, and do not wait for a stream that lags.

use futures::future::join_all;
use tokio::time::{Instant, advance};

use super::*;

/// Objects of the type: more than are compared with a list.
const OBJECTS: usize = 2 * COMPARED_MAX;
/// Reads at once: more than are passed on.
const AT_ONCE: usize = 8;

/// An API server, and caches of it whose ConfigMaps are filled.
struct Scene {
    api: FakeApiServer,
    source: Arc<UpstreamSource>,
    caches: Caches,
}

impl Scene {
    async fn start() -> Self {
        let api = FakeApiServer::new().at(100);
        (0..OBJECTS).for_each(|number| drop(api.put(map(&format!("m{number}"), 0))));
        let source = Arc::new(UpstreamSource::new(vec![api.client()], Peers::new(Vec::new()), HashMap::new()));
        let caches = Caches::new(CoalescedSource::new(Arc::clone(&source)), Limits::default());
        filled(&caches).await;
        Self { api, source, caches }
    }

    /// Sends reads at once. Returns the caches that answer some of them; the others are passed on.
    async fn read(&self, count: usize, max_age: Duration) -> Vec<ProvedCache> {
        let reads: Vec<_> = (0..count).filter_map(|_| self.source.proved_cache(&maps(), max_age)).collect();
        join_all(reads).await.into_iter().flatten().collect()
    }

    /// Questions for the position so far.
    fn questions(&self) -> usize {
        let asks = |request: &str| request.contains("configmaps?fieldSelector=metadata.name");
        self.api.requests().iter().filter(|seen| asks(&seen.request)).count()
    }

    fn put_other(&self, number: usize) {
        let name = format!("s{number}");
        self.api.put(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "n"}}));
    }
}

/// The version of an object in a proved cache; `None` if it has none.
fn version(proved: &ProvedCache, name: &str) -> Option<u64> {
    proved.reader.get(&format!("n/{name}")).map(|entry| entry.resource_version())
}

/// Goal: many reads cost the API server few questions, and few reads cost none. Method: two thousand reads at once, then two
/// thousand a second, then fifty a second.
#[tokio::test(start_paused = true)]
async fn many_reads_share_questions() {
    let scene = Scene::start().await;
    let answered = scene.read(2_000, Duration::ZERO).await.len();
    assert!(1_995 < answered, "{answered} of 2,000 reads are answered by the cache");
    assert_eq!(scene.questions(), 1);

    let (begun, mut answered) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(1) {
        let read = scene.read(2, Duration::ZERO);
        let pace = sleep(Duration::from_millis(1));
        let (read, ()) = futures::join!(read, pace);
        answered += read.len();
    }
    assert!(0 < answered);
    assert!(scene.questions() <= 201, "{} questions", scene.questions());

    let before = scene.questions();
    sleep(Duration::from_secs(1)).await;
    for _ in 0..50 {
        assert!(scene.read(1, Duration::ZERO).await.is_empty(), "passed on");
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(scene.questions(), before);
}

/// Goal: a read contains every write before it, deletions and creations too. Method: a thousand rounds of a write, and reads
/// at once after it.
#[tokio::test(start_paused = true)]
async fn a_read_contains_every_write_before_it() {
    let scene = Scene::start().await;
    let mut answered = 0;
    for round in 0..1_000 {
        let expected = match round % 3 {
            2 => {
                scene.api.delete(map("changing", 0));
                None
            }
            _ => {
                scene.api.put(map("changing", round));
                Some(scene.api.resource_version())
            }
        };
        for proved in scene.read(AT_ONCE, Duration::ZERO).await {
            assert_eq!(version(&proved, "changing"), expected, "round {round}");
            assert_eq!(proved.age, None);
            answered += 1;
        }
    }
    assert!(1_000 < answered, "{answered} reads were answered by the cache");
}

/// Goal: a stream that lags delays reads by 50 ms once, and then none: they are passed on until it has caught up. If other
/// types change all the time, questions become rare. Method: a write of another type before each round.
#[tokio::test(start_paused = true)]
async fn reads_of_a_type_that_lags_are_passed_on() {
    let scene = Scene::start().await;
    assert!(!scene.read(AT_ONCE, Duration::ZERO).await.is_empty());
    scene.put_other(0);
    sleep(Duration::from_millis(100)).await;
    let begun = Instant::now();
    assert_eq!(scene.read(AT_ONCE, Duration::ZERO).await.len(), 0, "behind");
    assert!(begun.elapsed() <= Duration::from_millis(51), "{:?}", begun.elapsed());
    let begun = Instant::now();
    assert_eq!(scene.read(AT_ONCE, Duration::ZERO).await.len(), 0, "until a second watch has a proof");
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let catching_up = async {
        while scene.read(AT_ONCE, Duration::ZERO).await.is_empty() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(4), catching_up).await.expect("it catches up");

    let before = scene.questions();
    for number in 1..2_000 {
        scene.put_other(number);
        scene.read(AT_ONCE, Duration::ZERO).await;
        sleep(Duration::from_millis(30)).await;
    }
    let questions = scene.questions() - before;
    assert!(questions < 20, "{questions} questions in a minute, for no use");
}

/// Goal: no read is answered from a lost history. Method: the API server goes back to an older state, with and without an end
/// of its watches; reads until they are answered again.
#[tokio::test(start_paused = true)]
async fn no_read_is_answered_from_a_lost_history() {
    for closes in [false, true] {
        let scene = Scene::start().await;
        let before = scene.api.resource_version();
        scene.api.put(map("lost", 0)).put(map("m0", 1)).delete(map("m1", 0));
        becomes_equal(&scene.caches, &scene.api).await;
        assert!(!scene.read(AT_ONCE, Duration::ZERO).await.is_empty());
        scene.api.restore(before);
        if closes {
            scene.api.close_watches();
        }
        let expected = listed(&scene.api).await;
        let reading = async {
            loop {
                let proved = scene.read(AT_ONCE, Duration::ZERO).await;
                for proved in &proved {
                    assert_eq!(cached(&proved.reader), expected, "closes: {closes}");
                }
                if !proved.is_empty() {
                    return;
                }
                // The cacher reads the new state only while clients read the type.
                scene.caches.start(&maps());
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, reading).await.expect("reads are answered again");
    }
}

/// Goal: reads that accept an age wait for nothing, get no older state, and are answered while the API server is away for as
/// long. Method: reads for some seconds, then an API server that refuses connections.
#[tokio::test(start_paused = true)]
async fn reads_that_accept_an_age_are_answered_at_once() {
    const ACCEPTED: Duration = Duration::from_secs(4);
    let scene = Scene::start().await;
    assert!(!scene.read(AT_ONCE, ACCEPTED).await.is_empty());
    let (begun, before) = (Instant::now(), scene.questions());
    while begun.elapsed() < 4 * ACCEPTED {
        let now = Instant::now();
        assert_eq!(scene.read(AT_ONCE, ACCEPTED).await.len(), AT_ONCE);
        assert_eq!(now.elapsed(), Duration::ZERO, "no read waits");
        advance(Duration::from_millis(100)).await;
        sleep(Duration::from_millis(1)).await;
    }
    let questions = scene.questions() - before;
    assert!(questions <= 8, "{questions} questions in {:?}", begun.elapsed());

    scene.api.refuse_connections().close_watches();
    let away = Instant::now();
    let last = loop {
        let answers = scene.read(AT_ONCE, ACCEPTED).await;
        let Some(answer) = answers.first() else { break away.elapsed() };
        assert!(answer.age.is_some_and(|age| age < ACCEPTED), "{:?}", answer.age);
        sleep(Duration::from_millis(50)).await;
    };
    assert!(ACCEPTED / 2 <= last && last <= ACCEPTED, "answered for {last:?}");
}

/// Goal: no read is answered from a cache that lacks a version of an object. Method: changed objects that the SDK or the cache
/// skips, then deletions, and a whole state without them; then one with them.
#[tokio::test(start_paused = true)]
async fn no_read_is_answered_from_a_cache_that_skipped_an_object() {
    let mut too_large = map("m0", 1);
    too_large["data"]["content"] = json!("x".repeat(17 << 20));
    for (case, skipped) in [("by the SDK", too_large), ("by the cache", map("a\u{7}b", 1))] {
        let scene = Scene::start().await;
        assert!(!scene.read(AT_ONCE, Duration::ZERO).await.is_empty(), "{case}");
        scene.api.put(&skipped).put(map("m1", 1));
        let passes_on = async || {
            filled(&scene.caches).await.reached(scene.api.resource_version()).await.expect("an open cache");
            for _ in 0..100 {
                assert!(scene.read(AT_ONCE, Duration::ZERO).await.is_empty(), "skipped {case}");
                sleep(Duration::from_millis(20)).await;
            }
        };
        passes_on().await;
        // Too old to resume from.
        let relists = || drop(scene.api.expire_at(scene.api.resource_version() - 1));
        scene.api.close_watches().put(map("m2", 1));
        relists();
        passes_on().await;

        scene.api.close_watches().delete(&skipped);
        relists();
        let reading = async {
            while scene.read(AT_ONCE, Duration::ZERO).await.is_empty() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, reading).await.expect("reads are answered again");
    }
}
