//! Reads of earlier states, for lists at positions below the window of a cache.
//!
//! INVARIANT: at most [`HISTORY_READS_AT_ONCE`] such reads are under way, each with at most [`HISTORY_READ_BYTES_MAX`] of
//! objects.

use std::sync::Arc;

use bytes::Bytes;
use tokio::{sync::Semaphore, time::timeout};

use super::{
    client::EtcdClient,
    entry,
    keys::{self, TypeKeys},
    listing::{PagedRange, RangePage},
};
use crate::{
    limits::FRESH_WAIT,
    registry::ResourceType,
    storage::{SourceError, StateRead, StoredState},
};

/// Reads earlier states, a few at a time.
pub(super) struct HistoryReads {
    client: Arc<EtcdClient>,
    turns: Semaphore,
}

impl HistoryReads {
    pub(super) fn new(client: Arc<EtcdClient>) -> Self {
        Self { client, turns: Semaphore::new(HISTORY_READS_AT_ONCE) }
    }

    /// Reads what `read` asks for; waits at most 3 s for its turn.
    pub(super) async fn read(
        &self,
        ty: &ResourceType,
        keys: &TypeKeys,
        read: StateRead,
    ) -> Result<StoredState, SourceError> {
        let busy = || SourceError::Unavailable("too many reads of earlier states".to_owned());
        let _turn = timeout(FRESH_WAIT, self.turns.acquire()).await.map_err(|_| busy())?.map_err(|_| busy())?;
        let (first, end) = bounds(keys, &read);
        // A selector may skip any number of objects, so only a read of all of them knows how many keys it needs.
        let is_whole = read.filter.selects_all();
        let needed = read.limit.map(|limit| limit.saturating_add(1));
        let wanted = needed.filter(|_| is_whole);
        let mut pages = PagedRange::between(Arc::clone(&self.client), first, end, read.position, wanted);
        let mut found = StoredState::default();
        let mut bytes = 0;
        while let Some(RangePage { kvs, count, .. }) =
            pages.next().await.map_err(|failure| failure.of_read(read.position))?
        {
            if is_whole {
                found.following.get_or_insert(count);
            }
            for kv in &kvs {
                let Some(entry) = entry(ty, kv)?.filter(|entry| read.filter.matches(entry)) else { continue };
                bytes += entry.object().len();
                found.objects.insert(entry);
                if needed.is_some_and(|needed| needed <= found.objects.len()) {
                    return Ok(found);
                }
            }
            if HISTORY_READ_BYTES_MAX < bytes {
                // A client lists anew after the 410 that this becomes.
                return Err(SourceError::Compacted { after: read.position });
            }
        }
        Ok(found)
    }
}

/// Returns the first key of a read, and the one behind its last.
fn bounds(keys: &TypeKeys, read: &StateRead) -> (Bytes, Bytes) {
    let (first, end) = match read.filter.namespace() {
        Some(namespace) => {
            let first = keys.key(&format!("{namespace}/"));
            let end = keys::end_of(&first);
            (first, end)
        }
        None => (keys.prefix.clone(), keys.end.clone()),
    };
    match &read.start {
        Some(start) => (keys.key(start).max(first), end),
        None => (first, end),
    }
}

/// Reads at once: each costs etcd as much as the objects that it visits.
const HISTORY_READS_AT_ONCE: usize = 2;

/// Bytes of the objects that one read returns.
const HISTORY_READ_BYTES_MAX: usize = 128 << 20;
