//! Finds out whose objects etcd has, and so what this server may do with them.
//!
//! INVARIANT: a prefix with objects of another program is not written to unless the operator allows it. Its controllers
//! belong to that program even then.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::{
    OPEN_WAIT,
    client::EtcdClient,
    failure::EtcdFailure,
    keys,
    messages::{Compare, PutRequest, RangeRequest, RequestStep, TxnRequest},
};

/// The rights of this server over the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EtcdAccess {
    /// Writes, and runs the controllers: the objects are those of cache-servers.
    Owner,
    /// Writes for clients; another program runs the controllers.
    Guest,
    /// Only reads.
    ReadOnly,
}

/// Returns what this server may do below `root`. Marks an empty root as that of cache-servers.
pub(super) async fn open(client: &EtcdClient, root: &str, allow_writes: bool) -> Result<EtcdAccess, EtcdFailure> {
    let deadline = Instant::now() + OPEN_WAIT;
    let mut is_waiting = false;
    loop {
        match find(client, root, allow_writes).await {
            Err(failure) if failure.is_of_member() && Instant::now() < deadline => {
                if !is_waiting {
                    tracing::warn!(error = %failure, wait = ?OPEN_WAIT, "etcd not reached");
                }
                is_waiting = true;
                sleep(RETRY_PAUSE).await;
            }
            found => return found,
        }
    }
}

async fn find(client: &EtcdClient, root: &str, allow_writes: bool) -> Result<EtcdAccess, EtcdFailure> {
    let marker = Bytes::from(format!("{root}{MARKER}"));
    if is_marked(client, &marker).await? {
        return Ok(EtcdAccess::Owner);
    }
    let (key, range_end) = (Bytes::from(root.to_owned()), keys::end_of(root.as_bytes()));
    let any = RangeRequest { key, range_end, limit: 1, keys_only: true, ..RangeRequest::default() };
    let is_empty = client.range(any).await?.kvs.is_empty();
    // A key may be the marker of another server that starts at the same time, or an object of it.
    let is_owner = if is_empty { mark(client, marker).await? } else { is_marked(client, &marker).await? };
    if is_owner {
        return Ok(EtcdAccess::Owner);
    }
    if allow_writes {
        return Ok(EtcdAccess::Guest);
    }
    tracing::warn!(prefix = root, "etcd is read only: its objects are those of another program");
    Ok(EtcdAccess::ReadOnly)
}

async fn is_marked(client: &EtcdClient, marker: &Bytes) -> Result<bool, EtcdFailure> {
    let marked = RangeRequest { key: marker.clone(), limit: 1, ..RangeRequest::default() };
    Ok(!client.range(marked).await?.kvs.is_empty())
}

/// Creates the marker. Returns false if this user may not write.
async fn mark(client: &EtcdClient, marker: Bytes) -> Result<bool, EtcdFailure> {
    let put = PutRequest { key: marker.clone(), value: Bytes::from_static(MARKER_VALUE) };
    // Another server may create it at the same time; it is the same one then.
    let create = TxnRequest {
        compare: vec![Compare::mod_revision(marker, 0)],
        success: vec![RequestStep::Put(put).into()],
        failure: Vec::new(),
    };
    match client.write(create).await {
        Ok(_) => Ok(true),
        Err(EtcdFailure::Denied(_)) => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// Key below the root that marks it as that of cache-servers. No type has this prefix: those of custom types contain
/// a dot, and those of built-in types are words of Kubernetes.
const MARKER: &str = "cache-server";

/// The version of the layout.
const MARKER_VALUE: &[u8] = b"1";

/// Pause before another attempt to reach an etcd that is starting.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
