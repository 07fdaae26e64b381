//! The server as a process: what its command line refuses, and how it ends.

use std::io::Write as _;

use tests::{
    http::LINE_WAIT,
    objects::configmap,
    process::{READY, Server},
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

#[tokio::test]
async fn a_bad_start_is_one_line_and_exit_code_two() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let broken = manifest("broken.yaml", "apiVersion: v1\nkind: [");
    let foreign = manifest("foreign.yaml", "apiVersion: none/v1\nkind: Nothing\nmetadata:\n  name: a\n");
    let missing = folder.path().join("missing.yaml").to_str().unwrap().to_owned();
    let running = Server::start(BINARY, &[]).await;
    let taken = running.address().to_string();
    for arguments in [
        &["serve", "--no-such-flag"][..],
        &["no-such-command"],
        &["serve", "--listen", "nowhere"],
        &["serve", "--listen", "127.0.0.1:0", "--first-revision", "x"],
        &["serve", "--listen", "127.0.0.1:0", "--populate", "unicorns=5"],
        &["serve", "--listen", "127.0.0.1:0", "--load", &missing],
        &["serve", "--listen", "127.0.0.1:0", "--load", &broken],
        &["serve", "--listen", "127.0.0.1:0", "--load", &foreign],
        &["serve", "--listen", &taken],
    ] {
        let ended = Server::run(BINARY, arguments).await;
        assert_eq!(ended.code, Some(2), "{arguments:?}: {ended:?}");
        assert!(!ended.stdout.contains(READY), "{arguments:?}: {ended:?}");
        assert_eq!(ended.stderr.trim().lines().count(), 1, "{arguments:?}: {ended:?}");
    }
}

#[tokio::test]
async fn sigterm_ends_watches_cleanly_and_exits_with_zero() {
    let server = Server::start(BINARY, &[]).await;
    let client = server.client();
    client.create(&configmap("a")).await;
    let mut watch = client.watch("/api/v1/configmaps?watch=1").await;
    assert_eq!(watch.event().await.brief(), "ADDED default/a");
    server.terminate();
    // A broken connection would panic here.
    assert!(watch.rest(LINE_WAIT * 2).await.is_empty());
    assert_eq!(server.ended().await.code, Some(0));
}

#[tokio::test]
async fn a_memory_only_store_never_repeats_positions() {
    let mut last = 0;
    for _ in 0..2 {
        let server = Server::start(BINARY, &[]).await;
        let client = server.client();
        let listed = client.get("/api/v1/configmaps").await.with_code(200).resource_version();
        assert!(listed >= last, "{listed} after {last}");
        let mut watch = client.watch(&format!("/api/v1/configmaps?watch=1&resourceVersion={}", last.max(1))).await;
        if last != listed {
            assert_eq!(watch.event().await.brief(), "ERROR 410", "a position of an earlier run");
        }
        last = client.create(&configmap("a")).await;
        // Positions start at unix seconds times 2^20, so the next second is another run.
        tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    }
}
