//! The cache of one resource type: one writer, any number of readers, one state behind one lock.
//!
//! INVARIANT: the writer holds the lock for one event; a reader to clone the map or at most 64 `Arc<Event>`s.
//! Selectors, encoding and waking happen outside.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use informer_core::{Objects, Time};

use crate::{
    cursor::{Cursor, Start},
    entry::{Entry, Schema},
    event::{Change, Event},
    filter::Filter,
    interest::Waking,
    limits::{Limits, Total},
    stats::Stats,
};

/// The position lies below what the window still has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {asked} ({oldest})")]
pub struct Expired {
    /// The position asked for.
    pub asked: u64,
    /// The oldest position a watch can resume from.
    pub oldest: u64,
}

/// A change does not follow the last one: the cache must be listed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("change at {got} does not follow {applied}")]
pub struct OutOfOrder {
    /// Position of the change.
    pub got: u64,
    /// Newest position taken in.
    pub applied: u64,
}

/// The cache takes nothing in any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cache is closed")]
pub struct Closed;

/// An empty cache: who writes it, who wakes its watchers, and who reads it. Nothing can be read before the first
/// [`Writer::reset`].
#[must_use]
pub fn cache(schema: Arc<Schema>, limits: Limits) -> (Writer, Waking, Reader) {
    cache_within(schema, limits, Total::default())
}

/// [`cache`], one of several that share `total`.
#[must_use]
pub fn cache_within(schema: Arc<Schema>, limits: Limits, total: Total) -> (Writer, Waking, Reader) {
    todo!("{schema:?} {limits:?} {total:?}")
}

/// The only writer. Dropping it closes the cache: open watches end cleanly.
#[derive(Debug)]
pub struct Writer {}

impl Writer {
    /// Starts a new epoch with the state listed at `resource_version`: window and exact states are dropped, open
    /// watches end cleanly, resumes below get [`Expired`].
    pub fn reset(&mut self, objects: Objects<Entry>, resource_version: u64, now: Time) {
        todo!("{objects:?} {resource_version} {now}")
    }

    /// Takes one change in, in commit order. Cost: O(log n), whoever watches.
    ///
    /// # Errors
    /// [`OutOfOrder`] when it does not follow; the state is unchanged.
    pub fn apply(&mut self, change: Change, now: Time) -> Result<Option<Arc<Event>>, OutOfOrder> {
        todo!("{change:?} {now}")
    }

    /// Drops events that are too old. Call every few seconds while nothing happens.
    pub fn trim(&mut self, now: Time) {
        todo!("{now}")
    }

    /// Ends the cache: watches end cleanly, waits fail.
    pub fn close(&mut self) {
        todo!()
    }
}

/// One state of all objects. Holds no lock. While it lives, the window keeps the events after it within
/// [`Limits::snapshot_bytes_max`].
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The objects.
    pub objects: Objects<Entry>,
    /// What a LIST of this state says.
    pub resource_version: u64,
    /// The history it belongs to.
    pub epoch: u64,
}

impl Snapshot {
    /// Whether it became too expensive to keep: its reader must be cut, with anything but a clean end.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        todo!()
    }
}

/// Reads the cache. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Reader {}

impl Reader {
    /// The schema the cache was made with.
    #[must_use]
    pub fn schema(&self) -> &Arc<Schema> {
        todo!()
    }

    /// The newest position taken in; zero before the first listing.
    #[must_use]
    pub fn applied(&self) -> u64 {
        todo!()
    }

    /// The oldest position a watch of everything can resume from.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        todo!()
    }

    /// The state now. Cost: one reference count under the lock.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        todo!()
    }

    /// One object now.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<Entry>> {
        todo!("{key}")
    }

    /// The state at `resource_version`: the greatest one not above it. A position ahead of [`Self::applied`] is for the
    /// caller to wait for; here it gives the state now. Cost: undoing the events since; the last sixteen results are
    /// kept.
    ///
    /// # Errors
    /// [`Expired`] below the window or the epoch.
    pub fn at(&self, resource_version: u64) -> Result<Snapshot, Expired> {
        todo!("{resource_version}")
    }

    /// Keeps `resource_version` readable by [`Self::at`] until `until`, within [`Limits::snapshot_bytes_max`]: for the
    /// next page of a listing.
    pub fn hold(&self, resource_version: u64, until: Time) {
        todo!("{resource_version} {until}")
    }

    /// Opens a cursor.
    ///
    /// # Errors
    /// [`Expired`] when the changes after the start are no longer known.
    pub fn cursor(&self, start: Start, filter: Arc<Filter>) -> Result<Cursor, Expired> {
        todo!("{start:?} {filter:?}")
    }

    /// Resolves once the cache is listed and has taken in `resource_version`. Cancel safe.
    #[must_use]
    pub fn reached(&self, resource_version: u64) -> Reached {
        todo!("{resource_version}")
    }

    /// How far back the window reaches, as of the last change or trim; `None` while nothing was evicted. Bookmarks go
    /// out at least every third of it.
    #[must_use]
    pub fn covers(&self) -> Option<Duration> {
        todo!()
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> Stats {
        todo!()
    }
}

/// Waits for a position; see [`Reader::reached`].
#[derive(Debug)]
pub struct Reached {}

impl Future for Reached {
    type Output = Result<(), Closed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        todo!("{cx:?}")
    }
}
