//! A store whose states are saved, and the state found on disk afterwards.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use informer_core::{
    ResourceVersion, Time,
    object::Meta,
    store::{Event, Snapshot, Store, StoreConfig},
};
use informer_log::LogFiles;

use crate::checkpoint::{CheckpointWriter, Identity, IgnoreReason, OpenedCheckpoint, open, writer::SaveStats};

/// JSON by key.
pub(in crate::checkpoint) type Contents = BTreeMap<String, String>;

/// The state found, none, or the reason why it is unusable.
pub(in crate::checkpoint) type Found<T> = Result<Option<T>, IgnoreReason>;

/// A state on disk: its position and its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::checkpoint) struct OnDisk {
    pub(in crate::checkpoint) position: u64,
    pub(in crate::checkpoint) objects: Contents,
}

pub(in crate::checkpoint) fn identity() -> Identity {
    identity_of("pods")
}

pub(in crate::checkpoint) fn identity_of(plural: &str) -> Identity {
    Identity {
        server: "https://10.0.0.1:6443/".into(),
        ca: "1f".into(),
        resource: format!("/api/v1/{plural}?labelSelector=&fieldSelector=spec.nodeName=node-1"),
        trimming: "metadata.managedFields".into(),
        object_changes: "objects".into(),
        program: String::new(),
    }
}

/// Time at which the server confirms a position in these tests.
pub(in crate::checkpoint) fn confirmed_at(position: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000 + position)
}

pub(in crate::checkpoint) fn object(name: &str, version: u64, filler: usize) -> String {
    let filler = "x".repeat(filler);
    let names = format!(r#""namespace":"default","name":"{name}","uid":"u-{name}","resourceVersion":"{version}""#);
    format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{{names}}},"data":"{filler}"}}"#)
}

/// A store filled by hand, and its position.
pub(in crate::checkpoint) struct Source {
    store: Store,
    pub(in crate::checkpoint) position: u64,
}

impl Source {
    /// Creates an empty source, synced at position 1.
    pub(in crate::checkpoint) fn new() -> Self {
        let mut source = Self { store: Store::new(StoreConfig::default()), position: 1 };
        source.tell(Event::Init { trusts_versions: true });
        source.tell(Event::InitDone(ResourceVersion::from(1)));
        source
    }

    fn tell(&mut self, event: Event<'_>) {
        self.store.handle(Time(Duration::ZERO), event).unwrap();
    }

    pub(in crate::checkpoint) fn put(&mut self, name: &str, filler: usize) {
        self.position += 1;
        let json = object(name, self.position, filler);
        let meta = Meta::read(json.as_bytes()).unwrap();
        self.tell(Event::Apply(json.as_bytes(), &meta));
    }

    pub(in crate::checkpoint) fn delete(&mut self, name: &str) {
        self.position += 1;
        let json = object(name, self.position, 0);
        let meta = Meta::read(json.as_bytes()).unwrap();
        self.tell(Event::Delete(&meta));
    }

    pub(in crate::checkpoint) fn bookmark(&mut self) {
        self.position += 1;
        self.tell(Event::Bookmark(ResourceVersion::from(self.position)));
    }

    pub(in crate::checkpoint) fn snapshot(&self) -> Snapshot {
        self.store.snapshot()
    }

    pub(in crate::checkpoint) fn on_disk(&self) -> OnDisk {
        let text = |json: &[u8]| String::from_utf8(json.to_vec()).unwrap();
        let snapshot = self.snapshot();
        let objects = snapshot.objects.iter().map(|it| (it.key().to_owned(), text(&it.json()))).collect();
        assert_eq!(snapshot.resource_version, Some(ResourceVersion::from(self.position)));
        OnDisk { position: self.position, objects }
    }

    pub(in crate::checkpoint) fn save(&self, writer: &mut CheckpointWriter) -> SaveStats {
        writer.save(&self.snapshot(), confirmed_at(self.position)).unwrap()
    }
}

/// Returns the state that a newly started informer loads, and the writer that continues its log.
pub(in crate::checkpoint) fn restart(dir: &Path) -> (Found<(OnDisk, Source)>, Option<CheckpointWriter>) {
    let OpenedCheckpoint { saved, ignored, mut writer } = open(dir, &identity());
    if let Some(ignored) = ignored {
        assert!(saved.is_none(), "used or ignored, not both");
        return (Err(ignored), writer);
    }
    let Some(saved) = saved else { return (Ok(None), writer) };
    let position = saved.position.as_u64().unwrap();
    assert_eq!(saved.confirmed_at, confirmed_at(position));
    let mut source = Source { store: Store::new(StoreConfig::default()), position };
    let log = saved.restore(&mut source.store).unwrap().expect("the store takes all objects");
    assert!(!source.store.snapshot().synced, "complete when the server says so");
    if let Some(writer) = &mut writer {
        writer.restored(log, &source.snapshot());
    }
    source.tell(Event::Restored);
    (Ok(Some((source.on_disk(), source))), writer)
}

/// Returns the state that a newly started informer loads.
pub(in crate::checkpoint) fn found(dir: &Path) -> Found<OnDisk> {
    restart(dir).0.map(|found| found.map(|(state, _)| state))
}

/// Returns a writer for an empty directory.
pub(in crate::checkpoint) fn writer(dir: &Path) -> CheckpointWriter {
    let OpenedCheckpoint { saved, ignored, writer } = open(dir, &identity());
    assert!(saved.is_none() && ignored.is_none());
    writer.unwrap()
}

pub(in crate::checkpoint) fn log_of(dir: &Path) -> PathBuf {
    dir.join(format!("{}.checkpoint", identity().file_stem()))
}

pub(in crate::checkpoint) fn files(dir: &Path) -> LogFiles {
    LogFiles::new(dir, format!("{}.checkpoint", identity().file_stem()))
}

/// Fills a directory with a log of several saves. Returns their states, and the offset at which each commit ends.
pub(in crate::checkpoint) fn several_saves(dir: &Path) -> Vec<(OnDisk, usize)> {
    let (mut source, mut writer) = (Source::new(), writer(dir));
    let mut saves = Vec::new();
    let steps: [&dyn Fn(&mut Source); 7] = [
        &|source| ["a", "b", "c"].into_iter().for_each(|name| source.put(name, 40)),
        &|source| source.put("b", 70),
        &|source| source.delete("a"),
        &|source| source.bookmark(),
        &|source| {
            source.put("d", 0);
            source.delete("b");
            source.put("c", 10);
        },
        &|source| source.put("a", 30),
        &|source| ["a", "c", "d"].into_iter().for_each(|name| source.delete(name)),
    ];
    for step in steps {
        step(&mut source);
        source.save(&mut writer);
        saves.push((source.on_disk(), fs::read(log_of(dir)).unwrap().len()));
    }
    saves
}
