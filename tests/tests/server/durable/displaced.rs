//! A data folder that is deleted, moved or replaced under the server: writes stop, and say why.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tests::{
    http::Client,
    objects::{configmap, pod},
    process::Server,
    tls::Authority,
};
use tokio::time::sleep;

use super::{BINARY, kill, start};

/// A server with one object, in a folder below `parent`.
async fn server_in(parent: &Path) -> Server {
    let server = start(&parent.join("data")).await;
    server.client().create(&configmap("kept").data("1")).await;
    server
}

/// Asserts that writes are refused by name, that reads go on, and that the log and `/readyz` say so.
async fn assert_refused(server: &Server, folder: &Path) {
    let client = server.client();
    for name in ["x", "y"] {
        let status = client.post(&configmap(name).collection(), configmap(name).body()).await.with_code(503).json();
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(folder.to_str().unwrap()) && message.contains("deleted"), "{status}");
    }
    let changed = configmap("kept").data("2");
    client.put(&changed.path(), changed.body()).await.with_code(503);
    client.delete(&changed.path()).await.with_code(503);
    client.post(&pod("p").collection(), pod("p").body()).await.with_code(503);
    let kept = client.get(&configmap("kept").path()).await.with_code(200).json();
    assert_eq!(kept["data"]["k"], "1");
    client.get("/livez").await.with_code(200);
    let ready = client.get("/readyz").await.with_code(500);
    assert!(ready.text().contains("[-]storage failed"), "{}", ready.text());
    let log = server.logged("writes refused").await;
    assert_eq!(log.matches("writes refused").count(), 1, "said once: {log}");
}

/// Goal: no write is acknowledged that the next start would not find. Method: a writer that never stops, and `rm -r` of the
/// folder.
#[tokio::test]
async fn writes_stop_when_the_data_folder_is_deleted() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("data");
    let server = server_in(parent.path()).await;
    let (is_deleted, late, number) = (Arc::new(AtomicBool::new(false)), Arc::<AtomicUsize>::default(), 0..);
    let writer = tokio::spawn({
        let (client, is_deleted, late) = (server.client(), Arc::clone(&is_deleted), Arc::clone(&late));
        async move {
            for number in number {
                let began_late = is_deleted.load(Ordering::SeqCst);
                let object = configmap(&format!("w{number}"));
                let answer = client.post(&object.collection(), object.body()).await;
                late.fetch_add(usize::from(began_late && answer.code == 201), Ordering::SeqCst);
                if began_late {
                    break;
                }
                assert!([201, 503, 504].contains(&answer.code.as_u16()), "{}", answer.text());
            }
        }
    });
    sleep(Duration::from_millis(50)).await;
    fs::remove_dir_all(&folder).unwrap();
    is_deleted.store(true, Ordering::SeqCst);
    writer.await.unwrap();
    assert_eq!(late.load(Ordering::SeqCst), 0, "writes acknowledged after the folder was deleted");
    assert_refused(&server, &folder).await;
    kill(server).await;
}

/// Goal: callers without credentials learn neither the path of the folder nor errors of the operating system from a probe,
/// and callers that may read every check do. Method: a deleted folder, and callers with and without a token over TLS.
#[tokio::test]
async fn readiness_names_the_folder_only_to_callers_with_the_right() {
    let parent = tempfile::tempdir().unwrap();
    let (folder, tokens) = (parent.path().join("data"), parent.path().join("tokens"));
    fs::write(&tokens, "t-ops,ops,u1,system:monitoring\nt-alice,alice,u2\nt-admin,admin,u3,system:masters\n").unwrap();
    let authority = Authority::new();
    let (data, listed) = (folder.to_str().unwrap(), tokens.to_str().unwrap());
    let flags = ["--data-dir", data, "--token-auth-file", listed, "--authorization", "rbac"];
    let files = authority.issue(parent.path());
    let server = Server::start(BINARY, &[&flags[..], &files.flags()].concat()).await;
    let client = server.client().over_tls(authority.trust());
    client.get("/readyz").await.with_code(200);
    fs::remove_dir_all(&folder).unwrap();
    let with = |token: &str| client.with_token(token);
    for (caller, sees) in [(client, false), (with("t-alice"), false), (with("t-ops"), true), (with("t-admin"), true)] {
        for path in ["/readyz", "/readyz?verbose"] {
            let answer = caller.get(path).await.with_code(500);
            assert!(answer.text().contains("[-]storage failed: "), "{}", answer.text());
            assert_eq!(answer.text().contains(data), sees, "{}", answer.text());
            assert_eq!(answer.text().contains("[-]storage failed: reason withheld"), !sees, "{}", answer.text());
        }
    }
    with("t-admin").post(&configmap("x").collection(), configmap("x").body()).await.with_code(503);
    assert!(server.logged("writes refused").await.contains(data), "the log has the folder");
}

/// Goal: a folder that comes back is used again. Method: it is moved away and back, and the server is killed.
#[tokio::test]
async fn writes_work_again_when_the_data_folder_is_moved_back() {
    let parent = tempfile::tempdir().unwrap();
    let (folder, elsewhere) = (parent.path().join("data"), parent.path().join("elsewhere"));
    let server = server_in(parent.path()).await;
    fs::rename(&folder, &elsewhere).unwrap();
    assert_refused(&server, &folder).await;
    fs::rename(&elsewhere, &folder).unwrap();
    created(server.client(), "after").await;
    server.client().get("/readyz").await.with_code(200);
    kill(server).await;
    let server = start(&folder).await;
    assert_eq!(server.client().get("/api/v1/configmaps").await.keys(), ["default/after", "default/kept"]);
}

/// Creates an object as soon as the server takes it.
async fn created(client: Client, name: &str) {
    let object = configmap(name);
    while client.post(&object.collection(), object.body()).await.code != 201 {
        sleep(Duration::from_millis(20)).await;
    }
}

/// Goal: a file that was put in the place of the server's own is neither written to nor taken for it. Method: a copy, as a
/// restore under a running server makes it.
#[tokio::test]
async fn writes_stop_when_the_data_file_is_replaced() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("data");
    let server = server_in(parent.path()).await;
    let copy = folder.join("copy");
    fs::copy(folder.join("objects.redb"), &copy).unwrap();
    fs::rename(&copy, folder.join("objects.redb")).unwrap();
    assert_refused(&server, &folder).await;
    kill(server).await;
    let server = start(&folder).await;
    assert_eq!(server.client().get("/api/v1/configmaps").await.keys(), ["default/kept"]);
}
