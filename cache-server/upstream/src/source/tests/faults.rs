//! One fault at every single step of a source: afterwards everything is served again, and no watch had a gap.

use serde_json::Value;
use watch_cache::{Budget, Cursor, CursorStart, Filter, Limits, Slices, Step};

use super::*;
use cache_server_stores::faulty::{FaultySource, SourceFault};

/// Longest wait of the scenario for one of its changes, or for a read that a fault may hold up.
const STEP_WAIT: Duration = Duration::from_secs(7);

/// Time of the API server's outage.
const OUTAGE: Duration = Duration::from_secs(2);

/// An event as type, name and resourceVersion.
type BriefEvent = (String, String, u64);

/// A watch through the cache.
struct Watcher {
    cursor: Cursor,
    /// Position it began after.
    start: u64,
    seen: Vec<BriefEvent>,
    has_ended: bool,
}

impl Watcher {
    /// Opens a watch after a position; `None` if it has expired.
    fn open(cache: &Reader, start: u64) -> Option<Self> {
        let cursor = cache.cursor(CursorStart::After(start), Filter::all()).ok()?;
        Some(Self { cursor, start, seen: Vec::new(), has_ended: false })
    }

    /// Reads what has come.
    fn read(&mut self) {
        let mut out = Slices::new();
        while !self.has_ended {
            match self.cursor.step(Budget { slices: 64, bytes: 1 << 20 }, &mut out, None) {
                Step::Sent => {}
                Step::Wait => break,
                Step::InitialDone(_) | Step::Expired(_) | Step::EpochEnded => self.has_ended = true,
            }
        }
        let text: Vec<u8> = out.iter().flat_map(|slice| slice.to_vec()).collect();
        for line in String::from_utf8(text).expect("JSON").lines() {
            let event: Value = serde_json::from_str(line).expect("JSON");
            let metadata = &event["object"]["metadata"];
            let text = |value: &Value| value.as_str().expect("a text").to_owned();
            let revision = text(&metadata["resourceVersion"]).parse().expect("a number");
            self.seen.push((text(&event["type"]), text(&metadata["name"]), revision));
        }
    }

    /// Position of the last event.
    fn position(&self) -> u64 {
        self.seen.last().map_or(self.start, |(_, _, revision)| *revision)
    }

    /// Asserts that every event came in order, up to the end of the watch.
    fn assert_no_gap(&self, history: &[BriefEvent], case: &str) {
        let expected: Vec<_> = history.iter().filter(|(_, _, revision)| self.start < *revision).collect();
        let seen: Vec<_> = self.seen.iter().collect();
        let end = if self.has_ended { seen.len() } else { expected.len() };
        assert!(expected.get(..end) == Some(&seen[..]), "{case}: {seen:?} of {expected:?}");
    }
}

/// The scenario's API server, its caches behind faults, and the watches through them.
struct Scenario {
    api: FakeApiServer,
    source: Arc<FaultySource>,
    caches: Caches,
    history: Vec<BriefEvent>,
    watchers: Vec<Watcher>,
}

impl Scenario {
    /// Begins with `fault` at step `at` of the source.
    fn new(at: usize, fault: Option<SourceFault>) -> Self {
        let api = FakeApiServer::new().at(100).bookmarks_every(Duration::from_secs(1));
        let upstream = Arc::new(UpstreamSource::new(vec![api.client()], Peers::new(Vec::new()), HashMap::new()));
        let source = FaultySource::new(upstream, at, fault);
        let caches = Caches::new(CoalescedSource::new(Arc::clone(&source)), Limits::default());
        Self { api, source, caches, history: Vec::new(), watchers: Vec::new() }
    }

    fn put(&mut self, name: &str, content: usize) {
        let last = self.history.iter().rev().find(|(_, known, _)| known == name);
        let is_new = last.is_none_or(|(ty, ..)| ty == "DELETED");
        self.api.put(map(name, content));
        let ty = if is_new { "ADDED" } else { "MODIFIED" };
        self.history.push((ty.to_owned(), name.to_owned(), self.api.resource_version()));
    }

