//! Changes as seen by one subscriber: the difference between what it was told and what is, or each of them in order.
//!
//! INVARIANT: the events of a subscriber, applied one after the other to nothing, give a state the store had.

mod all;
mod source;
mod telling;

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures::Stream;
use informer_core::{ResourceVersion, store};

pub use self::all::SubscriptionAll;
pub(crate) use self::source::{Outlet, Source};
use self::{
    source::{Saved, Wait},
    telling::{Target, Teller},
};
use crate::{decode::Decoded, object::Object};

/// What happened to the objects of an informer, as one subscriber sees it. Cheap to clone.
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
        /// Whether the object's last versions, and even its deletion, may have been noticed by absence alone: `false`
        /// promises that the server sent the deletion, or a version of it that was skipped
        /// ([`Stats::skipped`](crate::Stats::skipped)): then it exists, and nobody here can say how it is. From a [`SubscriptionAll`] that was not reset, `true` says that
        /// a relist did not hold the object any more; otherwise it says that a relist lies between the two states
        /// compared.
        missed: bool,
    },
    /// Changes were lost for this subscriber, who was slower than the ring is long: what follows is the difference from
    /// what it was told to what is, without the changes in between. Only from a [`SubscriptionAll`].
    Reset,
    /// Initial state was complete, and every event up to this version has been handed out, perhaps later ones too.
    /// Comes again after each time initial state had to be read again.
    Synced(ResourceVersion),
}

/// The changes of an informer from nothing to now, and then as they come.
///
/// Level-triggered: each event leads from what this subscriber was told to what is. A slow subscriber skips versions in
/// between and never deletions; it cannot lag, and nobody waits for it. Events come in byte order of keys within one
/// look at the state. Also a [`Stream`].
///
/// Memory: the state the subscriber was told, which shares with the store whatever has not changed since, and at most
/// [`EVENTS_AT_ONCE`] differences more.
#[must_use = "a subscriber is told nothing unless it asks"]
pub struct Subscription<K> {
    wait: Wait,
    // A state that was saved is told first; filled, or emptied, before the informer is ready.
    saved: Option<Arc<Saved>>,
    teller: Teller<K>,
}

/// Differences taken from one look at the state. Bounds what is queued; a long difference is continued by key.
pub const EVENTS_AT_ONCE: usize = 64;

impl<K> Subscription<K> {
    pub(crate) fn new(source: Source, decoded: Arc<Decoded<K>>) -> Self {
        Self { saved: source.saved(), wait: Wait::new(source.now), teller: Teller::new(decoded) }
    }

    /// The next change; `None` when the informer was stopped and everything has been told.
    ///
    /// Cancel safe: dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Event<K>> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event<K>>> {
        loop {
            if let Some(event) = self.teller.pop() {
                return Poll::Ready(Some(event));
            }
            let now = self.wait.look();
            if !self.advance(&now) && self.teller.queued_len() == 0 && !ready!(self.wait.poll(cx)) {
                return Poll::Ready(None);
            }
        }
    }

    /// Queues what comes next. Returns whether there may be more.
    fn advance(&mut self, now: &store::Snapshot) -> bool {
        let Some(state) = self.saved.as_ref().and_then(|saved| saved.get()) else {
            return self.teller.look(&Target::from(now));
        };
        if !self.teller.look(state) {
            self.saved = None;
        }
        true
    }
}

impl<K> Stream for Subscription<K> {
    type Item = Event<K>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event<K>>> {
        self.get_mut().poll_event(cx)
    }
}

// Not derived: `K` need not be cloned.
impl<K> Clone for Event<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(object) => Self::Added(object.clone()),
            Self::Updated { old, new } => Self::Updated { old: old.clone(), new: new.clone() },
            Self::Deleted { last_known, missed } => Self::Deleted { last_known: last_known.clone(), missed: *missed },
            Self::Reset => Self::Reset,
            Self::Synced(version) => Self::Synced(version.clone()),
        }
    }
}

impl<K> fmt::Debug for Event<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added(object) => write!(f, "Added({object:?})"),
            Self::Updated { old, new } => write!(f, "Updated({old:?} to {})", new.resource_version()),
            Self::Deleted { last_known, missed } => write!(f, "Deleted({last_known:?}, missed: {missed})"),
            Self::Reset => f.write_str("Reset"),
            Self::Synced(version) => write!(f, "Synced({version})"),
        }
    }
}

impl<K> fmt::Debug for Subscription<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("told", &self.teller.told_len())
            .field("queued", &self.teller.queued_len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
