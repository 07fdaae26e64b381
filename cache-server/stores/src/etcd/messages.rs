//! The messages of etcd's v3 API that this server uses, and the fields of them that it reads or sets.
//!
//! Source: `api/etcdserverpb/rpc.proto` and `api/mvccpb/kv.proto` of etcd-io/etcd. Unknown fields are skipped.

use bytes::Bytes;
use prost::{Message, Oneof};

/// Header of every response.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct ResponseHeader {
    /// Identity of the cluster; another one after a restore, unless that got the same addresses and token.
    #[prost(uint64, tag = "1")]
    pub(super) cluster_id: u64,
    /// Newest revision that the member has applied.
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(int64, tag = "2")]
    pub(super) create_revision: i64,
    /// Revision of the last change.
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    /// Number of changes since the key was created.
    #[prost(int64, tag = "4")]
    pub(super) version: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub(super) value: Bytes,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    /// The first key behind the range; empty for a single key.
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) range_end: Bytes,
    /// Largest number of keys; zero for all.
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    /// Zero for the newest.
    #[prost(int64, tag = "4")]
    pub(super) revision: i64,
    #[prost(bool, tag = "8")]
    pub(super) keys_only: bool,
    #[prost(bool, tag = "9")]
    pub(super) count_only: bool,
    /// Leaves out keys with an older change.
    #[prost(int64, tag = "10")]
    pub(super) min_mod_revision: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    /// True if the limit left keys out.
    #[prost(bool, tag = "3")]
    pub(super) more: bool,
    /// Keys in the range, whatever the limit and the filters.
    #[prost(int64, tag = "4")]
    pub(super) count: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    /// True to be sent the deleted values.
    #[prost(bool, tag = "3")]
    pub(super) prev_kv: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct DeleteRangeResponse {
    #[prost(message, repeated, tag = "3")]
    pub(super) prev_kvs: Vec<KeyValue>,
}

/// One step of a transaction.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RequestOp {
    #[prost(oneof = "RequestStep", tags = "1, 2, 3")]
    pub(super) request: Option<RequestStep>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(super) enum RequestStep {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
}

impl From<RequestStep> for RequestOp {
    fn from(request: RequestStep) -> Self {
        Self { request: Some(request) }
    }
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ResponseOp {
    #[prost(oneof = "ResponseStep", tags = "1, 3")]
    pub(super) response: Option<ResponseStep>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(super) enum ResponseStep {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeResponse),
}

/// A condition of a transaction: equality of one number of one key.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Compare {
    /// [`COMPARE_VERSION`] or [`COMPARE_MOD_REVISION`]. The comparison itself is field 1: zero, which means equal.
    #[prost(int32, tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) key: Bytes,
    #[prost(oneof = "CompareValue", tags = "4, 6")]
    pub(super) value: Option<CompareValue>,
}

/// Compares the number of changes of a key; zero if it does not exist.
const COMPARE_VERSION: i32 = 0;

/// Compares the revision of a key's last change; zero if it does not exist.
const COMPARE_MOD_REVISION: i32 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Oneof)]
pub(super) enum CompareValue {
    #[prost(int64, tag = "4")]
    Version(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
}

impl Compare {
    /// The key's last change was at this revision; zero if it does not exist.
    pub(super) const fn mod_revision(key: Bytes, revision: i64) -> Self {
        Self { target: COMPARE_MOD_REVISION, key, value: Some(CompareValue::ModRevision(revision)) }
    }

    /// The key was changed this many times since its creation; zero if it does not exist.
    pub(super) const fn version(key: Bytes, version: i64) -> Self {
        Self { target: COMPARE_VERSION, key, value: Some(CompareValue::Version(version)) }
    }
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct CompactionRequest {
    #[prost(int64, tag = "1")]
    pub(super) revision: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct CompactionResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct WatchStreamRequest {
    #[prost(oneof = "WatchStep", tags = "1, 3")]
    pub(super) request: Option<WatchStep>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(super) enum WatchStep {
    #[prost(message, tag = "1")]
    Create(WatchCreateRequest),
    #[prost(message, tag = "3")]
    Progress(WatchProgressRequest),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct WatchCreateRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) range_end: Bytes,
    /// First revision whose changes are sent.
    #[prost(int64, tag = "3")]
    pub(super) start_revision: i64,
    /// Sends the position of a quiet watch every ten minutes.
    #[prost(bool, tag = "4")]
    pub(super) progress_notify: bool,
    /// Splits responses that are larger than a request may be.
    #[prost(bool, tag = "8")]
    pub(super) fragment: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct WatchProgressRequest {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(bool, tag = "3")]
    pub(super) created: bool,
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    /// The oldest revision that a watch can start at, if the requested one was compacted.
    #[prost(int64, tag = "5")]
    pub(super) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(super) cancel_reason: String,
    /// True if the next response continues this one.
    #[prost(bool, tag = "7")]
    pub(super) fragment: bool,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<WatchedEvent>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct WatchedEvent {
    /// [`EVENT_DELETE`], or zero for a put.
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    /// The new version of the key. A deletion has its key and revision only.
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
}

/// [`WatchedEvent::kind`] of a deletion.
pub(super) const EVENT_DELETE: i32 = 1;

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    /// Such as 3.6.13.
    #[prost(string, tag = "2")]
    pub(super) version: String,
    /// Such as an exceeded quota.
    #[prost(string, repeated, tag = "8")]
    pub(super) errors: Vec<String>,
}
