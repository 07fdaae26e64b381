//! A week of lease renewals in compressed time: the file must not grow with them.

use std::{
    env, fs,
    sync::atomic::{AtomicU64, Ordering},
};

use super::*;

/// Pause between two renewals of a lease, in milliseconds.
const RENEWED_EVERY: u64 = 10_000;

/// Milliseconds of an hour.
const HOUR: u64 = 3_600_000;

fn setting(name: &str, usual: u64) -> u64 {
    env::var(name).map_or(usual, |number| number.parse().expect("a number"))
}

/// A lease as the kubelet writes it.
fn renewal(ty: &Arc<ResourceType>, number: u64, at: u64, expect: Expect) -> Txn {
    let name = format!("node-{number:04}");
    let time = format!("2026-01-01T{:02}:{:02}:{:02}.{at:012}Z", at / HOUR % 24, at / 60_000 % 60, at / 1_000 % 60);
    let object = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"kube-node-lease","uid":"6bb8b4ca-0000-4000-8000-{number:012}","creationTimestamp":"2026-01-01T00:00:00Z","ownerReferences":[{{"apiVersion":"v1","kind":"Node","name":"{name}","uid":"6bb8b4ca-1111-4000-8000-{number:012}"}}],"managedFields":[{{"apiVersion":"coordination.k8s.io/v1","fieldsType":"FieldsV1","fieldsV1":{{"f:metadata":{{"f:ownerReferences":{{}}}},"f:spec":{{"f:holderIdentity":{{}},"f:leaseDurationSeconds":{{}},"f:renewTime":{{}}}}}},"manager":"kubelet","operation":"Update","time":"{time}"}}]}},"spec":{{"holderIdentity":"{name}","leaseDurationSeconds":40,"renewTime":"{time}"}}}}"#
    );
    let draft = Draft::new(&ty.schema, object.as_bytes()).expect("an object");
    Txn { ty: Arc::clone(ty), key: draft.key().to_owned(), expect, put: Some(draft), cause: None }
}

/// Goal: heartbeats leave the file flat. Method: leases renewed every 10 s on a clock that the test moves, with the default
/// bounds of the history. `LEASES=500 HOURS=168` is a week, whose table is in `docs/storage.md`.
#[tokio::test]
async fn a_week_of_heartbeats_leaves_the_file_flat() {
    let (leases, hours) = (setting("LEASES", 20), setting("HOURS", 3));
    let (folder, now) = (tempfile::tempdir().expect("a folder"), Arc::new(AtomicU64::new(1 << 40)));
    let lock = FolderLock::take(folder.path()).expect("a new folder");
    let (file, clock) = (DataFile::new(folder.path(), lock), Arc::clone(&now));
    let path = file.path().to_owned();
    let clock = Box::new(move || clock.load(Ordering::Relaxed));
    let store =
        DurableStorage::on_with_clock(Arc::new(file), None, HistoryBounds::default(), clock).expect("a new folder");
    let ty = Registry::builtin().by_id("leases.coordination.k8s.io").expect("a built-in type");
    let mut versions = vec![Expect::Absent; usize::try_from(leases).expect("few")];
    let mut bytes = Vec::new();
    for tick in 0..hours * HOUR / RENEWED_EVERY {
        let at = tick * RENEWED_EVERY;
        let renewals = (0..).zip(&versions).map(|(number, expect)| store.write(renewal(&ty, number, at, *expect)));
        let written = join_all(renewals).await;
        for (version, written) in versions.iter_mut().zip(written) {
            *version = Expect::At(written.expect("the only writer").resource_version);
        }
        now.fetch_add(RENEWED_EVERY, Ordering::Relaxed);
        if (at + RENEWED_EVERY).is_multiple_of(HOUR) {
            bytes.push(fs::metadata(&path).expect("the file").len());
        }
    }
    let mebibytes = |bytes: &u64| bytes / 1_024 * 100 / 1_024;
    for (hour, size) in (1..).zip(&bytes).filter(|(hour, _)| hour == &1 || hour % (hours / 12).max(1) == 0) {
        let size = mebibytes(size);
        println!("hour {hour:>3}: {:>4}.{:02} MiB", size / 100, size % 100);
    }
    println!("{} renewals of {leases} leases", leases * hours * HOUR / RENEWED_EVERY);
    drop(store);
    // The history is as long as it gets after ten minutes.
    assert!(bytes.iter().all(|size| *size <= bytes[0]), "{bytes:?}");
}
