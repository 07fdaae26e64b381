//! What one informer has done so far, as plain numbers.

use std::{ops::AddAssign, time::Duration};

use informer_core::stats;

/// How initial state is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// As a stream that goes on with the changes.
    Stream,
    /// In pages.
    Paged,
    /// At once.
    Unpaged,
}

/// Counts of one informer since its start. Numbers only grow.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// What the reflector counts: requests, relists by cause, fallbacks, failures by class, objects, bookmarks.
    pub reflector: stats::Stats,
    /// Body bytes of accepted answers, as received.
    pub bytes_received: u64,
    /// Objects without readable name. They are not in the store. Those without resourceVersion are, and count in
    /// [`unversioned`](informer_core::stats::Stats::unversioned).
    pub unreadable: u64,
    /// Objects left out because they are larger than [`object_bytes_max`](crate::Config::object_bytes_max), nested too
    /// deep, or no JSON object at all. They are not in the store, nor is an older state of them. Each is logged by its
    /// key, the first of each key and at most 64 keys.
    pub skipped: u64,
    /// Objects that did not decode: when they came, where they are kept decoded or transformed, and each time that
    /// somebody asked. They are in the store, and delivered, like all others.
    pub undecodable: u64,
    /// Times that the [`checkpoint`](crate::Config::checkpoint) could not be saved, or not be opened because another
    /// informer holds it.
    pub checkpoint_failures: u64,
    /// Times requests went to another endpoint than before.
    pub moves: u64,
    /// How initial state was asked for last; `None` before the first request for it.
    pub strategy: Option<Strategy>,
    /// From the request to its first object, for the first request that brought one.
    pub first_object_after: Option<Duration>,
    /// From the start to the first complete initial state.
    pub synced_after: Option<Duration>,
}

/// Counts add up. What is no count, such as the strategy, stays.
impl AddAssign<&Self> for Stats {
    fn add_assign(&mut self, other: &Self) {
        // Named one by one, so that a new count is not forgotten here.
        let Self {
            reflector,
            bytes_received,
            unreadable,
            skipped,
            undecodable,
            checkpoint_failures,
            moves,
            strategy: _,
            first_object_after: _,
            synced_after: _,
        } = self;
        *reflector += &other.reflector;
        *bytes_received += other.bytes_received;
        *unreadable += other.unreadable;
        *skipped += other.skipped;
        *undecodable += other.undecodable;
        *checkpoint_failures += other.checkpoint_failures;
        *moves += other.moves;
    }
}
