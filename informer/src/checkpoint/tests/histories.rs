//! Random histories of changes, saves, restarts and damage, compared with a model of the saved states.

use std::{fs, path::Path};

use proptest::prelude::*;

use super::fixture::{OnDisk, Source, beside_of, log_of, restart};
use crate::checkpoint::CheckpointWriter;

#[derive(Clone, Debug)]
enum Step {
    Put(u8, usize),
    Delete(u8),
    Bookmark,
    Save,
    /// The process restarts; this many bytes are missing at the end of the log.
    Restart(usize),
    /// The process restarts; these foreign bytes follow the log.
    Garbage(Vec<u8>),
    /// The process restarts; this unfinished compaction is left.
    Rewriting(Vec<u8>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..12_u8, prop_oneof![9 => 0..200_usize, 1 => 150_000..400_000_usize]).prop_map(|(at, size)| Step::Put(at, size)),
        3 => (0..12_u8).prop_map(Step::Delete),
        1 => Just(Step::Bookmark),
        6 => Just(Step::Save),
        1 => prop_oneof![Just(0), 1..400_usize].prop_map(Step::Restart),
        1 => prop::collection::vec(any::<u8>(), 0..300).prop_map(Step::Garbage),
        1 => prop::collection::vec(any::<u8>(), 0..300).prop_map(Step::Rewriting),
    ];
    prop::collection::vec(step, 1..80)
}

struct World<'a> {
    dir: &'a Path,
    source: Source,
    writer: Option<CheckpointWriter>,
    /// States saved since the last compaction: a torn log may fall back to any of them.
    saved: Vec<OnDisk>,
}

impl World<'_> {
    fn save(&mut self) {
        let wrote = self.source.save(self.writer.as_mut().unwrap());
        if wrote.rewritten {
            self.saved.clear();
        }
        if wrote.bytes > 0 {
            self.saved.push(self.source.on_disk());
        }
    }

    /// Restarts from the state saved last, or from an earlier one if the log was `torn`.
    fn restart(&mut self, torn: bool) {
        self.writer = None;
        let (result, writer) = restart(self.dir);
        self.writer = writer;
        match result {
            Ok(Some((state, source))) => {
                let at = self.saved.iter().position(|saved| *saved == state).expect("a state that was saved");
                assert!(torn || at + 1 == self.saved.len(), "the state saved last");
                assert!(!beside_of(self.dir).exists());
                self.saved.truncate(at + 1);
                self.source = source;
            }
            Ok(None) => {
                assert!(self.saved.is_empty(), "what was saved is found");
                self.source = Source::new();
            }
            Err(ignored) => {
                assert!(torn || self.saved.is_empty(), "{ignored}");
                self.saved.clear();
                self.source = Source::new();
            }
        }
    }

    fn step(&mut self, step: &Step) {
        let log = log_of(self.dir);
        match step {
            Step::Put(at, size) => self.source.put(&format!("pod-{at}"), *size),
            Step::Delete(at) => self.source.delete(&format!("pod-{at}")),
            Step::Bookmark => self.source.bookmark(),
            Step::Save => self.save(),
            Step::Restart(missing) => {
                if let Ok(bytes) = fs::read(&log) {
                    fs::write(&log, &bytes[..bytes.len().saturating_sub(*missing)]).unwrap();
                }
                self.restart(*missing > 0);
            }
            Step::Garbage(garbage) => {
                if let Ok(bytes) = fs::read(&log) {
                    fs::write(&log, [&bytes[..], garbage].concat()).unwrap();
                }
                self.restart(false);
            }
            Step::Rewriting(begun) => {
                fs::write(beside_of(self.dir), begun).unwrap();
                self.restart(false);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_restart_finds_what_was_saved_last_whatever_happened_before(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        let (_, writer) = restart(dir.path());
        let mut world = World { dir: dir.path(), source: Source::new(), writer, saved: Vec::new() };
        for step in &steps {
            world.step(step);
        }
        world.restart(false);
    }

    /// Goal: no file contents cause a panic.
    #[test]
    fn any_bytes_are_a_reason_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(log_of(dir.path()), &bytes).unwrap();
        prop_assert!(restart(dir.path()).0.is_err());
        // Behind a valid header the record parser reads them.
        let head = [&b"informer\x02\0\0\0"[..], &bytes].concat();
        fs::write(log_of(dir.path()), head).unwrap();
        prop_assert!(restart(dir.path()).0.is_err());
    }
}
