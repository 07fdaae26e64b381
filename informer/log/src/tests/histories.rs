//! Random histories of changes, saves, restarts and damage, compared with the states that were saved.

use std::{fs, path::Path};

use proptest::prelude::*;

use super::fixture::{State, User, beside_of, files, log_of};

#[derive(Clone, Debug)]
enum Action {
    Put(u8, usize),
    Delete(u8),
    Bookmark,
    Save,
    /// The process restarts; this many bytes are missing at the end of the log.
    Restart(usize),
    /// The process restarts; these foreign bytes follow the log.
    Garbage(Vec<u8>),
    /// The process restarts; this unfinished replacement is left.
    Replacing(Vec<u8>),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        6 => (0..12_u8, 0..400_usize).prop_map(|(key, bytes)| Action::Put(key, bytes)),
        3 => (0..12_u8).prop_map(Action::Delete),
        1 => Just(Action::Bookmark),
        6 => Just(Action::Save),
        1 => prop_oneof![Just(0), 1..400_usize].prop_map(Action::Restart),
        1 => prop::collection::vec(any::<u8>(), 0..300).prop_map(Action::Garbage),
        1 => prop::collection::vec(any::<u8>(), 0..300).prop_map(Action::Replacing),
    ];
    prop::collection::vec(action, 1..80)
}

struct World<'a> {
    folder: &'a Path,
    user: User,
    /// States saved since the last replacement: a torn log may fall back to any of them.
    saved: Vec<State>,
}

impl World<'_> {
    fn save(&mut self) {
        if self.user.save().unwrap() {
            self.saved.clear();
        }
        self.saved.push(self.user.state.clone());
    }

    /// Restarts from the state saved last, or from an earlier one if the log is torn.
    fn restart(&mut self, is_torn: bool) {
        let (user, reason) = User::restart(self.folder);
        let found = self.saved.iter().rposition(|saved| Some(saved) == user.saved.as_ref());
        assert_eq!(user.saved.is_some(), found.is_some(), "a state that was saved");
        let left = found.map_or(0, |at| at + 1);
        assert!(is_torn || left == self.saved.len(), "the state saved last: {reason:?}");
        assert!(!beside_of(self.folder).exists());
        self.saved.truncate(left);
        self.user = user;
    }

    fn act(&mut self, action: &Action) {
        let log = fs::read(log_of(self.folder));
        match action {
            Action::Put(key, bytes) => self.user.state.put(*key, *bytes),
            Action::Delete(key) => self.user.state.delete(*key),
            Action::Bookmark => self.user.state.bookmark(),
            Action::Save => self.save(),
            Action::Restart(missing) => {
                if let Ok(bytes) = log {
                    fs::write(log_of(self.folder), &bytes[..bytes.len().saturating_sub(*missing)]).unwrap();
                }
                self.restart(*missing > 0);
            }
            Action::Garbage(garbage) => {
                if let Ok(bytes) = log {
                    fs::write(log_of(self.folder), [&bytes[..], garbage].concat()).unwrap();
                }
                self.restart(false);
            }
            Action::Replacing(begun) => {
                fs::write(beside_of(self.folder), begun).unwrap();
                self.restart(false);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_restart_finds_what_was_saved_last_whatever_happened_before(actions in actions()) {
        let folder = tempfile::tempdir().unwrap();
        let mut world = World { folder: folder.path(), user: User::new(files(folder.path())), saved: Vec::new() };
        for action in &actions {
            world.act(action);
        }
        world.restart(false);
    }

    /// Goal: no file contents cause a panic.
    #[test]
    fn any_bytes_are_a_reason_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let folder = tempfile::tempdir().unwrap();
        // Behind a valid head the parser of records reads them.
        for head in [&b""[..], b"informer\x03\0\0\0"] {
            fs::write(log_of(folder.path()), [head, &bytes].concat()).unwrap();
            prop_assert!(User::restart(folder.path()).1.is_some());
        }
    }
}
