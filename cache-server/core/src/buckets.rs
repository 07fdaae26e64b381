//! Events by scope: a node, a namespace or one object. A bucket exists while it has watchers.
//!
//! INVARIANT: a bucket has every event after its `evicted` that touches it, by the object's new or old value. INVARIANT:
//! applying an event costs at most four look-ups, independent of the number of watchers.

use std::{collections::HashMap, sync::Arc};

use informer_core::KeyedObject;

use crate::{backlog::EventsBehind, event::Event, interest::Waiters, limits::EVENTS_PER_LOCK, window::Log};

/// The scope of a watch: the narrowest bucket that has all its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All objects: the window itself.
    All,
    /// One namespace.
    Namespace(Box<str>),
    /// One object by its key.
    Name(Box<str>),
    /// The objects of one node.
    Node(Box<str>),
}

/// The events of one scope and the watchers that wait for more.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) log: Log,
    pub(crate) waiters: Arc<Waiters>,
    watchers: usize,
}

/// Result of joining a bucket.
pub(crate) enum Join {
    /// Joined; wake-ups come through these waiters.
    Joined(Arc<Waiters>),
    /// Events after the position were evicted.
    Expired,
    /// Too much of the window is unread: read it without the lock, see [`Backlog`](crate::backlog::Backlog).
    Far,
}

/// Maximum number of buckets that one event touches: all, its namespace, its name, its node and its node before.
pub(crate) const BUCKETS_PER_EVENT: usize = 5;

/// Boxed, so that the free slots of a table are small.
type ByText = HashMap<Box<str>, Box<Bucket>>;

/// The buckets of one resource type.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    /// Waiters for any event.
    pub(crate) all: Arc<Waiters>,
    namespaces: ByText,
    names: ByText,
    nodes: ByText,
}

impl Buckets {
    pub(crate) fn len(&self) -> usize {
        self.namespaces.len() + self.names.len() + self.nodes.len()
    }

    /// Returns the bucket of `scope`; `None` for [`Scope::All`] and for scopes without watchers.
    pub(crate) fn get(&self, scope: &Scope) -> Option<&Bucket> {
        match scope {
            Scope::All => None,
            Scope::Namespace(namespace) => self.namespaces.get(namespace).map(|bucket| &**bucket),
            Scope::Name(key) => self.names.get(key).map(|bucket| &**bucket),
            Scope::Node(node) => self.nodes.get(node).map(|bucket| &**bucket),
        }
    }

    /// Adds a watcher that has read the events up to `past.number`. A new bucket begins after that event; a bucket that
    /// begins later is filled back from `past` and, after `past.read`, from the window.
    /// Cost: at most [`EVENTS_PER_LOCK`] events are examined, and those in `past` are moved.
    pub(crate) fn join(
        &mut self,
        scope: &Scope,
        past: &mut EventsBehind,
        window: &Log,
        node_field: Option<usize>,
    ) -> Join {
        let reachable = window.evicted() <= past.number;
        let Some((map, key)) = self.map(scope) else {
            return if reachable { Join::Joined(Arc::clone(&self.all)) } else { Join::Expired };
        };
        // The bucket holds all events after number `begin`; a bucket that does not exist holds none.
        let begin = map.get(key).map_or(u64::MAX, |bucket| bucket.log.evicted());
        if past.number < begin {
            if !reachable {
                return Join::Expired;
            }
            let rest = || window.back_from(begin, past.read);
            // Bounds the work under the write lock.
            if rest().nth(EVENTS_PER_LOCK).is_some() {
                return Join::Far;
            }
            let mut rest: Vec<_> = rest().filter(|event| scope.touched_by(event, node_field)).cloned().collect();
            past.events.extend(rest.drain(..).rev());
        }
        let new = || Box::new(Bucket { log: Log::new(u64::MAX, u64::MAX), waiters: Arc::default(), watchers: 0 });
        let bucket = map.entry(key.into()).or_insert_with(new);
        if past.number < begin {
            bucket.log.fill_back(
                // Events after `begin` are in the bucket already and must not be added twice.
                past.events.drain(..).rev().skip_while(|event| begin < event.number),
                past.position,
                past.number,
            );
        }
        bucket.watchers += 1;
        Join::Joined(Arc::clone(&bucket.waiters))
    }

    /// Removes a watcher; the last one removes the bucket.
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

    /// Adds `event` to the buckets it touches and reports their waiters, which may have to be woken.
    pub(crate) fn push(
        &mut self,
        event: &Arc<Event>,
        node_field: Option<usize>,
        mut touched: impl FnMut(&Arc<Waiters>),
    ) {
        // Every event concerns the watchers of `Scope::All`.
        touched(&self.all);
        self.each(event, node_field, |bucket| {
            bucket.log.push(Arc::clone(event));
            touched(&bucket.waiters);
        });
    }

    /// Evicts `event` from the buckets it touches, together with the window.
    pub(crate) fn evict(&mut self, event: &Event, node_field: Option<usize>) {
        self.each(event, node_field, |bucket| bucket.log.evict_number(event.number));
    }

    /// Returns all waiters, in an order that does not depend on hashing.
    pub(crate) fn everybody(&self) -> Vec<Arc<Waiters>> {
        let mut all = vec![Arc::clone(&self.all)];
        for map in [&self.namespaces, &self.names, &self.nodes] {
            let mut buckets: Vec<_> = map.iter().collect();
            buckets.sort_unstable_by_key(|&(key, _)| key);
            all.extend(buckets.into_iter().map(|(_, bucket)| Arc::clone(&bucket.waiters)));
        }
        all
    }

    fn each(&mut self, event: &Event, node_field: Option<usize>, mut visit: impl FnMut(&mut Box<Bucket>)) {
        self.namespaces.get_mut(event.object.namespace()).map(&mut visit);
        self.names.get_mut(event.object.key()).map(&mut visit);
        if let Some(place) = node_field
            // Most types have no node field or no node watchers: skip reading the field.
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
    /// The key of its bucket.
    pub(crate) fn key(&self) -> &str {
        match self {
            Self::All => "",
            Self::Namespace(key) | Self::Name(key) | Self::Node(key) => key,
        }
    }

    fn touched_by(&self, event: &Event, node_field: Option<usize>) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => event.object.namespace() == &**namespace,
            Self::Name(name) => event.object.key() == &**name,
            Self::Node(requested) => node_field.is_some_and(|place| {
                let (node, before) = nodes(event, place);
                node == &**requested || before == Some(requested)
            }),
        }
    }
}

/// Returns the node after the event, and the node before it if that differs.
pub(crate) fn nodes(event: &Event, place: usize) -> (&str, Option<&str>) {
    let node = event.object.field(place);
    (node, event.previous.as_ref().map(|previous| previous.field(place)).filter(|before| *before != node))
}
