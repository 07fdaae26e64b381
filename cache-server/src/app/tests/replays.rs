//! Controllers act on nothing that is over: a new server replays earlier states, and a cache lags behind its storage.

use std::{sync::Arc, time::Duration};

use futures::TryStreamExt as _;
use serde_json::{Value, json};
use tokio::time::sleep;
use watch_cache::{Draft, Entry};

use crate::{
    app::App,
    config::Config,
    controllers::leftovers,
    registry::{CLEANUP, ResourceType},
    storage::{Expect, Store, Txn, faulty::ReplayedStore},
};

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Longer than a controller takes for all that it may do, on a paused clock.
const LONG: Duration = Duration::from_secs(20);

/// A server over a store, and writes past the server.
struct Scene {
    store: Arc<ReplayedStore>,
    app: App,
}

impl Scene {
    /// A server over a store that can hold up the changes of a type.
    async fn new(held: &'static str) -> Self {
        Self::over(ReplayedStore::new(held)).await
    }

    async fn over(store: Arc<ReplayedStore>) -> Self {
        let app = App::with_storage(Config::default(), Arc::clone(&store) as Arc<dyn Store>);
        app.start().await;
        let scene = Self { store, app };
        scene.settle().await;
        scene
    }

    /// A new process over the same store, that gets the first changes of the held type, and no others.
    async fn restarted(self, changes: usize) -> Self {
        let Self { store, app } = self;
        drop(app);
        store.hold_after(changes);
        let scene = Self::over(store).await;
        sleep(LONG).await;
        scene
    }

    /// Lets all changes pass, and the controllers work on them.
    async fn flow(&self) {
        self.store.flow();
        sleep(LONG).await;
        self.settle().await;
    }

    async fn settle(&self) {
        self.app.definitions.settle().await;
        self.app.local().expect("writes are local").namespaces.settle().await;
    }

    fn ty(&self, id: &str) -> Arc<ResourceType> {
        self.app.registry.now().by_id(id).unwrap_or_else(|| panic!("{id} is not served"))
    }

    async fn put(&self, ty: &Arc<ResourceType>, object: &Value, expect: Expect) -> u64 {
        let draft = Draft::new(&ty.schema, object.to_string().as_bytes()).expect("an object");
        let txn = Txn { ty: Arc::clone(ty), key: draft.key().to_owned(), expect, put: Some(draft), cause: None };
        self.store.write(txn).await.expect("is written").resource_version
    }

    async fn create(&self, ty: &Arc<ResourceType>, object: &Value) -> u64 {
        self.put(ty, object, Expect::Absent).await
    }

    async fn remove(&self, ty: &Arc<ResourceType>, key: &str, at: u64) {
        let txn = Txn { ty: Arc::clone(ty), key: key.to_owned(), expect: Expect::At(at), put: None, cause: None };
        self.store.write(txn).await.expect("is deleted");
    }

    async fn entries(&self, ty: &Arc<ResourceType>) -> Vec<Arc<Entry>> {
        self.store.list(ty).await.expect("a list").entries.try_collect().await.expect("objects")
    }

    async fn names(&self, ty: &Arc<ResourceType>) -> Vec<String> {
        self.entries(ty).await.iter().map(|entry| entry.name().to_owned()).collect()
    }

    /// Marks the stored definition. Returns its version.
    async fn mark_definition(&self) -> u64 {
        let ty = self.ty(DEFINITIONS);
        let entries = self.entries(&ty).await;
        let mut marked: Value = serde_json::from_slice(&entries[0].object()).expect("JSON");
        marked["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        marked["metadata"]["finalizers"] = json!([CLEANUP]);
        self.put(&ty, &marked, Expect::At(entries[0].resource_version())).await
    }

    fn serves(&self, id: &str) -> bool {
        self.app.registry.now().by_id(id).is_some()
    }
}

fn definition(uid: &str) -> Value {
    json!({"metadata": {"name": "as.example.com", "uid": uid}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "as", "kind": "A", "singular": "a", "listKind": "AList"}, "versions":
        [{"name": "v1", "served": true, "storage": true}]}})
}

fn namespace(uid: &str, is_marked: bool) -> Value {
    let mut namespace = json!({"metadata": {"name": "n", "uid": uid}});
    if is_marked {
        namespace["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    namespace
}

fn object(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "n", "uid": name}})
}

/// Goal: a definition's objects outlive a restart. Method: a new process that sees the definition as it was before it was
/// established.
#[tokio::test(start_paused = true)]
async fn a_replayed_creation_of_a_definition_deletes_nothing() {
    let scene = Scene::new(DEFINITIONS).await;
    scene.create(&scene.ty(DEFINITIONS), &definition("1")).await;
    scene.flow().await;
    let ty = scene.ty("as.example.com");
    scene.create(&ty, &object("kept")).await;
    let scene = scene.restarted(1).await;
    assert_eq!(scene.names(&ty).await, ["kept"]);
    assert!(!scene.app.definitions.are_known() && !scene.serves("as.example.com"), "an old state counts for nothing");
    scene.flow().await;
    assert!(scene.app.definitions.are_known() && scene.serves("as.example.com"));
    assert_eq!(scene.names(&ty).await, ["kept"]);
}

