//! Drops old revisions of etcd, as kube-apiserver does, so that its database does not grow without end.
//!
//! INVARIANT: of all servers of one etcd, kube-apiservers included, one compacts in each interval: the one that was first
//! to count the interval in a key that all of them know.
//!
//! Source: `pkg/storage/etcd3/compact.go` of kubernetes/apiserver.

use std::{sync::Weak, time::Duration};

use bytes::Bytes;
use tokio::time::sleep;

use super::{
    client::EtcdClient,
    failure::EtcdFailure,
    listing::unsigned,
    messages::{Compare, PutRequest, RangeRequest, RequestStep, ResponseStep, TxnRequest},
};

/// The state of the election, as this server last saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CountedIntervals {
    /// Number of intervals that were counted: the version of the key.
    count: i64,
    /// Revision of etcd at that time: what the next interval compacts.
    revision: i64,
}

/// Compacts every `interval` what is older than that, until the client is dropped.
pub(super) async fn run(client: Weak<EtcdClient>, interval: Duration) {
    let mut counted = CountedIntervals::default();
    loop {
        sleep(interval).await;
        let Some(client) = client.upgrade() else { return };
        match count(&client, counted).await {
            Ok((next, is_ours)) => {
                if is_ours && counted.revision > 0 {
                    compact(&client, counted.revision).await;
                }
                counted = next;
            }
            Err(error) => tracing::warn!(%error, "etcd compaction failed"),
        }
    }
}

/// Counts an interval. Returns false if another server has counted it.
async fn count(client: &EtcdClient, seen: CountedIntervals) -> Result<(CountedIntervals, bool), EtcdFailure> {
    let key = Bytes::from_static(COUNT_KEY);
    let value = Bytes::from(seen.revision.to_string());
    let request = TxnRequest {
        compare: vec![Compare::version(key.clone(), seen.count)],
        success: vec![RequestStep::Put(PutRequest { key: key.clone(), value }).into()],
        failure: vec![RequestStep::Range(RangeRequest { key, limit: 1, ..RangeRequest::default() }).into()],
    };
    let answer = client.write(request).await?;
    let revision = answer.header.unwrap_or_default().revision;
    if answer.succeeded {
        return Ok((CountedIntervals { count: seen.count + 1, revision }, true));
    }
    let found = match answer.responses.into_iter().next().and_then(|op| op.response) {
        Some(ResponseStep::Range(range)) => range.kvs.into_iter().next(),
        Some(ResponseStep::Delete(_)) | None => None,
    };
    Ok((CountedIntervals { count: found.map_or(0, |kv| kv.version), revision }, false))
}

async fn compact(client: &EtcdClient, revision: i64) {
    match client.compact(revision).await {
        // An operator may compact by hand, too.
        Ok(()) | Err(EtcdFailure::Compacted) => {
            tracing::info!(revision = unsigned(revision), "etcd compaction completed");
        }
        Err(error) => tracing::warn!(%error, "etcd compaction failed"),
    }
}

/// Key that counts the intervals, the one of kube-apiserver.
const COUNT_KEY: &[u8] = b"compact_rev_key";
