//! Memory of forks: that of their changes, and none once they have ended.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::{fs, time::Duration};

use futures::future::join_all;
use serde_json::json;
use tests::{
    http::{Client, Watch},
    objects::pod,
    process::Server,
};
use tokio::time::{Instant, sleep};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const PODS: &str = "/api/v1/pods";

/// Objects of the origin.
const OBJECTS: usize = 10_000;

/// Forks at once.
const FORKS: usize = 100;

/// Forks that begin and end, some at once.
const FORKS_IN_TURN: usize = 1_000;

const MIB: u64 = 1 << 20;

/// Memory of all forks at once, each with a filled cache, a written object and a watch.
const ALL_BYTES_MAX: u64 = 16 * MIB;

/// Memory that forks may leave in pieces of the allocator.
const LEFT_BYTES_MAX: u64 = 8 * MIB;

/// Time for tasks and connections of ended forks to end.
const GIVEN_BACK: Duration = Duration::from_secs(60);

/// Begins a fork. Returns its path.
async fn begin(client: Client) -> String {
    let made = client.post("/snapshots", &json!({})).await.with_code(201).json();
    format!("/snapshots/{}", made["name"].as_str().unwrap())
}

/// Reads all pods of a fork, and writes one of its own, which its watch sees.
async fn use_fork(client: Client, number: usize) -> Watch {
    let listed = client.get(&format!("{PODS}?limit=1")).await.with_code(200);
    assert_eq!(listed.remaining(), Some(OBJECTS as u64 - 1));
    let mut watch = client.watch(&format!("{PODS}?watch=1&resourceVersion={}", listed.resource_version())).await;
    let own = pod(&format!("own-{number}")).namespace("own");
    client.create(&own).await;
    assert_eq!(watch.event().await.brief(), format!("ADDED own/own-{number}"));
    let found = client.get(&own.collection()).await.with_code(200);
    assert_eq!(found.keys().len(), 1, "only its own");
    watch
}

/// Open files of a process.
fn files(server: &Server) -> usize {
    fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap().count()
}

/// Goal: forks are copies in name only. Method: 100 forks of 10,000 pods at once, each in use; then 1,000 in turn, whose memory
/// and files come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forks_share_objects_and_leave_nothing_behind() {
    let populate = format!("pods={OBJECTS},nodes=100,namespaces=20,seed=1");
    let server = Server::start(BINARY, &["--forks", "--populate", &populate]).await;
    let origin = server.client();
    origin.get(&format!("{PODS}?limit=1")).await.with_code(200);
    // The first fork loads pages that stay.
    let first = begin(origin).await;
    drop(use_fork(origin.below(&first), 0).await);
    origin.delete(&first).await.with_code(200);
    let (before, open) = (server.private_bytes(), files(&server));

    let (mut paths, mut watches) = (Vec::new(), Vec::new());
    for number in 0..FORKS {
        let path = begin(origin).await;
        watches.push(use_fork(origin.below(&path), number).await);
        paths.push(path);
    }
    let grown = server.private_bytes().saturating_sub(before);
    eprintln!("{FORKS} forks: {} KiB more", grown >> 10);
    assert!(grown <= ALL_BYTES_MAX, "{} KiB", grown >> 10);
    assert_eq!(origin.get(&format!("{PODS}?limit=1")).await.remaining(), Some(OBJECTS as u64 - 1));
    drop(watches);
    for path in paths {
        origin.delete(&path).await.with_code(200);
    }

    for turn in 0..FORKS_IN_TURN / 10 {
        let used = (0..10).map(|number| async move {
            let path = begin(origin).await;
            let watch = use_fork(origin.below(&path), turn * 10 + number).await;
            origin.delete(&path).await.with_code(200);
            drop(watch);
        });
        join_all(used).await;
    }
    let begun = Instant::now();
    loop {
        let (left, now) = (server.private_bytes().saturating_sub(before), files(&server));
        if left <= LEFT_BYTES_MAX && now <= open {
            return eprintln!("{FORKS_IN_TURN} forks in turn: {} KiB more, {now} files, {open} before", left >> 10);
        }
        assert!(begun.elapsed() < GIVEN_BACK, "{} KiB and {now} files are left, {open} files before", left >> 10);
        sleep(Duration::from_millis(100)).await;
    }
}
