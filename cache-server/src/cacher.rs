//! The caches of all resource types: for each, one task that is the only writer and one that wakes.
//!
//! INVARIANT: a type's tasks start with its first reader and end with [`Caches::shut_down`].

use std::{sync::Arc, time::Duration};

use informer_core::Time;
use watch_cache::{Limits, Reader, Stats};

use crate::{
    registry::ResourceType,
    storage::{Storage, StorageError},
};

/// The type's cache was not listed in time, or no longer runs: 429.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cache of {resource} is not ready")]
pub struct NotReady {
    /// The type's id.
    pub resource: String,
    /// How long it has not been ready.
    pub since: Duration,
    /// Whether it never will be: the server shuts down.
    pub stopped: bool,
}

/// A read cannot be as fresh as asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unfresh {
    /// The position was not reached in time: 504.
    #[error("too large resource version: {asked}, current: {current}")]
    TooLarge {
        /// The position asked for.
        asked: u64,
        /// The cache's position.
        current: u64,
    },
    /// No cache yet: 429.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// The storage does not say where it is.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// The caches of all types.
pub struct Caches {}

impl Caches {
    /// Starts nothing yet. Within a tokio runtime only from [`Self::reader`] on.
    #[must_use]
    pub fn new(storage: Arc<dyn Storage>, limits: Limits) -> Self {
        let _ = (storage, limits);
        todo!()
    }

    /// The type's reader, listed. Starts its tasks on first use; waits at most 3 s.
    ///
    /// # Errors
    /// [`NotReady`].
    pub async fn reader(&self, ty: &Arc<ResourceType>) -> Result<Reader, NotReady> {
        todo!("{}", ty.id())
    }

    /// The type's reader once it has passed everything that was committed when this was called. Waits at most 3 s.
    ///
    /// # Errors
    /// [`Unfresh`].
    pub async fn fresh(&self, ty: &Arc<ResourceType>) -> Result<Reader, Unfresh> {
        todo!("{}", ty.id())
    }

    /// The type's reader once it has taken in `resource_version`. Waits at most 3 s.
    ///
    /// # Errors
    /// [`Unfresh::TooLarge`] and [`Unfresh::NotReady`].
    pub async fn at_least(&self, ty: &Arc<ResourceType>, resource_version: u64) -> Result<Reader, Unfresh> {
        todo!("{} {resource_version}", ty.id())
    }

    /// Now, on the clock of all caches: for [`Reader::hold`].
    #[must_use]
    pub fn now(&self) -> Time {
        todo!()
    }

    /// Counters of every cache that was started, by type id.
    #[must_use]
    pub fn stats(&self) -> Vec<(String, Stats)> {
        todo!()
    }

    /// Ends all watches cleanly and all tasks. Reads of what is there still work.
    pub fn shut_down(&self) {
        todo!()
    }
}
