//! Realistic synthetic objects, deterministic by seed: equal specifications give equal bytes.
//!
//! Generates what clusters hold: namespaces, nodes, service accounts, workloads, and pods that share their workload's
//! template. A pod is about 5 KB of JSON, about 40 % of it managedFields. Objects are generated one at a time; only the
//! current workload and the names of service accounts are kept.
//!
//! INVARIANT: a stock kube-apiserver with its usual admission accepts every object, in this order
//! (`tests/tests/upstream/populate.rs`).

mod cluster;
mod container;
mod managed_fields;
mod pod;
mod random;
mod template;
mod workload;

use std::collections::{BTreeSet, VecDeque};

use serde_json::Value;

use self::{random::Random, workload::Workload};
use crate::config::PopulateSpec;

/// One generated object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedObject {
    /// API group; empty for core.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Plural of the resource.
    pub plural: &'static str,
    /// Compact JSON without resourceVersion.
    pub json: Vec<u8>,
}

impl GeneratedObject {
    /// Resource with its group, such as `pods` or `deployments.apps`.
    #[must_use]
    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }
}

/// Difference between the seeds of service accounts and of all other objects.
const ACCOUNTS_SEED: u64 = 0x5e71_acc0;

/// The objects of `spec`, one at a time: namespaces, nodes, then each workload after its service account and followed by
/// its pods.
///
/// Cost: about 10 µs per pod. Holds one workload in memory, and at most 128 names of service accounts per namespace.
#[must_use]
pub fn objects(spec: &PopulateSpec) -> GeneratedObjects {
    let random = Random::new(spec.seed);
    let pods = if spec.nodes == 0 || spec.namespaces == 0 { 0 } else { spec.pods };
    GeneratedObjects {
        spec: PopulateSpec { pods, ..spec.clone() },
        random,
        random_accounts: Random::new(spec.seed ^ ACCOUNTS_SEED),
        accounts: BTreeSet::new(),
        namespaces: 0,
        nodes: 0,
        pods: 0,
        workloads: 0,
        current: None,
        ready: VecDeque::new(),
    }
}

/// Like [`objects`], but decoded: the resource's id and the object. For tests and tools; decoding costs more than
/// generating.
pub fn generate(spec: &PopulateSpec) -> impl Iterator<Item = (String, Value)> + use<> {
    objects(spec).map(|object| {
        let value = serde_json::from_slice(&object.json).expect("the generator makes JSON");
        (object.resource(), value)
    })
}

/// Iterator of [`objects`].
pub struct GeneratedObjects {
    spec: PopulateSpec,
    random: Random,
    random_accounts: Random,
    /// Namespaces and names of the service accounts so far: workloads share them.
    accounts: BTreeSet<(String, String)>,
    namespaces: u32,
    nodes: u32,
    pods: u32,
    workloads: u32,
    current: Option<Workload>,
    /// The current workload's own objects.
    ready: VecDeque<GeneratedObject>,
}

impl Iterator for GeneratedObjects {
    type Item = GeneratedObject;

    fn next(&mut self) -> Option<GeneratedObject> {
        if self.namespaces < self.spec.namespaces {
            self.namespaces += 1;
            let namespace = cluster::namespace(self.namespaces - 1, &mut self.random);
            return Some(core("namespaces", &namespace));
        }
        if self.nodes < self.spec.nodes {
            self.nodes += 1;
            let node = cluster::node(self.nodes - 1, &mut self.random);
            return Some(core("nodes", &node));
        }
        loop {
            if let Some(object) = self.ready.pop_front() {
                return Some(object);
            }
            // Round robin: as even as a scheduler's placement, and a daemon set covers each node once.
            let node = self.pods.checked_rem(self.spec.nodes)?;
            if let Some(pod) = self.current.as_mut().and_then(|workload| workload.next_pod(node, &mut self.random)) {
                self.pods += 1;
                return Some(pod);
            }
            let left = self.spec.pods - self.pods;
            if left == 0 {
                return None;
            }
            let PopulateSpec { nodes, namespaces, .. } = self.spec;
            let (workload, objects) = Workload::plan(self.workloads, left, nodes, namespaces, &mut self.random);
            self.workloads += 1;
            if self.accounts.insert(workload.account_key()) {
                self.ready.push_back(core("serviceaccounts", &workload.account(&mut self.random_accounts)));
            }
            self.current = Some(workload);
            self.ready.extend(objects);
        }
    }
}

fn core(plural: &'static str, value: &Value) -> GeneratedObject {
    GeneratedObject { group: "", version: "v1", plural, json: value.to_string().into_bytes() }
}

#[cfg(test)]
mod tests;
