//! Events by what they are about: a node, a namespace, one object. A bucket exists while somebody watches it.
//!
//! INVARIANT: a bucket has every event above its `lost` that touches it, by the object's new or old value. INVARIANT:
//! taking an event in costs four look-ups at most, whoever watches.

use std::{collections::HashMap, sync::Arc};

use informer_core::Keyed;

use crate::{event::Event, interest::Waiters, window::Log};

/// What a watch is about: the narrowest bucket that has all its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Everything: the window itself.
    All,
    /// One namespace.
    Namespace(Box<str>),
    /// One object by its key.
    Name(Box<str>),
    /// Objects of one node.
    Node(Box<str>),
}

/// Events about one thing and who waits for more.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) log: Log,
    pub(crate) waiters: Arc<Waiters>,
    watchers: usize,
}

type ByText = HashMap<Box<str>, Bucket>;

/// The buckets of one resource type.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    /// Who waits for any event.
    pub(crate) all: Arc<Waiters>,
    namespaces: ByText,
    names: ByText,
    nodes: ByText,
}

impl Buckets {
    pub(crate) fn len(&self) -> usize {
        self.namespaces.len() + self.names.len() + self.nodes.len()
    }

    /// The bucket of `scope`; `None` for [`Scope::All`] and for what nobody watches.
    pub(crate) fn get(&self, scope: &Scope) -> Option<&Bucket> {
        match scope {
            Scope::All => None,
            Scope::Namespace(namespace) => self.namespaces.get(namespace),
            Scope::Name(key) => self.names.get(key),
            Scope::Node(node) => self.nodes.get(node),
        }
    }

    /// Adds a watcher that has read up to `position`, and tells whom to ask for waking; `None` when events after
    /// `position` are gone. A new bucket begins at `position`; one that begins later takes what lies between from the
    /// window. `position` is not ahead of the cache.
    pub(crate) fn join(
        &mut self,
        scope: &Scope,
        position: u64,
        window: &Log,
        node_field: Option<usize>,
    ) -> Option<Arc<Waiters>> {
        let reachable = window.lost() <= position;
        let Some((map, key)) = self.map(scope) else { return reachable.then(|| Arc::clone(&self.all)) };
        if !map.contains_key(key) {
            if !reachable {
                return None;
            }
            map.insert(key.into(), Bucket { log: Log::new(u64::MAX), waiters: Arc::default(), watchers: 0 });
        }
        let bucket = map.get_mut(key)?;
        if position < bucket.log.lost() {
            if !reachable {
                return None;
            }
            let newest = bucket.log.lost();
            let older = window.back_from(newest, position).filter(|event| scope.touched_by(event, node_field));
            bucket.log.fill_back(older.cloned(), position);
        }
        bucket.watchers += 1;
        Some(Arc::clone(&bucket.waiters))
    }

    /// Removes a watcher; the last one takes the bucket along.
    pub(crate) fn leave(&mut self, scope: &Scope) {
        let Some((map, key)) = self.map(scope) else { return };
        if let Some(bucket) = map.get_mut(key) {
            bucket.watchers -= 1;
            if bucket.watchers == 0 {
                map.remove(key);
            }
        }
    }

    fn map<'a>(&mut self, scope: &'a Scope) -> Option<(&mut ByText, &'a str)> {
        match scope {
            Scope::All => None,
            Scope::Namespace(namespace) => Some((&mut self.namespaces, namespace)),
            Scope::Name(key) => Some((&mut self.names, key)),
            Scope::Node(node) => Some((&mut self.nodes, node)),
        }
    }

    /// Puts `event` into the buckets it touches and tells who may have to be woken.
    pub(crate) fn push(
        &mut self,
        event: &Arc<Event>,
        node_field: Option<usize>,
        mut touched: impl FnMut(&Arc<Waiters>),
    ) {
        touched(&self.all);
        self.each(event, node_field, |bucket| {
            bucket.log.push(Arc::clone(event));
            touched(&bucket.waiters);
        });
    }

    /// Takes `event`, which leaves the window, out of the buckets it touches.
    pub(crate) fn evict(&mut self, event: &Event, node_field: Option<usize>) {
        self.each(event, node_field, |bucket| bucket.log.evict_at(event.resource_version));
    }

    /// Everybody, in an order that does not depend on hashing.
    pub(crate) fn everybody(&self) -> Vec<Arc<Waiters>> {
        let mut all = vec![Arc::clone(&self.all)];
        for map in [&self.namespaces, &self.names, &self.nodes] {
            let mut buckets: Vec<_> = map.iter().collect();
            buckets.sort_unstable_by_key(|&(key, _)| key);
            all.extend(buckets.into_iter().map(|(_, bucket)| Arc::clone(&bucket.waiters)));
        }
        all
    }

    fn each(&mut self, event: &Event, node_field: Option<usize>, mut visit: impl FnMut(&mut Bucket)) {
        self.namespaces.get_mut(event.object.namespace()).map(&mut visit);
        self.names.get_mut(event.object.key()).map(&mut visit);
        if let Some(place) = node_field
            && !self.nodes.is_empty()
        {
            let (node, before) = nodes(event, place);
            self.nodes.get_mut(node).map(&mut visit);
            if let Some(before) = before {
                self.nodes.get_mut(before).map(&mut visit);
            }
        }
    }
}

impl Scope {
    fn touched_by(&self, event: &Event, node_field: Option<usize>) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => event.object.namespace() == &**namespace,
            Self::Name(name) => event.object.key() == &**name,
            Self::Node(wanted) => node_field.is_some_and(|place| {
                let (node, before) = nodes(event, place);
                node == &**wanted || before == Some(wanted)
            }),
        }
    }
}

/// The node after the event, and the one before if it was another.
fn nodes(event: &Event, place: usize) -> (&str, Option<&str>) {
    let node = event.object.field(place);
    (node, event.previous.as_ref().map(|previous| previous.field(place)).filter(|before| *before != node))
}