/// Like the test before, with a definition that was deleted and created again.
#[tokio::test(start_paused = true)]
async fn a_replayed_deletion_of_a_definition_deletes_nothing() {
    let scene = Scene::new(DEFINITIONS).await;
    let definitions = scene.ty(DEFINITIONS);
    scene.create(&definitions, &definition("1")).await;
    scene.flow().await;
    let ty = scene.ty("as.example.com");
    scene.create(&ty, &object("deleted")).await;
    scene.mark_definition().await;
    scene.flow().await;
    assert!(scene.names(&ty).await.is_empty() && scene.names(&definitions).await.is_empty());
    scene.create(&definitions, &definition("2")).await;
    scene.flow().await;
    scene.create(&ty, &object("kept")).await;
    for changes in 1..6 {
        let again = Scene::over(Arc::clone(&scene.store)).await.restarted(changes).await;
        assert_eq!(again.names(&ty).await, ["kept"], "after {changes} changes");
        again.flow().await;
        assert_eq!(again.names(&ty).await, ["kept"], "after {changes} changes, and then all");
        assert!(again.serves("as.example.com"));
    }
}

/// Goal: the objects of a namespace that was created again outlive a restart. Method: a new process that sees the earlier
/// namespace terminate.
#[tokio::test(start_paused = true)]
async fn a_replayed_deletion_of_a_namespace_deletes_nothing() {
    let scene = Scene::new("namespaces").await;
    let (namespaces, maps) = (scene.ty("namespaces"), scene.ty("configmaps"));
    let at = scene.create(&namespaces, &namespace("1", false)).await;
    scene.create(&maps, &object("deleted")).await;
    scene.put(&namespaces, &namespace("1", true), Expect::At(at)).await;
    scene.flow().await;
    assert!(scene.names(&maps).await.is_empty() && scene.names(&namespaces).await.is_empty());
    scene.create(&namespaces, &namespace("2", false)).await;
    scene.create(&maps, &object("kept")).await;
    let scene = scene.restarted(2).await;
    assert_eq!(scene.names(&maps).await, ["kept"]);
    scene.flow().await;
    assert_eq!((scene.names(&maps).await, scene.names(&namespaces).await), (vec!["kept".into()], vec!["n".into()]));
}

/// Goal: a server whose cache lags deletes nothing of a namespace that was created again meanwhile. Method: the cache gets
/// the deletion mark only after that. Afterwards the new namespace is deleted, and ends.
#[tokio::test(start_paused = true)]
async fn a_late_deletion_mark_of_a_namespace_deletes_nothing() {
    let scene = Scene::new("namespaces").await;
    let (namespaces, maps) = (scene.ty("namespaces"), scene.ty("configmaps"));
    let at = scene.create(&namespaces, &namespace("1", false)).await;
    scene.flow().await;
    scene.store.hold_after(0);
    let at = scene.put(&namespaces, &namespace("1", true), Expect::At(at)).await;
    scene.remove(&namespaces, "n", at).await;
    let at = scene.create(&namespaces, &namespace("2", false)).await;
    scene.create(&maps, &object("kept")).await;
    scene.store.hold_after(1);
    sleep(LONG).await;
    assert_eq!(scene.names(&maps).await, ["kept"]);
    scene.flow().await;
    assert_eq!(scene.names(&maps).await, ["kept"]);
    scene.put(&namespaces, &namespace("2", true), Expect::At(at)).await;
    scene.flow().await;
    assert!(scene.names(&maps).await.is_empty() && scene.names(&namespaces).await.is_empty());
}

/// Like the test before, with a definition.
#[tokio::test(start_paused = true)]
async fn a_late_deletion_mark_of_a_definition_deletes_nothing() {
    let scene = Scene::new(DEFINITIONS).await;
    let definitions = scene.ty(DEFINITIONS);
    scene.create(&definitions, &definition("1")).await;
    scene.flow().await;
    let ty = scene.ty("as.example.com");
    scene.store.hold_after(0);
    let at = scene.mark_definition().await;
    scene.remove(&definitions, "as.example.com", at).await;
    scene.create(&definitions, &definition("2")).await;
    scene.create(&ty, &object("kept")).await;
    scene.store.hold_after(1);
    sleep(LONG).await;
    assert_eq!(scene.names(&ty).await, ["kept"]);
    scene.flow().await;
    assert_eq!(scene.names(&ty).await, ["kept"]);
    scene.mark_definition().await;
    scene.flow().await;
    assert!(scene.names(&ty).await.is_empty() && scene.names(&definitions).await.is_empty());
}

/// Goal: an object that was seen with a deletion mark is removed only if it still has one. Method: it is removed and
/// restored from a backup, with its uid, while the cache lags.
#[tokio::test(start_paused = true)]
async fn a_restored_object_is_no_leftover() {
    let scene = Scene::new("configmaps").await;
    let maps = scene.ty("configmaps");
    let (mut marked, mut left) = (object("restored"), object("left"));
    for object in [&mut marked, &mut left] {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    let at = scene.create(&maps, &marked).await;
    scene.create(&maps, &left).await;
    scene.app.caches.reader(&maps).await.expect("a cache");
    let (caches, registry) = (Arc::downgrade(&scene.app.caches), Arc::clone(&scene.app.registry));
    let store = Arc::clone(&scene.store) as Arc<dyn Store>;
    let task = tokio::spawn(leftovers::keep_finishing(caches, store, registry));
    // Between the first and the second check.
    sleep(Duration::from_secs(45)).await;
    scene.store.hold_after(0);
    scene.remove(&maps, "n/restored", at).await;
    scene.create(&maps, &object("restored")).await;
    // During the second check.
    sleep(Duration::from_secs(16)).await;
    scene.store.flow();
    sleep(LONG).await;
    task.abort();
    assert_eq!(scene.names(&maps).await, ["restored"]);
}
