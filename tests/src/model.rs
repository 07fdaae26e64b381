//! The ground truth: one ordered history of one resource type, with which everything else in a world must agree.
//!
//! INVARIANT: versions strictly increase; an object keeps its uid from its ADDED to its DELETED.

use std::collections::BTreeMap;

/// One object at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// `namespace/name`.
    pub key: String,
    /// Its uid, a new one after deletion and re-creation.
    pub uid: String,
    /// Its resourceVersion.
    pub version: u64,
    /// Its content: the number of the history that wrote it. Two histories can give one version to different contents.
    pub written_in: u32,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The object was created.
    Added,
    /// It was changed.
    Modified,
    /// It was deleted.
    Deleted,
}

/// One change. Its version is the object's; for a deletion, the deletion's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its kind.
    pub kind: Kind,
    /// The object after the change, or the last state of a deleted object.
    pub object: Object,
}

/// A state: objects by key.
pub type State = BTreeMap<String, Object>;

/// An ordered history, and the part of it that servers still have.
#[derive(Clone, Debug)]
pub struct Model {
    history: Vec<Change>,
    now: State,
    version: u64,
    oldest: u64,
    number: u32,
    uids: u64,
}

impl Model {
    /// An empty history at `version`.
    #[must_use]
    pub const fn new(version: u64) -> Self {
        Self { history: Vec::new(), now: State::new(), version, oldest: version, number: 0, uids: 0 }
    }

    /// The history of a server restored to its state at `version`, as history `number`: identical up to `version`, and
    /// compacted up to there.
    #[must_use]
    pub fn restored(&self, version: u64, number: u32) -> Self {
        let history = self.changes(0, version).to_vec();
        Self { history, now: self.state_at(version), version, oldest: version, number, uids: 0 }
    }

    /// Another cluster with equal changes at equal versions, as history `number`: every object has another uid.
    #[must_use]
    pub fn twin(&self, number: u32) -> Self {
        let other = |object: &Object| Object { uid: format!("{number}/{}", object.uid), ..object.clone() };
        let history = self.history.iter().map(|Change { kind, object }| Change { kind: *kind, object: other(object) });
        let now = self.now.iter().map(|(key, object)| (key.clone(), other(object)));
        Self { history: history.collect(), now: now.collect(), number, ..self.clone() }
    }

    /// The number of this history.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The newest version.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The oldest version from which a watch can resume or a page continue.
    #[must_use]
    pub const fn oldest(&self) -> u64 {
        self.oldest
    }

    /// The newest state.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.now
    }

    /// Creates or updates the object of `key`.
    pub fn put(&mut self, key: &str) {
        self.version += 1;
        let (kind, uid) = match self.now.get(key) {
            Some(known) => (Kind::Modified, known.uid.clone()),
            None => {
                self.uids += 1;
                (Kind::Added, format!("uid-{}-{}", self.number, self.uids))
            }
        };
        let object = Object { key: key.to_owned(), uid, version: self.version, written_in: self.number };
        self.now.insert(key.to_owned(), object.clone());
        self.history.push(Change { kind, object });
    }

    /// Deletes the object of `key`, if there is one.
    pub fn delete(&mut self, key: &str) {
        if let Some(known) = self.now.remove(key) {
            self.version += 1;
            self.history.push(Change { kind: Kind::Deleted, object: Object { version: self.version, ..known } });
        }
    }

    /// Advances the version by changes of other resource types.
    pub const fn pass(&mut self, versions: u64) {
        self.version += versions;
    }

    /// Compacts the history up to `version`.
    pub fn compact(&mut self, version: u64) {
        self.oldest = self.oldest.max(version.min(self.version));
    }

    /// Changes in `(after, up_to]`, in order.
    #[must_use]
    pub fn changes(&self, after: u64, up_to: u64) -> &[Change] {
        let first = self.history.partition_point(|change| change.object.version <= after);
        let end = self.history.partition_point(|change| change.object.version <= up_to);
        self.history.get(first..end).unwrap_or_default()
    }

    /// The state at `version`: the history replayed to there.
    #[must_use]
    pub fn state_at(&self, version: u64) -> State {
        self.view_at(version).into_iter().map(|(key, object)| (key.to_owned(), object.clone())).collect()
    }

    /// Like [`Self::state_at`], without copies.
    #[must_use]
    pub fn view_at(&self, version: u64) -> BTreeMap<&str, &Object> {
        let mut view = BTreeMap::new();
        for Change { kind, object } in self.changes(0, version) {
            match kind {
                Kind::Added | Kind::Modified => view.insert(object.key.as_str(), object),
                Kind::Deleted => view.remove(object.key.as_str()),
            };
        }
        view
    }
}
