//! Reads of earlier states: for lists at positions below the window of a cache, and for the start of an empty cache.
//!
//! INVARIANT: at most [`HISTORY_READS_AT_ONCE`] such reads are under way, each with at most [`HISTORY_READ_BYTES_MAX`] of
//! objects.

use std::sync::Arc;

use bytes::Bytes;
use tokio::{sync::Semaphore, time::timeout};

use super::{
    client::EtcdClient,
    entry,
    failure::EtcdFailure,
    keys::{self, TypeKeys},
    listing::{PagedRange, RangePage, signed, unsigned},
    messages::{RangeRequest, ResponseHeader, WatchResponse},
    stream::create,
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
        let limit = needed.filter(|_| is_whole);
        let mut pages = PagedRange::between(Arc::clone(&self.client), first, end, read.position, limit);
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

/// Returns the newest revision and the cluster of etcd: the header of a consistent read.
pub(super) async fn newest(client: &EtcdClient, keys: &TypeKeys) -> Result<ResponseHeader, EtcdFailure> {
    revision_at(client, keys, 0).await
}

/// Returns a revision up to [`RESUMED_REVISIONS`] below the newest one, if etcd still has all changes since.
pub(super) async fn recent(client: &EtcdClient, keys: &TypeKeys) -> Result<u64, EtcdFailure> {
    let newest = unsigned(newest(client, keys).await?.revision);
    let start = newest.saturating_sub(RESUMED_REVISIONS).max(1);
    match revision_at(client, keys, start).await {
        Err(EtcdFailure::Compacted) => {}
        other => return other.map(|_| start),
    }
    let Some(oldest) = oldest(client, keys, start).await? else { return Ok(newest) };
    match revision_at(client, keys, oldest).await {
        Err(EtcdFailure::Compacted | EtcdFailure::Ahead) => Ok(newest),
        other => other.map(|_| oldest),
    }
}

/// Returns the revision up to which etcd was compacted, whichever program did that: etcd names it to a watch from a
/// `compacted` revision. `None` if it does not in time.
async fn oldest(client: &EtcdClient, keys: &TypeKeys, compacted: u64) -> Result<Option<u64>, EtcdFailure> {
    let mut watch = client.watch(create(keys, compacted.saturating_sub(1))).await?;
    let named = async {
        loop {
            match watch.responses.message().await? {
                Some(response) if response.canceled => return Ok(compacted_up_to(&response)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    };
    timeout(FRESH_WAIT, named).await.unwrap_or(Ok(None))
}

/// Returns the revision that the end of a watch names; `None` if it ended for another reason, such as a missing right, which
/// etcd reports with zero.
fn compacted_up_to(canceled: &WatchResponse) -> Option<u64> {
    Some(unsigned(canceled.compact_revision)).filter(|&revision| 0 < revision)
}

/// Returns the header of etcd's answer, with its newest revision, if it has the state at `revision`.
async fn revision_at(client: &EtcdClient, keys: &TypeKeys, revision: u64) -> Result<ResponseHeader, EtcdFailure> {
    // One key of the type, as a user may have rights for it only.
    let (key, revision) = (keys.prefix.clone(), signed(revision));
    let answer = client.range(RangeRequest { key, revision, count_only: true, ..RangeRequest::default() }).await?;
    Ok(answer.header.unwrap_or_default())
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

/// Revisions, of all types, that the window of a new cache reaches back. Cost: the type's changes in them are read once
/// more when its cache starts. At 500 writes a second they take 40 s, longer than clients wait to reconnect.
const RESUMED_REVISIONS: u64 = 20_000;

/// Reads at once: each costs etcd as much as the objects that it visits.
const HISTORY_READS_AT_ONCE: usize = 2;

/// Bytes of the objects that one read returns.
const HISTORY_READ_BYTES_MAX: usize = 128 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a window never begins at revision zero, before all history. Method: watches that end with and without a revision.
    #[test]
    fn only_a_compaction_names_the_oldest_revision() {
        let canceled =
            |compact_revision| WatchResponse { canceled: true, compact_revision, ..WatchResponse::default() };
        assert_eq!(compacted_up_to(&canceled(0)), None);
        assert_eq!(compacted_up_to(&canceled(-1)), None);
        assert_eq!(compacted_up_to(&canceled(7)), Some(7));
    }
}
