//! A user of a log: a map of texts, saved as a whole and then as differences.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{COMMIT, DiskLog, LogBatch, LogFiles, UnusableLog};

const PUT: u8 = 2;
const DELETE: u8 = 3;

/// Bytes that a log of these tests grows by before it is replaced.
pub(super) const SLACK_BYTES: u64 = 1_000;

pub(super) const IDENTITY: &str = "pods of one cluster";

/// A saved state. Keys have one byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) position: u64,
    values: BTreeMap<u8, Vec<u8>>,
}

impl State {
    pub(super) fn put(&mut self, key: u8, bytes: usize) {
        self.position += 1;
        self.values.insert(key, self.position.to_string().repeat(bytes).into_bytes()[..bytes].to_vec());
    }

    pub(super) fn delete(&mut self, key: u8) {
        self.position += 1;
        self.values.remove(&key);
    }

    pub(super) fn bookmark(&mut self) {
        self.position += 1;
    }

    /// Writes the changes since `before`.
    fn push(&self, before: &Self, batch: &mut LogBatch<'_>) -> io::Result<()> {
        for (key, value) in self.values.iter().filter(|(key, value)| before.values.get(key) != Some(value)) {
            batch.push(PUT, &[&[*key], value])?;
        }
        for key in before.values.keys().filter(|key| !self.values.contains_key(key)) {
            batch.push(DELETE, &[&[*key]])?;
        }
        batch.commit(&[&self.position.to_le_bytes()])
    }
}

/// A user with a log.
pub(super) struct User {
    pub(super) log: DiskLog,
    pub(super) state: State,
    /// The state of the last commit; `None` if there is none.
    pub(super) saved: Option<State>,
}

impl User {
    pub(super) fn new(files: LogFiles) -> Self {
        Self { log: DiskLog::new(files, SLACK_BYTES), state: State::default(), saved: None }
    }

    /// Saves the state. Returns true if the file was replaced.
    pub(super) fn save(&mut self) -> io::Result<bool> {
        if let Some(saved) = &self.saved {
            self.log.append(|batch| self.state.push(saved, batch))?;
            self.saved = Some(self.state.clone());
            if !self.log.is_wasteful(u64::MAX) {
                return Ok(false);
            }
        }
        self.log.replace(IDENTITY, |batch| self.state.push(&State::default(), batch))?;
        self.saved = Some(self.state.clone());
        Ok(true)
    }

    /// Restarts: the state is the last one on disk, or empty for the reason that is returned.
    pub(super) fn restart(folder: &Path) -> (Self, Option<UnusableLog>) {
        let mut user = Self::new(files(folder));
        let found = match user.log.find(IDENTITY) {
            Ok(Some(found)) => found,
            Ok(None) => return (user, None),
            Err(reason) => return (user, Some(reason)),
        };
        let mut state = State::default();
        let mut records = found.records().unwrap();
        while let Some(record) = records.next_record().unwrap() {
            match record.kind {
                PUT => drop(state.values.insert(record.body[0], record.body[1..].to_vec())),
                DELETE => assert!(state.values.remove(&record.body[0]).is_some()),
                COMMIT => state.position = u64::from_le_bytes(record.body.try_into().unwrap()),
                kind => panic!("kind {kind}"),
            }
        }
        drop(records);
        assert_eq!(found.commit(), state.position.to_le_bytes());
        user.log.resume(found);
        (Self { log: user.log, saved: Some(state.clone()), state }, None)
    }
}

pub(super) fn files(folder: &Path) -> LogFiles {
    LogFiles::new(folder, "a.log")
}

pub(super) fn log_of(folder: &Path) -> PathBuf {
    folder.join("a.log")
}

pub(super) fn beside_of(folder: &Path) -> PathBuf {
    folder.join("a.log.new")
}

/// Fills a folder with a log of several saves. Returns their states, and the offset at which each commit ends.
pub(super) fn several_saves(folder: &Path) -> Vec<(State, usize)> {
    let mut user = User::new(files(folder));
    let steps: [&dyn Fn(&mut State); 7] = [
        &|state| (0..3).for_each(|key| state.put(key, 40)),
        &|state| state.put(1, 70),
        &|state| state.delete(0),
        &|state| state.bookmark(),
        &|state| {
            state.put(3, 0);
            state.delete(1);
            state.put(2, 10);
        },
        &|state| state.put(0, 30),
        &|state| [0, 2, 3].into_iter().for_each(|key| state.delete(key)),
    ];
    let save = |step: &&dyn Fn(&mut State)| {
        step(&mut user.state);
        user.save().unwrap();
        (user.state.clone(), fs::read(log_of(folder)).unwrap().len())
    };
    steps.iter().map(save).collect()
}
