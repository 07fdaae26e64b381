//! Reads of a type's objects at one revision, in pages.

use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::{
    client::EtcdClient,
    failure::EtcdFailure,
    keys::{self, TypeKeys},
    messages::{KeyValue, RangeRequest, RangeResponse},
};

/// Pages of keys at one revision. The first page decides which, unless it is given. The next page is read while the
/// caller works on one.
pub(super) struct PagedRange {
    client: Arc<EtcdClient>,
    /// The next page, unless it is being read.
    next: Option<PageRequest>,
    /// At most one page that is being read.
    ahead: JoinSet<FetchedPage>,
    /// Keys that are still wanted; `None` for all.
    remaining: Option<i64>,
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

/// A page that is not read yet.
#[derive(Clone)]
struct PageRequest {
    range: RangeRequest,
    size: PageSize,
}

/// A page as it was read, with the request for it.
type FetchedPage = (PageRequest, Result<RangeResponse, EtcdFailure>);

impl PagedRange {
    /// Pages of all objects of a type; at the newest revision if `revision` is zero.
    pub(super) fn new(client: Arc<EtcdClient>, keys: &TypeKeys, revision: u64) -> Self {
        Self::between(client, keys.prefix.clone(), keys.end.clone(), revision, None)
    }

    /// Pages of at most `remaining` keys from `key` up to `range_end`.
    pub(super) fn between(
        client: Arc<EtcdClient>,
        key: Bytes,
        range_end: Bytes,
        revision: u64,
        remaining: Option<usize>,
    ) -> Self {
        let range = RangeRequest { key, range_end, revision: signed(revision), ..RangeRequest::default() };
        let remaining = remaining.map(|remaining| i64::try_from(remaining).unwrap_or(i64::MAX));
        let next = PageRequest { range, size: PageSize::default() };
        Self { client, next: Some(next), ahead: JoinSet::new(), remaining }
    }

    /// Leaves out the values.
    pub(super) fn keys_only(mut self) -> Self {
        if let Some(next) = &mut self.next {
            next.range.keys_only = true;
            next.size.most = KEYS_ONLY_PAGE_KEYS_MAX;
        }
        self
    }

    /// Returns the next page; `None` after the last one.
    pub(super) async fn next(&mut self) -> Result<Option<RangePage>, EtcdFailure> {
        self.read_ahead();
        let (mut request, read) = match self.ahead.join_next().await {
            None => return Ok(None),
            Some(Ok(fetched)) => fetched,
            Some(Err(_)) => return Err(EtcdFailure::NotExecuted("reading a page failed".to_owned())),
        };
        let RangeResponse { header, kvs, more, count } = read?;
        let header = header.unwrap_or_default();
        if request.range.revision == 0 {
            request.range.revision = header.revision;
        }
        let revision = unsigned(request.range.revision);
        request.size.learn(&kvs);
        self.remaining = self.remaining.map(|remaining| remaining - i64::try_from(kvs.len()).unwrap_or(i64::MAX));
        if let (Some(last), true) = (kvs.last(), more && self.remaining != Some(0)) {
            request.range.key = keys::after(&last.key);
            self.next = Some(request);
            self.read_ahead();
        }
        Ok(Some(RangePage { kvs, revision, count: unsigned(count), cluster: header.cluster_id }))
    }

    fn read_ahead(&mut self) {
        if let Some(mut request) = self.next.take() {
            request.range.limit =
                self.remaining.map_or(request.size.keys, |remaining| remaining.min(request.size.keys));
            self.ahead.spawn(fetch(Arc::clone(&self.client), request));
        }
    }
}

/// Reads a page, a smaller one if the response is too long.
async fn fetch(client: Arc<EtcdClient>, mut request: PageRequest) -> FetchedPage {
    loop {
        match client.range(request.range.clone()).await {
            Err(EtcdFailure::LongResponse) if request.range.limit > 1 => {
                request.size.keys = (request.range.limit / 8).max(1);
                request.range.limit = request.size.keys;
            }
            read => return (request, read),
        }
    }
}

/// Keys per page, so that pages have about [`PAGE_BYTES`].
#[derive(Clone, Copy)]
struct PageSize {
    keys: i64,
    /// Largest number of keys.
    most: i64,
}

impl Default for PageSize {
    fn default() -> Self {
        Self { keys: FIRST_PAGE_KEYS, most: PAGE_KEYS_MAX }
    }
}

impl PageSize {
    /// Adapts to the size of the keys that were read: at most fourfold, as the next ones may be larger.
    fn learn(&mut self, read: &[KeyValue]) {
        let bytes: usize = read.iter().map(|kv| kv.key.len() + kv.value.len()).sum();
        if let Some(mean) = bytes.checked_div(read.len()) {
            let fitting = i64::try_from(PAGE_BYTES / mean.max(1)).unwrap_or(self.most);
            self.keys = fitting.min(self.keys * 4).clamp(1, self.most);
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

/// Bytes of a page of keys and values. Memory: two pages for each listing that is under way.
pub(super) const PAGE_BYTES: usize = 4 << 20;

/// Keys of the first page: 16 of the largest objects that etcd takes are 24 MiB.
pub(super) const FIRST_PAGE_KEYS: i64 = 16;

/// Keys of a page. For each page etcd counts the keys behind it, so small pages cost more.
const PAGE_KEYS_MAX: i64 = 10_000;

/// Keys of a page without values. etcd reads these too, so the size of the page says nothing about its cost there: 500 of the
/// largest objects that etcd takes are 750 MiB. As many as kube-apiserver reads at once.
const KEYS_ONLY_PAGE_KEYS_MAX: i64 = 500;

#[cfg(test)]
mod tests {
    use super::{super::client::EtcdMember, *};

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

    /// Goal: a walk of the keys of large objects does not exhaust etcd, which reads their values. Method: pages of short keys.
    #[tokio::test]
    async fn pages_of_keys_have_at_most_five_hundred() {
        let channel = tonic::transport::Channel::from_static("http://127.0.0.1:1").connect_lazy();
        let client = EtcdClient::new(vec![EtcdMember::new(String::new(), channel)], None);
        let pages = PagedRange::between(client, Bytes::from_static(b"/a"), Bytes::from_static(b"/b"), 1, None);
        let mut size = pages.keys_only().next.expect("a first page").size;
        let keys = vec![KeyValue { key: Bytes::from_static(b"/a/key"), ..KeyValue::default() }; 16];
        let grown: Vec<_> = (0..4).map(|_| (size.learn(&keys), size.keys).1).collect();
        assert_eq!(grown, [64, 256, 500, 500]);
    }
}
