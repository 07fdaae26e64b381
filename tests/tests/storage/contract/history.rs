//! The writes of a row in the order of their revisions. Streams and lists are compared with them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{Breach, Held, Kind, ensure};

/// One version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) revision: u64,
    pub(crate) content: u64,
}

/// Objects by name.
pub(crate) type State = BTreeMap<String, Version>;

/// One change of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectChange {
    pub(crate) revision: u64,
    pub(crate) name: String,
    /// `None`: deleted.
    pub(crate) content: Option<u64>,
}

impl ObjectChange {
    pub(crate) fn apply(&self, state: &mut State) {
        match self.content {
            Some(content) => drop(state.insert(self.name.clone(), Version { revision: self.revision, content })),
            None => drop(state.remove(&self.name)),
        }
    }
}

/// The acknowledged writes of a row.
#[derive(Debug, Default)]
pub(crate) struct History {
    shared: Mutex<Writes>,
}

#[derive(Debug, Default)]
struct Writes {
    changes: BTreeMap<u64, (Kind, ObjectChange)>,
    current: BTreeMap<(Kind, String), Version>,
}

impl History {
    fn writes(&self) -> MutexGuard<'_, Writes> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an acknowledged write.
    pub(crate) fn record(&self, kind: Kind, change: ObjectChange) -> Held {
        let writes = &mut *self.writes();
        let key = (kind, change.name.clone());
        let before = writes.current.get(&key).map_or(0, |version| version.revision);
        ensure!(
            before < change.revision,
            "{kind} {change:?} has a revision that is not above {before}, the one before"
        );
        match change.content {
            Some(content) => drop(writes.current.insert(key, Version { revision: change.revision, content })),
            None => drop(writes.current.remove(&key)),
        }
        let taken = writes.changes.insert(change.revision, (kind, change.clone()));
        ensure!(taken.is_none(), "one revision has two meanings: {kind} {change:?} and {taken:?}");
        Ok(())
    }

    /// Returns the newest version of an object.
    pub(crate) fn current(&self, kind: Kind, name: &str) -> Option<Version> {
        self.writes().current.get(&(kind, name.to_owned())).copied()
    }

    /// Returns the newest revision of a type; zero if it was never written.
    pub(crate) fn newest(&self, kind: Kind) -> u64 {
        self.changes(kind).last().map_or(0, |change| change.revision)
    }

    /// Returns all changes of a type.
    pub(crate) fn changes(&self, kind: Kind) -> Vec<ObjectChange> {
        let writes = self.writes();
        writes.changes.values().filter(|(of, _)| *of == kind).map(|(_, change)| change.clone()).collect()
    }

    /// Returns the objects of a type at a revision.
    pub(crate) fn state_at(&self, kind: Kind, revision: u64) -> State {
        let mut state = State::new();
        let changes = self.changes(kind);
        changes.iter().take_while(|change| change.revision <= revision).for_each(|change| change.apply(&mut state));
        state
    }

    /// Asserts that these are the objects of a type at a revision.
    pub(crate) fn check_state(&self, kind: Kind, revision: u64, found: &State) -> Held {
        let expected = self.state_at(kind, revision);
        ensure!(
            *found == expected,
            "{kind} at {revision}: {} in place of {}",
            differing(found, &expected),
            "the writes"
        );
        Ok(())
    }

    /// Asserts that these are the changes of a type after one position, up to another one.
    pub(crate) fn check_changes(&self, kind: Kind, after: u64, until: u64, found: &[ObjectChange]) -> Held {
        let mut expected = self.changes(kind);
        expected.retain(|change| after < change.revision && change.revision <= until);
        let first = expected.iter().zip(found).position(|(expected, found)| expected != found);
        let first = first.unwrap_or_else(|| expected.len().min(found.len()));
        ensure!(
            expected == found,
            "{kind} after {after} until {until}: {} changes of {}; the first difference is {:?} in place of {:?}",
            found.len(),
            expected.len(),
            found.get(first),
            expected.get(first)
        );
        Ok(())
    }
}

/// Returns the differences between two states.
fn differing(found: &State, expected: &State) -> String {
    let names = found.keys().chain(expected.keys()).filter(|name| found.get(*name) != expected.get(*name));
    let differences =
        names.take(3).map(|name| format!("{name} is {:?}, not {:?}", found.get(name), expected.get(name)));
    format!("{} objects, {}", found.len(), differences.collect::<Vec<_>>().join(", "))
}

impl Breach {
    /// Adds where it happened.
    pub(crate) fn at(self, place: impl std::fmt::Display) -> Self {
        Self(format!("{place}: {}", self.0))
    }
}
