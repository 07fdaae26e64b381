//! The keys of a cluster's etcd as one state.

use std::collections::BTreeMap;

use crate::etcd::EtcdKeys;

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
    value: Vec<u8>,
    mod_revision: u64,
}

impl EtcdState {
    pub(super) async fn read(etcd: &EtcdKeys) -> Self {
        let mut all = etcd.range("").await;
        all.retain(|pair| !ITS_OWN.iter().any(|prefix| pair.key.starts_with(prefix)));
        let keys =
            all.into_iter().map(|pair| (pair.key, EtcdKey { value: pair.value, mod_revision: pair.mod_revision }));
        Self { keys: keys.collect() }
    }

    pub(super) async fn restore(&self, etcd: &EtcdKeys) {
        let now = Self::read(etcd).await;
        let deletions = now.keys.keys().filter(|key| !self.keys.contains_key(*key)).map(|key| (&**key, None));
        let is_changed = |(key, before): &(&String, &EtcdKey)| {
            now.keys.get(*key).is_none_or(|now| now.mod_revision != before.mod_revision && now.value != before.value)
        };
        let puts = self.keys.iter().filter(is_changed).map(|(key, before)| (&**key, Some(&*before.value)));
        let writes: Vec<(&str, Option<&[u8]>)> = deletions.chain(puts).collect();
        etcd.write_all(&writes).await;
    }
}
