//! Statistics of one informer, as plain numbers.

use std::{ops::AddAssign, time::Duration};

use informer_core::stats;

/// Way in which initial state is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// As a stream that continues with the changes.
    Stream,
    /// In pages.
    Paged,
    /// In one list.
    Unpaged,
}

/// Counts of one informer since its start. Counts never decrease.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Counts of the reflector: requests, relists by cause, fallbacks, failures by class, objects, bookmarks.
    pub reflector: stats::ReflectorStats,
    /// Bytes received in the bodies of accepted responses.
    pub bytes_received: u64,
    /// Objects without a readable name. They are not in the store. Objects without a resourceVersion are, and count in
    /// [`unversioned`](informer_core::stats::ReflectorStats::unversioned).
    pub unreadable: u64,
    /// Objects skipped because they are larger than [`object_bytes_max`](crate::Config::object_bytes_max), nested too
    /// deep, or not a JSON object. Neither they nor an older version of them are in the store. Each key is logged once,
    /// at most 64 keys.
    pub skipped: u64,
    /// Failed decodings: on arrival where objects are stored decoded or transformed, else at each call of
    /// [`decode`](crate::Object::decode). The objects are in the store and are delivered like all others.
    pub undecodable: u64,
    /// Failed attempts to open the [`checkpoint`](crate::Config::checkpoint), for example because another informer
    /// holds it, or to save to it.
    pub checkpoint_failures: u64,
    /// Times requests moved to another endpoint.
    pub moves: u64,
    /// Way in which initial state was last requested; `None` before the first request for it.
    pub strategy: Option<Strategy>,
    /// Time from the request to its first object, for the first request that returned one.
    pub first_object_after: Option<Duration>,
    /// Time from the start to the first complete initial state.
    pub synced_after: Option<Duration>,
}

/// Adds counts; leaves the other fields, such as the strategy, unchanged.
impl AddAssign<&Self> for Stats {
    fn add_assign(&mut self, other: &Self) {
        // Destructured, so that the compiler finds a new count that is missing here.
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
