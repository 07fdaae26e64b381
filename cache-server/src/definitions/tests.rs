//! Definitions take effect however they come to be stored.

use serde_json::{Value, json};
use watch_cache::Draft;

use crate::{
    app::App,
    config::Config,
    definitions::DEFINITIONS,
    storage::{Expect, Txn},
};

fn definition(plural: &str) -> Value {
    json!({"metadata": {"name": format!("{plural}.example.com"), "uid": plural}, "spec": {"group": "example.com", "scope":
        "Namespaced", "names": {"plural": plural, "kind": plural, "singular": plural, "listKind": format!("{plural}List")},
        "versions": [{"name": "v1", "served": true, "storage": true}]}})
}

/// Writes to the storage, past everything that knows HTTP.
async fn write(app: &App, id: &str, object: &Value, expect: Expect) -> u64 {
    let ty = app.registry.now().by_id(id).expect("a type");
    let draft = Draft::new(&ty.schema, object.to_string().as_bytes()).expect("an object");
    let txn = Txn { ty, key: draft.key().to_owned(), expect, put: Some(draft) };
    app.storage.write(txn).await.expect("is written").resource_version
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

/// Goal: a definition that another server deletes takes its objects along. Method: what a delete leaves in the storage,
/// then what is there once it is settled.
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
    // A write that was on its way all the while.
    let object = json!({"metadata": {"name": "late", "namespace": "n"}}).to_string();
    let draft = Draft::new(&ty.schema, object.as_bytes()).expect("an object");
    let late = Txn { ty: ty.clone(), key: draft.key().to_owned(), expect: Expect::Absent, put: Some(draft) };
    app.storage.write(late).await.expect("is written");
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
    // Nothing waits for a task that is gone.
    app.definitions.settle().await;
}
