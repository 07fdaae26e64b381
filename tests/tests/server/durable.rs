//! The server with `--data-dir` as a process: restarts, kills, and folders that it refuses.

mod backup;
mod displaced;
pub(crate) mod full;
mod kills;
mod rates;

use std::{fs, path::Path};

use serde_json::json;
use tests::{
    http::{MERGE_PATCH, briefs},
    objects::{configmap, namespace, pod},
    process::Server,
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

async fn start(folder: &Path) -> Server {
    Server::start(BINARY, &["--data-dir", folder.to_str().expect("a plain path")]).await
}

async fn kill(server: Server) {
    server.signal("KILL");
    server.ended().await;
}

/// Goal: clients resume over a restart, whatever they missed. Method: two watches from positions before a kill, of a
/// built-in and of a custom type, and one of a type without objects.
#[tokio::test]
async fn watches_resume_after_a_kill_with_all_they_missed() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path()).await;
    let client = server.client();
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "cats.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "cats", "singular": "cat", "kind": "Cat", "listKind": "CatList"}, "versions": [{
            "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.with_code(201);
    let cats = "/apis/example.com/v1/namespaces/default/cats";
    let cat = |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Cat", "metadata": {"name": name}});
    client.post(cats, &cat("first")).await.with_code(201);
    client.create(&configmap("kept").data("1")).await;
    let seen = client.create(&configmap("deleted").label("app", "web")).await;
    client.update(&configmap("kept").data("2")).await;
    client.remove(&configmap("deleted").label("app", "web")).await;
    client.create(&configmap("created")).await;
    client.post(cats, &cat("second")).await.with_code(201);
    kill(server).await;
    let server = start(folder.path()).await;
    let client = server.client();
    let from = |path: &str| format!("{path}?watch=1&resourceVersion={seen}");
    let missed = client.watch(&from("/api/v1/configmaps")).await.events(3).await;
    assert_eq!(briefs(&missed), ["MODIFIED default/kept", "DELETED default/deleted", "ADDED default/created"]);
    assert_eq!(missed[1].object["metadata"]["labels"]["app"], "web", "the object as it was");
    let mut selected = client.watch(&(from("/api/v1/configmaps") + "&labelSelector=app%3Dweb")).await;
    assert_eq!(selected.event().await.brief(), "DELETED default/deleted");
    assert_eq!(client.watch(&from(cats)).await.event().await.brief(), "ADDED default/second");
    let mut pods = client.watch(&from("/api/v1/pods")).await;
    client.create(&pod("a")).await;
    assert_eq!(pods.event().await.brief(), "ADDED default/a");
    let newest = client.get("/api/v1/configmaps").await.with_code(200);
    assert_eq!(newest.keys(), ["default/created", "default/kept"]);
    // A position between the two processes is of no history that this one knows.
    let foreign = format!("/api/v1/configmaps?watch=1&resourceVersion={}", missed[2].resource_version() + 1_000);
    let error = client.watch(&foreign).await.event().await;
    assert_eq!(error.brief(), "ERROR 410", "{error:?}");
    server.terminate();
    assert_eq!(server.ended().await.code, Some(0));
}

/// Goal: a namespace whose deletion was begun before a kill ends after it, although no request names it. Method: an object
/// with a finalizer holds it over the kill.
#[tokio::test]
async fn a_terminating_namespace_ends_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path()).await;
    let client = server.client();
    client.create(&namespace("ending")).await;
    let held = configmap("held").namespace("ending");
    client.create(&held).await;
    let finalizers = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    client.patch(&held.path(), MERGE_PATCH, &finalizers).await.with_code(200);
    client.delete(&namespace("ending").path()).await;
    kill(server).await;
    let server = start(folder.path()).await;
    let client = server.client();
    let mut watch = client.watch("/api/v1/namespaces?watch=1&resourceVersion=0").await;
    assert_eq!(watch.event().await.brief(), "ADDED ending", "it waits for the finalizer");
    let released = json!({"metadata": {"finalizers": null}});
    client.patch(&held.path(), MERGE_PATCH, &released).await.with_code(200);
    // Without another request about the namespace.
    while watch.event().await.brief() != "DELETED ending" {}
}

