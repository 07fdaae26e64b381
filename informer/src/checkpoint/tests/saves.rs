//! States that a restart finds again, and files that are not a checkpoint of this informer.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::SystemTime,
};

use informer_core::{
    ResourceVersion, Time,
    object::Meta,
    store::{Event, Store, StoreConfig, TransformedObject},
};
use informer_log::{DiskLog, FileLock, LogBatch};

use super::fixture::{
    Source, confirmed_at, files, found, identity, identity_of, log_of, object, restart, several_saves, writer,
};
use crate::checkpoint::{
    CheckpointWriter, IgnoreReason, OpenedCheckpoint, SLACK_BYTES, open, record, writer::SaveStats,
};

#[test]
fn nothing_there_is_no_reason_to_complain() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(found(&dir.path().join("not/yet")), Ok(None)));
}

#[test]
fn a_save_writes_what_changed_and_nothing_when_nothing_did() {
    let dir = tempfile::tempdir().unwrap();
    let (mut source, mut writer) = (Source::new(), writer(dir.path()));
    (0..2_000).for_each(|number| source.put(&format!("pod-{number}"), 500));
    let first = source.save(&mut writer);
    assert!(first.rewritten && first.bytes > 2_000 * 500);
    assert_eq!(source.save(&mut writer), SaveStats::default());
    source.put("pod-7", 500);
    let one = source.save(&mut writer);
    assert!(!one.rewritten && (500..1_000).contains(&one.bytes), "{one:?}");
    source.bookmark();
    let moved = source.save(&mut writer);
    assert!((1..100).contains(&moved.bytes), "a position alone: {moved:?}");
    let confirmed = writer.save(&source.snapshot(), confirmed_at(source.position + 60)).unwrap();
    assert!((1..100).contains(&confirmed.bytes), "confirmed a minute later: {confirmed:?}");
}

/// Goal: a start does not read and store objects of long ago. Method: most of many objects are deleted, once in the process
/// that saved them and once after a restart.
#[test]
fn a_log_of_objects_that_became_few_is_rewritten() {
    for is_restarted in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (mut source, mut writer) = (Source::new(), writer(dir.path()));
        (0..6_000).for_each(|number| source.put(&format!("pod-{number}"), 500));
        source.save(&mut writer);
        if is_restarted {
            drop(writer);
            let (found, again) = restart(dir.path());
            (source, writer) = (found.unwrap().unwrap().1, again.unwrap());
        }
        (20..6_000).for_each(|number| source.delete(&format!("pod-{number}")));
        assert!(source.save(&mut writer).rewritten, "restarted: {is_restarted}");
        assert!(fs::metadata(log_of(dir.path())).unwrap().len() < 100_000);
        source.put("pod-1", 500);
        assert!(!source.save(&mut writer).rewritten);
    }
}

#[test]
fn a_state_that_was_never_complete_is_not_saved() {
    let dir = tempfile::tempdir().unwrap();
    let mut snapshot = Source::new().snapshot();
    snapshot.synced = false;
    assert_eq!(writer(dir.path()).save(&snapshot, SystemTime::now()).unwrap(), SaveStats::default());
    assert!(!log_of(dir.path()).exists());
}

/// Goal: objects are restored as stored, even if the stored form lacks their names. Method: a transform that leaves one
/// member, as a user's own type does.
#[test]
fn names_uids_and_versions_come_back_when_the_bodies_lack_them() {
    let dir = tempfile::tempdir().unwrap();
    let (json, now) = (object("a", 7, 3), Time::ZERO);
    let cut = Box::new(|_: &[u8]| Some(TransformedObject { json: b"{\"data\":1}".to_vec(), value: None }));
    let mut store = Store::new(StoreConfig { transforms: vec![cut], ..StoreConfig::default() });
    store.handle(now, Event::Apply(json.as_bytes(), &Meta::read(json.as_bytes()).unwrap())).unwrap();
    store.handle(now, Event::InitDone(ResourceVersion::from(9))).unwrap();
    writer(dir.path()).save(&store.snapshot(), SystemTime::now()).unwrap();

    let mut restored = Store::new(StoreConfig::default());
    open(dir.path(), &identity()).saved.unwrap().restore(&mut restored).unwrap();
    let snapshot = restored.snapshot();
    let pod = snapshot.get("default/a").unwrap();
    assert_eq!((pod.namespace(), pod.name(), pod.uid(), pod.resource_version()), ("default", "a", "u-a", "7"));
    assert_eq!(&*pod.json(), b"{\"data\":1}");
}

