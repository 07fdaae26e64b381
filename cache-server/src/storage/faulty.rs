//! A storage for tests that fails or stalls by a rule.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::{FutureExt as _, future::BoxFuture};
use parking_lot::Mutex;

use super::{
    ListAndWatch, ListSnapshot, Storage, StorageError, Txn, WriteError, WriteResult, embedded::EmbeddedStorage,
};
use crate::registry::ResourceType;

/// A verb of [`Storage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    List,
    Follow,
    Write,
    Progress,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It succeeds.
    None,
    /// It fails without an effect.
    Fails,
    /// It never returns.
    Stalls,
}

type Rule = Box<dyn Fn(usize, Verb, &str) -> Fault + Send>;

/// The embedded store behind a rule.
pub(crate) struct Faulty {
    /// The store itself, for access without faults.
    pub(crate) inner: EmbeddedStorage,
    calls: AtomicUsize,
    rule: Mutex<Rule>,
}

impl Faulty {
    /// Creates a store whose calls go through `rule`: their number from zero on, the verb, and the type's id.
    pub(crate) fn new(rule: impl Fn(usize, Verb, &str) -> Fault + Send + 'static) -> Arc<Self> {
        let (calls, rule): (_, Rule) = (AtomicUsize::new(0), Box::new(rule));
        Arc::new(Self { inner: EmbeddedStorage::new(Some(100)), calls, rule: Mutex::new(rule) })
    }

    /// Disables all faults from now on.
    pub(crate) fn heal(&self) {
        *self.rule.lock() = Box::new(|_, _, _| Fault::None);
    }

    /// Returns the number of calls so far.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    async fn meet(&self, verb: Verb, id: &str) -> Result<(), StorageError> {
        let fault = self.rule.lock()(self.calls.fetch_add(1, Ordering::Relaxed), verb, id);
        match fault {
            Fault::None => Ok(()),
            Fault::Fails => Err(StorageError::Unavailable("on purpose".to_owned())),
            Fault::Stalls => std::future::pending().await,
        }
    }
}

impl Storage for Faulty {
    fn list(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<ListSnapshot, StorageError>> {
        let ty = Arc::clone(ty);
        async move {
            self.meet(Verb::List, ty.id()).await?;
            self.inner.list(&ty).await
        }
        .boxed()
    }

    fn follow(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<ListAndWatch, StorageError>> {
        let ty = Arc::clone(ty);
        async move {
            self.meet(Verb::Follow, ty.id()).await?;
            self.inner.follow(&ty).await
        }
        .boxed()
    }

    fn write(&self, txn: Txn) -> BoxFuture<'_, Result<WriteResult, WriteError>> {
        async move {
            self.meet(Verb::Write, txn.ty.id()).await?;
            self.inner.write(txn).await
        }
        .boxed()
    }

    fn progress(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, StorageError>> {
        let ty = Arc::clone(ty);
        async move {
            self.meet(Verb::Progress, ty.id()).await?;
            self.inner.progress(&ty).await
        }
        .boxed()
    }
}