#[tokio::test]
async fn an_operator_checks_and_compacts_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let run = async |command, path| Server::run(BINARY, &["storage", command, path]).await;
    let elsewhere = format!("{path}/missing");
    let missing = run("check", &elsewhere).await;
    assert_eq!((missing.code, missing.stderr.lines().count()), (Some(1), 1), "{missing:?}");
    let server = start(folder.path()).await;
    for name in ["a", "b", "c"] {
        server.client().create(&configmap(name).data(&"x".repeat(100_000))).await;
    }
    server.client().update(&configmap("a").data("short")).await;
    server.client().remove(&configmap("b")).await;
    let used = run("compact", path).await;
    assert!(used.code == Some(1) && used.stderr.contains("another server uses it"), "{used:?}");
    kill(server).await;
    let found = run("check", path).await;
    assert!(found.code == Some(0) && found.stdout.starts_with("ok: 2 objects, 5 changes from "), "{found:?}");
    let compacted = run("compact", path).await;
    assert_eq!(compacted.code, Some(0), "{compacted:?}");
    let bytes: Vec<u64> = compacted.stdout.split(' ').filter_map(|word| word.trim().parse().ok()).collect();
    assert!(bytes[0] <= bytes[1], "{compacted:?}");
    let server = start(folder.path()).await;
    assert_eq!(server.client().get("/api/v1/configmaps").await.with_code(200).keys(), ["default/a", "default/c"]);
}

/// Goal: a folder that cannot be written to is refused in one line. Method: a mount for reading only, in a mount namespace,
/// which root cannot write to either; without namespaces, the mode of the folder, which binds all users but root.
#[tokio::test]
async fn a_folder_for_reading_only_is_one_line_and_exit_code_one() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    kill(start(&data).await).await;
    let path = data.to_str().unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--data-dir", path];
    let mount = format!("mount --bind {path} {path} && mount -o remount,bind,ro {path} && exec \"$0\" \"$@\"");
    let namespace = ["-rm", "sh", "-c", &mount];
    let has_namespaces = Server::run("unshare", &["-rm", "true"]).await.code == Some(0);
    let refused = if has_namespaces {
        Server::run("unshare", &[&namespace[..], &[BINARY], &serve].concat()).await
    } else {
        fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o500)).unwrap();
        if fs::write(data.join("root"), "").is_ok() {
            println!("skipped: root without mount namespaces can write everywhere");
            return;
        }
        fs::remove_file(data.join("lock")).unwrap_err();
        Server::run(BINARY, &serve).await
    };
    assert_eq!((refused.code, refused.stderr.trim().lines().count()), (Some(1), 1), "{refused:?}");
    let said = refused.stderr.trim();
    assert!(said.starts_with(&format!("error: cannot use the data folder: {path}/")), "{said}");
    assert!(said.ends_with(": choose a folder that this user can write to"), "{said}");
    if has_namespaces {
        start(&data).await;
    }
}

#[tokio::test]
async fn loaded_objects_stay_as_they_are_in_the_second_process() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("a.yaml");
    fs::write(&manifest, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: loaded}\n").unwrap();
    let data = folder.path().join("data");
    let arguments = [
        "--data-dir",
        data.to_str().unwrap(),
        "--load",
        manifest.to_str().unwrap(),
        "--populate",
        "pods=20,nodes=2,namespaces=2",
    ];
    let server = Server::start(BINARY, &arguments).await;
    server.client().update(&configmap("a").data("changed")).await;
    let pods = server.client().get("/api/v1/pods").await.with_code(200).keys();
    assert_eq!(pods.len(), 20);
    let (namespace, name) = pods[0].split_once('/').unwrap();
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0");
    server.client().delete(&path).await.with_code(200);
    kill(server).await;
    let server = Server::start(BINARY, &arguments).await;
    let found = server.client().get(&configmap("a").path()).await.with_code(200);
    assert_eq!(found.json()["data"]["k"], "changed");
    let left = server.client().get("/api/v1/pods").await.with_code(200).keys();
    assert_eq!(left, pods[1..], "a deleted pod does not come back");
    server.logged("populate skipped").await;
}

#[tokio::test]
async fn a_folder_that_cannot_be_used_is_one_line_and_exit_code_one() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(&folder.path().join("used")).await;
    let file = folder.path().join("file");
    fs::write(&file, "a file").unwrap();
    let foreign = folder.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("objects.redb"), "text").unwrap();
    let damaged = folder.path().join("damaged");
    kill(start(&damaged).await).await;
    let mut bytes = fs::read(damaged.join("objects.redb")).unwrap();
    bytes[4_096..].fill(0x5a);
    fs::write(damaged.join("objects.redb"), bytes).unwrap();
    for (path, said) in [
        (folder.path().join("used"), "another server uses it"),
        (file, "data folder"),
        (foreign, "choose another folder"),
        (damaged, "restore a backup"),
    ] {
        let ended =
            Server::run(BINARY, &["serve", "--listen", "127.0.0.1:0", "--data-dir", path.to_str().unwrap()]).await;
        assert_eq!(ended.code, Some(1), "{path:?}: {ended:?}");
        assert_eq!(ended.stderr.trim().lines().count(), 1, "{path:?}: {ended:?}");
        assert!(ended.stderr.contains(said), "{path:?}: {ended:?}");
    }
    running.terminate();
    running.ended().await;
    start(&folder.path().join("used")).await;
}