#[test]
fn the_second_user_of_a_file_gets_nothing_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let saves = several_saves(dir.path());
    let first = open(dir.path(), &identity());
    let before = fs::read(log_of(dir.path())).unwrap();
    let second = open(dir.path(), &identity());
    assert!(matches!(second, OpenedCheckpoint { saved: None, ignored: Some(IgnoreReason::Locked), writer: None }));
    assert_eq!(fs::read(log_of(dir.path())).unwrap(), before);
    drop(first);
    assert_eq!(found(dir.path()).unwrap().as_ref(), saves.last().map(|(state, _)| state));
}

#[test]
fn informers_share_a_directory_and_never_a_state() {
    let dir = tempfile::tempdir().unwrap();
    let saves = several_saves(dir.path());
    let resource = identity().resource;
    let others = [
        identity_of("nodes"),
        crate::checkpoint::Identity { server: "https://10.0.0.2:6443/".into(), ..identity() },
        crate::checkpoint::Identity { ca: "2f".into(), ..identity() },
        crate::checkpoint::Identity { resource: resource.replace("node-1", "node-2"), ..identity() },
        crate::checkpoint::Identity { trimming: "metadata.managedFields,spec".into(), ..identity() },
    ];
    let (mut source, mut open_ones) = (Source::new(), Vec::new());
    source.put("other", 3);
    for other in &others {
        let OpenedCheckpoint { saved, ignored, writer } = open(dir.path(), other);
        assert!(saved.is_none() && ignored.is_none(), "{other:?}");
        open_ones.push(writer.unwrap());
        source.save(open_ones.last_mut().unwrap());
    }
    drop(open_ones);
    assert_eq!(found(dir.path()).unwrap().as_ref(), saves.last().map(|(state, _)| state));
    let logs = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut logs: Vec<String> = logs.filter(|name| name.ends_with(".checkpoint")).collect();
    logs.sort();
    assert_eq!(logs.len(), 6);
    assert!(logs[0].starts_with("nodes-") && logs[1].starts_with("pods-"), "names can be read: {logs:?}");
}

/// Goal: each save is found again as it was. Method: a log cut at the end of each commit, and continued by the next save.
#[test]
fn a_log_is_the_state_of_its_last_commit_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let saves = several_saves(dir.path());
    let log = fs::read(log_of(dir.path())).unwrap();
    for (saved, end) in saves {
        fs::write(log_of(dir.path()), &log[..end]).unwrap();
        let (result, writer) = restart(dir.path());
        let (state, mut source) = result.unwrap().unwrap();
        assert_eq!(state, saved);
        source.put("next", 5);
        let mut writer = writer.unwrap();
        assert!(!source.save(&mut writer).rewritten, "the log goes on");
        drop(writer);
        assert_eq!(found(dir.path()).unwrap(), Some(source.on_disk()));
    }
}

/// Goal: a log with more objects than the store took is never continued, or those objects would stay in it. Method: an
/// object without a name.
#[test]
fn a_log_of_which_something_was_left_out_is_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (mut source, mut one) = (Source::new(), writer(dir.path()));
    source.put("a", 30);
    source.save(&mut one);
    drop(one);
    let mut log = DiskLog::new(files(dir.path()), SLACK_BYTES);
    log.resume(log.find(&identity().to_string()).unwrap().unwrap());
    let nameless = |batch: &mut LogBatch<'_>| {
        batch.push(record::PUT, &[&[0; 20], b"{}"])?;
        record::commit(batch, &ResourceVersion::from(source.position), 0)
    };
    log.append(nameless).unwrap();
    let OpenedCheckpoint { saved, mut writer, .. } = open(dir.path(), &identity());
    assert!(saved.unwrap().restore(&mut Store::new(StoreConfig::default())).unwrap().is_none());
    assert!(source.save(writer.as_mut().unwrap()).rewritten);
    drop(writer);
    assert_eq!(found(dir.path()).unwrap(), Some(source.on_disk()));
}

