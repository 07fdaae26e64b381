//! A full disk: deletions go on, and make room for other writes. Needs the right to mount a file system in memory.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::{fs, io::Write as _, path::PathBuf, process::Command, time::Duration};

use serde_json::json;
use tests::{
    http::{Client, MERGE_PATCH},
    objects::configmap,
    process::Server,
};
use tokio::time::sleep;

use super::{kill, start};

/// A small file system, unmounted when dropped.
pub(crate) struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// `None`, with one line, if this user may not mount one.
    pub(crate) fn mount(test: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=32m", "tmpfs"]).arg(folder.path()).output();
        if mounted.is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self { folder });
        }
        eprintln!("{test}: skipped, no file system can be mounted");
        None
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Fills the disk by a file of another program.
    fn fill(&self) {
        let mut file = fs::File::create(self.path("filler")).unwrap();
        let piece = vec![7; 4_096];
        while file.write_all(&piece).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.folder.path()).output();
    }
}

/// Creates objects until one is refused. Returns their number.
pub(crate) async fn fill(client: Client) -> usize {
    for number in 0.. {
        let object = configmap(&format!("f{number}")).data(&"x".repeat(100_000));
        let answer = client.post(&object.collection(), object.body()).await;
        if answer.code != 201 {
            assert_eq!(answer.code, 507, "{}", answer.text());
            return number;
        }
    }
    unreachable!("the disk is never full")
}

/// Deletes these objects. Returns how many deletions were refused.
async fn delete(client: Client, count: usize) -> usize {
    let mut refused = 0;
    for number in 0..count {
        let code = client.delete(&configmap(&format!("f{number}")).path()).await.code;
        refused += usize::from(code != 200);
    }
    refused
}

/// Creates an object as soon as the server takes it.
async fn created(client: Client, name: &str) {
    let object = configmap(name).data("1");
    loop {
        let answer = client.post(&object.collection(), object.body()).await;
        if answer.code == 201 {
            break;
        }
        assert_eq!(answer.code, 507, "{}", answer.text());
        sleep(Duration::from_millis(20)).await;
    }
}

async fn readiness(server: &Server) -> String {
    server.client().get("/readyz?verbose").await.with_code(200).text().to_owned()
}

/// Goal: clients can make room on a full disk, also for objects that finalizers hold. Method: objects fill a small disk, all
/// of them are deleted, and so on; then another program fills the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_succeed_on_a_full_disk_and_make_room() {
    let Some(disk) = SmallDisk::mount("full disk") else { return };
    let mut server = start(&disk.path("data")).await;
    let mut filled = Vec::new();
    for round in 0..3 {
        let client = server.client();
        let held = configmap(&format!("held{round}"));
        client.create(&held).await;
        let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
        client.patch(&held.path(), MERGE_PATCH, &hold).await.with_code(200);
        let count = fill(client).await;
        assert!(readiness(&server).await.contains("[+]storage full: only removals are written"), "in round {round}");
        if round == 1 {
            kill(server).await;
            server = start(&disk.path("data")).await;
        }
        let client = server.client();
        assert_eq!(delete(client, count).await, 0, "deletions refused of {count} in round {round}");
        client.delete(&held.path()).await.with_code(200);
        client.patch(&held.path(), MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await.with_code(200);
        client.get(&held.path()).await.with_code(404);
        created(client, &format!("after{round}")).await;
        filled.push(count);
    }
    assert!(filled.iter().all(|count| filled[0] / 2 <= *count), "the room is there again each time: {filled:?}");
    disk.fill();
    let client = server.client();
    let count = fill(client).await;
    assert_eq!(delete(client, count).await, 0, "deletions refused of {count} beside another program");
    client.remove(&configmap("after0").data("1")).await;
    fs::remove_file(disk.path("filler")).unwrap();
    created(client, "last").await;
    assert!(readiness(&server).await.contains("[+]storage ok"));
    kill(server).await;
    let server = start(&disk.path("data")).await;
    let keys = server.client().get("/api/v1/configmaps").await.keys();
    assert_eq!(keys, ["default/after1", "default/after2", "default/last"]);
    eprintln!("objects of 100 KB until the disk was full: {filled:?}, then {count} beside another program");
}