    fn delete(&mut self, name: &str) {
        self.api.delete(map(name, 0));
        self.history.push(("DELETED".to_owned(), name.to_owned(), self.api.resource_version()));
    }

    /// Waits for the last change, which a fault may hold up, and reads the watches.
    async fn settle(&mut self) {
        let reader = filled(&self.caches).await;
        let _ = timeout(STEP_WAIT, reader.reached(self.api.resource_version())).await;
        self.watchers.iter_mut().for_each(Watcher::read);
    }

    /// Opens a watch from the present.
    async fn watch(&mut self) {
        let reader = filled(&self.caches).await;
        let position = reader.applied();
        self.watchers.push(Watcher::open(&reader, position).expect("the present"));
    }

    /// Sends reads that ask the source, which may fail.
    async fn ask(&self) {
        let ty = maps();
        let _ = timeout(STEP_WAIT, self.caches.fresh(&ty)).await;
        let _ = timeout(STEP_WAIT, self.caches.at_least(&ty, self.api.resource_version())).await;
    }

    async fn run(&mut self) {
        ["a", "b", "c"].iter().for_each(|name| self.put(name, 0));
        self.watch().await;
        self.put("d", 0);
        self.settle().await;
        self.ask().await;
        self.put("a", 1);
        self.delete("b");
        self.settle().await;
        self.watch().await;
        self.api.close_watches();
        self.put("e", 0);
        self.settle().await;
        self.ask().await;
        // The API server forgets its window during an outage with changes: a relist.
        self.api.refuse_connections().close_watches();
        self.put("a", 2);
        self.delete("c");
        sleep(OUTAGE).await;
        self.api.recover().expire_at(self.api.resource_version() - 1);
        self.settle().await;
        self.watch().await;
        self.put("f", 0);
        self.settle().await;
        self.ask().await;
    }

    /// Asserts that everything is served again.
    async fn assert_recovered(&mut self, case: &str) {
        self.source.heal();
        self.put("last", 0);
        let reader = becomes_equal(&self.caches, &self.api).await;
        let ty = maps();
        let fresh = timeout(PATIENCE, async {
            loop {
                if let Ok(fresh) = self.caches.fresh(&ty).await {
                    return fresh;
                }
            }
        });
        let fresh = fresh.await.unwrap_or_else(|_| panic!("{case}: no consistent read"));
        assert_eq!(cached(&fresh), listed(&self.api).await, "{case}");
        self.caches.at_least(&ty, self.api.resource_version()).await.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(self.caches.down(), [], "{case}");
        let resumed: Vec<_> =
            self.watchers.iter().filter_map(|watcher| Watcher::open(&reader, watcher.position())).collect();
        self.watchers.extend(resumed);
        self.watchers.iter_mut().for_each(Watcher::read);
        self.watchers.iter().for_each(|watcher| watcher.assert_no_gap(&self.history, case));
    }
}

/// Goal: once faults stop, everything is served again, and no watch has a gap. Method: one scenario with writes, reads, a
/// closed watch and a lost position, once for each step of the source (each call, each update) and each kind of fault.
#[tokio::test(start_paused = true)]
async fn after_any_single_fault_of_a_source_everything_is_served_again() {
    let mut smooth = Scenario::new(usize::MAX, None);
    smooth.run().await;
    let steps = smooth.source.steps();
    smooth.assert_recovered("without faults").await;
    assert!((20..200).contains(&steps), "{steps} steps");
    assert!(smooth.watchers.iter().any(|watcher| watcher.has_ended), "the lost position ended watches");
    let text = || "on purpose".to_owned();
    let faults = [
        SourceFault::Error(SourceError::Unavailable(text())),
        SourceFault::Error(SourceError::Compacted { after: 1 }),
        SourceFault::Error(SourceError::Forbidden(text())),
        SourceFault::Error(SourceError::Unsupported(text())),
        SourceFault::Breaks,
    ];
    for fault in faults {
        for at in 0..steps {
            let case = format!("{fault:?} at step {at}");
            let mut scenario = Scenario::new(at, Some(fault.clone()));
            scenario.run().await;
            scenario.assert_recovered(&case).await;
        }
    }
}
