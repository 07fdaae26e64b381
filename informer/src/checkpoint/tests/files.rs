//! Names, locks and permissions of files, and files that are not a checkpoint of this informer.

use std::fs;

use super::fixture::{Source, found, identity, identity_of, log_of, several_saves, writer};
use crate::checkpoint::{IgnoreReason, OpenedCheckpoint, open, writer::SaveStats};

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
    let confirmed = writer.save(&source.snapshot(), super::fixture::confirmed_at(source.position + 60)).unwrap();
    assert!((1..100).contains(&confirmed.bytes), "confirmed a minute later: {confirmed:?}");
}

#[test]
fn a_state_that_was_never_complete_is_not_saved() {
    let dir = tempfile::tempdir().unwrap();
    let mut snapshot = Source::new().snapshot();
    snapshot.synced = false;
    assert_eq!(writer(dir.path()).save(&snapshot, std::time::SystemTime::now()).unwrap(), SaveStats::default());
    assert!(!log_of(dir.path()).exists());
}

/// Goal: objects are restored as stored, even if the stored form lacks their names. Method: a transform that leaves one
/// member, as a user's own type does.
#[test]
fn names_uids_and_versions_come_back_when_the_bodies_lack_them() {
    use informer_core::{
        ResourceVersion, Time,
        object::Meta,
        store::{Event, Store, StoreConfig, TransformedObject},
    };

    let dir = tempfile::tempdir().unwrap();
    let (json, now) = (super::fixture::object("a", 7, 3), Time(std::time::Duration::ZERO));
    let cut = Box::new(|_: &[u8]| Some(TransformedObject { json: b"{\"data\":1}".to_vec(), value: None }));
    let mut store = Store::new(StoreConfig { transforms: vec![cut], ..StoreConfig::default() });
    store.handle(now, Event::Apply(json.as_bytes(), &Meta::read(json.as_bytes()).unwrap())).unwrap();
    store.handle(now, Event::InitDone(ResourceVersion::from(9))).unwrap();
    writer(dir.path()).save(&store.snapshot(), std::time::SystemTime::now()).unwrap();

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

/// Goal: an unusable file yields its reason, and is replaced by the next save. Method: a table of unusable files.
#[test]
fn what_is_not_this_informers_state_is_ignored_with_a_reason() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    several_saves(dir.path());
    let log = fs::read(log_of(dir.path())).unwrap();
    let foreign = {
        let mut writer = open(other.path(), &identity_of("nodes")).writer.unwrap();
        Source::new().save(&mut writer);
        fs::read(other.path().join(format!("{}.checkpoint", identity_of("nodes").file_stem()))).unwrap()
    };
    let newer = [&log[..8], &[9, 0, 0, 0], &log[12..]].concat();
    for (bytes, reason) in [
        (&b""[..], "the file is no checkpoint"),
        (b"kind: Pod\napiVersion: v1\n", "the file is no checkpoint"),
        (&newer, "format 9 is not known"),
        (
            &foreign,
            "it is the state of another informer: \"server https://10.0.0.1:6443/\\nca 1f\\nresource /api/v1/nodes",
        ),
        (&log[..100], "it is damaged"),
    ] {
        fs::write(log_of(dir.path()), bytes).unwrap();
        let OpenedCheckpoint { saved, ignored, writer } = open(dir.path(), &identity());
        let message = ignored.unwrap().to_string();
        assert!(saved.is_none() && message.starts_with(reason), "{message}");
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
    assert_eq!(ignored.unwrap().to_string(), "cannot create the directory");
    fs::create_dir(log_of(dir.path())).unwrap();
    assert_eq!(found(dir.path()).unwrap_err().to_string(), "cannot open the file");
}

/// Goal: other users cannot read files that may contain Secrets. Method: check the modes of created and of existing
/// files.
#[cfg(unix)]
#[test]
fn files_are_for_this_user_alone_and_directories_that_were_there_stay_as_they_are() {
    use std::os::unix::fs::PermissionsExt as _;

    let dir = tempfile::tempdir().unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let (created, there) = (dir.path().join("created/deep"), dir.path().join("there"));
    fs::create_dir(&there).unwrap();
    fs::set_permissions(&there, fs::Permissions::from_mode(0o755)).unwrap();
    for (dir, expected) in [(&created, 0o700), (&there, 0o755)] {
        let mut writer = writer(dir);
        Source::new().save(&mut writer);
        assert_eq!(mode(dir), expected);
        let files = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()).collect::<Vec<_>>();
        assert_eq!(files.len(), 2, "a log and a lock: {files:?}");
        for file in files {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
    }
}
