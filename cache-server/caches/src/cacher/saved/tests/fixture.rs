//! A type with a scripted history, its cache, and every state it ever had.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use informer_core::Time;
use informer_log::{LogFiles, UnusableLog};
use parking_lot::RwLock;
use watch_cache::{Change, Draft, Limits, Reader, Writer, cache};

use crate::{
    cacher::saved::{
        StateOrigin, StateOwner,
        files::files_of,
        log::{LoadedState, StateLog},
    },
    registry::{Registry, ResourceType},
};

pub(in crate::cacher) fn pods() -> Arc<ResourceType> {
    Registry::builtin().find("", "v1", "pods").expect("a built-in type")
}

pub(in crate::cacher) fn pod(name: &str, app: &str, spec: u64) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"n","labels":{{"app":"{app}"}}}},"spec":{{"priority":{spec}}}}}"#
    )
}

pub(in crate::cacher) fn put(name: &str, app: &str, revision: u64) -> Change {
    Change::Put(Draft::new(&pods().schema, pod(name, app, revision).as_bytes()).expect("an object").commit(revision))
}

/// A state as text: each object in order.
pub(in crate::cacher) fn objects(reader: &Reader, revision: u64) -> Option<Vec<String>> {
    let state = reader.at(revision).ok()?;
    Some(state.objects.iter().map(|entry| String::from_utf8(entry.object().to_vec()).expect("JSON")).collect())
}

/// A cache and what it went through.
pub(in crate::cacher::saved) struct World {
    pub(in crate::cacher::saved) writer: Writer,
    pub(in crate::cacher::saved) reader: Reader,
    /// Every state of the present history, by position.
    pub(in crate::cacher::saved) states: BTreeMap<u64, Vec<String>>,
    steps: usize,
}

pub(in crate::cacher::saved) const NOW: Time = Time(Duration::from_secs(100));

impl World {
    /// Begins at revision 10 with two objects. Its window keeps 20 events.
    pub(in crate::cacher::saved) fn new() -> Self {
        let limits = Limits { window_events_max: 20, ..Limits::default() };
        let (mut writer, _, reader) = cache(Arc::clone(&pods().schema), limits);
        let entry = |name, revision| match put(name, "x", revision) {
            Change::Put(entry) => entry,
            Change::Deleted { .. } | Change::Progress(_) => unreachable!("put"),
        };
        writer.reset([entry("a", 5), entry("b", 7)].into_iter().collect(), 10, NOW);
        let mut world = Self { writer, reader, states: BTreeMap::new(), steps: 0 };
        world.note();
        world
    }

    /// The next change: objects come, change, and are deleted; some positions are only reported.
    pub(in crate::cacher::saved) fn step(&mut self) -> Change {
        self.steps += 1;
        let (step, revision) = (self.steps, self.writer.applied() + self.steps as u64 % 3);
        // Every third change is one more of the revision before it, of another object.
        let name = ["a", "b", "c", "d", "e"][step * 3 % 5];
        let change = match step % 7 {
            3 => Change::Deleted { key: format!("n/{name}"), resource_version: revision },
            5 => Change::Progress(revision),
            _ => put(name, ["x", "y"][step % 2], revision),
        };
        self.writer.apply(change.clone(), self.now()).expect("it follows");
        self.note();
        change
    }

    /// One second for each step.
    pub(in crate::cacher::saved) fn now(&self) -> Time {
        Time(NOW.0 + Duration::from_secs(self.steps as u64))
    }

    pub(in crate::cacher::saved) fn steps(&mut self, count: usize) -> Vec<Change> {
        (0..count).map(|_| self.step()).collect()
    }

    fn note(&mut self) {
        let applied = self.writer.applied();
        self.states.insert(applied, objects(&self.reader, applied).expect("the current state"));
    }

    /// Loads what is on disk into a new cache and checks it: its state, and every state that its window offers, are
    /// those of the history. Returns the log and the position.
    pub(in crate::cacher::saved) fn loaded(&self, folder: &Path) -> Result<Option<(StateLog, u64)>, UnusableLog> {
        let (log, reader, loaded) = load(folder)?;
        let Some(loaded) = loaded else {
            assert_eq!(reader.applied(), 0);
            return Ok(None);
        };
        let (oldest, applied) = (reader.oldest(), reader.applied());
        assert!(self.states.contains_key(&oldest) && self.states.contains_key(&applied), "{oldest} to {applied}");
        assert!(loaded.complete == applied || loaded.complete + 1 == applied, "{} of {applied}", loaded.complete);
        for (revision, state) in self.states.range(oldest..=loaded.complete.max(oldest)) {
            assert_eq!(objects(&reader, *revision).as_ref(), Some(state), "at {revision} of {oldest} to {applied}");
        }
        assert!(log.can_append());
        Ok(Some((log, applied)))
    }
}

/// Loads what is on disk into a new cache.
pub(in crate::cacher::saved) fn load(folder: &Path) -> Result<(StateLog, Reader, Option<LoadedState>), UnusableLog> {
    let (mut writer, _, reader) = cache(Arc::clone(&pods().schema), Limits::default());
    let mut log = log(folder, &origin());
    let loaded = log.load(&pods().schema, &mut writer, NOW);
    assert!(loaded.is_ok() || writer.applied() == 0, "an unusable state leaves the cache empty");
    loaded.map(|loaded| (log, reader, loaded))
}

pub(in crate::cacher) fn origin() -> StateOrigin {
    StateOrigin { server: "https://a".to_owned(), ..StateOrigin::default() }
}

pub(in crate::cacher::saved) fn log(folder: &Path, origin: &StateOrigin) -> StateLog {
    log_in(files_of(folder, "pods").expect("a plain name"), origin)
}

pub(in crate::cacher::saved) fn log_in(files: LogFiles, origin: &StateOrigin) -> StateLog {
    StateLog::new(files, StateOwner::new(&Arc::new(RwLock::new(origin.clone())), &pods()))
}
