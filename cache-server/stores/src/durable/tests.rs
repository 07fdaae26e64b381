//! The promises of a store on a disk that may be cut off, full or changed.

mod disks;
mod heartbeats;

use std::{collections::BTreeMap, io::ErrorKind, time::Duration};

use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, future::join_all};
use informer_core::KeyedObject as _;
use serde_json::json;
use watch_cache::{Draft, Entry};

use self::disks::{CutDisk, FakeDisk, LostWrites, SyncFailure};
use super::*;
use crate::{
    registry::{Definition, Registry},
    storage::{Expect, SourceRecord, Update, WriteError},
};

const BOUNDS: HistoryBounds =
    HistoryBounds { age: Duration::from_secs(600), bytes: 1 << 20, changes: 1_000, trimmed: 1_000 };

fn ty(plural: &str) -> Arc<ResourceType> {
    Registry::builtin().find("", "v1", plural).expect("a built-in type")
}

fn put(ty: &Arc<ResourceType>, name: &str, expect: Expect, content: &str) -> Txn {
    let object = format!(r#"{{"metadata":{{"name":"{name}","namespace":"a"}},"data":{{"n":"{content}"}}}}"#);
    let draft = Draft::new(&ty.schema, object.as_bytes()).expect("an object");
    Txn { ty: Arc::clone(ty), key: draft.key().to_owned(), expect, put: Some(draft), cause: None }
}

fn delete(ty: &Arc<ResourceType>, name: &str, at: u64) -> Txn {
    Txn { ty: Arc::clone(ty), key: format!("a/{name}"), expect: Expect::At(at), put: None, cause: None }
}

fn on(disk: &(impl DataDisk + Clone), bounds: HistoryBounds) -> Result<DurableStorage, DiskError> {
    DurableStorage::on(Arc::new(disk.clone()), Some(10), bounds)
}

fn open(disk: &FakeDisk) -> DurableStorage {
    on(disk, BOUNDS).expect("a disk that works")
}

async fn create(store: &DurableStorage, ty: &Arc<ResourceType>, name: &str) -> Result<u64, WriteError> {
    store.write(put(ty, name, Expect::Absent, "1")).await.map(|written| written.resource_version)
}

async fn state(store: &DurableStorage, ty: &Arc<ResourceType>) -> BTreeMap<String, u64> {
    let entries: Vec<Arc<Entry>> =
        store.list(ty).await.expect("lists").entries.try_collect().await.expect("lists to the end");
    entries.iter().map(|entry| (entry.key().to_owned(), entry.resource_version())).collect()
}

/// Follows the type from the start; returns the steps that are there at once: `+a/x@7`, `-a/x@8`, `=9`, and the state
/// before them as `a/x@6` … `|6`.
async fn steps(store: &DurableStorage, ty: &Arc<ResourceType>) -> Vec<String> {
    let (_, _, reader) = watch_cache::cache(Arc::clone(&ty.schema), watch_cache::Limits::default());
    let mut updates = store.follow(ty, FollowFrom::Start, reader).await.expect("is followed");
    let mut steps = Vec::new();
    while let Some(Some(update)) = updates.next().now_or_never() {
        let of = |record: SourceRecord| match record {
            SourceRecord::Entry(entry) => format!("{}@{}", entry.key(), entry.resource_version()),
            SourceRecord::Json { .. } => unreachable!("the store has entries"),
        };
        let step = match update.expect("no trouble") {
            Update::State { objects, revision } => {
                steps.extend(objects.iter().map(|entry| format!("{}@{}", entry.key(), entry.resource_version())));
                format!("|{revision}")
            }
            Update::StateBegins => continue,
            Update::Object(record) => of(record),
            Update::StateComplete(at) => format!("|{at}"),
            Update::Put(record) => format!("+{}", of(record)),
            Update::Deleted { key, revision } => format!("-{key}@{revision}"),
            Update::Progress(at) => format!("={at}"),
            Update::Batch(_) | Update::Removed(_) | Update::StateAbandoned | Update::HistoryLost => {
                unreachable!("the store sends none")
            }
        };
        steps.push(step);
    }
    steps
}

#[tokio::test]
async fn what_was_written_is_there_again_with_its_history() {
    let (disk, maps, pods) = (FakeDisk::default(), ty("configmaps"), ty("pods"));
    let store = open(&disk);
    assert_eq!(create(&store, &maps, "x").await.expect("absent"), 11);
    assert_eq!(create(&store, &maps, "y").await.expect("absent"), 12);
    store.write(put(&maps, "x", Expect::At(11), "2")).await.expect("as expected");
    store.write(delete(&maps, "y", 12)).await.expect("as expected");
    drop(store);
    let store = open(&disk);
    assert_eq!(state(&store, &maps).await, BTreeMap::from([("a/x".to_owned(), 13)]));
    let start = store.current(&maps).await.expect("answers");
    assert!(14 < start, "{start} was never given out");
    // A write before the first reader is part of what it gets.
    let later = create(&store, &maps, "z").await.expect("absent");
    let history = ["|10", "+a/x@11", "+a/y@12", "+a/x@13", "-a/y@14", &format!("+a/z@{later}"), &format!("={later}")];
    assert_eq!(steps(&store, &maps).await, history);
    assert_eq!(steps(&store, &maps).await.len(), 3, "the second reader gets the state alone");
    assert_eq!(steps(&store, &pods).await, ["|10", &format!("={later}")], "a type without objects resumes too");
    assert!(store.is_known(14) && store.is_known(start) && store.is_known(later) && !store.is_known(15));
    assert!(matches!(create(&store, &maps, "x").await, Err(WriteError::Exists)));
}

#[tokio::test]
async fn the_second_of_two_equal_creates_is_refused_within_a_batch() {
    let (store, maps) = (open(&FakeDisk::default()), ty("configmaps"));
    let written = join_all((0..200).map(|number| create(&store, &maps, if number % 2 == 0 { "x" } else { "y" }))).await;
    let revisions: Vec<u64> = written.iter().filter_map(|written| written.as_ref().ok().copied()).collect();
    assert_eq!(revisions, [11, 12]);
    let refused = written.iter().filter(|written| matches!(written, Err(WriteError::Exists))).count();
    assert_eq!(refused, 198);
}

/// A custom type.
fn custom(number: usize) -> Arc<ResourceType> {
    let names = json!({"plural": format!("widgets{number}"), "singular": "widget", "kind": "Widget",
        "listKind": "WidgetList"});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let object = json!({"metadata": {"name": format!("widgets{number}.example.com")},
        "spec": {"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]},
        "status": {"acceptedNames": names, "conditions": [{"type": "Established", "status": "True"}],
            "storedVersions": ["v1"]}});
    let definition = Definition::read(object.as_object().expect("an object")).expect("a definition");
    definition.stored_type(&Arc::new(definition.schema()), 1).expect("it is established")
}

/// Goal: types that came and went take no memory, and positions of their time are not taken for known ones when they come
/// again. Method: more types than the table has room for, each with an object that is deleted; one whose object stays, and
/// one that is in use.
#[tokio::test]
async fn types_that_came_and_went_are_forgotten() {
    let (store, used) = (open(&FakeDisk::default()), custom(1_002));
    let at = create(&store, &custom(1_001), "x").await.expect("absent");
    assert_eq!(state(&store, &used).await, BTreeMap::new());
    let mut last = 0;
    for number in 0..1_000 {
        let ty = custom(number);
        steps(&store, &ty).await;
        let written = create(&store, &ty, "x").await.expect("absent");
        last = store.write(delete(&ty, "x", written)).await.expect("as expected").resource_version;
    }
    assert!(store.types.lock().len() < 600, "{}", store.types.lock().len());
    let stays = custom(1_001);
    for ty in [&stays, &used] {
        assert!(matches!(store.types.lock().get(ty.id()), Some(TypeRecords::Loaded(_))), "{}", ty.id());
    }
    assert_eq!(state(&store, &stays).await, BTreeMap::from([("a/x".to_owned(), at)]));
    assert_eq!(steps(&store, &stays).await[0], "|10");
    let again = steps(&store, &custom(0)).await;
    let [from, progress] = &again[..] else { panic!("{again:?}") };
    assert_eq!(*progress, format!("={last}"));
    assert!(from[1..].parse::<u64>().expect("a revision") > at + 2, "{from}");
}

/// Goal: heartbeats do not make the file grow. Method: a small bound of the history, and one object written many times,
/// in six processes.
#[tokio::test]
async fn the_file_stops_growing() {
    let (disk, maps) = (FakeDisk::default(), ty("configmaps"));
    let bounds = HistoryBounds { bytes: 20_000, ..BOUNDS };
    let (mut sizes, mut at, content) = (Vec::new(), None, "x".repeat(1_000));
    for _ in 0..6 {
        let store = on(&disk, bounds).expect("a disk that works");
        for _ in 0..300 {
            let expect = at.map_or(Expect::Absent, Expect::At);
            let written = store.write(put(&maps, "lease", expect, &content)).await.expect("as expected");
            at = Some(written.resource_version);
        }
        let retained = steps(&store, &maps).await.len();
        assert!(retained <= 330, "the history of one process and some of the one before: {retained}");
        drop(store);
        sizes.push(disk.len().expect("a length"));
    }
    assert!(sizes.iter().all(|size| *size < 300_000), "less than one process wrote: {sizes:?}");
}

/// Goal: no acknowledged write is lost by a power cut, and the history is one. Method: a run of writes on a disk that
/// loses or tears what was not synced, cut at every operation; then the store is opened on what is left.
#[tokio::test]
async fn a_power_cut_at_any_write_loses_nothing_that_was_acknowledged() {
    let maps = ty("configmaps");
    // A file appears under its name only when it is whole.
    let begun = FakeDisk::default();
    drop(open(&begun));
    let mut cuts = 0;
    for cut in 0.. {
        let mut rng = fastrand::Rng::with_seed(cut);
        let disk = CutDisk::new(&begun, usize::try_from(cut).expect("small"));
        // Versions that were acknowledged, keys whose deletion was, and keys whose deletion may have happened.
        let (mut acknowledged, mut gone, mut unsure) = (BTreeMap::<String, u64>::new(), Vec::new(), Vec::new());
        if let Ok(store) = on(&disk, BOUNDS) {
            for round in 0..4 {
                let names = ["p", "q", "r"];
                let txns = names.map(|name| match acknowledged.get(&format!("a/{name}")) {
                    Some(&at) if round == 3 => delete(&maps, name, at),
                    Some(&at) => put(&maps, name, Expect::At(at), &round.to_string()),
                    None => put(&maps, name, Expect::Absent, &round.to_string()),
                });
                for (name, written) in names.iter().zip(join_all(txns.map(|txn| store.write(txn))).await) {
                    let key = format!("a/{name}");
                    match written {
                        Ok(_) if round == 3 && acknowledged.remove(&key).is_some() => gone.push(key),
                        Err(_) if round == 3 => unsure.push(key),
                        Ok(written) => drop(acknowledged.insert(key, written.resource_version)),
                        Err(_) => {}
                    }
                }
            }
        }
        let is_over = !disk.was_cut();
        let left = disk.after_the_cut(&mut rng);
        let store = match on(&left, BOUNDS) {
            Ok(store) => store,
            Err(error) => panic!("cut at {cut}: {error}"),
        };
        let found = state(&store, &maps).await;
        for (key, at) in &acknowledged {
            let is_there = found.get(key).map_or_else(|| unsure.contains(key), |found| at <= found);
            assert!(is_there, "cut at {cut}: {key} {at} {found:?}");
        }
        assert!(gone.iter().all(|key| !found.contains_key(key)), "cut at {cut}: {gone:?} {found:?}");
        let newest = found.values().max().copied().unwrap_or_default();
        let written = create(&store, &maps, "new").await.expect("the disk works again");
        assert!(newest < written && acknowledged.values().all(|at| *at < written), "cut at {cut}");
        cuts += 1;
        if is_over {
            break;
        }
    }
    assert!(30 < cuts, "{cuts} cuts");
}

/// Goal: a failed sync loses nothing that was acknowledged or that readers saw later. Method: a sync of each run fails once
/// or three times, and shows or loses its writes afterwards; the process continues, or another one begins; then the power is
/// cut. Later writes replace the pages of small objects, and none of the pages of a batch of large ones.
#[tokio::test]
async fn a_failed_sync_and_a_power_cut_lose_nothing_that_was_acknowledged() {
    let begun = FakeDisk::default();
    drop(open(&begun));
    let (begun, mut runs) = (&begun, Vec::new());
    for (bytes, syncs) in [(1, 8), (100_000, 2)] {
        for after in 0..syncs {
            for failing in [1, 3] {
                for lost in [LostWrites::Shown, LostWrites::Gone] {
                    for restarts in [false, true] {
                        let disk = CutDisk::new(begun, usize::MAX).failing_syncs(after, failing, lost);
                        let disk = disk.counting_syncs_of(FAILING_BATCH * bytes);
                        runs.push(async move {
                            let seen = write_over_failures(&disk, restarts, bytes).await;
                            let run = format!("{failing} of {lost:?} after {after} of {bytes}, restarts: {restarts}");
                            (run, disk, seen)
                        });
                    }
                }
            }
        }
    }
    let (maps, mut failures) = (ty("configmaps"), Vec::new());
    for (run, disk, seen) in join_all(runs).await {
        match on(&disk.after_the_cut(&mut fastrand::Rng::with_seed(7)), BOUNDS) {
            Ok(store) if state(&store, &maps).await == seen => {}
            Ok(_) => failures.push(format!("{run}: another state")),
            Err(error) => failures.push(format!("{run}: {error}")),
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Objects that are written at once until the syncs have failed, and objects of the batch whose sync fails: the writing
/// thread may take the first one alone.
const WRITTEN_AT_ONCE: usize = 5;
const FAILING_BATCH: usize = 3;

/// Creates objects of so many bytes until the syncs have failed, and small ones until three of them are acknowledged, at
/// another process after each failure if it `restarts`. Then it cuts the power, and returns the state that readers saw.
async fn write_over_failures(disk: &CutDisk, restarts: bool, bytes: usize) -> BTreeMap<String, u64> {
    let (maps, mut acknowledged, mut since) = (ty("configmaps"), BTreeMap::new(), 0);
    let mut store = None;
    for number in 0.. {
        let Some(open) = &store else {
            store = on(disk, BOUNDS).ok();
            continue;
        };
        let has_failed = disk.has_failed();
        let (count, content) = if has_failed { (1, "x".to_owned()) } else { (WRITTEN_AT_ONCE, "x".repeat(bytes)) };
        let txns = (0..count).map(|part| put(&maps, &format!("n{number}-{part}"), Expect::Absent, &content));
        let (mut is_refused, keyed) = (false, txns.map(|txn| (txn.key.clone(), open.write(txn))));
        for (key, written) in join_all(keyed.map(|(key, write)| write.map(|written| (key, written)))).await {
            match written {
                Ok(written) => drop(acknowledged.insert(key, written.resource_version)),
                Err(WriteError::Source(_)) => is_refused = true,
                Err(error) => panic!("{error:?}"),
            }
        }
        since += usize::from(has_failed && !is_refused);
        if since == 3 {
            break;
        }
        if is_refused && restarts {
            store = None;
        } else if is_refused {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let seen = state(store.as_ref().expect("is open"), &maps).await;
    assert!(acknowledged.iter().all(|(key, at)| seen.get(key) == Some(at)), "{acknowledged:?} {seen:?}");
    disk.cut();
    seen
}

/// Goal: whatever fails, memory has the objects of the file. Method: syncs fail in bursts, as on a broken or on a full disk,
/// while objects are created and deleted; then the power is cut.
#[tokio::test]
async fn memory_and_the_file_agree_after_any_failed_syncs() {
    let begun = FakeDisk::default();
    drop(open(&begun));
    let (begun, maps) = (&begun, ty("configmaps"));
    let runs = (0..24).map(|seed| {
        let maps = &maps;
        async move {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut syncs = Vec::new();
            for _ in 0..4 {
                syncs.extend((0..rng.usize(0..6)).map(|_| None));
                syncs.extend((0..rng.usize(1..6)).map(|_| {
                    let kind = if rng.u8(0..4) == 0 { ErrorKind::Other } else { ErrorKind::StorageFull };
                    let lost = if rng.bool() { LostWrites::Shown } else { LostWrites::Gone };
                    Some(SyncFailure { kind, lost })
                }));
            }
            let disk = CutDisk::new(begun, usize::MAX);
            let store = on(&disk, BOUNDS).expect("a disk that works");
            for number in 0..10 {
                create(&store, maps, &format!("old{number}")).await.expect("absent");
            }
            let disk = disk.next_syncs(syncs.into_iter());
            for number in 0.. {
                let (has_failed, found) = (disk.has_failed(), state(&store, maps).await);
                let txn = match found.first_key_value() {
                    Some((key, at)) if !has_failed && rng.bool() => delete(maps, &key["a/".len()..], *at),
                    _ => put(maps, &format!("n{number}"), Expect::Absent, "1"),
                };
                let is_written = store.write(txn).await.is_ok();
                if has_failed && is_written {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(if is_written { 0 } else { 10 })).await;
            }
            let seen = state(&store, maps).await;
            disk.cut();
            drop(store);
            let left = on(&disk.after_the_cut(&mut rng), BOUNDS).expect("a disk that works");
            (seed, seen, state(&left, maps).await)
        }
    });
    let names = |state: &BTreeMap<String, u64>, other: &BTreeMap<String, u64>| -> Vec<String> {
        state.iter().filter(|(key, at)| other.get(*key) != Some(at)).map(|(key, at)| format!("{key}@{at}")).collect()
    };
    let differing: Vec<_> = join_all(runs).await.into_iter().filter(|(_, seen, left)| seen != left).collect();
    let differing = differing.iter().map(|(seed, seen, left)| (seed, names(seen, left), names(left, seen)));
    let differing: Vec<_> = differing.collect();
    assert!(differing.is_empty(), "only in memory, only in the file: {differing:#?}");
}

/// Goal: the outcome of a write whose sync failed is unknown to its writer, also if it happened. Method: one sync fails
/// while reads show its write.
#[tokio::test]
async fn a_write_whose_sync_failed_has_an_unknown_outcome() {
    let (disk, maps) = (CutDisk::new(&FakeDisk::default(), usize::MAX), ty("configmaps"));
    let store = on(&disk, BOUNDS).expect("a disk that works");
    create(&store, &maps, "before").await.expect("absent");
    let disk = disk.failing_syncs(0, 1, LostWrites::Shown);
    let error = create(&store, &maps, "x").await.expect_err("its sync failed");
    assert!(matches!(error, WriteError::Source(SourceError::Undecided(_))), "{error:?}");
    while store.refuses().is_some() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(disk.has_failed() && !disk.is_unsynced());
    assert!(matches!(create(&store, &maps, "x").await, Err(WriteError::Exists)), "it happened");
}

/// Goal: a full disk refuses writes, keeps reads, and loses nothing. Method: a disk with little room, then with more.
#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_room() {
    let (disk, maps) = (FakeDisk::default(), ty("configmaps"));
    let store = open(&disk);
    create(&store, &maps, "x").await.expect("absent");
    disk.set_room(Some(0));
    let (stored, error) = fill(&store, &maps).await;
    assert!(matches!(error, WriteError::Source(SourceError::Full(_))), "{error:?}");
    let error = create(&store, &maps, "full").await.expect_err("no room");
    assert!(matches!(error, WriteError::Source(SourceError::Full(_))), "refused without an attempt: {error:?}");
    assert!(matches!(store.refuses(), Some(SourceError::Full(_))));
    let before = state(&store, &maps).await;
    assert_eq!(before.len(), 1 + stored.len(), "reads go on");
    disk.set_room(None);
    let written = written_again(&store, &maps).await;
    assert!(before["a/x"] < written);
    let found = state(&store, &maps).await;
    drop(store);
    assert_eq!(state(&open(&disk), &maps).await, found);
}

/// Creates objects until the disk is full. Returns them, and the error.
async fn fill(store: &DurableStorage, maps: &Arc<ResourceType>) -> (Vec<(String, u64)>, WriteError) {
    let (mut stored, content) = (Vec::new(), "x".repeat(10_000));
    loop {
        let name = format!("f{}", stored.len());
        match store.write(put(maps, &name, Expect::Absent, &content)).await {
            Ok(written) => stored.push((name, written.resource_version)),
            Err(error) => return (stored, error),
        }
    }
}

/// Creates an object as soon as the store takes it.
async fn written_again(store: &DurableStorage, maps: &Arc<ResourceType>) -> u64 {
    loop {
        match create(store, maps, "again").await {
            Ok(written) => return written,
            Err(error) => assert!(matches!(error, WriteError::Source(SourceError::Full(_))), "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Goal: clients can make room on a full disk. Method: the disk is filled, everything is deleted, and so on, with a process
/// that begins on the full disk in between.
#[tokio::test]
async fn deletions_on_a_full_disk_make_room() {
    let (disk, maps) = (FakeDisk::default(), ty("configmaps"));
    disk.set_room(Some(3_000));
    let mut store = open(&disk);
    let mut counts = Vec::new();
    for round in 0..6 {
        let (stored, error) = fill(&store, &maps).await;
        assert!(matches!(error, WriteError::Source(SourceError::Full(_))), "{error:?}");
        if round == 3 {
            drop(store);
            store = open(&disk);
            assert_eq!(state(&store, &maps).await.len(), stored.len());
        }
        let deletions = stored.iter().map(|(name, at)| store.write(delete(&maps, name, *at)));
        for written in join_all(deletions).await {
            written.expect("a deletion needs no room");
        }
        assert!(state(&store, &maps).await.is_empty());
        counts.push(stored.len());
        let again = written_again(&store, &maps).await;
        store.write(delete(&maps, "again", again)).await.expect("as expected");
    }
    // The room for them is there again each time; how much of it at once depends on when the file was made shorter.
    assert!(counts.iter().all(|count| counts[0] / 2 <= *count), "{counts:?}");
    drop(store);
    assert!(state(&open(&disk), &maps).await.is_empty());
}

#[test]
fn another_programs_file_a_newer_format_and_damage_are_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let (at, file) = (folder.path().join("data"), folder.path().join("data/objects.redb"));
    let refused = || DurableStorage::open(&at, Some(10)).expect_err("refused");
    let store = DurableStorage::open(&at, Some(10)).expect("a new folder");
    assert!(matches!(refused(), DataFolderError::Folder(_)), "it is in use");
    drop(store);
    let good = std::fs::read(&file).expect("the file");
    for foreign in [&b""[..], b"text", &[0; 8_192]] {
        std::fs::write(&file, foreign).expect("writes");
        assert!(matches!(refused(), DataFolderError::Foreign(_)), "{}", refused());
    }
    let mut damaged = good.clone();
    damaged[4_096..].fill(0x5a);
    std::fs::write(&file, damaged).expect("writes");
    assert!(matches!(refused(), DataFolderError::Damaged { .. }), "{}", refused());
    std::fs::write(&file, good).expect("writes");
    let database = redb::Database::open(&file).expect("the file");
    let transaction = database.begin_write().expect("begins");
    let meta = redb::TableDefinition::<&str, &[u8]>::new("meta");
    transaction.open_table(meta).expect("opens").insert("format", &9_u32.to_le_bytes()[..]).expect("writes");
    transaction.commit().expect("commits");
    drop(database);
    assert!(matches!(refused(), DataFolderError::Newer { found: 9, .. }), "{}", refused());
    #[cfg(unix)]
    for (path, mode) in [(&at, 0o700), (&file, 0o600)] {
        let found = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).expect("is there").permissions());
        assert_eq!(found & 0o777, mode);
    }
}

/// Goal: positions of a history that went on without this copy of the file are refused. Method: a copy is opened after
/// the original was written further.
#[tokio::test]
async fn a_restored_copy_knows_no_position_of_the_history_that_went_on() {
    let (disk, maps) = (FakeDisk::default(), ty("configmaps"));
    let store = open(&disk);
    let saved = create(&store, &maps, "x").await.expect("absent");
    drop(store);
    let copy = disk.copy();
    let store = open(&disk);
    let lost = create(&store, &maps, "lost").await.expect("absent");
    drop(store);
    // The clock of the next start is far ahead, as clocks are.
    let store = DurableStorage::on(Arc::new(copy), Some(1 << 40), BOUNDS).expect("a disk that works");
    assert!(store.is_known(saved) && !store.is_known(lost));
    assert_eq!(store.current(&maps).await.expect("answers"), 1 << 40);
}

/// Goal: a store over a copy goes on where the last writer of the file stopped, and so does that writer if it takes the file
/// back. Method: after the copy, writes to types that were read from it, that were not, and that it lacks; then the way back.
#[tokio::test]
async fn a_copy_gets_what_was_written_since() {
    let (folder, [maps, pods, nodes]) =
        (tempfile::tempdir().expect("a folder"), ["configmaps", "pods", "nodes"].map(ty));
    let old = Arc::new(DurableStorage::open(folder.path(), Some(10)).expect("an empty folder"));
    let [x, _] = [create(&old, &maps, "x").await.expect("absent"), create(&old, &pods, "p").await.expect("absent")];
    let copied = Arc::clone(&old);
    let copy = spawn_blocking(move || copied.copy()).await.expect("no panic").expect("the disk works");
    let next = DurableStorage::open_copy(folder.path(), Some(10), copy).expect("a whole copy");
    assert_eq!(steps(&next, &maps).await, ["|10", "+a/x@11", "=12"]);
    let (_, _, reader) = watch_cache::cache(Arc::clone(&maps.schema), watch_cache::Limits::default());
    let mut updates = next.follow(&maps, FollowFrom::Start, reader).await.expect("is followed");
    old.write(delete(&maps, "x", x)).await.expect("as expected");
    let last = async |store: &DurableStorage, name| {
        create(store, &nodes, name).await.expect("absent");
        create(store, &pods, name).await.expect("absent");
        create(store, &maps, name).await.expect("absent")
    };
    let written = last(&old, "y").await;
    assert!(matches!(create(&next, &maps, "z").await, Err(WriteError::Source(SourceError::Unavailable(_)))));
    let released = Arc::clone(&old);
    spawn_blocking(move || released.release()).await.expect("no panic");
    assert!(create(&old, &maps, "z").await.is_err() && old.current(&maps).await.is_err() && old.newest().is_none());
    next.take(Duration::ZERO).await.expect("the file is free");
    let mut seen = Vec::new();
    while let Some(Some(Ok(update))) = updates.next().now_or_never() {
        if let Update::Put(SourceRecord::Entry(entry)) = &update {
            seen.push(entry.resource_version());
        } else if let Update::Deleted { revision, .. } = update {
            seen.push(revision);
        }
    }
    assert_eq!(seen, [written - 3, written], "the readers of the copy go on without a gap");
    let back = last(&next, "z").await;
    assert!(written < back && next.is_known(written) && !next.is_known(written + 1) && next.is_known(back));
    drop((updates, next));
    old.take(Duration::ZERO).await.expect("the file is free");
    let keys = |state: BTreeMap<String, u64>| state.into_keys().collect::<Vec<_>>();
    assert_eq!(keys(state(&old, &maps).await), ["a/y", "a/z"]);
    assert_eq!(keys(state(&old, &pods).await), ["a/p", "a/y", "a/z"]);
    assert!(back < create(&old, &maps, "x").await.expect("absent"));
}
