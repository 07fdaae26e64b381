//! Watchers of ConfigMaps that never list: whatever ends their watch, they continue at the next server from where they
//! were. Their events must equal the history that etcd itself tells.

use std::{
    collections::hash_map::DefaultHasher,
    fmt,
    hash::{Hash, Hasher as _},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use informer_core::wire::watch_event::EventKind;
use serde_json::Value;
use tests::{
    etcd::{EtcdEvent, EtcdKeys},
    http::{Client, Event, Step, key, with_query},
};
use tokio::{sync::watch, task::JoinHandle, time::sleep};

use super::{MAP_KEYS, MAPS, PATIENCE};

/// Pause before a follower tries the next server.
const RETRY_AFTER: Duration = Duration::from_millis(20);
/// Timeout of one read of a watch. Then the follower looks whether it is finished.
const STEP_WAIT: Duration = Duration::from_millis(200);

/// One change: its revision, and digests of everything else.
#[derive(Clone, Copy)]
pub(crate) struct Change {
    pub(crate) at: u64,
    kind: EventKind,
    key: u64,
    /// Digest of the content. `None` if it is unknown: etcd's history has none of deleted objects, and values of
    /// kube-apiserver are no JSON.
    content: Option<u64>,
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.kind.as_str(), self.at)
    }
}

impl Change {
    fn new(kind: EventKind, key: &str, at: u64, object: Option<&Value>) -> Self {
        let content = object.map(|object| digest((object["data"].to_string(), object["metadata"]["uid"].as_str())));
        Self { at, kind, key: digest(key), content }
    }

    /// True if both are one change, as far as both are known.
    fn equals(&self, other: &Self) -> bool {
        let contents = self.content.zip(other.content);
        (self.at, self.kind, self.key) == (other.at, other.kind, other.key) && contents.is_none_or(|(a, b)| a == b)
    }
}

