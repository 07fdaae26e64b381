//! Definitions take effect however they were stored.

use std::{sync::Arc, time::Duration};

use futures::TryStreamExt as _;
use serde_json::{Value, json};
use watch_cache::Draft;

use crate::{
    app::App,
    config::Config,
    controllers::definitions::DEFINITIONS,
    registry::ResourceType,
    storage::{
        Expect, Store, Txn,
        faulty::{Fault, Faulty},
    },
};

fn definition(plural: &str) -> Value {
    json!({"metadata": {"name": format!("{plural}.example.com"), "uid": plural}, "spec": {"group": "example.com", "scope":
        "Namespaced", "names": {"plural": plural, "kind": plural, "singular": plural, "listKind": format!("{plural}List")},
        "versions": [{"name": "v1", "served": true, "storage": true}]}})
}

/// Writes to the storage directly, without the HTTP layer.
async fn write(app: &App, id: &str, object: &Value, expect: Expect) -> u64 {
    let ty = app.registry.now().by_id(id).expect("a type");
    put(&**app.local().expect("writes are local").store, &ty, object, expect).await
}

async fn put(storage: &dyn Store, ty: &Arc<ResourceType>, object: &Value, expect: Expect) -> u64 {
    let draft = Draft::new(&ty.schema, object.to_string().as_bytes()).expect("an object");
    let txn = Txn { ty: Arc::clone(ty), key: draft.key().to_owned(), expect, put: Some(draft), cause: None };
    storage.write(txn).await.expect("is written").resource_version
}

fn serves(app: &App, plural: &str) -> bool {
    app.registry.now().find("example.com", "v1", plural).is_some()
}

#[tokio::test]
async fn what_was_stored_before_the_start_is_served_from_the_start() {
    let app = App::new(Config::default());
    for plural in ["as", "bs"] {
        write(&app, DEFINITIONS, &definition(plural), Expect::Absent).await;
    }
    assert!(!serves(&app, "as"));
    app.start().await;
    assert!(serves(&app, "as") && serves(&app, "bs"));
}

#[tokio::test]
async fn what_others_write_to_the_storage_is_followed() {
    let app = App::new(Config::default());
    app.start().await;
    write(&app, DEFINITIONS, &definition("as"), Expect::Absent).await;
    app.definitions.settle().await;
    assert!(serves(&app, "as"));
    let ty = app.registry.now().by_id(DEFINITIONS).expect("a type");
    let reader = app.caches.fresh(&ty).await.expect("a reader");
    let entry = reader.get("as.example.com").expect("the definition");
    let mut changed: Value = serde_json::from_slice(&entry.object()).expect("JSON");
    assert_eq!(changed["status"]["acceptedNames"]["plural"], "as");
    changed["spec"]["versions"][0]["served"] = json!(false);
    write(&app, DEFINITIONS, &changed, Expect::At(entry.resource_version())).await;
    app.definitions.settle().await;
    assert!(!serves(&app, "as"));
}

/// Goal: the deletion of a definition by another server also deletes its objects. Method: write a definition with a
/// deletion mark and the cleanup finalizer, settle, and check what is stored and served.
#[tokio::test]
async fn what_is_left_of_a_deleted_definition_is_cleared_up() {
    let app = App::new(Config::default());
    write(&app, DEFINITIONS, &definition("as"), Expect::Absent).await;
    app.start().await;
    write(&app, "as.example.com", &json!({"metadata": {"name": "x", "namespace": "n"}}), Expect::Absent).await;
    let ty = app.registry.now().by_id("as.example.com").expect("a type");
    assert_eq!(app.caches.fresh(&ty).await.expect("a reader").snapshot().objects.len(), 1);
    let definitions = app.registry.now().by_id(DEFINITIONS).expect("a type");
    let entry = app.caches.fresh(&definitions).await.expect("a reader").get("as.example.com").expect("the definition");
    let mut deleted: Value = serde_json::from_slice(&entry.object()).expect("JSON");
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    deleted["metadata"]["finalizers"] = json!([crate::registry::CLEANUP]);
    write(&app, DEFINITIONS, &deleted, Expect::At(entry.resource_version())).await;
    app.definitions.settle().await;
    assert!(!serves(&app, "as"));
    assert!(app.caches.fresh(&definitions).await.expect("a reader").get("as.example.com").is_none());
    assert!(app.caches.stats().iter().all(|(id, _)| id != "as.example.com"), "its cache is gone");
    write(&app, DEFINITIONS, &definition("as"), Expect::Absent).await;
    app.definitions.settle().await;
    let again = app.registry.now().by_id("as.example.com").expect("the type again");
    assert!(app.caches.fresh(&again).await.expect("a reader").snapshot().objects.is_empty());
    assert!(app.caches.reader(&ty).await.is_err(), "who only knows the one before must look again");
}

#[tokio::test]
async fn the_task_ends_with_the_server() {
    let app = App::new(Config::default());
    app.start().await;
    app.caches.shut_down();
    // Must not wait for a task that has ended.
    app.definitions.settle().await;
}

/// All stored objects of a type.
async fn stored(storage: &dyn Store, ty: &Arc<ResourceType>) -> Vec<(u64, Value)> {
    let entries: Vec<_> = storage.list(ty).await.expect("a list").entries.try_collect().await.expect("objects");
    let read = |object: &[u8]| serde_json::from_slice(object).expect("JSON");
    entries.iter().map(|entry| (entry.resource_version(), read(&entry.object()))).collect()
}

/// Waits until a condition holds, long enough for the retries after a fault.
async fn until(app: &App, what: &str, is_so: impl AsyncFn() -> bool) {
    let reached = async {
        while !is_so().await {
            app.definitions.settle().await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(120), reached).await.is_ok(), "{what}");
}

