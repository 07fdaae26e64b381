//! Snapshots: what they keep, what they refuse, and what a failing import says.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use futures::TryStreamExt as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use watch_cache::Draft;

use super::*;
use crate::{
    backup::stored_types::StoredTypes,
    embedded::EmbeddedStorage,
    faulty::{Fault, Faulty, Verb},
    registry::ResourceType,
    storage::{Expect, Store, Txn},
    stored::ExistingObjects,
};

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

async fn put(store: &dyn Store, ty: &Arc<ResourceType>, object: &Value) {
    let draft = Draft::new(&ty.schema, object.to_string().as_bytes()).expect("an object");
    let txn =
        Txn { ty: Arc::clone(ty), key: draft.key().to_owned(), expect: Expect::Absent, put: Some(draft), cause: None };
    store.write(txn).await.expect("absent");
}

/// All objects as they are, without their resourceVersions: by type and key.
async fn objects(store: &dyn Store) -> BTreeMap<String, String> {
    let (types, _) = StoredTypes::of(store).await.expect("a store that works");
    let mut found = BTreeMap::new();
    for ty in types.in_order() {
        let entries: Vec<_> = store.list(ty).await.expect("lists").entries.try_collect().await.expect("lists");
        for entry in entries {
            let version = format!(r#""resourceVersion":"{}""#, entry.resource_version());
            let text = String::from_utf8(entry.object_text().to_vec()).expect("text").replace(&version, "");
            found.insert(format!("{} {}", ty.id(), informer_core::KeyedObject::key(&*entry)), text);
        }
    }
    found
}

/// A store with a namespace, a terminating pod with a finalizer, a definition, and an object of its type.
async fn filled() -> EmbeddedStorage {
    let store = EmbeddedStorage::new(None);
    let builtin = StoredTypes::builtin();
    let ty = |id: &str| Arc::clone(builtin.get(id).expect("a built-in type"));
    let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["a.b/c"], "generation": 7,
        "managedFields": [{"manager": "m", "operation": "Update"}]},
        "spec": {"z": 1, "a": 0.10, "n": null, "big": 123456789012345678901234567890u128 as f64}, "status": {"phase": "Running"}});
    put(&store, &ty("pods"), &pod).await;
    put(&store, &ty("namespaces"), &json!({"metadata": {"name": "n"}})).await;
    let names = json!({"plural": "cats", "kind": "Cat", "singular": "cat", "listKind": "CatList"});
    let definition = json!({"metadata": {"name": "cats.example.com", "uid": "d"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": names,
            "versions": [{"name": "v1", "served": true, "storage": true}]},
        "status": {"acceptedNames": names, "conditions": [{"type": "Established", "status": "True"}]}});
    put(&store, &ty(DEFINITIONS), &definition).await;
    let (types, _) = StoredTypes::of(&store).await.expect("lists");
    put(&store, types.get("cats.example.com").expect("is defined"), &json!({"metadata": {"name": "tom"}})).await;
    store
}

async fn snapshot_of(store: &dyn Store) -> Vec<u8> {
    let mut out = Vec::new();
    write_all(store, ExportFormat::Snapshot, &mut out).await.expect("memory takes it");
    out
}

fn file(folder: &TempDir, bytes: &[u8]) -> [PathBuf; 1] {
    let path = folder.path().join("objects.snapshot");
    fs::write(&path, bytes).expect("writes");
    [path]
}

#[tokio::test]
async fn an_imported_snapshot_is_the_store_it_was_made_of() {
    let (store, folder) = (filled().await, tempfile::tempdir().expect("a folder"));
    let bytes = snapshot_of(&store).await;
    let files = file(&folder, &bytes);
    assert!(is_snapshot(&files[0]).expect("a file"));
    assert_eq!(verify(&files).expect("whole"), 4);
    let types: Vec<Value> =
        bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let types: Vec<&str> = types.iter().filter_map(|line| line["type"].as_str()).collect();
    assert_eq!(types, [DEFINITIONS, "namespaces", "cats.example.com", "pods"]);
    let other = EmbeddedStorage::new(None);
    assert_eq!(into_store(&other, &files, ExistingObjects::Refuse).await.expect("an empty store"), 4);
    assert_eq!(objects(&other).await, objects(&store).await);
}

