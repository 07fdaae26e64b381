//! Changes as seen by one subscriber: the difference between what it was told and what is.
//!
//! INVARIANT: `told` is exactly the state that the events handed out so far, and those queued, add up to.

use std::{collections::VecDeque, fmt, sync::Arc};

use informer_core::{
    ResourceVersion,
    objects::{Difference, Objects},
    store::{self, Change, Entry},
};
use tokio::sync::watch;

use crate::{decode::Decoded, object::Object};

/// What happened to the objects of an informer, as one subscriber sees it.
#[non_exhaustive]
pub enum Event<K> {
    /// The object is new to this subscriber.
    Added(Object<K>),
    /// The object, still of the same uid, has another version. Versions in between may have been skipped.
    Updated {
        /// As the subscriber knew it.
        old: Object<K>,
        /// As it is.
        new: Object<K>,
    },
    /// The object is gone. Another object of the same name is [`Event::Added`] afterwards.
    Deleted {
        /// As the subscriber knew it.
        last_known: Object<K>,
        /// Whether initial state was read again in between, so that the object's last versions, and even its deletion,
        /// may have been noticed by absence alone.
        missed: bool,
    },
    /// Initial state was complete, and every event up to this version has been handed out, perhaps later ones too.
    /// Comes again after each time initial state had to be read again.
    Synced(ResourceVersion),
}

/// The changes of an informer from nothing to now, and then as they come.
///
/// Level-triggered: each event leads from what this subscriber was told to what is. A slow subscriber skips versions in
/// between and never deletions; it cannot lag, and nobody waits for it. Events come in byte order of keys within one
/// look at the state.
///
/// Memory: the state the subscriber was told, which shares with the store whatever has not changed since, and at most
/// [`AT_ONCE`] differences more.
pub struct Subscription<K> {
    now: watch::Receiver<store::Snapshot>,
    decoded: Arc<Decoded<K>>,
    told: Objects<Entry>,
    // The relist of the last state told in full: `Synced` is due when it moves.
    relists: u64,
    // The walk through all keys that is under way, when one look found more differences than it took.
    walk: Option<Walk>,
    queue: VecDeque<Event<K>>,
}

/// A long difference told in parts, key by key, while the state moves on.
struct Walk {
    /// The last key told.
    after: Box<str>,
    /// The state it began with. At its end all of that state has been told, however often it was replaced meanwhile.
    relists: u64,
    version: Option<ResourceVersion>,
}

/// One key before and now; one side at least is there.
type Pair = (Option<Arc<Entry>>, Option<Arc<Entry>>);

/// Differences taken from one look at the state. Bounds what is queued; a long difference is continued by key.
pub const AT_ONCE: usize = 64;

impl<K> Subscription<K> {
    pub(crate) fn new(mut now: watch::Receiver<store::Snapshot>, decoded: Arc<Decoded<K>>) -> Self {
        // Whatever is there already is news to this subscriber.
        now.mark_changed();
        Self { now, decoded, told: Objects::new(), relists: 0, walk: None, queue: VecDeque::new() }
    }

    /// The next change; `None` when the informer was stopped and everything has been told.
    ///
    /// Cancel safe: dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Event<K>> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Some(event);
            }
            // Marked as seen before it is read: what is published meanwhile wakes the wait below.
            let now = self.now.borrow_and_update().clone();
            if !self.look(&now) && self.queue.is_empty() && self.now.changed().await.is_err() {
                return None;
            }
        }
    }

    /// Queues the next differences to `now`. Returns whether there may be more.
    fn look(&mut self, now: &store::Snapshot) -> bool {
        let missed = self.relists != now.relists;
        let walk = self.walk.take();
        let found = match &walk {
            None => differences(self.told.diff(&now.objects).take(AT_ONCE)),
            Some(walk) => after(&self.told, &now.objects, &walk.after),
        };
        let is_last = found.len() < AT_ONCE;
        let is_all = is_last && walk.is_none();
        if is_all {
            self.told = now.objects.clone();
        } else {
            self.take_over(&found);
        }
        let (relists, version) =
            walk.map_or_else(|| (now.relists, now.resource_version.clone()), |walk| (walk.relists, walk.version));
        self.walk = match found.last() {
            Some((old, new)) if !is_last => Some(Walk { after: key_of(old, new), relists, version: version.clone() }),
            Some(_) | None => None,
        };
        for (old, new) in found {
            self.queue_change(old, new, missed);
        }
        if is_last && self.relists != relists {
            self.relists = relists;
            self.queue.extend(version.map(Event::Synced));
        }
        !is_all
    }

    /// Moves `told` by these differences alone.
    fn take_over(&mut self, found: &[Pair]) {
        for (old, new) in found {
            match (old, new) {
                (_, Some(new)) => drop(self.told.insert(Arc::clone(new))),
                (Some(old), None) => drop(self.told.remove(old.key())),
                (None, None) => {}
            }
        }
    }

    fn queue_change(&mut self, old: Option<Arc<Entry>>, new: Option<Arc<Entry>>, missed: bool) {
        let object = |entry| Object::new(entry, Arc::clone(&self.decoded));
        self.queue.extend(store::changes(old, new, missed).map(|change| match change {
            Change::Added(new) => Event::Added(object(new)),
            Change::Updated { old, new } => Event::Updated { old: object(old), new: object(new) },
            Change::Deleted { last_known, missed } => Event::Deleted { last_known: object(last_known), missed },
        }));
    }
}

fn differences<'a>(found: impl Iterator<Item = Difference<'a, Entry>>) -> Vec<Pair> {
    let pair = |difference| match difference {
        Difference::Added(new) => (None, Some(Arc::clone(new))),
        Difference::Updated { old, new } => (Some(Arc::clone(old)), Some(Arc::clone(new))),
        Difference::Removed(old) => (Some(Arc::clone(old)), None),
    };
    found.map(pair).collect()
}

/// The first differences behind `key`, found by walking both states. A long difference touches most of them anyway,
/// and their own `diff` cannot start in the middle.
fn after(told: &Objects<Entry>, now: &Objects<Entry>, key: &str) -> Vec<Pair> {
    let mut found = Vec::new();
    let mut olds = told.after(Some(key)).peekable();
    let mut news = now.after(Some(key)).peekable();
    while found.len() < AT_ONCE {
        let (takes_old, takes_new) = match (olds.peek(), news.peek()) {
            (None, None) => break,
            (Some(_), None) => (true, false),
            (None, Some(_)) => (false, true),
            (Some(old), Some(new)) => (old.key() <= new.key(), new.key() <= old.key()),
        };
        let old = if takes_old { olds.next() } else { None };
        let new = if takes_new { news.next() } else { None };
        if !matches!((old, new), (Some(old), Some(new)) if Arc::ptr_eq(old, new)) {
            found.push((old.cloned(), new.cloned()));
        }
    }
    found
}

fn key_of(old: &Option<Arc<Entry>>, new: &Option<Arc<Entry>>) -> Box<str> {
    new.as_ref().or(old.as_ref()).map_or_else(Box::default, |entry| entry.key().into())
}

impl<K> fmt::Debug for Event<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added(object) => write!(f, "Added({object:?})"),
            Self::Updated { old, new } => write!(f, "Updated({old:?} to {})", new.resource_version()),
            Self::Deleted { last_known, missed } => write!(f, "Deleted({last_known:?}, missed: {missed})"),
            Self::Synced(version) => write!(f, "Synced({version})"),
        }
    }
}

impl<K> fmt::Debug for Subscription<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("told", &self.told.len())
            .field("queued", &self.queue.len())
            .finish_non_exhaustive()
    }
}
