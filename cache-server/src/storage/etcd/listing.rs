//! Reads of a type's objects at one revision, in pages.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    client::EtcdClient,
    failure::EtcdFailure,
    keys::{self, TypeKeys},
    messages::{KeyValue, RangeRequest, RangeResponse},
};

/// Pages of keys at one revision. The first page decides which, unless it is given.
pub(super) struct PagedRange {
    client: Arc<EtcdClient>,
    next: Bytes,
    end: Bytes,
    /// Zero until the first page has come.
    revision: i64,
    page: PageSize,
    /// Keys that are still wanted; `None` for all.
    wanted: Option<i64>,
    is_over: bool,
}

/// One page.
pub(super) struct RangePage {
    pub(super) kvs: Vec<KeyValue>,
    /// Revision of all pages.
    pub(super) revision: u64,
    /// Keys from this page on.
    pub(super) count: u64,
    /// Cluster that answered.
    pub(super) cluster: u64,
}

impl PagedRange {
    /// Pages of all objects of a type; at the newest revision if `revision` is zero.
    pub(super) fn new(client: Arc<EtcdClient>, keys: &TypeKeys, revision: u64) -> Self {
        Self::between(client, keys.prefix.clone(), keys.end.clone(), revision, None)
    }

    /// Pages of at most `wanted` keys from `next` up to `end`.
    pub(super) fn between(
        client: Arc<EtcdClient>,
        next: Bytes,
        end: Bytes,
        revision: u64,
        wanted: Option<usize>,
    ) -> Self {
        let wanted = wanted.map(|wanted| i64::try_from(wanted).unwrap_or(i64::MAX));
        Self { client, next, end, revision: signed(revision), page: PageSize::default(), wanted, is_over: false }
    }

    /// Returns the next page; `None` after the last one.
    pub(super) async fn next(&mut self) -> Result<Option<RangePage>, EtcdFailure> {
        if self.is_over {
            return Ok(None);
        }
        let RangeResponse { header, kvs, more, count } = self.read().await?;
        let header = header.unwrap_or_default();
        if self.revision == 0 {
            self.revision = header.revision;
        }
        self.page.learn(&kvs);
        self.wanted = self.wanted.map(|wanted| wanted - i64::try_from(kvs.len()).unwrap_or(i64::MAX));
        match kvs.last() {
            Some(last) if more && self.wanted != Some(0) => self.next = keys::after(&last.key),
            _ => self.is_over = true,
        }
        Ok(Some(RangePage {
            kvs,
            revision: unsigned(self.revision),
            count: unsigned(count),
            cluster: header.cluster_id,
        }))
    }

    /// Reads a page, a smaller one if the response is too long.
    async fn read(&mut self) -> Result<RangeResponse, EtcdFailure> {
        loop {
            let limit = self.wanted.map_or(self.page.keys, |wanted| wanted.min(self.page.keys));
            let (key, range_end, revision) = (self.next.clone(), self.end.clone(), self.revision);
            let request = RangeRequest { key, range_end, limit, revision, ..RangeRequest::default() };
            match self.client.range(request).await {
                Err(EtcdFailure::LongResponse) if self.page.keys > 1 => self.page.keys = (self.page.keys / 8).max(1),
                other => return other,
            }
        }
    }
}

/// Keys per page, so that pages have about [`PAGE_BYTES`].
struct PageSize {
    keys: i64,
}

impl Default for PageSize {
    fn default() -> Self {
        Self { keys: FIRST_PAGE_KEYS }
    }
}

impl PageSize {
    /// Adapts to the size of the keys that were read: at most fourfold, as the next ones may be larger.
    fn learn(&mut self, read: &[KeyValue]) {
        let bytes: usize = read.iter().map(|kv| kv.key.len() + kv.value.len()).sum();
        if let Some(mean) = bytes.checked_div(read.len()) {
            let fitting = i64::try_from(PAGE_BYTES / mean.max(1)).unwrap_or(PAGE_KEYS_MAX);
            self.keys = fitting.min(self.keys * 4).clamp(1, PAGE_KEYS_MAX);
        }
    }
}

/// Returns a revision as etcd has it.
pub(super) fn signed(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

/// Returns a revision of etcd, which is never negative.
pub(super) fn unsigned(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or_default()
}

/// Bytes of a page of keys and values. Memory: some of these for each listing that is under way, in the window of its
/// connection and decoded.
pub(super) const PAGE_BYTES: usize = 4 << 20;

/// Keys of the first page: 16 of the largest objects that etcd takes are 24 MiB.
const FIRST_PAGE_KEYS: i64 = 16;

/// Keys of a page. For each page etcd counts the keys behind it, so small pages cost more.
const PAGE_KEYS_MAX: i64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_grow_to_their_size_and_shrink_with_larger_objects() {
        let objects = |bytes| vec![KeyValue { value: Bytes::from(vec![0; bytes]), ..KeyValue::default() }; 4];
        let mut page = PageSize::default();
        let grown: Vec<_> = (0..4).map(|_| (page.learn(&objects(5_000)), page.keys).1).collect();
        assert_eq!(grown, [64, 256, 838, 838]);
        page.learn(&objects(1 << 20));
        assert_eq!(page.keys, 4);
        page.learn(&objects(PAGE_BYTES * 2));
        assert_eq!(page.keys, 1);
        page.learn(&[]);
        assert_eq!(page.keys, 1);
    }
}