#[tokio::test]
async fn existing_objects_are_refused_replaced_or_kept() {
    let (store, folder) = (filled().await, tempfile::tempdir().expect("a folder"));
    let files = file(&folder, &snapshot_of(&store).await);
    let other = EmbeddedStorage::new(None);
    let namespaces = StoredTypes::builtin().get("namespaces").map(Arc::clone).expect("a built-in type");
    put(&other, &namespaces, &json!({"metadata": {"name": "n", "labels": {"is": "old"}}})).await;
    let before = objects(&other).await;
    let error = into_store(&other, &files, ExistingObjects::Refuse).await.expect_err("it exists").to_string();
    let expected = "1 of the objects exist, the first is namespaces n: import into another folder, or use --overwrite";
    assert_eq!((error.as_str(), &objects(&other).await), (expected, &before), "nothing was written");
    assert_eq!(into_store(&other, &files, ExistingObjects::Keep).await.expect("keeps it"), 3);
    assert_eq!(objects(&other).await["namespaces n"], before["namespaces n"]);
    assert_eq!(into_store(&other, &files, ExistingObjects::Overwrite).await.expect("replaces all"), 4);
    assert_eq!(objects(&other).await, objects(&store).await);
}

/// Goal: no damaged or cut snapshot is imported. Method: each byte of a snapshot changed, and the snapshot cut at each.
#[tokio::test]
async fn a_damaged_snapshot_is_refused_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = snapshot_of(&filled().await).await;
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        for wrong in [&damaged[..], &bytes[..at]] {
            let error = verify(&file(&folder, wrong)).expect_err("is damaged").to_string();
            assert_eq!(error.lines().count(), 1, "{at}: {error}");
        }
    }
    let more = [&bytes[..], b"\n"].concat();
    assert!(verify(&file(&folder, &more)).is_err());
}

#[tokio::test]
async fn other_files_are_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let verify = |text: &[u8]| verify(&file(&folder, text)).expect_err("refused").to_string();
    let is = |text: &[u8]| is_snapshot(&file(&folder, text)[0]).expect("a file");
    assert!(verify(b"{}\n").ends_with("not a snapshot of cache-server"));
    assert!(verify(b"").ends_with("not a snapshot of cache-server"));
    let newer = br#"{"snapshot":"cache-server","format":9,"new":[]}"#;
    assert!(verify(&[newer, &b"\n"[..]].concat()).ends_with("this version reads 1: use the newer cache-server"));
    assert!(is(newer) && !is(b"") && !is(b"kind: Pod") && !is(br#"{"kind":"Pod"}"#));
    assert!(is_snapshot(Path::new("/dev/null")).expect_err("no file").to_string().contains("not a regular file"));
    // Deeper than any object that can be read again.
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let mut out = Vec::new();
    let mut writer = snapshot::SnapshotWriter::begin(&mut out, None, 1).expect("memory");
    let object = format!(r#"{{"metadata":{{"name":"a","namespace":"b"}},"data":{deep}}}"#);
    writer.object("configmaps", false, object.as_bytes()).expect("memory");
    writer.finish().expect("memory");
    assert!(verify(&out).ends_with("line 2: it is no object"));
}

#[tokio::test]
async fn objects_without_a_type_or_with_a_wrong_one_are_refused_before_any_write() {
    let folder = tempfile::tempdir().expect("a folder");
    for (ty, object, expected) in [
        ("cats.example.com", r#"{"metadata":{"name":"a"}}"#, "line 3: no definition has its type"),
        ("namespaces", r#"{"metadata":{"name":"a","namespace":"b"}}"#, "line 3: its namespace does not fit its type"),
        ("pods", r#"{"metadata":{"name":"a"}}"#, "line 3: its namespace does not fit its type"),
        ("pods", r#"{"metadata":{}}"#, "line 3: it is no stored object"),
    ] {
        let mut out = Vec::new();
        let mut writer = snapshot::SnapshotWriter::begin(&mut out, None, 1).expect("memory");
        writer.object("namespaces", false, br#"{"metadata":{"name":"good"}}"#).expect("memory");
        writer.object(ty, false, object.as_bytes()).expect("memory");
        writer.finish().expect("memory");
        let store = EmbeddedStorage::new(None);
        let imported = into_store(&store, &file(&folder, &out), ExistingObjects::Refuse).await;
        let error = imported.expect_err("refused").to_string();
        assert!(error.ends_with(expected), "{error}");
        assert!(objects(&store).await.is_empty());
    }
}

#[tokio::test]
async fn a_failing_import_says_how_much_it_wrote() {
    let (store, folder) = (filled().await, tempfile::tempdir().expect("a folder"));
    let files = file(&folder, &snapshot_of(&store).await);
    let fails = |_, verb, id: &str| if verb == Verb::Write && id == "pods" { Fault::Fails } else { Fault::None };
    let faulty = Faulty::new(fails);
    let error = into_store(&*faulty, &files, ExistingObjects::Refuse).await.expect_err("pods fail").to_string();
    let expected = "3 of 4 objects were written, then pods n/p failed: storage is not available: on purpose";
    assert_eq!(error, expected);
    assert_eq!(objects(&faulty.inner).await.len(), 3);
}
