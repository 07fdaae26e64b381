//! Where objects go: into the store of an informer, or on to the reader of a raw stream.

use std::sync::Arc;

use informer_core::{
    ResourceVersion, Time,
    object::Meta,
    proof,
    reflector::Observed,
    store::{self, Entry, Keeping, Store, StoreError},
};

use crate::{
    error::Error,
    subscription::{Outlet, Source},
};

/// One order of the reflector with the object it is about, as JSON and as what was read from it.
#[derive(Clone, Debug)]
pub(crate) enum Order<'a> {
    /// The state that was there from the start is the server's state at its position.
    Restored,
    /// Initial state begins.
    Init {
        /// Whether an object of the same uid and resourceVersion as before is the same.
        trusts_versions: bool,
    },
    /// An object of it.
    InitApply(&'a [u8], &'a Meta<'a>),
    /// Initial state is complete at this position.
    InitDone(ResourceVersion),
    /// An object was added or changed.
    Apply(&'a [u8], &'a Meta<'a>),
    /// An object is gone; while initial state is gathered, from that.
    Delete(&'a [u8], &'a Meta<'a>),
    /// An object, new, changed or of initial state, cannot be had at its newest version: what is known of it is stale.
    Skip(&'a Error, &'a Meta<'a>),
    /// Nothing at or below this position follows.
    Bookmark(ResourceVersion),
    /// Initial state broke off: what came of it counts for nothing.
    Abandon,
}

/// What a sink knows about the history it is filled from.
pub(crate) enum Evidence {
    /// One object of it.
    Witness(Arc<Entry>),
    /// Whoever holds the state vouches for it.
    Word,
    /// Nothing, or nothing more.
    Nothing,
}

/// Takes what a driver receives.
pub(crate) trait Sink: Send + 'static {
    /// Takes one order.
    ///
    /// # Errors
    /// An object that cannot be kept. It is left out.
    fn take(&mut self, now: Time, order: Order<'_>) -> Result<(), StoreError>;

    /// A request or its answer failed. Whatever follows is the reflector's business.
    fn failed(&mut self, error: &Error);

    /// Between two frames: readers may see what was taken.
    fn flush(&mut self);

    /// What can be held against a server, after so many pieces of it that said nothing. `moved` tells whether it is
    /// another endpoint than the one that is known to have this history.
    fn evidence(&self, skip: usize, moved: bool) -> Evidence;

    /// Returns true unless the state is known to have what `event` says; see [`proof::is_news`].
    fn is_news(&self, event: &Observed<'_>) -> bool;

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    fn poll_timeout(&self) -> Option<Time>;

    /// Lets go of what has been kept for long enough.
    fn handle_timeout(&mut self, now: Time);
}

/// The store of an informer.
pub(crate) struct StoreSink {
    store: Store,
    outlet: Outlet,
    // A state read from disk that nobody has seen yet, as long as it may be of the server's history.
    saved: Option<store::Snapshot>,
    // Since the last flush: whether readers would see a difference.
    changed: bool,
}

impl StoreSink {
    pub(crate) fn new(keeping: Keeping) -> (Self, Source) {
        let store = Store::new(keeping);
        let (outlet, source) = Outlet::new(&store);
        (Self { store, outlet, saved: None, changed: false }, source)
    }

    /// The store before anything is received, to be filled with what was saved; see [`saved`](Self::saved).
    pub(super) const fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    /// The store has been filled. Nobody sees it before it is proven.
    pub(super) fn filled(&mut self) -> store::Snapshot {
        let state = self.store.snapshot();
        self.saved = Some(state.clone());
        state
    }
}

impl Sink for StoreSink {
    fn take(&mut self, now: Time, order: Order<'_>) -> Result<(), StoreError> {
        // A stage is invisible until it is done, and so may be what is behind it: a saved state nobody has proven.
        self.changed |= match order {
            Order::Init { .. } | Order::InitApply(..) | Order::Abandon => false,
            Order::Delete(..) | Order::Skip(..) => !self.store.is_staging(),
            Order::Restored | Order::InitDone(_) | Order::Apply(..) | Order::Bookmark(_) => true,
        };
        let event = match order {
            Order::Restored => store::Event::Restored,
            Order::Init { trusts_versions } => {
                if !trusts_versions {
                    // Of another history: what it held was never here.
                    self.saved = None;
                }
                store::Event::Init { trusts_versions }
            }
            Order::InitApply(json, meta) => store::Event::InitApply(json, meta),
            Order::InitDone(position) => store::Event::InitDone(position),
            Order::Apply(json, meta) => store::Event::Apply(json, meta),
            Order::Delete(_, meta) | Order::Skip(_, meta) => store::Event::Delete(meta),
            Order::Bookmark(position) => store::Event::Bookmark(position),
            Order::Abandon => store::Event::Abandon,
        };
        self.store.handle(now, event)
    }

    fn failed(&mut self, _error: &Error) {}

    fn flush(&mut self) {
        if std::mem::take(&mut self.changed) {
            if let Some(state) = self.saved.take() {
                self.outlet.restored(&state);
            }
            self.outlet.publish(self.store.snapshot());
        }
    }

    fn evidence(&self, skip: usize, _moved: bool) -> Evidence {
        proof::witness(&self.store.snapshot(), skip).map_or(Evidence::Nothing, Evidence::Witness)
    }

    fn is_news(&self, event: &Observed<'_>) -> bool {
        proof::is_news(&self.store.snapshot(), event)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.store.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.changed |= self.store.handle_timeout(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a saved state of another cluster is never shown. Method: while the server's own state is gathered, an
    /// object of it is deleted.
    #[test]
    fn a_deletion_from_initial_state_does_not_show_a_saved_state_that_is_not_proven() {
        let (mut sink, source) = StoreSink::new(Keeping::default());
        let json = br#"{"metadata":{"name":"a","uid":"u","resourceVersion":"5"}}"#;
        let meta = || Meta::read(json).expect("an object");
        sink.store().restore([(meta(), &json[..])], Some(5.into()));
        sink.filled();
        for order in [
            Order::Init { trusts_versions: false },
            Order::InitApply(json, &meta()),
            Order::Delete(json, &meta()),
            Order::Abandon,
        ] {
            sink.take(Time::ZERO, order).expect("an object that can be kept");
            sink.flush();
            assert_eq!(source.now.borrow().objects.len(), 0);
        }
    }
}
