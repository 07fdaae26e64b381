//! A start finishes the deletions that an earlier process began.

use api_rules::registry::Registry;
use serde_json::json;
use watch_cache::Draft;

use crate::{
    app::App,
    config::Config,
    storage::{Expect, Store as _, Txn, durable::DurableStorage},
};

/// Goal: a process that ended between the mark and the removal of an object leaves nothing half done. Method:
/// objects as they are between the two, in the file of a start.
#[tokio::test]
async fn marked_objects_are_removed_at_the_start_unless_finalizers_hold_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let ty = Registry::builtin().find("", "v1", "pods").expect("pods");
    let store = DurableStorage::open(folder.path(), None).expect("opens");
    let marked = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30});
    for (name, mark, finalizers) in
        [("whole", json!({}), json!([])), ("half", marked.clone(), json!([])), ("held", marked, json!(["a.b/c"]))]
    {
        let mut metadata = json!({"name": name, "namespace": "a", "uid": name, "finalizers": finalizers});
        metadata.as_object_mut().expect("a map").extend(mark.as_object().expect("a map").clone());
        let text = json!({"metadata": metadata}).to_string();
        let draft = Draft::new(&ty.schema, text.as_bytes()).expect("a pod");
        let txn =
            Txn { ty: ty.clone(), key: draft.key().to_owned(), expect: Expect::Absent, put: Some(draft), cause: None };
        store.write(txn).await.expect("absent");
    }
    drop(store);
    let app = App::durable(Config::default(), folder.path().to_owned(), None, std::time::Duration::ZERO)
        .await
        .expect("opens");
    app.start().await;
    let snapshot = app.caches.fresh(&ty).await.expect("a cache").snapshot();
    let left: Vec<_> = snapshot.objects.iter().map(|entry| entry.name().to_owned()).collect();
    assert_eq!(left, ["held", "whole"]);
}
