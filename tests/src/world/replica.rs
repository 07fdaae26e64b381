//! A client's store, which remembers what it took from its session.

use informer_core::{
    Time, proof,
    reflector::ObservedObject,
    session::{Evidence, Order, Sink},
    store::{self, Snapshot, Store, StoreError},
};

use super::wire::state_of;
use crate::model::State;

/// The copy of one client.
#[derive(Default)]
pub(super) struct Replica {
    pub(super) store: Store,
    /// Orders taken since this was last emptied.
    pub(super) taken: Vec<Taken>,
}

/// An order that a copy took, if its readers see it.
pub(super) enum Taken {
    /// The restored state is current.
    Restored(Snapshot),
    /// A state was completed.
    State {
        version: u64,
        objects: State,
    },
    Bookmark {
        version: u64,
    },
    /// The object of the current event changed the copy.
    Object,
}

impl Sink for Replica {
    fn take(&mut self, now: Time, order: Order<'_>) -> Result<(), StoreError> {
        match order {
            Order::Restored => {
                self.store.handle(now, store::Event::Restored)?;
                self.taken.push(Taken::Restored(self.store.snapshot()));
            }
            Order::Init { trusts_versions, .. } => self.store.handle(now, store::Event::Init { trusts_versions })?,
            Order::Abandon => self.store.handle(now, store::Event::Abandon)?,
            Order::InitDone(position) => {
                let version = position.as_u64().unwrap_or(0);
                self.store.handle(now, store::Event::InitDone(position))?;
                self.taken.push(Taken::State { version, objects: state_of(&self.store.snapshot()) });
            }
            Order::Bookmark(position) => {
                self.taken.push(Taken::Bookmark { version: position.as_u64().unwrap_or(0) });
                self.store.handle(now, store::Event::Bookmark(position))?;
            }
            Order::InitApply(json, meta) => self.take_object(now, store::Event::InitApply(json, meta))?,
            Order::Apply(json, meta) => self.take_object(now, store::Event::Apply(json, meta))?,
            Order::Skip(json, meta) => self.take_object(now, store::Event::Skip(json, meta))?,
            Order::Delete(_, meta) => self.take_object(now, store::Event::Delete(meta))?,
        }
        Ok(())
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
        self.store.handle_timeout(now);
    }
}

impl Replica {
    fn take_object(&mut self, now: Time, event: store::Event<'_>) -> Result<(), StoreError> {
        let before = self.store.snapshot();
        self.store.handle(now, event)?;
        if store::diff(&before, &self.store.snapshot()).next().is_some() {
            self.taken.push(Taken::Object);
        }
        Ok(())
    }
}
