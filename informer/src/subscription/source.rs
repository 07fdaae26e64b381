//! Input of an informer's subscribers: the current state, recent changes, and a saved state.
//!
//! INVARIANT: a saved state lives until the informer is ready and every earlier subscriber has delivered it.

use std::{
    fmt,
    future::pending,
    pin::Pin,
    sync::{Arc, OnceLock, Weak},
    task::{Context, Poll, ready},
};

use informer_core::store::{self, ring::Ring};
use tokio::sync::watch;

use super::telling::DeliveryTarget;
use crate::lifetime::Lifetime;

/// Input from which each subscriber of one informer is created.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) now: watch::Receiver<store::Snapshot>,
    pub(super) ring: Ring,
    pub(super) saved: Weak<SavedTarget>,
}

/// The write side of a [`Source`].
pub(crate) struct StatePublisher {
    now: watch::Sender<store::Snapshot>,
    // Dropped once the informer is ready: later subscribers start from the current state.
    saved: Option<Arc<SavedTarget>>,
}

/// Holds the state of a checkpoint; set at most once.
pub(super) type SavedTarget = OnceLock<DeliveryTarget>;

impl StatePublisher {
    pub(crate) fn new(store: &store::Store) -> (Self, Source) {
        let (sender, now) = watch::channel(store.snapshot());
        let saved = Arc::new(SavedTarget::new());
        let source = Source { now, ring: store.ring().clone(), saved: Arc::downgrade(&saved) };
        (Self { now: sender, saved: Some(saved) }, source)
    }

    /// Sets the restored state of a checkpoint. Subscribers that exist before the informer is ready receive it first,
    /// and then the changes up to the current state. Called once, before the state is published.
    pub(crate) fn restored(&self, state: &store::Snapshot) {
        if let Some(saved) = &self.saved {
            saved.get_or_init(|| DeliveryTarget::from(state));
        }
    }

    /// Publishes a state to readers.
    pub(crate) fn publish(&mut self, state: store::Snapshot) {
        if state.synced {
            self.saved = None;
        }
        self.now.send_replace(state);
    }
}

impl Source {
    /// Input without a saved state.
    pub(crate) const fn derived(now: watch::Receiver<store::Snapshot>, ring: Ring) -> Self {
        Self { now, ring, saved: Weak::new() }
    }

    /// Recent changes of the store.
    pub(crate) fn ring(&self) -> Ring {
        self.ring.clone()
    }

    /// The saved state, for a subscriber created before the informer is ready.
    pub(super) fn saved(&self) -> Option<Arc<SavedTarget>> {
        // Checked because subscribers still delivering the saved state keep it alive after the informer is ready.
        if self.now.borrow().synced { None } else { self.saved.upgrade() }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

/// A reader's wait for the next published state. Cancel safe: it keeps the version last seen.
pub(super) struct Wait {
    now: watch::Receiver<store::Snapshot>,
    /// Ends the wait when the use of a shared copy is shut down. `None` only before `ending_with`.
    life: Option<Lifetime>,
    /// True once the last state was looked at.
    is_last: bool,
    changed: Option<StateChange>,
}

/// Resolves to true once a newer state is published or the use is shut down; to false once the sender is dropped.
type StateChange = Pin<Box<dyn Future<Output = bool> + Send + Sync>>;

impl Wait {
    pub(super) const fn new(now: watch::Receiver<store::Snapshot>) -> Self {
        Self { now, life: None, is_last: false, changed: None }
    }

    pub(super) fn ending_with(self, life: Lifetime) -> Self {
        Self { life: Some(life), ..self }
    }

    /// Returns the current state, and marks it as seen in one step: a state published afterwards ends the wait.
    pub(super) fn look(&mut self) -> store::Snapshot {
        let mut now = || self.now.borrow_and_update().clone();
        let (state, is_last) = match &self.life {
            Some(life) => life.look(now),
            None => (now(), false),
        };
        self.is_last = is_last;
        state
    }

    /// Ready with true once there may be a state newer than the last [`look`](Self::look); with false once the informer
    /// has ended, so that none will follow.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.is_last {
            return Poll::Ready(false);
        }
        let changed = self.changed.get_or_insert_with(|| {
            // A clone keeps the version last seen, so a state published since the last `look` resolves at once.
            let (mut now, life) = (self.now.clone(), self.life.clone());
            Box::pin(async move {
                tokio::select! { biased;
                    () = shut_down(life) => true,
                    changed = now.changed() => changed.is_ok(),
                }
            })
        });
        let has_changed = ready!(changed.as_mut().poll(cx));
        self.changed = None;
        Poll::Ready(has_changed)
    }
}

async fn shut_down(life: Option<Lifetime>) {
    match life {
        Some(life) => life.shut_down().await,
        None => pending().await,
    }
}
