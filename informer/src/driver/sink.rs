//! Where objects go: into the store of an informer, or on to the reader of a raw stream.

use informer_core::{
    ResourceVersion, Time,
    object::Meta,
    store::{self, Representation, Store, StoreError},
};
use tokio::sync::watch;

use crate::error::Error;

/// One order of the reflector with the object it is about, as JSON and as what was read from it.
#[derive(Clone, Debug)]
pub(crate) enum Order<'a> {
    /// Initial state begins.
    Init,
    /// An object of it.
    InitApply(&'a [u8], &'a Meta<'a>),
    /// Initial state is complete at this position.
    InitDone(ResourceVersion),
    /// An object was added or changed.
    Apply(&'a [u8], &'a Meta<'a>),
    /// An object is gone; while initial state is gathered, from that.
    Delete(&'a [u8], &'a Meta<'a>),
    /// Nothing at or below this position follows.
    Bookmark(ResourceVersion),
    /// Initial state broke off: what came of it counts for nothing.
    Abandon,
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
}

/// The store of an informer.
pub(crate) struct StoreSink {
    store: Store,
    published: watch::Sender<store::Snapshot>,
    // Since the last flush: whether readers would see a difference.
    changed: bool,
}

impl StoreSink {
    pub(crate) fn new(representation: Representation) -> (Self, watch::Receiver<store::Snapshot>) {
        let store = Store::new(representation);
        let (published, now) = watch::channel(store.snapshot());
        (Self { store, published, changed: false }, now)
    }
}

impl Sink for StoreSink {
    fn take(&mut self, _now: Time, order: Order<'_>) -> Result<(), StoreError> {
        // A stage is invisible until it is done.
        self.changed |= !matches!(order, Order::Init | Order::InitApply(..) | Order::Abandon);
        self.store.handle(match order {
            Order::Init => store::Event::Init,
            Order::InitApply(json, meta) => store::Event::InitApply(json, meta),
            Order::InitDone(position) => store::Event::InitDone(position),
            Order::Apply(json, meta) => store::Event::Apply(json, meta),
            Order::Delete(_, meta) => store::Event::Delete(meta),
            Order::Bookmark(position) => store::Event::Bookmark(position),
            Order::Abandon => store::Event::Abandon,
        })
    }

    fn failed(&mut self, _error: &Error) {}

    fn flush(&mut self) {
        if std::mem::take(&mut self.changed) {
            self.published.send_replace(self.store.snapshot());
        }
    }
}
