//! Subscriptions: the changes one subscriber sees, as differences between states or each change in order.
//!
//! INVARIANT: the events of a subscriber, applied in order to an empty state, yield a state the store had.

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
pub(crate) use self::source::{Source, StatePublisher};
use self::{
    source::{SavedTarget, Wait},
    telling::{DeliveryTarget, Teller},
};
use crate::{decode::DecodedObjects, ended::EndReason, keep_alive::KeepAlive, object::Object};

/// A change of an informer's objects, as one subscriber sees it. Cheap to clone.
#[non_exhaustive]
pub enum Event<K> {
    /// The object is new to this subscriber.
    Added(Object<K>),
    /// The object has another version and its old uid. Versions in between may have been skipped.
    Updated {
        /// The last version this subscriber received.
        old: Object<K>,
        /// The new version.
        new: Object<K>,
    },
    /// The object was deleted. A new object of that name follows as [`Event::Added`].
    Deleted {
        /// The last version this subscriber received.
        last_known: Object<K>,
        /// True if the object's last versions and its deletion may have been missed: its absence was noticed after a
        /// relist. False if the server sent the deletion. An object that was skipped is not deleted: it is an
        /// [`Event::Updated`] whose new version [is skipped](Object::is_skipped). From a [`SubscriptionAll`] without a reset, true means that a relist no longer contained the object;
        /// otherwise it means that a relist lies between the two states compared.
        missed: bool,
    },
    /// This subscriber was too slow for the ring and missed changes. The difference between its last state and the
    /// current one follows, without the changes in between. Only from a [`SubscriptionAll`].
    Reset,
    /// Initial state is complete, and every event up to this version has been delivered, possibly later ones too.
    /// Repeated after each relist.
    Synced(ResourceVersion),
}

/// The changes of an informer, from an empty state to the current one, and then as they arrive.
///
/// Level-triggered: each event leads from the state this subscriber last received towards the current state. A slow
/// subscriber skips intermediate versions but never deletions; it cannot lag, and does not delay the informer or other
/// subscribers. Events of one difference come in byte order of keys. Keeps its informer running. Also a [`Stream`].
///
/// Memory: the state last delivered, which shares all unchanged objects with the store, and at most [`EVENTS_AT_ONCE`]
/// queued differences.
#[must_use = "a subscription yields events only when polled"]
pub struct Subscription<K> {
    wait: Wait,
    // A saved state, delivered first. Filled, or dropped empty, before the informer is ready.
    saved: Option<Arc<SavedTarget>>,
    teller: Teller<K>,
    // `None` only before `keeping`.
    informer: Option<Arc<KeepAlive>>,
}

/// Maximum differences computed at once. Bounds the queue; a longer difference continues by key.
pub const EVENTS_AT_ONCE: usize = 64;

impl<K> Subscription<K> {
    pub(crate) fn new(source: Source, decoded: Arc<DecodedObjects<K>>) -> Self {
        Self { saved: source.saved(), wait: Wait::new(source.now), teller: Teller::new(decoded), informer: None }
    }

    /// Keeps `informer` running until the subscription is dropped.
    pub(crate) fn keeping(self, informer: Arc<KeepAlive>) -> Self {
        let wait = self.wait.ending_with(informer.life().clone());
        Self { wait, informer: Some(informer), ..self }
    }

    /// Returns the next change; `None` once the informer has ended and every event was delivered.
    /// [`end_reason`](Self::end_reason) then has the reason. Cancel safe: dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Event<K>> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Why the informer has ended; `None` while it runs.
    #[must_use]
    pub fn end_reason(&self) -> Option<EndReason> {
        self.informer.as_ref().and_then(|informer| informer.life().end_reason())
    }

    /// True if the deletion of this object, in any version, will be the next one of its key that is delivered.
    #[cfg(feature = "controller")]
    pub(crate) fn has_delivered(&self, object: &Object<K>) -> bool {
        self.teller.has_delivered(object)
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

    /// Queues the next events. Returns true if there may be more.
    fn advance(&mut self, now: &store::Snapshot) -> bool {
        let Some(state) = self.saved.as_ref().and_then(|saved| saved.get()) else {
            return self.teller.look(&DeliveryTarget::from(now));
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

// Not derived: a derive would require `K: Clone`.
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
            .field("delivered", &self.teller.delivered_len())
            .field("queued", &self.teller.queued_len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
