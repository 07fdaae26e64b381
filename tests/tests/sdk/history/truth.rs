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

    /// The label selector as text, empty if there is none.
    pub(crate) fn labels(&self) -> String {
        match &self.app {
            None => String::new(),
            Some(Apps::In(apps)) => format!("app in ({})", apps.join(",")),
            Some(Apps::Not(app)) => format!("app!={app}"),
        }
    }
}

/// The history of one server: its start position and every change since.
#[derive(Debug, Default)]
pub(crate) struct Epoch {
    pub(crate) start: u64,
    changes: Vec<Change>,
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

impl Epoch {
    pub(crate) fn new(start: u64) -> Self {
        Self { start, changes: Vec::new() }
    }

    /// Records an event of the undisturbed watch; fails if it does not fit the state.
    pub(crate) fn take(&mut self, state: &mut State, seen: WatchedEvent) -> Result<(), String> {
        let last = self.changes.last().map_or(self.start, |change| change.at);
        if seen.at <= last {
            return Err(format!("{seen:?} after {last}"));
        }
        let before = state.get(&seen.key).map(|(_, content)| content.clone());
        let fits = match seen.kind {
            Kind::Added => before.is_none(),
            Kind::Modified => before.is_some(),
            Kind::Deleted => before.as_ref() == Some(&seen.content),
        };
        if !fits {
            return Err(format!("{seen:?} of an object that was {before:?}"));
        }
        let after = (seen.kind != Kind::Deleted).then_some(seen.content);
        match &after {
            Some(content) => state.insert(Arc::clone(&seen.key), (seen.at, content.clone())),
            None => state.remove(&seen.key),
        };
        self.changes.push(Change { at: seen.at, key: seen.key, before, after });
        Ok(())
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

    /// The events that a watch from `after` must show, in order.
    pub(crate) fn events<'a>(&'a self, selector: &'a Selector, after: u64) -> impl Iterator<Item = WatchedEvent> + 'a {
        let from = self.changes.partition_point(|change| change.at <= after);
        self.changes[from..].iter().filter_map(|change| {
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
        let mut state = State::new();
        for change in self.changes.iter().take_while(|change| change.at <= at) {
            match &change.after {
                Some(content) => state.insert(Arc::clone(&change.key), (change.at, content.clone())),
                None => state.remove(&change.key),
            };
        }
        state.retain(|key, (_, content)| selector.has(key, content));
        state
    }
}