/// Creates two definitions, deletes one and creates it again, over a storage of which call number `failing` fails.
/// Returns the number of calls.
async fn live_with_a_fault(failing: usize) -> usize {
    let storage = Faulty::new(move |number, _, _| if number == failing { Fault::Fails } else { Fault::None });
    let app = App::with_storage(Config::default(), Arc::clone(&storage) as Arc<dyn Store>);
    let (inner, definitions) = (&storage.inner, app.registry.now().by_id(DEFINITIONS).expect("a type"));
    for plural in ["as", "bs"] {
        put(inner, &definitions, &definition(plural), Expect::Absent).await;
    }
    app.start().await;
    until(&app, &format!("call {failing} fails, and both are served"), async || {
        serves(&app, "as") && serves(&app, "bs")
    })
    .await;
    let conditions = |object: &Value| object["status"]["conditions"][1]["status"].clone();
    let established = stored(inner, &definitions).await;
    assert!(established.iter().all(|(_, object)| conditions(object) == "True"), "call {failing}: {established:?}");
    let object = |name: &str| json!({"metadata": {"name": name, "namespace": "n"}});
    let ty = app.registry.now().by_id("as.example.com").expect("a type");
    put(inner, &ty, &object("x"), Expect::Absent).await;
    let (at, mut deleted) = established.into_iter().next().expect("the first");
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    deleted["metadata"]["finalizers"] = json!([crate::registry::CLEANUP]);
    put(inner, &definitions, &deleted, Expect::At(at)).await;
    until(&app, &format!("call {failing} fails, and one is gone"), async || {
        !serves(&app, "as") && stored(inner, &definitions).await.len() == 1 && stored(inner, &ty).await.is_empty()
    })
    .await;
    put(inner, &definitions, &definition("as"), Expect::Absent).await;
    until(&app, &format!("call {failing} fails, and it is served again"), async || serves(&app, "as")).await;
    assert!(serves(&app, "bs"));
    storage.calls()
}

/// Goal: a definition that is created again serves the objects that are stored, as with kube-apiserver: its finalizer was
/// removed by hand, so that they outlive it. Method: a definition that is deleted in the storage, and created again.
#[tokio::test]
async fn what_is_stored_when_a_definition_is_established_belongs_to_it() {
    let app = App::new(Config::default());
    app.start().await;
    write(&app, DEFINITIONS, &definition("as"), Expect::Absent).await;
    app.definitions.settle().await;
    write(&app, "as.example.com", &json!({"metadata": {"name": "x", "namespace": "n"}}), Expect::Absent).await;
    let store = &**app.local().expect("writes are local").store;
    let definitions = app.registry.now().by_id(DEFINITIONS).expect("a type");
    let (at, _) = stored(store, &definitions).await.remove(0);
    let (ty, key, expect) = (definitions, "as.example.com".to_owned(), Expect::At(at));
    store.write(Txn { ty, key, expect, put: None, cause: None }).await.expect("is deleted");
    app.definitions.settle().await;
    assert!(!serves(&app, "as"));
    write(&app, DEFINITIONS, &definition("as"), Expect::Absent).await;
    app.definitions.settle().await;
    let ty = app.registry.now().by_id("as.example.com").expect("the type again");
    let objects = app.caches.fresh(&ty).await.expect("a reader").snapshot().objects.clone();
    assert!(objects.iter().map(|entry| entry.name()).eq(["x"]));
}

/// Goal: a change of a webhook that this server does not call ends no watch. Method: a bundle that another program injects, and
/// the position of the schema before and after; then the same where webhooks are called.
#[tokio::test]
async fn a_webhook_that_is_not_called_may_change() {
    for acts_as_cluster in [false, true] {
        let app = App::new(Config { acts_as_cluster, ..Config::default() });
        app.start().await;
        let mut converted = definition("as");
        converted["spec"]["conversion"] =
            json!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://a"}}});
        let at = write(&app, DEFINITIONS, &converted, Expect::Absent).await;
        app.definitions.settle().await;
        let defined_at = || app.registry.now().by_id("as.example.com").expect("a type").defined_at;
        let before = defined_at();
        let store = &**app.local().expect("writes are local").store;
        let ty = app.registry.now().by_id(DEFINITIONS).expect("a type");
        let (now, mut object) = stored(store, &ty).await.remove(0);
        assert!(at <= now);
        object["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] = json!("Zm9v");
        write(&app, DEFINITIONS, &object, Expect::At(now)).await;
        app.definitions.settle().await;
        assert_eq!(defined_at() != before, acts_as_cluster);
    }
}

/// Goal: a failing storage delays definitions but loses none. Method: repeat a fixed sequence of definitions, and let a
/// different call to the storage fail each time.
#[tokio::test(start_paused = true)]
async fn a_pass_that_fails_is_made_again() {
    let mut failing = 0;
    while failing < live_with_a_fault(failing).await {
        failing += 1;
    }
    assert!(failing > 10, "{failing} calls");
}

/// Goal: the cost of writing a definition does not grow with the number of definitions in its group. Method: 1,000
/// stored definitions of one group, then 100 more, settled one at a time within a time limit.
#[tokio::test]
async fn a_definition_costs_what_it_changes() {
    let app = App::new(Config::default());
    let many = |number: usize| definition(&format!("t{number}"));
    for number in 0..1_000 {
        write(&app, DEFINITIONS, &many(number), Expect::Absent).await;
    }
    let begun = std::time::Instant::now();
    app.start().await;
    until(&app, "all are served", async || serves(&app, "t999")).await;
    for number in 1_000..1_100 {
        write(&app, DEFINITIONS, &many(number), Expect::Absent).await;
        app.definitions.settle().await;
        assert!(serves(&app, &format!("t{number}")));
    }
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
}
