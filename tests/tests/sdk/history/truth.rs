//! The history as an undisturbed watch saw it, and the events that each watch of it must show.
//!
//! INVARIANT: positions order all changes of a run, also across restarts: a new server is empty, and starts above every
//! earlier position.

use std::{collections::BTreeMap, sync::Arc};

/// The compared parts of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) app: String,
    /// Unique for each write of a run.
    pub(crate) value: String,
}

/// Kind of a change, as a watch with a selector sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Added,
    Modified,
    Deleted,
}

/// One event of a watch: its kind, key, position, and the object in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WatchedEvent {
    pub(crate) kind: Kind,
    pub(crate) key: Arc<str>,
    pub(crate) at: u64,
    pub(crate) content: Content,
}

/// The scope of a watch or list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) app: Option<Apps>,
}

/// Condition on the label `app`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Apps {
    In(Vec<String>),
    Not(String),
}

impl Selector {
    fn has(&self, key: &str, content: &Content) -> bool {
        let (namespace, name) = key.split_once('/').expect("namespaced");
        self.namespace.as_ref().is_none_or(|wanted| wanted == namespace)
            && self.name.as_ref().is_none_or(|wanted| wanted == name)
            && self.app.as_ref().is_none_or(|wanted| match wanted {
                Apps::In(apps) => apps.contains(&content.app),
                Apps::Not(app) => *app != content.app,
            })
    }

    /// Those objects of a state that it selects.
    pub(crate) fn part_of(&self, state: &State) -> State {
        let objects = state.iter().filter(|(key, (_, content))| self.has(key, content));
        objects.map(|(key, object)| (Arc::clone(key), object.clone())).collect()
    }

    /// The label selector as text, empty if there is none.
    pub(crate) fn labels(&self) -> String {
        match &self.app {
            None => String::new(),
            Some(Apps::In(apps)) => format!("app in ({})", apps.join(",")),
            Some(Apps::Not(app)) => format!("app!={app}"),
        }
    }
}

/// Changes between two states that an [`Epoch`] keeps, so that a state at any position costs few changes.
const CHANGES_BETWEEN_STATES: usize = 500;

/// The history of one server: its start position and every change since.
#[derive(Debug)]
pub(crate) struct Epoch {
    pub(crate) start: u64,
    changes: Vec<Change>,
    /// The state before each [`CHANGES_BETWEEN_STATES`]th change.
    states: Vec<State>,
    /// The state after all changes.
    state: State,
}

#[derive(Debug)]
struct Change {
    at: u64,
    key: Arc<str>,
    before: Option<Content>,
    after: Option<Content>,
}

/// State at a position: content and resourceVersion by key.
pub(crate) type State = BTreeMap<Arc<str>, (u64, Content)>;

impl Change {
    fn apply(&self, state: &mut State) {
        match &self.after {
            Some(content) => state.insert(Arc::clone(&self.key), (self.at, content.clone())),
            None => state.remove(&self.key),
        };
    }
}

impl Epoch {
    pub(crate) fn new(start: u64, state: State) -> Self {
        Self { start, changes: Vec::new(), states: vec![state.clone()], state }
    }

    /// Records an event of the undisturbed watch; fails if it does not fit the state.
    pub(crate) fn take(&mut self, seen: WatchedEvent) -> Result<(), String> {
        if seen.at <= self.last() {
            return Err(format!("{seen:?} after {}", self.last()));
        }
        let before = self.content(&seen.key).cloned();
        let fits = match seen.kind {
            Kind::Added => before.is_none(),
            Kind::Modified => before.is_some(),
            Kind::Deleted => before.as_ref() == Some(&seen.content),
        };
        if !fits {
            return Err(format!("{seen:?} of an object that was {before:?}"));
        }
        let after = (seen.kind != Kind::Deleted).then_some(seen.content);
        let change = Change { at: seen.at, key: seen.key, before, after };
        change.apply(&mut self.state);
        self.changes.push(change);
        if self.changes.len().is_multiple_of(CHANGES_BETWEEN_STATES) {
            self.states.push(self.state.clone());
        }
        Ok(())
    }

    /// Content of an object after all changes.
    pub(crate) fn content(&self, key: &str) -> Option<&Content> {
        self.state.get(key).map(|(_, content)| content)
    }

    pub(crate) fn last(&self) -> u64 {
        self.changes.last().map_or(self.start, |change| change.at)
    }

    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// The key and content of the write at a position; `None` for a deletion or no change.
    pub(crate) fn written(&self, at: u64) -> Option<(&str, &Content)> {
        let index = self.changes.binary_search_by_key(&at, |change| change.at).ok()?;
        let change = &self.changes[index];
        change.after.as_ref().map(|content| (&*change.key, content))
    }

    /// Number of changes up to a position.
    fn count_to(&self, at: u64) -> usize {
        self.changes.partition_point(|change| change.at <= at)
    }

    /// The contents that were written after a position, with theirs.
    pub(crate) fn contents(&self, after: u64) -> impl Iterator<Item = (u64, &Content)> {
        let written = self.changes[self.count_to(after)..].iter();
        written.filter_map(|change| Some((change.at, change.after.as_ref()?)))
    }

    /// The versions of one object from the one at a position on: their positions, and `None` while it does not exist.
    pub(crate) fn versions(&self, key: &str, from: u64) -> impl Iterator<Item = Option<u64>> {
        let first = self.state(&Selector::default(), from).get(key).map(|(at, _)| *at);
        let later = self.changes[self.count_to(from)..].iter().filter(move |change| *change.key == *key);
        std::iter::once(first).chain(later.map(|change| change.after.as_ref().map(|_| change.at)))
    }

    /// The events that a watch between two positions must show, in order.
    pub(crate) fn events<'a>(
        &'a self,
        selector: &'a Selector,
        after: u64,
        until: u64,
    ) -> impl Iterator<Item = WatchedEvent> + 'a {
        self.changes[self.count_to(after)..self.count_to(until).max(self.count_to(after))].iter().filter_map(|change| {
            let had = change.before.as_ref().filter(|content| selector.has(&change.key, content));
            let has = change.after.as_ref().filter(|content| selector.has(&change.key, content));
            let (kind, content) = match (had, has) {
                (None, None) => return None,
                (None, Some(content)) => (Kind::Added, content),
                (Some(_), Some(content)) => (Kind::Modified, content),
                (Some(content), None) => (Kind::Deleted, content),
            };
            Some(WatchedEvent { kind, key: Arc::clone(&change.key), at: change.at, content: content.clone() })
        })
    }

    /// The state at a position.
    pub(crate) fn state(&self, selector: &Selector, at: u64) -> State {
        let count = self.count_to(at);
        let known = count / CHANGES_BETWEEN_STATES;
        let mut state = self.states[known].clone();
        self.changes[known * CHANGES_BETWEEN_STATES..count].iter().for_each(|change| change.apply(&mut state));
        selector.part_of(&state)
    }
}
