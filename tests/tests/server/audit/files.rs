//! The file of the log under load, moved by others, and on a disk without room.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;
use tests::{http::LINE_WAIT, objects::configmap, process::Server};
use tokio::time::sleep;

use super::{Audited, BINARY, CHECK_EVERY, RECORD_WAIT, lines_of, text};

/// Requests of the tests under load, and the clients that send them.
const REQUESTS: usize = 3_000;
const CLIENTS: usize = 8;

/// Goal: rotation and a program that moves the file lose no record. Method: load on small files, and a rename of the file in
/// the middle of it.
#[tokio::test]
async fn rotation_under_load_loses_no_line() {
    let audited = Audited::start(None, &["--audit-log-maxsize", "1", "--audit-log-maxbackup", "0"]).await;
    let (path, moved) = (audited.folder.path().join("audit.log"), audited.folder.path().join("audit-moved.log"));
    let clients = (0..CLIENTS).map(|client| {
        let server = audited.client();
        tokio::spawn(async move {
            for number in 0..REQUESTS / CLIENTS {
                let id = format!("load-{client}-{number}");
                server.get_with("/api/v1/configmaps?limit=1", &[("audit-id", &id)]).await.with_code(200);
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    let begun = Instant::now();
    // The first file is full, and the next one is in use.
    while fs::read_dir(audited.folder.path()).unwrap().count() < 2 || !path.exists() {
        assert!(begun.elapsed() < RECORD_WAIT, "no rotation");
        sleep(CHECK_EVERY).await;
    }
    fs::rename(&path, &moved).unwrap();
    for client in clients {
        client.await.unwrap();
    }
    let last = |line: &String| line.contains("\"load-") && line.contains("\"ResponseComplete\"");
    while audited.lines().iter().filter(|line| last(line)).count() < REQUESTS {
        assert!(begun.elapsed() < 4 * RECORD_WAIT, "{} lines", audited.lines().len());
        sleep(10 * CHECK_EVERY).await;
    }
    let all = audited.records();
    for (id, found) in all.iter().filter(|(id, _)| id.starts_with("load")) {
        assert_eq!(found.stages.len(), 2, "{id}");
    }
    let mut files = 0;
    for entry in fs::read_dir(audited.folder.path()).unwrap() {
        let (name, data) = entry.map(|entry| (entry.file_name(), entry.metadata().unwrap())).unwrap();
        assert_eq!(data.permissions().mode() & 0o777, 0o600, "{name:?}");
        assert!(data.len() <= 1 << 20, "{name:?}");
        files += 1;
    }
    assert!(files > 2, "{files}");
}

#[tokio::test]
async fn only_the_newest_files_are_kept() {
    let audited = Audited::start(None, &["--audit-log-maxsize", "1", "--audit-log-maxbackup", "1"]).await;
    let client = audited.client().over_http2();
    let agent = "x".repeat(900);
    let begun = Instant::now();
    let count = || fs::read_dir(audited.folder.path()).unwrap().count();
    let mut rotations = 0;
    let mut seen = Vec::new();
    while rotations < 3 {
        client.get_with("/livez", &[("user-agent", &agent)]).await.with_code(200);
        let names: Vec<_> =
            fs::read_dir(audited.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        rotations += usize::from(names.len() > 1 && names != seen && !seen.is_empty());
        seen = names;
        assert!(begun.elapsed() < RECORD_WAIT * 4, "{rotations}");
    }
    let settled = Instant::now();
    while count() > 2 {
        assert!(settled.elapsed() < RECORD_WAIT, "{}", count());
        sleep(CHECK_EVERY).await;
    }
}

/// Goal: a disk that takes nothing stops no request, and its losses are counted. Method: the device that is always full.
#[tokio::test]
async fn a_full_disk_does_not_stop_the_server() {
    let server = Server::start(BINARY, &["--audit-log", "/dev/full"]).await;
    let client = server.client();
    client.create(&configmap("a")).await;
    let mut watch = client.watch("/api/v1/configmaps?watch=1").await;
    assert_eq!(watch.event().await.brief(), "ADDED default/a");
    for _ in 0..200 {
        client.get("/api/v1/configmaps").await.with_code(200);
    }
    let begun = Instant::now();
    loop {
        let metrics = client.get("/metrics").await;
        let lost =
            metrics.text().lines().find_map(|line| line.strip_prefix(r#"apiserver_audit_error_total{plugin="log"} "#));
        if lost.is_some_and(|lost| lost.parse::<u64>().unwrap() > 400) {
            break;
        }
        assert!(begun.elapsed() < RECORD_WAIT, "{}", metrics.text());
        sleep(CHECK_EVERY).await;
    }
    let lost = "audit records lost";
    let log = server.logged(lost).await;
    assert_eq!(log.matches(lost).count(), 1, "{log}");
    server.terminate();
    assert!(watch.rest(LINE_WAIT).await.is_empty());
    assert_eq!(server.ended().await.code, Some(0));
}

/// A small file system, unmounted when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` if this user may not mount.
    fn mount(bytes: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder.path()).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

/// Goal: a disk that fills up and gets room again has whole lines only, and the log continues. Method: a file system of
/// 64 KiB.
#[tokio::test]
async fn a_disk_that_gets_room_again_continues_the_log() {
    let Some(disk) = SmallDisk::mount("64k") else {
        eprintln!("small disks are skipped: this user may not mount");
        return;
    };
    let log = disk.0.path().join("audit.log");
    let server = Server::start(BINARY, &["--audit-log", &text(&log)]).await;
    let client = server.client();
    for number in 0..300 {
        client.get_with("/livez", &[("audit-id", &format!("full-{number}"))]).await.with_code(200);
    }
    let wait = async |condition: &dyn Fn(&[String]) -> bool| {
        let begun = Instant::now();
        while !condition(&lines_of(disk.0.path())) {
            assert!(begun.elapsed() < RECORD_WAIT, "{}", server.log());
            sleep(CHECK_EVERY).await;
        }
    };
    wait(&|lines| lines.len() > 50).await;
    sleep(Duration::from_millis(50)).await;
    let whole = fs::read_to_string(&log).unwrap();
    assert!(whole.ends_with('\n'), "the last line is whole");
    whole.lines().for_each(|line| assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}"));
    assert!(!whole.contains("full-299"), "the disk is full");
    fs::write(&log, "").unwrap();
    client.get_with("/livez", &[("audit-id", "after")]).await.with_code(200);
    wait(&|lines| lines.iter().filter(|line| line.contains("\"after\"")).count() == 2).await;
    lines_of(disk.0.path()).iter().for_each(|line| assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}"));
    drop(server);
}
