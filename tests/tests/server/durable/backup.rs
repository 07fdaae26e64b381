//! `storage export` and `storage import` as an operator uses them.

use std::{fs, path::Path};

use serde_json::{Value, json};
use tests::{
    http::MERGE_PATCH,
    objects::{configmap, namespace, pod},
    process::{Ended, Server},
};

use super::{BINARY, kill, start};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CATS: &str = "/apis/example.com/v1/cats";

/// Paths whose objects a backup must bring back.
const COLLECTIONS: [&str; 5] = [DEFINITIONS, CATS, "/api/v1/namespaces", "/api/v1/configmaps", "/api/v1/pods"];

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

async fn storage(arguments: &[&str]) -> Ended {
    Server::run(BINARY, &[&["storage"], arguments].concat()).await
}

fn assert_refused(ended: &Ended, code: i32, said: &str) {
    assert_eq!((ended.code, ended.stderr.trim().lines().count()), (Some(code), 1), "{ended:?}");
    assert!(ended.stderr.contains(said), "{said}: {ended:?}");
    assert!(ended.stdout.is_empty(), "{ended:?}");
}

/// A folder with a custom type, a namespace, a pod with status and finalizers, and some objects.
async fn fill(folder: &Path) {
    let server = start(folder).await;
    let client = server.client();
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "cats.example.com"}, "spec": {"group": "example.com", "scope": "Cluster",
        "names": {"plural": "cats", "singular": "cat", "kind": "Cat", "listKind": "CatList"}, "versions": [{
            "name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    client.post(DEFINITIONS, &definition).await.with_code(201);
    let cat = json!({"apiVersion": "example.com/v1", "kind": "Cat", "metadata": {"name": "tom"}, "spec": {"lives": 9}});
    client.post(CATS, &cat).await.with_code(201);
    client.create(&namespace("n")).await;
    client.create(&configmap("a").namespace("n").data("1")).await;
    client.update(&configmap("a").namespace("n").data("2")).await;
    client.create(&pod("p").namespace("n")).await;
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    client.patch("/api/v1/namespaces/n/pods/p", MERGE_PATCH, &held).await.with_code(200);
    let running = json!({"status": {"phase": "Running"}});
    client.patch("/api/v1/namespaces/n/pods/p/status", MERGE_PATCH, &running).await.with_code(200);
    client.delete("/api/v1/namespaces/n/pods/p").await;
    kill(server).await;
}

/// All objects of a server without the metadata that `dropped` names.
async fn objects(server: &Server, dropped: &[&str]) -> Vec<Value> {
    let mut found = Vec::new();
    for path in COLLECTIONS {
        let list = server.client().get(path).await.with_code(200).json();
        let items = list["items"].as_array().expect("a list has items").clone();
        assert!(!items.is_empty(), "{path}");
        for mut item in items {
            for member in dropped {
                item["metadata"].as_object_mut().expect("metadata").remove(*member);
            }
            found.push(item);
        }
    }
    found
}

#[tokio::test]
async fn a_snapshot_brings_everything_back_but_positions() {
    let folder = tempfile::tempdir().unwrap();
    let [data, copy, file] = ["data", "copy", "backup"].map(|name| folder.path().join(name));
    fill(&data).await;
    let exported = storage(&["export", text(&data), "--format", "snapshot", "--output", text(&file)]).await;
    assert_eq!(exported.stdout.trim(), format!("exported 5 objects to {}", text(&file)), "{exported:?}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "Secrets are in it");
    let imported = storage(&["import", text(&copy), text(&file)]).await;
    assert_eq!(imported.stdout.trim(), format!("imported 5 objects into {}", text(&copy)), "{imported:?}");
    let (before, after) = (start(&data).await, start(&copy).await);
    assert_eq!(objects(&after, &["resourceVersion"]).await, objects(&before, &["resourceVersion"]).await);
    let seen = before.client().get("/api/v1/configmaps").await.resource_version();
    let watch = format!("/api/v1/configmaps?watch=1&resourceVersion={seen}");
    let error = after.client().watch(&watch).await.event().await;
    assert_eq!(error.brief(), "ERROR 410", "its clients list again");
    // The pod's deletion goes on where it was.
    let released = json!({"metadata": {"finalizers": null}});
    after.client().patch("/api/v1/namespaces/n/pods/p", MERGE_PATCH, &released).await.with_code(200);
    after.client().get("/api/v1/namespaces/n/pods/p").await.with_code(404);
}

#[tokio::test]
async fn an_export_replaces_a_file_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let [data, file] = ["data", "backup"].map(|name| folder.path().join(name));
    fill(&data).await;
    fs::write(&file, "the only backup").unwrap();
    let export = ["export", text(&data), "--output", text(&file)];
    let refused = storage(&export).await;
    assert_refused(&refused, 2, "backup: it exists already; --force replaces it");
    assert_eq!(fs::read_to_string(&file).unwrap(), "the only backup");
    let to_folder = storage(&["export", text(&data), "--force", "--output", text(folder.path())]).await;
    assert_refused(&to_folder, 2, "it exists and is no file");
    let forced = storage(&[&export[..], &["--force"]].concat()).await;
    assert_eq!(forced.code, Some(0), "{forced:?}");
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 5);
}

#[tokio::test]
async fn manifests_are_what_load_and_import_read() {
    let folder = tempfile::tempdir().unwrap();
    let [data, copy, file] = ["data", "copy", "all.json"].map(|name| folder.path().join(name));
    fill(&data).await;
    let exported = storage(&["export", text(&data)]).await;
    assert_eq!((exported.code, exported.stderr.as_str()), (Some(0), ""), "stdout has nothing but objects");
    let documents: Vec<Value> = exported.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = documents.iter().map(|document| document["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["CustomResourceDefinition", "Namespace", "Cat", "ConfigMap", "Pod"]);
    for document in &documents {
        let metadata = document["metadata"].as_object().unwrap();
        assert!(metadata["uid"].is_string());
        assert!(
            !["resourceVersion", "managedFields", "deletionTimestamp"].iter().any(|name| metadata.contains_key(*name))
        );
    }
    fs::write(&file, &exported.stdout).unwrap();
    let imported = storage(&["import", text(&copy), text(&file)]).await;
    assert_eq!(imported.stdout.trim(), format!("imported 5 objects into {}", text(&copy)), "{imported:?}");
    let loaded = Server::start(BINARY, &["--load", text(&file)]).await;
    let dropped = ["resourceVersion", "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds"];
    let before = objects(&start(&data).await, &dropped).await;
    assert_eq!(objects(&start(&copy).await, &dropped).await, before);
    assert_eq!(objects(&loaded, &dropped).await, before);
}

/// Goal: an import never replaces an object unasked, and never leaves a part of its files unsaid. Method: a folder with one of
/// the objects, in both formats.
#[tokio::test]
async fn existing_objects_are_refused_unless_they_are_to_be_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let [data, file, manifests] = ["data", "backup", "all.json"].map(|name| folder.path().join(name));
    fill(&data).await;
    for (format, file) in [("snapshot", &file), ("manifests", &manifests)] {
        let ended = storage(&["export", text(&data), "--format", format, "--output", text(file)]).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let target = folder.path().join(format);
        let server = start(&target).await;
        server.client().create(&namespace("n")).await;
        server.client().create(&configmap("a").namespace("n").data("other")).await;
        let used = storage(&["import", text(&target), text(file)]).await;
        assert_refused(&used, 1, "another server uses it");
        kill(server).await;
        let refused = storage(&["import", text(&target), text(file)]).await;
        assert_refused(&refused, 1, "2 of the objects exist, the first is namespaces n: import into another folder");
        let server = start(&target).await;
        server.client().get("/api/v1/namespaces/n/pods/p").await.with_code(404);
        kill(server).await;
        let replaced = storage(&["import", text(&target), text(file), "--overwrite"]).await;
        assert_eq!(replaced.code, Some(0), "{replaced:?}");
        let server = start(&target).await;
        let found = server.client().get("/api/v1/namespaces/n/configmaps/a").await.with_code(200).json();
        assert_eq!(found["data"]["k"], "2");
    }
}

#[tokio::test]
async fn files_that_cannot_be_imported_are_one_line_and_leave_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let [data, target, file] = ["data", "target", "file"].map(|name| folder.path().join(name));
    fill(&data).await;
    storage(&["export", text(&data), "--format", "snapshot", "--output", text(&file)]).await;
    let snapshot = fs::read(&file).unwrap();
    let damaged = [&snapshot[..snapshot.len() / 2], b"{}", &snapshot[snapshot.len() / 2..]].concat();
    let cases: [(&[u8], &str); 5] = [
        (&snapshot[..snapshot.len() - 20], "the snapshot is damaged at line 7 (the end is missing)"),
        (&damaged, "the snapshot is damaged at line"),
        (b"{\"snapshot\":\"cache-server\",\"format\":2}\n", "use the newer cache-server"),
        (b"\x00\x01 binary", "not"),
        (b"{\"kind\":\"Pod\",\"apiVersion\":\"v1\"", "not JSON"),
    ];
    for (bytes, said) in cases {
        fs::write(&file, bytes).unwrap();
        assert_refused(&storage(&["import", text(&target), text(&file)]).await, 2, said);
        assert!(!target.exists(), "{said}");
    }
    assert_refused(&storage(&["import", text(&target), "/nowhere"]).await, 2, "/nowhere: No such file");
    assert_refused(&storage(&["export", text(&target)]).await, 1, "No such file");
    // A good object before one that no server accepts: the line has the number.
    fs::write(&file, "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n---\nkind: Cat\napiVersion: v1\n").unwrap();
    let failed = storage(&["import", text(&target), text(&file)]).await;
    assert_refused(&failed, 1, "1 of 2 objects were written, then");
}
