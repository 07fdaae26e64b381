//! The keys of a cluster's etcd, read and written through its JSON API.
//!
//! In that API keys and values are base64, and 64-bit numbers are strings.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::http::Client;

/// Largest number of operations in one transaction: etcd's default limit.
const OPERATIONS_MAX: usize = 128;
/// Keys that kube-apiserver writes by itself, at any time.
const ITS_OWN: [&str; 6] = [
    "/registry/leases/kube-system/",
    "/registry/masterleases/",
    "/registry/ranges/",
    "/registry/ipaddresses/",
    "/registry/events/",
    "compact_rev",
];

/// All keys at one moment.
#[derive(Debug)]
pub struct EtcdState {
    keys: BTreeMap<String, EtcdKey>,
}

#[derive(Debug)]
struct EtcdKey {
    /// As base64.
    value: String,
    mod_revision: String,
}

/// A value and the revision of its last change.
#[derive(Debug)]
pub struct StoredValue {
    /// The bytes as kube-apiserver wrote them.
    pub bytes: Vec<u8>,
    /// The resourceVersion of the object.
    pub mod_revision: u64,
}

impl EtcdState {
    pub(super) async fn read(etcd: &Client) -> Self {
        // From the key `\0` to the end.
        let pairs = range(etcd, b"\0", b"\0").await;
        let is_its_own = |key: &str| ITS_OWN.iter().any(|prefix| key.starts_with(prefix));
        Self { keys: pairs.into_iter().filter(|(key, _)| !is_its_own(key)).collect() }
    }

    pub(super) async fn restore(&self, etcd: &Client) {
        let now = Self::read(etcd).await;
        let deletions = now.keys.keys().filter(|key| !self.keys.contains_key(*key));
        let deletions = deletions.map(|key| json!({"requestDeleteRange": {"key": BASE64_STANDARD.encode(key)}}));
        let is_changed = |(key, before): &(&String, &EtcdKey)| {
            now.keys.get(*key).is_none_or(|now| now.mod_revision != before.mod_revision && now.value != before.value)
        };
        let puts = self.keys.iter().filter(is_changed);
        let puts = puts
            .map(|(key, before)| json!({"requestPut": {"key": BASE64_STANDARD.encode(key), "value": before.value}}));
        let operations: Vec<Value> = deletions.chain(puts).collect();
        for operations in operations.chunks(OPERATIONS_MAX) {
            etcd.post("/v3/kv/txn", &json!({"success": operations})).await.with_code(200);
        }
    }
}

/// The keys from `start` to `end`.
async fn range(etcd: &Client, start: &[u8], end: &[u8]) -> BTreeMap<String, EtcdKey> {
    let range = json!({"key": BASE64_STANDARD.encode(start), "range_end": BASE64_STANDARD.encode(end)});
    let range = etcd.post("/v3/kv/range", &range).await.with_code(200).json();
    let pairs = range["kvs"].as_array().into_iter().flatten().map(|pair| {
        let text = |member: &str| pair[member].as_str().unwrap_or_default().to_owned();
        let key = String::from_utf8(BASE64_STANDARD.decode(text("key")).unwrap()).unwrap();
        (key, EtcdKey { value: text("value"), mod_revision: text("mod_revision") })
    });
    pairs.collect()
}

/// The keys that begin with `prefix`.
pub(super) async fn stored(etcd: &Client, prefix: &str) -> BTreeMap<String, StoredValue> {
    let mut end = prefix.as_bytes().to_owned();
    *end.last_mut().expect("a prefix is not empty") += 1;
    let pairs = range(etcd, prefix.as_bytes(), &end).await;
    let value = |key: EtcdKey| StoredValue {
        bytes: BASE64_STANDARD.decode(key.value).unwrap(),
        mod_revision: key.mod_revision.parse().unwrap(),
    };
    pairs.into_iter().map(|(name, key)| (name, value(key))).collect()
}

/// Writes a key without kube-apiserver.
pub(super) async fn store(etcd: &Client, key: &str, value: &[u8]) {
    let put = json!({"key": BASE64_STANDARD.encode(key), "value": BASE64_STANDARD.encode(value)});
    etcd.post("/v3/kv/put", &put).await.with_code(200);
}

/// Removes the history before the present, and returns the present revision.
pub(super) async fn compact(etcd: &Client) -> u64 {
    let range = etcd.post("/v3/kv/range", &json!({"key": "AA=="})).await.with_code(200).json();
    let revision = range["header"]["revision"].as_str().unwrap().to_owned();
    etcd.post("/v3/kv/compaction", &json!({"revision": revision, "physical": true})).await.with_code(200);
    revision.parse().unwrap()
}