/// Goal: a temporarily full disk costs only the saves of that time. Method: a disk that is full within an append.
#[test]
fn a_save_that_fails_leaves_the_one_before_and_the_next_one_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let left = Arc::new(AtomicUsize::new(usize::MAX));
    let log = DiskLog::new(files(dir.path()).with_room(Arc::clone(&left)), SLACK_BYTES);
    let lock = FileLock::take(&dir.path().join("other")).unwrap().unwrap();
    let mut writer = CheckpointWriter::new(log, identity().to_string(), lock);
    let mut source = Source::new();
    source.put("a", 30);
    source.save(&mut writer);
    let before = source.on_disk();
    source.put("b", 30);
    source.delete("a");
    left.store(50, Ordering::SeqCst);
    writer.save(&source.snapshot(), confirmed_at(source.position)).unwrap_err();
    assert_eq!(found(dir.path()).unwrap(), Some(before));
    left.store(usize::MAX, Ordering::SeqCst);
    assert!(!source.save(&mut writer).rewritten);
    assert_eq!(open(dir.path(), &identity()).saved.unwrap().cut_bytes(), 0, "the half is removed");
    assert_eq!(found(dir.path()).unwrap(), Some(source.on_disk()));
}

/// Goal: a folder whose names cannot be synced does not make each save write all. Method: a disk that is full at the last
/// step of the first save.
#[test]
fn a_first_save_whose_last_sync_failed_is_continued() {
    let units = Arc::new(AtomicUsize::new(usize::MAX));
    let writer = |dir: &std::path::Path| {
        let log = DiskLog::new(files(dir).with_room(Arc::clone(&units)), SLACK_BYTES);
        let lock = FileLock::take(&dir.join("other")).unwrap().unwrap();
        CheckpointWriter::new(log, identity().to_string(), lock)
    };
    let (measured, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut source = Source::new();
    source.put("a", 30);
    source.save(&mut writer(measured.path()));
    let cost = usize::MAX - units.load(Ordering::SeqCst);
    units.store(cost - 1, Ordering::SeqCst);
    let mut writer = writer(dir.path());
    writer.save(&source.snapshot(), confirmed_at(source.position)).unwrap_err();
    units.store(usize::MAX, Ordering::SeqCst);
    source.put("b", 30);
    assert!(!source.save(&mut writer).rewritten);
    assert_eq!(found(dir.path()).unwrap(), Some(source.on_disk()));
}

/// Goal: the state of another informer, or of an older version of this library, is ignored with a reason, and replaced.
#[test]
fn a_file_that_is_not_this_informers_state_is_ignored_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    several_saves(dir.path());
    let log = fs::read(log_of(dir.path())).unwrap();
    let mut other = open(dir.path(), &identity_of("nodes")).writer.unwrap();
    Source::new().save(&mut other);
    let foreign = fs::read(dir.path().join(format!("{}.checkpoint", identity_of("nodes").file_stem()))).unwrap();
    let foreign_reason = "it belongs to another: \"server https://10.0.0.1:6443/\\nca 1f\\nresource /api/v1/nodes";
    let older = [&log[..8], &[2, 0, 0, 0], &log[12..]].concat();
    for (bytes, reason) in [(&foreign, foreign_reason), (&older, "its format 2 is not known")] {
        fs::write(log_of(dir.path()), bytes).unwrap();
        let OpenedCheckpoint { saved, ignored, writer } = open(dir.path(), &identity());
        let ignored = ignored.unwrap().to_string();
        assert!(saved.is_none() && ignored.starts_with(reason), "{ignored}");
        let mut source = Source::new();
        source.put("a", 3);
        assert!(source.save(&mut writer.unwrap()).rewritten, "{reason}: replaced");
        assert_eq!(found(dir.path()).unwrap(), Some(source.on_disk()), "{reason}");
    }
}

#[test]
fn a_directory_that_cannot_be_one_is_a_reason_and_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let OpenedCheckpoint { saved, ignored, writer } = open(&file, &identity());
    assert!(saved.is_none() && writer.is_none());
    assert_eq!(ignored.unwrap().to_string(), "the directory cannot be used");
    fs::create_dir(log_of(dir.path())).unwrap();
    assert!(found(dir.path()).unwrap_err().to_string().starts_with("it cannot be read: "));
}