fn digest(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The changes of ConfigMaps after a revision, in all namespaces or in one, as etcd tells them.
pub(crate) struct History {
    after: u64,
    events: Vec<EtcdEvent>,
}

impl History {
    pub(crate) async fn read(keys: &EtcdKeys, after: u64) -> Self {
        Self { after, events: keys.history(MAP_KEYS, after).await }
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// Revisions of the changes that created or changed an object, with its key.
    pub(crate) fn puts(&self) -> impl Iterator<Item = (u64, &str)> {
        let puts = self.events.iter().filter(|event| matches!(event, EtcdEvent::Put(_)));
        puts.map(|event| (event.revision(), &event.key()[MAP_KEYS.len()..]))
    }

    fn changes(&self, namespace: Option<&str>) -> impl Iterator<Item = Change> {
        let prefix = namespace.map_or_else(|| MAP_KEYS.to_owned(), |namespace| format!("{MAP_KEYS}{namespace}/"));
        self.events.iter().filter(move |event| event.key().starts_with(&prefix)).map(|event| {
            let key = &event.key()[MAP_KEYS.len()..];
            let (kind, object) = match event {
                EtcdEvent::Deleted { .. } => (EventKind::Deleted, None),
                EtcdEvent::Put(pair) if pair.create_revision == pair.mod_revision => {
                    (EventKind::Added, pair.try_json())
                }
                EtcdEvent::Put(pair) => (EventKind::Modified, pair.try_json()),
            };
            Change::new(kind, key, event.revision(), object.as_ref())
        })
    }
}

/// A running follower.
pub(crate) struct Follower {
    name: String,
    after: u64,
    namespace: Option<String>,
    task: JoinHandle<Followed>,
    finish: watch::Sender<Option<u64>>,
    /// Number of watches so far.
    opened: Arc<AtomicUsize>,
}

/// The observations of a follower.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    at: u64,
    changes: Vec<Change>,
    /// Number of watches that it opened.
    watches: usize,
    /// The error that ended it.
    error: Option<Value>,
    last: String,
}

impl Follower {
    /// Follows all namespaces, or one, after a revision. Begins at the first server.
    pub(crate) fn start(servers: &[Client], after: u64, namespace: Option<&str>) -> Self {
        let collection =
            namespace.map_or_else(|| MAPS.to_owned(), |namespace| format!("/api/v1/namespaces/{namespace}/configmaps"));
        let (finish, finishing) = watch::channel(None);
        let name = format!("a follower of {collection} after {after}");
        let opened = Arc::new(AtomicUsize::new(0));
        let task = tokio::spawn(follow(servers.to_vec(), collection, after, finishing, Arc::clone(&opened)));
        Self { name, after, namespace: namespace.map(str::to_owned), task, finish, opened }
    }

    /// Number of watches that it has opened so far.
    pub(crate) fn watches(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }

    /// Lets it run until it has seen everything up to `until`, and returns its observations.
    pub(crate) async fn observed(self, until: u64) -> Followed {
        self.finish.send_replace(Some(until));
        let followed = tokio::time::timeout(PATIENCE, self.task).await;
        followed.unwrap_or_else(|_| panic!("{} does not reach {until}", self.name)).unwrap()
    }

    /// Asserts that it saw every change up to `until`, and nothing else.
    pub(crate) async fn assert_equals(self, history: &History, until: u64) -> Followed {
        let (name, after, namespace) = (self.name.clone(), self.after, self.namespace.clone());
        let followed = self.observed(until).await;
        assert!(followed.error.is_none(), "{name} must list: {:?} at {}", followed.error, followed.at);
        assert!(history.after <= after, "the history is too short");
        let due = history.changes(namespace.as_deref()).filter(|change| after < change.at && change.at <= until);
        followed.assert_begins(&name, due, true);
        followed
    }

    /// Asserts that it saw a beginning of the changes, and then the end of its history.
    pub(crate) async fn assert_expired(self, history: &History) -> Followed {
        let (name, after, namespace) = (self.name.clone(), self.after, self.namespace.clone());
        let followed = self.observed(u64::MAX).await;
        let error = followed.error.as_ref().unwrap_or_else(|| panic!("{name} did not end"));
        assert_eq!(error["code"], 410, "{name}: {error}");
        let due = history.changes(namespace.as_deref()).filter(|change| after < change.at);
        followed.assert_begins(&name, due, false);
        followed
    }
}

impl Followed {
    fn assert_begins(&self, name: &str, mut due: impl Iterator<Item = Change>, is_whole: bool) {
        for (number, change) in self.changes.iter().enumerate() {
            let next = due.next();
            assert!(next.is_some_and(|due| due.equals(change)), "{name}: change {number} is {change:?}, not {next:?}");
        }
        let next = due.next().filter(|_| is_whole);
        assert!(next.is_none(), "{name} at {}: no {next:?} after {} changes", self.at, self.changes.len());
    }

    /// Number of changes that it saw.
    pub(crate) const fn len(&self) -> usize {
        self.changes.len()
    }

    /// Number of watches that it opened.
    pub(crate) const fn watches(&self) -> usize {
        self.watches
    }

    fn take(&mut self, event: &Event) {
        match event.kind {
            // A server that does not reach etcd cannot say whether a position ahead of its cache exists.
            EventKind::Error if event.object["code"] == 504 => {}
            EventKind::Error => self.error = Some(event.object.clone()),
            EventKind::Bookmark => {
                let at = event.resource_version();
                assert!(self.at <= at, "a bookmark at {at} after {}", self.at);
                self.at = at;
            }
            EventKind::Added | EventKind::Modified | EventKind::Deleted => {
                let at = event.resource_version();
                assert!(self.at < at, "{event:?} after {}", self.at);
                self.at = at;
                self.changes.push(Change::new(event.kind, &key(&event.object), at, Some(&event.object)));
            }
            EventKind::Other => panic!("{event:?}"),
        }
    }
}

async fn follow(
    servers: Vec<Client>,
    path: String,
    after: u64,
    finishing: watch::Receiver<Option<u64>>,
    opened: Arc<AtomicUsize>,
) -> Followed {
    let mut followed = Followed { at: after, ..Followed::default() };
    let is_done =
        |followed: &Followed| followed.error.is_some() || finishing.borrow().is_some_and(|until| until <= followed.at);
    for server in servers.iter().cycle() {
        let at = followed.at.to_string();
        let query = [("watch", "1"), ("allowWatchBookmarks", "true"), ("resourceVersion", &*at)];
        let Ok(mut watch) = server.try_watch(&with_query(&path, &query)).await else {
            sleep(RETRY_AFTER).await;
            continue;
        };
        match watch.code().as_u16() {
            200 => {
                followed.watches += 1;
                opened.fetch_add(1, Ordering::Relaxed);
            }
            // A server that starts, stops or has no etcd.
            429 | 500.. => {
                sleep(RETRY_AFTER).await;
                continue;
            }
            code => {
                followed.error = Some(serde_json::json!({"code": code}));
                return followed;
            }
        }
        loop {
            if is_done(&followed) {
                return followed;
            }
            match watch.step(STEP_WAIT).await {
                Step::Event(event) => followed.take(&event),
                Step::Silence => {}
                other @ (Step::End | Step::Cut(_)) => {
                    followed.last = format!("{other:?}");
                    break;
                }
            }
        }
    }
    followed
}
