//! Controllers survive panics, and states that begin below the one before.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use tokio::sync::mpsc;
use watch_cache::Limits;

use super::*;
use crate::{
    registry::Registry,
    storage::{FollowFrom, Source, SourceError, SourceRecord, Update, Updates},
    supervised::SupervisedTasks,
};

/// A source whose one stream the test writes.
struct ReceivedUpdates(Mutex<Option<mpsc::UnboundedReceiver<Update>>>);

impl Source for ReceivedUpdates {
    fn follow(&self, _: &Arc<ResourceType>, _: FollowFrom, _: Reader) -> BoxFuture<'_, Result<Updates, SourceError>> {
        let Some(updates) = self.0.lock().take() else { return std::future::pending().boxed() };
        let updates = stream::unfold(updates, async |mut updates| Some((Ok(updates.recv().await?), updates)));
        std::future::ready(Ok(updates.boxed())).boxed()
    }

    fn current(&self, _: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>> {
        std::future::ready(Ok(1)).boxed()
    }
}

/// A controller that records which objects it knows, and panics on demand.
struct Recorder {
    known: Arc<Mutex<BTreeSet<String>>>,
    panics: Arc<AtomicBool>,
}

impl Controller for Recorder {
    type Error = Infallible;

    const RETRY_PAUSE: Duration = Duration::from_millis(10);
    const HELD_PAUSE: Duration = Duration::ZERO;
    const READ_AT_ONCE: usize = 16;

    fn learn(&mut self, entry: &Arc<Entry>, _: u64) {
        self.known.lock().insert(entry.name().to_owned());
        assert!(!self.panics.load(Ordering::Relaxed), "on purpose");
    }

    fn forget(&mut self, entry: &Entry) {
        self.known.lock().remove(entry.name());
    }

    async fn pass(&mut self, _: &Caches, _: &CacheSnapshot) -> Result<PassOutcome, Infallible> {
        Ok(PassOutcome::Settled(Vec::new()))
    }

    fn settle(&self, _: u64) {}

    fn failed(&self, error: &Infallible) {
        match *error {}
    }
}

/// A running controller.
struct Scene {
    updates: mpsc::UnboundedSender<Update>,
    known: Arc<Mutex<BTreeSet<String>>>,
    panics: Arc<AtomicBool>,
    _caches: Arc<Caches>,
}

impl Scene {
    fn new() -> Self {
        let (updates, receiver) = mpsc::unbounded_channel();
        let caches = Arc::new(Caches::new(Arc::new(ReceivedUpdates(Mutex::new(Some(receiver)))), Limits::default()));
        let ty = Registry::builtin().find("", "v1", "configmaps").expect("config maps");
        let (known, panics) = <(Arc<Mutex<BTreeSet<String>>>, Arc<AtomicBool>)>::default();
        let (of, panicking) = (Arc::clone(&known), Arc::clone(&panics));
        let recorder = move || Recorder { known: Arc::clone(&of), panics: Arc::clone(&panicking) };
        let task = restartable(recorder, Arc::downgrade(&caches), ty);
        Arc::new(SupervisedTasks::default()).spawn("recorder", task);
        Self { updates, known, panics, _caches: caches }
    }

    fn send(&self, updates: impl IntoIterator<Item = Update>) {
        updates.into_iter().for_each(|update| self.updates.send(update).expect("is read"));
    }

    async fn knows(&self, names: &[&str]) {
        let known = async {
            while !self.known.lock().iter().eq(names) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let known = timeout(Duration::from_secs(60), known).await;
        assert!(known.is_ok(), "{names:?} expected, {:?} known", self.known.lock());
    }
}

fn map(name: &str, revision: u64) -> SourceRecord {
    let text = format!(r#"{{"metadata":{{"name":"{name}","namespace":"n","uid":"{name}"}}}}"#);
    SourceRecord::Json { json: Bytes::from(text), revision }
}

fn deleted(name: &str, revision: u64) -> Update {
    Update::Deleted { key: format!("n/{name}"), revision }
}

/// Goal: after a panic, a controller knows what is stored, and nothing that is deleted. Method: a panic while it reads an
/// object; that one and an earlier one are deleted before it starts again.
#[tokio::test(start_paused = true)]
async fn a_controller_that_panics_begins_with_what_is_stored() {
    let scene = Scene::new();
    scene.send([
        Update::StateBegins,
        Update::Object(map("a", 1)),
        Update::Object(map("b", 2)),
        Update::StateComplete(2),
    ]);
    scene.knows(&["a", "b"]).await;
    scene.panics.store(true, Ordering::Relaxed);
    scene.send([Update::Put(map("c", 3))]);
    scene.knows(&["a", "b", "c"]).await;
    scene.send([deleted("c", 4), deleted("a", 5), Update::Put(map("d", 6))]);
    sleep(Duration::from_secs(1)).await;
    scene.panics.store(false, Ordering::Relaxed);
    scene.knows(&["b", "d"]).await;
}

/// Goal: a restore of the storage stops no controller. Method: a state whose revisions are below those before.
#[tokio::test(start_paused = true)]
async fn a_controller_follows_a_state_with_lower_revisions() {
    let scene = Scene::new();
    scene.send([Update::StateBegins, Update::Object(map("a", 90)), Update::StateComplete(100)]);
    scene.knows(&["a"]).await;
    scene.send([Update::StateBegins, Update::Object(map("b", 40)), Update::StateComplete(50)]);
    scene.knows(&["b"]).await;
    scene.send([Update::Put(map("c", 60))]);
    scene.knows(&["b", "c"]).await;
}
