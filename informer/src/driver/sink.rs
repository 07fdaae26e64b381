//! Receivers of a driver's objects: the store of an informer, or the reader of a raw stream.

use informer_core::{
    Time, proof,
    reflector::ObservedObject,
    session::{Evidence, Order, Sink},
    store::{self, Store, StoreConfig, StoreError},
};

use crate::{
    error::Error,
    subscription::{Source, StatePublisher},
};

/// Receiver of a driver's objects.
pub(crate) trait DriverSink: Sink + Send + 'static {
    /// Reports a failed request or response. The session decides what follows.
    fn failed(&mut self, error: &Error);

    /// Called between two frames: publishes what was taken.
    fn flush(&mut self);
}

/// The store of an informer.
pub(crate) struct StoreSink {
    store: Store,
    outlet: StatePublisher,
    // State loaded from disk and not published yet, as long as it may belong to the server's history.
    saved: Option<store::Snapshot>,
    // True if readers would see a difference since the last flush.
    changed: bool,
}

impl StoreSink {
    pub(crate) fn new(keeping: StoreConfig) -> (Self, Source) {
        let store = Store::new(keeping);
        let (outlet, source) = StatePublisher::new(&store);
        (Self { store, outlet, saved: None, changed: false }, source)
    }

    /// The store before any data is received, to be filled with the saved state; see [`filled`](Self::filled).
    pub(super) const fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Called once the store holds the saved state, which stays unpublished until it is proven.
    pub(super) fn filled(&mut self) -> store::Snapshot {
        let state = self.store.snapshot();
        self.saved = Some(state.clone());
        state
    }
}

impl Sink for StoreSink {
    fn take(&mut self, now: Time, order: Order<'_>) -> Result<(), StoreError> {
        // A staged state is invisible until it is complete; the state behind it may be a saved one that is not proven.
        self.changed |= match order {
            Order::Init { .. } | Order::InitApply(..) | Order::Abandon => false,
            Order::Delete(..) | Order::Skip(..) => !self.store.is_staging(),
            Order::Restored | Order::InitDone(_) | Order::Apply(..) | Order::Bookmark(_) => true,
        };
        let event = match order {
            Order::Restored => store::Event::Restored,
            Order::Init { trusts_versions, continues_history } => {
                if !continues_history {
                    // Another history: its objects never existed at this server.
                    self.saved = None;
                }
                store::Event::Init { trusts_versions }
            }
            Order::InitApply(json, meta) => store::Event::InitApply(json, meta),
            Order::InitDone(position) => store::Event::InitDone(position),
            Order::Apply(json, meta) => store::Event::Apply(json, meta),
            Order::Delete(_, meta) => store::Event::Delete(meta),
            Order::Skip(json, meta) => store::Event::Skip(json, meta),
            Order::Bookmark(position) => store::Event::Bookmark(position),
            Order::Abandon => store::Event::Abandon,
        };
        self.store.handle(now, event)
    }

    fn evidence(&self, skip: usize, _moved: bool) -> Evidence {
        proof::witness(&self.store.snapshot(), skip).map_or(Evidence::Nothing, Evidence::Witness)
    }

    fn is_news(&self, event: &ObservedObject<'_>) -> bool {
        proof::is_news(&self.store.snapshot(), event)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.store.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.changed |= self.store.handle_timeout(now);
    }
}

impl DriverSink for StoreSink {
    fn failed(&mut self, _error: &Error) {}

    fn flush(&mut self) {
        if std::mem::take(&mut self.changed) {
            if let Some(state) = self.saved.take() {
                self.outlet.restored(&state);
            }
            self.outlet.publish(self.store.snapshot());
        }
    }
}

#[cfg(test)]
mod tests {
    use informer_core::object::Meta;

    use super::*;

    /// Goal: a saved state of another cluster is never published. Method: delete an object of the server's own state
    /// while that state is gathered.
    #[test]
    fn a_deletion_from_initial_state_does_not_show_a_saved_state_that_is_not_proven() {
        let (mut sink, source) = StoreSink::new(StoreConfig::default());
        let json = br#"{"metadata":{"name":"a","uid":"u","resourceVersion":"5"}}"#;
        let meta = || Meta::read(json).expect("an object");
        sink.store().restore([(meta(), &json[..])], Some(5.into()));
        sink.filled();
        for order in [
            Order::Init { trusts_versions: false, continues_history: false },
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
