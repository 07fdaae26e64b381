//! What the subscribers of one informer read: the state of now, recent changes, and a state that was saved.
//!
//! INVARIANT: a saved state lives until the informer is ready and every subscriber who came before has told it.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, OnceLock, Weak},
    task::{Context, Poll, ready},
};

use informer_core::store::{self, ring::Ring};
use tokio::sync::watch;

use super::telling::Target;

/// What every subscriber of one informer is made from.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) now: watch::Receiver<store::Snapshot>,
    pub(super) ring: Ring,
    pub(super) saved: Weak<Saved>,
}

/// The writing side of a [`Source`].
pub(crate) struct Outlet {
    now: watch::Sender<store::Snapshot>,
    // Let go of when the informer is ready: who comes later starts from what is.
    saved: Option<Arc<Saved>>,
}

/// A place for the state of a checkpoint, filled once or never.
pub(super) type Saved = OnceLock<Target>;

impl Outlet {
    pub(crate) fn new(store: &store::Store) -> (Self, Source) {
        let (sender, now) = watch::channel(store.snapshot());
        let saved = Arc::new(Saved::new());
        let source = Source { now, ring: store.ring().clone(), saved: Arc::downgrade(&saved) };
        (Self { now: sender, saved: Some(saved) }, source)
    }

    /// `state` is that of a checkpoint: subscribers who are there before the informer is ready are told it first, and
    /// then how it came to what is. Called once, before the state is published.
    pub(crate) fn restored(&self, state: &store::Snapshot) {
        if let Some(saved) = &self.saved {
            saved.get_or_init(|| Target::from(state));
        }
    }

    /// Lets readers see this state.
    pub(crate) fn publish(&mut self, state: store::Snapshot) {
        if state.synced {
            self.saved = None;
        }
        self.now.send_replace(state);
    }
}

impl Source {
    /// The state that was saved, for a subscriber who comes before the informer is ready.
    pub(super) fn saved(&self) -> Option<Arc<Saved>> {
        // Others may still have it to tell when the informer is ready.
        if self.now.borrow().synced { None } else { self.saved.upgrade() }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

/// One reader's wait for the next published state. Cancel safe: it remembers what it has seen.
pub(super) struct Wait {
    now: watch::Receiver<store::Snapshot>,
    changed: Option<Changed>,
}

/// Whether a newer state came; not, when there will be none.
type Changed = Pin<Box<dyn Future<Output = bool> + Send + Sync>>;

impl Wait {
    pub(super) const fn new(now: watch::Receiver<store::Snapshot>) -> Self {
        Self { now, changed: None }
    }

    /// The state of now. Marked as seen before it is read: what is published meanwhile ends the wait.
    pub(super) fn look(&mut self) -> store::Snapshot {
        self.now.borrow_and_update().clone()
    }

    /// Ready when there may be a state newer than the last [`look`](Self::look): with `false` when the informer has
    /// stopped and there will be none.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let changed = self.changed.get_or_insert_with(|| {
            let mut now = self.now.clone();
            Box::pin(async move { now.changed().await.is_ok() })
        });
        let has_changed = ready!(changed.as_mut().poll(cx));
        self.changed = None;
        Poll::Ready(has_changed)
    }
}
