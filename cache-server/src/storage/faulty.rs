//! A storage for tests that fails or stalls by a rule.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::{FutureExt as _, future::BoxFuture};
use parking_lot::Mutex;

use super::{
    FollowFrom, ListSnapshot, Source, SourceError, Store, Txn, Updates, WriteError, WriteResult,
    embedded::EmbeddedStorage,
};
use crate::registry::ResourceType;

/// A verb of [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    List,
    Follow,
    Write,
    Current,
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

    async fn meet(&self, verb: Verb, id: &str) -> Result<(), SourceError> {
        let fault = self.rule.lock()(self.calls.fetch_add(1, Ordering::Relaxed), verb, id);
        match fault {
            Fault::None => Ok(()),
            Fault::Fails => Err(SourceError::Unavailable("on purpose".to_owned())),
            Fault::Stalls => std::future::pending().await,
        }
    }
}

impl Source for Faulty {
    fn follow(
        &self,
        ty: &Arc<ResourceType>,
        from: FollowFrom,
        cache: watch_cache::Reader,
    ) -> BoxFuture<'_, Result<Updates, SourceError>> {
        let ty = Arc::clone(ty);
        async move {
            self.meet(Verb::Follow, ty.id()).await?;
            self.inner.follow(&ty, from, cache).await
        }
        .boxed()
    }

    fn current(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>> {
        let ty = Arc::clone(ty);
        async move {
            self.meet(Verb::Current, ty.id()).await?;
            self.inner.current(&ty).await
        }
        .boxed()
    }
}

impl Store for Faulty {
    fn list(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<ListSnapshot, SourceError>> {
        let ty = Arc::clone(ty);
        async move {
            self.meet(Verb::List, ty.id()).await?;
            self.inner.list(&ty).await
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
}
