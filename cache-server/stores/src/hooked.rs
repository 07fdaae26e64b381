//! For tests: the embedded store behind a hook, which replaces the calls that a test is about.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::{
    FollowFrom, ListSnapshot, Source, SourceError, Store, Txn, Updates, WriteError, WriteResult,
    embedded::EmbeddedStorage,
};
use crate::registry::ResourceType;

/// Calls of a store that a test replaces. The others are those of the embedded store.
pub trait StoreHook: Send + Sync + 'static {
    /// Replaces [`Source::follow`].
    fn follow<'a>(
        &'a self,
        inner: &'a EmbeddedStorage,
        ty: &Arc<ResourceType>,
        from: FollowFrom,
        cache: watch_cache::Reader,
    ) -> BoxFuture<'a, Result<Updates, SourceError>> {
        inner.follow(ty, from, cache)
    }

    /// Replaces [`Source::current`].
    fn current<'a>(
        &'a self,
        inner: &'a EmbeddedStorage,
        ty: &Arc<ResourceType>,
    ) -> BoxFuture<'a, Result<u64, SourceError>> {
        inner.current(ty)
    }

    /// Replaces [`Store::list`].
    fn list<'a>(
        &'a self,
        inner: &'a EmbeddedStorage,
        ty: &Arc<ResourceType>,
    ) -> BoxFuture<'a, Result<ListSnapshot, SourceError>> {
        inner.list(ty)
    }

    /// Replaces [`Store::write`].
    fn write<'a>(&'a self, inner: &'a EmbeddedStorage, txn: Txn) -> BoxFuture<'a, Result<WriteResult, WriteError>> {
        inner.write(txn)
    }

    /// Replaces [`Store::refuses`].
    fn refuses(&self) -> Option<SourceError> {
        None
    }
}

/// The embedded store behind a hook. Like a store of several processes, it knows neither its history nor its newest
/// position.
pub struct HookedStore<H> {
    /// The store itself, for access without the hook.
    pub inner: EmbeddedStorage,
    pub(super) hook: H,
}

impl<H> HookedStore<H> {
    /// An empty store at revision 100.
    pub fn by(hook: H) -> Self {
        Self { inner: EmbeddedStorage::new(Some(100)), hook }
    }
}

impl<H: StoreHook> Source for HookedStore<H> {
    fn follow(
        &self,
        ty: &Arc<ResourceType>,
        from: FollowFrom,
        cache: watch_cache::Reader,
    ) -> BoxFuture<'_, Result<Updates, SourceError>> {
        self.hook.follow(&self.inner, ty, from, cache)
    }

    fn current(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>> {
        self.hook.current(&self.inner, ty)
    }
}

impl<H: StoreHook> Store for HookedStore<H> {
    fn list(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<ListSnapshot, SourceError>> {
        self.hook.list(&self.inner, ty)
    }

    fn write(&self, txn: Txn) -> BoxFuture<'_, Result<WriteResult, WriteError>> {
        self.hook.write(&self.inner, txn)
    }

    fn refuses(&self) -> Option<SourceError> {
        self.hook.refuses()
    }
}
