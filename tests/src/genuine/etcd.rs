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

impl EtcdState {
    pub(super) async fn read(etcd: &Client) -> Self {
        // From the key `\0` to the end.
        let all = json!({"key": "AA==", "range_end": "AA=="});
        let range = etcd.post("/v3/kv/range", &all).await.with_code(200).json();
        let keys = range["kvs"].as_array().into_iter().flatten().filter_map(|pair| {
            let text = |member: &str| pair[member].as_str().unwrap_or_default().to_owned();
            let key = BASE64_STANDARD.decode(text("key")).unwrap();
            let key = String::from_utf8(key).unwrap();
            let is_its_own = ITS_OWN.iter().any(|prefix| key.starts_with(prefix));
            (!is_its_own).then(|| (key, EtcdKey { value: text("value"), mod_revision: text("mod_revision") }))
        });
        Self { keys: keys.collect() }
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

/// Removes the history before the present, and returns the present revision.
pub(super) async fn compact(etcd: &Client) -> u64 {
    let range = etcd.post("/v3/kv/range", &json!({"key": "AA=="})).await.with_code(200).json();
    let revision = range["header"]["revision"].as_str().unwrap().to_owned();
    etcd.post("/v3/kv/compaction", &json!({"revision": revision, "physical": true})).await.with_code(200);
    revision.parse().unwrap()
}
